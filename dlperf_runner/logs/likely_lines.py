"""The line with which a program that no format reads most likely prints its rates, for messages:

    [trainer] upd 10 | obj 6.800 | 810.1 img/s
    upd +(?P<step>\\d+).*?\\| +(?P<rate>[\\d.,]*\\d) +img/s

It is a guess, so no number is taken from it: the user decides whether the expression is right.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise

from .pattern import DURATION, THINGS, Lines, units_of_bar, words_of_rate
from .reader import blocks

_MOST_LINES = 20_000
_LONGEST = 700  # bytes in a line
_MOST_KINDS = 2000
_ENOUGH = 3  # lines of a kind that repeats
_SHOWN = 8  # of these, so that times since the start are recognised by their growth
_NUMBER = re.compile(r"\d{1,20}+(?>(?:[.,]\d{1,20}+){0,6})(?>(?:[eE][-+]\d{1,3}+)?)")
_FRACTION = re.compile(r"\d\.\d")
_COUNT = re.compile(r"\d{1,20}|\d{1,3}(?:,\d{3}){1,6}")
_STEP_WORD = re.compile(
    r"(?:steps?|iters?|iterations?|it|batch|upd|updates?|global_step)\W{0,4} {0,12}$", re.IGNORECASE
)
_FIRST_WORD = re.compile(r"[^\W\d]\S{0,24}\s{1,8}$")
_OF_ALL = re.compile(r"/\d{1,12}(?:\]| \[)")  # TRAIN [0][10/500], or the count of a bar
_WHOSE = r"(?>(?:(?:/|[-_ ]per[-_ ])(?:gpu|device|core|chip|node|replica|worker))?)"
_PLACE = "\0"  # of a number, in the shape of a line
_TIMES = re.compile(rf"{_PLACE}(?::{_PLACE}){{1,2}}")  # 1:02:03 as 02:03
_BAR = r"\u2500-\u259f#"  # characters of progress bars, which grow
_PART_OF_BAR = re.compile(r"(?<=%\|)(#{0,200}+)\d(?= {0,200}+\|)")  # |##4   | in ASCII
# Not the name of the next number: loss: 2.1 samples/s: 812.5
_RATE_UNIT = re.compile(
    rf"\s{{0,2}}(?:{THINGS}(?:/| per )s(?:ec(?:ond)?)?|fps(?! \w))\b(?![:=] ?\d)", re.IGNORECASE
)
_NO_RATE = re.compile(r"(?:loss|acc|accuracy|ppl|perplexity|lr|norm)[ :=]{1,3}$", re.IGNORECASE)
_RATE_WORD = re.compile(
    r"(?:ips|fps(?: total)?|tgs|tps|wps|speed|throughput|(?<![a-z])(?<![a-z][ _-])rate"
    rf"|{THINGS}(?>(?: per gpu)?)(?:/|[-_ ]?per[-_ ]?)s(?:ec(?:ond)?)?{_WHOSE})"
    r"(?>(?: \([a-z/ ]{1,22}+\))?)\W{0,4}+ {0,12}+$",
    re.IGNORECASE,
)
_PLAIN_RATE_UNIT = re.compile(r"\.?/s(?:ec)?\b")  # open_clip prints 109129./s
_PREFIX = re.compile(r"[kKMG](?![^\W_])")
_TIME_UNIT = re.compile(r"\s{0,2}(?:ms|milliseconds|s|secs?|seconds)\b")
_COUNTED = ("step", "epoch", "of_epoch")
_ALONE = re.compile(r"\s{0,2}(?:ms|milliseconds|seconds)\b(?! (?:left|remaining|elapsed|since))")
_TIME_OF_STEP = re.compile(
    r"\s{0,2}(?:ms|s|secs?|seconds) ?/ ?(?:step|it|iter|iteration|batch|ba|update)\b"
)
_TIME_WORD = re.compile(
    r"(?:time|timing|elapsed|duration|dt|\bbt|(?:batch|step|iter)_cost|(?:ms|s|sec)/(?:b|batch|it|iter|step))"
    r"[^\d|,]{0,24}$",
    re.IGNORECASE,
)
_TIME_OF_BATCH = re.compile(r"(?:\bbatch|\|net) $", re.IGNORECASE)  # of a fraction
_OTHER_UNIT = re.compile(r"\s?(?:iter|iteration|step|batche?|image|sample)s?\b")
_WHOLE_STEP = re.compile(r"(?:step|iter|iteration|batch|\bbt|total)[^\d|,]{0,24}$", re.IGNORECASE)
_TOTAL = re.compile(r"total[ :=]{1,3}$", re.IGNORECASE)
_TIME_PER_STEP = re.compile(r"time per (?:step|iter|iteration|batch)[^\d|,]{0,24}$", re.IGNORECASE)
# Of a part of a step, of an evaluation, or of what is still to come.
_PART = re.compile(
    r"(?:data|load|loading|read(?:er)?|fwd|bwd|(?:for|back)ward|opt|optim|optimizer|val|validation"
    r"|eval|remaining)(?:_\w{0,40})?[ _]?$",
    re.IGNORECASE,
)
# Taken only if a line has nothing else: means since the start, and tqdm's smoothed rate.
# train_speed is that of ms-swift.
_MEAN = re.compile(
    r"(?:avg|average|overall|mean|train_speed)[^\d|,]{0,24}$|[<[][\d:?]{1,16}, {0,2}$",
    re.IGNORECASE,
)
_STEP_COLUMN = re.compile(r"(?<![a-z])(?:step|iter|iteration)$", re.IGNORECASE)
_WORD_OF_STEP = re.compile(r"[A-Za-z_]{2,24}[ :=]{1,8}$")
_TIME_OF_DAY = re.compile(r"(?<!\d)\d\d:\d\d:\d\d(?!\d)")
_EPOCH_WORD = re.compile(r"epochs?\W{0,4}$", re.IGNORECASE)
_EPOCH_NAME = re.compile(r"(?:epochs?|train|pass)\W{0,8}$", re.IGNORECASE)


@dataclass
class _Kind:
    """Lines that differ in their numbers only: how many, and the first ones."""

    number: int = 0
    lines: list[str] = field(default_factory=list)
    every: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class LikelyLine:
    """Such a line, and an expression for lines like it; None if it has no step or no rate.
    `is_mean`: its rate is a mean or smoothed. `besides`: what else the expression takes. `stamped`:
    the word before its step, if it has a time of day and no rate. `column`: the name of the rate
    in the head of a CSV file."""

    line: str
    regex: str | None
    is_mean: bool = False
    besides: str = ""
    stamped: str = ""
    column: str = ""


def likely_line(pieces: Iterable[bytes]) -> LikelyLine | None:
    """The most likely line of a log, of those that repeat, or else the last one with a rate; None
    if there is neither."""
    kinds: dict[str, _Kind] = {}
    head = ""
    for line in islice(_lines(pieces), _MOST_LINES):
        head = head or line
        shape = _shape(line)
        if _PLACE not in shape or (shape not in kinds and len(kinds) == _MOST_KINDS):
            continue
        kind = kinds.setdefault(shape, _Kind())
        kind.number += 1
        kind.every.append(line)
        if len(kind.lines) < _SHOWN and line not in kind.lines:
            kind.lines.append(line)
    repeated = [kind for kind in kinds.values() if kind.number >= _ENOUGH]
    repeated.sort(key=lambda kind: -kind.number)
    firsts = [kind.lines[0] for kind in kinds.values()]
    of_mean = None
    for kind in repeated:
        if _step(kind.lines) is None and (lines := _of_one_rank(kind.every)):
            kind.lines = lines
        if expression := _expression(kind.lines, firsts, kind.every):
            likely = LikelyLine(kind.lines[0].strip(), *expression)
            if not likely.is_mean:
                return likely
            of_mean = of_mean or likely
    if of_mean:
        return of_mean
    if repeated and (column := _of_csv(head, repeated[0].lines[0])):
        return column
    if apart := _of_two_lines(repeated) or _of_run(kinds.values()):
        return apart
    numbers = (kind for kind in repeated if _FRACTION.search(kind.lines[0]))
    other = next((kind for kind in numbers if _step(kind.lines) is not None), None)
    if other is None:
        return None
    return LikelyLine(other.lines[0].strip(), None, stamped=_stamped(other.lines))


def _stamped(lines: Sequence[str]) -> str:
    """The word before the step of lines with a time of day, which give the time of a step; empty if
    they have none. Other lines with a step do not have the word."""
    place = _step(lines)
    numbers = [*_NUMBER.finditer(lines[0])]
    if place is None or not _TIME_OF_DAY.search(lines[0][: numbers[place].start()]):
        return ""
    word = _WORD_OF_STEP.search(lines[0][: numbers[place].start()])
    return word[0] if word and _STEP_WORD.search(word[0]) else ""


def _of_csv(head: str, row: str) -> LikelyLine | None:
    """A row of a CSV file whose head names a step and a rate, or is that of TensorBoard."""
    names, cells = ([cell.strip() for cell in line.split(",")] for line in (head, row))
    plain = [name.strip('"') for name in names]
    step = next((n for n, name in enumerate(plain) if _STEP_COLUMN.search(name)), None)
    rates = [n for n, name in enumerate(plain) if _RATE_WORD.search(name)]
    # Of Lightning's batches_per_sec and samples_per_sec, the second one needs no batch size.
    counting = [n for n in rates if words_of_rate(plain[n], "").counted]
    rate = next(iter(counting or rates), None)
    if rate is None and plain == ["Wall time", "Step", "Value"]:
        rate = 2
    if step is None or rate is None or len(names) != len(cells):
        return None
    groups = {step: r"(?P<step>\d+)", rate: r"(?P<rate>[\d.eE+-]+)"}
    quotes = ['"' if cell.startswith('"') else "" for cell in cells]
    parts = [quotes[n] + groups.get(n, "[^,]*") + quotes[n] for n in range(max(step, rate) + 1)]
    return LikelyLine(row.strip(), "^" + ",".join(parts), column=plain[rate])


def _of_two_lines(kinds: Sequence[_Kind]) -> LikelyLine | None:
    """The first lines with a rate, if the step stands in other ones."""
    steps = [(kind.lines, _step(kind.lines)) for kind in kinds]
    named = (
        _joined(lines[0], numbers, {step: "step"}, 0)
        for lines, step in steps
        if step is not None
        and (numbers := [*_NUMBER.finditer(lines[0])])
        and _STEP_WORD.search(lines[0][: numbers[step].start()])
    )
    of_step = next(named, None)
    times = []
    for lines, _ in steps if of_step else ():
        rows = [[*_NUMBER.finditer(line)] for line in lines]
        rate = _rate(lines[0], rows[0], [*_elapsed(rows)])
        if rate is None or _is_mean(lines[0], rows[0][rate[0]]):
            continue
        others = [other[0] for other, _ in steps if other is not lines]
        regex = _alone(lines[0], rows[0], rate, f"{of_step}|", others)
        line = LikelyLine(lines[0].strip(), regex, besides="the step of another line")
        if rate[1] == "rate":
            return line
        number = rows[0][rate[0]]
        is_of_step = _TIME_OF_STEP.match(lines[0], number.end())
        if is_of_step or _WHOLE_STEP.search(lines[0][: number.start()]):
            times.append(line)
    return times[0] if times else None


def _alone(
    line: str,
    numbers: Sequence[re.Match[str]],
    rate: tuple[int, str],
    before: str,
    others: Sequence[str],
) -> str:
    """The expression of a rate without its step, behind `before`; with so many words that it
    matches none of the other lines, if they prevent it."""
    regexes = [before + _joined(line, numbers, dict([rate]), longest) for longest in (0, 12, 24)]
    for regex in regexes:
        matches = [m for other in others for m in Lines(regex).finditer(other.encode())]
        if not any(match["rate"] for match in matches):
            return regex
    return regexes[0]


def _of_run(kinds: Iterable[_Kind]) -> LikelyLine | None:
    """The last line that occurs once and has a rate, which is then that of the whole run, or the
    time of a step."""
    lines = [kind.lines[0] for kind in kinds if kind.number == 1]
    for line in reversed(lines):
        numbers = [*_NUMBER.finditer(line)]
        rate = _rate(line, numbers, ())
        if rate and (rate[1] == "rate" or _TIME_PER_STEP.search(line[: numbers[rate[0]].start()])):
            others = [other for other in lines if other is not line]
            regex = _alone(line, numbers, rate, "", others)
            return LikelyLine(line.strip(), regex, besides="one rate for the whole run")
    return None


def _shape(line: str) -> str:
    """The part of a line that lines have in common if they differ in their numbers only."""
    shape = _NUMBER.sub(_PLACE, line.replace(_PLACE, "?"))
    return re.sub(rf"[\s{_BAR}]+", " ", shape).replace("[ ", "[")


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    for block in blocks(pieces, [b""]):
        for line in re.split(rb"[\r\n]", block.data):
            if 0 < len(line) < _LONGEST:
                yield _PART_OF_BAR.sub(r"\1#", line.decode("utf-8", "replace"))


def _step(lines: Sequence[str]) -> int | None:
    """The place among the numbers of the one that counts steps: integers that grow, at least within
    an epoch, best behind a word such as step, and not in a time."""
    rows = [list(_NUMBER.finditer(line)) for line in lines]
    grows = []
    for place, column in enumerate(zip(*rows, strict=True)):
        texts = [match[0] for match in column]
        if not all(map(_COUNT.fullmatch, texts)):
            continue
        counts = [*pairwise(map(_count, texts))]
        is_growing = any(a < b for a, b in counts) and all(
            a < b or (a > b and any(map(_is_next, before[:place], after[:place])))
            for (a, b), (before, after) in zip(counts, pairwise(rows), strict=True)
        )
        is_percent = lines[0].startswith("%", column[0].end())
        if is_growing and not is_percent and not _in_time(lines[0], column[0]):
            grows.append(place)
    named = (n for n in grows if _is_named_step(lines[0], rows[0][n]))
    plain = (n for n in grows if not _TIME_UNIT.match(lines[0], rows[0][n].end()))  # 26 s elapsed
    return next(named, next(plain, None))


def _is_named_step(line: str, number: re.Match[str]) -> bool:
    is_of_all = _OF_ALL.match(line, number.end())
    return bool(is_of_all or _STEP_WORD.search(line[: number.start()]))


def _of_one_rank(lines: Sequence[str]) -> list[str]:
    """The first line of each step, if several processes print each one, or a bar is drawn again;
    none if they do not."""
    rows = [list(_NUMBER.finditer(line)) for line in lines]
    for place, match in enumerate(rows[0]):
        if _is_named_step(lines[0], match) and not _in_time(lines[0], match):
            firsts = {
                row[place][0]: line for row, line in reversed([*zip(rows, lines, strict=True)])
            }
            return [*reversed(firsts.values())][:_SHOWN]
    return []


def _count(text: str) -> int:
    return int(text.replace(",", ""))


def _is_next(one: re.Match[str], other: re.Match[str]) -> bool:
    """True if a number is the one behind the other: of an epoch."""
    return one[0].isdigit() and other[0].isdigit() and int(other[0]) == int(one[0]) + 1


def _epochs(
    line: str, numbers: Sequence[re.Match[str]], rows: Sequence[Sequence[str]], step: int
) -> dict[int, str]:
    """The places of the epoch and of its number of steps, if steps begin again in each epoch. The
    arguments: the first line, its numbers, and those of all lines."""
    counts = (_count(row[step]) if _COUNT.fullmatch(row[step]) else math.inf for row in rows)
    restart = next((n for n, (a, b) in enumerate(pairwise(counts), 1) if a > b), 0)
    before, after = rows[restart - 1 : restart + 1] if restart else ((), ())
    epochs = (
        n
        for n, (a, b) in enumerate(zip(before, after, strict=True))
        if n != step and a.isdigit() and b.isdigit() and int(b) == int(a) + 1
        if _EPOCH_NAME.search(line[: numbers[n].start()])
        or line[numbers[n].end() : numbers[step].start()] == "/"  # WeNet: Batch 0/1900
    )
    epoch, length = next(epochs, None), step + 1
    if epoch is None:
        return {}
    between = line[numbers[step].end() : numbers[length].start()] if length < len(numbers) else ""
    is_length = between.strip() == "/" and before[length] == after[length]
    return {epoch: "epoch", length: "of_epoch"} if is_length else {epoch: "epoch"}


def _elapsed(rows: Sequence[Sequence[re.Match[str]]]) -> Iterator[int]:
    """The places of numbers that grow from each line to the next, as times since the start do."""
    for place, column in enumerate(zip(*rows, strict=True)):
        values = [float(match[0].replace(",", "")) for match in column if match[0].count(".") < 2]
        if len(values) == len(rows) > _ENOUGH and all(a < b for a, b in pairwise(values)):
            yield place


def _in_time(line: str, number: re.Match[str]) -> bool:
    """True if a number is a part of a date, of a time of day, or of a time such as 2h 7m."""
    before = re.search(r"\d(?:[:-]| ?[dhm],? ?)$", line[: number.start()])
    return bool(before or re.match(r"[:-]\d|[dhm] ?\d", line[number.end() : number.end() + 3]))


def _end(line: str, number: re.Match[str]) -> int:
    """The end of a number with its prefix, as in 12.3K."""
    prefix = _PREFIX.match(line, number.end())
    return prefix.end() if prefix else number.end()


def _rate(
    line: str, numbers: Sequence[re.Match[str]], elapsed: Sequence[int]
) -> tuple[int, str] | None:
    """The place of the rate among the numbers, and the name of its group. `elapsed` are the places
    of times since the start."""
    candidates: list[tuple[int, str]] = []
    places = [(n, match) for n, match in enumerate(numbers) if not _in_time(line, match)]
    for group, unit, word in (
        ("rate", _RATE_UNIT, _RATE_WORD),
        ("rate", _PLAIN_RATE_UNIT, _RATE_WORD),
        (DURATION, _TIME_UNIT, _TIME_WORD),
    ):
        named = [
            n
            for n, m in places
            if (_is_named(line[: m.start()], word) or (group == DURATION and _is_of_batch(line, m)))
            and not _OTHER_UNIT.match(line, m.end())
            and (group == DURATION or not _TIME_UNIT.match(line, m.end()))  # 0.01 rate, 1.4 seconds
        ]
        in_unit = [
            n
            for n, m in places
            # loss 2.1 tok/s 812
            if unit.match(line, _end(line, m)) and not _NO_RATE.search(line[: m.start()])
        ]
        if group == DURATION:
            of_step = [n for n, m in places if _TIME_OF_STEP.match(line, m.end())]
            of_step = of_step or [n for n in in_unit if n in named]
            totals = [n for n in in_unit if _TOTAL.search(line[: numbers[n].start()])]
            in_unit = totals if len(totals) == 1 else in_unit  # fwd 94 ms bwd 189 ms total 283 ms
            if len(in_unit) > 1 or not all(_is_step_alone(line, numbers[n]) for n in in_unit):
                in_unit = []
            in_unit = of_step or in_unit
            named, in_unit = ([n for n in each if n not in elapsed] for each in (named, in_unit))
        if taken := in_unit or named:
            # Of several durations, one that is named after the step is that of all its parts.
            of_whole = [n for n in taken if _WHOLE_STEP.search(line[: numbers[n].start()])]
            candidates += [(n, group) for n in (group == DURATION and of_whole) or taken]
    usual = (each for each in candidates if not _is_mean(line, numbers[each[0]]))
    return next(usual, candidates[0] if candidates else None)


def _is_step_alone(line: str, number: re.Match[str]) -> bool:
    """True if a time in ms or `seconds` needs no word: those since the start grow."""
    is_part = _PART.search(line[: number.start()]) is not None
    return _ALONE.match(line, number.end()) is not None and not is_part


def _is_of_batch(line: str, number: re.Match[str]) -> bool:
    return "." in number[0] and _TIME_OF_BATCH.search(line[: number.start()]) is not None


def _is_named(before: str, word: re.Pattern[str]) -> bool:
    match = word.search(before)
    is_since = match is not None and "since" in match[0]  # time_since_last_print=
    return match is not None and not is_since and not _PART.search(before[: match.start()])


def _is_mean(line: str, number: re.Match[str]) -> bool:
    return _MEAN.search(line[: number.start()]) is not None


def _expression(
    lines: Sequence[str], others: Sequence[str], every: Sequence[str]
) -> tuple[str, bool] | None:
    """The expression of the first lines of a kind, and whether it takes means; None if they have no
    step or no rate, or if it would not find both. `every`: all lines of the kind. The expression
    matches none of the others that have other words before its numbers, such as those of a
    validation, if more words prevent it."""
    rows = [list(_NUMBER.finditer(line)) for line in lines]
    step, rate = _step(lines), _rate(lines[0], rows[0], [*_elapsed(rows)])
    if step is None or rate is None or rate[0] == step:
        return None
    place, group = rate
    if group == DURATION and _EPOCH_WORD.search(lines[0][: rows[0][step].start()]):
        return None  # the time of an epoch
    wanted = [(row[step][0].replace(",", "").encode(), row[place][0].encode()) for row in rows]
    numbers = [_NUMBER.findall(line) for line in every]
    groups = {step: "step", place: group, **_epochs(lines[0], rows[0], numbers, step)}
    expression = None
    name = _FIRST_WORD.search(lines[0][: rows[0][0].start()])  # of a bar within another one
    starts = ["", "", "", *([f"{_literal(name[0])}.*?"] if name else [])]
    for start, longest in zip(starts, (0, 12, 24, 0), strict=False):
        regex = start + _joined(lines[0], rows[0], groups, longest)
        if any("," in row[step] for row in numbers):
            regex = regex.replace(r"(?P<step>\d+)", r"(?P<step>[\d,]*\d)")
        try:
            described = Lines(regex)
        except re.error:
            continue
        matches = [next(iter(described.finditer(line.encode())), None) for line in lines]
        if [m and (m["step"], m["rate"]) for m in matches] == wanted:
            expression = expression or (regex, _is_mean(lines[0], rows[0][place]))
            if len({*_words_before(described, [lines[0], *others])}) == 1:
                return regex, expression[1]
    return expression


def _words_before(described: Lines, lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The text before the step in the lines that an expression matches, and the word before
    the rate."""
    for data in (line.encode() for line in lines):
        for match in described.finditer(data):
            begin, before = (
                data[: match.start(g)].decode("utf-8", "replace") for g in ("step", "rate")
            )
            last = _TIMES.sub(_PLACE, _shape(" ".join(before.split()[-1:])))
            yield _shape(begin).strip(), last


