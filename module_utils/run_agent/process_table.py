"""The processes of a node: which there are, whose, and what they do. node_agent has this source, too."""

from __future__ import absolute_import, division, print_function

import errno
import os
import re
import signal
import subprocess
import tempfile
import time

from .lock import uptime
from .node_sampler import content

STATES_S = 60
STATES_BYTES = 4 << 20
# Prints the state of each given process: by py-spy if it is beside the program's Python or in PATH (a process of this user needs no root for
# its own children, unless ptrace is forbidden), and what the kernel says. `stack` is readable only to root.
STATES = r"""
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
echo; echo "== processes"; ps -eo user,pid,ppid,pgid,stat,etimes,time,wchan:20,args 2>/dev/null | cut -c 1-200
"""


def doing(pids):
    """Lines `doing,PID,START,STATE,SWITCHES,TICKS,BYTES,NAME` of the processes that have not ended.

    STATE and SWITCHES, the number of times that it began or stopped to run, are those of the main thread. TICKS counts all threads and the
    children that have ended, BYTES what was read and written.
    """
    for pid in pids:
        folder = "/proc/%d/" % pid
        # 4711 (python) S 1 ...
        head, _, rest = content(folder + "stat").rpartition(")")
        fields = rest.split()
        if len(fields) < 20 or fields[0] in "ZX":
            continue
        ticks = sum(int(field) for field in fields[11:15])
        switches = sum(int(count) for count in re.findall(r"voluntary_ctxt_switches:\s+(\d+)", content(folder + "status")))
        moved = sum(int(count) for count in re.findall(r"(?m)^(?:rchar|wchar|read_bytes|write_bytes): (\d+)", content(folder + "io")))
        name = re.sub(r"[\x00-\x1f]", " ", head.partition("(")[2])
        yield "doing,%d,%s,%s,%d,%d,%d,%s" % (pid, fields[19], fields[0], switches, ticks, moved, name)


def states(pids):
    """The states of these processes and their threads, and the table of all processes."""
    return executed(["sh", "-c", STATES, "sh"] + [str(pid) for pid in sorted(pids)], STATES_S)[:STATES_BYTES].decode("utf-8", "replace")


def processes():
    """{(pid, start): (name, uid, parent, ticks)} of all processes of this node, from proc_pid_stat(5): `4711 (python) S 1 ...`."""
    table = {}
    for number in filter(str.isdigit, os.listdir("/proc")):
        head, _, rest = content("/proc/%s/stat" % number).rpartition(")")
        fields = rest.split()
        try:
            ticks = int(fields[11]) + int(fields[12])
            row = (head.partition(" (")[2], os.stat("/proc/" + number).st_uid, int(fields[1]), ticks)
            table[int(number), int(fields[19])] = row
        except (IndexError, OSError, ValueError):
            continue  # the process has ended
    return table


def descendants(table, roots):
    """Ids of these processes and all their descendants."""
    parents = dict((pid, row[2]) for (pid, _), row in table.items())
    family = set(roots)
    grown = True
    while grown:
        more = set(pid for pid, parent in parents.items() if parent in family and pid not in family)
        family |= more
        grown = bool(more)
    return family


def variables(pid):
    """The environment with which a process of this user was started; empty if it cannot be read."""
    return dict(entry.partition("=")[::2] for entry in content("/proc/%d/environ" % pid).split("\0"))


def is_marked(pid, marks):
    """True if a process was started with all of these variables, NAME=VALUE, and is no agent."""
    given = variables(pid)
    return "DLPERF_AGENT" not in given and all(given.get(mark.partition("=")[0]) == mark.partition("=")[2] for mark in marks)


def helpers(marks):
    """Ids of other processes that Slurm has started for the job in which this program is. Some may work for a run without its marks: a plugin
    of Slurm unpacks the image of its container."""
    table = processes()
    daemon = "slurmstepd: [%s." % dict(mark.partition("=")[::2] for mark in marks).get("DLPERF_JOB")
    steps = [pid for pid, _ in table if content("/proc/%d/cmdline" % pid).startswith(daemon)]
    return set(pid for pid in descendants(table, steps) - descendants(table, [os.getpid()]) if "DLPERF_AGENT" not in variables(pid))


def is_alive(pid):
    """True if this user has a process with this id, or, if it is negative, in this group."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def executed(argv, seconds=STATES_S, environment=None):
    """The output of a command within so many seconds, after which it is killed; empty if it cannot be started."""
    with tempfile.TemporaryFile() as output, open(os.devnull, "r+b") as nothing:
        try:
            child = subprocess.Popen(
                argv, stdin=nothing, stdout=output, stderr=nothing, cwd="/", env=environment, preexec_fn=alone, close_fds=True
            )
        except (IOError, OSError):
            return b""
        deadline = uptime() + seconds
        while child.poll() is None and uptime() < deadline:
            time.sleep(0.02)
        signal_group(child.pid, signal.SIGKILL)
        child.wait()
        output.seek(0)
        return output.read()


def alone():
    """In a child: start a new session, and end when nobody reads (Python 2 leaves SIGPIPE ignored)."""
    os.setsid()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)


def prctl(option, value):
    """Call prctl(2), if the C library has it."""
    try:
        import ctypes

        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)
    except (ImportError, AttributeError, OSError):
        pass


def signal_group(pid, number):
    try:
        os.killpg(pid, number)
    except OSError as error:
        if error.errno != errno.ESRCH:
            raise
