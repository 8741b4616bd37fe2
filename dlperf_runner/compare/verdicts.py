"""All verdicts: between two campaigns, on a publication, on a limit, and of all cases together.

docs/comparing.md defines them. An undecided case says how many more runs would decide it, if the
difference and the spread of the runs stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from ..core.lists import counted
from ..stats.between_campaigns import Spread, difference_half_width
from ..stats.intervals import LEVEL, ConfidenceInterval, SampleComparison
from ..stats.ratios import (
    LEAST_RUNS,
    LogRatio,
    RelativeDifference,
    log_ratio,
    of_median,
    pooled_interval,
    student,
)
from ..stats.sequential import MOST_MORE, more_runs, separates

FASTER, SLOWER, REPRODUCED, UNDECIDED = "faster", "slower", "reproduced", "undecided"
PASSED, FAILED, TOO_FEW = "passed", "failed", "too few runs"
PERHAPS_FASTER, PERHAPS_SLOWER = "perhaps faster", "perhaps slower"
NO_DIFFERENCE = "no difference shown"
NOT_COMPARABLE, NOT_PUBLISHED = "not comparable", "not published"
ONLY_A, ONLY_B = "only in the first", "only in the second"
# Without a counterpart.
ALONE = frozenset({NOT_PUBLISHED, ONLY_A, ONLY_B})
SIGNIFICANCE = 0.05
Verdict = tuple[str | None, str | None]  # on a limit, and why it is open


@dataclass(frozen=True)
class Together:
    """The mean relative difference of all compared cases. It says nothing about a single case."""

    cases: int
    relative_low: float
    relative_high: float
    verdict: str


def too_few(result: SampleComparison) -> bool:
    """True if not even the most extreme order of so many runs would be significant."""
    return result.least_p_value >= SIGNIFICANCE


def case_verdict(
    result: SampleComparison, difference: RelativeDifference, spread: Spread | None = None
) -> str:
    """Faster or slower: the whole interval, which holds together with those of all cases, is on
    one side of 0. Perhaps: only the two tests of this case alone are significant, by ranks and
    Welch's, which allows for unequal scatter. Neither knows the spread between campaigns, so they
    say nothing where the spread is known."""
    if too_few(result):
        return TOO_FEW
    together_verdict = side(difference.interval)
    if together_verdict != NO_DIFFERENCE or result.p_value >= SIGNIFICANCE or spread is not None:
        return together_verdict
    alone = side(difference.log_ratio.interval(LEVEL))
    return {FASTER: PERHAPS_FASTER, SLOWER: PERHAPS_SLOWER}.get(alone, NO_DIFFERENCE)


def published_verdict(interval: ConfidenceInterval, tolerance: float) -> str:
    """Reproduced: the whole interval of the ratio is within 1 +- tolerance. Faster or slower: the
    whole interval is outside. An interval that crosses a bound is undecided. So are too few runs,
    however close they are: they have no interval."""
    low, high = interval.low, interval.high
    if low > 1 + tolerance:
        return FASTER
    if high < 1 - tolerance:
        return SLOWER
    return REPRODUCED if low >= 1 - tolerance and high <= 1 + tolerance else UNDECIDED


# ---- on a limit


def campaign_limit(row: Mapping[str, Any], limit: float) -> Verdict:
    """The verdict on a limit (0.03 for 3 %) of a row of `compare_campaigns`, and why it is open.

    Failed: the whole interval is below -limit. Passed: `at_worst` is above it. That all cases
    passed is wrong only if each case that is too slow is judged wrongly, so that `at_worst` needs
    no allowance for their number (Berger 1982, intersection-union tests).
    """
    if row["verdict"] == ONLY_B:
        return None, None  # a new case has no counterpart
    if row["verdict"] == ONLY_A:
        return UNDECIDED, "it was not measured again"
    if row["verdict"] == TOO_FEW:
        runs = f"{row['n_a']} and {row['n_b']} runs"
        return TOO_FEW, f"{runs} are too few for a verdict; 4 and 4 are the least"
    if math.isnan(row["at_worst"]):
        return UNDECIDED, "a rate of 0 gives no relative difference"
    verdict = on_limit(row["at_worst"], row["relative_high"], limit)
    return verdict, _crossing(limit, row["outlook"]) if verdict == UNDECIDED else None


def published_limit(row: Mapping[str, Any], limit: float) -> Verdict:
    """The verdict on a limit (0.03 for 3 %) of a row of `compare_published`, and why it is open:
    failed if the whole interval of the ratio is below 1 - limit, passed if it is above. There is
    none if nothing is published."""
    if row["verdict"] == NOT_PUBLISHED:
        return None, None
    if row["verdict"] == NOT_COMPARABLE:
        return UNDECIDED, "it is not comparable with the publication"
    if math.isnan(row["ratio_low"]):
        return TOO_FEW, f"fewer than {LEAST_RUNS} runs give no interval"
    verdict = on_limit(row["ratio_low"] - 1, row["ratio_high"] - 1, limit)
    if verdict != UNDECIDED:
        return verdict, None
    return UNDECIDED, _crossing(limit, to_decide_published(row, [1 - limit]))


def on_limit(low: float, high: float, limit: float) -> str:
    """The verdict of an interval of a relative difference. An unknown interval decides nothing."""
    if high < -limit:
        return FAILED
    return PASSED if low > -limit else UNDECIDED


def _crossing(limit: float, outlook: str) -> str:
    return f"the interval crosses {-limit or 0:.1%}; {outlook}"


def together(rows: Sequence[Mapping[str, Any]]) -> Together | None:
    """All cases of a table of `compare_campaigns` together; None if fewer than 2 can be pooled. If
    the spread between campaigns is known of a case, a campaign is taken to affect all cases alike,
    so that the mean of several is as uncertain as they are."""
    names = ("log_ratio", "log_ratio_error", "log_ratio_freedom")
    ratios = [LogRatio(*(row[name] for name in names)) for row in rows if _is_number(row[names[1]])]
    if len(ratios) < 2:
        return None
    mean = pooled_interval(ratios)
    if any(_is_number(row["between_campaigns"]) for row in rows):
        error, freedom = fmean(r.error for r in ratios), min(r.freedom for r in ratios)
        mean = LogRatio(fmean(r.value for r in ratios), error, freedom).interval(LEVEL)
    return Together(len(ratios), mean.low, mean.high, side(mean))


def _is_number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def side(interval: ConfidenceInterval) -> str:
    """The side of 0 on which an interval of a relative difference is."""
    if interval.low > 0:
        return FASTER
    return SLOWER if interval.high < 0 else NO_DIFFERENCE


# ---- how many more runs would decide


def to_decide(
    a: Sequence[float], b: Sequence[float], limit: float, cases: int, spread: Spread | None
) -> str:
    """The runs that would decide whether b is slower than a by the limit (0.03 for 3 %)."""
    if min(len(a), len(b)) < 2 or min(*a, *b) <= 0:
        return "more runs make it narrower"
    ratio = 1 - limit
    above = log_ratio(a, b).value - math.log(ratio)
    # A case passes by its bound alone, and fails by the interval that holds among all cases.
    level = 1 - 2 * (1 - LEVEL) if above > 0 else 1 - (1 - LEVEL) / cases
    reach = difference_half_width(spread, len(a), len(b), level) if spread else 0.0
    if reach >= abs(above):
        return "more runs cannot decide it: the spread between campaigns alone is as large"
    return _sentence(lambda more: separates(a, b, ratio, level, more, reach), "of each")


def to_decide_published(row: Mapping[Any, Any], bounds: Sequence[float]) -> str:
    """The runs that would show on which side of all bounds a ratio of `compare_published` is. The
    runs of the publication are taken to scatter like the user's."""
    runs = int(row["repeats"])
    if math.isnan(row["ratio_low"]):
        return f"an interval needs at least {LEAST_RUNS - runs} more"
    published = 1 if math.isnan(row["published_repeats"]) else int(row["published_repeats"])
    width = math.log(row["ratio_high"] / row["ratio_low"]) / 2
    distance = min(abs(math.log(row["ratio"] / bound)) for bound in bounds)

    def reach(size: int) -> float:
        error = math.sqrt(of_median(size) + of_median(published))
        return student(size - 1, LEVEL) * error

    if width / reach(runs) * student(math.inf, LEVEL) * math.sqrt(of_median(published)) >= distance:
        return "more runs cannot decide it: the publication rests on too few"
    return _sentence(lambda more: width * reach(runs + more) / reach(runs) < distance, "")


def _sentence(decides: Callable[[int], bool], whose: str) -> str:
    number = more_runs(decides)
    if number is None:
        return f"more than {MOST_MORE} more runs {whose}".rstrip() + " would be needed"
    runs = f"{counted(number, 'more run')} {whose}".rstrip()
    return f"about {runs} would decide if the difference and the spread stay as they are"
