"""Executes the runs of a job in turn, on the job's first node, with any Python from 3.7 on.

    python job_run.py JOB exclusive|shared NODE... < RUNS

JOB is the directory of the job. A line of RUNS is the number of a run, its number of nodes, and its
directory. Each file is complete when it appears:

    JOB/started.NUMBER.json     the job's ID, the nodes, when the run began, and `mpi` if mpirun's
                                processes are started by something else
    JOB/ended.NUMBER.json       when it ended, its exit status, and what its supervisor saw
    JOB/cut_off.NUMBER.K.json   the K-th start, if the job was requeued before it ended

The supervisor is that of runs by SSH; it reaches the job's other nodes by JOB/on_node.sh.
"""

from __future__ import annotations

import json
import math
import os
import signal
import sys
import time
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from run_agent.node_agents import Agents
from run_agent.other_processes import adopt_orphans
from run_agent.supervisor import NOT_STARTED, Run

READY_S = 60  # the longest time for the agent of a node to answer
# As the defaults of the role benchmark_run.
SAMPLE_S, MOST_CORES_BESIDE = 1, 0.2
GRACE_S = 30  # between TERM and KILL; srun needs longer than mpirun
RESTARTS = 2  # by requeues of the job
TIMEOUT = 124  # exit status
# Exit statuses of a run that a signal ended, and the seconds to wait then for the end of the job.
KILLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
KILLED_S = 10
SEEN = {"reason", "silent_s", "sign", "busy", "left"}
SEEN |= {"beside", "gpu_memory_mib", "unsampled_from_s"}


def write(path: Path, document: dict[str, Any]) -> None:
    partial = path.with_name(f".{os.urandom(8).hex()}.tmp")
    with open(partial, "x", encoding="utf-8") as file:  # noqa: PTH123  no link is followed
        file.write(json.dumps(document) + "\n")
    partial.replace(path)


def utc(seconds: float) -> str:
    moment = datetime.fromtimestamp(seconds, timezone.utc)  # noqa: UP017  Python 3.7
    return moment.isoformat(timespec="microseconds")


def launch_of(
    run: dict[str, Any], directory: str, nodes: list[str], others: list[str], *, is_exclusive: bool
) -> dict[str, Any]:
    """The order for the supervisor of a run in this directory. `others`: the job's other nodes."""
    marks = [f"DLPERF_JOB={os.environ['DLPERF_JOB']}", f"DLPERF_RUN={directory}"]
    return {
        "launch": "",
        "directory": directory,
        "argv": ["bash", "run.sh", *nodes],
        "env": dict(os.environ),
        "cwd": "",
        "cleanup": run["commands"][0]["cleanup"],
        "log": run["log_name"],
        "timeout_s": run["timeout_s"],
        "grace_s": GRACE_S,
        **{key: run.get(key, 0) for key in ("hung_after_s", "hung_after_lines", "first_step_s")},
        "is_only_launch": True,
        "lock": {},
        "marks": marks,
        "host": nodes[0],
        "hosts": {node: node for node in nodes[1:]},
        "idle": {node: node for node in others},
        # Where the scheduler gives parts of nodes, others may use the rest.
        "most_cores_beside": MOST_CORES_BESIDE if is_exclusive else math.inf,
        "idle_wait_s": 0,
        "sample_s": SAMPLE_S,
        "sample_gpus": run["accelerator"] != "cpu",
        "sample_hosts": {nodes[0]: "", **{node: node for node in nodes[1:]}},
        "sample_devices": run["gpus_per_node"],
    }


class Runs:
    """The runs of a job. TERM ends the active one, and no further one starts."""

    def __init__(self, job: Path, nodes: list[str], *, is_exclusive: bool) -> None:
        self.job, self.nodes, self.is_exclusive = job, nodes, is_exclusive
        self.is_over = False
        self.agents = Agents(self.reach, READY_S)

    def reach(self, node: str, command: str) -> list[str]:
        return ["bash", str(self.job / "on_node.sh"), node, "sh", "-c", command]

    def stop(self, *_: object) -> None:
        self.is_over = True

    def order(self) -> str:
        return "stopped" if self.is_over else ""

    def wait_for_end_of_job(self) -> None:
        """Slurm ends the programs of a run a moment before it sends TERM to this one."""
        deadline = time.monotonic() + KILLED_S
        while not self.is_over and time.monotonic() < deadline:
            time.sleep(0.1)

    def start(self, number: str, count: int, directory: str) -> None:
        os.chdir(directory)
        run = json.loads(Path("run.json").read_text(encoding="utf-8"))
        nodes = self.nodes[:count]
        started, ended = (self.job / f"{what}.{number}.json" for what in ("started", "ended"))
        if ended.exists() or self.is_over or (self.job / "stop").exists():
            return
        before = len(list(self.job.glob(f"cut_off.{number}.*.json")))
        if started.exists():
            before += 1
            started.replace(self.job / f"cut_off.{number}.{before}.json")
        beginning = {"job": os.environ["DLPERF_JOB"], "nodes": nodes}
        if os.environ.get("DLPERF_PMIX") and "DLPERF_PMIX" in Path("run.sh").read_text():
            beginning["mpi"] = "pmix"
        if before > RESTARTS:
            now = utc(time.time())
            write(started, {**beginning, "started": now})
            write(ended, {"exit_status": NOT_STARTED, "ended": now, "requeued": before})
            return

        def tell(state: dict[str, Any]) -> None:
            has_begun = "pid" in state or (state.get("finished") and state["reason"] != "stopped")
            if has_begun and not started.exists():
                write(started, {**beginning, "started": utc(state["started"])})
            if has_begun and state.get("finished"):
                seen = {key: state[key] for key in SEEN if state.get(key)}
                end = {"exit_status": status_of(state), "ended": utc(state["ended"])}
                write(ended, {**end, **seen})

        others = self.nodes[count:]
        launch = launch_of(run, directory, nodes, others, is_exclusive=self.is_exclusive)
        supervised = Run(launch, self.agents, self.order, tell)
        supervised.supervise()
        self.agents.receive = None
        if status_of(supervised.state) in KILLED and not supervised.reason.startswith("hung"):
            self.wait_for_end_of_job()


def status_of(state: dict[str, Any]) -> int:
    """The exit status as a shell has it: that of `timeout` if the time limit was reached."""
    if state["reason"] == "timeout":
        return TIMEOUT
    status: int = state["exit_status"]
    return 128 - status if status < 0 else status


def main(job: str, kind: str, *nodes: str) -> None:
    runs = Runs(Path(job), list(nodes), is_exclusive=kind == "exclusive")
    # Slurm sends it to all processes of the job, a cancellation within an allocation only here.
    signal.signal(signal.SIGTERM, runs.stop)
    adopt_orphans()
    for line in sys.stdin.read().splitlines():
        number, count, directory = line.split(" ", 2)
        runs.start(number, int(count), directory)
    runs.agents.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
