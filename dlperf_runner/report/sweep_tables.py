"""The tables of sweeps: a row per setting, a column per topology, and the best of each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..core.identity import label, parameters_text, topology_text
from ..stats.sweeps import Case, Sweep, SweptTopology, setting, sweeps
from .case_tables import group_title, rate_form, sheet_form
from .labels import Labels
from .tables import Cell, Column, Table, cell

_MEDIAN = "samples_per_second_median"
_Row = tuple[str | None, ...]


def sweep_tables(cases: Sequence[Case], t: Labels) -> Iterator[Table]:
    """One table per sweep of the cases, with the best setting of each topology below it."""
    for number, sweep in enumerate(sweeps(cases), start=1):
        rows = dict.fromkeys(_row(c, sweep) for place in sweep.places for c in place.cases)
        columns = [Column(label(axis)) for axis in sweep.axes]
        columns += [
            Column(
                f"{topology_text(place.best)} {place.best['unit']}",
                True,
                sheet_form(place.cases),
            )
            for place in sweep.places
        ]
        lines = tuple(
            (*map(cell, row), *(_rate(row, place, sweep) for place in sweep.places)) for row in rows
        )
        notes = tuple(_best(place, sweep, t) for place in sweep.places)
        yield Table(f"sweep-{number}", _title(sweep, t), tuple(columns), lines, notes)


def _title(sweep: Sweep, t: Labels) -> str:
    common = {"parameters": parameters_text(sweep.common)}
    varied = {axis: None for axis in sweep.axes if axis in sweep.places[0].best}
    return group_title({**sweep.places[0].best, **common, **varied}, t)


def _row(case: Case, sweep: Sweep) -> _Row:
    return tuple(setting(case, axis) for axis in sweep.axes)


def _rate(row: _Row, place: SweptTopology, sweep: Sweep) -> Cell:
    case = next((case for case in place.cases if _row(case, sweep) == row), None)
    return cell(None if case is None else case[_MEDIAN], rate_form(place.cases))


def _best(place: SweptTopology, sweep: Sweep, t: Labels) -> str:
    rate = f"{place.best[_MEDIAN]:{rate_form(place.cases)}}"
    unit = place.best["unit"]
    place_name, best = topology_text(place.best), _words(place.best, sweep)
    text = t("sweep_best", topology=place_name, setting=best, rate=rate, unit=unit)
    if not place.undecided:
        return text
    others = "; ".join(_words(case, sweep) for case in place.undecided)
    return t("between_sentences").join((text, t("sweep_undecided", settings=others)))


def _words(case: Case, sweep: Sweep) -> str:
    return ", ".join(
        f"{label(axis)} {value or '-'}"
        for axis, value in zip(sweep.axes, _row(case, sweep), strict=True)
    )
