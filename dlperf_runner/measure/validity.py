"""Judge whether a successful run is a valid measurement, by rules that were fixed before the run
and the evidence in the run's directory.

Only the telemetry of the run's own devices counts. A rule without data is not applied, and a note
says so. `measure` finds logs with fewer steps than planned.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from ..catalog.validity import ValidityRules

# Bits of clocks_throttle_reasons.active (nvml.h: nvmlClocksThrottleReason...).
THROTTLE_BITS = {
    "sw_power_cap": 0x4,
    "hw_slowdown": 0x8,
    "sync_boost": 0x10,
    "sw_thermal_slowdown": 0x20,
    "hw_thermal_slowdown": 0x40,
    "hw_power_brake_slowdown": 0x80,
}
# Names of the rules, for the note on rules without data.
THROTTLING, CLOCKS, ECC, XID = "throttling", "clocks", "ECC errors", "Xid errors"
PROCESSES, INTERFACE = "other processes", "NCCL interface"
_LARGEST_LOSS = 1e6  # no program of the catalogue begins with a thousandth of this
_CONSTANT = 3  # printed losses, or lines without one; fewer may be so by chance
# A skipped step lacks the optimizer's part. Loss scaling skips a few steps of a sound training.
_MOST_SKIPPED = 0.1
_FEWEST_LOSSES = 15  # the median of a fifth of them does not depend on a single step
_BEFORE_S = 10  # seconds; ssh may need as long to reach a node after the run has begun
_ORDINARY_USERS = range(1000, 65534)
# NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0> [1]eth1:10.1.0.1<0>
# NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE ; OOB eth0:10.0.0.1<0>
_USING = re.compile(r"NCCL INFO NET/(Socket|IB)\S* ?: Using ([^;]*)")
_NAME = re.compile(r"\[\d+\]([^:\s]+):")


Sample = Mapping[str, float]  # without the numbers that are missing
# The samples of a run's devices, by host and device index.
Samples = Mapping[tuple[str, int], Sequence[Sample]]


@dataclass(frozen=True)
class OtherProcess:
    """A process outside the run that computed on one of its nodes; `cores` is an average."""

    host: str
    uid: int
    command: str
    cores: float


@dataclass(frozen=True)
class XidError:
    """An Xid error in a node's kernel log."""

    host: str
    xid: float | None
    message: str


@dataclass(frozen=True)
class HealthReport:
    """A report of DCGM about a device, or of another `entity` of a host: Warning or Failure."""

    host: str
    entity: str
    system: str
    health: str
    message: str

    def __str__(self) -> str:
        return f"{self.host} {self.entity}: {self.system}: {self.message} (DCGM: {self.health})"


@dataclass(frozen=True)
class GpuProcess:
    """A process on one of the run's devices. The ages are those of the process and of the run."""

    host: str
    device: int
    pid: float
    uid: float
    run_uid: float
    age_s: float
    run_age_s: float


@dataclass(frozen=True)
class Evidence:
    """The state of the nodes during a run, from the run's directory. `xids` is None if no kernel
    log was read, `gpu_processes` if no process was seen on a device, not even the run's own.
    `unsampled`: hosts whose telemetry ended before the run, and the second of the run in which it
    did. `network`: lines in which NCCL logs its network choice. `nccl`: its variables in the plan.
    """

    on_gpu: bool = False
    nodes: int = 1
    other_processes: Sequence[OtherProcess] = ()
    unsampled: Sequence[tuple[str, float]] = ()
    samples: Samples = field(default_factory=dict)
    of_nodes: Mapping[str, Sequence[Sample]] = field(default_factory=dict)
    xids: Sequence[XidError] | None = None
    health: Sequence[HealthReport] = ()
    gpu_processes: Sequence[GpuProcess] | None = None
    network: Iterable[str] = ()
    nccl: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Verdict:
    """The reasons why a run is invalid, if any, the rules that had no data, and what else was
    reported of the nodes."""

    reasons: tuple[str, ...] = ()
    not_judged: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


VALID = Verdict()


