"""A format that a regular expression of a user describes: see docs/own-workload.md.

RE2 searches it in each line. Its groups are those of Format.entry; `step_time` in place of `rate`
is the duration of a step. Without `step`, the log has one rate, that of the whole run. With
alternatives, `step (?P<step>\\d+)|speed (?P<rate>[\\d.]+)`, a step may have several lines: a rate
without a step is that of the last step before it. `prefix`, right behind a rate, multiplies it:
12.3K.

Guards: a rate that goes on before or behind what the expression takes, or whose unit is not that of
the sample, is refused, as is one that the end of the log cuts, or that was wrapped, in every other
format. Durations are refused, too, if the lines' time stamps show that each is of several steps. A
bar of tqdm prints 1.25it/s or, of slow steps, 1.25s/it; either is read.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from ..core.linear import compiled
from ..core.units import SAMPLES, TOKENS
from . import text
from .records import CUT, Format, stated

DURATION = "step_time"
EPOCHS = ("epoch", "of_epoch")
GROUPS = ("step", "rate", DURATION, "loss", "prefix", *EPOCHS)
_COUNTS = ("step", *EPOCHS)
_STEP = re.compile(rb"\d{1,12}")
_THOUSANDS = re.compile(rb"\d{1,3}(?:,\d{3}){1,3}")
_DIGITS = rb"\d{1,64}+"
_NUMBER = rb"(?:\d{1,3}(?>(?:,\d{3}){1,9})|%s)(?>(?:\.%s)?)(?>(?:[eE][-+]?\d{1,3}+)?)" % (
    _DIGITS,
    _DIGITS,
)
_NUMBERS = re.compile(_NUMBER)
# A number that goes on neither before nor behind.
_ALONE = re.compile(rb"(?<![\d.,eE+-])%s(?![\r\n]|%s)" % (_NUMBER, CUT.encode()))
_BEHIND = re.compile(rb" {0,2}+[\w/\x80-\xff]{0,32}+(?>[:=] ?\d)?")
# The middle of a number with no-break or thin spaces, or apostrophes: 1'234.5.
_GROUPED = re.compile(rb"(?<![.\d])\d{1,3}(?:\xc2\xa0|\xe2\x80[\x87\x89\x99\xaf]|')\d{3}(?!\d)")
_LONGEST = 64  # bytes in a number
_IN_NUMBER = b"0123456789.,eE+-"
# What shows that a number is not whole: the mark of a cut, or more digits in the next line.
_REST = re.compile(rb"%s|%s" % (CUT.encode(), text.WRAPPED))
_STAMP = re.compile(
    rb"[^\r\n]{0,24}?(?:(\d{4})[-/](\d\d)[-/](\d\d)[ T,_-])?(\d\d:\d\d:\d\d(?:[.,]\d{3})?)(?!\d)"
)
_LETTER = r"[^\W\d_]"
_PER = r"(?>(?:/[^\W_]{1,16}+){0,4})"
_UNIT = re.compile(
    rf"{_LETTER}[^\W_]{{0,16}}+{_PER}| {{1,2}}+({_LETTER}{{1,16}}+{_PER})(?![:=] ?\d)"
)
_PREFIXES = ("k", "K", "M", "G", "T")
_SECONDS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("ms", "msec", "msecs", "millisecond", "milliseconds"), 0.001),
    **dict.fromkeys(("us", "µs", "μs", "usec", "microseconds"), 1e-6),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hr", "hour", "hours"), 3600.0),
}
# What rates count.
THINGS = (
    r"(?:samples?|im(?:age|g)?s?|tok(?:en)?s?|tks|seq(?:uence)?s?|examples?|elements?|it(?:er|em)?s?"
    r"|ba|steps?|batch(?:es)?|updates?|sentences?|words?|utt(?:erance)?s?|records?|frames?)"
)
# A prefix, what a rate counts, and per what: ktok/s/gpu, thousand images per minute.
_WORDS = re.compile(
    rf"(?<![^\W_])((?:[kKMGT]|(?i:kilo|mega|giga|(?:thousand|million|billion)s?))[ -]?)?"
    rf"((?i:{THINGS}|speed|throughput|[tfw]ps))(?![^\W_])"
    r"((?>(?i:(?:/|[ _(]{0,2}per[ _])[a-zµμ]{1,12}+){0,4}))"
)
_SPEED = re.compile(r"speed|throughput|[tfw]ps", re.IGNORECASE)
_PREFIX_ALONE = re.compile(r"(?i:\b(?:thousand|million|billion)s?\b)|[(\[][kKMGT][)\]]")
_PER_SECOND = re.compile(r"^ ?\.?/s(?:ec)?/([a-z]{1,12})\b")
_NAME = re.compile(r"[:=] ?\d")  # what follows is that of the next number
_TIME_ALONE = re.compile(r"(?:[ _]|[(\[])([a-zµμ]{1,12})\W{0,4}$")
# What ends what is said of a number: another number with its unit, or a separator.
_ANOTHER = re.compile(r"\d(?>(?:[.,]?\d){0,64}) {0,2}+[\w/%]{0,64}+(?![\w/%:=]| [:=])|[|,;]")
_WHOSE = {**dict.fromkeys(("gpu", "device", "chip", "core"), "device"), "node": "node"}
_OF_RUN = (
    "one rate of the whole run, as the program printed it, which may include its warm-up; nothing"
    " is left out"
)
IN_BAR = re.compile(r"\[[\d:]{1,16}+<[\d:?]{1,16}+, ")
_OF_BAR = re.compile(r"(?:s/)?(it|ba|batch|step|update)(?:/s)?")
# What scripts of Hugging Face's accelerate and diffusers print, and sd-scripts, which has a batch
# size for each data set. Their bars count whole steps, of all accumulated batches.
_STATEMENTS = (
    stated(
        "batch size per device",
        r"  (?:Instantaneous batch size per device = |batch size per device / [^\r\n:]{1,32}+: )"
        r"(?P<batch_size_per_device>\d{1,9}+)\s{0,8}+\Z",
    ),
    stated("Mixed precision type: ", r"^Mixed precision type: (?P<precision>bf16|fp16)\b"),
)
_ACCUMULATED = (
    stated(
        "radient ",
        r"  (?:Gradient Accumulation|gradient accumulation) steps (?>(?:/ [^\r\n=]{1,32}+)?)= "
        r"(?P<accumulation_steps>\d{1,9}+)",
    ),
)
_OF_STEPS = re.compile(
    r"(?:its?|iters?|iterations?|steps?|ba|batch|batches|updates?)/(?:s|sec|second)"
)


@functools.lru_cache(maxsize=1024)  # the lines of a log have the same unit
def unit_behind(line: str) -> str:
    """The unit at the beginning of what follows a number: `ms`, `img/s`, `k`; empty if none does. A
    word apart from the number is one if it has a slash, or if it is a time or a prefix."""
    match = _UNIT.match(line[:_LONGEST])
    if match is None:
        return ""
    apart: str | None = match[1]
    if apart and "/" not in apart and apart not in (*_SECONDS, *_PREFIXES):
        return ""
    return apart or match[0]


def seconds_of(unit: str) -> float | None:
    """The seconds of a unit of time, also of one per step: 0.001 for ms/it."""
    return _SECONDS.get(unit.partition("/")[0])


def is_prefix(unit: str) -> bool:
    """True if the unit multiplies the number: 12.3k."""
    return unit.partition("/")[0] in _PREFIXES


def units_of_bar(unit: str) -> tuple[str, ...]:
    """The two units of a bar of tqdm that has this one, it/s or s/it; none if it is not of a
    bar."""
    match = _OF_BAR.fullmatch(unit)
    return (f"{match[1]}/s", f"s/{match[1]}") if match and "/" in unit else ()


def counts_steps(unit: str) -> bool:
    """True if a rate in this unit counts steps: it/s."""
    return _OF_STEPS.fullmatch(unit) is not None


class UnitWords(NamedTuple):
    """Facts that the words beside a number state, each empty if they do not. `prefix`: what
    multiplies it. `seconds`: the unit of time of a duration, or that of a rate if it is not a
    second. `counted`: samples or tokens. `whose`: device or node."""

    prefix: str = ""
    seconds: str = ""
    counted: str = ""
    whose: str = ""


def _is_of_rate(match: re.Match[str]) -> bool:
    """True if words may be those of a rate, and not of a setting such as steps_per_epoch, or
    `size M batch=32`."""
    if match[3]:
        per = re.findall(r"[^\W_]+", match[3].lower())
        return any(part in _SECONDS for part in per) or _SPEED.fullmatch(match[2]) is not None
    return not (match[1] and match[1].endswith(" ") and match[1].strip() in _PREFIXES)


def words_of_rate(before: str, behind: str) -> UnitWords:
    """The facts in the texts before and behind a rate: `throughput (ktok/s): `, ` img/min`."""
    before = _ANOTHER.split(before[-_LONGEST:])[-1]
    at_once = _WORDS.match(behind[:_LONGEST].lstrip(" "))
    if at_once and _NAME.match(at_once.string, at_once.end()):
        at_once = None  # loss: 2.1 samples/s: 812.5
    named = [match for match in _WORDS.finditer(before) if _is_of_rate(match)]
    words = [*([at_once] if at_once else []), *named[-1:]]
    alone = _PREFIX_ALONE.match(behind.lstrip(" ")) or (
        None if at_once else _PREFIX_ALONE.search(before)
    )
    prefix = (words[0][1] if words else None) or (alone[0] if alone else "")
    per = [part for match in words for part in re.findall(r"[^\W_]+", match[3].lower())]
    things = [match[2].lower() for match in words if match[3]]
    of_plain = _PER_SECOND.findall(behind[:_LONGEST])  # 13641.2/s/gpu
    of_step = "step" if things and counts_steps(f"{things[0]}/s") else ""
    return UnitWords(
        prefix.strip(" -()[]"),
        next((part for part in per if _SECONDS.get(part, 1.0) != 1.0), ""),
        (counted_in(things[0]) if things else None) or "",
        next((_WHOSE[part] for part in [*per, *of_plain] if part in _WHOSE), of_step),
    )


def words_of_time(before: str, behind: str) -> UnitWords:
    """The facts in the texts before and behind a duration: `step_time_ms=`, ` ms/it`."""
    if seconds_of(unit := unit_behind(behind)) is not None:
        return UnitWords(seconds=unit)
    word = _TIME_ALONE.search(_ANOTHER.split(before[-_LONGEST:])[-1])
    is_time = word is not None and word[1] not in ("m", "h") and word[1] in _SECONDS
    return UnitWords(seconds=word[1] if word and is_time else "")


def counted_in(unit: str) -> str | None:
    """The things that a unit counts; None if it does not say it."""
    what = unit.partition("/")[0].lower()
    if what in ("tok", "toks", "tks", "token", "tokens"):
        return TOKENS
    return SAMPLES if what in ("img", "imgs", "image", "images", "sample", "samples") else None


class Match:
    """A match in a log, by the names of its groups."""

    def __init__(self, texts: Mapping[str, bytes], starts: Mapping[str | int, int]) -> None:
        self._texts, self._starts = texts, starts

    def __getitem__(self, group: str) -> bytes:
        return self._texts[group]

    def start(self, group: str | int = 0) -> int:
        """The offset of a group, by default that of the match."""
        return self._starts[group]


class Lines:
    """An expression that matches inside a line. It has the methods of a pattern that formats
    use."""

    def __init__(
        self, expression: str, sample: str = "", seconds: float | None = None, steps: int = 1
    ) -> None:
        """`seconds`: the unit of its durations, of so many `steps`; None if it has rates. Raises
        re.error."""
        renamed = expression.replace(f"(?P<{DURATION}>", "(?P<rate>")
        self._pattern = compiled(renamed.encode(), in_lines=True)
        self.groupindex = {name.decode(): n for name, n in self._pattern.groupindex.items()}
        self._numbers = [*self.groupindex.items()]
        self._seconds, self._unit, self._bar = seconds, None, ""
        self._unit = self.unit_in(sample)
        self._bars = units_of_bar(self._unit or "") if seconds in (None, 1.0) and steps == 1 else ()
        if self._bars and "prefix" not in self.groupindex:
            self._bar = self._bars[seconds is None]
            self.groupindex["inverse"] = len(self._numbers) + 1
        if seconds is not None:
            self.groupindex["time"] = len(self.groupindex) + 1
        self.groupindex.setdefault("step", len(self.groupindex) + 1)

    def unit_in(self, line: str) -> str | None:
        """The unit of the rate in a line; None if nothing is behind the rate, or if there is
        none."""
        behind = self.around(line)[1]
        return unit_behind(behind) if behind else None

    def around(self, line: str) -> tuple[str, str]:
        """The texts before the rate in a line and behind it and its prefix; empty if there is no
        rate. None is before a rate with a prefix, which says what multiplies it."""
        data = line.encode()
        match = self._pattern.search(data)
        if match is None or "rate" not in self.groupindex:
            return "", ""
        begin, end = match.span(self.groupindex["rate"])
        last = match.end(self.groupindex["prefix"]) if "prefix" in self.groupindex else -1
        before = data[: begin if last <= end else 0]
        return before.decode(errors="replace"), data[max(end, last) :].decode(errors="replace")

    def finditer(self, data: bytes) -> Iterator[Match]:
        """The first match of each line, if it has a step that is a number, or a rate alone."""
        lines, at, groups = data.replace(b"\r", b"\n"), 0, self._numbers
        while at < len(lines) and (match := self._pattern.search(lines, at)):
            start, end = match.span()
            spans = {name: match.span(number) for name, number in groups}
            texts = {name: self._text(name, data, spans) for name in spans}
            texts.setdefault("step", b"")
            if self._bar:
                is_other = texts["rate"] and data.startswith(self._bar.encode(), spans["rate"][1])
                texts["inverse"] = self._bar.encode() if is_other else b""
            if self._seconds is not None:
                texts["time"] = _time_of_line(lines, start)
            if texts["rate"] and texts["rate"] == data[slice(*spans["rate"])]:
                texts["rate"] += self._other_unit(data, texts, spans)
            counts = [text for name, text in texts.items() if name in _COUNTS]
            if all(map(_STEP.fullmatch, counts)) or (texts["rate"] and not any(counts)):
                yield Match(texts, {0: start, **{name: span[0] for name, span in spans.items()}})
            end = lines.find(b"\n", end)
            at = end + 1 if end >= 0 else len(lines)

    def findall(self, data: bytes) -> list[tuple[bytes, ...]]:
        """The groups of each match."""
        return [tuple(match[name] for name in self.groupindex) for match in self.finditer(data)]

    def _text(self, name: str, data: bytes, spans: Mapping[str, tuple[int, int]]) -> bytes:
        """The text of a group, with the rest of its number; of a rate, no number if the expression
        took a part of it. What another group took before a comma is none: 12,345.6 in CSV."""
        start, end = spans[name]
        whole = taken = data[max(start, 0) : max(end, 0)]
        if name in (*_COUNTS, "prefix") or not taken:
            return taken.replace(b",", b"") if _THOUSANDS.fullmatch(taken) else taken
        if name == "rate" and (part := _grouped(data, start, end, spans.values())):
            return data[min(start, part[0]) : max(end, part[1])]
        alone = _ALONE.match(data, start)
        if alone is None or alone.end() != end:
            others = (last for _, last in spans.values() if data.startswith(b",", last, start))
            whole = _whole(data, start, end, max(others, default=0))
        if name == "rate" and whole != taken and _NUMBERS.fullmatch(whole):
            return b"%s, of which the expression takes %s" % (whole, taken)
        return whole

    def _other_unit(
        self, data: bytes, texts: Mapping[str, bytes], spans: Mapping[str, tuple[int, int]]
    ) -> bytes:
        """The text behind a rate if its unit or prefix is not that of the sample, else nothing."""
        end, prefix = spans["rate"][1], texts.get("prefix", b"")
        if prefix:
            begin, last = spans["prefix"]
            if prefix not in text.PREFIXES or data[end:begin].strip(b" "):
                return b" " + prefix
            end = last
        behind = _BEHIND.match(data, end)
        unit = unit_behind(behind[0].decode("utf-8", "replace")) if behind else ""
        if self._bar and unit in self._bars:
            return b""
        return behind[0] if behind and self._is_other(unit) else b""

    def _is_other(self, unit: str) -> bool:
        """True if a rate in this unit is not in that of the sample, or of the durations."""
        if is_prefix(unit) or (self._unit is not None and unit != self._unit):
            return True
        if self._seconds is None:
            return False
        return counts_steps(unit) or seconds_of(unit) not in (None, self._seconds)


def _time_of_line(lines: bytes, at: int) -> bytes:
    """The time stamp at the beginning of a line; empty if it has none. Of a time without a date,
    only differences are meaningful."""
    stamp = _STAMP.match(lines, lines.rfind(b"\n", 0, at) + 1, at)
    if stamp is None:
        return b""
    *date, time = stamp.groups()
    return (b"-".join(date) if all(date) else b"1970-01-01") + b" " + time.replace(b",", b".")


def _grouped(
    data: bytes, start: int, end: int, groups: Iterable[tuple[int, int]]
) -> tuple[int, int] | None:
    """The place of a number with blanks or apostrophes of which a group took a part; None if it
    took the whole, or if another group took what is before the blank."""
    before = [last for _, last in groups if last <= start]
    for part in _GROUPED.finditer(data, max(0, start - 7), end + 8):
        if part.start() < end and part.end() > start and part.start() >= max(before, default=0):
            return part.span()
    return None


def _whole(data: bytes, start: int, end: int, least: int) -> bytes:
    """The number of which a group matched a part, or what the group matched. It begins at
    `least` or behind it."""
    begin = start
    while begin > max(least, start - _LONGEST) and data[begin - 1] in _IN_NUMBER:
        begin -= 1
    first, last = start, end
    for number in _NUMBERS.finditer(data, begin, end + _LONGEST):
        if number.end() > start:
            if number.start() < end:
                first, last = min(start, number.start()), max(end, number.end())
            break
    is_negative = data[first - 1 : first] == b"-" and not data[first - 2 : first - 1].isalnum()
    if rest := _REST.match(data, last):
        # A newline separates numbers; one inside of a number shows that it was wrapped.
        return data[first:last] + b" ".join(rest[0].split(b"\n"))
    return data[first - is_negative : last]


def of_pattern(
    name: str,
    expression: str,
    sample: str,
    *,
    zero_based: bool = False,
    seconds: float = 1.0,
    steps: int = 1,
) -> Format:
    """The format of an expression. `seconds`: the unit of its durations, each of so many `steps`.
    Raises re.error."""
    unit = seconds if f"(?P<{DURATION}>" in expression else None
    whole_run = "(?P<step>" not in expression
    return Format(
        name=name,
        sample=sample or expression,
        marker=b"",
        opening=b"" if whole_run else b"the group step",
        entry=Lines(expression, sample, unit, steps),
        rate=_NUMBER,
        statements=(*_STATEMENTS, *(_ACCUMULATED if IN_BAR.search(sample) else ())),
        zero_based=zero_based,
        seconds=unit and unit / steps,
        rates_are_per="world" if unit is None else "step",
        whole_run=whole_run,
        caveat=_OF_RUN if whole_run else None,
    )
