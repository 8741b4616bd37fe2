"""Two nodes that were in use before anybody provisions them; see tests/lab/test_gpu_stack.py."""

from __future__ import annotations

from pathlib import Path

from gpu_cluster import OF_STACK, claim
from gpu_packages import cublas, nccl
from gpu_standins import Vendors, make_vendors
from lab_under_test import Lab
from standin_repository import flat_repository

DOCKER = {"engine": "docker", "version": "20.10.7", "toolkit": "1.13.5"}
# Roles, and what they are given where nobody else gives it; the versions are those of OF_STACK.
ALONE: dict[str, dict[str, object]] = {
    "nvidia_driver": {"nvidia_driver_version": "440.33.01"},
    "cuda": {},
    "cudnn": {},
    "nccl": {},
    "container_runtime": {
        "container_runtime_engine": DOCKER["engine"],
        "container_runtime_engine_version": DOCKER["version"],
        "container_runtime_toolkit_version": DOCKER["toolkit"],
    },
    "node_tuning": {"node_tuning_settings": {}},
    "gpu_node": {
        "gpu_node_stack": {
            "driver": {"version": "440.33.01"},
            **{name: {"version": version} for name, version in OF_STACK.items()},
            "container_runtime": DOCKER,
        }
    },
}


def make_used_nodes(lab: Lab, mirror: Path, scratch: Path) -> Vendors:
    vendors = make_vendors(mirror, scratch, ("bionic", "jammy"))
    # The site's own repository has another NCCL, which node2 had before anybody provisioned it.
    site = [*nccl("2.8.4-1+cuda10.2"), *cublas("10.2.3.254-1")]
    flat_repository(mirror / "site", site, scratch / "site-key", "key.asc")
    lab.up(lab_nodes=2, lab_mirror_dir=mirror)
    lab.said("node1", "mkdir -p /etc/modprobe.d")
    claim(lab, "node2", "bionic")
    lab.said(
        "node2",
        """
        mkdir -p /etc/modprobe.d /etc/docker
        echo '{"log-driver": "local"}' > /etc/docker/daemon.json
        echo 'deb [trusted=yes] http://10.11.0.1:8010/site /' > /etc/apt/sources.list.d/site.list
        apt-get update && apt-get install -y libnccl2 """,
    )
    return vendors
