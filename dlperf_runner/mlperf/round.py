"""A round of MLPerf Training as MLCommons publishes it, or a part of one.

<submitter>/results/<system>/<benchmark>/result_<n>.txt   the logs of a result
<submitter>/results/<system>/strong/<benchmark>/result_<n>.txt   those of MLPerf HPC
<submitter>/results/<system>/result_<n>.txt               some of v0.7, of the logs' benchmark
<submitter>/results/<system>/<benchmark>/scaling.json     a factor from the review, if there is one
<submitter>/systems/<system>.json                         nodes, accelerators, software
"""

from __future__ import annotations

import functools
import math
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median
from types import MappingProxyType
from typing import Any, Literal

from ..catalog.entry import CATALOG, load_entry
from ..catalog.types import Count, Entry, Name
from ..core.errors import UserError
from ..core.files import read_json, readable_json
from ..core.lists import counted, shortened
from ..core.processors import processors
from ..logs import mllog
from ..logs.mllog import Interval, MlperfLog, block_samples
from ..logs.text import FASTEST
from ..measure.step_parts import PERCENTILES, percentile
from ..results.log_file import LogFile


class Benchmark(Entry):
    """The requirements of a result. `dropped`: as many of the slowest runs, and of the fastest, do
    not count. `sequence_length`: the tokens of a sample, None if it is not prescribed.
    `epoch_samples`: the samples of an epoch, of each data set that the benchmark has had.
    `epoch_num`: what the logs count by their epoch_num."""

    runs: Count
    dropped: Count = 1
    sequence_length: Count | None = None
    epoch_samples: tuple[Count, ...] = ()
    epoch_num: Literal["epochs", "samples", "tokens"] = "epochs"


class Mlperf(Entry):
    """All benchmarks by name."""

    name: Name
    benchmarks: dict[Name, Benchmark]


@functools.cache
def benchmarks() -> dict[str, Benchmark]:
    """The benchmarks by name."""
    return load_entry(CATALOG / "mlperf.yml", Mlperf).benchmarks


_FIRST_STEPS = 2  # printed step times that include compilation
# The first time after an evaluation can be that of a few calls: no step is so much faster.
_NO_STEP = 0.1
# By how much train_samples may differ from the data set: the rest of a batch, or long samples that
# were filtered out.
_NEAR = 0.02
# An epoch may begin just before run_start and end just after run_stop.
_LONGER = 1.002
SUCCESS = "success"
STRONG, WEAK = "strong", "weak"  # folders of MLPerf HPC


@dataclass(frozen=True)
class MlperfRun:
    """A run, which reached its target if its status is SUCCESS. `samples_per_second` by estimator,
    the best first: `blocks` counts training without evaluation, `epochs` and `whole_run` may
    include it. `step_times` (s) by percentile; empty if none is printed. `quality` is the last
    evaluation. `throughput_note`: how the samples of an epoch are known, if not as the log states
    them, or why they are not."""

    benchmark: str
    status: str
    global_batch_size: int | None
    started_ms: int
    time_to_train_s: float
    samples_per_second: dict[str, float]
    step_times: dict[str, float]
    evaluations: int
    quality: float | None
    sequence_length: int | None
    throughput_note: str | None


