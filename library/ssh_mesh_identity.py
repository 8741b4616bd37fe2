#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "ssh_mesh_identity",
    "short_description": "Return a user's SSH key and the node's host keys for the other nodes of a cluster",
    "description": [
        "Creates an ed25519 key if the user has none, and returns the public key with the node's public host keys.",
        "Nodes that share the home share the key. Whichever is first creates it, and all return the same one.",
        "An empty file in C(.ssh/dlperf_nodes) records that the node uses the home.",
        "Reads the host keys from the node's own files, over Ansible's authenticated connection.",
    ],
    "options": {
        "user": {"type": "str", "required": True, "description": "The user."},
        "comment": {"type": "str", "required": True, "description": "Comment of a new key."},
        "node": {"type": "str", "default": "", "description": "Name of this node. The home then records that the node uses it."},
        "host_key_files": {"type": "list", "elements": "path", "default": ["/etc/ssh/ssh_host_ed25519_key.pub"], "description":
            "Files of the public host keys that sshd presents. Existing ones are returned."},
    },
}  # fmt: skip

RETURN = r"""
public_key: {description: Type and key; null in check mode if it would be created., returned: always, type: str}
host_keys: {description: Type and key of each host key., returned: always, type: list, elements: str}
"""

import io
import os
import pwd
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.whole_files import RELABEL

KEY = re.compile(r"^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$")
MAX_BYTES = 1 << 16
TIMEOUT_S = 20
# Arguments: the folder, the comment and the node's name. Several nodes with one home may run this at once: each makes a key under a name of
# its own, and link(2) gives the name id_ed25519 to one of them only. Some shared file systems have no links.
CREATE = """
set -e
umask 077
mkdir -p -m 0700 "$1"
own=$(mktemp -d "$1/.dlperf-XXXXXXXX")
trap 'rm -rf "$own"' EXIT
trap 'exit 1' HUP INT TERM
private=$1/id_ed25519
if ! test -e "$private"; then
  ssh-keygen -q -t ed25519 -N "" -C "$2" -f "$own/key"
  ln "$own/key" "$private" 2> /dev/null || mv -n "$own/key" "$private" || test -e "$private"
fi
if ! test -e "$private.pub"; then
  ssh-keygen -y -f "$private" > "$own/public"
  chmod 644 "$own/public"
  mv -f "$own/public" "$private.pub"
fi
test -z "$3" || { mkdir -p "$1/dlperf_nodes"; : > "$1/dlperf_nodes/$3"; }
"""


def key_of(path):
    """Type and key of a public key file, without its comment."""
    with io.open(path, encoding="utf-8", errors="replace") as stream:
        return " ".join(stream.read().split()[:2])


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    host_keys = [key_of(path) for path in module.params["host_key_files"] if os.path.exists(path)]
    if not host_keys:
        module.fail_json(
            msg="this node has no public host key: expected one of %s (create them with ssh-keygen -A)"
            % ", ".join(module.params["host_key_files"])
        )
    try:
        user = pwd.getpwnam(module.params["user"])
    except KeyError:
        if module.check_mode:
            module.exit_json(changed=True, public_key=None, host_keys=host_keys)
        module.fail_json(msg="this node has no user %s" % module.params["user"])

    folder = os.path.join(user.pw_dir, ".ssh")
    private = os.path.join(folder, "id_ed25519")
    public = private + ".pub"
    files = [private, public] + [os.path.join(folder, "dlperf_nodes", name) for name in [module.params["node"]] if name]
    changed = not all(map(os.path.exists, files))
    owner = os.stat(user.pw_dir).st_uid if os.path.isdir(user.pw_dir) else user.pw_uid
    if owner != user.pw_uid:
        module.fail_json(
            msg="%s belongs to the user with number %d, but on this node %s has number %d. Nodes that share a home need one number: "
            "set node_base_uid to it for all of them." % (user.pw_dir, owner, user.pw_name, user.pw_uid)
        )
    if changed and module.check_mode:
        module.exit_json(changed=True, public_key=None, host_keys=host_keys)

    def run(*argv, **more):
        """Run a command as the user, because this home may contain links, blocking files or endless files."""
        as_user = ["timeout", "--kill-after=5", str(TIMEOUT_S), "runuser", "-u", user.pw_name, "--"]
        code, output, errors = module.run_command(as_user + list(argv), cwd="/", **more)
        if code != 0:
            problem = "not finished within %d s" % TIMEOUT_S if code == 124 else (errors or output).strip()
            module.fail_json(msg="%s: %s failed: %s. Check what is there, and repair or remove it." % (folder, argv[0], problem))
        return output

    if changed:
        run("sh", "-c", CREATE, "sh", folder, module.params["comment"], module.params["node"])
        run("sh", "-c", RELABEL, "sh", folder)
    key = " ".join(run("head", "-c", str(MAX_BYTES), public).split()[:2])
    if not KEY.match(key):
        module.fail_json(msg="%s is not a valid public key. Repair or remove it." % public)
    module.exit_json(changed=changed, public_key=key, host_keys=host_keys)


if __name__ == "__main__":
    main()
