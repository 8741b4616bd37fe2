"""The command `bisect`: halves a list of versions until the first slow one is named. Each step is a
paired test."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..ab.pairs import PairedTest
from ..ab.turns import OF_PAIRS, parse_side, run_in_turns
from ..compare.verdicts import FAILED, PASSED
from ..core.errors import UserError
from ..core.files import decoded, read_bytes
from ..core.lists import counted
from ..options import AsJson, Chosen, chooses, option, print_errors, print_json, print_note, screen
from ..options.scheduler import of_scheduler
from ..plan.choice import fraction

ORDER = 91
_Name = Annotated[str, option("--name", "What has the versions, as in `ab --a NAME=V`.", "NAME")]
_Versions = Annotated[
    str, option("--versions", "The good one to the bad one, or a file, one a line.", "A,B,..|FILE")
]
_Repository = Annotated[
    Path | None, option("--repository", "The clone with the commits of GOOD..BAD.", "DIR")
]
_Slower = Annotated[str, option("--slower", "The slowdown that is sought.", "PERCENT")]
_Error = Annotated[str, option("--error", "The probability of naming a wrong version.", "PERCENT")]
_Most = Annotated[int, option("--most", "At most so many pairs of each step.", "N", min=4)]
_Campaign = Annotated[
    str, option("--campaign", "The folder of all campaigns; continued if it exists.", "DIR")
]


@partial(chooses, further=of_scheduler(), without=OF_PAIRS)
def command(
    chosen: Chosen,
    name: _Name = "",
    versions: _Versions = "",
    repository: _Repository = None,
    slower: _Slower = "2%",
    error: _Error = "5%",
    most: _Most = 128,
    campaign: _Campaign = "",
    as_json: AsJson = False,
) -> None:
    """Find the version that made a case slower: halve a list, and compare with the first one by
    `ab`. The exit status is 1 if it is not found, or if runs do not count.

    Example: dlperf bisect --workload mine --name revision --versions v1.0..main --repository ."""
    from ..campaign.directory import new_directory

    texts = versions_of(versions, repository)
    if not name.isidentifier():
        raise UserError("no name of what has the versions", where="--name", found=repr(name))
    folder = Path(campaign or new_directory()).resolve()
    shares = {"--error": fraction(error, "--error"), "--slower": fraction(slower, "--slower")}
    for option_name, share in shares.items():
        if not share:
            raise UserError("invalid percentage", where=option_name, expected="more than 0%")
    test = step_test(len(texts), shares["--error"], most, shares["--slower"])
    problems: list[str] = []

    def judge(version: str) -> Step:
        number = texts.index(version) + 1
        print_note(f"{version}: version {number} of {len(texts)}")
        sides = [parse_side([f"{name}={value}"], "--versions") for value in (texts[0], version)]
        document, failures = run_in_turns(folder / str(number), sides, chosen, test)
        problems.extend([*failures, *document["not_counted"]])
        low, high = document["low"], document["high"]
        return Step(version, document["verdict"], low, high, document["judged_pairs"])

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
        raise UserError(
            "no list of versions",
            where="--versions",
            expected="at least 2, all different, from the good one to the bad one",
            found=f"{text!r}, {counted(len(texts), 'version')}",
        )
    return texts


def _commits(text: str, repository: Path) -> list[str]:
    """The good commit, and those after it up to the bad one."""
    ends = re.fullmatch(r"(\w[\w./~^@-]*?)\.\.(\w[\w./~^@-]*)", text, re.ASCII)
    if not ends:
        raise UserError("no range of commits", where="--versions", expected="GOOD..BAD", found=text)
    good = _git(repository, "rev-parse", "--verify", "--end-of-options", f"{ends[1]}^{{commit}}")
    after = _git(repository, "rev-list", "--reverse", "--first-parent", "--end-of-options", text)
    return [*good, *after]


def _git(repository: Path, *arguments: str) -> list[str]:
    argv = ["git", "-C", str(repository), *arguments]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        raise UserError("git is not installed", where="--repository") from None
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or ["no reason given"]
        raise UserError("git cannot list the commits", where=str(repository), found=lines[-1])
    return done.stdout.split()


def render(outcome: FirstSlow, number: int, error: str) -> str:
    """The steps, and the version that was found."""
    from ..report.numbers import percent
    from ..report.tables import Column, span
    from ..report.terminal import table

    columns = (Column("version"), Column("pairs", True), Column("difference"), Column("verdict"))
    rows = [
        (step.version, str(step.pairs), span(step.low, step.high, percent, " to "), step.verdict)
        for step in outcome.steps
    ]
    slow, why = outcome.version, outcome.why
    end = f"first slow: {slow}" if slow is not None else f"not found: {why}"
    rates = f"At most {steps_of(number)} steps; a wrong version is found with at most {error}."
    return f"{table(columns, rows, screen())}\n{end}\n{rates}\n"


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
    steps = [judge(versions[-1])]
    if steps[0].verdict != FAILED:
        why = "the last version is not slower" if steps[0].verdict == PASSED else "undecided"
        return FirstSlow(None, f"{why}: {versions[-1]}", tuple(steps))
    good, bad = 0, len(versions) - 1
    while bad - good > 1:
        middle = (good + bad) // 2
        step = judge(versions[middle])
        steps.append(step)
        if step.verdict == FAILED:
            bad = middle
        elif step.verdict == PASSED:
            good = middle
        else:
            left = f"{versions[good]} was not slow, {versions[bad]} was"
            return FirstSlow(None, f"undecided: {step.version}; {left}", tuple(steps))
    return FirstSlow(versions[bad], None, tuple(steps))
