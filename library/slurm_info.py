#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "slurm_info",
    "short_description": "Gather what a node has of Slurm and whom it belongs to",
    "description": "Run as root, because configurations and keys may be readable by their owner only. Changes nothing.",
    "options": {
        "marker": {"type": "str", "required": True, "description": "Text in each configuration that provisioning wrote."},
        "root": {"type": "path", "default": "/", "description": "The node's root directory. Tests set another one."},
    },
}  # fmt: skip

RETURN = r"""
hostname: {description: The node's name without its domain, as slurmd uses it., returned: always, type: str}
foreign: {description: Files and processes of a Slurm cluster that provisioning did not make., returned: always, type: list, elements: str}
"""

import os
import platform
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_undo import Undo
from ansible.module_utils.node_probes import text
from ansible.module_utils.slurm_node import KEYS, foreign

# A key of this role is text; those of packages and sites are binary.
OUR_KEY = re.compile(r"[0-9a-f]{128}\s*\Z")


def foreign_keys(root):
    """Keys of munge that neither provisioning nor a package that it installed has made."""
    installed = (Undo(os.path.join(root, "var/lib/dlperf/undo"), "packages").record or {}).get("installed") or {}
    made = any(name.partition(":")[0] == "munge" for name in installed)
    result = []
    for key in KEYS:
        path = os.path.join(root, key)
        if os.path.lexists(path) and not (key == KEYS[0] and made) and not OUR_KEY.match(text(path) or ""):
            result.append("/%s" % key)
    return result


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    root = module.params["root"]
    module.exit_json(
        changed=False,
        hostname=platform.node().partition(".")[0],
        foreign=foreign(root, module.params["marker"]) + foreign_keys(root),
    )


if __name__ == "__main__":
    main()
