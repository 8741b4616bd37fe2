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
from ..plan.choice import parse_choice, parse_names
from ..plan.make import make_plan
from ..report.tables import Column, cell
from ..report.terminal import Screen, titled
from .findings import Finding, Status
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
    "compute": {"cpu": (256, 20), "gpu": (8192, 400)},
    "memory": {"cpu": (2**24, 20), "gpu": (2**32, 100)},
    "collective": {"cpu": (2**20, 10), "gpu": (2**30, 40)},
    "same": {"cpu": (1, 1), "gpu": (64, 1)},
}
_HINTS = {
    "compute": "look at its clocks, power limit, temperature and other processes",
    "memory": "look at its memory clock, ECC errors (dlperf doctor) and other processes",
    "collective": "look at its ports and their rates (ibstat), cables, the switch port and NVLink",
    "link": "look at the cables and switches between these nodes, and at their routes",
}
_BY_ITSELF = " by itself: --limit; on Slurm --nodelist"
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
            problem = "nodes with different numbers of devices are not compared"
            expected, hint = f"{self.devices}, as {nodes[0].name}", "hunt in each kind of node"
            raise UserError(
                problem, where=", ".join(others), expected=expected, hint=f"{hint}{_BY_ITSELF}"
            )
        self.names = [node.name for node in nodes]
        self.done, self.unit = 0, ""

    def lines(self, rounds: str = "1", steps: int = 1) -> list[dict[str, Any]]:
        """The documents that the program prints in a run of these rounds, so many, on all nodes."""
        catalog = load_catalog()
        size, iterations = STEPS[self.operation][catalog.stack_of(self.nodes[0]).accelerator]
        given = {"workload": WORKLOAD, "model": f"nodes-{self.operation}", "matrix": "hunt"}
        counts = {"nodes": len(self.nodes), "gpus_per_node": self.devices}
        texts = (f"size={size}", f"iterations={iterations}", f"rounds={rounds}")
        choice = parse_choice({**given, **counts, "repeats": 1, "iterations": steps}, texts)
        (run,) = make_plan(choice, catalog, self.nodes)
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
        return self._read(run, self.execute(self.directory, self.place))

    def _read(self, run: Run, problems: Sequence[str]) -> list[dict[str, Any]]:
        record = campaigns.read_record(self.directory, asdict(run))
        log = campaigns.run_directory(self.directory, record) / str(record["log_name"])
        if not campaigns.is_done(self.directory, record):
            why = record.get("outcome", {}).get("message") or "; ".join(problems)
            found = str(why or "the run did not start")
            raise UserError("the nodes were not measured", where=str(log), found=found)
        facts = record["outcome"].get("hosts", {})
        self.names = list(facts) if self.settings else self.names
        on_gpus = [host for host in facts if facts[host].get("gpus")]
        products = grouped(on_gpus, lambda host: tuple(sorted({*facts[host]["gpus"]})))
        if self.operation != "same" and len(products) > 1:
            found = "; ".join(
                f"{', '.join(gpus)} on {', '.join(on)}" for gpus, on in products.items()
            )
            hint = f"hunt in each product{_BY_ITSELF}"
            problem = "nodes with different products are not compared"
            raise UserError(problem, where=str(log), found=found, hint=hint)
        texts = (line.partition(_MARK)[2] for line in read_text(stored(log)).splitlines())
        try:
            documents = [json.loads(text) for text in texts if text]
            if not documents or not all(isinstance(document, dict) for document in documents):
                raise ValueError("no lines of the program")
        except ValueError as error:
            expected = f"lines of JSON behind {_MARK.strip()!r}"
            problem = "invalid log"
            raise UserError(problem, where=str(log), expected=expected, found=str(error)) from None
        return documents

    def measured(self, rounds: str, count: int) -> list[Round]:
        """The speeds in so many rounds."""
        return [self._speeds(line) for line in self.lines(rounds, count)]

    def _speeds(self, line: Mapping[str, Any]) -> Round:
        is_paired = self.operation == "collective"
        name = self.names.__getitem__ if is_paired else self.member
        try:
            self.unit = str(line["unit"])
            values = {tuple(map(name, places)): float(value) for places, value in line["values"]}
            if not all(0 < value < math.inf for value in values.values()):
                raise ValueError("a speed that is not above 0 and finite")
            expected = (
                {*self.names} if is_paired else {*map(name, range(len(self.names) * self.devices))}
            )
            missing = expected.difference(*values)
            if missing and not (is_paired and len(self.names) % 2):  # one node has no partner
                raise ValueError(f"no speed of {', '.join(sorted(missing))}")
        except (KeyError, TypeError, ValueError, IndexError) as error:
            where = str(self.directory)
            raise UserError("invalid measurement", where=where, found=repr(error)) from None
        return values

    def member(self, rank: int) -> str:
        """The name of the device of a rank."""
        node = self.names[rank // self.devices]
        return f"{node} device {rank % self.devices}" if self.devices > 1 else node

    def verdict(self, what: str, slower: float, rounds: Sequence[Round]) -> Hunt:
        middle = median(value for values in rounds for value in values.values())
        return Hunt(what, slower, search(rounds, slower), self.unit, middle, str(self.directory))


def parse_kinds(text: str) -> tuple[str, ...]:
    """The kinds of `--hunt compute,memory`."""
    kinds = parse_names(text, "")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unknown_name("kind of hunt", unknown[0], KINDS, "--hunt")
    return kinds


def hunt_slow(campaign: NodeCampaign, slower: float, most: int = MOST_ROUNDS) -> Iterator[Hunt]:
    """The verdict on the nodes or devices after as many rounds as decide it; then, of collectives,
    that on links that look slow, after rounds that measure these again."""
    kind, nodes = campaign.operation, len(campaign.nodes)
    is_paired = kind == "collective"
    if is_paired and nodes < LEAST_PAIRED:
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
    while True:
        # Few nodes need more to decide anything.
        more = min(5 if nodes > 2 * LEAST_PAIRED else 10, most - len(rounds))
        pairs = as_text(rounds_from(nodes, len(rounds), more)) if is_paired else str(more)
        rounds += campaign.measured(pairs, more)
        hunt = campaign.verdict(kind, slower, rounds)
        if hunt.is_decided or len(rounds) >= most:
            break
        campaign.say(f"{len(rounds)} rounds do not decide: measuring again")
    yield hunt
    if is_paired and hunt.is_decided and (numbers := suspected(rounds, hunt)):
        campaign.say(f"links look slow: measuring {counted(len(numbers), 'round')} again")
        # Ten measurements of each that are new.
        again = [pairs for n in numbers for pairs in rounds_from(nodes, n, 1) * 10]
        links = map(_as_links, campaign.measured(as_text(again), len(again)))
        yield campaign.verdict("link", slower, [*links])


def suspected(rounds: Sequence[Round], hunt: Hunt) -> list[int]:
    """The numbers of rounds, at most three, with the pairs of nodes that are not slow whose link is
    slower than that. One measurement proves nothing, so they are measured again."""
    slow = {member.name for member in hunt.verdict.slow}
    fair = {_link(pair) for values in rounds for pair in values if slow.isdisjoint(pair)}
    links = [_as_links(values) for values in rounds]
    members = search(links, hunt.slower, permutations=1).members
    worst = [m.name for m in members if m.ratio <= 1 - hunt.slower and m.name in fair]
    numbers = (n for name in worst for n, values in enumerate(links) if (name,) in values)
    return list(dict.fromkeys(numbers))[:3]


def _link(pair: Sequence[str]) -> str:
    return " and ".join(pair)


def _as_links(values: Round) -> Round:
    return {(_link(pair),): value for pair, value in values.items()}


def hunt_findings(result: Hunt) -> Iterator[Finding]:
    """A finding for each slow member; one for all others."""
    verdict, check = result.verdict, f"hunt: {result.what}"
    expected = f"not {100 * result.slower:g} % slower than the others"
    for member in verdict.slow:
        text = f"{100 * (1 - member.ratio):.1f} % slower in the median of {member.rounds} rounds"
        text += f" (p = {member.p_value:.2g})"
        name = "" if result.what == "link" else member.name.split()[0]
        where = f"{member.name}: " if name != member.name else ""
        yield Finding(name, check, "failed", expected, where + text, _HINTS[result.what])
    others, size = len(verdict.members) - len(verdict.slow), verdict.detectable
    rest = f"after {counted(verdict.rounds, 'round')}, median {result.median:.4g} {result.unit}"
    status: Status = "warning"
    if result.is_decided and size is not None:
        status, hint = "ok", ""
        text = f"{others} of {len(verdict.members)} are, {rest}; one that is"
        text += f" {100 * size:.1f} % slower is found in 95 %"
    elif result.is_decided:
        hint = "exclude the slow ones (--limit; on Slurm --nodelist) and hunt again"
        text = f"the other {others} are too few to compare with each other, {rest}"
    else:
        hint = "end other work on the nodes and hunt again, look for more (--slower 10%), or name"
        hint += " more nodes"
        any_ = "any" if size is None or size >= 1 else f"only what is {100 * size:.1f} % slower"
        text = f"the noise does not allow to find any, {rest}"
        text = text if any_ == "any" else f"the noise allows to find {any_}, {rest}"
    yield Finding("", check, status, expected, text, hint)


def excluded(hunts: Sequence[Hunt]) -> list[str]:
    return list(dict.fromkeys(node for each in hunts for node in each.nodes))


def document_of(result: Hunt) -> Mapping[str, Any]:
    """The document of `--json`."""
    return {**asdict(result), "is_decided": result.is_decided}


SHOWN = 10
_COLUMNS = (
    *(Column("slowest"), Column("of the others", True), Column("rounds", True)),
    *(Column("p", True), Column("verdict")),
)


def render_hunts(hunts: Sequence[Hunt], screen: Screen) -> str:
    """The slowest members of each hunt, where p counts all of them; and the nodes to exclude as
    Slurm takes them."""
    lines: list[str] = []
    for each in hunts:
        members = each.verdict.members
        rows = [
            (
                *(member.name, f"{member.ratio:.1%}", str(member.rounds)),
                *(cell(member.p_value, ".2g"), "slow" if member.is_slow else "-"),
            )
            for member in members[: max(SHOWN, len(each.verdict.slow))]
        ]
        title = f"{each.what}: {counted(len(members), 'member')}, {each.verdict.rounds} rounds"
        lines += ["", *titled(title, _COLUMNS, rows, screen)]
    if nodes := excluded(hunts):
        lines += [f"--exclude={','.join(nodes)}", ""]
    return "\n".join(lines)
