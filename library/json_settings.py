#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "json_settings",
    "short_description": "Merge settings into an existing JSON file, or restore the previous settings",
    "description": [
        "Keys that are not in O(settings) stay as they are. The values before the first merge are recorded. O(state=absent) restores them "
        "key by key, so that later changes by others stay.",
        "C(slurp), C(stat) and C(copy) with the filter C(combine) merge, too, but restore nothing. An unchanged file costs 0.28 s of CPU time a "
        "node with this module and 1.06 s with those (benchmarks/README.md).",
    ],
    "options": {
        "path": {"type": "path", "required": True, "description": "The file."},
        "settings": {"type": "dict", "default": {}, "description":
            "Settings for the file; dictionaries are merged, all other values replaced."},
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present", "description":
            "Whether to merge the settings or restore the previous ones."},
        "undo": {"type": "path", "default": "/var/lib/dlperf/settings", "description": "Folder of the records."},
    },
}  # fmt: skip

import copy
import json
import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.whole_files import difference, make_folder, read_bytes, remove_if_empty, write_whole

NOTHING = "dlperf_runner: nothing was there"


def merged(value, settings):
    """(the value with the settings merged, the previous values of the same keys)."""
    new, before = dict(value), {}
    for key, wanted in settings.items():
        current = value.get(key, NOTHING)
        if isinstance(wanted, dict) and isinstance(current, dict):
            new[key], before[key] = merged(current, wanted)
        else:
            new[key], before[key] = copy.deepcopy(wanted), current
    return new, before


def restored(value, settings, before):
    """The value with previous settings restored, except settings that others have changed."""
    new = dict(value)
    for key, wanted in settings.items():
        was = before.get(key, NOTHING)
        if key not in new:
            continue
        if isinstance(wanted, dict) and isinstance(was, dict) and isinstance(new[key], dict):
            new[key] = restored(new[key], wanted, was)
        elif new[key] == wanted and was == NOTHING:
            del new[key]
        elif new[key] == wanted:
            new[key] = was
        elif isinstance(wanted, dict) and isinstance(new[key], dict):
            new[key] = restored(new[key], wanted, {})
    return new


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    path, undo = module.params["path"], module.params["undo"]
    note = os.path.join(undo, path.strip("/").replace("/", "-"))
    record = json.loads((read_bytes(note) or b"null").decode("utf-8"))
    content = read_bytes(path)
    try:
        value = json.loads(content.decode("utf-8")) if (content or b"").strip() else {}
    except ValueError as error:
        module.fail_json(msg="%s is not valid JSON: %s. Repair the file and run again." % (path, error))
    if not isinstance(value, dict):
        module.fail_json(msg="%s must contain a JSON object {...}. Repair the file and run again." % path)
    if module.params["state"] == "present":
        new, before = merged(value, module.params["settings"])
        changed = new != value or content is None
    elif record is None:
        module.exit_json(changed=False)
    else:
        new = restored(value, record["settings"], record["before"])
        changed = True
    text = json.dumps(new, indent=4, sort_keys=True, separators=(",", ": ")) + "\n"
    gone = module.params["state"] == "absent" and not new and record["text"] is None
    if module.params["state"] == "absent" and (record["text"] or "").strip() and json.loads(record["text"]) == new:
        text = record["text"]  # with its original formatting
    diff = difference(path, (content or b"").decode("utf-8"), "" if gone else text)
    if not changed or module.check_mode:
        module.exit_json(changed=changed, diff=diff)
    if module.params["state"] == "present":
        if record is None:
            made = not os.path.isdir(os.path.dirname(path))
            record = {"before": before, "text": content and content.decode("utf-8"), "made_folder": made}
            record["settings"] = {}
        # Keys merged for the first time now still have their original values.
        record["before"] = merged(before, record["before"])[0]
        record["settings"] = merged(record["settings"], module.params["settings"])[0]
        for folder in (undo, os.path.dirname(path)):
            make_folder(folder)
        write_whole(note, json.dumps(record, sort_keys=True).encode("utf-8"), 0o600)
        write_whole(path, text.encode("utf-8"), 0o644 if content is None else os.stat(path).st_mode & 0o777)
    else:
        if gone:
            if content is not None:
                os.unlink(path)
            if record["made_folder"]:
                remove_if_empty(os.path.dirname(path))
        else:
            write_whole(path, text.encode("utf-8"), os.stat(path).st_mode & 0o777)
        os.unlink(note)
        remove_if_empty(undo)
    module.exit_json(changed=True, diff=diff)


if __name__ == "__main__":
    main()
