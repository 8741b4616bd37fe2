#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: package_installer
short_description: Run a vendor's installer that changes packages by itself, and record what it changed
description:
  - What was installed before is recorded first, so that C(apt_family) with O(name) and C(state=absent) takes off what the installer put on, and
    brings back what it removed.
  - It runs whenever it is called; whoever calls it knows whether it has to.
options:
  name: {description: Family that the packages are recorded as., type: str, required: true}
  argv: {description: The installer and its options., type: list, elements: str, required: true}
  chdir: {description: Folder that it runs in., type: path, required: true}
  expect: {description: Text that it prints where all has gone well; its exit status alone does not say so., type: str, required: true}
  logs: {description: Where on the node it keeps its logs; for the message., type: str, default: ""}
  lock_timeout: {description: Seconds to wait for another apt or dpkg., type: int, default: 300}
  undo: {description: Folder of the records., type: path, default: /var/lib/dlperf/undo}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Install MLNX_OFED
  package_installer:
    name: mlnx_ofed
    argv: [./mlnxofedinstall, --force]
    chdir: /var/lib/dlperf/ofed
    expect: Installation passed successfully
"""

RETURN = r"""
removed: {description: Packages that were there before and are not any more., returned: always, type: list, elements: str}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_family import QUERY_FORMAT, installed
from ansible.module_utils.deb_undo import Undo
from ansible.module_utils.dpkg_locks import wait_for_locks

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
LINES = 15


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "argv": {"type": "list", "elements": "str", "required": True},
            "chdir": {"type": "path", "required": True},
            "expect": {"type": "str", "required": True},
            "logs": {"type": "str", "default": ""},
            "lock_timeout": {"type": "int", "default": 300},
            "undo": {"type": "path", "default": "/var/lib/dlperf/undo"},
        },
        supports_check_mode=True,
    )
    given = module.params
    if module.check_mode:
        module.exit_json(changed=True, removed=[])

    def everything():
        argv = ["dpkg-query", "-W", "-f", QUERY_FORMAT]
        return installed(module.run_command(argv, environ_update=ENVIRONMENT)[1])

    def snapshot():
        return dict((name, version) for name, (version, _hold) in everything().items())

    problem = wait_for_locks(given["lock_timeout"])
    if problem:
        module.fail_json(msg="%s: %s. Wait for it, or end it, and run again." % (given["name"], problem))
    undo = Undo(given["undo"], given["name"])
    undo.begin(
        {},
        snapshot,
        lambda: sorted(name for name, (_version, hold) in everything().items() if hold),
        lambda: module.run_command(["apt-mark", "showauto"])[1].split(),
        repository=None,
    )
    code, output, errors = module.run_command(given["argv"], cwd=given["chdir"], environ_update=ENVIRONMENT)
    now = snapshot()
    if code != 0 or given["expect"] not in output + errors:
        undo.settle(now)
        said = "\n".join((output + "\n" + errors).strip().splitlines()[-LINES:])
        module.fail_json(
            msg="%s: %s ended with status %d and has not said '%s'. It said last:\n%s\n%s"
            % (given["name"], given["argv"][0], code, given["expect"], said, given["logs"] and "Its logs are in %s." % given["logs"]),
            rc=code,
        )
    undo.finish(now)
    module.exit_json(changed=True, removed=sorted(undo.record.get("removed") or {}))


if __name__ == "__main__":
    main()
