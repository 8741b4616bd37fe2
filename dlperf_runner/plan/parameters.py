"""The parameters of a case: those of the catalogue, changed by the choice.

A parameter with several chosen values is an axis of the matrix: each case exists once per value.
`micro_batch` is the batch size per device, unless the workload has a parameter of this name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..catalog.entry import validated
from ..catalog.reader import lookup
from ..catalog.source import DataParameter
from ..catalog.types import listed
from ..catalog.workload import RUN_KEYS, DataSetPlace, datasets
from ..core.errors import UserError
from ..core.identity import data_kind, data_of, parameters_text
from ..core.node import require_same
from .choice import option_name

if TYPE_CHECKING:
    from ..catalog.reader import Catalog
    from ..catalog.source import Source
    from ..catalog.workload import Matrix, Workload
    from ..core.case import Case, Run
    from ..core.node import Node
    from .choice import Choice

MICRO_BATCH = "micro_batch"
Value = str | int | float
Setting = tuple[tuple[str, Value], ...]


def check_names(choice: Choice, workloads: Sequence[Workload]) -> None:
    """Raises UserError for a parameter that no workload has, or that a workload's model decides."""
    names = dict.fromkeys([*(name for w in workloads for name in w.parameters), MICRO_BATCH])
    for name in choice.parameters:
        lookup("parameter", name, names, "--parameter")
        for workload in (w for w in workloads if name in w.of_variant):
            models = (workload.model_name(variant) for variant in workload.variants)
            raise UserError(
                f"the model of {workload.name} decides {name!r}",
                where="--parameter",
                expected=f"--model with one of {', '.join(models)}",
            )


def with_micro_batch(choice: Choice, workload: Workload) -> Choice:
    """The choice with its `micro_batch` as batch sizes. Raises UserError if it has both."""
    text = choice.parameters.get(MICRO_BATCH)
    if text is None or MICRO_BATCH in workload.parameters:
        return choice
    where = f"--parameter {MICRO_BATCH}"
    if choice.batch_size:
        raise UserError(
            "the batch size per device is given twice",
            where=where,
            expected="one of the two",
            found=f"--batch-size {','.join(map(str, choice.batch_size))}",
        )
    sizes = tuple(int(size) for size in _values(MICRO_BATCH, text, 1))
    if not all(1 <= size < 10**9 for size in sizes):
        raise UserError(
            "invalid value", where=where, expected="integers from 1 to 999999999", found=repr(text)
        )
    return replace(choice, batch_size=sizes)


def settings(choice: Choice, workload: Workload) -> list[Setting]:
    """Every combination of the values on the axes. Without axes, one that is empty."""
    chosen = _chosen(choice, workload)
    axes = {name: values for name, values in chosen.items() if len(values) > 1}
    return [tuple(zip(axes, values, strict=True)) for values in product(*axes.values())]


def parameters_of(
    choice: Choice, workload: Workload, matrix: Matrix, case: Case
) -> dict[str, Value]:
    """All parameters of the case, without a data set of the inventory."""
    of_variant = workload.variants[case.variant].parameters if case.variant else {}
    chosen = {name: values[0] for name, values in _chosen(choice, workload).items()}
    return {
        **workload.parameters,
        **workload.of_precision.get(case.batch.precision, {}),
        **of_variant,
        **matrix.parameters,
        **chosen,
        **dict(case.parameters),
    }


def values_of(run: Run, workload: Workload) -> dict[str, object]:
    """The values of placeholders in the catalogue's templates, but for what depends on a node."""
    global_batch_size = run.batch_size_per_device * run.world_size
    return {
        **run.parameters,
        **{name: value for name, value in vars(run).items() if name in RUN_KEYS},
        "dtype": workload.dtypes.get(run.precision, ""),
        "devices": ",".join(map(str, range(run.gpus_per_node))),
        "global_batch_size": global_batch_size,
        "total_samples": global_batch_size * run.total_steps,
    }


def refuse_lacking(
    workload: Workload, source: Source, case: Case, values: Mapping[str, Value]
) -> None:
    """Raise UserError if the source does not have a value of the case."""
    wanted = {**values, "variant": case.variant, "precision": case.batch.precision}
    for name, has in source.only.items():
        if wanted[name] in has:
            continue
        options = {"variant": option_name("model"), "precision": option_name("precision")}
        text = workload.model_name if name == "variant" else str
        raise UserError(
            f"the {case.source} source of {workload.name} does not have this {name}",
            where=options.get(name, f"--parameter {name}"),
            expected=f"one of {listed(text(str(value)) for value in has)}",
            found=text(str(wanted[name])),
            hint="choose another source with --source",
        )


