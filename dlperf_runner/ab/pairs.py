"""Judges two campaigns whose runs were made in turns (A B B A), in pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from ..compare.spread import refuse_copies
from ..compare.verdicts import FASTER, NO_DIFFERENCE, SLOWER, UNDECIDED, side
from ..core.errors import UserError
from ..core.files import read_json
from ..core.frame import records, throughput
from ..core.identity import CASE, label, value_text
from ..stats.intervals import ConfidenceInterval
from ..stats.sequential import judged, mean_of_logs

if TYPE_CHECKING:
    from ..results.load import Results

SIZES = (4, 8, 16, 32, 64, 128)  # pairs at which verdicts are made
DECIDED = (FASTER, SLOWER, NO_DIFFERENCE)


@dataclass(frozen=True)
class PairedTest:
    """`within`: a difference that is wholly within it (0.01 for 1 %) is none. `most`: pairs.
    `error`: the probability that equal sides are called different, over all looks."""

    within: float = 0.01
    most: int = 32
    error: float = 0.05

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The looks."""
        return (*(size for size in SIZES if size < self.most), self.most)

    def interval(self, differences: list[float]) -> ConfidenceInterval:
        """Student's interval of the mean difference of the logarithms of pairs, at one look."""
        return mean_of_logs(differences).interval(1 - self.error / len(self.sizes))

    def decide(self, interval: ConfidenceInterval) -> str:
        """The verdict of a look."""
        if (found := side(interval)) != NO_DIFFERENCE:
            return found
        is_within = -self.within <= interval.low and interval.high <= self.within
        return NO_DIFFERENCE if is_within else UNDECIDED


Decide = Callable[[ConfidenceInterval], str]


def judge(a: Results, b: Results, test: PairedTest, decide: Decide | None = None) -> dict[str, Any]:
    """The verdict on B by the pairs of runs with the same number. `decide`: by default, the
    test's. Raises UserError if a side has several cases, if the sides have different units or a log
    in common, or if their runs were not made in turns."""
    refuse_copies((str(side.directory), side.logs) for side in (a, b))
    _refuse_without_turns(a, b)
    rows = [_rates(a), _rates(b)]
    units = {row["unit"] for own in rows for row in own.values()}
    if len(units) > 1:
        raise UserError("the two sides count different things", found=", ".join(sorted(units)))
    common = sorted(rows[0].keys() & rows[1].keys())
    values = [[own[number]["value"] for number in common] for own in rows]
    differences = [math.log(y / x) for x, y in zip(*values, strict=True)]
    look = judged(
        len(common),
        test.sizes,
        lambda size: test.interval(differences[:size]),
        decide or test.decide,
        UNDECIDED,
        "pair",
    )
    first, second = (next(iter(own.values()), {}) for own in rows)
    return {
        "a": str(a.directory),
        "b": str(b.directory),
        "unit": first.get("unit"),
        "median_a": median(values[0]) if common else None,
        "median_b": median(values[1]) if common else None,
        "pairs": len(common),
        "judged_pairs": look.size,
        "looks": list(test.sizes),
        "difference": math.exp(math.fsum(differences[: look.size]) / look.size) - 1
        if look.size
        else None,
        "low": look.low,
        "high": look.high,
        "verdict": look.verdict,
        "why": look.why,
        "differs_in": [text for name in CASE if (text := _differing(name, first, second))],
    }


def _refuse_without_turns(a: Results, b: Results) -> None:
    """Raise UserError if a pair's run began before one of an earlier pair."""
    times: dict[int, list[Any]] = {}
    for run in (*a.counted, *b.counted):
        record = run.path.with_name("run.json")
        if record.is_file() and (began := read_json(record)["outcome"].get("started")) is not None:
            times.setdefault(run.repeat, []).append(began)
    for number, after in pairwise(sorted(times)):
        if max(times[number]) > min(times[after]):
            raise UserError(
                "the two campaigns were not run in turns, so their runs are no pairs",
                where=f"{a.directory} and {b.directory}",
                expected=f"the runs r{number} of both before r{after} of either",
                hint="`dlperf compare` judges campaigns that were run one after the other",
            )


def _rates(results: Results) -> dict[int, Mapping[str, Any]]:
    """The rows of the valid runs of the side's only case, by the number of the run."""
    rows = records(throughput(results.frame))
    for name in CASE:
        if len(values := {row[name] for row in rows}) > 1:
            raise UserError(
                "a side has runs of several cases",
                where=str(results.directory),
                expected=f"one {label(name)}",
                found=", ".join(sorted(map(value_text, values))),
            )
    return {row["repeat"]: row for row in rows}


def _differing(name: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    before, after = a.get(name), b.get(name)
    if not a or not b or before == after:
        return None
    return f"{label(name)} {value_text(before)} and {value_text(after)}"
