"""Parse the output of nvidia-smi (drivers since 418): text in, facts out. Python 2.7 and 3.6+.

A value that the GPU or its driver does not support is None, never 0. An invalid value is None too, and its text is kept in
`errors`.
"""

from __future__ import absolute_import, division, print_function

import re
import xml.etree.ElementTree as ElementTree

# Texts for unsupported values. Any other text that is not a value is an error.
ABSENT = ("n/a", "not supported", "not available", "none", "", "requested functionality has been deprecated")
MESSAGES = (
    # Failed to initialize NVML: Driver/library version mismatch
    ("version_mismatch", re.compile(r"driver/library version mismatch", re.I)),
    # NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver. Make sure that the latest ...
    ("no_driver", re.compile(r"couldn't communicate with the NVIDIA driver|driver not loaded", re.I)),
    # Unable to determine the device handle for GPU 0000:B3:00.0: GPU is lost.  Reboot the system to recover this GPU
    ("gpu_lost", re.compile(r"unable to determine the device handle|gpu is lost|fallen off the bus", re.I)),
    ("no_devices", re.compile(r"no devices (were )?found", re.I)),
    ("no_permission", re.compile(r"insufficient permissions|permission denied", re.I)),
)
FABRIC = (
    ("state", "state"),
    ("status", "status"),
    ("cluster_uuid", "clusterUuid"),
    ("clique_id", "cliqueId"),
    ("health", "health/summary"),
)
LINK = re.compile(r"(X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC)\Z")
# NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, name=python, GPU has fallen off the bus.
# nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 31 sourcetrack timeout error
XID = re.compile(r"(?:NVRM: Xid|nvidia-nvswitch\d{1,3}: SXid) \((?:PCI:)?([0-9A-Fa-f:.]+)\): (\d{1,5})(?:, (.*))?")
OF_SWITCH = 10000  # the lowest SXid


def trouble(result):
    """The reason why nvidia-smi failed: {kind, message, exit_status}; None if it succeeded."""
    message = (re.sub(r"(?s)<.*>", "", result["output"]).strip() or result["errors"].strip())[-500:]
    if result["late"]:
        return {"kind": "timeout", "message": message or "no answer", "exit_status": None}
    if result["code"] is None:
        return {"kind": "cannot_start", "message": result["errors"], "exit_status": None}
    if result["code"] == 0 and "<gpu " in result["output"]:
        return None
    # Ignore the XML part: it may describe other GPUs, and contains names of processes, which any user can choose.
    words = re.sub(r"(?s)<nvidia_smi_log>.*</nvidia_smi_log>", "", result["output"]) + result["errors"]
    for kind, pattern in MESSAGES:
        if pattern.search(words):
            return {"kind": kind, "message": message, "exit_status": result["code"]}
    if result["code"] != 0:
        return {"kind": "failed", "message": message or "nothing", "exit_status": result["code"]}
    return None


def bare(value):
    """N/A for `[N/A]`."""
    value = (value or "").strip()
    return value[1:-1].strip() if value.startswith("[") and value.endswith("]") else value


class Reader(object):
    """Reads values below an element and collects invalid ones in `errors`."""

    def __init__(self, element):
        self.element, self.errors = element, {}

    def text(self, *paths):
        """The first of these paths with a value; old and new drivers use different names."""
        for path in paths:
            value = bare(self.element.findtext(path))
            if value.lower() in ABSENT:
                continue
            if re.search(r"\berr(or)?\b|unknown|lost|insufficient|blocked", value, re.I):
                self.errors[path] = value
                continue
            return value
        return None

    def number(self, unit, *paths):
        """16160 for `16160 MiB`, and likewise with MHz and W; a value with another unit is invalid."""
        value = self.text(*paths)
        if value is None:
            return None
        match = re.match(r"([0-9]{1,15})(\.[0-9]{1,6})?(?: (\S+))?\Z", value)
        if not match or (match.group(3) or "") != unit:
            self.errors[paths[0]] = value
            return None
        return float(match.group(1) + match.group(2)) if match.group(2) else int(match.group(1))

    def switch(self, *paths):
        """True for Enabled and Yes, False for Disabled and No; None if not supported."""
        value = self.text(*paths)
        if value is None:
            return None
        states = {"enabled": True, "yes": True, "active": True, "disabled": False, "no": False}
        if value.lower() not in states:
            self.errors[paths[0]] = value
        return states.get(value.lower())


