"""A plan as people read it: every command, as it could be pasted into a shell."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Any

from ..catalog.reader import own_workloads, unit_of
from ..catalog.source import DataParameter
from ..core.lists import counted, grouped
from ..core.units import BANDWIDTH


def render(document: Mapping[str, Any]) -> str:
    """Every command, per host, grouped by case; repeats with the same commands once."""
    return "".join(f"{line}\n" for line in _lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    cases: dict[str, list[Mapping[str, Any]]] = grouped(document["runs"], itemgetter("case"))
    for case, runs in cases.items():
        yield f"{case}: {_described(runs)}"
        for commands, same in itertools.groupby(runs, lambda run: run["commands"]):
            repeats = [run["repeat"] for run in same]
            label = f"r{repeats[0]}" + (f"..r{repeats[-1]}" if len(repeats) > 1 else "")
            for command in commands:
                yield f"  {label} on {command['host']}: {shell_line(command)}"
        yield ""
    for case, name in _without_data(cases).items():
        yield f"{case}: data=synthetic; the published run read {name} (see docs/datasets.md)"
    order = _order(document["choice"]) if len(document["runs"]) > len(cases) > 1 else ""
    yield f"{counted(len(cases), 'case')}, {counted(len(document['runs']), 'run')}{order};" + (
        " nothing was run"
    )
    if "campaign" in document:
        yield f"campaign {document['campaign']}"


def _data(run: Mapping[str, Any]) -> object:
    """The kind of training data, as results have it among the parameters."""
    workload = own_workloads().get(run["workload"])
    known = workload.measured_parameters(run["source"], run["parameters"]) if workload else {}
    return known.get("data")


def _without_data(cases: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, str]:
    """The workloads whose published program runs on GPUs without the data set that it read."""
    found = {}
    for first in (runs[0] for runs in cases.values()):
        workload = own_workloads().get(first["workload"])
        source = workload.sources.named(first["source"]) if workload else None
        if source is None or first["accelerator"] == "cpu" or _data(first) != "synthetic":
            continue
        if isinstance(source.data, DataParameter) and source.data.dataset:
            found[f"{first['workload']}-{first['source']}"] = source.data.dataset
    return found


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
        f" ({', '.join(first['hosts'])}), {first['precision']}, {size},"
        f" {first['total_steps']} iterations of which {first['warmup_steps']} are warm-up,"
        f" {counted(len(runs), 'run')}" + (f", data={data}" if data else "")
    )


def shell_line(command: Mapping[str, Any]) -> str:
    """The command as it could be pasted into a shell; it is never run through one."""
    variables = [f"{name}={value}" for name, value in command["env"].items()]
    line = shlex.join([*(["env", *variables] if variables else []), *command["argv"]])
    return f"cd {shlex.quote(command['cwd'])} && {line}" if command["cwd"] else line
