"""Checks the nodes of an inventory: preflight.yml gathers facts, the doctor evaluates them."""

from __future__ import annotations

import json
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..catalog.reader import load_catalog
from ..control.playbooks import use_ansible_options
from ..core.errors import UserError
from ..core.files import read_text
from ..core.lists import counted
from ..options import keyword, option, print_json, print_note, refuse_given, screen, with_options
from ..plan.choice import fraction
from ..report.terminal import wrapped
from .bandwidth import find_slow
from .findings import Finding
from .hunt import (
    DEFAULT_SLOWER,
    Hunt,
    NodeCampaign,
    bits_of,
    excluded,
    hunt_findings,
    hunt_slow,
    parse_kinds,
    render_hunts,
    same_findings,
)
from .nodes import diagnose, status_of

if TYPE_CHECKING:
    from ..core.node import Node


def render(findings: Sequence[Finding], width: int = 100, everything: bool = False) -> str:
    """By node, then the nodes compared; of checks that are well only the names, unless
    `everything` is asked for."""
    lines: list[str] = []
    for node in dict.fromkeys(finding.node for finding in findings):
        of_node = [finding for finding in findings if finding.node == node]
        lines.append(node or "all nodes compared")
        for finding in of_node:
            if finding.status == "ok" and not everything:
                continue
            text = f"{finding.check}: expected {finding.expected}, found {finding.found}"
            lines += wrapped(text, width, first=f"  {finding.status:8}", rest=" " * 10)
            if finding.hint:
                lines += wrapped(finding.hint, width, first=" " * 10 + "-> ", rest=" " * 13)
        well = [finding.check for finding in of_node if finding.status == "ok"]
        if well and not everything:
            lines += wrapped(", ".join(well), width, first="  ok      ", rest=" " * 10)
        lines.append("")
    count = Counter(finding.status for finding in findings)
    summary = f"{counted(len(findings), 'check')}: {count['failed']} failed, "
    lines.append(summary + f"{counted(count['warning'], 'warning')}, {count['ok']} ok")
    return "\n".join(lines) + "\n"


def nhc_line(findings: Sequence[Finding]) -> str:
    """The failed checks in one line, in the form of LBNL's Node Health Check, a reason for
    Slurm; empty if none failed."""
    failed = [finding for finding in findings if finding.status == "failed"]
    reasons = "; ".join(
        " ".join(
            f"{finding.node or 'all nodes'}: {finding.check}:"
            f" expected {finding.expected}, found {finding.found}".split()
        )
        for finding in failed
    )
    return f"ERROR:  nhc:  Health check failed:  {reasons}\n" if failed else ""


ORDER = 40


_OF_JOBS = ("partition", "account", "qos", "reservation", "constraint", "nodelist")
HELP = """
--scheduler NAME: Check a cluster from a login node of this scheduler (slurm), instead of an
  inventory's nodes.
With --scheduler | --partition NAME: The partition to check; default: all, with a test job in
  Slurm's default one.
With --scheduler | --account NAME: The account of the test job.
With --scheduler | --qos NAME: The quality of service of the test job.
With --scheduler | --reservation NAME: The reservation of the test job.
With --scheduler | --constraint NAME: Features that the nodes of the test job must have.
With --scheduler | --nodelist NAME: With --hunt or --same: its nodes, such as node[1-2].
--facts FILE: Use facts that preflight.yml saved, instead of gathering new ones.
--bandwidth: Also measure the bus bandwidth of all nodes with nccl-allreduce; if it is low, or if
  the stack has no limit, also that of each node and of pairs.
--hunt KIND[,KIND]: Only hunt for nodes, devices and links that are slower than the others: compute
  (matrix products), memory (copies), collective (all-reduce of pairs, all pairs at once).
--same: Only compare, bit by bit, 50 steps of a training on each device.
--slower PERCENT: With --hunt: the slowdown that matters; default 3%.
With --scheduler | --site FILE: With --hunt or --same: the variables of its nodes in YAML, as `run`
  takes them.
everything --all: Also show passing checks.
as_nhc --nhc: Print one line if a check failed, as LBNL's Node Health Check does.
"""
_Dcgm = Annotated[
    int | None,
    option(
        "--dcgm",
        "Also run DCGM's diagnostics on the GPUs: 1 takes seconds, 2 minutes, 3 up to an hour."
        " Nothing else may use the GPUs.",
        "LEVEL",
        min=1,
        max=3,
    ),
]


