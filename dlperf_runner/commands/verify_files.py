"""Checks of the files themselves: the manifest, its signature, the plan, and the report."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..campaign.directory import read_plan, run_directory
from ..campaign.manifest import FILE, FOUND, SIGNATURE, changes, home, is_digest, read
from ..campaign.signature import check
from ..catalog.workload import Model
from ..core.errors import UserError
from ..core.files import read_bytes, read_json, stored
from ..results.destination import SOURCE


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


def _had_manifest(place: Path) -> bool:
    """Whether a file of the directory says so. Earlier versions wrote no manifest."""
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


def against_report(directory: Path, models: Sequence[Model] | None) -> Iterator[tuple[bool, str]]:
    """Compare the files of the campaign's own report that are the same each time it is written."""
    from .report import data_files

    place = home(directory) / "report"
    if not (place / "results.json").is_file():
        return
    try:
        made = json.loads(read_bytes(place / "results.json"))["made_with"]
        conditions = [str(condition) for condition in made["conditions"]]
        computed = data_files([directory], str(made["lang"]), models, conditions)
    except (OSError, ValueError, KeyError, TypeError):
        # Reports of older versions do not.
        yield False, "report/results.json: does not say with which options the report was made"
    except UserError as error:
        yield True, f"report/results.json: {error.problem}"
    else:
        yield from ((True, f"report/{told}") for told in against_content(place, computed))
