"""Logs that are taken at once: what comes out is what the reader, line by line, makes of them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from make_logs import ONEFLOW, RULES, TENSORFLOW, dllogger, gluoncv, oneflow, plsc, speedometer

from dlperf_runner import logs
from dlperf_runner.core.case import Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.logs.columns import take
from dlperf_runner.logs.records import Columns, Format, Header, Step, columns
from dlperf_runner.measure.by_column import measure_whole
from dlperf_runner.measure.by_line import measure
from dlperf_runner.measure.estimators import Expected, Measured, Rule
from dlperf_runner.results.log_file import Log

REAL = sorted((Path(__file__).resolve().parents[1] / "fixtures" / "logs").glob("*/*.log"))
RULE = {
    "gluoncv_horovod": RULES["mxnet-resnet50v1b.md"],
    "mxnet_speedometer": RULES["mxnet-insightface-arcface.md"],
    "plsc": RULES["paddle-plsc-arcface.md"],
    "oneflow_benchmark": ONEFLOW,
    "dllogger": TENSORFLOW,
}
MADE = {
    "gluoncv_horovod": gluoncv(384.25),
    "mxnet_speedometer": [line.partition("\tacc")[0] for line in speedometer(234.2)],
    "plsc": plsc(397.75),
    "oneflow_benchmark": oneflow(384.25, times=True),
    "dllogger": dllogger(384.25, 1, amp=False, final=380.0, batch=128),
}
TAG = "[1,0]<stdout>:"
# What is put between, before or behind the lines of a log.
ODD = (
    *("noise", "", TAG, "[1,1]<stdout>:x", "\r", "100%|###| 3/3\r", "é", "Namespace(batch_size=8)"),
    *("INFO:root:Epoch[0] Batch[9]", "Epoch[0] Batch[7] Loss[nan]", "Num GPUs 4", "] Batch["),
    *(" qps:", "total_ips", "samples/s:", "samples/sec", "world_size=4", "num_iters = 120"),
    *("INFO:root:Epoch[0] Batch[3]\tSpeed: 5.0 samples/sec", "trainer_id: 1, num_trainers: 2"),
    *("trainer_id: 0, num_trainers: 2", " PARAMETER amp : True "),
)


def data_of(lines: list[str], end: str = "\n") -> bytes:
    return ("\n".join(lines) + end).encode()


def by_line(form: Format, data: bytes) -> tuple[list[Header], list[Step]]:
    records = list(form.parse(logs.candidates(form, io.BytesIO(data))))
    return (
        [record for record in records if isinstance(record, Header)],
        [record for record in records if isinstance(record, Step)],
    )


def check_same(form: Format, data: bytes) -> tuple[list[Header], Columns] | None:
    """What is taken at once, if anything, is what stands there line by line."""
    taken = take(form, data)
    if taken is None:
        return None
    headers, steps = by_line(form, data)
    finals = [h.final_samples_per_second for h in headers if h.final_samples_per_second is not None]
    stated = [replace(header, line=0) for header in headers]
    stated = [header for header in stated if header.final_samples_per_second is None]
    assert taken[0] == stated
    expected = columns(steps, finals[-1] if finals else None)
    assert [list(part) for part in taken[1][:4]] == [list(part) for part in expected[:4]]
    assert taken[1].final_samples_per_second == expected.final_samples_per_second
    return taken


def slowly(form: Format, data: bytes, rule: Rule, expected: Expected) -> Measured | str:
    records = form.parse(logs.candidates(form, io.BytesIO(data)))
    try:
        return measure(form, records, rule, expected, "log")[0]
    except UserError as error:
        return str(error)


@pytest.mark.parametrize("tag", ["", TAG, f"Tue Jun 14 15:40:21 2022{TAG}"])
@pytest.mark.parametrize("name", sorted(MADE))
def test_plain_logs_are_taken_at_once(name: str, tag: str) -> None:
    form, data = logs.formats()[name], data_of([tag + line for line in MADE[name]])
    taken = check_same(form, data)
    assert taken is not None
    expected = Expected("the plan", Topology(1, 1), "fp32", 128)
    whole = measure_whole(form, *taken, RULE[name], expected, "log")
    assert whole is not None
    assert whole == slowly(form, data, RULE[name], expected)


@pytest.mark.parametrize("path", REAL, ids=lambda path: path.stem)
def test_real_logs(path: Path) -> None:
    form = Log(path).form
    assert form.name == path.parent.name
    several = "trainer_id: 1" in path.read_text()
    taken = check_same(form, path.read_bytes())
    assert taken is not None or several or form.columns is None


@st.composite
def spoilt(draw: st.DrawFn, lines: list[str]) -> bytes:
    """A log with lines left out, doubled, swapped, cut, or with something odd in them."""
    lines = list(lines)
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["insert", "append", "cut", "drop", "double", "swap"])):
            case "insert":
                lines.insert(at, draw(st.sampled_from(ODD)))
            case "append":
                place = draw(st.integers(0, len(lines[at])))
                lines[at] = lines[at][:place] + draw(st.sampled_from(ODD)) + lines[at][place:]
            case "cut":
                lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
            case "drop" if len(lines) > 1:
                del lines[at]
            case "double":
                lines.insert(at, lines[at])
            case "swap":
                lines[at], lines[at - 1] = lines[at - 1], lines[at]
    return data_of(lines, draw(st.sampled_from(["\n", "\n", ""])))


@settings(max_examples=150, deadline=None)
@given(st.data(), st.sampled_from(sorted(MADE)))
def test_whatever_is_taken_at_once_is_what_stands_there(data: st.DataObject, name: str) -> None:
    form = logs.formats()[name]
    log = data.draw(spoilt(MADE[name]))
    taken = check_same(form, log)
    expected = Expected("the plan", Topology(1, 1), "fp32", 128)
    if taken is not None:
        whole = measure_whole(form, *taken, RULE[name], expected, "log")
        assert whole in (None, slowly(form, log, RULE[name], expected))


@settings(max_examples=50, deadline=None)
@given(st.data(), st.sampled_from(sorted(MADE)))
def test_the_format_is_the_same_from_the_beginning_alone(data: st.DataObject, name: str) -> None:
    log = data.draw(spoilt(MADE[name]))
    early = logs.detect_early(log[: logs.FIRST])
    assert early is None or early is logs.detect(io.BytesIO(log))


def test_a_large_log_is_never_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "train.log"
    path.write_bytes(data_of(gluoncv(384.25)))
    monkeypatch.setattr("dlperf_runner.results.log_file.SMALL", 1000)
    log = Log(path)
    assert log.data is None
    assert log.form.name == "gluoncv_horovod"
    with log.stream() as stream:
        assert stream.read() == path.read_bytes()


@pytest.mark.parametrize("name", sorted(MADE))
def test_what_several_ranks_wrote_is_left_to_the_reader(name: str) -> None:
    lines = [f"[1,{n % 2}]<stdout>:{line}" for n, line in enumerate(MADE[name])]
    assert take(logs.formats()[name], data_of(lines)) is None


def test_a_log_without_its_last_newline_is_left_to_the_reader() -> None:
    form = logs.formats()["gluoncv_horovod"]
    assert take(form, data_of(gluoncv(384.25), end="")) is None
