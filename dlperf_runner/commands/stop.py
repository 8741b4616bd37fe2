"""The command `stop`."""

from __future__ import annotations

from pathlib import Path

from ..options import LATEST

ORDER = 120
HELP = "--now: Stop the current run, too."


def command(
    directory: Path = LATEST,
    now: bool = False,
) -> None:
    """Stop a campaign after its current run. It can be resumed.

    Example: dlperf stop results/latest"""
    from ..control import controllers

    print(controllers.stop(directory, now=now))
