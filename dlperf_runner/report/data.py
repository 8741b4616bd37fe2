"""What programs read: summary.csv, measurements.csv, summary.json and bz<batch>_result.json."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from statistics import fmean, median
from typing import Any

from ..core.files import json_text
from ..core.frame import COLUMNS, Row
from ..core.identity import GROUP, CaseKey, case_key, topology_text
from ..core.lists import grouped
from ..stats.groups import values_of
from .numbers import decimals, rate_decimals
from .tables import FORMULA
from .units import named_record

_SPECIAL = re.compile(r"[,\r\n]")


def csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """The rows below a header; what is absent is an empty field. A text that a spreadsheet would
    read as a formula gets a leading apostrophe."""
    fields = map(_fields, zip(*rows, strict=True))
    lines = (columns, *zip(*fields, strict=True))
    return "\n".join(map(",".join, lines)) + "\n"


def measurements(rows: Iterable[Row]) -> str:
    """The rows of a tidy frame as `csv` writes them, in half the time: the rows of a run differ in
    their metric alone, so the fields before and after it are formatted once."""
    field = lru_cache(maxsize=None, typed=True)(_field)
    at, lines = COLUMNS.index("metric"), [",".join(COLUMNS)]
    run, before, after = None, "", ""
    for row in rows:
        own = row[:at], row[at + 4 :]
        if own != run:
            run = own
            before, after = (",".join(map(field, part)) for part in own)
        metric, value, unit, estimator = row[at : at + 4]
        number = "" if value is None else repr(value)
        lines.append(f"{before},{metric},{number},{field(unit)},{field(estimator)},{after}")
    return "\n".join(lines) + "\n"


def _fields(column: Sequence[object]) -> list[str]:
    """A column as fields. Most columns repeat few values, so each of these is formatted once."""
    values = set(column)
    if any(isinstance(value, float) for value in values):  # 0.0 and -0.0 are equal
        return [str(v) if isinstance(v, float) else _field(v) for v in column]
    texts = {value: _field(value) for value in values}
    if len(texts) == 1:
        return [*texts.values()] * len(column)
    return list(map(texts.__getitem__, column))


def _field(value: object) -> str:
    if not isinstance(value, str):
        return "" if value is None else str(value)
    text = str(unlike_a_formula(value))
    quoted = text.replace('"', '""')
    return f'"{quoted}"' if quoted != text or _SPECIAL.search(text) else text


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
    rows: Iterable[Row],
    cases: Iterable[Mapping[str, Any]],
    short_names: Mapping[tuple[str, str], str],
) -> dict[int, str]:
    """The published report's own result file, per batch size:

        {"rn50": {"1n1g": {"average_speed": 384.59, "batch_size_per_device": 128,
                           "median_speed": 384.19, "speedup": 1.0}, ...}}

    As published, each run is rounded before the averages, and these before the speed-up.
    `short_names` is by workload and model. A speed-up over anything but 1 device is null. Where
    several tables of one batch size have the same short name, what they differ in is appended,
    but for fp32: rn50 and rn50_fp16, or rn50_builtin and rn50_upstream.
    """
    runs = values_of(rows)
    by_batch: dict[int, dict[tuple[Any, ...], list[Mapping[str, Any]]]] = {}
    for case in cases:
        key = tuple(case[name] for name in GROUP)
        by_batch.setdefault(case["batch_size_per_device"], {}).setdefault(key, []).append(case)
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
        if row["base_world_size"] == 1 and row["speedup"] is not None:
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
