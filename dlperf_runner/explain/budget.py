"""Budgets: the difference to a published number, its parts, and the losses that may explain it.

All is computed with logarithms, in which parts add up. A publication does not state its own losses,
so that a loss of the campaign explains between nothing and all of itself: `at most`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from ..core.frame import ALONE_LONGEST, ALONE_MEAN, INPUT_SHARE, STEP_TIME
from ..stats.intervals import LEVEL
from ..stats.ratios import LogRatio, finite_exp, total, without
from ..stats.sequential import mean_of_logs
from ..stats.summary import step_parts

MEASURED, AT_MOST, NOT_MEASURED = "measured", "at most", "not measured"
DIFFERENCE, SMALLEST, SCALING = "difference", "smallest topology", "scaling"
INPUT, WAITING = "input", "waiting for the slowest rank"
BUS, COMMUNICATION = "bus bandwidth", "exposed communication"
CLOCKS, UNEXPLAINED = "clocks", "unexplained"
MATRIX, MEMORY = "matrix products", "memory bandwidth"
OF_STEPS = (INPUT, WAITING, BUS, COMMUNICATION)
OF_SCALING = OF_STEPS[1:]
_LEAST_LEFT = 1e-3  # of a step, where a log says that all of it was lost
_TOO_FEW = "fewer than 3 runs, so no interval"
_NO_PARTS = "the logs have no steps without communication"
# What a loss is, and why it is not known.
_ABOUT = {
    INPUT: ("in this time, the program waits for data", "the logs do not state it"),
    WAITING: ("in this part of a step, the mean rank waits", _NO_PARTS),
    BUS: ("", "no --bandwidth given"),
    COMMUNICATION: ("no computation hides this part of a step", _NO_PARTS),
    CLOCKS: ("", "not every run has telemetry with the clocks of its GPUs"),
    **dict.fromkeys((MATRIX, MEMORY), ("", "")),
}


@dataclass(frozen=True)
class BudgetItem:
    """`relative`: the difference as a fraction of the published speed, with its interval, and its
    logarithm; None if it is not known. Of a loss that may explain the difference, all of it."""

    name: str
    kind: str
    detail: str
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    log_ratio: float | None = None


@dataclass(frozen=True)
class Observations:
    """The measurements of a case. `whole` and `base`: its speed beside the published one, and that
    of a smaller topology, if the campaign and the publication have one. `runs`: the metrics of each
    run. `clocks`: of each run, the mean of its devices and the lowest, as fractions of the highest
    clock. `bus`: the bus bandwidth as a fraction of the published one. `devices`: rates of a device
    as fractions of the data sheet's, by item. `about`: details by item."""

    world_size: int
    whole: LogRatio
    base: LogRatio | None = None
    runs: Sequence[Mapping[str, float]] = ()
    clocks: Sequence[tuple[float, float]] = ()
    bus: float | None = None
    devices: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Next:
    """The measurement that tells most, and its command."""

    item: str
    reason: str
    command: str


def items_of(evidence: Observations) -> list[BudgetItem]:
    """The difference, its two parts, the losses that may explain it, and the rest."""
    about, whole, base = evidence.about, evidence.whole, evidence.base
    parts = {DIFFERENCE: whole} | ({SMALLEST: base} if base else {})
    scaling = {SCALING: base and without(whole, base)} if evidence.world_size > 1 else {}
    items = [_item(n, MEASURED, about.get(n, ""), r) for n, r in {**parts, **scaling}.items()]
    factors = losses(evidence).items()
    lost = {name: mean_of_logs([*map(math.log, each)], least=2) for name, each in factors}
    for name, (meaning, why_not) in _ABOUT.items():
        has_no_sheet = name in (MATRIX, MEMORY) and name not in about
        if not has_no_sheet and not (name in OF_SCALING and evidence.world_size == 1):
            loss = lost.get(name)
            detail = about.get(name) or (meaning if loss else why_not)
            items.append(_item(name, AT_MOST, detail, loss))
    # Between what is left if no loss explains anything, and if each explains all that it can.
    low, _ = whole.interval(LEVEL).ends
    _, high = without(whole, total([*lost.values()])).interval(LEVEL).ends
    kind, detail = MEASURED, "no loss is measured"
    if low is None:
        kind, detail = NOT_MEASURED, _TOO_FEW
    elif lost and high is not None:
        rest = "may" if high >= 0 else "cannot"
        detail = f"the losses above {rest} explain all of what is missing"
    return [*items, BudgetItem(UNEXPLAINED, kind, detail, None, low, high)]


