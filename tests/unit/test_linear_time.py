"""No log, catalogue or mapping takes more than linear time to read."""

import contextlib
import importlib
import math
import pkgutil
import re
from collections.abc import Iterator
from re import _constants as op
from re import _parser
from typing import Any

import pytest

from dlperf_runner import logs
from dlperf_runner.logs import statements
from dlperf_runner.logs.records import Expression

# ---- The most steps that Python's `re` can need for a pattern, found in the parsed pattern


def most_steps(pattern: re.Pattern[Any], longest: float = math.inf) -> float:
    """The most steps from one start of a match in texts of at most `longest` characters, whatever
    they are: each character that is compared, in every way of backtracking.

    A search starts at each character at most once, so with a finite number a text of double length
    needs at most double the steps. What a possessive repetition at the end of a pattern takes is
    not counted: the match cannot fail any more, and the next search starts behind it.
    """
    items = list(_parser.parse(pattern.pattern, pattern.flags))
    return _sequence(_without_end(items), longest)[1]


def _without_end(items: list[Any]) -> list[Any]:
    """The items without an endless possessive repetition of one character at their end."""
    if not items:
        return items
    kind, value = items[-1]
    if kind is op.POSSESSIVE_REPEAT and value[1] is op.MAXREPEAT and len(value[2]) == 1:
        return items[:-1]
    if kind is op.SUBPATTERN:
        return [*items[:-1], (kind, (*value[:-1], _without_end(list(value[-1]))))]
    return items


def _sequence(items: Any, longest: float) -> tuple[float, float]:
    """In how many ways the items may match from a place, and the steps of all of them."""
    ways, steps, items = 1.0, 0.0, list(items)
    for index, (kind, value) in enumerate(items):
        more, each = _item(kind, value, longest)
        one = value[-1][0] if kind is op.SUBPATTERN and len(value[-1]) == 1 else (kind, value)
        if _ends_where_the_next_begins(*one, items[index + 1 : index + 2]):
            more, each = 1, 2 * each
        ways, steps = ways * more, steps + ways * each
    return ways, steps


def _ends_where_the_next_begins(kind: Any, value: Any, following: Any) -> bool:
    """Whether a repetition is of characters other than the literal one behind it."""
    if kind not in (op.MAX_REPEAT, op.MIN_REPEAT) or not following or len(value[2]) != 1:
        return False
    (repeated, characters), (next_kind, literal) = value[2][0], following[0]
    if next_kind is not op.LITERAL:
        return False
    if repeated is op.LITERAL:
        return bool(characters != literal)
    if repeated is op.NOT_LITERAL:
        return bool(characters == literal)
    return repeated is op.IN and not _holds(characters, chr(literal))


def _holds(characters: Any, one: str) -> bool:
    """Whether a class of characters has this one."""
    is_negated, found = False, False
    for kind, value in characters:
        if kind is op.NEGATE:
            is_negated = True
        elif kind is op.LITERAL:
            found |= ord(one) == value
        elif kind is op.RANGE:
            found |= value[0] <= ord(one) <= value[1]
        else:
            categories = {
                op.CATEGORY_DIGIT: r"\d",
                op.CATEGORY_SPACE: r"\s",
                op.CATEGORY_WORD: r"\w",
                op.CATEGORY_NOT_DIGIT: r"\D",
                op.CATEGORY_NOT_SPACE: r"\S",
                op.CATEGORY_NOT_WORD: r"\W",
            }
            found |= re.match(categories[value], one, re.ASCII) is not None
    return found != is_negated


