"""Facts about a node's InfiniBand and RoCE ports, from /sys, ip and ofed_info. Python 2.7 and 3.6+."""

from __future__ import absolute_import, division, print_function

import io
import os
import re
import struct

from .node_probes import integer, modules, names, output, pcie, text
from .nvidia_kernel import is_switch_function

MODULES = re.compile(r"^(mlx\w*|ib_\w+|rdma_\w+|nv_peer_mem|nvidia_peermem|bnxt_re|irdma|efa)$")
# Name in a stack: name of the kernel module.
PEER_MEMORY = {"nv_peer_mem": "nv_peer_mem", "nvidia-peermem": "nvidia_peermem"}
# Kernel functions: for peer memory modules (MLNX_OFED's and some distributions' kernels), and for DMA-BUF (Linux 5.12 and newer MLNX_OFED).
CLIENT, DMA_BUF = "ib_register_peer_memory_client", "ib_umem_dmabuf_get"
COUNTERS = (
    "link_downed", "link_error_recovery", "symbol_error", "port_rcv_errors", "local_link_integrity_errors", "excessive_buffer_overrun_errors"
)  # fmt: skip
NOTHING = re.compile(r"^[0:]*$")


def number(value):
    """100 for '100', 2.5 for '2.5'; None for anything else."""
    match = re.match(r"([0-9]{1,7})(\.[0-9]{1,4})?\Z", value or "")
    if not match:
        return None
    rate = float(match.group())
    return int(rate) if rate == int(rate) else rate


def worded(value):
    """ACTIVE for `4: ACTIVE`."""
    match = re.match(r"\d+: (\S.*)\Z", value or "")
    return match.group(1) if match else None


def rate(value):
    """(100, EDR) for `100 Gb/sec (4X EDR)`."""
    match = re.match(r"(\S+) Gb/sec(?: \(\d+X(?: (\w+))?\))?\Z", value or "")
    return (number(match.group(1)), match.group(2)) if match else (None, None)


def rails_of(value):
    """(is_excluded, is_exact, [(name, port)]) of NCCL_IB_HCA as NCCL reads it; port None stands for every port."""
    is_excluded = value.startswith("^")
    value = value[1:] if is_excluded else value
    is_exact = value.startswith("=")
    named = [item.partition(":") for item in value.lstrip("=").split(",") if item.strip()]
    return is_excluded, is_exact, [(name.strip(), integer(port.strip())) for name, _colon, port in named]


def is_named(rail, is_exact, device, port):
    name, number_of_port = rail
    return number_of_port in (None, port) and (device == name if is_exact else device.startswith(name))


def hexadecimal(value):
    """28 for 0x1c; None for any other text."""
    return int(value, 16) if re.match(r"0x[0-9a-fA-F]{1,8}\Z", value or "") else None


def gid_table(port):
    """{index: [address, type]} of the port's GIDs, without all-zero ones. `IB/RoCE v1` stands for both; the port's link_layer tells which."""
    values = dict((name, text(port, "gids", name) or "") for name in names(port, "gids") if name.isdigit())
    return dict((name, [gid, text(port, "gid_attrs/types", name) or None]) for name, gid in values.items() if not NOTHING.match(gid))


def counters(port):
    """The number of times that the link went down, and the counters of its errors that are not 0; null if the driver has none."""
    values = dict((name, integer(text(port, "counters", name))) for name in COUNTERS)
    if values["link_downed"] is None:
        return None
    return dict((name, value) for name, value in values.items() if value or name == "link_downed")


def redirects(folder):
    """True if a PCI bridge has ACS on: control register of extended capability 13. Only root reads it."""
    try:
        with io.open(os.path.join(folder, "config"), "rb") as stream:
            config = stream.read(4096)
    except (IOError, OSError):
        return False
    place, seen = 0x100, set()
    while place and place not in seen and len(config) >= place + 8:
        seen.add(place)
        head = struct.unpack_from("<I", config, place)[0]
        if head & 0xFFFF == 13:
            # Source validation, P2P request redirect and P2P completion redirect.
            return bool(struct.unpack_from("<H", config, place + 6)[0] & 0b1101)
        place = head >> 20
    return False


