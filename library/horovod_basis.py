#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "horovod_basis",
    "short_description": "Return what a Horovod wheel for an environment depends on, and which wheel is installed",
    "description": [
        "A wheel can be reused if Horovod's version and build options, the framework, the interpreter, OpenMPI, the C library and the "
        "machine type are the same. O(options) and the node's values together form a key.",
        "In check mode it returns C(changed) if the wheel with this key is not installed.",
    ],
    "options": {
        "environment": {"type": "path", "required": True, "description": "Path of the virtual environment."},
        "distribution": {"type": "str", "required": True, "description": "The framework's distribution in it."},
        "version": {"type": "str", "required": True, "description": "Version of Horovod."},
        "options": {"type": "dict", "default": {}, "description": "Other values that the wheel depends on."},
        "mpirun": {"type": "path", "default": "/usr/bin/mpirun", "description": "The mpirun of the OpenMPI that it is built against."},
    },
}  # fmt: skip

RETURN = r"""
key: {description: "Key of the wheel, also the name of its folder; null if something is missing.", returned: always, type: str}
basis: {description: The values that form the key., returned: always, type: dict}
files: {returned: always, type: list, elements: str, description:
  "Paths, with wildcards, of the files that were read. As long as they stay unchanged, so does the result."}
installed_key: {returned: always, type: str, description:
  "Key of the wheel installed in the environment; null if this project did not build it."}
"""

import glob
import hashlib
import json
import os
import platform
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import openmpi
from ansible.module_utils.python_distributions import distributions, normalised, url_of
from ansible.module_utils.trusted_path import refuse_program

TIMEOUT_S = 60


def python_of(environment):
    """Tag of the environment's interpreter, such as cp311; None without an interpreter."""
    for folder in glob.glob(os.path.join(environment, "lib", "python3.*", "site-packages")):
        return "cp3" + folder.split("/python3.")[1].split("/")[0]
    return None


def key_of(have):
    """Key of the installed wheel, which is the name of the folder that it was installed from."""
    if "horovod" not in have:
        return None
    url = url_of(have["horovod"][1])
    return None if url is None else os.path.basename(os.path.dirname(url))


def files_of(given, have):
    site = os.path.join(given["environment"], "lib", "python3*", "site-packages")
    framework = have.get(normalised(given["distribution"]))
    return [
        given["mpirun"],
        "/lib*/libc.so.6",
        "/lib/*/libc.so.6",
        os.path.join(given["environment"], "pyvenv.cfg"),
        os.path.join(site, "horovod-*.dist-info", "direct_url.json"),
    ] + ([os.path.join(framework[1], "METADATA")] if framework else [])


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    refuse_program(module, given["mpirun"])
    have = distributions(given["environment"])
    distribution = normalised(given["distribution"])
    basis = {
        "horovod": given["version"],
        "framework": distribution + "-" + have[distribution][0] if distribution in have else None,
        "python": python_of(given["environment"]),
        "openmpi": openmpi(given["mpirun"], TIMEOUT_S),
        "libc": os.confstr(2).replace(" ", "-"),  # CS_GNU_LIBC_VERSION, a name that Python 2 lacks
        "machine": platform.machine(),
        "options": given["options"],
    }
    missing = [
        what
        for name, what in (
            ("framework", "%s in %s" % (distribution, given["environment"])),
            ("python", given["environment"]),
            ("openmpi", given["mpirun"]),
        )
        if basis[name] is None
    ]
    key = None
    if not missing:
        options = json.dumps(given["options"], sort_keys=True).encode("utf-8")
        key = "horovod-{horovod}_{framework}_{python}_openmpi-{openmpi}_{libc}_{machine}_".format(**basis)
        key = re.sub(r"[^A-Za-z0-9._-]", "-", key) + hashlib.sha256(options).hexdigest()[:8]
    elif not module.check_mode:
        module.fail_json(
            msg="cannot build Horovod for this node: %s is missing; the roles openmpi, python_env and framework install it"
            % " and ".join(missing)
        )
    installed_key = key_of(have)
    module.exit_json(
        changed=module.check_mode and (key is None or key != installed_key),
        key=key,
        basis=basis,
        files=files_of(given, have),
        installed_key=installed_key,
    )


if __name__ == "__main__":
    main()
