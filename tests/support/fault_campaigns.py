"""Campaigns of short runs on two nodes of a lab, in which faults are caused at chosen moments.

What was measured of each fault is appended to .cache/faults.jsonl; fault_table.py makes the table
of docs/reliability.md of it.
"""

import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from child_processes import started
from fault_table import MEASURED
from faults import AT_START, DONE, Fault
from lab_under_test import PROJECT, Lab, children_of

from dlperf_runner.campaign.directory import is_done
from dlperf_runner.campaign.manifest import changes, read

NODES = ("node1", "node2")
RUNNER = [sys.executable, "-m", "dlperf_runner"]
PROGRAM = PROJECT / "tests/support/fault_program.py"
STEPS, STEP_S, RHYTHM = 120, 0.2, 35  # after so many steps a hang is noticed
LEASE_S = 15
# Beside the lab's inventory: shorter leases than a campaign of hours has.
SHORT_LEASES = {"benchmark_run_lease_s": LEASE_S, "benchmark_run_wait_s": 1}
# Processes of the benchmarks' user. Between two runs of a campaign, its supervisor waits for the
# next one, with a program on each node.
ALL = "ps -u dlperf -o pid=,stat=,args= || true"
OF_RUNS = """
waits=$(cat /opt/dlperf/runs/.supervisor.*[0-9a-f] 2>/dev/null)
for pid in $(pgrep -u dlperf); do
  case " $pid $(ps -o ppid= -p $pid | tr -d ' ') " in *" ${waits:-none} "*) continue;; esac
  grep -qs DLPERF_AGENT=1 /proc/$pid/environ || ps -o pid=,stat=,args= -p $pid
done
true
"""


@contextmanager
def lab_of_two(directory: Path) -> Iterator[Lab]:
    made = Lab(directory / "lab")
    provision(made)
    try:
        yield made
    finally:
        made.down()


def provision(lab: Lab) -> None:
    lab.up(lab_nodes=2, lab_frameworks="nccl")
    lab.play("provision.yml")


