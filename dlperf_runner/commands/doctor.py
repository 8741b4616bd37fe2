"""Examine the nodes of an inventory: preflight.yml gathers the facts, the doctor judges them."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..catalog.reader import load_catalog
from ..core.errors import UserError
from ..doctor.findings import Finding
from ..doctor.nodes import diagnose
from ..plan.inventory import read_inventory


def examine(inventories: Sequence[str], limit: str, facts: Path | None = None) -> list[Finding]:
    """The findings of the inventory's nodes, of facts that were kept, or else of new ones."""
    nodes = read_inventory(inventories, limit or None)
    catalog = load_catalog()
    stacks = {n.stack: catalog.stack(n.stack, f"host {n.name}: dlperf_stack") for n in nodes}
    document = read_facts(facts) if facts else gather(inventories, limit)
    try:
        return diagnose(nodes, stacks, document)
    except (KeyError, TypeError, AttributeError) as error:
        if facts is None:
            raise
        raise UserError(
            "these facts are not as this version writes them",
            where=str(facts),
            found=repr(error),
            hint="gather them anew: leave --facts out",
        ) from None


def gather(inventories: Sequence[str], limit: str) -> dict[str, Any]:
    """Run preflight.yml on the nodes; what it wrote."""
    from ..campaign.execute import Playbook, run_playbook

    with tempfile.TemporaryDirectory(prefix="dlperf-preflight-") as folder:
        path, log = Path(folder) / "facts.json", Path(folder) / "ansible.log"
        state = Playbook(log=log)
        variables = {"preflight_file": str(path)}
        names = [str(Path(name).resolve()) if "," not in name else name for name in inventories]
        run_playbook("playbooks/preflight.yml", variables, names, state, limit)
        if path.exists():
            return read_facts(path)
        reasons = state.problems + state.unreachable
        if not reasons and log.exists():
            reasons = log.read_text(encoding="utf-8").strip().splitlines()[-5:]
        raise UserError("the nodes could not be examined:\n  " + "\n  ".join(reasons))


def read_facts(path: Path) -> dict[str, Any]:
    """The document of facts that preflight.yml has written."""
    expected = "the facts that preflight.yml wrote"
    try:
        document: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(
            "these facts cannot be read", where=str(path), expected=expected, found=str(error)
        ) from None
    nodes = document.get("nodes") if isinstance(document, dict) else None
    core = document.get("ansible_core") if isinstance(document, dict) else None
    if not isinstance(core, str) or not isinstance(nodes, dict):
        raise UserError("these are no facts of nodes", where=str(path), expected=expected)
    if not all(isinstance(facts, dict) for facts in nodes.values()):
        raise UserError("the facts of a node are none", where=str(path), expected=expected)
    return document
