"""The command `bisect`: which of a list of versions made a case slower."""

from __future__ import annotations

import re
import subprocess
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from ..ab.sides import OF_PAIRS
from ..core.errors import UserError
from ..core.files import decoded, read_bytes
from ..core.lists import counted
from ..options import AsJson, Chosen, chooses, option, print_errors, print_json, print_note, screen
from ..options.scheduler import of_scheduler
from ..plan.choice import fraction
from .search import FirstSlow, Step, decide_by, search, step_test, steps_of

ORDER = 91
_Name = Annotated[
    str, option("--name", "What has the versions, as in `ab --a NAME=VALUE`.", "NAME")
]
_Versions = Annotated[
    str,
    option(
        "--versions",
        "The versions, from the good one to the bad one, or a file with one a line.",
        "A,B,..|FILE",
    ),
]
_Repository = Annotated[
    Path | None,
    option(
        "--repository",
        "With --versions GOOD..BAD: the commits of this clone, along first parents.",
        "DIR",
    ),
]
_Slower = Annotated[str, option("--slower", "The slowdown that is sought.", "PERCENT")]
_Error = Annotated[
    str, option("--error", "The probability that a wrong version is found.", "PERCENT")
]
_Most = Annotated[int, option("--most", "At most so many pairs of each step.", "N", min=4)]
_Campaign = Annotated[
    str,
    option("--campaign", "The folder of all campaigns; one that exists goes on.", "DIR"),
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
    `ab`. The exit status is 1 if it is not found.

    Example: dlperf bisect --workload mine --name revision --versions v1.0..main --repository ."""
    from ..ab.sides import parse_side
    from ..ab.turns import run_in_turns
    from ..campaign.directory import new_directory

    known = versions_of(versions, repository)
    if not name.isidentifier():
        raise UserError("no name of what has the versions", where="--name", found=repr(name))
    folder = Path(campaign or new_directory()).resolve()
    test = step_test(len(known), fraction(error, "--error"), most)
    decide = decide_by(fraction(slower, "--slower"))
    problems: list[str] = []

    def judge(version: str) -> Step:
        number = known.index(version)
        print_note(f"{version}: version {number + 1} of {len(known)}")
        sides = [parse_side([f"{name}={value}"], "--versions") for value in (known[0], version)]
        step = folder / str(number + 1)
        document, went_wrong = run_in_turns(step, sides, chosen, test, decide)
        problems.extend(went_wrong)
        low, high = document["low"], document["high"]
        return Step(version, document["verdict"], low, high, document["judged_pairs"])

    found = search(known, judge)
    if as_json:
        print_json({**asdict(found), "versions": known, "error": error, "slower": slower})
    else:
        print(render(found, len(known), error), end="")
    print_errors(problems)
    raise typer.Exit(0 if found.version is not None else 1)


def versions_of(text: str, repository: Path | None) -> list[str]:
    """The versions: of a list, a file, or the commits of a clone."""
    if repository is not None:
        known = _commits(text, repository)
    elif "," not in text and Path(text).is_file():
        known = decoded(read_bytes(Path(text)), text).split()
    else:
        known = [version for version in map(str.strip, text.split(",")) if version]
    if len(known) < 2 or len({*known}) < len(known):
        raise UserError(
            "no list of versions",
            where="--versions",
            expected="at least 2, all different, from the good one to the bad one",
            found=f"{text!r}, {counted(len(known), 'version')}",
        )
    return known


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


def render(found: FirstSlow, number: int, error: str) -> str:
    """The steps, and the version that was found."""
    from ..report.numbers import percent
    from ..report.tables import Column, span
    from ..report.terminal import table

    columns = (Column("version"), Column("pairs", True), Column("difference"), Column("verdict"))
    rows = [
        (step.version, str(step.pairs), span(step.low, step.high, percent, " to "), step.verdict)
        for step in found.steps
    ]
    end = f"first slow: {found.version}" if found.version is not None else f"not found: {found.why}"
    rates = f"At most {steps_of(number)} steps; a wrong version is found with at most {error}."
    return f"{table(columns, rows, screen())}\n{end}\n{rates}\n"