def faulty_workload(folder: Path) -> Path:
    """A catalogue with a workload whose runs take seconds, and a further inventory."""
    argv = [*RUNNER, "--catalog", folder, "init-workload", "--name=faulty", "--framework=nccl"]
    argv += ["--launcher=mpirun", "--command={python} fault_program.py {total_steps}"]
    argv += ["--regex", r"step (?P<step>\d+) rate (?P<rate>[\d.]+) samples/s", "--unit=samples"]
    argv += ["--sample=step 7 rate 9.8 samples/s", "--rates-are-per=world", "--batch-size=1"]
    argv += [f"--total-steps={STEPS}", "--warmup-steps=2", "--precision=fp32"]
    argv += ["--topologies=1n1g,2n1g", "--file", PROGRAM]
    done = subprocess.run(
        list(map(str, argv)), cwd=PROJECT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    path = folder / "workloads/faulty.yml"
    document = yaml.safe_load(path.read_text())
    document["sources"]["builtin"]["argv"] += ["{seconds}"]
    document["parameters"] = {"seconds": STEP_S}
    for matrix in document["matrices"].values():
        matrix |= {"timeout_s": 120, "hung_after_s": 6, "hung_after_lines": 4, "repeats": 1}
        matrix["first_step_s"] = 20
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    (folder / "leases.yml").write_text(json.dumps({"all": {"vars": SHORT_LEASES}}))
    return folder


@dataclass
class Campaign:
    lab: Lab
    catalog: Path
    directory: Path
    steps: int = STEPS
    seen: dict[str, Any] = field(default_factory=dict)  # the outcome of each run that was done

    def argv(self, command: str, *arguments: object) -> list[str]:
        return [*RUNNER, "--catalog", str(self.catalog), command, *map(str, arguments)]

    def run(self, *options: object, nodes: str = "2", repeats: int = 1) -> list[str]:
        chosen = ("--workload=faulty", f"--nodes={nodes}", f"--repeats={repeats}")
        more = (f"--iterations={self.steps}", f"--campaign={self.directory}")
        return self.argv("run", *self.inventories, *chosen, *more, *options)

    def resume(self, *options: object) -> list[str]:
        return self.argv("run", "--resume", self.directory, *self.inventories, *options)

    @property
    def inventories(self) -> list[str]:
        return ["--inventory=inventory/lab", f"--inventory={self.catalog}/leases.yml"]

    def outcomes(self) -> dict[str, Any]:
        runs = [json.loads(p.read_text()) for p in self.directory.glob("runs/*/*/run.json")]
        return {run["id"]: run["outcome"] for run in runs}

    def outcome(self, run: str) -> dict[str, Any]:
        """Of one run; empty before the campaign is planned."""
        found: dict[str, Any] = self.outcomes().get(run, {})
        return found

    def statuses(self) -> list[str]:
        return sorted(outcome["status"] for outcome in self.outcomes().values())

    def is_running(self, run: str) -> bool:
        return self.outcome(run).get("status") == "running"

    def has_ended(self, run: str) -> bool:
        """Whether the run is done, or it is recorded why it failed."""
        outcome = self.outcome(run)
        return outcome.get("status") == "done" or "category" in outcome

    def trains(self, process: subprocess.Popen[str] | None = None, steps: int = RHYTHM) -> None:
        """Wait until the run under way has done so many steps."""

        def has_steps() -> bool:
            assert process is None or process.poll() is None, process.communicate()
            for path in self.directory.glob("runs/*/*/progress.json"):
                with suppress(OSError, ValueError):
                    found = re.findall(r"step (\d+)", json.loads(path.read_text())["tail"])
                    return bool(found) and int(found[-1]) >= steps
            return False

        until("the run trains", 600, has_steps)

    def lost(self) -> int:
        """How many runs were done and are no longer, or have other files than were recorded."""
        manifest = read(self.directory)
        if manifest is None:
            return 0
        wrong = list(changes(self.directory, manifest))
        recorded = {sealed.subject for sealed in manifest.files.values()}
        count = 0
        for path in self.directory.glob("runs/*/*/run.json"):
            run = json.loads(path.read_text())
            if f"runs/{run['id']}" not in recorded:
                continue  # it has just ended, or never did
            if run["id"] in self.seen or is_done(self.directory, run):
                kept = is_done(self.directory, run)
                own = [text for text in wrong if text.startswith(f"runs/{run['id']}/")]
                again = self.seen.setdefault(run["id"], run["outcome"]) != run["outcome"]
                count += not kept or again or bool(own)
        return count

    def check_resumes(self, *more: str) -> str:
        done = self.lab.command(*self.resume(*more))
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
            text = log.read_text(errors="replace")
            assert len(re.findall(r"^step \d+ rate", text, re.MULTILINE)) == self.steps
        assert self.lost() == 0
        told = self.lab.command(*self.argv("summarize", "--verify", self.directory, "--no-history"))
        assert not re.search("(changed|deleted) since|: added:", told.stdout), told.stdout

    def note(
        self, name: str, how: str, outcome: str, seconds: float | None, script: str = ALL
    ) -> None:
        """Record what came of a fault, and check that nothing is lost or left."""
        remained = left(self.lab, script)
        row = {"fault": name, "how": how, "outcome": outcome, "lost": self.lost()}
        row |= {"left": len(remained), "seconds": None if seconds is None else round(seconds, 1)}
        MEASURED.parent.mkdir(exist_ok=True)
        with MEASURED.open("a") as file:
            file.write(json.dumps(row) + "\n")
        assert remained == [], remained
        assert row["lost"] == 0


@dataclass
class Sufferer:
    campaign: Campaign
    process: subprocess.Popen[str]
    manifest: Any
    ahead: list[Fault]
    number: int = 1
    noted: dict[str, tuple[dict[str, Any], Path]] = field(default_factory=dict)

    def suffer(self, fault: Fault) -> tuple[dict[str, Any], float]:
        """Let the next run suffer a fault. Returns its outcome and the seconds to notice it."""
        campaign, node = self.campaign, fault.node
        self.number += 1
        run = f"faulty-builtin_fp32_b1_2n1g/r{self.number}"
        if fault.program:
            inside(campaign.lab, node, f"echo {fault.program} > /home/dlperf/fault")
        inside(campaign.lab, node, fault.before or "true")
        try:
            began = self.next_run(run)
            if fault.training:
                campaign.trains(self.process)
                began = time.time()
                inside(campaign.lab, node, fault.training)
            until(f"{run} has ended: {fault.name}", 600, lambda: campaign.has_ended(run))
            ended = time.time()
        finally:
            inside(campaign.lab, node, f"{fault.undo or 'true'}; rm -f /home/dlperf/fault")
        if fault.program:
            for log in (campaign.directory / "runs" / run).glob("*.log"):
                told = re.findall(r"fault at (\d+\.\d)", log.read_text(errors="replace"))
                began = float(told[0]) if told else began
        return campaign.outcome(run), ended - began

    def check(self, fault: Fault) -> None:
        """Let the next run suffer a fault and note what came of it, once; then compare that."""
        if fault in self.ahead:
            self.ahead.remove(fault)
            outcome, seconds = self.suffer(fault)
            run = self.campaign.directory / f"runs/faulty-builtin_fp32_b1_2n1g/r{self.number}"
            found = outcome.get("category", outcome["status"])
            told = seconds if found != DONE else None
            self.campaign.note(fault.name, fault.how, found, told, OF_RUNS)
            self.noted[fault.name] = outcome, run
        outcome, run = self.noted[fault.name]
        found = outcome.get("category", outcome["status"])
        assert found == fault.outcome, outcome
        if found == DONE:
            return
        assert outcome["advice"]
        assert ": process " not in outcome["message"]  # that could not be ended
        if found in ("hung", AT_START):
            state = (run / "hang-node1.txt").read_text()
            assert "==== node2" in state and "fault_program" in state
            # What its thread waits in, or, where a busy machine leaves no time for that, in ps.
            is_stopped = "T (stopped)" in state or "do_signal_stop" in state
            assert is_stopped == ("STOP" in fault.how)

    def next_run(self, run: str) -> float:
        """Let the next run begin, and none after it. Returns the time."""
        fcntl.flock(self.manifest, fcntl.LOCK_UN)
        until(f"{run} runs", 600, lambda: self.campaign.is_running(run))
        began = time.time()
        fcntl.flock(self.manifest, fcntl.LOCK_EX)
        return began

    def finish(self) -> str:
        """Let it suffer what is still ahead, and end. Returns what it printed."""
        for fault in list(self.ahead):
            self.check(fault)
        fcntl.flock(self.manifest, fcntl.LOCK_UN)
        text, _ = self.process.communicate(timeout=900)
        return text


@contextmanager
def suffering(campaign: Campaign, faults: Sequence[Fault], *options: str) -> Iterator[Sufferer]:
    """One campaign whose runs suffer one fault each; the first is well.

    Between two runs the campaign waits, because the end of a run is recorded in the manifest, whose
    lock is held here.
    """
    argv = campaign.run(*options, repeats=len(faults) + 1)
    with started(campaign.lab, *argv) as process:
        campaign.trains(process, 1)
        with (campaign.directory / "manifest.jsonl").open("ab") as manifest:
            fcntl.flock(manifest, fcntl.LOCK_EX)
            until("the first run is done", 600, lambda: "done" in campaign.statuses())
            yield Sufferer(campaign, process, manifest, list(faults))


def until(what: str, seconds: float, check: Callable[[], bool]) -> float:
    began = time.monotonic()
    while not check():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.1)
    return time.monotonic() - began


