#!/usr/bin/python
from __future__ import absolute_import, division, print_function, unicode_literals

DOCUMENTATION = {
    "module": "dataset_make",
    "short_description": "Bring a data set to a folder of this node, or remove one that this module brought",
    "description": [
        "Unpacks an archive whose checksum is known, packs a folder of JPEGs into a record format, or makes synthetic images of the size, "
        "number and classes of the real ones.",
        "Everything is written next to O(path) and renamed, so a data set is whole or missing. A folder that this module did not make is "
        "neither replaced nor removed.",
    ],
    "options": {
        "path": {"type": "path", "required": True, "description": "Folder of the data set."},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present", "description": "Whether the data set is there."},
        "format": {"type": "str", "choices": ["recordio", "tfrecord", "ofrecord"], "description": "Record format."},
        "files": {"type": "list", "elements": "str", "default": [], "description": "Files of the data set, as paths below O(path)."},
        "faces": {"type": "bool", "default": False, "description":
            "Add the records of identities and the file C(property) that insightface reads."},
        "archive": {"type": "str", "description": "A tar archive: a path on this node, or a URL."},
        "sha256": {"type": "str", "description": "SHA-256 of the archive."},
        "images": {"type": "path", "description": "Folder with a folder of JPEGs per class."},
        "records": {"type": "int", "description": "Number of synthetic images."},
        "classes": {"type": "int", "description": "Number of classes of synthetic images."},
        "width": {"type": "int", "description": "Width of synthetic images."},
        "height": {"type": "int", "description": "Height of synthetic images."},
        "mean_bytes": {"type": "int", "description": "Mean size of synthetic images."},
        "seed": {"type": "int", "default": 0, "description": "Seed of the synthetic images and of the order of O(images)."},
        "processors": {"type": "int", "default": 0, "description": "Number of processes; 0 takes all processors."},
    },
}  # fmt: skip

import hashlib
import io
import multiprocessing
import os
import re
import shutil
import tarfile

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dataset_writer import Folder, Noise, read_manifest, write_manifest, write_set
from ansible.module_utils.site_proxy import proxied

try:
    from urllib.request import urlopen
except ImportError:  # Python 2
    from urllib2 import urlopen

SUFFIX = ".dlperf-new"
# What each kind of a data set is made of
KINDS = {
    "archive": ("sha256",),
    "images": ("images", "format", "files", "seed"),
    "records": ("records", "classes", "width", "height", "mean_bytes", "format", "files", "faces", "seed"),
}


class Hashed(object):
    """A stream that computes the checksum of everything that is read."""

    def __init__(self, stream):
        self.stream, self.sum = stream, hashlib.sha256()

    def read(self, count=-1):
        data = self.stream.read(count)
        self.sum.update(data)
        return data


def unpack(archive, sha256, folder):
    """Unpack regular files and folders. Without a copy of the archive: a data set has hundreds of gigabytes."""
    with proxied(archive):
        stream = Hashed(urlopen(archive) if re.match(r"[a-z]+://", archive) else io.open(archive, "rb"))
    with tarfile.open(fileobj=stream, mode="r|*") as tar:
        for member in tar:
            parts = [part for part in member.name.split("/") if part not in ("", ".")]
            if ".." in parts or member.name.startswith("/") or not (member.isfile() or member.isdir()):
                raise ValueError("%r in the archive is neither a file nor a folder below it" % member.name)
            target = os.path.join(folder, *parts)
            below = target if member.isdir() else os.path.dirname(target)
            if not os.path.isdir(below):
                os.makedirs(below)
            if member.isfile():
                with io.open(target, "wb") as out:
                    shutil.copyfileobj(tar.extractfile(member), out, 1 << 20)
    while stream.read(1 << 20):
        pass
    if stream.sum.hexdigest() != sha256:
        raise ValueError("the archive has the SHA-256 %s, not the given one" % stream.sum.hexdigest())


def check_room(folder, need):
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize
    if need > free:
        raise ValueError("it needs %d GB, but %s has only %d GB free: choose fewer records" % (need / 1e9, folder, free / 1e9))


def fill(folder, given, kind):
    """Write the data set; what the manifest says of it."""
    if kind == "archive":
        unpack(given["archive"], given["sha256"], folder)
        return {}
    processors = given["processors"] or multiprocessing.cpu_count()
    if kind == "images":
        source = Folder(given["images"], given["seed"])
        if not source.count:
            raise ValueError("%s has no folders with JPEGs, one folder for each class" % given["images"])
    else:
        check_room(os.path.dirname(folder), given["records"] * given["mean_bytes"])
        shape = [given[name] for name in ("classes", "width", "height", "mean_bytes", "seed")]
        source = Noise(given["records"], *shape, by_class=given["faces"])
    write_set(folder, given["format"], given["files"], source, processors, given["faces"])
    if given["faces"]:
        with io.open(os.path.join(folder, "property"), "w") as stream:
            stream.write("%d,%d,%d\n" % (source.classes, given["height"], given["width"]))
    return {"records": source.count, "classes": source.classes}


def replace(path, made_of, given, kind):
    """Make the data set beside its path, and rename it when it is whole."""
    new = path + SUFFIX
    os.umask(0o022)
    if os.path.isdir(new):
        shutil.rmtree(new)
    os.makedirs(new)
    write_manifest(new, made_of, **fill(new, given, kind))
    if os.path.isdir(path):
        shutil.rmtree(path)
    os.rename(new, path)


def main():
    module = AnsibleModule(
        DOCUMENTATION["options"],
        mutually_exclusive=[sorted(KINDS)],
        required_together=[("archive", "sha256"), ("classes", "width", "height", "mean_bytes")],
        required_by={"images": ["format"], "records": ["format", "classes"]},
        supports_check_mode=True,
    )
    given = module.params
    path = given["path"].rstrip("/")
    manifest = read_manifest(path)
    if given["state"] == "absent":
        changed = manifest is not None
        if changed and not module.check_mode:
            try:
                shutil.rmtree(path)
            except OSError as error:
                module.fail_json(msg="cannot remove the data set %s: %s" % (path, error))
        module.exit_json(changed=changed)
    kind = next((name for name in KINDS if given[name] is not None), None)
    if kind is None:
        module.fail_json(msg="dataset_make: give archive, images or records")
    made_of = dict((name, given[name]) for name in KINDS[kind])
    if manifest is not None and manifest.get("made_of") == made_of:
        module.exit_json(changed=False)
    if manifest is None and os.path.isdir(path) and os.listdir(path):
        module.fail_json(msg="%s exists and was not made by this role. Choose another path, or give only the path of this data set" % path)
    if module.check_mode:
        module.exit_json(changed=True)
    try:
        replace(path, made_of, given, kind)
    except (IOError, OSError, ValueError, RuntimeError, tarfile.TarError, EOFError) as error:
        shutil.rmtree(path + SUFFIX, ignore_errors=True)
        module.fail_json(msg="cannot make the data set %s: %s" % (path, error))
    module.exit_json(changed=True)


if __name__ == "__main__":
    main()
