"""More runs for the cases of a recorded plan.

They are planned anew from what the plan recorded: its choice and its nodes. If the catalogue has
changed since, the new runs would not be repeats of the recorded ones, and planning fails.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from ..core.errors import UserError
from ..core.node import Node
from .choice import recorded_choice, with_tuples
from .make import make_plan
from .order import ordered

if TYPE_CHECKING:
    from ..catalog.reader import Catalog

# What ends a run that fails. A run that is done was measured in the same way with any of them.
_LIMITS = ("timeout_s", "hung_after_s", "hung_after_lines", "first_step_s")


def more_runs(
    plan: Mapping[str, Any], wanted: Mapping[str, int], catalog: Catalog, where: str
) -> list[dict[str, Any]]:
    """The runs that the plan lacks for cases to have as many repeats as wanted, in its order.

    `plan` is a plan document, with the runs of its revisions. `where` names it in errors.
    """
    choice = recorded_choice(plan["choice"])
    nodes = [Node(**with_tuples(node)) for node in plan["inventory"]]
    most = max(wanted.values())
    runs = make_plan(replace(choice, repeats=most), catalog, nodes)
    recorded = {run["id"]: run for run in plan["runs"]}
    new = []
    for run in runs:
        if run.case not in wanted or run.repeat > wanted[run.case]:
            continue
        if run.id not in recorded:
            new.append(run)
            continue
        # As JSON has it: with lists in place of tuples.
        made = json.loads(json.dumps(asdict(run)))
        _refuse_other(recorded[run.id], made, where)
    seed = None if choice.seed is None else choice.seed + len(recorded)
    return [asdict(run) for run in ordered(new, choice.order, seed)]


def _refuse_other(recorded: Mapping[str, Any], made: Mapping[str, Any], where: str) -> None:
    for name, value in made.items():
        if name not in _LIMITS and recorded.get(name) != value:
            raise UserError(
                "the catalogue or this program has changed since the campaign was planned, so more"
                " runs would be of another kind",
                where=where,
                expected=f"{name} {recorded.get(name)!r} of {recorded['id']}",
                found=repr(value),
                hint="start a new campaign",
            )
