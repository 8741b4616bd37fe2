"""First commands of a user who has no lab, no nodes and no results: each says what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import call
from executed_modules import playbook


@pytest.mark.parametrize(
    "arguments", [("provision.yml",), ("bench.yml", "-e", "model=arcface")], ids=" ".join
)
def test_without_a_lab_and_an_inventory(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = playbook(*arguments, DLPERF_LAB_DIR=str(tmp_path / "lab"), ANSIBLE_NOCOLOR="1")
    printed = " ".join(done.stdout.split())
    assert done.returncode == 2
    for text in (
        "The lab is not running. Start it: ansible-playbook playbooks/lab.yml, or dlperf lab up",
        "add -i INVENTORY; dlperf init",
    ):
        assert text in printed


@pytest.mark.parametrize("command", ["summarize", "status", "archive", "stop", "attach", "live"])
def test_without_any_result(tmp_path: Path, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    told = call(command, status=2).err
    assert told.startswith("error: no campaign has been run below ./results\n")
    assert "dlperf summarize DIR" in told
    assert "dlperf run" in told
    assert "is no such file" in call(command, "elsewhere", status=2).err
    # A campaign that was removed is another thing.
    (tmp_path / "results").mkdir()
    (tmp_path / "results/latest").symlink_to("20261126T000000Z")
    told = call(command, status=2).err
    assert told == "error: results/latest: the link leads nowhere (found 20261126T000000Z)\n"
