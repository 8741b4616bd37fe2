"""Measure a regular log that is completely in memory. The result is that of `measure`, but whole
columns are checked at once instead of single steps."""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..catalog.rule import Rule
from ..core.errors import UserError
from ..logs.records import Columns, Format, Header
from .by_line import FASTEST, confirm, first_step
from .estimators import Expected, Measured, in_window, measured


def measure_whole(
    form: Format,
    headers: Sequence[Header],
    found: Columns,
    rule: Rule,
    expected: Expected,
    name: str,
) -> Measured | None:
    """The result of `measure` for these headers and steps; None if the log is irregular in any way.
    Then `measure` must adapt to it or report the problem with its line number."""
    confirmed: set[str] = set()
    every = rule.log_every
    try:
        for header in headers:
            confirmed |= confirm(header, rule, expected, name)
            every = header.log_every or every
        first = first_step(form, rule, every)
        several = len({header.writer for header in headers if header.writer is not None}) > 1
        if several or not (_are_in_order(found.steps, first, every, rule) and _are_rates(found)):
            return None
        rates = in_window(found.steps, found.samples_per_second, rule)
        return measured(found, rates, frozenset(confirmed), rule, expected, name)
    except UserError:
        return None


def _are_in_order(steps: Sequence[int], first: int, every: int, rule: Rule) -> bool:
    """Whether these are all the steps of the rule, and no more than the program prints."""
    wanted = list(range(first, rule.total_steps + rule.surplus_steps + 1, every))
    needed = len(range(first, rule.total_steps + 1, every))
    return len(steps) >= max(needed, 1) and list(steps) == wanted[: len(steps)]


def _are_rates(found: Columns) -> bool:
    """Whether all rates are possible in training."""
    rates = list(found.samples_per_second)
    if found.final_samples_per_second is not None:
        rates.append(found.final_samples_per_second)
    # min and max can miss a NaN; a sum cannot.
    return math.isfinite(sum(rates)) and min(rates) > 0 and max(rates) < FASTEST