def losses(evidence: Observations) -> dict[str, list[float]]:
    """The fraction that each loss leaves of each run's speed after the losses before it; only of
    losses that all runs state."""
    shares = [_shares(run, evidence) for run in evidence.runs]
    factors: dict[str, list[float]] = {}
    lost = [0.0] * len(shares)
    for name in OF_STEPS:
        if shares and all(name in of_run for of_run in shares):
            now = [before + of_run[name] for before, of_run in zip(lost, shares, strict=True)]
            left = [[max(_LEAST_LEFT, 1 - share) for share in each] for each in (now, lost)]
            factors[name], lost = [b / a for b, a in zip(*left, strict=True)], now
    if evidence.clocks and len(evidence.clocks) == len(evidence.runs):
        # Waiting for a slow device is a loss of its own, if it was measured.
        of_mean = WAITING in factors or evidence.world_size == 1
        factors[CLOCKS] = [mean if of_mean else lowest for mean, lowest in evidence.clocks]
    for name, rate in evidence.devices.items():
        # Lower clocks are counted already; they slow matrix products down, too.
        clocks = factors.get(CLOCKS) if name == MATRIX else None
        factors[name] = [min(1.0, rate / clock) for clock in clocks or [1.0] * len(evidence.runs)]
    return factors


def _shares(run: Mapping[str, float], evidence: Observations) -> dict[str, float]:
    """The shares of a run's step that were lost."""
    shares = {INPUT: min(1.0, run[INPUT_SHARE])} if INPUT_SHARE in run else {}
    case = {"step_time_median_s": run.get(f"{STEP_TIME}_median"), "slowest_rank": None}
    case |= {f"{name}_s": run.get(name) for name in (ALONE_MEAN, ALONE_LONGEST)}
    parts = step_parts({**case, "world_size": evidence.world_size})
    if parts is None or evidence.world_size == 1 or parts.step <= 0:
        return shares
    shares[WAITING] = parts.waiting / parts.step
    # Steps without communication do not wait for data either, so what is left of a step holds both.
    exposed = max(0.0, parts.communication / parts.step - shares.get(INPUT, 0.0))
    slow_bus = 0.0 if evidence.bus is None else exposed * (1 - min(1.0, evidence.bus))
    if evidence.bus is not None:
        shares[BUS] = slow_bus
    return {**shares, COMMUNICATION: exposed - slow_bus}


def _item(name: str, kind: str, detail: str, ratio: LogRatio | None) -> BudgetItem:
    if ratio is None:
        return BudgetItem(name, NOT_MEASURED, detail)
    relative, ends = finite_exp(ratio.value) - 1, ratio.interval(LEVEL).ends
    return BudgetItem(name, kind, detail, relative, *ends, ratio.value)


def what_next(
    items: Sequence[BudgetItem], commands: Mapping[str, str], tolerance: float
) -> Next | None:
    """The largest loss that is not measured, or else the widest interval; None if the case is not
    slower than published by more than the tolerance. `commands`: those that measure an item; that
    of the difference adds runs."""
    by_name = {item.name: item for item in items}
    whole = by_name[DIFFERENCE]
    if whole.low is None:
        return Next(DIFFERENCE, _TOO_FEW, commands[DIFFERENCE])
    if whole.low >= -tolerance:
        return None
    unknown = [i.name for i in items if i.kind == NOT_MEASURED and i.name in commands]
    size, name = max(
        ((_largest_loss(n, by_name), n) for n in unknown), key=itemgetter(0), default=(0.0, "")
    )
    if size > 0:
        return Next(name, f"not measured, may be up to {size:.1%}", commands[name])
    widths = (((i.high or 0.0) - (i.low or 0.0), i.name) for i in items[:-1])
    width, name = max(widths, key=itemgetter(0))
    reason = f"the widest interval, {width:.1%}; more runs narrow it"
    return Next(name, reason, commands[DIFFERENCE])


def _largest_loss(name: str, items: Mapping[str, BudgetItem]) -> float:
    """The loss of the part to which an item belongs, as a positive fraction."""
    part = items.get(SCALING if name in OF_SCALING else SMALLEST)
    if part is None or part.relative is None or name == INPUT:
        part = items[DIFFERENCE]
    sizes = [part.relative]
    if name == BUS and items[COMMUNICATION].relative is not None:
        sizes.append(items[COMMUNICATION].relative)
    return min(max(0.0, -(size or 0.0)) for size in sizes)
