"""The command `explain`: a budget of the difference between a campaign and a published number."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import unknown_name
from ..options import (
    AboutLogs,
    AsJson,
    Conditions,
    exit_with,
    option,
    print_json,
    reading_logs,
    screen,
    states,
)
from ..report.numbers import percent
from ..report.tables import Column, span
from ..report.terminal import PIPE, Screen, table, wrapped

if TYPE_CHECKING:
    from .budget import BudgetItem
    from .measured import Budget

ORDER = 165
_Campaign = Annotated[Path, typer.Argument(help="A campaign, or logs.", metavar="CAMPAIGN")]
_To = Annotated[str, option("--to", "A name of `dlperf list published`.", "PUBLICATION")]
_Bandwidth = Annotated[
    Path | None,
    option("--bandwidth", "A campaign of the model nccl-all-reduce on the same nodes.", "DIR"),
]
_Hunts = Annotated[
    list[Path] | None,
    option("--hunt", "A campaign of `doctor --hunt` on these nodes; may be repeated.", "DIR"),
]


@partial(states)
def command(
    about: AboutLogs,
    campaign: _Campaign,
    to: _To,
    bandwidth: _Bandwidth = None,
    hunt: _Hunts = None,
    condition: Conditions = None,
    as_json: AsJson = False,
) -> None:
    """Explain the difference between a campaign and a published number: its parts, the losses that
    may explain it, the rest, and what to measure next.

    Example: dlperf explain examples/logs --to mxnet-resnet50v1b"""
    from ..catalog.published_numbers import load_reports
    from ..compare.conditions import parse_stated
    from ..results.load import catalogued, load_results
    from ..results.statement import with_conditions
    from .measured import budgets

    names = [report.name for report in load_reports()]
    if to not in names:
        raise unknown_name("publication", to, names, "--to")
    statements = about.statements()
    load = partial(load_results, progress=reading_logs)
    results = load(campaign, catalogued([campaign]), statements=statements)
    busses = None if bandwidth is None else load(bandwidth, catalogued([bandwidth]))
    hunts = [load(path, catalogued([path])) for path in hunt or ()]
    problems = [p for each in (results, busses, *hunts) if each for p in each.problems]
    if not results.counted:
        exit_with(problems)
    stated = parse_stated(with_conditions(condition or [], statements, campaign))
    explained = budgets(results, to, stated, busses, hunts)
    if as_json:
        print_json({"campaign": str(campaign), "budgets": [asdict(budget) for budget in explained]})
    else:
        print("\n\n".join(render(budget, screen()) for budget in explained))
    exit_with(problems)


_COLUMNS = (
    *(Column("item"), Column("difference", True), Column("interval", True)),
    Column("measured", wraps=True),
)


def render(budget: Budget, screen: Screen = PIPE) -> str:
    """A budget as a table, the conditions, and the measurement that comes next."""
    heading = f"{budget.title}, and {budget.publication} ({budget.source})"
    lines = [*wrapped(heading, screen.prose), ""]
    rows = [
        (i.name, _difference(i), span(i.low, i.high, percent, " to "), i.detail)
        for i in budget.items
    ]
    lines += [*table(_COLUMNS, rows, screen).splitlines(), ""]
    for name, text in budget.conditions.items():
        lines += wrapped(f"- {name}: {text}", screen.prose, rest="  ")
    if (after := budget.next) is None:
        return "\n".join([*lines, "", "Next: nothing; this is not slower than published."])
    text = f"Next: {after.item} ({after.reason}):"
    return "\n".join([*lines, "", *wrapped(text, screen.prose), f"    {after.command}"])


def _difference(item: BudgetItem) -> str:
    if item.relative is None:
        return item.kind if item.low is None else ""
    return f"{'at most ' if item.kind == 'at most' else ''}{percent(item.relative)}"
