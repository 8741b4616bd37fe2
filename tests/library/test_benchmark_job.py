"""benchmark_job, executed as a module on this machine: real processes, real signals."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest
from benchmark_jobs import call, until_gone


def test_success(tmp_path: Path) -> None:
    result = call(tmp_path / "r1", sys.executable, "-c", "print('Speed: 1.0')")
    assert (result["finished"], result["exit_status"], result["reason"]) == (True, 0, "")
    assert result["tail"] == "Speed: 1.0\n"
    assert result["ended"] >= result["started"]
    assert (tmp_path / "r1" / "train.log").read_text() == "Speed: 1.0\n"


def test_exit_status_and_both_streams_are_kept(tmp_path: Path) -> None:
    code = "import sys; sys.stderr.write('why\\n'); sys.exit(3)"
    result = call(tmp_path, sys.executable, "-c", code)
    assert result["exit_status"] == 3
    assert "why" in result["tail"]


def test_a_signal_is_a_negative_status(tmp_path: Path) -> None:
    code = "import os, signal; os.kill(os.getpid(), signal.SIGABRT)"
    assert call(tmp_path, sys.executable, "-c", code)["exit_status"] == -6


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


def test_waiting_goes_on_in_later_calls_and_launches_once(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(1.5); print('end')")
    first = call(tmp_path, *argv, wait_s=0.1)
    assert (first["finished"], first["changed"]) == (False, True)
    second = call(tmp_path, *argv)
    assert (second["finished"], second["changed"], second["exit_status"]) == (True, False, 0)
    assert second["tail"] == "end\n"


def test_timeout_ends_the_whole_group(tmp_path: Path) -> None:
    marker = f"dlperf-timeout-{os.getpid()}"
    code = (
        "import subprocess, sys, time\n"
        f"subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)', '{marker}'])\n"
        "time.sleep(60)"
    )
    result = call(tmp_path, sys.executable, "-c", code, marker, timeout_s=1, wait_s=30)
    assert (result["finished"], result["reason"]) == (True, "timeout")
    assert result["exit_status"] == -15
    assert until_gone(marker)


def test_without_a_controller_the_lease_ends_the_command(tmp_path: Path) -> None:
    marker = f"dlperf-lease-{os.getpid()}"
    argv = (sys.executable, "-c", "import time; time.sleep(60)", marker)
    assert not call(tmp_path, *argv, wait_s=0, lease_s=2)["finished"]
    assert until_gone(marker)
    ended = call(tmp_path, *argv)  # the same launch: this looks at how it ended
    assert (ended["finished"], ended["reason"]) == (True, "lease")


def test_another_launch_beside_a_living_one_is_refused(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", "import time; time.sleep(60)", f"dlperf-two-{os.getpid()}")
    call(tmp_path, *argv, wait_s=0.3, lease_s=3)
    refused = call(tmp_path, *argv, launch="t2")
    assert refused["failed"]
    assert "another launch is running" in refused["msg"]
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
        "child = [sys.executable, '-c', 'import time; time.sleep(60)', sys.argv[1]]\n"
        "pid = subprocess.Popen(child, start_new_session=True).pid\n"
        f"open({str(pids)!r}, 'w').write(str(pid))\n"
        f"time.sleep({0 if ends == 'by itself' else 60})"
    )
    cleanup = f"echo cleanup >> {notes}; test ! -e {pids} || kill -9 $(cat {pids})"
    argv = (sys.executable, "-c", code, marker)
    result = call(tmp_path, *argv, cleanup=["/bin/sh", "-c", cleanup], timeout_s=2, wait_s=30)
    assert (result["finished"], result["reason"]) == (True, "timeout" if "out" in ends else "")
    assert until_gone(marker)
    # Before it too: an earlier launch may have left something under the same name.
    assert notes.read_text().splitlines() == ["cleanup", "command", "cleanup"]


def test_a_cleanup_that_cannot_be_started_says_nothing(tmp_path: Path) -> None:
    result = call(tmp_path, "/bin/true", cleanup=["/nowhere/podman"])
    assert (result["exit_status"], result["tail"]) == (0, "")
