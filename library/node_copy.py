#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "node_copy",
    "short_description": "Copy a folder from node to node over the nodes' own SSH",
    "description": [
        "With C(copy) or C(synchronize), the controller would send an environment of gigabytes to each node; here each copy is a source "
        "of others.",
        "With O(state=offered), packs O(path) into O(archive), which all users of the node can read, and returns its size and SHA-256.",
        "With O(state=taken), fetches the archive as O(user) from the first of O(sources) that offers it, waiting for each, and offers it "
        "to others in turn. Root unpacks it only if size and SHA-256 are right, so the user's account and the network need not be "
        "trusted.",
        "O(path) is replaced as a whole. An interrupted copy leaves the folder as it was.",
        "If no source offers the archive, nothing changes and RV(taken) is false.",
    ],
    "options": {
        "path": {"type": "path", "required": True, "description": "The folder."},
        "archive": {"type": "path", "required": True, "description": "The archive on this node and on each source."},
        "state": {"type": "str", "required": True, "choices": ["offered", "taken"], "description": "What to do."},
        "sources": {"type": "list", "elements": "str", "default": [], "description": "Names of nodes to fetch from, in order."},
        "user": {"type": "str", "description": "User whose SSH key the sources accept."},
        "sha256": {"type": "str", "default": "", "description": "SHA-256 of the archive."},
        "size": {"type": "int", "default": 0, "description": "Size of the archive in bytes."},
        "keep": {"type": "bool", "default": True, "description": "Whether to keep the fetched archive for other nodes."},
        "timeout": {"type": "int", "default": 600, "description": "The longest time in seconds to wait for a source and to read from it."},
    },
    "attributes": {"check_mode": {"support": "none"}},
}  # fmt: skip

RETURN = r"""
sha256: {description: SHA-256 of the archive., returned: when offered, type: str}
size: {description: Size of the archive in bytes., returned: when offered, type: int}
taken: {description: "Whether the folder was copied.", returned: when taken, type: bool}
refused: {description: "Why each source before did not give it.", returned: when taken, type: list}
"""

import hashlib
import os
import subprocess
import tempfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.whole_files import make_folder, remove_if_empty

try:
    from shlex import quote
except ImportError:  # Python 2.7
    from pipes import quote

CHUNK = 1 << 20
# By default ssh chooses chacha20, which takes 1.7 times the CPU time of AES-GCM and which FIPS mode refuses.
CIPHERS = "aes128-gcm@openssh.com,aes256-gcm@openssh.com,aes128-ctr,aes256-ctr"
# What each node does before it sends: wait until it has the archive itself. It appears whole, because it is renamed.
WHEN_THERE = 'n=0; until test -r "$0"; do n=$((n + 1)); test $n -le %d || exit 3; sleep 1; done; exec cat "$0"'


def removed(module, path):
    module.run_command(["rm", "-rf", "--", path], check_rc=True, cwd="/")


def offer(module, path, archive):
    part = archive + ".part"
    folder, name = os.path.split(path)
    argv = ["tar", "--create", "--file", part, "--numeric-owner", "--directory", folder, name]
    module.run_command(argv, check_rc=True, cwd="/")
    os.chmod(part, 0o644)
    result = {"sha256": module.sha256(part), "size": os.path.getsize(part)}
    os.rename(part, archive)
    return result


def fetch(argv, part, size):
    """The command's output in a file, of at most `size` bytes, and its SHA-256; or why there is none."""
    digest, left = hashlib.sha256(), size
    with open(part, "wb") as target, open(os.devnull) as nothing, tempfile.TemporaryFile() as errors:
        process = subprocess.Popen(argv, stdin=nothing, stdout=subprocess.PIPE, stderr=errors, cwd="/")
        for chunk in iter(lambda: process.stdout.read(CHUNK), b""):
            left -= len(chunk)
            if left < 0:
                process.terminate()
                break
            digest.update(chunk)
            target.write(chunk)
        process.stdout.close()
        code = process.wait()
        errors.seek(0)
        words = errors.read(4096).decode("utf-8", "replace").strip()
    if left < 0:
        return None, "it sends more than the expected %d bytes" % size
    return (digest.hexdigest(), "") if code == 0 else (None, words or "exit status %d" % code)


def take(module, path, archive):
    given = module.params
    part = archive + ".part"
    command = "sh -c %s %s" % (quote(WHEN_THERE % (given["timeout"] // 2)), quote(archive))
    ssh = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=15", "-o", "Ciphers=" + CIPHERS]
    refused = []
    for source in given["sources"]:
        limit = ["timeout", str(given["timeout"])]
        argv = limit + ["runuser", "-u", given["user"], "--"] + ssh + [source, command]
        digest, why = fetch(argv, part, given["size"])
        if digest == given["sha256"]:
            break
        refused.append("%s: %s" % (source, why or "the archive is damaged"))
    else:
        removed(module, part)
        return {"taken": False, "refused": refused}
    os.chmod(part, 0o644)
    os.rename(part, archive)
    new = path + ".dlperf-new"
    removed(module, new)
    os.makedirs(new, 0o755)
    argv = ["tar", "--extract", "--file", archive, "--same-permissions", "--numeric-owner", "--directory", new]
    module.run_command(argv, check_rc=True, cwd="/")
    if not given["keep"]:
        os.unlink(archive)
        remove_if_empty(os.path.dirname(archive))
    removed(module, path)
    os.rename(os.path.join(new, os.path.basename(path)), path)
    os.rmdir(new)
    return {"taken": True, "refused": refused, "changed": True}


def main():
    module = AnsibleModule(DOCUMENTATION["options"], required_if=[("state", "taken", ["user", "sha256", "size"])])
    os.umask(0o022)
    path, archive = module.params["path"].rstrip("/"), module.params["archive"]
    for folder in (os.path.dirname(archive), os.path.dirname(path)):
        make_folder(folder)
    work = {"offered": offer, "taken": take}[module.params["state"]]
    try:
        result = work(module, path, archive)
    except (IOError, OSError) as error:
        removed(module, archive + ".part")
        module.fail_json(msg="cannot copy %s by %s: %s" % (path, archive, error))
    module.exit_json(**dict({"changed": False}, **result))


if __name__ == "__main__":
    main()
