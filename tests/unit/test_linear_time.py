"""No log, catalogue or mapping takes more than linear time to read."""

from __future__ import annotations

import contextlib
import importlib
import math
import pkgutil
import re
from collections.abc import Iterator

import pytest
from regex_steps import most_steps

from dlperf_runner import logs
from dlperf_runner.logs import statements

# Steps from one start. A start is where the first words of a pattern are, not every character.
MOST = 300_000


def patterns() -> Iterator[tuple[str, re.Pattern[str] | re.Pattern[bytes], float]]:
    """All patterns with which logs are read, and the longest texts in which they search."""
    for module in pkgutil.iter_modules(logs.__path__):
        for name, value in vars(importlib.import_module(f"{logs.__name__}.{module.name}")).items():
            if isinstance(value, re.Pattern):
                yield f"{module.name}.{name}", value, math.inf
    for name, form in logs.built_in().items():
        assert isinstance(form.entry, re.Pattern)
        yield f"{name}.entry", form.entry, math.inf
        for number, statement in enumerate(form.statements):
            label = f"{name}.statements[{number}]: {statement.marker}"
            yield label, statement.pattern, 2 * statements.LONGEST


@pytest.mark.parametrize(
    ("name", "pattern", "longest"), [pytest.param(*p, id=p[0]) for p in patterns()]
)
def test_a_log_of_double_length_takes_at_most_double_the_steps(
    name: str, pattern: re.Pattern[str] | re.Pattern[bytes], longest: float
) -> None:
    assert most_steps(pattern, longest) <= MOST


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


@pytest.mark.parametrize("name", logs.built_in())
@pytest.mark.parametrize("filler", [" ", "3.", "", "train.compute_ips : 1 ", "| lm loss: "])
def test_a_line_of_250_kb_is_no_problem(name: str, filler: str) -> None:
    """What the formats print, again and again without an end; in quadratic time, most of these
    took over a minute."""
    form = logs.built_in()[name]
    for share in (1, 2, 3):
        start = form.sample[: len(form.sample) * share // 3].replace("...", "")
        for line in (start + filler * (250_000 // max(len(filler), 1)), (start + filler) * 5000):
            with contextlib.suppress(logs.LineError):
                logs.parse(form, [line.encode()])
            logs.detect([line.encode()])
            logs.parse_tail(name, line)
