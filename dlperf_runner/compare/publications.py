"""Publications of the same model side by side: their numbers, and their different conditions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..catalog.published_numbers import PublishedNumber, load_published, load_rule
from ..core.errors import UserError
from ..core.identity import label
from ..core.lists import grouped
from .conditions import FACTORS, differences, display_value, published_conditions


@dataclass(frozen=True)
class SideBySide:
    """Numbers of one framework, model, precision and topology, in ascending order. `factors` are
    the conditions in which at least two of them are known to differ. `spread` is how much the
    highest number is above the lowest, as a fraction of the lowest."""

    framework: str
    model: str
    precision: str
    topology: str
    numbers: tuple[PublishedNumber, ...]
    factors: tuple[str, ...]
    spread: float


def side_by_side(
    numbers: Sequence[PublishedNumber] | None = None,
    *,
    model: str = "",
    framework: str = "",
    precision: str = "",
    every: bool = False,
) -> list[SideBySide]:
    """Publications that seem to contradict each other: groups whose numbers differ by more than the
    tolerance of a reproduction. With `every`, all groups, even of one number. `model`, `framework`
    and `precision` filter the numbers; an empty filter matches all. Raises UserError if no number
    matches."""
    tolerance = load_rule().tolerance
    wanted = {"model": model, "framework": framework, "precision": precision}
    fitting = (
        number
        for number in (load_published() if numbers is None else numbers)
        if all(value in ("", getattr(number, name)) for name, value in wanted.items())
    )
    chosen = grouped(
        fitting,
        lambda number: (
            *(number.framework, number.model, number.precision or "unknown precision"),
            *(number.topology.world_size, str(number.topology), number.unit),
        ),
    )
    if not chosen:
        asked = ", ".join(f"{name} {value}" for name, value in wanted.items() if value)
        raise UserError(
            f"no number is published for {asked}",
            hint="`list published` shows all published numbers",
        )
    groups = [
        _group(*key[:3], key[4], numbers)
        for key, numbers in sorted(chosen.items(), key=lambda item: item[0])
    ]
    return [group for group in groups if every or group.spread > tolerance]


def _group(
    framework: str, model: str, precision: str, topology: str, numbers: list[PublishedNumber]
) -> SideBySide:
    ordered = sorted(numbers, key=lambda number: (number.samples_per_second, number.date))
    low, high = ordered[0].samples_per_second, ordered[-1].samples_per_second
    factors = differing_conditions(ordered)
    return SideBySide(
        framework, model, precision, topology, tuple(ordered), factors, high / low - 1
    )


def differing_conditions(numbers: Sequence[PublishedNumber]) -> tuple[str, ...]:
    """The conditions in which at least two numbers of one topology are known to differ."""
    differing = {
        item.factor
        for n, first in enumerate(numbers)
        for second in numbers[n + 1 :]
        for item in differences(
            published_conditions(first),
            published_conditions(second),
            nodes=first.topology.nodes,
            between=True,
        )
    }
    return tuple(name for name in FACTORS if name in differing)


def named_values(number: PublishedNumber, factors: Sequence[str]) -> str:
    """The values of these factors for the number: `precision fp16, XLA unknown`. The reason why it
    cannot be right comes first."""
    known = published_conditions(number)
    reason = [f"contradictory: {number.contradiction}"] if number.contradiction else []
    values = (f"{label(name)} {display_value(known[name]) or 'unknown'}" for name in factors)
    return ", ".join([*reason, *values])
