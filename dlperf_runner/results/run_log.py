"""One run's log, read: what it came to, or why it cannot be believed. Picklable both ways, so that
many are read at once."""

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
from .discovery import Place, run_at
from .log_file import Log
from .run_record import FoundRun, Known
from .validity import VALID, Verdict, judge


@dataclass(frozen=True)
class RunSeries:
    """Speed over the iterations of one run, of all lines that count, warm-up included.

    All tuples are as long as the log has such lines. `samples_per_second` is of the world;
    `unix_times` (s) and `losses` are None where the log does not say. Measured is what comes
    behind `warmup_steps`, up to `total_steps`.
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
    """What a run's log came to: `measured` and the log's SHA-256, or the `problem`; and whether it
    is a measurement by the rules of validity. `run` is None where it cannot be told what ran."""

    run: FoundRun | None
    measured: Measured | None = None
    log_sha256: str | None = None
    problem: UserError | None = None
    series: RunSeries | None = None
    verdict: Verdict = VALID


def read(place: Place, known: Sequence[Known], with_series: bool = False) -> Reading | None:
    """Find and measure the run at a place; None for a file that is no log of a benchmark."""
    try:
        found = run_at(place, known)
    except UserError as error:
        return Reading(None, problem=error)
    return found and read_run(*found, with_series)


def read_run(run: FoundRun, log: Log, with_series: bool = False) -> Reading:
    """Measure the log of a run, where it has one."""
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
            "the log is of another format than its workload's",
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
    """The last step before the window: that of the last rate that the rule drops behind the
    warm-up, where it drops any."""
    if not rule.drop_first_values:
        return rule.warmup_steps
    behind = [step for step in steps if step > rule.warmup_steps]
    return max([rule.warmup_steps, *behind[: rule.drop_first_values]])


@dataclass
class _Tee:
    """A file whose bytes are digested as they are read."""

    file: io.BufferedReader | io.BytesIO
    digest: Any

    def readinto(self, buffer: memoryview, /) -> int | None:
        size = self.file.readinto(buffer)
        self.digest.update(buffer[:size])
        return size
