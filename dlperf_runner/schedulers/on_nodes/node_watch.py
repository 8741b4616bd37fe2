"""Watches a node while runs of a job use it, as the supervisor of a run by SSH does. Runs on each
node of the job, with any Python from 3.7 on, until its standard input ends.

    python node_watch.py NAME exclusive|shared NODE...

A line `begin COUNT DIRECTORY` starts a run on the first nodes, `end` ends it; after `look`, each of
them says for how long the run's processes there did nothing (`is_looked`); after `hung`, it writes
what they do (hang-NAME.txt), then says `is_kept`. It prints lines
of JSON, each with the node's name as `host`: one for each sentence about who uses the node before
the run (`busy`), and `is_ready`; after the run, one for each other process that used the CPU
(`beside`), one with the devices' peak memory, and `is_last`. Samples are in files beside the log.
The modules are those of bench.yml.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.module_utils import (
    node_agents,
    node_lock,
    other_processes,
    process_table,
    run_activity,
    run_processes,
    telemetry,
)

# As the defaults of the role benchmark_run.
SAMPLE_S, MOST_CORES_BESIDE, GRACE_S = 1, 0.2, 10
POLL_S = 0.5
CLEAN_S = 60
LONGEST = 500  # srun passes lines of 1024 bytes and more on in pieces, which mix with other nodes'


class Others(other_processes.OtherProcesses):  # type: ignore[misc]
    """Processes on this node that are not of this job."""

    def look(self) -> None:
        self.looked = time.time()
        own = f"DLPERF_JOB={os.environ['DLPERF_JOB']}".encode()

        def is_other(key: tuple[int, int], row: tuple[str, int, int, int]) -> bool:
            return row[1] != os.getuid() or own not in environment(key[0])

        table = process_table.processes(process_table.local())
        self.take(self.here, table, is_other, node_lock.uptime())


def content(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def environment(pid: int) -> list[bytes]:
    return content(f"/proc/{pid}/environ").split(b"\0")


def parameters(name: str, run: dict[str, Any]) -> dict[str, Any]:
    """The options of benchmark_job that its modules read."""
    devices = os.environ.get("CUDA_VISIBLE_DEVICES")
    return {
        "directory": ".",
        "host": name,
        "hosts": {},
        "idle": {},
        "lock": {},
        "cleanup": [],
        "env": {} if devices is None else {"CUDA_VISIBLE_DEVICES": devices},
        "sample_s": SAMPLE_S,
        "sample_hosts": {name: ""},
        "sample_gpus": run["accelerator"] != "cpu",
        "sample_devices": run["gpus_per_node"],
    }


def held(name: str) -> list[str]:
    """A sentence about a campaign by SSH that holds this node."""
    lock = node_lock.holder(node_lock.DIRECTORY)
    return [f"{name}: held by {lock['campaign']} of {lock['owner']}"] if lock else []


def when_idle(
    params: dict[str, Any], agents: Any, samples: Any, *, is_exclusive: bool
) -> tuple[Others, list[str]]:
    """Wait for a short time until nobody else uses the node: the observer of the run, and who does.

    Where the scheduler gives parts of nodes, others may use the rest: they are only recorded.
    """
    deadline = time.monotonic() + GRACE_S
    samples.start()
    while True:
        others = Others(params, agents)
        others.wait()
        busy = held(params["host"]) + samples.busy()
        busy += others.busy(MOST_CORES_BESIDE) if is_exclusive else []
        if not busy or time.monotonic() >= deadline:
            return others, busy
        time.sleep(1)
        samples.again()


def say(name: str, *documents: dict[str, Any]) -> None:
    for document in documents:
        print(json.dumps({"host": name, **document}), flush=True)


def clean(run: dict[str, Any]) -> None:
    """Remove what a container engine keeps on this node beyond the end of its processes."""
    cleanup = run["commands"][0]["cleanup"]
    if cleanup:
        with suppress(OSError, subprocess.TimeoutExpired):
            subprocess.run(cleanup, stdout=sys.stderr, timeout=CLEAN_S, check=False)


def of_run(directory: str) -> set[int]:
    """Ids of the processes on this node of the run in the directory, as job_run.py gives it."""
    marks = {f"DLPERF_JOB={os.environ['DLPERF_JOB']}".encode(), f"DLPERF_RUN={directory}".encode()}
    table = process_table.processes(process_table.local())
    return {pid for pid, _ in table if marks <= set(environment(pid))}


def helpers() -> set[int]:
    """Ids of the job's other processes on this node but this program's. Some may work for the run,
    without its environment: a plugin of Slurm unpacks the image of its container."""
    table = process_table.processes(process_table.local())
    daemon = f"slurmstepd: [{os.environ['DLPERF_JOB']}.".encode()
    steps = [pid for pid, _ in table if content(f"/proc/{pid}/cmdline").startswith(daemon)]
    watching = process_table.descendants(table, [os.getpid()])
    return {pid for pid in process_table.descendants(table, steps) if pid not in watching}


def keep_states(name: str, directory: str, log: str) -> None:
    """Write what the run's processes on this node do, beside its log."""
    logs = [path for path in (f"{log}.{name}", log) if Path(path).is_file()]
    where = {"host": name, "hosts": {}, "directory": ".", "log": [*logs, log][0]}
    run_processes.keep_states(where, of_run(directory), node_lock.uptime(), dict(os.environ))


