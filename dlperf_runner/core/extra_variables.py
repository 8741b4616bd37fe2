"""The variables that the user gives to a command for all nodes (`-e`).

They are in the environment, so that each process of the command has them: the playbooks, the
reading of the inventory, and a controller in the background."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

from .errors import UserError

_VARIABLE = "DLPERF_EXTRA_VARS"
_BEGINNINGS = ("ansible_", "dlperf_", "node_base_")


def use(texts: Sequence[str]) -> None:
    """Take the values of `-e`: NAME=VALUE, an object in JSON, or @FILE.

    Raises UserError for what chooses runs, which has options of its own, and for a missing file."""
    taken = []
    for text in texts:
        where = f"-e {text.partition('=')[0]}"
        if text.startswith("@"):
            if not Path(text[1:]).is_file():
                raise UserError("file not found", where=where, expected="@ and a file's path")
            taken.append(f"@{Path(text[1:]).resolve()}")
            continue
        wrong = [name for name in _names(text, where) if not name.startswith(_BEGINNINGS)]
        if wrong:
            raise UserError(
                f"{wrong[0]} is no variable of nodes",
                where=where,
                expected=f"a name that begins with {', '.join(_BEGINNINGS)}",
                hint=f"what to run has options: dlperf run --help; look for"
                f" --{wrong[0].replace('_', '-')}",
            )
        taken.append(text)
    os.environ[_VARIABLE] = json.dumps(taken)


def _names(text: str, where: str) -> list[str]:
    if not text.startswith("{"):
        name, equals, _ = text.partition("=")
        if not equals:
            raise UserError("no value", where=where, expected="NAME=VALUE or @FILE", found=text)
        return [name]
    try:
        return list(json.loads(text))
    except ValueError as error:
        raise UserError("invalid JSON", where="-e", found=str(error)) from None


def options() -> list[str]:
    """The options of ansible-playbook and ansible-inventory for them."""
    return [part for text in json.loads(os.environ.get(_VARIABLE) or "[]") for part in ("-e", text)]
