"""The programs of TensorFlow 2 and PaddlePaddle 3 without them: options, places, lines, timing and
what the log confirms."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType, SimpleNamespace
from unittest.mock import Mock

import pytest
from command_line import call
from compare_rows import rows
from frame_rows import frame
from make_logs import dllogger_pytorch, write
from program_options import refusal
from read_logs import read

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.compare.published import compare_published
from dlperf_runner.core.frame import records
from dlperf_runner.core.identity import case_key
from dlperf_runner.results.run_record import version_of
from dlperf_runner.stats.summary import summarize
from dlperf_runner.workloads import dllogger_lines as dllogger
from dlperf_runner.workloads import paddle3_resnet50 as paddle3
from dlperf_runner.workloads import tensorflow2_resnet50 as tensorflow2

PROGRAMS = {"tensorflow2": tensorflow2, "paddle3": paddle3}


def mpi(rank: int, size: int, local: int) -> dict[str, str]:
    values = {"RANK": rank, "SIZE": size, "LOCAL_RANK": local}
    return {f"OMPI_COMM_WORLD_{name}": str(value) for name, value in values.items()}


def test_each_process_has_an_address_of_its_own_and_finds_its_number() -> None:
    assert tensorflow2.workers({}) == (["127.0.0.1:29500"], 0, 0)
    hosts = {"TF_WORKER_HOSTS": "10.0.0.1,10.0.0.2"}
    addresses = [f"10.0.0.{node}:{port}" for node in (1, 2) for port in (29500, 29501)]
    assert tensorflow2.workers({**hosts, **mpi(3, 4, 1)}) == (addresses, 3, 1)
    assert tensorflow2.workers({"TF_WORKER_HOSTS": "10.0.0.1", **mpi(1, 2, 1)}) == (
        *(["10.0.0.1:29500", "10.0.0.1:29501"], 1, 1),
    )
    with pytest.raises(SystemExit, match="names 2 nodes, which cannot have 3 processes"):
        tensorflow2.workers({**hosts, **mpi(0, 3, 0)})


def test_gpus_that_are_missing_are_told() -> None:
    arguments = tensorflow2.parse_arguments([])
    tf = SimpleNamespace(config=SimpleNamespace(list_physical_devices=Mock(return_value=[])))
    with pytest.raises(SystemExit, match="process 0 of this node has no GPU, TensorFlow finds 0"):
        tensorflow2.join(tf, arguments)
    paddle = Mock()
    paddle.device.cuda.device_count.return_value = 0
    with pytest.raises(SystemExit, match="Paddle finds no GPU on this node; --no-cuda"):
        paddle3.join(paddle, on_cpu=False)


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--no-cuda", "--precision", "tf32"], "--precision tf32 needs a GPU; a CPU takes fp32"),
        (["--no-cuda"], "--precision amp needs a GPU; a CPU takes fp32 and bf16"),
        (["--batch-size", "0"], "a number from 1 expected"),
    ],
)
def test_options_that_cannot_work_are_refused(
    program: ModuleType, options: list[str], told: str
) -> None:
    assert told in refusal(program, options)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_log_confirms_the_plan(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = PROGRAMS[name].parse_arguments(["--batch-size", "64", "--iterations", "2"])
    dllogger.print_line(
        "PARAMETER", {**dllogger.parameters(arguments, 16), "arch": f"{name}_resnet50"}
    )
    taken = [(1, 0.5, 7.5), (2, 1.5, 6.5)]
    losses = dllogger.say_training(dllogger.print_line, taken, 16 * 64, arguments.lr)
    text = capsys.readouterr().out
    # Of both steps: 2048 images in 2 s.
    assert text.rstrip().endswith("train.total_ips : 1024.00 img/s")
    (header,), steps = read("dllogger_pytorch", text)
    assert losses == [7.5, 6.5]
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [
        *((1, 2048.0, 7.5), (2, 682.67, 6.5))
    ]
    assert (header.batch_size_per_device, header.world_size, header.total_steps) == (64, 16, 2)
    assert (header.precision, header.network) == ("amp", f"{name}_resnet50")


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_log_without_a_record_is_told_from_one_of_pytorch(name: str, tmp_path: Path) -> None:
    text = dllogger_pytorch(100.0)
    log = [line.replace("arch : resnet50", f"arch : {name}_resnet50") for line in text]
    write(tmp_path / "logs" / "1n1g" / f"{name}_rn50_b256_amp_1.log", log)
    out = call("summarize", tmp_path / "logs", "--output-dir", tmp_path / "out", "--json")
    assert f'"workload": "{name}-resnet50v1.5"' in out.out


def test_the_version_is_that_of_the_package_without_the_number() -> None:
    installed = {"tensorboard": "1", "tensorflow-cpu": "2.21.0", "paddlepaddle": "3.3.1"}
    outcome = {"versions": installed}
    assert version_of(outcome, "tensorflow2") == "2.21.0"
    assert version_of(outcome, "paddle3") == "3.3.1"


@pytest.mark.parametrize(
    ("name", "accelerator", "precision", "batch", "published"),
    [
        ("tensorflow2", "V100-SXM2-16GB", "fp32", 128, ("dlperf-tensorflow2-resnet50v1.5", 321.8)),
        ("paddle3", "V100-SXM2-16GB", "fp32", 128, ("dlperf-paddle-resnet50v1.5", 352.72)),
        ("paddle3", "V100-SXM2-32GB", "fp32", 256, ("perf-paddle-resnet50v1.5", 393.561)),
        ("paddle3", "A100-SXM4-80GB", "tf32", 256, ("nvidia-paddle-resnet50v1.5", 1024)),
    ],
)
def test_todays_release_stands_beside_what_was_published_of_its_framework(
    name: str, accelerator: str, precision: str, batch: int, published: tuple[str, float]
) -> None:
    case = {
        "workload": f"{name}-resnet50v1.5",
        "framework": name,
        "model": "resnet50v1.5",
        "precision": precision,
        "batch_size_per_device": batch,
        "nodes": 1,
        "gpus_per_node": 1,
        "accelerator": accelerator,
    }
    form = frame(rows([published[1] * (1 + n / 10000) for n in range(-2, 3)], **case))
    keys = [case_key(row) for row in records(summarize(form))]
    told = {key: {"data": "real", "xla": False, "steps": None} for key in keys}
    (row,) = records(compare_published(form, told))
    assert (row["report"], row["published"]) == published
    assert row["ratio"] == pytest.approx(1)


def test_the_catalogue_says_where_they_cannot_run() -> None:
    frameworks = load_catalog().frameworks
    for stack in ("a100-cuda11.8", "h100-cuda12.9"):
        assert frameworks["tensorflow2"].environment_name(stack, None) == "tensorflow2"
        assert "the newest for GPUs there is 2.6" in frameworks["paddle3"].why_not(stack)
    assert "Blackwell" in frameworks["tensorflow2"].why_not("b200-cuda13")
