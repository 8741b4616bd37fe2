#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: node_state
short_description: What provisioning asks of a node before it changes anything, in one execution
description:
  - The release, the interpreters, and what has been proven (the stamps of the module C(proof)).
  - Takes the place of C(setup), which asks for far more.
options:
  interpreter: {description: The interpreter that environments are made with., type: path, default: /usr/bin/python3}
  stamps: {description: Folder of the stamps., type: path, default: /opt/dlperf/stamps}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Look at the nodes
  node_state:
  register: provision_node
"""

RETURN = r"""
ansible_facts:
  description: C(distribution), C(distribution_version) and C(distribution_release), as C(setup) calls them.
  returned: always
  type: dict
interpreter: {description: The interpreter that was asked about., returned: always, type: str}
python_version: {description: Its version; null where it cannot be started., returned: always, type: str}
interpreters: {description: Other interpreters that the node has., returned: always, type: list, elements: str}
stamps: {description: The inputs of each proof by its name., returned: always, type: dict}
"""

import glob
import io
import json
import os

from ansible.module_utils.basic import AnsibleModule

VERSION = "import sys; print('.'.join(str(part) for part in sys.version_info[:3]))"


def os_release(path="/etc/os-release"):
    """The variables of os-release(5)."""
    with io.open(path, encoding="utf-8") as stream:
        pairs = (line.strip().partition("=") for line in stream if "=" in line)
        return dict((key, value.strip("\"'")) for key, _equals, value in pairs)


def proven(folder):
    """The inputs of each proof; a stamp that cannot be read proves nothing."""
    found = {}
    for path in glob.glob(os.path.join(folder, "*.json")):
        try:
            with io.open(path, encoding="utf-8") as stream:
                stamp = json.load(stream)
            found[stamp["proven"]] = stamp["inputs"]
        except (IOError, OSError, ValueError, KeyError, TypeError):
            continue
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "interpreter": {"type": "path", "default": "/usr/bin/python3"},
            "stamps": {"type": "path", "default": "/opt/dlperf/stamps"},
        },
        supports_check_mode=True,
    )
    interpreter = module.params["interpreter"]
    version = None
    if os.access(interpreter, os.X_OK):
        code, output, _errors = module.run_command([interpreter, "-I", "-S", "-c", VERSION])
        version = output.strip() if code == 0 else None
    release = os_release()
    others = glob.glob("/usr/bin/python3.*[0-9]") + glob.glob("/usr/local/bin/python3.*[0-9]")
    module.exit_json(
        changed=False,
        ansible_facts={
            "distribution": release.get("NAME", "").split(" ")[0] or None,
            "distribution_version": release.get("VERSION_ID"),
            "distribution_release": release.get("VERSION_CODENAME"),
        },
        interpreter=interpreter,
        python_version=version,
        interpreters=sorted(path for path in others if os.path.realpath(path) != os.path.realpath(interpreter)),
        stamps=proven(module.params["stamps"]),
    )


if __name__ == "__main__":
    main()
