"""Other processes that use a run's nodes, and leases of nodes without a launch of their own."""

from __future__ import absolute_import, division, print_function

import os
import time

from .lock import DIRECTORY, holder, lease_path, uptime
from .node_agent import ORDINARY_USERS
from .process_table import descendants, is_marked, prctl, processes

EVERY_S = 10
LEAST_CORES = 0.01
TICKS = float(os.sysconf("SC_CLK_TCK"))  # of a second; in all of /proc
# Before a run, the CPU time of others is measured for so long. What others do on a node may end by itself within the grace.
MEASURED_S = 0.3
GRACE_S = 10


class OtherProcesses(object):
    """Other processes that use the CPU while a command runs, and leases of nodes without a launch of their own.

    On this node these are all processes that this supervisor did not start. On other nodes, where
    sshd starts the run's own processes, these are older processes and those of other ordinary
    users. Processes that a container engine starts for the run belong to this user and are younger
    than the run. In a job of Slurm, everywhere, these are all but those with the job's mark. `hosts`
    are the run's nodes and `idle` the nodes that the campaign only holds; their agents answer. Nobody
    waits for idle nodes.
    """

    def __init__(self, params, agents):
        self.lock, self.here = params["lock"], params["host"]
        self.hosts = sorted(params["hosts"])
        self.idle = sorted(params["idle"])
        self.agents = agents
        self.caller = params.get("caller")  # the module, whose start takes as much CPU time as a busy program
        self.by_engine = bool(params["cleanup"])
        self.mark = (params["marks"] or [""])[0]  # of the job
        self.began = self.looked = time.time()
        self.renewed = dict((host, self.began) for host in self.hosts)
        self.lost = ""
        self.away = set()  # of these, the nodes that were restarted or do not answer
        self.asked = {}
        self.listed = {}
        self.first = {}
        self.times = {}
        self.seen = {}
        self.young = set()

    def wait(self):
        """Look at all nodes, and wait for their answers."""
        self.look()
        while self.asked and time.time() < self.looked + self.agents.answer_s:
            self.agents.poll(0.02)
            self.collect()

    def busy(self, most):
        """Sentences about nodes on which others now use more than so many cores. Takes time only if a process of others has used the CPU."""
        if not any(self.is_active(key[0], key[2], row[3]) for key, (_, _, row) in self.seen.items()):
            return []
        time.sleep(MEASURED_S)
        self.wait()
        result = []
        for host in sorted(set(key[0] for key in self.seen)):
            begin, end = self.times[host]
            spent = [(last - first, key, row) for key, (first, last, row) in self.seen.items() if key[0] == host]
            cores = sum(ticks for ticks, _, _ in spent) / TICKS / max(end - begin, 0.01)
            if cores > most:
                _, key, row = max(spent)
                result.append("%s: others use %.2f cores, mostly %s (%d) of user %d" % (host, cores, row[0], key[1], row[1]))
        return result

    def is_active(self, host, start, ticks):
        """True if a process has used 0.2 s, and 0.02 cores since its start: unlike the sshd through which Ansible comes."""
        return ticks >= 0.2 * TICKS and ticks >= 0.02 * (self.times[host][1] * TICKS - start)

    def poll(self):
        self.collect()
        if time.time() >= self.looked + EVERY_S:
            self.look()

    def look(self):
        self.looked = time.time()
        uid = os.getuid()
        table = processes()
        ours = descendants(table, [os.getpid()])
        if self.here not in self.first:
            self.caller = set(key for key in table if key[0] == self.caller)
        if self.by_engine and self.here in self.first:
            ours |= set(key[0] for key, row in table.items() if row[1] == uid and key not in self.first[self.here])
        if self.mark:
            ours |= set(key[0] for key, row in table.items() if row[1] == uid and is_marked(key[0], [self.mark]))
        self.take(self.here, table, lambda key, row: key[0] not in ours and key not in self.caller, uptime())
        for host in self.hosts + self.idle:
            if host not in self.asked:
                self.ask(host)

    def ask(self, host):
        if self.lock:
            self.agents.ask(host, "lease," + lease_path(self.lock["directory"], self.lock["token"]))
        if host in self.hosts:
            self.listed[host] = []
            self.agents.ask(host, "list," + self.mark)
            self.asked[host] = time.time()

    def receive(self, host, lines):
        for line in lines:
            fields = line.split(",", 6)
            if line in ("lost", "restarted") and host in self.hosts:
                self.lost = host
                self.away |= set([host] if line == "restarted" else [])
            elif fields[0] == "running" and host in self.asked:
                self.listed[host].append(fields[1:])
            elif fields[0] == "listed" and host in self.asked:
                del self.asked[host]
                self.renewed[host] = time.time()
                self.take_remote(host, fields[1:])

    def collect(self):
        now = time.time()
        for host, since in list(self.asked.items()):
            if not self.agents.has(host) or now > since + self.agents.answer_s:
                self.agents.drop(host)
                del self.asked[host]
                self.young.add(host)  # not known any more
        if self.lock and not self.lost:
            late = [host for host in self.hosts if now - self.renewed[host] > self.lock["lease_s"]]
            self.lost = late[0] if late else ""
            self.away |= set(late)

    def take_remote(self, host, answer):
        try:
            now, own_uid = float(answer[0]), int(answer[1])
            rows = [[int(cell) for cell in row[:5]] + [row[5]] for row in self.listed.pop(host)]
        except (IndexError, ValueError):
            return
        table = dict(((pid, start), (name, uid, parent, ticks)) for pid, start, uid, parent, ticks, name in rows)
        first = self.first.get(host, table)
        young = any(row[1] == own_uid and key not in first and not row[0].startswith("sshd") for key, row in table.items())
        (self.young.add if young else self.young.discard)(host)
        self.take(host, table, lambda key, row: bool(self.mark) or key in first or row[1] != own_uid, now)

    def take(self, host, table, is_other, now):
        """Record the CPU time of ordinary users' processes between the first and the last look at each. `now` is the node's uptime."""
        self.first.setdefault(host, table)
        self.times.setdefault(host, [now, now])[1] = now
        for key, row in table.items():
            if ORDINARY_USERS[0] <= row[1] <= ORDINARY_USERS[1] and is_other(key, row):
                used = self.seen.setdefault((host,) + key, [row[3], row[3], row])
                used[1] = row[3]

    def with_own(self):
        """The other nodes on which the run may have left processes: those on which, at the last look, this user had processes that are younger
        than the run, or that answered only before; with marks, all that have answered."""
        hosts = self.hosts if self.mark else self.young.union(self.asked)
        return [host for host in hosts if host in self.times]

    def result(self):
        """Look a last time; return processes with an average use of at least 0.01 cores during the run."""
        self.wait()
        ticks = TICKS * max(time.time() - self.began, 0.001)
        others = []
        for (host, pid, _), (begin, end, row) in sorted(self.seen.items(), key=lambda item: item[0]):
            cores = round((end - begin) / ticks, 2)
            if cores >= LEAST_CORES:
                others.append({"host": host, "pid": pid, "uid": row[1], "command": row[0], "cores": cores})
        return {"beside": others}


