"""From a choice, the catalogue and the nodes to the runs to be made, each with a stable id.

Which cases a choice selects:

- `model` (a model, one of its networks, or a family), `framework` and `workload` select
  workloads; without any of them, every workload whose framework the nodes have.
- `matrix` gives the cases of each workload: batches (precision and batch size) times topologies.
- `precision`, `batch_size`, `nodes` and `gpus_per_node` narrow the matrix, each to one or several
  values. A value that the matrix does not have defines new cases instead:
  a precision runs the batch sizes of the matrix, a batch size runs its precisions;
  a number of nodes runs with the devices per node of the matrix's widest topology;
  a number of devices per node runs on one node.
- Naming both of a pair (precision and batch size; nodes and devices per node) gives exactly
  their combinations, whether the matrix has them or not.
- `iterations` without `warmup` keeps the published proportion of warm-up, rounded up.

A plan never asks for more than the inventory has: such a choice is refused, never cut down.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from . import launchers
from .case import Batch, Case, Run, Topology, Window
from .errors import UserError
from .template import fill

if TYPE_CHECKING:
    from .catalog import Catalog, Matrix, Rule, Workload
    from .inventory import Node

SCHEMA = 1
ENVIRONMENTS = "/opt/dlperf/envs"
SOURCES = "/opt/dlperf/src"
SOURCE_NAMES = ("builtin", "upstream")

_T = TypeVar("_T")
_Value = str | int | float


@dataclass(frozen=True)
class Choice:
    """What the user chose; an empty tuple or None means that nothing was said."""

    model: tuple[str, ...] = ()
    framework: tuple[str, ...] = ()
    workload: tuple[str, ...] = ()
    precision: tuple[str, ...] = ()
    batch_size: tuple[int, ...] = ()
    nodes: tuple[int, ...] = ()
    gpus_per_node: tuple[int, ...] = ()
    matrix: str | None = None
    repeats: int | None = None
    source: tuple[str, ...] = ()
    iterations: int | None = None
    warmup: int | None = None
    parameters: dict[str, str] = field(default_factory=dict)


def parse_choice(options: Mapping[str, object], parameters: Iterable[str] = ()) -> Choice:
    """A choice from texts such as `nodes="1,2"`; an empty text means that nothing was said.

    `options` has the names of Choice's fields. `parameters` are texts `name=value`.
    """
    texts = {name: str(value).strip() for name, value in options.items() if value is not None}
    source = _names(texts, "source")
    for name in source:
        if name not in SOURCE_NAMES:
            raise UserError(
                f"unknown source {name!r}",
                where=_option("source"),
                expected=f"one of {', '.join(SOURCE_NAMES)}",
            )
    return Choice(
        model=_names(texts, "model"),
        framework=_names(texts, "framework"),
        workload=_names(texts, "workload"),
        precision=_names(texts, "precision"),
        batch_size=_numbers(texts, "batch_size"),
        nodes=_numbers(texts, "nodes"),
        gpus_per_node=_numbers(texts, "gpus_per_node"),
        matrix=texts.get("matrix") or None,
        repeats=_number(texts, "repeats"),
        source=source,
        iterations=_number(texts, "iterations"),
        warmup=_number(texts, "warmup", least=0),
        parameters=_parameters(parameters),
    )


def choice_options(choice: Choice) -> dict[str, str]:
    """The choice as texts that `parse_choice` takes, what was not said left out."""
    options: dict[str, str] = {}
    for name, value in asdict(choice).items():
        if name == "parameters" or value is None or value == ():
            continue
        is_list = isinstance(value, list | tuple)
        options[name] = ",".join(str(item) for item in value) if is_list else str(value)
    return options


def make_plan(choice: Choice, catalog: Catalog, nodes: Sequence[Node]) -> tuple[Run, ...]:
    """The runs, grouped by case in the order of the matrices, repeats innermost."""
    if not nodes:
        raise UserError("there is no node to plan for")
    workloads = _select_workloads(choice, catalog, nodes)
    _check_parameter_names(choice, workloads)
    planned = [
        (workload, matrix_name, case)
        for workload in workloads
        for matrix_name in [_matrix_name(choice, workload, nodes)]
        for case in _cases(choice, workload, matrix_name)
    ]
    if not planned:
        raise _no_case(choice, workloads)
    hosts_of = _place([case for _, _, case in planned], nodes)
    _refuse_mixed_nodes([host for hosts in hosts_of.values() for host in hosts])
    return tuple(
        run
        for workload, matrix_name, case in planned
        for run in _runs(choice, catalog, workload, matrix_name, case, hosts_of[case.id])
    )


def plan_document(choice: Choice, nodes: Sequence[Node], runs: Sequence[Run]) -> dict[str, Any]:
    """What `plan --json` prints."""
    return {
        "schema": SCHEMA,
        "choice": asdict(choice),
        "inventory": [asdict(node) for node in nodes],
        "runs": [asdict(run) for run in runs],
    }


# ---- the choice


def _option(name: str) -> str:
    return "--" + name.replace("_", "-")


def _names(texts: Mapping[str, str], name: str) -> tuple[str, ...]:
    items = (item.strip() for item in texts.get(name, "").split(","))
    return tuple(dict.fromkeys(item for item in items if item))


def _numbers(texts: Mapping[str, str], name: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(_whole(item, name, 1) for item in _names(texts, name)))


def _number(texts: Mapping[str, str], name: str, least: int = 1) -> int | None:
    text = texts.get(name)
    return _whole(text, name, least) if text else None


def _whole(text: str, name: str, least: int) -> int:
    # More than nine digits is no count of anything here, and int() of thousands is slow.
    if text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= least:
        return int(text)
    raise UserError(
        "this is no such number",
        where=_option(name),
        expected=f"whole numbers of at least {least}",
        found=repr(text),
    )


def _parameters(texts: Iterable[str]) -> dict[str, str]:
    parameters = {}
    for text in texts:
        if not text:
            continue
        name, equals, value = text.partition("=")
        if not equals or not name.strip().isidentifier() or not value.isprintable():
            raise UserError(
                "this is no parameter", where="--parameter", expected="name=value", found=repr(text)
            )
        parameters[name.strip()] = value
    return parameters


# ---- the workloads


def _select_workloads(
    choice: Choice, catalog: Catalog, nodes: Sequence[Node]
) -> tuple[Workload, ...]:
    """Raises where a name is unknown, and names the filter that leaves nothing."""
    selected = tuple(catalog.workloads.values())
    for name in choice.framework:
        catalog.framework(name, _option("framework"))
    for name in choice.workload:
        catalog.workload(name, _option("workload"))
    models = list(dict.fromkeys(name for w in selected for name in w.model_names))
    for name in choice.model:
        if name not in models:
            raise UserError(
                f"unknown model {name!r}",
                where=_option("model"),
                expected=f"one of {', '.join(sorted(models))}",
            )
    filters: list[tuple[str, tuple[str, ...], Callable[[Workload], Iterable[str]]]] = [
        ("workload", choice.workload, lambda w: [w.name]),
        ("framework", choice.framework, lambda w: [w.framework]),
        ("model", choice.model, lambda w: w.model_names),
    ]
    for option, wanted, names_of in filters:
        left = tuple(w for w in selected if not wanted or set(wanted) & set(names_of(w)))
        if not left:
            raise UserError(
                "this leaves no workload",
                where=f"{_option(option)} {','.join(wanted)}",
                expected=f"one that fits {', '.join(w.name for w in selected)}",
            )
        selected = left
    if not (choice.workload or choice.framework or choice.model):
        selected = tuple(w for w in selected if not _nodes_without(w.framework, nodes))
        if not selected:
            raise UserError("no framework of the catalogue is on every node (dlperf_frameworks)")
    for workload in selected:
        lacking = _nodes_without(workload.framework, nodes)
        if lacking:
            raise UserError(
                f"{workload.name} needs {workload.framework}, which these nodes do not have",
                where=", ".join(node.name for node in lacking),
                expected=f"{workload.framework} in dlperf_frameworks",
                found=", ".join(lacking[0].frameworks),
                hint="narrow the choice with --framework, or provision it",
            )
    return selected


def _nodes_without(framework: str, nodes: Sequence[Node]) -> list[Node]:
    """Nodes that say which frameworks they have, and do not name this one."""
    return [node for node in nodes if node.frameworks and framework not in node.frameworks]


def _check_parameter_names(choice: Choice, workloads: Sequence[Workload]) -> None:
    known = list(dict.fromkeys(name for w in workloads for name in w.parameters))
    for name in choice.parameters:
        if name not in known:
            raise UserError(
                f"unknown parameter {name!r}",
                where="--parameter",
                expected=f"one of {', '.join(known) or 'none'}",
            )


def _matrix_name(choice: Choice, workload: Workload, nodes: Sequence[Node]) -> str:
    if choice.matrix is None:
        for node in nodes:
            if node.matrix != nodes[0].matrix:
                raise UserError(
                    "the nodes name different default matrices",
                    where=f"host {node.name}: dlperf_matrix",
                    expected=f"{nodes[0].matrix}, as on {nodes[0].name}",
                    found=node.matrix,
                    hint="choose one with --matrix",
                )
        name, where = nodes[0].matrix, f"host {nodes[0].name}: dlperf_matrix"
    else:
        name, where = choice.matrix, _option("matrix")
    if name not in workload.matrices:
        raise UserError(
            f"{workload.name} has no matrix {name!r}",
            where=where,
            expected=f"one of {', '.join(workload.matrices)}",
        )
    return name


# ---- the cases


class _Setting(NamedTuple):
    variant: str
    precision: str
    batch_size: int


def _cases(choice: Choice, workload: Workload, matrix_name: str) -> list[Case]:
    matrix = workload.matrices[matrix_name]
    window = _window(choice, workload.rule_of(matrix_name))
    return [
        Case(
            workload=workload.name,
            framework=workload.framework,
            model=workload.model_name(setting.variant),
            source=source,
            batch=Batch(setting.precision, setting.batch_size),
            topology=topology,
            window=window,
            variant=setting.variant,
        )
        for source in _sources(choice, workload)
        for setting in _settings(choice, workload, matrix)
        for topology in _topologies(choice, matrix)
        if workload.max_nodes is None or topology.nodes <= workload.max_nodes
    ]


def _sources(choice: Choice, workload: Workload) -> tuple[str, ...]:
    """`builtin` where nothing was said, on every matrix: it needs no clone and no data set."""
    has = [name for name, _ in workload.sources.items()]
    for name in choice.source:
        if name not in has:
            raise UserError(
                f"{workload.name} has no source {name!r}",
                where=_option("source"),
                expected=f"one of {', '.join(has)}",
            )
    return choice.source or (has[0],)


def _settings(choice: Choice, workload: Workload, matrix: Matrix) -> tuple[_Setting, ...]:
    settings = tuple(
        _Setting(entry.variant, entry.precision, entry.batch_size_per_device)
        for entry in matrix.batches
    )
    if workload.model not in choice.model and not set(workload.families) & set(choice.model):
        variants = [v for v in workload.variants if workload.model_name(v) in choice.model]
        settings = _narrow(
            settings, variants, lambda s: s.variant, lambda s, v: s._replace(variant=v)
        )
    for precision in choice.precision:
        if precision not in workload.precisions:
            raise UserError(
                f"unknown precision {precision!r} of {workload.name}",
                where=_option("precision"),
                expected=f"one of {', '.join(workload.precisions)}",
            )
    if choice.precision and choice.batch_size:
        return tuple(
            _Setting(variant, precision, batch_size)
            for variant in dict.fromkeys(s.variant for s in settings)
            for precision in choice.precision
            for batch_size in choice.batch_size
        )
    settings = _narrow(
        settings, choice.precision, lambda s: s.precision, lambda s, p: s._replace(precision=p)
    )
    return _narrow(
        settings, choice.batch_size, lambda s: s.batch_size, lambda s, b: s._replace(batch_size=b)
    )


def _topologies(choice: Choice, matrix: Matrix) -> tuple[Topology, ...]:
    if choice.nodes and choice.gpus_per_node:
        return tuple(Topology(n, g) for n in choice.nodes for g in choice.gpus_per_node)
    widest = max(matrix.topologies)
    topologies = _narrow(
        matrix.topologies,
        choice.nodes,
        lambda t: t.nodes,
        lambda _, n: Topology(n, widest.gpus_per_node),
    )
    return _narrow(
        topologies, choice.gpus_per_node, lambda t: t.gpus_per_node, lambda _, g: Topology(1, g)
    )


def _narrow(
    items: tuple[_T, ...],
    wanted: Sequence[Any],
    value_of: Callable[[_T], Any],
    replaced: Callable[[_T, Any], _T],
) -> tuple[_T, ...]:
    """The items that have a wanted value; for a value that none has, the items made to have it."""
    if not wanted:
        return items
    found: list[_T] = []
    for value in wanted:
        having = [item for item in items if value_of(item) == value]
        found += having or [replaced(item, value) for item in items]
    return tuple(dict.fromkeys(found))


def _window(choice: Choice, rule: Rule) -> Window:
    total = choice.iterations or rule.total_steps
    warmup = choice.warmup
    if warmup is None and choice.iterations:
        # A multiple of what one log line covers, so that no line is half warm-up.
        lines = math.ceil(rule.warmup_steps * total / rule.total_steps / rule.log_every)
        warmup = min(lines * rule.log_every, total - 1)
    elif warmup is None:
        warmup = rule.warmup_steps
    if warmup >= total:
        raise UserError(
            "no step is left to measure",
            where=_option("warmup"),
            expected=f"fewer than the {total} iterations",
            found=str(warmup),
        )
    if total // rule.log_every <= warmup // rule.log_every:
        raise UserError(
            f"the log has a line every {rule.log_every} steps, and none is left to measure",
            where=_option("iterations"),
            expected=f"at least {(warmup // rule.log_every + 1) * rule.log_every}",
            found=str(total),
        )
    return Window(total, warmup)


def _no_case(choice: Choice, workloads: Sequence[Workload]) -> UserError:
    """Only too many nodes for the selected workloads can leave no case at all."""
    limits = ", ".join(f"{w.name} runs on at most {w.max_nodes} nodes" for w in workloads)
    return UserError(
        "this leaves no case",
        where=f"{_option('nodes')} {','.join(str(n) for n in choice.nodes)}",
        expected=limits,
    )


# ---- the nodes


def _place(cases: Sequence[Case], nodes: Sequence[Node]) -> dict[str, tuple[Node, ...]]:
    """Hosts per case: the first ones in the inventory's order that have enough devices."""
    placed, missing = {}, []
    for case in cases:
        topology = case.topology
        fitting = [node for node in nodes if node.devices_per_node >= topology.gpus_per_node]
        if len(fitting) < topology.nodes:
            missing.append(topology)
        placed[case.id] = tuple(fitting[: topology.nodes])
    if missing:
        needs = (
            f"{topology} needs {_count(topology.nodes, 'node')}"
            f" with {_count(topology.gpus_per_node, 'device')}"
            for topology in dict.fromkeys(missing)
        )
        raise UserError(
            "the plan asks for more than the inventory has:\n  "
            + "\n  ".join(needs)
            + f"\n  the inventory has {_describe(nodes)}",
            hint="narrow it with --nodes, --gpus-per-node or --matrix",
        )
    return placed


