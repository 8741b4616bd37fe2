"""Hunts for slow nodes, devices and links: rounds on all nodes at once, until they decide; and for
devices that compute other bits than their equals."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from ..campaign import directory as campaigns
from ..campaign import job_files
from ..catalog.reader import load_catalog
from ..control.rounds import Execution
from ..control.scheduled import execute as execute_campaign
from ..core.case import Run
from ..core.errors import UserError, unknown_name
from ..core.files import read_text, stored
from ..core.lists import counted, grouped
from ..core.node import Node
from ..plan.choice import parse_choice, parse_names
from ..plan.make import make_plan
from ..report.tables import Column, cell
from ..report.terminal import Screen, titled
from .findings import Finding, Status
from .search import Round, SearchVerdict, as_text, rounds_from, search

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
_BY_ITSELF = "by itself: --limit; on Slurm --nodelist"
_MARK = "dlperf-nodes: "


@dataclass(frozen=True)
class Hunt:
    """`what` is a kind, or `link`. `slower`: the slowdown, as a share, that was looked for."""

    what: str
    slower: float
    verdict: SearchVerdict
    is_decided: bool
    unit: str
    median: float
    campaign: str


@dataclass
class NodeCampaign:
    """A campaign of the workload that compares nodes; each run is a revision of its plan. With
    `settings`, a scheduler runs it, and chooses the nodes whose `names` are known after a run."""

    operation: str
    nodes: Sequence[Node]
    place: Execution
    settings: job_files.SchedulerSettings | None = None
    directory: Path = field(default_factory=campaigns.new_directory)
    execute: Callable[[Path, Execution], list[str]] = execute_campaign
    done: int = 0  # runs
    unit: str = ""  # of the speeds

    def __post_init__(self) -> None:
        self.directory = self.directory.resolve()
        self.names = [node.name for node in self.nodes]
        self.devices = self.nodes[0].devices_per_node
        if others := [n.name for n in self.nodes if n.devices_per_node != self.devices]:
            problem = "nodes with different numbers of devices are not compared"
            expected, where = f"{self.devices}, as {self.names[0]}", ", ".join(others)
            hint = f"hunt in each kind of node {_BY_ITSELF}"
            raise UserError(problem, where=where, expected=expected, hint=hint)

    def lines(self, rounds: str = "1", steps: int = 1) -> list[Any]:
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
            nodes = counted(len(self.nodes), "node")
            self.place.say(f"{self.operation} on {nodes}: {self.directory}")
        else:
            why = {run.case: "the rounds before do not decide"}
            campaigns.add_revision(self.directory, [asdict(run)], why)
        return self._read(run, self.execute(self.directory, self.place))

    def _read(self, run: Run, problems: Sequence[str]) -> list[Any]:
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
            kinds = (f"{', '.join(gpus)} on {', '.join(on)}" for gpus, on in products.items())
            found = "; ".join(kinds)
            problem, hint = "nodes with different products", f"hunt in each product {_BY_ITSELF}"
            raise UserError(f"{problem} are not compared", where=str(log), found=found, hint=hint)
        lines = (line.partition(_MARK)[2] for line in read_text(stored(log)).splitlines())
        try:
            # A log without such lines is invalid, as an empty text is.
            return [json.loads(text) for text in [*filter(None, lines)] or [""]]
        except ValueError as error:
            problem, expected = "invalid log", f"lines of JSON behind {_MARK.strip()!r}"
            raise UserError(problem, where=str(log), expected=expected, found=str(error)) from None

    def measured(self, rounds: str, count: int) -> list[Round]:
        """The speeds in so many rounds."""
        lines, speeds = self.lines(rounds, count), list[Round]()
        is_paired = self.operation == "collective"
        name = self.names.__getitem__ if is_paired else self.member
        members = len(self.names) * (1 if is_paired else self.devices)
        for line in lines:
            try:
                self.unit = str(line["unit"])
                values = {tuple(map(name, places)): float(v) for places, v in line["values"]}
                if not all(0 < value < math.inf for value in values.values()):
                    raise ValueError("a speed that is not above 0 and finite")
                missing = {*map(name, range(members))}.difference(*values)
                if missing and not (is_paired and len(self.names) % 2):  # one has no partner
                    raise ValueError(f"no speed of {', '.join(sorted(missing))}")
            except (KeyError, TypeError, ValueError, IndexError) as error:
                where = str(self.directory)
                raise UserError("invalid measurement", where=where, found=repr(error)) from None
            speeds.append(values)
        return speeds

    def member(self, rank: int) -> str:
        """The name of the device of a rank."""
        node = self.names[rank // self.devices]
        return f"{node} device {rank % self.devices}" if self.devices > 1 else node

    def verdict(self, what: str, slower: float, rounds: Sequence[Round]) -> Hunt:
        verdict = search(rounds, slower)
        middle = median(value for values in rounds for value in values.values())
        about = (self.unit, middle, str(self.directory))
        return Hunt(what, slower, verdict, verdict.decides(slower), *about)


def parse_kinds(text: str) -> tuple[str, ...]:
    """The kinds of `--hunt compute,memory`."""
    kinds = parse_names(text, "")
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise unknown_name("kind of hunt", unknown[0], KINDS, "--hunt")
    return kinds


def hunt_slow(campaign: NodeCampaign, slower: float) -> Iterator[Hunt]:
    """The verdict on the nodes or devices after as many rounds as decide it; then, of collectives,
    that on links that look slow, after rounds that measure these again."""
    kind, nodes = campaign.operation, len(campaign.nodes)
    is_paired, where = kind == "collective", f"--hunt {kind}"
    if is_paired and nodes < LEAST_PAIRED:
        problem, hint = "too few nodes for pairs", "dlperf doctor --bandwidth measures fewer"
        expected = f"at least {LEAST_PAIRED} nodes"
        raise UserError(problem, where=where, expected=expected, found=str(nodes), hint=hint)
    if nodes * campaign.devices < 2:
        raise UserError("one device has nothing to compare with", where=where)
    rounds: list[Round] = []
    while True:
        # Few nodes need more to decide anything.
        more = min(5 if nodes > 2 * LEAST_PAIRED else 10, MOST_ROUNDS - len(rounds))
        pairs = as_text(rounds_from(nodes, len(rounds), more)) if is_paired else str(more)
        rounds += campaign.measured(pairs, more)
        hunt = campaign.verdict(kind, slower, rounds)
        if hunt.is_decided or len(rounds) >= MOST_ROUNDS:
            break
        campaign.place.say(f"{len(rounds)} rounds do not decide: measuring again")
    yield hunt
    if is_paired and hunt.is_decided and (numbers := suspected(rounds, hunt)):
        campaign.place.say(f"links look slow: measuring {counted(len(numbers), 'round')} again")
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
        hint = "end other work on the nodes, look for more (--slower 10%), or name more nodes"
        text = f"the noise does not allow to find any, {rest}"
        if size is not None and size < 1:
            text = f"the noise allows to find only what is {100 * size:.1f} % slower, {rest}"
    yield Finding("", check, status, expected, text, hint)


def excluded(hunts: Sequence[Hunt]) -> list[str]:
    """The nodes to exclude. A slow link accuses neither of its ends."""
    slow = (member for each in hunts if each.what != "link" for member in each.verdict.slow)
    return list(dict.fromkeys(member.name.split()[0] for member in slow))


SHOWN = 10
_SLOW = ("-", "slow")
_NUMBERS = (Column(name, True) for name in ("of the others", "rounds", "p"))
_COLUMNS = (Column("slowest"), *_NUMBERS, Column("verdict"))


def render_hunts(hunts: Sequence[Hunt], screen: Screen) -> str:
    """The slowest members of each hunt, where p counts all of them; and the nodes to exclude as
    Slurm takes them."""
    lines: list[str] = []
    for each in hunts:
        members = each.verdict.members
        rows = [
            (m.name, f"{m.ratio:.1%}", str(m.rounds), cell(m.p_value, ".2g"), _SLOW[m.is_slow])
            for m in members[: max(SHOWN, len(each.verdict.slow))]
        ]
        title = f"{each.what}: {counted(len(members), 'member')}, {each.verdict.rounds} rounds"
        lines += ["", *titled(title, _COLUMNS, rows, screen)]
    if nodes := excluded(hunts):
        lines += [f"--exclude={','.join(nodes)}", ""]
    return "\n".join(lines)


# ---- same bits

_BITS = "same bits"
_BITS_HINT = (
    "compare again; if it differs again, take the device out of use, test it (dlperf doctor --dcgm"
    " 3, a memory test), and compare the versions of its libraries"
)


@dataclass(frozen=True)
class Bits:
    """`losses` are the bits of each step's loss in hexadecimal, `parameters` is a SHA-256."""

    device: str
    product: str
    version: str
    losses: tuple[str, ...]
    parameters: str


