"""The command `mlperf`: summarises results of MLPerf Training."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, fields
from pathlib import Path
from typing import Annotated

from ..core.errors import UserError
from ..core.lists import shortened
from ..core.printable import printable
from ..core.processors import processors
from ..options import exit_with, option, print_json, print_note, screen
from ..report.result_files import csv as csv_text
from ..report.tables import Cell, Column, cell, without_empty
from ..report.terminal import PIPE, Screen, View, table
from .round import STRONG, SUCCESS, WEAK, MlperfResult, MlperfRun

MODULE = "mlperf_logging.compliance_checker"
_LONGEST_S = 600
_PASSED, _FAILED = "INFO - SUCCESS", "ERROR - FAILED"
_PROGRESS = re.compile(r"INFO - .*|-{3,}")


def failures(paths: Sequence[Path], version: str) -> dict[Path, list[str]]:
    """The rules of a version, such as 6.0, that each log breaks; none if it passes. Raises
    UserError without the checker, or if it does not have these rules."""
    available = rules()
    number = version.removeprefix("v")
    chosen = next((name for name in available if name in (number, f"{number}.0")), None)
    if chosen is None:
        raise UserError(
            "mlperf-logging has no such rules" if available else "mlperf-logging is not installed",
            where=f"--check {version}",
            expected=f"one of {', '.join(available)}" if available else None,
            hint="pip install --upgrade mlperf-logging",
        )
    with ThreadPoolExecutor(processors()) as pool:
        return dict(zip(paths, pool.map(lambda path: _failures(path, chosen), paths), strict=True))


def rules() -> list[str]:
    """The versions whose rules the installed checker has; none if there is no checker."""
    package = importlib.util.find_spec(MODULE.partition(".")[0])
    places = package.submodule_search_locations if package else None
    folders = (folder for place in places or () for folder in Path(place).glob("*/training_*"))
    return sorted(m[1] for f in folders if (m := re.fullmatch(r"training_([\d.]+)", f.name)))


def _failures(path: Path, version: str) -> list[str]:
    # -P: a folder named like the checker where the user stands is not the checker.
    argv = [sys.executable, "-P", "-m", MODULE, "--usage", "training", "--ruleset", version]
    argv += ["--quiet", "--log_output", os.devnull, str(path)]
    try:
        checked = subprocess.run(
            argv, capture_output=True, text=True, errors="replace", timeout=_LONGEST_S, check=False
        )
    except subprocess.TimeoutExpired:
        return [f"the checker did not end within {_LONGEST_S} s"]
    lines = [line.removeprefix("WARNING - ").strip() for line in checked.stderr.splitlines()]
    if checked.returncode == 0 and _PASSED in lines:
        return []
    if _FAILED not in lines:
        return [f"the checker itself failed: {next(filter(None, reversed(lines)), 'no output')}"]
    return [line for line in lines if line not in ("", _FAILED) and not _PROGRESS.fullmatch(line)]


ORDER = 220
HELP = """
directory DIR: A round, a submitter's folder, or a part of one.
--csv FILE: Also write all results to this file.
--consecutive: Of more runs than a result needs, score the consecutive ones closest to the median.
--check VERSION: Also check all logs by MLPerf's rules of this version, with MLCommons' own checker:
  pip install mlperf-logging.
