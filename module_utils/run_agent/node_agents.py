"""A connection to each node of a run, which its supervisor keeps for the campaign's next runs, and one node_agent behind it."""

from __future__ import absolute_import, division, print_function

import errno
import fcntl
import os
import re
import select
import signal
import subprocess
import sys
import time

from . import gpu_sampler, lock, node_agent, node_sampler, process_table
from .process_table import alone, signal_group

AT_ONCE = 64  # logins
ANSWER_S = 20  # the longest time for a login, and for an answer
PING_S = 30
# How an agent gets the source of its modules: from standard input, on which requests follow.
START = """
import os, sys
s = b""
while len(s) < %d:
    p = os.read(0, %d - len(s))
    if not p: os._exit(1)
    s += p
s = s.split(b"\\0")
a = type(sys)("run_agent")
a.__path__ = []
sys.modules["run_agent"] = a
for n, p in zip(s[::2], s[1::2]):
    n = str(n.decode())
    m = sys.modules["run_agent." + n] = type(sys)("run_agent." + n)
    m.__package__ = "run_agent"
    setattr(a, n, m)
    exec(compile(p, n, "exec"), m.__dict__)
a.node_agent.serve()
"""
# The first of these Pythons that a node has. -S and -E: nothing but the standard library is needed. The variable tells the agent from
# processes of a run (see node_agent.of_run).
PYTHONS = (
    "export DLPERF_AGENT=1; for p in %s python3 python /usr/libexec/platform-python python2; "
    "do command -v $p >/dev/null 2>&1 && exec $p -ESs -c '%s'; done"
)


def source(module):
    """The source of a module, which Ansible may have packed into an archive that is removed while the run goes on."""
    loader = getattr(module, "__loader__", None)
    if loader is not None:
        return loader.get_source(module.__name__)
    with open(re.sub("[.]pyc$", ".py", module.__file__)) as handle:
        return handle.read()


MODULES = (lock, node_sampler, gpu_sampler, process_table, node_agent)  # each after those that it imports
TEXT = "\0".join(part for module in MODULES for part in (module.__name__.rpartition(".")[2], source(module))).encode("utf-8")


def by_ssh(address, command):
    return ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", address, command]


class Stream(object):
    """An agent: its process, what it is still to read, and the beginning of a line that it has written."""

    def __init__(self, child, requests):
        self.child, self.to_write, self.line = child, TEXT + requests, b""
        self.began = self.asked = time.time()
        self.has_answered = False


