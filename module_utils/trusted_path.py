"""Check whether a path is safe for root to use: whether only root can change what is there.

A user with write access to a folder can replace a file in it by a link or another file, between any two
system calls of root. So root uses only folders to which no other user can write.
"""

from __future__ import absolute_import, division, print_function

import errno
import grp
import os
import pwd
import stat

MAX_LINKS = 40


def members(gid):
    """Names of the users in a group, except root."""
    try:
        names = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        names = set()
    names.update(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)
    return sorted(names - set(["root"]))


def writers(path, status):
    """A description of users other than root who can change a file or rename files in a folder; None if there are none."""
    if status.st_uid not in (0, os.geteuid()):
        return "%s belongs to user id %d" % (path, status.st_uid)
    if stat.S_ISLNK(status.st_mode):
        return None
    # In a sticky folder such as /tmp, users can rename only their own files.
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & stat.S_IWOTH and not is_sticky:
        return "%s is world-writable" % path
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()) and not is_sticky:
        names = members(status.st_gid)
        if names:
            return "%s is writable by %s" % (path, ", ".join(names))
    return None


def distrust(path):
    """The reason why users other than root could change what is at an absolute path; None if they cannot.

    Checks all parent folders and all links. The check ends at a missing part: if only root can write to the folder
    above it, only root can create it.
    """
    pending = [part for part in reversed(path.split("/")) if part]
    current, links = "/", 0
    above = os.lstat(current)
    reason = writers(current, above)
    while pending and reason is None:
        part = pending.pop()
        if part in (".", ".."):
            current = os.path.dirname(current) if part == ".." else current
            above = os.lstat(current)
            continue
        child = os.path.join(current, part)
        try:
            status = os.lstat(child)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return "any user can create %s" % child if above.st_mode & stat.S_IWOTH else None
        reason = writers(child, status)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                return "%s has a loop of links" % path
            target = os.readlink(child)
            if target.startswith("/"):
                current, above = "/", os.lstat("/")
            pending += [part for part in reversed(target.split("/")) if part]
        else:
            current, above = child, status
    return reason


def refuse_program(module, path, label=""):
    """Fail if root would start a program that other users can change."""
    reason = root_distrusts(path)
    if reason:
        module.fail_json(
            msg="%s%s, so it is not safe for root to start %s. Give only root write access, or choose another program."
            % (label and label + ": ", reason, path)
        )


def root_distrusts(path):
    """Same as distrust, but only when running as root; other users have no privileges to lose."""
    return distrust(path) if path and os.geteuid() == 0 else None
