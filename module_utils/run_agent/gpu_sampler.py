"""The GPUs of a node, by the driver's library NVML, whose functions nvidia-ml-py calls, too; without it by what AMD's driver has in sysfs, or
else by nvidia-smi.

`sample` yields the index, the UUID and the known columns of each device, `processes` the UUID, process ID and MiB of each process on one,
and `errors` the bus ID and the number of new Xid errors; it is None if the driver does not tell them.
`Health` is what DCGM says of them, where it is.
"""

from __future__ import absolute_import, division, print_function

import glob
import io
import json
import os
import re
import struct

from .node_sampler import content, number, scaled

# What nvidia-smi is asked, by column. If the driver does not know one of the fields, only the memory is.
MEMORY = (("index", None), ("uuid", None), ("memory.used", "memory_used_mib"))
FIELDS = MEMORY + (
    ("utilization.gpu", "utilization_percent"),
    ("clocks.sm", "sm_clock_mhz"),
    ("clocks.max.sm", "max_sm_clock_mhz"),
    ("temperature.gpu", "temperature_c"),
    ("power.draw", "power_w"),
    ("clocks_throttle_reasons.active", "throttle_reasons"),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected"),
)
CELL = re.compile(r"(0x[0-9A-Fa-f]+|[0-9]+(\.[0-9]+)?)$")
LINKS = 18  # NVML_NVLINK_MAX_LINKS
GROUP = "dlperf"
XID_EVENT = 8  # nvmlEventTypeXidCriticalError
# Of the versions of gpu_metrics that MI300 and later have: where its counters begin (kgd_pp_interface.h of Linux 6.17). Version 1.9 is another form.
METRICS = {(1, 6): 16, (1, 7): 24, (1, 8): 24}
# PROCHOT, power (PPT), and the temperature of the socket, the voltage regulators and HBM, as NVML's reasons.
VIOLATIONS = (0x40, 0x4, 0x20, 0x20, 0x20)
LEAST_SHARE = 0.05  # of the time since the last sample
EVERY_S = 60  # DCGM judges most counters by their last minute
DCGMI_S = 10


def gpus(output, root=""):
    """`output` executes a program and returns its lines, or None if it fails. `root` is a folder in tests."""
    try:
        reader = Nvml()
    except (ImportError, OSError, AttributeError):
        reader = Amd(root)
        reader = reader if reader.devices else Smi(output)
    reader.health = Health(output)
    return reader


