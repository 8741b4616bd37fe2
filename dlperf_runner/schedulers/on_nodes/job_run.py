"""Executes the runs of a job in turn, on the job's first node, with any Python from 3.7 on.

    python job_run.py JOB NODE... < RUNS

JOB is the directory of the job. A line of RUNS is the number of a run, its number of nodes, and its
directory. Each file is complete when it appears:

    JOB/started.NUMBER.json     the job's ID, the nodes, when the run began, and `mpi` if mpirun's
                                processes are started by something else
    JOB/ended.NUMBER.json       when it ended, its exit status, what node_watch.py saw, and why it
                                hung, if it did
    JOB/cut_off.NUMBER.K.json   the K-th start, if the job was requeued before it ended
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ansible.module_utils.run_activity import EVERY_S, LOOKS, Hang
from ansible.module_utils.run_processes import ASK_S

# The longest time for the nodes to say whether they are idle, and for their last samples.
READY_S, LAST_S = 60, 15
LIMITS = ("hung_after_s", "hung_after_lines", "first_step_s")
POLL_S = 0.2  # of a run's log
# Seconds between TERM and KILL for a run that has reached its time limit.
GRACE_S = 30
RESTARTS = 2  # by requeues of the job
NOT_STARTED = 125
# Exit statuses of a run that a signal ended, and the seconds to wait then for the end of the job.
KILLED = (128 + signal.SIGTERM, 128 + signal.SIGKILL)
KILLED_S = 10


class Watch:
    """node_watch.py on each node of the job. If it fails, runs only lack telemetry."""

    def __init__(self, job: Path, nodes: list[str]) -> None:
        self.child = subprocess.Popen(
            ["bash", str(job / "watch.sh"), *nodes], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.rest = b""
        self.states: dict[str, dict[str, Any]] = {}  # of the run's processes, by node
        self.due = 0.0  # when to look at them again

    def begin(self, count: int, directory: str) -> list[dict[str, Any]]:
        """Let the first nodes watch a run; what they say before it starts."""
        self.states = {}
        self._order(f"begin {count} {directory}")
        return self.documents("is_ready", count, READY_S)

    def end(self, count: int) -> list[dict[str, Any]]:
        self._order("end")
        documents = self.documents("is_last", count, LAST_S)
        return [document for document in documents if "is_looked" not in document]

    def look(self, count: int, every: float) -> list[dict[str, Any]]:
        """The states of the run's processes on each of its nodes, as of the last look; none until
        all nodes have said theirs. Waits for nobody."""
        for document in self.documents("is_looked", count, 0):
            if "is_looked" in document:
                self.states[document["host"]] = document
        if time.monotonic() >= self.due:
            self.due = time.monotonic() + every
            self._order("look")
        return list(self.states.values()) if len(self.states) == count else []

    def keep_states(self, count: int) -> None:
        """Let each node of the run write what the run's processes do."""
        self._order("hung")
        self.documents("is_kept", count, 2 * ASK_S)

    def _order(self, line: str) -> None:
        assert self.child.stdin is not None  # noqa: S101
        with suppress(OSError):
            self.child.stdin.write(f"{line}\n".encode())
            self.child.stdin.flush()

    def documents(self, last: str, count: int, seconds: float) -> list[dict[str, Any]]:
        """What nodes say until so many have said a document with the key `last`, or until nobody
        says anything for so many seconds."""
        found: list[dict[str, Any]] = []
        assert self.child.stdout is not None  # noqa: S101
        descriptor = self.child.stdout.fileno()
        while (
            sum(last in document for document in found) < count
            and select.select([descriptor], [], [], seconds)[0]
        ):
            piece = os.read(descriptor, 65536)
            *whole, self.rest = (self.rest + piece).split(b"\n")
            for line in whole:
                try:
                    found.append(json.loads(line))
                except ValueError:
                    print(f"unexpected line of watch.sh: {line!r}", flush=True)
            if not piece:
                break
        return found

    def close(self) -> None:
        assert self.child.stdin is not None  # noqa: S101
        with suppress(OSError):
            self.child.stdin.close()
        try:
            self.child.wait(LAST_S)
        except subprocess.TimeoutExpired:
            self.child.kill()


def write(path: Path, document: dict[str, Any]) -> None:
    partial = path.with_name(f".{os.urandom(8).hex()}.tmp")
    with open(partial, "x", encoding="utf-8") as file:  # noqa: PTH123  no link is followed
        file.write(json.dumps(document) + "\n")
    partial.replace(path)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")  # noqa: UP017  Python 3.7


class Runs:
    """The runs of a job. TERM ends the active one, and no further one starts."""

    def __init__(self, job: Path, nodes: list[str]) -> None:
        self.job, self.nodes = job, nodes
        self.watch: Watch | None = None
        self.child: subprocess.Popen[bytes] | None = None
        self.is_over = False

    def stop(self, *_: object) -> None:
        self.is_over = True
        if self.child:
            self.child.terminate()

    def execute(
        self, run: dict[str, Any], directory: str, nodes: list[str], watch: Watch
    ) -> dict[str, Any]:
        """The exit status of the run's script: that of `timeout` if its time limit is reached. If
        it hung, also why."""
        limit = ["timeout", f"--kill-after={GRACE_S}", str(run["timeout_s"])]
        new = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(run["log_name"], new, 0o666), "wb") as log:  # noqa: PTH123
            os.set_blocking(log.fileno(), True)
            self.child = subprocess.Popen(
                [*limit, "bash", "run.sh", *nodes], env={**os.environ, "DLPERF_RUN": directory},
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
            if self.is_over:
                self.child.terminate()
            limits = {key: run.get(key, 0) for key in LIMITS}
            hang = Hang(run["log_name"], limits)
            every = min(EVERY_S, limits["hung_after_s"] / LOOKS)
            hung: dict[str, Any] = {}
            while True:
                with suppress(subprocess.TimeoutExpired):
                    status = self.child.wait(POLL_S)
                    break
                if hung:
                    continue
                looks = limits["hung_after_s"] and hang.is_starting()
                states = watch.look(len(nodes), every) if looks else []
                reason = hang.reason(states)
                if reason:
                    hung = {"hung": {"reason": reason, **hang.result}}
                    watch.keep_states(len(nodes))
                    self.child.terminate()
        return {"exit_status": 128 - status if status < 0 else status, **hung}

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
            write(started, {**beginning, "started": now()})
            write(ended, {"exit_status": NOT_STARTED, "ended": now(), "requeued": before})
            return
        self.watch = self.watch or Watch(self.job, self.nodes)
        told = self.watch.begin(count, directory)
        if self.is_over:
            return
        busy = [sentence for document in told for sentence in document.get("busy", ())]
        write(started, {**beginning, "started": now()})
        refused = {"exit_status": NOT_STARTED, "busy": busy}
        end = refused if busy else self.execute(run, directory, nodes, self.watch)
        write(ended, {**end, "ended": now(), "nodes": self.watch.end(count)})
        if end["exit_status"] in KILLED and "hung" not in end:
            self.wait_for_end_of_job()


def main(job: str, *nodes: str) -> None:
    runs = Runs(Path(job), list(nodes))
    # Slurm sends it to all processes of the job, a cancellation within an allocation only here.
    signal.signal(signal.SIGTERM, runs.stop)
    for line in sys.stdin.read().splitlines():
        number, count, directory = line.split(" ", 2)
        runs.start(number, int(count), directory)
    if runs.watch:
        runs.watch.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
