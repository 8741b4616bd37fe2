#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: proof
short_description: Prove something on a node by commands whose output is checked, once for what it depends on
description:
  - Runs the commands as a user and looks in the output of each for what it must say; an exit status of 0 is needed, but not
    enough.
  - A stamp, which only root can write, records what was proven for which inputs, and how the files are that it stands on. Where it
    stands for the same inputs, nothing is run.
options:
  name: {description: What is proven; names the stamp., type: str, required: true}
  commands:
    description: The commands, run side by side.
    type: list
    elements: dict
    required: true
    suboptions:
      name: {description: How messages call it., type: str, required: true}
      argv: {description: The command., type: list, elements: str, required: true}
      expect: {description: Regular expression that its standard output must contain., type: str, required: true}
  inputs:
    description: What the proof depends on. The commands are no part of it, so that another partner among the nodes proves nothing anew.
    type: dict
    default: {}
  files:
    description: >-
      Paths, with wildcards, that the proof stands on. Once one of them was changed, is gone or new, the proof counts no more; to prove it
      again for the same inputs is no change of the node.
    type: list
    elements: path
    default: []
  user: {description: Who runs them., type: str, required: true}
  environment: {description: Variables to add., type: dict, default: {}}
  stamps: {description: Folder of the stamps., type: path, default: /opt/dlperf/stamps}
  timeout: {description: Seconds that a command may take., type: int, default: 120}
  parallel: {description: Commands at a time., type: int, default: 8}
  force: {description: Run although the stamp stands., type: bool, default: false}
attributes:
  check_mode: {support: partial, details: Runs nothing and says whether it would.}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Prove that node2 can be reached
  proof:
    name: ssh_mesh
    user: dlperf
    commands:
      - name: node2
        argv: [ssh, -o, BatchMode=yes, node2, echo, here]
        expect: "^here$"
"""

RETURN = r"""
proven:
  description: C(now), C(before) (the stamp stands), or C(no) in check mode.
  returned: always
  type: str
outputs:
  description: Standard output of each command that was run.
  returned: success
  type: dict
"""

import io
import json
import os
import pwd
import re
import signal
import subprocess
import tempfile
import threading

from ansible.module_utils import stamps
from ansible.module_utils.basic import AnsibleModule


MAX_BYTES = 1 << 24


def text(stream):
    stream.seek(0)
    return stream.read(MAX_BYTES).decode("utf-8", "replace")


def execute(command, argv, environment, timeout, results):
    """Runs one command in a session of its own, which is ended as a whole when the time is over.

    The output goes to files: what the command starts in another session may hold a pipe open for ever.
    """
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
        try:
            process = subprocess.Popen(
                argv,
                stdin=nothing,
                stdout=output,
                stderr=errors,
                env=environment,
                cwd="/",
                preexec_fn=os.setsid,
            )
        except OSError as error:
            results[command["name"]] = (None, "", str(error), False)
            return
        late = []

        def end():
            late.append(True)
            os.killpg(process.pid, signal.SIGKILL)

        timer = threading.Timer(timeout, end)
        timer.start()
        try:
            process.wait()
        finally:
            timer.cancel()
        results[command["name"]] = (process.returncode, text(output), text(errors), bool(late))


def complaint(command, result, timeout):
    """Why a command proves nothing; None where it proves what it should."""
    code, output, errors, late = result
    said = (errors.strip() or output.strip())[-1500:] or "nothing"
    if late:
        return "%s: no end within %d s; it said: %s" % (command["name"], timeout, said)
    if code is None:
        return "%s: cannot be started: %s" % (command["name"], errors)
    if code != 0:
        return "%s: exit status %s; it said: %s" % (command["name"], code, said)
    if not re.search(command["expect"], output, re.MULTILINE):
        return "%s: output matching %r was expected, found: %s" % (
            command["name"],
            command["expect"],
            output.strip()[-1500:] or "nothing",
        )
    return None


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "commands": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "argv": {"type": "list", "elements": "str", "required": True},
                    "expect": {"type": "str", "required": True},
                },
            },
            "inputs": {"type": "dict", "default": {}},
            "files": {"type": "list", "elements": "path", "default": []},
            "user": {"type": "str", "required": True},
            "environment": {"type": "dict", "default": {}},
            "stamps": {"type": "path", "default": "/opt/dlperf/stamps"},
            "timeout": {"type": "int", "default": 120},
            "parallel": {"type": "int", "default": 8},
            "force": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    after = {"proven": given["name"], "inputs": given["inputs"]}
    if given["files"]:
        after["files"] = stamps.fingerprints(given["files"])
    stamp = os.path.join(given["stamps"], given["name"] + ".json")
    before = stamps.read(stamp)
    changed = before.get("inputs") != given["inputs"]
    if before == after and not given["force"]:
        module.exit_json(changed=False, proven="before", outputs={})
    if module.check_mode:
        module.exit_json(changed=changed, proven="no", outputs={})
    try:
        user = pwd.getpwnam(given["user"])
    except KeyError:
        module.fail_json(msg="there is no user %s on this node" % given["user"])

    environment = {
        "HOME": user.pw_dir,
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin",
        "LC_ALL": "C.UTF-8",
    }
    environment.update((key, str(value)) for key, value in given["environment"].items())
    results, slots, threads = {}, threading.Semaphore(given["parallel"]), []

    def work(command):
        with slots:
            # runuser opens a session, so the user's limits are those of a login.
            prefix = ["runuser", "-u", user.pw_name, "--"]
            execute(command, prefix + command["argv"], environment, given["timeout"], results)

    for command in given["commands"]:
        threads.append(threading.Thread(target=work, args=(command,)))
        threads[-1].start()
    for thread in threads:
        thread.join()

    complaints = [
        complaint(command, results[command["name"]], given["timeout"])
        for command in given["commands"]
    ]
    complaints = [line for line in complaints if line]
    if complaints:
        if os.path.exists(stamp):
            os.unlink(stamp)  # what stood there is no longer so
        module.fail_json(
            msg="%s is not proven: %s" % (given["name"], "\n".join(complaints)), proven="no"
        )
    if before != after:
        if not os.path.isdir(given["stamps"]):
            os.makedirs(given["stamps"], 0o755)
        handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
        with io.open(handle, "w", encoding="utf-8") as stream:
            stream.write(u"%s" % json.dumps(after, sort_keys=True, indent=1))
        os.chmod(temporary, 0o644)
        module.atomic_move(temporary, stamp)
    module.exit_json(
        changed=changed,
        proven="now",
        outputs=dict((name, result[1]) for name, result in results.items()),
    )


if __name__ == "__main__":
    main()
