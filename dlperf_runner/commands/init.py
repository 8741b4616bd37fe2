"""The command `init`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..core.errors import UserError
from ..core.paths import copy_shipped, is_clone, shipped
from ..options import option

ORDER = 20


def command(
    directory: Annotated[
        Path, typer.Argument(help="The directory of the new inventory.", metavar="[DIR]")
    ] = Path("inventory"),
    example: Annotated[str, option("--from", "The example to copy.", "NAME")] = "example",
) -> None:
    """Create an inventory from an example, and print the next steps."""
    made = init_inventory(directory, example)
    print(f"Created {made}. Set the names and addresses of your servers in it. Then run:")
    print(f"  dlperf provision -i {made}")
    print(f"  dlperf run -i {made} --model resnet50v1b")


def init_inventory(directory: Path, example: str) -> Path:
    """Copy an example inventory. Raises UserError if the directory already exists."""
    examples = shipped() / "inventory"
    known = sorted(p.name for p in examples.iterdir() if p.name.startswith("example"))
    if example not in known:
        raise UserError(
            "unknown example", where="--from", expected=f"one of {', '.join(known)}", found=example
        )
    if directory.is_dir() and is_clone() and directory.resolve() == examples:
        directory = directory / "mine"
    copy_shipped(f"inventory/{example}", directory, "dlperf init DIR")
    return directory
