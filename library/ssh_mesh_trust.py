#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: ssh_mesh_trust
short_description: Let the members of a cluster log in to this node, and register their host keys
description:
  - Manages one block in the user's authorized_keys and one in the node's known hosts. Lines outside the blocks stay
    as they are.
  - A member whose keys are unknown in this run (because it is down or was not selected) keeps its existing entry, with the
    current addresses. Entries of former members are removed.
options:
  user: {description: The user., type: str, required: true}
  members:
    description: All members of the cluster.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: Host name., type: str, required: true}
      addresses: {description: Its addresses in the cluster., type: list, elements: str, required: true}
      public_key: {description: The user's public key on this member., type: str}
      host_keys: {description: Its public host keys., type: list, elements: str}
  known_hosts: {description: File of the known hosts of all users., type: path, default: /etc/ssh/ssh_known_hosts}
  options:
    description: Restrictions on a member's key.
    type: list
    elements: str
    default: [no-agent-forwarding, no-port-forwarding, no-X11-forwarding]
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Trust the other nodes
  ssh_mesh_trust:
    user: dlperf
    members:
      - {name: node1, addresses: [10.11.0.2], public_key: ssh-ed25519 AAAA, host_keys: [ssh-ed25519 AAAA]}
"""

RETURN = r"""
members:
  description: Names of the members that now have both entries.
  returned: always
  type: list
  elements: str
digest:
  description: SHA-256 of both blocks.
  returned: always
  type: str
"""

import hashlib
import os
import pwd
import re
import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.selinux_labels import RELABEL

BEGIN = u"# BEGIN dlperf_runner ssh_mesh"
END = u"# END dlperf_runner ssh_mesh"
KEY = re.compile(r"^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$")


# Root neither reads nor writes in another user's home, because it may contain links, blocking files or endless files.
MAX_BYTES = 1 << 22
TIMEOUT_S = 20
READ = 'test -e "$1" || exit 0; test -f "$1" || { echo "not a regular file" >&2; exit 1; }; head -c %d "$1"' % (MAX_BYTES + 1)
WRITE = 'umask 077; mkdir -p "$(dirname "$1")" && cat > "$1.new" && mv "$1.new" "$1"'


class TextFile(object):
    """A file that is read and written as a given user."""

    def __init__(self, module, path, user=None):
        self.module = module
        self.path = path
        limit = ["timeout", "--kill-after=5", str(TIMEOUT_S)]
        self.prefix = limit + (["runuser", "-u", user, "--"] if user else [])

    def call(self, script, data=None):
        argv = self.prefix + ["sh", "-c", script, "sh", self.path]
        code, output, errors = self.module.run_command(
            argv, data=data, binary_data=True, encoding=None, cwd="/"
        )
        problem = errors.decode("utf-8", "replace").strip() if code else ""
        if code == 124:
            problem = "not finished within %d s" % TIMEOUT_S
        elif len(output) > MAX_BYTES:
            problem = "larger than %d bytes" % MAX_BYTES
        if code != 0 or problem:
            self.module.fail_json(msg="%s: %s. Check what is there, and repair or remove it." % (self.path, problem))
        return output.decode("utf-8", "replace")

    def read(self):
        return self.call(READ)

    def write(self, text):
        self.call(WRITE, text.encode("utf-8"))
        self.call('set -- "$(dirname "$1")"; ' + RELABEL)


def split(text):
    """(lines before the block, its lines, lines after it) of a text; ValueError if its markers do not match."""
    lines = text.splitlines()
    starts = [index for index, line in enumerate(lines) if line == BEGIN]
    ends = [index for index, line in enumerate(lines) if line == END]
    if not starts and not ends:
        return lines, [], []
    if len(starts) != 1 or len(ends) != 1 or ends[0] < starts[0]:
        raise ValueError("expected one line '%s' followed by one '%s'" % (BEGIN, END))
    return lines[: starts[0]], lines[starts[0] + 1 : ends[0]], lines[ends[0] + 1 :]


def joined(before, block, behind):
    lines = before + ([BEGIN] + block + [END] if block else []) + behind
    return u"\n".join(lines) + u"\n" if lines else u""


def keys_by_member(lines):
    """{member: [type and key]} of a block; the comment at the end of each line names the member."""
    keys = {}
    for line in lines:
        match = re.search(r"((?:ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*) dlperf_runner:(\S+)$", line)
        if match:
            keys.setdefault(match.group(2), []).append(match.group(1))
    return keys


def is_address(text):
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, text)
            return True
        except (socket.error, OSError):
            continue
    return False


def main():
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "members": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "addresses": {"type": "list", "elements": "str", "required": True},
                    "public_key": {"type": "str", "no_log": False},
                    "host_keys": {"type": "list", "elements": "str", "no_log": False},
                },
            },
            "known_hosts": {"type": "path", "default": "/etc/ssh/ssh_known_hosts"},
            "options": {
                "type": "list",
                "elements": "str",
                "default": ["no-agent-forwarding", "no-port-forwarding", "no-X11-forwarding"],
            },
        },
        supports_check_mode=True,
    )
    members = sorted(module.params["members"], key=lambda member: member["name"])
    for member in members:
        wrong = [address for address in member["addresses"] if not is_address(address)]
        if wrong or not member["addresses"]:
            module.fail_json(
                msg="%s: expected IP addresses like 10.11.0.2, found %s; set dlperf_address"
                % (member["name"], ", ".join(wrong) or "none")
            )
        for key in (member["host_keys"] or []) + [member["public_key"] or "ssh-ed25519 AAAA"]:
            if not KEY.match(key):
                module.fail_json(msg="%s: invalid public key %r" % (member["name"], key))

    try:
        user = pwd.getpwnam(module.params["user"])
    except KeyError:
        if not module.check_mode:
            module.fail_json(msg="this node has no user %s" % module.params["user"])
        user = None
    files = [TextFile(module, module.params["known_hosts"])]
    if user:
        authorized_keys = os.path.join(user.pw_dir, ".ssh", "authorized_keys")
        files.append(TextFile(module, authorized_keys, user.pw_name))
    texts = [entry.read() for entry in files]
    try:
        parts = [split(text) for text in texts]
    except ValueError as error:
        module.fail_json(msg="%s: %s" % (" or ".join(entry.path for entry in files), error))
    kept = [keys_by_member(part[1]) for part in parts]

    everyone = sorted(set(address for member in members for address in member["addresses"]))
    prefix = u",".join([u'from="%s"' % u",".join(everyone)] + module.params["options"])
    known, authorized, complete = [], [], []
    for member in members:
        name = member["name"]
        host_keys = member["host_keys"] or kept[0].get(name, [])
        hosts = u",".join([name] + [address for address in member["addresses"] if address != name])
        known += [u"%s %s dlperf_runner:%s" % (hosts, key, name) for key in host_keys]
        if user:
            keys = [member["public_key"]] if member["public_key"] else kept[1].get(name, [])
            authorized += [u"%s %s dlperf_runner:%s" % (prefix, key, name) for key in keys]
            if keys and host_keys:
                complete.append(name)

    changed, diffs = user is None, []
    for index, block in enumerate([known, authorized][: len(files)]):
        before = texts[index]
        after = joined(parts[index][0], block, parts[index][2])
        if before == after:
            continue
        changed = True
        path = files[index].path
        diffs.append({"before_header": path, "after_header": path, "before": before, "after": after})
        if not module.check_mode:
            files[index].write(after)
    if not module.check_mode and os.path.exists(files[0].path):
        # All users may read the known hosts; the umask above is for the user's own file.
        changed |= module.set_mode_if_different(files[0].path, "0644", False)
    digest = hashlib.sha256(u"\n".join(known + authorized).encode("utf-8")).hexdigest()
    module.exit_json(changed=changed, members=complete, digest=digest, diff=diffs)


if __name__ == "__main__":
    main()
