#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "gpu_compute",
    "short_description": "Prove that every GPU of a node computes, with nothing but the driver",
    "description": [
        "Creates a CUDA context on each GPU, lets the driver compile a kernel from PTX, runs it, and compares each of its results. It "
        "calls C(libcuda.so.1) directly, so it needs neither the toolkit nor a framework.",
        "On AMD's GPUs, it calls ROCm's C(libamdhip64.so), and compiles the kernel by C(libhiprtc.so) beside it.",
        "It works in a child process with a time limit, because a driver that hangs or crashes would take the module along.",
    ],
    "options": {
        "root": {"type": "path", "default": "/", "description": "The node's root directory; tests set another one."},
        "library": {"type": "str", "default": "libcuda.so.1", "description": "The driver's library, or ROCm's."},
        "timeout": {"type": "int", "default": 180, "description":
            "Time limit in seconds. The first context on eight GPUs without persistence takes up to a minute."},
    },
}  # fmt: skip

RETURN = r"""
devices: {description: Names of the GPUs that computed., returned: success, type: list, elements: str}
cuda: {description: The newest CUDA version that the driver supports., returned: success on NVIDIA's GPUs, type: str}
kind: {returned: failure, type: str, description:
  "Why it failed - no_library, stub_library, not_loaded, no_uvm, version_mismatch, fabric, compat, no_devices, no_permission, busy,
  memory, jit, wrong_result, timeout, crashed or failed."}
code: {description: The driver's error number., returned: failure, type: int}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.cuda_proof import explained, in_child


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    result = in_child(module.params["library"], module.params["timeout"])
    if "kind" in result:
        answer = explained(result, module.params["root"], "amdhip64" in module.params["library"])
        module.fail_json(msg=answer["msg"], kind=answer["kind"], code=answer["code"])
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
