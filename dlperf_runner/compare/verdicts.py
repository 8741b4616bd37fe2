"""Verdicts between two campaigns: of a case, of a case on a limit, and of all cases together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..stats.intervals import LEVEL, ConfidenceInterval, SampleComparison
from ..stats.ratios import LogRatio, RelativeDifference, pooled_interval
from .conditions import FAILED, PASSED, TOO_FEW, UNDECIDED

if TYPE_CHECKING:
    from ..stats.between_campaigns import Spread

FASTER, SLOWER, NO_DIFFERENCE = "faster", "slower", "no difference shown"
PERHAPS_FASTER, PERHAPS_SLOWER = "perhaps faster", "perhaps slower"
ONLY_A, ONLY_B = "only in the first", "only in the second"
SIGNIFICANCE = 0.05


@dataclass(frozen=True)
class Together:
    """The mean relative difference of all compared cases. It says nothing about a single case."""

    cases: int
    relative_low: float
    relative_high: float
    verdict: str


def too_few(result: SampleComparison) -> bool:
    """Whether not even the most extreme order of so many runs would be significant."""
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
    found = _side(difference.interval)
    if found != NO_DIFFERENCE or result.p_value >= SIGNIFICANCE or spread is not None:
        return found
    alone = _side(difference.log_ratio.interval(LEVEL))
    return {FASTER: PERHAPS_FASTER, SLOWER: PERHAPS_SLOWER}.get(alone, NO_DIFFERENCE)


def against_limit(row: Mapping[str, Any], limit: float) -> tuple[str | None, str | None]:
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
    if row["relative_high"] < -limit:
        return FAILED, None
    if row["at_worst"] > -limit:
        return PASSED, None
    if math.isnan(row["at_worst"]):
        return UNDECIDED, "a rate of 0 gives no relative difference"
    return UNDECIDED, f"the interval crosses {-limit or 0:.1%}; {row['outlook']}"


def together(rows: Sequence[Mapping[str, Any]]) -> Together | None:
    """All cases of a table of `compare_campaigns` together; None if fewer than 2 can be pooled.

    If the spread between campaigns is known of a case, a campaign is taken to affect all cases
    alike, so that the mean of several is as uncertain as they are.
    """
    names = ("log_ratio", "log_ratio_error", "log_ratio_freedom")
    ratios = [LogRatio(*(row[name] for name in names)) for row in rows if _known(row[names[1]])]
    if len(ratios) < 2:
        return None
    found = pooled_interval(ratios)
    if any(_known(row["between_campaigns"]) for row in rows):
        error, freedom = fmean(r.error for r in ratios), min(r.freedom for r in ratios)
        found = LogRatio(fmean(r.value for r in ratios), error, freedom).interval(LEVEL)
    return Together(len(ratios), found.low, found.high, _side(found))


def _known(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _side(interval: ConfidenceInterval) -> str:
    if interval.low > 0:
        return FASTER
    return SLOWER if interval.high < 0 else NO_DIFFERENCE