@partial(with_options, options=[keyword(name, str, "") for name in ("scheduler", *_OF_JOBS)])
def command(
    scheduled: Mapping[str, str],
    inventory: list[str] | None = None,
    limit: str = "",
    facts: Path | None = None,
    dcgm: _Dcgm = None,
    bandwidth: bool = False,
    hunt: str = "",
    same: bool = False,
    slower: str = "",
    site: Path | None = None,
    ask_become_pass: bool = False,
    extra_vars: list[str] | None = None,
    everything: bool = False,
    as_json: bool = False,
    as_nhc: bool = False,
) -> None:
    """Check each node and the whole cluster. The exit status is 1 if a check failed.

    Example: dlperf doctor -i inventory/mine"""
    if as_nhc and (as_json or everything):
        raise UserError("--nhc prints one line; it cannot be combined with --json or --all")
    if facts and (dcgm is not None or bandwidth):
        raise UserError("--dcgm and --bandwidth run tests; they cannot be combined with --facts")
    checks = {"facts": facts, "dcgm": dcgm, "bandwidth": bandwidth}
    tests = {"hunt": hunt, "same": same, "slower": slower}
    about_nodes = {"inventory": inventory, "limit": limit, **checks, **tests}
    use_ansible_options(ask_become_pass, extra_vars)
    hunts: list[Hunt] = []
    if not scheduled["scheduler"]:
        refuse_given({**scheduled, "site": site}, "this option has an effect only with --scheduler")
    if hunt or same:
        refuse_given(checks, "this option has no effect with --hunt and --same")
        findings, hunts = _compared(inventory or (), limit, hunt, same, slower, scheduled, site)
    elif scheduled["scheduler"]:
        findings = _of_cluster(scheduled, {**about_nodes, "site": site})
    else:
        refuse_given({"slower": slower}, "this option has an effect only with --hunt")
        say = print_note if bandwidth else None
        findings = examine(inventory or (), limit, facts, dcgm, say)
    status = status_of(findings)
    if as_json:
        document: dict[str, Any] = {"status": status}
        document |= {"findings": [asdict(finding) for finding in findings]}
        if hunts:
            document |= {"hunts": [asdict(each) for each in hunts], "exclude": excluded(hunts)}
        print_json(document)
    elif as_nhc:
        print(nhc_line(findings), end="")
    else:
        print(render(findings, screen().prose, everything), end="")
        print(render_hunts(hunts, screen()), end="")
    if status == "failed":
        raise typer.Exit(1)


def _of_cluster(scheduled: Mapping[str, str], about_nodes: Mapping[str, object]) -> list[Finding]:
    from .slurm import examine_cluster

    about_nodes = {**about_nodes, "nodelist": scheduled["nodelist"]}
    refuse_given(about_nodes, "this option has no effect with --scheduler")
    options = {name: scheduled[name] for name in _OF_JOBS if scheduled[name]}
    return examine_cluster(scheduled["scheduler"], options, Path.cwd())


