"""The command `source`."""

from __future__ import annotations

from dataclasses import asdict

from ..options import print_json

ORDER = 260
HELP = """
--workload NAME: The workload.
--source NAME: builtin or upstream.
--mirror MIRROR: URL or directory of git mirrors; default: https://github.com.
--environment NAME: The environment that runs use; default: the framework's own.
"""


def command(
    workload: str,
    source: str = "builtin",
    mirror: str = "",
    environment: str = "",
    as_json: bool = False,
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
