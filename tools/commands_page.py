"""Generates docs/commands.md from the help texts of the commands:

python -m tools.commands_page > docs/commands.md
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from dlperf_runner.commands import app

_SHARED = 3  # commands that have an option with the same text
_HEAD = """# Commands

Start a command with `dlperf COMMAND`. `python -m dlperf_runner COMMAND` is the same. After `dlperf --install-completion`,
bash, zsh and fish complete commands, options and names of the catalogue. This page is generated with
`python -m tools.commands_page > docs/commands.md`; a test fails if it is out of date.

## Exit statuses

| status | meaning |
| ------ | ------- |
| 0 | success |
| 1 | a negative result: a run failed, is missing or is invalid, a node fails its checks, a case is slower than allowed or none could be compared, a part of a cluster is not accepted, a comparison in turns is undecided, a file of a bundle could not be fetched, or the recorded results differ from the logs |
| 2 | invalid input or usage; a message on standard error states the place, the expected and the actual value. Also: a log was refused. All others are counted |
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
    commands = {name: one for name, one in group.commands.items() if not one.hidden}
    rows = {name: dict(_rows(command)) for name, command in commands.items()}
    count = Counter(row for own in rows.values() for row in own.items())
    shared = {
        title: text
        for (title, text), number in count.items()
        if number >= _SHARED and title[0] == "-"
    }
    parts = [_HEAD, "## Shared options\n", *_table(dict(sorted(shared.items())))]
    for name, command in commands.items():
        arguments = (p.metavar for p in command.params if p.param_type_name == "argument")
        parts.append(f"## {name}\n")
        words = " ".join((name, *filter(None, arguments), "[OPTIONS]"))
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        parts.append(f"`{words}`: " + "\n\n".join(" ".join(p.split()) for p in paragraphs) + "\n")
        parts += _table({t: text for t, text in rows[name].items() if shared.get(t) != text})
        if also := [f"`{title.split()[0].strip(',')}`" for title in rows[name] if title in shared]:
            parts.append(f"[Shared options](#shared-options): {', '.join(also)}.\n")
    return "\n".join(parts)


def _rows(command: Any) -> Iterator[tuple[str, str]]:
    """What a command takes, and its meaning, the arguments first."""
    parameters = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    for parameter in sorted(parameters, key=lambda one: one.param_type_name != "argument"):
        title = parameter.metavar
        if parameter.param_type_name != "argument":
            title = ", ".join(parameter.opts)
            title += "" if parameter.is_flag else f" {parameter.metavar or 'TEXT'}"
        yield title, " ".join((parameter.help or "").split())


def _table(rows: Mapping[str, str]) -> Iterator[str]:
    """A table for GitHub and the site, where a bar ends a cell even within code."""
    if rows:
        yield "| option | meaning |\n| - | - |"
        for row in rows.items():
            title, text = (part.replace("|", "\\|") for part in row)
            yield f"| `{title}` | {text} |"
        yield ""


if __name__ == "__main__":
    print(render(), end="")
