"""First commands of a user who has no lab, no nodes and no results: each says what to do."""

import json
import re
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
        "The lab is not running. Start it: dlperf lab up.",
        "add -i INVENTORY; dlperf init",
    ):
        assert text in printed


def test_a_run_without_a_lab_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLPERF_LAB_DIR", str(tmp_path / "lab"))
    told = call("run", "--model", "resnet50v1b", status=2).err
    assert "The lab is not running. Start it: dlperf lab up." in told
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("example", ["h100", "v100"])
def test_addresses_of_an_example_are_refused_before_a_connection(
    tmp_path: Path, example: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = call("init", "mine", "--from", example).out
    (workload,) = re.findall(r"--workload (\S+)", printed)
    told = "host NODE1: the address is still the example's (expected that of your server, found"
    assert told in call("run", "-i", "mine", "--workload", workload, status=2).err
    assert not Path("results").exists()
    books = ("provision.yml", "playbooks/preflight.yml", "playbooks/decommission.yml")
    for book in books if example == "h100" else ():  # a start takes 10 seconds of processor time
        done = playbook(book, "-i", tmp_path / "mine", ANSIBLE_NOCOLOR="1")
        assert done.returncode == 2
        assert told in " ".join(done.stdout.split())
        assert "unreachable=0" in done.stdout and "unreachable=1" not in done.stdout
    assert call("plan", "-i", "mine", "--workload", workload).out


def test_a_terminal_shows_a_line_for_each_node_and_a_file_has_ansibles_text(tmp_path: Path) -> None:
    play = tmp_path / "play.yml"
    task = {
        "name": "Say it",
        "ansible.builtin.fail": {"msg": "why"},
        "when": "inventory_hostname == 'b'",
    }
    play.write_text(json.dumps([{"hosts": "all", "gather_facts": False, "tasks": [task]}]))
    log = tmp_path / "play.log"
    lines = {"ANSIBLE_STDOUT_CALLBACK": "node_lines", "DLPERF_ANSIBLE_LOG": str(log)}
    done = playbook(
        str(play), "-i", "a,b,", "-c", "local", ANSIBLE_NOCOLOR="1", NO_COLOR="1", **lines
    )
    ended = done.stdout.rpartition("\033[J")[2].splitlines()
    assert "a  ok, nothing to change" in done.stdout and "b  failed" in done.stdout
    assert "b: Say it: why" in done.stdout and "PLAY RECAP" not in done.stdout
    assert ended[-1].endswith(f"Ansible's text: {log}")
    assert "TASK [Say it]" in log.read_text() and "PLAY RECAP" in log.read_text()


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
