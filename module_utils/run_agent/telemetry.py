"""The telemetry of a run's nodes, kept by its supervisor: a file of samples for each node."""

from __future__ import absolute_import, division, print_function

import os
import re
import time

from . import node_sampler
from .owned_file import append, create, discard, size_and_end

READY_S = 10  # how long the first look at the devices may take
LAST_S = 5  # how long the last samples may take to come
LOAD_S = 60  # after so long without a sample, a device may do anything
FREE_S = 5  # how long the driver may take to free a run's memory
FREE_MIB = 100  # less than a process with a context of CUDA has
EVENTS = 1000
CELL = re.compile(r"(0x[0-9A-Fa-f]{1,16}|[0-9]{1,18}(\.[0-9]{1,3})?)?$")
NUMBER = re.compile(r"[0-9]{1,15}(\.[0-9]{1,3})?$")
SHOWN = ("memory_used_mib", "utilization_percent", "temperature_c", "power_w")
LATEST_BYTES = 4096
HEADERS = {
    "telemetry": ["unix_time", "device"] + node_sampler.COLUMNS,
    "processes": ["unix_time", "device", "pid", "uid", "age_s", "memory_used_mib", "run_uid", "run_age_s"],
    "xid": ["unix_time", "bus_id", "xid", "message"],
    "health": ["unix_time", "entity", "system", "health", "message"],
}


