#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "build_basis",
    "short_description": "Return what a build from source depends on, and which build is installed",
    "description": [
        "A build can be reused if its source, options, path, C library and machine type are the same. Together they form a key.",
        "In check mode it returns C(changed) if the build with this key is not installed.",
    ],
    "options": {
        "name": {"type": "str", "required": True, "description": "Name of the software in lower case; the key begins with it."},
        "version": {"type": "str", "required": True, "description": "Version of the software."},
        "sha256": {"type": "str", "required": True, "description": "Checksum of the source."},
        "options": {"type": "list", "elements": "str", "default": [], "description": "Options of configure."},
        "path": {"type": "path", "required": True, "description": "Installation directory."},
    },
}  # fmt: skip

RETURN = r"""
key: {description: Key of the build; also the name of its folder., returned: always, type: str}
basis: {description: The values that form the key., returned: always, type: dict}
installed_key: {description: Key of the installed build; null if there is none., returned: always, type: str}
is_foreign: {description: Whether the path contains anything that this module's build did not install., returned: always, type: bool}
"""

import hashlib
import json
import os
import platform
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import text

STAMP = ".dlperf-build"  # inside the build, so it exists only if the build is complete


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    basis = {
        "name": given["name"],
        "version": given["version"],
        "libc": os.confstr(2).replace(" ", "-"),  # CS_GNU_LIBC_VERSION, a name that Python 2 lacks
        "machine": platform.machine(),
        "options": given["options"],
        "path": given["path"],
        "sha256": given["sha256"].lower(),
    }
    rest = json.dumps([basis["options"], basis["path"], basis["sha256"]]).encode("utf-8")
    key = "{name}-{version}_{libc}_{machine}_".format(**basis)
    key = re.sub(r"[^A-Za-z0-9._-]", "-", key) + hashlib.sha256(rest).hexdigest()[:8]
    installed_key = text(given["path"], STAMP)
    module.exit_json(
        changed=module.check_mode and key != installed_key,
        key=key,
        basis=basis,
        installed_key=installed_key,
        is_foreign=installed_key is None and os.path.isdir(given["path"]) and bool(os.listdir(given["path"])),
    )


if __name__ == "__main__":
    main()
