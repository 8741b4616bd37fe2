"""Two nodes with InfiniBand's stand-ins, and plays on them; see tests/lab/test_gpu_fabric.py."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fabric_standins import (
    NETPLAN,
    NVIDIA_SMI,
    OFED,
    OPENMPI,
    ofed,
    openmpi,
    recorded_card,
    untuned,
)
from lab_under_test import PROJECT, Lab

NODES = ("node1", "node2")
MIRROR = "http://10.11.0.1:8010"
NUMA = "/srv/tuning/proc/sys/kernel/numa_balancing"
TAGS = "node_base,ssh_mesh,infiniband,openmpi,node_tuning"
PACKAGES = (
    *("python3-apt", "sudo", "rsync", "ca-certificates", "openssh-client", "openssh-server"),
    *("libnuma1", "openmpi-bin"),
)
UBUNTU = (
    "sed -i 's/^NAME=.*/NAME=Ubuntu/; s/^ID=.*/ID=ubuntu/; s/^VERSION_ID=.*/VERSION_ID=18.04/'"
    " /etc/os-release"
)


class Cluster:
    def __init__(self, lab: Lab, variables: dict[str, Any], scratch: Path) -> None:
        self.lab, self.variables, self.scratch = lab, variables, scratch

    def play(self, book: str, *options: str, **changed: object) -> tuple[int, str]:
        given = ["-e", json.dumps({**self.variables, **changed})]
        done = self.lab.command("ansible-playbook", book, *given, *options)
        # As one line each: messages are wrapped.
        return done.returncode, re.sub(r"\s+", " ", done.stdout)

    def provision(self, *options: str, tags: str = TAGS, **changed: object) -> tuple[int, str]:
        return self.play("provision.yml", "--tags", tags, *options, **changed)

    def refused(self, *said: str, node: str = "node2", tags: str = TAGS, **changed: object) -> None:
        status, output = self.provision("--limit", node, tags=tags, **changed)
        assert status == 2, output
        assert f"fatal: [{node}]" in output
        for text in said:
            assert text in output, output

    def place(self, node: str, files: Mapping[str, str]) -> None:
        lines = ["set -e"]
        for path, content in files.items():
            lines += [f"mkdir -p {Path(path).parent}", f"cat > {path} <<'END'\n{content}\nEND"]
        self.lab.said(node, "\n".join(lines))


def prepare(cluster: Cluster, deb: str) -> None:
    """A card and GPUs, which are not there, another system, and what MLNX_OFED will remove."""
    fetch = f"import urllib.request as r; r.urlretrieve('{deb}', '/root/it.deb')"
    programs = {"/usr/sbin/netplan": NETPLAN, "/usr/bin/nvidia-smi": NVIDIA_SMI}
    for node in NODES:
        interface = "ip link add ib0 type veth peer name ib0peer && ip link set ib0peer up"
        cluster.lab.said(node, f"mkdir -p /etc/netplan /etc/modules-load.d; {interface}; {UBUNTU}")
        cluster.place(node, {**programs, **recorded_card(), **untuned()})
        install = f'python3 -c "{fetch}"; dpkg -i /root/it.deb && rm /root/it.deb'
        cluster.lab.said(node, f"chmod 755 {' '.join(programs)}; {install}")


def site_variables(mirror: Path, scratch: Path) -> dict[str, Any]:
    return {
        "dlperf_stack": "v100-cuda10.2",
        "dlperf_frameworks": [],
        "dlperf_lock_timeout": 20,
        "node_base_packages": list(PACKAGES),
        "node_base_mirror_suite": "bookworm",
        "node_base_mirror_key": str(PROJECT / ".cache/mirror/cpu-bookworm/apt/dlperf-mirror.asc"),
        # What this test does not install is only refused without them.
        "nccl_archive_sha256": "0" * 64,
        "openmpi_sha256": openmpi(mirror / OPENMPI),
        "openmpi_build_packages": ["gcc", "libc6-dev", "make"],
        "openmpi_cache": str(scratch / "cache"),
        "infiniband_archive_sha256": ofed(mirror / OFED, scratch / "debs"),
        "infiniband_peer_memory_archive": "/nowhere/nv_peer_mem.tar.gz",
        "infiniband_peer_memory_sha256": "0" * 64,
        "infiniband_interface": "ib0",
        "infiniband_address": "10.12.0.{{ inventory_hostname[-1] }}/24",
        "infiniband_root": "/srv/fabric",
        "node_tuning_root": "/srv/tuning",
        "dlperf_tuning": {"application_clocks": {"memory": 877, "graphics": 1530}},
    }
