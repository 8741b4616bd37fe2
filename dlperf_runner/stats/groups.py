"""Group cases into tables, and title each table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from ..core.frame import plain_rows, throughput
from ..core.identity import CASE, GROUP, CaseKey, batch_text, label, value_text
from ..core.lists import grouped
from ..core.units import BANDWIDTH, per_second

if TYPE_CHECKING:
    import pandas as pd

_TABLE = (*GROUP, "unit")  # what the cases of a table have in common


@dataclass
class CaseRates:
    """The throughput of the valid runs of a case, its unit and estimator, and the settings that no
    log confirms."""

    unit: str
    estimator: str
    values: list[float] = field(default_factory=list)
    statements: dict[str, None] = field(default_factory=dict)

    @property
    def stated(self) -> str | None:
        return "; ".join(self.statements) or None


def rates_by_case(frame: pd.DataFrame) -> dict[CaseKey, CaseRates]:
    """The throughput of the cases with valid runs, in the order of the frame."""
    rates: dict[CaseKey, CaseRates] = {}
    rows = throughput(frame)
    columns = rows[["unit", "estimator", "value", "stated"]]
    for case, (unit, estimator, value, stated) in zip(
        plain_rows(rows[list(CASE)]), plain_rows(columns), strict=True
    ):
        of_case = rates.setdefault(case, CaseRates(unit, estimator))
        of_case.values.append(value)
        of_case.statements |= {stated: None} if stated else {}
    return rates


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
        parts.append(batch_text(key["batch_size_per_device"]))
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
