"""Plans the runs from a choice, the catalogue and the nodes. Each run has a stable ID.

If a choice needs more nodes or devices than the inventory has, planning fails. It never reduces
the choice silently.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain, zip_longest
from operator import attrgetter
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from .. import launchers
from ..catalog.reader import lookup
from ..catalog.types import fill
from ..core.case import SCHEMA, Case, Command, Run, Window
from ..core.errors import UserError
from ..core.lists import counted, grouped
from ..core.node import ENVIRONMENTS, SOURCES, nvlink_domains, require_same
from ..schedulers.job import is_placeholder
from . import containers, parameters
from .cases import cases_of, chosen_matrix, no_case, select_workloads
from .choice import Choice, check_choice

if TYPE_CHECKING:
    from ..catalog.framework import Environment
    from ..catalog.reader import Catalog
    from ..catalog.source import Source
    from ..catalog.workload import Workload
    from ..core.node import Node


_GRACE = re.compile(r"\bG[BH]\d{3}")


def make_plan(choice: Choice, catalog: Catalog, nodes: Sequence[Node]) -> tuple[Run, ...]:
    """The runs in the chosen order, with the cases in the order of the matrices."""
    check_choice(choice)
    if not nodes:
        raise UserError("cannot make a plan without nodes")
    workloads = select_workloads(choice, catalog, nodes)
    parameters.check_names(choice, workloads)
    planned = [
        (workload, matrix_name, case)
        for workload in workloads
        for matrix_name in [chosen_matrix(choice, workload, nodes)]
        for case in cases_of(choice, workload, matrix_name, nodes)
    ]
    if not planned:
        raise no_case(choice, workloads)
    hosts_of = _place([case for _, _, case in planned], nodes)
    _refuse_processor(catalog, nodes[0])
    _refuse_mixed_nodes([host for hosts in hosts_of.values() for host in hosts])
    runs = [
        run
        for workload, matrix_name, case in planned
        for run in _runs(choice, catalog, workload, matrix_name, case, hosts_of[case.id])
    ]
    parameters.refuse_equal_cases(runs, catalog)
    return ordered(runs, choice.order, choice.seed)


def plan_document(choice: Choice, nodes: Sequence[Node], runs: Sequence[Run]) -> dict[str, Any]:
    """The document that `plan --json` prints."""
    return {
        "schema": SCHEMA,
        "choice": asdict(choice),
        "inventory": [asdict(node) for node in nodes],
        "runs": [asdict(run) for run in runs],
    }


def _place(cases: Sequence[Case], nodes: Sequence[Node]) -> dict[str, tuple[Node, ...]]:
    """The hosts per case: the first hosts in inventory order that have enough devices, within one
    NVLink domain if one has so many, else domain by domain."""
    placed, missing = {}, []
    for case in cases:
        topology = case.topology
        fitting = [node for node in nodes if node.devices_per_node >= topology.gpus_per_node]
        if len(fitting) < topology.nodes:
            missing.append(topology)
        domains = grouped(fitting, attrgetter("nvlink_domain"))
        enough = (
            members for name, members in domains.items() if name and len(members) >= topology.nodes
        )
        by_domain = [*chain.from_iterable(domains.values())]
        placed[case.id] = tuple(next(enough, by_domain)[: topology.nodes])
    if missing:
        needs = (
            f"{topology} needs {counted(topology.nodes, 'node')}"
            f" with {counted(topology.gpus_per_node, 'device')}"
            for topology in dict.fromkeys(missing)
        )
        raise UserError(
            "the plan needs more than the inventory has:\n  "
            + "\n  ".join(needs)
            + f"\n  the inventory has {_describe(nodes)}",
            hint="reduce the plan with --nodes, --gpus-per-node or --matrix",
        )
    return placed


def _describe(nodes: Sequence[Node]) -> str:
    """For each number of devices: `node1..node4 with 2 devices each`."""
    return ", ".join(
        f"{_span([node.name for node in same])} with {counted(devices, 'device')}"
        + (" each" if len(same) > 1 else "")
        for devices, same in grouped(nodes, attrgetter("devices_per_node")).items()
    )


def _span(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{len(names)} nodes {names[0]}..{names[-1]}"


def _refuse_mixed_nodes(hosts: Sequence[Node]) -> None:
    """Raise UserError if the nodes differ: runs of one plan are compared with each other."""
    problem = "the nodes of one plan must be of the same kind"
    hint = "select nodes of one kind with --limit, or use a separate inventory"
    for name in ("accelerator", "stack"):
        values = [getattr(host, name) for host in hosts]
        require_same(hosts, f"dlperf_{name}", values, problem, hint)


def _runs(
    choice: Choice,
    catalog: Catalog,
    workload: Workload,
    matrix_name: str,
    case: Case,
    hosts: tuple[Node, ...],
) -> list[Run]:
    matrix = workload.matrices[matrix_name]
    first = hosts[0]
    source = dict(workload.sources.items())[case.source]
    on_gpu = _on_gpu(catalog, first)
    fabric = catalog.stack_of(first).infiniband
    environment = _environment(catalog, workload, source, first)
    python = f"{ENVIRONMENTS}/{environment}/bin/python"
    framework = catalog.framework(workload.framework)
    entry = framework.environments_on(first.stack)[environment]
    image = _image(choice, catalog, entry, environment, python, hosts)
    case = replace(case, container=image.engine if image else "")
    defaults = parameters.parameters_of(choice, workload, matrix, case)
    dataset, filled = parameters.fill_data(choice, workload.name, source, defaults, hosts)
    parameters.refuse_lacking(workload, source, case, filled)
    short_name = (workload.variants.get(case.variant) or workload).short_name
    batch, topology = case.batch, case.topology
    data = parameters.mounted(source.data, filled, workload.name) if image else ()
    # An image with a definition of its own (`container`) has its variables in it.
    variables = dict(entry.variables) if not image or entry.container is None else {}
    if on_gpu and fabric and fabric.rails and topology.nodes > 1:
        variables["NCCL_IB_HCA"] = fabric.rails
    launcher = workload.launcher_of(source, filled)
    lookup("launcher", launcher, launchers.launchers(), "--parameter launcher")
    if source.launcher_options.options_for(topology) is None:
        launcher = "direct"
    fitted = _run(workload, matrix_name, case, hosts, environment, filled)
    fitted = replace(
        fitted,
        dataset=dataset,
        container=str(image or ""),
        first_step_s=matrix.first_step_s or framework.first_step_s,
    )
    runs = []
    for repeat in range(1, (choice.repeats or matrix.repeats) + 1):
        run = replace(
            fitted,
            id=f"{case.id}/r{repeat}",
            repeat=repeat,
            log_name=f"{short_name}_b{batch.batch_size_per_device}_{batch.precision}_{repeat}.log",
        )
        values = parameters.values_of(run, workload)
        values["python"] = image.python if image else python
        program = _program(workload, source, case, values, on_gpu)
        program = replace(program, environment={**variables, **program.environment})
        where = {"on_gpu": on_gpu, "has_fabric": bool(fabric)}
        commands = _commands(run, launcher, program, hosts, image, data, **where)
        runs.append(replace(run, commands=commands))
    return runs


def _run(
    workload: Workload,
    matrix_name: str,
    case: Case,
    hosts: tuple[Node, ...],
    environment: str,
    filled: dict[str, str | int | float],
) -> Run:
    """A run of the case that has no number yet, and no commands."""
    matrix = workload.matrices[matrix_name]
    return Run(
        id="",
        case=case.id,
        repeat=0,
        workload=workload.name,
        framework=workload.framework,
        model=case.model,
        source=case.source,
        precision=case.batch.precision,
        batch_size_per_device=case.batch.batch_size_per_device,
        nodes=case.topology.nodes,
        gpus_per_node=case.topology.gpus_per_node,
        world_size=case.topology.world_size,
        total_steps=case.window.total_steps,
        warmup_steps=case.window.warmup_steps,
        stack=hosts[0].stack,
        accelerator=hosts[0].accelerator,
        environment=environment,
        dataset="",
        container="",
        log_format=workload.log_format,
        log_name="",
        timeout_s=_timeout(workload, matrix_name, case.window),
        hung_after_s=matrix.hung_after_s,
        hung_after_lines=matrix.hung_after_lines,
        first_step_s=0,
        hosts=tuple(host.name for host in hosts),
        # Which nodes a scheduler's job will have is not known.
        nvlink_domains=()
        if is_placeholder(hosts[0].name)
        else nvlink_domains({host.name: host.nvlink_domain for host in hosts}),
        parameters=filled,
        commands=(),
    )


def _commands(
    run: Run,
    launcher: str,
    program: launchers.Program,
    hosts: tuple[Node, ...],
    image: containers.Image | None,
    data: tuple[str, ...],
    *,
    on_gpu: bool,
    has_fabric: bool,
) -> tuple[Command, ...]:
    if not image:
        return launchers.launch(launcher, program, hosts)
    unpacked = f"{SOURCES}/{run.workload}-{run.source}"
    if is_placeholder(hosts[0].name):
        seen = [unpacked, *data]
        return containers.launch_in_job(
            launcher, program, hosts, run.container, read_only=seen, has_fabric=has_fabric
        )
    return tuple(
        containers.enclose(
            command,
            image,
            hosts,
            run.id,
            data=data,
            source=unpacked,
            on_gpu=on_gpu,
            has_fabric=has_fabric,
        )
        for command in containers.launch(launcher, program, hosts, image)
    )


def _timeout(workload: Workload, matrix_name: str, window: Window) -> int:
    """The matrix's time limit, increased in proportion if more iterations were chosen."""
    longer = max(1.0, window.total_steps / workload.rule_of(matrix_name).total_steps)
    return math.ceil(workload.matrices[matrix_name].timeout_s * longer)


