"""The numbering of the steps of a log: which steps its lines are of, and whether one is missing."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, pairwise
from operator import sub
from statistics import mode
from types import MappingProxyType
from typing import NamedTuple

from ..catalog.workload import Rule
from ..core.errors import UserError
from ..logs import Format

_MANY = 4  # lines, of which one may be between two regular ones


class LogLines(NamedTuple):
    """The lines of a log's rates, for errors: `line_of` gives the line of a rate by its index, and
    `name` is the name of the log. `hint`: what to do about a log with another number of steps.
    `is_described`: a user's expression describes the lines."""

    line_of: Callable[[int], int]
    name: str
    hint: str | None = None
    is_described: bool = False

    def place(self, index: int) -> str:
        """The log and the line of a rate."""
        return f"{self.name}:{self.line_of(index)}"

    def only(self, indices: Sequence[int]) -> LogLines:
        """The lines of some of the rates."""
        return self._replace(line_of=lambda index: self.line_of(indices[index]))


class Numbering(NamedTuple):
    """The numbering of steps in a log's lines: the interval between two lines, the number of steps
    before the log begins, as in that of a resumed run, and the lines whose interval is shorter, as
    at the end of an epoch."""

    every: int
    before: int
    shorter: frozenset[int] = frozenset()


def check_sequence(
    form: Format,
    steps: Sequence[int],
    every: int,
    rule: Rule,
    lines: LogLines,
) -> int:
    """The interval between the steps, which may be shorter than `every`. Raises UserError if a step
    is missing, out of order or beyond the rule."""
    _check_any(form, steps, lines.name)
    if form.first_too and steps[0] == 1 and _is_apart(steps, every):
        # Step 1 shows that the beginning is there, so the interval may be longer, too.
        is_regular = len(steps) > 2 and steps[2] == 2 * steps[1]
        interval = steps[1] if is_regular else every
        others = lines.only(range(1, len(steps)))
        return check_sequence(form, steps[1:], interval, rule, others)
    first, every = _start(form, steps, every, rule)
    limit = rule.total_steps + rule.surplus_steps
    wanted = range(first, limit + 1, every)
    if steps[: len(wanted)] != list(wanted[: len(steps)]):
        pairs = enumerate(zip(steps, wanted, strict=False))
        index, want = next((n, want) for n, (step, want) in pairs if step != want)
        raise wrong_step(steps, index, want, lines)
    if len(steps) > len(wanted):
        beyond = first + len(wanted) * every
        if steps[len(wanted)] != beyond:
            raise wrong_step(steps, len(wanted), beyond, lines)
        raise _too_many(rule, beyond, lines, len(wanted))
    _check_end(form, steps, first, every, rule, lines)
    return every


def numbering(
    form: Format,
    steps: Sequence[int],
    rule: Rule,
    lines: LogLines,
    epoch_length: int | None = None,
    evaluated: Mapping[int, int] = MappingProxyType({}),
) -> Numbering:
    """The numbering of a log of which no plan says the steps: any regular one, wherever it begins.
    The first and the last interval may be shorter: 1, 10, 20, 25. With `epoch_length`, the same
    steps of each epoch have a line. A step whose line is that of an evaluation is not missing.
    Raises UserError if a step is missing or out of order, or if the log ends early."""
    _check_any(form, steps, lines.name)
    if every_step := _with_evaluated(steps, evaluated):
        indices = {step: n for n, step in enumerate(every_step)}
        where = [indices[step] for step in steps]
        of_every = lines.only([bisect_left(where, n) for n in range(len(every_step))])
        numbered = numbering(form, every_step, rule, of_every, epoch_length)
        return numbered._replace(shorter=frozenset(bisect_left(where, n) for n in numbered.shorter))
    places = _places(steps, epoch_length)
    within = max(places, key=len)
    every, regular, odd = _intervals(tuple(within))
    if odd is not None and not (
        odd == len(within) - 1 > 1 and 0 < within[odd] - within[odd - 1] < every
    ):
        if len(places) == 1 and (extra := _extra(steps, every)):
            return _without(extra, form, steps, rule, lines)
        at = sum(map(len, places[: places.index(within)])) + odd
        wanted = steps[at - odd + regular] + (odd - regular) * every
        raise wrong_step(steps, at, wanted, lines)
    if not every and epoch_length and len(places) > 1:
        every = epoch_length  # one line in each epoch
    every = every or min(steps[0], rule.log_every)
    if len(places) > 1:
        _check_epochs(places, within, steps, epoch_length or every, lines)
    if steps[-1] > rule.total_steps + rule.surplus_steps:
        beyond = next(n for n, step in enumerate(steps) if step > rule.total_steps)
        raise _too_many(rule, steps[beyond], lines, beyond)
    first = steps[regular]
    if len(places) == 1 or steps[-1] + every <= rule.total_steps:
        _check_end(form, steps, first, every, rule, lines)
    silent = rule.warmup_steps if form.silent_warmup else 0
    is_whole = steps[0] <= max(every * (2 if form.skips_first else 1), silent + every)
    gaps = map(sub, steps[1:], steps)
    shorter = frozenset(n for n, gap in enumerate(gaps, 1) if gap < every)
    return Numbering(every, 0 if is_whole else first - every, shorter)


