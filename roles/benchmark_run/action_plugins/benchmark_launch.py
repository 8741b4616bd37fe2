"""Controller side of `benchmark_job`: wait for a launch, show its progress, and fetch its log and
telemetry.

The benchmark runs as the same user as the module, so it may have forged any file that the module
reads, and its answer. Every part of an answer is checked before use: only requested file names are
accepted, sizes are bounded, and digests are computed from the received bytes.

One task per run keeps the harness's overhead small; see benchmarks/README.md.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import os
import re
import time
import uuid
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleConnectionFailure
from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

display = Display()
STOP_S = 90  # the longest time that a supervisor needs for TERM, KILL and removing containers

DOCUMENTATION = """
action: benchmark_launch
short_description: Launch a command on a node, wait for it, and fetch its log
options:
  job: {description: Options of the benchmark_job module., type: dict, required: true}
  label: {description: Name of the run in messages., type: str, required: true}
  destination: {description: Path of the log on the controller., type: path, required: true}
  progress: {description: Whether to report this node's progress., type: bool, default: true}
  show_every_s: {description: Seconds between two progress lines., type: int, default: 15}
"""

PART = 16 << 20  # bytes of a file that one module run returns
OVERDUE_S = 300  # the longest time that a node needs to stop a command and clean up
RETRY_S = 2
PEER_S = 30  # how long a launch may go on when another one of its run has failed: it may say more
HUNG = ("hung", "hung_at_start")
REASONS = ("", "timeout", "lease", "stopped", "lock", "busy", *HUNG, "peer")
KINDS = ("telemetry", "processes", "xid", "health")
TAIL = 4096
DEVICES = 10000
# Keys that are passed on from a failed module's answer; the rest is not trusted.
TOLD = ("failed", "unreachable", "lost", "skipped", "changed", "msg", "module_stderr", "exception")
STOPPED = {"reason": "stopped"}  # so that the resumed campaign runs it again
ADVICE = (
    "Only a regular file with one link, owned by the benchmark's user, of at most {limit} MiB is"
    " fetched. Check what the benchmark does with it. If it is too large, raise"
    " benchmark_run_{kind}_limit_mib"
)


class UnfitError(Exception):
    """The node's answer does not have the form of the module's answer."""


# Errors from an answer with wrong types.
DAMAGED = (UnfitError, AttributeError, KeyError, TypeError, ValueError, OverflowError, zlib.error)


class ActionModule(ActionBase):
    _VALID_ARGS = frozenset(("job", "label", "destination", "progress", "show_every_s"))
    _supports_check_mode = True

    def run(self, tmp: None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        arguments = self._task.args
        destination = Path(arguments["destination"])
        progress = destination.with_name("progress.json")
        tells = boolean(arguments.get("progress", True))  # only one node of a run reports progress
        # Shared by the launches of a run, which are processes of this controller.
        peers = destination.with_name(".failed")
        since = None
        interrupted = False
        job = dict(arguments["job"], launch=uuid.uuid4().hex)
        began = shown = heard = time.monotonic()
        if stop_level() == "now":
            return failed("not launched because its campaign was stopped") | STOPPED
        try:
            while True:
                if stop_level() == "now":
                    job |= {"stop": True, "wait_s": STOP_S}
                elif peers.exists():
                    since = since or time.monotonic()
                    job["peer"] = time.monotonic() >= since + PEER_S
                try:
                    result = self._execute_module(
                        "benchmark_job", module_args=job, task_vars=task_vars
                    )
                    heard = time.monotonic()
                except AnsibleConnectionFailure as error:
                    result = {"unreachable": True, "msg": str(error)}
                    # The command goes on as long as its lease, so a broken connection is no end.
                    if job.get("launched") and time.monotonic() < heard + int(job["lease_s"]):
                        time.sleep(RETRY_S)
                        continue
                if result.get("failed") or result.get("unreachable") or result.get("skipped"):
                    # The signal may have ended this call's ssh too.
                    if stop_level() and not interrupted:
                        interrupted = True
                        continue
                    if not result.get("skipped"):
                        touch(peers)
                    told = {key: result[key] for key in TOLD if key in result}
                    return told | (STOPPED if stop_level() == "now" else {})
                tail = str(result.get("tail", ""))[-TAIL:]
                if result.get("finished"):
                    if result.get("reason") or result.get("exit_status"):
                        touch(peers)
                    break
                job["launched"] = True
                if tells:
                    devices = sampled(result.get("devices"))
                    with suppress(OSError):  # on a full disk, too, the run goes on
                        write_whole(progress, json.dumps({"tail": tail, "devices": devices}))
                now = time.monotonic()
                if now - began > int(job["timeout_s"]) + int(job.get("idle_wait_s", 0)) + OVERDUE_S:
                    return failed(
                        f"the node reports that the command still runs {OVERDUE_S} s after its"
                        f" time limit of {job['timeout_s']} s; its state there is damaged"
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
    """The checked result of a finished command."""
    exit_status, reason = result.get("exit_status"), result.get("reason")
    if not isinstance(exit_status, int) or reason not in REASONS:
        raise UnfitError(f"exit status {exit_status!r:.40}, reason {reason!r:.40}")
    times = {key: float(result[key]) for key in ("started", "ended") if key in result}
    if len(times) != 2 or not all(0 <= seconds < 1e11 for seconds in times.values()):
        raise UnfitError(f"start and end times are missing: {times}")
    outcome = {"changed": True, "finished": True, "exit_status": exit_status, "reason": reason}
    outcome |= times | {"tail": str(result.get("tail", ""))[-TAIL:]}
    if reason in HUNG:
        outcome["silent_s"] = float(result["silent_s"])
        outcome["sign"] = printable(result["sign"], 200)
    left = [printable(line, 300) for line in list(result.get("left") or ())[:100]]
    outcome |= {"left": left} if left else {}
    # Other processes that used the CPU during the run, according to the kernel.
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
    outcome |= {"beside": beside} if beside else {}
    if busy := result.get("busy"):
        outcome["busy"] = [printable(sentence, 200) for sentence in busy[:20]]
    memory = result.get("gpu_memory_mib")
    if memory is not None:
        outcome["gpu_memory_mib"] = {
            host: {str(int(index)): int(mib) for index, mib in memory[host].items()}
            for host in hosts
            if host in memory
        }
    lost = result.get("unsampled_from_s") or {}
    seconds = {host: float(lost[host]) for host in hosts if host in lost}
    if not all(map(math.isfinite, seconds.values())):
        raise UnfitError("a time of the telemetry is no number")
    return outcome | ({"unsampled_from_s": seconds} if seconds else {})


def sampled(devices: object) -> list[dict[str, Any]]:
    """The last sample of each GPU; none if one is damaged."""
    names = ("memory_used_mib", "utilization_percent", "temperature_c", "power_w")
    found = []
    try:
        for device in list(devices or ())[:DEVICES]:  # type: ignore[call-overload]
            values = {n: None if device[n] is None else float(device[n]) for n in names}
            if not all(value is None or math.isfinite(value) for value in values.values()):
                return []
            node = printable(device["host"], 200)
            found.append({"node": node, "device": int(device["device"]), **values})
    except DAMAGED:
        return []
    return found


def fetched(
    files: object, job: dict[str, Any], log: Path, part: Callable[..., object]
) -> dict[str, Any]:
    """Fetch the log and the samples; `refused` lists the reasons for missing files."""
    # Names as in module_utils/telemetry.py, which runs on the nodes.
    samples = {
        f"{kind}-{re.sub(r'[^A-Za-z0-9._-]', '_', host)}.csv"
        for kind in KINDS
        for host in job["sample_hosts"]
    }
    state = f"hang-{re.sub(r'[^A-Za-z0-9._-]', '_', job['host'] or 'node')}.txt"
    wanted = [(str(job["log"]), log, "log")]
    wanted += [(name, log.with_name(name), "telemetry") for name in (*sorted(samples), state)]
    offered = files if isinstance(files, dict) else {}
    outcome: dict[str, Any] = {"destination": str(log)}
    refused = []
    for name, destination, kind in wanted:
        if kind == "telemetry" and name not in offered:
            continue  # all but the log are optional: a run does not fail without them
        limit = int(job[f"{kind}_limit_mib"])
        try:
            entry = offered.get(name)
            if not isinstance(entry, dict):
                raise UnfitError("the node does not have it")
            if "refused" in entry:
                why = printable(entry["refused"], 400)
                raise UnfitError(f"{why}. {ADVICE.format(kind=kind, limit=limit)}")
            pieces = contents(entry, f"{job['directory']}/{name}", limit << 20, part)
            digest = store(pieces, entry["sha256"], destination)
        except (*DAMAGED, OSError) as error:
            destination.unlink(missing_ok=True)  # from an earlier launch
            refused.append(f"{name} was not fetched: {error}")
        else:
            outcome |= {"log_sha256": digest} if kind == "log" else {}
    return outcome | ({"refused": refused} if refused else {})


def contents(
    entry: dict[str, Any], path: str, limit: int, part: Callable[..., object]
) -> Iterator[bytes]:
    """The bytes of a file described by a node, in parts, up to the limit."""
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
    """Unpack the content, which must have exactly `count` bytes."""
    inflated = zlib.decompressobj().decompress(base64.b64decode(str(content)), count + 1)
    if len(inflated) != count:
        raise UnfitError(f"received {len(inflated)} bytes instead of the announced {count}")
    return inflated


def store(pieces: Iterator[bytes], expected: object, destination: Path) -> str:
    """Write a file atomically and return its SHA-256, which must be the expected one."""
    partial = destination.with_name(destination.name + ".part")
    digest = hashlib.sha256()
    try:
        with partial.open("wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
        if digest.hexdigest() != expected:
            raise UnfitError("its contents changed during the transfer (different SHA-256)")
        partial.replace(destination)
    finally:
        partial.unlink(missing_ok=True)
    return digest.hexdigest()


def stop_level() -> str:
    """What a signal to the campaign asks for: `finish`, `now`, or nothing (campaign_stop.py)."""
    stop = Path(os.environ.get("DLPERF_STOP") or "/nowhere")
    return stop.read_text() if stop.exists() else ""


def write_whole(path: Path, text: str) -> None:
    """Write atomically: a reader sees the old file or the new one, never a part."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def touch(path: Path) -> None:
    with suppress(OSError):  # a full disk; the launches on other nodes then end by themselves
        path.touch()


def last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return printable(lines[-1], 120) if lines else "no output yet"


def printable(text: object, most: int) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text)[:most])
