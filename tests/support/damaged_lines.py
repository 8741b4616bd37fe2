"""Logs with one damage, as hypothesis draws it."""

from collections.abc import Sequence

from hypothesis import strategies as st


def wrapped(lines: Sequence[str], width: int) -> str:
    """The log as a narrow terminal would have kept it."""
    return "".join(
        line[at : at + width] + "\n" for line in lines for at in range(0, max(len(line), 1), width)
    )


@st.composite
def damaged(draw: st.DrawFn, log: Sequence[str], ways: Sequence[str]) -> str:
    """The log after one of the ways to damage it."""
    lines = list(log)
    at = draw(st.integers(0, len(lines) - 1))
    match draw(st.sampled_from(ways)):
        case "cut":
            whole = "\n".join(lines) + "\n"
            end = draw(st.sampled_from(["", "\n", "\r\n"]))
            return whole[: draw(st.integers(0, len(whole)))] + end
        case "lose a line":
            del lines[at]
        case "lose lines":
            del lines[at : at + draw(st.integers(1, 3))]
        case "double":
            lines.insert(at, lines[at])
        case "repeat elsewhere":
            lines.insert(at, lines[draw(st.integers(0, len(lines) - 1))])
        case "wrap":
            return wrapped(lines, draw(st.integers(20, 130)))
        case "wrap a line":
            place = draw(st.integers(0, len(lines[at])))
            lines[at : at + 1] = [lines[at][:place], lines[at][place:]]
        case "overwrite":
            digits = [n for n, letter in enumerate(lines[at]) if letter.isdigit()]
            if digits:
                place, other = draw(st.sampled_from(digits)), draw(st.sampled_from("x ,-.\x00é\t"))
                lines[at] = lines[at][:place] + other + lines[at][place + 1 :]
        case way:
            raise ValueError(way)
    return "\n".join(lines) + "\n"
