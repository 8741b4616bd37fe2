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
  packages:
    description: Packages of the distribution, as C(name) or C(name=version), of which RV(lacking) has those that are not installed.
    type: list
    elements: str
    default: []
attributes:
  check_mode: {support: full}
"""

RETURN = r"""
problems: {returned: always, type: list, elements: str, description:
  "One message a problem, with the families that need the source, its file and line, and what to do."}
lacking: {description: "Families of which packages would be installed or removed, and O(packages).", returned: always, type: list, elements: str}
foreign: {returned: always, type: dict, description:
  "Packages of other versions that provisioning did not install and would replace, by family, such as C(libnccl2 2.30.7-1 by 2.29.7-1)."}
"""

import os

from ansible.module_utils.apt_family import AptFamily
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dnf_family import DnfFamily
from ansible.module_utils.node_packages import has_rpm, versions
from ansible.module_utils.node_probes import disk
from ansible.module_utils.package_family import DEFINITION, message


def main():
    families = {"type": "list", "elements": "dict", "required": True, "options": DEFINITION}
    packages = {"type": "list", "elements": "str", "default": []}
    module = AnsibleModule(argument_spec={"families": families, "packages": packages}, supports_check_mode=True)
    kind, problems, names, lacking, foreign = DnfFamily if has_rpm() else AptFamily, [], {}, [], {}
    for definition in module.params["families"]:
        family = kind(module, definition)
        lack = family.lack()
        if lack.wrong or lack.drop:
            lacking.append(family.name)
            foreign[family.name] = family.moved(lack)
        problem = family.source_problem() if family.has_own_sources and lack.changed else None
        if problem:
            if problem not in problems:
                problems.append(problem)
            names.setdefault(problem, []).append(definition["name"])
    if lacking and os.path.exists("/run/ostree-booted") and (disk("/usr") or {}).get("read_only"):
        problem = (
            "the node's /usr is read-only (ostree, bootc)",
            "install the packages in its image and boot that, or keep them (dlperf_adopt)",
        )
        problems.append(problem)
        names[problem] = list(lacking)
    names_of_packages = [name.partition("=")[0] for name in module.params["packages"]]
    installed = versions(names_of_packages)
    lacking += [name for name in names_of_packages if name not in installed]
    foreign = dict((name, moved) for name, moved in foreign.items() if moved)
    module.exit_json(changed=False, lacking=lacking, foreign=foreign, problems=[message(names[problem], *problem) for problem in problems])


if __name__ == "__main__":
    main()
