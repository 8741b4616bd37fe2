#!/usr/bin/python
from __future__ import absolute_import, division, print_function, unicode_literals

DOCUMENTATION = {
    "module": "node_files",
    "short_description": "Manage several files, directories and text blocks on a node in one execution",
    "description": [
        "Does for a list of paths what C(copy), C(file) and C(blockinfile) do for one, in one execution. Four unchanged paths cost 0.29 s of "
        "CPU time a node with it, and 1.4 s as four tasks with those modules (benchmarks/README.md).",
        "Every file is written under a temporary name and then renamed, so it is never incomplete.",
        "As root it refuses a path below a folder that other users can write to, because they could place a link there. To write to a "
        "user's home, run it as that user (C(become_user)).",
    ],
    "options": {
        "entries": {"type": "list", "elements": "dict", "required": True, "description": "The paths, processed in this order.", "options": {
            "path": {"type": "path", "required": True, "description": "Absolute path."},
            "state": {"type": "str", "choices": ["file", "block", "hosts", "directory", "absent", "blank", "keyring", "limits"], "default": "file", "description": [
                "C(file) contains exactly O(entries[].content). C(block) puts it between two marker lines and keeps the rest of the file. "
                "C(hosts) is a block of /etc/hosts with a line C(ADDRESS NAME) for each host; other lines that give a name of the block a "
                "loopback address become comments, which an empty text restores. C(directory) creates a directory, C(absent) removes the "
                "path.",
                "C(blank) removes a file that contains only white space or a directory without files, and keeps any other.",
                "C(keyring) is a binary file of the armored key in O(entries[].content), because apt before 1.4 cannot read armored "
                "files.",
                "C(limits) is a file for pam_limits. A container cannot raise a limit above its own, and pam_limits would then refuse "
                "every login of the user. So each limit is tried first (in a child process). A limit that is too high is reduced to what "
                "the node allows, with a warning.",
            ]},
            "content": {"type": "str", "default": "", "description": "Text of the file or block. For an empty text, the block is removed."},
            "marker": {"type": "str", "default": "dlperf_runner", "description": "Name in the marker lines of a block."},
            "user": {"type": "str", "description": "The user to whom the limits apply."},
            "limits": {"type": "dict", "default": {}, "description":
                "Limits by their names in limits.conf(5), in its units (memlock in KiB, nofile a number), or C(unlimited)."},
            "mode": {"type": "str", "description": "Mode; the default is 0644 for new files and 0755 for new directories."},
            "owner": {"type": "str", "description": "Owner."},
            "group": {"type": "str", "description": "Group."},
        }},
    },
}  # fmt: skip

import grp
import io
import os
import pwd
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.common.text.converters import to_bytes, to_text
from ansible.module_utils.openpgp_key import dearmored
from ansible.module_utils.trusted_path import root_distrusts
from ansible.module_utils.user_limits import LIMITS, reachable
from ansible.module_utils.whole_files import around_block, difference, read_bytes, with_block


def read(path):
    """Text of a file; empty if it does not exist."""
    return to_text(read_bytes(path) or b"", errors="surrogate_or_strict")


def is_blank(path):
    """True if a file or directory is empty."""
    if os.path.isdir(path) and not os.path.islink(path):
        return not any(files for _folder, _folders, files in os.walk(path))
    return not read(path).strip()


def is_loopback(address):
    return address.startswith("127.") or address == "::1"


def is_local(name):
    """A name that belongs to the loopback address: localhost, ip6-loopback and the like."""
    return name.split(".")[0] in ("localhost", "localhost4", "localhost6", "ip6-localhost", "ip6-loopback", "loopback")


def restored(lines, marker):
    """The lines as they were before `without_loopback`."""
    kept, made = "# %s had: " % marker, " # %s" % marker
    lines = (line for line in lines if line.startswith("#") or not line.endswith(made))
    return [line[len(kept) :] if line.startswith(kept) else line for line in lines]


def without_loopback(text, block, marker):
    """The text without lines that give a loopback address to a name of the block, and the block with their other names.

    Debian's installer writes `127.0.1.1 node1.example node1`: on the node itself, its own name is then the loopback address, where no other
    node listens. The line stays as a comment, and the full name moves to the node's address in the block. An empty block restores all.
    """
    begin, end = "# BEGIN %s" % marker, "# END %s" % marker
    names = set(name for line in block.splitlines() for name in line.split()[1:])
    result, others, inside = [], {}, False
    for line in restored(text.splitlines(), marker):
        inside = (inside or line.strip() == begin) and line.strip() != end
        fields = line.partition("#")[0].split()
        ours = [name for name in fields[1:] if name in names]
        if inside or not ours or not is_loopback(fields[0]):
            result.append(line)
            continue
        # In their order: the first name of a line is the full one.
        aliases = others.setdefault(ours[0], [])
        aliases += [name for name in fields[1:] if name not in aliases and (name == ours[0] or not (name in names or is_local(name)))]
        local = [name for name in fields[1:] if is_local(name)]
        result.append("# %s had: %s" % (marker, line))
        if local:
            result.append("%s # %s" % (" ".join(fields[:1] + local), marker))
    lines = [line.split() for line in block.splitlines()]
    block = "\n".join(
        " ".join(fields[:1] + [other for name in fields[1:] for other in others.get(name, [name])]) for fields in lines if fields
    )
    return "".join(line + "\n" for line in result), block


