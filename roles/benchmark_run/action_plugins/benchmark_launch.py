"""Controller side of `benchmark_job`: wait for a launch with signs of life, bring its log and its
telemetry home.

The benchmark runs as the user that the module runs as, and may have put anything where the module
looks, or into its answer. Nothing of an answer is used before it is checked: names of files are
those that were asked for, sizes are bounded, and digests are computed of what arrived.

One task per run keeps what the harness adds to a run small; see benchmarks/README.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
STOP_S = 90  # as long as a supervisor may need: TERM, KILL, and what removes containers

DOCUMENTATION = """
action: benchmark_launch
short_description: Launch a command on a node, wait for its end, fetch its log
options:
  job: {description: Options of the benchmark_job module., type: dict, required: true}
  label: {description: Name of the run in messages., type: str, required: true}
  destination: {description: Path of the log on the controller., type: path, required: true}
  progress: {description: Whether this node tells the run's progress., type: bool, default: true}
  show_every_s: {description: Seconds between two signs of life., type: int, default: 15}
"""

PART = 16 << 20  # bytes of a file that one module run returns
OVERDUE_S = 300  # what a node takes at most to end a command and to clean up
REASONS = ("", "timeout", "lease", "stopped", "lock")
KINDS = ("telemetry", "processes", "xid")
TAIL = 4096
# What Ansible and people are told of a module that failed; the rest of its answer is not believed.
TOLD = ("failed", "unreachable", "skipped", "changed", "msg", "module_stderr", "exception")
ADVICE = (
    "Only a regular file of the benchmark's user with one name and at most {limit} MiB is fetched."
    " Find out what the benchmark does with it, or, if it is too large, raise"
    " benchmark_run_{kind}_limit_mib"
)


class UnfitError(Exception):
    """What a node answered is not what the module answers."""


# What comes of using an answer that is of other types than the module's.
DAMAGED = (UnfitError, AttributeError, KeyError, TypeError, ValueError, OverflowError, zlib.error)


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("job", "label", "destination", "progress", "show_every_s"))
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = self._task.args
        destination = Path(arguments["destination"])
        progress = destination.with_name("progress.json")
        tells = boolean(arguments.get("progress", True))  # one node of a run does
        job = dict(arguments["job"], launch=uuid.uuid4().hex)
        began = shown = time.monotonic()
        if is_stopped():
            return {"failed": True, "msg": "not launched, because its campaign was stopped"}
        try:
            while True:
                if is_stopped():
                    job |= {"stop": True, "wait_s": STOP_S}
                result = self._execute_module("benchmark_job", module_args=job, task_vars=task_vars)
                if result.get("failed") or result.get("unreachable") or result.get("skipped"):
                    # The signal may have ended this call's ssh as well.
                    if is_stopped() and not job.get("stop"):
                        continue
                    return {key: result[key] for key in TOLD if key in result}
                tail = str(result.get("tail", ""))[-TAIL:]
                if result.get("finished"):
                    break
                job["launched"] = True
                if tells:
                    write_whole(progress, json.dumps({"tail": tail}))
                now = time.monotonic()
                if now - began > int(job["timeout_s"]) + OVERDUE_S:
                    return failed(
                        f"the node says that the command still runs, {OVERDUE_S} s after its"
                        f" time-out of {job['timeout_s']} s; its state there is damaged"
                    )
                if now - shown >= int(arguments.get("show_every_s", 15)):
                    shown = now
                    display.display(f"{arguments['label']}: {now - began:.0f} s, {last_line(tail)}")
        finally:
            if tells:
                progress.unlink(missing_ok=True)
        try:
            outcome = checked(result, job["sample_hosts"])
        except DAMAGED as error:
            return failed(f"the node's answer is damaged: {error}")

        def part(**which: Any) -> object:
            answer = self._execute_module("benchmark_fetch", module_args=which, task_vars=task_vars)
            if "content" not in answer:
                raise UnfitError(printable(answer.get("msg", "the node did not answer"), 400))
            return answer["content"]

        return outcome | fetched(result.get("files"), job, destination, part)


def failed(message: str) -> dict[str, Any]:
    return {"failed": True, "msg": message}


def checked(result: dict[str, Any], hosts: dict[str, str]) -> dict[str, Any]:
    """What is known of a command that has ended, each value of the type that it must have."""
    exit_status, reason = result.get("exit_status"), result.get("reason")
    if not isinstance(exit_status, int) or reason not in REASONS:
        raise UnfitError(f"exit status {exit_status!r:.40}, reason {reason!r:.40}")
    times = {key: float(result[key]) for key in ("started", "ended") if key in result}
    if len(times) != 2 or not all(0 <= seconds < 1e11 for seconds in times.values()):
        raise UnfitError(f"no time of start and end: {times}")
    found = {"changed": True, "finished": True, "exit_status": exit_status, "reason": reason}
    found |= times | {"tail": str(result.get("tail", ""))[-TAIL:]}
    # What else computed on the nodes meanwhile, by the kernel's account of each process.
    beside = [
        {
            "host": str(process["host"])[:200],
            "pid": int(process["pid"]),
            "uid": int(process["uid"]),
            "command": printable(process["command"], 100),
            "cores": float(process["cores"]),
        }
        for process in result.get("beside") or ()
    ]
    found |= {"beside": beside} if beside else {}
    memory = result.get("gpu_memory_mib")
    if memory is not None:
        found["gpu_memory_mib"] = {
            host: {str(int(index)): int(mib) for index, mib in memory[host].items()}
            for host in hosts
            if host in memory
        }
    return found


def fetched(
    files: object, job: dict[str, Any], log: Path, part: Callable[..., object]
) -> dict[str, Any]:
    """Bring the log and the samples home; why some of them were refused, in `refused`."""
    # As module_utils/gpu_memory.py names them, which runs on the nodes.
    samples = {
        f"{kind}-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}.csv"
        for kind in KINDS
        for host in job["sample_hosts"]
    }
    wanted = [(str(job["log"]), log, "log")]
    wanted += [(name, log.with_name(name), "telemetry") for name in sorted(samples)]
    offered = files if isinstance(files, dict) else {}
    found: dict[str, Any] = {"destination": str(log)}
    refused = []
    for name, destination, kind in wanted:
        if kind == "telemetry" and name not in offered:
            continue  # samples are welcome, and no run fails for want of them
        limit = int(job[f"{kind}_limit_mib"])
        try:
            entry = offered.get(name)
            if not isinstance(entry, dict):
                raise UnfitError("the node does not offer it")
            if "refused" in entry:
                why = printable(entry["refused"], 400)
                raise UnfitError(f"{why}. {ADVICE.format(kind=kind, limit=limit)}")
            pieces = contents(entry, f"{job['directory']}/{name}", limit << 20, part)
            digest = store(pieces, entry["sha256"], destination)
        except (*DAMAGED, OSError) as error:
            destination.unlink(missing_ok=True)  # that of an earlier launch
            refused.append(f"{name} was not fetched: {error}")
        else:
            found |= {"log_sha256": digest} if kind == "log" else {}
    return found | ({"refused": refused} if refused else {})


def contents(
    entry: dict[str, Any], path: str, limit: int, part: Callable[..., object]
) -> Iterator[bytes]:
    """The bytes of a file that a node describes, a part at a time; never more than the limit."""
    size = entry["size"]
    if not isinstance(size, int) or not 0 <= size <= limit:
        raise UnfitError(f"{path} has {size!r:.40} bytes, more than the limit of {limit}")
    if "content" in entry:
        yield unpacked(entry["content"], size)
        return
    for offset in range(0, size, PART):
        count = min(PART, size - offset)
        which = {"path": path, "identity": entry["identity"], "offset": offset, "count": count}
        yield unpacked(part(**which), count)


def unpacked(content: object, count: int) -> bytes:
    """Exactly so many bytes, however many more the content would unpack to."""
    inflated = zlib.decompressobj().decompress(base64.b64decode(str(content)), count + 1)
    if len(inflated) != count:
        raise UnfitError(f"{len(inflated)} bytes came, where {count} were announced")
    return inflated


def store(pieces: Iterator[bytes], expected: object, destination: Path) -> str:
    """Write a file whole; its SHA-256, which must be the expected one."""
    partial = destination.with_name(destination.name + ".part")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != expected:
            raise UnfitError("it changed while it was fetched (its SHA-256 is another one now)")
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
    return digest.hexdigest()


def is_stopped() -> bool:
    """Whether a signal asked for the campaign's end (playbooks/callback_plugins)."""
    stop = os.environ.get("DLPERF_STOP")
    return stop is not None and Path(stop).exists()


def write_whole(path: Path, text: str) -> None:
    """Write so that a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1], 120) if lines else "no output yet"


def printable(text: object, most: int) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text)[:most])
