"""Check the free space of a node's file systems: facts from node_health_info in, findings out."""

from __future__ import annotations

from collections.abc import Iterator

from .findings import Facts, Finding, check_finding


def disk_findings(name: str, disks: Facts, least_mib: int) -> Iterator[Finding]:
    """Check each file system of a node. `disks`: by path, None if it is unknown."""
    least = f"{least_mib / 1024:.0f} GiB free"
    for path, disk in sorted(disks.items()):
        if disk is None:
            yield check_finding(name, f"disk {path}", None, "free space", None, "check it: df -h")
            continue
        free = f"{disk['free_mib'] / 1024:.1f} GiB free"
        good = disk["free_mib"] >= least_mib and not disk["read_only"]
        found = f"read-only, {free}" if disk["read_only"] else free
        hint = "free some space (df -h; apt-get clean), or mount it read-write"
        yield check_finding(name, f"disk {path}", good, least, found, hint)
