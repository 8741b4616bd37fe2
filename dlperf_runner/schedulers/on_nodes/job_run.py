"""Executes one run of a job, on the job's first node, with any Python from 3.7 on.

    python job_run.py JOB NUMBER DIRECTORY NODE...

JOB is the directory of the job, DIRECTORY that of the run. Each file is complete when it appears:

    JOB/started.NUMBER.json     the job's ID, the nodes, and when the run began
    JOB/ended.NUMBER.json       when it ended, its exit status, and what node_watch.py saw
    JOB/cut_off.NUMBER.K.json   the K-th start, if the job was requeued before it ended
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

# The longest time for the nodes to say whether they are idle, and for their last samples.
READY_S, LAST_S = 60, 15
# Seconds between TERM and KILL for a run that has reached its time limit.
GRACE_S = 30
RESTARTS = 2  # by requeues of the job
NOT_STARTED = 125


class Watch:
    """node_watch.py on each node of the run. If it fails, a run only lacks telemetry."""

    def __init__(self, job: Path, nodes: list[str]) -> None:
        self.count = len(nodes)
        self.child = subprocess.Popen(
            ["bash", str(job / "watch.sh"), *nodes], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.rest = b""

    def documents(self, last: str, seconds: float) -> list[dict[str, Any]]:
        """What the nodes say until each has said a document with the key `last`, or until nobody
        says anything for so many seconds."""
        found: list[dict[str, Any]] = []
        assert self.child.stdout is not None  # noqa: S101
        descriptor = self.child.stdout.fileno()
        while (
            sum(last in document for document in found) < self.count
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

    def end(self) -> list[dict[str, Any]]:
        assert self.child.stdin is not None  # noqa: S101
        self.child.stdin.close()
        found = self.documents("is_last", LAST_S)
        try:
            self.child.wait(LAST_S)
        except subprocess.TimeoutExpired:
            self.child.kill()
        return found


def write(path: Path, document: dict[str, Any]) -> None:
    partial = path.with_name(f".{path.name}")
    partial.write_text(json.dumps(document) + "\n", encoding="utf-8")
    partial.replace(path)


def now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")  # noqa: UP017  Python 3.7


def execute(run: dict[str, Any], nodes: list[str]) -> int:
    """The exit status of the run's script: that of `timeout` if its time limit is reached."""
    limit = ["timeout", f"--kill-after={GRACE_S}", str(run["timeout_s"])]
    with Path(run["log_name"]).open("wb") as log:
        child = subprocess.Popen(
            [*limit, "bash", "run.sh", *nodes],
            stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
        )  # fmt: skip
        # Slurm sends it to all processes of the job, a cancellation within an allocation only here.
        signal.signal(signal.SIGTERM, lambda *_: child.terminate())
        status = child.wait()
    return 128 - status if status < 0 else status


def main(job: str, number: str, directory: str, *nodes: str) -> None:
    place = Path(job)
    os.chdir(directory)
    run = json.loads(Path("run.json").read_text(encoding="utf-8"))
    started, ended = (place / f"{what}.{number}.json" for what in ("started", "ended"))
    before = len(list(place.glob(f"cut_off.{number}.*.json")))
    if started.exists():
        before += 1
        started.replace(place / f"cut_off.{number}.{before}.json")
    beginning = {"job": os.environ["DLPERF_JOB"], "nodes": nodes}
    if before > RESTARTS:
        write(started, {**beginning, "started": now()})
        write(ended, {"exit_status": NOT_STARTED, "ended": now(), "requeued": before})
        return
    watch = Watch(place, list(nodes))
    told = watch.documents("is_ready", READY_S)
    busy = [sentence for document in told for sentence in document.get("busy", ())]
    write(started, {**beginning, "started": now()})
    status = NOT_STARTED if busy else execute(run, list(nodes))
    end = {"exit_status": status, "ended": now(), **({"busy": busy} if busy else {})}
    write(ended, {**end, "nodes": watch.end()})


if __name__ == "__main__":
    main(*sys.argv[1:])
