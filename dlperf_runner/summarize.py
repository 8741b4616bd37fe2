"""From a directory of logs to a table of speeds and speed-ups, and its files.

What is read: a campaign (runs/<case>/r<k>/run.json and its log), a tree like the published one
(.../bz128/4n8g/rn50_b128_fp32_1.log), or a folder of logs named as in the NGC report
(tf_gpu8_amp_bs256.txt). A log that cannot be believed is a problem that is told, and all others
are counted.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from io import FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import logs
from .errors import UserError
from .found import FLAT_DEVICES_PER_NODE, FLAT_NAME, find_runs, format_of, open_log
from .frame import Row, make_frame
from .measure import SAMPLES_PER_SECOND, Expected, Measured, Measurement, Rule, measure
from .recorded import FoundRun, Known
from .stats import GPU_MEMORY

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class SummaryResult:
    """What came out: a table to print, what could not be believed, and the files written."""

    text: str
    problems: list[UserError]
    paths: list[Path]


@dataclass
class _Findings:
    """What is found while the directory is read."""

    rows: list[Row] = field(default_factory=list)
    runs: list[FoundRun] = field(default_factory=list)
    counted: list[FoundRun] = field(default_factory=list)
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
    for run in find_runs(directory, known, findings.problems):
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
                rules=tuple(Rule(**workload.rule_of(m).model_dump()) for m in workload.matrices),
            )


def _count(run: FoundRun, findings: _Findings) -> None:
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
    for item in (*measured.measurements, *_memory(run)):
        row = _row(run, digest)
        findings.rows.append(
            replace(
                row, metric=item.metric, value=item.value, unit=item.unit, estimator=item.estimator
            )
        )


def _memory(run: FoundRun) -> Iterator[Measurement]:
    if run.gpu_memory_mib is not None:
        yield Measurement(GPU_MEMORY, run.gpu_memory_mib, "MiB", "max_of_samples")


def _measured(run: FoundRun) -> tuple[Measured, str]:
    """What the run's log came to, and the SHA-256 of the log."""
    name = str(run.path)
    form = format_of(run.path)
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
    with open_log(run.path) as file:
        records = form.parse(logs.candidates(form, _Tee(file, digest)))
        return measure(form, records, run.rule, expected, name), digest.hexdigest()


@dataclass
class _Tee:
    """A file whose bytes are digested as they are read."""

    file: FileIO
    digest: Any

    def readinto(self, buffer: memoryview, /) -> int | None:
        size = self.file.readinto(buffer)
        self.digest.update(buffer[:size])
        return size


def _row(run: FoundRun, digest: str | None, why: str | None = None) -> Row:
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
        container=run.container,
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
    if any(FLAT_NAME.fullmatch(run.path.stem) for run in findings.counted):
        yield f"nodes are not named in the logs' names: {FLAT_DEVICES_PER_NODE} devices each"


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
                f"{name} ({', '.join(_shown(name, kind[n]) for kind in kinds)})"
                for n, name in enumerate(GROUP[5:])
                if len({kind[n] for kind in kinds}) > 1
            ]
            name = " ".join(str(part) for part in settings if part)
            yield f"{name}: not pooled, because the runs differ in {' and '.join(differing)}"


def _shown(column: str, value: object) -> str:
    # A bare run is known to have no container; any other column that is absent is not known.
    return str(value or ("none" if column == "container" else "unknown"))
