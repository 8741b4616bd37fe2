"""The playbooks, as Ansible runs them: what a user without a lab, nodes or results is told, how
bench.yml plans, and the batches of provision.yml."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import call
from executed_modules import playbook
from modules import PROJECT

# ---- first commands: each says what to do


@pytest.mark.parametrize(
    "arguments", [("provision.yml",), ("bench.yml", "-e", "model=arcface")], ids=" ".join
)
def test_without_a_lab_and_an_inventory(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = playbook(*arguments, DLPERF_LAB_DIR=str(tmp_path / "lab"), ANSIBLE_NOCOLOR="1")
    printed = " ".join(done.stdout.split())
    assert done.returncode == 2
    assert "The lab is not running. Start it: dlperf lab up." in printed
    assert "add -i INVENTORY; dlperf init" in printed


def test_a_run_without_a_lab_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DLPERF_LAB_DIR", str(tmp_path / "lab"))
    message = call("run", "--model", "resnet50v1b", status=2).err
    assert "The lab is not running. Start it: dlperf lab up." in message
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


# ---- the first play of bench.yml: it plans, and shows what the planning notes

INVENTORY = """\
[nodes]
node1
[nodes:vars]
dlperf_devices_per_node=2
dlperf_accelerator=cpu
dlperf_stack=cpu
dlperf_frameworks=["mxnet"]
"""
NOTE = "not planned: paddle-arcface: these nodes do not have paddle (dlperf_frameworks)"


def test_planning_makes_a_campaign_and_shows_its_notes(tmp_path: Path) -> None:
    (play, *_) = yaml.safe_load((PROJECT / "playbooks/bench.yml").read_text(encoding="utf-8"))
    # As the role benchmark_source takes them.
    taken = "{{ bench_sources.sources | subelements('prepare', skip_missing=true) }}"
    told = f"{{{{ bench_sources.sources }}}} {{{{ bench_lock }}}} {taken}"
    shown = {"ansible.builtin.debug": {"msg": told}}
    (tmp_path / "plan.yml").write_text(yaml.safe_dump([{**play, "tasks": [*play["tasks"], shown]}]))
    (tmp_path / "hosts.ini").write_text(INVENTORY)
    options = ["-i", tmp_path / "hosts.ini", "-e", f"campaign={tmp_path}/c", "-e", "nodes=1"]
    options += ["-e", "matrix=smoke"]
    options += ["-e", "model=arcface", "-e", f"ansible_python_interpreter={sys.executable}"]
    plugins = str(PROJECT / "playbooks/action_plugins")
    done = playbook(*options, tmp_path / "plan.yml", ANSIBLE_ACTION_PLUGINS=plugins)
    assert done.returncode == 0, done.stdout + done.stderr
    assert NOTE in " ".join(done.stdout.split())
    campaign = json.loads((tmp_path / "c/campaign.json").read_text())
    assert campaign["runs"] == len(json.loads((tmp_path / "c/plan.json").read_text())["runs"])
    assert "mxnet-arcface-builtin" in done.stdout
    assert os.uname().nodename in done.stdout  # who holds the nodes


# ---- batches of provision.yml: Ansible reads `serial` and `max_fail_percentage`

NODES = [f"node{number}" for number in range(1, 7)]
BREAKS = {
    "name": "Break some nodes",
    "ansible.builtin.fail": {"msg": "broken"},
    "when": "inventory_hostname in broken",
}


def play(*arguments: str | Path) -> str:
    done = playbook(*arguments)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    return done.stdout


def played(directory: Path, broken: list[str], **variables: Any) -> tuple[list[list[str]], str]:
    """The nodes that the plays of provision.yml change: batches of the second play, and the third.
    The tasks are replaced, and all else of the plays is kept."""
    check, base, rest = yaml.safe_load((PROJECT / "playbooks/provision.yml").read_text())
    check = {"hosts": check["hosts"], "gather_facts": False, "tasks": []}
    told = {"name": "Change", "ansible.builtin.debug": {"msg": "changed"}}
    plays = [check, base | {"tasks": [BREAKS, told]}, rest | {"tasks": [told]}]
    (directory / "play.yml").write_text(json.dumps(plays))
    values = {"ansible_connection": "local", "broken": broken, **variables}
    (directory / "hosts.yml").write_text(
        json.dumps({"nodes": {"hosts": {name: {} for name in NODES}, "vars": values}})
    )
    output = play("-i", directory / "hosts.yml", directory / "play.yml")
    parts = [part for part in re.split(r"^PLAY ", output, flags=re.M) if "[Change]" in part]
    batches = [re.findall(r"^ok: \[(node\d)\]", part.split("[Change]")[1], re.M) for part in parts]
    return [sorted(batch) for batch in batches], output


@pytest.mark.parametrize(
    ("variables", "broken", "changed"),
    [
        ({}, "node3", [[name for name in NODES if name != "node3"]] * 2),
        ({"serial": [1, "50%"]}, "", [NODES[:1], NODES[1:4], NODES[4:], NODES]),
        (
            {"serial": 2, "max_fail_percentage": 50},
            *("node1", [["node2"], NODES[2:4], NODES[4:], ["node2", *NODES[2:]]]),
        ),
        ({"serial": 2, "max_fail_percentage": 49}, "node1", []),
    ],
)
def test_the_inventory_sets_batches_and_how_many_failures_end_the_run(
    tmp_path: Path, variables: dict[str, Any], broken: str, changed: list[list[str]]
) -> None:
    named = {f"dlperf_{name}": value for name, value in variables.items()}
    batches, output = played(tmp_path, [broken], **named)
    assert batches == changed
    assert bool(re.search(r"^\S+: \[node4\]", output, re.M)) == bool(changed)
