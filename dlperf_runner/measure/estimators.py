"""Compute the throughput of a run from its steps: with the estimator of the publication's rule, and
with every other estimator for which the log has data."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple

from ..catalog.workload import Rule
from ..core.case import Topology
from ..core.errors import UserError
from ..core.frame import SAMPLES_PER_SECOND
from ..core.identity import as_batch_size
from ..core.units import SAMPLES, Unit, per_second
from ..logs import Columns

MEAN_OF_LINES = "mean_of_lines"
WHOLE_RUN = "whole_run"  # printed by the program, with steps of the warm-up
WARMUP_LINES = "warmup_lines"  # lines of a published estimator that begin in the warm-up


class Expected(NamedTuple):
    """The expected settings of the run. `by` names who states a setting, such as the plan.
    `sequence_length`: the tokens of a sample, None if it is unknown. `accumulation_steps`: the
    batches of a step; `batch_of_step`: the batch size counts all of them. `tokens_per_step`: as
    the log states it, whatever the batch. `first_step` and `log_every`: the step of the first line
    with a rate, and the interval to the next, as the user states them."""

    by: Callable[[str], str]
    topology: Topology
    precision: str
    batch_size_per_device: float | None
    unit: Unit = SAMPLES
    sequence_length: int | None = None
    accumulation_steps: int = 1
    batch_of_step: bool = False
    tokens_per_step: int | None = None
    first_step: int | None = None
    log_every: int | None = None

    @property
    def global_batch_size(self) -> int | None:
        """The batch size of all devices, as logs state it; None if unknown."""
        if self.batch_size_per_device is None:
            return None
        return round(self.batch_size_per_device * self.topology.world_size)

    @property
    def micro_batch_size(self) -> float | None:
        """The batch size per device of one of the accumulated batches; None if unknown."""
        if self.batch_size_per_device is None:
            return None
        number = self.accumulation_steps if self.batch_of_step else 1
        return as_batch_size(self.batch_size_per_device / number)

    @property
    def per_step(self) -> int | None:
        """The samples or tokens of a step of all devices; None if that is unknown."""
        if self.unit != SAMPLES and self.tokens_per_step is not None:
            return self.tokens_per_step
        samples = self.global_batch_size
        if samples is not None and not self.batch_of_step:
            samples *= self.accumulation_steps
        if self.unit == SAMPLES or samples is None:
            return samples
        return self.sequence_length and samples * self.sequence_length


class Measurement(NamedTuple):
    """A number with its unit and its estimator."""

    metric: str
    value: float
    unit: str
    estimator: str


@dataclass
class Measured:
    """The measurements of a log. `confirmed` names the settings that the log itself confirms.
    `skipped`: the measured steps that changed no weight, and the number of measured steps."""

    measurements: tuple[Measurement, ...]
    confirmed: frozenset[str]
    notes: tuple[str, ...] = ()
    skipped: tuple[int, int] = (0, 0)


class PublishedLines(NamedTuple):
    """The rates that a published estimator averages, as printed, and how many of them cover a step
    of the warm-up."""

    rates: Sequence[float]
    in_warmup: int


def measurements_of(
    columns: Columns,
    rates: Sequence[float],
    final: float | None,
    confirmed: Set[str],
    rule: Rule,
    expected: Expected,
    name: str,
    published: PublishedLines | None = None,
    whole_run: float | None = None,
) -> Measured:
    """The measurements of a log. `columns` has the steps that count; `rates` are the rates of all
    lines in the measured window; `final` is the rate that the program prints at its end;
    `published` are the lines of the published estimator; `whole_run` is a printed rate of all
    devices that includes the warm-up; `name` is the name of the log in errors."""
    values = _estimates(columns, rates, final, rule, expected)
    if published is not None:
        values[MEAN_OF_LINES] = fmean(of_world(published.rates, rule, expected))
    if whole_run is not None:
        values[WHOLE_RUN] = whole_run
    measurements = [*_named(values, rule, expected, name)]
    if published is not None:
        warmup = Measurement(WARMUP_LINES, published.in_warmup, "lines", MEAN_OF_LINES)
        measurements.append(warmup)
    notes = []
    for metric, (step, loss) in zip(("loss_first", "loss_last"), _losses(columns), strict=False):
        if math.isfinite(loss):
            measurements.append(Measurement(metric, loss, "1", "as_printed"))
        else:
            notes.append(f"{name}: the loss is not finite from step {step} on")
    return Measured(tuple(measurements), frozenset(confirmed), tuple(notes[:1]))


def world_scale(rule: Rule, expected: Expected) -> int:
    """The factor from a printed rate to the rate of all devices."""
    if rule.rates_are_per == "world":  # first, because this is called often
        return 1
    if rule.rates_are_per == "step":
        if expected.per_step is None:
            raise UserError(
                "cannot determine the number of tokens in a step",
                expected="the sequence length, which the log does not state",
                hint="state it with --sequence-length, or in mapping.yml",
            )
        return expected.per_step
    topology = expected.topology
    return topology.nodes if rule.rates_are_per == "node" else topology.world_size


def _estimates(
    columns: Columns,
    rates: Sequence[float],
    final: float | None,
    rule: Rule,
    expected: Expected,
) -> dict[str, float]:
    """The rate of all devices, by every estimator for which the log has data."""
    values: dict[str, float] = {}
    rates = of_world(rates, rule, expected)
    if rates:
        values["mean_of_rates"] = fmean(rates)
        # Samples over time, if every rate covers the same number of samples.
        if min(rates) > 0:
            values["harmonic_mean_of_rates"] = len(rates) / math.fsum([1 / rate for rate in rates])
    # From the line of the first measured step to the line of the last one.
    times = zip(columns.steps, columns.unix_times, strict=True) if any(columns.unix_times) else ()
    after = [pair for pair in times if pair[0] > rule.warmup_steps]
    last = rule.last_step(after[0][0]) if after else 0
    counted = [pair for pair in after if pair[0] <= last]
    stamps = [(step, time) for step, time in counted[rule.drop_first_values :] if time]
    if expected.per_step and len(stamps) > 1 and stamps[-1][1] > stamps[0][1]:
        number = stamps[-1][0] - stamps[0][0]
        values["time_stamps"] = expected.per_step * number / (stamps[-1][1] - stamps[0][1])
    if final is not None:
        values["final_value"] = final
    return values


def of_world(rates: Sequence[float], rule: Rule, expected: Expected) -> Sequence[float]:
    """The rates of all devices from printed ones, rounded first if the rule rounds them."""
    if (digits := rule.round_rates_to) is not None:
        rates = [round(rate, digits) for rate in rates]
    if (scale := world_scale(rule, expected)) != 1:
        rates = [rate * scale for rate in rates]
    return rates


def published_lines(
    lines: Columns, every: int, rule: Rule, topology: Topology, writers: int
) -> PublishedLines | None:
    """The lines of the estimator mean_of_lines: those at the indices from warmup_steps // log_every
    * nodes up to total_steps // log_every * nodes, among the lines of all processes in the log of a
    node. `every` is the number of steps from one line to the next. None if that is not the
    interval of the rule, if the rule has no such estimator, if not every process of the node is one
    of the `writers` of these lines, or if the log has no such line.

    Source: Oneflow-Inc/DLPerf a057d7f, PaddlePaddle/PLSC/extract_paddle_logs.py.
    """
    if rule.published_estimator != MEAN_OF_LINES or every != rule.log_every:
        return None
    if writers != topology.gpus_per_node:
        return None
    first, end = (
        steps // every * topology.nodes for steps in (rule.warmup_steps, rule.total_steps)
    )
    rates, steps = lines.samples_per_second[first:end], lines.steps[first:end]
    in_warmup = sum(step - every < rule.warmup_steps for step in steps)
    return PublishedLines(rates, in_warmup) if rates else None


def _named(
    values: Mapping[str, float], rule: Rule, expected: Expected, name: str
) -> Iterator[Measurement]:
    chosen = rule.estimator
    large = rule.final_value_from_world_size
    if large is not None and expected.topology.world_size >= large:
        chosen = "final_value"
    if chosen not in values:
        raise UserError(
            f"the log has no data for the estimator {chosen}",
            where=name,
            expected="a rate that the program prints at its end"
            if chosen == "final_value"
            else "rates after the warm-up",
            found=", ".join(values) or "none",
        )
    for estimator, value in sorted(values.items(), key=lambda item: item[0] != chosen):
        suffix = "" if estimator == chosen else f"_{estimator}"
        yield Measurement(SAMPLES_PER_SECOND + suffix, value, per_second(expected.unit), estimator)


def _losses(columns: Columns) -> list[tuple[int, float]]:
    """Step and loss of the first step with a loss, and of the last one. If a loss is not finite,
    the first such step takes the place of the last one."""
    if columns.losses.count(None) == len(columns.losses):
        return []
    pairs = zip(columns.steps, columns.losses, strict=True)
    with_loss = [(step, loss) for step, loss in pairs if loss is not None]
    not_finite = next((pair for pair in with_loss if not math.isfinite(pair[1])), None)
    first, last = with_loss[0], not_finite or with_loss[-1]
    return [last] if last == first else [first, last]
