#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "benchmark_fetch",
    "short_description": "Return a part of a large file written by a benchmark",
    "description": [
        "For large files that M(benchmark_job) describes but does not return.",
        "Reads only regular files owned by the user that runs it, never a link, FIFO or device. Changes nothing.",
    ],
    "options": {
        "path": {"type": "path", "required": True, "description": "The file."},
        "identity": {"type": "str", "required": True, "description":
            "Identity of the file from M(benchmark_job). Another file at the same path is refused."},
        "offset": {"type": "int", "required": True, "description": "First byte."},
        "count": {"type": "int", "required": True, "description": "Number of bytes."},
    },
}  # fmt: skip

RETURN = r"""
content: {description: "The bytes, compressed by zlib, in Base64.", type: str, returned: success}
"""

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.run_agent.owned_file import OwnedFile, Refused


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    path = module.params["path"]
    try:
        with OwnedFile(path) as source:
            if source.identity != module.params["identity"]:
                raise Refused("%s was replaced by another file during the transfer" % path)
            content = source.packed(module.params["offset"], module.params["count"])
    except (Refused, IOError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, content=content)


if __name__ == "__main__":
    main()
