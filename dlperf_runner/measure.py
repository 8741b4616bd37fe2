"""What a run's log says, and a rule of calculation, become measurements. Nothing is read here.

The log must confirm the plan before its speed is believed: batch size, world size, precision and
steps, each as far as the log states it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import fmean, harmonic_mean

from .case import Topology
from .errors import UserError
from .logs.records import Format, Header, LineError, Step

SAMPLES_PER_SECOND = "samples_per_second"
# No cluster trains faster; sums of such numbers are still finite.
FASTEST = 1e12


@dataclass(frozen=True)
class Rule:
    """How a publication makes one number of a log.

    Steps count from 1; the first `warmup_steps` of `total_steps` are not measured. `log_every`:
    the log has a line every n steps, unless the log itself states another interval.
    `rates_are_per` (world, node, device): what a printed rate counts. `round_rates_to`: digits to
    which each rate is rounded before it is used. `drop_first_values`: rates left out besides the
    warm-up. `final_value_from_world_size`: from this many devices on, the rate that the program
    prints at its end is the number. `surplus_steps`: lines that a program prints beyond
    `total_steps` before it stops. `round_value_to`: digits of the result.
    """

    total_steps: int
    warmup_steps: int
    estimator: str = "mean_of_rates"
    log_every: int = 1
    rates_are_per: str = "world"
    round_rates_to: int | None = None
    drop_first_values: int = 0
    final_value_from_world_size: int | None = None
    surplus_steps: int = 0
    round_value_to: int = 2


@dataclass(frozen=True)
class Expected:
    """What the run should be; `by` says who says so: the plan, or the file's name."""

    by: str
    topology: Topology
    precision: str
    batch_size_per_device: int


@dataclass(frozen=True)
class Measurement:
    """A number, never without its unit and its estimator."""

    metric: str
    value: float
    unit: str
    estimator: str


@dataclass(frozen=True)
class Measured:
    """What a log came to. `confirmed` is what the log itself states, and does not contradict."""

    measurements: tuple[Measurement, ...]
    confirmed: frozenset[str]
    notes: tuple[str, ...] = ()


@dataclass
class _Window:
    """The part of a log that is measured, as it goes by."""

    rates: list[float] = field(default_factory=list)
    times: list[tuple[int, float | None]] = field(default_factory=list)
    final: float | None = None
    losses: list[tuple[int, float]] = field(default_factory=list)
    last: Step | None = None
    steps: int = 0
    every: int = 1
    # Of processes that print every step into one log, unsigned: who they are, and how many lines
    # a step has by now.
    writers: set[int] = field(default_factory=set)
    lines: dict[int, int] = field(default_factory=dict)


def measure(
    form: Format,
    records: Iterable[Step | Header],
    rule: Rule,
    expected: Expected,
    name: str,
    steps: list[Step] | None = None,
) -> Measured:
    """The measurements of one run; `name` is the log's, for errors. `steps`, where given, gets the
    lines that count, warm-up included.

    samples_per_second is the number that the rule asks for. samples_per_second_<estimator> are
    the same by the estimators that the rule does not ask for. Raises UserError where the log
    contradicts what is expected, or is damaged, with file and line.
    """
    window = _Window(every=rule.log_every)
    confirmed: set[str] = set()
    rank: int | None = None
    for record in _located(records, name):
        if isinstance(record, Header):
            confirmed |= _confirm(record, rule, expected, name)
            window.every = record.log_every or window.every
            if record.writer is not None:
                window.writers.add(record.writer)
            if record.final_samples_per_second is not None:
                _check_rate(record.final_samples_per_second, record, name)
                window.final = record.final_samples_per_second
            continue
        # Where several ranks print the same line, one of them is enough.
        if record.rank is not None and record.rank != (
            rank := record.rank if rank is None else rank
        ):
            continue
        _check_rate(record.samples_per_second, record, name)
        if _is_another_writers(window, record):
            _take_rate(window, record, rule, expected)
            continue
        _check_step(form, rule, window, record, name)
        _check_writers(window, name, before=record)
        window.last = record
        window.steps += 1
        if len(window.writers) > 1:
            window.lines[record.step] = 1
        if steps is not None:
            steps.append(record)
        _take(window, record, rule, expected)
    _check_end(form, rule, window, name)
    values = _estimates(window, rule, expected)
    return Measured(
        measurements=(*_named(values, rule, expected, name), *_losses(window)),
        confirmed=frozenset(confirmed),
        notes=_loss_notes(window, name),
    )


