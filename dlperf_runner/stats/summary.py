"""Statistics of runs: rows of the tidy frame in, a record per case out. Depends only on the column
names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import TYPE_CHECKING, Any

from ..core.frame import (
    ALL_REDUCE_BUS,
    ALONE_LONGEST,
    ALONE_MEAN,
    ENERGY,
    GPU_MEMORY,
    INPUT_SHARE,
    LOG_MEMORY,
    MFU,
    MODEL_TFLOPS,
    NCCL_INTERFACES,
    NCCL_KERNELS,
    PEAK_TFLOPS,
    POWER,
    SAMPLES_PER_SECOND,
    SLOWEST_RANK,
    STEP_TIME,
    TYPES,
    Row,
    case_of,
    make_table,
    rows_of,
)
from ..core.identity import CASE, GROUP, CaseKey, plain, topology_text
from ..core.lists import grouped
from ..core.units import BANDWIDTH, per_second
from .intervals import (
    FEW,
    UNKNOWN,
    ConfidenceInterval,
    cv,
    mad,
    median_interval,
    outliers,
    ratio_interval,
)

if TYPE_CHECKING:
    import pandas as pd

# The columns in which a case and its base case are equal.
BASELINE = ("framework", *GROUP)
_MEDIAN = f"{SAMPLES_PER_SECOND}_median"
_STATISTICS = (
    *("median", "mean", "min", "max", "std"),
    *("ci_low", "ci_high", "ci_coverage", "cv", "mad", "outliers"),
)


def _of_all(values: Sequence[float]) -> float | None:
    """The value that all runs have."""
    return values[0] if len(set(values)) == 1 else None


# Further metrics of a case: its column, what is made of the values of the runs, and the column of
# their estimator, which must then be the same for all of them.
_FURTHER: dict[str, tuple[str, Callable[[Sequence[float]], float | None], str | None]] = {
    GPU_MEMORY: ("gpu_memory_mib", max, None),
    LOG_MEMORY: ("log_memory_mib", max, None),
    f"{STEP_TIME}_median": ("step_time_median_s", median, "step_time_estimator"),
    f"{STEP_TIME}_p95": ("step_time_p95_s", median, "step_time_estimator"),
    f"{STEP_TIME}_p99": ("step_time_p99_s", median, "step_time_estimator"),
    ALONE_MEAN: ("alone_mean_s", median, None),
    ALONE_LONGEST: ("alone_longest_s", median, None),
    SLOWEST_RANK: (SLOWEST_RANK, _of_all, None),
    NCCL_KERNELS: (f"{NCCL_KERNELS}_s", median, None),
    INPUT_SHARE: (INPUT_SHARE, median, None),
    NCCL_INTERFACES: (NCCL_INTERFACES, median, "nccl_network"),
    ALL_REDUCE_BUS: (ALL_REDUCE_BUS, median, "all_reduce_of"),
    MODEL_TFLOPS: (MODEL_TFLOPS, median, "flops_formula"),
    MFU: (MFU, median, "flops_formula"),
    PEAK_TFLOPS: (PEAK_TFLOPS, median, "peak_source"),
    ENERGY: (f"{ENERGY}_j", median, "energy_estimator"),
    POWER: (f"{POWER}_w", median, "energy_estimator"),
}
_TEXTS = tuple(dict.fromkeys(text for *_, text in _FURTHER.values() if text))
_OWN = (
    *(f"{SAMPLES_PER_SECOND}_{name}" for name in _STATISTICS),
    *(column for column, *_ in _FURTHER.values()),
)
_OF_BASE = (
    *("base_case", "base_world_size"),
    *("speedup", "speedup_ci_low", "speedup_ci_high"),
    *("scaling_efficiency", "scaling_efficiency_ci_low", "scaling_efficiency_ci_high"),
)
# The columns of `cases`, and their types in a DataFrame.
_TYPES = {
    **{name: TYPES[name] for name in (*CASE, "unit", "estimator")},
    "repeats": "int64",
    **dict.fromkeys(_OWN, "float64"),
    **dict.fromkeys((*_TEXTS, "stated"), "object"),
    **dict.fromkeys(_OF_BASE, "float64"),
    f"{SAMPLES_PER_SECOND}_outliers": "Int64",
    "base_case": "object",
    "base_world_size": "Int64",
}
COLUMNS = tuple(_TYPES)

Record = dict[str, Any]


def summarize(frame: pd.DataFrame) -> pd.DataFrame:
    """`cases` of a tidy frame, as a DataFrame. Missing texts are None, numbers are NaN."""
    return make_table((case.values() for case in cases(rows_of(frame))), _TYPES)


def cases(rows: Iterable[Row]) -> list[Record]:
    """One record per case with the statistics of the throughput of its valid runs, sorted by case.
    Missing values are None.

    Keys: those of CASE, unit, estimator, repeats (n), samples_per_second_{median, mean, min, max,
    std, ci_low, ci_high, ci_coverage, cv, mad, outliers}, those of _FURTHER, base_case,
    base_world_size, speedup, speedup_ci_{low, high}, scaling_efficiency and
    scaling_efficiency_ci_{low, high}.

    Nothing is rounded. speedup is the quotient of the medians of this case and its base case. The
    base case is the 1-device case with the same BASELINE columns. If it is missing, the base case
    is the smallest of several cases. A single case with more devices has no base case and no
    speedup, nor has a bandwidth. scaling_efficiency is speedup * base_world_size / world_size.
    ci_coverage is the actual coverage of the median's interval (see intervals). std is the sample
    standard deviation (n - 1). With n = 1, there is no spread and no interval. outliers is the
    number of flagged values, which are still included; there is none for n below 5. Memory is the
    largest peak of the runs, step times and FLOPs are medians of the runs. Runs whose estimators of
    one of these differ have no such number: model FLOPs of two formulas are never mixed.
    """
    values: dict[CaseKey, list[float]] = {}
    units: dict[CaseKey, str] = {}
    stated: dict[CaseKey, dict[str, None]] = {}
    estimators: dict[CaseKey, set[str]] = {}
    further: dict[CaseKey, dict[str, list[Row]]] = {}
    for row in rows:
        if not row.valid or row.value is None:
            continue
        if row.metric == SAMPLES_PER_SECOND:
            key = case_of(row)
            values.setdefault(key, []).append(row.value)
            units[key] = row.unit
            stated.setdefault(key, {}).update({row.stated: None} if row.stated else {})
            estimators.setdefault(key, set()).add(str(row.estimator))
        elif row.metric in _FURTHER:
            further.setdefault(case_of(row), {}).setdefault(row.metric, []).append(row)
    found = [
        {
            **dict(zip(CASE, key, strict=True)),
            "unit": units[key],
            "estimator": "+".join(sorted(estimators[key])),
            "repeats": len(values[key]),
            **_statistics(values[key], mean),
            **_further(further.get(key, {})),
            "stated": "; ".join(stated[key]) or None,
        }
        for key, mean in zip(values, _means(list(values.values())), strict=True)
    ]
    samples = [sorted(of) for of in values.values()]
    for row_number, base in enumerate(_bases(found)):
        found[row_number] |= _speedup(found, samples, row_number, base)
    return sorted(found, key=_place)


def _place(case: Record) -> list[tuple[bool, Any]]:
    """Sort key of a case; missing values come first."""
    names = (*BASELINE, "nodes", "gpus_per_node")
    return [(case[name] is not None, case[name]) for name in names]


def _means(samples: Sequence[Sequence[float]]) -> list[float]:
    """The mean of each sample, summed in the order in which pandas sums adjacent rows, so that the
    digits recorded by earlier versions do not change."""
    from ..core.arrays import np

    if not samples:
        return []
    sizes = np.array([len(of) for of in samples])
    sums = np.add.reduceat(np.concatenate(samples), sizes.cumsum() - sizes)
    means: list[float] = (sums / sizes).tolist()
    return means


def _statistics(values: Sequence[float], mean: float) -> Record:
    """The statistics of the throughput of a case."""
    ordered = sorted(values)
    interval = median_interval(ordered)
    found = (
        *(median(ordered), mean, ordered[0], ordered[-1], _std(values)),
        *(interval.low, interval.high, interval.coverage, cv(ordered), mad(ordered)),
        sum(outliers(ordered)) if len(ordered) >= FEW else None,
    )
    names = (f"{SAMPLES_PER_SECOND}_{name}" for name in _STATISTICS)
    return dict(zip(names, map(plain, found), strict=True))


def _further(rows: Mapping[str, Sequence[Row]]) -> Record:
    """The columns of _FURTHER of a case."""
    found: Record = dict.fromkeys((*(column for column, *_ in _FURTHER.values()), *_TEXTS))
    for metric, of_runs in rows.items():
        column, made, text = _FURTHER[metric]
        estimators = {row.estimator for row in of_runs}
        if text is None or len(estimators) == 1:
            found[column] = made([row.value for row in of_runs if row.value is not None])
            found |= {text: estimators.pop()} if text else {}
    return found


def _std(values: Sequence[float]) -> float:
    """The sample standard deviation by the method of Welford, as pandas computes it; NaN for a
    single value."""
    mean = squares = 0.0
    for number, value in enumerate(values, start=1):
        distance = value - mean
        mean += distance / number
        squares += (value - mean) * distance
    return math.sqrt(squares / (len(values) - 1)) if len(values) > 1 else math.nan


def _speedup(
    found: Sequence[Record], samples: Sequence[Sequence[float]], row: int, base: int | None
) -> Record:
    """The base case, speed-up and scaling efficiency of a case."""
    speedup, interval, scale, own = math.nan, UNKNOWN, math.nan, found[row]
    of_base = None if base is None else found[base]
    if base is not None and of_base is not None:
        scale = of_base["world_size"] / own["world_size"]
        if of_base[_MEDIAN] > 0:
            speedup = own[_MEDIAN] / of_base[_MEDIAN]
            interval = _speedup_interval(samples, row, base)
    speedups = (speedup, interval.low, interval.high)
    values = (
        of_base and topology_text(of_base),
        of_base and of_base["world_size"],
        *map(plain, speedups),
        *(plain(value * scale) for value in speedups),
    )
    return dict(zip(_OF_BASE, values, strict=True))


def _speedup_interval(
    samples: Sequence[Sequence[float]], row: int, base: int
) -> ConfidenceInterval:
    if row == base:  # the ratio of a sample to itself does not vary
        return ConfidenceInterval(1.0, 1.0, math.nan) if len(samples[row]) > 1 else UNKNOWN
    return ratio_interval(samples[row], samples[base])


def _bases(found: Sequence[Record]) -> list[int | None]:
    """The index of the base case, for each case."""
    baseline = itemgetter(*BASELINE)
    scaling = [n for n, case in enumerate(found) if case["unit"] != per_second(BANDWIDTH)]
    groups = grouped(scaling, lambda row: baseline(found[row]))
    sizes = [(case["world_size"], case["nodes"]) for case in found]
    bases: list[int | None] = [None] * len(found)
    for members in groups.values():
        base = min(members, key=sizes.__getitem__)
        if len(members) > 1 or sizes[base] == (1, 1):
            for row in members:
                bases[row] = base
    return bases
