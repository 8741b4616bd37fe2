"""Columns that fit a terminal, colour and progress bars only where they are wanted."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlperf_runner.commands import progress
from dlperf_runner.report.terminal import Column, coloured, columns, shortened, with_verdicts

HEADER = (Column("case", shrinks=True), Column("n", right=True), Column("changed", wraps=True))
NAME = "mxnet-resnet50v1b-builtin_fp32_b128_2n8g_cuda10.2"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_columns_that_fit_are_aligned() -> None:
    rows = [("one", "5", "no"), ("three", "15", "yes")]
    assert columns(HEADER, rows, 80) == "case    n  changed\none     5  no\nthree  15  yes\n"


def test_a_column_that_may_give_way_and_is_empty_is_left_out() -> None:
    assert columns(HEADER, [("one", "5", "")], 80) == "case  n\none   5\n"


def test_long_names_are_cut_in_their_middle_and_long_texts_go_on_below() -> None:
    text = columns(HEADER, [(NAME, "5", "slower by 9.6 % since 2026-10-06 in c5")], 50)
    lines = text.splitlines()
    assert len(lines) > 2
    assert lines[1].startswith("mxnet-")
    assert "…" in lines[1]
    assert " ".join(line.split("  ")[-1].strip() for line in lines[1:]).endswith("in c5")


def test_where_there_is_no_room_rows_are_stacked() -> None:
    text = columns((Column("rate"), *HEADER), [("9579.74 samples/s", NAME, "5", "yes")], 24)
    assert text.splitlines()[0] == "rate: 9579.74 samples/s"
    assert text.splitlines()[2] == "  n: 5"


@given(
    st.lists(
        st.tuples(
            st.text("ab -", max_size=90), st.text("12", max_size=3), st.text("c ", max_size=90)
        )
    ),
    st.integers(20, 120),
)
def test_no_line_is_wider_than_the_terminal(rows: list[tuple[str, str, str]], width: int) -> None:
    assert all(len(line) <= width + 2 for line in columns(HEADER, rows, width).splitlines())


@given(st.text(max_size=50), st.integers(1, 50))
def test_shortened_keeps_both_ends(text: str, width: int) -> None:
    short = shortened(text, width)
    assert len(short) == min(len(text), width)
    start, _, end = short.partition("…") if len(text) > width else (text, "", "")
    assert text.startswith(start)
    assert text.endswith(end)


def test_colour_only_on_a_terminal_that_wants_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert coloured("failed", "red", Terminal()) == "\x1b[31mfailed\x1b[0m"
    assert coloured("failed", "red", io.StringIO()) == "failed"
    monkeypatch.setenv("NO_COLOR", "1")
    assert coloured("failed", "red", Terminal()) == "failed"
    monkeypatch.delenv("NO_COLOR")
    monkeypatch.setenv("TERM", "dumb")
    assert coloured("failed", "red", Terminal()) == "failed"


def test_verdicts_of_tables_are_coloured_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    red, yellow, end = "\x1b[31m", "\x1b[33m", "\x1b[0m"
    text = (
        "b: results/slower\n\n"
        "| 1n1g | -7.0% | slower              | failed     |\n"
        "| 1n2g | +0.0% | no difference shown | undecided  |\n"
        "1n4g  -7.0%  perhaps slower  passed\n"
        "  verdict: not comparable\n"
        "5 slower, 1 no difference shown.\n"
    )
    shown = with_verdicts(text, Terminal())
    assert f"| {red}slower{end}              | {red}failed{end}     |" in shown
    assert f"| no difference shown | {yellow}undecided{end}  |" in shown
    assert f"  {yellow}perhaps slower{end}  \x1b[32mpassed{end}\n" in shown
    assert f"verdict: {yellow}not comparable{end}\n" in shown
    assert shown.startswith("b: results/slower\n")
    assert shown.endswith("\n5 slower, 1 no difference shown.\n")
    assert with_verdicts(text, io.StringIO()) == text


def test_progress_only_on_a_terminal_and_after_two_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    clock = iter([0.0, *(n / 2 for n in range(1, 20))])
    monkeypatch.setattr(progress.time, "monotonic", lambda: next(clock))
    monkeypatch.setattr("sys.stderr", quick := Terminal())
    assert list(progress.reading_logs(iter("ab"), 2)) == ["a", "b"]
    assert quick.getvalue() == ""
    monkeypatch.setattr("sys.stderr", quiet := io.StringIO())
    items = iter("abc")
    assert progress.reading_logs(items, 3) is items
    assert quiet.getvalue() == ""


def test_progress_says_how_many_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "PATIENCE_S", -1.0)
    monkeypatch.setattr(progress, "_EVERY_S", -1.0)
    monkeypatch.setattr("sys.stderr", slow := Terminal())
    assert list(progress.reading_logs(iter("abc"), 3)) == ["a", "b", "c"]
    assert "reading logs" in slow.getvalue()
    assert "/3" in slow.getvalue()
    assert list(progress.followed({"a": 1}.items(), 1, "looking for changes")) == [("a", 1)]
    assert "looking for changes" in slow.getvalue()
