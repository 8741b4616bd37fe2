#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "dataset_info",
    "short_description": "Check a data set on this node",
    "description": [
        "Compares files, sizes and counts with what is expected, and reads the first records of the first and the last file as a training "
        "program would. Changes nothing.",
        "It counts the records of RecordIO files by their index. The number of records in other formats is known only if the role made "
        "the data set.",
    ],
    "options": {
        "path": {"type": "path", "required": True, "description": "Folder of the data set."},
        "format": {"type": "str", "required": True, "choices": ["ofrecord", "recordio", "tfrecord"], "description": "Record format."},
        "files": {"type": "list", "elements": "str", "required": True, "description":
            "Files that the data set must have, as paths below O(path)."},
        "pattern": {"type": "str", "description":
            "A glob that matches all of O(files). Other files that match it are a problem: programs would read them, too."},
        "classes": {"type": "int", "required": True, "description": "Number of classes; labels must be smaller."},
        "records": {"type": "int", "description": "Expected number of records."},
        "width": {"type": "int", "default": 0, "description": "Width of every image; 0 accepts any."},
        "faces": {"type": "bool", "default": False, "description": "Whether it has the records of identities and the file C(property)."},
    },
}  # fmt: skip

RETURN = r"""
problems: {description: What differs from the expected data set., returned: always, type: list}
files: {description: Number of files., returned: always, type: int}
bytes: {description: Size of all files., returned: always, type: int}
records: {description: Number of images; null if unknown., returned: always, type: int}
digest: {description: Equal on two nodes if names and sizes of all files are equal., returned: always, type: str}
sample: {description: "Label, width, height and bytes of the first image; null if it cannot be read.", returned: always, type: dict}
"""

import glob
import io
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dataset_writer import digest, read_manifest, sizes_of
from ansible.module_utils.record_formats import READ, BrokenRecord, jpeg_size


def index_of(path):
    """Number of lines of an index, and its last offset."""
    count, last = 0, b""
    with io.open(path, "rb") as stream:
        for last in stream:
            count += 1
    fields = last.split()
    if len(fields) != 2 or not fields[1].isdigit():
        raise BrokenRecord("the index %s ends with %r, not with a number and an offset" % (path, last[:60]))
    return count, int(fields[1])


def first_image(path, form):
    """The first sample with an image."""
    with io.open(path, "rb") as stream:
        sample = READ[form](stream)
        while sample is not None and not sample.image:
            sample = READ[form](stream)
    if sample is None:
        raise BrokenRecord("the file has no images")
    return sample


def described(sample):
    width, height = jpeg_size(sample.image)
    return {"label": sample.label, "width": width, "height": height, "bytes": len(sample.image)}


def some(names):
    return ", ".join(names[:3]) + (" and %d more" % (len(names) - 3) if len(names) > 3 else "")


def file_problems(given, manifest):
    """Files that are missing, empty, surplus, or of another size than when they were made."""
    folder = given["path"]
    missing = [name for name in given["files"] if not os.path.isfile(os.path.join(folder, name))]
    if missing:
        yield "%d of %d files are missing: %s" % (len(missing), len(given["files"]), some(missing))
    empty = [name for name in given["files"] if name not in missing and not os.path.getsize(os.path.join(folder, name))]
    if empty:
        yield "%d files are empty: %s" % (len(empty), some(empty))
    if given["pattern"]:
        present = [os.path.relpath(path, folder) for path in glob.glob(os.path.join(folder, given["pattern"]))]
        surplus = sorted(set(present) - set(given["files"]))
        if surplus:
            yield "%d files would be read, too, that do not belong to it: %s" % (len(surplus), some(surplus))
    recorded = (manifest or {}).get("files", {})
    now = sizes_of(folder, recorded)
    changed = sorted(name for name in recorded if now.get(name) != recorded[name] and name not in missing + empty)
    if changed:
        yield "%d files have another size than when they were made: %s" % (len(changed), some(changed))


def check_records(given):
    """The number of records if an index tells it, and the first image. Raises BrokenRecord."""
    form = given["format"]
    paths = [os.path.join(given["path"], name) for name in given["files"]]
    count = None
    if form == "recordio":
        count, last = index_of(paths[1])
        sample = first_image(paths[0], form)
        with io.open(paths[0], "rb") as stream:
            stream.seek(last)
            if READ[form](stream) is None:
                raise BrokenRecord("%s ends before the last offset of its index (%d)" % (paths[0], last))
        if given["faces"]:
            count -= given["classes"] + 1
    else:
        sample = first_image(paths[0], form)
        first_image(paths[-1], form)
    return count, sample


def property_problems(given):
    path = os.path.join(given["path"], "property")
    with io.open(path, encoding="ascii") as stream:
        text = stream.read().strip()
    wanted = "%d,%d,%d" % (given["classes"], given["width"], given["width"])
    if text != wanted:
        yield "%s contains %s, not %s (classes, height, width)" % (path, text, wanted)


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    result = {"files": 0, "bytes": 0, "records": None, "digest": "", "sample": None}
    if not os.path.isdir(given["path"]):
        module.exit_json(changed=False, problems=["there is no folder %s" % given["path"]], **result)
    manifest = read_manifest(given["path"])
    problems = list(file_problems(given, manifest))
    present = sizes_of(given["path"], given["files"])
    result.update(files=len(present), bytes=sum(present.values()), digest=digest(present))
    if not problems:
        try:
            count, sample = check_records(given)
            result["records"] = (manifest or {}).get("records") if count is None else count
            result["sample"] = described(sample)
            if given["faces"]:
                problems += property_problems(given)
        except (BrokenRecord, IOError, OSError, ValueError) as error:
            problems.append("cannot read it as %s: %s" % (given["format"], error))
    if result["sample"]:
        problems += sample_problems(given, result)
    module.exit_json(changed=False, problems=problems, **result)


def sample_problems(given, result):
    sample = result["sample"]
    if not 0 <= sample["label"] < given["classes"]:
        yield "the first image has the label %d, but there are %d classes" % (sample["label"], given["classes"])
    if given["width"] and sample["width"] != given["width"]:
        yield "the first image is %d pixels wide, not %d" % (sample["width"], given["width"])
    if given["records"] and result["records"] not in (None, given["records"]):
        yield "it has %d images, not %d" % (result["records"], given["records"])


if __name__ == "__main__":
    main()
