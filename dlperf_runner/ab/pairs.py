"""Judges two campaigns whose runs were made in turns (A B B A), in pairs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from ..commands.verify import refuse_tampered
from ..compare.verdicts import NO_DIFFERENCE, UNDECIDED, on_limit, side
from ..core.errors import UserError
from ..core.files import read_json
from ..core.frame import records, throughput
from ..core.identity import CASE, label, value_text
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
        "not_counted": [
            f"{path}: {why}" for each in (a, b) for path, why in each.not_counted.items()
        ],
    }


def _refuse_unpaired(a: Results, b: Results) -> None:
    """Raise UserError unless the records of both sides show that their runs are pairs."""
    runs = [{run.repeat: run for run in each.counted} for each in (a, b)]
    records_of = [{n: run.path.with_name("run.json") for n, run in each.items()} for each in runs]
    bare = [path for each in records_of for path in each.values() if not path.is_file()]
    starts = [
        {n: began for n, path in each.items() if (began := _started(path))} for each in records_of
    ]
    expected = problem = None
    if bare:
        problem, expected = "nothing records when these runs began", f"{bare[0]}, as campaigns have"
    for number, after in pairwise(sorted({*starts[0], *starts[1]})):
        times, later = ([each[n] for each in starts if n in each] for n in (number, after))
        if max(times) > min(later):
            problem = "the two campaigns were not run in turns, so their runs are no pairs"
            expected = f"the runs r{number} of both before r{after} of either"
            break
    both = starts[0].keys() & starts[1].keys()
    if not problem and len({(starts[0][n] < starts[1][n]) == bool(n % 2) for n in both}) > 1:
        problem, expected = "the sides did not take turns to be first", "A B B A, as `ab` runs them"
    for number in runs[0].keys() & runs[1].keys():
        hosts = [each[number].hosts for each in runs]
        if all(hosts) and {*hosts[0]} != {*hosts[1]}:
            problem = f"the runs r{number} were on different nodes, so they are no pair"
            expected = f"the nodes of the first, {', '.join(hosts[0])}; see --limit, --nodelist"
            break
    if problem:
        hint = "`dlperf compare` judges campaigns that were run one after the other"
        where = f"{a.directory} and {b.directory}"
        raise UserError(problem, where=where, expected=expected, hint=hint)


def _started(record: Any) -> Any:
    return read_json(record)["outcome"].get("started") if record.is_file() else None


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
