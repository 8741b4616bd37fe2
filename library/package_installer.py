#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "package_installer",
    "short_description": "Run a vendor's package installer and record what it changed",
    "description": [
        "Records the installed packages first, so that C(package_family) with the same O(name) and C(state=absent) can remove what the "
        "installer installed and reinstall what it removed.",
        "Runs the installer at every call. The caller must know whether this is needed.",
    ],
    "options": {
        "name": {"type": "str", "required": True, "description": "Name of the family for the record of the packages."},
        "argv": {"type": "list", "elements": "str", "required": True, "description": "The installer and its options."},
        "chdir": {"type": "path", "required": True, "description": "Working directory of the installer."},
        "expect": {"type": "str", "required": True, "description":
            "Text that the installer prints on success; its exit status alone is not reliable."},
        "logs": {"type": "str", "default": "", "description": "Path of its logs on the node, for messages."},
        "lock_timeout": {"type": "int", "default": 300, "description": "How many seconds to wait for another apt or dpkg."},
        "undo": {"type": "path", "default": "/var/lib/dlperf/undo", "description": "Folder of the records."},
    },
}  # fmt: skip

RETURN = r"""
removed: {description: Packages that were removed., returned: always, type: list, elements: str}
"""

from ansible.module_utils.apt_family import ENVIRONMENT, AptPackages
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_undo import Undo
from ansible.module_utils.dpkg_locks import REMEDY, wait_for_locks
from ansible.module_utils.package_family import message

LINES = 15


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    if module.check_mode:
        module.exit_json(changed=True, removed=[])

    def install():
        code, output, errors = module.run_command(given["argv"], cwd=given["chdir"], environ_update=ENVIRONMENT)
        messages = output + "\n" + errors
        return code == 0 and given["expect"] in messages, (code, messages.strip().splitlines()[-LINES:])

    problem = wait_for_locks(given["lock_timeout"])
    if problem:
        module.fail_json(msg=message([given["name"]], problem, REMEDY))
    undo = Undo(given["undo"], given["name"])
    is_done, (code, last) = undo.during(AptPackages(module), install)
    if not is_done:
        module.fail_json(
            msg="%s: %s ended with exit status %d without printing '%s'. Its last output:\n%s\n%s"
            % (
                given["name"],
                given["argv"][0],
                code,
                given["expect"],
                "\n".join(last),
                given["logs"] and "Its logs are in %s." % given["logs"],
            ),
            rc=code,
        )
    module.exit_json(changed=True, removed=sorted(undo.record.get("removed") or {}))


if __name__ == "__main__":
    main()