def bare_metal(root, devices):
    """Bridges with ACS and kinds of address translation, which slow or hang GPUs' traffic; null in a virtual machine, which needs both."""
    if re.search(r"(?m)^flags\b.*\bhypervisor\b", text(root, "proc/cpuinfo") or ""):
        return {"acs": None, "iommu": None}
    folder = os.path.join(root, "sys/bus/pci/devices")
    bridges = [name for name in names(folder) if (text(folder, name, "class") or "").startswith("0x0604")]
    kinds = [text(root, "sys/class/infiniband", device["name"], "device/iommu_group/type") for device in devices]
    return {"acs": [name for name in bridges if redirects(os.path.join(folder, name))], "iommu": sorted(set(filter(None, kinds)))}


def interface_of(device, port):
    """The network interface of a port; IPoIB has the port's number in dev_id, Ethernet in dev_port."""
    interfaces = names(device, "device/net")
    if len(interfaces) <= 1:
        return interfaces[0] if interfaces else None
    for name in interfaces:
        where = os.path.join(device, "device/net", name)
        number_of_port = integer(text(where, "dev_port")) or hexadecimal(text(where, "dev_id")) or 0
        if number_of_port + 1 == port:
            return name
    return None


def fault(state, physical_state):
    """The remedy if a port is down; None if it is up. Some drivers report no physical state."""
    if state == "ACTIVE" and physical_state in ("LinkUp", None):
        return None
    if state == "INIT" and physical_state == "LinkUp":
        return "start a subnet manager (opensm, or the switch's)"
    return "check the cable and the switch"


def port_of(device, name):
    port = os.path.join(device, "ports", name)
    rate_gbps, speed = rate(text(port, "rate"))
    table = gid_table(port)
    state, physical_state = worded(text(port, "state")), worded(text(port, "phys_state"))
    return {
        "port": int(name),
        "state": state,
        "physical_state": physical_state,
        "fault": fault(state, physical_state),
        "rate_gbps": rate_gbps,
        "speed": speed,
        "link_layer": text(port, "link_layer") or None,
        "gids": sorted(set(kind for _gid, kind in table.values() if kind)),
        "gid_table": table,
        "pkeys": [text(port, "pkeys", index) for index in sorted(names(port, "pkeys"), key=int) if integer(index) is not None][:16],
        "counters": counters(port),
        "interface": interface_of(device, int(name)),
    }


def device_of(folder, name):
    device = os.path.join(folder, name)
    return {
        "name": name,
        "firmware": text(device, "fw_ver") or None,
        "pcie": pcie(device, "device"),
        "ports": [port_of(device, port) for port in sorted(n for n in names(device, "ports") if n.isdigit())],
    }


def addresses(output):
    """[10.11.0.2/24] for `4: ib0    inet 10.11.0.2/24 brd 10.11.0.255 scope global ib0\\ ...`."""
    return re.findall(r"(?m)^\d+: \S+\s+inet6? ([0-9a-fA-F.:]+/\d+)\b(?!.*\bscope link\b)", output)


def full_rate(name, timeout):
    """400 for `Supported link modes: 100000baseCR4/Full 400000baseCR4/Full`, the first list of ethtool's output."""
    printed = name and output(timeout, "ethtool", name) or ""
    supported = re.search(r"Supported link modes:((?:\s+\d+base\S+)+)", printed)
    return max(int(speed) for speed in re.findall(r"(\d+)base", supported.group(1))) // 1000 if supported else None


def gpu_direct(root, loaded):
    """The ways in which the cards reach GPU memory. A line of kallsyms: `0000000000000000 T ib_umem_dmabuf_get\t[ib_uverbs]`."""
    symbols = text(root, "proc/kallsyms") or ""
    driver = text(root, "proc/driver/nvidia/version") or ""
    # Loaded is not registered: where ib_core had no interface for it, or was replaced since, the module serves nothing (NVIDIA/nccl#1939).
    peers = names(root, "sys/kernel/mm/memory_peers")
    lacks = []
    if not re.search(r" %s\b" % DMA_BUF, symbols):
        lacks.append("an RDMA core with DMA-BUF (Linux 5.12 or newer, or a current MLNX_OFED), loaded")
    if "Open Kernel Module" not in driver:
        lacks.append("the open kernel modules of NVIDIA's driver (515 or newer)" if driver else "a running driver")
    return {
        "gpu_direct": ([] if lacks else ["DMA-BUF"]) + sorted(name for name, module in PEER_MEMORY.items() if module in loaded and peers),
        "dma_buf": lacks,
        # The function is there only while ib_core is loaded.
        "peer_memory_client": True if re.search(r" %s\b" % CLIENT, symbols) else False if symbols and "ib_core" in loaded else None,
    }


