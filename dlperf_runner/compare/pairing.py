"""Pair the cases of two campaigns by their identity, and name what the two sides differ in.

Cases whose identity differs only in RELATED columns are not paired unless the user allows it. They
are told of each other. A gate needs the same RELATED columns and the same accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..core.errors import UserError
from ..core.identity import (
    CASE,
    ENVIRONMENT,
    IDENTITY,
    CaseKey,
    label,
    read_parameters,
    value_text,
)
from ..core.lists import grouped

RELATED = ("source", "parameters", "total_steps", "warmup_steps", "directory")
_SAME_IN_A_GATE = (*RELATED, "accelerator")


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
    def case(self) -> dict[str, Any]:
        """The columns of the case, those of the first campaign where both have it."""
        return named(self.a or self.b or ())

    @property
    def apart(self) -> str | None:
        """Why a case with a near case on the other side has no partner."""
        if not self.differing:
            return None
        texts = ", ".join(map(str, self.differing))
        if any(item.column in IDENTITY for item in self.differing):
            return f"the nearest case of the other side differs in {texts}"
        return f"several cases could be its partner; the nearest differs in {texts}"


def named(key: CaseKey) -> dict[str, Any]:
    return dict(zip(CASE, key, strict=True))


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
    taken = set(partners.values())
    alone_a = [key for key in a if key not in partners]
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
    return tuple(_differences(named(a), named(b)))


def distinctions(paired: Sequence[Pair]) -> list[str | None]:
    """What tells each pair from the others of the same identity, which run in other environments;
    None if there are no others."""
    by_identity = grouped([pair.a or pair.b or () for pair in paired], _identity)
    return [
        ", ".join(_told(pair, others)) or None
        for pair in paired
        if (others := by_identity[_identity(pair.a or pair.b or ())])
    ]


def _told(pair: Pair, others: Sequence[CaseKey]) -> Iterator[str]:
    for name in ENVIRONMENT:
        if len({named(other)[name] for other in others}) > 1:
            sides = (named(key)[name] for key in (pair.a, pair.b) if key)
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
        known |= dict.fromkeys(read_parameters(named(key)["parameters"]))
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
    a, b = named(pair.a), named(pair.b)
    of_gpus = ("node_gpus", "driver") if a["accelerator"] == "cpu" else ()
    return [
        name
        for name in ("source", "parameters", *ENVIRONMENT)
        if name not in of_gpus and a[name] is None and b[name] is None
    ]


def _differences(a: Mapping[str, Any], b: Mapping[str, Any]) -> Iterator[Differing]:
    for column in CASE:
        if a[column] == b[column]:
            continue
        if column != "parameters":
            yield Differing(column, column, a[column], b[column])
            continue
        mine, other = read_parameters(a[column]), read_parameters(b[column])
        if not mine and not other:  # one is unknown, the other has no parameters
            yield Differing(column, column, a[column], b[column])
        for name in sorted({*mine, *other}):
            if mine.get(name) != other.get(name):
                yield Differing(column, name, mine.get(name), other.get(name))


def _alone(pair: Pair, others: Sequence[CaseKey]) -> Pair:
    """The case with what keeps it from the nearest of the others, if it is the same but for
    RELATED columns."""
    key = pair.a or pair.b or ()
    near = [other for other in others if _unrelated(other) == _unrelated(key)]
    if not near:
        return pair
    sides = [(key, other) if pair.a else (other, key) for other in near]
    return Pair(pair.a, pair.b, min((differences(*side) for side in sides), key=len))


def _unrelated(key: CaseKey) -> CaseKey:
    return tuple(v for n, v in zip(CASE, key, strict=True) if n in IDENTITY and n not in RELATED)


def _identity(key: CaseKey) -> CaseKey:
    return tuple(v for n, v in zip(CASE, key, strict=True) if n in IDENTITY)


def _with_accelerator(key: CaseKey) -> CaseKey:
    return (*_identity(key), named(key)["accelerator"])


def _but_for(allowed: Collection[str]) -> Callable[[CaseKey], CaseKey]:
    def kept(key: CaseKey) -> CaseKey:
        case = named(key)
        parameters = None
        if "parameters" not in allowed:
            own = read_parameters(case["parameters"])
            parameters = tuple(sorted((n, v) for n, v in own.items() if n not in allowed))
        names = [n for n in IDENTITY if n != "parameters" and n not in allowed]
        return (parameters, *(case[name] for name in names))

    return kept