def _describe(nodes: Sequence[Node]) -> str:
    """`node1..node4 with 2 devices each`, per number of devices."""
    groups: dict[int, list[str]] = {}
    for node in nodes:
        groups.setdefault(node.devices_per_node, []).append(node.name)
    return ", ".join(
        f"{_span(names)} with {_count(devices, 'device')}" + (" each" if len(names) > 1 else "")
        for devices, names in groups.items()
    )


def _span(names: list[str]) -> str:
    return ", ".join(names) if len(names) < 4 else f"{len(names)} nodes {names[0]}..{names[-1]}"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"


def _refuse_mixed_nodes(hosts: Sequence[Node]) -> None:
    """Runs of one plan are compared with each other, so their nodes must be alike."""
    for host in hosts:
        for variable, value, first in (
            ("dlperf_accelerator", host.accelerator, hosts[0].accelerator),
            ("dlperf_stack", host.stack, hosts[0].stack),
        ):
            if value != first:
                raise UserError(
                    "nodes that differ cannot stand in one plan",
                    where=f"host {host.name}: {variable}",
                    expected=f"{first}, as on {hosts[0].name}",
                    found=value,
                    hint="choose nodes of one kind with --limit, or by an inventory of their own",
                )


# ---- the runs


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
    on_gpu = _on_gpu(catalog, workload, first)
    parameters = _merged_parameters(choice, workload, matrix, case.variant)
    variant = workload.variants.get(case.variant)
    short_name = variant.short_name if variant else workload.short_name
    batch, topology, window = case.batch, case.topology, case.window
    runs = []
    for repeat in range(1, (choice.repeats or matrix.repeats) + 1):
        values: dict[str, object] = {
            **parameters,
            "python": f"{ENVIRONMENTS}/{workload.framework}/bin/python",
            "workload": workload.name,
            "framework": workload.framework,
            "model": case.model,
            "source": case.source,
            "precision": batch.precision,
            "dtype": workload.dtypes.get(batch.precision, ""),
            "batch_size_per_device": batch.batch_size_per_device,
            "global_batch_size": batch.batch_size_per_device * topology.world_size,
            "nodes": topology.nodes,
            "gpus_per_node": topology.gpus_per_node,
            "world_size": topology.world_size,
            "total_steps": window.total_steps,
            "warmup_steps": window.warmup_steps,
            "repeat": repeat,
        }
        program = _program(workload, case, values, on_gpu)
        runs.append(
            Run(
                id=f"{case.id}/r{repeat}",
                case=case.id,
                repeat=repeat,
                workload=workload.name,
                framework=workload.framework,
                model=case.model,
                source=case.source,
                precision=batch.precision,
                batch_size_per_device=batch.batch_size_per_device,
                nodes=topology.nodes,
                gpus_per_node=topology.gpus_per_node,
                world_size=topology.world_size,
                total_steps=window.total_steps,
                warmup_steps=window.warmup_steps,
                stack=first.stack,
                accelerator=first.accelerator,
                environment=workload.framework,
                log_format=workload.log_format,
                log_name=f"{short_name}_b{batch.batch_size_per_device}"
                f"_{batch.precision}_{repeat}.log",
                timeout_s=_timeout(workload, matrix_name, window),
                hosts=tuple(host.name for host in hosts),
                parameters=parameters,
                commands=launchers.launch(workload.launcher, program, hosts),
            )
        )
    return runs


