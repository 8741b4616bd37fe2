#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "dcgm_info",
    "short_description": "Run DCGM's diagnostics on a node's GPUs",
    "description":
        "Runs C(dcgmi diag -r LEVEL -j). It computes on all GPUs, so nothing else may use them. Changes nothing, and never fails because "
        "of a GPU.",
    "options": {
        "level": {"type": "int", "required": True, "choices": [1, 2, 3], "description":
            "1 checks software and settings in seconds, 2 also memory and PCIe in minutes, 3 also load, power and NVLink in up to an "
            "hour."},
        "timeout": {"type": "int", "description": "Time limit in seconds; by default 2 minutes for level 1; 15 for 2; 90 for 3."},
    },
}  # fmt: skip

RETURN = r"""
level: {description: The level that was asked for., returned: always, type: int}
error: {returned: always, type: dict, description:
  "Why there are no results; null if there are. C(kind) is no_dcgmi, timeout, cannot_start, unreadable or runtime_error; C(message) is
  what dcgmi printed."}
exit_status: {description: dcgmi's exit status. 226 is a failed test and 205 one whose GPU must not be used., returned: always, type: int}
version: {description: DCGM's version., returned: always, type: str}
tests: {returned: always, type: list, elements: dict, description:
  "Each with C(category), C(name) and C(results), which have a C(status) (pass, fail, warn, skip), C(devices) such as C(GPU 3), and
  C(messages) with C(text) and C(severity)."}
"""

import json

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import bounded, program

TIMEOUTS = {1: 120, 2: 900, 3: 5400}
# What `dcgmi diag -j` prints. DCGM 4 names each result's entity_group and entity_id, 3 has gpu_id or gpu_ids ("0,1"), 2 has its warnings as
# one text. Source: NVIDIA/DCGM 72fa3fe, dcgmi/Diag.cpp, nvvs/include/NvvsJsonStrings.h, testing/python3/dcgm_diag_schema.json and
# testing/TestDiagManagerStrings.h; dcgmlib/dcgm_errors.h on severities.
NAMES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")
try:
    TEXT = (str, unicode)
except NameError:
    TEXT = (str,)


def results_of(output):
    """{version, error, tests} of the output; None if it is no result of dcgmi. A test has a category, a name, and its results:
    status (pass, fail, warn, skip), the devices that it is about, and messages with their severity, None if unknown."""
    try:
        document = json.loads(output[output.index("{") : output.rindex("}") + 1])
        answer = next(document[name] for name in NAMES if name in document)
        version = document.get("metadata", {}).get("version") or answer.get("version")
        return {
            "version": version,
            "error": answer.get("runtime_error"),
            "tests": [
                one_test(category["category"], test)
                for category in answer.get("test_categories") or ()
                for test in category.get("tests") or ()
            ],
        }
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None


def one_test(category, test):
    results = [one_result(result) for result in test.get("results") or ()]
    reported = set(message["text"] for result in results for message in result["messages"])
    # Of DCGM 4: also messages that are about no entity.
    summary = one_result(test.get("test_summary") or {"status": "pass"})
    summary["messages"] = [message for message in summary["messages"] if message["text"] not in reported]
    if summary["messages"] or not results:
        results.append(summary)
    return {"category": category, "name": test["name"], "results": results}


def one_result(result):
    return {
        "status": result["status"].lower(),
        "devices": devices_of(result),
        "messages": messages_of(result.get("warnings") or ()),
    }


def devices_of(result):
    if "entity_id" in result:
        return "%s %s" % (result["entity_group"], result["entity_id"])
    numbers = "%s" % (result.get("gpu_ids") or result.get("gpu_id") or "")
    return "GPU " + numbers if numbers else ""


def messages_of(warnings):
    if isinstance(warnings, TEXT):
        warnings = [{"warning": warnings}]
    return [{"text": each["warning"], "severity": each.get("error_severity")} for each in warnings]


def facts(level, timeout):
    gathered = {"level": level, "error": None, "exit_status": None, "version": None, "tests": []}

    def failed(kind, message):
        return dict(gathered, error={"kind": kind, "message": message})

    dcgmi = program("dcgmi")
    if not dcgmi:
        return failed("no_dcgmi", "dcgmi is not installed")
    result = bounded([dcgmi, "diag", "-r", str(level), "-j"], timeout)
    messages = (result["output"] + result["errors"]).strip()[-500:]
    gathered["exit_status"] = result["code"]
    if result["late"]:
        return failed("timeout", "dcgmi diag did not finish within %d s" % timeout)
    if result["code"] is None:
        return failed("cannot_start", messages)
    answer = results_of(result["output"])
    if answer is None:
        return failed("unreadable", messages or "nothing")
    gathered.update(version=answer["version"], tests=answer["tests"])
    return failed("runtime_error", answer["error"][-500:]) if answer["error"] else gathered


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    level = module.params["level"]
    module.exit_json(changed=False, **facts(level, module.params["timeout"] or TIMEOUTS[level]))


if __name__ == "__main__":
    main()
