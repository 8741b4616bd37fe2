"""Wait until apt and dpkg are free, and name the process that holds their locks (apt waits only since 1.9.11)."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import fcntl
import io
import os
import time

LOCKS = ("/var/lib/dpkg/lock-frontend", "/var/lib/dpkg/lock", "/var/lib/apt/lists/lock", "/var/cache/apt/archives/lock")


def is_locked(path):
    """Whether another process holds the lock; this check takes it for a moment."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except OSError as error:
        if error.errno == errno.ENOENT:
            return False
        raise
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (IOError, OSError) as error:
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return True
        raise
    finally:
        os.close(descriptor)
    return False


def holder(path):
    """The process that holds the lock, according to /proc/locks: `apt-get, process 4711`."""
    inode = str(os.stat(path).st_ino)
    with io.open("/proc/locks", encoding="ascii", errors="replace") as stream:
        for line in stream:
            # 1: POSIX  ADVISORY  WRITE 4711 08:01:131076 0 EOF
            fields = line.split()
            if "->" not in fields and fields[5].rpartition(":")[2] == inode:
                try:
                    with io.open("/proc/%s/comm" % fields[4], encoding="utf-8", errors="replace") as name:
                        return "%s, process %s" % (name.read().strip(), fields[4])
                except (IOError, OSError):
                    return "process %s" % fields[4]
    return "another process"


def wait_for_locks(timeout):
    """None if all locks become free in time; else a description of the problem."""
    end = time.time() + timeout
    while True:
        held = [path for path in LOCKS if is_locked(path)]
        if not held:
            return None
        if time.time() >= end:
            return "%s has held %s for %d s" % (holder(held[0]), held[0], timeout)
        time.sleep(1)
