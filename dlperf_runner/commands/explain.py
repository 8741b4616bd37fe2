"""The command `explain`: a budget of the difference between a campaign and a published number, by
what the campaign, its publication, a campaign of bandwidths and hunts state.

All is computed with logarithms, in which parts add up. A publication does not state its own losses,
so that a loss of the campaign explains between nothing and all of itself: `at most`.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, field
from itertools import chain
from operator import attrgetter, itemgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any

from ..catalog.accelerators import memory_of, peak_of
from ..catalog.published_numbers import PublishedNumber, load_published, load_reports, load_rule
from ..catalog.validity import catalogued_rules
from ..compare.conditions import Values, family, parse_stated, read_conditions
from ..compare.published import compare_published, no_number, rates_by_estimator
from ..compare.verdicts import NOT_COMPARABLE
from ..core.case import Topology
from ..core.errors import UserError, unknown_name
from ..core.frame import ALONE_LONGEST, ALONE_MEAN, INPUT_SHARE, STEP_TIME, records, throughput
from ..core.identity import CaseKey, case_key, read_parameters, topology_text
from ..core.lists import counted, grouped, shortened
from ..core.units import BANDWIDTH, per_second
from ..measure.validity import THROTTLE_BITS, of_busy
from ..options import AboutLogs, exit_with, print_json, reading_logs, screen, states
from ..plan.choice import option_name
from ..report.numbers import as_published, percent
from ..report.tables import Column, span
from ..report.terminal import Screen, listed, titled, wrapped
from ..results.load import Results, load_results
from ..results.run_log import evidence_of
from ..results.run_record import FoundRun
from ..results.statement import with_conditions
from ..stats.groups import rates_by_case, title
from ..stats.intervals import LEVEL
from ..stats.ratios import LogRatio, finite_exp, published_ratio, total, without
from ..stats.sequential import mean_of_logs
from ..stats.summary import BASELINE, step_parts

ORDER = 165
HELP = """
campaign CAMPAIGN: A campaign, or logs.
--to PUBLICATION: A name of `dlperf list published`.
--bandwidth DIR: A campaign of the model nccl-all-reduce on the same nodes.
--hunt DIR: A campaign of `doctor --hunt` on these nodes; may be repeated.
"""
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


@states
def command(
    about: AboutLogs,
    campaign: Path,
    to: str,
    bandwidth: Path | None = None,
    hunt: list[Path] | None = None,
    condition: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Explain the difference between a campaign and a published number: its parts, the losses that
    may explain it, the rest, and what to measure next.

    Example: dlperf explain examples/logs --to mxnet-resnet50v1b"""
    names = [report.name for report in load_reports()]
    if to not in names:
        raise unknown_name("publication", to, names, "--to")
    statements = about.statements()
    results = load_results(campaign, statements=statements, progress=reading_logs)
    busses = None if bandwidth is None else load_results(bandwidth, progress=reading_logs)
    hunts = [load_results(path, progress=reading_logs) for path in hunt or ()]
    loaded = (results, *filter(None, [busses]), *hunts)
    problems = [problem for each in loaded for problem in each.problems]
    if not results.counted:
        exit_with(problems)
    stated = parse_stated(with_conditions(condition or [], statements, campaign))
    explained = [*budgets(results, to, stated, busses, hunts)]
    if as_json:
        print_json({"campaign": str(campaign), "budgets": [asdict(each) for each in explained]})
    else:
        print("\n\n".join(render(each, screen()) for each in explained))
    exit_with(problems)


_COLUMNS = (
    *(Column("item"), Column("difference", True), Column("interval", True)),
    Column("measured", wraps=True),
)


def render(explained: Budget, screen: Screen) -> str:
    """A budget as a table, the conditions, and the measurement that comes next."""
    heading = f"{explained.title}, and {explained.publication} ({explained.source})"
    rows = [
        (i.name, _difference(i), span(i.low, i.high, percent, " to "), i.detail)
        for i in explained.items
    ]
    conditions = (f"{name}: {text}" for name, text in explained.conditions.items())
    lines = [*titled(heading, _COLUMNS, rows, screen), *listed(conditions, screen), ""]
    if (after := explained.next) is None:
        return "\n".join([*lines, "Next: nothing; this is not slower than published."])
    text = f"Next: {after.item} ({after.reason}):"
    return "\n".join([*lines, *wrapped(text, screen.prose), f"    {after.command}"])


