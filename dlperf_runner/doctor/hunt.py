"""Hunts for slow nodes, devices and links: rounds on all nodes at once, until they decide."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from ..campaign import directory as campaigns
from ..campaign import job_files
from ..catalog.reader import load_catalog
from ..control.rounds import Execution
from ..control.scheduled import execute as execute_campaign
from ..core.errors import UserError, unknown_name
from ..core.files import read_text, stored
from ..core.lists import counted, grouped
from ..plan.choice import parse_choice
from ..plan.make import make_plan
from ..report.tables import Column, cell
from ..report.terminal import Screen, table
from .findings import Finding
from .search import Round, SearchVerdict, as_text, rounds_from, search

if TYPE_CHECKING:
    from ..campaign.job_files import SchedulerSettings
    from ..core.case import Run
    from ..core.node import Node

KINDS = ("compute", "memory", "collective")
DEFAULT_SLOWER = "3%"
MOST_ROUNDS = 40
LEAST_PAIRED = 4  # nodes: two pairs at once
WORKLOAD = "pytorch-nodes"
# The size (rows of a matrix, bytes, or sequences of a batch), and how often a fixed step is
# repeated: for some tenths of a second.
STEPS = {
    ("compute", "cpu"): (256, 20),
    ("memory", "cpu"): (2**24, 20),
    ("collective", "cpu"): (2**20, 10),
    ("same", "cpu"): (1, 1),
    ("compute", "gpu"): (8192, 400),
    ("memory", "gpu"): (2**32, 100),
    ("collective", "gpu"): (2**30, 40),
    ("same", "gpu"): (64, 1),
}
_HINTS = {
    "compute": "look at its clocks, power limit, temperature and other processes",
    "memory": "look at its memory clock, ECC errors (dlperf doctor) and other processes",
    "collective": "look at its ports and their rates (ibstat), cables, the switch port and NVLink",
    "link": "look at the cables and switches between these nodes, and at their routes",
}
_MARK = "dlperf-nodes: "
Execute = Callable[[Path, Execution], list[str]]


@dataclass(frozen=True)
class Hunt:
    """`what` is a kind, or `link`. `slower`: the slowdown, as a share, that was looked for."""

    what: str
    slower: float
    verdict: SearchVerdict
    unit: str
    median: float
    campaign: str

    @property
    def is_decided(self) -> bool:
        return self.verdict.decides(self.slower)

    @property
    def nodes(self) -> list[str]:
        """The nodes to exclude. A slow link accuses neither of its ends."""
        slow = () if self.what == "link" else self.verdict.slow
        return list(dict.fromkeys(member.name.split()[0] for member in slow))


class NodeCampaign:
    """A campaign of the workload that compares nodes; each run is a revision of its plan. With
    `settings`, a scheduler runs it, and chooses the nodes whose `names` are known after a run."""

    def __init__(
        self,
        operation: str,
        nodes: Sequence[Node],
        place: Execution,
        settings: SchedulerSettings | None = None,
        directory: Path | None = None,
        execute: Execute = execute_campaign,
    ) -> None:
        self.operation, self.nodes, self.place, self.settings = operation, nodes, place, settings
        self.execute, self.say = execute, place.say
        self.directory = (directory or campaigns.new_directory()).resolve()
        self.devices = nodes[0].devices_per_node
        if others := [node.name for node in nodes if node.devices_per_node != self.devices]:
            raise UserError(
                "nodes with different numbers of devices are not compared",
                where=", ".join(others),
                expected=f"{self.devices}, as {nodes[0].name}",
                hint="hunt in each kind of node by itself: --limit; on Slurm --nodelist",
            )
        self.names = [node.name for node in nodes]
        self.done = 0

    def lines(self, rounds: str = "1", steps: int = 1) -> list[dict[str, Any]]:
        """The documents that the program prints in a run of these rounds, so many, on all nodes."""
        accelerator = load_catalog().stack_of(self.nodes[0]).accelerator
        size, iterations = STEPS[self.operation, accelerator]
        given = {"workload": WORKLOAD, "model": f"nodes-{self.operation}", "matrix": "hunt"}
        given |= {"nodes": str(len(self.nodes)), "gpus_per_node": str(self.devices)}
        values = {"size": size, "iterations": iterations, "rounds": rounds}
        texts = [f"{name}={value}" for name, value in values.items()]
        choice = parse_choice({**given, "repeats": 1, "iterations": steps}, texts)
        (run,) = make_plan(choice, load_catalog(), self.nodes)
        self.done += 1
        run = replace(run, id=f"{run.case}/r{self.done}", repeat=self.done)
        if self.done == 1:
            campaigns.create_campaign(self.directory, choice, self.nodes, [run])
            if self.settings:
                job_files.record(self.directory, self.settings)
            self.say(f"{self.operation} on {counted(len(self.nodes), 'node')}: {self.directory}")
        else:
            why = {run.case: "the rounds before do not decide"}
            campaigns.add_revision(self.directory, [asdict(run)], why)
        problems = self.execute(self.directory, self.place)
        return self._read(run, problems)

    def _read(self, run: Run, problems: Sequence[str]) -> list[dict[str, Any]]:
        record = campaigns.read_record(self.directory, asdict(run))
        log = campaigns.run_directory(self.directory, record) / str(record["log_name"])
        if not campaigns.is_done(self.directory, record):
            why = record.get("outcome", {}).get("message") or "; ".join(problems)
            problem = why or "the run did not start"
            raise UserError("the nodes were not measured", where=str(log), found=str(problem))
        facts = record["outcome"].get("hosts", {})
        if self.settings:
            self.names = list(facts)
        on_gpus = [host for host in facts if facts[host].get("gpus")]
        products = grouped(on_gpus, lambda host: tuple(sorted({*facts[host]["gpus"]})))
        if self.operation != "same" and len(products) > 1:
            kinds = (f"{', '.join(gpus)} on {', '.join(on)}" for gpus, on in products.items())
            hint = "hunt in each product by itself: --limit; on Slurm --nodelist"
            problem = "nodes with different products are not compared"
            raise UserError(problem, where=str(log), found="; ".join(kinds), hint=hint)
        lines = read_text(stored(log)).splitlines()
        texts = [line.partition(_MARK)[2] for line in lines if _MARK in line]
        try:
            documents = [json.loads(text) for text in texts]
            if not texts or not all(isinstance(document, dict) for document in documents):
                raise ValueError("no lines of the program")
        except ValueError as error:
            expected = f"lines of JSON behind {_MARK.strip()!r}"
            raise UserError(
                "invalid log", where=str(log), expected=expected, found=str(error)
            ) from None
        return documents

    def members(self) -> set[str]:
        """The members of each round: nodes, of which one may have no partner, or devices."""
        if self.operation == "collective":
            return set() if len(self.names) % 2 else {*self.names}
        return {self.member(rank) for rank in range(len(self.names) * self.devices)}

    def member(self, rank: int) -> str:
        """The name of the device of a rank."""
        node = self.names[rank // self.devices]
        return f"{node} device {rank % self.devices}" if self.devices > 1 else node


def parse_kinds(text: str) -> tuple[str, ...]:
    """The kinds of `--hunt compute,memory`."""
    kinds = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unknown_name("kind of hunt", unknown[0], KINDS, "--hunt")
    return kinds


def hunt_slow(campaign: NodeCampaign, slower: float, most: int = MOST_ROUNDS) -> Iterator[Hunt]:
    """The verdict on the nodes or devices after as many rounds as decide it; then, of collectives,
    that on links that look slow, after rounds that measure these again."""
    kind, nodes = campaign.operation, len(campaign.nodes)
    if kind == "collective" and nodes < LEAST_PAIRED:
        raise UserError(
            "too few nodes to compare pairs of them",
            where="--hunt collective",
            expected=f"at least {LEAST_PAIRED} nodes",
            found=str(nodes),
            hint="dlperf doctor --bandwidth measures fewer",
        )
    if nodes * campaign.devices < 2:
        raise UserError("one device has nothing to compare with", where=f"--hunt {kind}")
    rounds: list[Round] = []
    unit = ""
    while True:
        more = 5 if nodes > 2 * LEAST_PAIRED else 10  # few nodes need more to decide anything
        further, unit = measured(campaign, len(rounds), min(more, most - len(rounds)))
        rounds += further
        verdict = search(rounds, slower)
        if verdict.decides(slower) or len(rounds) >= most:
            break
        campaign.say(f"{len(rounds)} rounds do not decide: measuring again")
    yield Hunt(kind, slower, verdict, unit, _median(rounds), str(campaign.directory))
    is_paired = kind == "collective" and verdict.decides(slower)
    if is_paired and (again := suspected(rounds, verdict, slower)):
        yield _links(campaign, again, slower)


def measured(campaign: NodeCampaign, first: int, count: int) -> tuple[list[Round], str]:
    """So many further rounds, and their unit."""
    if campaign.operation == "collective":
        return read_rounds(campaign, as_text(rounds_from(len(campaign.nodes), first, count)), count)
    return read_rounds(campaign, str(count), count)


def read_rounds(campaign: NodeCampaign, text: str, count: int) -> tuple[list[Round], str]:
    is_paired = campaign.operation == "collective"
    rounds: list[Round] = []
    unit = ""
    for line in campaign.lines(text, count):
        try:
            unit, values = str(line["unit"]), dict[tuple[str, ...], float]()
            for places, value in line["values"]:
                names = (campaign.names[n] if is_paired else campaign.member(n) for n in places)
                values[tuple(names)] = float(value)
            if not all(0 < value < math.inf for value in values.values()):
                raise ValueError("a speed that is not above 0 and finite")
            if missing := campaign.members() - {name for group in values for name in group}:
                raise ValueError(f"no speed of {', '.join(sorted(missing))}")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            raise UserError(
                "invalid measurement", where=str(campaign.directory), found=repr(error)
            ) from None
        rounds.append(values)
    return rounds, unit


def suspected(rounds: Sequence[Round], verdict: SearchVerdict, slower: float) -> list[int]:
    """The numbers of rounds, at most three, with the pairs of nodes that are not slow whose link is
    slower than that. One measurement proves nothing, so they are measured again."""
    slow = {member.name for member in verdict.slow}
    links = [_as_links(values) for values in rounds]
    seen = search(links, slower, permutations=1)
    worst = [m.name for m in seen.members if m.ratio <= 1 - slower and not slow & {*ends(m.name)}]
    numbers = (n for name in worst for n, values in enumerate(links) if (name,) in values)
    return list(dict.fromkeys(numbers))[:3]


def _as_links(values: Round) -> Round:
    return {(f"{a} and {b}",): value for (a, b), value in values.items()}


def ends(link: str) -> list[str]:
    return link.split(" and ")


def _links(campaign: NodeCampaign, numbers: Sequence[int], slower: float) -> Hunt:
    """The verdict on the links of these rounds, from ten measurements of each that are new."""
    nodes = len(campaign.nodes)
    campaign.say(f"links look slow: measuring {counted(len(numbers), 'round')} again")
    again = [pairs for n in numbers for pairs in rounds_from(nodes, n, 1) * 10]
    rounds, unit = read_rounds(campaign, as_text(again), len(again))
    links = [_as_links(values) for values in rounds]
    verdict = search(links, slower)
    return Hunt("link", slower, verdict, unit, _median(rounds), str(campaign.directory))


def hunt_findings(result: Hunt) -> Iterator[Finding]:
    """A finding for each slow member; one for all others."""
    verdict, share = result.verdict, f"{100 * result.slower:g} %"
    check = f"hunt: {result.what}"
    expected = f"not {share} slower than the others"
    for member in verdict.slow:
        text = f"{100 * (1 - member.ratio):.1f} % slower in the median of {member.rounds} rounds"
        text += f" (p = {member.p_value:.2g})"
        name = "" if result.what == "link" else member.name.split()[0]
        where = f"{member.name}: " if name != member.name else ""
        yield Finding(name, check, "failed", expected, where + text, _HINTS[result.what])
    others = len(verdict.members) - len(verdict.slow)
    rest = f"{counted(verdict.rounds, 'round')}, median {result.median:.4g} {result.unit}"
    if result.is_decided and verdict.detectable is not None:
        text = f"{others} of {len(verdict.members)} are, after {rest}; one that is"
        text += f" {100 * verdict.detectable:.1f} % slower is found in 95 %"
        yield Finding("", check, "ok", expected, text)
    elif result.is_decided:
        hint = "exclude the slow ones (--limit; on Slurm --nodelist) and hunt again"
        text = f"the other {others} are too few to compare with each other, after {rest}"
        yield Finding("", check, "warning", expected, text, hint)
    else:
        yield Finding("", check, "warning", expected, _undecided(verdict, rest), _QUIETER)


_QUIETER = (
    "end other work on the nodes and hunt again, look for more (--slower 10%), or name more nodes"
)


def _undecided(verdict: SearchVerdict, rest: str) -> str:
    size = verdict.detectable
    if size is None or size >= 1:
        return f"the noise does not allow to find any, after {rest}"
    return f"the noise allows to find only what is {100 * size:.1f} % slower, after {rest}"


def _median(rounds: Sequence[Round]) -> float:
    return median(value for values in rounds for value in values.values())


def excluded(hunts: Sequence[Hunt]) -> list[str]:
    return list(dict.fromkeys(node for each in hunts for node in each.nodes))


def document_of(result: Hunt) -> Mapping[str, Any]:
    """The document of `--json`."""
    return {**asdict(result), "is_decided": result.is_decided}


SHOWN = 10
_COLUMNS = (
    Column("slowest"),
    Column("of the others", True),
    Column("rounds", True),
    Column("p", True),
    Column("verdict"),
)


def table_of(result: Hunt, screen: Screen) -> str:
    """The slowest members of a hunt; p counts all of them."""
    members = result.verdict.members
    rows = [
        (
            cell(member.name),
            cell(member.ratio, ".1%"),
            cell(member.rounds),
            cell(member.p_value, ".2g"),
            cell("slow" if member.is_slow else "-"),
        )
        for member in members[: max(SHOWN, len(result.verdict.slow))]
    ]
    title = f"{result.what}: {counted(len(members), 'member')}, {result.verdict.rounds} rounds"
    return f"{title}\n\n{table(_COLUMNS, rows, screen)}\n"


def render_hunts(hunts: Sequence[Hunt], screen: Screen) -> str:
    """The tables of the hunts, and the nodes to exclude as Slurm takes them."""
    tables = [f"\n{table_of(each, screen)}" for each in hunts]
    nodes = excluded(hunts)
    last = f"\n--exclude={','.join(nodes)}\n" if nodes else ""
    return "".join(tables) + last
