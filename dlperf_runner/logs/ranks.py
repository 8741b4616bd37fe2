"""The rates of several ranks in a log whose launcher names them. The ranks of a run train in step,
so that their rates of a step are about the same, whoever's rates count."""

from __future__ import annotations

from statistics import median

from . import text
from .reader import Block
from .records import Format, LineError, Refusal

# Ranks read different clocks, which in real logs makes a difference of 1 or 2 % at most.
TOLERANCE = 0.1


class Ranks:
    """The rate and the line of each step, by rank, in the order in which the ranks first print."""

    def __init__(self) -> None:
        self._steps: dict[str, dict[int, tuple[float, int]]] = {}
        self._last: dict[str | None, bytes] = {}  # the step of the last line
        self._other: tuple[str, int] | None = None  # the first rate of a rank that does not count

    def add(self, form: Format, block: Block, of_rank: Block) -> None:
        """Take the rates of a block. `of_rank` are the lines of the rank whose steps count."""
        if of_rank is block or block.data.count(form.marker) <= of_rank.data.count(form.marker):
            return
        matches = list(form.entry.finditer(block.data))
        writers = block.writers(match.start() for match in matches)
        for match, rank in zip(matches, writers, strict=True):
            # A line with a rate may have no step: that of the line before, or a whole run.
            step = match["step"] or self._last.get(rank, b"1" if form.whole_run else b"")
            self._last[rank] = step
            if rank is not None and match["rate"] and step:
                try:
                    rate = text.rate_in(match, form)
                except LineError:
                    continue  # that of the rank whose steps count is reported
                line = block.line(match.start("rate"))
                self._steps.setdefault(rank, {})[int(step)] = rate, line
                if self._other is None and rank not in of_rank.ranks:
                    self._other = f"a rate of rank {rank}, too", line

    def check(self, refusal: Refusal | None = None) -> None:
        """Raise LineError if the rates of two ranks differ: nothing says which are those of the
        run. With a `refusal`, equal rates say no more."""
        if refusal and self._other:
            shown, at = self._other
            raise LineError(
                at, refusal.problem, expected=refusal.expected, found=shown, hint=refusal.hint
            )
        if len(self._steps) < 2:
            return
        (first, steps), *others = self._steps.items()
        for rank, rates in others:
            both = [step for step in rates if step in steps]
            ratios = [rates[step][0] / steps[step][0] for step in both]
            if not both or 1 / (1 + TOLERANCE) <= median(ratios) <= 1 + TOLERANCE:
                continue
            (expected, line), (other, at) = steps[both[-1]], rates[both[-1]]
            raise LineError(
                at,
                f"the ranks {first} and {rank} print different rates of the same steps",
                expected=f"about {expected:.6g}, as in line {line}",
                found=f"{other:.6g}",
                hint="the ranks of a run have the same rate: if two runs write to this log, keep"
                f" the lines of one, or state which counts: --rank {first}",
            )
