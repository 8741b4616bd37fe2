"""GPU nodes under test: lab, vendors' mirror, and plays with what an inventory would say."""

import json
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from gpu_standins import Vendors
from lab_under_test import Lab
from node_state import node_state

from dlperf_runner.catalog.suites import SYSTEMS

V100 = "v100-cuda10.2"
OF_STACK = {"cuda": "10.2.89", "cudnn": "7.6.5.32", "nccl": "2.7.3"}
VERSIONS = {
    "cuda-drivers": "440.33.01-1",
    "nvidia-driver-440": "440.33.01-0ubuntu1",
    "libnvidia-compute-440": "440.33.01-0ubuntu1",
    "nvidia-modprobe": "440.33.01-0ubuntu1",
    "cuda-toolkit-10-2": "10.2.89-1",
    "cuda-nvcc-10-2": "10.2.89-1",
    "libcublas10": "10.2.2.89-1",
    "libcudnn7": "7.6.5.32-1+cuda10.2",
    "libnccl2": "2.7.3-1+cuda10.2",
    "libnccl-dev": "2.7.3-1+cuda10.2",
    "docker-ce": "5:20.10.7~3-0~ubuntu-bionic",
    "nvidia-container-toolkit": "1.13.5-1",
}
NAMES = {"ubuntu": "Ubuntu", "debian": "Debian GNU/Linux"}


def claim(lab: Lab, node: str, suite: str) -> None:
    """Let the node say in /etc/os-release that it is another system; it stays a Debian 12."""
    name, version = re.fullmatch(r"([a-z]+)(.*)", SYSTEMS[suite]).groups()  # type: ignore[union-attr]
    said = {"NAME": NAMES[name], "ID": name, "VERSION_ID": version, "VERSION_CODENAME": suite}
    edits = [f"s|^{key}=.*|{key}={json.dumps(text)}|" for key, text in said.items()]
    lab.said(node, f"sed -i '{'; '.join(edits)}' /etc/os-release")


class Cluster:
    """`variables` hold for all nodes; what `inventory` says, where it is written, for some."""

    def __init__(
        self, lab: Lab, vendors: Vendors | None, scratch: Path, variables: Mapping[str, Any]
    ) -> None:
        self.lab, self.vendors, self.scratch = lab, vendors, scratch
        self.variables = scratch / "variables.json"
        self.variables.write_text(json.dumps(variables))
        self.inventory = scratch / "inventory.json"

    def play(self, book: str, *options: str, status: int | None = 0, **changed: object) -> str:
        """The output of a playbook, as one line because messages are wrapped; it must end with this
        exit status, if any."""
        argv = [book, "-e", f"@{self.variables}", "-e", json.dumps(changed), *options]
        if self.inventory.exists():
            argv += ["-i", "inventory/lab", "-i", str(self.inventory)]
        done = self.lab.command("ansible-playbook", *argv)
        output = re.sub(r"\s+", " ", done.stdout)
        assert status in (None, done.returncode), output
        return output

    def state(self, node: str) -> list[str]:
        return node_state(self.lab, node)

    def versions(self, node: str, names: Iterable[str]) -> dict[str, str]:
        """Of those that are installed; dpkg also knows names that others only conflict with."""
        query = r"dpkg-query -W -f '${Package} ${Version} ${Status}\n' " + " ".join(names)
        lines = (line.split(" ") for line in self.lab.ssh(node, query).stdout.splitlines())
        return {line[0]: line[1] for line in lines if line[-1] == "installed"}

    def fingerprints(self, node: str, repository: str) -> list[str]:
        """Of the keys in the repository's keyring on the node, as gpg says them."""
        ring = self.scratch / "ring.gpg"
        content = self.lab.said(node, f"base64 /etc/apt/keyrings/dlperf-{repository}.gpg")
        ring.write_bytes(subprocess.check_output(["base64", "-d"], input=content.encode()))
        shown = ["gpg", "--homedir", self.scratch, "--with-colons", "--show-keys", ring]
        listing = subprocess.check_output(shown, text=True, stderr=subprocess.DEVNULL)
        return re.findall(r"^fpr:+(\w{40}):", listing, re.MULTILINE)


class UsedCluster(Cluster):
    """node2 is the one that most is done to."""

    def provision(
        self,
        *options: str,
        node: str = "node2",
        tags: str = "gpu",
        stack: str = V100,
        **more: object,
    ) -> str:
        limited = ("--limit", node, "--tags", tags, *options)
        return self.play("provision.yml", *limited, dlperf_stack=stack, **more)

    def alone(self, role: str, node: str = "node2", **changed: object) -> str:
        """Run one role on a node, outside of provision.yml."""
        version = {f"{role}_version": OF_STACK.get(role), "role": role, "dlperf_stack": V100}
        return self.play("tests/lab/plays/role.yml", "--limit", node, **(version | changed))

    def refused(self, role: str, *said: str, **changed: object) -> None:
        """The role fails, and says why."""
        output = self.alone(role, status=2, **changed)
        assert "fatal: [node2]" in output
        for text in said:
            assert text in output, output
