"""Detection of runs that hang. Until its log has a rhythm, what its processes do is judged, too."""

from __future__ import absolute_import, division, print_function

import collections
import os

from .lock import uptime
from .other_processes import TICKS
from .process_table import doing
from .states import of_run

BEAT_S = 1.0
LEAST_BEATS = 5
REMEMBERED = 1000
EVERY_S = 10
LOOKS = 5  # at least, within a limit
# A process does nothing that uses less than this share of a core, and moves fewer bytes in a look: waiting programs poll and send signs of life.
LEAST_CORES = 0.01
LEAST_BYTES = 1 << 16
WAITS = {"T": "was stopped", "D": "waited for a disk, a file server or a device"}


class Row(object):
    """A line of process_table.doing."""

    def __init__(self, line):
        _, pid, start, self.state, switches, ticks, moved, self.name = line.split(",", 7)
        self.pid, self.key = int(pid), (int(pid), int(start))
        self.switches, self.ticks, self.moved = int(switches), int(ticks), int(moved)

    def has_run_since(self, before):
        return self.switches != before.switches

    def is_idle_since(self, before, seconds):
        """True if it did nothing. A process that is seen in D again and again reads or writes slowly."""
        if self.ticks - before.ticks > max(LEAST_CORES * seconds * TICKS, 1) or self.moved - before.moved >= LEAST_BYTES:
            return False
        return self.state != "D" or not self.has_run_since(before)


class NodeActivity(object):
    """For how long the run's processes of a node have done nothing, and each of them has been stopped or waited for a device."""

    def __init__(self, host):
        self.host = host
        self.rows, self.waiting, self.looked = None, {}, None
        self.idle_s = 0.0

    def take(self, lines, most, helpers=()):
        """Take a look's lines. A time between two looks longer than `most`, as on a suspended node, counts as that.

        `helpers`: ids of processes that may work for the run, but are none of it.
        """
        now = uptime()
        rows = dict((row.key, row) for row in map(Row, lines))
        before, passed = self.rows, min(now - (now if self.looked is None else self.looked), most)
        self.rows, self.looked = rows, now
        if before is None:
            return
        idle = [key for key, row in rows.items() if key in before and row.is_idle_since(before[key], passed)]
        self.idle_s = self.idle_s + passed if set(idle) == set(rows) == set(before) else 0.0
        waiting = {}
        for key in idle:  # a process in D may compute in other threads
            row, last = rows[key], before[key]
            if row.state in WAITS and last.state == row.state and not row.has_run_since(last) and row.pid not in helpers:
                waiting[key] = self.waiting.get(key, 0.0) + passed
        self.waiting = waiting

    def stuck(self):
        """The longest of these waits, and a sentence about it."""
        if not self.waiting:
            return 0.0, ""
        seconds, key = max((seconds, key) for key, seconds in self.waiting.items())
        row = self.rows[key]
        where = "on %s" % self.host if self.host else "of this node"
        return seconds, "process %d (%s) %s %s for %.0f s" % (row.pid, row.name, where, WAITS[row.state], seconds)


class Activity(object):
    """The activity of a run's processes, on this node and on those that agents look at.

    `params` is the launch. `gpu_idle_s` gives for how long a node's used GPUs have computed nothing; 0 if that cannot be seen.
    """

    def __init__(self, params, gpu_idle_s):
        self.params, self.here, self.others, self.gpu_idle_s = params, params["host"], sorted(params["hosts"]), gpu_idle_s
        self.nodes = dict((host, NodeActivity(host)) for host in [self.here] + self.others)
        self.every = min(EVERY_S, params["hung_after_s"] / float(LOOKS))
        self.began = uptime()
        self.due, self.lines = self.began, {}

    def poll(self, look, agents):
        """Look, if it is time for that. `look` gives the ids of the run's processes on this node, and of those that may work for it."""
        now = uptime()
        if now < self.due:
            return
        self.due = now + self.every
        pids, helpers = look()
        self.nodes[self.here].take(list(doing(sorted(pids | helpers))), 2 * self.every, helpers)
        for host in self.others:
            self.lines[host] = []
            agents.ask(host, of_run("doing", self.began, self.params))

    def receive(self, host, lines):
        for line in lines:
            if line.startswith(("doing,", "helper,")) and host in self.lines:
                self.lines[host].append(line)
            elif line == "did" and host in self.lines:
                answer = self.lines.pop(host)
                helpers = [line[len("helper,") :] for line in answer if line.startswith("helper,")]
                doing = [line for line in answer if line.startswith("doing,")]
                self.nodes[host].take(doing + helpers, 2 * self.every, set(Row(line).pid for line in helpers))

    def state(self):
        """For how long all processes and GPUs did nothing, and one process was stopped or waited for a device, with a sentence about that."""
        stuck_s, stuck = max(node.stuck() for node in self.nodes.values())
        idle_s = min(min(node.idle_s, self.gpu_idle_s(host)) for host, node in self.nodes.items())
        return {"idle_s": idle_s, "stuck_s": stuck_s, "stuck": stuck}


