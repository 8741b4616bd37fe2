"""A plan as people read it: every command, as it could be pasted into a shell."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ..catalog.reader import own_workloads, unit_of
from ..catalog.source import DataParameter
from ..core.lists import counted, grouped, name_ranges
from ..core.units import BANDWIDTH

# So many nodes have a line each.
FEW = 8


def render(document: Mapping[str, Any]) -> str:
    """Every command, per host, grouped by case; repeats with the same commands once."""
    return "".join(f"{line}\n" for line in _lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    cases: dict[str, list[Mapping[str, Any]]] = grouped(document["runs"], itemgetter("case"))
    for case, runs in cases.items():
        across = len(runs[0].get("nvlink_domains", ()))  # plans of earlier versions have none
        where = f", across {across} NVLink domains" if across > 1 else ""
        yield f"{case}: {_described(runs)}{where}"
        for commands, same in itertools.groupby(runs, lambda run: run["commands"]):
            repeats = [run["repeat"] for run in same]
            label = f"r{repeats[0]}" + (f"..r{repeats[-1]}" if len(repeats) > 1 else "")
            for host, line in _collapsed(commands):
                yield f"  {label} on {host}: {line}"
        yield ""
    for case, name in _without_data(cases).items():
        yield f"{case}: data=synthetic; the published run read {name} (see docs/datasets.md)"
    order = _order(document["choice"]) if len(document["runs"]) > len(cases) > 1 else ""
    if hours := sum(run["nodes"] * run["timeout_s"] for run in document["runs"]) / 3600:
        shown = f"{hours:,.{0 if hours >= 10 else 1}f}"
        yield f"at most {shown} node-hours, if each run takes its time limit"
    yield f"{counted(len(cases), 'case')}, {counted(len(document['runs']), 'run')}{order};" + (
        " nothing was run"
    )
    if "campaign" in document:
        yield f"campaign {document['campaign']}"


def _collapsed(commands: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(host, line) of each command. Many that differ in nothing but a rank that counts up by one
    are one line: `node001..node999`, `--node-rank={0..998}`."""
    if len(commands) <= FEW:
        yield from ((command["host"], shell_line(command)) for command in commands)
        return
    rest = list(commands)
    while rest:
        length, joined = _alike(rest)
        hosts = name_ranges([command["host"] for command in rest[:length]])
        yield hosts, shell_line(joined)
        rest = rest[length:]


def _alike(commands: Sequence[Mapping[str, Any]]) -> tuple[int, Mapping[str, Any]]:
    """The number of first commands that are one but for a rank, and that one."""
    first = commands[0]
    place: int | None = None
    for length, command in enumerate(commands[1:], 1):
        argv = command["argv"]
        is_same = (command["cwd"], command["env"]) == (first["cwd"], first["env"])
        if not is_same or len(argv) != len(first["argv"]):
            break
        differing = [at for at, word in enumerate(argv) if word != first["argv"][at]]
        if len(differing) > 1 or (differing and place not in (None, differing[0])):
            break
        place = differing[0] if differing else place
        if place is not None and argv[place] != _counted_up(first["argv"][place], length):
            break
    else:
        length = len(commands)
    if place is None or length == 1:
        return length, first
    word = first["argv"][place]
    until = re.sub(r"\d+$", lambda number: f"{{{number[0]}..{int(number[0]) + length - 1}}}", word)
    return length, {**first, "argv": [*first["argv"][:place], until, *first["argv"][place + 1 :]]}


def _counted_up(word: str, by: int) -> str:
    """--node-rank=7 for --node-rank=0 and 7."""
    return re.sub(r"\d+$", lambda number: str(int(number[0]) + by), word)


def _data(run: Mapping[str, Any]) -> object:
    """The kind of training data, as results have it among the parameters."""
    workload = own_workloads().get(run["workload"])
    parameters = workload.measured_parameters(run["source"], run["parameters"]) if workload else {}
    return parameters.get("data")


def _without_data(cases: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """The workloads whose published program runs on GPUs without the data set that it read."""
    names = {}
    for first in (runs[0] for runs in cases.values()):
        workload = own_workloads().get(first["workload"])
        source = workload.sources.named(first["source"]) if workload else None
        if source is None or first["accelerator"] == "cpu" or _data(first) != "synthetic":
            continue
        if isinstance(source.data, DataParameter) and source.data.dataset:
            names[f"{first['workload']}-{first['source']}"] = source.data.dataset
    return names


def _order(choice: Mapping[str, Any]) -> str:
    seed = f" (seed {choice['seed']})" if choice.get("seed") is not None else ""
    # Plans of earlier versions have no such key, and were grouped.
    return f", {choice.get('order', 'grouped')}{seed}"


def _described(runs: Sequence[Mapping[str, Any]]) -> str:
    first = runs[0]
    data = _data(first)
    size = f"batch {first['batch_size_per_device']} per device"
    if unit_of(first["workload"]) == BANDWIDTH:
        size = f"up to {first['parameters']['message_bytes']} bytes"
    return (
        f"{counted(first['nodes'], 'node')} with {counted(first['gpus_per_node'], 'device')}"
        f" ({_hosts(first['hosts'])}), {first['precision']}, {size},"
        f" {first['total_steps']} iterations of which {first['warmup_steps']} are warm-up,"
        f" {counted(len(runs), 'run')}" + (f", data={data}" if data else "")
    )


def _hosts(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= FEW else name_ranges(names)


def shell_line(command: Mapping[str, Any]) -> str:
    """The command as it could be pasted into a shell; it is never run through one."""
    variables = [f"{name}={value}" for name, value in command["env"].items()]
    line = shlex.join([*(["env", *variables] if variables else []), *command["argv"]])
    return f"cd {shlex.quote(command['cwd'])} && {line}" if command["cwd"] else line
