#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: vendor_file
short_description: Bring a vendor's file to a node, whole and with the right checksum
description:
  - Differs from C(get_url) in that a file without a checksum cannot be had, that what was cut off never lies at O(path),
    that the source may be a path of the node, and that a Debian package can be unpacked without being installed.
options:
  path: {description: Where it lies afterwards., type: path, required: true}
  source: {description: "Its address, or a path of the node (C(file:) or not); O(path) itself where it was copied there.", type: str, required: true}
  sha256: {description: Its checksum., type: str, required: true}
  unpack:
    description: A folder that holds the content of the file, a Debian package, afterwards. What it is unpacked from is known by the checksum.
    type: path
  mode: {description: Mode., type: str, default: "0644"}
  remedy: {description: What the message about another checksum says that one can do., type: str, default: ""}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Fetch the driver
  vendor_file:
    path: /var/lib/dlperf/files/driver.run
    source: https://vendor.example/driver.run
    sha256: 0000000000000000000000000000000000000000000000000000000000000000
"""

RETURN = r""" # """

import hashlib
import io
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.urls import fetch_url

STAMP = ".dlperf-unpacked"
CHUNK = 1 << 20


def checksum(path):
    digest = hashlib.sha256()
    with io.open(path, "rb") as stream:
        for chunk in iter(lambda: stream.read(CHUNK), b""):
            digest.update(chunk)
    return digest.hexdigest()


class VendorFile(object):
    def __init__(self, module):
        self.module = module
        self.path = module.params["path"]
        self.source = module.params["source"]
        self.sha256 = module.params["sha256"].lower()
        self.unpack = module.params["unpack"]

    def fail(self, problem, remedy):
        self.module.fail_json(msg="%s: %s. %s." % (os.path.basename(self.path), problem, remedy[:1].upper() + remedy[1:]))

    def is_unpacked(self):
        try:
            with io.open(os.path.join(self.unpack, STAMP), encoding="ascii") as stream:
                return stream.read().strip() == self.sha256
        except (IOError, OSError):
            return False

    def opened(self):
        if self.source.startswith(("/", "file:")):
            local = self.source[5:] if self.source.startswith("file:") else self.source
            if not os.path.isfile(local):
                self.fail("%s is not there" % local, "put the file there, or correct the path")
            return io.open(local, "rb")
        response, info = fetch_url(self.module, self.source, timeout=60)
        if info["status"] != 200:
            self.fail(
                "%s cannot be fetched: %s" % (self.source, info["msg"]),
                "check the address, or the mirror that dlperf_mirror and dlperf_vendor_mirror name",
            )
        return response

    def bring(self):
        temporary = self.path + ".part"
        digest = hashlib.sha256()
        try:
            stream = self.opened()
            with io.open(temporary, "wb") as new:
                for chunk in iter(lambda: stream.read(CHUNK), b""):
                    digest.update(chunk)
                    new.write(chunk)
                new.flush()
                os.fsync(new.fileno())
            size = os.path.getsize(temporary)
            if digest.hexdigest() != self.sha256:
                if self.source == self.path:
                    os.unlink(self.path)
                self.fail(
                    "sha256 %s was expected, found %s (%d bytes of %s): it was cut off, or it is another file"
                    % (self.sha256, digest.hexdigest(), size, self.source),
                    self.module.params["remedy"] or "compare both with what the vendor publishes, and fetch the file anew",
                )
            os.rename(temporary, self.path)
        except (IOError, OSError) as error:
            self.fail("writing %s failed: %s" % (self.path, error), "make room or repair the disk, and run again")
        finally:
            if os.path.exists(temporary):
                os.unlink(temporary)

    def unpacked(self):
        new = self.unpack.rstrip("/") + ".new"
        for folder in (new, self.unpack):
            if os.path.isdir(folder):
                shutil.rmtree(folder)
        code, output, errors = self.module.run_command(["dpkg-deb", "-x", self.path, new])
        if code != 0:
            shutil.rmtree(new, ignore_errors=True)
            self.fail("it cannot be unpacked: %s" % (errors or output).strip(), "make room (df -h), or check that it is a Debian package")
        os.chmod(new, 0o755)
        with io.open(os.path.join(new, STAMP), "w", encoding="ascii") as stream:
            stream.write(u"%s\n" % self.sha256)
        os.rename(new, self.unpack)


def main():
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "source": {"type": "str", "required": True},
            "sha256": {"type": "str", "required": True},
            "unpack": {"type": "path"},
            "mode": {"type": "str", "default": "0644"},
            "remedy": {"type": "str", "default": ""},
        },
        supports_check_mode=True,
    )
    file = VendorFile(module)
    missing = not os.path.isfile(file.path) or checksum(file.path) != file.sha256
    unpack = file.unpack is not None and not file.is_unpacked()
    if file.unpack is not None and not unpack:
        missing = False  # the file itself has done its work
    folders = [os.path.dirname(path) for path in (file.path, file.unpack) if path]
    if not module.check_mode and (missing or unpack):
        for folder in folders:
            if not os.path.isdir(folder):
                os.makedirs(folder, 0o755)
        if missing:
            file.bring()
        if unpack:
            file.unpacked()
    mode = False
    if os.path.isfile(file.path):
        mode = module.set_mode_if_different(file.path, module.params["mode"], False)
    module.exit_json(changed=missing or unpack or mode)


if __name__ == "__main__":
    main()
