"""The options that several commands share. Only the modules of `cli` import typer."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

import typer

from ..core.files import json_text
from .completion import completes

if TYPE_CHECKING:
    from ..report.terminal import Screen

# Options whose values shells can complete.
_NAMES = ("model", "framework", "workload", "precision", "matrix", "source", "container")


def option(name: str, text: str, metavar: str | None = None, **more: Any) -> Any:
    """An option with its help text and the name of its value. `name` may be two: `--limit -l`."""
    return typer.Option(*name.split(), help=text, metavar=metavar, **more)


ParameterTexts = Annotated[
    list[str] | None,
    option("--parameter -p", "A parameter of the workload; may be repeated.", "K=V"),
]
Inventories = Annotated[
    list[str] | None,
    option(
        "--inventory -i",
        "Ansible inventory; may be repeated. Default: the one in ansible.cfg.",
        "PATH",
    ),
]
Limit = Annotated[str, option("--limit -l", "Use only these hosts (an Ansible pattern).")]
Wait = Annotated[
    str,
    option(
        "--wait",
        "How long to wait for nodes that another campaign uses, such as 90s, 30m or 2h;"
        " default: fail at once.",
        "TIME",
    ),
]
Conditions = Annotated[
    list[str] | None,
    option(
        "--condition",
        "A condition not recorded in the logs, such as data=real; may be repeated.",
        "K=V",
    ),
]
MappingFile = Annotated[
    Path | None,
    option(
        "--mapping",
        "What ran, by the paths of the logs; default: mapping.yml in their directory.",
        "FILE",
    ),
]
AsJson = Annotated[bool, option("--json", "Print JSON.")]


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
                option(
                    option_name(item.name),
                    item.metadata["help"],
                    item.metadata["metavar"],
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


def print_errors(problems: Iterable[object]) -> None:
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)


def print_note(line: str) -> None:
    print(line, file=sys.stderr)


def screen() -> Screen:
    """The terminal or pipe that standard output is."""
    from ..report.terminal import Screen

    return Screen.of(sys.stdout)
