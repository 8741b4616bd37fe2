#!/usr/bin/env python3
"""Run `make test`, then the suites by area whose files changed, in the last commits or since.

    suites.py [--started UNIX_TIME]

suites.toml lists the suites. The last commits are those after the newest commit that is more than
12 hours older than HEAD; SUITES_SINCE=COMMIT compares with that commit instead. The shortest suite
is the first, so that most are reached. A suite starts only if it can end by minute 75, counted from
--started, even if it takes a fifth longer than estimated from how long `make test` took after the
setup. What still runs at minute 85 is ended and has failed. The first failure ends the run. The
last lines say what became of each suite.
Only the standard library is used: this runs before anything is installed.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import os
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DATA = "suites.toml"
START_MINUTES = 75  # by when a suite must be expected to end, to be started
END_MINUTES = 85  # the gate has 90
RESERVE = 1.2  # how much longer than estimated a suite may take
SETUP = ("test-system", ".venv/.dev")  # what all targets start from
LAST_COMMITS_HOURS = 12
SINCE = "SUITES_SINCE"
# With these in the environment, make or pytest could leave out tests, or succeed when one fails.
LEFT_OUT = ("MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS", "PYTEST_ADDOPTS")
PATIENCE_S = 60  # for tests that are interrupted and stop their labs


@dataclass(frozen=True)
class Suite:
    name: str
    minutes: float
    paths: tuple[str, ...]

    def is_touched_by(self, changed: Sequence[str]) -> bool:
        return any(fnmatch.fnmatchcase(path, each) for path in changed for each in self.paths)


def load(path: Path) -> tuple[float, list[Suite]]:
    """The expected minutes of `make test`, and the suites in the order of the file."""
    data = tomllib.loads(path.read_text(encoding="utf-8"))
    suites = [Suite(name, s["minutes"], tuple(s["paths"])) for name, s in data["suites"].items()]
    return data["test"]["minutes"], suites


def git(root: Path, *arguments: str) -> str:
    done = subprocess.run(
        ["git", "-C", str(root), *arguments], check=True, capture_output=True, text=True
    )
    return done.stdout.strip()


def base_commit(root: Path) -> str | None:
    """The commit before the last ones; None if the history is too short."""
    if given := os.environ.get(SINCE):
        return git(root, "rev-parse", "--verify", "--quiet", f"{given}^{{commit}}")
    if git(root, "rev-parse", "--is-shallow-repository") == "true":
        return None
    newest = int(git(root, "show", "--no-patch", "--format=%ct", "HEAD"))
    before = newest - 3600 * LAST_COMMITS_HOURS
    return git(root, "rev-list", "--max-count=1", f"--before={before}", "HEAD") or None


def changed_files(root: Path, base: str) -> list[str]:
    """Files that differ between the commit and the working tree, which is what `make test` tests;
    a renamed file counts under both names."""
    names = git(root, "diff", "--name-only", "--no-renames", "-z", base)
    new = git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return [name for name in f"{names}\0{new}".split("\0") if name]


def selection(root: Path, suites: Sequence[Suite]) -> tuple[list[Suite], str]:
    """The suites to run, and a description of the comparison or why there is none."""
    try:
        base = base_commit(root)
        if base is None:
            return [], "no commit to compare with: the history is shallow or too short"
        changed = changed_files(root, base)
    except (OSError, subprocess.CalledProcessError) as error:
        if os.environ.get(SINCE):
            print(f"{SINCE}={os.environ[SINCE]}: expected a commit of this repository")
            raise SystemExit(2) from error
        reason = str(getattr(error, "stderr", "") or error).splitlines()[0]
        return [], f"no commit to compare with: {reason}"
    touched = (s for s in suites if s.is_touched_by(changed))
    return sorted(touched, key=lambda s: s.minutes), f"since commit {base[:10]}"


def minutes(seconds: float) -> str:
    return f"{seconds / 60:.0f} min"


def make(deadline: float, *targets: str) -> tuple[str, float]:
    """Run targets of make; return why they failed, empty if they did not, and the seconds."""
    start = time.monotonic()
    environment = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    process = subprocess.Popen(["make", *targets], cwd=ROOT, env=environment, process_group=0)
    try:
        process.wait(max(deadline - time.time(), 0))
        why = f"{process.returncode}" if process.returncode else ""
    except (KeyboardInterrupt, subprocess.TimeoutExpired) as error:
        why = "Ctrl-C" if isinstance(error, KeyboardInterrupt) else f"minute {END_MINUTES}"
        end(process)
    return why, time.monotonic() - start


def end(process: subprocess.Popen[bytes]) -> None:
    """Interrupt make and all that it runs, as Ctrl-C does; then kill what is left."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGINT)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(PATIENCE_S)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def main() -> int:
    parser = argparse.ArgumentParser(description="run make test, then the suites of changed files")
    parser.add_argument("--started", type=float, default=time.time(), metavar="UNIX_TIME")
    started = parser.parse_args().started
    deadline = started + 60 * END_MINUTES
    expected, suites = load(Path(__file__).with_name(DATA))
    wanted, compared = selection(ROOT, suites)
    outcome = {s.name: f"not needed, no file of it changed {compared}" for s in suites}
    if compared.startswith("no commit"):
        outcome = {s.name: f"not started, {compared}" for s in suites}
    failed = "the setup" if make(deadline, *SETUP)[0] else None
    if not failed:
        why, took = make(deadline, "test")
        pace = took / 60 / expected
        print(f"make test took {minutes(took)}, {pace:.0%} of the expected time", flush=True)
        failed = "make test" if why else None
    for suite in wanted:
        if failed:
            outcome[suite.name] = f"NOT REACHED, {failed} failed"
            continue
        needed = suite.minutes * 60 * pace
        left = started + 60 * START_MINUTES - time.time()
        if RESERVE * needed > left:
            outcome[suite.name] = (
                f"NOT REACHED, takes about {minutes(needed)} here ({suite.minutes:.0f} min on an"
                f" idle machine), and {minutes(max(left, 0))} are left"
            )
        else:
            why, took = make(deadline, f"test-{suite.name}")
            result = f"FAILED ({why})" if why else "ok"
            outcome[suite.name] = f"{result} after {minutes(took)}"
            failed = f"make test-{suite.name}" if why else None
    print("Suites by area:")
    for name, text in outcome.items():
        print(f"  make test-{name}: {text}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
