#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "gpu_info",
    "short_description": "Gather facts about a node's GPUs, their state and their processes",
    "description": [
        "Reads nvidia-smi, C(/proc), C(/sys), CUDA's headers and libraries, and the kernel's log. Changes nothing, and never fails "
        "because of a GPU - a driver that does not answer or a lost GPU is reported in C(error).",
        "A value that a GPU or its driver does not support is null, never 0. An invalid value, such as C(ERR!), is listed in the GPU's "
        "C(errors).",
    ],
    "options": {
        "root": {"type": "path", "default": "/", "description": "The node's root directory. Tests set another one with recorded files."},
        "timeout": {"type": "int", "default": 30, "description": "Time limit of each nvidia-smi command in seconds."},
    },
}  # fmt: skip

RETURN = r"""
error: {returned: always, type: dict, description:
  "Why nvidia-smi failed; null if it succeeded. C(kind) is no_amdgpu, no_nvidia_smi, timeout, cannot_start, version_mismatch, no_driver,
  gpu_lost, no_devices, no_permission, failed or unreadable; C(message) is its output and C(exit_status) its exit status."}
gpus: {returned: always, type: list, elements: dict, description:
  "Sorted by index. Each has C(index uuid bus_id model vbios memory_mib pcie_generation persistence mig temperature_c
  power_limit_w power_default_limit_w), C(clocks_mhz) (application, max; graphics and memory), C(throttle_reasons) (the current ones), C(ecc) (enabled,
  pending, and volatile and aggregate counts of uncorrected errors), C(retired_pages) (pending), C(remapped_rows) (pending, failure),
  C(processes) (pid, name, type, memory_mib), C(fabric) (state, status, cluster_uuid, clique_id and health; null without NVLink fabric),
  and C(errors), invalid values by name."}
is_amd: {description: Whether the GPUs are AMD's. Then the kernel's driver amdgpu describes them; a value that it does not have is null., returned: always, type: bool}
rocm: {description: Version of ROCm., returned: always, type: str}
pci: {description: "PCI addresses of all GPUs, even those unknown to the driver; null if unknown.", returned: always, type: list}
pcie: {description: "C(width max_width speed max_speed) of the GPUs' PCIe links by their address, speeds in GT/s.", returned: always, type: dict}
nvswitches: {description: PCI addresses of what manages the board's NVSwitches., returned: always, type: list, elements: str}
imex:
  description: >-
    C(is_active) of the service nvidia-imex, the number of its C(channels), the state of the C(domain) and its nodes that are C(missing); null without
    GPUs of NVL72.
  returned: always
  type: dict
fabric_manager: {description: C(version) and C(is_active) of the fabric manager; null on boards without NVSwitch., returned: always, type: dict}
driver: {description: Version of the driver according to nvidia-smi., returned: always, type: str}
driver_running: {description: Version of the loaded kernel module., returned: always, type: str}
inforom: {description: Addresses of GPUs whose infoROM is corrupted., returned: always, type: list, elements: str}
next_kernel: {description: The newest installed kernel if it has no module of the driver; else null., returned: always, type: str}
driver_cuda: {description: The newest CUDA version that the driver supports., returned: always, type: str}
cuda: {description: Version of the CUDA toolkit., returned: always, type: str}
cudnn: {description: Version of cuDNN., returned: always, type: str}
nccl: {description: Version of NCCL., returned: always, type: str}
modules: {description: Versions of the loaded GPU kernel modules., returned: always, type: dict}
topology: {description: C(links) between devices from C(nvidia-smi topo -m); null if unavailable., returned: always, type: dict}
xid: {description: C(bus_id xid message count) of Xid errors since boot; null if the kernel's log cannot be read., returned: always, type: list}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.gpu_facts import facts


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    module.exit_json(changed=False, **facts(module.params["root"], module.params["timeout"]))


if __name__ == "__main__":
    main()
