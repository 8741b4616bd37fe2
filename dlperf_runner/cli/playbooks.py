"""The commands that start a playbook: lab, provision, bench, decommission; and init.

Each passes its options on to ansible-playbook and becomes it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

PASSES_ON = {"allow_extra_args": True, "ignore_unknown_options": True}
_Options = Annotated[
    list[str] | None,
    typer.Argument(help="Options of ansible-playbook.", metavar="[OPTIONS]...", show_default=False),
]


def lab(
    state: Annotated[
        str, typer.Argument(help="up, down or checked.", metavar="[up|down|checked]")
    ] = "up",
    options: _Options = None,
) -> None:
    """Bring the embedded lab up or down: servers on this machine for a trial without a cluster."""
    from ..commands.playbooks import LAB_STATES, start

    # What is no state is the first of ansible-playbook's options.
    given = ["-e", f"lab_state={LAB_STATES[state]}"] if state in LAB_STATES else [state]
    start("playbooks/lab.yml", [*given, *(options or [])])


def provision(options: _Options = None) -> None:
    """Prepare the servers of the inventory for the benchmarks, by provision.yml."""
    from ..commands.playbooks import start

    start("provision.yml", options or [])


def bench(options: _Options = None) -> None:
    """Run benchmarks by bench.yml: `-e model=NAME` and what else `plan` takes."""
    from ..commands.playbooks import start_bench

    start_bench(options or [])


def decommission(options: _Options = None) -> None:
    """Take off the servers what provisioning put on them."""
    from ..commands.playbooks import start

    start("playbooks/decommission.yml", options or [])


def init(
    directory: Annotated[
        Path, typer.Argument(help="The new inventory.", metavar="[DIR]", show_default=True)
    ] = Path("inventory"),
    example: Annotated[
        str, typer.Option("--from", help="The example that is copied.", metavar="NAME")
    ] = "example",
) -> None:
    """Make an inventory from an example, and say what to change in it."""
    from ..commands.playbooks import init_inventory

    made = init_inventory(directory, example)
    print(f"{made}: now set the names and addresses of your servers in it; then")
    print(f"  dlperf provision -i {made}")
    print(f"  dlperf bench -i {made} -e model=resnet50v1b")
