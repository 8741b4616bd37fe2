# -*- coding: utf-8 -*-
"""For benchmark_job: the processes of a node. node_agent has this source, too."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os
import re


def doing(pids, content):
    """Lines `doing,PID,START,STATE,SWITCHES,TICKS,BYTES,NAME` of the processes that have not ended.

    STATE and SWITCHES, the number of times that it began or stopped to run, are those of the main thread. TICKS counts all threads and the
    children that have ended, BYTES what was read and written. `content` is that of node_sampler.
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


def local():
    """Lines `/proc/4711 1000` and `4711 (python) S 1 ...` (proc_pid_stat(5)) of each process, as `processes` reads them."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                yield "/proc/%s %d" % (name, os.stat("/proc/" + name).st_uid)
                with open("/proc/%s/stat" % name, "rb") as handle:
                    yield handle.read().decode("utf-8", "replace")
            except (IOError, OSError):
                continue  # the process has ended


def processes(lines):
    """{(pid, start): (name, uid, parent, ticks)}."""
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


def is_alive(pid):
    """Whether this user has a process with this id."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
