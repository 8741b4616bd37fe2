"""The evidence for budgets: what a campaign, its publication and a campaign of bandwidths state."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from statistics import fmean, median
from typing import Any

from ..catalog.accelerators import memory_of, peak_of
from ..catalog.published_numbers import PublishedNumber, load_published, load_rule
from ..catalog.validity import catalogued_rules
from ..compare.conditions import Values, family, read_conditions
from ..compare.published import compare_published, rates_by_estimator
from ..compare.verdicts import NOT_COMPARABLE
from ..core.case import Topology
from ..core.errors import UserError
from ..core.frame import records, throughput
from ..core.identity import CaseKey, case_key, read_parameters, topology_text
from ..core.lists import counted, grouped, shortened
from ..core.units import BANDWIDTH, per_second
from ..measure.validity import THROTTLE_BITS, of_busy
from ..plan.choice import option_name
from ..report.numbers import as_published
from ..results.load import Results
from ..results.run_log import evidence_of
from ..results.run_record import FoundRun
from ..stats.groups import rates_by_case, title
from ..stats.ratios import LogRatio, published_ratio
from ..stats.summary import BASELINE
from . import budget
from .budget import BudgetItem, Next, Observations, items_of, what_next

Row = Mapping[str, Any]
Busses = Mapping[Topology, tuple[float | None, str]]
ALL_REDUCE = "nccl-all-reduce"
# The settings of a number that its smaller topologies share.
_SAME = (
    *("report", "workload_model", "precision", "batch_size_per_device", "conditions.accelerator"),
    *("conditions.data", "conditions.xla", "conditions.compile", "conditions.recipe"),
    "conditions.sequence_length",
)
# The columns that name conditions.
_CONDITIONS = {
    "factors": "different or unknown",
    "noted": "different, need not be equal",
    "unknown": "not stated by the publication",
    "stated": "only stated, not in the logs",
}


@dataclass(frozen=True)
class Budget:
    title: str
    publication: str
    source: str
    items: Sequence[BudgetItem]
    conditions: Mapping[str, str]
    next: Next | None


@dataclass(frozen=True)
class Compared:
    """A case, its number, and the speed of its runs."""

    row: Row
    number: PublishedNumber
    values: Sequence[float]

    @property
    def topology(self) -> Topology:
        return self.number.topology

    @property
    def ratio(self) -> LogRatio:
        number, repeats = self.number, self.number.conditions.repeats
        return published_ratio(self.values, number.samples_per_second, number.runs, repeats)

    def __str__(self) -> str:
        published = as_published(self.number.samples_per_second)
        runs = counted(len(self.values), "run")
        return f"{self.row['mine']:,.2f} of {published} {self.row['unit']}, {runs}"

    def has_setting_of(self, number: PublishedNumber) -> bool:
        get = attrgetter(*_SAME)
        return number.contradiction is None and get(number) == get(self.number)


def budgets(
    results: Results,
    report: str,
    stated: Values,
    bandwidth: Results | None,
    hunts: Sequence[Results] = (),
) -> list[Budget]:
    """The budget of the largest topology of each table of cases. Raises UserError if no case has a
    number in the report."""
    rule = load_rule()
    conditions = read_conditions(results.counted, results.models, rule, stated)
    table = records(compare_published(results.frame, conditions, rule=rule, every=True))
    compared = [*_compared(results, [row for row in table if row["report"] == report])]
    if not compared:
        raise _nothing_comparable(results, table, report)
    made = []
    for group in grouped(compared, lambda c: itemgetter(*BASELINE)(c.row)).values():
        nearest = grouped(group, lambda c: case_key(c.row)).values()
        case = max((numbers[0] for numbers in nearest), key=lambda c: c.topology.world_size)
        row, smaller = case.row, [c for c in group if case.has_setting_of(c.number)]
        evidence, commands = _evidence(results, case, smaller, bandwidth, [results, *hunts])
        if (conditions.get(case_key(row)) or {}).get("data") != "synthetic":
            commands[budget.INPUT] = _run(case, case.topology, data="synthetic")
        items = items_of(evidence)
        texts = {name: row[column] for column, name in _CONDITIONS.items() if row[column]}
        after = what_next(items, commands, rule.tolerance)
        name = f"{title(row)}, {case.topology}"
        made.append(Budget(name, row["publication"], row["published_source"], items, texts, after))
    return made


def _compared(results: Results, rows: Iterable[Row]) -> Iterator[Compared]:
    rates, by_estimator = rates_by_case(results.frame), rates_by_estimator(results.frame)
    numbers = {
        (n.report, str(n.topology), n.workload_model, n.samples_per_second, workload): n
        for n in reversed(load_published())
        for workload in n.workloads
    }
    for row in rows:
        if row["unit"] == per_second(BANDWIDTH):
            hint = f"`dlperf compare {shlex.quote(str(results.directory))}` judges it"
            raise UserError("a bandwidth has no parts", where=str(results.directory), hint=hint)
        key = case_key(row)
        values = by_estimator[key][row["estimator"]] if row["by"] else rates[key].values
        # A number of another unit is missing.
        if row["published"] is not None and min(values) > 0:
            number = (row["report"], topology_text(row), row["model"], row["published"])
            yield Compared(row, numbers[*number, row["workload"]], values)


def _nothing_comparable(results: Results, table: Sequence[Row], report: str) -> UserError:
    """The error about a campaign of which the report has no case."""
    of_report = (number for number in load_published() if number.report == report)
    numbers = dict.fromkeys(f"{n.workload_model} on {n.topology}" for n in of_report)
    cases = dict.fromkeys(f"{row['model']} on {topology_text(row)}" for row in table)
    others = dict.fromkeys(row["report"] for row in table if row["published"] is not None)
    return UserError(
        f"{report} has no number for a case of this campaign",
        where=str(results.directory),
        expected=shortened([*numbers]),
        found=shortened([*cases]) or "no valid run",
        hint=f"publications that have some: {', '.join(others)}" if others else None,
    )


def _evidence(
    results: Results,
    case: Compared,
    group: Sequence[Compared],
    bandwidth: Results | None,
    hunts: Sequence[Results],
) -> tuple[Observations, dict[str, str]]:
    """The evidence of a case, and the commands that measure what it may lack."""
    key, size = case_key(case.row), case.topology.world_size
    smaller = [c for c in group if c.topology.world_size < size]
    base = min(smaller, key=lambda c: c.topology.world_size, default=None)
    product = family(case.row["accelerator"])
    has_bandwidth = any(
        (n.topology, n.workload_model, family(n.conditions.accelerator))
        == (case.topology, ALL_REDUCE, product)
        for n in load_published()
    )
    about, commands = {budget.DIFFERENCE: str(case)}, _commands(results, case, has_bandwidth)
    if base is not None:
        about[budget.SMALLEST] = f"{base.topology}: {base}"
        about[budget.SCALING] = f"per device, from {base.topology} to {case.topology}"
    else:
        published = (n.topology for n in load_published() if case.has_setting_of(n))
        first = min(published, key=lambda topology: topology.world_size, default=case.topology)
        about[budget.SCALING] = "the publication has no smaller topology"
        if first.world_size < size:
            about[budget.SCALING] = f"the campaign has no runs on {first}"
            commands[budget.SCALING] = _run(case, first)
    of_case = [run for run in results.counted if run.case == key]
    fractions, about[budget.CLOCKS] = _clocks(of_case)
    on = {host for run in of_case for host in run.hosts}
    no_bus = "" if bandwidth is None else f"--bandwidth has none on {case.topology}"
    no_bus = no_bus if has_bandwidth else f"none is published on {case.topology}"
    busses = {} if bandwidth is None else bus_bandwidths(bandwidth, on)
    bus, about[budget.BUS] = busses.get(case.topology, (None, no_bus))
    runs, ratio = _runs(results, key), None if base is None else base.ratio
    rows = [row for each in hunts for row in _rows_on(on, each)]
    devices = _of_devices(case, rows, about, commands)
    return Observations(size, case.ratio, ratio, runs, fractions, bus, devices, about), commands


def _runs(results: Results, key: CaseKey) -> list[dict[str, float]]:
    """The metrics of each valid run of a case."""
    frame = results.frame[results.frame["valid"] & results.frame["value"].notna()]
    of_case = frame[[results.runs[number].case == key for number in frame.index]]
    of_runs = (run for _, run in of_case.groupby(level=0))
    return [dict(zip(run["metric"], run["value"], strict=True)) for run in of_runs]


def _clocks(runs: Sequence[FoundRun]) -> tuple[list[tuple[float, float]], str]:
    """For each run the mean of its devices and the lowest, as fractions of the highest clock that
    the driver states, while they were busy, and a sentence on all; nothing unless telemetry has
    each device of each run."""
    fractions: list[tuple[float, float]] = []
    clocks: list[float] = []
    capped: list[bool] = []
    columns = ("sm_clock_mhz", "max_sm_clock_mhz", "throttle_reasons")
    for run in runs:
        samples, rules = evidence_of(run).samples, run.rules or catalogued_rules()
        clock, highest, reasons = (of_busy(samples, rules, column) for column in columns)
        devices = [name for name in clock if max(highest.get(name, [0])) > 0 < max(clock[name])]
        if len(devices) < run.topology.world_size:
            return [], ""
        each = [[min(1.0, now / max(highest[d])) for now in clock[d]] for d in devices]
        fractions.append((fmean(map(fmean, each)), min(map(fmean, each))))
        clocks += chain(*each)
        bits = chain(*(reasons.get(name, []) for name in devices))
        capped += [bool(int(reason) & THROTTLE_BITS["sw_power_cap"]) for reason in bits]
    text = f"below the highest clock in {fmean(each < 1 for each in clocks):.0%} of the busy time"
    at_limit = f", at the power limit in {fmean(capped):.0%}" if len(capped) == len(clocks) else ""
    return fractions, text + at_limit


def bus_bandwidths(bandwidth: Results, nodes: Set[str] = frozenset()) -> Busses:
    """The bus bandwidth of all-reduce as a fraction of the nearest published one, by topology: the
    lower end of its interval, if it has one; None beside a number that is not comparable, or that
    was measured on other nodes than these. Raises UserError if nothing is one."""
    conditions = read_conditions(bandwidth.counted, bandwidth.models, load_rule())
    busses: dict[Topology, tuple[float | None, str]] = {}
    table = records(compare_published(bandwidth.frame, conditions))
    rows = [row for row in table if row["model"] == ALL_REDUCE]
    hosts = grouped(bandwidth.counted, lambda run: run.case)
    if not rows:
        wanted = f"runs of {ALL_REDUCE}"
        where = f"--bandwidth {bandwidth.directory}"
        raise UserError("no run measured a bus bandwidth", where=where, expected=wanted)
    for row in rows:
        if row["ratio"] is not None:
            published = f"{as_published(row['published'])} {row['unit']} ({row['publication']})"
            about = f"{row['mine']:,.2f} of {published}"
            ratio = row["ratio"] if row["ratio_low"] is None else row["ratio_low"]
            if row["verdict"] == NOT_COMPARABLE:
                ratio, about = None, f"{about}; not comparable: {row['factors']}"
            on = {host for run in hosts.get(case_key(row), ()) for host in run.hosts}
            if nodes and on and not nodes <= on:
                ratio, about = None, f"{about}, on other nodes: {shortened(sorted(on))}"
            busses[Topology(row["nodes"], row["gpus_per_node"])] = (ratio, about)
    return busses


def _rows_on(nodes: Set[str], hunt: Results) -> Iterator[Row]:
    """The rows of a hunt's runs on all of these nodes."""
    rows = throughput(hunt.frame)
    for number, row in zip(rows.index, records(rows), strict=True):
        if nodes <= {*hunt.runs[number].hosts}:
            yield row


