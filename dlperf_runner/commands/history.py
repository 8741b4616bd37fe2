"""The command `history`: shows the results of campaigns over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ..core.errors import UserError, as_user_error
from ..core.files import write_whole
from ..options import print_json, screen

if TYPE_CHECKING:
    from ..history.store import Point
    from ..stats.change_points import ChangePoint

ORDER = 190
HELP = """
--framework NAME: Show only this framework.
--workload NAME: Show only this workload.
--model NAME: Show only this model.
--since DATE: Show only campaigns created since DATE.
--case ID: Show all campaigns of this case.
--plot FILE: With --case: also plot it to this .svg or .png file.
--history FILE: The history file.
"""


def command(
    framework: str = "",
    workload: str = "",
    model: str = "",
    since: str = "",
    case: str = "",
    plot: Path | None = None,
    history: Path = Path("results/history.sqlite"),
    as_json: bool = False,
) -> None:
    """Show the results of campaigns over time, and the points where the speed of a case changed.

    Example: dlperf history --history results/history.sqlite"""
    from ..history.store import points
    from ..options import followed
    from ..report import history_view

    _check_plot(plot, case)
    start = _date(since)
    chosen = [
        point
        for point in points(history)
        if (not framework or point["framework"] == framework)
        and (not workload or point["workload"] == workload)
        and (not model or point["model"] == model)
    ]
    cases = history_view.by_case(chosen)
    if case:
        name = _named(case, cases, history)
        cases = {name: cases[name]}
    changes = {
        name: history_view.explained(points)
        for name, points in followed(cases.items(), len(cases), "looking for changes")
    }
    for name in list(cases):
        cases[name], changes[name] = history_view.since(cases[name], changes[name], start)
        if not cases[name]:
            del cases[name]
    if case and not cases:
        raise UserError("this case has no campaign since then", where="--since", found=since)
    if plot is not None:
        _draw(plot, name, cases[name], changes[name])
    if as_json:
        print_json({"cases": history_view.document(cases, changes)})
        return
    if case:
        table = f"{name}\n\n{history_view.case_table(cases[name], changes[name], screen())}"
    else:
        table = history_view.cases_table(cases, changes, screen()) if cases else ""
    about = history_view.about_changes(changes, screen()) if cases else ""
    print(f"{table}{about}" or "The history has no matching case.\n", end="")
    if plot is not None:
        print(plot)


def _named(text: str, cases: Mapping[str, Sequence[Point]], file: Path) -> str:
    """The case with this name, or the only case whose name begins with it."""
    fitting = [name for name in cases if name == text] or [n for n in cases if n.startswith(text)]
    if len(fitting) != 1:
        raise UserError(
            "several cases begin with this name" if fitting else "case not found",
            where="--case",
            expected="one of " + ", ".join((fitting or list(cases))[:20])
            if cases
            else "a case in the history, but no case matches the other options",
            found=text,
            hint=f"`dlperf history --history {file}` lists them",
        )
    return fitting[0]


def _date(text: str) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            "invalid date", where="--since", expected="a date like 2026-11-21", found=text
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _check_plot(plot: Path | None, case: str) -> None:
    if plot is None:
        return
    if not case:
        raise UserError("a plot shows one case", where="--plot", expected="--case with --plot")
    if plot.suffix not in (".svg", ".png"):
        raise UserError(
            "unsupported image format",
            where="--plot",
            expected="a file name that ends with .svg or .png",
            found=plot.name,
        )


def _draw(plot: Path, name: str, points: Sequence[Point], changes: Sequence[ChangePoint]) -> None:
    from ..report.charts import draw
    from ..report.history_view import chart

    picture = draw(chart(name, points, changes))
    data = picture.png if plot.suffix == ".png" else f"{picture.svg}\n".encode()
    with as_user_error("cannot write the plot", plot):
        write_whole(plot, data)
