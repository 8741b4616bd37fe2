# -*- coding: utf-8 -*-
"""For benchmark_job: the program that each node of a run executes for its supervisor, over one connection for all its runs.

Like node_sampler.py, it is executed from its source (see node_agents.py) and needs no package. Each line of its standard input asks:

    lease,PATH                      renew a lease of node_lock; if it is missing, prints `lost` or `restarted` and ends
    list                            prints `running,PID,START,UID,PARENT,TICKS,NAME` for each process of an ordinary user but this program
                                    and its login, then `listed,UPTIME,UID`, with its own user
    doing,AGE                       prints what process_table.doing does of each process of its own user that is no older than AGE seconds and
                                    came from the host that asks, or by no login, then `did`
    sample,SECONDS,LONGEST,GPUS     start node_sampler, whose lines follow; GPUS is 0 or 1
    look                            a sample at once
    rest                            a last sample, then prints `rested`

It ends with its standard input, or if nothing was asked for IDLE_S seconds.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import re
import select
import time

IDLE_S = 120
END_S = 3  # how long the last sample may take after the end of standard input
ORDINARY_USERS = (1000, 65533)


class Lost(Exception):
    """The node belongs to another campaign."""


class Agent(object):
    """The program. Its arguments are `main` of node_sampler, `gpus` of gpu_sampler, functions of process_table, and `content` of node_sampler."""

    def __init__(self, sample, gpus, local, processes, descendants, doing, content):
        self.sample, self.gpus = sample, gpus
        self.local, self.processes, self.descendants = local, processes, descendants
        self.doing, self.content = doing, content
        self.input = self.output = self.child = None

    def run(self):
        self.tell("hello")
        asked, heard = b"", os.times()[4]
        while os.times()[4] < heard + IDLE_S:
            ready = select.select([0] + ([] if self.output is None else [self.output]), [], [], 10)[0]
            if self.output in ready:
                self.forward()
            if 0 not in ready:
                continue
            piece = os.read(0, 65536)
            if not piece:
                return
            heard = os.times()[4]
            lines = (asked + piece).split(b"\n")
            asked = lines.pop()
            for line in lines:
                self.answer(line.decode("utf-8", "replace"))

    def answer(self, line):
        kind, _, rest = line.partition(",")
        if kind == "lease":
            self.renew(rest)
        elif kind == "list":
            self.list()
        elif kind == "doing":
            self.tell("\n".join(list(self.doing(self.of_run(int(rest)), self.content)) + ["did"]))
        elif kind == "sample":
            self.begin(*[int(part) for part in rest.split(",")])
        elif kind == "look" and self.input is not None:
            self.wake()
        elif kind == "rest":
            if self.input is None:
                self.tell("rested")
            else:
                self.close()

    def tell(self, text):
        self.write((text + "\n").encode("utf-8"))

    def write(self, data):
        while data:
            data = data[os.write(1, data) :]

    def renew(self, path):
        with open("/proc/uptime") as handle:
            now = float(handle.read().split()[0])
        try:
            os.utime(path, (now, now))  # never created: only root gives leases
        except OSError:
            # Its directory is on a tmpfs, and only a restart removes it.
            self.tell("lost" if os.path.isdir(os.path.dirname(path)) else "restarted")
            raise Lost

    def list(self):
        table = self.processes(self.local())
        with open("/proc/uptime") as handle:
            now = handle.read().split()[0]
        parents = dict((pid, row[2]) for (pid, _), row in table.items())
        own = self.descendants(table, [os.getpid()])  # the sampler and what it executes
        pid = parents.get(os.getpid())
        while pid in parents and pid not in own:
            own.add(pid)
            pid = parents[pid]
        found = []
        for (pid, start), (name, uid, parent, ticks) in table.items():
            if ORDINARY_USERS[0] <= uid <= ORDINARY_USERS[1] and pid not in own:
                found.append("running,%d,%d,%d,%d,%d,%s\n" % (pid, start, uid, parent, ticks, re.sub(r"[\x00-\x1f]", " ", name)))
        self.tell("".join(found) + "listed,%s,%d" % (now, os.getuid()))

    def of_run(self, longest):
        """Ids of the processes of this user that may be of the run. A login's shell and its agent are not (see run_processes.FIND)."""
        now = float(self.content("/proc/uptime").split()[0])
        oldest = (now - longest) * os.sysconf("SC_CLK_TCK")
        client = os.environ.get("SSH_CONNECTION", "").partition(" ")[0]
        for (pid, start), row in sorted(self.processes(self.local()).items()):
            if row[1] != os.getuid() or start < oldest:
                continue
            given = dict(entry.partition("=")[::2] for entry in self.content("/proc/%d/environ" % pid).split("\0"))
            came_from = given.get("SSH_CONNECTION", client).partition(" ")[0]
            if len(given) > 1 and came_from == client and not set(given) & {"SSH_TTY", "DLPERF_AGENT"}:
                yield pid

    def begin(self, seconds, longest, has_gpus):
        self.end()
        down, up = os.pipe(), os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                os.dup2(down[0], 0)
                os.dup2(up[1], 1)
                for descriptor in down + up:
                    os.close(descriptor)
                self.sample(seconds, longest, self.gpus if has_gpus else None)
            finally:
                os._exit(0)
        os.close(down[0])
        os.close(up[1])
        self.input, self.output = down[1], up[0]

    def wake(self):
        try:
            os.write(self.input, b"\n")
        except OSError:
            pass  # it has ended, which its output tells

    def forward(self, tells=True):
        piece = os.read(self.output, 65536)
        if piece:
            self.write(piece)
            return
        self.close()
        os.close(self.output)
        os.waitpid(self.child, 0)
        self.output = self.child = None
        if tells:
            self.tell("rested")

    def close(self):
        if self.input is not None:
            os.close(self.input)
        self.input = None

    def end(self):
        """End the sampler, if it ends."""
        self.close()
        deadline = time.time() + END_S
        while self.output is not None and select.select([self.output], [], [], max(deadline - time.time(), 0))[0]:
            self.forward(tells=False)  # nobody waits for that


def serve(*functions):
    agent = Agent(*functions)
    try:
        agent.run()
        agent.end()
    except (Lost, OSError):
        pass  # OSError: nobody reads any more
    finally:
        os._exit(0)
