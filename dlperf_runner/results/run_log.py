"""Read the log of one run: its measurements, or the reason why the log fails validation. Arguments
and results are picklable, so that processes can read logs in parallel."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from .. import logs
from ..catalog.rule import Rule
from ..catalog.validity import catalogued_rules
from ..core.errors import UserError
from ..logs.columns import take
from ..logs.records import Columns
from ..measure.by_column import measure_whole
from ..measure.by_line import measure
from ..measure.estimators import Expected, Measured, Measurement, world_scale
from ..measure.steady_state import measurements, steadiness
from .discovery import Place, Skipped, run_at
from .log_file import Log
from .run_record import FoundRun, Known
from .validity import VALID, Verdict, judge


@dataclass(frozen=True)
class RunSeries:
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


@dataclass(frozen=True)
class Reading:
    """The result of reading a log: `measured` and the SHA-256 of the log, or the `problem`; and the
    verdict of the validity rules. `run` is None if the run cannot be identified."""

    run: FoundRun | None
    measured: Measured | None = None
    log_sha256: str | None = None
    problem: UserError | None = None
    series: RunSeries | None = None
    verdict: Verdict = VALID


def read(place: Place, known: Sequence[Known], with_series: bool = False) -> Reading | Skipped:
    """Find and measure the run at a place; Skipped if the file is not a benchmark log."""
    try:
        found = run_at(place, known)
    except UserError as error:
        return Reading(None, problem=error)
    return found if isinstance(found, Skipped) else read_run(*found, with_series)


def read_run(run: FoundRun, log: Log, with_series: bool = False) -> Reading:
    """Measure the log of a run, if it has one."""
    if run.why_not is not None:
        return Reading(run)
    try:
        measured, columns, digest = _measured(run, log)
    except UserError as error:
        return Reading(run, problem=error)
    series = _series(run, columns)
    measured = replace(measured, measurements=(*measured.measurements, *_steadiness(series)))
    verdict = judge(run, columns.steps, columns.losses, run.rules or catalogued_rules())
    return Reading(run, measured, digest, series=series if with_series else None, verdict=verdict)


def _steadiness(series: RunSeries | None) -> Iterator[Measurement]:
    found = series and steadiness(
        *(series.steps, series.samples_per_second, series.warmup_steps, series.total_steps)
    )
    return measurements(found) if found else iter(())


def _measured(run: FoundRun, log: Log) -> tuple[Measured, Columns, str]:
    name = str(log.path)
    if log.form.name != run.log_format:
        raise UserError(
            "the log format is not that of the workload",
            where=name,
            expected=run.log_format,
            found=log.form.name,
        )
    if run.rule is None:
        raise UserError("the workload is not in the catalogue", where=name, found=run.workload)
    expected = Expected(run.expected_by, run.topology, run.precision, run.batch_size_per_device)
    if log.data is not None and (taken := take(log.form, log.data)) is not None:
        whole = measure_whole(log.form, *taken, run.rule, expected, name)
        if whole is not None:
            return whole, taken[1], hashlib.sha256(log.data).hexdigest()
    digest = hashlib.sha256()
    with log.stream() as stream:
        lines = logs.candidates(log.form, _Tee(stream, digest))
        by_line = measure(log.form, log.form.parse(lines), run.rule, expected, name)
    return *by_line, digest.hexdigest()


def _series(run: FoundRun, found: Columns) -> RunSeries | None:
    if run.rule is None:
        return None
    rates, scale = found.samples_per_second, world_scale(run.rule, run.topology)
    return RunSeries(
        run,
        steps=tuple(found.steps),
        samples_per_second=tuple(rates if scale == 1 else [rate * scale for rate in rates]),
        unix_times=tuple(found.unix_times),
        losses=tuple(found.losses),
        warmup_steps=_last_left_out(run.rule, found.steps),
        total_steps=run.rule.total_steps,
    )


def _last_left_out(rule: Rule, steps: Sequence[int]) -> int:
    """The last step before the measured window: the end of the warm-up, or the step of the last
    rate that the rule drops after it."""
    if not rule.drop_first_values:
        return rule.warmup_steps
    after_warmup = [step for step in steps if step > rule.warmup_steps]
    return max([rule.warmup_steps, *after_warmup[: rule.drop_first_values]])


@dataclass
class _Tee:
    """A file that updates a digest with every byte that is read."""

    file: io.BufferedReader | io.BytesIO
    digest: Any

    def readinto(self, buffer: memoryview, /) -> int | None:
        size = self.file.readinto(buffer)
        self.digest.update(buffer[:size])
        return size
