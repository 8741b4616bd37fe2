"""The command `live`: serves a page of a campaign."""

from __future__ import annotations

import threading
from typing import Annotated

from .options import CampaignDirectory, option
from .results import LATEST


def live(
    directory: CampaignDirectory = LATEST,
    port: Annotated[int, option("--port", "The port; default: any that is free.", "N")] = 0,
) -> None:
    """Serve a page of a campaign to this machine until Ctrl-C: states of runs, rates over time,
    telemetry and the time that is left."""
    from ..commands.live import serve_page

    with serve_page(directory, port) as address:
        print(address, flush=True)
        threading.Event().wait()
