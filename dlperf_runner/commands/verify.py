"""Checks whether all files of a directory are as recorded and match its logs. Writes nothing."""

from __future__ import annotations

import csv
import json
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from io import StringIO, TextIOWrapper
from pathlib import Path
from typing import Any

from ..campaign.directory import read_plan, require_existing, run_directory
from ..campaign.manifest import (
    FILE,
    FOUND,
    SIGNATURE,
    changes,
    check,
    home,
    is_digest,
    read,
    recorded_files,
)
from ..catalog.workload import Model
from ..compare.spread import refuse_copies
from ..core.errors import UserError
from ..core.files import is_campaign, open_read, read_bytes, read_json, stored
from ..core.frame import records
from ..core.identity import CASE
from ..core.printable import printable
from ..report.result_files import SOURCE, destination, documents
from ..results.load import Progress, Results, catalogued, load_results
from ..results.statement import Statements

# The key of a row. It may not be unique: one repeat can have several logs, of which one counts.
_RUN = (*CASE, "repeat", "metric")
# The digest of a log is the same for all metrics of its run, so it is reported only once.
_DIGEST = "log_sha256"

Record = Mapping[str, Any]


@dataclass(frozen=True)
class Verification:
    """Differences and remarks, as sentences, and logs that failed validation."""

    differences: list[str]
    problems: list[UserError]
    notes: list[str]


def verify(
    sources: Path | Sequence[Path],
    output_dir: Path | None = None,
    history: Path | None = None,
    models: Sequence[Model] | None = None,
    *,
    statements: Statements | None = None,
    allowed_signers: Path | None = None,
    progress: Progress | None = None,
) -> Verification:
    """Check the manifest and its signature, then the plan, the results, the report and the history
    against the logs.

    `allowed_signers`: a file of ssh-keygen(1); the manifest must then be signed by one of them.
    Raises UserError if there is nothing to compare.
    """
    sources = [sources] if isinstance(sources, Path) else sources
    for path in sources:
        _refuse_part(path)
    directory = sources[0]
    models = catalogued(sources) if models is None else models
    place = output_dir or destination(sources)
    differences: list[str] = []
    notes: list[str] = []
    problems: list[UserError] = []
    try:
        for each, name in _manifests(home(directory), home(place)).items():
            for differs, sentence in check_manifest(each, allowed_signers):
                (differences if differs else notes).append(f"{name}{sentence}")
        differences += against_plan(directory)
        recorded = read(directory) if is_campaign(directory) else None
        if recorded is None or (place / "summary.json").exists():
            read_logs = partial(
                load_results,
                sources,
                models,
                statements=statements,
                recorded=recorded_files(recorded) if recorded else None,
                progress=progress,
                with_others=True,
            )
            differences += _against_logs(read_logs, place, history, models, problems)
        else:
            notes.append("no results to compare with the logs")
    except UserError as error:
        if not differences:
            raise
        problems.append(error)
    differences, notes = ([*dict.fromkeys(map(printable, texts))] for texts in (differences, notes))
    return Verification(differences, problems, notes)


def _refuse_part(path: Path) -> None:
    """Raise UserError if a source does not exist, or lies in a campaign that is not the source
    itself: its checksums would say nothing about it."""
    require_existing(path)
    if (campaign := home(path)) != path.resolve():
        raise UserError(
            "a part of a campaign cannot be verified alone",
            where=str(path),
            expected="a campaign, or logs that are not in one",
            found=f"{path.resolve()}, in the campaign {campaign}",
            hint=f"verify the campaign: dlperf summarize --verify {shlex.quote(str(campaign))}",
        )


def _manifests(source: Path, results: Path) -> dict[Path, str]:
    """The directories whose manifests are checked, with the prefix of their files' names.

    Without a campaign, a report has a manifest of its own.
    """
    prefixes = {results: ""}
    if is_campaign(source):
        prefixes[source] = ""
    reports = (place / "report" for place in (results, source))
    return prefixes | {place: "report/" for place in reports if (place / FILE).is_file()}


