#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "container_image",
    "short_description": "Build an image from this node's packages and one environment",
    "description": [
        "The image contains the unmodified files of the installed packages and O(environment). It contains no other files of the node and "
        "no edited configuration.",
        "It is rebuilt if the node's packages or the environment's distributions have changed. The image is written as one archive that "
        "engines can load; its digests are computed while writing. Nothing is pulled, and no image builder runs.",
        "The node's files are read, and the archive is written, with the permissions of O(user). Only this user can read it.",
        "After a build the archive stays at O(archive), so that other nodes can load it. O(keep) writes it again.",
    ],
    "options": {
        "name": {"type": "str", "required": True, "description": "Name of the image, without a tag."},
        "environment": {"type": "path", "required": True, "description": "The environment to include."},
        "mpirun": {"type": "path", "description":
            "The C(mpirun) to include. A build in its own folder below C(/opt) or C(/usr/local) is copied too."},
        "archive": {"type": "path", "required": True, "description": "Path of the archive."},
        "user": {"type": "str", "required": True, "description": "The user who owns the image."},
        "keep": {"type": "bool", "default": False, "description": "Write the archive even if the image exists."},
    },
}  # fmt: skip

RETURN = r"""
digest: {description: Digest of the image's manifest; empty if there is none yet., returned: always, type: str}
archive: {description: Whether the archive was written., returned: always, type: bool}
"""

import json
import os
import pwd

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_image import LABEL, TAG, contents, rights_of, write

# The stack's own Python interpreter, which environments need.
INTERPRETER = "/opt/dlperf/python"


class Podman(object):
    """Podman of a user, and an image in it."""

    def __init__(self, module, name, user):
        self.module, self.image = module, "%s:%s" % (name, TAG)
        self.as_user = ["runuser", "-u", user.pw_name, "--", "env", "-C", "/", "HOME=" + user.pw_dir]

    def run(self, *arguments):
        argv = self.as_user + ["podman"] + list(arguments)
        code, output, errors = self.module.run_command(argv, umask=0o077 if arguments[0] == "save" else None)
        if code != 0 and arguments[0] != "image":
            self.module.fail_json(msg="podman %s: exit status %d: %s" % (arguments[0], code, errors.strip()[-1500:]))
        return output.strip() if code == 0 else ""

    def inspected(self):
        """The image's digest and label; empty without the image."""
        text = self.run("image", "inspect", self.image)
        if not text:
            return "", ""
        image = json.loads(text)[0]
        return image["Digest"], (image.get("Labels") or {}).get(LABEL, "")


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    try:
        user = pwd.getpwnam(given["user"])
    except KeyError:
        module.fail_json(msg="this node has no user %s" % given["user"])
    archive, podman = given["archive"], Podman(module, given["name"], user)
    if not os.path.isdir(given["environment"]):
        module.exit_json(changed=module.check_mode, digest="", archive=False)
    needed = [os.path.join(given["environment"], "bin", "python")]
    folders = [given["environment"], INTERPRETER]
    if given["mpirun"]:
        needed.append(given["mpirun"])
        prefix = os.path.dirname(os.path.dirname(given["mpirun"]))
        # A prefix elsewhere could be a user's home.
        folders += [prefix] if prefix.startswith(("/opt/", "/usr/local/")) else []
    label = contents(given["environment"], folders)
    digest, image_label = podman.inspected()
    if image_label == label and not given["keep"]:
        module.exit_json(changed=False, digest=digest, archive=False)
    if module.check_mode:
        module.exit_json(changed=True, digest="", archive=False)
    if os.path.lexists(archive):
        os.unlink(archive)
    if image_label == label:
        podman.run("save", "--quiet", "--format", "docker-archive", "--output", archive, podman.image)
    else:
        try:
            with rights_of(user):
                write(archive, given["name"], label, folders, needed)
        except (IOError, OSError, RuntimeError) as error:
            if os.path.lexists(archive):
                os.unlink(archive)
            module.fail_json(msg="cannot build the image %s: %s" % (given["name"], error))
        podman.run("load", "--quiet", "--input", archive)
        digest, _label = podman.inspected()
    module.exit_json(changed=True, digest=digest, archive=True)


if __name__ == "__main__":
    main()