def nothing_found(forms: Sequence[Format], name: str, lines: int) -> UserError:
    """The error for a log without a single rate, of one of these formats."""
    samples = "\n".join(f"  {form.name}: {form.sample}" for form in forms).expandtabs(4)
    return UserError(
        "the log is empty" if lines == 0 else "no line of the log has a rate",
        where=name,
        expected="lines with a rate, in a known wording",
        found="no line" if lines == 0 else f"{lines} lines without one",
        hint=f"what was looked for:\n{samples}",
    )


def _located(records: Iterable[Step | Header], name: str) -> Iterator[Step | Header]:
    try:
        yield from records
    except LineError as error:
        raise UserError(
            error.problem,
            where=f"{name}:{error.line}",
            expected=error.expected,
            found=error.found,
        ) from None


def _confirm(header: Header, rule: Rule, expected: Expected, name: str) -> set[str]:
    """What this line states, if it agrees with what is expected."""
    # Automatic mixed precision is what some programs call training in fp16.
    precision = header.precision
    if {precision, expected.precision} == {"amp", "fp16"}:
        precision = expected.precision
    by = expected.by
    statements: tuple[tuple[str, object, object, str], ...] = (
        ("batch size", header.batch_size_per_device, expected.batch_size_per_device, by),
        ("world size", header.world_size, expected.topology.world_size, by),
        ("precision", precision, expected.precision, by),
        ("number of steps", header.total_steps, rule.total_steps, "the rule of calculation"),
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
            "this is no rate that training can have",
            where=f"{name}:{record.line}",
            expected=f"a number above 0 and below {FASTEST:.0e}",
            found=record.printed,
        )


def _first(form: Format, rule: Rule, every: int) -> int:
    """The first step that has a line."""
    first = 1 if form.zero_based else every
    if form.silent_warmup and first <= rule.warmup_steps:
        first += math.ceil((rule.warmup_steps + 1 - first) / every) * every
    return first


def _next(form: Format, rule: Rule, window: _Window, step: int) -> int:
    """The step that should come next, when `step` comes. A log with lines at a closer interval
    than the rule's has nothing missing, so that interval is taken over."""
    last = window.last
    if last is None:
        first = _first(form, rule, window.every)
        if 0 < step < first and not form.zero_based:
            window.every = first = step
        return first
    if window.steps == 1 and 0 < step - last.step < window.every:
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
            "the log has more steps than the rule of calculation",
            where=where,
            expected=f"{rule.total_steps} steps",
            found=f"step {step}",
        )
    if last is None:
        problem, hint = f"the first step is {step}", "is the beginning of the log missing?"
    elif step == last.step:
        problem = f"step {step} is repeated, after line {last.line}"
        hint = "do several processes write to this log, or several runs?"
    elif step < last.step:
        problem, hint = f"step {step} follows {last.step}", "do several runs write to this log?"
    else:
        problem, hint = f"step {step} follows {last.step}", "truncated? lines are missing"
    raise UserError(problem, where=where, expected=str(wanted), found=str(step), hint=hint)


def _is_another_writers(window: _Window, record: Step) -> bool:
    """Whether this is the same step once more, by a process that has not printed it yet."""
    lines = window.lines.get(record.step, 0)
    if record.rank is not None or not 0 < lines < len(window.writers):
        return False
    window.lines[record.step] = lines + 1
    return True


def _check_writers(window: _Window, name: str, before: Step | None = None) -> None:
    """Each process prints each step. They meet in every step, so that the fastest is ahead of the
    slowest by less than two; `before` which line the others must be complete."""
    if len(window.writers) < 2 or window.last is None or window.last.rank is not None:
        return
    for step, lines in list(window.lines.items()):
        if before is not None and step == window.last.step:
            continue
        if lines < len(window.writers):
            raise UserError(
                f"step {step} has the lines of {lines} processes",
                where=f"{name}:{(before or window.last).line}",
                expected=f"{len(window.writers)}, as many as write to this log",
                found=str(lines),
                hint="truncated? lines are missing",
            )
        del window.lines[step]


