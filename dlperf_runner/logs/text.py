"""Numbers and times in logs, and the patterns that several formats share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime

from .records import CUT, Format, LineError, Matched, stated

# A number between other texts, which show that it is whole. Its programs print decimals.
NUMBER = rb"\d++\.\d++"
FLOAT = rb"\d+\.\d+(?:e[+-]\d+)?"  # of Python
WORD = rb"\S{1,64}+"
END = rb" ?(?=[\r\n]|\Z)"
# A line that begins with digits: the rest of a number if the line before was wrapped.
WRAPPED = rb"\r?\n[\d.]{1,40}+(?=(?: images/s)?%s)" % END

# What this project's own programs print after their training, by rank: seconds of a step.
_SECONDS = r"\d{1,9}+\.\d{6}"
_OF_RANKS = rf"{_SECONDS}(?: {_SECONDS}){{0,2000}}+)\r?$"
PARTS_OF_STEP = (
    stated(
        "seconds of a step without communication, by rank: ",
        rf"communication, by rank: (?P<alone>{_OF_RANKS}",
    ),
    stated(
        "seconds of NCCL kernels in a step, by rank: ",
        rf"kernels in a step, by rank: (?P<nccl>{_OF_RANKS}",
    ),
    stated(
        "all-reduce of the gradients alone: ",
        r"gradients alone: (?P<reduced_bytes>[1-9]\d{0,14}) bytes"
        r" in (?P<reduced_s>\d{1,6}\.\d{6}) s(?: through (?P<interface>[\w.:-]{1,64}+))?\r?$",
    ),
)

# No cluster trains faster, and sums of such numbers are still finite.
FASTEST = 1e12
PREFIXES = {b"": 1.0, b"k": 1e3, b"K": 1e3, b"M": 1e6, b"G": 1e9, b"B": 1e9, b"T": 1e12}
_SIGNED = re.compile(
    r"[-+]?(?:(?:\d{1,64}+\.?\d{0,64}+|\.\d{1,64}+)(?:[eE][-+]?\d{1,9}+)?|nan|inf)", re.ASCII
)


def rate_before(end: bytes) -> bytes:
    """The pattern of a rate with `end` behind it, the pattern of the rest of the line. Anything
    else behind it, or a number in the next line, belongs to the rate, which is not whole then."""
    unnamed = re.sub(rb"\?P<\w+>", rb"?:", end)
    rest = rb" ?%s|(?!%s)[^\r\n]{0,64}+" % (WRAPPED, unnamed)
    return rb"(?P<rate>\S{0,64}+(?>(?:%s)?))(?:%s)?" % (rest, end)


def rate_until(end: bytes) -> bytes:
    """The pattern of a rate up to `end`, with the rest of its number from a wrapped line, which is
    not whole then. For rates with any decimals, or behind which more is printed."""
    return rb"(?P<rate>\S{1,64}?(?>(?:\r?\n[\d.,eE+-]{1,40}+(?=%s))?))(?=%s)" % (end, end)


def _shown(printed: bytes) -> str:
    return printed.decode("utf-8", "replace").strip()


def rate(printed: bytes, form: Format, others: Sequence[bytes] = ()) -> float:
    """The printed rate. Raises LineError, without a line number, if it is not whole, or not
    possible in training. `others`: the rates printed before it."""
    if printed.endswith(_CUT):
        printed = _before_cut(printed.removesuffix(_CUT), form, others) or printed
    shown = _shown(printed)
    is_whole = b"\n" not in printed and form.whole_rates.fullmatch(printed + b"\n")
    plain = shown.replace(",", "") if is_whole else shown  # 6,835
    number = _SIGNED.fullmatch(plain.lower())
    if number and not 0 < float(plain) < FASTEST:
        problem = "the rate is not possible in training"
        expected = f"a number above 0 and below {FASTEST:.0e}"
    elif is_whole:
        return per_second([float(plain)], form)[0]
    elif shown.endswith(CUT):
        problem, expected = "the log ends in the middle of this line", "a newline after the rate"
        shown = repr(shown.removesuffix(CUT))
    elif number:
        problem = f"the rate is not printed as {form.name} prints it"
        expected, shown = f"a number as in {form.sample.expandtabs(4)!r}", repr(shown)
    else:
        problem, expected, shown = "the rate is not a number", "a number", repr(shown)
    hint = "run the program with LC_ALL=C: numbers need a decimal point" if "," in shown else None
    hint = _HINT_OF_BLANKS if _WITH_BLANKS.fullmatch(_shown(printed)) else hint
    raise LineError(0, problem, expected=expected, found=shown, hint=hint)


def rate_in(match: Matched, form: Format) -> float:
    """The rate of a match. Raises LineError as `rate` does."""
    printed = rate(match["rate"], form)
    if "prefix" in form.entry.groupindex:
        printed *= PREFIXES[match["prefix"]]
    return 1 / printed if "inverse" in form.entry.groupindex and match["inverse"] else printed


_WITH_BLANKS = re.compile(r"[1-9]\d{0,2}(?: \d{3}){1,6}(?:\.\d{1,9})?", re.ASCII)
_HINT_OF_BLANKS = (
    "if the blanks separate thousands, give a copy without them:\n"
    r"  sed -E ':a; s/([0-9]) ([0-9]{3})([^0-9]|$)/\1\2\3/; ta' LOG > whole.log"
)
_CUT = CUT.encode()
# What may follow a number in a longer one.
_MORE = (b"0", b".0", b",000", b"e+06")


def _before_cut(printed: bytes, form: Format, others: Sequence[bytes]) -> bytes | None:
    """The rate at the end of a log without a last newline, if it is whole: if something follows it,
    if its format fixes the decimals, or if the other rates do."""
    number, blank, rest = printed.partition(b" ")
    if not form.whole_rates.fullmatch(number + b"\n"):
        return None
    is_followed = bool(blank) and not rest[:1].isdigit()
    if is_followed or not any(form.whole_rates.fullmatch(number + more + b"\n") for more in _MORE):
        return number
    if "prefix" in form.entry.groupindex:  # the log may end before it
        return None
    decimals = {len(other.partition(b".")[2]) for other in others}
    is_fixed = decimals == {len(number.partition(b".")[2])} and decimals != {1}
    # A program that prints as many decimals as needed prints no 0 behind them.
    if is_fixed and any(b"." in other and other.endswith(b"0") for other in others):
        return number
    return None


def per_second(printed: Sequence[float], form: Format) -> list[float]:
    """The rates from what the format prints, which may be durations."""
    if form.seconds is None:
        return list(printed)
    return [1 / (duration * form.seconds) for duration in printed]


def optional_numbers(printed: Sequence[bytes]) -> list[float | None]:
    """The printed numbers; None for each that is missing or not a number."""
    if not any(printed):
        return [None] * len(printed)
    if not b"".join(printed).translate(None, b"0123456789."):
        try:
            return list(map(float, printed))
        except ValueError:
            pass
    return [float(n) if _SIGNED.fullmatch(_shown(n).lower()) else None for n in printed]


def unix_times(printed: Sequence[bytes]) -> list[float | None]:
    """Seconds since 1970 for time stamps like 2026-11-20 13:40:15,997, taken as UTC, and for
    seconds; None for each that is missing or not a time."""
    if not any(printed):
        return [None] * len(printed)
    if b"-" not in b"".join(printed):
        return optional_numbers(printed)
    return [_unix_time(stamp.decode()) if stamp else None for stamp in printed]


def _unix_time(stamp: str) -> float | None:
    try:
        return datetime.fromisoformat(stamp).replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
