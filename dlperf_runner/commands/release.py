"""The command `release`, which bench.yml calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

ORDER = 290
SETTINGS = {"hidden": True}


def command(
    campaign: Annotated[Path, typer.Argument(help="The directory of the campaign.", metavar="DIR")],
) -> None:
    """Release the lock of a campaign that bench.yml took with its plan."""
    from ..campaign import lock

    lock.release(campaign, int(os.environ.get("DLPERF_PLAYBOOK_PID") or 0) or None)