class Nvml(object):
    """The devices by NVML, as in nvml.h. Raises an error if there is no such library, or no driver."""

    def __init__(self):
        import ctypes

        def structure(*fields):
            return type("Structure", (ctypes.Structure,), {"_fields_": fields})

        self.types = ctypes
        self.uint, self.ulong = ctypes.c_uint, ctypes.c_ulonglong
        sizes = [(name, self.ulong) for name in ("total", "free", "used")]
        self.memory = structure(*sizes)
        self.memory2 = structure(("version", self.uint), sizes[0], ("reserved", self.ulong), *sizes[1:])
        self.utilization = structure(("gpu", self.uint), ("memory", self.uint))
        process = [("pid", self.uint), ("used", self.ulong)]
        self.process = structure(*process)
        names = ("domain", "bus", "device", "device_id", "subsystem_id")
        self.pci = structure(("legacy", ctypes.c_char * 16), *([(name, self.uint) for name in names] + [("id", ctypes.c_char * 32)]))
        ids = [("instance", self.uint), ("compute_instance", self.uint)]
        self.process2 = structure(*(process + ids))
        self.event = structure(*([("device", ctypes.c_void_p), ("kind", self.ulong), ("xid", self.ulong)] + ids))
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        if self.library.nvmlInit_v2():
            raise OSError("no driver")
        self.devices = []
        for index in range(self.read("nvmlDeviceGetCount_v2", self.uint) or 0):
            handle, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            if self.library.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle)):
                continue
            if self.library.nvmlDeviceGetUUID(handle, uuid, 96) == 0:
                most = self.read("nvmlDeviceGetMaxClockInfo", self.uint, handle, 1)
                links = [n for n in range(LINKS) if self.read("nvmlDeviceGetNvLinkState", self.uint, handle, n) == 1]
                self.devices.append((index, uuid.value.decode("ascii", "replace"), handle, most, links))
        self.next_event = getattr(self.library, "nvmlEventSetWait_v2", None)
        self.events = self.next_event and self.types.c_void_p(self.read("nvmlEventSetCreate", ctypes.c_void_p))
        self.buses = dict((handle.value, self.bus(handle)) for _, _, handle, _, _ in self.devices if self.registers(handle))
        if not self.buses:
            self.errors = None

    def bus(self, handle):
        """The bus ID as the kernel's log has it: 0000:3b:00."""
        pci = self.read("nvmlDeviceGetPciInfo_v3", self.pci, handle)
        return "" if pci is None else "%04x:%02x:%02x" % (pci.domain, pci.bus, pci.device)

    def registers(self, handle):
        return bool(self.events) and self.library.nvmlDeviceRegisterEvents(handle, self.ulong(XID_EVENT), self.events) == 0

    def errors(self):
        event = self.event()
        for _ in range(100):
            if self.next_event(self.events, self.types.byref(event), 0):
                return  # there are no more
            yield self.buses.get(event.device, ""), event.xid

    def read(self, name, kind, *arguments):
        """The value that a function stores at its last argument; None if it fails, or if the driver does not have it."""
        result = kind()
        try:
            function = getattr(self.library, name)
        except AttributeError:
            return None
        if function(*(arguments + (self.types.byref(result),))):
            return None
        return result.value if hasattr(result, "value") else result

    def used_mib(self, handle):
        # The second version leaves out what the driver reserves, as nvidia-smi does.
        memory = self.memory2(version=self.types.sizeof(self.memory2) | 2 << 24)
        function = getattr(self.library, "nvmlDeviceGetMemoryInfo_v2", None)
        if function is None or function(handle, self.types.byref(memory)):
            memory = self.read("nvmlDeviceGetMemoryInfo", self.memory, handle)
        return None if memory is None else int(memory.used) >> 20

    def sample(self, seldom):
        for index, uuid, handle, most, links in self.devices:
            busy = self.read("nvmlDeviceGetUtilizationRates", self.utilization, handle)
            reasons = self.read("nvmlDeviceGetCurrentClocksThrottleReasons", self.ulong, handle)
            replays = [self.read("nvmlDeviceGetNvLinkErrorCounter", self.ulong, handle, link, 0) for link in links if seldom]
            yield (
                index,
                uuid,
                {
                    "memory_used_mib": self.used_mib(handle),
                    "utilization_percent": None if busy is None else busy.gpu,
                    "sm_clock_mhz": self.read("nvmlDeviceGetClockInfo", self.uint, handle, 1),
                    "max_sm_clock_mhz": most,
                    "memory_clock_mhz": self.read("nvmlDeviceGetClockInfo", self.uint, handle, 2),
                    "temperature_c": self.read("nvmlDeviceGetTemperature", self.uint, handle, 0),
                    "power_w": scaled(self.read("nvmlDeviceGetPowerUsage", self.uint, handle), 1e3),
                    "energy_j": scaled(self.read("nvmlDeviceGetTotalEnergyConsumption", self.ulong, handle), 1e3),
                    "throttle_reasons": None if reasons is None else "0x%016x" % reasons,
                    "ecc_uncorrected": self.read("nvmlDeviceGetTotalEccErrors", self.ulong, handle, 1, 0),
                    "ecc_corrected": self.read("nvmlDeviceGetTotalEccErrors", self.ulong, handle, 0, 0),
                    "pcie_replays": self.read("nvmlDeviceGetPcieReplayCounter", self.uint, handle),
                    "nvlink_replays": sum(replays) if replays and None not in replays else None,
                },
            )

    def processes(self):
        """(UUID, process id, MiB) of each compute process."""
        for version, kind in (("_v3", self.process2), ("_v2", self.process2), ("", self.process)):
            function = getattr(self.library, "nvmlDeviceGetComputeRunningProcesses" + version, None)
            if function is not None:
                break
        for _, uuid, handle, _, _ in self.devices:
            count, buffer = self.uint(256), (kind * 256)()
            if function(handle, self.types.byref(count), buffer) == 0:
                for process in buffer[: count.value]:
                    # All bits are set if it is unknown.
                    yield uuid, process.pid, "" if process.used + 1 >= 1 << 64 else int(process.used) >> 20


