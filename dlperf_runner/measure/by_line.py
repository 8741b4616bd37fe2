"""Measure a run from the records of its log, by a calculation rule. This module reads no file.

The log must first confirm the plan: batch size, world size, precision and steps, as far as the log
states them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from ..catalog.rule import Rule
from ..core.errors import UserError
from ..logs.records import Columns, Format, Header, LineError, Step, columns
from .estimators import Expected, Measured, in_window, measured

# No cluster trains faster, and sums of such numbers are still finite.
FASTEST = 1e12


@dataclass
class _Window:
    """The part of a log that was read: the steps that count, and all lines with rates. There are
    more lines than steps if several processes print each step."""

    steps: list[Step] = field(default_factory=list)
    lines_of_rates: list[Step] = field(default_factory=list)
    final: float | None = None
    every: int = 1
    # Several processes may print every step into one log without naming themselves: these
    # processes, and the number of lines so far for each step.
    writers: set[int] = field(default_factory=set)
    lines: dict[int, int] = field(default_factory=dict)

    @property
    def last(self) -> Step | None:
        return self.steps[-1] if self.steps else None


def measure(
    form: Format,
    records: Iterable[Step | Header],
    rule: Rule,
    expected: Expected,
    name: str,
) -> tuple[Measured, Columns]:
    """The measurements of one run, and the steps that count, including the warm-up. `name` is the
    name of the log in errors.

    samples_per_second is computed with the estimator of the rule, samples_per_second_<estimator>
    with each other estimator. Raises UserError, with file and line, if the log is damaged or
    contradicts what is expected.
    """
    window = _Window(every=rule.log_every)
    confirmed: set[str] = set()
    rank: int | None = None
    for record in _located(records, name):
        if isinstance(record, Header):
            confirmed |= confirm(record, rule, expected, name)
            window.every = record.log_every or window.every
            if record.writer is not None:
                window.writers.add(record.writer)
            if record.final_samples_per_second is not None:
                _check_rate(record.final_samples_per_second, record, name)
                window.final = record.final_samples_per_second
            continue
        # If several ranks print the same line, one of them is enough.
        if record.rank is not None and record.rank != (
            rank := record.rank if rank is None else rank
        ):
            continue
        _check_rate(record.samples_per_second, record, name)
        window.lines_of_rates.append(record)
        if _is_another_writers(window, record):
            continue
        _check_step(form, rule, window, record, name)
        _check_writers(window, name, before=record)
        window.steps.append(record)
        if len(window.writers) > 1:
            window.lines[record.step] = 1
    _check_end(form, rule, window, name)
    found = columns(window.steps, window.final)
    lines = columns(window.lines_of_rates)
    rates = in_window(lines.steps, lines.samples_per_second, rule)
    return measured(found, rates, frozenset(confirmed), rule, expected, name), found


def nothing_found(forms: Sequence[Format], name: str, lines: int) -> UserError:
    """The error for a log that has no rate in any of these formats."""
    samples = "\n".join(f"  {form.name}: {form.sample}" for form in forms).expandtabs(4)
    return UserError(
        "the log is empty" if lines == 0 else "no line of the log has a rate",
        where=name,
        expected="lines with a rate in a known format",
        found="no lines" if lines == 0 else f"{lines} lines without a rate",
        hint=f"known formats:\n{samples}",
    )


def _located(records: Iterable[Step | Header], name: str) -> Iterator[Step | Header]:
    try:
        yield from records
    except LineError as error:
        raise located(error, name) from None


def located(error: LineError, name: str) -> UserError:
    """The error of a line, with the name of its log."""
    where = f"{name}:{error.line}"
    return UserError(error.problem, where=where, expected=error.expected, found=error.found)


def confirm(header: Header, rule: Rule, expected: Expected, name: str) -> set[str]:
    """The names of the settings that this line confirms; a UserError if it contradicts one."""
    # Some programs call training in fp16 automatic mixed precision.
    precision = header.precision
    if {precision, expected.precision} == {"amp", "fp16"}:
        precision = expected.precision
    by = expected.by
    statements: tuple[tuple[str, object, object, str], ...] = (
        ("batch size", header.batch_size_per_device, expected.batch_size_per_device, by),
        ("world size", header.world_size, expected.topology.world_size, by),
        ("precision", precision, expected.precision, by),
        ("number of steps", header.total_steps, rule.total_steps, "the calculation rule"),
    )
    for what, found, wanted, who in statements:
        if found is not None and found != wanted:
            raise UserError(
                f"the {what} contradicts {who}",
                where=f"{name}:{header.line}",
                expected=str(wanted),
                found=str(found),
            )
    return {what for what, found, _, _ in statements if found is not None}


def _check_rate(value: float, record: Step | Header, name: str) -> None:
    if not 0 < value < FASTEST:
        raise UserError(
            "the rate is not possible in training",
            where=f"{name}:{record.line}",
            expected=f"a number above 0 and below {FASTEST:.0e}",
            found=record.printed,
        )


def first_step(form: Format, rule: Rule, every: int) -> int:
    """The first step that the log prints."""
    first = 1 if form.zero_based else every
    if form.silent_warmup and first <= rule.warmup_steps:
        first += math.ceil((rule.warmup_steps + 1 - first) / every) * every
    return first


def _next(form: Format, rule: Rule, window: _Window, step: int) -> int:
    """The step that is expected next, given that `step` comes. A log may print at a shorter
    interval than the rule says; nothing is missing then, and that interval is used."""
    last = window.last
    if last is None:
        first = first_step(form, rule, window.every)
        if 0 < step < first and not form.zero_based:
            window.every = first = step
        return first
    if len(window.steps) == 1 and 0 < step - last.step < window.every:
        window.every = step - last.step
    return last.step + window.every


def _check_step(form: Format, rule: Rule, window: _Window, record: Step, name: str) -> None:
    step, last = record.step, window.last
    wanted = _next(form, rule, window, step)
    where = f"{name}:{record.line}"
    if step == wanted and step <= rule.total_steps + rule.surplus_steps:
        return
    if step == wanted:
        raise UserError(
            "the log has more steps than the calculation rule",
            where=where,
            expected=f"{rule.total_steps} steps",
            found=f"step {step}",
        )
    if last is None:
        problem, hint = f"the first step is {step}", "is the beginning of the log missing?"
    elif step == last.step:
        problem = f"step {step} repeats line {last.line}"
        hint = "do several processes or runs write to this log?"
    elif step < last.step:
        problem, hint = f"step {step} follows {last.step}", "do several runs write to this log?"
    else:
        problem, hint = f"step {step} follows {last.step}", "lines are missing; truncated?"
    raise UserError(problem, where=where, expected=str(wanted), found=str(step), hint=hint)


def _is_another_writers(window: _Window, record: Step) -> bool:
    """Whether this is the same step again, printed by a process that has not printed it yet."""
    lines = window.lines.get(record.step, 0)
    if record.rank is not None or not 0 < lines < len(window.writers):
        return False
    window.lines[record.step] = lines + 1
    return True


def _check_writers(window: _Window, name: str, before: Step | None = None) -> None:
    """Check that each process printed each step. The processes synchronise in every step, so the
    fastest is less than two steps ahead of the slowest. All steps before the line `before` must be
    complete."""
    if len(window.writers) < 2 or window.last is None or window.last.rank is not None:
        return
    for step, lines in list(window.lines.items()):
        if before is not None and step == window.last.step:
            continue
        if lines < len(window.writers):
            raise UserError(
                f"{lines} processes printed step {step}",
                where=f"{name}:{(before or window.last).line}",
                expected=f"all {len(window.writers)} processes that write to this log",
                found=str(lines),
                hint="lines are missing; truncated?",
            )
        del window.lines[step]


def _check_end(form: Format, rule: Rule, window: _Window, name: str) -> None:
    first = first_step(form, rule, window.every)
    wanted = first + (rule.total_steps - first) // window.every * window.every
    if window.last is None:
        raise UserError(
            "the log has no rate of a single step",
            where=name,
            expected=f"lines like {form.sample.expandtabs(4)}",
            found="none",
        )
    if window.last.step < wanted:
        raise UserError(
            f"the log ends with step {window.last.step}",
            where=f"{name}:{window.last.line}",
            expected=f"step {wanted} of {rule.total_steps}",
            found=str(window.last.step),
            hint="the run may have ended early; truncated?",
        )
    _check_writers(window, name)
