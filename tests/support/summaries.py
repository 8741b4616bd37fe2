"""Directories of logs, summarised."""

from pathlib import Path

from command_line import output
from csv_tables import table
from make_logs import KNOWN

from dlperf_runner.commands.summarize import SummaryResult
from dlperf_runner.commands.summarize import summarize as summarize_directory
from dlperf_runner.core.errors import UserError


def summarize(directory: Path, output_dir: Path | None = None) -> SummaryResult:
    return summarize_directory(directory, output_dir or directory, KNOWN)


def log_of(tree: Path, topology: str = "1n1g", repeat: int = 1) -> Path:
    return tree / "bz128" / topology / f"rn50_b128_fp32_{repeat}.log"


def problem(result: SummaryResult) -> UserError:
    (error,) = result.problems
    return error


def printed_and_cases(folder: Path, *options: str) -> tuple[str, list[dict[str, str]]]:
    """What the command prints, its white space folded, and the cases of summary.csv."""
    out = output("summarize", folder, "--output-dir", folder / "out", *options)
    return " ".join(out.split()), table(folder / "out" / "summary.csv")