class Node(object):
    """Applies entries on this node and collects the changes."""

    def __init__(self, module):
        self.module = module
        self.diffs = []

    def set_access(self, entry, existed):
        """Set mode, owner and group of a path. In check mode, an unknown owner is accepted: an earlier task would create it."""
        path, changed = entry["path"], False
        mode = entry["mode"]
        if mode is None and not existed:
            mode = "0755" if entry["state"] == "directory" else "0644"
        if not os.path.lexists(path):
            return
        if mode is not None:
            changed |= self.module.set_mode_if_different(path, mode, False)
        if entry["owner"] is not None and self.exists(pwd.getpwnam, entry["owner"]):
            changed |= self.module.set_owner_if_different(path, entry["owner"], False)
        if entry["group"] is not None and self.exists(grp.getgrnam, entry["group"]):
            changed |= self.module.set_group_if_different(path, entry["group"], False)
        if changed and path not in [diff["after_header"] for diff in self.diffs]:
            self.diffs.append(difference(path, "", "mode, owner: %s %s\n" % (mode, entry["owner"])))

    def exists(self, lookup, name):
        try:
            lookup(name)
        except KeyError:
            if self.module.check_mode:
                return False
            self.module.fail_json(msg="this node has no user or group %s" % name)
        return True

    def limits(self, entry):
        lines = ["# Made by dlperf_runner"]
        for name, wanted in sorted(entry["limits"].items()):
            wanted = str(wanted)
            if name not in LIMITS or not (wanted == "unlimited" or wanted.isdigit()):
                self.module.fail_json(
                    msg="limits: expected one of %s with a number or 'unlimited', found %s: %s" % (", ".join(sorted(LIMITS)), name, wanted)
                )
            allowed = reachable(name, wanted)
            if allowed != wanted:
                self.module.warn(
                    "%s of %s: requested %s, but this node (perhaps a container) allows only %s" % (name, entry["user"], wanted, allowed)
                )
            lines.append("%s - %s %s" % (entry["user"], name, allowed))
        return "\n".join(lines) + "\n"

    def write(self, path, content):
        directory = os.path.dirname(path)
        if not os.path.isdir(directory):
            self.module.fail_json(msg="%s: the directory of this file does not exist" % path)
        handle, temporary = tempfile.mkstemp(dir=self.module.tmpdir)
        with io.open(handle, "wb") as stream:
            stream.write(content)
        # A container's /etc/hosts is a mount point, which a rename cannot replace.
        self.module.atomic_move(temporary, path, unsafe_writes=os.path.ismount(path))

    def bring(self, entry):
        path, state, really = entry["path"], entry["state"], not self.module.check_mode
        reason = root_distrusts(os.path.dirname(path))
        if reason:
            self.module.fail_json(msg="%s is not safe for root to use: %s. Give only root write access." % (path, reason))
        existed = os.path.lexists(path)
        if state in ("absent", "blank"):
            if existed and (state == "absent" or is_blank(path)):
                self.diffs.append(difference(path, "present\n", "absent\n"))
                if really:
                    # Unlike Python 2's rmtree, rm does not follow a link that is created while it runs.
                    self.module.run_command(["rm", "-rf", "--one-file-system", "--", path], check_rc=True, cwd="/")
            return
        if state == "directory":
            if existed and not os.path.isdir(path):
                self.module.fail_json(msg="%s is a file, expected a directory" % path)
            if not existed:
                self.diffs.append(difference(path, "absent\n", "directory\n"))
                if really:
                    os.makedirs(path)
        elif state == "keyring":
            try:
                key = dearmored(to_bytes(entry["content"]))
            except ValueError as error:
                self.module.fail_json(msg="%s: invalid key: %s" % (path, error))
            if read_bytes(path) != key:
                self.diffs.append(difference(path, "", "a keyring of %d bytes\n" % len(key)))
                if really:
                    self.write(path, key)
        else:
            before = read(path)
            # In Python 2 the content is bytes.
            after = self.limits(entry) if state == "limits" else to_text(entry["content"])
            if state in ("block", "hosts"):
                text, block = without_loopback(before, after, entry["marker"]) if state == "hosts" else (before, after)
                try:
                    above, _block, below = around_block(text, entry["marker"])
                except ValueError as error:
                    self.module.fail_json(msg="%s: %s" % (path, error))
                after = with_block(above, block.splitlines() if block.strip() else [], below, entry["marker"])
            elif after and not after.endswith("\n"):
                after += "\n"
            if before != after or (state not in ("block", "hosts") and not existed):
                self.diffs.append(difference(path, before, after))
                if really:
                    self.write(path, to_bytes(after, errors="surrogate_or_strict"))
        self.set_access(entry, existed)


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    node = Node(module)
    for entry in module.params["entries"]:
        try:
            node.bring(entry)
        except (IOError, OSError) as error:
            module.fail_json(msg="%s: %s" % (entry["path"], error.strerror or error))
    module.exit_json(changed=bool(node.diffs), diff=node.diffs)


if __name__ == "__main__":
    main()
