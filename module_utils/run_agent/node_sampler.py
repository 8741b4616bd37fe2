"""The program that samples a node. It prints lines until its standard input ends, then a last sample.

It is executed on each node of a run from its source (see telemetry.py) by Python 2.7 or 3.5 and newer, and needs no package: it reads
/proc and /sys itself, as psutil would. gpu_sampler.py reads the GPUs. Its lines:

    sample,UNIX_TIME,DEVICE,UUID,...    a device, or the whole node if DEVICE is empty; then COLUMNS
    process,UUID,PID,UID,AGE_S,MIB,RUN_UID,RUN_AGE_S,COMMAND
    looked                              all processes on the devices have been listed
    kernel                              GPU errors are known, from the kernel's log or, if it cannot be read, from the driver's library
    xid,BUS_ID,NUMBER,MESSAGE           a new one
    health,ENTITY,SYSTEM,HEALTH,MESSAGE what DCGM newly reports of the GPUs; of all together if ENTITY is empty

A byte on standard input asks for a sample at once.
"""

from __future__ import absolute_import, division, print_function

import os
import re
import resource
import select
import subprocess
import time

SHARE = 0.005  # of one core: the most that this program and its children may use, after their start
LOOKS = 5  # processes, links and the kernel's log are read with every so many samples
LAST_S = 2  # how long nvidia-smi and dcgmi may take at the end
MIB = float(1 << 20)
# Counters grow since the node's or the driver's start. Those of devices, then those of the node; both have the first, and `energy_j`.
COLUMNS = (
    "memory_used_mib utilization_percent sm_clock_mhz max_sm_clock_mhz temperature_c power_w throttle_reasons ecc_uncorrected"
    " ecc_corrected memory_clock_mhz energy_j pcie_replays nvlink_replays"
    " cpu_busy_s cpu_throttled_s load_1m swap_used_mib disk_read_mib disk_written_mib network_received_mib network_sent_mib"
    " ib_received_mib ib_sent_mib ib_errors telemetry_cpu_s"
).split()
# 4,1234,93207000,-;NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): (\d+),? ?(.*)")


class Ended(Exception):
    """The run has ended."""


