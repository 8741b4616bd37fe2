"""What a benchmark puts in the place of its log and its state: none of it reaches the controller.

The modules are executed on this machine. A module has the rights of the benchmark, so that what
another user keeps secret is out of its reach; tests/lab/test_benchmark_files.py shows that.
"""

import base64
import json
import os
import signal
import socket
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmark_jobs import call, is_launched, until, until_gone
from executed_modules import call as execute
from run_agent.supervisor import read_state

PLANTED = "the secret that was planted"


def unpacked(content: str) -> bytes:
    return zlib.decompress(base64.b64decode(content))


def python(code: str) -> tuple[str, str, str]:
    return sys.executable, "-c", f"import os, sys, time\n{code}"


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text(PLANTED)
    return path


def listener(log: Path, secret: Path) -> None:
    os.chdir(log.parent)  # the path of a socket is short
    socket.socket(socket.AF_UNIX).bind(log.name)


PLANTS: dict[str, Callable[[Path, Path], object]] = {
    "it is a symbolic link, not a regular file": lambda log, secret: log.symlink_to(secret),
    "has 2 hard links instead of one": lambda log, secret: log.hardlink_to(secret),
    "is a FIFO, not a regular file": lambda log, _: os.mkfifo(log),
    "is a directory, not a regular file": lambda log, _: log.mkdir(),
    "it is a socket, not a regular file": listener,
}


@pytest.mark.parametrize("why", PLANTS)
def test_only_a_regular_file_is_read(
    tmp_path: Path, secret: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    monkeypatch.chdir(tmp_path)
    directory = tmp_path / "r1"
    # Planted after the launch, as a benchmark does; the call that follows does not hang on it.
    waits = python("while not os.path.exists('go'): time.sleep(0.01)")
    call(directory, *waits, wait_s=0)
    assert until(lambda: is_launched(directory))
    (directory / "train.log").unlink()
    PLANTS[why](directory / "train.log", secret)
    (directory / "go").touch()
    result = call(directory, *waits, launched=True)
    assert (result["finished"], result["exit_status"], result["tail"]) == (True, 0, "")
    (refused,) = result["files"]["train.log"].values()
    assert why in refused
    assert PLANTED not in json.dumps(result)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused(tmp_path: Path) -> None:
    result = call(tmp_path, *python("os.chown('train.log', 65534, -1)"))
    assert "belongs to user id 65534 instead of 0" in result["files"]["train.log"]["refused"]


def test_a_file_above_the_limit_is_refused_unread(tmp_path: Path) -> None:
    """A hole of 1 TiB takes no disk, and would take an hour to read."""
    result = call(tmp_path, *python("os.truncate('train.log', 1 << 40)"), log_limit_mib=5)
    assert result["files"]["train.log"] == {
        "refused": f"{tmp_path}/train.log has {1 << 40} bytes, more than the limit of {5 << 20}"
    }
    assert result["tail"] == "\0" * 4096


def test_a_binary_log_comes_byte_for_byte(tmp_path: Path) -> None:
    result = call(tmp_path, *python("os.write(1, bytes(range(256)) * 4096)"))
    file = result["files"]["train.log"]
    assert unpacked(file["content"]) == bytes(range(256)) * 4096
    assert file["size"] == result["log_bytes"] == 1 << 20
    assert len(result["tail"]) == 4096


def part(tmp_path: Path, file: dict[str, Any], **changes: Any) -> dict[str, Any]:
    which = {"path": str(tmp_path / "train.log"), "identity": file["identity"]}
    return execute("benchmark_fetch", **which, **{"offset": 0, "count": file["size"]} | changes)


@pytest.fixture
def large(tmp_path: Path) -> dict[str, Any]:
    """A log that does not come with the answer."""
    result = call(tmp_path, *python("print('x' * 99, end='.')"), at_once_bytes=99)
    file: dict[str, Any] = result["files"]["train.log"]
    assert set(file) == {"size", "identity", "sha256"}
    return file


def test_a_large_file_is_read_in_parts(tmp_path: Path, large: dict[str, Any]) -> None:
    both = [part(tmp_path, large, offset=a, count=n)["content"] for a, n in ((0, 60), (60, 40))]
    assert b"".join(map(unpacked, both)) == b"x" * 99 + b"."


def test_a_file_that_is_truncated_or_replaced_while_it_is_fetched(
    tmp_path: Path, large: dict[str, Any], secret: Path
) -> None:
    log = tmp_path / "train.log"
    os.truncate(log, 70)
    assert "truncated while reading it" in part(tmp_path, large)["msg"]
    secret.replace(log)
    assert "replaced by another file" in part(tmp_path, large, count=5)["msg"]
    log.unlink()
    log.symlink_to("/etc/hostname")
    assert "it is a symbolic link" in part(tmp_path, large, count=5)["msg"]


def test_files_that_a_forged_state_names_are_not_read(tmp_path: Path, secret: Path) -> None:
    names = [str(secret), "../../../run.json", "a\nb", "/etc/shadow", "telemetry-other.csv"]
    forged = {"launch": "t1", "started": 1.0, "ended": 2.0, "finished": True, "exit_status": 0}
    forged |= {"reason": "", "telemetry": names, "log": str(secret), "log_bytes": -5}
    write = f"open('forged', 'w').write({json.dumps(forged)!r}); os.rename('forged', 'job.json')"
    code = f"while True:\n {write}; time.sleep(0.1)"  # after the supervisor, which writes it too
    marker = f"dlperf-forged-{os.getpid()}"
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "telemetry-other.csv").write_text(PLANTED)
    hosts = {"sample_s": 1, "sample_hosts": {"node1": ""}}
    argv = (*python(code), marker)
    result = call(tmp_path / "r1", *argv, **hosts)
    own = {"telemetry-node1.csv", "xid-node1.csv"}  # of this run's own telemetry
    assert set(result["files"]) - own == {"train.log"}
    assert (result["log"], result["log_bytes"]) == (str(tmp_path / "r1" / "train.log"), 0)
    assert PLANTED not in json.dumps(result)
    call(tmp_path / "r1", *argv, **hosts, order="stopped")
    assert until_gone(marker)


