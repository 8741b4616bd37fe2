#!/usr/bin/python3 -IS
"""Slurm's prolog on a node that the role slurm has set up: before a job, it makes those checks of
`dlperf doctor` that need only this node and little time. If one fails, the node is drained, with
what failed as the reason that `sinfo -R` shows, and Slurm starts the job elsewhere.

`checks.json` beside this file has what the inventory says of the node, and its stack. Python 3.9+;
an older Python 3 checks nothing, and says so in the system's log.
"""

import json
import os
import subprocess
import sys
import syslog
from importlib import import_module
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
# What other jobs do, and what the user's logins may: no fault of the node.
NOT_HERE = {"other processes", "throttling", "locked memory", "locked memory of slurmd"}
FILE_SYSTEMS, LEAST_FREE_MIB = ("/", "/tmp"), 1024  # noqa: S108  nothing is written there
PROBE_S, COMPUTE_S = 20, 60
LONGEST = 500  # of the reason


class Described(dict):  # type: ignore[type-arg]
    """A document whose keys are attributes; None for those that it does not have."""

    __getattr__ = dict.get


def failed(node: Any, stack: Any, root: str = "/", library: str = "") -> "list[str]":
    """The checks that failed. `root`: where /proc, /sys and /usr are; `library`: that computes, by
    default the driver's, or ROCm's."""
    names = ("node_probes", "fabric_facts", "gpu_facts")
    probes, network, gpus = (import_module(f"module_utils.{name}") for name in names)
    doctor = {
        name: import_module(f"dlperf_runner.doctor.{name}") for name in ("findings", "fabric")
    }
    disks = {path: probes.disk(path) for path in FILE_SYSTEMS}
    findings = [*doctor["findings"].disk_findings(node.name, disks, LEAST_FREE_MIB)]
    rails = node.env.get("NCCL_IB_HCA") or (stack.infiniband and stack.infiniband.rails) or ""
    facts = network.facts(root, None, node.interface or None, rails, PROBE_S)
    findings += doctor["fabric"].fabric_findings(node, stack, facts)
    if stack.accelerator == "gpu":
        of_gpus = import_module("dlperf_runner.doctor.gpu")
        gpu_facts = gpus.facts(root, PROBE_S, brief=True)
        findings += of_gpus.gpu_findings(node, stack, gpu_facts)
        findings.append(_computes(node.name, of_gpus, root, library, is_amd=gpu_facts["is_amd"]))
    return [
        f"{each.check}: expected {each.expected}, found {each.found}"
        for each in findings
        if each.status == "failed" and each.check not in NOT_HERE
    ]


def _computes(name: str, of_gpus: Any, root: str, library: str, *, is_amd: bool) -> Any:
    compute = import_module("module_utils.cuda_proof")
    proof = compute.in_child(library or compute.LIBRARIES[is_amd], COMPUTE_S)
    if "kind" in proof:
        proof = compute.explained(proof, root, is_amd)
        proof["failed"] = proof["msg"]
    return of_gpus.compute_finding(name, proof)


def main() -> int:
    """The exit status: 1 if the node must not run the job."""
    syslog.openlog("dlperf-prolog")
    sys.path.insert(0, str(HERE))
    os.environ.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    try:
        # A version may look like a number.
        text = (HERE / "checks.json").read_text()
        checks = json.loads(text, object_hook=Described, parse_float=str)
        reasons = failed(checks.node, checks.stack)
    except Exception as error:  # a fault of this program must not drain a whole cluster
        syslog.syslog(syslog.LOG_ERR, f"the node was not checked: {error!r}")
        return 0
    if not reasons:
        return 0
    reason = " ".join("; ".join(reasons).split())[:LONGEST]
    syslog.syslog(syslog.LOG_ERR, reason)
    name = os.environ.get("SLURMD_NODENAME", checks.node.name)
    drain = ["scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason=dlperf: {reason}"]
    subprocess.run(drain, timeout=30, check=False)
    return 1


if __name__ == "__main__":
    sys.exit(main())
