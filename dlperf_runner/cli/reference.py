"""docs/commands.md, made of what the commands say of themselves:

python -m dlperf_runner.cli.reference > docs/commands.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from .main import app

_HEAD = """# Commands

Made by `python -m dlperf_runner.cli.reference > docs/commands.md`; a test says when it is old. Each is
`dlperf COMMAND`, or `python -m dlperf_runner COMMAND`, which is the same. bash, zsh and fish complete commands, options
and names of the catalogue after `dlperf --install-completion`.

## Exit statuses

| status | meaning |
| ------ | ------- |
| 0 | all is well |
| 1 | a negative answer: a run failed or is missing, a node is not fit, a case is slower than allowed, something of a bundle could not be had, or what is recorded is not what the logs say |
| 2 | bad input or usage, told on standard error: where, what was expected, what was found; also where a log could not be believed (all others are counted) |
| 130, 143, 129 | interrupted (Ctrl-C), ended by TERM, by HUP; `run` has ended its run on the nodes, and says how to resume |

Tables are as wide as the terminal (80 columns where there is none: `COLUMNS=200` sets another width). Colours and
progress bars are for terminals only, and no colours where `NO_COLOR` is set. `--json` prints the same for programs.
"""  # noqa: E501


def render() -> str:
    """The page."""
    group: Any = typer.main.get_command(app)
    return "\n".join(
        [_HEAD, *(line for name in group.list_commands(None) for line in _command(name, group))]
    )


def _command(name: str, group: Any) -> Iterator[str]:
    command = group.commands[name]
    parameters = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    words = [name, *(p.metavar for p in arguments), "[OPTIONS]"]
    yield f"## {name}\n"
    yield f"`{' '.join(words)}`: {' '.join(inspect.cleandoc(command.help or '').split())}\n"
    yield "| | |\n| - | - |"
    for parameter in parameters:
        if parameter in arguments:
            title = parameter.metavar
        else:
            title = ", ".join(parameter.opts)
            title += "" if parameter.is_flag else f" {parameter.metavar or 'TEXT'}"
        text = " ".join((parameter.help or "").split()).replace("|", "\\|")
        yield f"| `{title}` | {text} |"
    yield ""


if __name__ == "__main__":
    print(render(), end="")
