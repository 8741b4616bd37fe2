"""The command `demo-logs`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.paths import copy_shipped

ORDER = 145


def command(
    directory: Annotated[
        Path, typer.Argument(help="The directory of the logs, which is new.", metavar="[DIR]")
    ] = Path("demo-logs"),
) -> None:
    """Write sample logs: the published campaign of MXNet ResNet50-v1b on 1 to 32 GPUs.

    Example: dlperf demo-logs"""
    copy_shipped("examples/logs", directory, "dlperf demo-logs DIR")
    print(f"Created {directory}. Now run:")
    print(f"  dlperf summarize {directory}")
    print(f"  dlperf report {directory}")