def _timeout(workload: Workload, matrix_name: str, window: Window) -> int:
    """The matrix's time limit, longer in proportion where more iterations were chosen."""
    usual = workload.rule_of(matrix_name).total_steps
    return math.ceil(
        workload.matrices[matrix_name].timeout_s * max(1.0, window.total_steps / usual)
    )


def _program(
    workload: Workload, case: Case, values: Mapping[str, object], on_gpu: bool
) -> launchers.Program:
    source = workload.sources.named(case.source)
    if source is None:
        raise ValueError(f"{workload.name} has no source {case.source}")
    argv = (
        *source.argv,
        *source.on_precision.get(case.batch.precision, ()),
        *(source.on_gpu if on_gpu else source.on_cpu),
    )
    directory = getattr(source, "directory", "")
    cwd = f"{SOURCES}/{workload.name}-{case.source}" + (f"/{directory}" if directory else "")
    environment = dict(
        zip(source.environment, fill(source.environment.values(), values), strict=True)
    )
    return launchers.Program(
        argv=fill(argv, values),
        gpus_per_node=case.topology.gpus_per_node,
        on_gpu=on_gpu,
        environment=environment,
        cwd=cwd,
    )


def _on_gpu(catalog: Catalog, workload: Workload, node: Node) -> bool:
    """Whether the nodes' stack is one with GPUs, on which the framework has an environment."""
    where = f"host {node.name}: dlperf_stack"
    stack = catalog.stack(node.stack, where)
    on_gpu = stack.accelerator == "gpu"
    if on_gpu == (node.accelerator == "cpu"):
        raise UserError(
            "the accelerator does not fit the stack",
            where=f"host {node.name}: dlperf_accelerator",
            expected=f"{'a GPU' if on_gpu else 'cpu'}, as the stack {stack.name} has",
            found=node.accelerator,
        )
    environments = catalog.framework(workload.framework).environments
    if node.stack not in environments:
        raise UserError(
            f"{workload.framework} has no environment for the stack {node.stack}",
            where=where,
            expected=f"one of {', '.join(environments)}",
        )
    return on_gpu


def _merged_parameters(
    choice: Choice, workload: Workload, matrix: Matrix, variant: str
) -> dict[str, _Value]:
    chosen = {
        name: _converted(name, text, workload.parameters[name])
        for name, text in choice.parameters.items()
        if name in workload.parameters
    }
    of_variant = workload.variants[variant].parameters if variant else {}
    return {**workload.parameters, **of_variant, **matrix.parameters, **chosen}


def _converted(name: str, text: str, default: _Value) -> _Value:
    """The text as a value of the default's type."""
    try:
        value = type(default)(text)
        if isinstance(value, str) or math.isfinite(value):
            return value
    except ValueError:
        pass
    kind = {int: "a whole number", float: "a number", str: "a text"}[type(default)]
    raise UserError(
        "this value does not fit",
        where=f"--parameter {name}",
        expected=f"{kind}, like {default}",
        found=repr(text),
    )
