#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: build_archive
short_description: Put the archive of a build in its place, once everything in it is known to be harmless
description:
  - Differs from C(unarchive) in that the whole archive, a tar packed with gzip, is read and judged before the first file is
    written, and in what is refused - setuid, setgid and sticky bits, what everybody may write, devices, FIFOs, absolute and
    upward names, links that leave O(path), names twice or below a link, and names with control characters.
  - Everything belongs to root afterwards; files have mode 0755 where they can be executed and 0644 where not.
  - It is unpacked beside O(path) and renamed, so that what was cut off is never taken for the whole. What was at O(path) is removed.
  - Nobody but root may be able to write the folders above O(path).
options:
  archive: {description: The archive., type: path, required: true}
  path: {description: The folder that its content lies in afterwards., type: path, required: true}
  key: {description: "Name of the build, kept in C(.dlperf-build) in O(path).", type: str, required: true, no_log: false}
attributes:
  check_mode: {support: partial, details: The archive is judged; nothing is written.}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Install the build of OpenMPI
  build_archive:
    archive: /var/lib/dlperf/files/openmpi-4.0.0.tar.gz
    path: /usr/local/openmpi
    key: openmpi-4.0.0_glibc-2.31_x86_64_549ee99f
"""

RETURN = r""" # """

import errno
import io
import os
import re
import tarfile
import zlib

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trusted_path import distrust

STAMP = ".dlperf-build"
MAX_LINKS = 40
CHUNK = 1 << 20
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Refusal(Exception):
    """Why an archive is not unpacked."""


def parts_of(name):
    return tuple(part for part in name.split("/") if part not in ("", "."))


class Contents(object):
    """The members of an archive by their place, a tuple of names; Refusal where one of them is not harmless."""

    def __init__(self, archive, path):
        self.path = path
        self.members = {}
        self.order = []
        for member in archive:
            place = parts_of(member.name)
            self.judge(member, place)
            self.members[place] = member
            self.order.append(place)
        for place in self.order:
            self.judge_way(place)
        if not any(member.isreg() for member in self.members.values()):
            raise Refusal("there is no file in it")

    def refuse(self, member, what):
        raise Refusal("%r %s" % (member.name, what))

    def judge(self, member, place):
        """What can be said of a member alone, and of those before it."""
        if CONTROL.search(member.name):
            self.refuse(member, "has a control character in its name")
        if member.name.startswith("/") or ".." in place:
            self.refuse(member, "lies outside of the archive")
        if place in self.members:
            self.refuse(member, "is in it twice")
        if place == (STAMP,):
            self.refuse(member, "has the name of the stamp, which is not the build's to write")
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            self.refuse(member, "is neither a file nor a folder nor a link")
        if member.issym():
            return
        if member.mode & 0o7000:
            self.refuse(member, "is setuid, setgid or sticky (mode %04o)" % member.mode)
        if member.mode & 0o002:
            self.refuse(member, "may be written by everybody (mode %04o)" % member.mode)
        if member.islnk():
            target = self.members.get(parts_of(member.linkname))
            if target is None or not target.isreg():
                self.refuse(member, "is a hard link to %r, which is no file in front of it" % member.linkname)

    def judge_way(self, place):
        member = self.members[place]
        for length in range(1, len(place)):
            above = self.members.get(place[:length])
            if above is not None and not above.isdir():
                self.refuse(member, "lies below %r, which is no folder" % above.name)
        if member.issym() and not self.stays(place[:-1], member.linkname):
            self.refuse(member, "is a link to %r, which is not in %s" % (member.linkname, self.path))

    def stays(self, folder, target):
        """Whether a link in a folder leads to a place below the path, through whatever other links."""
        way, pending, links = list(folder), [target], 0
        while pending:
            text = pending.pop()
            if text.startswith("/"):
                inside, given = parts_of(self.path), parts_of(text)
                if given[: len(inside)] != inside:
                    return False
                way, text = [], "/".join(given[len(inside) :])
            first, _slash, rest = text.partition("/")
            if rest:
                pending.append(rest.lstrip("/"))
            if first in ("", "."):
                continue
            if first == "..":
                if not way:
                    return False
                way.pop()
                continue
            member = self.members.get(tuple(way) + (first,))
            if member is not None and member.issym():
                links += 1
                if links > MAX_LINKS:
                    return False
                pending.append(member.linkname)
            else:
                way.append(first)
        return True


