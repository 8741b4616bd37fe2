"""Read the log of one run: its measurements, or the reason why the log fails validation. Arguments
and results are picklable, so that processes can read logs in parallel."""

from __future__ import annotations

import csv
import hashlib
import math
import mmap
import re
import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from .. import logs
from ..catalog.accelerators import peak_of
from ..catalog.validity import catalogued_rules
from ..catalog.workload import Model, Rule, Transformer
from ..core.errors import UserError
from ..core.files import open_gzip, open_read, open_stored, stored
from ..core.frame import LOG_TFLOPS
from ..core.identity import precision_of_recipe, read_parameters
from ..core.lists import grouped
from ..core.units import SAMPLES, TOKENS, per_second
from ..measure.energy import energy, model_flops
from ..measure.estimators import Expected, Measured, Measurement, world_scale
from ..measure.numbering import LogLines, uncounted
from ..measure.run import measure
from ..measure.steady_state import measurements, steadiness
from ..measure.step_parts import network, of_all_reduce, of_ranks
from ..measure.validity import (
    VALID,
    Evidence,
    GpuProcess,
    HealthReport,
    Sample,
    Verdict,
    XidError,
    judge,
)
from .discovery import Place, Skipped, is_no_run, of_view, run_at
from .log_file import LogFile
from .log_head import check_network, check_parameters, stated_counts, with_options
from .named_run import Candidates, entry_of
from .run_record import FoundRun

_NET = b"NCCL INFO NET/"
LONGEST = 2**20  # bytes of a line that are read at once
# The columns of the telemetry that are used.
_COLUMNS = (
    *("unix_time", "utilization_percent", "sm_clock_mhz", "max_sm_clock_mhz", "throttle_reasons"),
    *("ecc_uncorrected", "power_w", "energy_j", "cpu_throttled_s"),
)


def evidence_of(run: FoundRun) -> Evidence:
    devices, nodes = _telemetry(run)
    of_all = Evidence(
        nodes=run.topology.nodes,
        other_processes=run.other_processes,
        unsampled=run.unsampled,
        of_nodes=nodes,
    )
    if not run.on_gpu:
        return of_all
    return replace(
        of_all,
        on_gpu=True,
        samples=devices,
        xids=_xids(run),
        health=list(_health(run)),
        gpu_processes=list(_gpu_processes(run)) or None,
        network=tuple(_net_lines(run.path)) if run.topology.nodes > 1 else (),
        nccl=dict(run.nccl),
    )


def _telemetry(
    run: FoundRun,
) -> tuple[dict[tuple[str, int], list[Sample]], dict[str, list[Sample]]]:
    devices: dict[tuple[str, int], list[Sample]] = {}
    nodes: dict[str, list[Sample]] = {}
    used = dict(run.devices)
    for host in dict.fromkeys((*used, *run.hosts)):
        for row in _rows(run, "telemetry", host):
            numbers = {
                name: n for name in _COLUMNS if (n := finite_number(row.get(name))) is not None
            }
            device = finite_number(row.get("device"))
            if row.get("device") == "":
                nodes.setdefault(host, []).append(numbers)
            elif device is not None and int(device) in used.get(host, ()):
                devices.setdefault((host, int(device)), []).append(numbers)
    return devices, nodes


def _xids(run: FoundRun) -> list[XidError] | None:
    """A kernel log without Xid errors gives a file without rows; an unreadable one gives no
    file."""
    paths = (_path(run, "xid", host) for host, _ in run.devices)
    if not any(run.has(path.name) and stored(path).is_file() for path in paths):
        return None
    return [
        XidError(
            host,
            finite_number(row.get("xid")),
            f"Xid {row.get('xid')} on {row.get('bus_id')}: {row.get('message')}",
        )
        for host, _ in run.devices
        for row in _rows(run, "xid", host)
    ]


def _health(run: FoundRun) -> Iterator[HealthReport]:
    """The reports of DCGM about the run's devices, which it numbers as the driver does, and about
    all else on its nodes."""
    for host, devices in run.devices:
        for row in _rows(run, "health", host):
            names = ("entity", "system", "health", "message")
            report = HealthReport(host, *(row.get(name, "") for name in names))
            kind, _, number = report.entity.partition(" ")
            if report.entity and (kind != "GPU" or finite_number(number) in devices):
                yield report


def _gpu_processes(run: FoundRun) -> Iterator[GpuProcess]:
    for host, devices in run.devices:
        for row in _rows(run, "processes", host):
            names = ("device", "pid", "uid", "run_uid", "age_s", "run_age_s")
            device, *numbers = (finite_number(row.get(name)) for name in names)
            values = [number for number in numbers if number is not None]
            if device in devices and len(values) == len(numbers):
                yield GpuProcess(host, int(device), *values)


