# -*- coding: utf-8 -*-
"""For benchmark_job: when a command hangs, what its processes are doing then, and how they end on nodes that only mpirun reaches."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import collections
import os
import re
import signal
import subprocess
import tempfile
import time

from ansible.module_utils.node_agents import alone, signal_group
from ansible.module_utils.node_lock import uptime
from ansible.module_utils.owned_file import create, size_and_end

BEAT_S = 1.0
LEAST_BEATS = 5
REMEMBERED = 1000
ASK_S = 60
TAIL_BYTES = 16384
STATE_BYTES = 4 << 20
NOT_REACHED = 255  # ssh's exit status

# Prints the state of each given process: by py-spy if it is beside the program's Python or in PATH (a process of this user needs no root for
# its own children, unless ptrace is forbidden), and what the kernel says. `stack` is readable only to root. No single quotes, as below.
STATE = r"""
for p in "$@"; do
  [ -d /proc/$p ] || continue
  echo; echo "== process $p: $(tr "\0" " " < /proc/$p/cmdline | cut -c 1-400)"
  grep -E "^(State|PPid|Threads|VmRSS|SigPnd|voluntary)" /proc/$p/status
  for t in /proc/$p/task/[0-9]*; do
    echo "thread ${t##*/} $(cat $t/comm): waits in $(cat $t/wchan 2>/dev/null), $(sed -n "s/^State:.//p" $t/status)"
    cat $t/stack 2>/dev/null | head -n 20
  done 2>/dev/null | head -n 200
  python=$(readlink /proc/$p/exe); spy=$(tr "\0" "\n" < /proc/$p/cmdline | sed -n "1s,[^/]*$,py-spy,p")
  [ -x "$spy" ] || spy=$(command -v py-spy)
  case $python in *python*) [ -z "$spy" ] || timeout 15 "$spy" dump --nonblocking --pid $p 2>&1 | head -n 400;; esac
done
"""
# Prints the ids of this user's processes that came by ssh, without a terminal, from the node that asks, since the run began. mpirun's daemon
# and its ranks are such; nobody's login shell is. This session is none of them: its connection has another port. Nor is the node's agent.
FIND = r"""
found() {
  read -r up rest < /proc/uptime
  for p in /proc/[0-9]*; do
    [ -r $p/environ ] || continue
    from=$(tr "\0" "\n" < $p/environ 2>/dev/null | grep -e "^SSH_CONNECTION=" -e "^SSH_TTY=" -e "^DLPERF_AGENT=")
    case $from in
      *SSH_TTY=*|*DLPERF_AGENT=*|"SSH_CONNECTION=$SSH_CONNECTION") continue;;
      "SSH_CONNECTION=${SSH_CONNECTION%% *} "*) ;;
      *) continue;;
    esac
    start=$(sed "s/.*) //" $p/stat 2>/dev/null | cut -d " " -f 20)
    [ -n "$start" ] && [ $((${up%.*} - start / $(getconf CLK_TCK))) -le AGE ] && echo ${p#/proc/}
  done
}
"""
END = """
for n in 1 2 3 4 5; do
  pids=$(found); [ -n "$pids" ] || break
  kill -KILL $pids 2>/dev/null; sleep 0.2
done
for p in $(found); do echo "process $p: $(tr "\\0" " " < /proc/$p/cmdline | cut -c 1-200)"; done
"""
TABLE = 'echo; echo "== processes"; ps -eo user,pid,ppid,pgid,stat,etimes,time,wchan:20,args 2>/dev/null | cut -c 1-200'


class Silence(object):
    """How long a log has not grown, compared with how regularly it grew before.

    The supervisor knows no format of logs. Lines of steps are the regular part of every log, so the
    median time between two growths is that of a step line, or of several if a program buffers its
    output. Growth within a second counts once, because the lines of several ranks come together.
    Without a rhythm (before training, for example while a program is compiled), silence alone is no
    hang (see run_activity.py). A time that the supervisor itself did not run, on a suspended or overloaded node, is no
    silence.
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


def state_name(host):
    """The file beside the log with the state of a run that hung."""
    return "hang-%s.txt" % re.sub(r"[^A-Za-z0-9._-]", "_", host or "node")


def keep_states(params, pids, began, environment):
    """Write the end of the log, the state of the run's processes on this node and its others, and the table of processes. Never fails.

    Returns the other nodes that cannot be reached.
    """
    age = int(uptime() - began) + 1
    children = [(params["host"], ask(["sh", "-c", STATE + TABLE, "sh"] + [str(pid) for pid in sorted(pids)], environment))]
    for host, address in sorted(params["hosts"].items()):
        children.append((host, ask_by_ssh(address, FIND.replace("AGE", str(age)) + "set -- $(found)\n" + STATE + TABLE, environment)))
    states = [(host, answered(child)[1][:STATE_BYTES]) for host, child in children]
    away = [host for host, child in children[1:] if child and child[0].returncode == NOT_REACHED]
    end = size_and_end(os.path.join(params["directory"], params["log"]), TAIL_BYTES)[1]
    try:
        with os.fdopen(create(os.path.join(params["directory"], state_name(params["host"]))), "wb") as handle:
            handle.write(b"== end of the log\n" + end)
            for host, state in states:
                handle.write(("\n==== %s\n" % host).encode("utf-8") + (state or b"no answer\n"))
    except (IOError, OSError):
        pass  # a full disk, for example
    return away


def end_others(hosts, began, environment):
    """Kill the run's processes on its other nodes. Returns a line for each that is left, and for each node that does not answer."""
    age = int(uptime() - began) + 1
    script = FIND.replace("AGE", str(age)) + END
    left = []
    for host, child in [(host, ask_by_ssh(address, script, environment)) for host, address in sorted(hosts.items())]:
        complete, text = answered(child)
        lines = text.decode("utf-8", "replace").splitlines() if complete else ["cannot be checked for processes of the run"]
        left += ["%s: %s" % (host, line) for line in lines]
    return left


def ask_by_ssh(address, script, environment):
    return ask(["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "--", address, "sh -c '%s'" % script], environment)


def ask(argv, environment):
    """Start a command; its process, its output and its deadline. None if it cannot be started."""
    output = tempfile.TemporaryFile()
    try:
        with open(os.devnull, "r+b") as nothing:
            child = subprocess.Popen(argv, stdin=nothing, stdout=output, stderr=nothing, env=environment, preexec_fn=alone, close_fds=True)
    except (IOError, OSError):
        return None
    return child, output, uptime() + ASK_S


def answered(asked):
    """Whether a command succeeded in time, and what it printed until then."""
    if asked is None:
        return False, b""
    child, output, deadline = asked
    while child.poll() is None and uptime() < deadline:
        time.sleep(0.02)
    if child.poll() is None:
        signal_group(child.pid, signal.SIGKILL)
        child.wait()
    output.seek(0)
    text = output.read()
    output.close()
    return child.returncode == 0, text
