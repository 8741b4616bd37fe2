#!/usr/bin/python
from __future__ import absolute_import, division, print_function, unicode_literals

DOCUMENTATION = {
    "module": "ssh_mesh_trust",
    "short_description": "Let the members of a cluster log in to this node, and register their host keys",
    "description": [
        "Manages one block in the user's authorized_keys and one in the node's known hosts. Lines outside the blocks stay as they are.",
        "Nodes that share the user's home write one file, one after the other, and none overwrites what another has written meanwhile.",
        "A member whose keys are unknown in this run (because it is down or was not selected) keeps its existing entry, with the current "
        "addresses. Entries of former members are removed.",
    ],
    "options": {
        "user": {"type": "str", "required": True, "description": "The user."},
        "members": {"type": "list", "elements": "dict", "required": True, "description": "All members of the cluster.", "options": {
            "name": {"type": "str", "required": True, "description": "Host name."},
            "addresses": {"type": "list", "elements": "str", "required": True, "description": "Its addresses in the cluster."},
            "public_key": {"type": "str", "no_log": False, "description": "The user's public key on this member."},
            "host_keys": {"type": "list", "elements": "str", "no_log": False, "description": "Its public host keys."},
        }},
        "leaves": {"type": "str", "description":
            "Name of this node if it leaves the cluster. If other nodes have recorded that they use the home (C(.ssh/dlperf_nodes)), its "
            "C(authorized_keys) stays as it is."},
        "known_hosts": {"type": "path", "default": "/etc/ssh/ssh_known_hosts", "description": "File of the known hosts of all users."},
    },
}  # fmt: skip

RETURN = r"""
members: {description: Names of the members that now have both entries., returned: always, type: list, elements: str}
others: {description: "Names of the other nodes that use the home, if this node leaves it.", returned: always, type: list, elements: str}
digest: {description: SHA-256 of both blocks., returned: always, type: str}
"""

import hashlib
import os
import pwd
import re
import socket

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.whole_files import RELABEL, around_block, difference, with_block

MARKER = "dlperf_runner ssh_mesh"
KEY = re.compile(r"^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$")
RESTRICTIONS = ["no-agent-forwarding", "no-port-forwarding", "no-X11-forwarding"]  # of a member's key

# Root neither reads nor writes in another user's home, because it may contain links, blocking files or endless files.
MAX_BYTES = 1 << 22
TIMEOUT_S = 20
ATTEMPTS = 100  # of a write, if other nodes write, too
READ = 'test -e "$1" || exit 0; test -f "$1" || { echo "not a regular file" >&2; exit 1; }; head -c %d "$1"' % (MAX_BYTES + 1)
# Arguments: the file, the sum of its content from which the new one was made, and the new mode. Of the nodes that share a home, the one
# that makes the folder writes; one that is left over from a crash is a minute old. The name of the new file is nobody else's.
WRITE = """
set -e
umask 077
mkdir -p "$(dirname "$1")"
new=$(mktemp "$1.XXXXXXXX")
trap 'rm -f "$new"' EXIT
trap 'exit 1' HUP INT TERM
cat > "$new"
chmod "$3" "$new"
until mkdir "$1.dlperf-lock" 2> /dev/null; do
  find "$1.dlperf-lock" -maxdepth 0 -mmin +1 -exec rmdir {} + 2> /dev/null || true
  sleep 0.1
done
trap 'rm -f "$new"; rmdir "$1.dlperf-lock"' EXIT
if test -e "$1"; then sum=$(sha256sum < "$1"); else sum=$(sha256sum < /dev/null); fi
test "${sum%% *}" = "$2" || exit 75
mv -f "$new" "$1"
"""
CHANGED = 75  # exit status of WRITE if another node has written meanwhile
# Arguments: the folder of the home's nodes, the one that leaves it, and rm, or true in check mode. Prints those left.
LEAVE = 'test -d "$1" || exit 0; "$3" -f "$1/$2"; rmdir "$1" 2> /dev/null || ls "$1"'