def _path(run: FoundRun, kind: str, host: str) -> Path:
    # The name that module_utils/run_agent/telemetry.py gives it.
    return run.path.with_name(f"{kind}-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}.csv")


def _rows(run: FoundRun, kind: str, host: str) -> Iterator[dict[str, str]]:
    path = _path(run, kind, host)
    if run.has(path.name):
        yield from sampler_rows(path)


def sampler_rows(path: Path) -> Iterator[dict[str, str]]:
    """The readable rows of a sampler's file."""
    try:
        with open_stored(path) as file:
            lines = iter(partial(file.readline, LONGEST), b"")
            for row in csv.DictReader(line.decode(errors="replace") for line in lines):
                yield {k: v for k, v in row.items() if isinstance(k, str) and isinstance(v, str)}
    except (OSError, EOFError, zlib.error, csv.Error):
        return


def finite_number(text: str | None) -> float | None:
    """The number in a text such as 97, 287.51 or 0x0000000000000004; None for any other text."""
    with suppress(ValueError, OverflowError):
        value = float(int(text, 16) if text and text.startswith("0x") else text or "nan")
        return value if math.isfinite(value) else None
    return None


def _net_lines(path: Path) -> Iterable[str]:
    """The lines in which NCCL logs its network choice, found without decoding the other lines."""
    if path.suffix == ".gz":
        with suppress(OSError, EOFError, zlib.error), open_gzip(path) as packed:
            for line in iter(partial(packed.readline, LONGEST), b""):
                if (place := line.find(_NET)) >= 0:
                    yield line[place : place + 1000].decode("utf-8", "replace").rstrip("\n")
        return
    try:
        with open_read(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as log:
            place = log.find(_NET)
            while place >= 0:
                end = log.find(b"\n", place)
                end = len(log) if end < 0 else end
                yield log[place : min(end, place + 1000)].decode("utf-8", "replace")
                place = log.find(_NET, end)
    except (OSError, ValueError):  # the log is empty, or disappeared since it was read
        return


# No two runs print so many different rates in the same order.
_TELLING_RATES = 10
_DATED = 1e8  # s since 1970, which times without a date do not reach
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
        """The digests that only copies of the log have in common: of its bytes, and of its
        rates."""
        digests = {"SHA-256": self.log_sha256, "rates": self.rates}
        return tuple(f"{kind}:{digest}" for kind, digest in digests.items() if digest)


def read_all(
    places: Iterable[Place], models: Sequence[Model], with_series: bool = False
) -> list[Reading | Skipped]:
    """Find and measure the runs at some places; Skipped for each file that is no benchmark log."""
    candidates = Candidates(models)
    readings = [_reading(place, candidates) for place in places]
    of_runs = [reading for reading in readings if isinstance(reading, Reading)]
    judged = _steadiness([reading.series for reading in of_runs if reading.series])
    for reading in of_runs:
        if reading.measured and reading.series:
            reading.measured.measurements += next(judged)
            reading.series = reading.series if with_series else None
    return readings


def _reading(place: Place, candidates: Candidates) -> Reading | Skipped:
    try:
        located = run_at(place, candidates)
    except UserError as error:
        return Reading(None, problem=error)
    if isinstance(located, Skipped):
        return located
    run, log = located
    if run.why_not is not None:
        return Reading(run)
    try:
        return _measured(run, log, candidates.models)
    except UserError as error:
        if is_no_run(place, log, candidates.models):
            return of_view(place, "bandwidth", error)
        error.where = error.where or str(log.path)
        return Reading(run, problem=error)


def _measured(run: FoundRun, log: LogFile, models: Sequence[Model]) -> Reading:
    content, digest, run, rule, entry = _content(run, log, models)
    counts = stated_counts(run, content.headers)
    expected = Expected(
        run.source_of,
        run.topology,
        run.precision,
        run.batch_size_per_device,
        run.unit,
        counts.get("sequence_length"),
        1 if log.form.counts_batches else counts.get("accumulation_steps", 1),
        log.form.batch_of_step,
        next((h.tokens_per_step for h in content.headers if h.tokens_per_step), None),
        run.first_step,
        run.log_every,
    )
    measured, counted, left_out = measure(
        log.form,
        content,
        rule,
        expected,
        LogLines(
            lambda index: logs.line_of(log.form, log.pieces(), index, run.rank),
            str(log.path),
            is_described=not log.form.marker,
        ),
        counts_pauses=entry is None or entry.is_published,
    )
    measured.notes += _about_accumulation(run, log, content.headers, counts)
    evidence = evidence_of(run)
    measured.measurements += (
        *of_ranks(content.headers, run.topology.world_size),
        *of_all_reduce(content.headers, run.topology.world_size),
        *network(evidence.network),
    )
    if entry is not None and entry.transformer is not None and expected.sequence_length is not None:
        measured.measurements += _model_flops(measured, run, entry.transformer, expected)
    rates, scale = counted.samples_per_second, world_scale(rule, expected)
    series = RunSeries(
        run,
        steps=tuple(counted.steps),
        samples_per_second=tuple(rates if scale == 1 else [rate * scale for rate in rates]),
        unix_times=tuple(counted.unix_times),
        losses=tuple(counted.losses),
        warmup_steps=left_out,
        total_steps=rule.total_steps,
        unit=per_second(expected.unit),
    )
    measured.measurements += _energy(evidence, series, measured, expected)
    rules = run.rules or catalogued_rules()
    stated = dict(pair for header in content.headers for pair in header.parameters)
    zero_loss = log.form.zero_loss if stated.get("data", "synthetic") == "synthetic" else None
    verdict = judge(evidence, counted.steps, counted.losses, rules, measured.skipped, zero_loss)
    return Reading(run, measured, digest, None, series, verdict, _digest(series))


def _content(
    run: FoundRun, log: LogFile, models: Sequence[Model]
) -> tuple[logs.Log, str, FoundRun, Rule, Model | None]:
    """The content of the log of a run as far as its rule needs it, the SHA-256 of that, the run
    with what the log states, its rule, and its model. Raises UserError if they contradict each
    other."""
    name, rule = str(log.path), run.rule
    if rule is None:
        raise UserError(
            "the workload is not in the catalogue",
            where=name,
            found=run.workload,
            hint="if it is your own, name its folder: dlperf --catalog DIR",
        )
    form = log.form
    if form.name != run.log_format:
        raise UserError(
            "the log format is not that of the workload",
            where=name,
            expected=run.log_format,
            found=form.name,
        )
    entry, is_planned = entry_of(run, form, models), run.expected_by == "the plan"
    of_user = entry is not None and entry.workload.log_pattern is not None
    is_stated = of_user or "total_steps" in dict(run.stated_by)
    # Neither a publication nor the user says how many steps the log has.
    has_its_steps = entry and not (is_planned or entry.is_published or is_stated)
    content, digest = log.read(None if has_its_steps else _most(run, rule), run.rank)
    if entry is not None:
        check_network(content.headers, run, entry, form)
        if is_planned:
            check_parameters(content.headers, run)
        else:
            run = with_options(run, content.headers, entry, form)
            rule = run.rule or rule
            if has_its_steps:
                rule = _rule_of_steps(log, run, rule, content, entry)
                run = run.but(rule=rule)
            else:
                content, digest = log.read(_most(run, rule), run.rank)
    if not is_planned and not of_user and form is not logs.formats().get(form.name):
        # A variant of the format may print other rates.
        rule = rule.model_copy(update={"rates_are_per": form.rates_are_per})
    return content, digest, run, rule, entry


def _about_accumulation(
    run: FoundRun, log: LogFile, headers: Iterable[logs.Header], counts: Mapping[str, int]
) -> tuple[str, ...]:
    """A note if the log counts each of the accumulated batches, so their number multiplies nothing.
    Raises UserError if the user states only the batch size of a step of such a log, or if nothing
    says whether that of a log of whole steps counts the batches that the user states."""
    number, stated_by = counts.get("accumulation_steps"), dict(run.stated_by)
    of_steps = log.form.batch_of_step and log.form.rates_are_per == "step"
    if number == 1 or not (of_steps or log.form.counts_batches):
        return ()
    of_all, by = stated_by.get("global_batch_size"), dict(run.asserted).get("batch_size_per_device")
    is_of_log = any(
        h.batch_size_per_device or (of_steps and (h.global_batch_size or h.tokens_per_step))
        for h in headers
    )
    is_unclear = of_all is None if number else by == of_all
    if of_steps:
        is_stated = "accumulation_steps" in stated_by
        is_unclear = (
            of_all is None and is_stated == bool(number) and (is_stated or log.form.accumulates)
        )
    if (of_steps or log.form.accumulates) and by and not is_of_log and is_unclear:
        raise _without_batch(run, log, by, number)
    if of_steps or "accumulation_steps" not in stated_by:
        return ()
    return (
        f"{log.path}: each step of a {log.form.name} log is one of the accumulated batches, so"
        f" accumulation_steps={number} multiplies no rate",
    )


def _without_batch(run: FoundRun, log: LogFile, by: str, number: int | None) -> UserError:
    """The error of a log whose batch may be one of those that a step accumulates. `number`: how
    many these are, if that is known; then `by` states the batch size per device."""
    expected = "the number of iterations in a step, besides the batch size"
    shown = f"the batch size, stated by {by}"
    hint = "state it with --accumulation-steps (1 without accumulation), or in mapping.yml"
    if number is not None and run.batch_size_per_device is not None:
        of_step = round(run.batch_size_per_device * run.topology.world_size)
        shown = f"{run.batch_size_per_device:g} per device, stated by {by}"
        expected = f"the samples of all devices in a step of {number} iterations"
        hint = (
            f"state them in place of the batch size per device: --global-batch-size"
            f" {of_step * number}, or {of_step} if {run.batch_size_per_device:g} is the batch size"
            " of a step"
        )
    what = "a step: that of a device may be" if log.form.batch_of_step else "an iteration: it is"
    return UserError(
        f"cannot determine the batch size of {what} one of the accumulated batches",
        where=str(log.path),
        expected=expected,
        found=shown,
        hint=hint,
    )


def _most(run: FoundRun, rule: Rule) -> int:
    """The most lines with a rate that can count: every process prints each step at most once."""
    return (rule.total_steps + rule.surplus_steps + 1) * run.topology.world_size


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
    length = expected.sequence_length or 0
    rate = measured.measurements[0].value / run.topology.world_size
    tokens = rate if expected.unit == TOKENS else rate * length
    # Part of the products keeps the precision of the model; the recipe's has the highest peak.
    recipe = read_parameters(run.parameters).get("recipe", "none")
    fastest = run.precision if recipe == "none" else precision_of_recipe(recipe)
    peak = peak_of(run.accelerator, fastest or "")
    printed = next((m.value for m in measured.measurements if m.metric == LOG_TFLOPS), None)
    return tuple(model_flops(tokens, transformer, length, peak, printed))


def _digest(series: RunSeries) -> str | None:
    """The SHA-256 of what only copies of a log have in common: many different rates, or the same
    time stamps beside them; None if another run may have the same."""
    telling = [*series.samples_per_second]
    if len(set(telling)) < _TELLING_RATES:
        telling += (time for time in series.unix_times if time and time > _DATED)
        is_telling = len(set(telling)) >= _TELLING_RATES
        telling += (loss for loss in series.losses if is_telling and loss is not None)
    if len(set(telling)) < _TELLING_RATES:
        return None
    return hashlib.sha256(array("d", telling).tobytes()).hexdigest()


def _rule_of_steps(
    log: LogFile, run: FoundRun, rule: Rule, content: logs.Log, entry: Model
) -> Rule:
    """The rule of a log that does not state how many steps it has: as many as it shows. Its first
    line has the start of the program, so it is warm-up."""
    if any(header.total_steps is not None for header in content.headers):
        return rule
    steps = content.columns.steps
    if log.form.marker and len(steps) < MOST_READ * content.marked:
        raise UserError(
            "most lines with a rate cannot be read",
            where=str(log.path),
            expected=f"lines like {log.form.sample.expandtabs(4)}",
            found=f"{content.marked} with {log.form.marker.decode()!r}, {len(steps)} of them whole",
            hint="was the log wrapped or changed?",
        )
    shift = uncounted(log.form, steps, run.first_step)
    total = steps[-1] + shift if steps else rule.total_steps
    warmup = rule.warmup_steps
    if "warmup_steps" not in dict(run.stated_by) and warmup:
        warmup = entry.workload.rule.warmup_of(total)
        warmup = max(warmup, _of_start(log.form, steps, shift, warmup))
    if warmup and warmup >= total:
        raise UserError(
            "the log has one line with a rate, that of the start",
            where=str(log.path),
            expected="at least two",
            found=f"step {total}",
            hint="is the log whole? state what counts with --total-steps and --warmup-steps",
        )
    return entry.rule_of(total, warmup)


def _of_start(form: logs.Format, steps: Sequence[int], shift: int, warmup: int) -> int:
    """The steps of the first line, which has those of the start; none if it begins behind the
    warm-up, as that of a resumed run."""
    first = steps[0] + shift if steps else 0
    every = next((step - steps[0] for step in steps if step > steps[0]), first)
    is_resumed = first > 2 * every and first - every >= warmup and not form.silent_warmup
    return 0 if is_resumed else first


def _steadiness(series: Sequence[RunSeries]) -> Iterator[tuple[Measurement, ...]]:
    """The measurements of the steadiness of each run. Runs with the same steps are judged at once,
    which is much faster."""
    window = attrgetter("steps", "warmup_steps", "total_steps")
    together = grouped(range(len(series)), lambda index: window(series[index]))
    by_index: dict[int, tuple[Measurement, ...]] = {}
    for indices in together.values():
        one = series[indices[0]]
        rates = [series[index].samples_per_second for index in indices]
        judged = steadiness(one.steps, rates, one.warmup_steps, one.total_steps)
        for index, run in zip(indices, judged, strict=True):
            by_index[index] = tuple(measurements(run)) if run else ()
    return (by_index[index] for index in range(len(series)))
