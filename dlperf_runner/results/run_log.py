"""Read the log of one run: its measurements, or the reason why the log fails validation. Arguments
and results are picklable, so that processes can read logs in parallel."""

from __future__ import annotations

import hashlib
from array import array
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

from .. import logs
from ..catalog.accelerators import peak_of
from ..catalog.reader import own_workloads
from ..catalog.validity import catalogued_rules
from ..catalog.workload import Model, Rule, Transformer
from ..core.errors import UserError
from ..core.frame import LOG_TFLOPS
from ..core.identity import precision_of_recipe, read_parameters
from ..core.lists import grouped
from ..core.units import SAMPLES, TOKENS, per_second
from ..measure.energy import energy
from ..measure.estimators import Expected, Measured, Measurement, world_scale
from ..measure.flops import model_flops
from ..measure.numbering import counts_from_zero
from ..measure.run import measure
from ..measure.steady_state import measurements, steadiness
from ..measure.step_parts import network, of_all_reduce, of_ranks
from ..measure.validity import VALID, Evidence, Sample, Verdict, judge
from .discovery import Place, Skipped, is_no_run, of_view, run_at
from .evidence import evidence_of
from .log_file import LogFile
from .log_head import check_network, check_parameters, stated_counts, with_options
from .named_run import entry_of
from .run_record import FoundRun

# No two runs print so many different rates in the same order.
_TELLING_RATES = 10
# A smaller share of the marked lines shows that a log was damaged; some lines, as those of
# evaluations and epochs, are marked without being of a step.
MOST_READ = 0.5


class RunSeries(NamedTuple):
    """Throughput over the iterations of one run: all lines that count, including the warm-up.

    All tuples have one entry per line. `samples_per_second` is the rate of all devices.
    `unix_times` (s) and `losses` are None if the log does not state them. The measured window
    begins after `warmup_steps` and ends with `total_steps`.
    """

    run: FoundRun
    steps: tuple[int, ...]
    samples_per_second: tuple[float, ...]
    unix_times: tuple[float | None, ...]
    losses: tuple[float | None, ...]
    warmup_steps: int
    total_steps: int
    unit: str = per_second(SAMPLES)


@dataclass
class Reading:
    """The result of reading a log: `measured` and the SHA-256 of the log, or the `problem`; and the
    verdict of the validity rules. `run` is None if the run cannot be identified."""

    run: FoundRun | None
    measured: Measured | None = None
    log_sha256: str | None = None
    problem: UserError | None = None
    series: RunSeries | None = None
    verdict: Verdict = VALID
    rates: str | None = None  # the SHA-256 of its rates; None if another run may have the same

    @property
    def contents(self) -> tuple[str, ...]:
        """What only copies of the log have in common: its bytes, and its rates."""
        digests = {"SHA-256": self.log_sha256, "rates": self.rates}
        return tuple(f"{kind}:{digest}" for kind, digest in digests.items() if digest)


def read_all(
    places: Iterable[Place], models: Sequence[Model], with_series: bool = False
) -> list[Reading | Skipped]:
    """Find and measure the runs at some places; Skipped for each file that is no benchmark log."""
    own_workloads()  # makes the user's log formats known in a new process, too
    readings = [_reading(place, models) for place in places]
    of_runs = [reading for reading in readings if isinstance(reading, Reading)]
    judged = _steadiness([reading.series for reading in of_runs if reading.series])
    for reading in of_runs:
        if reading.measured and reading.series:
            reading.measured.measurements += next(judged)
            reading.series = reading.series if with_series else None
    return readings


def _reading(place: Place, models: Sequence[Model]) -> Reading | Skipped:
    try:
        found = run_at(place, models)
    except UserError as error:
        return Reading(None, problem=error)
    if isinstance(found, Skipped):
        return found
    run, log = found
    if run.why_not is not None:
        return Reading(run)
    try:
        return _measured(run, log, models)
    except UserError as error:
        if is_no_run(place, log, models):
            return of_view(place, "bandwidth", error)
        error.where = error.where or str(log.path)
        return Reading(run, problem=error)


