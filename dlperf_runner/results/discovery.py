"""Find the runs in a directory of logs, and their settings from the plan or the file names.

The directory is a campaign (runs/<case>/r<k>/run.json and its log), a tree like the published one
(.../bz128/4n8g/rn50_b128_fp32_1.log), or a folder of logs named as in the NGC report
(tf_gpu8_amp_bs256.txt).
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..catalog.validity import ValidityRules, rules_of
from ..core.case import SCHEMA, Topology
from ..core.errors import UserError
from ..core.files import read_json
from .log_file import Log
from .run_record import FoundRun, Known, planned_run

# rn50_b128_fp32_1.log, below a directory such as 4n8g; the name may contain the topology too.
_TREE_NAME = re.compile(
    r"(?P<short>[A-Za-z0-9.+-]+(?:_[A-Za-z0-9.+-]+)*?)_b(?P<batch>\d{1,9})_(?P<precision>[a-z]+\d*)"
    r"(?:_(?P<topology>\d{1,6}n\d{1,6}g))?(?:_(?P<repeat>\d{1,9}))?",
    re.ASCII,
)
# tf_gpu8_amp_bs256.txt
FLAT_NAME = re.compile(
    r"(?P<short>[A-Za-z0-9.+-]+)_gpu(?P<devices>\d{1,9})_(?P<precision>[a-z]+\d*)_bs(?P<batch>\d{1,9})"
    r"(?:_(?P<repeat>\d{1,9}))?",
    re.ASCII,
)
_BATCH_DIRECTORY = re.compile(r"bz(\d{1,9})", re.ASCII)
FLAT_DEVICES_PER_NODE = 8  # as in the cluster of the NGC report; the names do not give the nodes


@dataclass(frozen=True)
class Place:
    """The place of a possible run: a run record in a campaign, with the validity rules of the
    campaign, or a log. `directories` are the names of its parent directories, from the nearest up
    to the directory that was given."""

    path: Path
    is_record: bool
    rules: ValidityRules | None = None
    directories: tuple[str, ...] = ()

    def size(self) -> int:
        """Approximate number of bytes to read."""
        try:
            if not self.is_record:
                return self.path.stat().st_size
            return sum(entry.stat().st_size for entry in os.scandir(self.path.parent))
        except OSError:
            return 0  # the error is reported when the file is read


def places(directory: Path, problems: list[UserError]) -> list[Place]:
    """Every place below the directory, in a stable order. Errors of the campaign itself are added
    to `problems`."""
    records = sorted(directory.glob("runs/*/*/run.json"), key=_natural)
    if records or (directory / "campaign.json").exists():
        rules = _rules(directory, problems)
        return [Place(path, is_record=True, rules=rules) for path in records]
    top, depth = directory.resolve().name, len(directory.parts)
    return [
        Place(path, is_record=False, directories=(*path.parts[depth:-1][::-1], top))
        for path in sorted(_log_files(directory), key=_natural)
    ]


def run_at(place: Place, known: Sequence[Known]) -> tuple[FoundRun, Log] | None:
    """The run at a place and its log; None if the file is not a benchmark log. Raises UserError if
    the run cannot be identified."""
    if place.is_record:
        run = replace(planned_run(place.path, known), rules=place.rules)
        return run, Log(run.path)
    log = Log(place.path)
    named = _named_run(log, place.directories, known)
    return None if named is None else (named, log)


def _rules(directory: Path, problems: list[UserError]) -> ValidityRules | None:
    """The validity rules of the campaign; None if it has none."""
    path = directory / "campaign.json"
    try:
        document = read_json(path) if path.exists() else None
    except UserError as error:
        problems.append(error)
        return None
    if document is None:
        return None
    schema = document.get("schema", SCHEMA)
    if isinstance(schema, int) and schema > SCHEMA:
        raise UserError(
            "a newer version of this program made this campaign",
            where=f"{path}: schema",
            expected=f"at most {SCHEMA}",
            found=str(schema),
        )
    try:
        return rules_of(document, path)
    except UserError as error:
        problems.append(error)
        return None


def _log_files(directory: Path) -> Iterator[Path]:
    for folder, _, names in os.walk(directory):
        for name in names:  # everything but directories: files, links and devices
            if name.endswith((".log", ".txt")) and not name.startswith("."):
                path = Path(folder, name)
                if path.is_file():
                    yield path


def _natural(path: Path) -> list[tuple[int, str]]:
    """Sort key that puts r2 before r10, and 2n8g before 10n8g."""
    return [
        (int(part), "") if part.isdigit() and part.isascii() else (-1, part)
        for part in re.split(r"(\d+)", str(path), flags=re.ASCII)
    ]


# ---- runs by name


def _named_run(log: Log, directories: Sequence[str], known: Sequence[Known]) -> FoundRun | None:
    """The run that the path of a log names; None if the file is not a benchmark log."""
    path = log.path
    named = _TREE_NAME.fullmatch(path.stem) or FLAT_NAME.fullmatch(path.stem)
    if named is None:
        try:
            form = log.form
        except UserError:
            return None  # ansible.log, NOTES.txt
        raise UserError(
            f"the file name does not identify the run of this {form.name} log",
            where=str(path),
            expected="a name like rn50_b128_fp32_1.log or tf_gpu8_amp_bs256.txt",
            found=path.name,
        )
    parts = named.groupdict()
    batch, repeat = int(parts["batch"]), int(parts["repeat"] or 1)
    if not batch:
        raise UserError("the batch size must be at least 1", where=str(path), found=path.name)
    _check_batch_directory(path, directories, batch)
    form = log.form
    entry = _entry(path, parts, form.name, known)
    return FoundRun(
        path=path,
        workload=entry.workload,
        framework=entry.framework,
        model=entry.model,
        precision=parts["precision"],
        batch_size_per_device=batch,
        topology=_topology(path, parts, directories),
        repeat=repeat,
        rule=entry.rule,
        log_format=form.name,
        expected_by="the file name",
    )


def _check_batch_directory(path: Path, directories: Iterable[str], batch: int) -> None:
    for name in directories:
        match = _BATCH_DIRECTORY.fullmatch(name)
        if match and int(match[1]) != batch:
            raise UserError(
                f"the batch size in the file name contradicts the directory {name}",
                where=str(path),
                expected=match[1],
                found=str(batch),
            )


def _topology(path: Path, parts: Mapping[str, str | None], ancestors: Iterable[str]) -> Topology:
    if devices := parts.get("devices"):
        number = int(devices)
        if 1 <= number <= FLAT_DEVICES_PER_NODE:
            return Topology(1, number)
        if number and number % FLAT_DEVICES_PER_NODE == 0:
            return Topology(number // FLAT_DEVICES_PER_NODE, FLAT_DEVICES_PER_NODE)
        raise UserError(
            "cannot determine the number of nodes from the file name",
            where=str(path),
            expected=f"1 to {FLAT_DEVICES_PER_NODE} devices, or a multiple"
            f" of {FLAT_DEVICES_PER_NODE}",
            found=devices,
        )
    directories = [name for name in ancestors if is_topology(name)]
    named = parts.get("topology")
    if named and directories and Topology.parse(named) != Topology.parse(directories[0]):
        raise UserError(
            "the topology in the file name contradicts the directory",
            where=str(path),
            expected=directories[0],
            found=named,
        )
    text = directories[0] if directories else named
    if text is None:
        raise UserError(
            "cannot determine the number of nodes and devices",
            where=str(path),
            expected="a parent directory named like 4n8g",
        )
    try:
        return Topology.parse(text)
    except ValueError as error:
        raise UserError(str(error), where=str(path)) from None


def is_topology(name: str) -> bool:
    try:
        Topology.parse(name)
    except ValueError:
        return False
    return True


def _entry(
    path: Path, parts: Mapping[str, str | None], log_format: str, known: Sequence[Known]
) -> Known:
    """The catalogue entry for a log, found by its format and the short name of its model."""
    same_format = [entry for entry in known if entry.log_format == log_format]
    # Flat names begin with the framework and do not name a model.
    fitting = [e for e in same_format if "devices" in parts or e.short_name == parts["short"]]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(f"{e.short_name} ({e.workload})" for e in fitting or same_format)
    raise UserError(
        f"several workloads of the catalogue have {log_format} logs with this name"
        if fitting
        else f"no workload of the catalogue has {log_format} logs with this name",
        where=str(path),
        expected=f"one of {names}" if names else "a workload with this log format",
        found=parts["short"],
    )
