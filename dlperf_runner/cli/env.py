"""The command `env`: makes environments of frameworks as an ordinary user."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import UserError
from .completion import completes
from .options import option, print_note


def env(
    action: Annotated[str, typer.Argument(help="The word build.", metavar="build")],
    names: Annotated[
        list[str],
        typer.Argument(
            help="Frameworks, or environments of their flavors, such as mxnet-mkl.",
            metavar="NAME...",
            autocompletion=completes("framework"),
        ),
    ],
    stack: Annotated[
        str, option("--stack", "The stack of the nodes.", "NAME", autocompletion=completes("stack"))
    ],
    to: Annotated[
        Path | None, option("--to", "A folder that all nodes share; default: envs/STACK.", "DIR")
    ] = None,
    python: Annotated[
        str, option("--python", "A Python that all nodes have at this path.", "PATH")
    ] = "",
    own_python: Annotated[
        bool,
        option(
            "--own-python",
            "Give each environment a Python of its own, even if the site has one that is new"
            " enough.",
        ),
    ] = False,
    mirror: Annotated[
        str, option("--mirror", "The folder or URL of a mirror that `bundle` made.", "MIRROR")
    ] = "",
) -> None:
    """Make the hash-locked environments of frameworks, without root and Ansible, in a shared
    folder. They can be moved."""
    from ..commands.environments import Interpreter, build

    if action != "build":
        raise UserError("unknown action", where="env", expected="build", found=action)
    if python and own_python:
        raise UserError("--python and --own-python cannot be combined")
    folder = to or Path("envs") / stack
    for path in build(names, stack, folder, Interpreter(python, own_python), mirror, print_note):
        print(path)
