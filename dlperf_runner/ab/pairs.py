"""Judges two campaigns whose runs were made in turns (A B B A), in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import pairwise
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from ..commands.verify import refuse_tampered
from ..compare.verdicts import NO_DIFFERENCE, UNDECIDED, on_limit, side
from ..core.errors import UserError
from ..core.frame import records, throughput
from ..core.identity import CASE, differing, label, value_text
from ..stats.intervals import ConfidenceInterval
from ..stats.sequential import judged, mean_of_logs

if TYPE_CHECKING:
    from ..results.load import Results

SIZES = (4, 8, 16, 32, 64, 128)  # pairs at which verdicts are made


@dataclass(frozen=True)
class PairedTest:
    """`within`: a difference that is wholly within it (0.01 for 1 %) is none. `most`: pairs.
    `error`: the probability that equal sides are called different, over all looks. `slower`: judge
    only if B is slower than half of it: failed, or passed."""

    within: float = 0.01
    most: int = 32
    error: float = 0.05
    slower: float | None = None

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """The looks."""
        return (*(size for size in SIZES if size < self.most), self.most)

    def interval(self, differences: list[float]) -> ConfidenceInterval:
        """Student's interval of the mean difference of the logarithms of pairs, at one look."""
        return mean_of_logs(differences).interval(1 - self.error / len(self.sizes))

    def decide(self, interval: ConfidenceInterval) -> str:
        """The verdict of a look. Of `slower`, the versions before and after the change are equally
        far from the limit."""
        if self.slower is not None:
            return on_limit(interval.low, interval.high, self.slower / 2)
        if (verdict := side(interval)) != NO_DIFFERENCE:
            return verdict
        is_within = -self.within <= interval.low and interval.high <= self.within
        return NO_DIFFERENCE if is_within else UNDECIDED


def judge(a: Results, b: Results, test: PairedTest) -> dict[str, Any]:
    """The verdict on B by the pairs of runs with the same number. Raises UserError if a side has
    several cases, if the sides have different units or a log in common, if somebody changed their
    runs, or if these were not made in turns on the same nodes."""
    refuse_tampered([a, b])
    _refuse_unpaired(a, b)
    rows = [_rates(a), _rates(b)]
    units = {row["unit"] for of_side in rows for row in of_side.values()}
    if len(units) > 1:
        raise UserError("the two sides count different things", found=", ".join(sorted(units)))
    common = sorted(rows[0].keys() & rows[1].keys())
    values = [[of_side[number]["value"] for number in common] for of_side in rows]
    differences = [math.log(y / x) for x, y in zip(*values, strict=True)]
    look = judged(
        len(common),
        test.sizes,
        lambda size: test.interval(differences[:size]),
        test.decide,
        UNDECIDED,
        "pair",
    )
    first, second = (next(iter(of_side.values()), {}) for of_side in rows)
    verdict = asdict(look)
    count = verdict.pop("size")
    return verdict | {
        "a": str(a.directory),
        "b": str(b.directory),
        "unit": first.get("unit"),
        "median_a": median(values[0]) if common else None,
        "median_b": median(values[1]) if common else None,
        "pairs": len(common),
        "judged_pairs": count,
        "looks": list(test.sizes),
        "difference": math.expm1(fmean(differences[:count])) if count else None,
        "differs_in": [
            f"{label(name)} {value_text(first[name])} and {value_text(second[name])}"
            for name in (differing([first, second], CASE) if first and second else ())
        ],
        "not_counted": [
            f"{path}: {why}" for each in (a, b) for path, why in each.not_counted.items()
        ],
    }


def _refuse_unpaired(a: Results, b: Results) -> None:
    """Raise UserError unless the records of both sides show that their runs are pairs."""
    runs = [{run.repeat: run for run in each.counted} for each in (a, b)]
    both = runs[0].keys() & runs[1].keys()
    turns = sorted(
        (run.started or 0.0, number, side)
        for side, of_side in enumerate(runs)
        for number, run in of_side.items()
    )
    expected = problem = None
    if early := [n for (_, before, _), (_, n, _) in pairwise(turns) if n < before]:
        problem = "the two campaigns were not run in turns, so their runs are no pairs"
        expected = f"the runs r{early[0]} of both before r{early[0] + 1} of either"
    # A is first in odd pairs, B in even ones; or the other way round.
    elif len({(n + side) % 2 for n, side in {n: s for _, n, s in turns if n in both}.items()}) > 1:
        problem, expected = "the sides did not take turns to be first", "A B B A, as `ab` runs them"
    for number in both:
        hosts = [each[number].hosts for each in runs]
        if all(hosts) and {*hosts[0]} != {*hosts[1]}:
            problem = f"the runs r{number} were on different nodes, so they are no pair"
            expected = f"the nodes of the first, {', '.join(hosts[0])}; see --limit, --nodelist"
            break
    silent = (run.path for each in runs for run in each.values() if run.started is None)
    if log := next(silent, None):
        problem = "nothing records when these runs began"
        expected = f"the start in {log.with_name('run.json')}, as campaigns have"
    if problem:
        hint = "`dlperf compare` judges campaigns that were run one after the other"
        where = f"{a.directory} and {b.directory}"
        raise UserError(problem, where=where, expected=expected, hint=hint)


def _rates(results: Results) -> dict[int, Mapping[str, Any]]:
    """The rows of the valid runs of the side's only case, by the number of the run."""
    rows = records(throughput(results.frame))
    for name, values in differing(rows, CASE).items():
        raise UserError(
            "a side has runs of several cases",
            where=str(results.directory),
            expected=f"one {label(name)}",
            found=", ".join(sorted(map(value_text, values))),
        )
    return {row["repeat"]: row for row in rows}