def _compared(
    inventories: Sequence[str],
    limit: str,
    kinds: str,
    same: bool,
    slower: str,
    of_jobs: Mapping[str, str],
    site: Path | None,
) -> tuple[list[Finding], list[Hunt]]:
    """The findings of the hunts of these kinds and of the comparison bit by bit, and the hunts."""
    from ..control.rounds import Execution
    from ..options.scheduler import Scheduled
    from ..plan.inventory import read_inventory

    share = fraction(slower or DEFAULT_SLOWER, "--slower")
    wanted = parse_kinds(kinds)
    place = Execution(inventories, "", print_note)
    nodes: Sequence[Node]
    settings = None
    if name := of_jobs["scheduler"]:
        given = {option: of_jobs[option] for option in _OF_JOBS if of_jobs[option]}
        without = {"inventory": inventories, "limit": limit}
        nodes, settings = Scheduled(name, given, "", "", site).nodes(without)
    else:
        nodes = read_inventory(inventories, limit or None)
    hunts = [
        each
        for kind in wanted
        for each in hunt_slow(NodeCampaign(kind, nodes, place, settings), share)
    ]
    findings = [finding for each in hunts for finding in hunt_findings(each)]
    if same:
        findings += same_findings(bits_of(NodeCampaign("same", nodes, place, settings)))
    return findings, hunts


def examine(
    inventories: Sequence[str],
    limit: str,
    facts: Path | None = None,
    dcgm: int | None = None,
    bandwidth: Callable[[str], None] | None = None,
) -> list[Finding]:
    """The findings for the nodes of the inventory, from saved facts or, by default, new ones.
    `dcgm`: the level of DCGM's diagnostics to run on nodes with GPUs. `bandwidth`: also measure it;
    this gets lines about the progress."""
    from ..plan.inventory import read_inventory

    nodes = read_inventory(inventories, limit or None)
    catalog = load_catalog()
    stacks = {node.name: catalog.stack_of(node) for node in nodes}
    if dcgm is not None and all(stack.accelerator != "gpu" for stack in stacks.values()):
        raise UserError("no node has GPUs", where="--dcgm", expected="a GPU stack (dlperf_stack)")
    document = read_facts(facts) if facts else gather(inventories, limit, dcgm)
    try:
        found = diagnose(nodes, stacks, document)
    except (KeyError, TypeError, AttributeError) as error:
        if facts is None:
            raise
        raise UserError(
            "the facts file is not in the format of this version",
            where=str(facts),
            found=repr(error),
            hint="gather new facts: run the command without --facts",
        ) from None
    return found + (find_slow(nodes, inventories, bandwidth) if bandwidth else [])


def gather(inventories: Sequence[str], limit: str, dcgm: int | None = None) -> dict[str, Any]:
    """Run preflight.yml on the nodes. Returns the facts."""
    from ..campaign.execute import Playbook, run_playbook

    with tempfile.TemporaryDirectory(prefix="dlperf-preflight-") as folder:
        path, log = Path(folder) / "facts.json", Path(folder) / "ansible.log"
        state = Playbook(log=log)
        variables: dict[str, Any] = {"preflight_file": str(path)}
        variables |= {} if dcgm is None else {"preflight_dcgm": dcgm}
        names = [str(Path(name).resolve()) if "," not in name else name for name in inventories]
        run_playbook("playbooks/preflight.yml", variables, names, state, limit)
        if path.exists():
            return read_facts(path)
        reasons = state.problems + state.unreachable
        if not reasons and log.exists():
            reasons = read_text(log).strip().splitlines()[-5:]
        raise UserError("could not gather facts from the nodes:\n  " + "\n  ".join(reasons))


def read_facts(path: Path) -> dict[str, Any]:
    """Read the facts that preflight.yml wrote."""
    expected = "the facts that preflight.yml writes"
    try:
        document: dict[str, Any] = json.loads(read_text(path))
    except (OSError, ValueError) as error:
        raise UserError(
            "cannot read the facts file", where=str(path), expected=expected, found=str(error)
        ) from None
    nodes = document.get("nodes") if isinstance(document, dict) else None
    core = document.get("ansible_core") if isinstance(document, dict) else None
    if not isinstance(core, str) or not isinstance(nodes, dict):
        raise UserError("invalid facts file", where=str(path), expected=expected)
    if not all(isinstance(facts, dict) for facts in nodes.values()):
        raise UserError("a node's facts are not an object", where=str(path), expected=expected)
    return document