class Amd(object):
    """The devices by sysfs, as the kernel's driver amdgpu describes them (Documentation/gpu/amdgpu/thermal.rst, driver-misc.rst)."""

    errors = None

    def __init__(self, root):
        folders = [os.path.dirname(path) for path in glob.glob(root + "/sys/class/drm/card*/device/mem_info_vram_total")]
        addresses = dict((os.path.realpath(folder), folder) for folder in folders if content(folder + "/vendor").strip() == "0x1002")
        self.devices, self.kfd, self.violations = [], root + "/sys/class/kfd/kfd/", {}
        # ROCm counts the devices by their addresses on the bus, which are the ends of these paths.
        for index, real in enumerate(sorted(addresses)):
            monitors = sorted(glob.glob(addresses[real] + "/hwmon/hwmon*"))
            self.devices.append(
                (index, "GPU-" + (content(real + "/unique_id").strip() or os.path.basename(real)), real, (monitors or [real + "/hwmon"])[0])
            )

    def sample(self, seldom):
        for index, uuid, device, monitor in self.devices:
            clocks = [int(clock) for clock in re.findall(r"(\d+)Mhz", content(device + "/pp_dpm_sclk"))]
            # ue: 0, ce: 3
            ecc = dict(re.findall(r"(ue|ce): (\d+)", content(device + "/ras/umc_err_count")))
            power = [scaled(number(monitor + "/power1_" + name), 1e6) for name in ("average", "input")]
            energy, reasons = self.metrics(device)
            yield (
                index,
                uuid,
                {
                    "memory_used_mib": whole(scaled(number(device + "/mem_info_vram_used"), 1 << 20)),
                    "utilization_percent": whole(scaled(number(device + "/gpu_busy_percent"), 1)),
                    "sm_clock_mhz": whole(scaled(number(monitor + "/freq1_input"), 1e6)),
                    "max_sm_clock_mhz": max(clocks) if clocks else None,
                    "memory_clock_mhz": whole(scaled(number(monitor + "/freq2_input"), 1e6)),
                    "temperature_c": whole(scaled(number(junction(monitor)), 1e3)),
                    "power_w": next((value for value in power if value is not None), None),
                    "energy_j": energy,
                    "throttle_reasons": reasons,
                    "ecc_uncorrected": ecc.get("ue"),
                    "ecc_corrected": ecc.get("ce"),
                    "pcie_replays": whole(scaled(number(device + "/pcie_replay_count"), 1)),
                },
            )

    def metrics(self, device):
        """The energy in J, and what has slowed the device down since the last sample; None if unknown."""
        try:
            with io.open(device + "/gpu_metrics", "rb") as stream:
                table = stream.read()
            counters = struct.unpack_from("<QQI5I", table, METRICS[struct.unpack_from("<BB", table, 2)])
        except (IOError, OSError, KeyError, struct.error):
            return None, None
        before, self.violations[device] = self.violations.get(device), counters[2:]
        energy, reasons = counters[0] / 65536.0, 0
        if before is None:
            return energy, None
        past = [(now - last) % (1 << 32) for now, last in zip(counters[2:], before)]
        for bit, count in zip(VIOLATIONS, past[1:]):
            reasons |= bit if count > LEAST_SHARE * past[0] else 0
        return energy, "0x%016x" % reasons

    def processes(self):
        """(UUID, process id, MiB) of each process that the driver's part for computing knows."""
        identities = {}
        for node in glob.glob(self.kfd + "topology/nodes/*"):
            unique = re.search(r"(?m)^unique_id (\d+)$", content(node + "/properties"))
            if unique:
                identities[content(node + "/gpu_id").strip()] = "GPU-%016x" % int(unique.group(1))
        for path in glob.glob(self.kfd + "proc/*/vram_*"):
            pid, used = os.path.basename(os.path.dirname(path)), whole(scaled(number(path), 1 << 20))
            uuid = identities.get(path.rpartition("_")[2])
            if uuid and used and pid.isdigit():
                yield uuid, int(pid), used


