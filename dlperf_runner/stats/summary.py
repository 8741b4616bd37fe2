"""Statistics of runs: the long frame in, a table with a row per case out."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
    records,
    throughput,
)
from ..core.identity import CASE, GROUP, parameters_text, read_parameters, topology_text
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


def _of_all(values: pd.Series[float]) -> float:
    return values.iloc[0] if values.nunique() == 1 else math.nan


# Further metrics of a case: its column, its statistic of the values of the runs, and the column of
# their estimator, which must then be the same for all of them.
_FURTHER: dict[str, tuple[str, str | Callable[[pd.Series[float]], float], str | None]] = {
    GPU_MEMORY: ("gpu_memory_mib", "max", None),
    LOG_MEMORY: ("log_memory_mib", "max", None),
    f"{STEP_TIME}_median": ("step_time_median_s", "median", "step_time_estimator"),
    f"{STEP_TIME}_p95": ("step_time_p95_s", "median", "step_time_estimator"),
    f"{STEP_TIME}_p99": ("step_time_p99_s", "median", "step_time_estimator"),
    ALONE_MEAN: ("alone_mean_s", "median", None),
    ALONE_LONGEST: ("alone_longest_s", "median", None),
    SLOWEST_RANK: (SLOWEST_RANK, _of_all, None),
    NCCL_KERNELS: (f"{NCCL_KERNELS}_s", "median", None),
    INPUT_SHARE: (INPUT_SHARE, "median", None),
    NCCL_INTERFACES: (NCCL_INTERFACES, "median", "nccl_network"),
    ALL_REDUCE_BUS: (ALL_REDUCE_BUS, "median", "all_reduce_of"),
    MODEL_TFLOPS: (MODEL_TFLOPS, "median", "flops_formula"),
    MFU: (MFU, "median", "flops_formula"),
    PEAK_TFLOPS: (PEAK_TFLOPS, "median", "peak_source"),
    ENERGY: (f"{ENERGY}_j", "median", "energy_estimator"),
    POWER: (f"{POWER}_w", "median", "energy_estimator"),
}
_TEXTS = tuple(dict.fromkeys(text for *_, text in _FURTHER.values() if text))
_STATISTIC_COLUMNS = (
    *(f"{SAMPLES_PER_SECOND}_{name}" for name in _STATISTICS),
    *(column for column, *_ in _FURTHER.values()),
)
_OF_BASE = (
    *("base_case", "base_world_size"),
    *("speedup", "speedup_ci_low", "speedup_ci_high"),
    *("scaling_efficiency", "scaling_efficiency_ci_low", "scaling_efficiency_ci_high"),
)
# The columns of `summarize`, and their types in a DataFrame.
_TYPES = {
    **{name: TYPES[name] for name in (*CASE, "unit", "estimator")},
    "repeats": "int64",
    **dict.fromkeys(_STATISTIC_COLUMNS, "float64"),
    **dict.fromkeys((*_TEXTS, "stated"), "object"),
    **dict.fromkeys(_OF_BASE, "float64"),
    f"{SAMPLES_PER_SECOND}_outliers": "Int64",
    "base_case": "object",
    "base_world_size": "Int64",
}
COLUMNS = tuple(_TYPES)


def summarize(frame: pd.DataFrame) -> pd.DataFrame:
    """One row per case with the statistics of the throughput of its valid runs (docs/columns.md),
    sorted by case. Missing texts are None, numbers are NaN; nothing is rounded.

    The base case is the 1-device case with the same BASELINE columns or, if it is missing, the
    smallest of several cases. A single case with more devices has none, unless it is one of strong
    scaling (see _base_cases), nor has a bandwidth. Runs whose estimators of a further metric differ
    have no such number: model FLOPs of two formulas are never mixed.
    """
    import pandas as pd

    rows = frame[frame["valid"] & frame["value"].notna()]
    # The rows of a run have the same case.
    runs = rows[~rows.index.duplicated()]
    cases = runs.groupby(list(CASE), dropna=False, sort=False).ngroup()
    rows = rows.assign(case=cases.loc[rows.index])
    rates = throughput(rows)
    if rates.empty:
        return pd.DataFrame(columns=COLUMNS).astype(_TYPES)
    by_case = rates.groupby("case", sort=False)
    samples = {case: sorted(values) for case, values in by_case["value"]}
    values = by_case["value"].agg(["median", "mean", "min", "max", "std"])
    spreads = pd.DataFrame([_spread(of_case) for of_case in samples.values()], index=values.index)
    table = pd.concat(
        [
            rates.drop_duplicates("case").set_index("case")[[*CASE, "unit"]],
            _joined(rates.sort_values("estimator"), "estimator", "+"),
            _joined(rates, "stated", "; "),
            by_case.size().to_frame("repeats"),
            pd.concat([values, spreads], axis=1).add_prefix(f"{SAMPLES_PER_SECOND}_"),
            _further(rows[rows["case"].isin(samples)]),
        ],
        axis=1,
    )
    table = table.join(_speedups(table, samples)).reindex(columns=COLUMNS)
    place = [*BASELINE, "nodes", "gpus_per_node", "nvlink_domains"]
    table = table.sort_values(place, na_position="first", ignore_index=True).astype(_TYPES)
    texts = [name for name, kind in _TYPES.items() if kind == "object"]
    table[texts] = table[texts].where(table[texts].notna(), None)
    return table


def _joined(rates: pd.DataFrame, column: str, between: str) -> pd.Series[str]:
    different = rates[["case", column]].dropna().drop_duplicates()
    return different.groupby("case")[column].agg(between.join)


def _spread(ordered: Sequence[float]) -> dict[str, float | None]:
    interval = median_interval(ordered)
    return {
        "ci_low": interval.low,
        "ci_high": interval.high,
        "ci_coverage": interval.coverage,
        "cv": cv(ordered),
        "mad": mad(ordered),
        "outliers": sum(outliers(ordered)) if len(ordered) >= FEW else None,
    }


def _further(rows: pd.DataFrame) -> pd.DataFrame:
    import pandas as pd

    columns: dict[str, pd.Series[Any]] = {}
    for metric in rows["metric"].unique():
        if metric not in _FURTHER:
            continue
        column, statistic, text = _FURTHER[metric]
        by_case = rows[rows["metric"] == metric].groupby("case")
        columns[column] = by_case["value"].agg(statistic)
        if text is not None:
            is_one = by_case["estimator"].nunique(dropna=False) == 1
            columns[column] = columns[column][is_one]
            columns[text] = by_case["estimator"].first()[is_one]
    return pd.DataFrame(columns)


def _speedups(table: pd.DataFrame, samples: Mapping[Any, Sequence[float]]) -> pd.DataFrame:
    import pandas as pd

    rows = []
    base_of = _base_cases(table)
    cases = dict(zip(table.index, records(table), strict=True))
    for case, base in base_of.items():
        of_case, of_base = cases[case], cases[base]
        speedup, interval = math.nan, UNKNOWN
        if of_base[_MEDIAN] > 0:
            speedup = of_case[_MEDIAN] / of_base[_MEDIAN]
            if case != base:
                interval = ratio_interval(samples[case], samples[base])
            elif len(samples[case]) > 1:  # the ratio of a sample to itself does not vary
                interval = ConfidenceInterval(1.0, 1.0, math.nan)
        speedups = (speedup, interval.low, interval.high)
        scale = of_base["world_size"] / of_case["world_size"]
        efficiencies = (value * scale for value in speedups)
        rows.append((topology_text(of_base), of_base["world_size"], *speedups, *efficiencies))
    return pd.DataFrame(rows, columns=_OF_BASE, index=base_of.index)


def _base_cases(table: pd.DataFrame) -> pd.Series[int]:
    """The base case of each case that has one. A case alone in its table is one of strong scaling
    if cases of other topologies have the same global batch size: their base is the smallest."""
    import pandas as pd

    scaling = table[table["unit"] != per_second(BANDWIDTH)].rename_axis("case").reset_index()
    smallest_first = scaling.sort_values(["world_size", "nodes", "nvlink_domains"], kind="stable")
    groups = smallest_first.groupby(list(BASELINE), dropna=False, sort=False)
    size = groups["case"].transform("size")
    base = groups["case"].transform("first")[(size > 1) | (smallest_first["world_size"] == 1)]
    alone = smallest_first[(size == 1) & smallest_first["batch_size_per_device"].notna()]
    alone = alone.assign(
        batch_size_per_device=(alone["batch_size_per_device"] * alone["world_size"]).round(),
        parameters=alone["parameters"].map(_without_accumulation),
    )
    strong = alone.groupby(list(BASELINE), dropna=False, sort=False)
    several = strong["world_size"].transform("nunique") > 1
    base = pd.concat(
        [
            base.drop(alone.index[several], errors="ignore"),
            strong["case"].transform("first")[several],
        ]
    )
    bases: pd.Series[int] = base.set_axis(smallest_first["case"].loc[base.index])
    return bases.sort_index()


def _without_accumulation(parameters: str | None) -> str | None:
    """The parameters without those that follow from the global batch size."""
    if parameters is None:
        return None
    values = read_parameters(parameters)
    kept = values.keys() - {"accumulation_steps", "micro_batch_size"}
    return parameters_text({name: values[name] for name in kept})


NOTABLE = 0.02  # a smaller share of waiting names no straggler


@dataclass(frozen=True)
class StepParts:
    """The seconds of a step, of which the parts are the whole. `computation` is that of the mean
    rank, measured after the run, so that it may seem longer than the step, which it then fills;
    `waiting` is how much longer the slowest rank computes; `communication` is the rest, which no
    computation hides."""

    step: float
    computation: float
    waiting: float
    communication: float
    slowest_rank: int | None

    @property
    def has_straggler(self) -> bool:
        """True if one rank is the slowest of all runs, and others wait for it notably."""
        return self.slowest_rank is not None and self.waiting >= NOTABLE * self.step


def nccl_share(case: Mapping[str, Any]) -> float | None:
    """For how much of a step the kernels of NCCL run; None if the logs do not say it. Kernels of
    NCCL run beside computation and beside each other, and each waits for the slowest rank, so this
    is no part of the step, and may be more than 1."""
    step, kernels = case["step_time_median_s"], case.get(f"{NCCL_KERNELS}_s")
    return kernels / step if step and kernels else None


def step_parts(case: Mapping[str, Any]) -> StepParts | None:
    """The parts of a case's step; None if its logs do not say them. A single device computes all
    the time."""
    step = case["step_time_median_s"]
    if step is None:
        return None
    if case["world_size"] == 1:
        return StepParts(step, step, 0.0, 0.0, None)
    mean, longest, rank = (case[n] for n in ("alone_mean_s", "alone_longest_s", "slowest_rank"))
    if mean is None or longest is None:
        return None
    communication = max(0.0, step - longest)
    waiting = min(longest - mean, max(0.0, step - mean))
    return StepParts(
        step, min(mean, step), waiting, communication, None if rank is None else int(rank)
    )
