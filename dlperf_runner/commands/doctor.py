"""Checks the nodes of an inventory: preflight.yml gathers facts, the doctor evaluates them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..catalog.reader import load_catalog
from ..core.errors import UserError
from ..core.files import read_text
from ..doctor.findings import Finding
from ..doctor.nodes import diagnose
from ..plan.inventory import read_inventory
from .bandwidth import find_slow


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
