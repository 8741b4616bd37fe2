"""A long campaign of runs of one second: controller and node stay as after the first runs."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import pytest
from benchmark_jobs import until_gone
from role_runs import HOSTS, as_bench_does, command, run_role
from watcher import repeating

RUNS = int(os.environ.get("LONG_RUNS", "40"))
KEPT = 20  # of the node's folders
pytestmark = [pytest.mark.heavy, pytest.mark.campaigns]


class State(NamedTuple):
    """Of the playbook's main process, and of all processes that the test has started."""

    mib: float
    files: int
    processes: int


def state() -> State | None:
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents[int(path.parent.name)] = int(fields[1])
    own = {os.getpid()}
    for _ in range(12):
        own |= {pid for pid, parent in parents.items() if parent in own}
    playbooks = [pid for pid, parent in parents.items() if parent == os.getpid()]
    for pid in playbooks:
        place = Path(f"/proc/{pid}")
        try:
            if b"ansible-playbook" in (place / "cmdline").read_bytes():
                pages = int((place / "statm").read_text().split()[1])
                files = len(list((place / "fd").iterdir()))
                return State(pages * os.sysconf("SC_PAGESIZE") / 2**20, files, len(own))
        except OSError:
            continue
    return None


@contextmanager
def watched() -> Iterator[list[State]]:
    """A state each second."""
    found: list[State] = []

    def look() -> None:
        if now := state():
            found.append(now)

    with repeating(look, 1):
        yield found


def test_long_campaign_stays_level(tmp_path: Path) -> None:
    """By the plays of bench.yml. Ansible keeps the tasks of each included role, so the memory of
    its main process may grow by 0.1 MiB a run; the number of files and processes may not."""
    (tmp_path / "campaign").mkdir()
    (tmp_path / "campaign/campaign.json").write_text("{}")
    commands = [command("node1", "/usr/bin:/bin", "sleep", "1")]
    variables = {"benchmark_run_keep": KEPT, "benchmark_run_wait_s": 2}
    with watched() as states:
        first = run_role(
            tmp_path,
            "",
            HOSTS[:1],
            variables,
            partial(as_bench_does, repeats=RUNS),
            within=60 * RUNS,
            accelerator="cpu",
            commands=commands,
        )
    records = [json.loads(path.read_text()) for path in first.parent.glob("r*/run.json")]
    assert [record["outcome"]["status"] for record in records] == ["done"] * RUNS
    assert len(list((tmp_path / "nodes/node1").glob("campaign/case/r*"))) <= KEPT + 1
    tenth = len(states) // 10
    early, late = states[tenth : 2 * tenth], states[-tenth:]
    print(f"{RUNS} runs: {early[0]} to {late[-1]}")
    grown = median(s.mib for s in late) - median(s.mib for s in early)
    assert grown <= 0.1 * RUNS
    # The fewest, because those of a run come and go.
    assert min(s.files for s in late) <= min(s.files for s in early) + 1
    assert min(s.processes for s in late) <= min(s.processes for s in early) + 1
    assert until_gone(str(tmp_path), 5)
