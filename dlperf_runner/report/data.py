"""What programs read: summary.csv, measurements.csv, summary.json and bz<batch>_result.json."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from ..core.files import json_text
from ..core.identity import GROUP, CaseKey, case_key, topology_text
from ..core.lists import grouped
from ..stats.groups import rates_by_case
from .numbers import decimals, rate_decimals
from .tables import FORMULA
from .units import named_record

if TYPE_CHECKING:
    import pandas as pd


def csv(rows: Iterable[Mapping[str, Any]], columns: Sequence[str] = ()) -> str:
    """The rows below a header, as `csv_of` writes them. `columns`: those of a table without
    rows."""
    import pandas as pd

    table = pd.DataFrame([*rows], dtype=object)
    return csv_of(pd.DataFrame(columns=[*columns]) if table.empty else table)


def csv_of(table: pd.DataFrame) -> str:
    """The table as CSV; what is absent is an empty field. A text that a spreadsheet would read as a
    formula gets a leading apostrophe."""
    safe = {
        str(name): column.map(unlike_a_formula)
        for name, column in table.items()
        if column.dtype == object
        and any(value is not unlike_a_formula(value) for value in column.unique())
    }
    return table.assign(**safe).to_csv(index=False, lineterminator="\n")


def unlike_a_formula(value: object) -> object:
    """The value, with a leading apostrophe if it is a text that a spreadsheet would take for a
    formula, which may run or send something."""
    return f"'{value}" if isinstance(value, str) and value.startswith(FORMULA) else value


def summary(
    cases: Sequence[Mapping[str, Any]], notes: Sequence[str], problems: Sequence[str]
) -> str:
    """The cases with the names that summary.csv has; what is absent is null."""
    named = [named_record(case) for case in cases]
    return json_text({"cases": named, "notes": list(notes), "problems": list(problems)})


def results_by_batch(
    frame: pd.DataFrame,
    cases: Iterable[Mapping[str, Any]],
    short_names: Mapping[tuple[str, str], str],
) -> dict[int, str]:
    """The published report's own result file, per batch size:

        {"rn50": {"1n1g": {"average_speed": 384.59, "batch_size_per_device": 128,
                           "median_speed": 384.19, "speedup": 1.0}, ...}}

    As published, each run is rounded before the averages, and these before the speed-up.
    `short_names` is by workload and model. A speed-up over anything but 1 device
    with the same batch size is null. Where
    several tables of one batch size have the same short name, what they differ in is appended,
    but for fp32: rn50 and rn50_fp16, or rn50_builtin and rn50_upstream.
    """
    runs = {key: rates.values for key, rates in rates_by_case(frame).items()}
    by_batch: dict[int, dict[tuple[Any, ...], list[Mapping[str, Any]]]] = {}
    for case in cases:
        key, batch = tuple(case[name] for name in GROUP), case["batch_size_per_device"]
        if batch is not None:
            by_batch.setdefault(batch, {}).setdefault(key, []).append(case)
    return {
        batch: json_text(
            {
                name: _results(groups[key], runs)
                for key, name in _names(list(groups), short_names).items()
            }
        )
        for batch, groups in sorted(by_batch.items())
    }


def _results(
    rows: Sequence[Mapping[str, Any]], runs: Mapping[CaseKey, Sequence[float]]
) -> dict[str, dict[str, Any]]:
    """The cases of a group by topology."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        values = runs[case_key(row)]
        places = rate_decimals(row["workload"], [row["samples_per_second_median"]])
        rounded = [round(value, places) for value in values]
        found[topology_text(row)] = {
            "average_speed": round(fmean(rounded), places),
            "batch_size_per_device": row["batch_size_per_device"],
            "median_speed": round(median(rounded), places),
            "speedup": None,
        }
    for row in rows:
        is_here = row["base_case"] in found  # not the base of strong scaling
        if row["base_world_size"] == 1 and row["speedup"] is not None and is_here:
            own = found[topology_text(row)]
            quotient = own["median_speed"] / found[row["base_case"]]["median_speed"]
            own["speedup"] = round(quotient, decimals([quotient], significant=2))
    return found


def _names(
    keys: list[tuple[Any, ...]], short_names: Mapping[tuple[str, str], str]
) -> dict[tuple[Any, ...], str]:
    """A name for each group of cases, different for each."""
    by_name = grouped(keys, lambda key: short_names.get((key[0], key[1]), key[1]))
    names: dict[tuple[Any, ...], str] = {}
    for name, same in by_name.items():
        differing = [n for n in range(len(GROUP)) if len({key[n] for key in same}) > 1]
        for key in same:
            words = [str(key[n]) for n in differing if key[n] not in (None, "fp32")]
            names[key] = "_".join([name, *words])
    return names
