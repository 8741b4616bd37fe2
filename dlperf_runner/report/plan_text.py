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
        across = len(runs[0]["nvlink_domains"])
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
    order, choice = "", document["choice"]
    if len(document["runs"]) > len(cases) > 1:
        seed = f" (seed {choice['seed']})" if choice.get("seed") is not None else ""
        order = f", {choice['order']}{seed}"
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
    for _, several in itertools.groupby(commands, _without_ranks):
        alike = list(several)
        words = [_counted_up(column) for column in zip(*(c["argv"] for c in alike), strict=True)]
        if None in words:
            yield from ((command["host"], shell_line(command)) for command in alike)
        else:
            hosts = name_ranges([command["host"] for command in alike])
            yield hosts, shell_line({**alike[0], "argv": words})


def _without_ranks(command: Mapping[str, Any]) -> tuple[object, ...]:
    """The command without the numbers at the end of its words."""
    return command["cwd"], command["env"], [re.sub("[0-9]+$", "", word) for word in command["argv"]]


def _counted_up(words: Sequence[str]) -> str | None:
    """--node-rank={0..7} for --node-rank=0, --node-rank=1 and so on; the word if all are the same;
    None if they differ otherwise."""
    stem = words[0].rstrip("0123456789")
    if len(set(words)) == 1:
        return words[0]
    first = int(words[0][len(stem) :] or 0)
    numbers = range(first, first + len(words))
    is_rank = [*words] == [f"{stem}{number}" for number in numbers]
    return f"{stem}{{{numbers[0]}..{numbers[-1]}}}" if is_rank else None


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
