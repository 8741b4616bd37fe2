"""Which node or link is slow: bus bandwidths of groups of nodes in, findings out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from ..bandwidth.command import read_bandwidth
from ..campaign import directory as campaigns
from ..catalog.reader import load_catalog
from ..catalog.stack import LeastBusBandwidth, Stack
from ..control.rounds import Execution, execute_campaign
from ..core.errors import UserError
from ..core.files import stored
from ..core.node import Node
from ..plan.choice import parse_choice
from ..plan.make import make_plan
from .findings import Finding, Status, check_finding

if TYPE_CHECKING:
    from ..core.case import Run
    from ..plan.choice import Choice

Group = Sequence[Node]
# Without a limit in the stack, a group is slow below this share of the better half of its equals.
# That is a warning, because nobody said what they should reach.
FAIR = 0.8
CHECK = "bus bandwidth"
_OWN = (
    "look at this node's other processes and clocks, its fabric manager, and its NVLink"
    " (nvidia-smi topo -m, nvidia-smi nvlink --status)"
)
_NETWORK = (
    "look at this node's network: ports and their rates (ibstat), cables, the switch port,"
    " GPUDirect RDMA, and NCCL_IB_HCA in dlperf_env"
)
_LINK = "look at the cables and switches between these nodes, and at their routes"


@dataclass(frozen=True)
class GroupBandwidth:
    """The bus bandwidth over some nodes in GB/s; None if it was not measured, because of
    `problem`."""

    nodes: tuple[str, ...]
    busbw: float | None
    problem: str = ""


def is_enough(whole: GroupBandwidth, least: LeastBusBandwidth | None) -> bool:
    """True if the bandwidth over all nodes shows that no node and no link is slow."""
    limit = _limit_of(len(whole.nodes), least)
    return whole.busbw is not None and limit is not None and whole.busbw >= limit


def bandwidth_findings(
    whole: GroupBandwidth,
    alone: Sequence[GroupBandwidth],
    pairs: Sequence[GroupBandwidth],
    least: LeastBusBandwidth | None,
    stack: str,
) -> Iterator[Finding]:
    """The finding on all nodes together; on each node alone; then on nodes whose network is slow
    (all their pairs are), and on the other slow pairs. Pairs of a node that is slow alone say
    nothing about the network."""
    yield _of_whole(whole, _limit_of(len(whole.nodes), least), stack)
    limit = _limit(alone, least.one_node if least else None)
    yield from (_finding(g.nodes[0], CHECK, g, limit, "alone", _OWN) for g in alone)
    slow_alone = {group.nodes[0] for group in alone if _is_slow(group, limit)}
    fair = [pair for pair in pairs if not slow_alone & set(pair.nodes)]
    yield from _of_pairs(fair, _limit(fair, least.several_nodes if least else None))


def _limit_of(nodes: int, least: LeastBusBandwidth | None) -> float | None:
    if least is None:
        return None
    return least.one_node if nodes == 1 else least.several_nodes


class Limit(NamedTuple):
    """The least bandwidth in GB/s, None if there is nothing to compare with; and what it means not
    to reach it."""

    gbps: float | None
    otherwise: Status


def _limit(groups: Sequence[GroupBandwidth], least: float | None) -> Limit:
    """The limit of the stack, else a share of the better half of the groups."""
    if least is not None:
        return Limit(least, "failed")
    values = sorted((group.busbw for group in groups if group.busbw is not None), reverse=True)
    if len(groups) < 2 or not values:
        return Limit(None, "warning")
    return Limit(FAIR * median(values[: (len(values) + 1) // 2]), "warning")


def _of_whole(whole: GroupBandwidth, limit: float | None, stack: str) -> Finding:
    nodes = f"over {len(whole.nodes)} nodes" if len(whole.nodes) > 1 else f"on {whole.nodes[0]}"
    if whole.busbw is None:
        hint = "see the run's log, and the checks of each node"
        return Finding("", CHECK, "failed", "a measurement", whole.problem, hint)
    found = f"{whole.busbw:.4g} GB/s {nodes}"
    if limit is None:
        return Finding("", CHECK, "ok", f"any, as {stack} has no least_bus_bandwidth", found)
    hint = "the checks of single nodes and pairs say where; without a slow one, all are slow"
    return check_finding("", CHECK, whole.busbw >= limit, f"{limit:.4g} GB/s or more", found, hint)


def _finding(
    name: str, check: str, group: GroupBandwidth, limit: Limit, how: str, hint: str
) -> Finding:
    if group.busbw is None:
        return Finding(name, check, "failed", "a measurement", group.problem, hint)
    found = f"{_value(group)} {how}"
    if limit.gbps is None:
        return Finding(name, check, "ok", "any", found)
    expected = f"{limit.gbps:.4g} GB/s or more"
    is_ok = not _is_slow(group, limit)
    return check_finding(name, check, is_ok, expected, found, hint, limit.otherwise)


def _of_pairs(pairs: Sequence[GroupBandwidth], limit: Limit) -> Iterator[Finding]:
    names = dict.fromkeys(name for pair in pairs for name in pair.nodes)
    of_names = {name: [pair for pair in pairs if name in pair.nodes] for name in names}
    blamed = {
        name
        for name, measured in of_names.items()
        if len(measured) > 1 and all(_is_slow(pair, limit) for pair in measured)
    }
    # If every pair is slow, no node stands out.
    blamed = blamed if len(blamed) < len(names) else set()
    for name in (name for name in names if name in blamed):
        measured = of_names[name]
        others = (next(node for node in pair.nodes if node != name) for pair in measured)
        found = ", ".join(f"{_value(p)} with {o}" for p, o in zip(measured, others, strict=True))
        is_measured = limit.gbps is not None
        expected = f"{limit.gbps:.4g} GB/s or more with each" if is_measured else "a measurement"
        failed = any(pair.busbw is None for pair in measured)
        status: Status = "failed" if failed else limit.otherwise
        yield Finding(name, f"{CHECK} of its network", status, expected, found, _NETWORK)
    for pair in pairs:
        if not blamed & set(pair.nodes):
            check = f"{CHECK} of {' and '.join(pair.nodes)}"
            yield _finding("", check, pair, limit, "between them", _LINK)


def _is_slow(group: GroupBandwidth, limit: Limit) -> bool:
    return group.busbw is None or (limit.gbps is not None and group.busbw < limit.gbps)


def _value(group: GroupBandwidth) -> str:
    return group.problem if group.busbw is None else f"{group.busbw:.4g} GB/s"


MESSAGE_BYTES = {"gpu": 16 * 2**30, "cpu": 16 * 2**20}
_WHERE = "--bandwidth"


def find_slow(
    nodes: Sequence[Node],
    inventories: Sequence[str],
    say: Callable[[str], None],
    directory: Path | None = None,
    execute: Callable[[Path, Execution], list[str]] = execute_campaign,
) -> list[Finding]:
    """Measure all nodes together; then, if they are slower than the stack's limit or it has none,
    each node alone and pairs of neighbours. What cannot be measured is a finding."""
    place = Execution(inventories, "", say)
    directory = (directory or campaigns.new_directory()).resolve()
    stack = load_catalog().stack_of(nodes[0])
    try:
        choice = _choice(nodes, stack)
        runs = list(group_runs(choice, [nodes]))
        campaigns.create_campaign(directory, choice, nodes, runs)
        say(f"measuring the bus bandwidth of all nodes: {directory}")
        problems = execute(directory, place)
        (whole,) = _measured(directory, problems)
        details: list[GroupBandwidth] = []
        groups = _groups(nodes)
        if groups and not is_enough(whole, stack.least_bus_bandwidth):
            say(f"measuring {len(groups)} nodes and pairs")
            more = list(group_runs(choice, groups))
            why = {run.case: "the nodes together do not show that none is slow" for run in more}
            campaigns.add_revision(directory, [asdict(run) for run in more], why)
            problems = execute(directory, place)
            details = _measured(directory, problems)[1:]
    except UserError as error:
        hint = "nccl-allreduce or rccl-allreduce measures the bandwidth: see docs/bandwidth.md"
        return [Finding("", CHECK, "failed", "a measurement", str(error), hint)]
    alone = [group for group in details if len(group.nodes) == 1]
    pairs = [group for group in details if len(group.nodes) == 2]
    limits = stack.least_bus_bandwidth
    return list(bandwidth_findings(whole, alone, pairs, limits, f"stack {stack.name}"))


def _choice(nodes: Sequence[Node], stack: Stack) -> Choice:
    devices = min(node.devices_per_node for node in nodes)
    if len(nodes) * devices < 2:
        raise UserError("a bandwidth needs at least two devices", where=_WHERE, found="one device")
    library = "rccl" if stack.rocm else "nccl"
    names = {"workload": f"{library}-allreduce", "model": f"{library}-all-reduce"}
    names["matrix"] = "published"
    size = f"message_bytes={MESSAGE_BYTES[stack.accelerator]}"
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


def group_runs(choice: Choice, groups: Sequence[Group]) -> Iterator[Run]:
    """One run per group, on all its nodes. Groups of the same size are repeats of one case. The
    choice must select one case."""
    counts: Counter[str] = Counter()
    for group in groups:
        (run,) = make_plan(replace(choice, nodes=(len(group),), repeats=1), load_catalog(), group)
        counts[run.case] += 1
        repeat = counts[run.case]
        yield replace(run, id=f"{run.case}/r{repeat}", repeat=repeat)


def neighbours(nodes: Group) -> list[tuple[Node, Node]]:
    """Pairs in a ring, so that each node is in two of them; of two nodes, one pair."""
    if len(nodes) < 3:
        return [(nodes[0], nodes[1])] if len(nodes) == 2 else []
    return list(zip(nodes, (*nodes[1:], nodes[0]), strict=True))
