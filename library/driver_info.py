#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "driver_info",
    "short_description": "Gather the state of NVIDIA's or AMD's driver on a node, and conflicting software",
    "description": "Reads C(/proc), C(/sys) and the list of installed packages. Changes nothing and needs no driver.",
    "options": {
        "root": {"type": "path", "default": "/", "description": "The node's root directory; tests set another one."},
        "kernel_module": {"type": "str", "choices": ["amdgpu", "nvidia"], "default": "nvidia", "description": "The driver's kernel module."},
        "build": {"type": "bool", "default": False, "description":
            "Also say whether the running kernel can have, has and may load the driver's module (modinfo, dkms, mokutil)."},
        "signing_keys": {"type": "list", "elements": "path", "default": [], "description":
            "Public keys with which dkms may sign modules. Under Secure Boot, one that exists must be enrolled."},
    },
}  # fmt: skip

RETURN = r"""
running: {description: "Version of the loaded kernel module; null if none is loaded, or the kernel's own amdgpu.", returned: always, type: str}
kernel: {description: Release of the running kernel., returned: always, type: str}
is_container: {description: Whether the node is a container and shares its host's kernel., returned: always, type: bool}
has_systemd: {description: Whether systemd manages its services., returned: always, type: bool}
nouveau: {description: Whether the module nouveau is loaded., returned: always, type: bool}
has_runfile_driver: {description: Whether a driver from a run file is installed., returned: always, type: bool}
driver_packages: {description: Installed driver packages., returned: always, type: list, elements: str}
nvswitches: {description: PCI addresses of the board's NVSwitches., returned: always, type: list, elements: str}
switch_functions: {returned: always, type: list, elements: str, description:
  "Those of them that are functions of ConnectX (NVLink 5); the fabric manager then needs nvlsm and InfiniBand's modules."}
is_ours: {description: Whether the driver's packages or run file were installed by provisioning., returned: always, type: bool}
gpu_processes: {description: "Processes that use the GPUs, such as C(python3 (41327)).", returned: always, type: list, elements: str}
is_operators: {description: Whether the driver is in a container of NVIDIA's GPU Operator., returned: always, type: bool}
rebooted_for: {description: The driver for which the role rebooted the node last; null if none., returned: always, type: str}
image: {description: "The vendor's system image whose part the driver is, such as C(DGX OS 7.1.0); null if there is none.", returned: always, type: str}
has_headers: {description: Whether the running kernel's headers are installed., returned: O(build), type: bool}
offers_headers: {returned: "O(build)", type: bool, description:
  "Whether dnf's repositories have the running kernel's headers, if they are not installed; null on other systems, and if dnf does not
  say."}
module: {description: Version of O(kernel_module) that the running kernel would load; null if there is none., returned: O(build), type: str}
compiler: {description: "The compiler of the running kernel, such as C(gcc-12), if C(cc) is another; else null.", returned: O(build), type: str}
dkms: {description: Lines of C(dkms status) about this driver., returned: O(build), type: list, elements: str}
secure_boot: {description: Whether the firmware enforces Secure Boot., returned: O(build), type: bool}
enrolled_keys: {description: Which of the signing keys the firmware trusts; null if mokutil is missing., returned: O(build), type: list, elements: str}
"""

import os
import platform
import re

from ansible.module_utils import nvidia_kernel
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_packages import all_names, has_rpm
from ansible.module_utils.node_probes import SBIN, bounded, is_container, modules, output, program, text

DRIVER_PACKAGES = {
    "nvidia": r"(nvidia-driver(-(\d|cuda).*)?|nvidia-\d+|nvidia-headless-.*|linux-modules-nvidia-.*|nvidia-kernel-(open-)?dkms|kmod-nvidia-.*|nvidia-open.*|cuda-drivers.*)$",
    "amdgpu": r"amdgpu-dkms$",
}
TIMEOUT_S = 60
REBOOTED = "var/lib/dlperf/%s-driver.rebooted"


def enrolled(keys):
    """mokutil --test-key exits with 1 for an enrolled key: `/var/lib/dkms/mok.pub is already enrolled`."""
    mokutil = program("mokutil", SBIN)
    if not mokutil:
        return None
    return [key for key in keys if os.path.exists(key) and "already enrolled" in bounded([mokutil, "--test-key", key], 30)["output"]]


def offers_headers(root, kernel):
    """A repository of the RHEL family has the newest minor release only; kernels before it are in the vault."""
    if not has_rpm(root):
        return None
    result = output(TIMEOUT_S, "dnf", "-q", "repoquery", "kernel-devel-" + kernel)
    return None if result is None else bool(result)


def image(root):
    """DGX_NAME="DGX Server" and more lines; an update over the network adds DGX_OTA_VERSION="7.1.0"."""
    result = dict(re.findall(r'(?m)^(DGX_\w+)="?([^"\n]*)', text(root, "etc/dgx-release") or ""))
    version = result.get("DGX_OTA_VERSION") or result.get("DGX_SWBUILD_VERSION") or ""
    return ("DGX OS " + version).strip() if result else None


def compiler(root):
    """gcc-12, if the kernel is built by another version of gcc than cc is: its options may be unknown to cc.

    Linux version 6.8.0-87-generic (buildd@lcy02-amd64-034) (x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0, GNU ld
    """
    kernels = re.search(r"gcc(?:-\d+)? \(.*?\) (\d+)\.", text(root, "proc/version") or "")
    if not kernels or has_rpm(root) or is_container(root):
        return None
    version = (output(TIMEOUT_S, "cc", "-dumpversion") or "").partition(".")[0]
    return None if version == kernels.group(1) else "gcc-" + kernels.group(1)


def build(root, kernel, keys, module):
    is_enforced = nvidia_kernel.secure_boot(root)
    has_headers = os.path.exists(os.path.join(root, "lib/modules", kernel, "build"))
    return {
        "has_headers": has_headers,
        "offers_headers": None if has_headers or is_container(root) else offers_headers(root, kernel),
        "module": output(TIMEOUT_S, "modinfo", "-k", kernel, "-F", "version", module) or None,
        "compiler": compiler(root),
        "dkms": [line for line in (output(TIMEOUT_S, "dkms", "status") or "").splitlines() if line.startswith(module)],
        "secure_boot": is_enforced,
        "enrolled_keys": enrolled(keys) if is_enforced else [],
    }


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    root, kernel, name = module.params["root"], platform.release(), module.params["kernel_module"]
    packages = [each for each in all_names() if re.match(DRIVER_PACKAGES[name], each)]
    built = build(root, kernel, module.params["signing_keys"], name) if module.params["build"] else {}
    facts = dict(
        changed=False,
        running=nvidia_kernel.running(root) if name == "nvidia" else text(root, "sys/module/amdgpu/version") or None,
        kernel=kernel,
        is_container=is_container(root),
        has_systemd=os.path.isdir(os.path.join(root, "run/systemd/system")),
        nouveau="nouveau" in modules(root),
        has_runfile_driver=os.path.exists(os.path.join(root, "usr/bin/nvidia-uninstall")),
        driver_packages=packages,
        nvswitches=nvidia_kernel.nvswitches(root),
        switch_functions=nvidia_kernel.switch_functions(root),
        is_ours=nvidia_kernel.is_ours(root, name + "_driver"),
        gpu_processes=nvidia_kernel.processes(root),
        image=image(root),
        is_operators=nvidia_kernel.is_operators(root),
        rebooted_for=text(root, REBOOTED % name) or None,
    )
    facts.update(built)
    module.exit_json(**facts)


if __name__ == "__main__":
    main()
