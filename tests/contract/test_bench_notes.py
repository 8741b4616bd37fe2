"""The first play of bench.yml: it plans, and shows what the planning notes."""

import json
import os
import sys
from pathlib import Path

import yaml
from executed_modules import playbook
from modules import PROJECT

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
    options = [
        "-i",
        tmp_path / "hosts.ini",
        "-e",
        f"campaign={tmp_path}/c",
        "-e",
        "nodes=1",
        "-e",
        "matrix=smoke",
    ]
    options += ["-e", "model=arcface", "-e", f"ansible_python_interpreter={sys.executable}"]
    plugins = str(PROJECT / "playbooks/action_plugins")
    done = playbook(*options, tmp_path / "plan.yml", ANSIBLE_ACTION_PLUGINS=plugins)
    assert done.returncode == 0, done.stdout + done.stderr
    assert NOTE in " ".join(done.stdout.split())
    campaign = json.loads((tmp_path / "c/campaign.json").read_text())
    assert campaign["runs"] == len(json.loads((tmp_path / "c/plan.json").read_text())["runs"])
    assert "mxnet-arcface-builtin" in done.stdout
    assert os.uname().nodename in done.stdout  # who holds the nodes
