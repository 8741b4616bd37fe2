#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = r"""
module: gpu_info
short_description: Gather facts about a node's GPUs, their state and their processes
description:
  - Reads nvidia-smi, C(/proc), C(/sys), CUDA's headers and libraries, and the kernel's log. Changes nothing, and never fails because of
    a GPU - a driver that does not answer or a lost GPU is reported in C(error).
  - A value that a GPU or its driver does not support is null, never 0. An invalid value, such as C(ERR!), is listed in the GPU's C(errors).
options:
  root: {description: The node's root directory. Tests set another one with recorded files., type: path, default: /}
  timeout: {description: Time limit of each nvidia-smi command in seconds., type: int, default: 30}
attributes:
  check_mode: {support: full}
"""

RETURN = r"""
error:
  description: >-
    Why nvidia-smi failed; null if it succeeded. C(kind) is no_amdgpu, no_nvidia_smi, timeout, cannot_start, version_mismatch, no_driver,
    gpu_lost, no_devices, no_permission, failed or unreadable; C(message) is its output and C(exit_status) its exit status.
  returned: always
  type: dict
gpus:
  description: >-
    Sorted by index. Each has C(index uuid bus_id model vbios memory_mib persistence mig temperature_c power_limit_w power_default_limit_w),
    C(clocks_mhz) (application, max; graphics and memory), C(throttle_reasons) (the current ones), C(ecc) (enabled, pending, and volatile and
    aggregate counts of uncorrected errors), C(retired_pages) (pending), C(remapped_rows) (pending, failure), C(processes) (pid, name, type,
    memory_mib), C(fabric) (state, status, cluster_uuid, clique_id and health; null without NVLink fabric), and C(errors), invalid values by name.
  returned: always
  type: list
  elements: dict
is_amd: {description: Whether the GPUs are AMD's. Then the kernel's driver amdgpu describes them; a value that it does not have is null., returned: always, type: bool}
rocm: {description: Version of ROCm., returned: always, type: str}
pci: {description: "PCI addresses of all GPUs, even those unknown to the driver; null if unknown.", returned: always, type: list}
pcie: {description: "C(width max_width speed max_speed) of the GPUs' PCIe links by their address, speeds in GT/s.", returned: always, type: dict}
nvswitches: {description: PCI addresses of what manages the board's NVSwitches., returned: always, type: list, elements: str}
imex: {description: C(is_active) of the service nvidia-imex and the number of its C(channels); null without GPUs of NVL72., returned: always, type: dict}
fabric_manager: {description: C(version) and C(is_active) of the fabric manager; null on boards without NVSwitch., returned: always, type: dict}
driver: {description: Version of the driver according to nvidia-smi., returned: always, type: str}
driver_running: {description: Version of the loaded kernel module., returned: always, type: str}
driver_cuda: {description: The newest CUDA version that the driver supports., returned: always, type: str}
cuda: {description: Version of the CUDA toolkit., returned: always, type: str}
cudnn: {description: Version of cuDNN., returned: always, type: str}
nccl: {description: Version of NCCL., returned: always, type: str}
modules: {description: Versions of the loaded GPU kernel modules., returned: always, type: dict}
topology: {description: C(links) between devices from C(nvidia-smi topo -m); null if unavailable., returned: always, type: dict}
xid: {description: C(bus_id xid message count) of Xid errors since boot; null if the kernel's log cannot be read., returned: always, type: list}
"""

import glob
import os
import re

from ansible.module_utils import nvidia_kernel
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import bounded, integer, modules, names, pcie, program, text
from ansible.module_utils.nvidia_smi import indices, read_xml, topology, trouble, xid_errors

# A display controller without a display, or a processing accelerator; some have no name in their firmware.
AMD_CLASSES = ("0x0380", "0x1200")
AMD_MODELS = {
    "0x74a1": "AMD Instinct MI300X",
    "0x74a5": "AMD Instinct MI325X",
    "0x75a0": "AMD Instinct MI350X",
    "0x75a3": "AMD Instinct MI355X",
}
MULTI_NODE = re.compile(r"\bGB\d")  # NVIDIA GB200 and GB300, whose NVLink reaches other nodes; not 80GB
CUDNN_HEADERS = [
    "usr/include/cudnn_version.h",
    "usr/include/*/cudnn_version*.h",
    "usr/include/cudnn.h",
    "usr/include/*/cudnn*.h",
    "usr/local/cuda/include/cudnn*.h",
]
NCCL_HEADERS = ["usr/include/nccl.h", "usr/include/*/nccl.h", "usr/local/cuda/include/nccl.h"]
QUERY = ["--query-gpu=index,uuid", "--format=csv,noheader"]
MODULES = re.compile(r"^(nvidia.*|nv_peer_mem|nouveau|gdrdrv)$")


def defined(content, *macros):
    """Values of a header's macros, joined by dots; None if one is missing."""
    values = [re.search(r"(?m)^#define\s+%s\s+(\d+)\s*(?:/.*)?$" % macro, content or "") for macro in macros]
    return ".".join(value.group(1) for value in values) if all(values) else None


def header(root, patterns, *macros):
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(root, pattern))):
            version = defined(text(path), *macros)
            if version:
                return version
    return None


def library(root, name):
    """Version in the file name of a library: libnccl.so.2.7.3"""
    patterns = ["usr/lib/*/", "usr/lib64/", "usr/local/cuda/lib64/", "usr/local/cuda/targets/*/lib/"]
    for pattern in patterns:
        for path in sorted(glob.glob(os.path.join(root, pattern, name + ".so.*"))):
            match = re.search(r"\.so\.(\d+\.\d+\.\d+)$", path)
            if match:
                return match.group(1)
    return None


def cuda_version(root, timeout):
    """Version from nvcc (`Cuda compilation tools, release 10.2, V10.2.89`), or else from the toolkit's version file."""
    nvcc = os.path.join(root, "usr/local/cuda/bin/nvcc")
    if not os.access(nvcc, os.X_OK):
        nvcc = program("nvcc") if root == "/" else None
    if nvcc:
        match = re.search(r"release \S+, V(\d+(?:\.\d+)+)", bounded([nvcc, "--version"], timeout)["output"])
        if match:
            return match.group(1)
    match = re.search(r'"cuda"\s*:\s*{[^}]*"version"\s*:\s*"([\d.]+)"', text(root, "usr/local/cuda/version.json") or "")
    match = match or re.match(r"CUDA Version (\d+(?:\.\d+)+)", text(root, "usr/local/cuda/version.txt") or "")
    return match.group(1) if match else None


def kernel_log(root, timeout):
    """The kernel's messages since boot; None if this user may not read them."""
    if root != "/":
        return text(root, "var/log/dmesg")
    for argv in (["dmesg"], ["journalctl", "-k", "-b", "--no-pager", "-q", "-g", "NVRM"]):
        path = program(argv[0], ["/bin", "/usr/bin", "/sbin"])
        if path:
            result = bounded([path] + argv[1:], timeout)
            if result["code"] == 0 and result["output"].strip():
                return result["output"]
    return None


def amd_gpu(root, index, name):
    """What the kernel's driver amdgpu has in sysfs of a GPU, in the form of nvidia-smi's; a partition of it has a folder of its own."""
    folder = os.path.join(root, "sys/bus/pci/devices", name)
    # ue: 0 and ce: 3
    ecc = dict(re.findall(r"(ue|ce): (\d+)", text(folder, "ras/umc_err_count") or ""))
    monitors = [os.path.join(folder, "hwmon", each) for each in names(folder, "hwmon")] or [folder]
    limits = [integer(text(monitors[0], "power1_cap" + ending)) for ending in ("", "_default")]
    limits = [None if limit is None else limit / 1e6 for limit in limits]
    memory = integer(text(folder, "mem_info_vram_total"))
    model = text(folder, "product_name") or AMD_MODELS.get(text(folder, "device")) or "AMD %s" % text(folder, "device")
    unknown = {"graphics": None, "memory": None}
    return {
        "index": index, "bus_id": name, "uuid": "GPU-" + (text(folder, "unique_id") or name), "model": model, "vbios": text(folder, "vbios_version"),
        "memory_mib": None if memory is None else memory >> 20, "persistence": None, "mig": None, "throttle_reasons": None, "temperature_c": None,
        "power_limit_w": limits[0], "power_default_limit_w": limits[1], "processes": None, "fabric": None,
        "ecc": {"enabled": True if ecc else None, "pending": None, "volatile": {"uncorrected": integer(ecc.get("ue"))}, "aggregate": {"uncorrected": None}},
        "retired_pages": {"pending": None}, "remapped_rows": None, "clocks_mhz": {"application": unknown, "max": unknown}, "errors": {},
    }  # fmt: skip


def amd_facts(root, gathered, gpus):
    is_loaded = "amdgpu" in modules(root)
    seen = [name for name in gpus if text(root, "sys/bus/pci/devices", name, "mem_info_vram_total")]
    gathered.update(
        is_amd=True,
        pci=gpus,
        pcie=dict((name, pcie(root, "sys/bus/pci/devices", name)) for name in gpus),
        gpus=[amd_gpu(root, index, name) for index, name in enumerate(seen)],
        driver=text(root, "sys/module/amdgpu/version") or None,
        driver_running=text(root, "sys/module/amdgpu/version") or None,
        rocm=text(root, "opt/rocm/.info/version") or None,
    )
    if not seen:
        why = "it describes none of %d GPUs on the bus" % len(gpus) if is_loaded else "the module is not loaded"
        gathered["error"] = {"kind": "no_amdgpu", "message": "amdgpu: " + why, "exit_status": None}
    return gathered


def facts(root, timeout):
    gpus = nvidia_kernel.devices(root, nvidia_kernel.GPU)
    gathered = {
        "error": None,
        "imex": None,
        "is_amd": False,
        "rocm": None,
        "gpus": [],
        "pci": gpus,
        "pcie": dict((name, pcie(root, "sys/bus/pci/devices", name)) for name in gpus or ()),
        "nvswitches": nvidia_kernel.nvswitches(root),
        "driver": None,
        "driver_running": nvidia_kernel.running(root),
        "driver_cuda": None,
        "cuda": cuda_version(root, timeout),
        "cudnn": header(root, CUDNN_HEADERS, "CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL") or library(root, "libcudnn"),
        "nccl": header(root, NCCL_HEADERS, "NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH") or library(root, "libnccl"),
        "modules": dict((name, version) for name, version in modules(root).items() if MODULES.match(name)),
        "topology": None,
    }
    gathered["fabric_manager"] = nvidia_kernel.fabric_manager(root, timeout) if gathered["nvswitches"] else None
    log = kernel_log(root, timeout)
    gathered["xid"] = None if log is None else xid_errors(log)
    of_amd = nvidia_kernel.devices(root, AMD_CLASSES, "0x1002")
    if not gpus and of_amd:
        return amd_facts(root, gathered, of_amd)
    smi = program("nvidia-smi", ["/usr/local/nvidia/bin"])
    if not smi:
        gathered["error"] = {"kind": "no_nvidia_smi", "message": "nvidia-smi is not installed", "exit_status": None}
        return gathered
    result = bounded([smi, "-q", "-x"], timeout)
    gathered["error"] = trouble(result)
    # With one lost GPU, nvidia-smi fails, but only after it has printed the others.
    document = read_xml(result["output"])
    if document is None:
        gathered["error"] = gathered["error"] or {"kind": "unreadable", "message": result["output"][:500], "exit_status": result["code"]}
        return gathered
    gathered.update(driver=document["driver"], driver_cuda=document["cuda"], gpus=document["gpus"])
    if any(MULTI_NODE.search(str(item["model"])) for item in gathered["gpus"]):
        gathered["imex"] = nvidia_kernel.imex(root, timeout)
    order = indices(bounded([smi] + QUERY, timeout)["output"])
    for item in gathered["gpus"]:
        item["index"] = order.get(item["uuid"])
    gathered["gpus"].sort(key=lambda item: (item["index"] is None, item["index"] or 0, item["bus_id"] or ""))
    gathered["topology"] = topology(bounded([smi, "topo", "-m"], timeout)["output"])
    return gathered


def main():
    module = AnsibleModule(
        argument_spec={"root": {"type": "path", "default": "/"}, "timeout": {"type": "int", "default": 30}},
        supports_check_mode=True,
    )
    module.exit_json(changed=False, **facts(module.params["root"], module.params["timeout"]))


if __name__ == "__main__":
    main()
