"""Stamps: records of past verifications on this node, with their inputs and the files they depend on.

A stamp is invalid once one of its files has changed or is missing. So a manual edit of a file or its
mode makes the role that manages it check the node again.
"""

from __future__ import absolute_import, division, print_function

import glob
import hashlib
import io
import json
import os
import stat


def fingerprint(pattern):
    """Digest of the matching paths and their stat(2) data; for a directory only its existence, mode and owner.
    No file is opened, because some are in a user's home."""
    stats = []
    for path in sorted(glob.glob(pattern)):
        facts = [path, os.path.realpath(path)]
        try:
            status = os.stat(path)
        except OSError:  # a dangling link
            status = None
        if status:
            facts += [status.st_mode, status.st_uid, status.st_gid]
            if not stat.S_ISDIR(status.st_mode):
                times = ["%.6f" % status.st_mtime, "%.6f" % status.st_ctime]
                facts += [status.st_size] + times
        stats.append(facts)
    return hashlib.sha256(json.dumps(stats).encode("utf-8")).hexdigest()[:32]


def fingerprints(patterns):
    return dict((pattern, fingerprint(pattern)) for pattern in patterns)


def read(path):
    """The content of a stamp; empty if it is missing or unreadable."""
    try:
        with io.open(path, encoding="utf-8") as stream:
            stamp = json.load(stream)
    except (IOError, OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def inputs(folder, is_counted=lambda files: True):
    """The inputs of all past verifications by name, or of those with files that count. Unreadable stamps are skipped."""
    records = [read(path) for path in glob.glob(os.path.join(folder, "*.json"))]
    records = [stamp for stamp in records if "proven" in stamp and "inputs" in stamp and is_counted(stamp.get("files", {}))]
    return dict((stamp["proven"], stamp["inputs"]) for stamp in records)


def standing(folder):
    """The inputs of all valid stamps, by name."""
    return inputs(folder, lambda files: files == fingerprints(files))
