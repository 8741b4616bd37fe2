# -*- coding: utf-8 -*-
"""For benchmark_job: samples of GPUs while a command runs, of their processes and of the kernel's messages."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import fcntl
import os
import re
import signal
import subprocess
import time

from ansible.module_utils.owned_file import append, create

QUERY = "nvidia-smi --query-gpu=%s --format=csv,noheader,nounits"
MEMORY = "index,uuid,memory.used"
# Further fields and their columns. If the driver does not know one of them, only the memory is queried.
MORE = (
    ("utilization.gpu", "utilization_percent"),
    ("clocks.sm", "sm_clock_mhz"),
    ("clocks.max.sm", "max_sm_clock_mhz"),
    ("temperature.gpu", "temperature_c"),
    ("power.draw", "power_w"),
    ("clocks_throttle_reasons.active", "throttle_reasons"),
    ("ecc.errors.uncorrected.volatile.total", "ecc_uncorrected"),
)
ALL = ",".join([MEMORY] + [field for field, _ in MORE])
# Every few samples: lines `process, GPU-5f3c, 4711, 12565, 1000 35 1000 36`, with owner and age (s) of the process, this user, and the age of
# this loop, which starts with the run; then the kernel's lines about GPU errors and a line `kernel`, if this user may read the kernel's log.
# No single quotes, because ssh's command puts the whole text between single quotes.
SELDOM = (
    "nvidia-smi --query-compute-apps=gpu_uuid,pid,used_memory --format=csv,noheader,nounits 2>/dev/null"
    ' | while IFS=", " read -r gpu pid used; do'
    ' echo "process, $gpu, $pid, $used, $(ps -o uid= -o etimes= -p "$pid" 2>/dev/null) $(id -u) $(ps -o etimes= -p $$)"; done;'
    ' { dmesg 2>/dev/null && echo kernel; } | grep -e "NVRM: Xid" -e "^kernel$"'
)
LOOKS = 5
# [   93.207] NVRM: Xid (PCI:0000:3b:00): 79, pid=4711, GPU has fallen off the bus.
XID = re.compile(r"NVRM: Xid \((?:PCI:)?([0-9A-Fa-f:.]+)[^)]*\): (\d+),? ?(.*)")
HEADERS = {
    "telemetry": ["unix_time", "device", "memory_used_mib"] + [column for _, column in MORE],
    "processes": ["unix_time", "device", "pid", "uid", "age_s", "memory_used_mib", "run_uid", "run_age_s"],
    "xid": ["unix_time", "bus_id", "xid", "message"],
}


class Sampler(object):
    """Samples each host's GPUs with nvidia-smi, and its kernel's log, while a command runs.

    Starts one child per host, on another node through ssh, as mpirun does. Missing and unreadable
    samples are skipped; sampling errors never leave this class. `params` are the module's options,
    `environment` has the PATH of ssh and nvidia-smi, and after `longest` seconds other nodes stop
    their children by themselves.
    """

    def __init__(self, params, environment, longest):
        self.directory, self.seconds = params["directory"], params["sample_s"]
        self.hosts = params["sample_hosts"] if self.seconds > 0 else {}
        visible = params["env"].get("CUDA_VISIBLE_DEVICES")
        self.names = None if visible is None else [n.strip() for n in str(visible).split(",") if n.strip()]
        self.count = params["sample_devices"]
        self.environment, self.longest = environment, longest
        self.streams = {}
        self.peaks = {}
        self.files = {}
        self.devices = {}
        self.processes = {}
        self.kernel = {}

    def start(self):
        # A shell loop: each finished nvidia-smi has printed complete lines, and the loop ends with the
        # first one that fails, as it does when nobody reads its output.
        look = "%s || %s" % (QUERY % ALL, QUERY % MEMORY)
        seldom = 'if [ "$n" = 0 ]; then %s; fi; n=$(((n + 1) %% %d))' % (SELDOM, LOOKS)
        loop = "n=0; while %s; do %s; sleep %d; done" % (look, seldom, self.seconds)
        for host, address in self.hosts.items():
            argv = ["sh", "-c", loop]
            if address:
                remote = "timeout %d sh -c '%s'" % (self.longest, loop)
                argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", address, remote]
            try:
                with open(os.devnull, "r+b") as nothing:
                    child = subprocess.Popen(
                        argv,
                        stdin=nothing,
                        stdout=subprocess.PIPE,
                        stderr=nothing,
                        env=self.environment,
                        preexec_fn=alone,
                        close_fds=True,
                    )
                descriptor = child.stdout.fileno()
                fcntl.fcntl(descriptor, fcntl.F_SETFL, fcntl.fcntl(descriptor, fcntl.F_GETFL) | os.O_NONBLOCK)
                self.streams[host] = [child, b""]
            except (IOError, OSError):
                continue

    def poll(self):
        for host, stream in list(self.streams.items()):
            try:
                piece = os.read(stream[0].stdout.fileno(), 65536)
            except (IOError, OSError) as error:
                if error.errno in (errno.EAGAIN, errno.EINTR):
                    continue
                piece = b""
            lines = (stream[1] + piece).split(b"\n")
            stream[1] = lines.pop()[-1024:]
            try:
                self.take(host, [line.decode("utf-8", "replace") for line in lines])
            except (IOError, OSError):
                piece = b""  # a full disk, for example, which the command will report itself
            if not piece:
                self.end(host)

    def take(self, host, lines):
        now = "%.3f" % time.time()
        for line in lines:
            fields = sample(line)
            if fields:
                index, uuid, used, more = fields
                self.devices.setdefault(host, {})[uuid] = index
                self.keep("telemetry", host, [now, str(index), str(used)] + more)
                if self.is_used(index, uuid):
                    peaks = self.peaks.setdefault(host, {})
                    peaks[str(index)] = max(used, peaks.get(str(index), 0))
            elif line.startswith("process,"):
                self.take_process(host, now, line)
            elif line == "kernel" or "NVRM: Xid" in line:
                self.take_kernel(host, now, line)

    def take_process(self, host, now, line):
        """Record each process on a device once, when it is first seen."""
        fields = [field.strip() for field in line.split(",")]
        owner = fields[-1].split()  # empty if the process is not visible from here
        device = self.devices.get(host, {}).get(fields[1])
        if len(fields) != 5 or len(owner) != 4 or device is None or (fields[1], fields[2]) in self.processes.setdefault(host, set()):
            return
        self.processes[host].add((fields[1], fields[2]))
        used = fields[3] if fields[3].isdigit() else ""
        self.keep("processes", host, [now, str(device), fields[2], owner[0], owner[1], used, owner[2], owner[3]])

    def take_kernel(self, host, now, line):
        """Record an error that was not in the kernel's log at the first sample; at most 1000 in all."""
        if line == "kernel":
            if ("xid", host) not in self.files:
                self.open("xid", host)
            return
        match = XID.search(line)
        seen = self.kernel.setdefault(host, set())
        if not match or line in seen or len(seen) >= 1000:
            return
        seen.add(line)
        if ("xid", host) in self.files:
            message = re.sub(r'[\s",\x00-\x1f]+', " ", match.group(3)).strip()[:200]
            self.keep("xid", host, [now, match.group(1), match.group(2), message])

    def open(self, kind, host):
        self.files[kind, host] = os.path.join(self.directory, file_name(kind, host))
        os.close(create(self.files[kind, host]))
        append(self.files[kind, host], (",".join(HEADERS[kind]) + "\n").encode("utf-8"))

    def keep(self, kind, host, fields):
        if (kind, host) not in self.files:
            self.open(kind, host)
        append(self.files[kind, host], (",".join(fields) + "\n").encode("utf-8"))

    def is_used(self, index, uuid):
        if self.names is None:
            return not self.count or index < self.count
        names = self.names[: self.count] if self.count else self.names
        return any(name == str(index) or (name.startswith("GPU-") and uuid.startswith(name)) for name in names)

    def end(self, host):
        child = self.streams.pop(host)[0]
        signal_group(child.pid, signal.SIGKILL)
        child.stdout.close()
        child.wait()

    def result(self):
        """Stop all children and return what to add to the state."""
        self.poll()
        for host in list(self.streams):
            self.end(host)
        peaks = dict((host, devices) for host, devices in self.peaks.items() if devices)
        return {"gpu_memory_mib": peaks} if self.files else {}