def _against_logs(
    read_logs: Callable[[], Results],
    place: Path,
    history: Path | None,
    models: Sequence[Model],
    problems: list[UserError],
) -> Iterator[str]:
    """Compute everything again. Adds to the problems."""
    from ..report.numbers import named_record

    if not (place / "summary.json").exists():
        raise UserError(
            "no recorded results to compare with the logs",
            where=str(place),
            expected="the files summary.json and measurements.csv from `summarize`",
            found="no summary.json" if place.is_dir() else "no such directory",
        )
    recorded_cases = _summary(place / "summary.json")
    recorded_runs = _measurements(place / "measurements.csv")
    results = read_logs()
    problems += results.problems
    cases, _, files = documents(results, models)
    yield from _unrecorded(place, files)
    computed_cases = [*map(named_record, cases)]
    computed_runs = list(csv.DictReader(StringIO(files["measurements.csv"])))
    differing = [
        *_missing("summary.json", recorded_cases, computed_cases),
        *_missing("measurements.csv", recorded_runs, computed_runs),
        *_compared("summary.json", recorded_cases, computed_cases, CASE),
        *_compared("measurements.csv", recorded_runs, computed_runs, _RUN),
    ]
    yield from differing
    names = {sentence.partition(":")[0] for sentence in differing}
    stale = {path.name for path in place.glob("bz*_result.json")} - files.keys()
    yield from (f"{name}: the logs give no such file" for name in sorted(stale))
    yield from against_content(place, {n: text for n, text in files.items() if n not in names})
    yield from against_report(results.directory, models)
    if history is not None:
        runs = records(results.frame)
        yield from _against_history(results.directory, place, history, cases, runs)


def _unrecorded(place: Path, names: Iterable[str]) -> Iterator[str]:
    """A sentence for each file of results that the manifest beside it lacks."""
    where = home(place)
    if (manifest := read(where)) is None:
        return
    recorded = recorded_files(manifest)
    for name in names:
        below = os.path.relpath(place.resolve() / name, where)
        if below not in recorded and (place / name).exists():
            yield f"{below}: added: {FILE} does not record it"


def _against_history(
    directory: Path,
    place: Path,
    history: Path,
    cases: Sequence[Record],
    runs: Sequence[Record],
) -> Iterator[str]:
    """Compare all tables of the history with the manifest, and with what the logs give."""
    from ..history import store

    recorded = store.campaign_identity(directory)
    logs = [run[_DIGEST] for run in runs]
    tables = store.recorded_tables(history, recorded, logs) if history.is_file() else None
    if tables is None:
        yield f"{history}: this campaign is not recorded"
        return
    kept = [{name: run[name] for name in store.MEASUREMENTS} for run in runs]
    rows = [{**row, "valid": bool(row["valid"])} for row in tables["measurements"]]
    yield from _compared(history.name, rows, kept, _RUN)
    ids = [{"case_id": store.case_id(case)} for case in cases]
    computed = [{n: case[n] for n in store.CASES} | i for case, i in zip(cases, ids, strict=True)]
    yield from _compared(history.name, tables["cases"], computed, CASE)
    manifest = read(home(place))
    name = os.path.relpath(history.resolve(), home(place))
    sealed = manifest.files.get(name) if manifest else None
    if sealed is not None and sealed.digest != store.rows_digest(tables):
        yield f"{history.name}: rows of this campaign changed since {FILE}:{sealed.number}"


def _summary(path: Path) -> list[dict[str, Any]]:
    cases = read_json(path).get("cases")
    if not isinstance(cases, list) or not all(isinstance(case, dict) for case in cases):
        raise UserError("invalid summary file", where=str(path), expected="a list `cases`")
    return cases


def _measurements(path: Path) -> list[dict[str, str]]:
    try:
        with TextIOWrapper(open_read(path), encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file, strict=True))
    except FileNotFoundError:
        raise UserError("file not found", where=str(path)) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UserError("cannot read the file", where=str(path), found=str(error)) from None


def _compared(
    name: str, recorded: Sequence[Record], computed: Sequence[Record], key: Sequence[str]
) -> Iterator[str]:
    """The differences between two lists of rows in the columns of both, regardless of their
    order."""
    columns, present = _columns(computed or recorded), _columns(recorded)
    columns = [column for column in columns if not recorded or column in present]
    key = [name for name in key if name in columns]
    before, after = _keyed(recorded, key, columns), _keyed(computed, key, columns)
    for row in (*before, *(row for row in after if row not in before)):
        key_values = dict(zip(key, row[:-1], strict=True))
        title = _title(key_values)
        if row not in after:
            yield f"{name}: {title}: recorded, but not in the logs"
        elif row not in before:
            yield f"{name}: {title}: in the logs, but not recorded"
        else:
            for column in columns:
                old, new = before[row].get(column), after[row].get(column)
                if old == new:
                    continue
                about = _title({**key_values, "metric": ""}) if column == _DIGEST else title
                yield f"{name}: {about}: {column} is {_shown(old)}, but {_shown(new)} in the logs"


def _missing(name: str, recorded: Sequence[Record], computed: Sequence[Record]) -> list[str]:
    present = _columns(recorded)
    columns = [column for column in _columns(computed) if recorded and column not in present]
    return [f"{name}: column {column} is missing" for column in columns]