def content(path):
    """The bytes of a file as text; empty if it cannot be read."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return ""
    try:
        pieces = []
        while True:
            piece = os.read(descriptor, 65536)
            if not piece:
                return b"".join(pieces).decode("utf-8", "replace")
            pieces.append(piece)
    except OSError:
        return ""
    finally:
        os.close(descriptor)


def number(path):
    text = content(path).strip()
    return int(text) if text.isdigit() else None


def names(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def total(values):
    """Their sum; None if none of them is known."""
    given = [value for value in values if value is not None]
    return sum(given) if given else None


def scaled(value, unit):
    return None if value is None else value / unit


class Node(object):
    """CPU, memory, disks, network, InfiniBand and RAPL's energy, from /proc and /sys below `root`."""

    def __init__(self, root):
        self.root = root
        self.hertz = float(os.sysconf("SC_CLK_TCK"))
        sys = root + "/sys/"
        # Whole disks with hardware of their own, and likewise interfaces; in a container there may be none but virtual ones.
        self.disks = set(name for name in names(sys + "block") if os.path.exists(sys + "block/%s/device" % name))
        cards = set(name for name in names(sys + "class/net") if os.path.exists(sys + "class/net/%s/device" % name))
        self.interfaces = cards or set(names(sys + "class/net")) - {"lo"}
        ports = [sys + "class/infiniband/%s/ports" % name for name in names(sys + "class/infiniband")]
        self.ports = [os.path.join(folder, name, "counters", "") for folder in ports for name in names(folder)]
        self.zones = [zone for zone in (sys + "class/powercap/%s/" % n for n in names(sys + "class/powercap")) if is_counted(zone)]
        self.energies = {}
        packages = {}
        for name in names(sys + "devices/system/cpu"):
            folder = sys + "devices/system/cpu/%s/" % name
            if re.match(r"cpu[0-9]+$", name) and os.path.exists(folder + "thermal_throttle/package_throttle_total_time_ms"):
                packages.setdefault(content(folder + "topology/physical_package_id"), folder)
        self.packages = list(packages.values())

    def sample(self):
        proc = self.root + "/proc/"
        memory = dict(re.findall(r"(?m)^(\w+): +(\d+) kB", content(proc + "meminfo")))
        ticks = [int(text) for text in content(proc + "stat").split("\n", 1)[0].split()[1:8]]
        load = content(proc + "loadavg").split(" ")[0]
        disks = [line.split() for line in content(proc + "diskstats").splitlines()]
        disks = [fields for fields in disks if len(fields) > 9 and fields[2] in self.disks]
        links = [line.partition(":") for line in content(proc + "net/dev").splitlines()]
        links = [rest.split() for name, _, rest in links if name.strip() in self.interfaces]
        throttled = [number(folder + "thermal_throttle/package_throttle_total_time_ms") for folder in self.packages]
        throttled = [value for value in throttled if value is not None]
        return {
            "memory_used_mib": used(memory, "MemTotal", "MemAvailable"),
            "swap_used_mib": used(memory, "SwapTotal", "SwapFree"),
            # All but idle and iowait; the sixth and seventh are interrupts.
            "cpu_busy_s": (sum(ticks) - ticks[3] - ticks[4]) / self.hertz if len(ticks) == 7 else None,
            "cpu_throttled_s": max(throttled) / 1e3 if throttled else None,
            "load_1m": float(load) if re.match(r"[0-9]+[.][0-9]+$", load) else None,
            "disk_read_mib": scaled(total(int(fields[5]) for fields in disks), MIB / 512),
            "disk_written_mib": scaled(total(int(fields[9]) for fields in disks), MIB / 512),
            "network_received_mib": scaled(total(int(fields[0]) for fields in links), MIB),
            "network_sent_mib": scaled(total(int(fields[8]) for fields in links), MIB),
            # In words of 4 bytes.
            "ib_received_mib": scaled(total(number(port + "port_rcv_data") for port in self.ports), MIB / 4),
            "ib_sent_mib": scaled(total(number(port + "port_xmit_data") for port in self.ports), MIB / 4),
            "ib_errors": total(number(port + name) for port in self.ports for name in ("port_rcv_errors", "symbol_error", "link_downed")),
            "energy_j": self.energy(),
            "telemetry_cpu_s": cpu_seconds(),
        }

    def energy(self):
        """Joules of all CPU packages and their memory since the first sample; None if one of them cannot be read."""
        joules = 0
        for zone in self.zones:
            now, range_uj = number(zone + "energy_uj"), number(zone + "max_energy_range_uj")
            if now is None:
                return None
            before, sum_uj = self.energies.get(zone, (now, 0))
            step = now - before if now >= before else now - before + (range_uj or 0)
            self.energies[zone] = (now, sum_uj + max(step, 0))
            joules += self.energies[zone][1] / 1e6
        return joules if self.zones else None


def is_counted(zone):
    """True if a RAPL zone is a CPU package or its memory, which is no part of the package."""
    return re.match(r"package-\d+$|dram$", content(zone + "name").strip()) is not None


def used(memory, whole, free):
    return (int(memory[whole]) - int(memory[free])) / 1024 if whole in memory and free in memory else None


