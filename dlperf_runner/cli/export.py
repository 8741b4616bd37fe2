"""The command `export`: writes results in the formats of other programs."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from .completion import completes
from .options import AboutLogs, exit_with, option, states
from .results import LATEST


@states
def export(
    about: AboutLogs,
    form: Annotated[
        str,
        typer.Argument(
            help="prometheus (text file), openmetrics, github (step summary), mlflow or wandb"
            " (offline).",
            metavar="FORMAT",
            autocompletion=completes("export"),
        ),
    ],
    sources: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Campaigns, directories of logs, or a history (.sqlite); default: results/latest.",
            metavar="[RESULTS]...",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None,
        option(
            "--output -o",
            "A file; default: standard output, for github GITHUB_STEP_SUMMARY. For mlflow and"
            " wandb a directory; default: mlruns, and the current one.",
            "PATH",
        ),
    ] = None,
) -> None:
    """Export results to Prometheus, MLflow, Weights & Biases or GitHub. The exit status is that of
    `summarize`."""
    from ..commands import export as commands

    done = commands.export(form, sources or [LATEST], output, about.statements())
    sys.stdout.buffer.write(done.content)
    sys.stdout.flush()
    for line in done.lines:
        print(line)
    exit_with(done.problems, done.is_incomplete)
