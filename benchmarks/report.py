"""How long the report of a campaign of many cases takes.

    python benchmarks/report.py [--cases 500] [--runs 3] [--repeats 3]

The logs are made in a temporary directory, as GluonCV prints them, and removed at the end.
`import pandas`, `summarize` of the same logs and `report` take turns, as in summarize.py.
"""

from __future__ import annotations

import argparse
import sys

from summarize import PANDAS, compare, many, temporary_directory


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of report.")
    parser.add_argument("--cases", type=int, default=500, help="At most 500.")
    parser.add_argument("--runs", type=int, default=3, help="Runs of each case.")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    with temporary_directory() as directory:
        logs, output = directory / "logs", directory / "out"
        size = many(logs, options.cases * options.runs, 0, options.cases)
        package, into = [sys.executable, "-m", "dlperf_runner"], ["--output-dir", str(output)]
        ways = {
            "import pandas": [sys.executable, "-c", PANDAS],
            "summarize": [*package, "summarize", str(logs), *into],
            "report": [*package, "report", str(logs), *into],
        }
        compare(f"{options.cases} cases of {options.runs} runs", ways, size, options.repeats)
        print(f"report.html: {(output / 'report.html').stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
