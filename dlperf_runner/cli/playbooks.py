"""The commands that start a playbook (lab, provision, bench, decommission), and `init`.

Each replaces its process with ansible-playbook and passes its options on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import option

_PASSES_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
SETTINGS = dict.fromkeys(("bench", "decommission", "lab", "provision"), _PASSES_ON)
_Options = Annotated[
    list[str] | None,
    typer.Argument(help="Options of ansible-playbook.", metavar="[OPTIONS]...", show_default=False),
]


def lab(
    state: Annotated[
        str,
        typer.Argument(
            help="Start it, stop it, or check this machine; default: up.",
            metavar="[up|down|checked]",
        ),
    ] = "up",
    options: _Options = None,
) -> None:
    """Start or stop the built-in lab. It emulates a cluster on this machine."""
    from ..commands.playbooks import LAB_STATES, start

    # If the first argument is not a state, it is an option of ansible-playbook.
    given = ["-e", f"lab_state={LAB_STATES[state]}"] if state in LAB_STATES else [state]
    start("playbooks/lab.yml", [*given, *(options or [])])


def provision(options: _Options = None) -> None:
    """Prepare the servers of the inventory for benchmarks with provision.yml."""
    from ..commands.playbooks import start

    start("provision.yml", options or [])


def bench(options: _Options = None) -> None:
    """Run benchmarks with bench.yml. Set the options of `plan` as variables: `-e model=NAME`."""
    from ..commands.playbooks import start_bench

    start_bench(options or [])


def decommission(options: _Options = None) -> None:
    """Remove from the servers what provisioning installed."""
    from ..commands.playbooks import start

    start("playbooks/decommission.yml", options or [])


def init(
    directory: Annotated[
        Path, typer.Argument(help="The directory of the new inventory.", metavar="[DIR]")
    ] = Path("inventory"),
    example: Annotated[str, option("--from", "The example to copy.", "NAME")] = "example",
) -> None:
    """Create an inventory from an example, and print the next steps."""
    from ..commands.playbooks import init_inventory

    made = init_inventory(directory, example)
    print(f"Created {made}. Set the names and addresses of your servers in it. Then run:")
    print(f"  dlperf provision -i {made}")
    print(f"  dlperf bench -i {made} -e model=resnet50v1b")
