"""The command `mlperf`: summarises results of MLPerf Training."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..options import AsJson, exit_with, option, print_json, print_note, screen

ORDER = 220


def command(
    directory: Annotated[
        Path, typer.Argument(help="A round, a submitter's folder, or a part of one.", metavar="DIR")
    ],
    csv: Annotated[
        Path | None, option("--csv", "Also write all results to this file.", "FILE")
    ] = None,
    batch_size: Annotated[
        int | None,
        option("--batch-size", "Count only runs with this global batch size.", "N", min=1),
    ] = None,
    consecutive: Annotated[
        bool,
        option(
            "--consecutive",
            "Of more runs than a result needs, score the consecutive ones closest to the median.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Summarise results of MLPerf Training, laid out as MLCommons publishes them: time to train,
    throughput and step times. The exit status is 1 if a run did not reach its target or a result
    has too few runs. It is 2 if a log cannot be read, or if the logs of a result are copies, have
    different batch sizes, or are more than count."""
    from ..core.files import write_result
    from ..report.mlperf_text import csv_text, render
    from ..results.mlperf_round import read_round

    found = read_round(directory, batch_size=batch_size, consecutive=consecutive)
    if csv is not None:
        write_result(csv, csv_text(found.results))
    if as_json:
        print_json({"results": [asdict(result) for result in found.results]})
    else:
        print(render(found.results, screen()), end="")
    for note in found.notes:
        print_note(note)
    is_missed = any(one.time_to_train_min is None for one in found.results)
    exit_with(found.problems, found.notes or is_missed)
