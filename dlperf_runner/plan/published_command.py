"""Compares a planned run with the command that the report's script ran, flag by flag.

Two spellings of a flag are equal: `--lr=1` and `--lr 1`; of mpirun's, `-mca` and `--mca`. Of the
interpreter and the script, the path does not count.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from ..catalog.types import fill
from ..core.case import Command, Topology
from .parameters import values_of

if TYPE_CHECKING:
    from ..catalog.publication import DeclaredDifference, PublishedCommand, Reproduction
    from ..catalog.workload import Workload
    from ..core.case import Run
    from ..core.node import Node

_MPIRUN = {"mpirun", "mpiexec", "orterun"}
_SHORT = {"-H": "--host", "-n": "--np", "-c": "--np"}
_PYTHON = re.compile(r"python[\d.]*")

Flags = dict[tuple[str, str], str]


class FoundDifference(NamedTuple):
    """A flag or variable in which two commands differ. None: the command lacks it."""

    part: str
    item: str
    published: str | None
    ours: str | None


def flags_of(argv: Sequence[str], environment: Mapping[str, str]) -> Flags:
    """The flags of a command by part and name, and its variables."""
    script = next(n for n, word in enumerate(argv) if word.endswith(".py"))
    python = max(n for n in range(script) if _PYTHON.fullmatch(PurePosixPath(argv[n]).name))
    start = next((n for n in range(python) if PurePosixPath(argv[n]).name in _MPIRUN), None)
    flags: Flags = {("environment", name): value for name, value in environment.items()}
    if start is not None:
        flags["launcher", "mpirun"] = ""
        for word, value in _split(argv[start + 1 : python]):
            name = _SHORT.get(word, f"--{word.lstrip('-')}")
            if name != "--x":
                flags["launcher", name] = value
            elif value not in environment:  # a variable is compared itself, not that it is passed
                flags["launcher", f"--x {value}"] = ""
    for name, value in _split(argv[python + 1 : script]):
        flags["interpreter", name] = value
    flags["program", "script"] = PurePosixPath(argv[script]).name
    for name, value in _split(argv[script + 1 :]):
        flags["program", name] = value
    return flags


def _split(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word.lstrip("-") == "mca":
            yield f"{word} {rest.pop(0)}", rest.pop(0)
        elif "=" in word:
            name, _, value = word.partition("=")
            yield name, value
        else:
            values = []
            while rest and not rest[0].startswith("-"):
                values.append(rest.pop(0))
            yield word, " ".join(values)


def differences(
    reproduction: Reproduction, workload: Workload, run: Run, nodes: Sequence[Node]
) -> list[FoundDifference]:
    """The differences between the run and what the report's script ran for the case."""
    found: dict[FoundDifference, None] = {}
    for command in run.commands:
        values = _values(workload, run, command, nodes)
        theirs = _filled(published_command(reproduction, run), run, values)
        own = command.bare
        published, ours = flags_of(theirs.argv, theirs.env), flags_of(own.argv, own.env)
        for key in (*published, *(key for key in ours if key not in published)):
            if published.get(key) != ours.get(key):
                found[FoundDifference(*key, published.get(key), ours.get(key))] = None
    return list(found)


def published_command(reproduction: Reproduction, run: Run) -> PublishedCommand:
    """The report's command for the case; the first one if it has none for the topology."""
    topology = Topology(run.nodes, run.gpus_per_node)
    fitting = [c for c in reproduction.commands if topology in (c.topologies or [topology])]
    return (*fitting, reproduction.commands[0])[0]


def on_first_node(
    command: PublishedCommand, workload: Workload, run: Run, nodes: Sequence[Node]
) -> Command:
    """The report's command with the values of the run, for its first node."""
    return _filled(command, run, _values(workload, run, run.commands[0], nodes))


def is_declared(
    found: FoundDifference,
    declared: DeclaredDifference,
    workload: Workload,
    run: Run,
    nodes: Sequence[Node],
) -> bool:
    """True if a declared difference, with the values of the run, is the one that was found."""
    return any(
        found == FoundDifference(declared.part, declared.item, published, ours)
        for command in run.commands
        for values in [_values(workload, run, command, nodes)]
        for published, ours in [(_text(declared.published, values), _text(declared.ours, values))]
    )


def _text(template: str | None, values: Mapping[str, object]) -> str | None:
    return None if template is None else fill([template], values)[0]


def _filled(command: PublishedCommand, run: Run, values: Mapping[str, object]) -> Command:
    argv = fill((*command.argv, *command.on_precision.get(run.precision, ())), values)
    variables = fill(command.environment.values(), values)
    return Command(run.hosts[0], argv, dict(zip(command.environment, variables, strict=True)))


def _values(
    workload: Workload, run: Run, command: Command, nodes: Sequence[Node]
) -> dict[str, object]:
    by_name = {node.name: node for node in nodes}
    hosts = [by_name[name] for name in run.hosts]
    slots = ",".join(f"{host.name}:{run.gpus_per_node}" for host in hosts)
    return {
        **values_of(run, workload),
        "slots": slots,
        # The scripts call a single node localhost.
        "hosts": slots if len(hosts) > 1 else f"localhost:{run.gpus_per_node}",
        "addresses": ",".join(host.address for host in hosts),
        "address": by_name[command.host].address,
        "interface": by_name[command.host].interface,
        "cwd": command.cwd,
    }
