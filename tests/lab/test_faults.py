"""Faults during a campaign on two nodes: each run ends with a category, the campaign goes on, and
nothing is left on any node.

DLPERF_KILLS=50 DLPERF_SEED=7 pytest -s tests/lab/test_faults.py -k random_moments

kills the controller at so many random moments. Every test adds a line to .cache/faults.jsonl, from
which the table in docs/reliability.md was made.
"""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from child_processes import started
from lab_under_test import PROJECT, Lab

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.faults]

NODES = ("node1", "node2")
PROGRAM = PROJECT / "tests/support/fault_program.py"
STEPS = 120


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    assert mirror.is_dir()
    made = Lab(tmp_path_factory.mktemp("faults") / "lab")
    made.up(lab_nodes=2, lab_frameworks="nccl")
    try:
        made.play("provision.yml")
        yield made
    finally:
        made.down()


@pytest.fixture(scope="module")
def catalog(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A workload whose runs take seconds."""
    folder = tmp_path_factory.mktemp("catalog")
    argv = [
        *RUNNER,
        "--catalog",
        folder,
        "init-workload",
        "--name",
        "faulty",
        "--framework",
        "nccl",
    ]
    argv += [
        "--launcher",
        "mpirun",
        "--command",
        "{python} fault_program.py {total_steps}",
    ]
    argv += ["--regex", r"step (?P<step>\d+) rate (?P<rate>[\d.]+) samples/s"]
    argv += [
        "--sample",
        "step 7 rate 9.8 samples/s",
        "--unit",
        "samples",
        "--rates-are-per",
        "world",
    ]
    argv += ["--total-steps", str(STEPS), "--warmup-steps", "2", "--batch-size", "1"]
    argv += ["--precision", "fp32", "--topologies", "1n1g,2n1g", "--file", PROGRAM]
    done = subprocess.run(
        list(map(str, argv)), cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    path = folder / "workloads/faulty.yml"
    document = yaml.safe_load(path.read_text())
    document["sources"]["builtin"]["argv"] += ["{seconds}", "{fault}"]
    document["parameters"] = {"seconds": 0.25, "fault": "none"}
    for matrix in document["matrices"].values():
        matrix |= {"timeout_s": 120, "hung_after_s": 8, "hung_after_lines": 5, "repeats": 1}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return folder


RUNNER = [sys.executable, "-m", "dlperf_runner"]


@dataclass
class Campaign:
    lab: Lab
    catalog: Path
    directory: Path

    def argv(self, command: str, *arguments: object) -> list[str]:
        return [*RUNNER, "--catalog", str(self.catalog), command, *map(str, arguments)]

    def chosen(self, *, nodes: str = "2", **parameters: object) -> list[str]:
        given = [f"-p{name}={value}" for name, value in parameters.items()]
        return ["--workload=faulty", f"--nodes={nodes}", f"--campaign={self.directory}", *given]

    def trains(self, process: subprocess.Popen[str], steps: int = 30) -> None:
        """Wait until the log of the run under way has a rhythm."""

        def has_steps() -> bool:
            assert process.poll() is None, process.communicate()
            for path in self.directory.glob("runs/*/*/progress.json"):
                with suppress(OSError, ValueError):
                    found = re.findall(r"step (\d+)", json.loads(path.read_text())["tail"])
                    return bool(found) and int(found[-1]) >= steps
            return False

        until("the run trains", 400, has_steps)

    def outcomes(self) -> dict[str, Any]:
        runs = [json.loads(p.read_text()) for p in self.directory.glob("runs/*/*/run.json")]
        return {run["id"]: run["outcome"] for run in runs}

    def outcome(self, run: str) -> dict[str, Any]:
        """Of one run; empty before the campaign is planned."""
        found: dict[str, Any] = self.outcomes().get(run, {})
        return found

    def check_resumes(self, *more: str) -> str:
        done = self.lab.command(*self.argv("run", "--resume", self.directory, *more))
        assert done.returncode == 0, done.stdout
        self.check_complete()
        return done.stdout

    def check_complete(self) -> None:
        """Exactly the planned runs, each done once, and every file as it was recorded."""
        planned = json.loads((self.directory / "plan.json").read_text())["runs"]
        found = self.outcomes()
        assert sorted(found) == sorted(run["id"] for run in planned)
        assert {outcome["status"] for outcome in found.values()} == {"done"}
        logs = list(self.directory.glob("runs/*/*/*.log"))
        assert len(logs) == len(planned)
        for log in logs:
            assert len(re.findall(r"^step \d+ rate", log.read_text(), re.MULTILINE)) == STEPS
        told = self.lab.command(*self.argv("summarize", "--verify", self.directory, "--no-history"))
        assert "changed since" not in told.stdout and "deleted since" not in told.stdout, (
            told.stdout
        )


@pytest.fixture
def campaign(lab: Lab, catalog: Path, tmp_path: Path) -> Campaign:
    return Campaign(lab, catalog, tmp_path / "campaign")


def until(what: str, seconds: float, check: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.2)
    return time.monotonic() - began


def left(lab: Lab) -> list[str]:
    """Processes of the benchmarks' user, and TCP ports that are listened on beside sshd's."""
    found = []
    for node in NODES:
        told = lab.said(node, "ps -u dlperf -o pid=,stat=,args= || true")
        found += [f"{node}: {line}" for line in told.splitlines() if "sshd" not in line]
        ports = lab.said(node, "cat /proc/net/tcp /proc/net/tcp6 | grep ' 0A ' | tr -s ' ' || true")
        own = [line.split()[1].rpartition(":")[2] for line in ports.splitlines()]
        found += [f"{node}: port {int(port, 16)}" for port in own if int(port, 16) != 22]
    return found


def note(fault: str, outcome: dict[str, Any] | str, seconds: float, processes: int) -> None:
    row = {"fault": fault, "seconds": round(seconds, 1), "left": processes}
    row["outcome"] = outcome if isinstance(outcome, str) else outcome.get("category")
    with (PROJECT / ".cache/faults.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


# ---- what a program does

PROGRAMS = {
    "memory": "out of memory",
    "disk": "disk full",
    "read-only": "read-only file system",
    "crash": "killed by a signal",
    "exit": "program failed",
    "module": "missing software",
    "resolve": "name resolution",
    "silent": "hung",
}


def test_programs_that_fail_have_a_category_and_the_campaign_goes_on(campaign: Campaign) -> None:
    """Each fails on the last rank; the last run is well."""
    lab = campaign.lab
    lab.said("node2", "mkdir -p /opt/dlperf/runs/full /home/dlperf/readonly")
    lab.said("node2", "mount -t tmpfs -o size=1m,mode=1777 tmpfs /opt/dlperf/runs/full")
    lab.said("node2", "mount -t tmpfs -o ro tmpfs /home/dlperf/readonly")
    try:
        faults = ",".join([*PROGRAMS, "none"])
        chosen = campaign.chosen(fault=faults, seconds=1.1)
        done = lab.command(*campaign.argv("run", *chosen, "--iterations=12"))
    finally:
        lab.said("node2", "umount /opt/dlperf/runs/full /home/dlperf/readonly")
    assert done.returncode == 1, done.stdout
    found = {re.search(r"_fault-(.+?)_", k)[1]: o for k, o in campaign.outcomes().items()}  # type: ignore[index]
    assert found.pop("none")["status"] == "done", done.stdout
    for fault, outcome in found.items():
        note(f"program: {fault}", outcome, outcome["elapsed_s"], 0)
    assert {fault: outcome.get("category") for fault, outcome in found.items()} == PROGRAMS, found
    for outcome in found.values():
        assert outcome["advice"] in " ".join(done.stdout.split())
        assert "left behind" not in outcome["message"]
    assert left(lab) == []


# ---- what happens to processes and nodes while it trains

RANK, ORTED, MPIRUN = "^[^ ]*python.*fault_program", "orted", "^/usr/bin/mpirun"
SIGNALS = [
    ("node2", RANK, "STOP", "hung"),
    ("node1", RANK, "STOP", "hung"),
    ("node2", RANK, "KILL", "killed by a signal"),
    ("node2", ORTED, "KILL", "node lost"),
    ("node1", MPIRUN, "STOP", "hung"),
    ("node1", MPIRUN, "KILL", "killed by a signal"),
]


def test_processes_that_get_signals(campaign: Campaign) -> None:
    """A run each in one campaign, and one that is well."""
    lab = campaign.lab
    argv = campaign.argv("run", *campaign.chosen(), f"--repeats={len(SIGNALS) + 1}")
    with started(campaign.lab, *argv) as process:
        for number, (node, what, name, category) in enumerate(SIGNALS, start=1):
            run = f"faulty-builtin_fp32_b1_2n1g/r{number}"
            until(
                f"{run} runs", 400, lambda run=run: campaign.outcome(run).get("status") == "running"
            )
            campaign.trains(process)
            lab.said(node, f"kill -{name} $(pgrep -u dlperf -f '{what}' | tail -n 1)")
            seconds = until(
                f"{run} has ended: {name} for {what} on {node}",
                300,
                lambda run=run: "category" in campaign.outcome(run),
            )
            outcome = campaign.outcome(run)
            note(f"SIG{name} for {what.split('.')[-1]} on {node}", outcome, seconds, 0)
            assert outcome["category"] == category, outcome
            assert "left behind" not in outcome["message"]
            if category == "hung":
                state = (campaign.directory / "runs" / run / "hang-node1.txt").read_text()
                assert "==== node2" in state and "fault_program" in state
                assert "T (stopped)" in state
        text, _ = process.communicate(timeout=240)
    statuses = [outcome["status"] for outcome in campaign.outcomes().values()]
    assert (statuses.count("failed"), statuses.count("done")) == (len(SIGNALS), 1), text
    assert left(lab) == []
    campaign.check_resumes("--retry-failed")
    assert sum(len(o.get("earlier", ())) for o in campaign.outcomes().values()) == len(SIGNALS)


def test_supervisor_that_is_killed_takes_its_run_along(campaign: Campaign) -> None:
    lab = campaign.lab
    with started(campaign.lab, *campaign.argv("run", *campaign.chosen())) as process:
        campaign.trains(process)
        mpirun = lab.said("node1", "pgrep -u dlperf -x mpirun")
        lab.said("node1", f"kill -KILL $(ps -o ppid= -p {mpirun})")
        text, _ = process.communicate(timeout=120)
    (outcome,) = campaign.outcomes().values()
    assert "the supervisor of the launch has died" in outcome["message"], text
    until("no process is left", 30, lambda: left(lab) == [])
    note("supervisor killed", outcome, 0, 0)


def test_broken_connection_to_a_node_does_not_end_the_run(campaign: Campaign) -> None:
    """All of node1's ssh sessions with the controller are cut; the next poll comes by a new one."""
    lab = campaign.lab
    with started(campaign.lab, *campaign.argv("run", *campaign.chosen())) as process:
        campaign.trains(process, steps=12)
        lab.ssh("node1", "pkill -KILL -f '^sshd: root@notty'")
        text, _ = process.communicate(timeout=240)
    assert process.returncode == 0, text
    campaign.check_complete()
    note("connection to node1 cut", "done", 0, len(left(lab)))


def test_interface_that_is_down_is_noticed(campaign: Campaign) -> None:
    lab = campaign.lab
    with started(
        campaign.lab, *campaign.argv("run", *campaign.chosen(), "--on-node-loss=stop")
    ) as process:
        campaign.trains(process)
        down = "ip link set eth0 down; sleep 40; ip link set eth0 up"
        lab.said("node2", f"setsid sh -c '{down}' >/dev/null 2>&1 </dev/null &")
        noticed = until(
            "the run has ended",
            150,
            lambda: "category" in str(campaign.outcomes()),
        )
        text, _ = process.communicate(timeout=240)
    (outcome,) = campaign.outcomes().values()
    assert outcome["status"] == "failed", text
    note("network of node2 cut for 40 s", outcome, noticed, 0)
    until("no process is left", 60, lambda: left(lab) == [])
    campaign.check_resumes("--retry-failed")


# ---- the controller


def test_interrupt_lets_the_run_end_and_a_second_stops_it(campaign: Campaign) -> None:
    two = campaign.chosen(nodes="1,2")
    with started(campaign.lab, *campaign.argv("run", *two)) as process:
        campaign.trains(process, steps=8)
        process.send_signal(signal.SIGINT)
        text, _ = process.communicate(timeout=240)
    assert process.returncode == 130, text
    assert sorted(o["status"] for o in campaign.outcomes().values()) == ["done", "planned"]
    with started(campaign.lab, *campaign.argv("run", "--resume", campaign.directory)) as process:
        campaign.trains(process, steps=8)
        process.send_signal(signal.SIGINT)
        time.sleep(1)
        process.send_signal(signal.SIGINT)
        began = time.monotonic()
        text, _ = process.communicate(timeout=120)
    assert process.returncode == 143, text
    assert left(campaign.lab) == []
    stopped = [o for o in campaign.outcomes().values() if o["status"] == "failed"]
    assert [o["category"] for o in stopped] == ["stopped"]
    note("Ctrl-C twice", stopped[0], time.monotonic() - began, 0)
    campaign.check_resumes()


def test_detached_campaign_outlives_its_terminal_and_can_be_stopped(campaign: Campaign) -> None:
    two = campaign.chosen(nodes="1,2")
    done = campaign.lab.command(*campaign.argv("run", *two, "--detach"))
    assert done.returncode == 0, done.stdout
    pid = int(re.search(r"process (\d+) runs", done.stdout).group(1))  # type: ignore[union-attr]
    os.kill(pid, signal.SIGHUP)
    second = campaign.lab.command(*campaign.argv("run", "--resume", campaign.directory))
    assert second.returncode == 2
    assert "another controller works on this campaign" in second.stdout
    until("a run is done", 200, lambda: "done" in str(campaign.outcomes()))
    stopped = campaign.lab.command(*campaign.argv("stop", campaign.directory, "--now"))
    assert f"process {pid} stops the current run" in stopped.stdout
    watched = campaign.lab.command(*campaign.argv("status", campaign.directory, "--watch"))
    assert "no controller" in watched.stdout.splitlines()[-1]
    assert not Path(f"/proc/{pid}").exists()
    assert left(campaign.lab) == []
    note("SIGHUP, then stop --now", "stopped", 0, 0)
    campaign.check_resumes()


def test_controller_killed_at_random_moments_resumes_to_the_planned_runs(
    campaign: Campaign,
) -> None:
    """Controller and playbook get SIGKILL together, as by a power cut of their machine."""
    kills, seed = int(os.environ.get("DLPERF_KILLS", "3")), os.environ.get("DLPERF_SEED", "7")
    chance = random.Random(seed)  # noqa: S311
    argv = campaign.argv("run", *campaign.chosen(nodes="1"), "--repeats", 3)
    for number in range(kills):
        with started(campaign.lab, *argv) as process:
            moment = chance.uniform(0.2, 90)
            with suppress(subprocess.TimeoutExpired):
                process.wait(moment)
            for pid in group_of(campaign.directory, process.pid):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        states = sorted(o["status"] for o in campaign.outcomes().values())
        print(f"kill {number + 1} after {moment:.1f} s: {states}", flush=True)
        for path in campaign.directory.rglob("*.json"):
            if not path.name.startswith("."):
                json.loads(path.read_text())
        if (campaign.directory / "campaign.json").exists():
            argv = campaign.argv("run", "--resume", campaign.directory)
            if all(o["status"] == "done" for o in campaign.outcomes().values()):
                campaign.check_complete()
                campaign.directory = campaign.directory.with_name(f"campaign{number}")
                argv = campaign.argv("run", *campaign.chosen(nodes="1"), "--repeats", 3)
    if (campaign.directory / "campaign.json").exists():
        campaign.check_resumes()
    until("no process is left", 100, lambda: left(campaign.lab) == [])
    note(f"controller killed {kills} times (seed {seed})", "resumed", 0, 0)


def group_of(directory: Path, controller: int) -> list[int]:
    """The controller, and the playbook and its workers."""
    found = [controller]
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if b"ansible-playbook" in line and str(directory).encode() in line:
                found.append(int(entry.name))
    return found
