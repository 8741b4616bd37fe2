"""From a directory of logs to a table of speeds and speed-ups, and its files.

What is read: a campaign (runs/<case>/r<k>/run.json and its log), a tree like the published one
(.../bz128/4n8g/rn50_b128_fp32_1.log), or a folder of logs named as in the NGC report
(tf_gpu8_amp_bs256.txt). A log that cannot be believed is a problem that is told, and all others
are counted.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import logs
from .case import Topology
from .errors import UserError
from .frame import Row, make_frame
from .measure import SAMPLES_PER_SECOND, Expected, Measured, Rule, measure, nothing_found

if TYPE_CHECKING:
    import pandas as pd

# rn50_b128_fp32_1.log, below a directory such as 4n8g; the topology may stand in the name too.
_TREE_NAME = re.compile(
    r"(?P<short>[A-Za-z0-9.+-]+(?:_[A-Za-z0-9.+-]+)*?)_b(?P<batch>\d{1,9})_(?P<precision>[a-z]+\d*)"
    r"(?:_(?P<topology>\d{1,6}n\d{1,6}g))?(?:_(?P<repeat>\d{1,9}))?",
    re.ASCII,
)
# tf_gpu8_amp_bs256.txt
_FLAT_NAME = re.compile(
    r"(?P<short>[A-Za-z0-9.+-]+)_gpu(?P<devices>\d{1,9})_(?P<precision>[a-z]+\d*)_bs(?P<batch>\d{1,9})"
    r"(?:_(?P<repeat>\d{1,9}))?",
    re.ASCII,
)
_BATCH_DIRECTORY = re.compile(r"bz(\d{1,9})", re.ASCII)
_FLAT_DEVICES_PER_NODE = 8  # of the cluster of the NGC report; the names do not tell nodes
_CHUNK = 2**20


@dataclass(frozen=True)
class Known:
    """What the catalogue knows of a model: how its logs are called, read and computed."""

    workload: str
    framework: str
    model: str
    short_name: str
    log_format: str
    rule: Rule


@dataclass(frozen=True)
class SummaryResult:
    """What came out: a table to print, what could not be believed, and the files written."""

    text: str
    problems: list[UserError]
    paths: list[Path]


@dataclass(frozen=True)
class _Run:
    """A run, and the log that is to tell its speed; `why_not` says why there is none to read."""

    path: Path
    workload: str
    framework: str
    model: str
    precision: str
    batch_size_per_device: int
    topology: Topology
    repeat: int
    rule: Rule | None
    log_format: str
    expected_by: str
    source: str | None = None
    framework_version: str | None = None
    accelerator: str | None = None
    driver: str | None = None
    stack: str | None = None
    why_not: str | None = None

    @property
    def settings(self) -> tuple[object, ...]:
        """What runs share that are compared with each other."""
        what = (self.workload, self.model, self.source, self.precision, self.batch_size_per_device)
        return (*what, self.framework_version, self.accelerator, self.driver, self.stack)

    @property
    def case(self) -> tuple[object, ...]:
        """What runs share that are repeats of each other."""
        return (*self.settings, self.topology)

    @property
    def setting(self) -> str:
        name = " ".join(filter(None, (self.workload, self.source)))
        return f"{name} {self.precision} b{self.batch_size_per_device}"

    def __str__(self) -> str:
        return f"{self.setting} {self.topology}"


@dataclass
class _Findings:
    """What is found while the directory is read."""

    rows: list[Row] = field(default_factory=list)
    runs: list[_Run] = field(default_factory=list)
    counted: list[_Run] = field(default_factory=list)
    problems: list[UserError] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unconfirmed: dict[tuple[str, str], int] = field(default_factory=dict)
    digests: dict[tuple[object, str], Path] = field(default_factory=dict)


def summarize(
    directory: Path, output_dir: Path | None = None, known: Sequence[Known] | None = None
) -> SummaryResult:
    """Summarise every log below `directory` and write the results into `output_dir` (default:
    `directory`). `known` is what the catalogue knows, by default what stands in it.

    Raises UserError where there is nothing to summarise; what is wrong with single logs is in
    the result's `problems`.
    """
    from .report import data, markdown, text
    from .stats import summarize as statistics

    known = list(catalogued()) if known is None else known
    if not directory.is_dir():
        found = "a file" if directory.exists() else "nothing"
        raise UserError("there is no such directory", where=str(directory), found=found)
    findings = _Findings()
    for run in _runs(directory, known, findings):
        _count(run, findings)
    if not findings.rows and not findings.problems:
        raise UserError(
            "there are no logs here",
            where=str(directory),
            expected="a campaign, or logs like bz128/4n8g/rn50_b128_fp32_1.log"
            " or tf_gpu8_amp_bs256.txt",
            hint="recognised formats: " + ", ".join(logs.formats()),
        )
    frame = make_frame(findings.rows)
    table = statistics(frame)
    notes = [*_notes(table, findings), *findings.notes]
    problems = [str(problem) for problem in findings.problems]
    short_names = {(k.workload, k.model): k.short_name for k in known}
    files = {
        "summary.csv": data.csv(table),
        "measurements.csv": data.csv(frame),
        "summary.json": data.summary(table, notes, problems),
        "summary.md": markdown.render(table, notes, problems),
    }
    for batch, document in data.results_by_batch(table, short_names).items():
        files[f"bz{batch}_result.json"] = document
    paths = [_write((output_dir or directory) / name, content) for name, content in files.items()]
    if problems:
        notes.append(f"{len(problems)} of the logs could not be counted; the errors say why")
    width = shutil.get_terminal_size((80, 24)).columns
    return SummaryResult(text.render(table, notes, width), findings.problems, paths)


def catalogued() -> Iterator[Known]:
    """What the catalogue knows, one entry per model."""
    from .catalog import load_catalog

    for workload in load_catalog().workloads.values():
        names = {workload.model_name(key): v.short_name for key, v in workload.variants.items()}
        for model, short_name in (names or {workload.model: workload.short_name}).items():
            yield Known(
                workload=workload.name,
                framework=workload.framework,
                model=model,
                short_name=short_name,
                log_format=workload.log_format,
                rule=Rule(**workload.rule.model_dump()),
            )


def _count(run: _Run, findings: _Findings) -> None:
    """Add what a run came to."""
    findings.runs.append(run)
    if run.why_not is not None:
        findings.notes.append(f"not counted: {run} r{run.repeat}: {run.why_not}")
        findings.rows.append(_row(run, None, why=run.why_not))
        return
    try:
        measured, digest = _measured(run)
    except UserError as error:
        findings.problems.append(error)
        findings.rows.append(_row(run, None, why=str(error)))
        return
    same = findings.digests.setdefault((run.case, digest), run.path)
    if same != run.path:
        findings.notes.append(f"{run.path} is the same, byte for byte, as {same}; both are counted")
    findings.counted.append(run)
    findings.notes += measured.notes
    for what in {"batch size", "world size"} - measured.confirmed:
        key = (what, run.expected_by)
        findings.unconfirmed[key] = findings.unconfirmed.get(key, 0) + 1
    for item in measured.measurements:
        row = _row(run, digest)
        findings.rows.append(
            replace(
                row, metric=item.metric, value=item.value, unit=item.unit, estimator=item.estimator
            )
        )


def _measured(run: _Run) -> tuple[Measured, str]:
    """What the run's log came to, and the SHA-256 of the log."""
    name = str(run.path)
    form = _format(run.path)
    if form.name != run.log_format:
        raise UserError(
            "the log is of another format than its workload's",
            where=name,
            expected=run.log_format,
            found=form.name,
        )
    if run.rule is None:
        raise UserError("the workload is not in the catalogue", where=name, found=run.workload)
    expected = Expected(run.expected_by, run.topology, run.precision, run.batch_size_per_device)
    digest = hashlib.sha256()
    with _open(run.path) as file:
        records = form.parse(logs.candidates(form, _Tee(file, digest)))
        return measure(form, records, run.rule, expected, name), digest.hexdigest()