def bits_of(campaign: NodeCampaign) -> list[Bits]:
    """The bits that each device of the campaign's nodes computes."""
    bits: list[Bits] = []
    for line in campaign.lines():
        try:
            losses = tuple(map(str, line["losses"]))
            is_finite(losses)  # each is a hexadecimal number
            names = ("product", "torch", "parameters")
            product, version, digest = (str(line[name]) for name in names)
            bits.append(Bits(campaign.member(int(line["rank"])), product, version, losses, digest))
        except (KeyError, TypeError, ValueError, IndexError) as error:
            expected = "rank, product, torch, losses and parameters"
            raise UserError("invalid log", expected=expected, found=repr(error)) from None
    devices = len(campaign.names) * campaign.devices
    if len({each.device for each in bits}) < devices:
        expected, given = f"{devices} devices", ", ".join(each.device for each in bits)
        raise UserError("devices are missing in the log", expected=expected, found=given)
    return bits


def is_finite(losses: Sequence[str]) -> bool:
    """True if there are losses, and all are numbers: 11 bits of an exponent that are not all 1."""
    return bool(losses) and all(int(loss, 16) >> 52 & 0x7FF != 0x7FF for loss in losses)


def same_findings(devices: Sequence[Bits]) -> Iterator[Finding]:
    """Products and versions are compared within themselves. The bits of most are right; without a
    majority, nobody is accused alone."""
    for (product, version), equals in grouped(devices, lambda d: (d.product, d.version)).items():
        kind = f"{product}, PyTorch {version}"
        expected = f"the bits of the other {kind}"
        counts = Counter((each.losses, each.parameters) for each in equals)
        (usual, number), *_ = counts.most_common()
        if len(equals) == 1:
            text = f"{equals[0].device} is the only {kind}: nothing to compare with"
            yield Finding("", _BITS, "warning", expected, text, "name more nodes of this product")
        elif not is_finite(usual[0]):
            text = f"{counted(number, 'device')} of {kind} have losses that are no numbers"
            yield Finding("", _BITS, "failed", "finite losses", text, _BITS_HINT)
        elif len(counts) == 1:
            text = f"{counted(number, 'device')} of {kind} agree: {usual[1][:12]}"
            yield Finding("", _BITS, "ok", expected, text)
        elif 2 * number <= len(equals):
            groups = grouped(equals, lambda each: each.parameters[:12])
            texts = (f"{bits} on {', '.join(d.device for d in on)}" for bits, on in groups.items())
            yield Finding("", _BITS, "failed", expected, "; ".join(texts), _BITS_HINT)
        else:
            for each in (d for d in equals if (d.losses, d.parameters) != usual):
                pairs = enumerate(zip(each.losses, usual[0], strict=False), 1)
                step = next((n for n, (loss, other) in pairs if loss != other), None)
                where = f"from step {step} on" if step else "in the parameters alone"
                text = f"{each.device} differs from {counted(number, 'device')} {where}"
                yield Finding(each.device.split()[0], _BITS, "failed", expected, text, _BITS_HINT)
