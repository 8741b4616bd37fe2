"""One run's log, read: what it came to, or why it cannot be believed. Picklable both ways, so that
many are read at once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from io import FileIO
from typing import Any

from . import logs
from .errors import UserError
from .found import format_of, open_log
from .logs.records import Step
from .measure import Expected, Measured, Measurement, measure, world_scale
from .recorded import FoundRun
from .steady import measurements, steadiness
from .validity import VALID, Verdict, catalogued_rules, judge


@dataclass(frozen=True)
class RunSeries:
    """Speed over the iterations of one run, of all lines that count, warm-up included.

    All tuples are as long as the log has such lines. `samples_per_second` is of the world;
    `unix_times` (s) and `losses` are None where the log does not say.
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
    is a measurement by the rules of validity."""

    run: FoundRun
    measured: Measured | None = None
    log_sha256: str | None = None
    problem: UserError | None = None
    series: RunSeries | None = None
    verdict: Verdict = VALID


def read_run(run: FoundRun, with_series: bool = False) -> Reading:
    """Read and measure the log of a run that has one."""
    steps: list[Step] = []
    try:
        measured, digest = _measured(run, steps)
    except UserError as error:
        return Reading(run, problem=error)
    series = _series(run, steps)
    measured = replace(measured, measurements=(*measured.measurements, *_steadiness(series)))
    losses = [step.loss for step in steps]
    verdict = judge(run, [step.step for step in steps], losses, run.rules or catalogued_rules())
    return Reading(run, measured, digest, series=series if with_series else None, verdict=verdict)


def _steadiness(series: RunSeries | None) -> Iterator[Measurement]:
    found = series and steadiness(
        *(series.steps, series.samples_per_second, series.warmup_steps, series.total_steps)
    )
    return measurements(found) if found else iter(())


def _measured(run: FoundRun, steps: list[Step]) -> tuple[Measured, str]:
    name = str(run.path)
    # Of a log that no plan names, the format was found by looking into it.
    planned = run.expected_by == "the plan"
    form = format_of(run.path) if planned else logs.formats()[run.log_format]
    if form.name != run.log_format:
        raise UserError(
            "the log is of another format than its workload's",
            where=name,
            expected=run.log_format,
            found=form.name,
        )
    if run.rule is None:
        raise UserError("the workload is not in the catalogue", where=name, found=run.workload)
    expected = Expected(run.expected_by, run.topology, run.precision, run.batch_size_per_device)
    digest = hashlib.sha256()
    with open_log(run.path) as file:
        records = form.parse(logs.candidates(form, _Tee(file, digest)))
        return measure(form, records, run.rule, expected, name, steps), digest.hexdigest()


def _series(run: FoundRun, steps: list[Step]) -> RunSeries | None:
    if run.rule is None:
        return None
    scale = world_scale(run.rule, run.topology)
    return RunSeries(
        run,
        steps=tuple(step.step for step in steps),
        samples_per_second=tuple(step.samples_per_second * scale for step in steps),
        unix_times=tuple(step.unix_time for step in steps),
        losses=tuple(step.loss for step in steps),
        warmup_steps=run.rule.warmup_steps,
        total_steps=run.rule.total_steps,
    )


@dataclass
class _Tee:
    """A file whose bytes are digested as they are read."""

    file: FileIO
    digest: Any

    def readinto(self, buffer: memoryview, /) -> int | None:
        size = self.file.readinto(buffer)
        self.digest.update(buffer[:size])
        return size