def _format(path: Path) -> logs.Format:
    """The format of a log; a UserError where it has none, or is no text."""
    try:
        with _open(path) as file:
            form = logs.detect(file)
    except logs.LineError as error:
        raise UserError(
            error.problem,
            where=f"{path}:{error.line}",
            expected=error.expected,
            found=error.found,
        ) from None
    if form is None:
        raise nothing_found(list(logs.formats().values()), str(path), _lines(path))
    return form


def _lines(path: Path) -> int:
    lines, last = 0, b"\n"
    with _open(path) as file:
        while chunk := file.read(_CHUNK):
            lines += chunk.count(b"\n")
            last = chunk[-1:]
    return lines + (last != b"\n")


def _open(path: Path) -> FileIO:
    try:
        return FileIO(path)
    except OSError as error:
        raise UserError(
            "the log cannot be read", where=str(path), found=error.strerror or str(error)
        ) from None


@dataclass
class _Tee:
    """A file whose bytes are digested as they are read."""

    file: FileIO
    digest: Any

    def readinto(self, buffer: memoryview, /) -> int | None:
        size = self.file.readinto(buffer)
        self.digest.update(buffer[:size])
        return size


def _row(run: _Run, digest: str | None, why: str | None = None) -> Row:
    world_size = run.topology.world_size
    return Row(
        framework=run.framework,
        framework_version=run.framework_version,
        workload=run.workload,
        model=run.model,
        source=run.source,
        precision=run.precision,
        nodes=run.topology.nodes,
        gpus_per_node=run.topology.gpus_per_node,
        world_size=world_size,
        batch_size_per_device=run.batch_size_per_device,
        global_batch_size=run.batch_size_per_device * world_size,
        repeat=run.repeat,
        metric=SAMPLES_PER_SECOND,
        value=None,
        unit="samples/s",
        estimator=None,
        accelerator=run.accelerator,
        driver=run.driver,
        stack=run.stack,
        log_sha256=digest,
        valid=why is None,
        why_invalid=why,
    )


