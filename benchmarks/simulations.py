"""The simulations behind every percentage of docs/statistics.md, as the rows of its tables.

    PYTHONPATH=. python benchmarks/simulations.py                       # all, some minutes
    PYTHONPATH=. python benchmarks/simulations.py --only family-wise --seed 2 --trials 20000

Behind each row stands the largest of its Monte Carlo errors (two standard errors).
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from dlperf_runner.commands.ab import PairedTest
from dlperf_runner.commands.bisect import Step, search, step_test
from dlperf_runner.compare.spread import widened
from dlperf_runner.compare.verdicts import (
    FAILED,
    FASTER,
    NO_DIFFERENCE,
    PASSED,
    SLOWER,
    UNDECIDED,
    case_verdict,
    on_limit,
)
from dlperf_runner.doctor.bandwidth import FAIR
from dlperf_runner.doctor.search import rounds_from
from dlperf_runner.doctor.search import search as search_slow
from dlperf_runner.measure.steady_state import steadiness
from dlperf_runner.stats.between_campaigns import estimate
from dlperf_runner.stats.change_points import first_change
from dlperf_runner.stats.intervals import compare_samples, median_interval, outliers, ratio_interval
from dlperf_runner.stats.ratios import pooled_interval, published_interval, relative_difference
from dlperf_runner.stats.sequential import (
    LOOKS,
    MOST_RUNS,
    Gate,
    judged,
    look_sizes,
    planned_runs,
    pooled_deviation,
    relative_half_width,
    wanted_repeats,
)

Random = np.random.Generator
Draw = Callable[[Random, int], list[float]]
Side = tuple[Draw, int]  # a campaign, and its runs of each case
# The label of a table's row, and its shares, each with the number of trials that it comes from.
Row = tuple[str, list[tuple[float, int]]]
LIMIT = 0.03
PROMISE = {"good_passes": 0.95, "slow": 0.07, "slow_fails": 0.95}
CASES = (1, 6, 12)
TRIALS = 4000
LEAST_TRIALS = 12  # one for each case of the largest comparison


def normal(cv: float) -> Draw:
    return lambda random, size: random.normal(1, cv, size).tolist()


def skewed(cv: float) -> Draw:
    """Median 1; some runs are much slower, none much faster."""
    return lambda random, size: np.exp(cv * (math.log(2) - random.exponential(1, size))).tolist()


def correlated(random: Random, size: int, correlation: float) -> np.ndarray:
    """Values with mean 0 and standard deviation 1, each with a share of the one before."""
    values = random.normal(0, math.sqrt(1 - correlation**2), size)
    values[0] = random.normal()
    for place in range(1, size):
        values[place] += correlation * values[place - 1]
    return values


def share(outcomes: Sequence[bool]) -> tuple[float, int]:
    return float(np.mean(outcomes)), len(outcomes)


# ---- a run and a case


def steady(random: Random, trials: int) -> Iterator[Row]:
    """Runs of 120 rates (20 of them warm-up) with a CV of 3 % whose window is called unsteady."""
    slow = np.where(np.arange(120) < 35, 0.85, 1)
    rising = np.linspace(1, 1.1, 120)
    for label, correlation, factor in (
        ("steady, independent rates", 0.0, 1),
        ("steady, neighbours correlate by 0.5", 0.5, 1),
        ("steady, neighbours correlate by 0.7", 0.7, 1),
        ("steady, neighbours correlate by 0.9", 0.9, 1),
        ("15 steps that are 15 % slow", 0.0, slow),
        ("a drift of 10 %", 0.0, rising),
    ):
        runs = [(1 + 0.03 * correlated(random, 120, correlation)) * factor for _ in range(trials)]
        flags = [
            flag is not None and (flag.began_early or flag.drifts)
            for flag in steadiness(range(1, 121), runs, 20, 120)
        ]
        yield label, [share(flags)]


def case(random: Random, trials: int) -> Iterator[Row]:
    """Coverage of the intervals of a median and of a speed-up, and cases with a flagged outlier."""
    for size in (2, 3, 4, 5, 7, 20):
        of_median, of_ratio, flagged = [], [], []
        for _ in range(trials):
            values, base = normal(0.01)(random, size), normal(0.01)(random, size)
            interval = median_interval(values)
            of_median.append(interval.low <= 1 <= interval.high)
            interval = ratio_interval(values, base, resamples=1000)
            of_ratio.append(interval.low <= 1 <= interval.high)
            flagged.append(any(outliers(values)))
        yield f"a case of {size} runs", [share(of_median), share(of_ratio), share(flagged)]


# ---- comparisons


def published(random: Random, trials: int) -> Iterator[Row]:
    """Coverage of the ratio to a publication that is truly equal, and of the interval that takes
    the published number as exact."""
    for size, repeats in ((3, 1), (3, 5), (5, 1), (5, 5), (7, 5), (20, 1)):
        shares = []
        for draw in (normal(0.01), skewed(0.01)):
            held = []
            for _ in range(trials):
                number = float(np.median(draw(random, repeats)))
                interval = published_interval(draw(random, size), number, repeats=repeats)
                held.append(interval.low <= 1 <= interval.high)
            shares.append(share(held))
        exact = []
        for _ in range(trials):
            number = float(np.median(normal(0.01)(random, repeats)))
            interval = median_interval(normal(0.01)(random, size))
            exact.append(interval.low <= number <= interval.high)
        yield f"{size} runs, {repeats} published", [*shares, share(exact)]


def family_wise(random: Random, trials: int) -> Iterator[Row]:
    """`--fail-if-slower 3%` without any slowdown: comparisons that exit with status 1."""
    for cv, sizes in ((0.005, (4, 5)), (0.01, (4, 5, 6)), (0.015, (5, 8, 10, 12))):
        for size in sizes:
            draw = normal(cv)
            failed = [not _passes(random, draw, size) for _ in range(2 * trials)]
            # The cases of a campaign are independent, and one that does not pass is enough.
            p = float(np.mean(failed))
            shares = [(1 - (1 - p) ** cases, 2 * trials // cases) for cases in CASES]
            yield f"CV {100 * cv:g} %, {size} and {size} runs", shares


def _passes(random: Random, draw: Draw, size: int, factor: float = 1.0) -> bool:
    b = [factor * value for value in draw(random, size)]
    return relative_difference(draw(random, size), b).at_worst > -LIMIT


def missed(random: Random, trials: int) -> Iterator[Row]:
    """Cases that are truly slower, and pass `--fail-if-slower 3%`."""
    for size, slower in ((5, 0.03), (5, 0.04), (5, 0.05), (10, 0.03), (10, 0.04)):
        shares = []
        for draw in (normal(0.01), skewed(0.01)):
            passed = [_passes(random, draw, size, 1 - slower) for _ in range(trials)]
            shares.append(share(passed))
        yield f"{100 * slower:g} % slower, {size} and {size} runs", shares


def verdicts(random: Random, trials: int) -> Iterator[Row]:
    """Comparisons of equal campaigns in which at least one case is called faster or slower; with 12
    cases also those in which all cases together are."""
    for name, draw in (("normal", normal(0.01)), ("skewed", skewed(0.01))):
        for size in (4, 5, 10):
            shares = []
            for cases in CASES:
                families = _families(random, (draw, size), (draw, size), cases, trials // 4)
                shares.append(_wrong(families))
            wrong = [
                _excludes_0(pooled_interval([d.log_ratio for d in family])) for family in families
            ]
            yield f"{name}, {size} and {size} runs", [*shares, share(wrong)]


def unequal(random: Random, trials: int) -> Iterator[Row]:
    """Campaigns of which one scatters more and one has more runs: equal ones in which at least one
    of 1, 6 and 12 cases is called faster or slower, equal ones with 1 case that is perhaps so, and
    cases that are truly 3 % slower and pass `--fail-if-slower 3%`."""
    for name, quiet, noisy, sizes in (
        ("CV 0.1 % and 1 %, normal", normal(0.001), normal(0.01), ((20, 5), (5, 5), (10, 10))),
        ("CV 0.4 % and 1 %, normal", normal(0.004), normal(0.01), ((20, 5), (5, 5))),
        ("CV 0.1 % and 1 %, skewed", skewed(0.001), skewed(0.01), ((20, 5),)),
    ):
        for size_a, size_b in sizes:
            shares = []
            for cases in CASES:
                sides = (quiet, size_a), (noisy, size_b)
                shares.append(_wrong(_families(random, *sides, cases, trials // 4)))
            perhaps, passed = [], []
            for _ in range(trials):
                a, b = quiet(random, size_a), noisy(random, size_b)
                verdict = case_verdict(compare_samples(a, b), relative_difference(a, b))
                perhaps.append(verdict != NO_DIFFERENCE)
                slower = [(1 - LIMIT) * value for value in noisy(random, size_b)]
                at_worst = relative_difference(quiet(random, size_a), slower).at_worst
                passed.append(at_worst > -LIMIT)
            yield f"{name}, {size_a} and {size_b} runs", [*shares, share(perhaps), share(passed)]


def _families(random: Random, a: Side, b: Side, cases: int, number: int):
    """The differences of so many pairs of campaigns with so many cases."""
    (of_a, size_a), (of_b, size_b) = a, b

    def difference():
        return relative_difference(of_a(random, size_a), of_b(random, size_b), cases)

    return [[difference() for _ in range(cases)] for _ in range(number)]


def _wrong(families) -> tuple[float, int]:
    """Pairs of which at least one case is called faster or slower."""
    return share([any(_excludes_0(d.interval) for d in family) for family in families])


def _excludes_0(interval) -> bool:
    return interval.low > 0 or interval.high < 0


def detection(random: Random, trials: int) -> Iterator[Row]:
    """Cases that are slower, one of 12 each time, and are called slower."""
    for size, slower in ((5, 0.02), (5, 0.03), (5, 0.05), (10, 0.02), (10, 0.03)):
        shares = []
        for cv in (0.005, 0.01):
            hits = []
            for _ in range(trials):
                a = normal(cv)(random, size)
                b = [(1 - slower) * value for value in normal(cv)(random, size)]
                verdict = case_verdict(compare_samples(a, b), relative_difference(a, b, 12))
                hits.append(verdict == SLOWER)
            shares.append(share(hits))
        yield f"one case {100 * slower:g} % slower, {size} and {size} runs", shares


# ---- campaigns


def campaigns(random: Random, trials: int) -> Iterator[Row]:
    """Two campaigns of 5 runs, with a spread of 0.5 % between campaigns and 0.3 % within one: the
    same code called faster or slower, and code that is 2 % and 5 % slower called slower."""

    def campaign(factor: float = 1) -> list[float]:
        day = 0.005 * random.standard_normal()
        return (factor * np.exp(day + 0.003 * random.standard_normal(5))).tolist()

    for number in (0, 3, 5, 10):
        verdicts: dict[float, list[str]] = {1: [], 0.98: [], 0.95: []}
        for factor, called in verdicts.items():
            for _ in range(trials):
                spread = estimate([campaign() for _ in range(number)])
                a, b = campaign(), campaign(factor)
                difference = widened(relative_difference(a, b), spread, {"n_a": 5, "n_b": 5})
                called.append(case_verdict(compare_samples(a, b), difference, spread))
        label = f"spread measured with {number} campaigns" if number else "spread unknown"
        false = share([verdict != NO_DIFFERENCE for verdict in verdicts[1]])
        slower = (share([v == SLOWER for v in verdicts[factor]]) for factor in (0.98, 0.95))
        yield label, [false, *slower]


def adaptive(random: Random, trials: int) -> Iterator[Row]:
    """`--until-ci 1%` with at most 20 runs: coverage of the final interval, and cases that are
    still wider at the limit."""
    for first in (5, 10):
        for cv in (0.005, 0.01, 0.015, 0.02):
            held, wide = [], []
            for _ in range(trials):
                values, size = normal(cv)(random, 20), first
                while (more := wanted_repeats(values[:size], size, 0.01, 20)) is not None:
                    size = more
                interval = median_interval(values[:size])
                held.append(interval.low <= 1 <= interval.high)
                wide.append(not relative_half_width(values[:size]) <= 0.01)
            yield f"CV {100 * cv:g} %, looked at from {first} runs on", [share(held), share(wide)]


# ---- history


def change_points(random: Random, trials: int) -> Iterator[Row]:
    """Histories without a change that are marked at some look, by campaign 30 and 100."""
    kinds: list[tuple[str, Callable[[], np.ndarray]]] = [
        ("independent campaigns", lambda: random.normal(size=100)),
        *(
            (f"neighbours correlate by {c}", lambda c=c: correlated(random, 100, c))
            for c in (0.3, 0.5, 0.6, 0.7)
        ),
        ("independent, skewed", lambda: -random.exponential(size=100)),
        ("independent, heavy tails (Student's t, 3)", lambda: random.standard_t(3, 100)),
    ]
    for label, draw in kinds:
        looks = [(change[1] if (change := first_change(draw())) else 1000) for _ in range(trials)]
        yield label, [share([look <= size for look in looks]) for size in (30, 100)]


def changes_found(random: Random, trials: int) -> Iterator[Row]:
    """Changes by some standard deviations, found within 3, 5 and 10 campaigns."""
    for before, shift in ((7, 6), (12, 3), (12, 4), (12, 6), (20, 4)):
        looks = []
        for _ in range(trials):
            values = random.normal(size=before + 10)
            values[before:] -= shift
            change = first_change(values)
            looks.append(change[1] - before if change else 1000)
        shares = [share([look <= after for look in looks]) for after in (3, 5, 10)]
        yield f"by {shift} standard deviations after {before} campaigns", shares


# ---- acceptance


def accept(random: Random, trials: int) -> Iterator[Row]:
    """`accept` with the defaults, from the pilot to the last look: suites of so many units with at
    least one that passes, and one that fails, if all are 5 % slow; units as fast as the target that
    pass; units 7 % slower that fail."""
    for name, draw, units, by_reference in (
        ("1 node, CV 1 %, normal", normal(0.01), 1, False),
        ("1 node, CV 1.5 %, normal", normal(0.015), 1, False),
        ("8 nodes, CV 1 %, normal", normal(0.01), 8, False),
        ("64 nodes, CV 1 %, normal", normal(0.01), 64, False),
        ("8 nodes, CV 1 %, skewed", skewed(0.01), 8, False),
        ("8 nodes and a reference, CV 1 %, normal", normal(0.01), 8, True),
    ):
        suites = max(LEAST_TRIALS, trials // (1 if units == 1 else 8 if by_reference else 4))
        at_margin = [_suite(random, draw, units, 0.95, by_reference) for _ in range(suites)]
        wrong = [share([verdict in each for each in at_margin]) for verdict in (PASSED, FAILED)]
        rights = []
        for factor, right in ((1.0, PASSED), (0.93, FAILED)):
            families = max(LEAST_TRIALS, trials // 4 // units)
            outcomes = [_suite(random, draw, units, factor, by_reference) for _ in range(families)]
            rights.append(share([verdict == right for each in outcomes for verdict in each]))
        yield name, [*wrong, *rights]


def _suite(random: Random, draw: Draw, units: int, factor: float, by_reference: bool) -> list[str]:
    """The verdicts on units that all have this speed. The target is 1."""
    gate = Gate(0.05, 0.05 / (units * LOOKS))
    runs = [[factor * value for value in draw(random, MOST_RUNS)] for _ in range(units)]
    reference = draw(random, MOST_RUNS)
    pilots = [values[:5] for values in (*runs, reference)[: units + by_reference]]
    planned = planned_runs(
        gate, pooled_deviation(pilots), **PROMISE, by_reference=by_reference, least=5
    )
    assert planned is not None

    def look(values: list[float]) -> str:
        return judged(
            planned,
            look_sizes(5, planned),
            lambda size: gate.interval(values, reference if by_reference else 1.0, size),
            lambda interval: on_limit(interval.low, interval.high, gate.margin),
            UNDECIDED,
        ).verdict

    return [look(values) for values in runs]


# ---- in turns


def paired(random: Random, trials: int) -> Iterator[Row]:
    """`ab` with the defaults: equal sides called faster or slower; sides that are 1 % slower, just
    at the tolerance, called equal; equal ones called equal; and 2 % slower ones called slower."""
    test = PairedTest()
    for name, draw, drift in (
        ("CV 0.3 %, normal, in turns", normal(0.003), 0.0),
        ("CV 0.5 %, normal, in turns", normal(0.005), 0.0),
        ("CV 1 %, normal, in turns", normal(0.01), 0.0),
        ("CV 0.5 %, skewed, in turns", skewed(0.005), 0.0),
        ("CV 0.5 %, normal, in turns, 10 % slower at the end", normal(0.005), 0.1),
    ):
        shares = []
        for factor, is_meant in (
            (1.0, lambda verdict: verdict in (FASTER, SLOWER)),
            (0.99, lambda verdict: verdict == NO_DIFFERENCE),
            (1.0, lambda verdict: verdict == NO_DIFFERENCE),
            (0.98, lambda verdict: verdict == SLOWER),
        ):
            verdicts = [_in_turns(random, draw, factor, drift, test) for _ in range(trials)]
            shares.append(share([is_meant(verdict) for verdict in verdicts]))
        yield name, shares


def _in_turns(random: Random, draw: Draw, factor: float, drift: float, test: PairedTest) -> str:
    """The verdict on side B. The machine drifts from run to run, A B B A."""
    a, b = draw(random, test.most), draw(random, test.most)
    step = drift / (2 * test.most)
    differences = [
        math.log(factor * y / x) + (-step if pair % 2 == 0 else step)
        for pair, (x, y) in enumerate(zip(a, b, strict=True))
    ]
    return judged(
        test.most, test.sizes, lambda n: test.interval(differences[:n]), test.decide, UNDECIDED
    ).verdict


def bisect(random: Random, trials: int) -> Iterator[Row]:
    """`bisect` with the defaults over 32 versions, one of which brings a slowdown of 2 %: the right
    one is found, a wrong one is, and a step is undecided."""
    versions = [str(number) for number in range(32)]
    for cv in (0.005, 0.01, 0.015):
        right, wrong, open_ = [], [], []
        for _ in range(max(LEAST_TRIALS, trials // 4)):
            first = int(random.integers(1, 32))
            result = search(versions, _judges(random, normal(cv), first))
            right.append(result.version == str(first))
            wrong.append(result.version not in (None, str(first)))
            open_.append(result.version is None)
        yield f"32 versions, CV {100 * cv:g} %", [share(right), share(wrong), share(open_)]


def _judges(random: Random, draw: Draw, first: int) -> Callable[[str], Step]:
    test = step_test(32, 0.05, 128, 0.02)

    def judge(version: str) -> Step:
        factor = 0.98 if int(version) >= first else 1.0
        return Step(version, _in_turns(random, draw, factor, 0.0, test))

    return judge


# ---- slow nodes


def hunt(random: Random, trials: int) -> Iterator[Row]:
    """`doctor --hunt` on pairs with a CV of 1 %: a node that is slower by 3 % and by 5 % is named,
    another one is named beside it, any is named where none is slow, and the node that is slower by
    3 % is below 80 % of the median of the better half in one measurement."""
    for nodes, count, broken in (
        (64, 5, 0.0),
        (64, 5, 0.01),
        (64, 10, 0.0),
        (16, 5, 0.0),
        (8, 10, 0.0),
    ):
        named: dict[float, list[set[str]]] = {1: [], 0.97: [], 0.95: []}
        by_rule = []
        for factor, of_factor in named.items():
            for _ in range(max(1, trials // 8)):
                measured = [
                    {
                        (str(a), str(b)): (factor if a == 0 else 1)
                        * (0.6 if random.random() < broken else 1)
                        * random.normal(1, 0.01)
                        for a, b in pairs
                    }
                    for pairs in rounds_from(nodes, 0, count)
                ]
                of_factor.append({m.name for m in search_slow(measured, 0.03, 500).slow})
                if factor == 0.97:
                    values = sorted(measured[0].values(), reverse=True)
                    better = values[: (len(values) + 1) // 2]
                    (slow,) = (v for pair, v in measured[0].items() if "0" in pair)
                    by_rule.append(slow < FAIR * float(np.median(better)))
        hits = [share(["0" in names for names in named[factor]]) for factor in (0.97, 0.95)]
        others = share([bool(names - {"0"}) for names in named[0.97]])
        false = share([bool(names) for names in named[1]])
        label = f"{nodes} nodes, {count} rounds" + (", 1 % interrupted" if broken else "")
        yield label, [*hits, others, false, share(by_rule)]


SIMULATIONS: dict[str, Callable[[Random, int], Iterator[Row]]] = {
    "steady": steady,
    "case": case,
    "published": published,
    "family-wise": family_wise,
    "missed": missed,
    "verdicts": verdicts,
    "unequal": unequal,
    "found": detection,
    "campaigns": campaigns,
    "adaptive": adaptive,
    "change-points": change_points,
    "changes-found": changes_found,
    "accept": accept,
    "paired": paired,
    "bisect": bisect,
    "hunt": hunt,
}


def percent(value: float) -> str:
    """One decimal below 10 %, none above 10 % and below 90 %."""
    return f"{100 * value:.{1 if value < 0.095 or value > 0.905 else 0}f} %"


def trials_of(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < LEAST_TRIALS:
        raise argparse.ArgumentTypeError(f"expected an integer of at least {LEAST_TRIALS}")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", choices=SIMULATIONS, help="run one simulation")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--trials", type=trials_of, default=TRIALS)
    given = parser.parse_args()
    for name in [given.only] if given.only else SIMULATIONS:
        start = time.monotonic()
        print(f"{name}: {' '.join((SIMULATIONS[name].__doc__ or '').split())}\n")
        for label, shares in SIMULATIONS[name](np.random.default_rng(given.seed), given.trials):
            error = max(2 * math.sqrt(value * (1 - value) / trials) for value, trials in shares)
            cells = " | ".join([label, *(percent(value) for value, _ in shares)])
            print(f"| {cells} |  ± {100 * error:.1f} %", flush=True)
        print(f"\n({time.monotonic() - start:.0f} s)\n")


if __name__ == "__main__":
    main()