"""
_BatchSize = Annotated[
    int | None,
    option("--batch-size", "Count only runs with this global batch size.", "N", min=1),
]


def command(
    directory: Path,
    csv: Path | None = None,
    batch_size: _BatchSize = None,
    consecutive: bool = False,
    check: str | None = None,
    as_json: bool = False,
) -> None:
    """Summarise results of MLPerf Training, laid out as MLCommons publishes them: time to train,
    throughput and step times.

    The exit status is 1 if a run did not reach its target, a result has too few runs, a system is
    not described, or a log breaks a rule of --check. It is 2 if a log cannot be read, or if the
    logs of a result are copies, are too many, or differ in benchmark or batch size.

    Example: dlperf mlperf ACME/results"""
    from ..core.files import write_result
    from .round import read_round, result_logs

    logs = result_logs(directory)
    outcome = read_round(logs, directory.resolve(), batch_size=batch_size, consecutive=consecutive)
    if csv is not None:
        columns = [item.name for item in fields(MlperfResult)]
        write_result(csv, csv_text(map(asdict, outcome.results), columns))
    verdicts = failures(logs, check) if check else {}
    not_compliant = {
        str(path.relative_to(directory.resolve())): lacking
        for path, lacking in verdicts.items()
        if lacking
    }
    if as_json:
        document: dict[str, object] = {"results": [asdict(result) for result in outcome.results]}
        print_json(document | ({"not_compliant": not_compliant} if check else {}))
    else:
        print(render(outcome.results, screen()), end="")
        if check:
            good = len(verdicts) - len(not_compliant)
            print(f"{good} of {len(verdicts)} logs comply with MLPerf's rules {check}.")
    for name, lacking in not_compliant.items():
        outcome.notes.append(f"{printable(name)}: not compliant: {printable(shortened(lacking))}")
    for note in outcome.notes:
        print_note(note)
    is_missed = any(one.time_to_train_min is None for one in outcome.results)
    exit_with(outcome.problems, outcome.notes or is_missed)


_COLUMNS = (
    Column("submitter", wraps=True),
    Column("system", wraps=True),
    Column("accelerator", wraps=True),
    Column("devices", True),
    Column("batch", True, stacks=True),
    Column("minutes", True),
    Column("n", True),
    Column("samples/s", True),
    Column("tokens/s/device", True, stacks=True),
    Column("step time (s)", True, stacks=True),
)


def render(results: Sequence[MlperfResult], screen: Screen = PIPE) -> str:
    """A table for each benchmark, the largest systems last."""
    lines: list[str] = []
    for benchmark in sorted({result.benchmark for result in results}):
        group = [result for result in results if result.benchmark == benchmark]
        group.sort(key=lambda r: (_devices(r) or 0, r.time_to_train_min or 0.0, r.submitter))
        columns, rows = without_empty(_COLUMNS, [_row(result) for result in group], 7)
        estimators = sorted({result.estimator for result in group if result.estimator})
        needed = next((r.runs_needed for r in group if r.runs_needed), "an unknown number of")
        heading = f"{benchmark}: MLPerf's time to train of {needed} runs, in minutes"
        lines += [printable(heading), "", table(columns, rows, screen)]
        by = f"Throughput by {', '.join(estimators)}." if estimators else "No throughput."
        lines.append(by)
        notes: dict[str, list[str]] = {}
        for result in group:
            if result.throughput_note:
                where = f"{result.submitter} {result.system}"
                notes.setdefault(result.throughput_note, []).append(where)
        for note, places in notes.items():
            all_of_it = len(places) == len(group)
            lines.append(printable(f"{'All' if all_of_it else ', '.join(places)}: {note}."))
        lines.append("")
    return "\n".join(lines)


def view(files: Mapping[Path, Path | None], contents: Mapping[Path, Path]) -> View:
    """The results among files, by path with the content of members of archives; other files of
    archives are in `contents`. Logs that are not laid out as a round are runs of their own."""
    from .round import read_round, read_run

    laid_out: dict[Path, Path | None] = {}
    apart: dict[Path, Path | None] = {}
    for path, content in files.items():
        whole = path.resolve()
        above = [folder.name for folder in whole.parents[1:4] if folder.name not in (STRONG, WEAK)]
        # A folder of a system has no benchmark in its path, and any folder may be below results/.
        is_of_system = above[:1] == ["results"] and whole.name.startswith("result_")
        is_laid_out = whole.suffix == ".txt" and (is_of_system or above[1:2] == ["results"])
        place = path if len(path.parts) > _DEPTH else whole
        (laid_out if is_laid_out else apart)[place if is_laid_out else path] = content
    members = {path: content for path, content in laid_out.items() if content is not None}
    outcome = read_round([*laid_out], Path(), contents={**contents, **members})
    runs, problems = {}, [*outcome.problems]
    for path, content in apart.items():
        try:
            runs[path] = read_run(path, content)
        except UserError as error:
            problems.append(error)

    def shown(screen: Screen) -> str:
        notes = "".join(f"- {printable(note)}\n" for note in outcome.notes)
        parts = [render(outcome.results, screen), render_runs(runs, screen), notes]
        return "\n".join(filter(None, parts))

    document = {
        "results": [asdict(result) for result in outcome.results],
        "runs": {str(path): asdict(run) for path, run in runs.items()},
    }
    is_missed = any(one.time_to_train_min is None for one in outcome.results)
    is_negative = is_missed or any(run.status != SUCCESS for run in runs.values())
    return View("mlperf", shown, document, problems, bool(outcome.notes) or is_negative)


_DEPTH = 4  # results/<system>/<benchmark>/result_<n>.txt


_OF_RUN = (
    Column("log", wraps=True),
    Column("benchmark"),
    Column("status"),
    Column("batch", True),
    Column("minutes", True),
    Column("samples/s", True),
)


def render_runs(runs: Mapping[Path, MlperfRun], screen: Screen = PIPE) -> str:
    """A table of runs that are no part of a round; empty if there are none."""
    if not runs:
        return ""
    rows = [
        (
            cell(str(path)),
            cell(run.benchmark),
            cell(run.status),
            cell(run.global_batch_size),
            cell(run.time_to_train_s / 60, ".3f"),
            cell(next(iter(run.samples_per_second.values()), None), ".2f"),
        )
        for path, run in runs.items()
    ]
    heading = "Runs of MLPerf: the time from run_start to run_stop, in minutes"
    return "\n".join([heading, "", table(_OF_RUN, rows, screen), ""])


def _devices(result: MlperfResult) -> int | None:
    if result.nodes is None or result.accelerators_per_node is None:
        return None
    return result.nodes * result.accelerators_per_node


def _row(result: MlperfResult) -> tuple[Cell, ...]:
    return (
        cell(result.submitter),
        cell(result.system),
        cell(result.accelerator or "-"),
        cell(_devices(result)),
        cell(result.global_batch_size),
        cell(result.time_to_train_min, ".3f"),
        cell(result.runs),
        cell(result.samples_per_second, ".2f"),
        cell(result.tokens_per_second_per_device, ".1f"),
        cell(result.step_time_median_s, ".4f"),
    )
