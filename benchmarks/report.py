"""How long the report of a campaign of many cases takes.

    python benchmarks/report.py [--cases 500] [--runs 3] [--repeats 3]

The logs are made in a temporary directory, as GluonCV prints them, and removed at the end. Shown
are the time on the wall, processor time (user and system), the peak of memory, and the size of
report.html; beside them stand `summarize` of the same logs and, the floor, the imports alone.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from summarize import STEPS, cost_of_many, many

IMPORTS = """
import dlperf_runner.cli.main, dlperf_runner.results.load, dlperf_runner.commands.report
import jinja2, pandas, vl_convert, xlsxwriter
"""


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of report.")
    parser.add_argument("--cases", type=int, default=500, help="A multiple of 10.")
    parser.add_argument("--runs", type=int, default=3, help="Runs of each case.")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="dlperf-benchmark-"))
    try:
        logs, output = directory / "logs", directory / "out"
        number = options.cases * options.runs
        many(logs, number, 0, STEPS, batches=options.cases // 10)
        package, into = ["-m", "dlperf_runner"], ["--output-dir", str(output)]
        ways = {
            "imports": ["-c", IMPORTS],
            "summarize": [*package, "summarize", str(logs), *into],
            "report": [*package, "report", str(logs), *into],
        }
        print(f"{options.cases} cases, {number} runs of {STEPS} steps")
        print(f"{'':12}{'wall s':>8}{'CPU s':>8}{'peak MB':>9}")
        for name, arguments in ways.items():
            costs = [cost_of_many([sys.executable, *arguments]) for _ in range(options.repeats)]
            cpu, wall, memory = min(costs, key=lambda cost: cost[1])
            print(f"{name:12}{wall:8.1f}{cpu:8.1f}{memory:9.0f}")
        print(f"report.html: {(output / 'report.html').stat().st_size / 1e6:.1f} MB")
    finally:
        shutil.rmtree(directory)


if __name__ == "__main__":
    main()
