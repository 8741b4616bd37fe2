"""Measure a run from the content of its log, by a calculation rule. This module reads no file.

The log must first confirm the plan: batch size, world size, precision and steps, as far as the log
states them.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from ..catalog.rule import Rule
from ..core.errors import UserError
from ..logs import Columns, Format, Log
from . import sequence, settings
from .estimators import Expected, Measured, measured

# How far the rate that a program prints at its end may be from the mean of the printed rates, as a
# share of it. Both average the same steps, of which a log prints at least one in ten; in real logs
# they differ by 0.2 %. A number that lost a digit before the point is at least 90 % off.
FINAL_TOLERANCE = 0.1


def measure(
    form: Format,
    log: Log,
    rule: Rule,
    expected: Expected,
    line_of: sequence.LineOf,
    name: str,
) -> tuple[Measured, Columns, int]:
    """The measurements of one run; its steps, including the warm-up; and the last step before the
    measured window. `line_of` gives the line of a rate by its index, and `name` is the name of the
    log, both for errors.

    samples_per_second is computed with the estimator of the rule, samples_per_second_<estimator>
    with each other estimator. Raises UserError, with file and line, if the log is damaged or
    contradicts what is expected.
    """
    confirmed = settings.confirmed(log.headers, rule, expected, name)
    final = settings.final_rate(log.headers, name)
    every = next((header.log_every for header in log.headers if header.log_every), rule.log_every)
    writers = {header.writer for header in log.headers if header.writer is not None}
    lines = found = log.columns
    if len(writers) > 1 and not log.has_ranks:
        first = sequence.first_lines(lines.steps, len(writers), line_of, name)
        found = lines.take(first)
        every = sequence.check(
            form, found.steps, every, rule, lambda index: line_of(first[index]), name
        )
    else:
        every = sequence.check(form, found.steps, every, rule, line_of, name)
    span = 1 if form.one_step else every
    left_out = _last_left_out(found.steps, span, rule, form, name)
    rates = [
        rate
        for step, rate in zip(lines.steps, lines.samples_per_second, strict=True)
        if left_out < step <= rule.total_steps
    ]
    _check_final(final, rates, name)
    result = measured(found, rates, final, confirmed, rule, expected, name)
    return result, found, left_out


def _last_left_out(steps: Sequence[int], span: int, rule: Rule, form: Format, name: str) -> int:
    """The last step before the measured window. A rate covers `span` steps. It does not count if
    one of them is in the warm-up, or if the rule drops it."""
    counted = [step for step in steps if _counts(step, span, rule)]
    if not counted:
        raise UserError(
            "no rate is left after the warm-up",
            where=name,
            expected=f"a rate every {_longest(form, rule)} steps or fewer: of {rule.total_steps}"
            f" steps, the first {rule.warmup_steps} are the warm-up",
            found=f"a rate every {span} steps",
            hint="a rate whose steps begin in the warm-up does not count",
        )
    kept = counted[rule.drop_first_values :]
    before = [step for step in steps if step < kept[0]] if kept else counted
    return max([rule.warmup_steps, *before[-1:]])


def _counts(step: int, span: int, rule: Rule) -> bool:
    return max(step - span, 0) >= rule.warmup_steps and step <= rule.total_steps


def _longest(form: Format, rule: Rule) -> int:
    """The longest interval with which at least one rate counts."""
    for every in range(rule.total_steps - rule.warmup_steps, 1, -1):
        lines = range(1 if form.zero_based else every, rule.total_steps + 1, every)
        if any(_counts(step, every, rule) for step in lines):
            return every
    return 1


def _check_final(final: float | None, rates: Sequence[float], name: str) -> None:
    if final is None or not rates:
        return
    mean = fmean(rates)
    if abs(final - mean) > FINAL_TOLERANCE * mean:
        raise UserError(
            "the rate that the program prints at its end contradicts the rates of its steps",
            where=name,
            expected=f"within {FINAL_TOLERANCE:.0%} of their mean, {mean:.6g}",
            found=f"{final:.6g}",
            hint="was the log cut or wrapped?",
        )