class TextFile(object):
    """A file that is read and written as a given user."""

    def __init__(self, module, path, user=None, mode="0600"):
        self.module = module
        self.path = path
        self.mode = mode
        limit = ["timeout", "--kill-after=5", str(TIMEOUT_S)]
        self.prefix = limit + (["runuser", "-u", user, "--"] if user else [])

    def call(self, script, arguments=(), data=None):
        """(exit status, output) of a script; fails unless it succeeds or another node has written meanwhile."""
        argv = self.prefix + ["sh", "-c", script, "sh", self.path] + list(arguments)
        code, output, errors = self.module.run_command(argv, data=data, binary_data=True, encoding=None, cwd="/")
        problem = errors.decode("utf-8", "replace").strip() if code else ""
        if code == 124:
            problem = "not finished within %d s" % TIMEOUT_S
        elif len(output) > MAX_BYTES:
            problem = "larger than %d bytes" % MAX_BYTES
        if problem or code not in (0, CHANGED):
            self.module.fail_json(msg="%s: %s. Check what is there, and repair or remove it." % (self.path, problem))
        return code, output

    def read(self):
        return self.call(READ)[1]

    def write(self, before, text):
        """Replace the content, unless it is another one than `before` by now; whether it was replaced."""
        arguments = [hashlib.sha256(before).hexdigest(), self.mode]
        if self.call(WRITE, arguments, text.encode("utf-8"))[0] == CHANGED:
            return False
        self.call('set -- "$(dirname "$1")"; ' + RELABEL)
        return True

    def update(self, block_of):
        """Replace the block by `block_of(its lines)`; (its new lines, the diff or None)."""
        for _attempt in range(ATTEMPTS):
            content = self.read()
            text = content.decode("utf-8", "replace")
            try:
                before, lines, behind = around_block(text, MARKER)
            except ValueError as error:
                self.module.fail_json(msg="%s: %s" % (self.path, error))
            block = block_of(lines)
            after = with_block(before, block, behind, MARKER)
            if after == text:
                return block, None
            if self.module.check_mode or self.write(content, after):
                return block, difference(self.path, text, after)
        self.module.fail_json(msg="%s: others have changed it %d times in a row. Run again." % (self.path, ATTEMPTS))


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


def known_hosts_block(members, lines):
    block, kept = [], keys_by_member(lines)
    for member in members:
        name = member["name"]
        hosts = ",".join([name] + [address for address in member["addresses"] if address != name])
        block += ["%s %s dlperf_runner:%s" % (hosts, key, name) for key in member["host_keys"] or kept.get(name, [])]
    return block


def authorized_keys_block(members, lines):
    block, kept = [], keys_by_member(lines)
    everyone = sorted(set(address for member in members for address in member["addresses"]))
    prefix = ",".join(['from="%s"' % ",".join(everyone)] + RESTRICTIONS)
    for member in members:
        name = member["name"]
        keys = [member["public_key"]] if member["public_key"] else kept.get(name, [])
        block += ["%s %s dlperf_runner:%s" % (prefix, key, name) for key in keys]
    return block


def refuse_members(module, members):
    for member in members:
        wrong = [address for address in member["addresses"] if not is_address(address)]
        if wrong or not member["addresses"]:
            module.fail_json(
                msg="%s: expected IP addresses like 10.11.0.2, found %s; set dlperf_address" % (member["name"], ", ".join(wrong) or "none")
            )
        for key in (member["host_keys"] or []) + [member["public_key"] or "ssh-ed25519 AAAA"]:
            if not KEY.match(key):
                module.fail_json(msg="%s: invalid public key %r" % (member["name"], key))


def others_in(module, authorized_keys):
    """Names of the other nodes that use the home, once this one leaves it."""
    name = module.params["leaves"]
    if not name:
        return []
    folder = TextFile(module, os.path.join(os.path.dirname(authorized_keys.path), "dlperf_nodes"))
    folder.prefix = authorized_keys.prefix
    left = folder.call(LEAVE, [name, "true" if module.check_mode else "rm"])[1].decode("utf-8", "replace").splitlines()
    return [other for other in left if other != name]


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    members = sorted(module.params["members"], key=lambda member: member["name"])
    refuse_members(module, members)
    try:
        user = pwd.getpwnam(module.params["user"])
    except KeyError:
        if not module.check_mode:
            module.fail_json(msg="this node has no user %s" % module.params["user"])
        user = None

    # All users may read the known hosts.
    is_users = bool(user) and module.params["known_hosts"].startswith(user.pw_dir + os.sep)
    known_hosts = TextFile(module, module.params["known_hosts"], user.pw_name if is_users else None, mode="0644")
    trusted, diff = known_hosts.update(lambda lines: known_hosts_block(members, lines))
    diffs, authorized, others = [diff], [], []
    if user:
        authorized_keys = TextFile(module, os.path.join(user.pw_dir, ".ssh", "authorized_keys"), user.pw_name)
        others = others_in(module, authorized_keys)
    if user and not others:
        authorized, diff = authorized_keys.update(lambda lines: authorized_keys_block(members, lines))
        diffs.append(diff)
    diffs = [diff for diff in diffs if diff]
    changed = user is None or bool(diffs)
    if not module.check_mode and not is_users and os.path.exists(known_hosts.path):
        changed |= module.set_mode_if_different(known_hosts.path, "0644", False)
    both = set(keys_by_member(trusted)) & set(keys_by_member(authorized))
    digest = hashlib.sha256("\n".join(trusted + authorized).encode("utf-8")).hexdigest()
    module.exit_json(changed=changed, members=sorted(both), others=others, digest=digest, diff=diffs)


if __name__ == "__main__":
    main()
