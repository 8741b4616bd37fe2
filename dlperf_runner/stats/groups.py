"""Group cases into tables, and title each table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..core.frame import SAMPLES_PER_SECOND, Row, case_of, rows_of
from ..core.identity import GROUP, CaseKey, label, plain, value_text
from ..core.lists import grouped
from ..core.units import BANDWIDTH, per_second

if TYPE_CHECKING:
    import pandas as pd

_TABLE = (*GROUP, "unit")  # what the cases of a table have in common


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """The rows as dictionaries; missing values are None."""
    names = [str(name) for name in table]
    columns = [map(plain, table[name].tolist()) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def case_values(frame: pd.DataFrame) -> dict[CaseKey, list[float]]:
    """The throughput of the valid runs of a tidy frame, by case."""
    return values_of(rows_of(frame))


def case_units(frame: pd.DataFrame) -> dict[CaseKey, str]:
    """The unit of the throughput of each case with valid runs."""
    rates = (row for row in rows_of(frame) if row.valid and row.metric == SAMPLES_PER_SECOND)
    return {case_of(row): row.unit for row in rates if row.value is not None}


def case_statements(frame: pd.DataFrame) -> dict[CaseKey, str | None]:
    """The settings of each case with valid runs that no log confirms; None if there are none."""
    statements: dict[CaseKey, dict[str, None]] = {}
    for row in rows_of(frame):
        if row.valid and row.metric == SAMPLES_PER_SECOND and row.value is not None:
            of_case = statements.setdefault(case_of(row), {})
            of_case |= {row.stated: None} if row.stated else {}
    return {key: "; ".join(texts) or None for key, texts in statements.items()}


def values_of(rows: Iterable[Row]) -> dict[CaseKey, list[float]]:
    """The throughput of the valid runs, by case."""
    values: dict[CaseKey, list[float]] = {}
    for row in rows:
        if row.valid and row.metric == SAMPLES_PER_SECOND and row.value is not None:
            values.setdefault(case_of(row), []).append(row.value)
    return values


def by_group(cases: Iterable[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """The cases of each table, by its title."""
    groups = grouped(cases, itemgetter(*_TABLE))
    return dict(zip(titles(list(groups)), groups.values(), strict=True))


def titles(groups: Sequence[tuple[Any, ...]]) -> list[str]:
    """A title for each group. Where several would have the same, each names what they differ in."""
    keys = [dict(zip(_TABLE, group, strict=True)) for group in groups]
    names = [title(key) for key in keys]
    for column in _TABLE:
        by_name: dict[str, set[object]] = {}
        for name, key in zip(names, keys, strict=True):
            by_name.setdefault(name, set()).add(key[column])
        names = [
            f"{name}, {label(column)} {value_text(key[column])}" if len(by_name[name]) > 1 else name
            for name, key in zip(names, keys, strict=True)
        ]
    return names


def workload_title(key: Mapping[str, Any]) -> str:
    """The workload and its source, with its model unless they name it."""
    name = " ".join(filter(None, (key["workload"], key["source"])))
    return name if key["model"] in name else f"{name} ({key['model']})"


def short_digest(container: str) -> str:
    """An image with the first digits of its digest."""
    return re.sub(r"(sha256:[0-9a-f]{12})[0-9a-f]+", r"\1", container)


def title(key: Mapping[str, Any]) -> str:
    """The title of a table: `mxnet-resnet50v1b builtin, fp32, batch size 128 per device, cpu`. Its
    key has the columns of GROUP and, if its cases are measured, their `unit`."""
    parts = [workload_title(key), key["precision"]]
    if key.get("unit") != per_second(BANDWIDTH):
        parts.append(f"batch size {key['batch_size_per_device']} per device")
    if key["parameters"]:
        parts.append(key["parameters"])
    if key["framework_version"]:
        parts.append(f"version {key['framework_version']}")
    # A stack often has the name of its accelerator; show it once.
    parts += dict.fromkeys(filter(None, (key["accelerator"], key["stack"])))
    if key["driver"]:
        parts.append(f"driver {key['driver']}")
    if key["container"]:
        parts.append("in " + short_digest(key["container"]))
    if key["directory"]:
        kind = "logs" if "*" in key["directory"] else "directory"
        parts.append(f"{kind} {key['directory']}")
    return ", ".join(parts)
