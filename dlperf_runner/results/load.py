"""Load the results of logs: the long frame, the excluded runs and skipped files with their reasons,
and on request the throughput over the iterations of each run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import Any

from .. import logs
from ..campaign.directory import kept_by
from ..catalog.validity import catalogued_rules
from ..catalog.workload import Model
from ..core.errors import UserError
from ..core.frame import GPU_MEMORY, SAMPLES_PER_SECOND, Frame, make_frame
from ..core.identity import CASE, label
from ..core.lists import counted, grouped, shortened
from ..core.printable import printable, printable_lines
from ..core.processors import processors
from ..core.units import per_second
from ..measure.estimators import Measured
from .archives import scratch_of
from .discovery import Place, Scratch, Skipped, find, holds_logs
from .log_file import HINT_OF_FORMATS, NO_RATE
from .repeats import about_copies, about_lengths, about_names, about_starts, told_apart
from .run_log import Reading, RunSeries, read_all
from .run_record import NOT_RUN, FoundRun
from .statement import Statements, checked

Progress = Callable[[Iterable[Reading | Skipped], int], Iterable[Reading | Skipped]]

# Several processes share the caches, so together they need a third more processor time. Below both
# limits, they would save half a second or less.
MANY_BYTES = 512 * 2**20
MANY_LOGS = 5000
AT_ONCE = 200  # logs that a process reads before it returns them


@dataclass
class Results:
    """`frame` has a row per run and metric. `runs` are all runs that were found;
    `counted` are those whose logs passed validation and that satisfy the validity rules. `skipped`
    are files that were not read as logs. `series` is empty unless it was requested. `directory` is
    the first source. `models` are those of the catalogue with which the logs were read."""

    directory: Path
    models: Sequence[Model] = ()
    frame: Frame = field(init=False)
    runs: list[FoundRun] = field(default_factory=list)
    counted: list[FoundRun] = field(default_factory=list)
    problems: list[UserError] = field(default_factory=list)
    skipped: list[Skipped] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unconfirmed: dict[tuple[str, str], int] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)  # by what only copies have in common
    not_judged: dict[str, int] = field(default_factory=dict)  # number of runs by validity rule
    series: list[RunSeries] = field(default_factory=list)
    invalid: dict[Path, str] = field(default_factory=dict)  # by log: why a done run does not count
    missing: list[str] = field(default_factory=list)  # planned runs without a record
    without_loss: int = 0  # counted runs whose logs print no loss

    @property
    def is_incomplete(self) -> bool:
        """True if a run failed, is missing or is invalid."""
        copies = sum(run.copy_of is not None for run in self.runs)
        return bool(self.missing) or len(self.counted) < len(self.runs) - copies

    @property
    def not_counted(self) -> dict[Path, str]:
        """The reason by log, of runs that have ended but do not count. Two runs of a campaign with
        the same log, whatever their records say, are one that was copied."""
        ended = [run for run in self.runs if run.why_not != NOT_RUN]
        reasons = {run.path: run.why_not for run in ended if run.why_not}
        copies = [run for run in ended if run.copy_of and run.expected_by == "the plan"]
        return reasons | {run.path: f"a copy of {run.copy_of}" for run in copies} | self.invalid

    @cached_property
    def _above(self) -> re.Pattern[str]:
        return re.compile(rf"(?<![\w./-]){re.escape(str(self.directory))}/")

    def relative(self, text: object) -> str:
        """A text with paths below the directory, so that it is the same wherever that lies."""
        return self._above.sub("", str(text)) if self.directory.parts else str(text)


def load_results(
    source: Path | Sequence[Path],
    models: Sequence[Model] | None = None,
    *,
    statements: Statements | None = None,
    with_series: bool = False,
    recorded: Collection[str] | None = None,
    jobs: int | None = None,
    progress: Progress | None = None,
    scratch: Scratch | None = None,
    with_others: bool = False,
) -> Results:
    """Read a campaign, or all logs in directories and files. `models`: those of the catalogue to
    use, by default all. `recorded`: the only files of a campaign whose runs, logs and telemetry
    count. `jobs`: the number of processes, by default as many as save time. `progress` gets the
    readings and their number, and yields the readings unchanged. `scratch` gives the directory for
    members of archives, by default one that is removed at the end. `with_others`: the caller shows
    results of other kinds than training runs; else there must be runs.

    Raises UserError if there is nothing to read. Errors of single logs are in `problems` of the
    result.
    """
    sources = [source] if isinstance(source, Path) else list(source)
    models = catalogued(sources) if models is None else models
    statements = checked(statements or Statements(), sources)
    with ExitStack() as stack:
        discovered = find(sources, statements, recorded, scratch or scratch_of(stack))
        readings = stack.enter_context(_readings(discovered.places, models, with_series, jobs))
        read_logs = [*(progress(readings, len(discovered.places)) if progress else readings)]
    results = Results(sources[0], models, problems=discovered.problems, skipped=discovered.skipped)
    results.missing += discovered.missing
    results.skipped += [reading for reading in read_logs if isinstance(reading, Skipped)]
    of_runs = [reading for reading in read_logs if not isinstance(reading, Skipped)]
    apart = told_apart(of_runs, _root(sources))
    results.frame = _frame(apart, results)
    _check_not_empty(results, sources, with_others=with_others)
    results.notes += dict.fromkeys(note for run in results.counted for note in run.assumed)
    results.notes += [*about_copies(apart), *about_names(results.counted)]
    results.notes += [*about_lengths(results.counted), *about_starts(results.counted)]
    results.notes += _about_validity(results)
    if not_run := [f"{run} r{run.repeat}" for run in results.runs if run.why_not == NOT_RUN]:
        results.notes.append(f"not counted, because they were not run: {shortened(not_run)}")
    results.notes += [f"not counted: {run} has no record" for run in results.missing]
    results.notes += _about_skipped(results)
    results.notes += [
        f"{statements.file}: no log has a path like {pattern}"
        for pattern in discovered.unused_patterns
    ]
    results.notes = [printable(note) for note in results.notes]
    return results


def _check_not_empty(results: Results, sources: Sequence[Path], *, with_others: bool) -> None:
    """Raise UserError if there is nothing. What is known of the files that were not read becomes
    problems if nothing else is there."""
    others = [file for file in results.skipped if file.view]
    if not with_others:
        results.problems += [file.error for file in others if file.error]
    if not (results.runs or results.problems or results.missing):
        unread = [file for file in results.skipped if file.view is None]
        results.problems += [file.error for file in unread if file.error]
    if results.runs or results.problems or results.missing or (others and with_others):
        return
    names = (
        "a campaign, or logs named like bz128/4n8g/rn50_b128_fp32_1.log or tf_gpu8_amp_bs256.txt"
    )
    raise UserError(
        "; ".join(("no logs found", *_about_skipped(results))),
        where=", ".join(map(str, sources)),
        expected=None if any(file.reason == NO_RATE for file in results.skipped) else names,
        hint="other names are read if the command, or a pattern in mapping.yml, names the file\n"
        + HINT_OF_FORMATS,
    )


def _root(sources: Sequence[Path]) -> Path:
    directories = {source if holds_logs(source) else source.parent for source in sources}
    try:
        return Path(os.path.commonpath(directories))
    except ValueError:  # relative and absolute paths
        return Path()


def _about_skipped(results: Results) -> Iterator[str]:
    round_of_mlperf = any(file.view == "mlperf" for file in results.skipped)
    skipped = [file for file in results.skipped if not (round_of_mlperf and _describes(file.path))]
    for reason, files in grouped(skipped, attrgetter("reason")).items():
        above, paths = results.directory, [file.path for file in files]
        shown = [str(p.relative_to(above) if p.is_relative_to(above) else p) for p in paths]
        yield f"{reason if files[0].view else f'not read ({reason})'}: {shortened(shown)}"


def _describes(path: Path) -> bool:
    """True if a file describes a system or a result in a round of MLPerf."""
    is_system = path.parent.name == "systems" and path.suffix == ".json"
    return is_system or path.name == "scaling.json"


def _about_validity(results: Results) -> Iterator[str]:
    """Notes on the validity rules: where they come from, and which ones had no data."""
    planned = [run for run in results.runs if run.expected_by == "the plan"]
    if planned and all(run.rules is None for run in planned):
        yield "the campaign recorded no validity rules; the rules of the catalogue were applied"
    if results.without_loss:
        number = len(results.counted)
        yield f"loss not checked: {results.without_loss} of {number} logs print none"
    if results.not_judged:
        rules = (f"{rule} ({counted(n, 'run')})" for rule, n in results.not_judged.items())
        yield f"no data to check {', '.join(rules)}"


def catalogued(sources: Iterable[Path] = ()) -> list[Model]:
    """The models of the catalogue, and those that campaigns among the sources keep."""
    from ..catalog.reader import own_workloads

    workloads = own_workloads(kept_by(sources)).values()
    return [model for workload in workloads for model in workload.models]


@contextmanager
def _readings(
    places: Sequence[Place], models: Sequence[Model], with_series: bool, jobs: int | None
) -> Iterator[Iterator[Reading | Skipped]]:
    """The reading of each place, in order; other processes help if that saves time."""
    # Load now what all readings need: workers inherit it. It loads 15 ms faster from here than from
    # where it is used first, because fewer functions are active.
    from ..core.arrays import np  # noqa: F401

    if jobs is None:
        few = len(places) < MANY_LOGS and sum(place.size() for place in places) < MANY_BYTES
        jobs = 1 if few else processors()
    size = max(1, min(AT_ONCE, len(places) // (4 * jobs)))
    parts = [places[start : start + size] for start in range(0, len(places), size)]
    read_part = partial(read_all, models=models, with_series=with_series)
    if jobs == 1 or len(parts) < 2:
        yield chain.from_iterable(map(read_part, parts))
        return
    from concurrent.futures import ProcessPoolExecutor

    logs.formats()
    catalogued_rules()
    pool = ProcessPoolExecutor(jobs)
    try:
        yield chain.from_iterable(pool.map(read_part, parts))
    finally:
        pool.shutdown(cancel_futures=True)


def _frame(readings: Iterable[Reading], results: Results) -> Frame:
    """The frame of the runs. Their notes and problems are added to the results."""
    runs: list[dict[str, Any]] = []
    metrics: list[tuple[Any, ...]] = []
    for reading in readings:
        run = reading.run
        if run is None:
            results.problems += [reading.problem] if reading.problem else []
            continue
        results.runs.append(run)
        measured, why = _counted(run, reading, results)
        confirmed = measured.confirmed if measured else None
        digest = reading.log_sha256 if measured or run.copy_of else None
        number = len(runs)
        runs.append(_columns_of(run, digest, why, _stated(run, confirmed)))
        if measured is None:
            unit = per_second(run.unit)
            metrics.append((number, SAMPLES_PER_SECOND, None, unit, None))
            continue
        metrics += [(number, *one) for one in measured.measurements]
        if (peak := run.gpu_memory_mib) is not None:
            metrics.append((number, GPU_MEMORY, peak, "MiB", "max_of_samples"))
    return make_frame(runs, metrics)


def _counted(
    run: FoundRun, reading: Reading, results: Results
) -> tuple[Measured | None, str | None]:
    """The measurements of a run that has some, and why it does not count."""
    measured = reading.measured
    if run.why_not == NOT_RUN:
        return None, run.why_not
    if run.why_not is not None:
        results.notes.append(f"not counted: {run} r{run.repeat}: {run.why_not}")
        return None, run.why_not
    if run.copy_of is not None:
        return None, f"a copy of {run.copy_of}"
    if measured is None or reading.log_sha256 is None:
        problem = reading.problem or UserError("the log was not read", where=str(run.path))
        results.problems.append(problem)
        results.invalid[run.path] = results.relative(problem)
        return None, results.invalid[run.path]
    why = "; ".join(reading.verdict.reasons) or None
    if why is None:
        results.counted.append(run)
        results.notes += measured.notes
        results.without_loss += "loss_first" not in [m.metric for m in measured.measurements]
        stated = {"world size", *(["batch size"] if run.batch_size_per_device is not None else [])}
        sources = [(what, run.source_of(what)) for what in stated - measured.confirmed]
        sources += [item for item in run.asserted if item[0] == "accelerator"]
        for key in sources:
            results.unconfirmed[key] = results.unconfirmed.get(key, 0) + 1
    else:
        results.invalid[run.path] = why
        results.notes.append(f"not counted: {run} r{run.repeat}: {why}")
    results.notes += [f"{run} r{run.repeat}: {remark}" for remark in reading.verdict.remarks]
    for rule in reading.verdict.not_judged:
        results.not_judged[rule] = results.not_judged.get(rule, 0) + 1
    if reading.series is not None:
        results.series.append(reading.series)
    results.logs |= dict.fromkeys(reading.contents, results.relative(run.path))
    return measured, why


def _stated(run: FoundRun, confirmed: Collection[str] | None) -> str | None:
    """The settings of a run that its log does not confirm, each with its source: `topology (the
    directory name), accelerator (--accelerator)`. None if there are none, or if its log was not
    measured."""
    if confirmed is None:
        return None
    in_log = {
        "batch size per device": "batch size" in confirmed
        or {"global batch size", "world size"} <= {*confirmed},
        "topology": "world size" in confirmed
        and ("number of nodes" in confirmed or run.topology.world_size == 1),
        "model": "network" in confirmed,
        "precision": "precision" in confirmed,
        "total steps": "number of steps" in confirmed,
        "warmup steps": "number of warm-up steps" in confirmed,
    }
    texts = [f"{label(name)} ({by})" for name, by in run.asserted if not in_log.get(label(name))]
    return printable(", ".join(texts)) or None


def _columns_of(
    run: FoundRun, digest: str | None, why: str | None, stated: str | None
) -> dict[str, Any]:
    return {
        **dict(zip(CASE, run.case, strict=True)),
        "global_batch_size": run.global_batch_size,
        "repeat": run.repeat,
        "log_sha256": digest,
        "valid": why is None,
        "why_invalid": why and printable_lines(why),
        "stated": stated,
    }
