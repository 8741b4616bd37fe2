"""Generates docs/reproducing/, a page for each reproduced report, from the catalogue:

python -m tools.reproducing_pages docs/reproducing
"""

from __future__ import annotations

import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from dlperf_runner.catalog.publication import (
    DeclaredDifference,
    PublishedCommand,
    PublishedReport,
    Reproduction,
)
from dlperf_runner.catalog.published_numbers import load_published, reproduced_reports
from dlperf_runner.catalog.reader import load_catalog, mpirun_of
from dlperf_runner.catalog.source import UpstreamSource
from dlperf_runner.catalog.stack import Stack
from dlperf_runner.catalog.types import fill
from dlperf_runner.catalog.workload import Workload
from dlperf_runner.compare.conditions import values_agree
from dlperf_runner.core.case import Command, Run, Topology
from dlperf_runner.core.files import write_whole
from dlperf_runner.core.lists import counted
from dlperf_runner.core.node import Node
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan
from dlperf_runner.plan.parameters import values_of
from dlperf_runner.report.plan_text import shell_line
from dlperf_runner.stats.ratios import LEAST_RUNS

STACK = "v100-cuda10.2"
# The cluster of inventory/example.
NODES = tuple(
    Node(
        name=f"NODE{number}",
        address=f"10.11.0.{number + 1}",
        devices_per_node=8,
        accelerator="Tesla V100-SXM2-16GB",
        stack=STACK,
        interface="ib0",
        mpirun=mpirun_of(STACK),
        container_images={"nvcr.io/nvidia/tensorflow:20.12-tf1-py3": "sha256:" + "0" * 64},
    )
    for number in range(1, 5)
)
_KINDS = {
    "changed": "changed",
    "site": "of the site",
    "default": "the default, stated",
    "form": "another form",
}
_MPIRUN = {"mpirun", "mpiexec", "orterun"}
_SHORT = {"-H": "--host", "-n": "--np", "-c": "--np"}
_PYTHON = re.compile(r"python[\d.]*")

Flags = dict[tuple[str, str], str]


def pages() -> dict[str, str]:
    """The pages by the name of their file."""
    return {f"{report.name}.md": _page(report) for report in reproduced_reports()}


def published_runs(
    workload: str, repeats: int | None = None, nodes: Sequence[Node] = NODES
) -> tuple[Run, ...]:
    """The published matrix of the upstream source on the cluster of inventory/example, as often as
    the report has it if `repeats` is None."""
    options = {"workload": workload, "source": "upstream", "matrix": "published"}
    options |= {} if repeats is None else {"repeats": str(repeats)}
    return make_plan(parse_choice({**options, "order": "grouped"}), load_catalog(), nodes)


def _page(report: PublishedReport) -> str:
    catalog = load_catalog()
    workload, reproduction = catalog.workload(report.workload or ""), report.reproduction
    source = workload.sources.upstream
    if reproduction is None or source is None:
        raise ValueError(f"{report.name} is not reproduced")
    runs = published_runs(workload.name)
    repeats = max(run.repeat for run in runs)
    if repeats < LEAST_RUNS:
        runs = published_runs(workload.name, LEAST_RUNS)
    firsts = [run for run in runs if run.repeat == 1]
    sections = (
        _head(report, workload, source, repeats),
        _commands(reproduction, workload, firsts),
        _flags(reproduction, workload, firsts),
        _environment(report, reproduction, catalog.stacks[STACK]),
        _patches(source),
        _needs(report, reproduction, runs),
        _comparison(report, workload),
        ["## What only these GPUs show", "", *(f"- {text}" for text in reproduction.only_there)],
    )
    return "\n".join(line for section in sections for line in (*section, "")).rstrip("\n") + "\n"


def _head(
    report: PublishedReport, workload: Workload, source: UpstreamSource, repeats: int
) -> list[str]:
    data = source.data
    few = repeats < LEAST_RUNS
    option = f" -p {data.parameter}=..." if not isinstance(data, str | None) else ""
    return [
        f"# {report.title}",
        "",
        f"How `{workload.name}` reproduces the report of {report.publisher}"
        f" ({report.source}; {report.date}).",
        "This page is generated with `python -m tools.reproducing_pages docs/reproducing`"
        " from the catalogue and the plan; a test fails if it is out of date.",
        "",
        f"    dlperf run -i inventory/mine --workload {workload.name} --source upstream"
        f" --matrix published{f' --repeats {LEAST_RUNS}' if few else ''}{option}",
        "    dlperf compare results/latest",
        "",
        *(
            [
                f"The report has {counted(repeats, 'run')} of each case. A verdict needs"
                f" {LEAST_RUNS}, hence `--repeats {LEAST_RUNS}`.",
                "",
            ]
            if few
            else []
        ),
        f"The program is {source.repository} at {source.commit}.",
    ]


