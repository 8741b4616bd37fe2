"""A node's lock: only one campaign at a time holds it, and renews a lease to show that it is alive.

    lock           the holder: campaign, owner, host, since, token, lease_s, boot_id
    lease.TOKEN    belongs to the benchmarks' user; its mtime is the node's uptime at the last renewal

Only root creates and removes files there, so a holder without a lease has lost the node for good,
however long it was suspended. Times are the node's uptime, which no change of the clock affects. The
directory is on a tmpfs; `boot_id` detects a reboot if it is not.
"""

from __future__ import absolute_import, division, print_function

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
    """Seconds since the lease was renewed; None if there is no lease."""
    try:
        return uptime() - os.stat(lease_path(directory, token)).st_mtime
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return None
        raise


def is_held(directory, token, lease_s):
    """True if the lease is still valid. A lease from the future is not valid."""
    since = age(directory, token)
    return since is not None and -1 <= since <= lease_s


def renew(directory, token):
    """Renew the lease; False if it is missing."""
    now = uptime()
    try:
        os.utime(lease_path(directory, token), (now, now))
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR):
            return False
        raise
    return True


def holder(directory):
    """The current lock; None if there is none or its holder is dead."""
    try:
        with open(os.path.join(directory, "lock")) as handle:
            lock = json.load(handle)
        alive = lock["boot_id"] == boot_id() and is_held(directory, lock["token"], lock["lease_s"])
    except (IOError, OSError, ValueError, KeyError, TypeError):
        return None
    return lock if alive else None
