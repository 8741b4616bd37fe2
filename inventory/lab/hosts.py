#!/usr/bin/env -S python3 -IS
"""The lab's nodes, as many as are up; four where the lab is down, so that a plan can be made.

DLPERF_LAB_DIR names the directory of a lab other than the project's own .lab.
"""

import json
import os
import sys
from pathlib import Path

PROJECT = Path(__file__).absolute().parents[2]
FRAMEWORKS = ["mxnet"]  # of a lab that was brought up without a choice


def process_start(pid):
    """When the process was started, in the kernel's ticks; None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def images(directory):
    """Digests of the images that were made on this lab's nodes."""
    try:
        return json.loads((directory / "container_images.json").read_text())
    except (OSError, ValueError):
        return {}


def inventory(directory):
    try:
        lab = json.loads((directory / "lab.json").read_text())
        nodes, is_up = int(lab["nodes"]), process_start(lab["pid"]) == lab["started"]
        frameworks = lab.get("frameworks") or FRAMEWORKS
    except (OSError, ValueError, KeyError, TypeError):
        nodes, is_up, frameworks = 4, False, FRAMEWORKS
    hosts = {f"node{n}": {"ansible_host": f"10.11.0.{n + 1}"} for n in range(1, nodes + 1)}
    return {
        "_meta": {"hostvars": hosts},
        "nodes": {
            "hosts": list(hosts),
            "vars": {
                "dlperf_lab_dir": str(directory),
                "dlperf_lab_is_up": is_up,
                "dlperf_frameworks": frameworks,
                "dlperf_container_images": images(directory) if is_up else {},
                # A link where the directory's path is too long for a socket.
                "ansible_control_path_dir": os.path.realpath(directory / "cm"),
            },
        },
    }


if __name__ == "__main__":
    where = Path(os.environ.get("DLPERF_LAB_DIR") or PROJECT / ".lab")
    json.dump(inventory(where.absolute()), sys.stdout)
