"""Where the time of a step goes: a table and a picture per table of cases, and a paragraph per case
on several nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ..core.frame import ALL_REDUCE_BUS, INPUT_SHARE, SAMPLES_PER_SECOND
from ..core.identity import topology_text
from ..stats.step_parts import StepParts, nccl_share, step_parts
from .case_tables import Case, group_title
from .charts import Chart, ChartPoint, Line
from .labels import Labels
from .numbers import seconds
from .tables import Cell, Column, Table, cell, without_empty
from .units import is_bandwidth

_PARTS = ("computation", "waiting", "communication")


def has_parts(group: Sequence[Case]) -> bool:
    """Whether the logs of a case on several devices say where the time goes."""
    return any(case["world_size"] > 1 and step_parts(case) for case in group)


def _is_explained(group: Sequence[Case]) -> bool:
    told = ("nccl_network", ALL_REDUCE_BUS, INPUT_SHARE)
    on_several = [case for case in group if case["world_size"] > 1]
    is_told = any(nccl_share(case) or any(map(case.get, told)) for case in on_several)
    return has_parts(group) or is_told


def _measured_bandwidth(groups: Sequence[Sequence[Case]]) -> dict[str, float]:
    """The highest bus bandwidth of nccl-allreduce in the campaign, by topology."""
    found: dict[str, float] = {}
    for case in (case for group in groups for case in group):
        rate = case[f"{SAMPLES_PER_SECOND}_median"]
        if is_bandwidth(case) and "all-reduce" in case["model"] and rate:
            topology = topology_text(case)
            found[topology] = max(rate, found.get(topology, 0.0))
    return found


def time_tables(groups: Sequence[Sequence[Case]], t: Labels) -> Iterator[Table]:
    """A table per group whose logs say something of it."""
    bandwidth = _measured_bandwidth(groups)
    for number, group in enumerate(filter(_is_explained, groups), start=1):
        found = [(case, step_parts(case)) for case in group]
        columns = (
            Column("node_num", True, "0"),
            Column("gpu_num", True, "0"),
            *(Column(t(f"part_{name}"), True, "0.000") for name in ("step", *_PARTS)),
            Column(t("part_share"), True, "0.0%", hint=t("part_share_hint")),
            Column(t("part_slowest"), True, "0"),
            Column(t("part_nccl"), True, "0.0%", hint=t("part_nccl_hint")),
            Column(t("part_input"), True, "0.0%", hint=t("part_input_hint")),
            Column(t("part_all_reduce"), True, "0.00", hint=t("part_all_reduce_hint")),
            Column(t("part_of_measured"), True, "0.0%"),
            Column(t("part_network")),
        )
        columns_with, rows = without_empty(columns, [_row(*each, bandwidth) for each in found], 2)
        notes = tuple(
            _paragraph(case, parts, bandwidth, t) for case, parts in found if case["nodes"] > 1
        )
        title = group_title(group[0], t)
        yield Table(f"time-{number}", title, columns_with, rows, tuple(filter(None, notes)))


def _share(case: Case, bandwidth: Mapping[str, float]) -> float | None:
    """What the all-reduce of the gradients reached of the campaign's nccl-allreduce."""
    own, measured = case.get(ALL_REDUCE_BUS), bandwidth.get(topology_text(case))
    return own / measured if own and measured else None


def _row(case: Case, parts: StepParts | None, bandwidth: Mapping[str, float]) -> tuple[Cell, ...]:
    times: tuple[Cell, ...] = (cell(None),) * (len(_PARTS) + 3)
    if parts is not None:
        times = (
            *(cell(getattr(parts, name), seconds) for name in ("step", *_PARTS)),
            cell(parts.communication / parts.step, ".1%"),
            cell(parts.slowest_rank),
        )
    return (
        *(cell(case["nodes"]), cell(case["world_size"]), *times),
        cell(nccl_share(case), ".1%"),
        cell(case.get(INPUT_SHARE), ".1%"),
        cell(case.get(ALL_REDUCE_BUS), ".2f"),
        cell(_share(case, bandwidth), ".1%"),
        cell(case.get("nccl_network")),
    )


def _paragraph(
    case: Case, parts: StepParts | None, bandwidth: Mapping[str, float], t: Labels
) -> str:
    """What is known of a case on several nodes, and which part was not measured; empty if nothing
    is known."""
    topology, said = topology_text(case), []
    if parts is not None:
        shares = {name: f"{getattr(parts, name) / parts.step:.1%}" for name in _PARTS}
        said.append(t("time_of_step", topology=topology, step=seconds(parts.step), **shares))
    if parts is not None and parts.slowest_rank is not None and parts.has_straggler:
        node = parts.slowest_rank // case["gpus_per_node"] + 1
        said.append(t("time_straggler", rank=parts.slowest_rank, node=node))
    if (share := nccl_share(case)) is not None:
        said.append(t("time_nccl", topology=topology, share=f"{share:.1%}"))
    if reduced := case.get(ALL_REDUCE_BUS):
        what = case.get("all_reduce_of") or ""
        said.append(t("time_all_reduce", topology=topology, rate=f"{reduced:.2f}", what=what))
    if share := _share(case, bandwidth):
        said.append(t("time_of_measured", share=f"{share:.1%}"))
    if network := case.get("nccl_network"):
        said.append(t("time_network", topology=topology, network=network))
    waited = case.get(INPUT_SHARE)
    if not said and waited is None:
        return ""
    if waited is not None:
        said.append(t("time_input", topology=topology, share=f"{waited:.1%}"))
    missing = {"time_no_parts": parts, "time_no_input": waited}
    said += [t(label, topology=topology) for label, known in missing.items() if known is None]
    return t("between_sentences").join(said)


def time_chart(title: str, group: Sequence[Case], t: Labels) -> Chart | None:
    """The parts of a step over the number of devices, one above the other."""
    if not has_parts(group):
        return None
    ordered = sorted(group, key=lambda case: (case["world_size"], case["nodes"]))
    found = [(case["world_size"], parts) for case in ordered if (parts := step_parts(case))]
    lines = []
    for look, last in enumerate(_PARTS, start=1):
        points = tuple(
            ChartPoint(devices, total, hint=f"{seconds(total)} s")
            for devices, parts in found
            for total in [sum(getattr(parts, name) for name in _PARTS[:look])]
        )
        lines.append(Line(t(f"line_{last}"), points, look - 1))
    return Chart(
        t("time_heading"),
        title,
        t("devices"),
        t("part_step"),
        tuple(lines),
        scale="log x",
        x_ticks=tuple(float(devices) for devices, _ in found),
    )
