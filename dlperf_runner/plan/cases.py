"""Selects the cases for a choice from the catalogue.

- `model` (a model, one of its networks, or a family), `framework` and `workload` select
  workloads. Without them, all workloads are selected whose framework is on the nodes.
- `matrix` defines the cases of each workload: batches (precision and batch size) times topologies.
- `precision`, `batch_size`, `nodes` and `gpus_per_node` restrict the matrix to one or more values.
  A value that is not in the matrix defines new cases:
  a new precision uses the batch sizes of the matrix; a new batch size uses its precisions;
  a new number of nodes uses the devices per node of the largest topology in the matrix;
  a new number of devices per node uses one node.
- If both of a pair are set (precision and batch size; nodes and devices per node), the cases are
  exactly their combinations, even if the matrix does not have them.
- Each of several values of a parameter makes cases of its own.
- `iterations` without `warmup` keeps the published proportion of warm-up steps, rounded up.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from ..catalog.reader import lookup
from ..core.case import Batch, Case, Topology, Window
from ..core.errors import UserError
from ..core.lists import grouped
from ..core.node import require_same
from . import parameters
from .choice import Choice, option_name

if TYPE_CHECKING:
    from ..catalog.reader import Catalog
    from ..catalog.workload import Matrix, Rule, Workload
    from ..core.node import Node


def select_workloads(
    choice: Choice, catalog: Catalog, nodes: Sequence[Node]
) -> tuple[Workload, ...]:
    """The selected workloads. Raises UserError on an unknown name or a filter without a match."""
    run = {name: w for name, w in catalog.workloads.items() if w.sources.items()}
    selected = tuple(w for w in run.values() if not w.only_if_named or w.name in choice.workload)
    for name in choice.framework:
        catalog.framework(name, option_name("framework"))
    for name in choice.workload:
        if name in catalog.workloads and name not in run:
            raise UserError(
                f"there is no program for {name}; only its logs can be read",
                where=option_name("workload"),
                expected=f"one of {', '.join(run)}",
            )
        lookup("workload", name, run, option_name("workload"))
    models = dict.fromkeys(sorted(name for w in selected for name in w.model_names))
    for name in choice.model:
        lookup("model", name, models, option_name("model"))
    filters: list[tuple[str, tuple[str, ...], Callable[[Workload], Iterable[str]]]] = [
        ("workload", choice.workload, lambda w: [w.name]),
        ("framework", choice.framework, lambda w: [w.framework]),
        ("model", choice.model, lambda w: w.model_names),
    ]
    for option, wanted, names_of in filters:
        left = tuple(w for w in selected if not wanted or set(wanted) & set(names_of(w)))
        if not left:
            raise UserError(
                "no workload matches",
                where=f"{option_name(option)} {','.join(wanted)}",
                expected=f"a value that matches {', '.join(w.name for w in selected)}",
            )
        selected = left
    # Of several workloads, those without the source are left out, unless they were named.
    if not choice.workload:
        selected = tuple(w for w in selected if _has_source(choice, w, nodes)) or selected
    if not (choice.workload or choice.framework):
        reasons = left_out(catalog, nodes)
        run_here = tuple(w for w in selected if w.name not in reasons)
        installed = tuple(w for w in run_here if not _lacking(choice, catalog, w, nodes))
        if choice.model:
            installed = installed or run_here
        elif not installed:
            lines = "".join(f"\n  {name}: {why}" for name, why in reasons.items())
            raise UserError(
                f"no framework of the catalogue is on all nodes (dlperf_frameworks){lines}"
            )
        selected = installed or selected
    for workload in selected:
        lacking = _lacking(choice, catalog, workload, nodes)
        if lacking:
            (_, environment), *_ = lacking
            raise UserError(
                f"{workload.name} needs {environment}, which these nodes do not have",
                where=", ".join(dict.fromkeys(node.name for node, _ in lacking)),
                expected=f"{environment} in dlperf_frameworks",
                found=", ".join(lacking[0][0].frameworks),
                hint=f"select other workloads with --framework, or provision {environment}",
            )
    return selected


def not_planned(
    choice: Choice, catalog: Catalog, nodes: Sequence[Node], planned: Collection[str]
) -> dict[str, str]:
    """The reasons why workloads of the choice are not `planned`, by name. Without a choice, it does
    not name those whose framework is only not installed."""
    why_not: dict[str, str] = {}
    if choice.workload:
        return why_not
    for name, workload in catalog.workloads.items():
        if workload.sources.items() and _is_meant(choice, workload):
            for missing in _missing_sources(choice, workload, nodes).values():
                why_not[name] = f"it {missing}"
    if choice.framework:
        return why_not
    reasons = left_out(catalog, nodes)
    if not choice.model:
        return {**reasons, **why_not}
    for name, workload in catalog.workloads.items():
        if name in why_not:
            continue
        if name not in planned and set(choice.model) & set(workload.model_names):
            lacking = _lacking(choice, catalog, workload, nodes)
            if name in reasons:
                why_not[name] = reasons[name]
            elif lacking:
                why_not[name] = f"these nodes do not have {lacking[0][1]} (dlperf_frameworks)"
    return why_not


def _is_meant(choice: Choice, workload: Workload) -> bool:
    """True if the choice names the framework and a model of the workload, if it names any."""
    models = not choice.model or set(choice.model) & set(workload.model_names)
    return bool(models) and (not choice.framework or workload.framework in choice.framework)


def _has_source(choice: Choice, workload: Workload, nodes: Sequence[Node]) -> bool:
    return len(_missing_sources(choice, workload, nodes)) < max(1, len(choice.source))


def _missing_sources(choice: Choice, workload: Workload, nodes: Sequence[Node]) -> dict[str, str]:
    """The chosen sources that the workload does not have, or that do not run on the stack of these
    nodes, with the reason."""
    missing = {}
    for name in choice.source:
        source = workload.sources.named(name)
        if source is None:
            reason = f": {workload.no_upstream}" if workload.no_upstream else ""
            missing[name] = f"has no source {name!r}{reason}"
        elif source.stacks and (others := {node.stack for node in nodes} - set(source.stacks)):
            stacks = f"{min(others)} (dlperf_stack), only on {' and '.join(source.stacks)}"
            missing[name] = f"cannot run its source {name!r} on the stack {stacks}"
    return missing


def left_out(catalog: Catalog, nodes: Sequence[Node]) -> dict[str, str]:
    """The reason why workloads cannot run on the nodes' stack, by name."""
    stacks = grouped(nodes, attrgetter("stack"))
    for stack, on in stacks.items():
        catalog.stack(stack, f"host {on[0].name}: dlperf_stack")
    return {
        workload.name: framework.why_not(stack)
        for workload in catalog.workloads.values()
        if workload.sources.items() and not workload.only_if_named
        for framework in [catalog.frameworks[workload.framework]]
        for stack in stacks
        if stack not in framework.stacks
    }


