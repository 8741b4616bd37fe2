"""What `dcgmi diag -r LEVEL -j` prints, of DCGM 2, 3 and 4. Python 2.7 and 3.6+.

DCGM 4 names each result's entity_group and entity_id, 3 has gpu_id or gpu_ids ("0,1"), 2 has its warnings as one text.

Source: NVIDIA/DCGM 72fa3fe, dcgmi/Diag.cpp, nvvs/include/NvvsJsonStrings.h, testing/python3/dcgm_diag_schema.json and
testing/TestDiagManagerStrings.h; dcgmlib/dcgm_errors.h on severities.
"""
from __future__ import absolute_import, division, print_function

import json

try:
    TEXT = (str, unicode)
except NameError:
    TEXT = (str,)
NAMES = ("DCGM Diagnostic", "DCGM GPU Diagnostic")


def read(output):
    """{version, error, tests} of the output; None if it is no result of dcgmi. A test has a category, a name, and its results:
    status (pass, fail, warn, skip), the devices that it is about, and messages with their severity, None if unknown."""
    try:
        document = json.loads(output[output.index("{") : output.rindex("}") + 1])
        told = next(document[name] for name in NAMES if name in document)
        version = document.get("metadata", {}).get("version") or told.get("version")
        return {
            "version": version,
            "error": told.get("runtime_error"),
            "tests": [_test(category["category"], test) for category in told.get("test_categories") or () for test in category.get("tests") or ()],
        }
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration):
        return None


def _test(category, test):
    results = [_result(result) for result in test.get("results") or ()]
    known = set(message["text"] for result in results for message in result["messages"])
    # Of DCGM 4: also messages that are about no entity.
    summary = _result(test.get("test_summary") or {"status": "pass"})
    summary["messages"] = [message for message in summary["messages"] if message["text"] not in known]
    if summary["messages"] or not results:
        results.append(summary)
    return {"category": category, "name": test["name"], "results": results}


def _result(result):
    return {
        "status": result["status"].lower(),
        "devices": _devices(result),
        "messages": _messages(result.get("warnings") or ()),
    }


def _devices(result):
    if "entity_id" in result:
        return "%s %s" % (result["entity_group"], result["entity_id"])
    numbers = "%s" % (result.get("gpu_ids") or result.get("gpu_id") or "")
    return "GPU " + numbers if numbers else ""


def _messages(warnings):
    if isinstance(warnings, TEXT):
        warnings = [{"warning": warnings}]
    return [{"text": each["warning"], "severity": each.get("error_severity")} for each in warnings]
