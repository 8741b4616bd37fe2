"""The results of all campaigns in one SQLite file: results/history.sqlite.

The history is a copy: the logs are authoritative, and `summarize` replaces the entry of a campaign
that shares a log with it. Each campaign is written in one transaction, so several processes may
write at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import sqlite3
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any, get_args

from ..core.errors import UserError
from ..core.files import read_json, require_regular
from ..core.frame import SAMPLES_PER_SECOND, Frame, plain_rows
from ..core.identity import CASE, INTEGERS, topology_text
from ..core.units import Unit, per_second

FILE = "history.sqlite"
SCHEMA = 5  # PRAGMA user_version
_APPLICATION = 0x646C7066  # PRAGMA application_id: "dlpf"
_BUSY_TIMEOUT_S = 30  # wait for another process that writes


def _typed(**names: str) -> dict[str, str]:
    return {name: kind for kind, texts in names.items() for name in texts.split()}


_CASE = {name: "INTEGER" if name in INTEGERS else "TEXT" for name in CASE} | {"estimator": "TEXT"}
# Columns and their types in the long frame (see core.frame).
MEASUREMENTS = _CASE | _typed(
    TEXT="metric unit log_sha256 why_invalid stated",
    INTEGER="global_batch_size repeat valid",
    REAL="value",
)
# Columns and their types in the cases of stats.summary.
CASES = _CASE | _typed(
    TEXT="unit",
    INTEGER="repeats",
    REAL="samples_per_second_median samples_per_second_mean samples_per_second_ci_low"
    " samples_per_second_ci_high samples_per_second_ci_coverage speedup scaling_efficiency",
)


@dataclass(frozen=True)
class RecordedCampaign:
    """A recorded campaign. `name` and `created` (ISO 8601, UTC) identify it in the history."""

    name: str
    created: str
    directory: str


# A case of a campaign, with its statistics at the time when it was summarised. `case_id` omits
# versions, drivers and images, so that it stays the same over the years.
Point = Mapping[str, Any]
_UNITS = tuple(map(per_second, get_args(Unit)))
POINT = (
    *("case_id", "campaign", "created", *CASE, "unit", "repeats", "estimator"),
    *(f"{SAMPLES_PER_SECOND}_{name}" for name in ("median", "ci_low", "ci_high", "ci_coverage")),
)


def history_of(directory: Path) -> Path | None:
    """The history file next to a campaign; None if its parent directory is not named `results`. A
    campaign elsewhere is recorded only on request."""
    from ..campaign.directory import RESULTS

    parent = directory.resolve().parent
    return parent / FILE if parent.name == RESULTS.name else None


def campaign_identity(directory: Path) -> RecordedCampaign:
    """The identity of the campaign in a directory. A tree of logs has its path as name and the time
    of its newest log as creation time."""
    path = directory.resolve()
    if (path / "campaign.json").is_file():
        document = read_json(path / "campaign.json")
        return RecordedCampaign(
            str(document.get("id") or path.name), _time(document, path / "campaign.json"), str(path)
        )
    files = [file for file in path.rglob("*") if file.is_file()]
    logs = [file for file in files if file.suffix in (".log", ".txt", ".json")] or files
    newest = datetime.fromtimestamp(max((log.stat().st_mtime for log in logs), default=0), UTC)
    return RecordedCampaign(str(path), newest.isoformat(timespec="seconds"), str(path))


def _time(document: Mapping[str, Any], path: Path) -> str:
    try:
        time = datetime.fromisoformat(document["created"])
    except (KeyError, TypeError, ValueError):
        raise UserError(
            "the campaign has no valid creation time",
            where=str(path),
            expected="a time like 2026-11-21T06:39:20+00:00",
            found=repr(document.get("created")),
        ) from None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return time.astimezone(UTC).isoformat(timespec="seconds")


def case_id(case: Mapping[str, Any]) -> str:
    """A name like that of a run: mxnet-resnet50v1b-builtin_fp32_b128_2n8g_V100-SXM2-16GB_3f9a1c20.
    The end stands for parameters, steps and directory."""
    name = "-".join(filter(None, (case["workload"], case["source"])))
    if case["model"] not in name:
        name += f"_{case['model']}"
    engine = str(case["container"] or "").partition(" ")[0]
    parts = [name, case["precision"], f"b{case['batch_size_per_device']}"]
    parts.append(topology_text(case))
    parts += dict.fromkeys(filter(None, (case["accelerator"], case["stack"], engine)))
    rest = [case[name] for name in ("parameters", "total_steps", "warmup_steps", "directory")]
    if any(value is not None for value in rest):
        parts.append(hashlib.sha256(json.dumps(rest).encode()).hexdigest()[:8])
    return "_".join(str(part).replace(" ", "-") for part in parts)


# ---- writing


def record(
    path: Path, campaign: RecordedCampaign, frame: Frame, cases: Sequence[Mapping[str, Any]]
) -> RecordedCampaign:
    """Write the long frame and the cases of a campaign to the history, replacing its earlier ones.
    Returns the campaign as recorded: if others of its name and time have no log of it, its name
    also says where it is."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    with _opened(path, write=True) as history:
        history.execute("BEGIN IMMEDIATE")
        _prepare(history, path)
        logs = set(frame["log_sha256"].dropna())
        alike = _alike(history, campaign)
        same_place = "SELECT id FROM campaigns WHERE directory = ?"
        entries = history.execute(same_place, (campaign.directory,)).fetchall()
        if not cases and any(alike.get(entry) for (entry,) in entries):
            return campaign  # a try without results replaces nothing, and is no other campaign
        for entry, of_entry in alike.items():
            # Nothing is lost with an entry without logs.
            if not of_entry or (cases and of_entry & logs):
                history.execute("DELETE FROM campaigns WHERE id = ?", (entry,))
        name = _free_name(history, campaign)
        key = history.execute(
            "INSERT INTO campaigns (name, created, directory, recorded, base_name)"
            " VALUES (?, ?, ?, ?, ?)",
            (name, campaign.created, campaign.directory, now, campaign.name),
        ).lastrowid
        measurements = plain_rows(frame[list(MEASUREMENTS)])
        _insert(history, "measurements", ["campaign", *MEASUREMENTS], key, measurements)
        rows = ((case_id(case), *(case[name] for name in CASES)) for case in cases)
        _insert(history, "cases", ["campaign", "case_id", *CASES], key, rows)
        history.execute("COMMIT")
    return replace(campaign, name=name)


