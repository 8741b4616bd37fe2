"""Facts about NVIDIA's kernel module and devices from /proc, /sys and /lib/modules. Python 2.7 and 3.5+."""

from __future__ import absolute_import, division, print_function

import glob
import io
import os
import re

from .node_probes import SBIN, bounded, names, output, program, text

GPU, NVSWITCH = ("0x0300", "0x0302"), ("0x0680",)
# NVIDIA's services keep the devices open; they use no GPU.
SERVICES = ("nvidia-persiste", "nvidia-persistenced", "nv-fabricmanager", "nv-hostengine", "nvidia-smi")
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def running(root):
    """NVRM version: NVIDIA UNIX x86_64 Kernel Module  440.33.01  Wed Nov 13 00:00:22 UTC 2019"""
    match = re.search(r"Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)\s", text(root, "proc/driver/nvidia/version") or "")
    return match.group(1) if match else text(root, "sys/module/nvidia/version") or None


def next_kernel(root):
    """The newest installed kernel, if it lacks the running one's module: its headers are missing, and dkms has skipped it. None if it has it."""
    kernel = text(root, "proc/sys/kernel/osrelease") or ""
    kernels = [name[len("vmlinuz-") :] for name in names(root, "boot") if re.match(r"vmlinuz-\d", name)]

    def age(name):
        return [int(number) for number in re.findall(r"\d+", re.split(r"\.el\d", name)[0])]

    def flavour(name):
        """6.1.0-18-cloud-amd64, 5.14.0-503.el9.x86_64+debug, 5.15.0-205.149.5.1.el8uek.x86_64, 4.18.0-553.rt7.342.el8_10.x86_64"""
        return re.findall(r"uek|\.rt\d|\+.*", name) if ".el" in name else re.sub(r"^\d[^-]*-(?:\d[^-]*-)?", "", name)

    def has_module(name):
        return "/nvidia.ko" in (text(root, "lib/modules", name, "modules.dep") or "")

    newer = sorted((name for name in kernels if age(name) > age(kernel) and flavour(name) == flavour(kernel)), key=age)
    return newer[-1] if newer and has_module(kernel) and not has_module(newer[-1]) else None


def devices(root, classes, vendor="0x10de"):
    """PCI addresses of NVIDIA's devices, or another vendor's, of some classes; None if unknown.

    A GPU is a display or 3D controller. An NVSwitch is a bridge of class `other` (H100: 10de:22a3, class 0x068000).
    """
    folder = os.path.join(root, "sys/bus/pci/devices")
    if not os.path.isdir(folder):
        return None
    return [name for name in names(folder) if text(folder, name, "vendor") == vendor and (text(folder, name, "class") or "")[:6] in classes]


def is_switch_function(folder):
    """True if a PCI device manages NVSwitches of NVLink 5: a ConnectX function with SW_MNG in its vital product data (HGX B200 and later)."""
    is_card = text(folder, "vendor") == "0x15b3" and (text(folder, "class") or "").startswith("0x0207")
    return is_card and "SW_MNG" in (text(folder, "vpd") or "")


def switch_functions(root):
    """PCI addresses of the functions that manage NVSwitches of NVLink 5. They exist without the modules mlx5_ib and ib_umad, too."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    return [name for name in names(folder) if is_switch_function(os.path.join(folder, name))]


def nvswitches(root):
    """PCI addresses of what manages the board's NVSwitches: bridges of their own, or from NVLink 5 on functions of ConnectX."""
    return (devices(root, NVSWITCH) or []) + switch_functions(root)


def fabric_manager(timeout):
    """{version, is_active} of the fabric manager; null where unknown. It prints `Fabric Manager version is : 580.105.08`."""
    version = re.search(r"version is *: *(\S+)", output(timeout, "nv-fabricmanager", "--version") or "")
    return {"version": version.group(1) if version else None, "is_active": is_active("nvidia-fabricmanager", timeout)}