def _difference(item: BudgetItem) -> str:
    if item.relative is None:
        return item.kind if item.low is None else ""
    return f"{'at most ' if item.kind == 'at most' else ''}{percent(item.relative)}"


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
) -> Iterator[Budget]:
    """The budget of the largest topology of each table of cases. Raises UserError if no case has a
    number in the report."""
    rule = load_rule()
    conditions = read_conditions(results.counted, results.models, rule, stated)
    table = compare_published(results.frame, conditions, rule=rule, every=True)
    compared = [*_compared(results, [row for row in table if row["report"] == report])]
    if not compared:
        others = dict.fromkeys(row["report"] for row in table if row["published"] is not None)
        hint = f"publications that have some: {', '.join(others)}" if others else None
        raise no_number(report, table, str(results.directory), hint)
    for group in grouped(compared, lambda c: itemgetter(*BASELINE)(c.row)).values():
        nearest = grouped(group, lambda c: case_key(c.row)).values()
        case = max((numbers[0] for numbers in nearest), key=lambda c: c.number.topology.world_size)
        row, smaller = case.row, [c for c in group if case.has_setting_of(c.number)]
        commands = _commands(results, case)
        if (conditions.get(case_key(row)) or {}).get("data") != "synthetic":
            commands[INPUT] = _run(results, case, case.number.topology, data="synthetic")
        items = items_of(_evidence(results, case, smaller, bandwidth, [results, *hunts], commands))
        texts = {name: row[column] for column, name in _CONDITIONS.items() if row[column]}
        after = what_next(items, commands, rule.tolerance)
        name = f"{title(row)}, {case.number.topology}"
        yield Budget(name, row["publication"], row["published_source"], items, texts, after)


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


def _evidence(
    results: Results,
    case: Compared,
    group: Sequence[Compared],
    bandwidth: Results | None,
    hunts: Sequence[Results],
    commands: dict[str, str],
) -> Observations:
    """The evidence of a case. Adds the commands that measure what it lacks."""
    key, topology = case_key(case.row), case.number.topology
    about = {DIFFERENCE: str(case)}
    smallest = min(group, key=lambda c: c.number.topology.world_size, default=case)
    base = smallest if smallest.number.topology.world_size < topology.world_size else None
    if base is not None:
        about[SMALLEST] = f"{base.number.topology}: {base}"
        about[SCALING] = f"per device, from {base.number.topology} to {topology}"
    else:
        published = (n.topology for n in load_published() if case.has_setting_of(n))
        first = min(published, key=lambda each: each.world_size, default=topology)
        about[SCALING] = "the publication has no smaller topology"
        if first.world_size < topology.world_size:
            about[SCALING] = f"the campaign has no runs on {first}"
            commands[SCALING] = _run(results, case, first)
    of_case = [run for run in results.counted if run.case == key]
    fractions, about[CLOCKS] = _clocks(of_case)
    on = {host for run in of_case for host in run.hosts}
    no_bus = "" if bandwidth is None else f"--bandwidth has none on {topology}"
    no_bus = no_bus if BUS in commands else f"none is published on {topology}"
    busses = {} if bandwidth is None else bus_bandwidths(bandwidth, on)
    bus, about[BUS] = busses.get(topology, (None, no_bus))
    runs, size, ratio = _runs(results, key), topology.world_size, base.ratio if base else None
    devices = _of_devices(case, on, hunts, about, commands)
    return Observations(size, case.ratio, ratio, runs, fractions, bus, devices, about)


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
    table = compare_published(bandwidth.frame, conditions)
    rows = [row for row in table if row["model"] == ALL_REDUCE]
    if not rows:
        wanted, where = f"runs of {ALL_REDUCE}", f"--bandwidth {bandwidth.directory}"
        raise UserError("no run measured a bus bandwidth", where=where, expected=wanted)
    busses: dict[Topology, tuple[float | None, str]] = {}
    for row in (row for row in rows if row["ratio"] is not None):
        published = f"{as_published(row['published'])} {row['unit']} ({row['publication']})"
        about = f"{row['mine']:,.2f} of {published}"
        ratio = row["ratio"] if row["ratio_low"] is None else row["ratio_low"]
        if row["verdict"] == NOT_COMPARABLE:
            ratio, about = None, f"{about}; not comparable: {row['factors']}"
        on = {h for run in bandwidth.counted if run.case == case_key(row) for h in run.hosts}
        if nodes and on and not nodes <= on:
            ratio, about = None, f"{about}, on other nodes: {shortened(sorted(on))}"
        busses[Topology(row["nodes"], row["gpus_per_node"])] = (ratio, about)
    return busses


