# -*- coding: utf-8 -*-
"""For benchmark_job: other processes that use a run's nodes, and leases of nodes without a launch of their own."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import re
import signal
import subprocess
import tempfile
import time

from ansible.module_utils.node_lock import lease_path, uptime
from ansible.module_utils.telemetry import alone, signal_group

EVERY_S = 10
SSH_S = 20
LOST = 3
ORDINARY_USERS = (1000, 65533)
LEAST_CORES = 0.01
TICKS = float(os.sysconf("SC_CLK_TCK"))  # of a second; in all of /proc
# Before a run, the CPU time of others is measured for so long. What others do on a node may end by itself within the grace.
MEASURED_S = 0.3
GRACE_S = 10
# Commands for another node: renew its lease, then print this user's id, the uptime, the process that answers, and all processes with their
# owners. GNU touch sets the uptime.
ASK = 'test -e "{0}" || exit 3; touch -c -d "@$(cut -d " " -f 1 /proc/uptime)" "{0}"; '
LIST = 'echo "$(id -u) $(cut -d " " -f 1 /proc/uptime) $PPID"; stat -c "%n %u" /proc/[0-9]* 2>/dev/null; cat /proc/[0-9]*/stat 2>/dev/null; true'


class OtherProcesses(object):
    """Other processes that use the CPU while a command runs.

    On this node these are all processes that this supervisor did not start. On other nodes, where
    sshd starts the run's own processes, these are older processes and those of other ordinary
    users. Processes that a container engine starts for the run belong to this user and are younger
    than the run. `lock` is the module's option. `hosts` are the run's nodes and `idle` the nodes
    that the campaign only holds: ssh addresses by name.
    """

    def __init__(self, params, environment):
        self.lock, self.here = params["lock"], params["host"]
        self.hosts = dict(params["hosts"])
        self.others = dict(params["idle"], **self.hosts)
        self.environment = environment
        self.by_engine = bool(params["cleanup"])
        self.began = self.looked = time.time()
        self.renewed = dict((host, self.began) for host in self.hosts)
        self.lost = ""
        self.asked = {}
        self.first = {}
        self.times = {}
        self.seen = {}
        self.young = set()
        self.wait()

    def wait(self):
        """Look at all nodes, and wait for their answers."""
        self.look()
        while self.asked and time.time() < self.looked + SSH_S:
            self.collect()
            time.sleep(0.02)

    def busy(self, most):
        """Sentences about nodes on which others now use more than so many cores. Takes time only if a process of others has used the CPU."""
        if not any(self.is_active(key[0], key[2], row[3]) for key, (_, _, row) in self.seen.items()):
            return []
        time.sleep(MEASURED_S)
        self.wait()
        found = []
        for host in sorted(set(key[0] for key in self.seen)):
            begin, end = self.times[host]
            own = [(last - first, key, row) for key, (first, last, row) in self.seen.items() if key[0] == host]
            cores = sum(ticks for ticks, _, _ in own) / TICKS / max(end - begin, 0.01)
            if cores > most:
                _, key, row = max(own)
                found.append("%s: others use %.2f cores, mostly %s (%d) of user %d" % (host, cores, row[0], key[1], row[1]))
        return found

    def is_active(self, host, start, ticks):
        """Whether a process has used 0.2 s, and 0.02 cores since its start: unlike the sshd through which nodes are asked."""
        return ticks >= 0.2 * TICKS and ticks >= 0.02 * (self.times[host][1] * TICKS - start)

    def poll(self):
        self.collect()
        if time.time() >= self.looked + EVERY_S:
            self.look()

    def look(self):
        self.looked = time.time()
        uid = os.getuid()
        table = processes(local())
        own = descendants(table, os.getpid())
        if self.by_engine and self.here in self.first:
            own |= set(key[0] for key, row in table.items() if row[1] == uid and key not in self.first[self.here])
        self.take(self.here, table, lambda key, row: key[0] not in own, uptime())
        for host, address in self.others.items():
            if host not in self.asked:
                self.ask(host, address)

    def ask(self, host, address):
        command = ASK.format(lease_path(self.lock["directory"], self.lock["token"])) if self.lock else ""
        command += LIST if host in self.hosts else ""
        argv = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", address, command or "true"]
        # A file, because a full pipe would block the child.
        output = tempfile.TemporaryFile()
        try:
            with open(os.devnull, "r+b") as nothing:
                child = subprocess.Popen(
                    argv, stdin=nothing, stdout=output, stderr=nothing, env=self.environment,
                    preexec_fn=alone, close_fds=True,
                )  # fmt: skip
        except (IOError, OSError):
            return
        self.asked[host] = (child, output, time.time())

    def collect(self):
        now = time.time()
        for host, (child, output, since) in list(self.asked.items()):
            if child.poll() is None and now < since + SSH_S:
                continue
            if child.poll() is None:
                signal_group(child.pid, signal.SIGKILL)
                child.wait()
            del self.asked[host]
            if child.returncode == LOST and host in self.hosts:
                self.lost = host
            elif child.returncode == 0:
                self.renewed[host] = now
                output.seek(0)
                lines = output.read().decode("utf-8", "replace").splitlines()
                head = re.match(r"(\d+) (\d+\.\d+) (\d+)$", lines[0]) if host in self.hosts and lines else None
                if head:
                    self.take_remote(host, int(head.group(1)), processes(lines[1:]), float(head.group(2)), int(head.group(3)))
            output.close()
        if self.lock and not self.lost:
            late = [host for host in self.hosts if now - self.renewed[host] > self.lock["lease_s"]]
            self.lost = late[0] if late else ""

    def take_remote(self, host, uid, table, now, asked):
        first = self.first.get(host, table)
        answers = descendants(table, asked)
        young = any(row[1] == uid and key not in first and key[0] not in answers for key, row in table.items())
        (self.young.add if young else self.young.discard)(host)
        self.take(host, table, lambda key, row: key in first or row[1] != uid, now)

    def take(self, host, table, is_other, now):
        """Record the CPU time of ordinary users' processes between the first and the last look at each. `now` is the node's uptime."""
        self.first.setdefault(host, table)
        self.times.setdefault(host, [now, now])[1] = now
        for key, row in table.items():
            if ORDINARY_USERS[0] <= row[1] <= ORDINARY_USERS[1] and is_other(key, row):
                used = self.seen.setdefault((host,) + key, [row[3], row[3], row])
                used[1] = row[3]

    def with_own(self):
        """The other nodes on which, at the last look, this user had processes that are younger than the run."""
        return dict((host, self.hosts[host]) for host in self.young)

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


def when_idle(params, environment, telemetry, why_ended):
    """Wait until nobody else uses the run's nodes: the observer of the run, why it must not start, and by whom the nodes are used.

    `why_ended` is asked, with the observer, whether the launch must end meanwhile.
    """
    began = time.time()
    deadline = began + max(params["idle_wait_s"], GRACE_S)
    others = OtherProcesses(params, environment)
    telemetry.start()  # after the first look at the other nodes, whose old processes are not the run's
    while True:
        busy = others.busy(params["most_cores_beside"]) + telemetry.busy()
        reason = why_ended(others)
        if not busy or reason or time.time() >= deadline:
            return others, reason or ("busy" if busy else ""), busy
        until = time.time() + (1 if time.time() < began + GRACE_S else EVERY_S)
        while time.time() < until and not reason:
            time.sleep(0.1)
            reason = why_ended(others)
        telemetry.again()
        others = OtherProcesses(params, environment)


def local():
    """This node's processes, as lines in the format of `LIST`."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield "/proc/%s %d" % (name, os.stat("/proc/" + name).st_uid)
                with open("/proc/%s/stat" % name, "rb") as handle:
                    yield handle.read().decode("utf-8", "replace")
            except (IOError, OSError):
                continue  # the process has ended