def _lacking(
    choice: Choice, catalog: Catalog, workload: Workload, nodes: Sequence[Node]
) -> list[tuple[Node, str]]:
    """Each node that lists its environments but lacks a needed one, with that environment."""
    framework = catalog.frameworks[workload.framework]
    sources = [workload.sources.named(name) for name in _sources(choice, workload, nodes)]
    needed = [
        # If the stack has no environment at all, planning fails later for that reason.
        (node, framework.environment_name(node.stack, source.flavor) or framework.name)
        for source in sources
        if source is not None
        for node in nodes
    ]
    return [
        (node, name) for node, name in needed if node.frameworks and name not in node.frameworks
    ]


def chosen_matrix(choice: Choice, workload: Workload, nodes: Sequence[Node]) -> str:
    """The name of the matrix: the choice's, or else the nodes' default. Raises UserError if the
    nodes have different defaults, or if the workload has no such matrix."""
    if choice.matrix is None:
        names = [node.matrix for node in nodes]
        problem = "the nodes have different default matrices"
        require_same(nodes, "dlperf_matrix", names, problem, "choose one with --matrix")
        name, where = nodes[0].matrix, f"host {nodes[0].name}: dlperf_matrix"
    else:
        name, where = choice.matrix, option_name("matrix")
    if name not in workload.matrices:
        raise UserError(
            f"{workload.name} has no matrix {name!r}",
            where=where,
            expected=f"one of {', '.join(workload.matrices)}",
        )
    return name


@dataclass(frozen=True)
class _Setting:
    variant: str
    precision: str
    batch_size: int


_T = TypeVar("_T", _Setting, Topology)


def cases_of(
    choice: Choice, workload: Workload, matrix_name: str, nodes: Sequence[Node] = ()
) -> list[Case]:
    """A case for each source, batch, parameters and topology that the choice selects. `nodes`
    decide the source if the choice names none. Raises UserError for an unknown value."""
    matrix = workload.matrices[matrix_name]
    choice = parameters.with_micro_batch(choice, workload)
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
            parameters=values,
        )
        for source in _sources(choice, workload, nodes)
        for setting in _settings(choice, workload, matrix)
        for values in parameters.settings(choice, workload)
        for topology in _topologies(choice, matrix)
        if workload.max_nodes is None or topology.nodes <= workload.max_nodes
    ]


