#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "node_service",
    "short_description": "Start a service of systemd, now and at boot",
    "description": [
        "Differs from C(ansible.builtin.systemd_service) in two ways. It enables a service without making systemd read all units again "
        "(C(daemon-reload)), after which containers lose their GPUs. In check mode, the service need not be installed yet.",
    ],
    "options": {
        "name": {"type": "str", "required": True, "description": "The service."},
        "restart": {"type": "bool", "default": False, "description": "Restart it if it is running."},
    },
}  # fmt: skip

from ansible.module_utils.basic import AnsibleModule


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    name = module.params["name"]

    def systemctl(*argv):
        return module.run_command(["systemctl"] + list(argv), check_rc=argv[0] not in ("show", "is-enabled"))[:2]

    is_active = "\nActiveState=active\n" in "\n" + systemctl("show", name)[1]
    is_enabled = systemctl("is-enabled", name)[0] == 0
    if not module.check_mode:
        if not is_enabled:
            systemctl("enable", name, "--no-reload")
        if not is_active or module.params["restart"]:
            systemctl("restart" if is_active else "start", name)
    module.exit_json(changed=not is_active or not is_enabled or module.params["restart"])


if __name__ == "__main__":
    main()
