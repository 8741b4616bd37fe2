"""The action benchmark_record: what it leaves in run.json, and when `results/latest` moves."""

import errno
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest
from modules import load

from dlperf_runner.campaign import outcome

plugin = load("roles/benchmark_run/action_plugins/benchmark_record.py")


def result_of(campaign: Path, status: str, run: str = "case/r1") -> dict[str, object]:
    """What the action returns to the role."""
    case, _, repeat = run.partition("/r")
    commands = [{"host": "node1"}]
    document = {"id": run, "case": case, "repeat": repeat, "log_name": "case.log"}
    document |= {"timeout_s": 60, "commands": commands}
    arguments: dict[str, Any] = {"campaign": str(campaign), "run": document}
    if status == "running":
        arguments |= {"hosts": {"node1": {}}, "versions": {}}
    else:
        ended = {"exit_status": 0 if status == "done" else 1, "started": 0.0, "ended": 1.0}
        arguments["results"] = {"node1": ended}
    task = SimpleNamespace(args=arguments, async_val=0, check_mode=False, diff=False)
    told: dict[str, object] = plugin.ActionModule(task, *[MagicMock()] * 5).run(task_vars={})
    return told


def record(campaign: Path, status: str, run: str = "case/r1") -> dict[str, Any]:
    """Record an outcome as the role does; returns the run.json."""
    assert result_of(campaign, status, run) == {"changed": True}
    found: dict[str, Any] = json.loads((campaign / "runs" / run / "run.json").read_text())
    assert found["outcome"]["status"] == status
    return found


def test_latest_is_the_newest_campaign_with_a_finished_run(tmp_path: Path) -> None:
    one, two = tmp_path / "results" / "one", tmp_path / "results" / "two"
    latest = tmp_path / "results" / "latest"
    for status in ("running", "failed"):
        record(one, status)
        assert not latest.is_symlink()
    record(one, "done", "case/r2")
    assert latest.readlink() == Path("one")
    for status in ("running", "failed"):
        record(two, status)
        assert latest.readlink() == Path("one")
    record(two, "done")
    assert latest.readlink() == Path("two")
    assert not list(latest.parent.glob(".latest*"))


@pytest.mark.parametrize("name", ["elsewhere", "results.old"])
def test_a_campaign_elsewhere_has_no_latest(tmp_path: Path, name: str) -> None:
    record(tmp_path / name / "one", "done")
    assert [path.name for path in (tmp_path / name).iterdir()] == ["one"]


def test_full_disk_is_told_and_keeps_the_earlier_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = record(tmp_path, "running")
    assert started["outcome"]["controller"]["pid"]

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(outcome, "write_json", full)
    told = result_of(tmp_path, "done")
    expected = "cannot record case/r1: [Errno 28] No space left on device"
    assert (told["failed"], told["msg"]) == (True, expected)
    assert json.loads((tmp_path / "runs/case/r1/run.json").read_text()) == started


def test_a_new_attempt_forgets_what_the_last_one_left(tmp_path: Path) -> None:
    assert record(tmp_path, "failed")["outcome"]["message"]
    assert record(tmp_path, "running")["outcome"]["message"] is None
    assert "controller" not in record(tmp_path, "done")["outcome"]
