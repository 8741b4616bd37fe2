"""The tidy frame: one row per run and metric, so that everything behind it needs no logs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Row:
    """A metric of a run; a run that gave none has one row without value that says why.

    None is what is not known, or what there is none of (a driver on a CPU, a container around a
    bare run).
    """

    framework: str
    framework_version: str | None
    workload: str
    model: str
    source: str | None
    precision: str
    nodes: int
    gpus_per_node: int
    world_size: int
    batch_size_per_device: int
    global_batch_size: int
    repeat: int
    metric: str
    value: float | None
    unit: str
    estimator: str | None
    accelerator: str | None
    driver: str | None
    stack: str | None
    container: str | None
    log_sha256: str | None
    valid: bool
    why_invalid: str | None


COLUMNS = tuple(field.name for field in fields(Row))


def make_frame(rows: Iterable[Row]) -> pd.DataFrame:
    """The rows as a DataFrame with the columns of Row; absent texts are None, numbers NaN."""
    import pandas as pd

    # Not asdict: it copies deeply, and there is nothing deep in a row.
    columns: dict[str, list[object]] = {name: [] for name in COLUMNS}
    for row in rows:
        for name in COLUMNS:
            columns[name].append(getattr(row, name))
    frame = pd.DataFrame({name: pd.Series(v, dtype=object) for name, v in columns.items()})
    whole = [
        *("nodes", "gpus_per_node", "world_size", "repeat"),
        *("batch_size_per_device", "global_batch_size"),
    ]
    return frame.astype({**dict.fromkeys(whole, "int64"), "value": "float64", "valid": "bool"})
