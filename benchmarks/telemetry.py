"""What the telemetry costs in throughput: the ratio of the speed of a program that uses all cores
with and without it, in pairs of random order.

PYTHONPATH=. python benchmarks/telemetry.py --pairs 15
"""

from __future__ import annotations

import argparse
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from dlperf_runner.stats.intervals import median_interval

PROJECT = Path(__file__).resolve().parents[1]
# All cores multiply matrices, as a training on the CPU does most of the time.
TRAIN = """
import sys, time
import numpy
a = numpy.ones((768, 768), dtype="float32")
steps = int(sys.argv[1])
for _ in range(3): a @ a
began = time.perf_counter()
for _ in range(steps): a @ a
print(steps / (time.perf_counter() - began))
"""
SAMPLE = """
import sys
sys.path.insert(0, sys.argv[1])
from run_agent import gpu_sampler, node_sampler
node_sampler.main(int(sys.argv[2]), 1e6, gpu_sampler.gpus)
"""


def rate(steps: int) -> float:
    argv = [sys.executable, "-c", TRAIN, str(steps)]
    return float(subprocess.run(argv, check=True, capture_output=True, text=True).stdout)


def rate_with_telemetry(steps: int, seconds: int) -> tuple[float, float]:
    """The rate, and the share of a core that the telemetry used after its first sample."""
    with tempfile.TemporaryFile("w+") as output:
        argv = [sys.executable, "-ESs", "-c", SAMPLE, str(PROJECT / "module_utils"), str(seconds)]
        sampler = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=output, text=True)
        time.sleep(0.5)  # its start is before that of the program in a run, too
        found = rate(steps)
        sampler.communicate()
        output.seek(0)
        rows = [line.rstrip("\n").split(",") for line in output if line.startswith("sample,")]
    own = [(float(row[1]), float(row[-1])) for row in rows if not row[2]]
    (begin, first), (end, last) = own[0], own[-1]
    return found, (last - first) / (end - begin)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=15)
    parser.add_argument("--steps", type=int, default=400, help="matrix products of a run")
    parser.add_argument("--every", type=int, default=1, help="seconds between two samples")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    order = random.Random(options.seed)  # noqa: S311
    ratios, shares = [], []
    rate(options.steps)  # not counted
    for _ in range(options.pairs):
        found = {}
        for with_telemetry in order.sample((True, False), 2):
            if with_telemetry:
                found[True], share = rate_with_telemetry(options.steps, options.every)
                shares.append(share)
            else:
                found[False] = rate(options.steps)
        ratios.append(found[True] / found[False])
    interval = median_interval(sorted(ratios))
    load = os.getloadavg()[0]
    print(f"throughput with telemetry / without: {median(ratios):.4f}", end="")
    if not math.isnan(interval.low):
        print(f" ({interval.low:.4f} to {interval.high:.4f}, {interval.coverage:.1%})", end="")
    print(f", {options.pairs} pairs, load {load:.0f}")
    print(f"share of a core: {median(shares):.3%} (at most {max(shares):.3%})")


if __name__ == "__main__":
    main()