def _with_evaluated(steps: Sequence[int], evaluated: Mapping[int, int]) -> list[int]:
    """The steps and those in the place of which the log has a line of an evaluation; empty if there
    are none. `evaluated`: the steps of evaluations, with the number of rates before."""
    every = mode(map(sub, steps[1:], steps)) if evaluated and len(steps) > 1 else 0
    gaps = {
        n: before + every
        for n, (before, step) in enumerate(pairwise(steps), 1)
        if step - before == 2 * every and evaluated.get(before + every) == n
    }
    pairs = ([gaps[n], step] if n in gaps else [step] for n, step in enumerate(steps))
    return [*chain.from_iterable(pairs)] if gaps else []


def _extra(steps: Sequence[int], every: int) -> Sequence[int]:
    """The indices of lines between two regular ones: those at the end of each epoch of a program
    that counts the steps of all epochs together. None if there are others, or many."""
    rest = mode(step % every for step in steps)
    extra = [n for n, step in enumerate(steps) if step % every != rest]
    regular = [step for step in steps if step % every == rest]
    is_regular = all(after - before == every for before, after in pairwise(regular))
    between = all(steps[n - 1] < steps[n] < steps[n - 1] + every for n in extra if n)
    return extra if is_regular and between and _MANY * len(extra) <= len(steps) else ()


def _without(
    extra: Sequence[int],
    form: Format,
    steps: Sequence[int],
    rule: Rule,
    lines: LogLines,
) -> Numbering:
    """The numbering of the other lines. These ones and those behind them have shorter intervals."""
    left_out = {*extra}
    others = [n for n in range(len(steps)) if n not in left_out]
    of_others = [steps[n] for n in others]
    numbered = numbering(form, of_others, rule, lines.only(others))
    shorter = {*left_out, *(n + 1 for n in extra), *(others[n] for n in numbered.shorter)}
    return numbered._replace(shorter=frozenset(shorter & {*range(len(steps))}))


def _places(steps: Sequence[int], epoch_length: int | None) -> list[list[int]]:
    """The steps of each epoch, counted from its beginning; all steps if they are of one."""
    if not epoch_length or steps[-1] <= epoch_length:
        return [list(steps)]
    of_epochs: dict[int, list[int]] = {}
    for step in steps:
        epoch = (step - 1) // epoch_length
        of_epochs.setdefault(epoch, []).append(step - epoch * epoch_length)
    return list(of_epochs.values())