class Telemetry(object):
    """Samples each node's CPU, memory, disks, network and GPUs, and its kernel's log, while a command runs.

    The agents of the nodes start the samplers. Missing and unreadable samples are skipped; errors of sampling never leave this class.
    `params` are the module's options, and after `longest` seconds nodes stop their samplers by themselves.
    """

    def __init__(self, params, agents, longest):
        self.directory, self.seconds = params["directory"], params["sample_s"]
        self.hosts = params["sample_hosts"] if self.seconds > 0 else {}
        visible = params["env"].get("CUDA_VISIBLE_DEVICES")
        self.names = dict((host, names_in(visible)) for host in self.hosts)
        self.count, self.has_gpus = params["sample_devices"], params["sample_gpus"]
        self.agents, self.longest = agents, longest
        self.devices = {}
        self.listed = {}
        self.present = {}
        self.sampled = {}
        self.is_over, self.ending = False, None
        self.forget()

    def start(self):
        """Ask the agents that are there for a sampler, unless they have it."""
        for host in self.hosts:
            stream = self.agents.streams.get(host)
            if stream and self.sampled.get(host) is not stream:
                self.sampled[host] = stream
                self.agents.ask(host, "sample,%d,%d,%d" % (self.seconds, self.longest, self.has_gpus))

    def forget(self):
        """Begin anew with what is kept."""
        self.peaks, self.files, self.recorded, self.events = {}, {}, {}, {}
        self.before, self.memory = {}, {}
        self.began, self.last = node_sampler.clock(), {}
        self.busy_at, self.loads = {}, {}
        for name in file_names(self.hosts):
            discard(os.path.join(self.directory, name))

    def samples(self):
        """The hosts that are sampled now. An agent that was lost and is there again samples no more."""
        return set(host for host, stream in self.sampled.items() if self.agents.streams.get(host) is stream)

    def receive(self, host, lines):
        if host in self.sampled:
            try:
                self.take(host, lines)
            except (IOError, OSError):
                self.agents.drop(host)  # a full disk, for example, which the command will report itself

    def take(self, host, lines):
        samples, rested = [], False
        for line in lines:
            kind, _, rest = line.partition(",")
            fields = rest.split(",")
            if kind == "sample" and len(fields) == 3 + len(node_sampler.COLUMNS):
                samples += self.sample(host, fields)
            elif kind == "process" and len(fields) == 8:
                self.listed.setdefault(host, []).append(fields)
            elif kind == "visible":
                self.names[host] = names_in(rest)
            elif kind == "looked":
                self.look(host)
            elif kind == "rested":
                rested = True
            elif kind == "kernel" and ("xid", host) not in self.files and not self.is_over:
                self.open("xid", host)
            elif kind in ("xid", "health") and len(fields) == len(HEADERS[kind]) - 1:
                self.event(kind, host, fields)
        if samples:
            self.keep("telemetry", host, samples)
            self.last[host] = node_sampler.clock()
        if rested:
            self.sampled.pop(host)

    def sample(self, host, fields):
        """The row of a sample, if all of its cells are numbers."""
        moment, device, uuid = fields[:3]
        if not moment or not all(CELL.match(cell) for cell in [moment, device] + fields[3:]):
            return []
        if device:
            self.devices.setdefault(host, {})[uuid] = int(device)
            if self.is_used(host, int(device), uuid):
                self.load(host, uuid, fields[4])
            if self.is_used(host, int(device), uuid) and fields[3].isdigit():
                self.memory[host, uuid] = mib = int(fields[3])
                self.before.setdefault((host, uuid), mib)
                peaks = self.peaks.setdefault(host, {})
                peaks[device] = max(mib, peaks.get(device, 0))
        return [[moment, device] + fields[3:]]

    def load(self, host, uuid, percent):
        """Take the utilization of a used device. One that is not known may be any."""
        self.loads[host] = node_sampler.clock()
        if not NUMBER.match(percent) or float(percent) > 0:
            self.busy_at[host] = self.loads[host]

    def gpu_idle_s(self, host):
        """For how long the run's devices on a host have computed nothing: 0 if that is not seen, and without end if it uses none."""
        if not self.has_gpus:
            return float("inf")
        now = node_sampler.clock()
        if now - self.loads.get(host, self.began) > LOAD_S or host not in self.loads:
            return 0.0
        return now - self.busy_at.get(host, self.began)

    def look(self, host):
        """Take the list of processes on the devices; record each once, when it is first seen."""
        self.present[host] = [fields for fields in self.listed.pop(host, []) if self.device_of(host, fields) is not None]
        recorded = self.recorded.setdefault(host, set())
        for fields in self.present[host]:
            if tuple(fields[:2]) not in recorded and all(CELL.match(cell) for cell in fields[1:7]):
                recorded.add(tuple(fields[:2]))
                self.keep("processes", host, [["%.3f" % time.time(), str(self.device_of(host, fields))] + fields[1:7]])

    def device_of(self, host, fields):
        return self.devices.get(host, {}).get(fields[0])

    def event(self, kind, host, fields):
        """Record an error of the kernel's log, or a report of DCGM, once, and at most 1000 of a node."""
        seen = self.events.setdefault((kind, host), set())
        if kind == "xid" and not (("xid", host) in self.files and CELL.match(fields[1])):
            return
        if tuple(fields) not in seen and len(seen) < EVENTS:
            seen.add(tuple(fields))
            self.keep(kind, host, [["%.3f" % time.time()] + [re.sub(r'[\s",]+', " ", field)[:200] for field in fields]])

    def open(self, kind, host):
        self.files[kind, host] = os.path.join(self.directory, file_name(kind, host))
        os.close(create(self.files[kind, host]))
        self.keep(kind, host, [HEADERS[kind]])

    def keep(self, kind, host, rows):
        if self.is_over:
            return
        if (kind, host) not in self.files:
            self.open(kind, host)
        append(self.files[kind, host], "".join(",".join(row) + "\n" for row in rows).encode("utf-8"))

    def is_used(self, host, index, uuid):
        names = self.names[host]
        if names is None:
            return not self.count or index < self.count
        names = names[: self.count] if self.count else names
        return any(name == str(index) or (name.startswith("GPU-") and uuid.startswith(name)) for name in names)

    def busy(self):
        """Sentences about the processes that are on the run's devices now, before its command is."""
        self.wait()
        result = []
        for host, processes in sorted(self.present.items()):
            for fields in processes:
                device = self.device_of(host, fields)
                if self.is_used(host, device, fields[0]):
                    result.append("%s: %s (%s) of user %s is on GPU %d" % (host, fields[7], fields[1], fields[2], device))
        return result

    def wait(self):
        """Wait for the first look at the devices."""
        deadline = time.time() + READY_S
        while self.has_gpus and self.samples() - set(self.present) and time.time() < deadline:
            self.agents.poll(0.01)

    def again(self):
        """Begin anew, and look at the devices again; `busy` waits for that."""
        self.forget()
        self.look_again()

    def look_again(self):
        self.present = {}
        for host in self.samples():
            self.agents.ask(host, "look")

    def result(self):
        """End all samplers, which take a last sample; return what to add to the state."""
        lost = self.rest()
        peaks = dict((host, devices) for host, devices in self.peaks.items() if devices)
        result = {"gpu_memory_mib": peaks} if any(self.devices.values()) else {}
        if lost:
            result["unsampled_from_s"] = dict((host, round(self.last.get(host, self.began) - self.began, 1)) for host in lost)
        return result

    def end(self):
        """Ask all samplers for a last sample, unless that was done."""
        if self.ending is None:
            self.ending = self.samples()
            for host in self.ending:
                self.agents.ask(host, "rest")

    def rest(self):
        """Wait for the last samples. Returns the hosts whose sampler did not run until now."""
        self.end()
        deadline = time.time() + LAST_S
        while self.samples() and time.time() < deadline:
            self.agents.poll(0.02)
        for host in self.samples():
            self.agents.drop(host)
        lost, self.ending = (set(self.hosts) - self.ending) | set(self.sampled), None
        return lost

    def not_freed(self):
        """Sentences about the run's devices on which, after the clean-up, more memory is in use than before the run. Waits for the driver."""
        self.is_over = True
        self.hosts = dict((host, self.hosts[host]) for host, _ in self.before)
        if not self.hosts:
            return []
        self.memory, self.present = {}, {}
        self.start()
        self.wait()
        deadline = time.time() + FREE_S
        while self.held() and time.time() < deadline:
            time.sleep(0.5)
            self.look_again()
            self.wait()
        self.rest()
        return self.held()

    def held(self):
        sentences = []
        for (host, uuid), mib in sorted(self.memory.items()):
            more = mib - self.before.get((host, uuid), mib)
            users = [fields for fields in self.present.get(host, ()) if fields[0] == uuid]
            # Another user's process is none of the run.
            if more > FREE_MIB and not any(fields[2] != fields[5] for fields in users):
                by = ", ".join("%s (%s)" % (fields[7], fields[1]) for fields in users) or "no process that is visible there"
                device = self.devices[host][uuid]
                sentences.append("%s: %d MiB of GPU %d are in use, %d more than before the run, by %s" % (host, mib, device, more, by))
        return sentences