def when_idle(params, agents, telemetry, why_ended):
    """Wait until nobody else uses the run's nodes: the observer of the run, why it must not start, and by whom the nodes are used.

    `why_ended` is asked, with the observer, whether the launch must end meanwhile.
    """
    began = time.time()
    deadline = began + max(params["idle_wait_s"], GRACE_S)
    telemetry.start()
    others = observe(params, agents, telemetry)
    telemetry.start()  # on nodes that were waiting for their login
    while True:
        busy = held(params, agents) + others.busy(params["most_cores_beside"]) + telemetry.busy()
        reason = why_ended(others)
        if not busy or reason or time.time() >= deadline:
            return others, reason or ("busy" if busy else ""), busy
        until = time.time() + (1 if time.time() < began + GRACE_S else EVERY_S)
        while time.time() < until and not reason:
            agents.poll(0.1)
            reason = why_ended(others)
        telemetry.again()
        others = observe(params, agents, telemetry)


def held(params, agents):
    """Sentences about campaigns that hold nodes of a run without a lock of its own."""
    if params["lock"]:
        return []
    answer = agents.gather(params["hosts"], "holder", "held", agents.answer_s)
    here = holder(DIRECTORY)
    answer[params["host"]] = ["%s of %s" % (here.get("campaign"), here.get("owner"))] if here else []
    return ["%s: held by %s" % (host, line) for host in sorted(answer) for line in answer[host]]


def observe(params, agents, telemetry):
    """A new observer, after its first look at all nodes."""
    others = OtherProcesses(params, agents)

    def receive(host, lines):
        others.receive(host, lines)
        telemetry.receive(host, lines)

    agents.receive = receive
    others.wait()
    for host in others.hosts:
        others.first.setdefault(host, {})  # it did not answer: what it has later may be the run's
    return others


def adopt_orphans():
    """Become the parent of orphaned processes (PR_SET_CHILD_SUBREAPER); if this fails, init does."""
    prctl(36, 1)
