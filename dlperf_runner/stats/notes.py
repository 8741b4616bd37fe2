"""Notes on the statistics of cases: their uncertainty, and what looks wrong.

Rows and cases in, sentences out. Every sentence names its cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ..core.frame import (
    LOG_MFU,
    LOG_TFLOPS,
    LOG_TFLOPS_RATIO,
    MFU,
    MODEL_TFLOPS,
    PEAK_TFLOPS,
    SAMPLES_PER_SECOND,
    Frame,
    plain_rows,
    records,
    throughput,
)
from ..core.identity import CASE, CaseKey, case_key, topology_text
from ..core.lists import shortened
from ..core.units import BANDWIDTH, per_second
from ..measure.energy import OF_WHOLE_RUN
from ..measure.estimators import MEAN_OF_LINES, WARMUP_LINES
from ..measure.steady_state import BATCHES
from .groups import by_group
from .intervals import FEW, median_rank, outliers

# If the estimators of one run differ by more than this, a note says so.
DISAGREEMENT = 0.01
# An outlier closer to the median than this gets no note, however close the other runs are.
NOTEWORTHY = 0.01
# Programs count the operations of a model a little differently: the vocabulary, norms, experts.
_OTHER_COUNT = 1.25
_OTHER_PEAK = 1.1
# Estimators of the same quantity; the program's final value is excluded, it includes the warm-up.
_COMPARED = ("mean_of_rates", "harmonic_mean_of_rates", "time_stamps")

Record = dict[str, Any]
Runs = Sequence[tuple[Record, list[Record]]]  # cases, each with its runs


def case_notes(frame: Frame, cases: Sequence[Record]) -> Iterator[str]:
    """Notes on the long frame and the cases that `summary` makes of it."""
    runs = _runs(frame)
    for name, of_table in by_group(cases).items():
        with_runs = [(case, runs[case_key(case)]) for case in of_table]
        about_runs = (
            *(_about_printed_flops, _about_outliers, _about_estimators),
            *(_about_steadiness, _about_warmup_lines, _about_energy),
        )
        impossible = _about_impossible(of_table)
        for texts in (
            *(_about_base(of_table), impossible),
            *(about(with_runs) for about in about_runs),
        ):
            yield from (f"{name}: {text}" for text in texts)
    yield from _about_intervals(cases)
    yield from _about_short_windows([run for of_case in runs.values() for run in of_case])


def _runs(frame: Frame) -> dict[CaseKey, list[Record]]:
    """The valid runs by case: {"repeat": 1, metric: value, ...}. A log that exists twice counts as
    two runs. "estimator" is the estimator of samples_per_second."""
    rates = throughput(frame)
    values = frame.loc[frame["valid"]].pivot(columns="metric", values="value")
    runs = rates[["repeat", "estimator"]].join(values)
    cases = plain_rows(rates[list(CASE)])
    by_case: dict[CaseKey, list[Record]] = {}
    for case, run in zip(cases, records(runs), strict=True):
        by_case.setdefault(case, []).append(run)
    return by_case


def _by_estimator(run: Record) -> dict[str, float]:
    """The estimates of a run that must agree."""
    names = {name: f"{SAMPLES_PER_SECOND}_{name}" for name in _COMPARED}
    names |= {run["estimator"]: SAMPLES_PER_SECOND}
    return {name: run[names[name]] for name in _COMPARED if run.get(names[name])}


def _about_base(cases: Sequence[Record]) -> Iterator[str]:
    base = cases[0]["base_case"]
    if cases[0]["unit"] == per_second(BANDWIDTH):
        return
    if base is None:
        why = "only one topology" if len({*map(topology_text, cases)}) == 1 else "no 1-device run"
        yield f"{why}, so there is no speed-up and no efficiency"
    elif base not in map(topology_text, cases):
        batch = round(cases[0]["batch_size_per_device"] * cases[0]["world_size"])
        yield (
            f"strong scaling: speed-up and efficiency are relative to {base} with the same global"
            f" batch size, {batch}"
        )
    elif cases[0]["base_world_size"] > 1:
        yield (
            f"no 1-device run: speed-up and efficiency are relative to {base},"
            f" {cases[0]['base_world_size']} devices"
        )
    few = [case for case in cases if case["base_case"] and case["repeats"] < FEW]
    several = [case for case in few if case["repeats"] > 1 and topology_text(case) != base]
    if several:
        yield (
            f"the speed-up intervals of {shortened([*map(topology_text, several)])} come from"
            f" fewer than {FEW} runs and cover less than 95 %"
        )


def _about_impossible(cases: Sequence[Record]) -> Iterator[str]:
    """The values above 100 %, and the likely reasons."""
    above = [
        f"{topology_text(case)} {100 * case[MFU]:.1f} %"
        for case in cases
        if case[MFU] is not None and case[MFU] > 1
    ]
    if above:
        yield (
            f"an MFU above 100 % is impossible: {shortened(above)}; check the model, the"
            " accelerator, the precision (FP8?), the number of devices and the sequence length"
        )
    superlinear = [
        f"{topology_text(case)} {100 * case['scaling_efficiency']:.1f} % of {case['base_case']}"
        for case in cases
        if _is_superlinear(case)
    ]
    if superlinear:
        yield (
            f"an efficiency above 100 % is unlikely: {shortened(superlinear)}; check that both ran"
            " on the same machines with the same settings, and that the smaller run was not"
            " disturbed or short of memory"
        )


def _is_superlinear(case: Record) -> bool:
    """True if the efficiency's interval is above 100 %; without one, if the efficiency clearly
    is."""
    efficiency, low = case["scaling_efficiency"], case["scaling_efficiency_ci_low"]
    if low is not None:
        return bool(low > 1 and round(efficiency, 3) > 1)
    return efficiency is not None and efficiency > 1 + NOTEWORTHY


def _about_printed_flops(cases: Runs) -> Iterator[str]:
    """Contradictions between what the program computed and what follows from its rate."""
    others: dict[str, str] = {}  # by topology; the runs of a case hardly differ in this
    peaks: dict[str, str] = {}
    for case, runs in cases:
        topology = topology_text(case)
        for run in runs:
            ratio, printed, peak = map(run.get, (LOG_TFLOPS_RATIO, LOG_TFLOPS, PEAK_TFLOPS))
            if ratio is not None and not 1 / _OTHER_COUNT < ratio < _OTHER_COUNT:
                others[topology] = f"{topology} {printed:.4g}, not {run[MODEL_TFLOPS]:.4g}"
            share = run.get(LOG_MFU)
            if not (peak and share):
                continue
            assumed = (printed or run[MODEL_TFLOPS]) / share
            most = _OTHER_PEAK if printed else _OTHER_COUNT
            if not 1 / most < assumed / peak < most:
                peaks[topology] = f"{topology} {assumed:.4g}, not {peak:.4g}"
    if others:
        yield (
            "the TFLOP/s per device in the log contradict those of the model at the same rate:"
            f" {shortened([*others.values()])}; check the model, the sequence length and the number"
            " of devices"
        )
    if peaks:
        yield (
            "the MFU in the log is of another peak in TFLOP/s than that of the accelerator:"
            f" {shortened([*peaks.values()])}; check the accelerator and the precision"
        )


def _about_outliers(cases: Runs) -> Iterator[str]:
    far = [
        f"{topology_text(case)} r{run['repeat']} ({run[SAMPLES_PER_SECOND]:g})"
        for case, runs in cases
        for run, flagged in zip(runs, outliers([r[SAMPLES_PER_SECOND] for r in runs]), strict=True)
        if flagged and (middle := case[f"{SAMPLES_PER_SECOND}_median"]) > 0
        if abs(run[SAMPLES_PER_SECOND] / middle - 1) > NOTEWORTHY
    ]
    if far:
        yield f"outliers among the repeats, included in the statistics: {shortened(far)}"


def _about_steadiness(cases: Runs) -> Iterator[str]:
    early: list[str] = []
    drifting: list[str] = []
    for case, runs in cases:
        for run in runs:
            name = f"{topology_text(case)} r{run['repeat']}"
            if run.get("window_began_early"):
                since = run.get("steady_from_step")
                steady = "" if since is None else f", steady from step {since:.0f} on"
                early.append(f"{name} ({run['window_head_shift']:+.1f} %{steady})")
            elif run.get("window_drifts"):
                drifting.append(f"{name} ({run['window_drift']:+.1f} %)")
    if early:
        yield (
            "the measured window began too early: its first tenth differs from its second half in"
            f" {shortened(early)}"
        )
    if drifting:
        yield f"the rate drifts within the measured window: {shortened(drifting)}"


def _about_estimators(cases: Runs) -> Iterator[str]:
    number = sum(len(runs) for _, runs in cases)
    unlike = [
        (apart, case, run)
        for case, runs in cases
        for run in runs
        if (values := _by_estimator(run).values())
        and (apart := max(values) / min(values) - 1) > DISAGREEMENT
    ]
    if unlike:
        apart, case, run = max(unlike, key=lambda entry: entry[0])
        shown = ", ".join(f"{name} {value:g}" for name, value in _by_estimator(run).items())
        yield (
            f"the estimators disagree by more than {100 * DISAGREEMENT:.0f} % in {len(unlike)} of"
            f" {number} runs; the largest difference is {100 * apart:.1f} %, in"
            f" {topology_text(case)} r{run['repeat']}: {shown}"
        )


def _about_warmup_lines(cases: Runs) -> Iterator[str]:
    early = [
        f"{topology_text(case)} {most:g}"
        for case, runs in cases
        if (most := max(run.get(WARMUP_LINES) or 0 for run in runs))
    ]
    if early:
        yield (
            f"{MEAN_OF_LINES}, the published estimator, counts lines that begin in the warm-up;"
            f" lines per run: {shortened(early)}"
        )


def _about_energy(cases: Runs) -> Iterator[str]:
    whole = [
        topology_text(case)
        for case, _ in cases
        if str(case.get("energy_estimator")).endswith(OF_WHOLE_RUN)
    ]
    if whole:
        yield (
            "energy and power are of whole runs, start and warm-up included, because no two samples"
            f" lie between times of measured steps: {shortened(whole)}"
        )


def _about_intervals(cases: Sequence[Record]) -> Iterator[str]:
    """The interval for each number of runs, and its coverage."""
    for repeats in sorted({case["repeats"] for case in cases} - {1}):
        rank, coverage = median_rank(repeats)
        # 93.75, and 50 instead of 50.00
        share = f"{100 * coverage:.2f}".rstrip("0").rstrip(".")
        if rank == 1:
            yield f"the interval of {repeats} runs is their range and covers {share} %"
        else:
            yield (
                f"the interval of {repeats} runs leaves out the {rank - 1} lowest and the"
                f" {rank - 1} highest and covers {share} %"
            )


def _about_short_windows(runs: Sequence[Record]) -> Iterator[str]:
    short = sum(run.get("window_drift") is None for run in runs)
    if short:
        yield (
            f"whether the rate was steady was not judged in {short} of {len(runs)} runs: fewer than"
            f" {BATCHES} rates are in the measured window"
        )
