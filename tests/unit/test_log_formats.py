"""Every log format by its examples: they are read as they say, wherever they are torn or tagged."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from log_examples import EXAMPLES, FOLDER, Example, documents
from make_logs import ROOT
from read_logs import LABELS, TAG, pieces, read, stated, steps

from dlperf_runner import logs
from dlperf_runner.logs import LineError
from tools.formats_page import render

# How versions of MPI name the rank whose line it is, and how other launchers label lines.
TAGS = [
    TAG,
    "[1,0]<stdout>:",
    "[prterun-node1-77@1,0]<stdout>: ",
    "Tue Jun 14 15:40:21 2022<stdout>:",
    *(label.format(0) for label, _ in LABELS.values()),
]
# A line with a rate of each wording.
WORDINGS = [
    example
    for example in EXAMPLES
    if "wording" in example.path.stem and logs.formats()[example.form].table is None
]
MANY = settings(max_examples=100, deadline=None)


def line_of(log: Example) -> tuple[str, tuple[int, float]]:
    """The first line of a wording, and its step and rate."""
    _, step, rate, *_ = log.entry["rates"][0]
    return log.data.decode().partition("\n")[0], (step, rate)


def marker_of(log: Example) -> str:
    """What each line of its version has."""
    form = logs.detect([log.data], {log.form: logs.formats()[log.form]})
    assert form is not None
    return form.marker.decode()


def reading(form: str, data: bytes, size: int | None = None) -> str:
    """What is read, whoever wrote the lines, or the problem and its line."""
    main, parts = logs.formats()[form], pieces(data, size)
    try:
        log = logs.parse(logs.detect(parts, {form: main}) or main, parts)
        return repr(replace(log, has_ranks=False))  # nan is not itself
    except LineError as error:
        assert error.line >= 1
        return str(error)


# ---- the registry


def test_each_format_has_examples_and_each_example_is_listed() -> None:
    assert set(documents()) == set(logs.formats())
    files = {path for path in FOLDER.glob("*/*") if path.name != "examples.yml"}
    assert {example.path for example in EXAMPLES} == files
    assert {path.suffix for path in files} == {".log", ".excerpt"}
    assert {example.form for example in WORDINGS} == {
        name for name, form in logs.formats().items() if form.table is None
    }


def test_the_page_of_the_documentation_is_made_from_the_formats() -> None:
    page = (ROOT / "docs" / "log-formats.md").read_text(encoding="utf-8")
    assert render() == page, "run python -m tools.formats_page > docs/log-formats.md"


def test_the_origin_of_an_example_is_recorded() -> None:
    for log in EXAMPLES:
        assert log.is_real == (log.path.suffix == ".log"), log.name  # summarize reads these
        known = {"software", "date", "machine", "cut"} if log.is_real else {"written"}
        assert {"source", *known} <= set(log.entry), log.name
        if log.is_real:
            assert log.entry["sha256"] == hashlib.sha256(log.data).hexdigest(), log.name


# ---- reading


@pytest.mark.parametrize("log", EXAMPLES, ids=lambda log: log.name)
def test_an_example_is_recognised_and_read(log: Example) -> None:
    rates, refused = log.entry.get("rates", []), log.entry.get("refused")
    form = logs.detect([b"NCCL INFO samples/sec qps: total_ips\n" * 100, log.data])
    assert (form and form.name) == (log.form if rates or refused else None)
    if refused:
        with pytest.raises(LineError, match=refused):
            read(log.form, log.data)
        return
    headers, found = read(log.form, log.data)
    assert stated(headers) == log.entry.get("headers", [])
    assert [(s.line, s.step, s.samples_per_second, s.loss) for s in found] == [
        tuple((*row, None)[:4]) for row in rates
    ]
    if times := log.entry.get("unix_times"):
        assert [step.unix_time for step in found] == times


@pytest.mark.parametrize("log", EXAMPLES, ids=lambda log: log.name)
def test_what_launchers_and_systems_change_changes_nothing(log: Example) -> None:
    text = log.data.decode()
    lines, whole = text.removesuffix("\n").split("\n"), reading(log.form, log.data)
    forms = {tag: "".join(f"{tag}{line}\n" for line in lines).encode() for tag in TAGS}
    forms["colours"] = "".join(f"\x1b[36m{line}\x1b[0m\n" for line in lines).encode()
    forms["Windows"] = "".join(f"{line}\r\n" for line in lines).encode()
    forms |= {coding: text.encode(coding) for coding in ("utf-8-sig", "utf-16")}
    for name, data in forms.items():
        assert reading(log.form, data) == whole, name
    with contextlib.suppress(LineError):  # a number at the end may have been cut
        every = steps(log.form, log.data)
        assert steps(log.form, log.data.rstrip(b"\n")) in (every, every[:-1])
    data = log.data[-3000:]
    for size in (1, 50):
        assert reading(log.form, data, size) == reading(log.form, data), size


# One of each format.
REAL = {log.form: log for log in EXAMPLES if log.is_real}


@pytest.mark.parametrize("log", REAL.values(), ids=lambda log: log.name)
def test_the_end_of_a_log_shows_that_another_program_followed(log: Example) -> None:
    forms = logs.formats()
    assert logs.other_at_end(forms[log.form], log.data) is None
    for other in REAL.values():
        if other.form == log.form:
            continue
        both = log.data + b"NCCL INFO Connected all rings\n" * 100 + other.data
        assert logs.other_at_end(forms[log.form], both) is forms[other.form]


@pytest.mark.parametrize("log", WORDINGS, ids=lambda log: log.name)
def test_a_rate_of_one_gpu_is_none_of_all(log: Example) -> None:
    """As a changed program may print it: the rate would be too low by the number of GPUs."""
    line, _ = line_of(log)
    changed = re.sub(r"( (?:samples|images|img)/s(?:ec)?)(?!\w)(?!:)", r"\1/gpu", line)
    with contextlib.suppress(LineError):
        assert changed == line or steps(log.form, changed + "\n") == []


# ---- a line that is torn


# Not those whose rates need two lines.
ALONE = [
    log for log in WORDINGS if log.form != "dllogger_bert" and not logs.formats()[log.form].opening
]


@MANY
@given(st.sampled_from(ALONE), st.integers(0, 200), st.sampled_from(["\n", "\r\n"]))
def test_a_tag_at_any_place_of_a_line(log: Example, at: int, end: str) -> None:
    line, step = line_of(log)
    at = min(at, len(line))
    content = f"{TAG}noise{end}{line[:at]}{TAG}{line[at:]}{end}"
    marker = marker_of(log)
    split = line.index(marker) < at < line.index(marker) + len(marker)
    # A line whose marker is torn apart may not be found: its step is missing, which is reported.
    assert steps(log.form, content) in ([step], [] if split else [step])


@pytest.mark.parametrize("log", ALONE, ids=lambda log: log.name)
def test_a_log_that_ends_anywhere_in_a_line_has_the_whole_rate_or_none(log: Example) -> None:
    line, step = line_of(log)
    for at in range(len(line) + 1):
        with contextlib.suppress(LineError):
            assert steps(log.form, line[:at]) in ([], [step])
    assert steps(log.form, line + "\n") == [step]


def test_a_log_that_ends_in_the_middle_of_a_rate_says_so() -> None:
    with pytest.raises(LineError, match=r"line 1: the log ends in the middle of this line .* '93'"):
        steps("dllogger", "DLL 2022-06-14 15:40:21.026182 - (0, 200) total_ips : 93")


@MANY
@given(st.sampled_from(ALONE), st.sampled_from(ALONE), st.integers(1, 60))
def test_two_ranks_write_unbuffered_into_one_line(log: Example, other: Example, size: int) -> None:
    line, step = line_of(log)
    noise = line_of(other)[0]
    if other.form == log.form:
        noise = noise.replace(marker_of(other), "")
    for old, new in {
        "0] Batch": "7] Batch",
        "Pass:0": "Pass:7",
        "epoch 0": "epoch 7",
        "ips": "total",
        "step: ": "validate step: ",
        "elapsed": "passed",
    }.items():
        noise = noise.replace(old, new)
    parts = [line[n : n + size] for n in range(0, len(line), size)]
    others = [noise[n : n + size] for n in range(0, len(noise), size)]
    content = "".join(
        f"[1,{rank}]<stdout>:{piece}"
        for pair in itertools.zip_longest(parts, others, fillvalue="")
        for rank, piece in enumerate(pair)
    )
    if marker_of(log) in content:
        assert steps(log.form, content) == [step]


def test_two_steps_on_a_line_whose_newline_was_lost() -> None:
    line = "INFO:root:Epoch[0] Batch[{}]\tSpeed: {} samples/sec"
    joined = line.format(1, 1.5) + line.format(2, 2.5)
    assert steps("gluoncv_horovod", joined) == [(1, 1.5), (2, 2.5)]


# ---- anything


# What the lines of all formats consist of, and what they should not hold.
WORDS = sorted(
    {word for log in EXAMPLES for word in re.findall(r"\S+\s*|\s+", log.data.decode()[:3000])}
    | {"\n", "\r", TAG, "\x00", "[1,99999999999999999999]<stdout>:", "9" * 400, "<std", "é"}
    | {"-5", "nan", "1e400", "2022-99-99 99:99:99,999 x ", "'", ")", "="}
)


@MANY
@example("nccl_tests", ["1e400", "\n", TAG])
@given(
    st.sampled_from(sorted(logs.formats())),
    st.lists(st.sampled_from(WORDS), max_size=30) | st.lists(st.binary(max_size=300), max_size=1),
)
def test_parsers_only_ever_refuse_a_line(form: str, words: list[str] | list[bytes]) -> None:
    data = b"".join(word.encode() if isinstance(word, str) else word for word in words)
    assert reading(form, data) == reading(form, data, 3)
    with contextlib.suppress(LineError):
        logs.detect(pieces(data))
    logs.parse_tail(logs.formats()[form], data.decode("utf-8", "surrogateescape"))


def test_the_tail_of_a_running_log() -> None:
    gluoncv = logs.formats()["gluoncv_horovod"]
    tail = (
        "d: 1 samples/sec\nINFO:root:Epoch[0] Batch[7]\tSpeed: 2.5 samples/sec\nINFO:root:Epo\udc80"
    )
    assert logs.parse_tail(gluoncv, tail) == 2.5
    assert logs.parse_tail(gluoncv, "") is None
    assert logs.parse_tail(None, tail) is None
    assert logs.parse_tail(gluoncv, "Epoch[0] Batch[7]\tSpeed: nan samples/sec") is None