def _check_end(form: Format, rule: Rule, window: _Window, name: str) -> None:
    first = _first(form, rule, window.every)
    wanted = first + (rule.total_steps - first) // window.every * window.every
    if window.last is None:
        raise UserError(
            "no line of the log has the rate of a step",
            where=name,
            expected=f"lines like {form.sample.expandtabs(4)}",
            found="none",
        )
    if window.last.step < wanted:
        raise UserError(
            f"the log ends with step {window.last.step}",
            where=f"{name}:{window.last.line}",
            expected=f"{wanted}, of {rule.total_steps} in all",
            found=str(window.last.step),
            hint="truncated? the run may have ended early",
        )
    _check_writers(window, name)


def _take(window: _Window, step: Step, rule: Rule, expected: Expected) -> None:
    """Keep of a step what is measured."""
    if step.loss is not None:
        # The first, the last, and the first that is none.
        kept = window.losses
        if len(kept) > 1 and math.isfinite(kept[-1][1]):
            kept.pop()
        if not kept or math.isfinite(kept[-1][1]):
            kept.append((step.step, step.loss))
    if _take_rate(window, step, rule, expected):
        window.times.append((step.step, step.unix_time))


def _take_rate(window: _Window, step: Step, rule: Rule, expected: Expected) -> bool:
    """Keep the rate of a step that is measured; whether it is one."""
    if not rule.warmup_steps < step.step <= rule.total_steps:
        return False
    rate = step.samples_per_second
    if rule.round_rates_to is not None:
        rate = round(rate, rule.round_rates_to)
    window.rates.append(rate * world_scale(rule, expected.topology))
    return True


def world_scale(rule: Rule, topology: Topology) -> int:
    """By what a printed rate is multiplied, to be that of the world."""
    if rule.rates_are_per == "world":  # once for every step of every log
        return 1
    return {"node": topology.nodes, "device": topology.world_size}[rule.rates_are_per]


def _estimates(window: _Window, rule: Rule, expected: Expected) -> dict[str, float]:
    """The rate of the world by every estimator that the log allows."""
    values: dict[str, float] = {}
    rates = window.rates[rule.drop_first_values :]
    if rates:
        values["mean_of_rates"] = fmean(rates)
        # Samples over time, where every rate covers as many samples.
        if min(rates) > 0:
            values["harmonic_mean_of_rates"] = harmonic_mean(rates)
    # From the line of the first step that counts to that of the last.
    stamps = [(step, time) for step, time in window.times[rule.drop_first_values :] if time]
    if len(stamps) > 1 and stamps[-1][1] > stamps[0][1]:
        samples = expected.batch_size_per_device * expected.topology.world_size
        steps = stamps[-1][0] - stamps[0][0]
        values["time_stamps"] = samples * steps / (stamps[-1][1] - stamps[0][1])
    if window.final is not None:
        values["final_value"] = window.final
    return values


def _named(
    values: dict[str, float], rule: Rule, expected: Expected, name: str
) -> Iterator[Measurement]:
    chosen = rule.estimator
    large = rule.final_value_from_world_size
    if large is not None and expected.topology.world_size >= large:
        chosen = "final_value"
    if chosen not in values:
        raise UserError(
            f"the log does not allow the estimator {chosen}",
            where=name,
            expected="the rate that the program prints at its end"
            if chosen == "final_value"
            else "rates after the warm-up",
            found=", ".join(values) or "none",
        )
    for estimator, value in sorted(values.items(), key=lambda item: item[0] != chosen):
        suffix = "" if estimator == chosen else f"_{estimator}"
        rounded = round(value, rule.round_value_to)
        yield Measurement(SAMPLES_PER_SECOND + suffix, rounded, "samples/s", estimator)


def _losses(window: _Window) -> Iterator[Measurement]:
    for metric, (_, loss) in zip(("loss_first", "loss_last"), window.losses, strict=False):
        if math.isfinite(loss):
            yield Measurement(metric, loss, "1", "as_printed")


def _loss_notes(window: _Window, name: str) -> tuple[str, ...]:
    bad = [step for step, loss in window.losses if not math.isfinite(loss)]
    return (f"{name}: the loss is no finite number from step {bad[0]} on",) if bad else ()
