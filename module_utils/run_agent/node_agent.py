"""The program that each node of a run executes for its supervisor, over one connection for all runs of a campaign or job.

It is executed from the source of its modules (see node_agents.py) by Python 2.7 or 3.5 and newer, and needs no package. Each line of its
standard input asks. MARKS is a JSON list of variables, NAME=VALUE, by which processes of a run are known; if it is empty, they are known by
the host from which they came by ssh.

    lease,PATH                      renew a lease of node_lock; if it is missing, prints `lost` or `restarted` and ends
    holder                          prints `holder,CAMPAIGN of OWNER` if a campaign by SSH holds the node, then `held`
    list,MARK                       prints `running,PID,START,UID,PARENT,TICKS,NAME` for each process of an ordinary user but this program
                                    and its login, and but those that have the mark, if any; then `listed,UPTIME,UID`, with its own user
    doing,AGE,MARKS                 prints what process_table.doing does of each process of the run that is no older than AGE seconds, then
                                    `did`; without marks, also of those of its own user that came by no login
    states,AGE,MARKS                prints `states,LINE` for each line of what these processes and their threads do, then `stated`
    end,AGE,MARKS                   kills these processes; prints `end,LINE` for each that is left, then `ended`
    clean,ARGV                      executes a command, a JSON list; then prints `cleaned`
    sample,SECONDS,LONGEST,GPUS     start node_sampler, whose lines follow; GPUS is 0 or 1
    look                            a sample at once
    rest                            a last sample, then prints `rested`

It ends with its standard input, or if nothing was asked for IDLE_S seconds.
"""

from __future__ import absolute_import, division, print_function

import json
import os
import re
import select
import signal
import time

from . import gpu_sampler, node_sampler
from .lock import DIRECTORY, holder, renew, uptime
from .process_table import descendants, doing, executed, helpers, is_marked, processes, states, variables

IDLE_S = 120
END_S = 3  # how long the last sample may take after the end of standard input
KILLS = 5
KILL_S = 0.2
ORDINARY_USERS = (1000, 65533)


class Lost(Exception):
    """The node belongs to another campaign."""


class Agent(object):
    """The program."""

    def __init__(self):
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
        elif kind == "holder":
            self.tell_all(
                "holder", ["%s of %s" % (lock.get("campaign"), lock.get("owner")) for lock in [holder(DIRECTORY)] if lock], "held"
            )
        elif kind == "list":
            self.list(rest)
        elif kind in ("doing", "states", "end"):
            age, _, marks = rest.partition(",")
            self.answer_of_run(kind, int(age), json.loads(marks))
        elif kind == "clean":
            executed([str(word) for word in json.loads(rest)])
            self.tell("cleaned")
        elif kind == "sample":
            self.begin(*[int(part) for part in rest.split(",")])
        elif kind == "look" and self.input is not None:
            self.wake()
        elif kind == "rest":
            if self.input is None:
                self.tell("rested")
            else:
                self.close()

    def answer_of_run(self, kind, age, marks):
        pids = list(of_run(age, marks, is_strict=kind != "doing"))
        if kind == "doing":
            others = helpers(marks) - set(pids) if marks else ()
            self.tell("\n".join(list(doing(pids)) + ["helper," + line for line in doing(others)] + ["did"]))
        elif kind == "states":
            self.tell_all("states", states(pids).splitlines(), "stated")
        else:
            for _ in range(KILLS):
                if not pids:
                    break
                for pid in pids:
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except OSError:
                        continue  # it has ended
                time.sleep(KILL_S)
                pids = list(of_run(age, marks))
            self.tell_all("end", ["process %d: %s" % (pid, node_sampler.content("/proc/%d/cmdline" % pid)[:200]) for pid in pids], "ended")

    def tell_all(self, kind, lines, last):
        self.tell("\n".join(["%s,%s" % (kind, re.sub(r"[\x00-\x1f]", " ", line)) for line in lines] + [last]))

    def tell(self, text):
        self.write((text + "\n").encode("utf-8"))

    def write(self, data):
        while data:
            data = data[os.write(1, data) :]

    def renew(self, path):
        directory, _, name = path.rpartition("/lease.")
        if not renew(directory, name):  # never created: only root gives leases
            # Its directory is on a tmpfs, and only a restart removes it.
            self.tell("lost" if os.path.isdir(directory) else "restarted")
            raise Lost

    def list(self, mark):
        table = processes()
        now = uptime()
        parents = dict((pid, row[2]) for (pid, _), row in table.items())
        ours = descendants(table, [os.getpid()])  # the sampler and what it executes
        pid = parents.get(os.getpid())
        while pid in parents and pid not in ours:
            ours.add(pid)
            pid = parents[pid]
        lines = []
        for (pid, start), (name, uid, parent, ticks) in table.items():
            if ORDINARY_USERS[0] <= uid <= ORDINARY_USERS[1] and pid not in ours:
                if not mark or uid != os.getuid() or not is_marked(pid, [mark]):
                    lines.append("running,%d,%d,%d,%d,%d,%s\n" % (pid, start, uid, parent, ticks, re.sub(r"[\x00-\x1f]", " ", name)))
        self.tell("".join(lines) + "listed,%s,%d" % (now, os.getuid()))

    def begin(self, seconds, longest, has_gpus):
        self.end()
        visible = os.environ.get("CUDA_VISIBLE_DEVICES") if "DLPERF_JOB" in os.environ else None  # Slurm gives each node its own
        if visible is not None:
            self.tell("visible," + visible)
        down, up = os.pipe(), os.pipe()
        self.child = os.fork()
        if self.child == 0:
            try:
                os.dup2(down[0], 0)
                os.dup2(up[1], 1)
                for descriptor in down + up:
                    os.close(descriptor)
                node_sampler.main(seconds, longest, gpu_sampler.gpus if has_gpus else None)
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


def of_run(longest, marks, is_strict=True):
    """Ids of this user's processes that are of the run and no older. mpirun's daemon and its ranks come by ssh, without a terminal, from the
    host that asks; nobody's login shell does, and the agent has a variable of its own."""
    oldest = (uptime() - longest) * os.sysconf("SC_CLK_TCK")
    session = os.environ.get("SSH_CONNECTION", "")
    for (pid, start), row in sorted(processes().items()):
        if row[1] != os.getuid() or start < oldest or pid == os.getpid():
            continue
        if marks:
            if is_marked(pid, marks):
                yield pid
            continue
        given = variables(pid)
        connection = given.get("SSH_CONNECTION", "" if is_strict else session)
        is_here = is_strict and connection == session
        if len(given) > 1 and connection and not is_here and connection.partition(" ")[0] == session.partition(" ")[0]:
            if not set(given) & {"SSH_TTY", "DLPERF_AGENT"}:
                yield pid


def serve():
    agent = Agent()
    try:
        agent.run()
        agent.end()
    except (Lost, OSError):
        pass  # OSError: nobody reads any more
    finally:
        os._exit(0)
