"""Parsers and reader: real logs, every wording, and anything else that bytes can be."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import re
from pathlib import Path

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from make_logs import SHARED_LOGS, dllogger_pytorch, maxtext, megatron, torchtitan
from read_logs import Step, pieces, read, stated

from dlperf_runner import logs
from dlperf_runner.logs import Header, LineError
from dlperf_runner.logs.reader import LONGEST, blocks
from dlperf_runner.logs.records import CUT

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "logs"
REAL = sorted(FIXTURES.glob("*/*.log"))
TAG = "Tue Jun 14 15:40:21 2022[1,0]<stdout>:"


def steps(form: str, content: str | bytes) -> list[tuple[int, float]]:
    return [(step.step, step.samples_per_second) for step in read(form, content)[1]]


# ---- real logs


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_log_is_recognised_and_read(path: Path) -> None:
    expected = json.loads(path.with_suffix(".expected.json").read_text())
    data = path.read_bytes()
    form = logs.detect([data])
    assert form is not None
    assert form.name == expected["format"] == path.parent.name
    headers, found = read(form.name, data)
    assert [(s.line, s.step, s.samples_per_second, s.loss) for s in found] == [
        (s["line"], s["step"], float(s["printed"]), s.get("loss")) for s in expected["steps"]
    ]
    writers = [{k: v for k, v in one.items() if k != "writer"} for one in stated(headers)]
    assert writers == expected["headers"]


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


# ---- wordings


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
    ("form", "line", "says"),
    [
        (
            "mxnet_speedometer",
            "Called with argument: Namespace(batch_size=8, ctx_num=2, dtype='float32', "
            "frequent=20, per_batch_size=4) {'net_se': 0, 'max_steps': 120}",
            {
                "batch_size_per_device": 4,
                "world_size": 2,
                "precision": "fp32",
                "total_steps": 120,
                "log_every": 20,
                "parameters": {"parallel": "data"},
            },
        ),
        ("plsc", "INFO x entry.py:89] Set dtype to float32.", {"precision": "fp32"}),
        ("plsc", "Set noise to fresh.", {"parameters": {"noise": "fresh"}}),
        ("plsc", "Set noise to one batch.", {"parameters": {"noise": "one batch"}}),
        ("plsc", "INFO x entry.py:90] Set number of batches to 150.", {"total_steps": 150}),
        ("plsc", "INFO x y] Use mixed precision training: True.", {"precision": "fp16"}),
        ("plsc", "INFO x y] Use mixed precision training: False.", {"precision": "fp32"}),
        ("oneflow_benchmark", "num_iters = 200", {"total_steps": 200}),
        ("oneflow_benchmark", "use_fp16 = True", {"precision": "fp16"}),
        ("dllogger", "Num GPUs 8", {"world_size": 8}),
        ("gluoncv_horovod", "INFO:root:Namespace(dtype='bfloat16')", {"precision": "bf16"}),
    ],
)
def test_what_a_line_states(form: str, line: str, says: dict[str, object]) -> None:
    headers, _ = read(form, f"{line}\n")
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


def test_ranks_that_interleave_are_taken_apart() -> None:
    line = "[1,0]<stdout>:INFO:root:Epoch[0] Batch[3]\tSp[1,1]<stdout>:WARN x[1,0]<stdout>:eed: "
    (block,) = blocks([f"{line}5.0 samples/sec\n".encode()], [b"Batch"])
    assert block.data.decode().split("\n") == [
        "INFO:root:Epoch[0] Batch[3]\tSpeed: 5.0 samples/sec",
        "WARN x",
    ]
    assert (block.numbers, block.ranks) == ((1, 1), (0, 1))
    assert read("gluoncv_horovod", f"{line}5.0 samples/sec\n")[1] == [Step(3, 5.0, 1)]


def test_the_rank_that_prints_the_first_step_is_read() -> None:
    lines = ["[1,1]<stdout>:world_size=2"]
    for step in (1, 2):
        line = f"Epoch[0] Batch[{step}]\tSpeed: {{}} samples/sec"
        lines += [f"[1,3]<stdout>:{line.format('5.0')}", f"[1,0]<stdout>:{line.format('6.0')}"]
    for size in (None, 1, 50):
        headers, found = read("gluoncv_horovod", "\n".join(lines) + "\n", size)
        assert headers == [Header(1, world_size=2)]
        assert found == [Step(1, 5.0, 2), Step(2, 5.0, 4)]


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
    with pytest.raises(LineError, match="batch size is not a positive integer"):
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


# ---- the reader


def text_of(content: str | bytes, size: int | None = None) -> str:
    return b"".join(block.data for block in blocks(pieces(content, size), [b"x"])).decode()


@pytest.mark.parametrize("size", [1, 2, 7, None])
def test_blocks_are_whole_lines_with_their_numbers(size: int | None) -> None:
    found = list(blocks(pieces("a\n\nb Speed\r\nlast é", size), [b"x"]))
    whole = "".join(block.data.decode() for block in found)
    assert whole == "a\n\nb Speed\r\nlast é" + CUT
    assert all(block.data.endswith(b"\n") for block in found[:-1])
    at = [(b, b.data.index(word)) for b in found for word in (b"a\n", b"Speed") if word in b.data]
    assert [block.line(place) for block, place in at] == [1, 3]
    assert found[-1].line(len(found[-1].data)) == 4


@pytest.mark.parametrize("tag", ["", TAG], ids=["untagged", "tagged"])
def test_number_wrapped_where_a_piece_ends_keeps_its_digits(tag: str) -> None:
    """Each of the places in turn is the end of a piece, as 1 MiB may be."""
    line = "DLL 2026-11-20 13:58:34.784710 - (0, {}) total_ips : {}"
    lines = [line.format(0, "2.5"), line.format(10, "3.37"), "5044", line.format(20, "4.5")]
    lines += ["DLL 2026-11-20 13:58:37.925081 - () train_throughput : 3.4", "61"]
    wrapped = [(2, repr("3.37\n5044")), (5, repr("3.4\n61"))]
    content = "".join(f"{tag}{line}\n" for line in lines).encode()
    for cut in range(len(content) + 1):
        with pytest.raises(LineError, match="the rate is not a number") as caught:
            logs.parse(logs.formats()["dllogger"], [content[:cut], content[cut:]])
        assert (caught.value.line, caught.value.found) in wrapped


def test_empty_log_has_no_block() -> None:
    assert list(blocks([], [b"x"])) == list(blocks([b"", b""], [b"x"])) == []


def test_progress_bar_with_carriage_returns() -> None:
    bar = "\r".join(f"{n}% done" for n in range(100))
    line = "Epoch[0] Batch[{}]\tSpeed: 5.5 samples/sec"
    content = f"{bar}\r{line.format(1)}\r{bar}\nworld_size=4\r{line.format(2)}\r\n"
    headers, found = read("gluoncv_horovod", content)
    assert headers == [Header(2, world_size=4)]
    assert found == [Step(1, 5.5, 1), Step(2, 5.5, 2)]


@pytest.mark.parametrize("size", [1000, 2**20, None])
@pytest.mark.parametrize("filler", ["a", "日", "ab ", "é\r"])
def test_endless_line_is_divided_between_words(filler: str, size: int | None) -> None:
    line = "Epoch[0] Batch[{}]\tSpeed: 5.5 samples/sec"
    long = filler * (3 * LONGEST // len(filler.encode()))
    content = f"\n{long} {line.format(1)} {long}\n{line.format(2)}\n"
    assert text_of(content, size) == content
    assert max(len(block.data) for block in blocks(pieces(content, 1000), [b"x"])) < LONGEST + 2000
    assert read("gluoncv_horovod", content, size)[1] == [Step(1, 5.5, 2), Step(2, 5.5, 3)]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64, None])
def test_bytes_that_are_not_utf8_are_told_with_their_line(size: int | None) -> None:
    with pytest.raises(LineError) as caught:
        text_of("é\nÿ\n".encode() + b"abc\xe4\n more\n", size)
    assert (caught.value.line, caught.value.found) == (3, "byte 0xe4")
    assert text_of("日本\nSpeed: 5 秒\n", size) == "日本\nSpeed: 5 秒\n"


def test_log_that_ends_within_a_character() -> None:
    with pytest.raises(LineError, match="line 2: the log is not valid UTF-8"):
        text_of(b"a\nb\xe6\x97", 2)


# A line with a rate of each wording, and the step that it is.
WORDINGS = {
    "gluoncv_horovod": [("INFO:root:Epoch[0] Batch[7]\tSpeed: 384.19 samples/sec", (7, 384.19))],
    "mxnet_speedometer": [
        ("INFO:root:Epoch[0] Batch [20-40]\tSpeed: 5.97 samples/sec\tacc=0.0", (40, 5.97)),
        ("INFO:root:Iter[0] Batch [20]\tSpeed: 5.97 samples/sec", (20, 5.97)),
    ],
    "plsc": [
        (
            "INFO 2026-11-20 13:40:15,997 entry.py:1029] Pass:0 batch:9 lr:0.1 loss:4.5 qps:39.78",
            (10, 39.78),
        )
    ],
    "oneflow_benchmark": [
        ("train: epoch 0, iter 20, loss: 6.5, top_1: 0.0, samples/s: 288.088", (20, 288.088)),
        (
            "train: epoch 0, iter 20, loss: 6.5, samples/s: 288.088 1597050000.123456",
            (20, 288.088),
        ),
    ],
    "dllogger": [
        ("DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : 9310.31", (201, 9310.31)),
        ("DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : 9310.31 images/s", (201, 9310.31)),
    ],
    "dllogger_pytorch": [
        (
            "DLL 2022-06-14 15:40:21.026182 - Epoch: 0 Iteration: 20  train.loss : 7.03125  train."
            "compute_ips : 2500.12 img/s train.total_ips : 2480.33 img/s train.lr : 0.05120 ",
            (20, 2480.33),
        ),
        (
            'DLLL {"timestamp": "1655221221.026182", "elapsedtime": "12.5", "type": "LOG",'
            ' "step": [0, 20], "data": {"train.loss": 7.03125,'
            ' "train.compute_ips": 2500.125, "train.total_ips": 2480.3298, "train.lr": 0.0512}}',
            (20, 2480.3298),
        ),
    ],
    "maxtext": [
        (
            "completed step: 19, seconds: 5.668, TFLOP/s/device: 134.909, Tokens/s/device: 8671.79"
            "4, total_weights: 196608, loss: 10.879",
            (20, 8671.794),
        ),
        (
            "I0101 12:00:00.1 metric_logger.py:1] completed step: 19, seconds: 5.668, live slice "
            "count: 2, TFLOP/s/device: 134.909, Tokens/s/device: 8671.794, total_weights: 196608.0,"
            " loss: 10.879, lm_loss: 0.000",
            (20, 8671.794),
        ),
    ],
    "megatron": [
        (
            " [2026-04-27 00:00:02.123456] iteration       20/     100 | consumed samples:     320"
            " | elapsed time per iteration (ms): 200.0 | learning rate: 1.000000E-04 |"
            " global batch size:    16 | lm loss: 2.000000E+00 | loss scale: 1.0 |",
            (20, 5.0),
        ),
        (
            "[default0]: iteration 20/100 | elapsed time per iteration (ms): 200.0 | throughput per"
            " GPU (TFLOP/s/GPU): 400.1 | global batch size: 16 | loss scale: 1.0 |",
            (20, 5.0),
        ),
    ],
    "torchtitan": [
        (
            "[titan] 2025-12-01 12:00:07,123 - root - INFO - step: 20  loss:  8.1234  grad_norm:"
            "  1.2345  memory:  0.50GiB(1.20%)  tps: 6,835  tflops: 12.30  mfu: 1.20%",
            (20, 6835),
        ),
        ("step:  2  loss:  8.1234  memory:  0.50GiB(1.20%)  tps: 35  mfu: 1.20%", (2, 35)),
        (
            "\x1b[31mstep: 20  \x1b[32mloss:  8.12345  \x1b[38;2;180;60;0mgrad_norm:  1.2345  "
            "\x1b[36mmemory: 40.50GiB(51.20%)  \x1b[34mtps: 1,006,835  \x1b[36mtflops: 1,012.30  "
            "\x1b[35mmfu: N/A\x1b[39m",
            (20, 1006835),
        ),
    ],
}
EVERY_WORDING = [(form, *wording) for form, lines in WORDINGS.items() for wording in lines]


def test_every_format_has_its_wordings_and_is_documented() -> None:
    tables = {name for name, form in logs.formats().items() if form.table}
    assert set(WORDINGS) == set(logs.formats()) - tables
    page = (FIXTURES.parents[2] / "docs" / "log-formats.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == set(logs.formats())


@given(st.sampled_from(EVERY_WORDING), st.integers(0, 200), st.sampled_from(["\n", "\r\n"]))
def test_tag_of_mpirun_at_any_place_of_any_wording(
    wording: tuple[str, str, tuple[int, float]], at: int, end: str
) -> None:
    form, line, step = wording
    at = min(at, len(line))
    content = f"{TAG}noise{end}{line[:at]}{TAG}{line[at:]}{end}"
    marker = logs.formats()[form].marker.decode()
    split = line.index(marker) < at < line.index(marker) + len(marker)
    # A line whose marker is torn apart is not found: then its step is missing, which is told.
    assert steps(form, content) == ([] if split else [step])


@pytest.mark.parametrize("wording", EVERY_WORDING)
def test_a_log_that_ends_anywhere_in_a_line_has_the_whole_rate_or_none(
    wording: tuple[str, str, tuple[int, float]],
) -> None:
    form, line, step = wording
    for at in range(len(line) + 1):
        with contextlib.suppress(LineError):
            assert steps(form, line[:at]) in ([], [step])
    assert steps(form, line + "\n") == [step]


def test_a_log_that_ends_in_the_middle_of_a_rate_says_so() -> None:
    with pytest.raises(LineError, match=r"line 1: the log ends in the middle of this line .* '93'"):
        steps("dllogger", "DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : 93")


@given(st.sampled_from(EVERY_WORDING), st.sampled_from(EVERY_WORDING), st.integers(1, 60))
def test_two_ranks_write_unbuffered_into_one_line(
    first: tuple[str, str, tuple[int, float]], other: tuple[str, str, tuple[int, float]], size: int
) -> None:
    """The first rank prints a rate, the other anything; their pieces alternate."""
    form, line, step = first
    noise = other[1].replace("0] Batch", "7] Batch").replace("Pass:0", "Pass:7")
    noise = noise.replace("epoch 0", "epoch 7").replace("ips", "total")
    noise = noise.replace(" step: ", " validate step: ").replace("elapsed", "passed")
    pieces = [line[n : n + size] for n in range(0, len(line), size)]
    others = [noise[n : n + size] for n in range(0, len(noise), size)]
    content = "".join(
        f"[1,{rank}]<stdout>:{piece}"
        for pair in itertools.zip_longest(pieces, others, fillvalue="")
        for rank, piece in enumerate(pair)
    )
    if logs.formats()[form].marker.decode() in content:
        assert [(one.step, one.samples_per_second) for one in read(form, content)[1]] == [step]


PIECES = st.sampled_from(
    [
        *(b"\n", b"\r\n", b"\r", b"world_size=", b"world_si", b"7", b"<std", TAG.encode()),
        *(b"Epoch[0] Batch[3]\tSpeed: 5.0 samples/sec", b"Epoch[0] Batch[3] Loss[2.5]", b" "),
        *(b"Epoch[0] Ba", b"x" * 9, "日".encode(), b"[1,1]<stdout>:"),
    ]
)


# A loss of a rank whose steps do not count, before the first rate.
OTHERS_LOSS = [TAG.encode(), b"Epoch[0] Batch[3] Loss[2.5]", b"\n"]
OTHERS_LOSS += [b"Epoch[0] Batch[3]\tSpeed: 5.0 samples/sec", b"[1,1]<stdout>:"]


@example(OTHERS_LOSS, 1)
@given(st.lists(PIECES, max_size=60), st.integers(1, 40))
def test_pieces_do_not_matter(parts: list[bytes], size: int) -> None:
    data = b"".join(parts)
    assert _outcome("gluoncv_horovod", data) == _outcome("gluoncv_horovod", data, size)


@given(st.lists(PIECES, max_size=60))
def test_reader_agrees_with_splitting_into_lines(parts: list[bytes]) -> None:
    content = b"".join(part for part in parts if b"<std" not in part).decode()
    entry = re.compile(r"Epoch\[0\] Batch\[3\]\tSpeed: 5.0 samples/sec")
    lines = enumerate(content.split("\n"), start=1)
    expected = [number for number, line in lines for _ in entry.findall(line)]
    with contextlib.suppress(LineError):  # a world size such as 7777777777777777777
        assert [step.line for step in read("gluoncv_horovod", content)[1]] == expected


WORDS = st.sampled_from(
    [
        *("INFO:root:Epoch[0] Batch[", "] Loss[", "]\tSpeed: ", " samples/sec", "Iter[0] Batch ["),
        *("Pass:0 batch:", " lr:0.1 loss:", " qps:", "train: epoch 0, iter ", ", samples/s: "),
        *("DLL 2022-06-14 15:40:21.026182 - (0, ", ") total_ips : ", "() train_throughput : "),
        *(
            "Namespace(batch_size=",
            "world_size=",
            "1",
            "-5",
            "nan",
            "1e400",
            "\n",
            "\r",
            TAG,
            "\x00",
        ),
        *("[1,99999999999999999999]<stdout>:", "9" * 400, " PARAMETER batch_size : ", "é", "<std"),
        *("2022-99-99 99:99:99,999 x ", "Set train batch size to ", "'", ")", ",", "="),
    ]
)


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(logs.formats())), st.lists(WORDS, max_size=30))
def test_parsers_only_ever_refuse_a_line(form: str, words: list[str]) -> None:
    _survives(form, "".join(words).encode())


@settings(max_examples=200, deadline=None)
@given(st.sampled_from(sorted(logs.formats())), st.binary(max_size=300))
def test_parsers_survive_any_bytes(form: str, data: bytes) -> None:
    _survives(form, data)


def _survives(form: str, data: bytes) -> None:
    assert _outcome(form, data) == _outcome(form, data, 3)
    with contextlib.suppress(LineError):
        logs.detect([data])
    logs.parse_tail(form, data.decode("utf-8", "surrogateescape"))


def _outcome(form: str, data: bytes, size: int | None = None) -> str:
    """What is read, or the problem and its line."""
    try:
        return repr(read(form, data, size))  # nan is not itself
    except LineError as error:
        assert error.line >= 1
        return str(error)


# ---- what the programs of today state


def test_headers_of_language_models() -> None:
    made = {
        "torchtitan": torchtitan(6835, world=8),
        "maxtext": maxtext(8671.794, world=8),
        "megatron": megatron(123.4),
        "dllogger_pytorch": dllogger_pytorch(2480.33, world=8),
    }
    found: dict[str, dict[str, object]] = {}
    for form, lines in made.items():
        for one in stated(read(form, "\n".join(lines) + "\n")[0]):
            found.setdefault(form, {}).update({k: v for k, v in one.items() if k != "line"})
    length = {"sequence_length": "8192"}
    assert found["torchtitan"] == {
        "world_size": 8,
        "batch_size_per_device": 2,
        "total_steps": 100,
        "parameters": length,
    }
    assert found["maxtext"] == {
        "precision": "bf16",
        "total_steps": 30,
        "batch_size_per_device": 4,
        "world_size": 8,
        "parameters": {"sequence_length": "2048"},
    }
    assert found["megatron"] == {
        "precision": "bf16",
        "global_batch_size": 16,
        "log_every": 10,
        "total_steps": 100,
        "world_size": 8,
        "parameters": {"sequence_length": "4096"},
    }
    assert found["dllogger_pytorch"] == {
        "batch_size_per_device": 256,
        "world_size": 8,
        "log_every": 10,
        "precision": "amp",
        "total_steps": 100,
        "network": "resnet50",
    }


def test_a_batch_size_that_ramps_up_is_refused() -> None:
    lines = megatron(123.4)
    at = next(n for n, line in enumerate(lines) if "iteration       50/" in line)
    lines[at] = lines[at].replace("global batch size:    16", "global batch size:    32")
    with pytest.raises(LineError, match="the global batch size changes during the run") as caught:
        read("megatron", "\n".join(lines) + "\n")
    assert caught.value.line == at + 1