def names_in(visible):
    """The devices in CUDA_VISIBLE_DEVICES, by number or UUID; None if it is not set."""
    return None if visible is None else [name.strip() for name in str(visible).split(",") if name.strip()]


def file_name(kind, host):
    return "%s-%s.csv" % (kind, re.sub(r"[^A-Za-z0-9._-]", "_", host))


def file_names(hosts):
    """The names of all files of samples of these hosts."""
    return sorted(file_name(kind, host) for kind in HEADERS for host in hosts)


def latest(params):
    """The last sample of each device while a run goes on: host, index, and the columns in SHOWN."""
    columns, result = HEADERS["telemetry"], {}
    for host in params["sample_hosts"] if params["sample_s"] > 0 and params["sample_gpus"] else ():
        end = size_and_end(os.path.join(params["directory"], file_name("telemetry", host)), LATEST_BYTES)[1]
        for line in end.decode("utf-8", "replace").splitlines()[1:]:
            cells = dict(zip(columns, line.split(",")))
            if cells.get("device", "").isdigit() and len(cells) == len(columns):
                device = {"host": host, "device": int(cells["device"])}
                device.update((name, float(cells[name]) if NUMBER.match(cells[name]) else None) for name in SHOWN)
                result[host, device["device"]] = device
    return [result[key] for key in sorted(result)]
