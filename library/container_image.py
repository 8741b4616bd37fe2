#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: container_image
short_description: Make an image of this node's own root filesystem with one environment in it, and nothing else of the benchmarks
description:
  - The image holds the distribution as it is installed here and O(environment). What is the node's own stays out - keys, passwords, users'
    homes, caches, results, other environments.
  - It is made anew where the packages of the node or the distributions of the environment have changed since, and is written as one archive
    that engines load, in which its digest and that of its layer are computed on the way. Nothing is pulled and no build is run.
  - The archive stays at O(archive) where the image was made, or is written again by O(keep), so that other nodes can load it.
options:
  name: {description: "Name of the image, without a tag.", type: str, required: true}
  environment: {description: The environment that it holds., type: path, required: true}
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

import glob
import hashlib
import json
import os
import platform
import pwd
import subprocess
import tarfile
import tempfile

from ansible.module_utils.basic import AnsibleModule

FORMAT = "1"
TAG = "node"
LABEL = "dlperf.contents"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
# An interpreter that the stack brings, which environments need.
INTERPRETER = "/opt/dlperf/python"
# What is the node's own. Mounts (/proc, /run, ...) are left out by --one-file-system.
OWN = [
    "./boot", "./home/*", "./lost+found", "./media/*", "./mnt/*", "./root/*", "./root/.[!.]*", "./run/*", "./srv/*", "./tmp/*",
    "./etc/shadow*", "./etc/gshadow*", "./etc/ssh/*key*", "./etc/ssh/ssh_known_hosts*", "./etc/ssl/private", "./etc/machine-id",
    "./etc/hostname", "./etc/hosts", "./etc/resolv.conf", "./etc/sudoers.d",
    "./var/tmp/*", "./var/log/*", "./var/cache/apt/*", "./var/lib/apt/lists/*", "./var/lib/containers", "./var/lib/docker",
    "./usr/share/doc/*", "./usr/share/man/*", "./usr/share/locale/*",
]  # fmt: skip


def others(path):
    """Everything on the way to a path that does not lead there: `./opt/x`, `./opt/dlperf/src`."""
    found, folder = [], "/"
    for part in path.strip("/").split("/"):
        if folder != "/":
            beside = [os.path.join(folder, name) for name in os.listdir(folder) if name != part]
            found += ["." + name for name in beside if name != INTERPRETER]
        folder = os.path.join(folder, part)
    return sorted(found)


def contents(environment):
    """A digest of what makes the image: packages of the node, distributions of the environment."""
    digest = hashlib.sha256(FORMAT.encode("ascii"))
    with open("/var/lib/dpkg/status", "rb") as stream:
        wanted = (b"Package:", b"Version:", b"Status:")
        digest.update(b"".join(line for line in stream if line.startswith(wanted)))
    pattern = os.path.join(environment, "lib", "python*", "site-packages", "*.dist-info", "RECORD")
    for path in sorted(glob.glob(pattern)):
        digest.update(path.encode("utf-8"))
        with open(path, "rb") as stream:
            digest.update(hashlib.sha256(stream.read()).digest())
    return digest.hexdigest()


def compact(document):
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode("utf-8")


class Archive(object):
    """An archive as `docker save` writes it: a layer, the image's configuration, and their names."""

    def __init__(self, path):
        self.stream = open(path, "w+b")

    def add(self, name, data):
        self.stream.write(self.header(name, len(data)) + data)
        self.pad(len(data))

    def add_layer(self, source):
        """A layer whose size and digest are known at its end only; gives both."""
        start, size, digest = self.stream.tell(), 0, hashlib.sha256()
        self.stream.write(b"\0" * tarfile.BLOCKSIZE)
        for block in iter(lambda: source.read(1 << 20), b""):
            self.stream.write(block)
            digest.update(block)
            size += len(block)
        self.pad(size)
        end = self.stream.tell()
        self.stream.seek(start)
        self.stream.write(self.header("layer.tar", size))
        self.stream.seek(end)
        return size, "sha256:" + digest.hexdigest()

    def header(self, name, size):
        member = tarfile.TarInfo(name)
        member.size = size
        return member.tobuf(tarfile.GNU_FORMAT)

    def pad(self, size):
        self.stream.write(b"\0" * (-size % tarfile.BLOCKSIZE))

    def close(self):
        self.stream.write(b"\0" * tarfile.BLOCKSIZE * 2)
        self.stream.close()


def write(path, name, environment, label):
    """Write the archive; gives the size of its layer."""
    excluded = OWN + others(environment)
    argv = ["tar", "-C", "/", "--one-file-system", "--numeric-owner", "--sort=name", "-cf", "-"]
    argv += ["--exclude=" + pattern for pattern in excluded] + ["."]
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    archive = Archive(path)
    with open(os.devnull) as nothing, tempfile.TemporaryFile() as errors:
        tar = subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=errors)
        size, layer = archive.add_layer(tar.stdout)
        # 1: a file changed while it was read, as a log does
        if tar.wait() not in (0, 1):
            errors.seek(0)
            raise RuntimeError("tar: %s" % errors.read().decode("utf-8", "replace").strip()[-1500:])
    config = {
        "architecture": MACHINES.get(platform.machine(), platform.machine()),
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {"Env": ["PATH=" + PATH, "LANG=C.UTF-8"], "Labels": {LABEL: label}},
        "rootfs": {"type": "layers", "diff_ids": [layer]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "the root filesystem of a node"}],
    }
    data = compact(config)
    file_name = hashlib.sha256(data).hexdigest() + ".json"
    archive.add(file_name, data)
    document = [{"Config": file_name, "RepoTags": ["%s:%s" % (name, TAG)], "Layers": ["layer.tar"]}]
    archive.add("manifest.json", compact(document))
    archive.close()
    return size


def main():
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "environment": {"type": "path", "required": True},
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
        code, output, errors = module.run_command(argv)
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
    label = contents(given["environment"])
    digest, found = inspected()
    if found == label and not given["keep"]:
        module.exit_json(changed=False, digest=digest, archive=False, bytes=None)
    if module.check_mode:
        module.exit_json(changed=True, digest="", archive=False, bytes=None)
    size = None
    if found == label:
        if os.path.exists(archive):
            os.unlink(archive)
        podman("save", "--quiet", "--format", "docker-archive", "--output", archive, "%s:%s" % (name, TAG))
    else:
        try:
            size = write(archive, name, given["environment"], label)
        except (IOError, OSError, RuntimeError) as error:
            if os.path.exists(archive):
                os.unlink(archive)
            module.fail_json(msg="the image %s cannot be made: %s" % (name, error))
        os.chown(archive, user.pw_uid, user.pw_gid)
        podman("load", "--quiet", "--input", archive)
        digest, _label = inspected()
    module.exit_json(changed=True, digest=digest, archive=True, bytes=size)


if __name__ == "__main__":
    main()
