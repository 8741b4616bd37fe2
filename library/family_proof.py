#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: family_proof
short_description: Prove that a family of packages is at its versions and will stay there
description:
  - Asks dpkg and apt themselves, and nothing that the module C(apt_family) has written of itself - versions and holds of dpkg, candidate and
    priority of apt's policy, and files that the packages brought.
options:
  name: {description: Name of the family for messages., type: str, required: true}
  packages: {description: Exact version by package., type: dict, required: true}
  files:
    description: Globs of what the packages brought; each has to match something.
    type: list
    elements: str
    default: []
attributes:
  check_mode: {support: partial, details: Proves nothing where the packages are not there yet.}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Verify NCCL
  family_proof:
    name: nccl
    packages: {libnccl2: 2.7.3-1+cuda10.2}
    files: [/usr/lib/x86_64-linux-gnu/libnccl.so.2]
"""

RETURN = r""" # """

import glob
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_family import QUERY_FORMAT, base, installed


def policies(output):
    """{name: (candidate, {version: priority})} out of apt-cache policy.

    libnccl2:
      Installed: 2.7.3-1+cuda10.2
      Candidate: 2.7.3-1+cuda10.2
      Version table:
     *** 2.7.3-1+cuda10.2 1001
            500 file:/var/nccl-repo ./ Packages
    """
    found, name = {}, None
    for line in output.splitlines():
        if re.match(r"\S+:$", line):
            name = line[:-1]
            found[name] = [None, {}]
        elif line.startswith("  Candidate: "):
            found[name][0] = line.split(": ", 1)[1]
        else:
            match = re.match(r"(?: \*\*\*|    ) (\S+) (-?\d+)$", line)
            if match and name:
                found[name][1][match.group(1)] = int(match.group(2))
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "packages": {"type": "dict", "required": True},
            "files": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    packages = module.params["packages"]
    environment = {"LC_ALL": "C"}
    query = ["dpkg-query", "-W", "-f", QUERY_FORMAT] + sorted(packages)
    there = dict((base(n), state) for n, state in installed(module.run_command(query, environ_update=environment)[1]).items())
    if module.check_mode and set(there) != set(packages):
        module.exit_json(changed=False)
    problems = []
    policy = policies(module.run_command(["apt-cache", "policy"] + sorted(packages), environ_update=environment)[1])
    for name, version in sorted(packages.items()):
        found, held = there.get(name, ("nothing", False))
        if found != version:
            problems.append("%s %s was expected, found %s" % (name, version, found))
        elif not held:
            problems.append("%s is not on hold" % name)
        candidate, priorities = policy.get(name, (None, {}))
        if candidate != version or priorities.get(version, 0) < 1001:
            problems.append(
                "apt would take %s %s, and gives %s the priority %s (at least 1001 was expected)"
                % (name, candidate, version, priorities.get(version, "none"))
            )
    for pattern in module.params["files"]:
        if not glob.glob(pattern):
            problems.append("%s was expected, found nothing" % pattern)
    if problems:
        module.fail_json(msg="%s is not as it shall be: %s. Provision the node again." % (module.params["name"], "; ".join(problems)))
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