def _commands(reproduction: Reproduction, workload: Workload, runs: Sequence[Run]) -> list[str]:
    lines = ["## The command", ""]
    for pick in (min, max):
        run = pick(runs, key=lambda run: run.world_size)
        command = published_command(reproduction, run)
        theirs = _filled(command, run, _values(workload, run, run.commands[0]))
        where = f"{command.script} of {command.repository} at {command.commit[:12]}"
        first = run.commands[0].bare
        within = f", inside a container of `{run.container.split()[1]}`" if run.container else ""
        name = f"{run.nodes}n{run.gpus_per_node}g, {run.precision}, batch"
        lines += [
            f"### {name} {run.batch_size_per_device}",
            "",
            f"Published ({where}):",
            "",
            f"    {shell_line(asdict(theirs))}",
            "",
            f"Ours, on {first.host}{within}:",
            "",
            f"    {shell_line(asdict(first))}",
            "",
        ]
    return lines[:-1]


def _flags(reproduction: Reproduction, workload: Workload, runs: Sequence[Run]) -> list[str]:
    rows: dict[tuple[str, str], str] = {}
    for run, gap, declared in declared_differences(reproduction, workload, runs):
        if not declared:
            raise ValueError(f"{run.case} has an undeclared difference: {gap}")
        values = _cell(gap.published, gap.ours), _cell(gap.ours, gap.published)
        kind, reason = _KINDS[declared[0].kind], declared[0].reason
        rows.setdefault((gap.item, reason), _row(f"`{gap.item}`", *values, kind, reason))
    equal = [
        f"`{item}{' ' if value else ''}{value}`"
        for run in runs[:1]
        for (part, item), value in flags_of(run.commands[0].bare.argv, run.commands[0].env).items()
        if part in ("program", "launcher") and item not in {item for item, _ in rows}
        if item not in ("mpirun", "script") and not item.startswith("--x ")
    ]
    return [
        "## Flag by flag",
        "",
        "Equal: " + ", ".join(equal) + ".",
        "",
        "Every difference between the planned commands and the published ones, over all cases of"
        " the published matrix, with the values of the first case that has it:",
        "",
        *_table("flag or variable", "published", "ours", "kind", "why"),
        *rows.values(),
    ]


def _environment(
    report: PublishedReport, reproduction: Reproduction, stack: Stack
) -> Iterator[str]:
    yield from ("## The environment", "", *_table("", "published", "ours", "why"))
    declared = {software.item.lower(): software for software in reproduction.software}
    yield _row("GPU", report.conditions.accelerator, "those of the nodes", "")
    releases = {
        "driver": (report.conditions.driver, stack.driver),
        "CUDA": (report.conditions.cuda, stack.cuda),
        "cuDNN": (report.conditions.cudnn, stack.cudnn),
        "NCCL": (report.conditions.nccl, stack.nccl),
    }
    for name, (published, ours) in releases.items():
        if published and ours and name.lower() not in declared:
            if not values_agree("cuda", published, ours.version):
                raise ValueError(f"{report.name}: {name} {ours.version} differs without a reason")
            yield _row(name, published, ours.version, "")
    for software in reproduction.software:
        yield _row(software.item, software.published, software.ours, software.reason or "")


def _patches(source: UpstreamSource) -> list[str]:
    edits = [(patch.file, patch.reason) for patch in source.patches]
    edits += [(f"{added.file} (added)", added.reason) for added in source.added_files]
    lines = ["## What is changed in the program", ""]
    if not edits:
        return [*lines, "Nothing."]
    rows = dict.fromkeys(_row(f"`{file}`", reason) for file, reason in edits)
    return [*lines, *_table("file", "why"), *rows]