def judge(
    evidence: Evidence,
    steps: Sequence[int],
    losses: Sequence[float | None],
    rules: ValidityRules,
    skipped: tuple[int, int] = (0, 0),
    zero_loss: str | None = None,
) -> Verdict:
    """The verdict on a run whose log passed validation; `losses` has one entry per step. `skipped`:
    the measured steps that changed no weight, and the number of measured steps. `zero_loss`: what a
    loss of 0 at every step shows, if that is no fault."""
    about_skipped = "the program skipped {} of the {} measured steps".format(*skipped)
    is_zero = zero_loss and {*losses} == {0.0}
    too_many = skipped[0] > _MOST_SKIPPED * skipped[1]
    reasons = [
        *(() if is_zero else _about_losses(steps, losses, rules)),
        *([about_skipped] if too_many else ()),
        *_about_cores(evidence.other_processes, rules),
        *_about_processors(evidence.of_nodes, rules),
    ]
    remarks = [
        f"{host}: no telemetry" + (f" after {seconds:.0f} s of the run" if seconds else "")
        for host, seconds in evidence.unsampled
    ]
    if is_zero:
        remarks.append(f"the loss is 0 at every step: {zero_loss}")
    if skipped[0] and not too_many:
        remarks.append(about_skipped)
    if not evidence.on_gpu:
        return Verdict(tuple(reasons), remarks=tuple(remarks))
    judged = {
        THROTTLING: _about_throttling(evidence.samples, rules),
        CLOCKS: _about_clocks(evidence.samples, rules),
        ECC: _about_ecc(evidence.samples, rules),
        XID: _about_xids(evidence.xids, rules),
        PROCESSES: _about_processes(evidence.gpu_processes, rules),
        INTERFACE: _about_interface(evidence, rules),
    }
    reasons += [reason for why in judged.values() for reason in why or ()]
    reasons += [str(report) for report in evidence.health if report.health in rules.dcgm_health]
    remarks += [str(r) for r in evidence.health if r.health not in rules.dcgm_health]
    not_judged = (what for what, why in judged.items() if why is None)
    return Verdict(tuple(reasons), tuple(not_judged), tuple(remarks))


# ---- the loss


def _about_losses(
    steps: Sequence[int], losses: Sequence[float | None], rules: ValidityRules
) -> Iterator[str]:
    if losses.count(None) == len(losses):
        return
    printed = [(step, loss) for step, loss in zip(steps, losses, strict=True) if loss is not None]
    for step, loss in printed:
        if not math.isfinite(loss):
            yield f"the loss is not finite at step {step}"
            return
    # Some programs print no loss that is not finite.
    places = [index for index, loss in enumerate(losses) if loss is not None]
    silent = len(losses) - 1 - places[-1]
    gaps = [b - a for a, b in pairwise(places)]
    if gaps and silent >= max(_CONSTANT, *gaps):
        yield f"no loss is printed after step {printed[-1][0]}"
    values = [loss for _, loss in printed]
    low, high = min(values), max(values)
    if low >= _LARGEST_LOSS or high <= -_LARGEST_LOSS:
        yield f"the loss is never below {min(abs(low), abs(high)):g}"
    elif low == high and (len(values) >= _CONSTANT or low == 0):
        yield f"the loss is {low:g} at every step"
    if len(printed) < _FEWEST_LOSSES:
        return
    size = len(printed) // 5
    first, last = (median(loss for _, loss in part) for part in (printed[:size], printed[-size:]))
    if 0 < first < last / (1 + rules.most_loss_rise):
        yield f"the loss rises from {first:g} to {last:g}"


# ---- other processes on the nodes


def _about_cores(processes: Sequence[OtherProcess], rules: ValidityRules) -> Iterator[str]:
    for host in dict.fromkeys(process.host for process in processes):
        others = [process for process in processes if process.host == host]
        cores = sum(process.cores for process in others)
        if cores > rules.most_cores_beside:
            most = max(others, key=lambda process: process.cores)
            yield f"{host}: {most.command} of user {most.uid} was also running ({cores:.2f} cores)"


def _about_processors(nodes: Mapping[str, Sequence[Sample]], rules: ValidityRules) -> Iterator[str]:
    """The time in which heat slowed a CPU package down, where the kernel counts it."""
    for host, rows in nodes.items():
        held = [row for row in rows if "cpu_throttled_s" in row and "unix_time" in row]
        if not held or (seconds := held[-1]["unix_time"] - held[0]["unix_time"]) <= 0:
            continue
        share = (held[-1]["cpu_throttled_s"] - held[0]["cpu_throttled_s"]) / seconds
        if share > rules.most_throttled:
            yield f"{host}: the CPU was throttled by heat for {100 * share:.0f} % of the run"


# ---- the devices


def of_busy(samples: Samples, rules: ValidityRules, column: str) -> dict[str, list[float]]:
    """A column of the samples in which a device was busy, by device. Devices without such samples
    are left out."""
    columns: dict[str, list[float]] = {}
    for (host, device), rows in samples.items():
        values = [
            value
            for row in rows
            if (row.get("utilization_percent") or 0) >= rules.busy_percent
            and (value := row.get(column)) is not None
        ]
        if values:
            columns[f"{host} GPU {device}"] = values
    return columns


