"""The command `bisect`: halves a list of versions until the first slow one is named. Each step is a
paired test."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import typer

from ..campaign.directory import new_directory
from ..compare.verdicts import FAILED, PASSED
from ..core.errors import UserError
from ..core.files import decoded, read_bytes
from ..core.lists import counted
from ..options import Chosen, chooses, print_errors, print_json, print_note, screen
from ..options.scheduler import of_scheduler
from ..plan.choice import fraction
from ..plan.sources import git, reason_of
from ..report.numbers import percent
from ..report.tables import Column, span
from ..report.terminal import table
from .ab import OF_PAIRS, Campaign, MostPairs, PairedTest, parse_side, run_in_turns

ORDER = 91
HELP = """
--name NAME: What has the versions, as in `ab --a NAME=V`.
--versions A,B,..|FILE: The good one to the bad one, or a file, one a line.
--repository DIR: The clone with the commits of GOOD..BAD.
--slower PERCENT: The slowdown that is sought.
--error PERCENT: The probability of naming a wrong version.
"""


@partial(chooses, further=of_scheduler(), without=OF_PAIRS)
def command(
    chosen: Chosen,
    name: str = "",
    versions: str = "",
    repository: Path | None = None,
    slower: str = "2%",
    error: str = "5%",
    most: MostPairs = 128,
    campaign: Campaign = "",
    as_json: bool = False,
) -> None:
    """Find the version that made a case slower: halve a list, and compare with the first one by
    `ab`. The exit status is 1 if it is not found, or if runs do not count.

    Example: dlperf bisect --workload mine --name revision --versions v1.0..main --repository ."""
    if not versions:
        hint = "--versions good,..,bad, or with --repository GOOD..BAD"
        raise UserError("no versions to search", where="--versions", hint=hint)
    texts = versions_of(versions, repository)
    if not name.isidentifier():
        raise UserError("no name of what has the versions", where="--name", found=repr(name))
    folder = Path(campaign or new_directory()).resolve()
    shares = {"--error": error, "--slower": slower}
    of_all, least = (fraction(text, where, above_0=True) for where, text in shares.items())
    test = step_test(len(texts), of_all, most, least)
    problems: list[str] = []

    def judge(version: str) -> Step:
        number = texts.index(version) + 1
        print_note(f"{version}: version {number} of {len(texts)}")
        sides = [parse_side([f"{name}={value}"], "--versions") for value in (texts[0], version)]
        document, failures = run_in_turns(folder / str(number), sides, chosen, test)
        problems.extend([*failures, *document["not_counted"]])
        return Step(version, *(document[n] for n in ("verdict", "low", "high", "judged_pairs")))

    outcome = search(texts, judge)
    if as_json:
        print_json({**asdict(outcome), "versions": texts, "error": error, "slower": slower})
    else:
        print(render(outcome, len(texts), error), end="")
    print_errors(problems)
    raise typer.Exit(1 if problems or outcome.version is None else 0)


def versions_of(text: str, repository: Path | None) -> list[str]:
    """The versions: of a list, a file, or the commits of a clone."""
    if repository is not None:
        texts = _commits(text, repository)
    elif "," not in text and Path(text).is_file():
        texts = decoded(read_bytes(Path(text)), text).split()
    else:
        texts = [version for version in map(str.strip, text.split(",")) if version]
    if len(texts) < 2 or len({*texts}) < len(texts):
        expected = "at least 2, all different, from the good one to the bad one"
        given = f"{text!r}, {counted(len(texts), 'version')}"
        raise UserError("no list of versions", where="--versions", expected=expected, found=given)
    return texts


def _commits(text: str, repository: Path) -> list[str]:
    """The good commit, and those after it up to the bad one."""
    ends = re.fullmatch(r"(\w[\w./~^@-]*?)\.\.(\w[\w./~^@-]*)", text, re.ASCII)
    if not ends:
        raise UserError("no range of commits", where="--versions", expected="GOOD..BAD", found=text)
    commits: list[str] = []
    for arguments in (
        ("rev-parse", "--verify", "--end-of-options", f"{ends[1]}^{{commit}}"),
        ("rev-list", "--reverse", "--first-parent", "--end-of-options", text),
    ):
        done = git(repository, *arguments)
        if done.returncode != 0:
            problem, reason = "git cannot list the commits", reason_of(done.stderr)
            raise UserError(problem, where=str(repository), found=reason)
        commits += done.stdout.decode().split()
    return commits


_COLUMNS = (Column("version"), Column("pairs", True), Column("difference"), Column("verdict"))


def render(outcome: FirstSlow, number: int, error: str) -> str:
    """The steps, and the version that was found."""
    rows = [
        (step.version, str(step.pairs), span(step.low, step.high, percent, " to "), step.verdict)
        for step in outcome.steps
    ]
    end = f"not found: {outcome.why}" if outcome.why else f"first slow: {outcome.version}"
    rates = f"At most {steps_of(number)} steps; a wrong version is found with at most {error}."
    return f"{table(_COLUMNS, rows, screen())}\n{end}\n{rates}\n"


@dataclass(frozen=True)
class Step:
    """A version, its verdict against the first one, and what it was judged by."""

    version: str
    verdict: str
    low: float | None = None
    high: float | None = None
    pairs: int = 0


@dataclass(frozen=True)
class FirstSlow:
    """The first slow version, or why it was not found; and the steps."""

    version: str | None
    why: str | None
    steps: tuple[Step, ...]


def steps_of(number: int) -> int:
    """The most steps for a list: the last version, then halves."""
    return 1 + math.ceil(math.log2(max(1, number - 1)))


def step_test(number: int, error: float, most: int, slower: float) -> PairedTest:
    """The test of one step. The steps share the error (Bonferroni), so that the version that is
    named is wrong with at most this probability. Each has two bounds, so one has half of it."""
    return PairedTest(most=most, error=2 * error / steps_of(number), slower=slower)


def search(versions: Sequence[str], judge: Callable[[str], Step]) -> FirstSlow:
    """The first version with the verdict failed. The first of the list is the one to compare with;
    the last must fail. A step that is undecided ends the search."""
    steps: list[Step] = []
    good, bad, middle = 0, len(versions), len(versions) - 1
    while bad - good > 1:
        steps.append(step := judge(versions[middle]))
        if step.verdict == FAILED:
            bad = middle
        elif step.verdict == PASSED:
            good = middle
        else:
            is_last = bad == len(versions)
            left = "" if is_last else f"; {versions[good]} was not slow, {versions[bad]} was"
            return FirstSlow(None, f"undecided: {step.version}{left}", tuple(steps))
        middle = (good + bad) // 2
    if bad == len(versions):
        return FirstSlow(None, f"the last version is not slower: {versions[-1]}", tuple(steps))
    return FirstSlow(versions[bad], None, tuple(steps))