def _of_devices(
    case: Compared,
    nodes: Set[str],
    hunts: Iterable[Results],
    about: dict[str, str],
    commands: dict[str, str],
) -> dict[str, float]:
    """The rates of matrix products and copies in hunts on all of these nodes, as fractions of the
    data sheet's, if the catalogue has that. Hunts multiply in bf16."""
    product, fractions = case.row["accelerator"], {}
    tables = ((throughput(each.frame), each.runs) for each in hunts)
    rows = [
        (row["model"], float(size), row["value"])
        for table, runs in tables
        for number, row in zip(table.index, records(table), strict=True)
        if nodes <= {*runs[number].hosts} and family(row["accelerator"]) == family(product)
        if (size := read_parameters(row["parameters"]).get("size"))
    ]
    # A product of matrices with n rows is 2 n**3 operations; a copy of n bytes moves 2 n.
    for name, kind, peak, unit, power, scale in (
        (MATRIX, "compute", peak_of(product, "bf16"), "TFLOP/s", 3, 1e12),
        (MEMORY, "memory", memory_of(product), "GB/s", 1, 1e9),
    ):
        if peak is None:
            continue
        (highest, source), command = peak, f"dlperf doctor --hunt {kind}"
        commands[name], about[name] = command, f"no --hunt has {kind} on these nodes, {product}"
        of_kind = (row for row in rows if row[0] == f"nodes-{kind}")
        if rates := [value * 2 * size**power / scale for _, size, value in of_kind]:
            fractions[name] = min(1.0, median(rates) / highest)
            about[name] = f"{median(rates):,.4g} of {highest:,g} {unit} ({source})"
    return fractions


def _commands(results: Results, case: Compared) -> dict[str, str]:
    """The commands that measure an item again, or in another way; that of the bus only if its
    bandwidth is published."""
    row, topology = case.row, case.number.topology
    commands = {
        DIFFERENCE: _run(results, case, topology, repeats=max(5, 2 * len(case.values))),
        CLOCKS: _run(results, case, topology),
    }
    bus = (topology, ALL_REDUCE, family(row["accelerator"]))
    published = ((n, family(n.conditions.accelerator)) for n in load_published())
    if any((n.topology, n.workload_model, product) == bus for n, product in published):
        on = f"--nodes {topology.nodes} --gpus-per-node {topology.gpus_per_node}"
        commands[BUS] = f"dlperf run --model {ALL_REDUCE} {on}"
    workloads = (m.workload for m in results.models if m.workload.name == row["workload"])
    if row["source"] != "builtin" and any(w.sources.builtin for w in workloads):
        # This project's own programs print them.
        parts = _run(results, case, topology, source="builtin")
        commands |= {WAITING: parts, COMMUNICATION: parts}
    return commands


def _run(results: Results, case: Compared, topology: Topology, **further: object) -> str:
    """The command that runs a case on a topology."""
    names = ("workload", "model", "precision", "batch_size_per_device", "source")
    options = {name.removesuffix("_per_device"): case.row[name] for name in names}
    options |= {"nodes": topology.nodes, "gpus_per_node": topology.gpus_per_node, "repeats": 5}
    options = {name: value for name, value in {**options, **further}.items() if value}
    words = [w for name, value in options.items() for w in (option_name(name), str(value))]
    for name, value in _unusual(results, case.row).items():
        words += ["--parameter", f"{name}={value}"]
    return shlex.join(["dlperf", "run", *words])


def _unusual(results: Results, row: Mapping[str, Any]) -> dict[str, object]:
    """The parameters of a case that `dlperf run` would choose otherwise."""
    workloads = (m.workload for m in results.models if m.workload.name == row["workload"])
    workload = next(workloads, None)
    if workload is None or workload.sources.named(row["source"]) is None:
        return {}
    default = workload.parameters
    usual = {**default, **workload.of_precision.get(row["precision"], {})}
    given = read_parameters(row["parameters"])
    names = {**workload.measured_parameters(row["source"], usual), **given}.keys() & default.keys()
    # Results leave out what is as in `default` and part of `if_changed`.
    left_out = {name: default[name] for name in workload.if_changed}
    values = {name: {**usual, **left_out, **given}[name] for name in sorted(names)}
    return {name: value for name, value in values.items() if str(value) != str(usual[name])}