def whole(value):
    return None if value is None else int(value)


def junction(monitor):
    """The file with the temperature of the hottest place of a device, or with its only one."""
    labels = [path for path in glob.glob(monitor + "/temp*_label") if content(path).strip() == "junction"]
    return (labels or [monitor + "/temp1_label"])[0].replace("_label", "_input")


class Smi(object):
    """The devices by nvidia-smi."""

    errors = None

    def __init__(self, output):
        self.output = output
        self.fields = FIELDS  # none if there is no nvidia-smi, or it fails

    def query(self):
        return self.ask("--query-gpu=" + ",".join(field for field, _ in self.fields))

    def ask(self, query):
        return self.output(["nvidia-smi", query, "--format=csv,noheader,nounits"]) if self.fields else None

    def sample(self, seldom):
        lines = self.query()
        if lines is None:
            self.fields = MEMORY if self.fields == FIELDS else ()
            lines = self.query()
        if lines is None:
            self.fields = ()
        for line in lines or ():
            # 0, GPU-5f3c, 12565, 97, 1380, 1530, 61, 287.51, 0x0000000000000004, 0. What a device does not tell is [N/A].
            values = [value.strip() for value in line.split(",")]
            if len(values) in (len(MEMORY), len(self.fields)) and re.match(r"[0-9]+$", values[0]) and re.match(r"[0-9]+$", values[2]):
                cells = dict((column, value) for (_, column), value in zip(self.fields, values) if CELL.match(value))
                yield int(values[0]), values[1], cells

    def processes(self):
        for line in self.ask("--query-compute-apps=gpu_uuid,pid,used_memory") or ():
            values = [value.strip() for value in line.split(",")]
            if len(values) == 3 and values[1].isdigit():
                yield values[0], int(values[1]), values[2] if values[2].isdigit() else ""


class Health(object):
    """The reports of DCGM's health watches on all GPUs of the node.

    The watches belong to a group of their own, so that those of others stay as they are. A group that an earlier run could not remove is used.
    Source: NVIDIA/DCGM 72fa3fe, dcgmi/Health.cpp, Group.cpp and DcgmiOutput.cpp.
    """

    def __init__(self, output):
        self.output = output
        self.group = None  # not asked for yet; empty without DCGM
        self.due, self.reported = 0, set()

    def set(self):
        self.group = ""
        groups = self.dcgmi("group", "--list", "--json")
        named = children(document(groups).get("Groups")).items()
        numbers = [number for number, group in named if children(group).get("Group Name", {}).get("value") == GROUP]
        if groups and not numbers:
            # Successfully created group "dlperf" with a group ID of 2
            numbers = re.findall(r"group ID of ([0-9]+)", self.dcgmi("group", "--create", GROUP, "--default"))
        if numbers and "successfully" in self.dcgmi("health", "--group", numbers[0], "--set", "a"):
            self.group = numbers[0]

    def reports(self, now, is_last):
        """Entity, system, health and message of what was not reported before; the first two are empty for the state of all together."""
        if not self.group or not (is_last or now >= self.due):
            return
        self.due = now + EVERY_S
        body = document(self.dcgmi("health", "--group", self.group, "--check", "--json"))
        current = set([("", "", body["Overall Health"]["value"], "")] if "Overall Health" in body else [])
        for kind in body:
            for name, entity in children(body[kind]).items():
                for system, errors in children(children(entity).get("Errors")).items():
                    current.add(("%s %s" % (kind, name), system, errors["value"], " ".join(errors.get("overflow", ()))))
        for report in sorted(current):
            # Its message may have a count, which grows.
            if report[:3] not in self.reported:
                self.reported.add(report[:3])
                yield report
        if is_last:
            self.dcgmi("group", "--delete", self.group)

    def dcgmi(self, *options):
        return "\n".join(self.output(["dcgmi"] + list(options), DCGMI_S) or ())


def document(text):
    """The body of what dcgmi prints as JSON; empty if it prints something else."""
    try:
        body = json.loads(text[text.index("{") :])["body"]
        return body if isinstance(body, dict) else {}
    except (ValueError, KeyError, TypeError):
        return {}


def children(node):
    return (node or {}).get("children") or {}
