"""Measure a run from the content of its log, by a calculation rule. This module reads no file.

The log must first confirm the plan: batch size, world size, precision and steps, as far as the log
states them.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from itertools import pairwise
from math import isclose
from operator import sub
from statistics import fmean, harmonic_mean, median

from ..catalog.workload import Rule
from ..core.errors import UserError
from ..logs import Columns, Format, Log
from ..logs.pattern import IN_BAR
from . import settings
from .estimators import Expected, Measured, measurements_of, of_world, published_lines
from .numbering import LogLines, Numbering, check_sequence, numbering, uncounted
from .step_parts import log_flops, log_memory, of_input, step_times

# How far the rate that a program prints at its end may be from the mean of the printed rates, as a
# share of it: from the first on it is noted, from the second on refused. Both average the same
# steps, of which a log prints at least one in ten; in real logs they differ by 0.2 %. A number that
# lost a digit before the point is at least 90 % off.
FINAL_NOTED = 0.01
FINAL_TOLERANCE = 0.1
# A program may print the rate of its run again, with fewer digits or by the clock of another node.
SAME_RATE = 0.001
# Processes read different clocks, which in real logs makes a difference of 1 or 2 % at most.
RANKS_TOLERANCE = 0.1
# Means of durations have three decimals, in s.
ROUNDED = 0.0005
# A line has one step of many: by chance the mean of the lines is some per cent off that of all.
BY_CHANCE = 0.05
# A pause takes longer than the training between two lines, and there is one in many lines.
PAUSED = 0.5
MOST_PAUSED = 0.1


def measure(
    form: Format,
    log: Log,
    rule: Rule,
    expected: Expected,
    source: LogLines,
    counts_pauses: bool = True,
) -> tuple[Measured, Columns, int]:
    """The measurements of one run; its steps, including the warm-up; and the last step before the
    measured window. `counts_pauses`: the rates of steps in which the training paused count.

    samples_per_second is computed with the estimator of the rule, samples_per_second_<estimator>
    with each other estimator. Raises UserError, with file and line, if the log is damaged or
    contradicts what is expected.
    """
    name, last = source.name, max(log.columns.steps, default=None)
    confirmed = settings.confirmed_settings(log.headers, rule, expected, name, last)
    if form.whole_run:
        return _of_whole_run(log, confirmed, rule, expected, source), log.columns, 0
    final = settings.final_rate(log.headers, name)
    every_of_log = next((header.log_every for header in log.headers if header.log_every), None)
    stated = expected.log_every or every_of_log
    if expected.log_every is not None:
        rule = rule.model_copy(update={"log_every": expected.log_every})
    lines, kept, every, rule, notes = _steps(form, log, rule, expected, stated, source)
    _check_interval(stated, every, name, expected.log_every)
    span = form.window or (1 if form.one_step else every)
    first, end = _window(kept.steps, span, rule, form, name)
    left_out = max([rule.warmup_steps, *kept.steps[:first][-1:]])
    rates = lines.samples_per_second[first:end]
    if lines is not kept:
        steps = zip(lines.steps, lines.samples_per_second, strict=True)
        rates = [rate for step, rate in steps if left_out < step <= kept.steps[end - 1]]
    window, by_lines = range(first, end), rates
    rates, note = _by_means(form, kept, window, left_out, log.epoch_length, rates, name)
    of_means = rates is not by_lines
    notes += (*_check_final(final, rates, name), *note)
    computing = log.compute_rates[first:end] if lines is kept else []
    if lines is kept and not of_means and expected.by("number of steps") != "the plan":
        numbers = kept.steps[first:end]
        training, pauses = _without_pauses(numbers, rates, computing, span, rule, name)
        rates, notes = rates if counts_pauses else training, notes + pauses
    published = published_lines(lines, every, rule, expected.topology, _writers(log))
    whole_run = settings.first_stated(log.headers, "whole_run_samples_per_second")
    result = measurements_of(
        kept, rates, final, confirmed, rule, expected, name, published, whole_run
    )
    result.notes += (*notes, *(f"{name}: {note}" for note in log.notes))
    world = of_world(rates, rule, expected)
    result.measurements += (
        *of_input(rates, computing),
        *(() if of_means else step_times(world, expected.per_step, span)),
        *log_memory(log.memory_gib),
        *(log_flops(log.tflops[first:end], log.mfu[first:end]) if lines is kept else ()),
    )
    if lines is kept and rates:
        measured_steps = kept.steps[end - 1] - kept.steps[first] + span
        result.skipped = sum(log.skipped[first:end]), measured_steps
    return result, kept, left_out


_OF_RUNS = (
    "save the output of each run in its own file; with --regex, the group step makes them rates of"
    " steps, (?P<step>\\d+), and more of the line's words leave out others"
)


def _of_whole_run(
    log: Log, confirmed: set[str], rule: Rule, expected: Expected, source: LogLines
) -> Measured:
    rates = log.columns.samples_per_second
    others = [n for n, rate in enumerate(rates) if not isclose(rate, rates[0], rel_tol=SAME_RATE)]
    if not rates or others:
        raise UserError(
            "the log has the rates of several whole runs" if others else "the log has no rate",
            where=source.place(others[0]) if others else source.name,
            expected=f"one, like {rates[0]:.6g} in line {source.line_of(0)}" if others else "one",
            found=f"{rates[others[0]]:.6g}" if others else "none",
            hint=_OF_RUNS if others else None,
        )
    whole = of_world(rates[:1], rule, expected)[0]
    name = source.name
    return measurements_of(Columns(), [], None, confirmed, rule, expected, name, whole_run=whole)


def _steps(
    form: Format,
    log: Log,
    rule: Rule,
    expected: Expected,
    stated: int | None,
    source: LogLines,
) -> tuple[Columns, Columns, int, Rule, tuple[str, ...]]:
    """All lines; those that count, one a step; the interval between them; the rule for them; and
    notes. Raises UserError if a step is missing."""
    lines = kept = log.columns
    writers = _writers(log)
    number = writers if log.has_ranks or writers > 1 else _processes(lines.steps, rule, expected)
    is_redrawn = not log.has_ranks and _is_redrawn(form, lines.steps)
    if number > 1 and not is_redrawn:
        first = first_lines(lines.steps, number, source)
        kept = lines.take(first)
        if number > writers:
            _check_agreement(form, lines, source)
        source = source.only(first)
    elif not form.rank_rates and (once := _once(kept, is_redrawn)):
        if is_redrawn:
            _check_agreement(form, lines, source)
        lines = kept = _without(log, {*range(len(kept.steps))}.difference(once))
        source = source.only(once)
    if expected.by("number of steps") == "the plan":
        every = check_sequence(form, kept.steps, stated or rule.log_every, rule, source)
        return lines, kept, every, rule, ()
    if expected.first_step is not None:
        kept.means = []  # of steps with other numbers
    if shift := uncounted(form, kept.steps, expected.first_step):
        lines.steps = [step + shift for step in lines.steps]
        kept.steps = lines.steps if kept is lines else [step + shift for step in kept.steps]
    if stated and len(kept.steps) == 1:  # nothing else tells how many steps the rate covers
        rule = rule.model_copy(update={"log_every": stated})
    rule, numbered, notes = _from_first(form, log, kept.steps, rule, expected, source)
    left_out: Collection[int] = () if form.one_step or form.window else numbered.shorter
    if form.window and log.epoch_length:  # a mean that begins anew in each epoch
        least = min(form.window, numbered.every)
        left_out = [n for n, at in enumerate(kept.steps) if (at - 1) % log.epoch_length < least - 1]
    if left_out and lines is kept and len(left_out) < len(kept.steps):
        lines = kept = _without(log, left_out)
    return lines, kept, numbered.every, rule, notes


def _is_redrawn(form: Format, steps: Sequence[int]) -> bool:
    """True if the lines are those of a progress bar that is drawn again within steps, as for each
    of the accumulated batches, and not one of each process."""
    is_bar = not form.marker and IN_BAR.search(form.sample) is not None
    if not is_bar or len({*Counter(steps).values()}) < 2:
        return False
    return all(before <= step for before, step in pairwise(steps))


def _once(lines: Columns, is_redrawn: bool) -> list[int]:
    """The indices of the first line of each step, if a program prints each line of a step equally
    often, one behind the other, with the same rate: as MXNet did until 2017, one for each metric;
    or if they are of a bar that is drawn again. Empty if they are not."""
    if is_redrawn:
        return [n for n, step in enumerate(lines.steps) if not n or step != lines.steps[n - 1]]
    if lines.steps[:2] != lines.steps[:1] * 2:
        return []
    printed = [*zip(lines.steps, lines.samples_per_second, strict=True)]
    first = [n for n, line in enumerate(printed) if not n or line != printed[n - 1]]
    number, rest = divmod(len(printed), len(first) or 1)
    is_regular = number > 1 and not rest and first == [*range(0, len(printed), number)]
    return first if is_regular else []


def _without(log: Log, left_out: Collection[int]) -> Columns:
    """The lines of a log without some, as its own."""
    kept = [n for n in range(len(log.columns.steps)) if n not in left_out]
    for name in ("compute_rates", "skipped", "tflops", "mfu"):
        if column := getattr(log, name):
            setattr(log, name, [column[n] for n in kept])
    log.columns = log.columns.take(kept)
    return log.columns


def _without_pauses(
    steps: Sequence[int],
    rates: Sequence[float],
    computing: Sequence[float | None],
    span: int,
    rule: Rule,
    name: str,
) -> tuple[list[float], tuple[str, ...]]:
    """The rates of training, and a note on those of steps in which it paused: few, far apart and
    far below all others. A step that waited for data, as its rate without that shows, has not
    paused."""
    limit = PAUSED * median(rates)
    if min(rates) >= limit:
        return list(rates), ()
    alone = computing if len(computing) == len(rates) else [None] * len(rates)
    fastest = [max(rate, computed or 0) for rate, computed in zip(rates, alone, strict=True)]
    paused = [index for index, rate in enumerate(fastest) if rate < limit]
    if not paused or len(paused) > MOST_PAUSED * len(rates) or 1 in map(sub, paused[1:], paused):
        return list(rates), ()
    training = [rate for rate, of_step in zip(rates, fastest, strict=True) if of_step >= limit]
    mean = harmonic_mean if rule.estimator == "harmonic_mean_of_rates" else fmean
    first = steps[paused[0]]
    which = f"steps {first - span + 1} to {first}" if span > 1 else f"step {first}"
    others = f" and {len(paused) - 1} more" if len(paused) > 1 else ""
    note = (
        f"{name}: the training paused in {which}{others}, as for an evaluation or a checkpoint"
        f" (a rate of {rates[paused[0]]:.6g}); without that, the mean is {mean(training):.6g},"
        f" with it {mean(rates):.6g}"
    )
    return training, (note,)


def _by_means(
    form: Format,
    kept: Columns,
    window: range,
    left_out: int,
    epoch: int | None,
    rates: list[float],
    name: str,
) -> tuple[list[float], tuple[str, ...]]:
    """The rates of the measured window and a note: if the means of all steps up to its first and
    last line show that those between the lines took longer or shorter, the rate that follows."""
    if not kept.means:
        return rates, ()
    # The first interval that has no step of the warm-up, if there is one.
    first = window.start
    if first and kept.steps[first - 1] < left_out and first + 1 < window.stop:
        first += 1
    counted, seconds, numbers = 0, 0.0, 0
    before, total_before = 0, 0.0
    for index in range(max(0, first - 1), window.stop):
        number = (kept.steps[index] - 1) % epoch + 1 if epoch else kept.steps[index]
        total = number * kept.means[index]
        if number <= before:  # the means begin anew
            numbers, before, total_before = numbers + before, 0, 0.0
        if index >= first:
            counted, seconds = counted + number - before, seconds + total - total_before
        else:
            numbers = number
        before, total_before = number, total
    if seconds <= 0:
        return rates, ()
    rounding = (ROUNDED if form.seconds else 0) * (numbers + before) / seconds
    by_means, by_lines = counted / seconds, fmean(rates)
    if rounding > FINAL_TOLERANCE or abs(by_means / by_lines - 1) <= FINAL_NOTED + rounding:
        return rates, ()
    note = (
        f"{name}: a line has the rate of one step; their mean is {by_lines:.6g}, but that of all"
        f" measured steps, which the means in the log show, is {by_means:.6g}"
    )
    if abs(by_means / by_lines - 1) <= BY_CHANCE + rounding:
        return rates, (note,)
    return [by_means] * len(rates), (f"{note}, and counts",)


def _writers(log: Log) -> int:
    """The number of processes of which the log says that they print into it, unless labels name
    each of them."""
    writers = {header.writer for header in log.headers if header.writer is not None}
    return 1 if log.has_ranks else max(1, len(writers))


def _from_first(
    form: Format,
    log: Log,
    steps: Sequence[int],
    rule: Rule,
    expected: Expected,
    source: LogLines,
) -> tuple[Rule, Numbering, tuple[str, ...]]:
    """The rule and the numbering of a log without a plan, and a note if it does not begin with its
    run: the warm-up of one that begins behind it is the same share of the steps of the log, or as
    many steps as the user states. Raises UserError if no line has a step."""
    if not steps:
        raise UserError(
            "no line with a rate is complete",
            where=source.name,
            expected=f"lines of {form.name}, as {form.sample!r}",
            found="the beginning of one",
            hint="copy the log again: it was cut off, or the run had just begun",
        )
    whole = "only the first epoch of a log counts; if that" if form.only_first_epoch else "if it"
    hint = f"{whole} is whole, state its steps: --total-steps {steps[-1]}"
    numbered = numbering(
        form, steps, rule, source._replace(hint=hint), log.epoch_length, log.evaluated
    )
    every, before = numbered.every, numbered.before
    if not before:
        return rule, numbered, ()
    warmup: float = rule.warmup_steps
    share = (rule.total_steps - before) / rule.total_steps
    if before >= warmup:
        if expected.by("warmup_steps") == expected.by(""):  # not stated
            warmup *= share
        warmup = min(before + math.ceil(warmup / every) * every, rule.total_steps - 1)
    begins = f"the log begins with step {steps[0]}"
    note = f"{source.name}: {begins}, so steps up to {warmup} are its warm-up"
    dropped = int(rule.drop_first_values * share)
    changed = {
        "warmup_steps": warmup,
        "drop_first_values": dropped,
        "published_estimator": None,
    }
    return rule.model_copy(update=changed), numbered, (note,)


def _processes(steps: Sequence[int], rule: Rule, expected: Expected) -> int:
    """The number of processes that print each step without naming themselves: as many as there are
    devices, devices of a node or nodes. The processes of nodes that each print their own rate have
    to name themselves."""
    if not steps or rule.rates_are_per == "node":
        return 1
    topology = expected.topology
    for number in (topology.world_size, topology.gpus_per_node, topology.nodes):
        if number > 1 and steps[: 2 * number].count(steps[0]) == number:
            return number
    return 1


def _check_agreement(form: Format, lines: Columns, source: LogLines) -> None:
    first: dict[int, int] = {}
    rates = lines.samples_per_second
    pairs = [(first.setdefault(step, n), n) for n, step in enumerate(lines.steps)]
    ratios = {n: rates[n] / rates[one] for one, n in pairs if n != one}
    if form.rank_rates:
        problem, expected, hint, _ = form.rank_rates
        shown = f"{len(rates)} rates of {len(first)} steps"
        raise UserError(problem, where=source.name, expected=expected, found=shown, hint=hint)
    if 1 / (1 + RANKS_TOLERANCE) <= median(ratios.values()) <= 1 + RANKS_TOLERANCE:
        return
    one, other = max(((one, n) for one, n in pairs), key=lambda pair: pair[1] in ratios)
    raise UserError(
        "processes print different rates of the same step",
        where=source.place(other),
        expected=f"about {rates[one]:.6g}, as in line {source.line_of(one)}",
        found=f"{rates[other]:.6g}",
        hint="the processes of a run have the same rate: if two runs write to this log, keep the"
        " lines of one",
    )


def _check_interval(stated: int | None, every: int, name: str, of_user: int | None) -> None:
    if of_user is not None and every != of_user:
        raise UserError(
            "the interval between the rates contradicts --log-every",
            where=name,
            expected=f"a rate every {of_user} steps",
            found=f"a rate every {every} steps",
        )
    if stated is not None and every < stated:
        raise UserError(
            "the log has rates more often than it states",
            where=name,
            expected=f"a rate every {stated} steps",
            found="a rate every step" if every == 1 else f"a rate every {every} steps",
            hint="how many steps does a rate cover? do two runs write to this log?",
        )


def _window(
    steps: Sequence[int], span: int, rule: Rule, form: Format, name: str
) -> tuple[int, int]:
    """The measured window, as indices of its first step and of the step after its last. A rate
    covers `span` steps. It does not count if one of them is in the warm-up, or if the rule drops
    it."""
    first = bisect_left(steps, rule.warmup_steps + (span if rule.warmup_steps else 1))
    end = bisect_right(steps, rule.total_steps)
    if first < end:
        end = bisect_right(steps, rule.last_step(steps[first] - span))
    if first + rule.drop_first_values >= end:
        raise UserError(
            "no rate is left after the warm-up",
            where=name,
            expected=f"a rate every {_longest(form, rule)} steps or fewer: of {rule.total_steps}"
            f" steps, the first {rule.warmup_steps} are the warm-up",
            found=f"rates of {span} steps each",
            hint="a rate whose steps begin in the warm-up does not count; see --warmup-steps",
        )
    return first + rule.drop_first_values, end


def _longest(form: Format, rule: Rule) -> int:
    """The longest interval with which at least one rate counts."""
    for every in range(rule.total_steps - rule.warmup_steps, 1, -1):
        steps = range(1 if form.zero_based else every, rule.total_steps + 1, every)
        if steps[bisect_left(steps, rule.warmup_steps + every) :]:
            return every
    return 1


def _check_final(final: float | None, rates: Sequence[float], name: str) -> tuple[str, ...]:
    """A note if the final rate is not that of the steps. Raises UserError if it contradicts it."""
    if final is None or not rates:
        return ()
    mean = fmean(rates)
    if abs(final - mean) > FINAL_TOLERANCE * mean:
        raise UserError(
            "the rate that the program prints at its end contradicts the rates of its steps",
            where=name,
            expected=f"within {FINAL_TOLERANCE:.0%} of their mean, {mean:.6g}",
            found=f"{final:.6g}",
            hint="was the log cut or wrapped?",
        )
    difference = final / mean - 1
    if abs(difference) <= FINAL_NOTED:
        return ()
    apart = f"{100 * abs(difference):.1f} % {'above' if difference > 0 else 'below'}"
    return (
        f"{name}: the rate that the program prints at its end, {final:.6g}, is {apart} the mean of"
        f" the rates of its steps, {mean:.6g}",
    )


def first_lines(steps: Sequence[int], writers: int, source: LogLines) -> list[int]:
    """The indices of the first line of each step, in a log into which several processes print every
    step without naming themselves. They synchronise in every step, so the fastest is less than two
    steps ahead of the slowest. Raises UserError if a process did not print a step."""
    printed: Counter[int] = Counter()
    first: list[int] = []
    for index, step in enumerate(steps):
        printed[step] += 1
        if printed[step] == 1 or printed[step] > writers:
            if len(first) > 1:
                _check_all(steps[first[-2]], printed, writers, index, source)
            first.append(index)
    for index in first[-2:]:
        _check_all(steps[index], printed, writers, len(steps) - 1, source)
    return first


def _check_all(step: int, printed: Counter[int], writers: int, at: int, source: LogLines) -> None:
    if printed[step] < writers:
        raise UserError(
            f"{printed[step]} processes printed step {step}",
            where=source.place(at),
            expected=f"all {writers} processes that write to this log",
            found=str(printed[step]),
            hint="lines are missing; truncated?",
        )