def uncorrected(reader, period):
    """Uncorrected ECC errors: by kind of memory since Turing, before as a total. None if none are counted."""
    where = "ecc_errors/%s/" % period
    count = reader.number("", where + "double_bit/total")
    if count is not None:
        return count
    kinds = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded", "dram_uncorrectable")
    counts = [count for count in (reader.number("", where + kind) for kind in kinds) if count is not None]
    return sum(counts) if counts else None


def throttle_reasons(element):
    """The current reasons without their prefix; None if the driver does not report them."""
    # clocks_event_reasons since 545. The prefix of display_clocks_setting exists with and without an s.
    parent = element.find("clocks_event_reasons")
    if parent is None:
        parent = element.find("clocks_throttle_reasons")
    if parent is None or not len(parent):
        return None
    reported = [item for item in parent if bare(item.text).lower() in ("active", "not active")]
    if not reported:
        return None
    active = [item.tag for item in reported if bare(item.text).lower() == "active"]
    return sorted(re.sub(r"^clocks_(event|throttle)_reasons?_", "", tag) for tag in active)


def processes(element):
    parent = element.find("processes")
    if parent is None or bare(parent.text):
        return None
    entries = []
    for item in parent.findall("process_info"):
        reader = Reader(item)
        entries.append(
            {
                "pid": reader.number("", "pid"),
                "name": bare(item.findtext("process_name")) or None,
                "type": reader.text("type"),
                "memory_mib": reader.number("MiB", "used_memory"),
            }
        )
    return entries


def fabric(element):
    """A GPU's registration with the NVLink fabric; None if it has none. Its bad values are words such as `Insufficient Resources`."""
    parent = element.find("fabric")
    values = dict((name, bare(parent.findtext(tag))) for name, tag in FABRIC) if parent is not None else {}
    values = dict((name, None if value.lower() in ABSENT else value) for name, value in values.items())
    return values if values.get("state") else None