class Agents(object):
    """The agents of a run's nodes. `receive`, if set, gets each host with the lines that came from it. Errors never leave this class.

    `reach` makes the command that executes a line of a shell at an address, with this program's standard input and output.
    """

    def __init__(self, reach=by_ssh, answer_s=ANSWER_S):
        self.reach, self.answer_s = reach, answer_s
        self.addresses, self.environment = {}, {}
        self.streams, self.hosts, self.waiting = {}, {}, {}
        self.poller = select.poll()
        self.receive = None

    def want(self, addresses, environment):
        """Have an agent on each of these hosts, ssh addresses by name, and on no other. The address of this node is empty."""
        for host in list(self.streams):
            if addresses.get(host) != self.addresses[host]:
                self.drop(host)
        self.addresses, self.environment = dict(addresses), environment
        self.waiting = dict((host, b"") for host in addresses if host not in self.streams)
        self.poll()

    def has(self, host):
        """True if there is an agent on a host, or will be."""
        return host in self.streams or host in self.waiting

    def pids(self):
        return set(stream.child.pid for stream in self.streams.values())

    def ask(self, host, request):
        """Send a line to a host with the next `poll`, when its agent is there: what is asked together costs one message each way."""
        line = (request + "\n").encode("utf-8")
        stream = self.streams.get(host)
        if stream is None:
            self.waiting[host] = self.waiting.get(host, b"") + line
        else:
            stream.asked = time.time()
            stream.to_write += line

    def gather(self, hosts, request, last, seconds):
        """Ask hosts, and wait so many seconds for their answers, which end with the line `last`. Returns the texts of the other lines of the
        request's kind, by host, without the hosts that have not answered. A host whose connection has ended is asked once more.
        """
        kind, before = request.partition(",")[0] + ",", self.receive
        texts, answers, again = dict((host, []) for host in hosts), {}, set()

        def receive(host, lines):
            for line in lines:
                if host in texts and line == last:
                    answers[host] = texts.pop(host)
                elif host in texts and line.startswith(kind):
                    texts[host].append(line[len(kind) :])
            if before:
                before(host, lines)

        self.receive = receive
        for host in hosts:
            self.ask(host, request)
        deadline = time.time() + seconds
        while texts and time.time() < deadline:
            self.poll(0.02)
            for host in [host for host in texts if not self.has(host)]:
                if host in again:
                    del texts[host]
                else:
                    again.add(host)
                    self.ask(host, request)
        self.receive = before
        return answers

    def start(self, host, requests):
        start = START % (len(TEXT), len(TEXT))
        argv = [sys.executable, "-ESs", "-c", start]
        if self.addresses[host]:
            argv = self.reach(self.addresses[host], PYTHONS % (sys.executable, start))
        try:
            with open(os.devnull, "r+b") as nothing:
                child = subprocess.Popen(
                    argv,
                    bufsize=0,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=nothing,
                    cwd="/",
                    env=self.environment,
                    preexec_fn=alone,
                    close_fds=True,
                )
        except (IOError, OSError):
            return
        for pipe in (child.stdin, child.stdout):
            fcntl.fcntl(pipe.fileno(), fcntl.F_SETFL, fcntl.fcntl(pipe.fileno(), fcntl.F_GETFL) | os.O_NONBLOCK)
        self.streams[host] = Stream(child, requests)
        self.hosts[child.stdout.fileno()] = host
        self.poller.register(child.stdout.fileno(), select.POLLIN)
        self.write(self.streams[host])

    def write(self, stream):
        """Write as much as the pipe takes; whether the agent has ended is found when its output is read."""
        try:
            while stream.to_write:
                stream.to_write = stream.to_write[os.write(stream.child.stdin.fileno(), stream.to_write) :]
        except (IOError, OSError):
            pass

    def poll(self, seconds=0):
        """Take what has come, within so many seconds; and log in to nodes that wait for it."""
        logins = sum(1 for stream in self.streams.values() if not stream.has_answered)
        while self.waiting and logins < AT_ONCE:
            self.start(*self.waiting.popitem())
            logins += 1
        for stream in self.streams.values():
            if stream.to_write:
                self.write(stream)
        for descriptor, _ in self.ready(seconds):
            if descriptor in self.hosts:
                self.read(self.hosts[descriptor])
        now = time.time()
        for host, stream in list(self.streams.items()):
            if not stream.has_answered and now > stream.began + self.answer_s:
                self.drop(host)
            elif now > stream.asked + PING_S:
                self.ask(host, "")

    def ready(self, seconds):
        try:
            return self.poller.poll(seconds * 1000)
        except (select.error, IOError, OSError):
            return []  # a signal

    def read(self, host):
        stream = self.streams[host]
        try:
            piece = os.read(stream.child.stdout.fileno(), 65536)
        except (IOError, OSError) as error:
            if error.errno in (errno.EAGAIN, errno.EINTR):
                return
            piece = b""
        lines = (stream.line + piece).split(b"\n")
        stream.line = lines.pop()[-4096:]
        stream.has_answered = stream.has_answered or bool(lines)
        if not piece:
            self.drop(host)
        if lines and self.receive:
            self.receive(host, [line.decode("utf-8", "replace") for line in lines])

    def drop(self, host):
        """End the agent of a host at once."""
        stream = self.streams.pop(host, None)
        if stream is None:
            return
        signal_group(stream.child.pid, signal.SIGKILL)
        self.poller.unregister(stream.child.stdout.fileno())
        del self.hosts[stream.child.stdout.fileno()]
        for pipe in (stream.child.stdin, stream.child.stdout):
            pipe.close()
        stream.child.wait()

    def close(self):
        """End all agents: they end with their standard input."""
        self.receive, self.waiting = None, {}
        for stream in self.streams.values():
            stream.child.stdin.close()
            stream.to_write, stream.asked = b"", time.time()
        deadline = time.time() + 2
        while self.streams and time.time() < deadline:
            self.poll(0.1)
        for host in list(self.streams):
            self.drop(host)
