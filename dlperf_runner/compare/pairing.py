"""Pair the cases of two campaigns by their identity, and name what the two sides differ in.

Cases whose identity differs only in RELATED columns are not paired unless the user allows it. They
are told of each other. A gate needs the same RELATED columns and the same accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from ..core.errors import UserError
from ..core.identity import (
    CASE,
    ENVIRONMENT,
    IDENTITY,
    CaseKey,
    columns_of,
    label,
    read_parameters,
    value_text,
)
from ..core.lists import grouped

RELATED = ("source", "parameters", "total_steps", "warmup_steps", "directory")
_SAME_IN_A_GATE = (*RELATED, "accelerator")

PartOfKey = Callable[[CaseKey], CaseKey]
_identity: PartOfKey = itemgetter(*map(CASE.index, IDENTITY))
_with_accelerator: PartOfKey = itemgetter(*map(CASE.index, (*IDENTITY, "accelerator")))
_unrelated: PartOfKey = itemgetter(*(CASE.index(name) for name in IDENTITY if name not in RELATED))


@dataclass(frozen=True)
class Differing:
    """A column or parameter that differs between two cases. `column` is the column that has it."""

    column: str
    name: str
    a: object
    b: object

    def __str__(self) -> str:
        return f"{label(self.name)} ({value_text(self.a)}, {value_text(self.b)})"


@dataclass(frozen=True)
class Pair:
    """A case of the first campaign, of the second, or of both. `differing` is what the two differ
    in; for a case without a partner, what it and the nearest case of the other side differ in."""

    a: CaseKey | None
    b: CaseKey | None
    differing: tuple[Differing, ...] = ()

    @property
    def key(self) -> CaseKey:
        """The case, that of the first campaign where both have it."""
        return self.a or self.b or ()

    @property
    def case(self) -> dict[str, Any]:
        """The columns of `key`."""
        return columns_of(self.key)

    @property
    def apart(self) -> str | None:
        """Why a case with a near case on the other side has no partner."""
        if not self.differing:
            return None
        texts = ", ".join(map(str, self.differing))
        if any(item.column in IDENTITY for item in self.differing):
            return f"the nearest case of the other side differs in {texts}"
        return f"several cases could be its partner; the nearest differs in {texts}"


def pairs(a: Sequence[CaseKey], b: Sequence[CaseKey], allowed: Collection[str] = ()) -> list[Pair]:
    """Each case with its partner, in the order of the two sides: the same case, else the only one
    left with the same identity and accelerator, else with the same identity, else with the same
    identity but for `allowed`, which are names of columns or of parameters."""
    partners: dict[CaseKey, CaseKey] = {}
    for key_of in (tuple, _with_accelerator, _identity, _but_for(allowed)):
        left = grouped([key for key in b if key not in partners.values()], key_of)
        for key, several in grouped([key for key in a if key not in partners], key_of).items():
            if len(several) == len(left.get(key, ())) == 1:
                partners[several[0]] = left[key][0]
    alone_a = [key for key in a if key not in partners]
    taken = set(partners.values())
    alone_b = [key for key in b if key not in taken]
    return [
        *(
            Pair(key, partners[key], differences(key, partners[key]))
            if key in partners
            else _alone(Pair(key, None), alone_b)
            for key in a
        ),
        *(_alone(Pair(None, key), alone_a) for key in alone_b),
    ]


def differences(a: CaseKey, b: CaseKey) -> tuple[Differing, ...]:
    """What two cases differ in; parameters by their own names. An unknown value differs from every
    known one."""
    found = []
    for column, x, y in zip(CASE, a, b, strict=True):
        if x == y:
            continue
        own, other = (read_parameters(v) if column == "parameters" else {} for v in (x, y))
        if not own and not other:  # no parameters, or one side unknown and the other without any
            found.append(Differing(column, column, x, y))
        for name in sorted({*own, *other}):
            if own.get(name) != other.get(name):
                found.append(Differing(column, name, own.get(name), other.get(name)))
    return tuple(found)


def distinctions(paired: Sequence[Pair]) -> list[str | None]:
    """What tells each pair from the others of the same identity, which run in other environments;
    None if there are no others."""
    by_identity = grouped([pair.key for pair in paired], _identity)
    return [", ".join(_told(pair, by_identity[_identity(pair.key)])) or None for pair in paired]


def _told(pair: Pair, others: Sequence[CaseKey]) -> Iterator[str]:
    for name in ENVIRONMENT:
        if len({columns_of(other)[name] for other in others}) > 1:
            sides = (columns_of(key)[name] for key in (pair.a, pair.b) if key)
            yield f"{label(name)} {' and '.join(dict.fromkeys(map(value_text, sides)))}"


def refuse_unlike(compared: Sequence[Pair], allowed: Collection[str]) -> None:
    """Raise UserError if a gate would compare cases that are not alike, or would miss a case
    because it is another experiment now. `allowed` names what may differ."""
    found: dict[str, Differing] = {}
    for pair in compared:
        for item in pair.differing:
            names = {item.name, item.column}
            if item.column in _SAME_IN_A_GATE and not names & set(allowed):
                found.setdefault(item.name, item)
    if found:
        options = " ".join(f"--allow-different {name}" for name in found)
        raise UserError(
            "the two sides are not alike, so a difference in speed would have another cause",
            where="--fail-if-slower",
            expected=f"the same {' and '.join(map(label, found))}",
            found="; ".join(map(str, found.values())),
            hint=f"measure again under the same conditions, or compare all the same with {options}",
        )


def check_names(allowed: Collection[str], cases: Iterable[CaseKey]) -> None:
    """Raise UserError for a name that is neither a column which may be allowed nor a parameter."""
    known = dict.fromkeys((*_SAME_IN_A_GATE, *ENVIRONMENT))
    for key in cases:
        known |= dict.fromkeys(read_parameters(columns_of(key)["parameters"]))
    for name in allowed:
        if name not in known:
            raise UserError(
                "unknown condition",
                where="--allow-different",
                expected=f"one of {', '.join(known)}",
                found=name,
            )


def unrecorded_conditions(pair: Pair) -> list[str]:
    """What neither side of a pair knows, so that nobody can tell whether it is the same."""
    if pair.a is None or pair.b is None:
        return []
    a, b = columns_of(pair.a), columns_of(pair.b)
    of_gpus = ("node_gpus", "driver") if a["accelerator"] == "cpu" else ()
    return [
        name
        for name in ("source", "parameters", *ENVIRONMENT)
        if name not in of_gpus and a[name] is None and b[name] is None
    ]


def _alone(pair: Pair, others: Sequence[CaseKey]) -> Pair:
    """The case with what keeps it from the nearest of the others, if it is the same but for
    RELATED columns."""
    near = [other for other in others if _unrelated(other) == _unrelated(pair.key)]
    if not near:
        return pair
    sides = [(pair.key, other) if pair.a else (other, pair.key) for other in near]
    return Pair(pair.a, pair.b, min((differences(*side) for side in sides), key=len))


def _but_for(allowed: Collection[str]) -> PartOfKey:
    def kept(key: CaseKey) -> CaseKey:
        case = columns_of(key)
        parameters = None
        if "parameters" not in allowed:
            own = read_parameters(case["parameters"])
            parameters = tuple(sorted((n, v) for n, v in own.items() if n not in allowed))
        names = [n for n in IDENTITY if n != "parameters" and n not in allowed]
        return (parameters, *(case[name] for name in names))

    return kept
