"""The command `seal`, which bench.yml calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

ORDER = 280
SETTINGS = {"hidden": True}


def command(
    campaign: Annotated[Path, typer.Argument(help="The directory of the campaign.", metavar="DIR")],
    run: Annotated[str, typer.Argument(help="The ID of the run.", metavar="ID")],
) -> None:
    """Record why a run failed, and add the files of a run that has ended to the campaign's
    manifest, for bench.yml."""
    from ..campaign.failures import explain
    from ..campaign.manifest import seal_run

    explain(campaign, run)
    seal_run(campaign, run)
