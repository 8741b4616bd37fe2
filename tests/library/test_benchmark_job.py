"""benchmark_job, executed as a module on this machine: real processes, real signals."""

import json
import os
import re
import sys
from pathlib import Path

import pytest
from benchmark_jobs import SLEEP, call, is_launched, lock_in, processes_of, until, until_gone


@pytest.mark.parametrize(
    ("code", "status", "said"),
    [
        ("print('Speed: 1.0')", 0, "Speed: 1.0\n"),
        ("import sys; sys.stderr.write('why\\n'); sys.exit(3)", 3, "why\n"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGABRT)", -6, ""),
    ],
)
def test_status_or_signal_and_both_streams_are_kept(
    tmp_path: Path, code: str, status: int, said: str
) -> None:
    result = call(tmp_path / "r1", sys.executable, "-c", code)
    assert (result["finished"], result["exit_status"], result["reason"]) == (True, status, "")
    assert result["tail"] == (tmp_path / "r1" / "train.log").read_text() == said
    assert result["ended"] >= result["started"]


def test_nothing_goes_through_a_shell(tmp_path: Path) -> None:
    hostile = "$(touch owned); `touch owned` & ../x"
    result = call(
        tmp_path, sys.executable, "-c", "import sys; print(sys.argv[1])", hostile, cwd=str(tmp_path)
    )
    assert result["tail"].strip() == hostile
    assert not (tmp_path / "owned").exists()


def test_environment_is_only_what_was_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_TOKEN", "planted")
    code = "import json, os; print(json.dumps(dict(os.environ)))"
    result = call(tmp_path, sys.executable, "-c", code, env={"OMP_NUM_THREADS": "1"})
    seen = json.loads(result["tail"])
    assert seen["OMP_NUM_THREADS"] == "1"
    assert "SECRET_TOKEN" not in seen
    assert set(seen) - {"LC_CTYPE"} == {
        "HOME",
        "USER",
        "LOGNAME",
        "PATH",
        "LANG",
        "OMP_NUM_THREADS",
    }


def test_a_missing_program_is_status_127_with_its_name(tmp_path: Path) -> None:
    result = call(tmp_path, "/nowhere/mpirun")
    assert result["exit_status"] == 127
    assert "/nowhere/mpirun" in result["tail"]


def test_a_supervisor_that_dies_says_why(tmp_path: Path) -> None:
    """An environment variable with a null byte cannot be passed on."""
    result = call(tmp_path, sys.executable, "-c", "pass", env={"NCCL_DEBUG": "IN\0FO"})
    assert result["failed"]
    assert "the supervisor of the launch has died. Traceback" in result["msg"]
    # In the words of Python 3, or 2.
    assert re.search(r"null byte|execve\(\) arg 3 contains a non-string value", result["msg"])


def test_waiting_goes_on_in_later_calls_and_launches_once(tmp_path: Path) -> None:
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('end')"
    argv = (sys.executable, "-c", code)
    first = call(tmp_path, *argv, wait_s=0.1)
    assert (first["finished"], first["changed"]) == (False, True)
    (tmp_path / "go").touch()
    second = call(tmp_path, *argv)
    assert (second["finished"], second["changed"], second["exit_status"]) == (True, False, 0)
    assert second["tail"] == "end\n"


def test_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    marker = f"dlperf-timeout-{os.getpid()}"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)', '{marker}'])\n"
        "time.sleep(600)"
    )
    result = call(tmp_path, sys.executable, "-c", code, marker, timeout_s=1)
    assert (result["finished"], result["reason"]) == (True, "timeout")
    assert result["exit_status"] == -15
    assert until_gone(marker)


def test_a_command_that_ignores_term_is_killed(tmp_path: Path) -> None:
    """As JAX does, which takes it for a notice that the node will be preempted."""
    marker = f"dlperf-ignores-{os.getpid()}"
    argv = ("/bin/sh", "-c", "trap '' TERM; exec \"$@\"", "sh", *SLEEP, marker)
    result = call(tmp_path, *argv, timeout_s=1, grace_s=1)
    assert (result["reason"], result["exit_status"]) == ("timeout", -9)
    assert not processes_of(marker)


