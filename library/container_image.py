#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: container_image
short_description: Make an image of this node's packages and one environment
description:
  - The image holds the files of the installed packages, where they are as the packages shipped them, and O(environment). No other file
    of the node is in it, edited configuration included.
  - It is made anew where the packages of the node or the distributions of the environment have changed since, and is written as one archive
    that engines load, in which its digest and that of its layer are computed on the way. Nothing is pulled and no build is run.
  - The archive is read from the node and written with the rights of O(user), who alone can read it.
  - The archive stays at O(archive) where the image was made, or is written again by O(keep), so that other nodes can load it.
options:
  name: {description: "Name of the image, without a tag.", type: str, required: true}
  environment: {description: The environment that it holds., type: path, required: true}
  mpirun:
    description: The C(mpirun) that it must have. A build in a folder of its own below C(/opt) or C(/usr/local) is in the image too.
    type: path
  archive: {description: Where the archive is written., type: path, required: true}
  user: {description: The user whose images these are., type: str, required: true}
  keep: {description: Write the archive although the image is there., type: bool, default: false}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Make the image
  container_image:
    name: localhost/dlperf-mxnet
    environment: /opt/dlperf/envs/mxnet
    archive: /var/tmp/dlperf-mxnet.tar
    user: dlperf
"""

RETURN = r"""
digest: {description: Digest of the image's manifest; empty where there is none yet., returned: always, type: str}
archive: {description: Whether the archive was written., returned: always, type: bool}
bytes: {description: Size of its layer; null where none was made., returned: always, type: int}
"""

import json
import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_image import LABEL, TAG, contents, rights_of, write

# An interpreter that the stack brings, which environments need.
INTERPRETER = "/opt/dlperf/python"


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "environment": {"type": "path", "required": True},
            "mpirun": {"type": "path"},
            "archive": {"type": "path", "required": True},
            "user": {"type": "str", "required": True},
            "keep": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    given = module.params
    user = pwd.getpwnam(given["user"])
    name, archive = given["name"], given["archive"]
    as_user = ["runuser", "-u", user.pw_name, "--", "env", "-C", "/", "HOME=" + user.pw_dir]

    def podman(*arguments, **options):
        argv = as_user + ["podman"] + list(arguments)
        code, output, errors = module.run_command(argv, umask=0o077 if arguments[0] == "save" else None)
        if code != 0 and options.get("check", True):
            module.fail_json(msg="podman %s: exit status %d: %s" % (arguments[0], code, errors.strip()[-1500:]))
        return output.strip() if code == 0 else ""

    def inspected():
        text = podman("image", "inspect", "%s:%s" % (name, TAG), check=False)
        if not text:
            return "", ""
        image = json.loads(text)[0]
        return image["Digest"], (image.get("Labels") or {}).get(LABEL, "")

    if not os.path.isdir(given["environment"]):
        module.exit_json(changed=module.check_mode, digest="", archive=False, bytes=None)
    needed = [os.path.join(given["environment"], "bin", "python")]
    folders = [given["environment"], INTERPRETER]
    if given["mpirun"]:
        needed.append(given["mpirun"])
        prefix = os.path.dirname(os.path.dirname(given["mpirun"]))
        # Elsewhere it might be somebody's home.
        folders += [prefix] if prefix.startswith(("/opt/", "/usr/local/")) else []
    label = contents(given["environment"], folders)
    digest, found = inspected()
    if found == label and not given["keep"]:
        module.exit_json(changed=False, digest=digest, archive=False, bytes=None)
    if module.check_mode:
        module.exit_json(changed=True, digest="", archive=False, bytes=None)
    size = None
    if os.path.lexists(archive):
        os.unlink(archive)
    if found == label:
        podman("save", "--quiet", "--format", "docker-archive", "--output", archive, "%s:%s" % (name, TAG))
    else:
        try:
            with rights_of(user):
                size = write(archive, name, label, folders, needed)
        except (IOError, OSError, RuntimeError) as error:
            if os.path.lexists(archive):
                os.unlink(archive)
            module.fail_json(msg="the image %s cannot be made: %s" % (name, error))
        podman("load", "--quiet", "--input", archive)
        digest, _label = inspected()
    module.exit_json(changed=True, digest=digest, archive=True, bytes=size)


if __name__ == "__main__":
    main()
