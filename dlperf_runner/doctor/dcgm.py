"""Check what DCGM's diagnostics say of a node's GPUs: facts from dcgm_info in, findings out."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from .findings import Facts, Finding, Status

# Why there are no results -> what to do.
SILENCE = {
    "no_dcgmi": "install DCGM from NVIDIA's repository (datacenter-gpu-manager, since version 4"
    " datacenter-gpu-manager-4-cuda12 or -cuda13) and start it: systemctl enable --now nvidia-dcgm",
    "timeout": "a GPU may hang: check the kernel log (dmesg), then reboot the node",
    "runtime_error": "check that nvidia-dcgm runs and that nothing else uses the GPUs; see"
    " /var/log/nvidia-dcgm/nvvs.log",
}
# The severity of an error (dcgmlib/dcgm_errors.h) -> what to do; the gravest stands first.
ADVICE = {
    2: "do not use this GPU: take the node out of use and have the GPU repaired or replaced",
    6: "end all work on the node and reset the GPU (nvidia-smi --gpu-reset), or reboot the node",
    4: "collect /var/log/nvidia-dcgm and the output of nvidia-bug-report.sh, and ask the vendor",
    5: "change the node's settings as the message says, then test again",
    1: "the GPU can be used: keep watching it",
}
UNKNOWN = "test this GPU again with nothing else on the node; if it fails again, ask the vendor"
# dcgmi's exit statuses are those of its library, modulo 256.
FAILED = {226: "a test failed", 205: "a GPU must not be used"}


def dcgm_findings(name: str, facts: Facts) -> Iterator[Finding]:
    """Each test that failed, warned or was skipped; else that all passed."""
    level, error, status = facts["level"], facts["error"], facts["exit_status"]
    check, expected = f"dcgm level {level}", f"dcgmi diag -r {level} gives results"
    if error:
        hint = SILENCE.get(error["kind"], f"run dcgmi diag -r {level} on the node")
        yield Finding(name, check, "failed", expected, error["message"], hint)
        return
    found = [finding for test in facts["tests"] if (finding := _finding(name, test))]
    yield from found
    passed = sum(_has(test, "pass") and not _has(test, "fail", "warn") for test in facts["tests"])
    has_failed = any(finding.status == "failed" for finding in found)
    if status and not has_failed:
        hint = f"run dcgmi diag -r {level} on the node and read its messages"
        said = f"exit status {status}" + (f": {FAILED[status]}" if status in FAILED else "")
        yield Finding(name, check, "failed", "exit status 0", said, hint)
    elif not has_failed:
        version = f", DCGM {facts['version']}" if facts["version"] else ""
        said = f"{passed} of {len(facts['tests'])} tests passed{version}"
        yield Finding(name, check, "ok", "every test passes", said)


def _has(test: Any, *statuses: str) -> bool:
    return any(result["status"] in statuses for result in test["results"])


def _finding(name: str, test: Any) -> Finding | None:
    """The worst results of a test, with the device of each; None if it passed."""
    meanings: dict[str, Status] = {"fail": "failed", "warn": "warning", "skip": "warning"}
    for status, meaning in meanings.items():
        results = [result for result in test["results"] if result["status"] == status]
        messages = [message for result in results for message in result["messages"]]
        if not results or (status == "skip" and not messages):
            continue  # a test that this GPU or this level does not have
        found = "; ".join(dict.fromkeys(map(_told, results)))
        severities = [5] if status == "skip" else [message["severity"] for message in messages]
        hint = next((text for number, text in ADVICE.items() if number in severities), UNKNOWN)
        return Finding(name, f"dcgm {test['name']}", meaning, "pass", found, hint)
    return None


def _told(result: Any) -> str:
    messages = " ".join(message["text"].strip() for message in result["messages"])
    status = {"skip": "skipped"}.get(result["status"], result["status"])
    return ": ".join(filter(None, (result["devices"], messages or status)))
