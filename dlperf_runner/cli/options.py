"""The options that several commands share. Only the modules of `cli` import typer."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from ..core.files import json_text
from .completion import completes

# Options whose values shells can complete.
_NAMES = ("model", "framework", "workload", "precision", "matrix", "source", "container")
ParameterTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--parameter", "-p", help="A parameter of the workload; may be repeated.", metavar="K=V"
    ),
]
Inventories = Annotated[
    list[str] | None,
    typer.Option(
        "--inventory",
        "-i",
        help="Ansible inventory; may be repeated. Default: the one in ansible.cfg.",
        metavar="PATH",
    ),
]
Limit = Annotated[
    str,
    typer.Option(
        "--limit", "-l", help="Use only these hosts (an Ansible pattern).", show_default=False
    ),
]
Wait = Annotated[
    str,
    typer.Option(
        "--wait",
        help="How long to wait for nodes that another campaign uses, such as 90s, 30m or 2h;"
        " default: fail at once.",
        metavar="TIME",
        show_default=False,
    ),
]
MappingFile = Annotated[
    Path | None,
    typer.Option(
        "--mapping",
        help="What ran, by the paths of the logs; default: mapping.yml in their directory.",
        metavar="FILE",
        show_default=False,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def chooses(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of Choice to a command. The command gets the Choice as first argument."""
    from ..plan.choice import OPTIONS, option_name

    @functools.wraps(command)
    def wrapped(**values: Any) -> None:
        from ..plan.choice import parse_choice

        texts = {item.name: values.pop(item.name) for item in OPTIONS}
        command(parse_choice(texts, values.pop("parameter") or []), **values)

    options = [
        inspect.Parameter(
            item.name,
            inspect.Parameter.KEYWORD_ONLY,
            default="",
            annotation=Annotated[
                str,
                typer.Option(
                    option_name(item.name),
                    metavar=item.metadata["metavar"],
                    help=item.metadata["help"],
                    show_default=False,
                    autocompletion=completes(item.name) if item.name in _NAMES else None,
                ),
            ],
        )
        for item in OPTIONS
    ]
    # Choice is imported for type checkers only. No option has that type.
    types = get_type_hints(command, localns={"Choice": object}, include_extras=True)
    own = list(inspect.signature(command).parameters.values())[1:]
    parameter = inspect.Parameter(
        "parameter", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=ParameterTexts
    )
    keywords = [
        item.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=types[item.name])
        for item in own
    ]
    signature = inspect.Signature([*options, parameter, *keywords])
    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    # Typer reads these types. Those of the wrapped function would hide the new options.
    wrapped.__annotations__ = {item.name: item.annotation for item in signature.parameters.values()}
    del wrapped.__wrapped__
    return wrapped


def print_json(document: object) -> None:
    print(json_text(document), end="")
