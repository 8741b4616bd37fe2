"""Facts about a node's GPUs and their software, from nvidia-smi, /proc and /sys. Python 2.7 and 3.6+."""

from __future__ import absolute_import, division, print_function

import glob
import os
import re

from . import nvidia_kernel
from .node_probes import bounded, integer, modules, names, pcie, program, text
from .nvidia_smi import bus_id, indices, read_xml, topology, trouble, xid_errors

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
    for argv in (["dmesg"], ["journalctl", "-k", "-b", "--no-pager", "-q", "-g", "NVRM|nvidia-nvswitch"]):
        path = program(argv[0], ["/bin", "/usr/bin", "/sbin"])
        if path:
            result = bounded([path] + argv[1:], timeout)
            if result["code"] == 0 and result["output"].strip():
                return result["output"]
    return None


def amd_gpu(root, index, name):
    """A GPU as the kernel's driver amdgpu has it in sysfs, in the form of nvidia-smi's; a partition of it has a folder of its own."""
    folder = os.path.join(root, "sys/bus/pci/devices", name)
    # Of memory, and of the links between GPUs, whose own file xgmi_error cannot be read since MI300 (ROCm/rocm-systems#11468): ue: 0 and ce: 3
    ecc, links = [dict(re.findall(r"(ue|ce): (\d+)", text(folder, "ras/%s_err_count" % block) or "")) for block in ("umc", "xgmi_wafl")]
    uncorrected = int(ecc["ue"]) + int(links.get("ue", 0)) if "ue" in ecc else None
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
        "ecc": {"enabled": True if ecc else None, "pending": None, "volatile": {"uncorrected": uncorrected}, "aggregate": {"uncorrected": None}},
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
        rocm=(text(root, "opt/rocm/.info/version") or "").partition("-")[0] or None,  # 7.2.4-93
    )
    if not seen:
        why = "it describes none of %d GPUs on the bus" % len(gpus) if is_loaded else "the module is not loaded"
        gathered["error"] = {"kind": "no_amdgpu", "message": "amdgpu: " + why, "exit_status": None}
    return gathered


def facts(root, timeout, brief=False):
    """Facts of the GPUs and their software. `brief`: without what gives warnings only, for checks before each job."""
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
        "inforom": [],
        "next_kernel": None if brief else nvidia_kernel.next_kernel(root),
        "driver_cuda": None,
        "cuda": cuda_version(root, timeout),
        "cudnn": header(root, CUDNN_HEADERS, "CUDNN_MAJOR", "CUDNN_MINOR", "CUDNN_PATCHLEVEL") or library(root, "libcudnn"),
        "nccl": header(root, NCCL_HEADERS, "NCCL_MAJOR", "NCCL_MINOR", "NCCL_PATCH") or library(root, "libnccl"),
        "modules": dict((name, version) for name, version in modules(root).items() if MODULES.match(name)),
        "topology": None,
    }
    gathered["fabric_manager"] = nvidia_kernel.fabric_manager(timeout) if gathered["nvswitches"] else None
    log = kernel_log(root, timeout)
    gathered["xid"] = None if log is None else xid_errors(log)
    of_amd = nvidia_kernel.devices(root, AMD_CLASSES, "0x1002")
    if not gpus and of_amd:
        return amd_facts(root, gathered, of_amd)
    smi = program("nvidia-smi", ["/usr/local/nvidia/bin"])
    if not smi and nvidia_kernel.is_operators(root):
        gathered["error"] = {"kind": "operators_driver", "message": "it is in a container (/run/nvidia/driver)", "exit_status": None}
        return gathered
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
    # WARNING: infoROM is corrupted at gpu 0000:B3:00.0. Only nvidia-smi without options says so (microsoft/pai#3756).
    corrupted = re.findall(r"infoROM is corrupted at gpu (\S{1,20})", "" if brief else bounded([smi], timeout)["output"])
    gathered["inforom"] = sorted(set(filter(None, map(bus_id, corrupted))))
    order = indices(bounded([smi] + QUERY, timeout)["output"])
    for item in gathered["gpus"]:
        item["index"] = order.get(item["uuid"])
    gathered["gpus"].sort(key=lambda item: (item["index"] is None, item["index"] or 0, item["bus_id"] or ""))
    gathered["topology"] = topology(bounded([smi, "topo", "-m"], timeout)["output"])
    return gathered
