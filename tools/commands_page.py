"""Generates docs/commands.md from the help texts of the commands:

python -m tools.commands_page > docs/commands.md
"""

from __future__ import annotations

import inspect
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

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


class _Row(NamedTuple):
    title: str
    text: str
    group: str


def render() -> str:
    """The page."""
    group: Any = typer.main.get_command(app)
    commands = {name: one for name, one in group.commands.items() if not one.hidden}
    rows = {name: [*_rows(command)] for name, command in commands.items()}
    count = Counter(row for each in rows.values() for row in each)
    shared: dict[str, set[_Row]] = defaultdict(set)
    for row, number in count.items():
        if number >= _SHARED and row.title[0] == "-":
            shared[row.group].add(row)
    parts = [_HEAD, "## Shared options\n"]
    for title, options in sorted(shared.items()):
        parts += [*([f"### {title}\n"] if title else []), *_table(sorted(options))]
    for name, command in commands.items():
        arguments = (p.metavar for p in command.params if p.param_type_name == "argument")
        parts.append(f"## {name}\n")
        words = " ".join((name, *filter(None, arguments), "[OPTIONS]"))
        paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
        parts.append(f"`{words}`: " + "\n\n".join(" ".join(p.split()) for p in paragraphs) + "\n")
        parts += _table([row for row in rows[name] if row not in shared[row.group]])
        if also := [*_also(rows[name], shared)]:
            parts.append(f"Also: {'; '.join(also)}.\n")
    return "\n".join(parts)


def _also(rows: Sequence[_Row], shared: Mapping[str, set[_Row]]) -> Iterator[str]:
    """The shared options of a command: the name of each group, or of those that it has of one."""
    for title, options in sorted(shared.items()):
        anchor = (title or "Shared options").lower().replace(" ", "-")
        some, others = options.intersection(rows), options.difference(rows)
        if title and len(some) > len(others):
            without = f" without {_names(others)}" if others else ""
            yield f"[{title}](#{anchor}){without}"
        elif some:
            yield f"[{_names(some)}](#{anchor})"


def _names(rows: Iterable[_Row]) -> str:
    return ", ".join(sorted(f"`{row.title.split()[0].strip(',')}`" for row in rows))


def _rows(command: Any) -> Iterator[_Row]:
    """The arguments of a command with their meaning, then its options."""
    parameters = [p for p in command.params if p.name != "help" and not getattr(p, "hidden", False)]
    for parameter in sorted(parameters, key=lambda one: one.param_type_name != "argument"):
        title = parameter.metavar
        if parameter.param_type_name != "argument":
            title = ", ".join(parameter.opts)
            title += "" if parameter.is_flag else f" {parameter.metavar or 'TEXT'}"
        group = getattr(parameter, "rich_help_panel", None) or ""
        yield _Row(title, " ".join((parameter.help or "").split()), group)


def _table(rows: Sequence[_Row]) -> Iterator[str]:
    """A table for GitHub and the site, where a bar ends a cell even within code."""
    if rows:
        yield "| option | meaning |\n| - | - |"
        for row in rows:
            title, text = (part.replace("|", "\\|") for part in row[:2])
            yield f"| `{title}` | {text} |"
        yield ""


if __name__ == "__main__":
    print(render(), end="")
