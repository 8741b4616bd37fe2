"""The command `history`: what campaigns came to, over time."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..core.errors import UserError
from .options import AsJson, print_json

if TYPE_CHECKING:
    from ..history.store import Point
    from ..stats.change_points import ChangePoint


def history(
    framework: Annotated[
        str, typer.Option("--framework", help="Only this one.", metavar="NAME")
    ] = "",
    workload: Annotated[
        str, typer.Option("--workload", help="Only this one.", metavar="NAME")
    ] = "",
    model: Annotated[str, typer.Option("--model", help="Only this one.", metavar="NAME")] = "",
    since: Annotated[
        str,
        typer.Option("--since", help="Only campaigns created from then on.", metavar="DATE"),
    ] = "",
    case: Annotated[
        str,
        typer.Option("--case", help="One case by its name, each campaign of it.", metavar="ID"),
    ] = "",
    plot: Annotated[
        Path | None,
        typer.Option("--plot", help="With --case: draw it, too; .svg or .png.", metavar="FILE"),
    ] = None,
    file: Annotated[Path, typer.Option("--file", help="The history.", metavar="FILE")] = Path(
        "results/history.sqlite"
    ),
    as_json: AsJson = False,
) -> None:
    """Show what campaigns came to over time, and where a case changed its level."""
    from ..commands.progress import followed
    from ..history.store import points
    from ..report import history_view
    from ..stats.change_points import change_points

    _check_plot(plot, case)
    start = _date(since)
    chosen = [
        point
        for point in points(file)
        if (not framework or point.framework == framework)
        and (not workload or point.workload == workload)
        and (not model or point.model == model)
    ]
    cases = history_view.by_case(chosen)
    if case:
        name = _named(case, cases, file)
        cases = {name: cases[name]}
    changes = {
        name: change_points([point.samples_per_second_median for point in of])
        for name, of in followed(cases.items(), len(cases), "looking for changes")
    }
    for name in list(cases):
        cases[name], changes[name] = history_view.since(cases[name], changes[name], start)
        if not cases[name]:
            del cases[name]
    if case and not cases:
        raise UserError("no campaign of this case is as new", where="--since", found=since)
    if plot is not None:
        (name,) = cases
        _draw(plot, name, cases[name], changes[name])
    width = shutil.get_terminal_size((80, 24)).columns
    if as_json:
        document = {"cases": history_view.document(cases, changes)}
        print_json(document)
    elif case:
        (name,) = cases
        print(f"{name}\n\n{history_view.case_table(cases[name], changes[name], width)}", end="")
    elif cases:
        print(history_view.cases_table(cases, changes, width), end="")
    else:
        print("No campaign of the history has such a case.")
    if plot is not None and not as_json:
        print(plot)


def _named(text: str, cases: Mapping[str, Sequence[Point]], file: Path) -> str:
    """The one case that is called so, or whose name begins so."""
    fitting = [name for name in cases if name == text] or [n for n in cases if n.startswith(text)]
    if len(fitting) != 1:
        raise UserError(
            "more than one case begins so" if fitting else "there is no such case",
            where="--case",
            expected="one of " + ", ".join((fitting or list(cases))[:20]) if cases else "none is",
            found=text,
            hint=f"`python -m dlperf_runner history --file {file}` lists them",
        )
    return fitting[0]


def _date(text: str) -> datetime | None:
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UserError(
            "this is no date", where="--since", expected="one like 2026-11-21", found=text
        ) from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)


def _check_plot(plot: Path | None, case: str) -> None:
    if plot is None:
        return
    if not case:
        raise UserError("a plot is of one case", where="--plot", expected="--case, too")
    if plot.suffix not in (".svg", ".png"):
        raise UserError(
            "this is no kind of picture that can be drawn",
            where="--plot",
            expected="a name that ends with .svg or .png",
            found=plot.name,
        )


def _draw(plot: Path, name: str, points: Sequence[Point], changes: Sequence[ChangePoint]) -> None:
    from ..report.history_view import chart
    from ..report.pictures import draw

    picture = draw(chart(name, points, changes))
    data = picture.png if plot.suffix == ".png" else f"{picture.svg}\n".encode()
    try:
        plot.parent.mkdir(parents=True, exist_ok=True)
        plot.write_bytes(data)
    except OSError as error:
        raise UserError(
            "the plot cannot be written", where=str(plot), found=error.strerror or str(error)
        ) from None