def _columns(rows: Sequence[Record]) -> list[str]:
    return list(dict.fromkeys(name for row in rows for name in row))


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
    by_key: dict[tuple[str, ...], Record] = {}
    seen: Counter[tuple[str, ...]] = Counter()
    for row in sorted(rows, key=lambda row: [_shown(row.get(column)) for column in columns]):
        texts = tuple("" if row.get(part) is None else str(row.get(part)) for part in key)
        by_key[(*texts, str(seen[texts]))] = row
        seen[texts] += 1
    return by_key


def _shown(value: object) -> str:
    return "nothing" if value in (None, "") else json.dumps(value, ensure_ascii=False, default=str)


# ---- the files themselves


def check_manifest(place: Path, allowed_signers: Path | None) -> Iterator[tuple[bool, str]]:
    """Sentences about a directory's manifest; True before those that are differences."""
    manifest = read(place)
    if manifest is None:
        if allowed_signers is not None or (place / SIGNATURE).exists() or _had_manifest(place):
            yield True, f"{FILE}: missing"
        else:
            yield False, "no manifest: only logs, results, runs and plan were compared"
        return
    yield from ((True, sentence) for sentence in changes(place, manifest))
    yield from ((False, note) for note in manifest.notes)
    if manifest.began == FOUND:
        yield (
            _had_manifest(place),
            f"{FILE}: began when there were files already; it shows only later changes",
        )
    yield from check(place, manifest, allowed_signers)


def refuse_tampered(loaded: Iterable[Results]) -> None:
    """Raise UserError if runs are not what the manifest of their campaign recorded, or if two of
    the results have a log in common."""
    results = list(loaded)
    refuse_copies((str(each.directory), each.logs) for each in results)
    for each in results:
        for differs, sentence in check_manifest(home(each.directory), None):
            if differs and sentence.startswith(("runs/", FILE)):
                raise UserError(
                    "the runs are not those that the manifest recorded",
                    where=str(each.directory),
                    found=sentence,
                    hint=f"all differences: dlperf verify {each.directory}",
                )


def _had_manifest(place: Path) -> bool:
    """True if a file of the directory says so."""
    paths = [place / name for name in ("campaign.json", SOURCE)]
    return any("manifest" in read_json(path) for path in paths if path.is_file())


def against_plan(directory: Path) -> Iterator[str]:
    """The differences between plan.json, each run.json and the digest of its log."""
    if not (directory / "plan.json").is_file():
        return
    planned = {
        run_directory(directory, run): run
        for run in read_plan(directory, with_removed=True)["runs"]
    }
    for path in sorted(directory.glob("runs/*/*/run.json")):
        name = path.relative_to(directory).as_posix()
        run, record = planned.pop(path.parent, None), read_json(path)
        if run is None:
            yield f"{name}: plan.json does not have this run"
            continue
        names = [key for key in {**run, **record} if key != "outcome"]
        differing = [key for key in names if run.get(key) != record.get(key)]
        if differing:
            yield f"{name}: {', '.join(differing)} differ from plan.json"
        outcome, log = record.get("outcome"), path.with_name(str(run["log_name"]))
        expected = outcome.get("log_sha256") if isinstance(outcome, dict) else None
        if expected is not None and stored(log).is_file() and not is_digest(log, expected):
            yield f"{log.relative_to(directory).as_posix()}: its SHA-256 is not the one in run.json"
    for place in planned:
        yield f"{place.relative_to(directory).as_posix()}: the run is in plan.json, but not here"


def against_content(place: Path, computed: Mapping[str, str | bytes]) -> Iterator[str]:
    """Each file that differs from what was computed again."""
    for name, content in computed.items():
        expected = content.encode() if isinstance(content, str) else content
        try:
            if read_bytes(place / name, inside=place) != expected:
                yield f"{name}: differs from what the logs give"
        except OSError as error:
            yield f"{name}: {error.strerror}"


def against_report(directory: Path, models: Sequence[Model] | None) -> Iterator[str]:
    """Compare the files of the campaign's own report that are the same each time it is written."""
    from .report import data_files

    place = home(directory) / "report"
    if not (place / "results.json").is_file():
        return
    try:
        made = json.loads(read_bytes(place / "results.json"))["made_with"]
        options = {
            "lang": str(made["lang"]),
            "conditions": [str(condition) for condition in made["conditions"]],
            "one_chart": made["one_chart"] is True,
        }
        computed = data_files([directory], models, options)
    except (OSError, ValueError, KeyError, TypeError):
        yield "report/results.json: does not say with which options the report was made"
    except UserError as error:
        yield f"report/results.json: {error.problem}"
    else:
        yield from (f"report/{sentence}" for sentence in against_content(place, computed))