def _item(kind: Any, value: Any, longest: float) -> tuple[float, float]:
    if kind is op.SUBPATTERN:
        return _sequence(value[-1], longest)
    if kind is op.BRANCH:
        ways, steps = zip(*(_sequence(part, longest) for part in value[1]), strict=True)
        return sum(ways), sum(steps)
    if kind is op.GROUPREF_EXISTS:
        ways, steps = zip(*(_sequence(part or (), longest) for part in value[1:]), strict=True)
        return max(ways), 1 + max(steps)
    if kind is op.ATOMIC_GROUP and len(value) == 1 and value[0][0] is op.MAX_REPEAT:
        kind, value = op.POSSESSIVE_REPEAT, value[0][1]  # (?>a*) is a*+
    if kind is op.ATOMIC_GROUP:
        return 1, _sequence(value, longest)[1]
    if kind in (op.ASSERT, op.ASSERT_NOT):
        return 1, _sequence(value[1], longest)[1]
    if kind in (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT):
        least, most, body = value
        most = longest if most is op.MAXREPEAT else most
        ways, steps = _sequence(body, longest)
        if kind is op.POSSESSIVE_REPEAT:
            return 1, 1 + most * steps
        if ways == 1:
            return most - least + 1, 1 + most * steps
        if most == 1:
            return ways + 1 - least, 1 + steps
        return ways ** (most + 1), steps * ways**most
    if kind in (op.LITERAL, op.NOT_LITERAL, op.ANY, op.IN, op.AT):
        return 1, 1
    raise ValueError(kind)


# ---- tests

# Steps from one start. A start is where the first words of a pattern are, not every character.
MOST = 300_000


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes], float]]:
    """All patterns with which logs are read, and the longest texts in which they search."""
    for module in pkgutil.iter_modules(logs.__path__):
        for name, value in vars(importlib.import_module(f"{logs.__name__}.{module.name}")).items():
            if isinstance(value, re.Pattern):
                yield f"{module.name}.{name}", value, math.inf
    for name, form in logs.formats().items():
        entry = form.entry.compiled if isinstance(form.entry, Expression) else form.entry
        assert isinstance(entry, re.Pattern)
        yield f"{name}.entry", entry, math.inf
        for number, statement in enumerate(form.statements):
            label = f"{name}.statements[{number}]: {statement.marker}"
            yield label, statement.pattern, 2 * statements.LONGEST


def test_a_log_of_double_length_takes_at_most_double_the_steps() -> None:
    steps = {name: most_steps(pattern, longest) for name, pattern, longest in patterns()}
    assert len(steps) > 300
    assert {name: number for name, number in steps.items() if number > MOST} == {}


@pytest.mark.parametrize(
    ("expression", "steps"),
    [
        (r"ab", 2),
        (r"a+", math.inf),
        (r"x(?:a+)+b", math.inf),
        (r"x[^y]*?y", math.inf),  # a text of x is searched to its end from each of them
        (r"x[^y]{0,9}?y", 1 + 2 * 10 + 1),
        (r"x[^z]{0,9}?y[^z]{0,9}?z", 1 + 10 + 10 * (1 + 2 * 10 + 1)),
        (r"x(?>[^z]{0,9}?y)[^z]{0,9}?z", 1 + (10 + 10) + 2 * 10 + 1),
        (r"x(?>[^z]{0,9}?y)[^y]*+", 1 + 10 + 10),  # the next search begins behind the end
    ],
)
def test_steps_of_a_pattern_are_counted(expression: str, steps: float) -> None:
    assert most_steps(re.compile(expression)) == steps


@pytest.mark.parametrize("name", logs.formats())
@pytest.mark.parametrize("filler", [" ", "3.", "", "train.compute_ips : 1 ", "| lm loss: "])
def test_a_line_of_50_kb_is_no_problem(name: str, filler: str) -> None:
    """What the formats print, again and again without an end; in quadratic time, most of these
    took over a minute with 250 kB."""
    form = logs.formats()[name]
    for share in (2, 3):
        start = form.sample[: len(form.sample) * share // 3].replace("...", "")
        again = start + filler
        for line in (
            start + filler * (50_000 // max(len(filler), 1)),
            again * (50_000 // len(again)),
        ):
            with contextlib.suppress(logs.LineError):
                logs.parse(form, [line.encode()])
            logs.detect([line.encode()])
            logs.parse_tail(form, line)
