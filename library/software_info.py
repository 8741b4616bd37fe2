#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "software_info",
    "short_description": "Gather the driver, container engine, OFED and OpenMPI that a node has, whoever installed them",
    "description":
        "Provisioning records what a node keeps (C(dlperf_adopt)), and asks before it replaces what somebody else installed. Changes "
        "nothing.",
    "options": {
        "root": {"type": "path", "default": "/", "description": "The node's root directory. Tests set another one."},
        "mpirun": {"type": "path", "description": "Path of the mpirun that the inventory names."},
    },
}  # fmt: skip

RETURN = r"""
driver: {description: "C(version), C(cuda) (the newest CUDA that it supports natively) and C(is_ours); null if none is loaded.", returned: always, type: dict}
container_runtime: {description: "C(version), C(package), C(is_ours) by engine (C(docker), C(podman)), if installed.", returned: always, type: dict}
is_operators: {description: Whether the driver is in a container of NVIDIA's GPU Operator., returned: always, type: bool}
toolkit: {description: Version of NVIDIA's container toolkit; null if not installed., returned: always, type: str}
infiniband: {description: "C(ofed) and C(rdma_core), their versions; null if not installed.", returned: always, type: dict}
openmpi: {description: C(version) of O(mpirun); null if there is none., returned: always, type: dict}
cuda: {description: C(version) of the toolkit's packages; null if not installed., returned: always, type: dict}
cudnn: {description: C(version) of its packages; null if not installed., returned: always, type: dict}
nccl: {description: C(version) of its packages; null if not installed., returned: always, type: dict}
rocm: {description: C(version) of its packages; null if not installed., returned: always, type: dict}
containers: {description: Names of the containers that Docker runs., returned: always, type: list, elements: str}
recorded: {description: "What provisioning recorded of the parts that the node keeps, by part; null without a record.", returned: always, type: dict}
gpu_processes: {description: "Processes that use the GPUs, such as C(python3 (41327)), without NVIDIA's services.", returned: always, type: list, elements: str}
"""

import json
import re

from ansible.module_utils import nvidia_kernel
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_packages import all_names, versions
from ansible.module_utils.node_probes import modules, openmpi, output, text

LIBRARIES = {"cuda": r"cuda-toolkit-\d+-\d+$", "cudnn": r"libcudnn\d+(-cuda-\d+)?$", "nccl": r"libnccl2?$", "rocm": r"rocm-core$"}
ENGINES = {"docker": ("docker-ce", "docker.io"), "podman": ("podman",)}
TIMEOUT_S = 30
RECORD = "var/lib/dlperf/adopted.json"


def printed(name, *arguments):
    return output(TIMEOUT_S, name, *arguments) or ""


def first(pattern, output):
    match = re.search(pattern, output)
    return match.group(1) if match else None


def packages(names):
    """{name: version} of the installed ones; 28.2.2 for 5:28.2.2-1~ubuntu.22.04~jammy, 7.2.4 for 7.2.4.70204-93~24.04."""
    result = versions(names)
    return dict((name, re.sub(r"^\d+:|(\.\d{5})?[-+~].*$", "", version)) for name, version in result.items())


def engines(root):
    installed = packages([name for names in ENGINES.values() for name in names])
    is_ours = nvidia_kernel.is_ours(root, "container_engine")
    result = {}
    for engine, names in ENGINES.items():
        package = next((name for name in names if name in installed), None)
        # Docker version 28.2.2, build e6534b4; podman version 4.3.1
        version = installed.get(package) or first(r"version (\d+[\d.]*)", printed(engine, "--version"))
        if version:
            result[engine] = {"version": version, "package": package, "is_ours": is_ours}
    return result


def driver(root):
    version = nvidia_kernel.running(root)
    if not version and "amdgpu" in modules(root):
        version = text(root, "sys/module/amdgpu/version") or "of the kernel"
        return {"version": version, "cuda": None, "is_ours": nvidia_kernel.is_ours(root, "amdgpu_driver")}
    if not version:
        return None
    # | NVIDIA-SMI 535.161.07    Driver Version: 535.161.07    CUDA Version: 12.2     |
    cuda = first(r"CUDA Version: (\d+\.\d+)", printed("nvidia-smi"))
    return {"version": version, "cuda": cuda, "is_ours": nvidia_kernel.is_ours(root, "nvidia_driver")}


def library(pattern):
    """The newest of the installed versions."""
    result = packages([name for name in all_names() if re.match(pattern, name)]).values()
    newest = sorted(result, key=lambda version: [int(part) for part in re.findall(r"\d+", version)])
    return {"version": newest[-1]} if newest else None


def recorded(root):
    """The record of an earlier provisioning; None if there is none, or if it is damaged."""
    try:
        result = json.loads(text(root, RECORD) or "null")
    except ValueError:
        return None
    return result if isinstance(result, dict) else None


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    root, mpirun = module.params["root"], module.params["mpirun"]
    mpi = openmpi(mpirun, TIMEOUT_S) if mpirun else None
    versions = dict((name, library(pattern)) for name, pattern in LIBRARIES.items())
    facts = dict(
        changed=False,
        driver=driver(root),
        container_runtime=engines(root),
        # NVIDIA Container Toolkit CLI version 1.18.2
        toolkit=first(r"version (\d+[\d.]*)", printed("nvidia-ctk", "--version")),
        infiniband={
            # MLNX_OFED_LINUX-5.0-2.1.8.0:
            "ofed": first(r"OFED(?:_LINUX)?-(?:internal-)?([^\s:]+)", printed("ofed_info", "-s")),
            "rdma_core": packages(["rdma-core"]).get("rdma-core"),
        },
        containerd=next(iter(packages(["containerd.io", "containerd"]).values()), None),
        openmpi={"version": mpi} if mpi else None,
        containers=printed("docker", "ps", "--format", "{{.Names}}").split(),
        recorded=recorded(root),
        is_operators=nvidia_kernel.is_operators(root),
        gpu_processes=nvidia_kernel.processes(root),
    )
    facts.update(versions)
    module.exit_json(**facts)


if __name__ == "__main__":
    main()
