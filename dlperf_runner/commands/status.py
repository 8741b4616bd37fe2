"""The command `status`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from ..options import LATEST, print_json, screen

ORDER = 100
HELP = """
--watch: Show it again every two seconds until its controller ends, with the last rates, the GPU
  telemetry and the time left.
"""


def command(
    directory: Path = LATEST,
    watch: bool = False,
    as_json: bool = False,
) -> None:
    """Show the unfinished runs of a campaign, why runs failed or are invalid, and done runs that
    the manifest lacks. The exit status is 1 if there are any.

    Example: dlperf status results/latest --watch"""
    from ..control.controllers import poll_campaign, status_of

    if watch:
        for document in poll_campaign(directory):
            if sys.stdout.isatty():
                print("\x1b[H\x1b[2J", end="")
            print_status(document)
            print_telemetry(document["telemetry"])
            print(progress_line(document))
    else:
        document = status_of(directory)
        if as_json:
            print_json(document)
        else:
            print_status(document)
    exit_with_status(document)


def exit_with_status(document: Mapping[str, Any]) -> None:
    if document["done"] - document["invalid"] < document["total"] or document["unrecorded"]:
        raise typer.Exit(1)


def print_status(document: Mapping[str, Any]) -> None:
    """Print the runs that are not done or are invalid, with the reason, and how many are done."""
    from ..campaign.manifest import FILE
    from ..report.tables import Cell, Column
    from ..report.terminal import table

    left = [run for run in document["runs"] if not run["done"] or run["status"] == "invalid"]
    columns = (Column("run"), Column("status"), Column("message", wraps=True))
    rows = (
        (run["id"], Cell(run["status"], run["status"], run["status"]), _reason(run)) for run in left
    )
    print(table(columns, rows, screen()) if left else "", end="")
    invalid = f", {document['invalid']} of them invalid" if document["invalid"] else ""
    print(f"{document['done']} of {document['total']} runs done{invalid}")
    if names := document["unrecorded"]:
        print(f"not recorded in {FILE}: {', '.join(names)}. Resume the campaign to record them")


def _reason(run: Mapping[str, Any]) -> str:
    kind = f"{run['category']}: " if run["category"] else ""
    return f"{kind}{run['message'] or ''}" + (f". {run['advice']}" if run["advice"] else "")


def print_telemetry(telemetry: Mapping[str, Any]) -> None:
    """Print a row for each node: of its GPUs the means of utilization, the sum of power, and the
    largest of the others."""
    from operator import itemgetter
    from statistics import fmean

    from ..core.lists import grouped
    from ..report.tables import Column, cell
    from ..report.terminal import table

    if not telemetry["devices"]:
        return
    names = ("node", "GPUs", "utilization %", "W", "°C", "MiB")
    rows = []
    for node, devices in grouped(telemetry["devices"], itemgetter("node")).items():
        shown = []
        for name, summary in (
            ("utilization_percent", fmean),
            ("power_w", sum),
            ("temperature_c", max),
            ("memory_used_mib", max),
        ):
            values = [device[name] for device in devices if device[name] is not None]
            shown.append(cell(summary(values) if values else None, ".0f"))
        rows.append((node, str(len(devices)), *shown))
    when = "now" if telemetry["is_running"] else "means; largest temperature and memory"
    print(f"GPUs of {telemetry['run']}, {when}:")
    print(table([Column(name) for name in names], rows, screen()), end="")


def progress_line(document: Mapping[str, Any]) -> str:
    """`resnet50_b2_1n1g/r1: 9.8 10.1 10.2 samples/s; about 12 min left`."""
    from itertools import groupby

    parts = []
    series = document["series"]
    running = [run["id"] for run in document["runs"] if run["status"] == "running"]
    if running:
        points = series["points"] if series["run"] in running else ()
        rates = [rate for rate, _ in groupby(rate for _, rate in points)]
        shown = [f"{rate:.4g}" for rate in rates[-8:]]
        parts.append(
            f"{running[0]}: {' '.join([*shown, series['unit']]) if shown else 'no rate yet'}"
        )
    if (left := document["left_s"]) is not None:
        parts.append(f"about {left / 60:.0f} min left")
    owner = document["controller"]
    parts.append(f"controller: process {owner['process']['pid']}" if owner else "no controller")
    return "; ".join(parts)
