"""The command `stop`."""

from __future__ import annotations

from typing import Annotated

from ..options import LATEST, CampaignDirectory, option

ORDER = 120


def command(
    directory: CampaignDirectory = LATEST,
    now: Annotated[bool, option("--now", "Stop the current run, too.")] = False,
) -> None:
    """Stop a campaign after its current run. It can be resumed.

    Example: dlperf stop results/latest"""
    from ..control import controllers

    print(controllers.stop(directory, now=now))
