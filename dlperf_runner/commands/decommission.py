"""The command `decommission`."""

from __future__ import annotations

from ..control.playbooks import PASSES_ON, PlaybookOptions, start

ORDER = 140
SETTINGS = PASSES_ON


def command(options: PlaybookOptions = None) -> None:
    """Remove from the servers what provisioning installed.

    Example: dlperf decommission -i inventory/mine"""
    start("playbooks/decommission.yml", options or [])
