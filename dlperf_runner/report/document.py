"""The content of a report, before it is Markdown, HTML or a spreadsheet; no statistic."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from ..campaign.directory import RESULTS, name_of
from ..core.files import as_object, is_campaign, readable_json
from ..core.frame import Frame, records
from ..core.identity import GROUP, case_key, topology_text, value_text
from ..core.lists import grouped
from ..results.load import Results
from ..results.statement import Statements
from . import case_tables, charts
from .case_tables import sweep_tables, time_chart, time_tables
from .charts import Chart
from .labels import Labels
from .numbers import common_unit, is_bandwidth, named_record, rate_decimals
from .plan_text import shell_line
from .tables import Cell, Column, Table, cell

# Facts that name a node are different on every one, and say nothing.
_NAMES = {"hostname", "address"}


@dataclass(frozen=True)
class CampaignRecord:
    """The records of a campaign; a tree of logs has none."""

    campaign: Mapping[str, Any]
    runs: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Mapping[str, str]]  # by host, then name
    versions: Mapping[str, Mapping[str, str]]  # by environment

    @property
    def created(self) -> str:
        """When the campaign was made, to the minute; what is no time as it stands."""
        text = str(self.campaign.get("created") or "")
        try:
            return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        except ValueError:
            return text

    @property
    def notes(self) -> list[str]:
        """The notes and tags of its campaign file."""
        notes, tags = self.campaign.get("notes"), self.campaign.get("tags")
        named = f"tags: {', '.join(map(str, tags))}" if isinstance(tags, list) and tags else ""
        return [*filter(None, (str(notes) if notes else "", named))]

    @property
    def inventory(self) -> list[Mapping[str, Any]]:
        nodes = self.campaign.get("inventory")
        return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def read_campaign_record(directory: Path) -> CampaignRecord:
    """The records below a directory, without those that cannot be read: the results name them."""
    records = map(readable_json, sorted((directory / "runs").glob("*/*/run.json")))
    runs = [record for record in records if record]
    facts = _in_turn(
        (host, name, value)
        for run in runs
        for host, values in as_object(as_object(run.get("outcome")).get("hosts")).items()
        for name, value in as_object(values).items()
        if value not in (None, "", [], {})
    )
    versions = _in_turn(
        (str(run.get("environment") or run.get("framework")), name, version)
        for run in runs
        for name, version in as_object(as_object(run.get("outcome")).get("versions")).items()
    )
    by_name = {
        environment: dict(sorted(values.items())) for environment, values in versions.items()
    }
    return CampaignRecord(readable_json(directory / "campaign.json"), runs, facts, by_name)


def _in_turn(facts: Iterable[tuple[str, str, object]]) -> dict[str, dict[str, str]]:
    """Texts by host or environment, then by name; of one that changed meanwhile, each in its
    turn."""
    turns: dict[str, dict[str, dict[str, None]]] = {}
    for place, name, value in facts:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        turns.setdefault(place, {}).setdefault(name, {})[text] = None
    return {
        place: {name: " → ".join(texts) for name, texts in of_place.items()}
        for place, of_place in sorted(turns.items())
    }


def differences(facts: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """The differences between nodes: a fact, one of its values (empty if it is missing), and the
    nodes that have it."""
    names = dict.fromkeys(
        name for of_host in facts.values() for name in of_host if name not in _NAMES
    )
    for name in names:
        hosts: dict[str, list[str]] = {}
        for host, of_host in facts.items():
            hosts.setdefault(of_host.get(name, ""), []).append(host)
        if len(hosts) > 1:
            for value, having in sorted(hosts.items(), key=lambda item: (-len(item[1]), item[0])):
                yield name, value, having


def run_command(campaign: Mapping[str, Any]) -> str:
    """The command that makes the same campaign anew, given the same inventory."""
    words = ["dlperf", "run"]
    for name, value in as_object(campaign.get("choice")).items():
        if name == "parameters":
            for key, one in as_object(value).items():
                words += ["--parameter", f"{key}={one}"]
        elif value not in (None, "", []):
            texts = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", ",".join(map(str, texts))]
    return shlex.join(words)


def report_command(
    directories: Sequence[Path],
    statements: Statements,
    options: Mapping[str, Any],
    catalog: Path | None,
) -> str:
    """The command that makes the same report of these campaigns and logs."""
    words = ["dlperf"]
    words += ["--catalog", str(catalog)] if catalog else []
    words.append("report")
    # A campaign may be moved, and its report does not change then.
    words += [
        str(RESULTS / name_of(path)) if is_campaign(path) else str(path) for path in directories
    ]
    words += statements.arguments()
    words += [word for text in options["conditions"] for word in ("--condition", text)]
    words += ["--lang", options["lang"]] if options["lang"] != "en" else []
    words += ["--one-chart"] if options["one_chart"] else []
    return shlex.join(words)


def case_commands(runs: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """For each case, the commands of its first run, one per line and host."""
    by_case: dict[str, str] = {}
    for run in runs:
        commands = run.get("commands")
        if not isinstance(commands, list) or not commands:
            continue
        with suppress(KeyError, TypeError, AttributeError):  # a record of another time
            lines = [f"# {command['host']}\n{shell_line(command)}" for command in commands]
            by_case.setdefault(str(run.get("case")), "\n".join(lines))
    return list(by_case.items())


# Points of all speed-over-iterations charts together, and of one line: what a page can carry.
_ALL_POINTS, _MOST_POINTS, _LEAST_POINTS = 120_000, 240, 24


@dataclass(frozen=True)
class Campaign:
    """One directory: what was computed of it, and what it recorded of itself."""

    name: str
    results: Results
    cases: Sequence[dict[str, Any]]
    recorded: CampaignRecord
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """Charts that belong together; `name` begins their files' names."""

    name: str
    title: str
    charts: tuple[tuple[str, Chart], ...]


