#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "fabric_info",
    "short_description": "Gather facts about a node's InfiniBand and RoCE ports and their state",
    "description":
        "Reads C(/sys/class/infiniband), its network interfaces and the kernel's modules, and runs C(ip) and C(ofed_info) if they are "
        "installed. Changes nothing, and never fails because of a port.",
    "options": {
        "root": {"type": "path", "default": "/", "description": "The node's root directory. Tests set another one with recorded files."},
        "user": {"type": "str", "description": "User whose limit of locked memory to read; by default that of the module's own process."},
        "interface": {"type": "str", "description": "A network interface to include, even if it does not belong to an RDMA device."},
        "rails": {"type": "str", "default": "", "description":
            "The ports that NCCL uses, in the syntax of NCCL_IB_HCA, such as C(=mlx5_0:1,mlx5_1:1) or C(^mlx5_4)."},
        "timeout": {"type": "int", "default": 20, "description": "Time limit of each program in seconds."},
    },
}  # fmt: skip

RETURN = r"""
devices: {returned: always, type: list, elements: dict, description:
  "Sorted by name, without the functions that manage NVSwitches. Each has C(name firmware), C(pcie) (width, max_width, speed and max_speed
  of its link) and C(ports), each with C(port state physical_state rate_gbps full_rate_gbps speed link_layer interface), C(gids) (their
  types), C(gid_table) (address and type by index), C(pkeys) (the table of P_Keys), C(counters) (link_downed, and those of errors that are
  not 0; null where the driver has none), C(full_rate_gbps) being the highest rate that ethtool says an Ethernet port supports, C(fault)
  (null if the port is up, else what to check) and C(in_use) (whether O(rails) names the port; without O(rails), whether the port has the
  named interface, or no port has it)."}
missing_rails: {description: Names in O(rails) that no port matches., returned: always, type: list, elements: str}
interfaces: {description: "C(state mtu addresses) of the devices' interfaces and of O(interface), by name.", returned: always, type: dict}
acs: {description: PCI addresses of bridges that redirect traffic between devices (ACS); null in a virtual machine., returned: always, type: list}
iommu: {description: "Kinds of address translation of the network cards, such as C(DMA-FQ) or C(identity); null in a virtual machine.", returned: always, type: list}
modules: {description: Versions of the loaded kernel modules for RDMA and peer memory., returned: always, type: dict}
gpu_direct: {returned: always, type: list, elements: str, description:
  "How the cards can read GPU memory, first what NCCL prefers - C(DMA-BUF) (both the kernel's RDMA and the open kernel modules of NVIDIA's
  driver support it), C(nvidia-peermem) or C(nv_peer_mem), if loaded."}
dma_buf: {description: What DMA-BUF lacks on the node; empty if nothing., returned: always, type: list, elements: str}
peer_memory_client: {description: Whether the kernel has an interface for peer memory modules; null if unknown., returned: always, type: bool}
ofed: {description: "Version of MLNX_OFED from ofed_info, or of DOCA-OFED from its loaded mlx5_core; null if not installed.", returned: always, type: str}
memlock_kib: {description: How much memory the user may lock; null if unlimited or unknown., returned: always, type: int}
slurmd_memlock_kib: {description: How much memory slurmd and its jobs may lock; null if unlimited or if it does not run., returned: always, type: int}
memlock_unlimited: {description: Whether locked memory is unlimited; null if unknown., returned: always, type: bool}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.fabric_facts import facts


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    module.exit_json(changed=False, **facts(*(given[name] for name in ("root", "user", "interface", "rails", "timeout"))))


if __name__ == "__main__":
    main()
