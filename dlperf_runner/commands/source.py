"""The command `source`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from ..options import AsJson, option, print_json

ORDER = 260


def command(
    workload: Annotated[str, option("--workload", "The workload.", "NAME")],
    source: Annotated[str, option("--source", "builtin or upstream.", "NAME")] = "builtin",
    mirror: Annotated[
        str,
        option(
            "--mirror", "URL or directory of git mirrors; default: https://github.com.", "MIRROR"
        ),
    ] = "",
    environment: Annotated[
        str,
        option(
            "--environment", "The environment that runs use; default: the framework's own.", "NAME"
        ),
    ] = "",
    as_json: AsJson = False,
) -> None:
    """Make the tar with a workload's patched source. Nodes unpack this tar.

    Example: dlperf source --workload mxnet-resnet50v1b"""
    from ..catalog.reader import load_catalog
    from ..plan.sources import prepare_source

    prepared = prepare_source(
        load_catalog(),
        workload,
        source or "builtin",
        mirror or None,
        environment=environment or None,
    )
    if as_json:
        print_json({**asdict(prepared), "path": str(prepared.path)})
    else:
        print(prepared.path)