def measure_run(log: MlperfLog, name: str) -> MlperfRun:
    """The measurements of a log. Raises UserError if the log is not whole; `name` is that
    of the log."""
    start, stop = log.run_start_ms, log.run_stop_ms
    if start is None or stop is None:
        missing = "run_start" if start is None else "run_stop"
        raise UserError(
            f"the log has no {missing}",
            where=name,
            expected="run_start and run_stop",
            hint="truncated, or the run was stopped",
        )
    if log.benchmark is None or stop <= start:
        raise UserError(
            "the log does not say what ran",
            where=name,
            expected="submission_benchmark, and run_stop after run_start",
            found=f"{log.benchmark or 'no benchmark'}, {stop - start} ms",
        )
    run_s = (stop - start) / 1000
    for kind, parts in (("blocks", log.blocks), ("epochs", log.epochs)):
        # Where the evaluation is done afterwards, training goes on beyond the stop.
        if (
            seconds := _seconds([part for part in parts if part.start_ms < stop])
        ) > run_s * _LONGER:
            raise UserError(
                f"the {kind} last longer than the run",
                where=name,
                expected=f"at most {run_s:g} s, from run_start to run_stop",
                found=f"{seconds:g} s",
                hint="one of its clocks is wrong, or its lines are those of several runs",
            )
    rates, note = _rates(log, run_s)
    return MlperfRun(
        benchmark=log.benchmark,
        status=log.status or "unknown",
        global_batch_size=log.global_batch_size or log.train_batch_size,
        started_ms=start,
        time_to_train_s=run_s,
        samples_per_second={e: rate for e, rate in rates.items() if 0 < rate < FASTEST},
        step_times=_step_times(log.step_seconds[_FIRST_STEPS:]),
        evaluations=len(log.evaluations),
        quality=log.evaluations[-1] if log.evaluations else None,
        sequence_length=log.sequence_length,
        throughput_note="; ".join(filter(None, (log.gap, note))) or None,
    )


def _rates(log: MlperfLog, run_s: float) -> tuple[dict[str, float], str | None]:
    """The samples per second by each estimator for which the log has data, the best first, and the
    note on those that are not by blocks."""
    rates: dict[str, float] = {}
    seconds = _seconds(log.blocks)
    if seconds > 0 and (samples := block_samples(log)):
        rates["blocks"] = sum(samples) / seconds
    of_epochs, whole, note = _trained(log, benchmarks().get(str(log.benchmark), Benchmark(runs=1)))
    seconds = _seconds(log.epochs)
    if seconds > 0 and of_epochs is not None:
        rates["epochs"] = of_epochs / seconds
    if whole is not None:
        rates["whole_run"] = whole / run_s
    return rates, note


def _seconds(intervals: Sequence[Interval]) -> float:
    return sum(interval.stop_ms - interval.start_ms for interval in intervals) / 1000


def _trained(log: MlperfLog, benchmark: Benchmark) -> tuple[float | None, float | None, str | None]:
    """The samples trained in all epochs and in the whole run, None if unknown; and a note."""
    if benchmark.epoch_num == "epochs":
        size, note = _epoch(log, benchmark.epoch_samples)
        if size is None:
            return None, None, note
        whole = None if log.epochs_trained is None else log.epochs_trained * size
        return len(log.epochs) * size, whole, note
    per_sample, note = 1, None
    if benchmark.epoch_num == "tokens":
        per_sample = log.sequence_length or benchmark.sequence_length or 1
        note = f"epoch_num and train_samples count tokens, {per_sample} of a sample"
    stopped = log.epochs_evaluated if log.epochs_trained is None else log.epochs_trained
    counts = [log.epochs[-1].epoch_num if log.epochs else None, stopped]
    trained = [None if count is None else count / per_sample for count in counts]
    least = log.global_batch_size or 1
    # Some old logs count by it as its name says: 1 at the end of the only epoch.
    of_epochs, whole = (None if count is None or count < least else count for count in trained)
    if of_epochs is None and whole is None:
        note = f"the log does not state as epoch_num how many {benchmark.epoch_num} were trained"
    return of_epochs, whole, note


def _epoch(log: MlperfLog, sizes: Sequence[int]) -> tuple[int | None, str | None]:
    """The samples of an epoch. The log's train_samples, if they are near one of the sizes of the
    data set; that size, if so many batches are; else None with the reason."""
    if not sizes:
        return None, "the samples of an epoch of this benchmark are not known"
    batch = log.global_batch_size or 1
    (stated,) = log.train_samples if len(log.train_samples) == 1 else (0,)
    for size in sizes:
        if abs(stated - size) <= _NEAR * size:
            return stated, None
        if abs(stated * batch - size) <= _NEAR * size:
            return size, f"train_samples counts batches; an epoch is {size} samples"
    if not log.train_samples:
        return None, "train_samples, the samples of an epoch, is not stated"
    samples = " or ".join(map(str, sizes))
    shown = " and ".join(map(str, log.train_samples))
    return None, (
        f"train_samples is {shown}, which is neither the samples of an epoch ({samples})"
        f" nor its batches of {batch}"
    )


