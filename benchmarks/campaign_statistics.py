"""The simulations behind two sections of docs/statistics.md: the spread between campaigns, and
adaptive repeats. Prints their tables.

    python benchmarks/campaign_statistics.py [--trials 20000] [--seed 1]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np

from dlperf_runner.stats.between_campaigns import difference_half_width, estimate
from dlperf_runner.stats.intervals import compare_samples, median_interval
from dlperf_runner.stats.repeats import wanted_repeats

BETWEEN, WITHIN, RUNS = 0.005, 0.003, 5
HALF_WIDTH, MOST = 0.01, 20


def campaign(random: np.random.Generator) -> list[float]:
    """The throughput of the runs of one campaign of the same code."""
    day = BETWEEN * random.standard_normal()
    return list(np.exp(day + WITHIN * random.standard_normal(RUNS)))


def false_verdicts(random: np.random.Generator, trials: int, campaigns: int) -> float:
    """The share of comparisons of the same code whose interval excludes 0. The spread was measured
    with so many campaigns; with 0 campaigns it is unknown."""
    false = 0
    for _ in range(trials):
        spread = estimate([campaign(random) for _ in range(campaigns)])
        result = compare_samples(campaign(random), campaign(random))
        low, high = result.interval.low, result.interval.high
        if spread is not None:
            reach = difference_half_width(spread, RUNS, RUNS)
            low, high = min(low, result.relative - reach), max(high, result.relative + reach)
        false += low > 0 or high < 0
    return false / trials


def stopped(
    random: np.random.Generator, trials: int, cv: float, first: int
) -> tuple[float, float, float]:
    """Runs on average, the share that ends at the limit still too wide, and the coverage of the
    final interval, for runs that scatter by `cv`."""
    sizes, wide, covered = 0, 0, 0
    for _ in range(trials):
        values = list(1 + cv * random.standard_normal(MOST))
        size = first
        while (more := wanted_repeats(values[:size], size, HALF_WIDTH, MOST)) is not None:
            size = more
        interval = median_interval(values[:size])
        sizes += size
        wide += wanted_repeats(values[:size], size, HALF_WIDTH, MOST + 1) is not None
        covered += interval.low <= 1 <= interval.high
    return sizes / trials, wide / trials, covered / trials


def rows(random: np.random.Generator, trials: int) -> Iterator[str]:
    yield "| campaigns for aa | false verdicts |\n| --- | --- |"
    for campaigns in (0, 3, 5, 10):
        yield f"| {campaigns or 'unknown'} | {false_verdicts(random, trials, campaigns):.1%} |"
    yield "\n| CV | first look | runs | still wider | coverage |\n| --- | --- | --- | --- | --- |"
    for first in (RUNS, 10):
        for cv in (0.002, 0.005, 0.01, 0.015, 0.02):
            size, wide, covered = stopped(random, trials, cv, first)
            yield f"| {cv:.1%} | {first} | {size:.1f} | {wide:.0%} | {covered:.1%} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    for row in rows(np.random.default_rng(options.seed), options.trials):
        print(row, flush=True)


if __name__ == "__main__":
    main()
