"""The verdict of MLCommons' compliance checker on result logs: mlperf-logging, which the user
installs, in a process of its own.

Source: mlperf-logging 4.1.68, mlperf_logging/compliance_checker, whose rules are those of the
folders training_<version>.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..core.errors import UserError
from ..core.processors import processors

MODULE = "mlperf_logging.compliance_checker"
_LONGEST_S = 600
_PASSED, _FAILED = "INFO - SUCCESS", "ERROR - FAILED"
_PROGRESS = re.compile(r"INFO - .*|-{3,}")


def failures(paths: Sequence[Path], version: str) -> dict[Path, list[str]]:
    """The rules of a version, such as 6.0, that each log breaks; none if it passes. Raises
    UserError without the checker, or if it does not have these rules."""
    known = rules()
    number = version.removeprefix("v")
    chosen = next((name for name in known if name in (number, f"{number}.0")), None)
    if chosen is None:
        raise UserError(
            "mlperf-logging has no such rules" if known else "mlperf-logging is not installed",
            where=f"--check {version}",
            expected=f"one of {', '.join(known)}" if known else None,
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
