#!/usr/bin/python
from __future__ import absolute_import, division, print_function, unicode_literals

DOCUMENTATION = {
    "module": "build_archive",
    "short_description": "Check the archive of a build for unsafe contents and install it",
    "description": [
        "Unlike C(unarchive), it checks the whole archive (a tar file compressed with gzip) before it writes the first file. It refuses "
        "setuid, setgid and sticky bits, world-writable files, devices, FIFOs, absolute paths and paths with C(..), links that leave "
        "O(path), duplicate names, names below a link, and names with control characters.",
        "All installed files belong to root. Executable files get mode 0755, others 0644.",
        "The archive is unpacked next to O(path) and renamed, so an interrupted run never leaves a partial build. Existing contents of "
        "O(path) are removed.",
        "Only root may have write access to the folders above O(path).",
    ],
    "options": {
        "archive": {"type": "path", "required": True, "description": "The archive."},
        "path": {"type": "path", "required": True, "description": "The folder to install into."},
        "key": {"type": "str", "required": True, "no_log": False, "description":
            "Name of the build, written to C(.dlperf-build) in O(path)."},
    },
    "attributes": {"check_mode": {"support": "partial", "details": "The archive is checked; nothing is written."}},
}  # fmt: skip

import collections
import errno
import io
import itertools
import os
import re
import tarfile
import zlib

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.trusted_path import distrust
from ansible.module_utils.whole_files import make_folder

STAMP = ".dlperf-build"
CHUNK = 1 << 20
CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Refusal(Exception):
    """An archive has unsafe contents."""


def parts_of(name):
    return tuple(part for part in name.split("/") if part not in ("", "."))


class Contents(object):
    """The members of an archive by path, a tuple of names, in its order. Raises Refusal for an unsafe member."""

    def __init__(self, archive, path):
        self.path = path
        self.members = collections.OrderedDict()
        for member in archive:
            place = parts_of(member.name)
            self.judge(member, place)
            self.members[place] = member
        for place in self.members:
            self.judge_way(place)
        if not any(member.isreg() for member in self.members.values()):
            raise Refusal("it contains no files")

    def refuse(self, member, what):
        raise Refusal("%r %s" % (member.name, what))

    def judge(self, member, place):
        """Check a member on its own and against earlier members."""
        if CONTROL.search(member.name):
            self.refuse(member, "has a control character in its name")
        if member.name.startswith("/") or ".." in place:
            self.refuse(member, "has a path outside the archive")
        if place in self.members:
            self.refuse(member, "occurs twice")
        if place == (STAMP,):
            self.refuse(member, "has the reserved name of the stamp")
        if not (member.isreg() or member.isdir() or member.issym() or member.islnk()):
            self.refuse(member, "is neither a file nor a folder nor a link")
        if member.issym():
            return
        if member.mode & 0o7000:
            self.refuse(member, "is setuid, setgid or sticky (mode %04o)" % member.mode)
        if member.mode & 0o002:
            self.refuse(member, "is world-writable (mode %04o)" % member.mode)
        if member.islnk():
            target = self.members.get(parts_of(member.linkname))
            if target is None or not target.isreg():
                self.refuse(member, "is a hard link to %r, which is not an earlier file" % member.linkname)

    def judge_way(self, place):
        member = self.members[place]
        for length in range(1, len(place)):
            above = self.members.get(place[:length])
            if above is not None and not above.isdir():
                self.refuse(member, "is below %r, which is not a folder" % above.name)
        if member.issym() and not self.stays(place[:-1], member.linkname):
            self.refuse(member, "is a link to %r, which is not in %s" % (member.linkname, self.path))

    def stays(self, folder, target):
        """True if a link in a folder stays below the path, whatever its parts are.

        No member lies below a link, so its folder is a real one, and `..` leads upwards there. After a name, which may be that of another link,
        `..` may lead anywhere.
        """
        names, inside = target.split("/"), parts_of(self.path)
        if target.startswith("/"):
            return ".." not in names and parts_of(target)[: len(inside)] == inside
        steps = [name for name in names if name not in ("", ".")]
        up = len(list(itertools.takewhile(lambda name: name == "..", steps)))
        return up <= len(folder) and ".." not in steps[up:]


def write_file(archive, member, path):
    source = archive.extractfile(member)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with io.open(handle, "wb") as stream:
        for chunk in iter(lambda: source.read(CHUNK), b""):
            stream.write(chunk)
        os.fchmod(stream.fileno(), 0o755 if member.mode & 0o111 else 0o644)


def unpack(archive, contents, new, key):
    """Write everything into a new folder. Times are kept, because Python's compiled files contain them."""

    def folder(place):
        path = os.path.join(new, *place)
        if not os.path.isdir(path):
            folder(place[:-1])
            os.mkdir(path)
            os.chmod(path, 0o755)
        return path

    os.mkdir(new, 0o700)
    os.chown(new, os.geteuid(), os.getegid())  # a setgid folder above may set its group
    os.chmod(new, 0o755)
    newest = 0
    for place, member in contents.members.items():
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
        stream.write("%s\n" % key)
    os.chmod(stamp, 0o644)
    os.utime(stamp, (newest, newest))
    for place, member in reversed(list(contents.members.items())):
        if member.isdir():
            os.utime(os.path.join(new, *place), (member.mtime, member.mtime))


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    os.umask(0o022)
    source, path = module.params["archive"], module.params["path"].rstrip("/")
    new = path + ".dlperf-new"

    def remove(folder):
        module.run_command(["rm", "-rf", "--", folder], check_rc=True, cwd="/")

    for trusted in (source, new):
        reason = distrust(trusted)
        if reason:
            module.fail_json(
                msg="%s is not safe for root to use: %s. Give only root write access, or choose another path." % (trusted, reason)
            )
    try:
        with tarfile.open(source, "r:gz") as archive:
            contents = Contents(archive, path)
            if module.check_mode:
                module.exit_json(changed=True)
            remove(new)
            make_folder(os.path.dirname(path))
            unpack(archive, contents, new, module.params["key"])
        remove(path)
        os.rename(new, path)
    except Refusal as error:
        module.fail_json(msg="%s is unsafe and was not unpacked: %s. Inspect its source before you run again." % (source, error))
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        module.fail_json(msg="Cannot read %s: %s. Remove it and run again." % (source, error))
    except (IOError, OSError) as error:
        remove(new)
        remedy = "Free disk space (df -h)" if error.errno == errno.ENOSPC else "Fix this"
        module.fail_json(msg="Cannot unpack %s to %s: %s. %s and run again." % (source, path, error, remedy))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