def _alike(history: sqlite3.Connection, campaign: RecordedCampaign) -> dict[int, set[str]]:
    """The entries that may be of the same campaign, in the order of time, with the SHA-256 of their
    logs: those of its name and time, or of the same tree, whose logs may be newer now."""
    entries = history.execute(
        "SELECT id FROM campaigns WHERE (base_name = ? AND created = ?) OR base_name = ?"
        " ORDER BY created, id",
        (campaign.name, campaign.created, campaign.directory),
    ).fetchall()
    logs = "SELECT DISTINCT log_sha256 FROM measurements WHERE campaign = ?"
    return {
        entry: {digest for (digest,) in history.execute(logs, (entry,)) if digest}
        for (entry,) in entries
    }


def _free_name(history: sqlite3.Connection, campaign: RecordedCampaign) -> str:
    """The name of a campaign, or one that tells it from others of its name and time."""
    taken = {
        name
        for (name,) in history.execute(
            "SELECT name FROM campaigns WHERE created = ?", (campaign.created,)
        )
    }
    names = [campaign.name]
    if campaign.name != campaign.directory:
        names.append(f"{campaign.name} ({Path(campaign.directory).parent})")
    numbered = (f"{names[-1]} ({number})" for number in count(2))
    return next(name for name in chain(names, numbered) if name not in taken)


def _insert(
    history: sqlite3.Connection,
    table: str,
    columns: list[str],
    key: int | None,
    rows: Iterable[tuple[Any, ...]],
) -> None:
    marks = ", ".join("?" * len(columns))
    # The names of tables and columns come from this module only.
    history.executemany(
        f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})",  # noqa: S608
        ((key, *row) for row in rows),
    )


def _prepare(history: sqlite3.Connection, path: Path) -> None:
    """Create the tables of a new file; raise UserError if the file is not a history."""
    if history.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
        _require_schema(history, path)
        return
    columns = {
        "campaigns": "id INTEGER PRIMARY KEY, name TEXT NOT NULL, created TEXT NOT NULL, "
        "directory TEXT NOT NULL, recorded TEXT NOT NULL, base_name TEXT, UNIQUE (name, created)",
        "measurements": _declared(MEASUREMENTS),
        "cases": f"case_id TEXT NOT NULL, {_declared(CASES)}",
    }
    reference = "campaign INTEGER NOT NULL REFERENCES campaigns (id) ON DELETE CASCADE, "
    for table, declared in columns.items():
        first = "" if table == "campaigns" else reference
        history.execute(f"CREATE TABLE {table} ({first}{declared})")
    for table in ("measurements", "cases"):
        history.execute(f"CREATE INDEX {table}_of_campaign ON {table} (campaign)")
    history.execute("CREATE INDEX cases_by_id ON cases (case_id)")
    history.execute(f"PRAGMA application_id = {_APPLICATION}")
    history.execute(f"PRAGMA user_version = {SCHEMA}")


