"""A doctor's findings for a terminal: what is wrong in full, what is well in a line."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..core.lists import counted
from ..report.terminal import wrapped
from .findings import Finding


def render(findings: Sequence[Finding], width: int = 100, everything: bool = False) -> str:
    """By node, then the nodes compared; of checks that are well only the names, unless
    `everything` is asked for."""
    lines: list[str] = []
    for node in dict.fromkeys(finding.node for finding in findings):
        own = [finding for finding in findings if finding.node == node]
        lines.append(node or "all nodes compared")
        for finding in own:
            if finding.status == "ok" and not everything:
                continue
            text = f"{finding.check}: expected {finding.expected}, found {finding.found}"
            lines += wrapped(text, width, first=f"  {finding.status:8}", rest=" " * 10)
            if finding.hint:
                lines += wrapped(finding.hint, width, first=" " * 10 + "-> ", rest=" " * 13)
        well = [finding.check for finding in own if finding.status == "ok"]
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
    told = "; ".join(
        " ".join(
            f"{finding.node or 'all nodes'}: {finding.check}:"
            f" expected {finding.expected}, found {finding.found}".split()
        )
        for finding in failed
    )
    return f"ERROR:  nhc:  Health check failed:  {told}\n" if failed else ""
