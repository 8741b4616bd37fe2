"""Check what a log states about its run against what is expected, before its rates count."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..catalog.workload import Rule
from ..core.errors import UserError
from ..core.identity import as_batch_size
from ..core.units import BANDWIDTH
from ..logs import Header
from .estimators import Expected

_WHAT = {
    "batch_size_per_device": "batch size",
    "global_batch_size": "global batch size",
    "world_size": "world size",
    "nodes": "number of nodes",
    "precision": "precision",
    "total_steps": "number of steps",
    "warmup_steps": "number of warm-up steps",
    "log_every": "log interval",
    "tokens_per_step": "number of tokens in a step",
}


def confirmed_settings(
    headers: Sequence[Header],
    rule: Rule,
    expected: Expected,
    name: str,
    last_step: int | None = None,
) -> set[str]:
    """The names of the settings that the log confirms. Raises UserError if it contradicts one, or
    itself. A run whose log ends with `last_step` may have been planned to be longer, if its user
    states how long it was."""
    wanted = {
        "batch_size_per_device": (expected.micro_batch_size, None),
        "global_batch_size": (expected.global_batch_size, None),
        "world_size": (expected.topology.world_size, None),
        "nodes": (expected.topology.nodes, None),
        "precision": (expected.precision, None),
        "total_steps": (rule.total_steps, _rule_by("total_steps", expected)),
        "warmup_steps": (rule.warmup_steps, _rule_by("warmup_steps", expected)),
        "log_every": (expected.log_every, "--log-every"),
    }
    confirmed = {"batch size"} if expected.unit == BANDWIDTH else set()
    if any(header.network is not None for header in headers):  # checked before
        confirmed.add("network")
    for field, what in _WHAT.items():
        stated = [(h.line, value) for h in headers if (value := getattr(h, field)) is not None]
        if not stated:
            continue
        _check_agreement(what, stated, name)
        line, value = stated[0]
        if field == "batch_size_per_device":
            value = as_batch_size(value)
        if field == "total_steps" and _was_longer(value, last_step, rule, expected):
            continue
        value_wanted, by = wanted.get(field, (None, None))
        if field in wanted and field != "log_every":
            confirmed.add(what)
        is_same = value == value_wanted or same_precision(value, value_wanted)
        if value_wanted is not None and not is_same:
            raise UserError(
                f"the {what} contradicts {by or expected.by(what)}",
                where=f"{name}:{line}",
                expected=str(value_wanted),
                found=_shown(value),
                hint=_hint(field, value, expected, last_step),
            )
    if "global batch size" in confirmed:
        confirmed.add("batch size")
    options: dict[str, list[tuple[int, object]]] = {}
    for header in headers:
        for option, printed in header.parameters:
            options.setdefault(option, []).append((header.line, printed))
    for option, stated in options.items():
        _check_agreement(option.replace("_", " "), stated, name)
    return confirmed


def _rule_by(field: str, expected: Expected) -> str:
    """The option that states a field of the rule, or the rule."""
    stated = expected.by(field)
    return "the calculation rule" if stated == expected.by("") else stated


def _was_longer(planned: int, last_step: int | None, rule: Rule, expected: Expected) -> bool:
    """True if a log ends with the steps that its user states, of a run that was to have more."""
    is_stated = expected.by("total_steps") != expected.by("")
    return is_stated and last_step is not None and last_step <= rule.total_steps < planned


def same_precision(a: object, b: object) -> bool:
    """True if two precisions, each of which may be one of several, can be the same. Some programs
    call training in fp16 automatic mixed precision."""
    first, second = (set(str(value).split("|")) for value in (a, b))
    return bool(first & second) or {*first, *second} == {"amp", "fp16"}


def _hint(field: str, value: object, expected: Expected, last_step: int | None) -> str | None:
    if field == "warmup_steps" and last_step and expected.by("") != "the plan":
        return f"if the log is whole, state its steps: --total-steps {last_step}"
    if field != "nodes":
        return None
    devices = expected.topology.gpus_per_node
    return f"a run on {value} nodes is one of {value}n{devices}g, if each uses {devices} devices"


def _shown(value: object) -> str:
    return str(value).replace("|", " or ")


def _check_agreement(what: str, stated: Iterable[tuple[int, object]], name: str) -> None:
    (first, value), *others = stated
    for line, other in others:
        if other != value:
            raise UserError(
                f"the {what} contradicts line {first}",
                where=f"{name}:{line}",
                expected=_shown(value),
                found=_shown(other),
                hint="was the run started again with other settings, or did it stop early?",
            )


def final_rate(headers: Iterable[Header], name: str) -> float | None:
    """The rate that the program prints at its end. Raises UserError if it prints several."""
    final = [header for header in headers if header.final_samples_per_second is not None]
    if len(final) > 1:
        raise UserError(
            f"the rate of the whole run repeats line {final[0].line}",
            where=f"{name}:{final[1].line}",
            expected="one",
            found=f"{final[0].final_samples_per_second}, then {final[1].final_samples_per_second}",
            hint="do several processes or runs write to this log?",
        )
    return final[0].final_samples_per_second if final else None


def first_stated(headers: Iterable[Header], field: str) -> Any:
    """The value of the first header that has this field; None if there is none."""
    values = (getattr(header, field) for header in headers)
    return next((value for value in values if value is not None), None)
