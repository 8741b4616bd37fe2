"""A round of MLPerf Training as MLCommons publishes it, or a part of one.

<submitter>/results/<system>/<benchmark>/result_<n>.txt   the logs of a result
<submitter>/results/<system>/<benchmark>/scaling.json     a factor from the review, if there is one
<submitter>/systems/<system>.json                         nodes, accelerators, software
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from ..catalog.mlperf import Benchmark, benchmarks
from ..core.errors import UserError
from ..core.files import read_json
from ..core.processors import processors
from ..logs import mllog
from ..measure.mlperf import SUCCESS, MlperfRun, measure_run, olympic_mean
from .log_file import LogFile

_MANY = 32  # logs from which several processes save time


@dataclass(frozen=True)
class MlperfResult:
    """The runs of a benchmark on a system. `time_to_train_min` is MLPerf's score, None without
    enough successful runs. Rates and step times are medians over the runs; rates are those of all
    devices."""

    submitter: str
    system: str
    benchmark: str
    nodes: int | None
    accelerators_per_node: int | None
    accelerator: str | None
    framework: str | None
    global_batch_size: int | None
    runs: int
    failed: int
    runs_needed: int | None
    time_to_train_min: float | None
    scaling_factor: float
    estimator: str | None
    samples_per_second: float | None
    tokens_per_second: float | None
    tokens_per_second_per_device: float | None
    step_time_median_s: float | None
    step_time_p99_s: float | None


@dataclass
class Round:
    """All results, in order of their folders; what is wrong with single logs; and notes
    on runs that did not reach their target."""

    results: list[MlperfResult] = field(default_factory=list)
    problems: list[UserError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_round(directory: Path, jobs: int | None = None) -> Round:
    """Read all logs below a directory with so many processes. Raises UserError if there are
    none."""
    paths = sorted(directory.resolve().rglob("result_*.txt"))
    if not paths:
        raise UserError(
            "no MLPerf results found",
            where=str(directory),
            expected="<submitter>/results/<system>/<benchmark>/result_<n>.txt",
        )
    folders: dict[Path, list[MlperfRun | UserError]] = {}
    for path, run in zip(paths, _read_all(paths, jobs), strict=True):
        folders.setdefault(path.parent, []).append(run)
    found = Round()
    for folder, runs in folders.items():
        ended = [run for run in runs if isinstance(run, MlperfRun)]
        good = [run for run in ended if run.status == SUCCESS]
        if len(good) < len(ended):
            failed = f"{len(ended) - len(good)} of {len(runs)} runs did not reach their target"
            found.notes.append(f"{folder.relative_to(directory.resolve())}: {failed}")
        found.problems += [run for run in runs if isinstance(run, UserError)]
        try:
            found.results.append(_result(folder, good, len(runs)))
        except UserError as error:
            found.problems.append(error)
    return found


def _read_all(paths: Sequence[Path], jobs: int | None) -> list[MlperfRun | UserError]:
    jobs = jobs or (processors() if len(paths) >= _MANY else 1)
    if jobs == 1:
        return [_read(path) for path in paths]
    with ProcessPoolExecutor(jobs) as pool:
        return list(pool.map(_read, paths, chunksize=8))


def _read(path: Path) -> MlperfRun | UserError:
    log = LogFile(path)
    try:
        with log.errors():
            content = mllog.read(log.pieces())
        run = measure_run(content, str(path))
        if run.benchmark != path.parent.name:
            raise UserError(
                "the log is of another benchmark than its folder",
                where=str(path),
                expected=path.parent.name,
                found=run.benchmark,
            )
        needed = benchmarks().get(run.benchmark, Benchmark(runs=1)).sequence_length
        if run.sequence_length not in (None, needed):
            raise UserError(
                "the sequence length is not that of the benchmark",
                where=str(path),
                expected=str(needed),
                found=str(run.sequence_length),
            )
    except UserError as error:
        return error
    return run


def _result(folder: Path, good: Sequence[MlperfRun], runs: int) -> MlperfResult:
    system, results = folder.parent.name, folder.parent.parent
    if results.name != "results":
        raise UserError(
            "the logs are not laid out as MLCommons publishes them",
            where=str(folder),
            expected="<submitter>/results/<system>/<benchmark>/result_<n>.txt",
        )
    described = _system(results.parent / "systems" / f"{system}.json")
    rules = benchmarks().get(folder.name)
    failed = runs - len(good)
    scale = _scaling(folder / "scaling.json")
    times = [run.time_to_train_s / 60 for run in good]
    score = None
    if rules is not None and runs >= rules.runs:
        score = olympic_mean(times, failed, rules.dropped)
    # The best estimator that all runs have.
    names = [*good[0].samples_per_second] if good else []
    estimator = next((n for n in names if all(n in run.samples_per_second for run in good)), None)
    rate = _median([run.samples_per_second[estimator] for run in good]) if estimator else None
    length = rules.sequence_length if rules else None
    tokens = rate * length if rate is not None and length is not None else None
    nodes, devices = (
        _count(described, key) for key in ("number_of_nodes", "accelerators_per_node")
    )
    batches = {run.global_batch_size for run in good}
    return MlperfResult(
        submitter=results.parent.name,
        system=system,
        benchmark=folder.name,
        nodes=nodes,
        accelerators_per_node=devices,
        accelerator=_text(described, "accelerator_model_name"),
        framework=_text(described, "framework"),
        global_batch_size=batches.pop() if len(batches) == 1 else None,
        runs=len(good),
        failed=failed,
        runs_needed=rules.runs if rules else None,
        time_to_train_min=None if score is None else score * scale,
        scaling_factor=scale,
        estimator=estimator,
        samples_per_second=rate,
        tokens_per_second=tokens,
        tokens_per_second_per_device=tokens / (nodes * devices)
        if tokens is not None and nodes and devices
        else None,
        step_time_median_s=_median([run.step_times.get("median") for run in good]),
        step_time_p99_s=_median([run.step_times.get("p99") for run in good]),
    )


def _median(values: Sequence[float | None]) -> float | None:
    """None if a run does not have the value."""
    known = [value for value in values if value is not None]
    return median(known) if known and len(known) == len(values) else None


def _system(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UserError("the system is not described", where=str(path), expected="a JSON object")
    return read_json(path)


def _scaling(path: Path) -> float:
    if not path.is_file():
        return 1.0
    factor: Any = read_json(path).get("scaling_factor")
    if type(factor) not in (int, float) or not 0 < factor < 100:
        problem, expected = "invalid scaling factor", "a number above 0"
        raise UserError(problem, where=str(path), expected=expected, found=str(factor))
    return float(factor)


def _count(described: dict[str, Any], key: str) -> int | None:
    """A count, which descriptions write as a number or as text."""
    value = str(described.get(key, "")).strip()
    return int(value) if value.isascii() and value.isdigit() and 0 < len(value) < 9 else None


def _text(described: dict[str, Any], key: str) -> str | None:
    return str(described[key]).strip() or None if key in described else None