def _declared(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


# ---- reading


def points(path: Path) -> list[Point]:
    """Every case of every campaign, sorted by case and then by time."""
    campaign_columns = {"campaign": "campaigns.name", "created": "campaigns.created"}
    columns = ", ".join(campaign_columns.get(name, f"cases.{name}") for name in POINT)
    with _reading(path) as history:
        rows = history.execute(
            f"SELECT {columns} FROM cases JOIN campaigns ON campaigns.id = cases.campaign "  # noqa: S608
            "ORDER BY case_id, created, campaigns.name, framework_version, driver, container"
        ).fetchall()
    made: list[Point] = [dict(zip(POINT, row, strict=True)) for row in rows]
    for point in made:
        for name, value in point.items():
            if not _is_possible(name, value):
                raise _unusable(path, f"a case whose {name} is {value!r}")
    return made


def _is_possible(name: str, value: object) -> bool:
    """True if a column of a point may have this value. SQLite keeps any in any column."""
    if name == "unit":
        return value in _UNITS
    if CASES.get(name, "TEXT") != "TEXT":
        return value is None or (isinstance(value, int | float) and math.isfinite(value))
    if name == "created":
        with suppress(TypeError, ValueError):
            return bool(datetime.fromisoformat(value))  # type: ignore[arg-type]
        return False
    return isinstance(value, str) or (value is None and name != "case_id")


def recorded_tables(
    path: Path, campaign: RecordedCampaign, logs: Collection[str | None] = ()
) -> dict[str, list[dict[str, Any]]] | None:
    """All rows of a campaign in every table, without their keys; None if it is not recorded.
    `logs`: the SHA-256 of its logs. Of several entries without any of them, the last is read."""
    with _reading(path) as history:
        alike = _alike(history, campaign)
        sharing = [entry for entry, of_entry in alike.items() if not of_entry.isdisjoint(logs)]
        if not (chosen := sharing or [*alike]):
            return None
        history.row_factory = sqlite3.Row
        keys = {"campaigns": "id", "measurements": "campaign", "cases": "campaign"}
        rows = {
            table: history.execute(
                f"SELECT * FROM {table} WHERE {key} = ? ORDER BY rowid",  # noqa: S608
                (chosen[-1],),
            ).fetchall()
            for table, key in keys.items()
        }
    return {
        table: [{n: v for n, v in dict(row).items() if n not in keys.values()} for row in several]
        for table, several in rows.items()
    }


def rows_digest(tables: Mapping[str, list[dict[str, Any]]]) -> str:
    """The SHA-256 of a campaign's rows."""
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


def with_same_logs(path: Path, campaign: RecordedCampaign) -> list[str]:
    """The names of the other recorded campaigns that have a log of this one."""
    with _reading(path) as history:
        rows = history.execute(
            "SELECT DISTINCT other.name FROM campaigns AS own"
            " JOIN measurements AS a ON a.campaign = own.id"
            " JOIN measurements AS b ON b.log_sha256 = a.log_sha256 AND b.campaign <> own.id"
            " JOIN campaigns AS other ON other.id = b.campaign"
            " WHERE own.name = ? AND own.created = ? AND a.metric = b.metric ORDER BY other.name",
            (campaign.name, campaign.created),
        ).fetchall()
    return [name for (name,) in rows]


@contextmanager
def _reading(path: Path) -> Iterator[sqlite3.Connection]:
    if not path.is_file():
        raise UserError(
            "no history found",
            where=str(path),
            expected="a file that `summarize` or `run` wrote for a campaign in results/",
        )
    with _opened(path, write=False) as history:
        history.execute("BEGIN")
        _require_schema(history, path)
        yield history


@contextmanager
def _opened(path: Path, *, write: bool) -> Iterator[sqlite3.Connection]:
    """Open the file, and close it afterwards. An unfinished transaction is rolled back."""
    try:
        # Only a file that the user chose may be a link.
        require_regular(path, path.parent if path.name == FILE else None, create=write)
        mode = "rw" if write else "ro"
        with closing(
            sqlite3.connect(
                f"{path.resolve().as_uri()}?mode={mode}",
                uri=True,
                timeout=_BUSY_TIMEOUT_S,
                isolation_level=None,
            )
        ) as history:
            history.execute("PRAGMA foreign_keys = ON")
            yield history
    except sqlite3.OperationalError as error:
        raise UserError(
            "the history cannot be written" if write else "the history cannot be read",
            where=str(path),
            found=str(error),
            hint="another process may hold a lock, or you may lack permission",
        ) from None
    except sqlite3.DatabaseError as error:
        raise _unusable(path, str(error)) from None
    except OSError as error:
        raise UserError(
            "the history cannot be written", where=str(path), found=error.strerror or str(error)
        ) from None


def _require_schema(history: sqlite3.Connection, path: Path) -> None:
    """Raise UserError if the file is not a history, or one of another schema."""
    (application,) = history.execute("PRAGMA application_id").fetchone()
    (version,) = history.execute("PRAGMA user_version").fetchone()
    if application != _APPLICATION:
        raise _unusable(path, "a database of another program")
    if version != SCHEMA:
        raise _unusable(path, f"schema {version}")


def _unusable(path: Path, content: str) -> UserError:
    return UserError(
        "this file is not a campaign history",
        where=str(path),
        expected=f"an SQLite file of schema {SCHEMA}",
        found=content,
        hint="move it away, then run `summarize` on each campaign to rebuild it from the logs",
    )
