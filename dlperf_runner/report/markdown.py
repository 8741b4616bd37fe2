"""summary.md: the tables, how they were computed, and what was left out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .layout import groups, table_lines

if TYPE_CHECKING:
    import pandas as pd

_HOW = """\
samples/s is the median of the n runs, each run computed by the published rule of its workload, and
interval the distribution-free confidence interval of that median. speedup is that median divided by
the median of the base case: the 1-device runs that are otherwise equal, or, where there are none,
those on the fewest devices, which a note names.
efficiency is speedup divided by how many times more devices there are than in the base case;
gpu_num is the number of devices in all. Every number with its estimator stands in measurements.csv,
every statistic with its interval in summary.csv.
"""


def render(table: pd.DataFrame, notes: Sequence[str], problems: Sequence[str]) -> str:
    """The whole document."""
    parts = ["# Results\n"]
    for title, rows in groups(table):
        parts.append(f"## {title}\n\n" + "\n".join(table_lines(rows)) + "\n")
    parts.append(_HOW if len(parts) > 1 else "No run could be counted.\n")
    for heading, texts in (("Notes", notes), ("Not counted", problems)):
        if texts:
            items = "\n".join("- " + text.replace("\n", "\n  ") for text in texts)
            parts.append(f"## {heading}\n\n{items}\n")
    return "\n".join(parts)