@pytest.mark.parametrize(
    "state",
    [
        "null", "[]", "{}", "[" * 100000, "\xff", '{"launch": "t1"}',
        '{"launch": "t1", "started": NaN, "supervisor": 1}',
        '{"launch": "t1", "started": 1.0, "supervisor": "1; reboot"}',
        '{"launch": "t1", "started": 1.0, "supervisor": -1}',
        '{"launch": "t1", "started": 1.0, "supervisor": 99999999999999999999}',
        '{"launch": "t1", "started": 1e300, "supervisor": 1}',
        '{"launch": "t1", "started": 1.0, "finished": true, "exit_status": "0", "ended": 1.0}',
    ],
)  # fmt: skip
def test_a_damaged_state_is_none(tmp_path: Path, state: str) -> None:
    (tmp_path / "job.json").write_text(state, encoding="latin-1")
    assert read_state(str(tmp_path / "job.json")) is None


@pytest.mark.parametrize(
    "state", ["[" * 100000, '{"launch": "t1", "started": 1.0, "supervisor": 0}']
)
def test_a_damaged_state_starts_nothing_again_and_ends_the_command(
    tmp_path: Path, state: str
) -> None:
    marker = f"dlperf-damaged-{os.getpid()}"
    argv = (*python("open('began', 'a').write('x'); time.sleep(600)"), marker)
    call(tmp_path, *argv, wait_s=0)
    assert until(lambda: is_launched(tmp_path) and (tmp_path / "began").is_file())
    (tmp_path / "job.json").write_text(state)
    result = call(tmp_path, *argv, launched=True)
    assert result["failed"]
    assert "job.json, the state of the launch, is missing or damaged" in result["msg"]
    assert until_gone(marker)
    assert (tmp_path / "began").read_text() == "x"


def test_a_forged_supervisor_gets_no_signal_and_is_not_waited_for(tmp_path: Path) -> None:
    """Process 1 is another user's, but for root, whose own it is."""
    state = {"launch": "t0", "started": 1.0, "supervisor": 1}
    (tmp_path / "job.json").write_text(json.dumps(state))
    result = call(tmp_path, "/bin/true")
    if os.geteuid() == 0:
        assert "another launch has been running" in result["msg"]
    else:
        assert result["exit_status"] == 0


@pytest.mark.parametrize("kind", list(PLANTS)[:3])
def test_a_launch_writes_through_nothing_that_an_earlier_run_left(
    tmp_path: Path, secret: Path, kind: str
) -> None:
    (tmp_path / "r1").mkdir()
    for name in ("train.log", "lease", "job.json", "job.json.tmp"):
        PLANTS[kind](tmp_path / "r1" / name, secret)
    result = call(tmp_path / "r1", *python("print('trained')"))
    assert (result["exit_status"], result["tail"]) == (0, "trained\n")
    assert unpacked(result["files"]["train.log"]["content"]) == b"trained\n"
    assert secret.read_text() == PLANTED


def test_a_command_that_takes_its_lease_away_still_ends_with_it(tmp_path: Path) -> None:
    marker = f"dlperf-no-lease-{os.getpid()}"
    argv = (*python("os.unlink('lease'); time.sleep(600)"), marker)
    assert not call(tmp_path, *argv, wait_s=0, lease_s=4)["finished"]
    assert until(lambda: is_launched(tmp_path) and not (tmp_path / "lease").exists())
    assert until_gone(marker)
    assert call(tmp_path, *argv, launched=True)["reason"] == "lease"


def test_a_killed_supervisor_is_told_when_its_command_has_ended(tmp_path: Path) -> None:
    """The command takes a second to end its ranks, as mpirun does."""
    ends = "import signal; signal.signal(signal.SIGTERM, lambda *_: time.sleep(1) or os._exit(1))"
    code = f"{ends}; open('ready', 'w'); time.sleep(600)"
    argv = (*python(code), f"dlperf-orphan-{os.getpid()}")
    cleanup = ["/bin/sh", "-c", f"echo removed >> {tmp_path}/containers"]
    call(tmp_path, *argv, wait_s=0, cleanup=cleanup)
    assert until(lambda: is_launched(tmp_path) and (tmp_path / "ready").is_file())
    os.kill(json.loads((tmp_path / "job.json").read_text())["supervisor"], signal.SIGKILL)
    answer = call(tmp_path, *argv, launched=True, cleanup=cleanup)
    assert "the supervisor of the launch has died. Check whether the node" in answer["msg"]
    assert answer["lost"]
    assert until_gone(argv[-1], 0)
    assert (tmp_path / "containers").read_text().split() == ["removed"] * 2  # before it, and after
