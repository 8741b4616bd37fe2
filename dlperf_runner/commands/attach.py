"""The command `attach`."""

from __future__ import annotations

from pathlib import Path

from ..options import LATEST, print_note
from .status import exit_with_status, print_status

ORDER = 110


def command(directory: Path = LATEST) -> None:
    """Follow a campaign that runs detached or in another terminal. Ctrl-C leaves it running.

    Example: dlperf attach results/latest"""
    from ..campaign.directory import read_campaign
    from ..campaign.execute import follow
    from ..campaign.lock import owner_alive
    from ..control.controllers import status_of

    read_campaign(directory)
    try:
        follow(directory, lambda: owner_alive(directory) is not None)
    except KeyboardInterrupt:
        print_note("The campaign continues.")
        return
    document = status_of(directory)
    print_status(document)
    exit_with_status(document)