def _measured(run: FoundRun, log: LogFile, models: Sequence[Model]) -> Reading:
    name, rule = str(log.path), run.rule
    if rule is None:
        raise UserError(
            "the workload is not in the catalogue",
            where=name,
            found=run.workload,
            hint="if it is your own, name its folder: dlperf --catalog DIR",
        )
    if log.form.name != run.log_format:
        raise UserError(
            "the log format is not that of the workload",
            where=name,
            expected=run.log_format,
            found=log.form.name,
        )
    content, digest = _content(log, run, rule)
    entry = entry_of(run, log.form, models)
    if entry is not None:
        check_network(content.headers, run, entry, log.form)
        if run.expected_by == "the plan":
            check_parameters(content.headers, run)
        else:
            run = with_options(run, content.headers, entry, log.form)
            if run.rule not in (rule, None):  # mostly the same object, which is compared fast
                rule = run.rule
                content, digest = _content(log, run, rule)
            if _has_its_own_steps(run, entry):
                content, digest, rule = _with_its_steps(log, run, rule, content, digest, entry)
                run = replace(run, rule=rule)
    if run.expected_by != "the plan" and log.form is not logs.formats().get(log.form.name):
        # A variant of the format may print other rates.
        rule = rule.model_copy(update={"rates_are_per": log.form.rates_are_per})
    counts = stated_counts(run, content.headers)
    expected = Expected(
        run.source_of,
        run.topology,
        run.precision,
        run.batch_size_per_device,
        run.unit,
        counts.get("sequence_length"),
        counts.get("accumulation_steps", 1),
        log.form.batch_of_step,
        next((h.tokens_per_step for h in content.headers if h.tokens_per_step), None),
    )
    measured, found, left_out = measure(
        log.form,
        content,
        rule,
        expected,
        partial(_line_of, log, run.rank),
        name,
        counts_pauses=entry is None or entry.is_published,
    )
    evidence = evidence_of(run)
    measured.measurements += (
        *of_ranks(content.headers, run.topology.world_size),
        *of_all_reduce(content.headers, run.topology.world_size),
        *network(evidence.network),
    )
    if entry is not None and entry.transformer is not None and expected.sequence_length is not None:
        measured.measurements += _model_flops(measured, run, entry.transformer, expected)
    rates, scale = found.samples_per_second, world_scale(rule, expected)
    series = RunSeries(
        run,
        steps=tuple(found.steps),
        samples_per_second=tuple(rates if scale == 1 else [rate * scale for rate in rates]),
        unix_times=tuple(found.unix_times),
        losses=tuple(found.losses),
        warmup_steps=left_out,
        total_steps=rule.total_steps,
        unit=per_second(expected.unit),
    )
    measured.measurements += _energy(evidence, series, measured, expected)
    rules = run.rules or catalogued_rules()
    verdict = judge(evidence, found.steps, found.losses, rules, measured.skipped)
    return Reading(run, measured, digest, None, series, verdict, _digest(series.samples_per_second))


def _energy(
    evidence: Evidence, series: RunSeries, measured: Measured, expected: Expected
) -> tuple[Measurement, ...]:
    """The energy of a run whose telemetry has all of its devices, or all of its nodes."""
    parts: Sequence[Sequence[Sample]] = list(evidence.of_nodes.values())
    what, number = "cpu", expected.topology.nodes
    if evidence.on_gpu:
        parts, what, number = list(evidence.samples.values()), "gpu", expected.topology.world_size
    if len(parts) != number or evidence.unsampled:
        return ()
    window = (series.warmup_steps, series.total_steps)
    times = [
        time
        for step, time in zip(series.steps, series.unix_times, strict=True)
        if time is not None and window[0] < step <= window[1]
    ]
    ends = (times[0], times[-1]) if len(times) > 1 and times[0] < times[-1] else None
    processed = expected.per_step and expected.per_step * series.total_steps
    rate = measured.measurements[0].value
    return tuple(energy(parts, what, ends, rate, processed, expected.unit))


def _model_flops(
    measured: Measured, run: FoundRun, transformer: Transformer, expected: Expected
) -> tuple[Measurement, ...]:
    """The model FLOPs of a run on devices of its accelerator."""
    length = expected.sequence_length or 0
    rate = measured.measurements[0].value / run.topology.world_size
    tokens = rate if expected.unit == TOKENS else rate * length
    # Part of the products keeps the precision of the model; the recipe's has the highest peak.
    recipe = read_parameters(run.parameters).get("recipe", "none")
    fastest = run.precision if recipe == "none" else precision_of_recipe(recipe)
    peak = peak_of(run.accelerator, fastest or "")
    printed = next((m.value for m in measured.measurements if m.metric == LOG_TFLOPS), None)
    return tuple(model_flops(tokens, transformer, length, peak, printed))