@dataclass(frozen=True)
class Section:
    """A table of cases, and the speed of their runs over iterations."""

    table: Table
    series: tuple[Chart, ...]


@dataclass(frozen=True)
class Commands:
    """The command that runs a campaign again, and what it ran on each host, if recorded."""

    campaign: str
    command: str
    cases: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Document:
    """All that a report says."""

    labels: Labels
    title: str
    subtitle: str
    answers: tuple[case_tables.Answer, ...]
    figures: tuple[Figure, ...]
    sections: tuple[Section, ...]
    sweeps: tuple[Table, ...]
    time: tuple[Table, ...]
    side_by_side: tuple[Table, ...]
    comparison: tuple[Table, ...]  # for reading, by group
    compared: Table  # the same, whole
    not_counted: Table | None
    series_not_counted: tuple[Chart, ...]
    environment: tuple[Table, ...]
    differences: Table | None
    commands: tuple[Commands, ...]
    command: str  # makes the report again
    methods: tuple[str, ...]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    cases: tuple[dict[str, Any], ...]
    has_facts: bool


def make_cases(
    campaigns: Sequence[Campaign], families: Mapping[tuple[str, str], str]
) -> tuple[dict[str, Any], ...]:
    """The cases of all campaigns. `families` names what models are versions of, by workload and
    model."""
    several = len(campaigns) > 1
    cases = tuple(
        {"campaign": campaign.name if several else None, **record}
        for campaign in campaigns
        for record in campaign.cases
    )
    for case in cases:
        case["family"] = families.get((case["workload"], case["model"]), case["model"])
    return cases


def make_document(
    campaigns: Sequence[Campaign],
    cases: tuple[dict[str, Any], ...],
    figures: tuple[Figure, ...],
    comparison: Sequence[tuple[str, list[dict[str, Any]]]],
    command: str,
    t: Labels,
) -> Document:
    """The document of some campaigns, of their cases and figures. `comparison` is what
    compare_published made of the cases, by the campaign's name. `command` makes the report."""
    several = len(campaigns) > 1
    verdicts = [
        {"campaign": name if several else None, **row} for name, rows in comparison for row in rows
    ]
    lost = [
        (campaign, record)
        for campaign in campaigns
        for record in _not_counted(campaign.results.frame)
    ]
    drawn = _series_charts(campaigns, several, t)
    sections = []
    for number, group in enumerate(_groups(cases), start=1):
        series = (drawn.pop(_key(case["campaign"], case), None) for case in group)
        table = case_tables.cases(number, group, t)
        sections.append(Section(table, tuple(filter(None, series))))
    stated = {_key(row["campaign"], row): row["stated"] for row in verdicts}
    cases = tuple(case | {"stated": stated.get(_key(case["campaign"], case))} for case in cases)
    dates = {c.name if several else None: c.recorded.created for c in campaigns}
    compared = case_tables.comparison("published", verdicts, t("comparison"), t)
    return Document(
        labels=t,
        title=_title(cases, t),
        subtitle=t("separator").join(_subtitle(campaign, t) for campaign in campaigns),
        answers=tuple(case_tables.answers(cases, verdicts, dates, t)),
        figures=figures,
        sections=tuple(sections),
        sweeps=tuple(sweep_tables(cases, t)),
        time=tuple(time_tables(_groups(cases), t)),
        side_by_side=tuple(case_tables.side_by_side(cases, t)),
        comparison=tuple(case_tables.comparisons(verdicts, t)),
        compared=compared,
        not_counted=_not_counted_table(lost, several, t) if lost else None,
        series_not_counted=tuple(drawn.values()),  # of cases without a table
        environment=tuple(_environment(campaigns, t)),
        differences=_differences(campaigns, t),
        commands=tuple(_commands(campaigns)),
        command=command,
        methods=tuple(t(f"method_{name}") for name in case_tables.METHODS),
        notes=tuple(_by_campaign(campaigns, lambda campaign: campaign.notes)),
        problems=tuple(
            _by_campaign(
                campaigns,
                lambda campaign: map(campaign.results.relative, campaign.results.problems),
            )
        ),
        cases=tuple(map(named_record, cases)),
        has_facts=any(campaign.recorded.facts for campaign in campaigns),
    )


