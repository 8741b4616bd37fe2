#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = r"""
module: package_family
short_description: Install, pin and hold exact versions of related packages from their repository, or remove them
description:
  - On Debian and Ubuntu, one execution sets up the repository with its own keyring, apt preferences that pin the family, exact
    versions (upgrade or downgrade), and holds. If nothing has to change, it runs only C(dpkg-query) and C(apt-config), but not apt.
  - If another source of the node has the repository, that one is used instead. It is refused if its key is not the expected one.
  - On the RHEL family, it sets up the repository with its own key, the stream of a module, locks of dnf's plugin C(versionlock), and exact
    versions. If nothing has to change, it runs only C(rpm).
  - Before any change it records the previous state in O(undo). O(state=absent) removes exactly what was installed since,
    and restores the previous versions, packages, holds and files.
  - If an execution fails, it restores the files that it changed. If one is interrupted, the next one repairs it.
options:
  name: {description: Name of the family. Its files and its record have this name., type: str, required: true}
  state: {description: Whether to install or to remove the family., type: str, choices: [present, absent], default: present}
  packages: {description: "Packages to install, with their exact versions.", type: dict, default: {}}
  pins:
    description: Further members of the family, which apt installs as dependencies.
    type: list
    elements: dict
    default: []
    suboptions:
      packages: {description: Names or globs of packages., type: list, elements: str, required: true}
      version: {description: Version or glob to pin them to., type: str, required: true}
  replaces:
    description: Globs of packages that the family may replace. They are restored when it is removed.
    type: list
    elements: str
    default: []
  repository:
    description: Repository of the family; by default the node's existing sources.
    type: dict
    suboptions:
      name: {description: "Name of its files. Families with the same repository share them.", type: str, required: true}
      uri: {description: "URL, or C(file:) and a folder on the node.", type: str, required: true}
      suite: {description: "The suite; C(/) or C(./) for a flat repository.", type: str, default: /}
      components: {description: Components; none for a flat repository., type: list, elements: str, default: []}
      key: {description: URL of its public key or a path on the node., type: str, required: true}
      fingerprints:
        description: Fingerprints of the primary keys that this file may contain. Any other key is refused.
        type: list
        elements: str
        required: true
      key_sha256: {description: "SHA-256 of the key's file, if known.", type: str}
      signed:
        description: What the key signs in a repository of rpm packages, the packages or only the index. apt's indexes are always signed.
        type: str
        choices: [packages, index]
        default: packages
  stream:
    description: "Module and stream of dnf that have the family, such as C(nvidia-driver:580-open). Debian and Ubuntu have none."
    type: str
  lock_timeout: {description: How many seconds to wait for another package manager., type: int, default: 300}
  undo: {description: Folder of the records., type: path, default: /var/lib/dlperf/undo}
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
"""

RETURN = r"""
versions: {description: Version of each installed member., returned: always, type: dict}
removed: {description: Removed packages., returned: always, type: list, elements: str}
kept: {description: Packages of the family that stay because other packages need them., returned: absent, type: list, elements: str}
"""

from ansible.module_utils.apt_family import AptFamily
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dnf_family import DnfFamily
from ansible.module_utils.node_packages import has_rpm
from ansible.module_utils.package_family import DEFINITION


def main():
    state = {"type": "str", "choices": ["present", "absent"], "default": "present"}
    module = AnsibleModule(argument_spec=dict(DEFINITION, state=state), supports_check_mode=True)
    family = (DnfFamily if has_rpm() else AptFamily)(module, module.params)
    family.present() if module.params["state"] == "present" else family.absent()


if __name__ == "__main__":
    main()
