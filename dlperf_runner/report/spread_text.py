"""The spread between campaigns for a terminal: what `aa` measured, and what `compare` knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..core.identity import GROUP, columns_of, topology_text
from ..core.lists import counted
from ..stats.between_campaigns import between_interval
from ..stats.groups import by_group, title
from .tables import Column
from .terminal import PIPE, Screen, table, wrapped

if TYPE_CHECKING:
    from ..compare.spread import MeasuredSpreads

COLUMNS = (
    *(Column("topology"), Column("campaigns", True), Column("runs", True)),
    *(Column("between campaigns", True), Column("interval", True, stacks=True)),
    Column("within a campaign", True),
)


def render_spreads(measured: MeasuredSpreads, screen: Screen = PIPE) -> str:
    """A table per workload and settings, then the cases without a spread."""
    lines: list[str] = []
    flat = [{**record, **record["case"]} for record in spread_records(measured)]
    for heading, rows in by_group(flat).items():
        lines += [*wrapped(heading, screen.prose), "", table(COLUMNS, map(_cells, rows), screen)]
    if flat:
        text = "Standard deviations, with the 95 % interval of the one between campaigns."
        lines += wrapped(text, screen.prose)
    for key, why in measured.without.items():
        case = columns_of(key)
        table_key = {name: case[name] for name in GROUP} | {"unit": measured.units[key]}
        text = f"{title(table_key)}, {topology_text(case)}: {why}"
        lines += wrapped(text, screen.prose, first="- ", rest="  ")
    return "\n".join(lines) + "\n"


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    return (
        topology_text(row),
        str(row["campaigns"]),
        str(row["runs"]),
        f"{row['between']:.2%}",
        f"{row['between_low']:.2%} to {row['between_high']:.2%}",
        f"{row['within']:.2%}",
    )


def spread_records(measured: MeasuredSpreads) -> Iterator[dict[str, Any]]:
    """The spread of each case, as programs read it. All spreads are fractions of the throughput."""
    for key, spread in measured.spreads.items():
        interval = between_interval(spread)
        yield {
            "case": columns_of(key),
            "unit": measured.units[key],
            "measured_with": list(measured.measured_with[key]),
            "campaigns": spread.campaigns,
            "runs": spread.runs,
            "between": spread.between,
            "between_low": interval.low,
            "between_high": interval.high,
            "within": spread.within,
        }


def about_spread(rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """What is known of the spread between campaigns, for the compared cases."""
    known = [row for row in rows if row["between_campaigns"] is not None]
    for number in sorted({row["between_campaigns_of"] for row in known}):
        spreads = [
            row["between_campaigns"] for row in known if row["between_campaigns_of"] == number
        ]
        low, high = f"{min(spreads):.2%}", f"{max(spreads):.2%}"
        yield (
            f"The intervals of {counted(len(spreads), 'case')} include the spread between"
            f" campaigns: {low if low == high else f'{low} to {high}'}, measured with {number}"
            " campaigns."
        )
    if unknown := len(rows) - len(known):
        yield (
            f"The spread between campaigns is unknown for {counted(unknown, 'case')}: the same code"
            " may differ by more from day to day than within a campaign. `dlperf aa` measures it."
        )
