"""A launch of a run by SSH: what its node gets, and what the controller takes of the node's answer.

The benchmark runs as the same user as the module on the node, so it may have forged any file that
the module reads, and its answer. Every part of an answer is checked before use: only requested file
names are accepted, sizes are bounded, and digests are computed from the received bytes.
"""

from __future__ import annotations

import base64
import hashlib
import math
import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.files import remove, replacing

PART = 16 << 20  # bytes of a file that one module run returns
AT_ONCE = 4 << 20  # bytes of a file that comes with the answer
HUNG = ("hung", "hung_at_start")
REASONS = ("", "timeout", "lease", "stopped", "lock", "busy", *HUNG, "peer")
KINDS = ("telemetry", "processes", "xid", "health")
TAIL = 4096
DEVICES = 10000
GRACE_S = 10
ADVICE = (
    "Only a regular file with one link, owned by the benchmark's user, of at most {limit} MiB is"
    " fetched. Check what the benchmark does with it. If it is too large, raise"
    " benchmark_run_{kind}_limit_mib"
)


class UnfitError(Exception):
    """The node's answer does not have the form of the module's answer."""


# Errors from an answer with wrong types.
DAMAGED = (UnfitError, AttributeError, KeyError, TypeError, ValueError, OverflowError, zlib.error)


def launch_of(
    run: Mapping[str, Any],
    host: str,
    campaign: Path,
    lock: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> dict[str, Any]:
    """The order for the supervisor on a host, as library/benchmark_job.py documents it. `lock` is
    that of the campaign, `settings` are the variables of the role benchmark_run without its
    name."""
    launchers = [command["host"] for command in run["commands"]]
    is_first = host == launchers[0]
    command = next(command for command in run["commands"] if command["host"] == host)
    # mpirun starts nothing on its other hosts: the first one samples them and renews their lock.
    others = [name for name in run["hosts"] if name not in launchers] if is_first else []
    idle = [name for name in lock.get("hosts", ()) if name not in run["hosts"]] if is_first else []
    runs = str(settings["directory"])
    of_node = {"directory": settings["lock_directory"], "lease_s": float(settings["lock_lease_s"])}
    return {
        "directory": f"{runs}/{campaign.name}/{run['id']}",
        "runs": runs,
        "keep": int(settings["keep"]),
        **{name: command[name] for name in ("argv", "env", "cwd", "cleanup")},
        "log": run["log_name"],
        "timeout_s": run["timeout_s"],
        "grace_s": GRACE_S,
        "hung_after_s": run["hung_after_s"],
        "hung_after_lines": run["hung_after_lines"],
        "first_step_s": run["first_step_s"] if is_first else 0,  # others print no steps
        "is_only_launch": len(launchers) == 1,
        "lease_s": int(settings["lease_s"]),
        "lock": {"token": lock["token"], **of_node} if lock else {},
        "marks": [],
        "host": host,
        "hosts": {name: name for name in others},
        "idle": {name: name for name in idle},
        "most_cores_beside": float(settings["most_cores_beside"]),
        "idle_wait_s": int(settings["idle_wait_s"]),
        "sample_s": int(settings["sample_s"]),
        "sample_gpus": run["accelerator"] != "cpu",
        "sample_hosts": {host: "", **{name: name for name in others}},
        "sample_devices": run["gpus_per_node"],
        "at_once_bytes": AT_ONCE,
        "log_limit_mib": int(settings["log_limit_mib"]),
        "telemetry_limit_mib": int(settings["telemetry_limit_mib"]),
    }


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
    others = [
        {
            "host": str(process["host"])[:200],
            "pid": int(process["pid"]),
            "uid": int(process["uid"]),
            "command": printable(process["command"], 100),
            "cores": float(process["cores"]),
        }
        for process in result.get("beside") or ()
    ]
    outcome |= {"beside": others} if others else {}
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
    samples = []
    try:
        for device in list(devices or ())[:DEVICES]:  # type: ignore[call-overload]
            values = {n: None if device[n] is None else float(device[n]) for n in names}
            if not all(value is None or math.isfinite(value) for value in values.values()):
                return []
            node = printable(device["host"], 200)
            samples.append({"node": node, "device": int(device["device"]), **values})
    except DAMAGED:
        return []
    return samples


def fetched(
    files: object, job: dict[str, Any], log: Path, part: Callable[..., object]
) -> dict[str, Any]:
    """Fetch the log and the samples; `refused` lists the reasons for missing files."""
    # Names as in module_utils/run_agent/telemetry.py, which runs on the nodes.
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
        except (*DAMAGED, OSError, UserError) as error:
            remove(destination)  # from an earlier launch
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
    digest = hashlib.sha256()
    with replacing(destination) as file:
        for piece in pieces:
            digest.update(piece)
            file.write(piece)
        if digest.hexdigest() != expected:
            raise UnfitError("its contents changed during the transfer (different SHA-256)")
    return digest.hexdigest()


def printable(text: object, most: int) -> str:
    return "".join(c if c.isprintable() else " " for c in str(text)[:most])
