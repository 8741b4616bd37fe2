"""The energy of a run from its telemetry: of its GPUs, or of the processors of its nodes.

Counters of energy are exact; where a device has none, its samples of power are integrated.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from ..catalog.accelerators import Peak
from ..catalog.workload import Attention, Transformer
from ..core.frame import ENERGY, LOG_TFLOPS_RATIO, MFU, MODEL_TFLOPS, PEAK_TFLOPS, POWER
from ..core.units import Unit, per_one
from .estimators import Measurement
from .validity import Sample

FORMULAS = {
    Attention.FULL: "6N+12LdT (full attention)",
    Attention.CAUSAL: "6N+6LdT (causal attention)",
}


def flops_per_token(transformer: Transformer, sequence_length: int) -> int:
    """The FLOPs of training on one token: forward, and twice as many backward."""
    per_pair = 12 if transformer.attention is Attention.FULL else 6
    return _per_token(transformer, sequence_length, per_pair)


def _per_token(transformer: Transformer, sequence_length: int, per_pair: int) -> int:
    attention = per_pair * transformer.layers * transformer.width * sequence_length
    return 6 * transformer.parameters + attention


def model_flops(
    tokens_per_second: float,
    transformer: Transformer,
    sequence_length: int,
    peak: Peak | None,
    printed: float | None = None,
) -> Iterator[Measurement]:
    """The model FLOPs of one device that trains on so many tokens/s, and the share of its peak. The
    estimator is the formula. `printed`: the TFLOP/s that the program computed, by a convention of
    its own; if they are between those of the two conventions, their ratio to the model's is 1."""
    formula = FORMULAS[transformer.attention]
    tflops = tokens_per_second * flops_per_token(transformer, sequence_length) / 1e12
    yield Measurement(MODEL_TFLOPS, tflops, "TFLOP/s", formula)
    if peak is not None:
        yield Measurement(MFU, tflops / peak.tflops, "1", formula)
        yield Measurement(PEAK_TFLOPS, peak.tflops, "TFLOP/s", peak.source)
    if printed is not None:
        low, high = (
            tokens_per_second * _per_token(transformer, sequence_length, per_pair) / 1e12
            for per_pair in (6, 12)
        )
        yield Measurement(LOG_TFLOPS_RATIO, printed / min(max(printed, low), high), "1", "both")


OF_WHOLE_RUN = "_of_whole_run"  # ends such estimators
# The first and the last of these samples must be within the window.
_FEWEST = 2

# Seconds since the epoch, and joules since any moment.
Joules = Sequence[tuple[float, float]]


def energy(
    parts: Sequence[Sequence[Sample]],
    what: str,
    window: tuple[float, float] | None,
    rate: float,
    processed: int | None,
    unit: Unit,
) -> Iterator[Measurement]:
    """The mean power in W and the energy of a sample or token in J; nothing if the energy of one
    of the `parts` is unknown. `what` they are begins the estimator.

    `window`: the times of the first and the last measured step, if the log has them. Without a
    window that has at least two samples, the whole run counts: its energy is divided by the number
    of samples `processed` in it, the warm-up included. `rate` is per second.
    """
    series = [joules for part in parts if (joules := _joules(part)) is not None]
    if not series or len(series) < len(parts):
        return
    estimator = f"{what}_{'counter' if all(map(_is_counted, parts)) else 'power'}"
    if window is not None and all(_within(joules, window) >= _FEWEST for joules in series):
        watts = sum(_at(j, window[1]) - _at(j, window[0]) for j in series) / (window[1] - window[0])
        each = watts / rate if rate > 0 else None
    else:
        estimator += OF_WHOLE_RUN
        watts = sum((j[-1][1] - j[0][1]) / (j[-1][0] - j[0][0]) for j in series)
        total = sum(j[-1][1] - j[0][1] for j in series)
        each = total / processed if processed else None
    if watts <= 0:
        return
    yield Measurement(POWER, watts, "W", estimator)
    if each is not None:
        yield Measurement(ENERGY, each, f"J/{per_one(unit)}", estimator)


def _joules(rows: Sequence[Sample]) -> Joules | None:
    """The energy over time, by the counter or else from the power; None if there is neither."""
    if _is_counted(rows):
        return _column(rows, "energy_j")
    watts = _column(rows, "power_w")
    if len(watts) < _FEWEST or watts[0][0] >= watts[-1][0]:
        return None
    joules, total = [(watts[0][0], 0.0)], 0.0
    for (before, low), (now, high) in pairwise(watts):
        total += (now - before) * (low + high) / 2
        joules.append((now, total))
    return joules


def _is_counted(rows: Sequence[Sample]) -> bool:
    """True if each sample has the counter, which was never set back."""
    counted = _column(rows, "energy_j")
    pairs = pairwise(counted)
    steady = all(before[0] < now[0] and before[1] <= now[1] for before, now in pairs)
    return len(counted) == len(rows) >= _FEWEST and steady


def _column(rows: Sequence[Sample], name: str) -> list[tuple[float, float]]:
    pairs = ((row.get("unix_time"), row.get(name)) for row in rows)
    return sorted((time, value) for time, value in pairs if time is not None and value is not None)


def _within(joules: Joules, window: tuple[float, float]) -> int:
    """The number of samples in the window; 0 if samples do not cover it."""
    times = [time for time, _ in joules]
    if times[0] > window[0] or times[-1] < window[1]:
        return 0
    return bisect_right(times, window[1]) - bisect_left(times, window[0])


def _at(joules: Joules, moment: float) -> float:
    """The energy at a moment, interpolated between the samples before and after it."""
    after = bisect_left(joules, (moment,))
    (t0, j0), (t1, j1) = joules[after - 1], joules[after]
    return j0 + (j1 - j0) * (moment - t0) / (t1 - t0)
