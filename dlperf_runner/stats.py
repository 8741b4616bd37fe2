"""Statistics of the frame: DataFrame in, DataFrame out. Knows the names of columns only."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Decimal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Runs that differ in one of these are never pooled: they are different cases.
CASE = [
    "framework",
    "framework_version",
    "workload",
    "model",
    "source",
    "precision",
    "batch_size_per_device",
    "nodes",
    "gpus_per_node",
    "world_size",
    "accelerator",
    "driver",
    "stack",
    "container",
]
# What a case shares with the 1-device case that it is compared with.
BASELINE = [name for name in CASE if name not in ("nodes", "gpus_per_node", "world_size")]
DIGITS = 2  # as published: of averages, medians and speed-ups
GPU_MEMORY = "gpu_memory_peak"  # of a run, over its devices


def summarize(frame: pd.DataFrame, metric: str = "samples_per_second") -> pd.DataFrame:
    """One row per case with the statistics of a metric over its valid runs, sorted by case.

    Columns: those of CASE, estimator, repeats (n), samples_per_second_{median, mean, min, max,
    std}, gpu_memory_mib, speedup and scaling_efficiency. As published, median and mean are rounded
    to 2 digits, or to as many as the values have where those are published with more, and speedup
    is the quotient of the rounded medians, rounded to 2 digits; scaling_efficiency is that speedup
    divided by world_size. std is that of the sample (n - 1), NaN for one run. speedup and
    scaling_efficiency are NaN where no 1-device case has the same BASELINE columns. gpu_memory_mib
    is the largest of the runs' peaks, NaN where none was measured.
    """
    valid = frame[frame["valid"]]
    chosen = valid[valid["metric"] == metric]
    groups = chosen.groupby(CASE, dropna=False, sort=False)["value"]
    table = groups.agg(["count", "median", "mean", "min", "max", "std"]).reset_index()
    # Averages as the published scripts make them; NumPy and Python round alike at 2 digits.
    kept = groups.agg(digits).tolist()
    for name in ("median", "mean"):
        table[name] = [round(v, n) for v, n in zip(table[name].tolist(), kept, strict=True)]
    statistics = ("median", "mean", "min", "max", "std")
    table = table.rename(columns={"count": "repeats", **{n: f"{metric}_{n}" for n in statistics}})
    estimators = chosen.groupby(CASE, dropna=False, sort=False)["estimator"].agg(
        lambda names: "+".join(dict.fromkeys(names))
    )
    table.insert(len(CASE), "estimator", estimators.to_numpy())
    memory = valid[valid["metric"] == GPU_MEMORY].groupby(CASE, dropna=False, sort=False)["value"]
    peaks = memory.max().rename("gpu_memory_mib").reset_index()
    table = table.merge(peaks, on=CASE, how="left")  # missing values match each other
    return _with_speedups(table, f"{metric}_median").sort_values(
        [*BASELINE, "nodes", "gpus_per_node"], na_position="first", ignore_index=True
    )


def digits(values: Iterable[float]) -> int:
    """Digits behind the point that an average of these keeps: as many as they have, at least 2."""
    exponents = (Decimal(repr(float(value))).normalize().as_tuple().exponent for value in values)
    return max([DIGITS, *(-number for number in exponents if isinstance(number, int))])


def _with_speedups(table: pd.DataFrame, median: str) -> pd.DataFrame:
    one = table[(table["nodes"] == 1) & (table["gpus_per_node"] == 1)]
    baseline = one[[*BASELINE, median]].rename(columns={median: "_baseline"})
    merged = table.merge(baseline, on=BASELINE, how="left")  # missing values match each other
    # A median that rounds to 0 is no baseline.
    quotient = merged[median] / merged["_baseline"].where(merged["_baseline"] > 0)
    merged["speedup"] = [round(value, DIGITS) for value in quotient.tolist()]
    merged["scaling_efficiency"] = merged["speedup"] / merged["world_size"]
    return merged.drop(columns="_baseline")