def gpu(element):
    """The facts of a <gpu> element from nvidia-smi -q -x."""
    reader = Reader(element)
    remapped = element.find("remapped_rows")
    has_remapped = remapped is not None and len(remapped)
    facts = {
        "bus_id": bus_id(element.get("id")),
        "uuid": reader.text("uuid"),
        "model": reader.text("product_name"),
        "vbios": reader.text("vbios_version"),
        "memory_mib": reader.number("MiB", "fb_memory_usage/total"),
        # What GPU and slot can do together; the current one falls when the GPU is idle.
        "pcie_generation": reader.number("", "pci/pci_gpu_link_info/pcie_gen/max_link_gen"),
        "persistence": reader.switch("persistence_mode"),
        # What the driver asks for: Reset, Reboot, Drain P2P, Drain and Reset. Branches before 560 only know whether a reset is due.
        "recovery": reader.text("gpu_recovery_action") or ("Reset" if reader.switch("gpu_reset_status/reset_required") else None),
        "mig": reader.switch("mig_mode/current_mig"),
        "throttle_reasons": throttle_reasons(element),
        "temperature_c": reader.number("C", "temperature/gpu_temp"),
        "power_limit_w": reader.number(
            "W", "gpu_power_readings/current_power_limit", "power_readings/enforced_power_limit", "power_readings/power_limit"
        ),
        "power_default_limit_w": reader.number("W", "gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
        "ecc": {
            "enabled": reader.switch("ecc_mode/current_ecc"),
            "pending": reader.switch("ecc_mode/pending_ecc"),
            "volatile": {"uncorrected": uncorrected(reader, "volatile")},
            "aggregate": {"uncorrected": uncorrected(reader, "aggregate")},
        },
        "retired_pages": {"pending": reader.switch("retired_pages/pending_retirement", "retired_pages/pending_blacklist")},
        "remapped_rows": {
            "pending": reader.switch("remapped_rows/remapped_row_pending"),
            "failure": reader.switch("remapped_rows/remapped_row_failure"),
        }
        if has_remapped
        else None,
        "processes": processes(element),
        "fabric": fabric(element),
    }
    for name, parent in (("application", "applications_clocks"), ("max", "max_clocks")):
        facts.setdefault("clocks_mhz", {})[name] = {
            "graphics": reader.number("MHz", parent + "/graphics_clock"),
            "memory": reader.number("MHz", parent + "/mem_clock"),
        }
    facts["errors"] = dict((path, value[:200]) for path, value in reader.errors.items())
    return facts


def read_xml(output):
    """{driver, cuda, gpus} from nvidia-smi -q -x; None if it is not such a document."""
    match = re.search(r"(?s)<nvidia_smi_log>.*</nvidia_smi_log>", output)
    if not match:
        return None
    try:
        # Without the XML declaration, because ElementTree in Python 2 would then require bytes.
        document = ElementTree.fromstring(match.group().encode("utf-8"))
    except (ElementTree.ParseError, ValueError):
        return None
    reader = Reader(document)
    return {
        "driver": reader.text("driver_version"),
        "cuda": reader.text("cuda_version"),
        "gpus": [gpu(element) for element in document.findall("gpu")],
    }


def bus_id(value):
    """The name in sysfs, 0000:3b:00.0, for 00000000:3B:00.0; None for anything else."""
    match = re.match(r"(?:[0-9a-f]{4})?([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\Z", (value or "").strip().lower())
    return match.group(1) if match else None


def indices(output):
    """Index by uuid, from nvidia-smi --query-gpu=index,uuid --format=csv,noheader."""
    pairs = (re.match(r"\s*([0-9]{1,4}),\s*(\S+)\s*\Z", line) for line in output.splitlines())
    return dict((match.group(2), int(match.group(1))) for match in pairs if match)


def topology(output):
    """{links} from nvidia-smi topo -m, such as {GPU0: {GPU1: NV2, mlx5_0: NODE}}; None without such a table.

    New drivers underline the head by escapes, separate by tabs and leave a cell empty where nothing is known; reports carry the table
    with blanks.
    """
    lines = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()
    head = next((line for line in lines if re.match(r"\s+GPU\d+\b", line)), None)
    if head is None:
        return None
    devices = re.findall(r"\S+", re.split(r"CPU Affinity|NUMA Affinity|GPU NUMA ID", head)[0])
    links = {}
    for line in lines[lines.index(head) + 1 :]:
        if not re.match(r"\S", line):
            if line.strip():
                break
            continue
        cells = [cell.strip() for cell in line.split("\t")] if "\t" in line else line.split()
        if cells[0] not in devices:
            break
        row = cells[1 : len(devices) + 1]
        if len(row) != len(devices) or not all(LINK.match(cell) for cell in row):
            return None
        links[cells[0]] = dict((name, cell) for name, cell in zip(devices, row) if name != cells[0])
    return {"links": links} if set(links) == set(devices) else None


def xid_errors(output):
    """Errors of GPUs and fatal ones of NVSwitches in the kernel's log as {bus_id, xid, message, count}, each once; the fatal ones of a number that
    also stands for others are apart (`149, NETIR_LINK_EVT Fatal XC0 i0 Link 00`)."""
    errors = {}
    for line in output.splitlines():
        match = XID.search(line)
        if match:
            message = (match.group(3) or "").strip()[:200]
            key = (match.group(1).lower(), int(match.group(2)), bool(re.search(r"\bFatal\b", message)))
            if key[1] < OF_SWITCH or key[2]:
                entry = errors.setdefault(key, {"bus_id": key[0], "xid": key[1], "message": message, "count": 0})
                entry["count"] += 1
    return [errors[key] for key in sorted(errors)]
