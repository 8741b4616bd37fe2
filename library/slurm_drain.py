#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "slurm_drain",
    "short_description": "Drain a node in Slurm and wait until its jobs end, or give it back",
    "description": [
        "Asks Slurm by C(scontrol) on the node itself, as root. A node on which no slurmd runs is left alone.",
        "A node that somebody else drained, or that is down, keeps its reason, and is not given back.",
    ],
    "options": {
        "state": {"type": "str", "required": True, "choices": ["checked", "drained", "resumed"], "description":
            "C(drained) drains the node and waits until its jobs end. C(resumed) gives back a node that this module drained. C(checked) "
            "changes nothing and fails unless the node is drained and without jobs."},
        "timeout": {"type": "int", "default": 3600, "description": "How many seconds to wait for the jobs."},
        "root": {"type": "path", "default": "/", "description": "The node's root directory. Tests set another one."},
    },
}  # fmt: skip

RETURN = r"""
jobs: {description: Numbers of the jobs that run on the node., returned: always, type: list, elements: str}
"""

import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slurm_node import asked, jobs, node_name

REASON = "dlperf_runner provisions it"
UNKNOWN = ["unknown, because squeue fails"]
POLL_S = 5
REGISTERED_S = 60  # a slurmctld that was restarted gives no node back before its slurmd has answered


class Node(object):
    def __init__(self, module):
        self.module = module
        self.root = module.params["root"]
        self.name = node_name(self.root)
        self.timeout = module.params["timeout"]

    def scontrol(self, *arguments):
        done = asked(self.root, "scontrol", *arguments)
        if done["code"] != 0:
            self.fail("scontrol %s failed: %s" % (" ".join(arguments), (done["errors"] or done["output"]).strip()))
        return done["output"]

    def fail(self, problem):
        self.module.fail_json(msg="%s: %s. Drain it by hand (scontrol update NodeName=%s State=DRAIN Reason=...) and run again" % (
            self.name, problem, self.name), jobs=jobs(self.root))  # fmt: skip

    def state(self):
        """(state such as MIXED+DRAIN, reason)"""
        messages = self.scontrol("show", "node", self.name, "--oneliner")
        state, reason = re.search(r" State=(\S+)", messages), re.search(r" Reason=(.*?)(?: \[\S+\]|\s*$)", messages)
        return state.group(1) if state else "", reason.group(1) if reason else ""

    def drain(self):
        state, reason = self.state()
        is_drained = "DRAIN" in state
        if not self.module.check_mode:
            if not is_drained:
                # A node that is down may come back by itself. It keeps its reason, and so is not given back; IDLE+POWERED_DOWN is up.
                is_out = re.search(r"\b(DOWN|FAIL)", state)
                self.scontrol("update", "NodeName=" + self.name, "State=DRAIN", "Reason=" + ((reason or "down") if is_out else REASON))
            end = time.time() + self.timeout
            running = jobs(self.root, UNKNOWN)
            while running and time.time() < end:
                time.sleep(POLL_S)
                running = jobs(self.root, UNKNOWN)
            if running:
                self.module.fail_json(jobs=running, msg="%s: after %d s these jobs still run: %s. The node stays drained; run again when they have ended"
                                      " (dlperf_drain_timeout says how long to wait), or give it back: scontrol update NodeName=%s State=RESUME"
                                      % (self.name, self.timeout, ", ".join(running), self.name))  # fmt: skip
        return not is_drained

    def resume(self):
        state, reason = self.state()
        is_ours = "DRAIN" in state and reason.startswith(REASON)
        if is_ours and not self.module.check_mode:
            given_back = ("update", "NodeName=" + self.name, "State=RESUME")
            end = time.time() + REGISTERED_S
            while asked(self.root, "scontrol", *given_back)["code"] and time.time() < end:
                time.sleep(1)
            if "DRAIN" in self.state()[0]:
                self.scontrol(*given_back)
        return is_ours

    def check(self):
        running = jobs(self.root, UNKNOWN)
        if running or "DRAIN" not in self.state()[0]:
            self.fail("Slurm uses this node (jobs: %s), and it is not drained. Nothing was restarted. Set dlperf_drain: true"
                      % (", ".join(running) or "none now"))  # fmt: skip
        return False


def main():
    states = {"drained": Node.drain, "resumed": Node.resume, "checked": Node.check}
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    node = Node(module)
    changed = bool(node.name) and states[module.params["state"]](node)
    module.exit_json(changed=changed, jobs=jobs(node.root))


if __name__ == "__main__":
    main()
