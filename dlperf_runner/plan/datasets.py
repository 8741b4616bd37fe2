"""Fills the parameter that names a workload's data set from the inventory's `dlperf_datasets`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

from ..catalog.entry import validated
from ..catalog.reader import lookup
from ..catalog.source import DataParameter
from ..catalog.types import listed
from ..catalog.workload import DataSetPlace, datasets
from ..core.errors import UserError
from ..core.identity import data_kind, data_of
from .choice import option_name

if TYPE_CHECKING:
    from ..catalog.source import Source
    from ..core.node import Node
    from .choice import Choice

_Value = str | int | float


def places(value: object, where: str) -> dict[str, dict[str, Any]]:
    """`dlperf_datasets` of a host, validated: for each data set its `path` on the nodes, and
    `parts` where their number is not the published one."""
    if not isinstance(value, dict):
        raise UserError(
            "invalid value", where=where, expected="data sets by name", found=repr(value)
        )
    found = {}
    for name, entry in value.items():
        known = lookup("data set", name, datasets(), where)
        place = validated(entry, DataSetPlace, f"{where}: {name}")
        found[name] = {
            "path": place.path or known.synthetic,
            **({"parts": place.parts} if place.parts else {}),
        }
    return found


def fill_data(
    choice: Choice,
    workload: str,
    source: Source,
    parameters: Mapping[str, _Value],
    hosts: Sequence[Node],
) -> tuple[str, dict[str, _Value]]:
    """The data set's name in the inventory (empty: none), and the parameters with its path.

    Raises UserError if the choice asks for data that the source or the inventory does not have, or
    if the hosts differ.
    """
    data = source.data
    if data is None or isinstance(data, str) or data.dataset is None:
        _confirm(choice.data, data if isinstance(data, str) else None, workload)
        return "", dict(parameters)
    if data.parameter in choice.parameters or choice.data == "synthetic":
        own = data_of(parameters[data.parameter], data.synthetic)
        _confirm(choice.data, data_kind(own), workload)
        return "", dict(parameters)
    place = _common(hosts, data.dataset)
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


def _common(hosts: Sequence[Node], name: str) -> dict[str, Any] | None:
    first = hosts[0].datasets.get(name)
    for host in hosts:
        if host.datasets.get(name) != first:
            raise UserError(
                "the nodes of one run have different data sets",
                where=f"host {host.name}: dlperf_datasets: {name}",
                expected=f"{first or 'none'}, as on {hosts[0].name}",
                found=str(host.datasets.get(name) or "none"),
            )
    return first


def _missing(chosen: str, name: str, host: Node) -> UserError:
    entry = "{synthetic: true}" if chosen == "synthetic-dataset" else "{path: /datasets/...}"
    return UserError(
        f"the inventory does not say where {name} lies ({datasets()[name].title})",
        where=f"host {host.name}: dlperf_datasets",
        expected=f"{name}: {entry}",
        found=listed(host.datasets),
        hint="see docs/datasets.md, or choose --data synthetic",
    )


def mounted(data: object, parameters: Mapping[str, _Value], workload: str) -> tuple[str, ...]:
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
