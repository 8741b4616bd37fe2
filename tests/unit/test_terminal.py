"""Tables that fit a terminal, colour and progress bars only where they are wanted."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlperf_runner import options
from dlperf_runner.report.tables import Cell, Column
from dlperf_runner.report.terminal import PIPE, Screen, table

COLUMNS = (
    Column("case"),
    Column("rate", True),
    Column("interval", True, stacks=True),
    Column("changed", wraps=True),
)
ROW = ("mxnet-resnet50v1b_b128_2n8g", "4855.34", "4843.76-4924.15", "faster by 9.6 % since c5")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def colourful(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    return monkeypatch


def test_a_column_that_wraps_and_is_empty_is_left_out() -> None:
    assert "changed" not in table(COLUMNS, [("one", "5", "4-6", "")])


def test_a_pipe_has_whole_rows_whatever_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("FORCE_COLOR", "1")
    long = " ".join(f"word{n}" for n in range(300))
    text = table(COLUMNS, [(*ROW[:3], long)], Screen.from_stream(io.StringIO()))
    assert text.splitlines()[2].endswith(f" {ROW[2]} | {long} |")
    assert len(text.splitlines()) == 3
    assert "\x1b" not in text


def test_a_narrow_terminal_wraps_then_stacks_then_has_blocks() -> None:
    assert len(table(COLUMNS, [ROW], Screen(90)).splitlines()) == 3
    assert len(table(COLUMNS, [ROW], Screen(82)).splitlines()) == 4
    assert table(COLUMNS, [ROW], Screen(70)) == (
        "|                             |            rate |                    |\n"
        "| case                        |        interval | changed            |\n"
        "|-----------------------------|-----------------|--------------------|\n"
        "| mxnet-resnet50v1b_b128_2n8g |         4855.34 | faster by 9.6 %    |\n"
        "|                             | 4843.76-4924.15 | since c5           |\n"
    )
    assert table(COLUMNS, [ROW], Screen(50)) == (
        "mxnet-resnet50v1b_b128_2n8g\n"
        "  rate 4855.34, interval 4843.76-4924.15\n"
        "  changed faster by 9.6 % since c5\n"
    )


@given(
    st.lists(
        st.tuples(*(st.text("ab -", min_size=1, max_size=30).filter(str.strip),) * 2,
                  st.text("12", max_size=3), st.text("c ", max_size=90)),
        max_size=4,
    ),
    st.integers(40, 120),
)  # fmt: skip
def test_no_line_is_wider_than_the_terminal_and_no_text_is_lost(
    rows: list[tuple[str, str, str, str]], width: int
) -> None:
    for screen in (Screen(width), PIPE):
        text = table(COLUMNS, rows, screen)
        assert screen is PIPE or all(
            len(line) <= width or len(line.split()) == 1 for line in text.splitlines()
        )
        for letter in "12":
            assert text.count(letter) == "".join(map("".join, rows)).count(letter)


def test_colour_only_on_a_terminal_that_wants_it(colourful: pytest.MonkeyPatch) -> None:
    assert Screen.from_stream(Terminal()).colours
    assert Screen.from_stream(io.StringIO()) == PIPE
    colourful.setenv("NO_COLOR", "1")
    assert not Screen.from_stream(Terminal()).colours
    colourful.delenv("NO_COLOR")
    colourful.setenv("TERM", "dumb")
    assert not Screen.from_stream(Terminal()).colours


@pytest.mark.parametrize("width", [120, 70, 50])
def test_marked_cells_are_coloured_and_nothing_else(
    colourful: pytest.MonkeyPatch, width: int
) -> None:
    rows = [("slower", Cell("-7.0%", -0.07, mark="slower"), "4-6", "failed [red]")]
    text = table(COLUMNS, rows, Screen(width, colours=True))
    assert "slower" in text and "failed [red]" in text
    if width > 50:
        assert text.count("\x1b[31m") == 1
        assert "\x1b[31m-7.0%\x1b[0m" in text
    assert "\x1b" not in table(COLUMNS, rows, Screen(width))


def test_progress_is_shown_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    items = iter("abc")
    assert options.reading_logs(items, 3) is items
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr("sys.stderr", slow := Terminal())
    assert list(options.reading_logs(iter("abc"), 3)) == ["a", "b", "c"]
    assert "reading logs" in slow.getvalue()
    assert "/3" in slow.getvalue()
    assert list(options.followed({"a": 1}.items(), 1, "looking for changes")) == [("a", 1)]
    assert "looking for changes" in slow.getvalue()