def _about_throttling(samples: Samples, rules: ValidityRules) -> list[str] | None:
    busy = of_busy(samples, rules, "throttle_reasons")
    bits = {name: THROTTLE_BITS[name] for name in rules.throttle_reasons if name in THROTTLE_BITS}
    reasons = []
    for device, values in busy.items():
        held = {n: sum(bool(int(v) & bit) for v in values) for n, bit in bits.items()}
        slowed = sum(any(int(v) & bit for bit in bits.values()) for v in values)
        if slowed > rules.most_throttled * len(values):
            names = ", ".join(name for name, count in held.items() if count)
            reasons.append(
                f"{device} was throttled in {100 * slowed / len(values):.0f} % of its busy samples"
                f" ({names})"
            )
    return reasons if busy else None


def _about_clocks(samples: Samples, rules: ValidityRules) -> list[str] | None:
    clocks, most = (of_busy(samples, rules, c) for c in ("sm_clock_mhz", "max_sm_clock_mhz"))
    reasons = []
    for device in clocks.keys() & most.keys():
        clock, full = median(clocks[device]), max(most[device])
        if clock < rules.least_clock * full:
            reasons.append(
                f"{device} ran at {clock:.0f} of {full:.0f} MHz, below the minimum of"
                f" {100 * rules.least_clock:.0f} %"
            )
    return sorted(reasons) if clocks.keys() & most.keys() else None


def _about_ecc(samples: Samples, rules: ValidityRules) -> list[str] | None:
    reasons, has_data = [], False
    for (host, device), rows in samples.items():
        counts = [count for row in rows if (count := row.get("ecc_uncorrected")) is not None]
        has_data = has_data or bool(counts)
        if counts and (new := max(counts) - counts[0]) > rules.most_ecc_uncorrected:
            reasons.append(f"{host} GPU {device} had {new:.0f} uncorrected ECC errors")
    return reasons if has_data else None


def _about_xids(xids: Sequence[XidError] | None, rules: ValidityRules) -> list[str] | None:
    if xids is None:
        return None
    return [f"{error.host}: {error.message}" for error in xids if error.xid in rules.xids]


def _about_processes(
    processes: Sequence[GpuProcess] | None, rules: ValidityRules
) -> list[str] | None:
    if processes is None:
        return None
    foreign: list[str] = []
    for process in processes:
        # Compare ages, because the clocks of the nodes differ.
        older = process.age_s > process.run_age_s + _BEFORE_S
        if older or (process.uid != process.run_uid and process.uid in _ORDINARY_USERS):
            why = "started before the run" if older else f"belongs to user {process.uid:.0f}"
            where = f"{process.host} GPU {process.device}"
            foreign.append(f"{where}: process {process.pid:.0f} {why}")
    return foreign if len(foreign) > rules.most_foreign_processes else []


# ---- NCCL's interface


def used_network(lines: Iterable[str]) -> str | None:
    """The transport and the interfaces that NCCL logs first: `IB mlx5_0, mlx5_1`."""
    matches = (match for line in lines if (match := _USING.search(line)))
    return next((f"{match[1]} {', '.join(_NAME.findall(match[2]))}" for match in matches), None)


def _about_interface(evidence: Evidence, rules: ValidityRules) -> list[str] | None:
    """Judged only if the run has several nodes; None if the log does not show NCCL's choice."""
    if evidence.nodes == 1:
        return []
    matches = [match for line in evidence.network if (match := _USING.search(line))]
    choices = ((match[1], _NAME.findall(match[2])) for match in matches)
    wrong = (_wrong_names(kind, names, evidence.nccl, rules) for kind, names in choices)
    return [*filter(None, wrong)][:1] if matches else None


def _wrong_names(
    kind: str, names: Sequence[str], environment: Mapping[str, str], rules: ValidityRules
) -> str | None:
    shown = ", ".join(names)
    if kind == "IB":
        asked = environment.get("NCCL_IB_HCA", "")
    else:
        wants_cards = environment.get("NCCL_IB_HCA") or environment.get("NCCL_IB_DISABLE") == "0"
        if wants_cards and environment.get("NCCL_IB_DISABLE") != "1":
            return f"NCCL used sockets over {shown}, but the plan selects InfiniBand"
        asked = environment.get("NCCL_SOCKET_IFNAME", "")
        if any(name.startswith(rules.wrong_interfaces) for name in names):
            return f"NCCL used {shown} between nodes"
    if not all(is_selected(name, asked) for name in names):
        return f"NCCL used {shown}, but the plan selects {asked}"
    return None


def is_selected(name: str, asked: str) -> bool:
    """True if the value `asked` of NCCL_SOCKET_IFNAME or NCCL_IB_HCA selects the name. The value is
    a list of prefixes, with a leading `=` of whole names, with a leading `^` of excluded names. An
    empty value selects every name."""
    if not asked:
        return True
    without = asked.startswith("^")
    asked = asked.removeprefix("^")
    whole = asked.startswith("=")
    entries = [part.partition(":")[0] for part in asked.removeprefix("=").split(",") if part]
    is_listed = any(name == entry if whole else name.startswith(entry) for entry in entries)
    return is_listed != without