# ---- the difference, its parts, and the losses that may explain it

MEASURED, AT_MOST, NOT_MEASURED = "measured", "at most", "not measured"
DIFFERENCE, SMALLEST, SCALING = "difference", "smallest topology", "scaling"
INPUT, WAITING = "input", "waiting for the slowest rank"
BUS, COMMUNICATION = "bus bandwidth", "exposed communication"
CLOCKS, UNEXPLAINED = "clocks", "unexplained"
MATRIX, MEMORY = "matrix products", "memory bandwidth"
OF_STEPS = (INPUT, WAITING, BUS, COMMUNICATION)
OF_SCALING = OF_STEPS[1:]
_LEAST_LEFT = 1e-3  # of a step, where a log says that all of it was lost
_TOO_FEW = "fewer than 3 runs, so no interval"
_NO_PARTS = "the logs have no steps without communication"
# What a loss is, and why it is not known.
_ABOUT = {
    INPUT: ("in this time, the program waits for data", "the logs do not state it"),
    WAITING: ("in this part of a step, the mean rank waits", _NO_PARTS),
    BUS: ("", "no --bandwidth given"),
    COMMUNICATION: ("no computation hides this part of a step", _NO_PARTS),
    CLOCKS: ("", "not every run has telemetry with the clocks of its GPUs"),
    **dict.fromkeys((MATRIX, MEMORY), ("", "")),
}


@dataclass(frozen=True)
class BudgetItem:
    """`relative`: the difference as a fraction of the published speed, with its interval, and its
    logarithm; None if it is not known. Of a loss that may explain the difference, all of it."""

    name: str
    kind: str
    detail: str
    relative: float | None = None
    low: float | None = None
    high: float | None = None
    log_ratio: float | None = None


@dataclass(frozen=True)
class Observations:
    """The measurements of a case. `whole` and `base`: its speed beside the published one, and that
    of a smaller topology, if the campaign and the publication have one. `runs`: the metrics of each
    run. `clocks`: of each run, the mean of its devices and the lowest, as fractions of the highest
    clock. `bus`: the bus bandwidth as a fraction of the published one. `devices`: rates of a device
    as fractions of the data sheet's, by item. `about`: details by item."""

    world_size: int
    whole: LogRatio
    base: LogRatio | None = None
    runs: Sequence[Mapping[str, float]] = ()
    clocks: Sequence[tuple[float, float]] = ()
    bus: float | None = None
    devices: Mapping[str, float] = field(default_factory=dict)
    about: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Next:
    """The measurement that tells most, and its command."""

    item: str
    reason: str
    command: str


def items_of(evidence: Observations) -> list[BudgetItem]:
    """The difference, its two parts, the losses that may explain it, and the rest."""
    about, whole, base = evidence.about, evidence.whole, evidence.base
    parts = {DIFFERENCE: whole} | ({SMALLEST: base} if base else {})
    scaling = {SCALING: base and without(whole, base)} if evidence.world_size > 1 else {}
    items = [_item(n, MEASURED, about.get(n, ""), r) for n, r in {**parts, **scaling}.items()]
    factors = losses(evidence).items()
    lost = {name: mean_of_logs([*map(math.log, each)], least=2) for name, each in factors}
    for name, (meaning, why_not) in _ABOUT.items():
        has_no_sheet = name in (MATRIX, MEMORY) and name not in about
        if not has_no_sheet and not (name in OF_SCALING and evidence.world_size == 1):
            loss = lost.get(name)
            detail = about.get(name) or (meaning if loss else why_not)
            items.append(_item(name, AT_MOST, detail, loss))
    # Between what is left if no loss explains anything, and if each explains all that it can.
    low, _ = whole.interval(LEVEL).ends
    _, high = without(whole, total([*lost.values()])).interval(LEVEL).ends
    kind, detail = MEASURED, "no loss is measured"
    if low is None:
        kind, detail = NOT_MEASURED, _TOO_FEW
    elif lost and high is not None:
        rest = "may" if high >= 0 else "cannot"
        detail = f"the losses above {rest} explain all of what is missing"
    return [*items, BudgetItem(UNEXPLAINED, kind, detail, None, low, high)]


