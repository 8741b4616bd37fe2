#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "unpacked_packages",
    "short_description": "Unpack exact versions of Debian packages into a folder without installing them",
    "description": [
        "For libraries that must lie beside installed ones of another version. dpkg does not learn of them, and apt's own sources, lists "
        "and pins neither count nor change.",
        "apt downloads the packages in a temporary folder and verifies each by the SHA-256 in the repository's signed index. The key's "
        "fingerprint is verified first.",
        "The folder C(lib) in O(path) has a link to each shared library, wherever its package keeps it.",
    ],
    "options": {
        "path": {"type": "path", "required": True, "description": "The folder. It belongs to this module."},
        "parts": {"type": "list", "elements": "dict", "required": True, "description": "The packages, by repository.", "options": {
            "packages": {"type": "dict", "required": True, "description": "Packages with their exact versions."},
            "repository": {"type": "dict", "required": True, "description": "The repository, as in the module package_family."},
        }},
    },
}  # fmt: skip

RETURN = r"""
packages: {description: Version and SHA-256 of each unpacked package., returned: always, type: dict}
"""

import glob
import json
import os
import re
import shutil
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_family import explanation, source_text
from ansible.module_utils.package_family import fetched_key, message
from ansible.module_utils.whole_files import make_folder, read_bytes, write_whole

STAMP = ".dlperf-unpacked"
# A stub lacks the functions of the library that it is named after.
LIBRARY, STUBS = re.compile(r"lib[^/]+\.so(\.[0-9]+)*$"), "/stubs/"


def unpacked(path):
    """{name: {version, sha256}} of the packages in the folder."""
    return json.loads((read_bytes(os.path.join(path, STAMP)) or b"{}").decode("ascii"))


def link_libraries(path):
    """Fill the folder lib with relative links to the shared libraries below `path`."""
    libraries = os.path.join(path, "lib")
    if not os.path.isdir(libraries):
        os.mkdir(libraries)
    for folder, _folders, files in os.walk(path):
        for name in files:
            link = os.path.join(libraries, name)
            if folder != libraries and LIBRARY.match(name) and STUBS not in folder + "/" and not os.path.lexists(link):
                os.symlink(os.path.relpath(os.path.join(folder, name), libraries), link)


class Unpacking(object):
    def __init__(self, module, folder):
        self.module, self.folder = module, folder
        self.path = module.params["path"].rstrip("/")

    def fail(self, problem, remedy):
        self.module.fail_json(msg=message([self.path], problem, remedy))

    def run(self, argv, doing, cwd=None):
        code, output, errors = self.module.run_command(argv, cwd=cwd, environ_update={"LC_ALL": "C"})
        messages = "\n" + output + "\n" + errors
        # apt-get update exits with 0 if a repository cannot be read.
        if code != 0 or (argv[-1] == "update" and ("\nErr:" in messages or "\nW: Failed to fetch" in messages)):
            problem, remedy = explanation(messages) or (messages.strip()[-1500:], "fix this and run again")
            self.fail("%s: %s" % (doing, problem), remedy)

    def download(self, number, part):
        """The paths of a part's packages, downloaded by an apt that knows only their repository."""
        repository, folder = part["repository"], os.path.join(self.folder, str(number))
        for name in ("lists/partial", "archives/partial", "debs"):
            os.makedirs(os.path.join(folder, name))
        keyring, source = os.path.join(folder, "key.gpg"), os.path.join(folder, "apt.sources")
        write_whole(keyring, fetched_key(self.module, repository, self.fail), 0o644)
        write_whole(source, source_text(repository, keyring).encode("utf-8"), 0o644)
        write_whole(os.path.join(folder, "status"), b"", 0o644)
        settings = {
            "Dir::Etc::sourcelist": source, "Dir::Etc::sourceparts": "-", "Dir::Etc::preferences": "-",
            "Dir::Etc::preferencesparts": "-", "Dir::State": folder, "Dir::State::status": os.path.join(folder, "status"),
            "Dir::Cache": folder, "APT::Sandbox::User": "root", "Acquire::Retries": "2",
        }  # fmt: skip
        apt = ["apt-get", "-q"] + [word for item in sorted(settings.items()) for word in ("-o", "%s=%s" % item)]
        self.run(apt + ["update"], "repository %s" % repository["uri"])
        debs = os.path.join(folder, "debs")
        exact = ["%s=%s" % item for item in sorted(part["packages"].items())]
        self.run(apt + ["download"] + exact, "downloading " + ", ".join(exact), cwd=debs)
        return dict((name, glob.glob(os.path.join(debs, name + "_*.deb"))[0]) for name in part["packages"])

    def unpack(self):
        present, new = {}, os.path.join(self.folder, "tree")
        for number, part in enumerate(self.module.params["parts"]):
            for name, deb in sorted(self.download(number, part).items()):
                self.run(["dpkg-deb", "-x", deb, new], "unpacking " + name)
                present[name] = {"version": part["packages"][name], "sha256": self.module.sha256(deb)}
                os.unlink(deb)
        link_libraries(new)
        os.chmod(new, 0o755)
        write_whole(os.path.join(new, STAMP), json.dumps(present, sort_keys=True, indent=1).encode("ascii"), 0o644)
        if os.path.isdir(self.path):
            shutil.rmtree(self.path)
        os.rename(new, self.path)
        return present


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    path = module.params["path"]
    wanted = dict(item for each in module.params["parts"] for item in each["packages"].items())
    present = unpacked(path)
    if os.path.lexists(path) and not present:
        module.fail_json(msg="%s exists and is not this project's. Remove or rename it, then run again." % path)
    changed = dict((name, result["version"]) for name, result in present.items()) != wanted
    if changed and not module.check_mode:
        parent = os.path.dirname(path.rstrip("/"))
        make_folder(parent)
        # Beside the folder, because hundreds of megabytes may not fit into /tmp.
        folder = tempfile.mkdtemp(prefix=".dlperf-packages-", dir=parent)
        try:
            present = Unpacking(module, folder).unpack()
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    module.exit_json(changed=changed, packages=present)


if __name__ == "__main__":
    main()