def _check_epochs(
    places: Sequence[Sequence[int]],
    within: Sequence[int],
    steps: Sequence[int],
    length: int,
    lines: LogLines,
) -> None:
    """Raise UserError if an epoch is missing or does not have the same lines as the others; the log
    may begin and end within one."""
    index, next_epoch = 0, (steps[0] - 1) // length
    for number, epoch in enumerate(places):
        if missing := (steps[index] - 1) // length - next_epoch:
            raise wrong_step(steps, index, steps[index] - missing * length, lines)
        next_epoch += 1
        wanted = list(within)
        if number == 0:
            wanted = wanted[len(wanted) - len(epoch) :]
        elif number == len(places) - 1:
            wanted = wanted[: len(epoch)]
        if list(epoch) != wanted:
            pairs = enumerate(zip([*epoch, 0], [*wanted, 0], strict=False))
            at, (place, want) = next((n, pair) for n, pair in pairs if pair[0] != pair[1])
            at = min(index + at, len(steps) - 1)
            raise wrong_step(steps, at, steps[at] + want - place, lines)
        index += len(epoch)


@functools.lru_cache(maxsize=16)  # the logs of a tree have the same steps
def _intervals(steps: tuple[int, ...]) -> tuple[int, int, int | None]:
    """The usual interval, 0 for a single step; the index from which on it should be the only one;
    and that of the first step at which it is not."""
    gaps = [after - before for before, after in pairwise(steps)]
    if not gaps:
        return 0, 0, None
    every = mode(gaps[1:] or gaps)
    if every < 1:
        every = next((gap for gap in gaps if gap > 0), 1)
    regular = 1 if len(gaps) > 1 and 0 < gaps[0] < every else 0
    return (
        every,
        regular,
        next((n + 1 for n in range(regular, len(gaps)) if gaps[n] != every), None),
    )


def uncounted(form: Format, steps: Sequence[int], first_step: int | None) -> int:
    """The number of steps that a log does not count: those before the first line, if the user
    states its step, or one, if the log counts from 0, although its format says nothing of that: it
    begins with 0, or with 19, 39."""
    if first_step is not None and steps:
        return first_step - steps[0]
    if form.zero_based or not steps:
        return 0
    return steps[0] == 0 or (len(steps) > 1 and steps[1] - steps[0] == steps[0] + 1 > 1)


def _check_any(form: Format, steps: Sequence[int], name: str) -> None:
    if not steps:
        raise UserError(
            "the log has no rate of a single step",
            where=name,
            expected=f"lines like {form.sample.expandtabs(4)}",
            found="none",
        )


def _too_many(rule: Rule, step: int, lines: LogLines, index: int) -> UserError:
    return UserError(
        "the log has more steps than the calculation rule",
        where=lines.place(index),
        expected=f"{rule.total_steps} steps",
        found=f"step {step}",
        hint=lines.hint,
    )


def _check_end(
    form: Format,
    steps: Sequence[int],
    first: int,
    every: int,
    rule: Rule,
    lines: LogLines,
) -> None:
    last = first + (rule.total_steps - form.skips_last - first) // every * every
    if steps[-1] < last:
        raise UserError(
            f"the log ends with step {steps[-1]}",
            where=lines.place(len(steps) - 1),
            expected=f"step {last} of {rule.total_steps}",
            found=str(steps[-1]),
            hint="; ".join(filter(None, ("the run may have ended early; truncated?", lines.hint))),
        )


def _is_apart(steps: Sequence[int], every: int) -> bool:
    """True if step 1 is none of the steps at regular intervals: 1, 10, 20 ... or 1, 2, 4, 6 ..."""
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


def wrong_step(steps: Sequence[int], index: int, wanted: int, lines: LogLines) -> UserError:
    step = steps[index]
    if index == 0:
        problem, hint = f"the first step is {step}", "is the beginning of the log missing?"
        hint += "" if step else " If the program counts from 0: `first_step: 0` under log_pattern"
    elif step == steps[index - 1]:
        problem = f"step {step} repeats line {lines.line_of(index - 1)}"
        hint = "do several processes or runs write to this log?"
    else:
        problem = f"step {step} follows {steps[index - 1]}"
        back = step < steps[index - 1]
        hint = (
            "do several runs write to this log? Split it here."
            if back
            else "lines are missing; truncated?"
        )
        if back and lines.is_described:
            hint += " If each epoch counts anew: groups epoch and of_epoch, (?P<of_epoch>\\d+)"
    where = lines.place(index)
    return UserError(problem, where=where, expected=str(wanted), found=str(step), hint=hint)
