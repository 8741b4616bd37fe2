"""The result of one check of a node, or of a comparison between nodes, and the checks of disks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

Status = Literal["ok", "warning", "failed"]
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class Finding:
    """`node` is empty for a comparison between nodes; `hint` says what to do, and is empty if
    the check passed."""

    node: str
    check: str
    status: Status
    expected: str
    found: str
    hint: str = ""


def check_finding(
    node: str,
    check: str,
    is_good: bool | None,
    expected: str,
    found: object,
    hint: str,
    otherwise: Status = "failed",
) -> Finding:
    """ok if the check passed, `otherwise` if it failed, a warning if the result is unknown."""
    text = "unknown" if found is None else str(found)
    if is_good:
        return Finding(node, check, "ok", expected, text)
    status = "warning" if is_good is None else otherwise
    return Finding(node, check, status, expected, text, hint)


def as_declared(node: str, check: str, declared: str, found: str | None, hint: str) -> Finding:
    """Compare a version with the stack's. A shorter version matches: 7.6.5 matches 7.6.5.32. A
    newer point release of a driver's branch is good, too, and nobody is asked to go back."""
    is_good = found is not None and (found == declared or declared.startswith(f"{found}."))
    parts, wanted = ([int(n) for n in re.findall(r"\d+", text)] for text in (found or "", declared))
    if not is_good and parts > wanted:
        is_good = check == "driver" and parts[:1] == wanted[:1]
        key = "infiniband" if check == "ofed" else check
        hint = (
            "it is newer than the stack's: state it (dlperf_stack_overrides:"
            f" {{{key}: {{version: '{found}'}}}})"
        )
    return check_finding(node, check, is_good, declared, found or "none", hint)


LEAST_FILES = 1000


def disk_findings(name: str, disks: Facts, least_mib: int) -> Iterator[Finding]:
    """Check each file system of a node. `disks`: by path, None if it is unknown."""
    least = f"{least_mib / 1024:.0f} GiB free"
    for path, disk in sorted(disks.items()):
        if disk is None:
            yield check_finding(name, f"disk {path}", None, "free space", None, "check it: df -h")
            continue
        free, files = f"{disk['free_mib'] / 1024:.1f} GiB free", disk.get("free_files")
        is_out = files is not None and files < LEAST_FILES
        free += f", {files} inodes left" if is_out else ""
        expected = f"{least}, {LEAST_FILES} inodes left" if is_out else least
        good = disk["free_mib"] >= least_mib and not disk["read_only"] and not is_out
        found = f"read-only, {free}" if disk["read_only"] else free
        hint = "free some space (df -h, df -i; apt-get clean), or mount it read-write"
        yield check_finding(name, f"disk {path}", good, expected, found, hint)