class Silence(object):
    """The time for which a log has not grown, compared with how regularly it grew before.

    Lines of steps are the regular part of every log, so the median time between two growths is theirs. Growth within a second counts
    once, because the lines of several ranks come together. A time that the supervisor itself did not run, on a suspended or overloaded
    node, is no silence.
    """

    def __init__(self, path, least_s, factor):
        self.path, self.least_s, self.factor = path, least_s, factor
        self.gaps = collections.deque(maxlen=REMEMBERED)
        self.size, self.silent, self.since_beat = 0, 0.0, None
        self.looked = uptime()

    def is_too_long(self):
        now = uptime()
        passed = min(now - self.looked, BEAT_S)
        self.looked = now
        self.silent += passed
        if self.since_beat is not None:
            self.since_beat += passed
        size = self.present_size()
        if size != self.size:
            self.size, self.silent = size, 0.0
            if self.since_beat is None:
                self.since_beat = 0.0
            elif self.since_beat >= BEAT_S:
                self.gaps.append(self.since_beat)
                self.since_beat = 0.0
        if not self.least_s or self.silent < self.least_s or not self.has_rhythm():
            return False
        return self.silent > self.factor * self.median()

    def present_size(self):
        try:
            return os.lstat(self.path).st_size
        except OSError:
            return self.size

    def median(self):
        return sorted(self.gaps)[len(self.gaps) // 2]

    def has_rhythm(self):
        return len(self.gaps) >= LEAST_BEATS

    def longest(self):
        return max(self.gaps) if self.gaps else 0.0

    def rhythm(self):
        return "before that one every %.1f s" % self.median()


class Hang(object):
    """Judges whether a command hangs, by its log and, until this has a rhythm, by the states of its processes, those of Activity.

    Not every launch of a run writes steps into its log: `first_step_s` is 0 for one that does not.
    """

    def __init__(self, path, params):
        self.silence = Silence(path, params["hung_after_s"], params["hung_after_lines"])
        self.least_s, self.first_step_s = params["hung_after_s"], params["first_step_s"]
        self.result = {}

    def is_starting(self):
        return not self.silence.has_rhythm()

    def reason(self, states):
        """`hung`, or `hung_at_start` before the log has a rhythm; empty if it does not hang. `result` then says why."""
        is_too_long = self.silence.is_too_long()
        sign = self.silence.rhythm() if is_too_long else self.sign_at_start(states)
        if not sign:
            return ""
        self.result = {"silent_s": round(self.silence.silent, 1), "sign": sign}
        return "hung" if is_too_long or not self.first_step_s else "hung_at_start"

    def sign_at_start(self, states):
        silent = self.silence.silent
        if not self.is_starting():
            return ""
        if self.least_s and silent >= self.least_s:
            for state in states:
                if state["stuck_s"] >= self.least_s:
                    return state["stuck"]
            if states and all(state["idle_s"] >= self.least_s for state in states):
                return "and none of its processes did anything"
        if self.first_step_s and silent >= max(self.first_step_s, self.silence.factor * self.silence.longest()):
            return "although the first step may take only %d s (first_step_s)" % self.first_step_s
        return ""
