"""Check the software of its own that a node keeps: facts from preflight.yml in, findings out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .findings import Facts, Finding, check_finding

# Slurm's prolog runs modules beside this one without the rest of the package.
if TYPE_CHECKING:
    from ..core.node import Node


def adopted_findings(node: Node, facts: Facts) -> Iterator[Finding]:
    """Compare each part with what provisioning recorded on the node, and say what it means."""
    before = facts["recorded"] or {}
    again = f"run ansible-playbook provision.yml --limit {node.name}, which checks and records it"
    for part in node.adopted:
        check, found = f"kept {part}", _text(facts["kept"].get(part))
        if part in facts["problems"]:
            hint = "provisioning refuses the node: do what this says"
            yield Finding(
                node.name, check, "failed", "runs the stack", facts["meanings"][part], hint
            )
        elif part not in before:
            yield Finding(node.name, check, "warning", "recorded by provisioning", found, again)
        else:
            is_same = before[part] == facts["kept"].get(part)
            hint = f"it has changed since provisioning: {again}. Compare only with later runs"
            meaning = facts["meanings"].get(part, found) if is_same else found
            yield check_finding(
                node.name, check, is_same, _text(before[part]), meaning, hint, "warning"
            )


def _text(versions: Mapping[str, Any] | None) -> str:
    """`version 535.161.07, cuda 12.2`; none if there is nothing."""
    known = [f"{key} {value}" for key, value in (versions or {}).items() if value]
    return ", ".join(known) or "none"