def _program(
    workload: Workload, source: Source, case: Case, values: Mapping[str, object], on_gpu: bool
) -> launchers.Program:
    argv = (
        *source.argv,
        *source.on_precision.get(case.batch.precision, ()),
        *(source.on_several_nodes.get(case.batch.precision, ()) if case.topology.nodes > 1 else ()),
        *(source.on_gpu if on_gpu else source.on_cpu),
    )
    directory = getattr(source, "directory", "")
    cwd = str(PurePosixPath(SOURCES, f"{workload.name}-{case.source}", directory))
    environment = dict(
        zip(source.environment, fill(source.environment.values(), values), strict=True)
    )
    program = launchers.Program(
        argv=fill(argv, values),
        gpus_per_node=case.topology.gpus_per_node,
        on_gpu=on_gpu,
        environment=environment,
        cwd=cwd,
        launcher_options=fill(source.launcher_options.options_for(case.topology) or (), values),
    )
    return launchers.in_run_directory(program) if source.started_in == "run" else program


def _on_gpu(catalog: Catalog, node: Node) -> bool:
    stack = catalog.stack_of(node)
    on_gpu = stack.accelerator == "gpu"
    if on_gpu == (node.accelerator == "cpu"):
        raise UserError(
            "the accelerator does not match the stack",
            where=f"host {node.name}: dlperf_accelerator",
            expected=f"{'a GPU' if on_gpu else 'cpu'}, as in the stack {stack.name}",
            found=node.accelerator,
        )
    return on_gpu


