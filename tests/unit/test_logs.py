"""Parsers: real logs, and what the lines of each format state."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path

import pytest
import yaml
from make_logs import SHARED_LOGS, arcface_torch, dllogger_pytorch, maxtext, megatron, torchtitan
from read_logs import TAG, Step, read, stated, steps, together

from dlperf_runner import logs
from dlperf_runner.logs import Header, LineError

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "logs"
REAL = sorted(FIXTURES.glob("*/*.log"))


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_log_is_recognised_and_read(path: Path) -> None:
    expected = json.loads(path.with_suffix(".expected.json").read_text())
    data = path.read_bytes()
    log_format = logs.detect([data])
    assert log_format is not None
    assert log_format.name == expected["format"] == path.parent.name
    headers, found = read(log_format.name, data)
    assert [(s.line, s.step, s.samples_per_second, s.loss) for s in found] == [
        (s["line"], s["step"], float(s["printed"]), s.get("loss")) for s in expected["steps"]
    ]
    writers = [{k: v for k, v in one.items() if k != "writer"} for one in stated(headers)]
    assert writers == expected["headers"]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_the_end_of_a_log_shows_that_another_program_followed(path: Path) -> None:
    """In whichever order, and with text of no program between them."""
    forms, own = logs.formats(), path.parent.name
    end = path.read_bytes()
    assert logs.other_at_end(forms[own], end) is None
    if forms[own].table is not None:  # a test before a training is none
        return
    for other in {real.parent.name: real for real in REAL}.values():
        follows = other.parent.name
        if follows == own or forms[follows].table is not None:
            continue
        both = end + b"NCCL INFO Connected all rings\n" * 100 + other.read_bytes()
        found = logs.other_at_end(forms[own], both)
        assert found is forms[follows]


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_origin_of_real_log_is_recorded(path: Path) -> None:
    origins = yaml.safe_load((path.parent / "ORIGIN.yml").read_text())
    (origin,) = [entry for entry in origins if entry["file"] == path.name]
    assert origin["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()
    assert {"source", "software", "date", "machine", "cut"} <= set(origin)


@pytest.mark.skipif(not SHARED_LOGS.is_dir(), reason="the logs of others are not beside this")
@pytest.mark.parametrize("name", ["tf_rn50_b256_fp32_1n1g", "tf_rn50_b256_amp_1n8g"])
def test_logs_of_others_are_read(name: str) -> None:
    (path,) = (SHARED_LOGS / "dllogger").glob(f"{name}_v100_*.log")
    read = steps("dllogger", path.read_bytes())
    assert [step for step, _ in read] == list(range(201, 500, 10))


def test_gluoncv_reads_steps_losses_and_statements_but_not_the_epochs_speed() -> None:
    headers, found = read(
        "gluoncv_horovod",
        "INFO:root:Namespace(batch_size=128, dtype='float16', iterations=12, log_interval=2)\n"
        "INFO:root:world_size=8\n"
        "INFO:root:Epoch[0] Batch[2] Loss[7.1]\n"
        "INFO:root:Epoch[0] Batch[2]\tSpeed: 2.05 samples/sec\n"
        "INFO:root:Epoch[0] Batch[4]\tSpeed: 2.06 samples/sec\n"
        "INFO:root:Epoch[0]\tSpeed: 2.26 samples/sec\n"
        "INFO:root:Epoch[1] Batch[2]\tSpeed: 9.99 samples/sec\n",
    )
    assert headers == [
        Header(1, batch_size_per_device=128, precision="fp16", total_steps=12, log_every=2),
        Header(2, world_size=8),
    ]
    assert found == [Step(2, 2.05, 4, loss=7.1), Step(4, 2.06, 5)]


def test_arcface_both_wordings() -> None:
    assert read(
        "mxnet_speedometer",
        "INFO:root:Epoch[0] Batch [0-20]\tSpeed: 1.32 samples/sec\tacc=0.0\tlossvalue=41.5\n"
        "INFO:root:Iter[0] Batch [40]\tSpeed: 5.97 samples/sec\n",
    )[1] == [Step(20, 1.32, 1, loss=41.5), Step(40, 5.97, 2)]


def test_plsc_time_stamp() -> None:
    line = "INFO 1970-01-02 00:00:01,500 entry.py:1031] Pass:0 batch:0 lr:0.1 loss:4.5 qps:2.00"
    assert read("plsc", f"{line}\n")[1] == [Step(1, 2.0, 1, loss=4.5, unix_time=86401.5)]


def test_plsc_tells_how_many_processes_share_the_log() -> None:
    headers, _ = read("plsc", "INFO x y] trainer_id: 3, num_trainers: 16\n")
    assert headers == [Header(1, world_size=16, writer=3)]


@pytest.mark.parametrize(
    ("log_format", "line", "says"),
    [
        (
            "mxnet_speedometer",
            "Called with argument: Namespace(batch_size=8, ctx_num=2, dtype='float32', "
            "frequent=20, per_batch_size=4) {'net_se': 0, 'max_steps': 120}",
            {
                "batch_size_per_device": 4,
                "world_size": 2,
                "precision": "fp32|tf32",
                "total_steps": 120,
                "log_every": 20,
                "parameters": {"parallel": "data"},
            },
        ),
        ("plsc", "INFO x entry.py:89] Set dtype to float32.", {"precision": "fp32|tf32"}),
        ("plsc", "Set noise to fresh.", {"parameters": {"noise": "fresh"}}),
        ("plsc", "Set noise to one batch.", {"parameters": {"noise": "one batch"}}),
        ("plsc", "INFO x entry.py:90] Set number of batches to 150.", {"total_steps": 150}),
        ("plsc", "INFO x y] Use mixed precision training: True.", {"precision": "fp16"}),
        ("plsc", "INFO x y] Use mixed precision training: False.", {"precision": "fp32|tf32"}),
        ("oneflow_benchmark", "num_iters = 200", {"total_steps": 200}),
        ("oneflow_benchmark", "use_fp16 = True", {"precision": "fp16"}),
        ("dllogger", "Num GPUs 8", {"world_size": 8}),
        ("gluoncv_horovod", "INFO:root:Namespace(dtype='bfloat16')", {"precision": "bf16"}),
    ],
)
def test_what_a_line_states(log_format: str, line: str, says: dict[str, object]) -> None:
    headers, _ = read(log_format, f"{line}\n")
    assert stated(headers) == [{"line": 1} | says]


@pytest.mark.parametrize(
    ("end", "time"), [("", None), (" 1597050000.123456", 1597050000.123456), (" ", None)]
)
def test_oneflow_with_and_without_trailing_time(end: str, time: float | None) -> None:
    line = "train: epoch 0, iter 20, loss: 6.5, top_1: 0.0, top_k: 0.0, samples/s: 288.088"
    assert read("oneflow_benchmark", f"{line}{end}\n")[1] == [
        Step(20, 288.088, 1, loss=6.5, unix_time=time)
    ]


def test_oneflow_reads_no_validation_and_states_what_ran() -> None:
    headers, found = read(
        "oneflow_benchmark",
        "Running resnet50: num_gpu_per_node = 4, num_nodes = 2.\n"
        "batch_size_per_device = 160\nval_batch_size_per_device = 125\nuse_fp16 = None\n"
        "validation: epoch 0, iter 20, top_1: 0.0, top_k: 0.0, samples/s: 288.088\n",
    )
    assert stated(headers) == [
        {"line": 1, "world_size": 8, "nodes": 2, "network": "resnet50"},
        {"line": 2, "batch_size_per_device": 160},
        {"line": 4, "precision": "fp32"},
    ]
    assert not found


DLL = "DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : "


@pytest.mark.parametrize(
    "line",
    [
        f"{DLL}33317.669883074355",
        f"{DLL}33317.669883074355 images/s",
        f"{TAG}{DLL}33317.669883074355 ",
        f"[1,0]<stdout>:{DLL}33317.669883074355 images/s",
        f"[prterun-node1-77@1,0]<stdout>: {DLL}33317.669883074355",
        f"Tue Jun 14 15:40:21 2022<stdout>:{DLL}33317.669883074355",
        f"{DLL}33317.669883074355{TAG}",
        f"{DLL}33317.66{TAG}9883074355",
        f"DLL 2022-06-14 15:40:21.026182 - (0, {TAG}200) total_ips : 33317.669883074355",
        f"noise {TAG}{DLL}33317.669883074355{TAG} images/s{TAG}",
    ],
)
def test_dllogger_wherever_mpirun_puts_its_prefix(line: str) -> None:
    assert steps("dllogger", f"{line}\n") == [(201, 33317.669883074355)]


def test_dllogger_final_value() -> None:
    headers, _ = read(
        "dllogger", f"{TAG}DLL 2022-06-14 15:40:21.0 - () train_throughput : 7.5{TAG} images/s\n"
    )
    assert headers == [Header(1, final_samples_per_second=7.5)]


def test_two_steps_on_a_line_whose_newline_was_lost() -> None:
    line = "INFO:root:Epoch[0] Batch[{}]\tSpeed: {} samples/sec"
    joined = line.format(1, 1.5) + line.format(2, 2.5)
    assert steps("gluoncv_horovod", joined) == [(1, 1.5), (2, 2.5)]


@pytest.mark.parametrize("printed", ["12.3INFO:root:x", "1_000", "1,5", "١٢", "--"])
def test_rate_that_is_no_number_is_told_with_its_line(printed: str) -> None:
    content = f"\nINFO:root:Epoch[0] Batch[1]\tSpeed: {printed} samples/sec\n"
    with pytest.raises(LineError, match=re.escape("line 2: the rate is not a number")):
        read("gluoncv_horovod", content)


def test_batch_size_that_is_no_count_is_told() -> None:
    with pytest.raises(LineError, match="batch size is not a positive number"):
        read("gluoncv_horovod", "INFO:root:Namespace(batch_size=0)\n")


def test_detect_knows_a_format_by_content_only() -> None:
    noise = b"NCCL INFO samples/sec qps: total_ips\n" * 100
    line = b"INFO:root:Iter[0] Batch [20]\tSpeed: 5.97 samples/sec\n"
    found = logs.detect([noise + line])
    assert found is not None
    assert found.name == "mxnet_speedometer"
    assert logs.detect([noise]) is None


def test_tail_of_a_running_log() -> None:
    tail = (
        "d: 1 samples/sec\nINFO:root:Epoch[0] Batch[7]\tSpeed: 2.5 samples/sec\nINFO:root:Epo\udc80"
    )
    assert logs.parse_tail("gluoncv_horovod", tail) == 2.5
    assert logs.parse_tail("gluoncv_horovod", "") is None
    assert logs.parse_tail("nothing like it", tail) is None
    assert logs.parse_tail("gluoncv_horovod", "Epoch[0] Batch[7]\tSpeed: nan samples/sec") is None


@pytest.mark.parametrize(
    ("log_format", "lines", "says", "parameters"),
    [
        (
            *("torchtitan", torchtitan(6835, world=8)),
            {"world_size": 8, "global_batch_size": 16, "total_steps": 100},
            {"sequence_length": "8192", "micro_batch_size": "2", "accumulation_steps": "1"}
            | {"mesh_pp": "1", "mesh_ddp": "1", "mesh_fsdp": "8", "mesh_cp": "1"}
            | {"mesh_tp": "1", "mesh_ep": "1"},
        ),
        (
            *("maxtext", maxtext(8671.794, world=8)),
            {"precision": "bf16", "total_steps": 30, "batch_size_per_device": 4, "world_size": 8},
            {"sequence_length": "2048"},
        ),
        (
            *("megatron", megatron(123.4)),
            {"precision": "bf16", "global_batch_size": 16, "log_every": 10, "total_steps": 100}
            | {"world_size": 8},
            {"bf16": "True", "fp16": "False", "sequence_length": "4096"},
        ),
        (
            *("dllogger_pytorch", dllogger_pytorch(2480.33, world=8)),
            {"batch_size_per_device": 256, "world_size": 8, "log_every": 10, "precision": "amp"}
            | {"total_steps": 100, "network": "resnet50"},
            {"data": "/data"},
        ),
    ],
)
def test_headers_of_language_models(
    log_format: str, lines: list[str], says: dict[str, object], parameters: dict[str, str]
) -> None:
    found = together(read(log_format, "\n".join(lines) + "\n")[0])
    assert found.pop("line")
    assert found == {**says, "parameters": parameters}


def test_headers_of_arcface_and_the_interval_without_a_line() -> None:
    headers, found = read("arcface_torch", "\n".join(arcface_torch(2271.33)) + "\n")
    assert {k: v for one in stated(headers) for k, v in one.items() if k != "parameters"} == {
        "line": 10,
        "network": "r50",
        "precision": "amp",
        "batch_size_per_device": 128,
        "global_batch_size": 1024,
        "log_every": 10,
        "total_steps": 100,
    }
    options = [one["parameters"] for one in stated(headers) if "parameters" in one]
    assert options == [
        {"sample_rate": "0.1"},
        {"data": "synthetic"},
        {"classes": "93431"},
    ]
    assert [step.step for step in found] == list(range(20, 101, 10))


def test_a_batch_size_that_ramps_up_is_refused() -> None:
    lines = megatron(123.4)
    at = next(n for n, line in enumerate(lines) if "iteration       50/" in line)
    lines[at] = lines[at].replace("global batch size:    16", "global batch size:    32")
    with pytest.raises(LineError, match="the global batch size changes during the run") as caught:
        read("megatron", "\n".join(lines) + "\n")
    assert caught.value.line == at + 1
