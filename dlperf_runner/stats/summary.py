"""Statistics of the frame: DataFrame in, DataFrame out. Depends only on the column names."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..core.frame import GPU_MEMORY
from ..core.identity import CASE, GROUP
from .intervals import FEW, UNKNOWN, Interval, cv, mad, median_interval, outliers, ratio_interval

if TYPE_CHECKING:
    import pandas as pd

# The columns in which a case and its base case are equal.
BASELINE = ["framework", *GROUP]
_SPREAD = ("ci_low", "ci_high", "ci_coverage", "cv", "mad", "outliers")


def summarize(frame: pd.DataFrame, metric: str = "samples_per_second") -> pd.DataFrame:
    """One row per case with the statistics of a metric over its valid runs, sorted by case.

    Columns: those of CASE, estimator, repeats (n), samples_per_second_{median, mean, min, max,
    std, ci_low, ci_high, ci_coverage, cv, mad, outliers}, gpu_memory_mib, base_case,
    base_world_size, speedup, speedup_ci_{low, high}, scaling_efficiency and
    scaling_efficiency_ci_{low, high}.

    Nothing is rounded. speedup is the quotient of the medians of this case and its base case. The
    base case is the 1-device case with the same BASELINE columns. If it is missing, the base case
    is the smallest of several cases. A single case with more devices has no base case, and its
    speedup is NaN. scaling_efficiency is speedup * base_world_size / world_size.
    ci_coverage is the actual coverage of the median's interval (see intervals). std is the sample
    standard deviation (n - 1). With n = 1, spread and interval are NaN. outliers is the number of
    flagged values, which are still included; it is missing for n below 5. gpu_memory_mib is the
    largest peak of the runs, NaN if it was not measured.
    """
    valid = frame[frame["valid"] & frame["value"].notna()]
    chosen = valid[valid["metric"] == metric]
    groups = chosen.groupby([*CASE], dropna=False, sort=False)
    table = groups["value"].agg(["count", "median", "mean", "min", "max", "std"]).reset_index()
    values = [sorted(group.tolist()) for _, group in groups["value"]]
    table = table.assign(**_spread(values))
    statistics = ("median", "mean", "min", "max", "std", *_SPREAD)
    table = table.rename(columns={"count": "repeats", **{n: f"{metric}_{n}" for n in statistics}})
    estimators = groups["estimator"].agg(lambda names: "+".join(sorted(set(names))))
    table.insert(len(CASE), "estimator", estimators.to_numpy())
    memory = valid[valid["metric"] == GPU_MEMORY].groupby([*CASE], dropna=False, sort=False)[
        "value"
    ]
    peaks = memory.max().rename("gpu_memory_mib").reset_index()
    table = table.merge(peaks, on=[*CASE], how="left")  # missing values match each other
    return _with_speedups(table, f"{metric}_median", values).sort_values(
        [*BASELINE, "nodes", "gpus_per_node"], na_position="first", ignore_index=True
    )


def _spread(values: Sequence[Sequence[float]]) -> dict[str, pd.Series]:
    """The columns of _SPREAD, with one number per sample."""
    import pandas as pd

    intervals = [median_interval(of) for of in values]
    flagged = [sum(outliers(of)) if len(of) >= FEW else None for of in values]
    columns = (
        [interval.low for interval in intervals],
        [interval.high for interval in intervals],
        [interval.coverage for interval in intervals],
        [cv(of) for of in values],
        [mad(of) for of in values],
    )
    found = {
        name: pd.Series(column, dtype="float64")
        for name, column in zip(_SPREAD, columns, strict=False)
    }
    return found | {"outliers": pd.Series(flagged, dtype="Int64")}


def _with_speedups(
    table: pd.DataFrame, median: str, values: Sequence[Sequence[float]]
) -> pd.DataFrame:
    """The table with the base case, speed-up and scaling efficiency of each case."""
    import pandas as pd

    bases = _bases(table)
    medians, sizes = table[median].tolist(), table["world_size"].tolist()
    names = [f"{n}n{g}g" for n, g in zip(table["nodes"], table["gpus_per_node"], strict=True)]
    speedups: list[float] = []
    intervals: list[Interval] = []
    for row, base in enumerate(bases):
        if base is None or not medians[base] > 0:
            speedups.append(math.nan)
            intervals.append(UNKNOWN)
            continue
        speedups.append(medians[row] / medians[base])
        intervals.append(_speedup_interval(values, row, base))
    base_sizes = [math.nan if base is None else sizes[base] for base in bases]
    scale = pd.Series(base_sizes, dtype="float64", index=table.index) / table["world_size"]
    merged = table.assign(
        base_case=pd.Series(
            [None if base is None else names[base] for base in bases], dtype=object
        ),
        base_world_size=pd.Series(
            [None if base is None else sizes[base] for base in bases], dtype="Int64"
        ),
        speedup=pd.Series(speedups, dtype="float64"),
        speedup_ci_low=pd.Series([interval.low for interval in intervals], dtype="float64"),
        speedup_ci_high=pd.Series([interval.high for interval in intervals], dtype="float64"),
    )
    for name in ("", "_ci_low", "_ci_high"):
        merged[f"scaling_efficiency{name}"] = merged[f"speedup{name}"] * scale
    return merged


def _speedup_interval(values: Sequence[Sequence[float]], row: int, base: int) -> Interval:
    if row == base:  # the ratio of a sample to itself does not vary
        return Interval(1.0, 1.0, math.nan) if len(values[row]) > 1 else UNKNOWN
    return ratio_interval(values[row], values[base])


def _bases(table: pd.DataFrame) -> list[int | None]:
    """The row number of the base case, for each row."""
    groups: dict[tuple[object, ...], list[int]] = {}
    rows = table[BASELINE].astype(object).where(table[BASELINE].notna(), None)
    for row, key in enumerate(rows.itertuples(index=False, name=None)):
        groups.setdefault(key, []).append(row)
    sizes = list(zip(table["world_size"], table["nodes"], strict=True))
    found: list[int | None] = [None] * len(table)
    for members in groups.values():
        base = min(members, key=sizes.__getitem__)
        if len(members) > 1 or sizes[base] == (1, 1):
            for row in members:
                found[row] = base
    return found
