# -*- coding: utf-8 -*-
"""A node's lock: one campaign at a time, which proves with a lease that it is alive.

    lock           who holds it: campaign, owner, host, since, token, lease_s, boot_id
    lease.TOKEN    belongs to the benchmarks' user; its mtime is the node's uptime when it was renewed

Only root makes and removes files there, so a holder whose lease is gone has lost the node for good,
however long it slept. Times are the node's uptime: no clock that is set changes them. The directory
is on a tmpfs, and `boot_id` says so where it is not.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import json
import os

DIRECTORY = "/run/dlperf"


def uptime():
    with open("/proc/uptime") as handle:
        return float(handle.read().split()[0])


def boot_id():
    with open("/proc/sys/kernel/random/boot_id") as handle:
        return handle.read().strip()


def lease_path(directory, token):
    return os.path.join(directory, "lease." + token)


def age(directory, token):
    """Seconds since the lease was renewed; None where there is none."""
    try:
        return uptime() - os.stat(lease_path(directory, token)).st_mtime
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def is_held(directory, token, lease_s):
    """Whether the lease still stands. One of the future was not renewed by anybody honest."""
    since = age(directory, token)
    return since is not None and -1 <= since <= lease_s


def renew(directory, token):
    """Renew the lease; false where it is gone."""
    now = uptime()
    try:
        os.utime(lease_path(directory, token), (now, now))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise
    return True


def holder(directory):
    """Who holds the node now; None where nobody does, or who did is dead."""
    try:
        with open(os.path.join(directory, "lock")) as handle:
            lock = json.load(handle)
        alive = lock["boot_id"] == boot_id() and is_held(directory, lock["token"], lock["lease_s"])
    except (IOError, OSError, ValueError, KeyError, TypeError):
        return None
    return lock if alive else None
