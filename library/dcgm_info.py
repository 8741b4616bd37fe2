#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = r"""
module: dcgm_info
short_description: Run DCGM's diagnostics on a node's GPUs
description:
  - Runs C(dcgmi diag -r LEVEL -j). It computes on all GPUs, so nothing else may use them. Changes nothing, and never fails because of a GPU.
options:
  level: {description: "1 checks software and settings in seconds, 2 also memory and PCIe in minutes, 3 also load, power and NVLink in up to an hour.",
    type: int, required: true, choices: [1, 2, 3]}
  timeout: {description: Time limit in seconds; by default 2 minutes for level 1; 15 for 2; 90 for 3., type: int}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Run the short diagnostics
  dcgm_info:
    level: 1
  register: node_dcgm
"""

RETURN = r"""
level: {description: The level that was asked for., returned: always, type: int}
error:
  description: >-
    Why there are no results; null if there are. C(kind) is no_dcgmi, timeout, cannot_start, unreadable or runtime_error; C(message) is what
    dcgmi printed.
  returned: always
  type: dict
exit_status: {description: dcgmi's exit status. 226 is a failed test and 205 one whose GPU must not be used., returned: always, type: int}
version: {description: DCGM's version., returned: always, type: str}
tests:
  description: >-
    Each with C(category), C(name) and C(results), which have a C(status) (pass, fail, warn, skip), C(devices) such as C(GPU 3), and
    C(messages) with C(text) and C(severity).
  returned: always
  type: list
  elements: dict
"""

from ansible.module_utils import dcgm_diag
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import bounded, program

TIMEOUTS = {1: 120, 2: 900, 3: 5400}


def facts(level, timeout):
    gathered = {"level": level, "error": None, "exit_status": None, "version": None, "tests": []}
    dcgmi = program("dcgmi")
    if not dcgmi:
        gathered["error"] = {"kind": "no_dcgmi", "message": "dcgmi is not installed"}
        return gathered
    result = bounded([dcgmi, "diag", "-r", str(level), "-j"], timeout)
    said = (result["output"] + result["errors"]).strip()[-500:]
    gathered["exit_status"] = result["code"]
    if result["late"]:
        gathered["error"] = {"kind": "timeout", "message": "dcgmi diag did not finish within %d s" % timeout}
        return gathered
    if result["code"] is None:
        gathered["error"] = {"kind": "cannot_start", "message": said}
        return gathered
    told = dcgm_diag.read(result["output"])
    if told is None:
        gathered["error"] = {"kind": "unreadable", "message": said or "nothing"}
        return gathered
    gathered.update(version=told["version"], tests=told["tests"])
    if told["error"]:
        gathered["error"] = {"kind": "runtime_error", "message": told["error"][-500:]}
    return gathered


def main():
    module = AnsibleModule(
        argument_spec={"level": {"type": "int", "required": True, "choices": [1, 2, 3]}, "timeout": {"type": "int"}},
        supports_check_mode=True,
    )
    level = module.params["level"]
    module.exit_json(changed=False, **facts(level, module.params["timeout"] or TIMEOUTS[level]))


if __name__ == "__main__":
    main()
