"""The README's commands for a cluster, as they stand there."""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from lab_under_test import END, FRAMEWORKS, PROJECT, Lab

# What a user changes in the inventory that `dlperf init` makes, if the nodes are those of a lab
VARIABLES = {
    "dlperf_devices_per_node": 2,
    "dlperf_accelerator": "cpu",
    "dlperf_stack": "cpu",
    "dlperf_frameworks": FRAMEWORKS.split(","),
    "dlperf_matrix": "smoke",
    "dlperf_interface": "eth0",
    "dlperf_mirror": "http://10.11.0.1:8010",
}


@dataclass(frozen=True)
class Readme:
    """`inventory` takes the place of the README's `inventory/mine`."""

    lab: Lab
    inventory: Path

    def run(self, command: str) -> str:
        """Run the line with this command, which must succeed; what it printed."""
        text = (PROJECT / "README.md").read_text().partition("### I have a cluster")[2]
        (line,) = re.findall(rf"(?m)^dlperf ({command} .*)$", text)
        words = line.partition("#")[0].replace("inventory/mine", str(self.inventory)).split()
        done = self.lab.command(sys.executable, "-m", "dlperf_runner", *words)
        assert done.returncode == 0, done.stdout[-END:]
        return done.stdout

    def describe_lab(self, nodes: int) -> None:
        """Edit the inventory that was made: names, addresses and what the nodes are."""
        hosts = {f"node{n}": {"ansible_host": f"10.11.0.{n + 1}"} for n in range(1, nodes + 1)}
        variables = {
            "ansible_user": "root",
            "ansible_ssh_common_args": f"-F '{self.lab.directory}/ssh_config'",
            # A link where the directory's path is too long for a socket.
            "ansible_control_path_dir": os.path.realpath(self.lab.directory / "cm"),
            "dlperf_mpirun_args": ["--oversubscribe"],
        }
        document = {"nodes": {"hosts": hosts, "vars": variables}}
        (self.inventory / "hosts.yml").write_text(json.dumps(document))
        path = self.inventory / "group_vars/nodes.yml"
        text = path.read_text()
        for name, value in VARIABLES.items():
            text, count = re.subn(rf"(?m)^(?:# )?{name}: .*$", f"{name}: {json.dumps(value)}", text)
            assert count == 1, name
        path.write_text(text)
