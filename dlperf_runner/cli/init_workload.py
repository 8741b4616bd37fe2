"""The command `init-workload`: describes a program of the user as a workload of the catalogue."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from ..commands.init_workload import QUESTIONS, missing
from ..commands.init_workload import init_workload as write_workload
from ..core.errors import UserError
from ..core.paths import own_catalog
from .options import option, with_texts

Files = Annotated[
    list[Path] | None,
    option(
        "--file", "A file of the program, which is copied to the nodes; may be repeated.", "PATH"
    ),
]


@with_texts(
    (q.name, q.option, q.text + (f"; default: {q.default}." if q.default else "."), q.metavar)
    for q in QUESTIONS
)
def init_workload(values: Mapping[str, str], files: Files = None) -> None:
    """Describe a program of your own as a workload, in your own folder of the catalogue. On a
    terminal, asks for what the options do not say. The folder is that of --catalog."""
    folder = own_catalog()
    left = missing(values)
    if not on_terminal() and (left or folder is None):
        names = [*(["--catalog"] if folder is None else []), *(q.option for q in left)]
        raise UserError("options are missing", expected=", ".join(names))
    given: dict[str, Any] = dict(values)
    if folder is None:
        folder = Path(typer.prompt("The folder of your catalogue", default="catalog")).absolute()
    while left:
        given[left[0].name] = typer.prompt(left[0].text)
        left = missing(given)
    made = write_workload(folder, given, files or ())
    where = shlex.quote(str(folder))
    print(f"Created {made}. See what would run, run it, and read its logs:")
    for command in (f"plan --workload {given['name']}", f"bench -e workload={given['name']}"):
        print(f"  dlperf --catalog {where} {command}")
    print(f"  dlperf --catalog {where} summarize")


def on_terminal() -> bool:
    """Whether there is somebody to ask."""
    return sys.stdin.isatty()