def interface(root, name, timeout):
    where = os.path.join(root, "sys/class/net", name)
    if not os.path.isdir(where):
        return None
    printed = output(timeout, "ip", "-o", "addr", "show", "dev", name)
    return {
        "state": text(where, "operstate") or None,
        "mtu": integer(text(where, "mtu")),
        "addresses": None if printed is None else addresses(printed),
    }


def memlock(root, user, timeout):
    """(KiB, whether unlimited); (None, None) if unknown."""
    if user:
        # runuser opens a session, so the limits are those of the user's login.
        limit, factor = output(timeout, "runuser", "-u", user, "--", "sh", "-c", "ulimit -l") or "", 1
    else:
        # Max locked memory         65536                65536                bytes
        match = re.search(r"(?m)^Max locked memory\s+(\S+)", text(root, "proc/self/limits") or "")
        limit, factor = (match.group(1) if match else ""), 1024
    if limit == "unlimited":
        return None, True
    return (integer(limit) // factor, False) if integer(limit) is not None else (None, None)


def slurmd_memlock(root):
    """KiB that a running slurmd may lock, which its jobs inherit; None if it is unlimited or does not run."""
    for number in names(root, "proc"):
        if number.isdigit() and text(root, "proc", number, "comm") == "slurmd":
            match = re.search(r"(?m)^Max locked memory\s+(\d+)", text(root, "proc", number, "limits") or "")
            return int(match.group(1)) // 1024 if match else None
    return None


def facts(root, user, named, rails, timeout):
    folder = os.path.join(root, "sys/class/infiniband")
    devices = [device_of(folder, name) for name in names(folder) if not is_switch_function(os.path.join(folder, name, "device"))]
    ports = [port for device in devices for port in device["ports"]]
    interfaces = [port["interface"] for port in ports]
    is_excluded, is_exact, listed = rails_of(rails)
    for device in devices:
        for port in device["ports"]:
            port["full_rate_gbps"] = full_rate(port["interface"], timeout) if port["link_layer"] == "Ethernet" else None
            is_listed = any(is_named(rail, is_exact, device["name"], port["port"]) for rail in listed)
            port["in_use"] = is_listed != is_excluded if listed else named not in interfaces or port["interface"] == named
    pairs = [(device["name"], port["port"]) for device in devices for port in device["ports"]]
    missing = [rail for rail in listed if not is_excluded and not any(is_named(rail, is_exact, *each) for each in pairs)]
    described = dict((name, interface(root, name, timeout)) for name in interfaces + [named] if name)
    loaded = modules(root)
    # MLNX_OFED_LINUX-5.0-2.1.8.0:
    version = re.match(r"(?:MLNX_)?OFED(?:_LINUX)?-(?:internal-)?(\S+?):?\s*\Z", output(timeout, "ofed_info", "-s") or "")
    # DOCA since 4.0 has no ofed_info (openucx/ucx#11538); modules of the kernel itself have no version, or one such as 5.0-0.
    doca = re.match(r"\d\d\.\d\d-\d[\d.]*\Z", loaded.get("mlx5_core") or "")
    limit, is_unlimited = memlock(root, user, timeout)
    result = {
        "devices": devices,
        "missing_rails": [name if port is None else "%s:%d" % (name, port) for name, port in missing],
        "interfaces": described,
        "modules": dict((name, value) for name, value in loaded.items() if MODULES.match(name)),
        "ofed": version.group(1) if version else doca.group() if doca else None,
        "memlock_kib": limit,
        "memlock_unlimited": is_unlimited,
        "slurmd_memlock_kib": slurmd_memlock(root),
    }
    result.update(bare_metal(root, devices))
    return dict(result, **gpu_direct(root, loaded))
