"""Helpers for the parsers of all formats: mpirun's tags, numbers, and printed namespaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

from .records import CUT, Line, LineError

# mpirun -tag-output -timestamp-output: "Tue Jun 14 15:40:21 2022[1,0]<stdout>:", or only one of the
# two parts. Open MPI 5 names the job: "[prterun-node1-77@1,0]<stdout>: ". With unbuffered output,
# the tag can be in the middle of a line or after a number.
_TIME = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) [A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_RANK = r"\[(?P<job>[^\[\]\s]*@)?\d{1,9},(?P<rank>\d{1,9})\]"
_TAG = re.compile(rf"(?:(?:{_TIME})?{_RANK}|{_TIME})<std(?:out|err|diag)>:(?(job) ?)", re.ASCII)
_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf)", re.ASCII)
_PLAIN = frozenset("0123456789.")


def by_rank(lines: Iterable[Line]) -> Iterator[tuple[int, str, int | None]]:
    """Number, text and rank of each line, without mpirun's tags.

    A line that several ranks wrote becomes one text per rank. The text before the first tag
    belongs to the rank of that tag, because the tag landed in the middle of that rank's output.
    """
    for number, text in lines:
        if "<std" not in text:
            yield number, text, None
            continue
        texts: dict[int | None, str] = {}
        rank, end, before = None, 0, text
        for tag in _TAG.finditer(text):
            piece, end = text[end : tag.start()], tag.end()
            if texts:
                texts[rank] += piece
            else:
                before = piece
            rank = int(tag["rank"]) if tag["rank"] else None
            texts.setdefault(rank, "" if texts else before)
        texts[rank] = texts[rank] + text[end:] if texts else text
        for rank, whole in texts.items():
            yield number, whole, rank


def rate(line: int, printed: str) -> float:
    """The printed number. The caller must check that it is a possible rate, not 0, nan or inf.
    Raises LineError if the text is not a number, such as the remains of two lines."""
    if _is_plain(printed):
        return float(printed)
    if printed.endswith(CUT):
        raise LineError(
            line,
            "the log ends in the middle of this line",
            expected="a newline after the rate",
            found=repr(printed.removesuffix(CUT)),
        )
    if not _NUMBER.fullmatch(printed.lower()):
        raise LineError(line, "the rate is not a number", expected="a number", found=repr(printed))
    return float(printed)


def optional_number(printed: str | None) -> float | None:
    """The printed number; None if it is missing or not a number."""
    if printed is None or not (_is_plain(printed) or _NUMBER.fullmatch(printed.lower())):
        return None
    return float(printed)


def transposed(entries: Sequence[tuple[str, ...]], width: int) -> Sequence[tuple[str, ...]]:
    """The columns of entries that have `width` fields each."""
    return list(zip(*entries, strict=True)) or [()] * width


def numbers(printed: Sequence[str]) -> list[float] | None:
    """The printed numbers; None unless each has only digits and at most one decimal point."""
    try:
        return list(map(float, printed)) if _PLAIN.issuperset("".join(printed)) else None
    except ValueError:
        return None


def optional_numbers(printed: Sequence[str]) -> Sequence[float | None] | None:
    """The same for an optional number, which either every line has or no line has."""
    return numbers(printed) if any(printed) else [None] * len(printed)


def _is_plain(printed: str) -> bool:
    """Whether it has only digits and at most one decimal point, as most numbers do. This check is
    faster than the pattern."""
    return printed.isascii() and printed.replace(".", "", 1).isdigit()


def namespace(text: str) -> dict[str, str]:
    """Keys and values of a printed argparse.Namespace(batch_size=128, dtype='float32', ...)."""
    _, _, inside = text.partition("Namespace(")
    pairs = re.findall(r"(\w+)=('[^']*'|\"[^\"]*\"|[^,()]*)", inside)
    return {key: value.strip("'\"") for key, value in reversed(pairs)}


_PRECISIONS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}


def precision(dtype: str | None) -> str | None:
    """The precision for the name of a dtype: fp32 for float32."""
    return _PRECISIONS.get(dtype, dtype) if dtype else None


def unix_time(stamp: str | None) -> float | None:
    """Seconds since 1970 for a time stamp like 2026-11-20 13:40:15,997, taken as UTC."""
    try:
        return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp() if stamp else None
    except ValueError:
        return None


def count(line: int, what: str, printed: str | None) -> int | None:
    """A printed count of 1 or more; None if the log does not print it. `what` names the count in
    errors."""
    if printed is None:
        return None
    try:
        value = int(printed)
    except ValueError:
        value = 0
    if value < 1 or len(printed) > 18:
        problem = f"the {what} is not a positive integer"
        raise LineError(line, problem, expected="1 or more", found=repr(printed))
    return value