def _refuse_processor(catalog: Catalog, node: Node) -> None:
    """Raise UserError if the stack has no packages for the processors beside these GPUs: GH200,
    GB200 and GB300 have Arm's."""
    stack = catalog.stack_of(node)
    if _GRACE.search(node.accelerator) and "aarch64" not in stack.processors:
        fitting = [each.name for each in catalog.stacks.values() if "aarch64" in each.processors]
        raise UserError(
            f"the stack {stack.name} has no packages for the Arm processors of {node.accelerator}",
            where=f"host {node.name}: dlperf_stack",
            expected=" or ".join(fitting),
            found=node.stack,
            hint="choose such a stack; or keep the nodes' own software (dlperf_adopt: all), with"
            " images of the frameworks and dlperf_stack_overrides: {processors: [aarch64]}",
        )


def _environment(catalog: Catalog, workload: Workload, source: Source, node: Node) -> str:
    framework = catalog.framework(workload.framework)
    name = framework.environment_name(node.stack, source.flavor)
    if name is None:
        raise UserError(
            framework.why_not(node.stack),
            where=f"host {node.name}: dlperf_stack",
            expected=f"one of {', '.join(framework.stacks)}",
        )
    if source.stacks and node.stack not in source.stacks:
        raise UserError(
            f"this source of {workload.name} does not run on the stack {node.stack}",
            where=f"host {node.name}: dlperf_stack",
            expected=f"one of {', '.join(source.stacks)}",
            hint="choose another source with --source, or choose other nodes",
        )
    return name


def _image(
    choice: Choice,
    catalog: Catalog,
    environment: Environment,
    name: str,
    python: str,
    hosts: tuple[Node, ...],
) -> containers.Image | None:
    stack = catalog.stack_of(hosts[0])
    engine, *others = (
        containers.engine_for(choice.container, environment, stack, host) for host in hosts
    )
    if any(other != engine for other in others):
        raise UserError(
            "the nodes of one run have different container engines",
            where=", ".join(f"host {host.name}" for host in hosts) + ": dlperf_container_engine",
            expected="one engine",
            found=", ".join([engine, *others]),
        )
    return containers.image_for(engine, name, python, environment, hosts) if engine else None


def ordered(runs: Iterable[Run], order: str, seed: int | None) -> tuple[Run, ...]:
    """The runs in one of the orders of choice.ORDERS. The repeats of a case always ascend."""
    groups = list(grouped(runs, attrgetter("case")).values())
    if order == "grouped":
        return tuple(chain.from_iterable(groups))
    if order == "interleaved":
        return tuple(run for row in zip_longest(*groups) for run in row if run is not None)
    if seed is None:
        raise ValueError("a random order needs a seed")
    return tuple(_shuffled(groups, random.Random(seed)))  # noqa: S311  not for secrets


def _shuffled(groups: Sequence[Sequence[Run]], numbers: random.Random) -> Iterator[Run]:
    places = [index for index, group in enumerate(groups) for _ in group]
    following = [iter(group) for group in groups]
    # Python guarantees the same random() for a seed in every version, but not the same shuffle().
    for index in sorted(places, key=lambda _: numbers.random()):
        yield next(following[index])
