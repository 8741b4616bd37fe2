"""Measures the bus bandwidth of nodes with nccl-allreduce, in a campaign, and finds slow nodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign import directory as campaigns
from ..catalog.reader import load_catalog
from ..control.rounds import execute_campaign
from ..core.errors import UserError
from ..core.files import stored
from ..core.node import Node
from ..doctor.bandwidth import CHECK, GroupBandwidth, bandwidth_findings, is_enough
from ..doctor.findings import Finding
from ..plan.choice import parse_choice
from ..plan.groups import Group, group_runs, neighbours
from ..results.bandwidth import read_bandwidth

if TYPE_CHECKING:
    from ..plan.choice import Choice

MESSAGE_BYTES = {"gpu": 16 * 2**30, "cpu": 16 * 2**20}
_WHERE = "--bandwidth"


def find_slow(
    nodes: Sequence[Node],
    inventories: Sequence[str],
    say: Callable[[str], None],
    directory: Path | None = None,
    execute: Callable[[Path, Sequence[str], str, Callable[[str], None]], list[str]] | None = None,
) -> list[Finding]:
    """Measure all nodes together; then, if they are slower than the stack's limit or it has none,
    each node alone and pairs of neighbours. What cannot be measured is a finding."""
    execute = execute or execute_campaign
    directory = (directory or campaigns.new_directory()).resolve()
    stack = load_catalog().stack_of(nodes[0])
    try:
        choice = _choice(nodes, stack.accelerator)
        runs = list(group_runs(choice, load_catalog(), [nodes]))
        campaigns.create_campaign(directory, choice, nodes, runs)
        say(f"measuring the bus bandwidth of all nodes: {directory}")
        problems = execute(directory, inventories, "", say)
        (whole,) = _measured(directory, problems)
        details: list[GroupBandwidth] = []
        groups = _groups(nodes)
        if groups and not is_enough(whole, stack.least_bus_bandwidth):
            say(f"measuring {len(groups)} nodes and pairs")
            more = list(group_runs(choice, load_catalog(), groups))
            why = {run.case: "the nodes together do not show that none is slow" for run in more}
            campaigns.add_revision(directory, [asdict(run) for run in more], why)
            problems = execute(directory, inventories, "", say)
            details = _measured(directory, problems)[1:]
    except UserError as error:
        hint = "bandwidth is measured by the workload nccl-allreduce: see docs/bandwidth.md"
        return [Finding("", CHECK, "failed", "a measurement", str(error), hint)]
    alone = [group for group in details if len(group.nodes) == 1]
    pairs = [group for group in details if len(group.nodes) == 2]
    limits = stack.least_bus_bandwidth
    return list(bandwidth_findings(whole, alone, pairs, limits, f"stack {stack.name}"))


def _choice(nodes: Sequence[Node], accelerator: str) -> Choice:
    devices = min(node.devices_per_node for node in nodes)
    if len(nodes) * devices < 2:
        raise UserError("a bandwidth needs at least two devices", where=_WHERE, found="one device")
    names = {"workload": "nccl-allreduce", "model": "nccl-all-reduce", "matrix": "published"}
    size = f"message_bytes={MESSAGE_BYTES[accelerator]}"
    return parse_choice({**names, "gpus_per_node": devices}, [size])


def _groups(nodes: Sequence[Node]) -> list[Group]:
    """The nodes alone, if they have several devices, and pairs, if they are not all nodes."""
    has_several = all(node.devices_per_node > 1 for node in nodes) and len(nodes) > 1
    alone: list[Group] = [(node,) for node in nodes] if has_several else []
    return [*alone, *(neighbours(nodes) if len(nodes) > 2 else [])]


def _measured(directory: Path, problems: Sequence[str]) -> list[GroupBandwidth]:
    """The bandwidth of each run of the campaign, in the order of its plan."""
    return [_of_run(directory, run, problems) for run in campaigns.read_records(directory)]


def _of_run(directory: Path, run: Mapping[str, Any], problems: Sequence[str]) -> GroupBandwidth:
    names = tuple(run["hosts"])
    outcome = run.get("outcome", {})
    if not campaigns.is_done(directory, run):
        why = outcome.get("message") or "; ".join(problems) or "the run did not start"
        return GroupBandwidth(names, None, " ".join(str(why).split())[:500])
    path = stored(campaigns.run_directory(directory, run) / str(run["log_name"]))
    try:
        return GroupBandwidth(names, read_bandwidth(path)[0].rows[-1].busbw)
    except UserError as error:
        return GroupBandwidth(names, None, str(error))