def refuse_equal_cases(runs: Iterable[Run], catalog: Catalog) -> None:
    """Raise UserError if results could not tell two cases apart, because a parameter with several
    values does not change what their source measures."""
    seen: dict[tuple[object, ...], Run] = {}
    for run in runs:
        workload = catalog.workloads[run.workload]
        measured = parameters_text(workload.measured_parameters(run.source, run.parameters))
        what = (run.workload, run.model, run.source, measured, run.container)
        batch = (run.precision, run.batch_size_per_device, run.nodes, run.gpus_per_node)
        other = seen.setdefault((*what, *batch), run)
        if other.case != run.case:
            names = [n for n, value in run.parameters.items() if other.parameters[n] != value]
            values = (f"{n}={other.parameters[n]},{run.parameters[n]}" for n in names)
            raise UserError(
                f"results of {run.workload}-{run.source} could not be told apart: their parameters"
                f" do not include {', '.join(names)}",
                where=f"--parameter {' '.join(values)}",
                expected="a single value, or a parameter that changes what is measured",
            )


def _chosen(choice: Choice, workload: Workload) -> dict[str, tuple[Value, ...]]:
    return {
        name: _values(name, text, workload.parameters[name])
        for name, text in choice.parameters.items()
        if name in workload.parameters
    }


def _values(name: str, text: str, default: Value) -> tuple[Value, ...]:
    texts = [part.strip() for part in text.split(",")] if "," in text else [text]
    return tuple(dict.fromkeys(_converted(name, part, default) for part in texts))


def _converted(name: str, text: str, default: Value) -> Value:
    try:
        value = type(default)(text)
        if isinstance(value, str) or math.isfinite(value):
            return value
    except ValueError:
        pass
    kind = {int: "an integer", float: "a number", str: "a string"}[type(default)]
    raise UserError(
        "invalid value",
        where=f"--parameter {name}",
        expected=f"{kind}, like {default}",
        found=repr(text),
    )


# ---- the parameter that names a data set, from the inventory's `dlperf_datasets`


def places(value: object, where: str) -> dict[str, dict[str, Any]]:
    """`dlperf_datasets` of a host, validated: for each data set its `path` on the nodes, and
    `parts` where their number is not the published one."""
    if not isinstance(value, dict):
        raise UserError(
            "invalid value", where=where, expected="data sets by name", found=repr(value)
        )
    by_name = {}
    for name, entry in value.items():
        data = lookup("data set", name, datasets(), where)
        place = validated(entry, DataSetPlace, f"{where}: {name}")
        by_name[name] = {
            "path": place.path or data.synthetic,
            **({"parts": place.parts} if place.parts else {}),
        }
    return by_name


def fill_data(
    choice: Choice,
    workload: str,
    source: Source,
    parameters: Mapping[str, Value],
    hosts: Sequence[Node],
) -> tuple[str, dict[str, Value]]:
    """The data set's name in the inventory (empty: none), and the parameters with its path. Raises
    UserError if the choice asks for data that the source or the inventory does not have, or if the
    hosts differ."""
    data = source.data
    if data is None or isinstance(data, str) or data.dataset is None:
        _confirm(choice.data, data if isinstance(data, str) else None, workload)
        return "", dict(parameters)
    if data.parameter in choice.parameters or choice.data == "synthetic":
        kept = data_of(parameters[data.parameter], data.synthetic)
        _confirm(choice.data, data_kind(kept), workload)
        return "", dict(parameters)
    stated = [str(host.datasets.get(data.dataset) or "none") for host in hosts]
    problem = "the nodes of one run have different data sets"
    require_same(hosts, f"dlperf_datasets: {data.dataset}", stated, problem)
    place = hosts[0].datasets.get(data.dataset)
    if place is None:
        if choice.data:
            raise _missing(choice.data, data.dataset, hosts[0])
        return "", dict(parameters)
    path = str(PurePosixPath(place["path"], data.below))
    _confirm(choice.data, data_kind(data_of(path, data.synthetic)), workload)
    counted = {data.parts: place["parts"]} if data.parts and "parts" in place else {}
    return data.dataset, {**parameters, data.parameter: path, **counted}


def _confirm(chosen: str | None, kind: str | None, workload: str) -> None:
    if chosen and chosen != kind:
        raise UserError(
            f"{workload} would not read such data",
            where=option_name("data"),
            expected=f"{kind or 'no such option'}, with this source and inventory",
            found=chosen,
        )


def _missing(chosen: str, name: str, host: Node) -> UserError:
    entry = "{synthetic: true}" if chosen == "synthetic-dataset" else "{path: /datasets/...}"
    return UserError(
        f"the inventory does not say where {name} lies ({datasets()[name].title})",
        where=f"host {host.name}: dlperf_datasets",
        expected=f"{name}: {entry}",
        found=listed(host.datasets),
        hint="see docs/datasets.md, or choose --data synthetic",
    )


def mounted(data: object, parameters: Mapping[str, Value], workload: str) -> tuple[str, ...]:
    """The directories that a container must mount for the program to find its data."""
    if not isinstance(data, DataParameter):
        return ()
    value = parameters[data.parameter]
    path = PurePosixPath(str(value))
    if value in data.synthetic and not path.is_absolute():
        return ()
    if not path.is_absolute() or ":" in str(path):
        raise UserError(
            "a container can mount the data only from an absolute path without a colon",
            where=f"--parameter {data.parameter} of {workload}",
            found=repr(value),
        )
    return (str(path.parent if data.below else path),)