def _joined(
    line: str, numbers: Sequence[re.Match[str]], groups: Mapping[int, str], longest: int
) -> str:
    """The expression with these groups, each behind the word before it, or behind so much of the
    line."""
    regex, last = "", -1
    word_end = re.compile(r"\S{0,24}[^\W\d]\S{0,24}\W{0,8}$")
    end = re.compile(rf"[^\s{_BAR}]{{0,8}}\s{{0,8}}$")  # where no word is
    for place, group in sorted(groups.items()):
        begin = numbers[place - 1].end() if place else 0
        text, lead = line[begin : numbers[place].start()], ""
        word = word_end.search(text) or end.search(text)
        if place and not text.strip() and place - 1 not in groups:  # epoch 010  1000 / 8223
            named = word_end.search(line[: numbers[place - 1].start()])
            lead = rf"{_literal(named[0])}[\d.,]+" if named else ""
        if longest:  # from the beginning of a word
            word = re.search(rf"\S{{0,24}}(?s:.{{0,{longest}}})$", text)
        before = word[0] if word else ""
        gap = ".*?" if regex and (place > last + 1 or before != text) else ""
        exponent = r"e[+-]\d+" if "e" in numbers[place][0] else ""
        digits = r"\d+" if group in _COUNTED else rf"[\d.,]*\d{exponent}"
        regex += f"{gap}{lead}{_literal(before)}(?P<{group}>{digits})"
        if group == "rate" and _end(line, numbers[place]) > numbers[place].end():
            regex += "(?P<prefix>[kKMG]?)"
        last = place
    at = _end(line, numbers[last])
    units = (_RATE_UNIT, _PLAIN_RATE_UNIT, _TIME_OF_STEP)
    unit = next(filter(None, (unit.match(line, at) for unit in units)), None)
    if unit and (unit[0] == "it/s" or "<" in line) and (both := units_of_bar(unit[0])):
        return regex + f"(?:{'|'.join(both)})"  # a bar of tqdm has either
    return regex + (_literal(unit[0]).replace(r"\.", r"\.?") if unit else "")


def _literal(text: str) -> str:
    """A text as an expression, in which any blanks are equal."""
    aligned = text.rstrip() if text.rstrip().endswith("[") else ""  # a number in [   10/200]
    words = re.split(r"(\s+)", aligned or text)
    pattern = "".join(
        (" +" if set(word) == {" "} else r"\s+") if word.isspace() else re.escape(word)
        for word in words
    )
    return pattern + " *" if aligned else pattern
