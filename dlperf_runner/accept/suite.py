"""The suite: what each part of a cluster must reach, in YAML. docs/acceptance.md has an example."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, Field, StrictFloat, StrictInt, StrictStr, create_model

from ..catalog.entry import read_entry
from ..catalog.types import Entry, Name, entry_error
from ..core.errors import UserError, unknown_name
from ..core.units import BANDWIDTH, SAMPLES, TOKENS, per_second
from ..plan.campaign_file import choice_fields
from ..plan.choice import VARIABLES, Choice, choice_of_variables, fraction, text_of
from ..plan.inventory import GROUP, read_groups
from ..stats.ratios import LEAST_RUNS
from ..stats.sequential import LOOKS, Gate

EACH_NODE, EACH_PAIR, EACH_UNIT, ALL = "each node", "each pair", "each unit", "all"
# Keys of a choice that follow from the parts and from the plan.
_DERIVED = ("nodes", "repeats", "run_order", "seed", "until_ci", "max_repeats")
_UNITS = tuple(per_second(unit) for unit in (SAMPLES, TOKENS, BANDWIDTH))
_NUMBER = re.compile(
    rf"(?=[\d.]*[1-9])\d+(?:\.\d+)? (?:{'|'.join(map(re.escape, _UNITS))})", re.ASCII
)


def _percent(text: str) -> str:
    try:
        fraction(text, "", above_0=True)
    except UserError:
        raise entry_error("invalid percentage", "a percentage like 5%", text) from None
    return text


def _target(target: Any) -> Any:
    if isinstance(target, str) and not _NUMBER.fullmatch(target):
        expected = f"a number with its unit ({', '.join(_UNITS)}), like `388.5 samples/s`"
        raise entry_error("invalid target", expected, target)
    return target


class Published(Entry):
    """A target from a report of the catalogue, by its name in `list published`."""

    published: Name


class Reference(Entry):
    """A target that a part of the cluster sets, by the name of the part."""

    reference: StrictStr


Percent = Annotated[StrictStr, AfterValidator(_percent)]
Target = Annotated[StrictStr | Published | Reference, AfterValidator(_target)]
Hosts = Annotated[tuple[Name, ...], Field(min_length=1)]


class _ItemKeys(Entry):
    name: Name | None = None
    parts: (
        Literal["each node", "each pair", "each unit", "all"]
        | Annotated[tuple[Hosts, ...], Field(min_length=1)]
    )
    target: Target
    margin: Percent | None = None


# An item: `parts`, `target`, `margin`, and the keys of a campaign file that choose what runs.
# mypy knows no types that are made at run time.
Item: TypeAlias = Any
_MODEL: Any = create_model("Item", __base__=_ItemKeys, **choice_fields(without=_DERIVED))


class SuiteFile(Entry):
    """A suite. `error` is the probability that any part at all gets a wrong verdict."""

    name: StrictStr = "acceptance"
    inventory: StrictStr | None = None
    nodes: tuple[Name, ...] = ()
    units: dict[Name, Hosts] | tuple[Name, ...] = ()
    margin: Percent = "5%"
    slow: Percent = "7%"
    good_passes: Percent = "95%"
    slow_fails: Percent = "95%"
    error: Percent = "5%"
    pilot: Annotated[StrictInt, Field(ge=LEAST_RUNS)] = 5
    looks: tuple[Annotated[StrictInt, Field(ge=LEAST_RUNS)], ...] = ()
    at_once: bool = True
    conditions: dict[Name, StrictStr | StrictInt | StrictFloat | bool] = Field(default_factory=dict)
    items: Annotated[tuple[_MODEL, ...], Field(min_length=1)]


@dataclass(frozen=True)
class Part:
    """A part of the cluster. Its name is that of its unit, or those of its nodes."""

    name: str
    hosts: frozenset[str]


class ResolvedSuite(SuiteFile):
    """A suite and its file. Its parts are known: the hosts of the inventory are written out."""

    path: Path
    units: dict[str, Hosts]

    @property
    def inventories(self) -> list[str]:
        """The inventory, by a path from here."""
        path = self.inventory
        return [path if "," in path else str(self.path.parent / path)] if path else []

    def record(self) -> dict[str, Any]:
        """The suite as the page has it, with its nodes and units."""
        return self.model_dump(mode="json", exclude_defaults=True, exclude={"path"})

    def parts(self, item: Item) -> list[Part]:
        """The parts that an item judges."""
        if isinstance(item.parts, tuple):
            return [_part(hosts) for hosts in item.parts]
        if item.parts == EACH_UNIT:
            return [Part(name, frozenset(hosts)) for name, hosts in self.units.items()]
        if item.parts == ALL:
            return [Part(ALL, frozenset(self.nodes))]
        size = 1 if item.parts == EACH_NODE else 2
        return [_part(hosts) for hosts in combinations(self.nodes, size)]

    def gate(self, item: Item) -> Gate:
        """The gate of one look. All parts, but for references, and looks share the error."""
        judged = sum(part.name != reference_of(i) for i in self.items for part in self.parts(i))
        share = fraction(self.error, "error") / (judged * (len(set(self.looks)) or LOOKS))
        return Gate(fraction(item.margin or self.margin, "margin"), share)


def reference_of(item: Item) -> str | None:
    """The name of the part that sets the target, if one does."""
    return item.target.reference if isinstance(item.target, Reference) else None


def choice_of(item: Item) -> Choice:
    """The choice of an item, without the nodes."""
    keys = item.model_dump(include={*VARIABLES, "parameters"}, exclude_none=True)
    return choice_of_variables(keys, ())


def title_of(number: int, item: Item) -> str:
    """The name of an item: its own, or what it runs."""
    words = [text_of(v) for v in (item.workload, item.model, item.precision) if v]
    return item.name or " ".join(words) or f"item {number + 1}"


def read_suite(path: Path, recorded: Mapping[str, Any] | None = None) -> ResolvedSuite:
    """Read a suite, and the groups of its inventory, or those that a page recorded of the same
    suite. Raises UserError with file, line and key, and if parts have unknown nodes."""
    suite = ResolvedSuite.model_construct(**dict(read_entry(path, SuiteFile)), path=path)
    groups: dict[str, tuple[str, ...]] = {}
    if recorded is not None and suite.inventory:
        groups = {GROUP: tuple(recorded.get("nodes") or ())} | (recorded.get("units") or {})
    elif suite.inventory and not (suite.nodes and isinstance(suite.units, dict)):
        groups = read_groups(suite.inventories)
    units = suite.units
    if not isinstance(units, dict):
        for name in units:
            if name not in groups:
                raise unknown_name("group of the inventory", name, groups, f"{path}: units")
        units = {name: tuple(groups[name]) for name in units}
    nodes = suite.nodes or groups.get(GROUP, ()) or tuple(h for u in units.values() for h in u)
    suite = suite.model_copy(update={"nodes": tuple(dict.fromkeys(nodes)), "units": units})
    for number, item in enumerate(suite.items):
        _check(suite, item, suite.parts(item), f"{path}: items.{number}")
    return suite


def _check(suite: ResolvedSuite, item: Item, parts: Sequence[Part], where: str) -> None:
    margin = item.margin or suite.margin
    if fraction(suite.slow, "slow") <= fraction(margin, "margin"):
        problem, place = "a part within the margin cannot fail", f"{suite.path}: slow"
        expected = f"more than the margin, {margin}"
        raise UserError(problem, where=place, expected=expected, found=suite.slow)
    if not parts or not all(part.hosts for part in parts):
        problem, place = "the item has no parts", f"{where}.parts"
        expected = "`nodes:` with names, `units:` with nodes, or an `inventory:`"
        raise UserError(problem, where=place, expected=expected, found=str(item.parts))
    if unknown := sorted({host for part in parts for host in part.hosts} - {*suite.nodes}):
        raise unknown_name("node", unknown[0], suite.nodes, f"{where}.parts")
    if (reference := reference_of(item)) is not None:
        if reference not in (names := [part.name for part in parts]):
            raise unknown_name("reference part", reference, names, f"{where}.target")
        if len(parts) < 2:
            raise UserError("a reference needs another part to judge", where=f"{where}.parts")


def _part(hosts: Sequence[str]) -> Part:
    return Part("+".join(hosts), frozenset(hosts))
