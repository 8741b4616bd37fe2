"""The action benchmark_record: what it leaves in run.json, and when `results/latest` moves."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest
from modules import load

plugin = load("roles/benchmark_run/action_plugins/benchmark_record.py")


def result_of(directory: Path, status: str, run: str = "case/r1") -> dict[str, object]:
    """What the action returns to the role."""
    arguments = {"directory": str(directory), "run": {"id": run}, "outcome": {"status": status}}
    task = SimpleNamespace(args=arguments, async_val=0, check_mode=False, diff=False)
    told: dict[str, object] = plugin.ActionModule(task, *[MagicMock()] * 5).run(task_vars={})
    return told


def record(campaign: Path, status: str, run: str = "case/r1") -> dict[str, object]:
    """Record an outcome as the role does; returns the run.json."""
    directory = campaign / "runs" / run
    result_of(directory, status, run)
    found: dict[str, object] = json.loads((directory / "run.json").read_text())
    return found


def test_latest_is_the_newest_campaign_with_a_finished_run(tmp_path: Path) -> None:
    one, two = tmp_path / "results" / "one", tmp_path / "results" / "two"
    latest = tmp_path / "results" / "latest"
    for status in ("running", "failed"):
        assert record(one, status)["outcome"]["status"] == status
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


def test_full_disk_is_told_and_keeps_the_earlier_record(tmp_path: Path) -> None:
    """/dev/full has no space for the temporary file."""
    record(tmp_path, "running")
    directory = tmp_path / "runs/case/r1"
    (directory / "run.json.tmp").symlink_to("/dev/full")
    told = result_of(directory, "done")
    expected = f"cannot write {directory}/run.json: No space left on device"
    assert (told["failed"], told["msg"]) == (True, expected)
    assert json.loads((directory / "run.json").read_text())["outcome"]["status"] == "running"
    assert [path.name for path in directory.iterdir()] == ["run.json"]