def is_active(service, timeout):
    """True if systemd runs a service; None if unknown."""
    systemctl = program("systemctl", SBIN)
    state = systemctl and bounded([systemctl, "is-active", service], timeout)["output"].strip()
    return state == "active" if state else None


def imex(root, timeout):
    """State of the service that shares memory between the nodes of an NVLink domain (NVL72). Its control prints of each node

    Node #0   - 10.136.206.48   - READY
    Node #1   * 10.136.206.49 * - UNAVAILABLE - Version: 580.105.08
    Domain State: DEGRADED
    """
    table = output(timeout, "nvidia-imex-ctl", "-N") or ""
    domain = re.search(r"Domain State: *(\w+)", table)
    nodes = re.findall(r"(?m)^Node #\d+[ *-]+(\S+)[ *-]+([A-Z_]+)", table)
    return {
        "is_active": is_active("nvidia-imex", timeout),
        "channels": len(names(root, "dev/nvidia-caps-imex-channels")),
        "domain": domain.group(1) if domain else None,
        "missing": [name for name, state in nodes if state != "READY"],
    }


def secure_boot(root):
    """True if the firmware enforces Secure Boot; False on a node without UEFI."""
    try:
        with io.open(os.path.join(root, SECURE_BOOT), "rb") as stream:
            # Four bytes of attributes come before the value.
            return stream.read()[4:5] == b"\x01"
    except (IOError, OSError):
        return False


def is_ours(root, family):
    """True if this project has installed a family of packages, or a driver from its run file."""
    stamps = ["nvidia-driver-*.installed"] if family == "nvidia_driver" else []
    return any(glob.glob(os.path.join(root, "var/lib/dlperf", name)) for name in ["undo/%s.json" % family] + stamps)


def is_operators(root):
    """True if the driver is that of a container of NVIDIA's GPU Operator: the module is loaded, and programs of the node have no library for it."""
    of_node, of_container = [os.path.join(root, folder, "usr/bin/nvidia-smi") for folder in ("", "run/nvidia/driver")]
    return os.path.exists(of_container) and not os.path.exists(of_node)


def processes(root):
    """`python3 (41327)` for each process that has a GPU's device open (AMD's have one for all, kfd); only root sees those of all users."""
    users = []
    for pid in sorted((name for name in names(root, "proc") if name.isdigit()), key=int):
        name, folder = text(root, "proc", pid, "comm"), os.path.join(root, "proc", pid, "fd")
        if name not in SERVICES and any(re.match(r"/dev/(nvidia(\d|-uvm)|kfd)", target(folder, each)) for each in names(folder)):
            users.append("%s (%s)" % (name, pid))
    return users


def containers(root):
    """`python3 (41327)` for the first process of each container that has a GPU's device, in use or not.

    Its root is another one than the node's, and has the device: /proc/41327/root/dev/nvidia0, whichever engine put it there. Services of snaps, such
    as Ubuntu's livepatch, have another root with all devices, and are none.
    """
    by_root, node = {}, os.stat(root)
    root_place = (node.st_dev, node.st_ino)
    for pid in sorted((name for name in names(root, "proc") if name.isdigit()), key=int):
        inside = os.path.join(root, "proc", pid, "root")
        try:
            place = os.stat(inside)
            if (place.st_dev, place.st_ino) == root_place or not glob.glob(os.path.join(inside, "dev/nvidia[0-9]*")) + glob.glob(
                os.path.join(inside, "dev/kfd")
            ):
                continue
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if re.search(r"/snap\.[^/\n]+\.(service|scope)", text(root, "proc", pid, "cgroup") or ""):
            continue
        by_root.setdefault((place.st_dev, place.st_ino), "%s (%s)" % (text(root, "proc", pid, "comm"), pid))
    return sorted(by_root.values())


def target(*parts):
    try:
        return os.readlink(os.path.join(*parts))
    except OSError:
        return ""
