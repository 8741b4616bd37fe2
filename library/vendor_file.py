#!/usr/bin/python
from __future__ import absolute_import, division, print_function, unicode_literals

DOCUMENTATION = {
    "module": "vendor_file",
    "short_description": "Place a vendor's file on a node and verify its checksum",
    "description":
        "Differs from C(get_url) in these points. The checksum is required and verified before the file gets to O(path), so that a wrong "
        "download does not replace a right file (ansible-core 2.16, which old nodes need, verifies afterwards). Check mode asks whether "
        "a URL is there, and needs no folder of O(path), without which C(get_url) fails. Errors name the source and the remedy. A Debian package "
        "can be unpacked without being installed, and is then not downloaded again.",
    "options": {
        "path": {"type": "path", "required": True, "description": "Path of the file on the node."},
        "source": {"type": "str", "required": True, "description":
            "URL, or a path on the node (with or without C(file:)); O(path) itself if the file was copied there."},
        "sha256": {"type": "str", "required": True, "description": "SHA-256 of the file."},
        "unpack": {"type": "path", "description":
            "Folder into which to unpack the file, a Debian package. A stamp in it records the checksum."},
        "mode": {"type": "str", "default": "0644", "description": "File mode."},
        "remedy": {"type": "str", "default": "", "description": "Advice in the message about a wrong checksum."},
        "variable": {"type": "str", "default": "the source", "description": "The variable in which the operator gives another source."},
    },
}  # fmt: skip

import hashlib
import io
import os
import shutil

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import text
from ansible.module_utils.package_family import unreached
from ansible.module_utils.site_proxy import proxied
from ansible.module_utils.urls import fetch_url
from ansible.module_utils.whole_files import make_folder, write_whole

STAMP = ".dlperf-unpacked"
CHUNK = 1 << 20


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
        return text(self.unpack, STAMP) == self.sha256

    def opened(self):
        if self.source.startswith(("/", "file:")):
            local = self.source[5:] if self.source.startswith("file:") else self.source
            if not os.path.isfile(local):
                self.fail("%s does not exist" % local, "copy the file there, or correct the path")
            return io.open(local, "rb")
        return self.asked("GET")

    def asked(self, method):
        with proxied(self.source) as proxy:
            response, info = fetch_url(self.module, self.source, timeout=60, method=method)
        if info["status"] != 200:
            instead = ", or, if the vendor has taken it away, set %s to a copy of it" % self.module.params["variable"]
            self.fail("cannot download %s: %s" % (self.source, info["msg"]), unreached(proxy) + instead)
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
                    "expected sha256 %s, found %s (%d bytes of %s): it is incomplete or another file"
                    % (self.sha256, digest.hexdigest(), size, self.source),
                    self.module.params["remedy"] or "compare both with the checksum that the vendor publishes, and download the file again",
                )
            os.rename(temporary, self.path)
        except (IOError, OSError) as error:
            self.fail("cannot write %s: %s" % (self.path, error), "free disk space or repair the disk, and run again")
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
            self.fail("cannot unpack it: %s" % (errors or output).strip(), "free disk space (df -h), or check that it is a Debian package")
        os.chmod(new, 0o755)
        write_whole(os.path.join(new, STAMP), b"%s\n" % self.sha256.encode("ascii"), 0o644)
        os.rename(new, self.unpack)


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    file = VendorFile(module)
    missing = not os.path.isfile(file.path) or module.sha256(file.path) != file.sha256
    unpack = file.unpack is not None and not file.is_unpacked()
    if file.unpack is not None and not unpack:
        missing = False  # once unpacked, the file itself is not needed
    if module.check_mode and missing and file.source.startswith("http"):
        file.asked("HEAD")
    folders = [os.path.dirname(path) for path in (file.path, file.unpack) if path]
    if not module.check_mode and (missing or unpack):
        for folder in folders:
            make_folder(folder)
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