def left(lab: Lab, script: str = ALL) -> list[str]:
    """Processes that the script lists, and TCP ports that are listened on beside sshd's."""
    found = []
    for node in NODES:
        told = inside(lab, node, script)
        found += [f"{node}: {line}" for line in told.splitlines() if "sshd" not in line]
        ports = inside(lab, node, "grep ' 0A ' /proc/net/tcp /proc/net/tcp6 | tr -s ' ' || true")
        own = [line.split()[2].rpartition(":")[2] for line in ports.splitlines()]
        found += [f"{node}: port {int(port, 16)}" for port in own if int(port, 16) != 22]
    return found


def first_process(lab: Lab, node: str) -> int:
    """Of a node, as this machine numbers it."""
    for pid in children_of(lab.state["pid"]):
        with suppress(OSError):
            if Path(f"/proc/{pid}/root/etc/hostname").read_text().strip() == node:
                return pid
    raise AssertionError(f"{node} is not up")


def inside(lab: Lab, node: str, script: str) -> str:
    """What a shell of a node prints, without a connection to it."""
    user = [] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]
    names = ("--mount", "--net", "--pid", "--uts", "--ipc")
    argv = ["nsenter", *user, *names, f"--target={first_process(lab, node)}", "sh", "-c", script]
    done = subprocess.run(
        argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 0, (node, script, done.stdout, done.stderr)
    return done.stdout


def processes_of(campaign: Campaign, controller: int) -> list[int]:
    """The controller, and the playbook and its workers."""
    found = [controller]
    for entry in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            line = (entry / "cmdline").read_bytes()
            if b"ansible-playbook" in line and str(campaign.directory).encode() in line:
                found.append(int(entry.name))
    return found


def release(campaign: Campaign) -> None:
    """End what a test has left: the playbook of its campaign, and on the nodes the processes, the
    lock and the fault, so that the next test finds them free."""
    for pid in processes_of(campaign, os.getpid())[1:]:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    paths = "/run/dlperf/lock /run/dlperf/lease.* /home/dlperf/fault"
    for node in NODES:
        inside(campaign.lab, node, f"pkill -KILL -u dlperf; rm -f {paths}")


def signal_all(campaign: Campaign, controller: int, number: signal.Signals) -> None:
    for pid in processes_of(campaign, controller):
        with suppress(ProcessLookupError):
            os.kill(pid, number)