def told(busy: list[str]) -> list[dict[str, Any]]:
    return [*({"busy": [sentence[:LONGEST]]} for sentence in busy), {"is_ready": True}]


def seen(samples: dict[str, Any], others: dict[str, Any]) -> list[dict[str, Any]]:
    beside = [{"beside": [process]} for process in others["beside"]]
    return [*beside, *({key: value} for key, value in samples.items()), {"is_last": True}]


class Orders:
    """The lines of standard input."""

    def __init__(self) -> None:
        self.rest = b""

    def next(self, seconds: float | None = None) -> str | None:
        """The next line; None if none comes in time; empty at the end."""
        while b"\n" not in self.rest:
            if not select.select([0], [], [], seconds)[0]:
                return None
            piece = os.read(0, 65536)
            if not piece:
                return ""
            self.rest += piece
        line, _, self.rest = self.rest.partition(b"\n")
        return line.decode()


def watch(name: str, directory: str, agents: Any, orders: Orders, *, is_exclusive: bool) -> None:
    """Watch one run, in its directory."""
    os.chdir(directory)
    run = json.loads(Path("run.json").read_text(encoding="utf-8"))
    params = parameters(name, run)
    clean(run)
    agents.want(params["sample_hosts"], dict(os.environ))
    samples = telemetry.Telemetry(params, agents, run["timeout_s"] + 10 * GRACE_S)
    agents.receive = samples.receive
    others, busy = when_idle(params, agents, samples, is_exclusive=is_exclusive)
    say(name, *told(busy))
    limit = run.get("hung_after_s", 0)
    activity = run_activity.Activity(name, (), limit, samples.gpu_idle_s)
    order = None
    while order in (None, "look", "hung"):
        if order == "look":
            pids = of_run(directory)
            activity.look(pids, helpers() - pids)
            state = activity.state()
            state["idle_s"] = min(state["idle_s"], limit)  # no infinity, which is no JSON
            say(name, {**state, "is_looked": True})
        elif order == "hung":
            keep_states(name, directory, run["log_name"])
            say(name, {"is_kept": True})
        agents.poll()
        others.poll()
        order = orders.next(POLL_S)
    clean(run)
    say(name, *seen(samples.result(), others.result()))


def main(name: str, kind: str, *nodes: str) -> None:
    agents, orders = node_agents.Agents(), Orders()
    for order in iter(orders.next, ""):
        what, _, rest = str(order).partition(" ")
        if what == "begin":
            count, _, directory = rest.partition(" ")
            if name in nodes[: int(count)]:
                watch(name, directory, agents, orders, is_exclusive=kind == "exclusive")
    agents.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
