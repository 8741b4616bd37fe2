#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: ssh_mesh_identity
short_description: A user's SSH key and the node's host keys, as a cluster's members need them of each other
description:
  - Makes an ed25519 key of the user where there is none, and returns its public half with the node's public host keys.
  - The host keys are read from the node's own files, over the connection that Ansible has authenticated.
options:
  user: {description: The user., type: str, required: true}
  comment: {description: Comment of a new key., type: str, required: true}
  host_key_files:
    description: Public host keys that sshd presents; those that exist are returned.
    type: list
    elements: path
    default: [/etc/ssh/ssh_host_ed25519_key.pub]
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Make the user's key and collect it
  ssh_mesh_identity:
    user: dlperf
    comment: dlperf@node1
"""

RETURN = r"""
public_key:
  description: Type and key; null where check mode would make it.
  returned: always
  type: str
host_keys:
  description: Type and key of each host key.
  returned: always
  type: list
  elements: str
"""

import io
import os
import pwd
import re

from ansible.module_utils.basic import AnsibleModule

KEY = re.compile(r"^(ssh|ecdsa|sk)-[a-z0-9@.-]+ [A-Za-z0-9+/]+=*$")
MAX_BYTES = 1 << 16
TIMEOUT_S = 20


def key_of(path):
    """Type and key of a public key file, without its comment."""
    with io.open(path, encoding="utf-8", errors="replace") as stream:
        return " ".join(stream.read().split()[:2])


def main():
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "comment": {"type": "str", "required": True},
            "host_key_files": {
                "type": "list",
                "elements": "path",
                "default": ["/etc/ssh/ssh_host_ed25519_key.pub"],
            },
        },
        supports_check_mode=True,
    )
    host_keys = [key_of(path) for path in module.params["host_key_files"] if os.path.exists(path)]
    if not host_keys:
        module.fail_json(
            msg="no public host key on this node: one of %s was expected (make them with ssh-keygen -A)"
            % ", ".join(module.params["host_key_files"])
        )
    try:
        user = pwd.getpwnam(module.params["user"])
    except KeyError:
        if module.check_mode:
            module.exit_json(changed=True, public_key=None, host_keys=host_keys)
        module.fail_json(msg="there is no user %s on this node" % module.params["user"])

    folder = os.path.join(user.pw_dir, ".ssh")
    private = os.path.join(folder, "id_ed25519")
    public = private + ".pub"
    changed = not os.path.exists(private) or not os.path.exists(public)
    if changed and module.check_mode:
        module.exit_json(changed=True, public_key=None, host_keys=host_keys)

    def run(*argv, **more):
        """Run a command as the user: the home is that user's, who could have put a link there, or what blocks or never ends."""
        as_user = ["timeout", "--kill-after=5", str(TIMEOUT_S), "runuser", "-u", user.pw_name, "--"]
        code, output, errors = module.run_command(as_user + list(argv), cwd="/", **more)
        if code != 0:
            problem = "no end within %d s" % TIMEOUT_S if code == 124 else (errors or output).strip()
            module.fail_json(
                msg="%s: %s fails: %s. Look at what lies there, and repair or remove it." % (folder, argv[0], problem)
            )
        return output

    if not os.path.isdir(folder):
        run("mkdir", "-m", "0700", folder)
    if not os.path.exists(private):
        run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", module.params["comment"], "-f", private)
    elif changed:
        run("tee", public, data=run("ssh-keygen", "-y", "-f", private).strip())
    key = " ".join(run("head", "-c", str(MAX_BYTES), public).split()[:2])
    if not KEY.match(key):
        module.fail_json(msg="%s: a public key was expected, found something else. Repair or remove it." % public)
    module.exit_json(changed=changed, public_key=key, host_keys=host_keys)


if __name__ == "__main__":
    main()
