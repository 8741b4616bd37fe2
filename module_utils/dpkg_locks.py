"""Run apt and dpkg when no other process holds their locks, and name the process that does.

apt waits by itself only since 1.9.11 (not on Ubuntu 16.04 and 18.04), dpkg never.
"""

from __future__ import absolute_import, division, print_function

import errno
import fcntl
import os
import re
import struct
import time

from .node_probes import text

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")
REMEDY = "wait for it or stop it, then run again; dlperf_lock_timeout sets how long to wait"
# Printed by apt or dpkg if a process took a lock after the check
LOST = r"Could not get lock|Unable to (?:acquire|lock)|locked by another process|is another process using it"
# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid
FLOCK = "hhqqi0q"


def holder(path):
    """The process that holds the lock, as `apt-get, process 4711`; empty if the lock is free. Does not take the lock."""
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return ""
        raise
    try:
        answer = fcntl.fcntl(descriptor, fcntl.F_GETLK, struct.pack(FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0))
    finally:
        os.close(descriptor)
    kind, _whence, _start, _length, process = struct.unpack(FLOCK, answer)
    if kind == fcntl.F_UNLCK:
        return ""
    if process <= 0:  # in another namespace, such as the host of this container
        return "a process outside this node"
    name = text("/proc/%d/comm" % process)
    return "%s, process %d" % (name, process) if name else "process %d" % process


def wait_for_locks(timeout, end=None):
    """None if all locks become free in time; else a description of the problem. `end`: when the time is over, if it began earlier."""
    end = time.time() + timeout if end is None else end
    while True:
        held = [(who, path) for path, who in ((path, holder(path)) for path in LOCKS) if who]
        if not held:
            return None
        if time.time() >= end:
            return "%s has held %s for %d s" % (held[0] + (timeout,))
        time.sleep(1)


def run_when_free(module, argv, timeout, environment):
    """(exit status, output, errors) of an apt or dpkg that was started when the locks were free.

    If another process takes a lock first, it is started again. If the time is over, the errors name the holder.
    """
    end = time.time() + timeout
    while True:
        problem = wait_for_locks(timeout, end)
        if problem:
            return 100, "", "Could not get lock: %s" % problem
        code, output, errors = module.run_command(argv, environ_update=environment)
        if code == 0 or not re.search(LOST, errors) or time.time() >= end:
            return code, output, errors
        time.sleep(1)
