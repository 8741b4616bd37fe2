# -*- coding: utf-8 -*-
"""For benchmark_job: the processes of a node. node_agent has this source, too."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os


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
