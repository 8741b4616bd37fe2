#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = r"""
module: package_sources_info
short_description: Examine whether a node's own package sources can serve families of packages
description:
  - Answers for all families at once which sources the module C(package_family) would refuse, before anything is changed.
  - A family that lacks nothing on the node needs no source. dnf accepts a repository under two names, so the RHEL family has no such problems.
options:
  families:
    description: Families of packages, each with the options of the module C(package_family).
    type: list
    elements: dict
    required: true
attributes:
  check_mode: {support: full}
"""

RETURN = r"""
problems:
  description: One message a problem, with the families that need the source, its file and line, and what to do.
  returned: always
  type: list
  elements: str
"""

from ansible.module_utils.apt_family import AptFamily
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dnf_family import DnfFamily
from ansible.module_utils.node_packages import has_rpm
from ansible.module_utils.package_family import DEFINITION, message


def main():
    families = {"type": "list", "elements": "dict", "required": True, "options": DEFINITION}
    module = AnsibleModule(argument_spec={"families": families}, supports_check_mode=True)
    kind, problems, names = DnfFamily if has_rpm() else AptFamily, [], {}
    for definition in module.params["families"]:
        family = kind(module, definition)
        problem = family.source_problem() if family.has_own_sources and family.lack().changed else None
        if problem:
            if problem not in problems:
                problems.append(problem)
            names.setdefault(problem, []).append(definition["name"])
    module.exit_json(changed=False, problems=[message(names[problem], *problem) for problem in problems])


if __name__ == "__main__":
    main()