def file_name(kind, host):
    return "%s-%s.csv" % (kind, re.sub(r"[^A-Za-z0-9._-]", "_", host))


def file_names(hosts):
    """The names of all files that a sampler may write for these hosts."""
    return sorted(file_name(kind, host) for kind in HEADERS for host in hosts)


def alone():
    """In a child: start a new session, and end when nobody reads (Python 2 leaves SIGPIPE ignored)."""
    os.setsid()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def sample(line):
    """(index, UUID, MiB, other fields) of a line like `0, GPU-5f3c, 12565, 97, 1380, 1530, 61, 287.51, 0x0000000000000004, 0`, or of its first
    three fields alone; None for any other line."""
    fields = [field.strip() for field in line.split(",")]
    # A device without its own memory reports [N/A].
    if len(fields) not in (3, 3 + len(MORE)) or not digits(fields[0]) or not digits(fields[2]):
        return None
    more = [field if re.match(r"(0x[0-9A-Fa-f]+|[0-9]+(\.[0-9]+)?)$", field) else "" for field in fields[3:]]
    return int(fields[0]), fields[1], int(fields[2]), more or [""] * len(MORE)


def digits(text):
    return re.match(r"[0-9]+$", text) is not None


def signal_group(pid, number):
    try:
        os.killpg(pid, number)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
