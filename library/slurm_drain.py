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
        "node": {"type": "str", "default": "", "description":
            "Name in Slurm of a node that C(drained) has drained. C(resumed) then waits for its slurmd, which may be late after a reboot."},
        "timeout": {"type": "int", "default": 3600, "description":
            "How many seconds to wait for the jobs. C(resumed) waits at most 300 until the node answers."},
        "root": {"type": "path", "default": "/", "description": "The node's root directory. Tests set another one."},
    },
}  # fmt: skip

RETURN = r"""
jobs: {description: Numbers of the jobs that run on the node., returned: always, type: list, elements: str}
node: {description: Name in Slurm of the node if this module has drained it and has not given it back; else empty., returned: always, type: str}
"""

import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.slurm_node import REASON, asked, drained, is_ours, jobs, node_name, node_state

UNKNOWN = ["unknown, because squeue fails"]
POLL_S = 5
BACK_S = 300  # as Slurm's own SlurmdTimeout
# DOWN*+DRAIN, and IDLE+NOT_RESPONDING since 21.08; not POWERED_DOWN
OUT = re.compile(r"DRAIN|\b(DOWN|FAIL)|\*|NOT_RESPONDING")


class Node(object):
    def __init__(self, module):
        self.module = module
        self.root = module.params["root"]
        self.name = node_name(self.root) or module.params["node"]
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
        return node_state(self.scontrol("show", "node", self.name, "--oneliner"))

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
        """Given back before its slurmd has started, a node would be down a while later, and stay so."""
        if self.module.check_mode:
            return bool(drained(self.root))
        has_drained, end = None, time.time() + min(self.timeout, BACK_S)
        while True:
            problem = "no slurmd runs"
            if node_name(self.root):
                shown = asked(self.root, "scontrol", "show", "node", self.name, "--oneliner")
                problem = "Slurm says: " + (shown["errors"] or shown["output"]).strip()
                if shown["code"] == 0:
                    now, reason = node_state(shown["output"])
                    has_drained = is_ours(now, reason) if has_drained is None else has_drained
                    if not has_drained and OUT.search(now):
                        self.module.warn(
                            "%s: Slurm says State=%s Reason=%s. Provisioning has not drained it and leaves it so; to use it again, type: "
                            "scontrol update nodename=%s state=resume" % (self.name, now, reason, self.name)
                        )
                    if not has_drained or not OUT.search(now):
                        return has_drained
                    problem = "Slurm says State=%s Reason=%s" % (now, reason)
                    if is_ours(now, reason):
                        asked(self.root, "scontrol", "update", "NodeName=" + self.name, "State=RESUME")
            if time.time() > end:
                self.module.fail_json(jobs=jobs(self.root), msg="%s: provisioning could not give the node back to Slurm: after %d s, %s. Find out why,"
                                      " then run again, or type: scontrol update nodename=%s state=resume"
                                      % (self.name, min(self.timeout, BACK_S), problem, self.name))  # fmt: skip
            time.sleep(1)

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
    module.exit_json(changed=changed, jobs=jobs(node.root), node=drained(node.root))


if __name__ == "__main__":
    main()