def _of_devices(
    case: Compared, rows: Sequence[Row], about: dict[str, str], commands: dict[str, str]
) -> dict[str, float]:
    """The rates of matrix products and copies as fractions of the data sheet's, if the catalogue
    has that. Hunts, whose rows these are, multiply in bf16."""
    product = case.row["accelerator"]
    fractions = {}
    # A product of matrices with n rows is 2 n**3 operations; a copy of n bytes moves 2 n.
    for name, kind, peak, unit, power, scale in (
        (budget.MATRIX, "compute", peak_of(product, "bf16"), "TFLOP/s", 3, 1e12),
        (budget.MEMORY, "memory", memory_of(product), "GB/s", 1, 1e9),
    ):
        if peak is None:
            continue
        commands[name] = f"dlperf doctor --hunt {kind}"
        about[name] = f"no --hunt has {kind} on these nodes, {product}"
        rates = [
            row["value"] * 2 * float(read_parameters(row["parameters"])["size"]) ** power / scale
            for row in rows
            if row["model"] == f"nodes-{kind}"
            and family(row["accelerator"]) == family(product)
            and "size" in read_parameters(row["parameters"])
        ]
        if rates:
            highest, source = peak
            fractions[name] = min(1.0, median(rates) / highest)
            about[name] = f"{median(rates):,.4g} of {highest:,g} {unit} ({source})"
    return fractions