def losses(evidence: Observations) -> dict[str, list[float]]:
    """The fraction that each loss leaves of each run's speed after the losses before it; only of
    losses that all runs state."""
    shares = [_shares(run, evidence) for run in evidence.runs]
    factors: dict[str, list[float]] = {}
    lost = [0.0] * len(shares)
    for name in OF_STEPS:
        if shares and all(name in of_run for of_run in shares):
            now = [before + of_run[name] for before, of_run in zip(lost, shares, strict=True)]
            left = [[max(_LEAST_LEFT, 1 - share) for share in each] for each in (now, lost)]
            factors[name], lost = [b / a for b, a in zip(*left, strict=True)], now
    if evidence.clocks and len(evidence.clocks) == len(evidence.runs):
        # Waiting for a slow device is a loss of its own, if it was measured.
        of_mean = WAITING in factors or evidence.world_size == 1
        factors[CLOCKS] = [mean if of_mean else lowest for mean, lowest in evidence.clocks]
    for name, rate in evidence.devices.items():
        # Lower clocks are counted already; they slow matrix products down, too.
        clocks = factors.get(CLOCKS) if name == MATRIX else None
        factors[name] = [min(1.0, rate / clock) for clock in clocks or [1.0] * len(evidence.runs)]
    return factors


def _shares(run: Mapping[str, float], evidence: Observations) -> dict[str, float]:
    """The shares of a run's step that were lost."""
    shares = {INPUT: min(1.0, run[INPUT_SHARE])} if INPUT_SHARE in run else {}
    case = {"step_time_median_s": run.get(f"{STEP_TIME}_median"), "slowest_rank": None}
    case |= {f"{name}_s": run.get(name) for name in (ALONE_MEAN, ALONE_LONGEST)}
    parts = step_parts({**case, "world_size": evidence.world_size})
    if parts is None or evidence.world_size == 1 or parts.step <= 0:
        return shares
    shares[WAITING] = parts.waiting / parts.step
    # Steps without communication do not wait for data either, so what is left of a step holds both.
    exposed = max(0.0, parts.communication / parts.step - shares.get(INPUT, 0.0))
    slow_bus = 0.0 if evidence.bus is None else exposed * (1 - min(1.0, evidence.bus))
    if evidence.bus is not None:
        shares[BUS] = slow_bus
    return {**shares, COMMUNICATION: exposed - slow_bus}


def _item(name: str, kind: str, detail: str, ratio: LogRatio | None) -> BudgetItem:
    if ratio is None:
        return BudgetItem(name, NOT_MEASURED, detail)
    relative, ends = finite_exp(ratio.value) - 1, ratio.interval(LEVEL).ends
    return BudgetItem(name, kind, detail, relative, *ends, ratio.value)


def what_next(
    items: Sequence[BudgetItem], commands: Mapping[str, str], tolerance: float
) -> Next | None:
    """The largest loss that is not measured, or else the widest interval; None if the case is not
    slower than published by more than the tolerance. `commands`: those that measure an item; that
    of the difference adds runs."""
    by_name = {item.name: item for item in items}
    whole = by_name[DIFFERENCE]
    if whole.low is None:
        return Next(DIFFERENCE, _TOO_FEW, commands[DIFFERENCE])
    if whole.low >= -tolerance:
        return None
    unknown = [i.name for i in items if i.kind == NOT_MEASURED and i.name in commands]
    size, name = max(
        ((_largest_loss(n, by_name), n) for n in unknown), key=itemgetter(0), default=(0.0, "")
    )
    if size > 0:
        return Next(name, f"not measured, may be up to {size:.1%}", commands[name])
    widths = (((i.high or 0.0) - (i.low or 0.0), i.name) for i in items[:-1])
    width, name = max(widths, key=itemgetter(0))
    reason = f"the widest interval, {width:.1%}; more runs narrow it"
    return Next(name, reason, commands[DIFFERENCE])


def _largest_loss(name: str, items: Mapping[str, BudgetItem]) -> float:
    """The loss of the part to which an item belongs, as a positive fraction."""
    part = items.get(SCALING if name in OF_SCALING else SMALLEST)
    if part is None or part.relative is None or name == INPUT:
        part = items[DIFFERENCE]
    sizes = [part.relative]
    if name == BUS and items[COMMUNICATION].relative is not None:
        sizes.append(items[COMMUNICATION].relative)
    return min(max(0.0, -(size or 0.0)) for size in sizes)
