"""Stamps: what has been proven on this node, for which inputs, and the files that it stands on.

A stamp whose files were changed, or are gone, proves nothing any more: who edits a file or its mode
by hand makes the role that brings it look again.
"""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import glob
import hashlib
import io
import json
import os
import stat


def fingerprint(pattern):
    """Digest of the paths that match, and of what stat(2) says of each; of a directory only that it is there,
    its mode and its owner. No file is opened: some lie in a home that belongs to somebody else."""
    found = []
    for path in sorted(glob.glob(pattern)):
        facts = [path, os.path.realpath(path)]
        try:
            status = os.stat(path)
        except OSError:  # a link to nothing
            status = None
        if status:
            facts += [status.st_mode, status.st_uid, status.st_gid]
            if not stat.S_ISDIR(status.st_mode):
                times = ["%.6f" % status.st_mtime, "%.6f" % status.st_ctime]
                facts += [status.st_size] + times
        found.append(facts)
    return hashlib.sha256(json.dumps(found).encode("utf-8")).hexdigest()[:32]


def fingerprints(patterns):
    return dict((pattern, fingerprint(pattern)) for pattern in patterns)


def read(path):
    """A stamp; empty where there is none, or none that can be read."""
    try:
        with io.open(path, encoding="utf-8") as stream:
            stamp = json.load(stream)
    except (IOError, OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def standing(folder):
    """The inputs of each proof by its name, of the stamps whose files are as they were."""
    found = {}
    for path in glob.glob(os.path.join(folder, "*.json")):
        stamp = read(path)
        files = stamp.get("files", {})
        if "proven" in stamp and "inputs" in stamp and files == fingerprints(files):
            found[stamp["proven"]] = stamp["inputs"]
    return found
