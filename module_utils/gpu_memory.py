# -*- coding: utf-8 -*-
"""Samples of the memory that GPUs hold while a command runs, for benchmark_job."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import fcntl
import os
import re
import signal
import subprocess
import time

NVIDIA_SMI = "nvidia-smi --query-gpu=index,uuid,memory.used --format=csv,noheader,nounits"


class Sampler(object):
    """What nvidia-smi says of the GPUs of each host, beside a command that runs.

    One child per host, this node's directly, another's through ssh as mpirun goes there. A sample
    that does not come, or that cannot be read, is left out; no error of it leaves this class.
    `params` are those of the module; `environment` is where ssh and nvidia-smi are found; `longest`:
    seconds after which other nodes end their children by themselves.
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

    def start(self):
        # A loop of a shell: each nvidia-smi that ends has printed all it had to, and the loop ends
        # with the first that fails, as it does when nobody reads any more.
        loop = "while %s; do sleep %d; done" % (NVIDIA_SMI, self.seconds)
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
                self.take(host, [line for line in map(sample, lines) if line])
            except (IOError, OSError):
                piece = b""  # the disk is full, or worse: that is the command's to find out
            if not piece:
                self.end(host)

    def take(self, host, samples):
        if not samples:
            return
        now = time.time()
        if host not in self.files:
            name = "telemetry-%s.csv" % re.sub(r"[^A-Za-z0-9._-]", "_", host)
            self.files[host] = os.path.join(self.directory, name)
            with open(self.files[host], "w") as handle:
                handle.write("unix_time,device,memory_used_mib\n")
        with open(self.files[host], "a") as handle:
            handle.write("".join("%.3f,%d,%d\n" % (now, index, used) for index, _, used in samples))
        peaks = self.peaks.setdefault(host, {})
        for index, uuid, used in samples:
            if self.is_used(index, uuid):
                peaks[str(index)] = max(used, peaks.get(str(index), 0))

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
        """End all children; what is to be added to the state."""
        self.poll()
        for host in list(self.streams):
            self.end(host)
        peaks = dict((host, devices) for host, devices in self.peaks.items() if devices)
        return {"gpu_memory_mib": peaks, "telemetry": sorted(self.files.values())} if self.files else {}


def alone():
    """In a child: a group of its own, and an end when nobody reads (Python 2 leaves SIGPIPE ignored)."""
    os.setsid()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def sample(line):
    """Index, UUID and MiB of a line like `0, GPU-5f3c, 12565`; None of anything else."""
    fields = [field.strip() for field in line.decode("ascii", "replace").split(",")]
    # A device without a memory of its own says [N/A].
    if len(fields) != 3 or not fields[0].isdigit() or not fields[2].isdigit():
        return None
    return int(fields[0]), fields[1], int(fields[2])


def signal_group(pid, number):
    try:
        os.killpg(pid, number)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
