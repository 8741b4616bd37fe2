"""The command `provision`."""

from __future__ import annotations

from ..control.playbooks import PASSES_ON, PlaybookOptions, start

ORDER = 50
SETTINGS = PASSES_ON


def command(options: PlaybookOptions = None) -> None:
    """Prepare the servers of the inventory for benchmarks with provision.yml."""
    start("provision.yml", options or [])
