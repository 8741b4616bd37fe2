#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: driver_info
short_description: Gather the state of NVIDIA's driver on a node, and conflicting software
description:
  - Reads C(/proc), C(/sys) and dpkg's list. Changes nothing and needs no driver.
options:
  root: {description: The node's root directory; tests set another one., type: path, default: /}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Gather facts about the node's driver
  driver_info:
  register: node_driver
"""

RETURN = r"""
running: {description: Version of the loaded kernel module; null if none is loaded., returned: always, type: str}
kernel: {description: Release of the running kernel., returned: always, type: str}
is_container: {description: Whether the node is a container and shares its host's kernel., returned: always, type: bool}
has_systemd: {description: Whether systemd manages its services., returned: always, type: bool}
nouveau: {description: Whether the module nouveau is loaded., returned: always, type: bool}
has_runfile_driver: {description: Whether a driver from a run file is installed., returned: always, type: bool}
driver_packages: {description: Installed driver packages., returned: always, type: list, elements: str}
"""

import io
import os
import platform
import re

from ansible.module_utils.basic import AnsibleModule

DRIVER_PACKAGE = re.compile(r"^(nvidia-driver(-(\d|cuda).*)?|nvidia-\d+|nvidia-kernel-(open-)?dkms|nvidia-open.*|cuda-drivers.*)$")


def text(*parts):
    try:
        with io.open(os.path.join(*parts), "rb") as stream:
            return stream.read().decode("utf-8", "replace")
    except (IOError, OSError):
        return ""


def running(root):
    """NVRM version: NVIDIA UNIX x86_64 Kernel Module  440.33.01  Wed Nov 13 00:00:22 UTC 2019"""
    match = re.search(r"Module(?: for \S+)?\s+(\d+\.\d+(?:\.\d+)?)\s", text(root, "proc/driver/nvidia/version"))
    return match.group(1) if match else text(root, "sys/module/nvidia/version").strip() or None


def main():
    module = AnsibleModule(argument_spec={"root": {"type": "path", "default": "/"}}, supports_check_mode=True)
    root = module.params["root"]
    packages = []
    if os.access("/usr/bin/dpkg-query", os.X_OK):
        argv = ["dpkg-query", "-W", "-f", r"${Package}\t${Status}\n"]
        lines = (line.split("\t") for line in module.run_command(argv)[1].splitlines())
        packages = [name for name, status in lines if status.endswith(" installed") and DRIVER_PACKAGE.match(name)]
    modules = [line.split(" ")[0] for line in text(root, "proc/modules").splitlines()]
    module.exit_json(
        changed=False,
        running=running(root),
        kernel=platform.release(),
        is_container="container=" in text(root, "proc/1/environ")
        or any(os.path.exists(os.path.join(root, path)) for path in (".dockerenv", "run/.containerenv")),
        has_systemd=os.path.isdir(os.path.join(root, "run/systemd/system")),
        nouveau="nouveau" in modules,
        has_runfile_driver=os.path.exists(os.path.join(root, "usr/bin/nvidia-uninstall")),
        driver_packages=sorted(packages),
    )


if __name__ == "__main__":
    main()