def write_file(archive, member, path):
    source = archive.extractfile(member)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with io.open(handle, "wb") as stream:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            stream.write(chunk)
        os.fchmod(stream.fileno(), 0o755 if member.mode & 0o111 else 0o644)


def unpack(archive, contents, new, key):
    """Write everything below a folder that does not exist yet. Times are kept: Python's compiled files name them."""

    def folder(place):
        path = os.path.join(new, *place)
        if not os.path.isdir(path):
            folder(place[:-1])
            os.mkdir(path)
            os.chmod(path, 0o755)
        return path

    os.mkdir(new, 0o700)
    os.chown(new, os.geteuid(), os.getegid())  # a folder above may hand its group down
    os.chmod(new, 0o755)
    newest = 0
    for place in contents.order:
        member = contents.members[place]
        newest = max(newest, member.mtime)
        if member.isdir():
            folder(place)
            continue
        path = os.path.join(folder(place[:-1]), place[-1])
        if member.issym():
            os.symlink(member.linkname, path)
            if os.utime in getattr(os, "supports_follow_symlinks", ()):
                os.utime(path, (member.mtime, member.mtime), follow_symlinks=False)
        elif member.islnk():
            os.link(os.path.join(new, *parts_of(member.linkname)), path)
        else:
            write_file(archive, member, path)
            os.utime(path, (member.mtime, member.mtime))
    stamp = os.path.join(new, STAMP)
    with io.open(stamp, "w", encoding="utf-8") as stream:
        stream.write(u"%s\n" % key)
    os.chmod(stamp, 0o644)
    os.utime(stamp, (newest, newest))
    for place in reversed(contents.order):
        member = contents.members[place]
        if member.isdir():
            os.utime(os.path.join(new, *place), (member.mtime, member.mtime))


def main():
    module = AnsibleModule(
        argument_spec={
            "archive": {"type": "path", "required": True},
            "path": {"type": "path", "required": True},
            "key": {"type": "str", "required": True, "no_log": False},
        },
        supports_check_mode=True,
    )
    os.umask(0o022)
    source, path = module.params["archive"], module.params["path"].rstrip("/")
    new = path + ".dlperf-new"

    def remove(folder):
        module.run_command(["rm", "-rf", "--", folder], check_rc=True, cwd="/")

    for trusted in (source, new):
        reason = distrust(trusted)
        if reason:
            module.fail_json(
                msg="%s: %s, and root would rely on it. Let nobody but root write there, or choose another place." % (trusted, reason)
            )
    try:
        with tarfile.open(source, "r:gz") as archive:
            contents = Contents(archive, path)
            if module.check_mode:
                module.exit_json(changed=True)
            remove(new)
            if not os.path.isdir(os.path.dirname(path)):
                os.makedirs(os.path.dirname(path), 0o755)
            unpack(archive, contents, new, module.params["key"])
        remove(path)
        os.rename(new, path)
    except Refusal as error:
        module.fail_json(
            msg="%s is not unpacked: %s. No sound build has that: look at its source before you run again."
            % (source, error)
        )
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        module.fail_json(msg="%s cannot be read: %s. Remove it, and run again." % (source, error))
    except (IOError, OSError) as error:
        remove(new)
        remedy = "make room (df -h)" if error.errno == errno.ENOSPC else "correct it"
        module.fail_json(msg="%s cannot be unpacked to %s: %s; %s, and run again." % (source, path, error, remedy))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