def test_another_launch_beside_a_living_one_is_refused(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(600)", f"dlperf-two-{os.getpid()}")
    call(tmp_path, *argv, wait_s=0)
    assert until(lambda: is_launched(tmp_path))
    refused = call(tmp_path, *argv, launch="t2")
    assert refused["failed"]
    assert "another launch has been running" in refused["msg"]
    call(tmp_path, *argv, order="stopped")
    assert until_gone(argv[-1])
    again = call(tmp_path, sys.executable, "-c", "print('again')", launch="t3")
    assert (again["exit_status"], again["tail"]) == (0, "again\n")


def test_check_mode_starts_nothing(tmp_path: Path) -> None:
    result = call(tmp_path / "r1", "/bin/true", check=True)
    assert result["changed"]
    assert not (tmp_path / "r1").exists()


@pytest.mark.parametrize("ends", ["by itself", "by its time-out"])
def test_what_outlives_the_group_is_removed(tmp_path: Path, ends: str) -> None:
    """As a container does, which its engine holds: the command's group ends, and it does not."""
    notes, pids = tmp_path / "notes", tmp_path / "pids"
    marker = f"dlperf-outlives-{os.getpid()}-{ends.replace(' ', '')}"
    code = (
        "import subprocess, sys, time\n"
        f"open({str(notes)!r}, 'a').write('command\\n')\n"
        "child = [sys.executable, '-c', 'import time; time.sleep(600)', sys.argv[1]]\n"
        "pid = subprocess.Popen(child, start_new_session=True).pid\n"
        f"open({str(pids)!r}, 'w').write(str(pid))\n"
        f"time.sleep({0 if ends == 'by itself' else 60})"
    )
    cleanup = f"echo cleanup >> {notes}; test ! -e {pids} || kill -9 $(cat {pids})"
    argv = (sys.executable, "-c", code, marker)
    result = call(tmp_path, *argv, cleanup=["/bin/sh", "-c", cleanup], timeout_s=2)
    assert (result["finished"], result["reason"]) == (True, "timeout" if "out" in ends else "")
    assert until_gone(marker)
    # Before it too: an earlier launch may have left something under the same name.
    assert notes.read_text().splitlines() == ["cleanup", "command", "cleanup"]


def test_a_cleanup_that_cannot_be_started_says_nothing(tmp_path: Path) -> None:
    result = call(tmp_path, "/bin/true", cleanup=["/nowhere/podman"])
    assert (result["exit_status"], result["tail"]) == (0, "")


def test_every_call_renews_the_lease_of_the_lock(tmp_path: Path) -> None:
    lock = lock_in(tmp_path / "lock")
    assert call(tmp_path / "r1", "/bin/true", lock=lock)["exit_status"] == 0
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    assert uptime - 60 < (tmp_path / "lock/lease.a").stat().st_mtime <= uptime


def test_who_lost_the_node_stops_at_once_and_launches_nothing(tmp_path: Path) -> None:
    lock, argv = lock_in(tmp_path / "lock"), (*SLEEP, f"dlperf-fenced-{os.getpid()}")
    assert not call(tmp_path / "r1", *argv, lock=lock, wait_s=0)["finished"]
    (tmp_path / "lock/lease.a").unlink()  # as another campaign takes the node over
    ended = call(tmp_path / "r1", *argv, lock=lock)
    assert (ended["finished"], ended["reason"]) == (True, "lock")
    assert not processes_of(argv[-1])
    (tmp_path / "marker").touch()
    never = call(tmp_path / "r2", "/bin/rm", str(tmp_path / "marker"), lock=lock)
    assert (never["finished"], never["reason"]) == (True, "lock")
    assert (tmp_path / "marker").exists()


def test_a_node_keeps_the_folders_of_its_last_runs(tmp_path: Path) -> None:
    runs, outside = tmp_path / "runs", tmp_path / "outside/case/r1"
    options = {"runs": str(runs), "keep": 3}
    for campaign in ("a", "b"):
        for number in (1, 2):
            folder = runs / campaign / "case" / f"r{number}"
            assert call(folder, "/bin/true", **options)["finished"]
    # Not a run's, of a run that has not ended, and behind a link.
    (runs / "a/notes").mkdir(parents=True)
    kept = (runs / "a/case/r9", *SLEEP, f"dlperf-kept-{os.getpid()}")
    call(*kept, wait_s=0)
    assert until(lambda: is_launched(kept[0]))
    call(outside, "/bin/true")
    (runs / "linked").symlink_to(tmp_path / "outside")
    for path in (outside, runs / "a/case/r9"):
        os.utime(path / "job.json", (0, 0))
    assert call(runs / "c/case/r1", "/bin/true", **options)["finished"]
    left = sorted(str(path.parent.relative_to(runs)) for path in runs.glob("*/*/r*/job.json"))
    assert left == ["a/case/r9", *(f"b/case/r{n}" for n in (1, 2)), "c/case/r1", "linked/case/r1"]
    assert (runs / "a/notes").is_dir()
    call(*kept, order="stopped")
    assert until_gone(kept[-1])