def _title(cases: Sequence[Mapping[str, Any]], t: Labels) -> str:
    """The report's name with what was measured."""
    columns = ("framework", "family")
    names = [t("comma").join(dict.fromkeys(str(c[name]) for c in cases)) for name in columns]
    return t("title_of", names=" ".join(names)) if cases else t("title")


def _subtitle(campaign: Campaign, t: Labels) -> str:
    """A campaign's name and date, and what it ran on, as far as they are known."""
    words = dict.fromkeys((campaign.name, campaign.recorded.created))
    if campaign.cases:
        most = max(campaign.cases, key=itemgetter("world_size"))
        words[t.place(most["nodes"], most["world_size"])] = None
        words |= dict.fromkeys(case_tables.machine(case, t) for case in campaign.cases)
    return t("comma").join(filter(None, words))


def _groups(cases: Iterable[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Cases that stand in one table."""
    return list(grouped(cases, itemgetter("campaign", *GROUP)).values())


def make_figures(
    cases: Sequence[dict[str, Any]],
    published: Sequence[Mapping[str, Any]],
    one_chart: bool,
    t: Labels,
) -> Iterator[Figure]:
    """Charts of each model, and without `one_chart` of each precision and batch size, with the
    `published_points` of the cases."""
    setting = () if one_chart else ("precision", "batch_size_per_device")
    together = grouped(cases, itemgetter("family", "unit", *setting))
    for number, ((family, unit, *varied), same) in enumerate(together.items(), start=1):
        groups = _groups(same)
        names = case_tables.line_names(groups)
        title, stem = family, f"{number:02d}-{family}"
        if varied:
            precision, batch = varied[0], value_text(varied[1])
            stem += f"-{precision}-b{batch}"
            title = t("setting", model=family, precision=precision, batch=batch)
            title = f"{family}, {precision}" if is_bandwidth(same[0]) else title
        stem = case_tables.file_name(stem)
        points = list(_published_points(names, groups, published))
        lines = dict(zip(names, groups, strict=True))
        named = tuple(
            (f"{stem}-{kind}", chart)
            for kind, chart in charts.scaling(title, lines, points, unit, t)
        )
        if named:
            of_time = (
                (f"{stem}-time-{case_tables.file_name(name)}", chart)
                for name, group in zip(names, groups, strict=True)
                if (chart := time_chart(f"{title}, {name}", group, t))
            )
            yield Figure(stem, title, (*named, *of_time))


def _published_points(
    names: Sequence[str],
    groups: Sequence[Sequence[Mapping[str, Any]]],
    published: Sequence[Mapping[str, Any]],
) -> Iterator[dict[str, Any]]:
    """Each published point with the first line of its case, where something was measured on as
    many devices."""
    key_of = itemgetter("workload", "model", "precision", "batch_size_per_device")
    sizes = {case["world_size"] for group in groups for case in group}
    lines: dict[tuple[Any, ...], str] = {}
    for name, group in zip(names, groups, strict=True):
        lines.setdefault(key_of(group[0]), name)
    for point in published:
        line = lines.get(key_of(point))
        if line is not None and point["world_size"] in sizes:
            yield {**point, "line": line}


def _series_charts(
    campaigns: Sequence[Campaign], several: bool, t: Labels
) -> dict[tuple[Any, ...], Chart]:
    """The speed of the runs of each case, as far as there is something to draw."""
    series: dict[tuple[Any, ...], list[Any]] = {}
    invalid: dict[tuple[Any, ...], set[int]] = {}
    for campaign in campaigns:
        name = campaign.name if several else None
        for item in campaign.results.series:
            series.setdefault((name, *item.run.case), []).append(item)
        for record in _not_counted(campaign.results.frame):
            invalid.setdefault(_key(name, record), set()).add(record["repeat"])
    budget = _ALL_POINTS // max(1, sum(map(len, series.values())))
    budget = min(_MOST_POINTS, max(_LEAST_POINTS, budget))
    drawn = {}
    for key, items in series.items():
        run, left_out = items[0].run, invalid.get(key, set())
        devices = t.place(run.topology.nodes, run.topology.world_size)
        drawn[key] = charts.over_iterations(
            devices, run.setting, items, left_out, budget, items[0].unit, t
        )
    return {key: chart for key, chart in drawn.items() if chart}


def _key(campaign: str | None, case: Mapping[str, Any]) -> tuple[Any, ...]:
    """The key of a case, as a RunSeries has it."""
    return (campaign, *case_key(case))


# ---- what was not counted


def _not_counted(frame: Frame) -> list[dict[str, Any]]:
    rows = frame[~frame["valid"] & (frame["metric"] == "samples_per_second")]
    return records(rows)


def _not_counted_table(
    lost: Sequence[tuple[Campaign, dict[str, Any]]], several: bool, t: Labels
) -> Table:
    columns = [Column(t("case")), Column(t("repeat_number"), number=True)]
    unit = common_unit(record["unit"] for _, record in lost) or t("throughput")
    columns += [Column(unit, True, "#,##0.00"), Column(t("why"))]
    rows = []
    for campaign, record in lost:
        place = {"campaign": campaign.name if several else None}
        case = f"{case_tables.group_title({**record, **place}, t)}, {topology_text(record)}"
        value, why = record["value"], record["why_invalid"] or t("unknown")
        rate = cell(value, f",.{rate_decimals(record['workload'], [value])}f")
        rows.append((cell(case), cell(record["repeat"]), rate, cell(why)))
    return Table("not-counted", t("not_counted"), tuple(columns), tuple(rows))


# ---- where it ran


def _environment(campaigns: Sequence[Campaign], t: Labels) -> Iterator[Table]:
    for number, campaign in enumerate(campaigns, start=1):
        suffix = f" – {campaign.name}" if len(campaigns) > 1 else ""
        facts, recorded = campaign.recorded.facts, campaign.recorded
        nodes = {str(node.get("name")): node for node in recorded.inventory}
        kept = ("address", "devices_per_node", "accelerator", "stack", "interface")
        merged: dict[str, dict[str, str]] = {}
        for host in dict.fromkeys((*nodes, *facts)):
            texts = {k: str(v) for k in kept if (v := nodes.get(host, {}).get(k)) is not None}
            merged[host] = {**texts, **facts.get(host, {})}
        names = dict.fromkeys(name for texts in merged.values() for name in texts)
        if merged:
            columns = [Column(t("node")), *(Column(t.optional(f"fact_{n}", n)) for n in names)]
            rows = [
                (Cell(host, host), *(cell(texts.get(name)) for name in names))
                for host, texts in merged.items()
            ]
            title = t("nodes") + suffix
            yield Table(f"nodes-{number}", title, tuple(columns), tuple(rows))
        if recorded.versions:
            versions = [Column(t("environment")), Column(t("package")), Column(t("version"))]
            lines = tuple(
                (cell(environment), cell(name), cell(version))
                for environment, packages in recorded.versions.items()
                for name, version in packages.items()
            )
            yield Table(f"versions-{number}", t("versions") + suffix, tuple(versions), lines)


def _differences(campaigns: Sequence[Campaign], t: Labels) -> Table | None:
    several = len(campaigns) > 1
    rows = [
        (
            *((cell(campaign.name),) if several else ()),
            cell(t.optional(f"fact_{name}", name)),
            cell(value or t("unknown")),
            Cell(", ".join(hosts), len(hosts)),
        )
        for campaign in campaigns
        for name, value, hosts in differences(campaign.recorded.facts)
    ]
    columns = [Column(t("campaign"))] if several else []
    columns += [Column(t("fact")), Column(t("value")), Column(t("nodes"))]
    return Table("differences", t("differences"), tuple(columns), tuple(rows)) if rows else None


def _commands(campaigns: Sequence[Campaign]) -> Iterator[Commands]:
    for campaign in campaigns:
        recorded = campaign.recorded
        if recorded.campaign:
            cases = tuple(case_commands(recorded.runs))
            yield Commands(campaign.name, run_command(recorded.campaign), cases)
        else:
            yield Commands(campaign.name, "", ())


def _by_campaign(campaigns: Sequence[Campaign], texts_of: Any) -> Iterator[str]:
    for campaign in campaigns:
        start = f"{campaign.name}: " if len(campaigns) > 1 else ""
        yield from (f"{start}{text}" for text in texts_of(campaign))