def _commands(results: Results, case: Compared, has_bandwidth: bool) -> dict[str, str]:
    """The commands that measure an item again, or in another way."""
    row, topology = case.row, case.topology
    commands = {
        budget.DIFFERENCE: _run(case, topology, repeats=max(5, 2 * len(case.values))),
        budget.CLOCKS: _run(case, topology),
    }
    if has_bandwidth:
        on = f"--nodes {topology.nodes} --gpus-per-node {topology.gpus_per_node}"
        commands[budget.BUS] = f"dlperf run --model {ALL_REDUCE} {on}"
    workloads = (m.workload for m in results.models if m.workload.name == row["workload"])
    if row["source"] != "builtin" and any(w.sources.builtin for w in workloads):
        # This project's own programs print them.
        parts = _run(case, topology, source="builtin")
        commands |= {budget.WAITING: parts, budget.COMMUNICATION: parts}
    return commands


def _run(case: Compared, topology: Topology, **further: object) -> str:
    """The command that runs a case on a topology."""
    names = ("workload", "model", "precision", "batch_size_per_device", "source")
    options = {name.removesuffix("_per_device"): case.row[name] for name in names}
    options |= {"nodes": topology.nodes, "gpus_per_node": topology.gpus_per_node, "repeats": 5}
    texts = {option_name(name): value for name, value in {**options, **further}.items() if value}
    return " ".join(["dlperf run", *(f"{k} {shlex.quote(str(v))}" for k, v in texts.items())])