def _write(path: Path, content: str) -> Path:
    """The file appears whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(content, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(
            "the result cannot be written",
            where=str(path),
            found=error.strerror or str(error),
            hint="name a directory that can be written to with --output-dir",
        ) from None
    return path


# ---- what is there


def _runs(directory: Path, known: Sequence[Known], findings: _Findings) -> Iterator[_Run]:
    """Every run below the directory, in a stable order."""
    records = sorted(directory.glob("runs/*/*/run.json"), key=_natural)
    if records or (directory / "campaign.json").exists():
        for path in records:
            try:
                yield _planned_run(path, known)
            except UserError as error:
                findings.problems.append(error)
        return
    for path in sorted(_log_files(directory), key=_natural):
        try:
            run = _named_run(path, directory, known)
        except UserError as error:
            findings.problems.append(error)
            continue
        if run is not None:
            yield run


def _log_files(directory: Path) -> Iterator[Path]:
    return (
        path
        for path in directory.rglob("*")
        if path.suffix in (".log", ".txt") and not path.name.startswith(".") and path.is_file()
    )


def _natural(path: Path) -> list[tuple[int, str]]:
    """r2 before r10, 2n8g before 10n8g."""
    return [
        (int(part), "") if part.isdigit() and part.isascii() else (-1, part)
        for part in re.split(r"(\d+)", str(path), flags=re.ASCII)
    ]


# ---- runs by name


def _named_run(path: Path, directory: Path, known: Sequence[Known]) -> _Run | None:
    """The run that a log's path names; None for a file that is no log of a benchmark."""
    named = _TREE_NAME.fullmatch(path.stem) or _FLAT_NAME.fullmatch(path.stem)
    if named is None:
        try:
            form = _format(path)
        except UserError:
            return None  # ansible.log, NOTES.txt
        raise UserError(
            f"this log of format {form.name} does not say by its name what ran",
            where=str(path),
            expected="a name like rn50_b128_fp32_1.log or tf_gpu8_amp_bs256.txt",
            found=path.name,
        )
    parts = named.groupdict()
    batch, repeat = int(parts["batch"]), int(parts["repeat"] or 1)
    if not batch:
        raise UserError("a batch size is at least 1", where=str(path), found=path.name)
    ancestors = _ancestors(path, directory)
    _check_batch_directory(path, ancestors, batch)
    form = _format(path)
    entry = _entry(path, parts, form.name, known)
    return _Run(
        path=path,
        workload=entry.workload,
        framework=entry.framework,
        model=entry.model,
        precision=parts["precision"],
        batch_size_per_device=batch,
        topology=_topology(path, parts, ancestors),
        repeat=repeat,
        rule=entry.rule,
        log_format=form.name,
        expected_by="the name of the file",
    )


def _ancestors(path: Path, directory: Path) -> list[str]:
    """Names of the directories that the log is in, from the nearest to `directory` itself."""
    inner = path.relative_to(directory).parts[:-1]
    return [*reversed(inner), directory.resolve().name]


def _check_batch_directory(path: Path, ancestors: Iterable[str], batch: int) -> None:
    for name in ancestors:
        match = _BATCH_DIRECTORY.fullmatch(name)
        if match and int(match[1]) != batch:
            raise UserError(
                f"the batch size of the file's name contradicts its directory {name}",
                where=str(path),
                expected=match[1],
                found=str(batch),
            )


