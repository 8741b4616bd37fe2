"""Check that the steps of a log are all the steps of the run, in order; or, where no plan says
which steps it has, that they are regular."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from statistics import mode
from typing import NamedTuple

from ..catalog.rule import Rule
from ..core.errors import UserError
from ..logs import Format

LineOf = Callable[[int], int]


class Numbering(NamedTuple):
    """How the lines of a log count steps: the interval between two lines, and the number of steps
    before the log begins, as in that of a resumed run."""

    every: int
    before: int


def check(
    form: Format,
    steps: Sequence[int],
    every: int,
    rule: Rule,
    line_of: LineOf,
    name: str,
    hint: str | None = None,
) -> int:
    """The interval between the steps, which may be shorter than `every`. Raises UserError if a step
    is missing, out of order or beyond the rule. `line_of` gives the line of a step by its index.
    `hint`: what to do about a log with another number of steps."""
    _check_any(form, steps, name)
    if form.first_too and steps[0] == 1 and _is_apart(steps, every):
        # Step 1 shows that the beginning is there, so the interval may be longer, too.
        is_regular = len(steps) > 2 and steps[2] == 2 * steps[1]
        interval = steps[1] if is_regular else every
        return check(form, steps[1:], interval, rule, lambda index: line_of(index + 1), name, hint)
    first, every = _start(form, steps, every, rule)
    limit = rule.total_steps + rule.surplus_steps
    wanted = range(first, limit + 1, every)
    if steps[: len(wanted)] != list(wanted[: len(steps)]):
        pairs = enumerate(zip(steps, wanted, strict=False))
        index, want = next((n, want) for n, (step, want) in pairs if step != want)
        raise _wrong_step(steps, index, want, line_of, name)
    if len(steps) > len(wanted):
        beyond = first + len(wanted) * every
        if steps[len(wanted)] != beyond:
            raise _wrong_step(steps, len(wanted), beyond, line_of, name)
        raise _too_many(rule, beyond, line_of(len(wanted)), name, hint)
    _check_end(steps, first, every, rule, line_of, name, hint)
    return every


def numbering(
    form: Format, steps: Sequence[int], rule: Rule, line_of: LineOf, name: str, hint: str | None
) -> Numbering:
    """The numbering of a log of which no plan says the steps: any regular one, wherever it begins.
    The first interval may be a shorter one: 1, 10, 20. Raises UserError if a step is missing or out
    of order, or if the log ends early."""
    _check_any(form, steps, name)
    gaps = [after - before for before, after in pairwise(steps)]
    every = mode(gaps[1:] or gaps) if gaps else min(steps[0], rule.log_every)
    if every < 1:
        every = next((gap for gap in gaps if gap > 0), 1)
    regular = 1 if len(gaps) > 1 and 0 < gaps[0] < every else 0
    for index, step in enumerate(steps[regular:], start=regular):
        wanted = steps[regular] + (index - regular) * every
        if step != wanted:
            raise _wrong_step(steps, index, wanted, line_of, name)
    if steps[-1] > rule.total_steps + rule.surplus_steps:
        beyond = next(n for n, step in enumerate(steps) if step > rule.total_steps)
        raise _too_many(rule, steps[beyond], line_of(beyond), name, hint)
    _check_end(steps, steps[regular], every, rule, line_of, name, hint)
    silent = rule.warmup_steps if form.silent_warmup else 0
    is_whole = steps[0] <= max(every * (2 if form.skips_first else 1), silent + every)
    return Numbering(every, 0 if is_whole else steps[regular] - every)


def counts_from_zero(form: Format, steps: Sequence[int]) -> bool:
    """Whether a log counts its steps from 0, although its format says nothing of that: it begins
    with 0, or with 19, 39."""
    if form.zero_based or not steps:
        return False
    return steps[0] == 0 or (len(steps) > 1 and steps[1] - steps[0] == steps[0] + 1 > 1)


def _check_any(form: Format, steps: Sequence[int], name: str) -> None:
    if not steps:
        raise UserError(
            "the log has no rate of a single step",
            where=name,
            expected=f"lines like {form.sample.expandtabs(4)}",
            found="none",
        )


def _too_many(rule: Rule, step: int, line: int, name: str, hint: str | None) -> UserError:
    return UserError(
        "the log has more steps than the calculation rule",
        where=f"{name}:{line}",
        expected=f"{rule.total_steps} steps",
        found=f"step {step}",
        hint=hint,
    )


def _check_end(
    steps: Sequence[int],
    first: int,
    every: int,
    rule: Rule,
    line_of: LineOf,
    name: str,
    hint: str | None,
) -> None:
    """Raise UserError if the log ends before the last line that the rule has."""
    last = first + (rule.total_steps - first) // every * every
    if steps[-1] < last:
        raise UserError(
            f"the log ends with step {steps[-1]}",
            where=f"{name}:{line_of(len(steps) - 1)}",
            expected=f"step {last} of {rule.total_steps}",
            found=str(steps[-1]),
            hint="; ".join(filter(None, ("the run may have ended early; truncated?", hint))),
        )


def _is_apart(steps: Sequence[int], every: int) -> bool:
    """Whether step 1 is none of the steps at regular intervals: 1, 10, 20 ... or 1, 2, 4, 6 ..."""
    if len(steps) < 2 or steps[1] != 2:
        return len(steps) > 1 and steps[1] > 2
    return every == 2 or (steps[2:3] == [4] and steps[1:] == [*range(2, 2 * len(steps), 2)])


def _start(form: Format, steps: Sequence[int], every: int, rule: Rule) -> tuple[int, int]:
    """The first step that the log should print, and the interval. A log may print at a shorter
    interval than the rule says; nothing is missing then."""
    first = 1 if form.zero_based else 2 * every if form.skips_first else every
    if form.silent_warmup and first <= rule.warmup_steps:
        first += math.ceil((rule.warmup_steps + 1 - first) / every) * every
    if not form.zero_based and 0 < steps[0] < first:
        first = every = steps[0]
    if len(steps) > 1 and steps[0] == first and 0 < steps[1] - first < every:
        every = steps[1] - first
    return first, every


def _wrong_step(
    steps: Sequence[int], index: int, wanted: int, line_of: LineOf, name: str
) -> UserError:
    step = steps[index]
    if index == 0:
        problem, hint = f"the first step is {step}", "is the beginning of the log missing?"
    elif step == steps[index - 1]:
        problem = f"step {step} repeats line {line_of(index - 1)}"
        hint = "do several processes or runs write to this log?"
    else:
        problem = f"step {step} follows {steps[index - 1]}"
        back = step < steps[index - 1]
        hint = "do several runs write to this log?" if back else "lines are missing; truncated?"
    where = f"{name}:{line_of(index)}"
    return UserError(problem, where=where, expected=str(wanted), found=str(step), hint=hint)


def first_lines(steps: Sequence[int], writers: int, line_of: LineOf, name: str) -> list[int]:
    """The indices of the first line of each step, in a log into which several processes print every
    step without naming themselves. They synchronise in every step, so the fastest is less than two
    steps ahead of the slowest. Raises UserError if a process did not print a step."""
    printed: Counter[int] = Counter()
    first: list[int] = []
    for index, step in enumerate(steps):
        printed[step] += 1
        if printed[step] == 1 or printed[step] > writers:
            if len(first) > 1:
                _check_all(steps[first[-2]], printed, writers, index, line_of, name)
            first.append(index)
    for index in first[-2:]:
        _check_all(steps[index], printed, writers, len(steps) - 1, line_of, name)
    return first


def _check_all(
    step: int, printed: Counter[int], writers: int, at: int, line_of: LineOf, name: str
) -> None:
    if printed[step] < writers:
        raise UserError(
            f"{printed[step]} processes printed step {step}",
            where=f"{name}:{line_of(at)}",
            expected=f"all {writers} processes that write to this log",
            found=str(printed[step]),
            hint="lines are missing; truncated?",
        )