def _needs(report: PublishedReport, reproduction: Reproduction, runs: Sequence[Run]) -> list[str]:
    speeds = {
        (n.workload_model, n.precision, n.batch_size_per_device, n.topology): n.samples_per_second
        for n in load_published()
        if n.report == report.name and n.reproduced
    }
    seconds = 0.0
    for run in runs:
        batch, topology = run.batch_size_per_device, Topology(run.nodes, run.gpus_per_node)
        speed = speeds[run.model, run.precision, batch, topology]
        seconds += run.total_steps * batch * run.world_size / speed
    return [
        "## What it takes",
        "",
        f"- Time: {len(runs)} runs. Training takes {seconds / 3600:.1f} hours at the published"
        " speed; starting the programs comes on top, and is not published.",
        f"- Disk: {reproduction.needs.disk}.",
        f"- GPU memory: {reproduction.needs.gpu_memory}.",
    ]


def _comparison(report: PublishedReport, workload: Workload) -> list[str]:
    rule = workload.rule
    estimator = rule.published_estimator or rule.estimator
    return [
        "## How to compare",
        "",
        "`dlperf compare results/latest` sets each case beside the published number, and names"
        " every condition that differs, among them what is *changed* above. The published"
        f" estimator is `{estimator}` over {rule.total_steps - rule.warmup_steps} of"
        f" {rule.total_steps} steps; see [Compare results](../comparing.md) for the verdicts.",
        "",
        "Addresses of the published logs:",
        "",
        *(f"- {address}" for address in report.logs),
    ]


def _table(*names: str) -> tuple[str, str]:
    return _row(*names), _row(*("---" for _ in names))


def _row(*cells: str | None) -> str:
    return "| " + " | ".join((cell or "").replace("|", "\\|") for cell in cells) + " |"


def _cell(value: str | None, other: str | None) -> str:
    """A value: a flag without one is given, unless the other command has one."""
    if value is None:
        return "-"
    return f"`{value}`" if value else "empty" if other else "given"


# ---- the planned command beside that of the report's script, flag by flag. Two spellings of a flag
# are equal: `--lr=1` and `--lr 1`; of mpirun's, `-mca` and `--mca`. Of the interpreter and the
# script, the path does not count.


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


def declared_differences(
    reproduction: Reproduction, workload: Workload, runs: Sequence[Run]
) -> Iterator[tuple[Run, FoundDifference, list[DeclaredDifference]]]:
    """Every difference between a run and what the report's script ran for the case, with its
    declarations."""
    for run in runs:
        gaps: dict[FoundDifference, None] = {}
        declarations: dict[FoundDifference, list[DeclaredDifference]] = defaultdict(list)
        for command in run.commands:
            values = _values(workload, run, command)
            theirs = _filled(published_command(reproduction, run), run, values)
            published = flags_of(theirs.argv, theirs.env)
            ours = flags_of(command.bare.argv, command.bare.env)
            for key in {**published, **ours}:
                if published.get(key) != ours.get(key):
                    gaps[FoundDifference(*key, published.get(key), ours.get(key))] = None
            for each in reproduction.differences:
                texts = _text(each.published, values), _text(each.ours, values)
                fitting = declarations[FoundDifference(each.part, each.item, *texts)]
                fitting += [each] if each not in fitting else []
        yield from ((run, gap, declarations[gap]) for gap in gaps)


def published_command(reproduction: Reproduction, run: Run) -> PublishedCommand:
    """The report's command for the case; the first one if it has none for the topology."""
    topology = Topology(run.nodes, run.gpus_per_node)
    fitting = [c for c in reproduction.commands if topology in (c.topologies or [topology])]
    return (*fitting, reproduction.commands[0])[0]


def _text(template: str | None, values: Mapping[str, object]) -> str | None:
    return None if template is None else fill([template], values)[0]


def _filled(command: PublishedCommand, run: Run, values: Mapping[str, object]) -> Command:
    argv = fill((*command.argv, *command.on_precision.get(run.precision, ())), values)
    variables = fill(command.environment.values(), values)
    return Command(run.hosts[0], argv, dict(zip(command.environment, variables, strict=True)))


def _values(workload: Workload, run: Run, command: Command) -> dict[str, object]:
    by_name = {node.name: node for node in NODES}
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


if __name__ == "__main__":
    for file, page in pages().items():
        write_whole(Path(sys.argv[1]) / file, page)