def _step_times(seconds: Sequence[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    ordered = [second for second in ordered if second > _NO_STEP * median(ordered)]
    return {n: percentile(ordered, p) for n, p in PERCENTILES.items()} if ordered else {}


def olympic_mean(values: Sequence[float], failed: int, dropped: int) -> float | None:
    """The mean without the `dropped` lowest and highest values. Runs that failed count as the
    highest. None if more of them failed, or if no value remains.

    Source: mlcommons/logging 7bbf792, result_summarizer.py, _compute_olympic_average.
    """
    if failed > dropped:
        return None
    kept = sorted(values)[dropped : len(values) - (dropped - failed)]
    return fmean(kept) if kept else None


_LINE = re.compile(r"\Aline \d+: ")  # another one in each log
_MANY = 32  # logs from which several processes save time


@dataclass(frozen=True)
class MlperfResult:
    """The runs of a benchmark on a system. `time_to_train_min` is MLPerf's score, None without
    enough successful runs, and with more than count. Rates and step times are medians over the
    runs; rates are those of all devices. `throughput_note` is that of the runs, if the estimator is
    not `blocks`."""

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
    throughput_note: str | None


@dataclass
class Round:
    """All results, in order of their folders; what is wrong with single logs; and notes
    on runs that did not reach their target."""

    results: list[MlperfResult] = field(default_factory=list)
    problems: list[UserError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def read_round(
    paths: Sequence[Path],
    root: Path,
    *,
    batch_size: int | None = None,
    consecutive: bool = False,
    contents: Mapping[Path, Path] = MappingProxyType({}),
) -> Round:
    """Read the logs at these paths, which notes name below `root`. Only runs with the `batch_size`
    count, if one is given. With `consecutive`, a result with more runs than it needs is that of the
    consecutive ones that are closest to the median. `contents`: where the bytes of members of
    archives are."""
    folders: dict[Path, dict[Path, MlperfRun | UserError]] = {}
    for path, run in zip(paths, _read_all(paths, contents), strict=True):
        if batch_size is None or isinstance(run, UserError) or run.global_batch_size == batch_size:
            folders.setdefault(path.parent, {})[path] = run
    mlperf_round = Round()
    for folder, logs in folders.items():
        runs, copies = _without_copies(logs)
        ended = [run for run in runs if isinstance(run, MlperfRun)]
        failed = sum(run.status != SUCCESS for run in ended)
        name = folder.relative_to(root) if folder.is_relative_to(root) else folder
        if _is_of_system(folder) and not ended:
            mlperf_round.problems += [run for run in runs if isinstance(run, UserError)]
            continue  # no log states the benchmark
        if failed:
            mlperf_round.notes.append(
                f"{name}: {failed} of {len(runs)} runs did not reach their target"
            )
        if why := _why_no_score(runs, benchmarks().get(_benchmark(folder, runs))):
            mlperf_round.notes.append(f"{name}: no time to train, because {why}")
        mlperf_round.problems += [run for run in runs if isinstance(run, UserError)] + copies
        try:
            _refuse_several(folder, logs)
            scored, excess = _scored(folder, runs, consecutive)
            result = _result(folder, scored, contents, is_scored=excess is None)
            mlperf_round.results.append(result)
            if (result.nodes, result.accelerator) == (None, None):
                place = _description(folder)
                lacks = "not described in" if _is_file(place, contents) else "unknown without"
                shown = f"{result.submitter}/systems/{result.system}.json"
                mlperf_round.notes.append(f"{name}: the devices are {lacks} {shown}")
        except UserError as error:
            excess = error
        mlperf_round.problems += [excess] if excess else []
    return mlperf_round


def _benchmark(folder: Path, runs: Iterable[MlperfRun | UserError]) -> str:
    """The benchmark of the logs in a folder: its name, or what they state if it is a system's."""
    stated = (run.benchmark for run in runs if isinstance(run, MlperfRun))
    return next(stated, folder.name) if _is_of_system(folder) else folder.name


def _is_of_system(folder: Path) -> bool:
    return folder.parent.name == "results"


def _refuse_other_layout(folder: Path) -> None:
    """Raise UserError if the logs of a folder are not laid out as a result with a time to train."""
    if folder.parent.name == WEAK:
        raise UserError(
            "weak scaling of MLPerf HPC has no time to train, but models per time",
            where=str(folder),
            expected="<submitter>/results/<system>/strong/<benchmark>/result_<n>.txt",
        )
    if _of_system(folder).parent.name != "results":
        raise UserError(
            "the logs are not laid out as MLCommons publishes them",
            where=str(folder),
            expected="<submitter>/results/<system>/<benchmark>/result_<n>.txt",
        )


def _of_system(folder: Path) -> Path:
    """The folder of the system in which a folder of logs is."""
    above = folder.parents[1] if folder.parent.name in (STRONG, WEAK) else folder.parent
    return folder if _is_of_system(folder) else above


def _description(folder: Path) -> Path:
    system = _of_system(folder)
    return system.parents[1] / "systems" / f"{system.name}.json"


def result_logs(directory: Path) -> list[Path]:
    """All result logs below a directory. Raises UserError if there are none."""
    paths = sorted(directory.resolve().rglob("result_*.txt"))
    if not paths:
        raise UserError(
            "no MLPerf results found",
            where=str(directory),
            expected="<submitter>/results/<system>/<benchmark>/result_<n>.txt",
            hint=f"dlperf summarize {shlex.quote(str(directory))} reads logs of single runs",
        )
    return paths


def _without_copies(
    logs: Mapping[Path, MlperfRun | UserError],
) -> tuple[list[MlperfRun | UserError], list[UserError]]:
    """The runs of a folder, each once, and what is wrong with the others. Two runs never start and
    stop in the same milliseconds."""
    runs: list[MlperfRun | UserError] = []
    paths: dict[tuple[int, float], list[Path]] = {}
    for path, run in logs.items():
        if isinstance(run, MlperfRun):
            same = paths.setdefault((run.started_ms, run.time_to_train_s), [])
            same.append(path)
            if len(same) > 1:
                continue
        runs.append(run)
    copies = [
        UserError(
            "several logs are of the same run",
            where=str(first),
            expected="one log of each run",
            found=f"the same run_start and run_stop in {', '.join(path.name for path in others)}",
            hint=f"only {first.name} counts",
        )
        for first, *others in paths.values()
        if others
    ]
    return runs, copies


def _refuse_several(folder: Path, logs: Mapping[Path, MlperfRun | UserError]) -> None:
    """Raise UserError if the runs of a folder have several benchmarks or batch sizes."""
    benchmarks_of = {run.benchmark for run in logs.values() if isinstance(run, MlperfRun)}
    if len(benchmarks_of) > 1:
        raise UserError(
            "the runs are of different benchmarks, so they are not one result",
            where=str(folder),
            expected="one submission_benchmark",
            found=", ".join(sorted(benchmarks_of)),
            hint=f"move the logs of each benchmark to a folder of its name in {folder.name}/",
        )
    names: dict[int | None, list[str]] = {}
    for path, run in logs.items():
        if isinstance(run, MlperfRun):
            names.setdefault(run.global_batch_size, []).append(path.name)
    if len(names) > 1:
        raise UserError(
            "the runs have different batch sizes, so they are not one result",
            where=str(folder),
            expected="one global_batch_size",
            found="; ".join(
                f"{size or 'none'} in {', '.join(runs)}"
                for size, runs in sorted(names.items(), key=lambda item: item[0] or 0)
            ),
            hint=f"--batch-size {min(filter(None, names))} counts the runs with one of them",
        )


def _scored(
    folder: Path, runs: Sequence[MlperfRun | UserError], consecutive: bool
) -> tuple[Sequence[MlperfRun | UserError], UserError | None]:
    """The runs that count, and why they have no score although they are enough."""
    rules = benchmarks().get(_benchmark(folder, runs))
    if rules is None or len(runs) <= rules.runs:
        return runs, None
    measured = (run for run in runs if isinstance(run, MlperfRun))
    ordered = sorted(measured, key=attrgetter("started_ms"))
    if consecutive and len(ordered) == len(runs):
        sets = [ordered[n : n + rules.runs] for n in range(len(runs) - rules.runs + 1)]
        scores = [_score(runs, rules) for runs in sets]
        middle = median(scores)
        # A set without a score counts as infinitely slow.
        distance = [abs(score - middle) if score != middle else 0.0 for score in scores]
        return sets[distance.index(min(distance))], None
    return runs, UserError(
        "the result has more runs than its score takes",
        where=str(folder),
        expected=f"{rules.runs} runs",
        found=str(len(runs)),
        hint="remove the logs that cannot be read, whose order is unknown, and add --consecutive"
        if consecutive
        else f"--consecutive takes the {rules.runs} consecutive ones closest to the median, as"
        " MLPerf's rules do",
    )


def _why_no_score(runs: Sequence[MlperfRun | UserError], rules: Benchmark | None) -> str | None:
    if rules is None:
        return "the runs that a result of this benchmark needs are not known"
    good = len(_good(runs))
    if len(runs) < rules.runs:
        return f"it takes {rules.runs} runs, and {counted(good, 'different one')} can be counted"
    if len(runs) == rules.runs and len(runs) - good > rules.dropped:
        return f"more than {rules.dropped} of {len(runs)} runs failed or cannot be read"
    return None


def _score(runs: Sequence[MlperfRun | UserError], rules: Benchmark) -> float:
    """MLPerf's score in minutes; infinite if too many runs failed."""
    good = [run.time_to_train_s / 60 for run in _good(runs)]
    score = olympic_mean(good, len(runs) - len(good), rules.dropped)
    return math.inf if score is None else score


def _good(runs: Sequence[MlperfRun | UserError]) -> list[MlperfRun]:
    return [run for run in runs if isinstance(run, MlperfRun) and run.status == SUCCESS]


def _read_all(paths: Sequence[Path], contents: Mapping[Path, Path]) -> list[MlperfRun | UserError]:
    places = [contents.get(path) for path in paths]
    if len(paths) < _MANY:
        return [*map(_read, paths, places)]
    with ProcessPoolExecutor(processors()) as pool:
        return list(pool.map(_read, paths, places, chunksize=8))


def read_run(path: Path, content: Path | None = None) -> MlperfRun:
    """The measurements of a log. Raises UserError if it is not whole."""
    log = LogFile(path, content=content)
    with log.errors():
        return measure_run(mllog.read(log.pieces()), str(path))


def _read(path: Path, content: Path | None) -> MlperfRun | UserError:
    try:
        run = read_run(path, content)
        if run.benchmark != path.parent.name and not _is_of_system(path.parent):
            raise UserError(
                "the log is of another benchmark than its folder",
                where=str(path),
                expected=path.parent.name,
                found=run.benchmark,
            )
        needed = benchmarks().get(run.benchmark, Benchmark(runs=1)).sequence_length
        if needed is not None and run.sequence_length not in (None, needed):
            raise UserError(
                "the sequence length is not that of the benchmark",
                where=str(path),
                expected=str(needed),
                found=str(run.sequence_length),
            )
    except UserError as error:
        return error
    return run


def _result(
    folder: Path,
    runs: Sequence[MlperfRun | UserError],
    contents: Mapping[Path, Path],
    *,
    is_scored: bool,
) -> MlperfResult:
    benchmark = _benchmark(folder, runs)
    _refuse_other_layout(folder)
    system, results = _of_system(folder).name, _of_system(folder).parent
    described = _system(_description(folder), contents)
    rules = benchmarks().get(benchmark)
    good = _good(runs)
    scale = _scaling(folder / "scaling.json", contents)
    score = math.inf
    if is_scored and rules is not None and len(runs) >= rules.runs:
        score = _score(runs, rules)
    # The best estimator that all runs have.
    names = [*good[0].samples_per_second] if good else []
    estimator = next((n for n in names if all(n in run.samples_per_second for run in good)), None)
    rate = _median([run.samples_per_second[estimator] for run in good]) if estimator else None
    length = rules.sequence_length if rules else None
    tokens = rate * length if rate is not None and length is not None else None
    nodes, devices = (
        _count(described, key) for key in ("number_of_nodes", "accelerators_per_node")
    )
    notes = {_LINE.sub("", run.throughput_note): None for run in good if run.throughput_note}
    if not good:
        notes = {"no run that reached its target can be read": None}
    return MlperfResult(
        submitter=results.parent.name,
        system=system,
        benchmark=benchmark,
        nodes=nodes,
        accelerators_per_node=devices,
        accelerator=_text(described, "accelerator_model_name"),
        framework=_text(described, "framework"),
        global_batch_size=good[0].global_batch_size if good else None,
        runs=len(good),
        failed=len(runs) - len(good),
        runs_needed=rules.runs if rules else None,
        time_to_train_min=score * scale if math.isfinite(score) else None,
        scaling_factor=scale,
        estimator=estimator,
        samples_per_second=rate,
        tokens_per_second=tokens,
        tokens_per_second_per_device=tokens / (nodes * devices)
        if tokens is not None and nodes and devices
        else None,
        step_time_median_s=_median([run.step_times.get("median") for run in good]),
        step_time_p99_s=_median([run.step_times.get("p99") for run in good]),
        throughput_note=shortened([*notes]) if notes and estimator != "blocks" else None,
    )


def _is_file(path: Path, contents: Mapping[Path, Path]) -> bool:
    return contents.get(path, path).is_file()


def _median(values: Sequence[float | None]) -> float | None:
    """None if a run does not have the value."""
    given = [value for value in values if value is not None]
    return median(given) if given and len(given) == len(values) else None


def _system(path: Path, contents: Mapping[Path, Path]) -> dict[str, Any]:
    described = readable_json(contents.get(path, path))
    nodes = described.get("nodes")
    of_v06 = nodes[0] if isinstance(nodes, list) and len(nodes) == 1 else None
    if isinstance(of_v06, dict):
        described |= {key: of_v06.get(name, "") for key, name in _OF_V06.items()}
    return described


_OF_V06 = {
    "number_of_nodes": "num_nodes",
    "accelerators_per_node": "num_accelerators",
    "accelerator_model_name": "accelerator",
}


def _scaling(path: Path, contents: Mapping[Path, Path]) -> float:
    if not _is_file(path, contents):
        return 1.0
    factor: Any = read_json(contents.get(path, path), path).get("scaling_factor")
    if type(factor) not in (int, float) or not 0 < factor < 100:
        problem, expected = "invalid scaling factor", "a number above 0"
        raise UserError(problem, where=str(path), expected=expected, found=str(factor))
    return float(factor)


_COUNT = re.compile(r"(\d{1,8}+)(?:\.0)?", re.ASCII)


def _count(described: dict[str, Any], key: str) -> int | None:
    """A count, which descriptions write as 8, 8.0 or "8"."""
    match = _COUNT.fullmatch(_text(described, key) or "")
    return int(match[1]) if match else None


def _text(described: dict[str, Any], key: str) -> str | None:
    """The text of a key such as `number_of_nodes`, which some descriptions write with blanks."""
    return str(described.get(key, described.get(key.replace("_", " "), ""))).strip() or None