def processes(lines):
    """{(pid, start): (name, uid, parent, ticks)} from lines `/proc/4711 1000` and `4711 (python) S 1 ...` (proc_pid_stat(5))."""
    owners, table = {}, {}
    for line in lines:
        if line.startswith("/proc/"):
            name, _, uid = line.partition(" ")
            owners[name[len("/proc/"):]] = uid.strip()  # fmt: skip
            continue
        head, _, rest = line.rpartition(")")
        pid, _, name = head.partition(" (")
        fields = rest.split()
        try:
            ticks = int(fields[11]) + int(fields[12])
            table[int(pid), int(fields[19])] = (name, int(owners[pid]), int(fields[1]), ticks)
        except (IndexError, KeyError, ValueError):
            continue  # the process ended between the two lines, or its name contains a line feed
    return table


def descendants(table, root):
    """Ids of a process and all its descendants."""
    parents = dict((pid, row[2]) for (pid, _), row in table.items())
    family = {root}
    grown = True
    while grown:
        more = set(pid for pid, parent in parents.items() if parent in family and pid not in family)
        family |= more
        grown = bool(more)
    return family


def adopt_orphans():
    """Become the parent of orphaned processes (prctl(2), PR_SET_CHILD_SUBREAPER); if this fails, init does."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    except (ImportError, AttributeError, OSError):
        pass