def _sources(choice: Choice, workload: Workload, nodes: Sequence[Node]) -> tuple[str, ...]:
    """The chosen sources. The default is the first that runs on the nodes' stack: mostly `builtin`,
    which needs no clone and no data set."""
    has = [name for name, _ in workload.sources.items()]
    stacks = {node.stack for node in nodes}
    fitting = [
        name for name, s in workload.sources.items() if not s.stacks or stacks <= {*s.stacks}
    ]
    missing = _missing_sources(choice, workload, nodes)
    chosen = tuple(name for name in choice.source if name not in missing)
    if missing and (choice.workload or not chosen):
        raise UserError(
            f"{workload.name} {next(iter(missing.values()))}",
            where=option_name("source"),
            expected=f"one of {', '.join(fitting or has)}",
        )
    return chosen or ((fitting or has)[0],)


def _settings(choice: Choice, workload: Workload, matrix: Matrix) -> tuple[_Setting, ...]:
    settings = tuple(
        _Setting(entry.variant, entry.precision, entry.batch_size_per_device)
        for entry in matrix.batches
    )
    if workload.model not in choice.model and not set(workload.families) & set(choice.model):
        variants = [v for v in workload.variants if workload.model_name(v) in choice.model]
        settings = _narrow(settings, "variant", variants)
    for precision in choice.precision:
        if precision not in workload.precisions:
            raise UserError(
                f"{workload.name} has no precision {precision!r}",
                where=option_name("precision"),
                expected=f"one of {', '.join(workload.precisions)}",
            )
    if choice.precision and choice.batch_size:
        return tuple(
            _Setting(variant, precision, batch_size)
            for variant in dict.fromkeys(s.variant for s in settings)
            for precision in choice.precision
            for batch_size in choice.batch_size
        )
    settings = _narrow(settings, "precision", choice.precision)
    return _narrow(settings, "batch_size", choice.batch_size)


def _topologies(choice: Choice, matrix: Matrix) -> tuple[Topology, ...]:
    if choice.nodes and choice.gpus_per_node:
        return tuple(Topology(n, g) for n in choice.nodes for g in choice.gpus_per_node)
    devices = max(matrix.topologies).gpus_per_node
    topologies = _narrow(matrix.topologies, "nodes", choice.nodes, gpus_per_node=devices)
    return _narrow(topologies, "gpus_per_node", choice.gpus_per_node, nodes=1)


def _narrow(
    items: tuple[_T, ...], field: str, wanted: Sequence[str | int], **others: int
) -> tuple[_T, ...]:
    """The items with a wanted value of the field. If no item has it, all items with that value, and
    with those of `others`."""
    if not wanted:
        return items
    chosen: list[_T] = []
    for value in wanted:
        having = [item for item in items if getattr(item, field) == value]
        changes: dict[str, Any] = {field: value, **others}
        chosen += having or [replace(item, **changes) for item in items]
    return tuple(dict.fromkeys(chosen))


def _window(choice: Choice, rule: Rule) -> Window:
    total, warmup = choice.iterations or rule.total_steps, choice.warmup
    if warmup is None:
        warmup = rule.warmup_of(total) if choice.iterations else rule.warmup_steps
    if warmup >= total:
        raise UserError(
            "no steps remain to be measured",
            where=option_name("warmup"),
            expected=f"fewer than the {total} iterations",
            found=str(warmup),
        )
    if total // rule.log_every <= warmup // rule.log_every:
        raise UserError(
            f"the log has one line per {rule.log_every} steps, and none remains to be measured",
            where=option_name("iterations"),
            expected=f"at least {(warmup // rule.log_every + 1) * rule.log_every}",
            found=str(total),
        )
    return Window(total, warmup)


def no_case(choice: Choice, workloads: Sequence[Workload]) -> UserError:
    """The error for a plan without cases. Its only cause is too many nodes for the workloads."""
    limits = ", ".join(f"at most {w.max_nodes} for {w.name}" for w in workloads)
    return UserError(
        "no workload runs on so many nodes",
        where=f"{option_name('nodes')} {','.join(str(n) for n in choice.nodes)}",
        expected=limits,
    )
