"""Whether root may rely on a path: whether nobody else can change what lies there.

Who may write a folder can rename what is in it, and put a link or another file in its place, between any two
system calls of root. So root acts below folders only that nobody else may write.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import errno
import grp
import os
import pwd
import stat

MAX_LINKS = 40


def members(gid):
    """Names of the users in a group, but for root."""
    try:
        names = set(grp.getgrgid(gid).gr_mem)
    except KeyError:
        names = set()
    names.update(user.pw_name for user in pwd.getpwall() if user.pw_gid == gid)
    return sorted(names - set(["root"]))


def writers(path, status):
    """Who but root may change a file, or rename what is in a folder, in words; None where nobody may."""
    if status.st_uid not in (0, os.geteuid()):
        return "%s belongs to user id %d" % (path, status.st_uid)
    if stat.S_ISLNK(status.st_mode):
        return None
    # In a folder like /tmp nobody can rename what belongs to others.
    is_sticky = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
    if status.st_mode & stat.S_IWOTH and not is_sticky:
        return "everybody may write %s" % path
    if status.st_mode & stat.S_IWGRP and status.st_gid not in (0, os.getegid()) and not is_sticky:
        names = members(status.st_gid)
        if names:
            return "%s may write %s" % (", ".join(names), path)
    return None


def distrust(path):
    """Why somebody but root could change what lies at an absolute path, in words; None where nobody could.

    Every folder on the way and every link is looked at. A part that does not exist ends the look: where only root
    may write the folder above it, nobody else can make it.
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
        found = os.path.join(current, part)
        try:
            status = os.lstat(found)
        except OSError as error:
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                raise
            return "everybody may make %s" % found if above.st_mode & stat.S_IWOTH else None
        reason = writers(found, status)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > MAX_LINKS:
                return "%s: links go in circles" % path
            target = os.readlink(found)
            if target.startswith("/"):
                current, above = "/", os.lstat("/")
            pending += [part for part in reversed(target.split("/")) if part]
        else:
            current, above = found, status
    return reason


def root_distrusts(path):
    """The same, for what has no rights to lose where it is not root."""
    return distrust(path) if path and os.geteuid() == 0 else None
