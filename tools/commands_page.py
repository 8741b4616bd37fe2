"""Generates docs/commands.md from the help texts of the commands:

python -m tools.commands_page > docs/commands.md
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import typer

from dlperf_runner.commands import app

_HEAD = """# Commands

Start a command with `dlperf COMMAND`. `python -m dlperf_runner COMMAND` is the same. After `dlperf --install-completion`,
bash, zsh and fish complete commands, options and names of the catalogue. This page is generated with
`python -m tools.commands_page > docs/commands.md`; a test fails if it is out of date.

## Exit statuses

| status | meaning |
| ------ | ------- |
| 0 | success |
| 1 | a negative result: a run failed, is missing or is invalid, a node fails its checks, a case is slower than allowed or none could be compared, a file of a bundle could not be fetched, or the recorded results differ from the logs |
| 2 | invalid input or usage; a message on standard error states the place, the expected and the actual value. Also if a log failed validation (all other logs are counted), whatever else is wrong |
| 130, 143, 129 | interrupted by Ctrl-C, by TERM, by HUP; `run` has stopped its run on the nodes and prints how to resume |

A table never hides or cuts a column. In a pipe or a file, each row is one line. On a narrow terminal, cells take several lines;
`COLUMNS=60` sets another width. Colours and progress bars appear only on a terminal; `NO_COLOR` disables colours. `--json`
prints the same data for programs.

`--catalog DIR`, before or after any command, adds [workloads of your own](own-workload.md) to the catalogue;
`DLPERF_CATALOG` does the same.
"""  # noqa: E501


def render() -> str:
    """The page."""
    group: Any = typer.main.get_command(app)
    return "\n".join([_HEAD, *(line for name in group.commands for line in _command(name, group))])


def _command(name: str, group: Any) -> Iterator[str]:
    command = group.commands[name]
    if command.hidden:
        return
    parameters = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    words = [name, *(p.metavar for p in arguments), "[OPTIONS]"]
    yield f"## {name}\n"
    yield f"`{' '.join(words)}`: {' '.join(inspect.cleandoc(command.help or '').split())}\n"
    yield "| | |\n| - | - |"
    for parameter in sorted(parameters, key=lambda one: one not in arguments):
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
