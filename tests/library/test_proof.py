"""The module proof: commands that prove a role's work, and when they run again."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from benchmark_jobs import until_gone
from executed_modules import HAVE_RUNUSER, ME, call

pytestmark = pytest.mark.skipif(not HAVE_RUNUSER, reason="runs a command as another user")


def prove(stamps: Path, argv: list[str], expect: str, **more: Any) -> dict[str, Any]:
    command = {"name": "it", "argv": argv, "expect": expect}
    return call("proof", name="p", commands=[command], user=ME, stamps=str(stamps), **more)


def test_what_is_proven_is_not_run_again_until_its_inputs_change(tmp_path: Path) -> None:
    count = tmp_path / "count"
    argv = ["sh", "-c", f"echo x >> {count}; echo sum 3"]
    outcomes = [
        prove(tmp_path, argv, "^sum 3$", inputs={"version": version}, force=force)
        for version, force in [("1", False), ("1", False), ("2", False), ("2", True)]
    ]
    assert [outcome["proven"] for outcome in outcomes] == ["now", "before", "now", "now"]
    assert [outcome["changed"] for outcome in outcomes] == [True, False, True, False]
    verified = {"name": "p", "inputs": {"version": "2"}}
    assert [outcome.get("verified") for outcome in outcomes[1:3]] == [None, verified]
    assert count.read_text() == "x\n" * 3


def test_a_stamp_is_written_where_another_node_has_run_the_commands(tmp_path: Path) -> None:
    given = {"name": "p", "user": ME, "stamps": str(tmp_path), "inputs": {"version": "1"}}
    assert call("proof", commands=[], **given)["proven"] == "now"
    assert call("proof", commands=[], **given)["proven"] == "before"


def test_an_exit_status_of_0_is_not_enough(tmp_path: Path) -> None:
    result = prove(tmp_path, ["echo", "sum 4"], "^sum 3$")
    assert result["failed"]
    assert "sum 4" in result["msg"]
    assert not list(tmp_path.iterdir())


def test_a_failure_takes_the_stamp_away(tmp_path: Path) -> None:
    prove(tmp_path, ["echo", "ok"], "ok")
    assert list(tmp_path.iterdir())
    result = prove(tmp_path, ["sh", "-c", "echo why >&2; exit 3"], "ok", force=True)
    assert "exit status 3; output: why" in result["msg"]
    assert not list(tmp_path.iterdir())


def test_what_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    marker = f"3600.{os.getpid()}"
    result = prove(tmp_path, ["sh", "-c", f"sleep {marker} & wait"], "ok", timeout=1)
    assert "not finished within 1 s" in result["msg"]
    assert until_gone(f"sleep\0{marker}")


def test_what_left_the_session_and_keeps_its_output_is_not_waited_for(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    command = ["sh", "-c", f"setsid sleep 600 & echo $! > {pid}; echo ok"]
    assert prove(tmp_path, command, "^ok$")["proven"] == "now"
    os.kill(int(pid.read_text()), signal.SIGKILL)  # it is still there


def test_check_mode_runs_nothing(tmp_path: Path) -> None:
    result = prove(tmp_path, ["touch", str(tmp_path / "x")], "ok", check=True)
    assert result["proven"] == "no"
