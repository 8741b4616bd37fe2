"""The command `demo-logs`."""

from __future__ import annotations

from pathlib import Path

from ..core.paths import copy_shipped

ORDER = 145
HELP = "directory [DIR]: The directory of the logs, which is new."


def command(
    directory: Path = Path("demo-logs"),
) -> None:
    """Write sample logs: the published campaign of MXNet ResNet50-v1b on 1 to 32 GPUs.

    Example: dlperf demo-logs"""
    copy_shipped("examples/logs", directory, "dlperf demo-logs DIR")
    print(f"Created {directory}. Now run:")
    print(f"  dlperf summarize {directory}")
    print(f"  dlperf report {directory}")
