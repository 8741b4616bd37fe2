#!/usr/bin/env -S python3 -IS
"""The lab's nodes, as many as are up; four where the lab is down, so that a plan can be made.

DLPERF_LAB_DIR names the directory of a lab other than the project's own .lab.
"""

import json
import os
import sys
from pathlib import Path

PROJECT = Path(__file__).absolute().parents[2]
sys.path.insert(0, str(PROJECT / "roles/lab/files"))

from lab_control import read_state  # noqa: E402

FRAMEWORKS = ["mxnet"]  # of a lab that was brought up without a choice


def images(directory):
    """Digests of the images that were made on this lab's nodes."""
    try:
        return json.loads((directory / "container_images.json").read_text())
    except (OSError, ValueError):
        return {}


def inventory(directory):
    try:
        lab = read_state(directory)
        nodes, is_up = int(lab["nodes"]), lab["alive"]
        frameworks = lab.get("frameworks") or FRAMEWORKS
        folder = lab.get("mirror_dir")
        mirror = {"node_base_mirror_key": f"{folder}/apt/dlperf-mirror.asc"} if folder else {}
    except (ValueError, KeyError, TypeError):  # no lab, or not all of its state
        nodes, is_up, frameworks, mirror = 4, False, FRAMEWORKS, {}
    hosts = {f"node{n}": {"ansible_host": f"10.11.0.{n + 1}"} for n in range(1, nodes + 1)}
    return {
        "_meta": {"hostvars": hosts},
        "nodes": {
            "hosts": list(hosts),
            "vars": {
                "dlperf_lab_dir": str(directory),
                "dlperf_lab_is_up": is_up,
                "dlperf_frameworks": frameworks,
                **mirror,
                "dlperf_container_images": images(directory) if is_up else {},
                # A link where the directory's path is too long for a socket.
                "ansible_control_path_dir": os.path.realpath(directory / "cm"),
            },
        },
    }


if __name__ == "__main__":
    where = Path(os.environ.get("DLPERF_LAB_DIR") or PROJECT / ".lab")
    json.dump(inventory(where.absolute()), sys.stdout)
