"""The lock of a campaign: only one controller at a time works on it.

`.controller.json` names the controller: user, host, start and process. Another one takes
over only on the same host, and only after that process has ended. `.controller.lock` guards the
replacement.
"""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..core.errors import UserError
from ..core.files import open_append, read_json, read_text, remove, write_json
from .manifest import GUARD, LOCK, wait_for_lock

PLAYBOOK_S = 150  # the longest time that a playbook needs to end after its controller was killed
POLL_S = 0.2


def acquire(directory: Path, pid: int | None = None, playbook: int | None = None) -> None:
    """Lock the campaign for a process, by default this one; it may hold the lock already.
    `playbook` is the process that launches runs for it. If a controller was killed, its playbook is
    waited for. Raises UserError if another controller works on the campaign."""
    process = _process(pid or os.getpid())
    deadline = time.monotonic() + PLAYBOOK_S
    while True:
        with _guard(directory):
            owner = read_owner(directory)
            is_mine = owner is not None and owner["process"] == process
            if owner is None or is_mine or not any(map(is_alive, _processes(owner))):
                now = datetime.now(UTC).isoformat(timespec="seconds")
                since = owner["since"] if owner is not None and is_mine else now
                document = {"user": getpass.getuser(), "host": process["host"], "since": since}
                launcher = _process(playbook) if playbook else None
                document |= {"process": process, "playbook": launcher}
                write_json(directory / LOCK, document, inside=directory)
                return
        if is_alive(owner["process"]) or time.monotonic() > deadline:
            raise UserError(
                "another controller works on this campaign",
                where=str(directory),
                found=f"{owner['user']} on {owner['host']} since {owner['since']}, process"
                f" {owner['process']['pid']}",
                hint="wait for it (dlperf attach), stop it (dlperf stop), or, if that machine is"
                f" gone, remove {directory / LOCK}",
            )
        time.sleep(POLL_S)


def release(directory: Path, pid: int | None = None) -> None:
    """Release the lock, if the process holds it, by default this one."""
    with _guard(directory):
        owner = read_owner(directory)
        if owner is not None and owner["process"] == _process(pid or os.getpid()):
            remove(directory / LOCK)


@contextmanager
def held(directory: Path) -> Iterator[None]:
    acquire(directory)
    try:
        yield
    finally:
        release(directory)


def read_owner(directory: Path) -> dict[str, Any] | None:
    """The holder of the lock, alive or not; None if nobody holds it."""
    if not (directory / LOCK).exists():
        return None
    owner = read_json(directory / LOCK)
    kinds = {"user": str, "host": str, "since": str, "process": dict, "playbook": dict | None}
    wrong = [name for name, kind in kinds.items() if not isinstance(owner.get(name), kind)]
    if wrong or not isinstance(owner["process"].get("pid"), int):
        raise UserError(
            "not the lock of a campaign", where=str(directory / LOCK), found=", ".join(wrong)
        )
    return owner


def owner_alive(directory: Path) -> dict[str, Any] | None:
    """The controller that works on the campaign; None if there is none, or it has ended."""
    owner = read_owner(directory)
    return owner if owner is not None and is_alive(owner["process"]) else None


def _processes(owner: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [owner["process"], *([owner["playbook"]] if owner["playbook"] else [])]


def is_alive(process: Mapping[str, Any]) -> bool:
    """True if a process still exists. One of another host is taken to exist."""
    if process.get("host") != socket.gethostname():
        return True
    start = _start(process["pid"])
    return (
        start is not None and process.get("start") == start and process.get("boot_id") == _boot_id()
    )


def exists(pid: int) -> bool:
    """True if this machine has a process with this ID."""
    with suppress(PermissionError):  # that of another user
        try:
            os.kill(pid, 0)
        except (ProcessLookupError, OverflowError):  # too large for an ID
            return False
    return True


def _process(pid: int) -> dict[str, Any]:
    """The identity of a process, even if its ID is used again."""
    host = socket.gethostname()
    return {"host": host, "pid": pid, "start": _start(pid), "boot_id": _boot_id()}


def _start(pid: int) -> str | None:
    """The start time of a process, in the kernel's units. None if it has ended."""
    try:
        state, *fields = read_text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    except OSError:
        if Path("/proc/self").exists():
            return None
        return "unknown" if exists(pid) else None  # not Linux
    return None if state in "ZX" else fields[18]


def _boot_id() -> str:
    with suppress(OSError):
        return read_text(Path("/proc/sys/kernel/random/boot_id")).strip()
    return ""


@contextmanager
def _guard(directory: Path) -> Iterator[None]:
    with open_append(directory / GUARD, inside=directory) as file:
        wait_for_lock(file.fileno())
        yield
