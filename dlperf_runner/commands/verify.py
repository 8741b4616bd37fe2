"""Checks whether the recorded results of a directory still match its logs. Writes nothing."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.files import read_json
from ..core.identity import CASE
from ..results.load import Progress, load_results
from ..results.run_record import Known
from ..results.statement import Statements
from .destination import destination

# The key of a row. It may not be unique: one repeat can have several logs.
_RUN = (*CASE, "repeat", "metric")
# This text depends on the path given to `summarize`. The column `valid` is compared instead.
_NOT_COMPARED = ("why_invalid",)
# The digest of a log is the same for all metrics of its run, so it is reported only once.
_DIGEST = "log_sha256"

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Verification:
    """The differences between records and logs, as sentences, and logs that failed validation."""

    differences: list[str]
    problems: list[UserError]


def verify(
    sources: Path | Sequence[Path],
    output_dir: Path | None = None,
    history: Path | None = None,
    known: Sequence[Known] | None = None,
    *,
    statements: Statements | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Compare the logs with summary.json and measurements.csv, and with the history if given.

    Raises UserError if there are no recorded results.
    """
    from ..history.store import MEASUREMENTS, identified, recorded_rows
    from ..stats.groups import records
    from ..stats.summary import summarize

    sources = [sources] if isinstance(sources, Path) else sources
    place = output_dir or destination(sources)
    if not (place / "summary.json").exists():
        raise UserError(
            "no recorded results to compare with the logs",
            where=str(place),
            expected="the files summary.json and measurements.csv from `summarize`",
            found="no summary.json" if place.is_dir() else "no such directory",
        )
    recorded_cases = _summary(place / "summary.json")
    recorded_runs = _measurements(place / "measurements.csv")
    results = load_results(sources, known, statements=statements, progress=progress)
    cases, runs = records(summarize(results.frame)), records(results.frame)
    found = [
        *_compared("summary.json", recorded_cases, cases, CASE),
        *_compared("measurements.csv", recorded_runs, [_as_text(run) for run in runs], _RUN),
    ]
    if history is not None:
        rows = recorded_rows(history, identified(sources[0])) if history.is_file() else None
        if rows is None:
            found.append(f"{history}: this campaign is not recorded")
        else:
            kept = [{name: run[name] for name in MEASUREMENTS} for run in runs]
            found += _compared(history.name, rows, kept, _RUN)
    return Verification(list(dict.fromkeys(found)), results.problems)


def _summary(path: Path) -> list[dict[str, Any]]:
    cases = read_json(path).get("cases")
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise UserError("invalid summary file", where=str(path), expected="a list `cases`")
    return cases


def _measurements(path: Path) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, strict=True))
    except FileNotFoundError:
        raise UserError("file not found", where=str(path)) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError("cannot read the file", where=str(path), found=str(error)) from None


def _as_text(run: Record) -> dict[str, str]:
    """A row as in measurements.csv."""
    return {name: "" if value is None else str(value) for name, value in run.items()}


def _compared(
    name: str, recorded: Sequence[Record], computed: Sequence[Record], key: Sequence[str]
) -> Iterator[str]:
    """The differences between two lists of rows, regardless of their order."""
    columns = [
        column for column in (computed or recorded or [{}])[0] if column not in _NOT_COMPARED
    ]
    for column in columns:
        if recorded and column not in recorded[0]:
            yield f"{name}: column {column} is missing"
    columns = [column for column in columns if not recorded or column in recorded[0]]
    key = [name for name in key if name in columns]
    before, after = _keyed(recorded, key, columns), _keyed(computed, key, columns)
    for row in (*before, *(row for row in after if row not in before)):
        told = dict(zip(key, row[:-1], strict=True))
        title = _title(told)
        if row not in after:
            yield f"{name}: {title}: recorded, but not in the logs"
        elif row not in before:
            yield f"{name}: {title}: in the logs, but not recorded"
        else:
            for column in columns:
                old, new = before[row].get(column), after[row].get(column)
                if old == new:
                    continue
                about = _title({**told, "metric": ""}) if column == _DIGEST else title
                yield f"{name}: {about}: {column} is {_shown(old)}, but {_shown(new)} in the logs"


def _title(row: Mapping[str, str]) -> str:
    """mxnet-resnet50v1b builtin fp32 b128 1n8g gpu v100-cuda10.2 r3 samples_per_second"""
    what = ("workload", "model", "source", "precision")
    where = ("directory", "accelerator", "stack", "container")
    texts = (
        *(row.get(name) for name in what),
        f"b{row.get('batch_size_per_device')}",
        f"{row.get('nodes')}n{row.get('gpus_per_node')}g",
        *dict.fromkeys(row.get(name) for name in where),
        f"r{row['repeat']}" if row.get("repeat") else "",
        row.get("metric"),
    )
    return " ".join(text for text in texts if text)


def _keyed(
    rows: Sequence[Record], key: Sequence[str], columns: Sequence[str]
) -> dict[tuple[str, ...], Record]:
    """The rows by key. The last part of the key numbers rows that are otherwise equal in it."""
    found: dict[tuple[str, ...], Record] = {}
    ordered = sorted(rows, key=lambda row: [_shown(row.get(column)) for column in columns])
    for row in ordered:
        texts = tuple("" if row.get(part) is None else str(row.get(part)) for part in key)
        number = 0
        while (*texts, str(number)) in found:
            number += 1
        found[(*texts, str(number))] = row
    return found


def _shown(value: object) -> str:
    return "nothing" if value in (None, "") else json.dumps(value, ensure_ascii=False, default=str)