def _digest(rates: tuple[float, ...]) -> str | None:
    if len(set(rates)) < _TELLING_RATES:
        return None
    return hashlib.sha256(array("d", rates).tobytes()).hexdigest()


def _has_its_own_steps(run: FoundRun, entry: Model) -> bool:
    """Whether nobody says how many steps the log has: no publication, no user."""
    is_stated = entry.is_published or entry.workload.log_pattern is not None
    return not is_stated and "total_steps" not in dict(run.stated_by)


def _with_its_steps(
    log: LogFile, run: FoundRun, rule: Rule, content: logs.Log, digest: str, entry: Model
) -> tuple[logs.Log, str, Rule]:
    """The content and the rule of a log that does not state how many steps it has: as many as it
    shows. Its first line has the start of the program, so it is warm-up."""
    if any(header.total_steps is not None for header in content.headers):
        return content, digest, rule
    content, digest = _content(log, run, None)
    steps = content.columns.steps
    if log.form.marker and len(steps) < MOST_READ * content.marked:
        raise UserError(
            "most lines with a rate cannot be read",
            where=str(log.path),
            expected=f"lines like {log.form.sample.expandtabs(4)}",
            found=f"{content.marked} with {log.form.marker.decode()!r}, {len(steps)} of them whole",
            hint="was the log wrapped or changed?",
        )
    shift = counts_from_zero(log.form, steps)
    total = steps[-1] + shift if steps else rule.total_steps
    warmup = rule.warmup_steps
    if "warmup_steps" not in dict(run.stated_by) and warmup:
        warmup = max(entry.workload.rule.warmup_of(total), steps[0] + shift if steps else 0)
    if warmup and warmup >= total:
        raise UserError(
            "the log has one line with a rate, that of the start",
            where=str(log.path),
            expected="at least two",
            found=f"step {total}",
            hint="is the log whole? state what counts with --total-steps and --warmup-steps",
        )
    return content, digest, entry.rule_of(total, warmup)


def _content(log: LogFile, run: FoundRun, rule: Rule | None) -> tuple[logs.Log, str]:
    """The content of a log as far as the rule needs it, or all of it, and its SHA-256."""
    # Every process of the run prints each step at most once.
    most = None
    if rule is not None:
        most = (rule.total_steps + rule.surplus_steps + 1) * run.topology.world_size
    digest, last = hashlib.sha256(), deque[bytes](maxlen=2)
    with log.errors():
        content = logs.parse(log.form, _digested(log.pieces(), digest, last), most, run.rank)
    other = logs.other_at_end(log.form, b"".join(last))
    if other is not None:
        raise _of_two_programs(log, other)
    return content, digest.hexdigest()


def _of_two_programs(log: LogFile, other: logs.Format) -> UserError:
    own, others = (logs.line_of(form, log.pieces(), 0) for form in (log.form, other))
    return UserError(
        "two programs wrote into this log",
        where=f"{log.path}:{others}",
        expected=f"rates of {log.form.name} only, as in line {own}",
        found=f"a rate of {other.name}",
        hint="save the output of each program in its own file",
    )


def _line_of(log: LogFile, rank: str | None, index: int) -> int:
    return logs.line_of(log.form, log.pieces(), index, rank)


def _digested(pieces: Iterable[bytes], digest: Any, last: deque[bytes]) -> Iterator[bytes]:
    """The pieces, which are added to the digest and to the last pieces."""
    for piece in pieces:
        digest.update(piece)
        last.append(piece)
        yield piece


def _steadiness(series: Sequence[RunSeries]) -> Iterator[tuple[Measurement, ...]]:
    """The measurements of the steadiness of each run. Runs with the same steps are judged at once,
    which is much faster."""
    window = attrgetter("steps", "warmup_steps", "total_steps")
    together = grouped(range(len(series)), lambda index: window(series[index]))
    found: dict[int, tuple[Measurement, ...]] = {}
    for indices in together.values():
        one = series[indices[0]]
        rates = [series[index].samples_per_second for index in indices]
        judged = steadiness(one.steps, rates, one.warmup_steps, one.total_steps)
        for index, run in zip(indices, judged, strict=True):
            found[index] = tuple(measurements(run)) if run else ()
    return (found[index] for index in range(len(series)))
