"""Comparisons for a terminal: mine beside the published, two campaigns, publications, and the
spread between campaigns."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ..compare.verdicts import ALONE, FAILED, NOT_COMPARABLE, TOO_FEW, UNDECIDED, together
from ..core.identity import GROUP, TOPOLOGY, columns_of, topology_text
from ..core.lists import counted, grouped
from ..core.printable import for_xml
from ..core.units import SAMPLES, per_second
from ..stats.between_campaigns import between_interval
from ..stats.groups import by_group, title
from .case_tables import STATED, alike, compared_on_terminal, judgement, limit_column
from .labels import load_labels
from .numbers import exact_decimals, percent, rate_decimals, ratio
from .tables import Cell, Column, cell, span
from .terminal import PIPE, Screen, listed, table, titled, wrapped

if TYPE_CHECKING:
    from ..compare.published import SideBySide
    from ..compare.spread import MeasuredSpreads

Record = Mapping[str, Any]
_NOTES = {
    "factors": "not comparable because of ",
    "unpublished": "not published: ",
    "to_state": "if it ran so, it is comparable with --assume-published, or with ",
    "by": "throughput by ",
    "noted": "also differs or is not known: ",
    "stated": "only stated, not in the logs: ",
    "stated_a": "only stated, not in the logs of a: ",
    "stated_b": "only stated, not in the logs of b: ",
    "unknown": "not stated by the publication: ",
    "assumed": "not recorded, and taken as published: ",
    "declared": "changed in the published command: ",
    "environment": "differs in ",
    "apart": "not paired: ",
    "unrecorded": "not recorded on either side, so it may differ: ",
    "why": "undecided: ",
}
_INTERVAL = Column("interval", True, stacks=True)
_STACKED_N = Column("n", True, stacks=True)


def render_published(
    rows: Sequence[dict[str, Any]],
    tolerance: float,
    screen: Screen = PIPE,
    limit: float | None = None,
    *,
    every: bool = False,
) -> str:
    """A table per workload and settings with the verdicts, and below each where the numbers stand
    and what differs; then the verdicts counted. With `every`, as cases have several publications,
    each row names its own."""
    if not rows:
        return "No run could be counted.\n"
    lines: list[str] = []
    for heading, group in by_group(rows).items():
        shown = compared_on_terminal(group, limit, every=every)
        lines += titled(heading, shown.columns, shown.rows, screen)
        notes = (*_notes(group, ["publication"] if every else []), *_cited(group, every))
        lines += [*listed(notes, screen), ""]
    end = [
        f"{_counts([row['verdict'] for row in rows])}. Reproduced is a ratio within "
        f"{1 - tolerance:.2f} to {1 + tolerance:.2f}, all of its interval."
    ]
    if coverage := next((row["ratio_coverage"] for row in rows if row["ratio_coverage"]), None):
        end.append(
            f"Intervals contain the true ratio in {coverage:.0%} of comparisons of normally"
            " distributed runs, and in fewer of skewed ones."
        )
    end += _about_stated(rows)
    if any(row["ratio"] is not None and row["ratio_low"] is None for row in rows):
        end.append("Fewer than 3 runs have no interval and are undecided.")
    return _ended(lines, [*end, *_gate(rows, limit)], screen)


def render_campaigns(
    rows: Sequence[Record], names: tuple[str, str], limit: float | None, screen: Screen = PIPE
) -> str:
    """A table per workload and settings, then what the two ran on where that differs, what is in
    one of them only, and what the limit says."""
    if not rows:
        return "No run could be counted.\n"
    lines = [*wrapped(f"a: {names[0]}", screen.prose), *wrapped(f"b: {names[1]}", screen.prose), ""]
    setting: tuple[str, ...] = ("workload", "model", "source", "precision", "batch_size_per_device")
    setting += ("unit",)
    if len(_grouped(rows, (*setting, *TOPOLOGY))) < len(rows):
        setting += ("parameters", "directory")
    for key, group in _grouped(rows, setting).items():
        heading = title({**dict.fromkeys(GROUP), **dict(zip(setting, key, strict=True))})
        lines += [*wrapped(heading, screen.prose), ""]
        lines += [_campaign_table(group, screen, limit)]
        # What neither side recorded matters to a gate only.
        noted = group if limit is not None else [{**row, "unrecorded": None} for row in group]
        notes = _notes(noted, ["distinction"])
        lines += [*listed(notes, screen), ""] if notes else []
    cases = [row for row in rows if row["p_value"] is not None]
    end = [f"{_counts([row['verdict'] for row in rows])}.", *_about_stated(rows)]
    if len(cases) > 1:
        end.append(
            f"In 95 of 100 comparisons, every interval of these {len(cases)} cases contains the"
            " true difference. Perhaps faster or slower holds for a case alone, but not among so"
            " many."
        )
        if pooled := together(rows):
            interval = span(pooled.relative_low, pooled.relative_high, percent, " to ").text
            mean = f"Mean of {pooled.cases} cases: {interval}, {pooled.verdict}."
            end.append(f"{mean} Single cases may differ.")
    end += about_spread(cases)
    return _ended(lines, [*end, *_gate(rows, limit)], screen)


def render_publications(groups: Sequence[SideBySide], screen: Screen = PIPE) -> str:
    """Each number with what tells it from the others of its group."""
    from ..compare.published import named_values

    if not groups:
        return "No publications seem to contradict each other.\n"
    lines: list[str] = []
    for group in groups:
        numbers = group.numbers
        columns = (
            Column(per_second(numbers[0].unit), True),
            Column("publication"),
            Column("conditions", stacks=True, wraps=True),
        )
        heading = f"{group.framework} {group.model} {group.precision}, {group.topology}"
        if len(numbers) > 1:
            heading += f": {counted(len(numbers), 'number')}, {group.spread:.0%} apart"
        shown = exact_decimals(number.samples_per_second for number in numbers)
        rows = [
            (
                f"{number.samples_per_second:.{shown}f}",
                f"{number.title}, {number.date}",
                named_values(number, group.factors),
            )
            for number in numbers
        ]
        lines += titled(heading, columns, rows, screen)
    return "\n".join(lines)


# ---- pieces


def _grouped(rows: Sequence[Record], columns: Sequence[str]) -> dict[tuple[Any, ...], list[Record]]:
    return grouped(rows, lambda row: tuple(row[name] for name in columns))


def _campaign_table(rows: Sequence[Record], screen: Screen, limit: float | None) -> str:
    is_told = any(row["distinction"] for row in rows)
    unit, english = rows[0]["unit"], load_labels()
    judged = ["verdict", *(["limit_verdict"] if limit is not None else [])]
    columns = [
        Column("topology"),
        *([Column("environment", stacks=True, wraps=True)] if is_told else []),
        *(Column(f"a ({unit})" if unit != per_second(SAMPLES) else "a", True), _STACKED_N),
        *(Column("b", True), _STACKED_N),
        *(Column("difference", True), _INTERVAL),
        *(Column("at worst", True, stacks=True), Column("p", True)),
        Column("effect", True, stacks=True),
        Column("verdict", wraps=True),
        *([limit_column(limit)] if limit is not None else []),
    ]
    cells: list[tuple[str | Cell, ...]] = []
    for row in rows:
        rate = f".{rate_decimals(row['workload'], (row['a'], row['b']))}f"
        cells.append(
            (
                topology_text(row),
                *([row["distinction"] or "-"] if is_told else []),
                *(cell(row["a"], rate), cell(row["n_a"]), cell(row["b"], rate), cell(row["n_b"])),
                cell(row["relative"], percent),
                span(row["relative_low"], row["relative_high"], percent, " to "),
                cell(row["at_worst"], percent),
                cell(row["p_value"], ".2g"),
                cell(row["effect_size"], "+.2f"),
                *(judgement(row[name], english) for name in judged),
            )
        )
    return table(columns, cells, screen)


def _notes(group: Sequence[Record], names: Sequence[str] = ()) -> list[str]:
    """Each note once, with the rows that it applies to unless it applies to all. Rows are told by
    their topology, and by the columns `names`."""
    noted = [
        row
        if row.get("report", "")
        else {**row, "factors": None, "unpublished": row.get("factors")}
        for row in group
    ]
    notes = []
    for column, label in _NOTES.items():
        for text, rows in alike(noted, column):
            where = "" if len(rows) == len(group) else f"{_where(rows, group, names)}: "
            notes.append(f"{where}{label}{text}")
    return notes


def _where(rows: Sequence[Record], group: Sequence[Record], names: Sequence[str]) -> str:
    """`1n1g, 1n2g`, with the names before: `report-a; report-b 1n1g, 1n2g`."""
    every = _grouped(group, names)
    places = []
    for key, of_name in _grouped(rows, names).items():
        words = [word for word in key if word]
        if not words or len(of_name) < len(every[key]):
            words.append(", ".join(map(topology_text, of_name)))
        places.append(" ".join(words))
    return "; ".join(places)


def _cited(group: Sequence[Record], every: bool) -> Iterable[str]:
    return dict.fromkeys(
        f"{row['report'] if every else 'published'}: {row['published_title']},"
        f" {row['published_date']} ({row['published_source']})"
        for row in group
        if row["report"] is not None
    )


def _gate(rows: Sequence[Record], limit: float | None) -> list[str]:
    if limit is None:
        return []
    verdicts = [row["limit_verdict"] for row in rows if row["limit_verdict"]]
    slower = verdicts.count(FAILED)
    text = f"Limit {limit * 100:g} %: {slower} of {counted(len(verdicts), 'case')}"
    rest = _counts([verdict for verdict in verdicts if verdict != FAILED])
    return [f"{text} {'is' if slower == 1 else 'are'} slower than allowed{rest and f'; {rest}'}."]


def _about_stated(rows: Sequence[Record]) -> list[str]:
    """The number of verdicts that no log confirms in all they rest on."""
    stated = [row for row in rows if any(row.get(name) for name in (*STATED, "assumed"))]
    which = "All" if len(stated) == len(rows) else f"{len(stated)} of {len(rows)}"
    text = f"{which} rest on what was only stated or assumed, which is listed below each table."
    return [text] if stated else []


def _ended(lines: Sequence[str], end: Sequence[str], screen: Screen) -> str:
    paragraphs = (line for text in end for line in wrapped(text, screen.prose))
    return "\n".join([*lines, *paragraphs]) + "\n"


def _counts(verdicts: Sequence[str]) -> str:
    return ", ".join(f"{number} {verdict}" for verdict, number in Counter(verdicts).items())


_SPREAD = (
    *(Column("topology"), Column("campaigns", True), Column("runs", True)),
    *(Column("between campaigns", True), Column("interval", True, stacks=True)),
    Column("within a campaign", True),
)


def render_spreads(measured: MeasuredSpreads, screen: Screen = PIPE) -> str:
    """A table per workload and settings, then the cases without a spread."""
    lines: list[str] = []
    flat = [{**record, **record["case"]} for record in spread_records(measured)]
    for heading, rows in by_group(flat).items():
        cells = (
            (
                *(topology_text(row), str(row["campaigns"]), str(row["runs"])),
                f"{row['between']:.2%}",
                span(row["between_low"], row["between_high"], ".2%", " to "),
                f"{row['within']:.2%}",
            )
            for row in rows
        )
        lines += titled(heading, _SPREAD, cells, screen)
    if flat:
        text = "Standard deviations, with the 95 % interval of the one between campaigns."
        lines += wrapped(text, screen.prose)
    for key, why in measured.without.items():
        case = columns_of(key)
        table_key = {name: case[name] for name in GROUP} | {"unit": measured.units[key]}
        lines += listed([f"{title(table_key)}, {topology_text(case)}: {why}"], screen)
    return "\n".join(lines) + "\n"


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
    """The spread between campaigns, measured or unknown, for the compared cases."""
    measured = [row for row in rows if row["between_campaigns"] is not None]
    for number in sorted({row["between_campaigns_of"] for row in measured}):
        spreads = [
            row["between_campaigns"] for row in measured if row["between_campaigns_of"] == number
        ]
        low, high = f"{min(spreads):.2%}", f"{max(spreads):.2%}"
        yield (
            f"The intervals of {counted(len(spreads), 'case')} include the spread between"
            f" campaigns: {low if low == high else f'{low} to {high}'}, measured with {number}"
            " campaigns."
        )
    if unknown := len(rows) - len(measured):
        yield (
            f"The spread between campaigns is unknown for {counted(unknown, 'case')}: the same code"
            " may differ by more from day to day than within a campaign. `dlperf aa` measures it."
        )


Result = Literal["passed", "failure", "error", "skipped"]
NOT_COMPARED = {NOT_COMPARABLE, *ALONE}
# The properties of a test.
NUMBERS = (
    *("a", "b", "n_a", "n_b", "relative", "relative_low", "relative_high", "at_worst"),
    *("mine", "repeats", "published", "ratio", "ratio_low", "ratio_high"),
    *("verdict", "limit", "environment", "apart", "factors", "noted", "unknown", "declared"),
    *("stated", "stated_a", "stated_b", "assumed"),
    "published_title",
)


def junit(suite: str, cases: Sequence[Record], allow_undecided: bool = False) -> str:
    """The cases of a comparison as tests, in JUnit XML: a failure is slower, an error could not be
    decided. Without a limit none fails; what is not compared is skipped, and with `allow_undecided`
    what could not be decided is, too. Characters that XML cannot hold are left out."""
    results = [_result(case, allow_undecided) for case in cases]
    count = Counter(result for result, _ in results)
    numbers = {"tests": len(cases), "failures": count["failure"], "errors": count["error"]}
    attributes = {"name": for_xml(suite)} | {name: str(n) for name, n in numbers.items()}
    root = ET.Element("testsuites", {**attributes, "time": "0"})
    skipped = str(count["skipped"])
    element = ET.SubElement(root, "testsuite", {**attributes, "skipped": skipped, "time": "0"})
    for case, (result, message) in zip(cases, results, strict=True):
        _add_test(element, case, result, message)
    ET.indent(root)
    text = ET.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _add_test(suite: ET.Element, case: Record, result: Result, message: str) -> None:
    setting = f"{case['precision']} b{case['batch_size_per_device']} {topology_text(case)}"
    name = ", ".join(filter(None, (setting, case.get("distinction"))))
    place = ".".join(str(case[key]) for key in ("workload", "model", "source") if case[key])
    names = {"name": for_xml(name), "classname": for_xml(place), "time": "0"}
    test = ET.SubElement(suite, "testcase", names)
    properties = ET.SubElement(test, "properties")
    for key in NUMBERS:
        if (value := case.get(key)) is not None:
            pair = {"name": key, "value": for_xml(str(value))}
            ET.SubElement(properties, "property", pair)
    if result != "passed":
        about = {"message": for_xml(message)}
        if result != "skipped":
            about["type"] = "slower" if result == "failure" else "undecided"
        ET.SubElement(test, result, about)


def _result(case: Record, allow_undecided: bool) -> tuple[Result, str]:
    verdict, why = case["limit_verdict"], case["why"] or case["verdict"]
    if verdict == FAILED:
        return "failure", f"slower by more than {case['limit']:.1%}: {_measured(case)}"
    if verdict == TOO_FEW:
        return "error", str(why)
    if verdict == UNDECIDED:
        return ("skipped" if allow_undecided else "error"), str(why)
    compared = case["verdict"] not in NOT_COMPARED
    return ("passed", "") if verdict or compared else ("skipped", str(case["verdict"]))


def _measured(case: Record) -> str:
    """-7.0% (-7.3% to -6.7%), 384.19 before and 357.30 now, n = 5 and 5"""
    name, form = ("ratio", ratio) if "ratio" in case else ("relative", percent)
    low, high = case[f"{name}_low"], case[f"{name}_high"]
    interval = "" if low is None or high is None else f" ({span(low, high, form, ' to ').text})"
    if "ratio" in case:
        sides = f"{case['published']:.2f} published and {_rate(case, 'mine')} now"
        return f"ratio {ratio(case['ratio'])}{interval}, {sides}, n = {case['repeats']}"
    sides = f"{_rate(case, 'a')} before and {_rate(case, 'b')} now"
    return f"{percent(case['relative'])}{interval}, {sides}, n = {case['n_a']} and {case['n_b']}"


def _rate(case: Record, column: str) -> str:
    return f"{case[column]:.{rate_decimals(case['workload'], [case[column]])}f}"
