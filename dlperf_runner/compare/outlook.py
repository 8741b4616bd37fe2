"""How many more runs would decide what is undecided, in a sentence.

All estimates assume that the difference and the spread of the runs stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.lists import counted
from ..stats.between_campaigns import difference_half_width
from ..stats.intervals import LEVEL
from ..stats.ratios import LEAST_RUNS, log_ratio, of_median, student
from ..stats.repeats import MOST_MORE, more_runs, separates

if TYPE_CHECKING:
    from ..stats.between_campaigns import Spread


def to_decide(
    a: Sequence[float], b: Sequence[float], limit: float, cases: int, spread: Spread | None
) -> str:
    """What would decide whether b is slower than a by the limit (0.03 for 3 %)."""
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
    """What would decide on which side of all bounds the ratio of a row of `compare_published` is.
    The runs of the publication are taken to scatter like the user's."""
    runs = int(row["repeats"])
    if math.isnan(row["ratio_low"]):
        return f"an interval needs at least {LEAST_RUNS - runs} more"
    published = 1 if math.isnan(row["published_repeats"]) else int(row["published_repeats"])
    known = math.log(row["ratio_high"] / row["ratio_low"]) / 2
    distance = min(abs(math.log(row["ratio"] / bound)) for bound in bounds)

    def reach(size: int) -> float:
        error = math.sqrt(of_median(size) + of_median(published))
        return student(size - 1, LEVEL) * error

    if known / reach(runs) * student(math.inf, LEVEL) * math.sqrt(of_median(published)) >= distance:
        return "more runs cannot decide it: the publication rests on too few"
    return _sentence(lambda more: known * reach(runs + more) / reach(runs) < distance, "")


def _sentence(decides: Callable[[int], bool], whose: str) -> str:
    number = more_runs(decides)
    if number is None:
        return f"more than {MOST_MORE} more runs {whose}".rstrip() + " would be needed"
    runs = f"{counted(number, 'more run')} {whose}".rstrip()
    return f"about {runs} would decide if the difference and the spread stay as they are"