class Program(object):
    """The loop. `gpus` makes what reads the devices, and is None for runs without; `root` is a folder in tests."""

    def __init__(self, seconds, longest, gpus, root):
        self.seconds, self.longest, self.root = seconds, longest, root
        self.began = clock()
        self.is_over, self.asked = False, 0
        self.node = Node(root)
        self.gpus = gpus and gpus(self.output, root)
        self.log = None
        if gpus:
            try:
                self.log = os.open(root + "/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
                os.lseek(self.log, 0, os.SEEK_END)  # earlier errors are not of this run
            except OSError:
                pass

    def run(self):
        count, due, base = 0, clock(), None
        while True:
            write_lines(self.sample(count))
            is_last = self.is_over or clock() - self.began > self.longest
            if base and self.gpus and not is_last and self.gpus.health.group is None:
                before = cpu_seconds()
                self.gpus.health.set()
                base = (base[0], base[1] + cpu_seconds() - before)
            write_lines(self.reports(is_last))
            now, spent = clock(), cpu_seconds()
            if is_last:
                return
            # The program's start is not counted, because nothing is measured yet.
            base = base or (now, spent)
            due = max(due + self.seconds, now, base[0] + (spent - base[1]) / SHARE)
            count = 0 if self.is_asked(due - now) else count + 1
            due = min(due, clock())

    def is_asked(self, seconds):
        """Wait; whether a byte or the end has come on standard input since the last call."""
        if select.select([0], [], [], 0 if self.asked else max(seconds, 0))[0]:
            self.hear()
        asked, self.asked = self.asked, 0
        return self.is_over or asked > 0

    def hear(self):
        self.is_over = not os.read(0, 1)
        self.asked += 1

    def sample(self, count):
        seldom = count % LOOKS == 0
        now = "%.3f" % time.time()
        if seldom:
            for line in self.errors():
                yield line
        for index, uuid, cells in self.gpus.sample(seldom) if self.gpus else ():
            yield line_of(now, str(index), uuid, cells)
        if seldom:
            for uuid, pid, mib in self.gpus.processes() if self.gpus else ():
                owner = self.owner(pid)
                if owner:
                    answer = (uuid, pid, owner[0], owner[1], mib, os.getuid(), int(clock() - self.began), owner[2])
                    yield "process," + ",".join(str(part) for part in answer)
            yield "looked"
        yield line_of(now, "", "", self.node.sample())

    def reports(self, is_last):
        for report in self.gpus.health.reports(clock(), is_last) if self.gpus else ():
            yield "health," + ",".join(plain(part) for part in report)

    def owner(self, pid):
        """User, age in seconds and name of a process; None if it is not visible from here."""
        folder = "%s/proc/%d" % (self.root, pid)
        # 4711 (python) S 1 ...; the 20th field after the name is the start in ticks since the node's.
        head, _, rest = content(folder + "/stat").rpartition(")")
        uptime = content(self.root + "/proc/uptime").split(" ")[0]
        try:
            age = float(uptime) - int(rest.split()[19]) / self.node.hertz
            return os.stat(folder).st_uid, int(max(age, 0)), plain(head.partition("(")[2])
        except (IndexError, OSError, ValueError):
            return None

    def errors(self):
        if self.log is None:
            if self.gpus and self.gpus.errors:
                yield "kernel"
                for bus, xid in self.gpus.errors():
                    yield "xid,%s,%d,reported by NVML" % (bus, xid)
            return
        yield "kernel"
        for _ in range(1000):
            try:
                record = os.read(self.log, 8192)
            except OSError:
                return  # no more; or overwritten, and the next read returns what is left
            if not record:
                return
            for match in XID.finditer(record.decode("utf-8", "replace")):
                yield "xid,%s,%s,%s" % (match.group(1), match.group(2), plain(match.group(3)))

    def output(self, argv, seconds=None):
        """The lines of a program; None if it fails or takes more than `seconds`. If the run ends meanwhile, it has LAST_S to answer."""
        with open(os.devnull, "r+b") as nothing:
            try:
                child = subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=nothing, close_fds=True)
            except OSError:
                return None
        pieces, is_short, deadline = [], False, None if seconds is None else clock() + seconds
        while True:
            if self.is_over and not is_short:
                is_short, deadline = True, clock() + LAST_S
            watched = [child.stdout] if self.is_over else [child.stdout, 0]
            ready = select.select(watched, [], [], None if deadline is None else max(deadline - clock(), 0))[0]
            if not ready:
                child.kill()
                if self.is_over:
                    raise Ended
                return None
            if 0 in ready:
                self.hear()
            if child.stdout in ready:
                pieces.append(os.read(child.stdout.fileno(), 65536))
                if not pieces[-1]:
                    break
        child.stdout.close()
        return b"".join(pieces).decode("utf-8", "replace").splitlines() if child.wait() == 0 else None


def plain(text):
    """A text that is one cell of a CSV file."""
    return re.sub(r'[\s",\x00-\x1f]+', " ", text).strip()[:200]


def line_of(now, device, uuid, cells):
    return ",".join(["sample", now, device, uuid] + [shown(cells.get(column)) for column in COLUMNS])


def shown(value):
    if value is None:
        return ""
    return "%.3f" % value if isinstance(value, float) else str(value)


def clock():
    """Seconds of a clock that nobody sets."""
    return os.times()[4]


def cpu_seconds():
    """CPU time of this program and the programs that it has executed."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def write_lines(lines):
    data = "".join(line + "\n" for line in lines).encode("utf-8")
    while data:
        data = data[os.write(1, data) :]


def main(seconds, longest, gpus=None, root=""):
    os.nice(10)
    try:
        Program(seconds, longest, gpus, root).run()
    except Ended:
        pass
