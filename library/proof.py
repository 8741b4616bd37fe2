#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "proof",
    "short_description": "Verify a node by commands whose output is checked, once per set of inputs",
    "description": [
        "Runs the commands as a user. Each must exit with status 0 and print the expected output.",
        "A stamp, which only root can write, records the inputs of the verification and the state of the files that it depends on. If the "
        "stamp is valid for the same inputs, nothing is run.",
    ],
    "options": {
        "name": {"type": "str", "required": True, "description": "Name of the verification and of its stamp."},
        "commands": {"type": "list", "elements": "dict", "required": True, "description":
            "The commands. They run in parallel. None if another node's verification was this node's, too.", "options": {
            "name": {"type": "str", "required": True, "description": "Name of the command, for messages."},
            "argv": {"type": "list", "elements": "str", "required": True, "description": "The command."},
            "expect": {"type": "str", "required": True, "description": "Regular expression that must match in its standard output."},
        }},
        "inputs": {"type": "dict", "default": {}, "description":
            "Inputs of the verification. The commands do not count, so that another partner node does not cause a new verification."},
        "files": {"type": "list", "elements": "path", "default": [], "description":
            "Paths, with wildcards, that the verification depends on. If a file changes, disappears or appears, the stamp becomes "
            "invalid. A new verification for the same inputs does not count as a change of the node."},
        "user": {"type": "str", "required": True, "description": "User who runs them."},
        "environment": {"type": "dict", "default": {}, "description": "Additional environment variables."},
        "stamps": {"type": "path", "default": "/opt/dlperf/stamps", "description": "Folder of the stamps."},
        "timeout": {"type": "int", "default": 120, "description": "Time limit of each command in seconds."},
        "parallel": {"type": "int", "default": 8, "description": "How many commands run at a time."},
        "force": {"type": "bool", "default": False, "description": "Run even if the stamp is valid."},
    },
    "attributes": {"check_mode": {"support": "partial", "details": "Runs nothing; only returns whether it would."}},
}  # fmt: skip

RETURN = r"""
proven: {description: "C(now), C(before) (the stamp is valid), or C(no) in check mode.", returned: always, type: str}
verified: {description: "C(name) and C(inputs).", returned: if the verification ran now, type: dict}
"""

import json
import os
import pwd
import re
import threading

from ansible.module_utils import stamps
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import bounded
from ansible.module_utils.whole_files import make_folder, write_whole


def complaint(command, result, timeout):
    """The reason why a command failed the verification; None if it passed."""
    code, output, errors = result["code"], result["output"], result["errors"]
    messages = (errors.strip() or output.strip())[-1500:] or "nothing"
    if result["late"]:
        return "%s: not finished within %d s; output: %s" % (command["name"], timeout, messages)
    if code is None:
        return "%s: cannot be started: %s" % (command["name"], errors)
    if code != 0:
        return "%s: exit status %s; output: %s" % (command["name"], code, messages)
    if not re.search(command["expect"], output, re.MULTILINE):
        return "%s: expected output matching %r, found: %s" % (command["name"], command["expect"], output.strip()[-1500:] or "nothing")
    return None


def execute_all(given, user):
    """The result of each command by its name, so many at a time, as the user."""
    environment = {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
    }
    environment.update((key, str(value)) for key, value in given["environment"].items())
    results, slots = {}, threading.Semaphore(given["parallel"])

    def work(command):
        with slots:
            # runuser opens a session, so the limits are those of the user's login.
            prefix = ["runuser", "-u", user.pw_name, "--"]
            results[command["name"]] = bounded(prefix + command["argv"], given["timeout"], environment)

    threads = [threading.Thread(target=work, args=(command,)) for command in given["commands"]]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    after = {"proven": given["name"], "inputs": given["inputs"]}
    if given["files"]:
        after["files"] = stamps.fingerprints(given["files"])
    stamp = os.path.join(given["stamps"], given["name"] + ".json")
    before = stamps.read(stamp)
    changed = before.get("inputs") != given["inputs"]
    if before == after and not given["force"]:
        module.exit_json(changed=False, proven="before")
    if module.check_mode:
        module.exit_json(changed=changed, proven="no")
    try:
        user = pwd.getpwnam(given["user"])
    except KeyError:
        module.fail_json(msg="this node has no user %s" % given["user"])

    results = execute_all(given, user)
    complaints = [complaint(command, results[command["name"]], given["timeout"]) for command in given["commands"]]
    complaints = [line for line in complaints if line]
    if complaints:
        if os.path.exists(stamp):
            os.unlink(stamp)  # the recorded verification is no longer valid
        module.fail_json(msg="verification of %s failed: %s" % (given["name"], "\n".join(complaints)), proven="no")
    if before != after:
        make_folder(given["stamps"])
        write_whole(stamp, json.dumps(after, sort_keys=True, indent=1).encode("utf-8"), 0o644)
    module.exit_json(changed=changed, proven="now", verified={"name": given["name"], "inputs": given["inputs"]})


if __name__ == "__main__":
    main()