def _topology(path: Path, parts: Mapping[str, str | None], ancestors: Iterable[str]) -> Topology:
    if devices := parts.get("devices"):
        number = int(devices)
        if 1 <= number <= _FLAT_DEVICES_PER_NODE:
            return Topology(1, number)
        if number and number % _FLAT_DEVICES_PER_NODE == 0:
            return Topology(number // _FLAT_DEVICES_PER_NODE, _FLAT_DEVICES_PER_NODE)
        raise UserError(
            "the number of nodes cannot be told from this name",
            where=str(path),
            expected=f"up to {_FLAT_DEVICES_PER_NODE} devices, or a multiple of that",
            found=devices,
        )
    directories = [name for name in ancestors if _is_topology(name)]
    named = parts.get("topology")
    if named and directories and Topology.parse(named) != Topology.parse(directories[0]):
        raise UserError(
            "the topology of the file's name contradicts its directory",
            where=str(path),
            expected=directories[0],
            found=named,
        )
    text = directories[0] if directories else named
    if text is None:
        raise UserError(
            "nothing tells on how many nodes and devices this ran",
            where=str(path),
            expected="a directory like 4n8g above it",
        )
    try:
        return Topology.parse(text)
    except ValueError as error:
        raise UserError(str(error), where=str(path)) from None


def _is_topology(name: str) -> bool:
    try:
        Topology.parse(name)
    except ValueError:
        return False
    return True


def _entry(
    path: Path, parts: Mapping[str, str | None], log_format: str, known: Sequence[Known]
) -> Known:
    """The catalogue's entry for a log: by its format, and by the short name of its model."""
    same_format = [entry for entry in known if entry.log_format == log_format]
    # Names of the flat kind begin with the framework, and name no model.
    fitting = [e for e in same_format if "devices" in parts or e.short_name == parts["short"]]
    if len(fitting) == 1:
        return fitting[0]
    names = ", ".join(f"{e.short_name} ({e.workload})" for e in fitting or same_format)
    raise UserError(
        f"more than one workload has logs of format {log_format} with this name"
        if fitting
        else f"no workload of the catalogue has logs of format {log_format} with this name",
        where=str(path),
        expected=f"one of {names}" if names else "a workload with this log format",
        found=parts["short"],
    )


# ---- runs of a campaign


def _planned_run(path: Path, known: Sequence[Known]) -> _Run:
    """The run that a run.json describes."""
    document = _json(path)
    text = partial(_text, path, document)
    number = partial(_count_of, path, document)
    workload, model, log_name = text("workload"), text("model"), text("log_name")
    entries = [entry for entry in known if entry.workload == workload]
    entries = [entry for entry in entries if entry.model == model] or entries
    window = (number("total_steps"), number("warmup_steps", least=0))
    outcome = document.get("outcome")
    outcome = outcome if isinstance(outcome, dict) else {}
    log = path.with_name(log_name)
    return _Run(
        path=log,
        workload=workload,
        framework=text("framework"),
        model=model,
        precision=text("precision"),
        batch_size_per_device=number("batch_size_per_device"),
        topology=Topology(number("nodes"), number("gpus_per_node")),
        repeat=number("repeat"),
        rule=replace(entries[0].rule, total_steps=window[0], warmup_steps=window[1])
        if entries
        else None,
        log_format=text("log_format"),
        expected_by="the plan",
        source=text("source"),
        framework_version=_version(outcome, text("framework")),
        accelerator=text("accelerator"),
        driver=_driver(outcome),
        stack=text("stack"),
        why_not=_why_not(outcome),
    )


def _why_not(outcome: Mapping[str, Any]) -> str | None:
    """Why a run has no log to count; None for a run that is done."""
    status = outcome.get("status")
    if status == "done":
        return None
    if status == "failed":
        return f"failed: {outcome.get('message') or 'no reason was recorded'}"
    if status == "running":
        return "did not end: it is still running, or was cut off"
    return "was not run"


def _version(outcome: Mapping[str, Any], framework: str) -> str | None:
    """Version of the framework's package, which may be called mxnet-cu102 or paddlepaddle."""
    versions = outcome.get("versions")
    names = versions if isinstance(versions, dict) else {}
    fitting = sorted((n for n in names if n.startswith(framework)), key=len)
    return str(names[fitting[0]]) if fitting else None


def _driver(outcome: Mapping[str, Any]) -> str | None:
    """Driver of the nodes' devices; several where they differ; None where there is none."""
    hosts = outcome.get("hosts")
    facts = hosts.values() if isinstance(hosts, dict) else ()
    drivers = {str(f["driver"]) for f in facts if isinstance(f, dict) and f.get("driver")}
    return "+".join(sorted(drivers)) or None


def _json(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes().decode())
    except (OSError, ValueError) as error:
        line = getattr(error, "lineno", None)
        raise UserError(
            "this is no record of a run",
            where=f"{path}:{line}" if line else str(path),
            expected="JSON in UTF-8",
            found=str(error),
        ) from None
    if not isinstance(document, dict):
        raise UserError(
            "this is no record of a run",
            where=str(path),
            expected="an object",
            found=type(document).__name__,
        )
    return document


def _text(path: Path, document: Mapping[str, Any], key: str) -> str:
    value = document.get(key)
    if not isinstance(value, str):
        raise _bad_key(path, document, key, "a text")
    return value


def _count_of(path: Path, document: Mapping[str, Any], key: str, least: int = 1) -> int:
    value = document.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value < 2**53:
        raise _bad_key(path, document, key, f"a count, at least {least}")
    return value


def _bad_key(path: Path, document: Mapping[str, Any], key: str, expected: str) -> UserError:
    found = json.dumps(document[key])[:80] if key in document else "none"
    return UserError(f"the run has a bad {key}", where=str(path), expected=expected, found=found)


# ---- what is to be said about the table


def _notes(table: pd.DataFrame, findings: _Findings) -> Iterator[str]:
    from .report.layout import GROUP, records, title

    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for case in records(table):
        groups.setdefault(tuple(case[name] for name in GROUP), []).append(case)
    for key, cases in groups.items():
        name = title(dict(zip(GROUP, key, strict=True)))
        if all(case["world_size"] > 1 for case in cases):
            yield f"{name}: no 1-device run, so there is no speed-up and no efficiency"
        if len({case["estimator"] for case in cases}) > 1:
            texts = [f"{c['nodes']}n{c['gpus_per_node']}g {c['estimator']}" for c in cases]
            yield f"{name}: the published rule takes different estimators: {', '.join(texts)}"
    yield from _repeat_notes(findings)
    yield from _not_pooled(groups)
    for (what, by), number in sorted(findings.unconfirmed.items()):
        yield f"{number} of {len(findings.counted)} logs do not state their {what}: {by} does"
    if any(_FLAT_NAME.fullmatch(run.path.stem) for run in findings.counted):
        yield f"nodes are not named in the logs' names: {_FLAT_DEVICES_PER_NODE} devices each"


def _repeat_notes(findings: _Findings) -> Iterator[str]:
    """Which repeats are not there at all, of as many as any case with the same settings has, and
    which are there more than once."""
    repeats: dict[tuple[object, ...], list[int]] = {}
    most: dict[tuple[object, ...], int] = {}
    for run in findings.runs:
        repeats.setdefault(run.case, []).append(run.repeat)
        most[run.settings] = max(most.get(run.settings, 0), run.repeat)
    missing: dict[tuple[str, int, str], list[str]] = {}
    for run in {run.case: run for run in findings.runs}.values():
        numbers, wanted = repeats[run.case], most[run.settings]
        absent = sorted(set(range(1, min(wanted, 1000) + 1)) - set(numbers))
        if absent:
            key = (run.setting, wanted, _listed(absent))
            missing.setdefault(key, []).append(str(run.topology))
        twice = sorted({number for number in numbers if numbers.count(number) > 1})
        if twice:
            yield f"{run}: more than one log of repeat {_listed(twice)}; all are counted"
    for (setting, wanted, absent_list), topologies in missing.items():
        yield f"{setting}: no repeat {absent_list} of {wanted} for {', '.join(topologies)}"


def _listed(numbers: Sequence[int]) -> str:
    return ", ".join(map(str, numbers[:10])) + (", ..." if len(numbers) > 10 else "")


def _not_pooled(groups: Iterable[tuple[Any, ...]]) -> Iterator[str]:
    """Settings that were measured more than once, on what must not be pooled."""
    from .report.layout import GROUP

    apart: dict[tuple[Any, ...], list[tuple[Any, ...]]] = {}
    for key in groups:
        apart.setdefault(key[:5], []).append(key[5:])
    for settings, kinds in apart.items():
        if len(kinds) > 1:
            differing = [
                f"{name} ({', '.join(str(kind[n] or 'unknown') for kind in kinds)})"
                for n, name in enumerate(GROUP[5:])
                if len({kind[n] for kind in kinds}) > 1
            ]
            name = " ".join(str(part) for part in settings if part)
            yield f"{name}: not pooled, because the runs differ in {' and '.join(differing)}"
