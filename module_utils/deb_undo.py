"""The record of a package family's changes on a node, used to undo them."""

from __future__ import absolute_import, division, print_function

import base64
import glob
import json
import os
import re
import shutil

from ansible.module_utils.deb_family import merged
from ansible.module_utils.whole_files import difference, make_folder, read_bytes, remove_if_empty, write_whole


class Undo(object):
    """The record, written before each change, so that an interrupted run can be undone.

    {"definition", "repository", "before": {"holds", "autos"}, "unfinished": packages before the current change, or
    null, "installed", "changed", "removed": see deb_family.merged, "held",
    "files": {path: null or {"content": base64, "mode"}}, "directories": created ones}
    """

    def __init__(self, folder, family):
        self.folder = folder
        self.path = os.path.join(folder, family + ".json")
        self.record = self.read(self.path)
        self.before = {}  # {path: (content, mode, its entry in the record)} from before this run, of the files that it changed

    def read(self, path):
        content = read_bytes(path)
        return json.loads(content.decode("utf-8")) if content else {}

    def save(self):
        make_folder(self.folder)
        self.write_record(self.path, self.record)

    def write_record(self, path, record):
        write_whole(path, (json.dumps(record, indent=1, sort_keys=True) + "\n").encode("utf-8"), 0o600)

    def others(self):
        """{path: record} of all other families."""
        paths = (path for path in glob.glob(os.path.join(self.folder, "*.json")) if path != self.path)
        return dict((path, self.read(path)) for path in paths)

    # A change

    def begin(self, definition, packages, repository=None):
        """Record the node's `packages`, an AptPackages or RpmPackages, before a change."""
        if not self.record:
            self.record = {"before": {"holds": packages.holds(), "autos": packages.autos()}, "files": {}, "directories": []}
        if self.record.get("unfinished") is None:
            self.record["unfinished"] = packages.snapshot()
        # The old definition is kept until the change is finished, because it tells what is obsolete.
        self.record["next"] = definition
        self.record["repository"] = repository
        self.save()

    def during(self, packages, work):
        """Record what `work` changes; it returns (whether it succeeded, its result), as this does."""
        self.begin({}, packages)
        is_done, result = work()
        (self.finish if is_done else self.settle)(packages.snapshot())
        return is_done, result

    def settled(self, now):
        """The record, including the current change so far."""
        if self.record.get("unfinished") is None:
            return self.record
        return dict(merged(self.record, self.record["unfinished"], now), unfinished=None)

    def settle(self, now):
        """After a failure, record the changes so far and keep the change marked as unfinished."""
        if self.record.get("unfinished") is not None:
            self.record = dict(self.settled(now), unfinished=now)
            self.save()

    def is_blank(self):
        """True if the record says that nothing of the family is on the node."""
        return not any(self.record.get(name) for name in ("definition", "installed", "changed", "removed", "held", "files"))

    def finish(self, now):
        self.record = self.settled(now)
        self.record["definition"] = self.record.pop("next", None)
        self.save()

    def forget(self):
        directories = self.record.get("directories") or []
        others = self.others()
        for directory in sorted(directories, reverse=True):
            remove_if_empty(directory)
        left = [directory for directory in directories if os.path.isdir(directory)]
        if left and others:  # another family uses it and will remove it
            path, record = sorted(others.items())[0]
            record["directories"] = sorted(set(record.get("directories") or []) | set(left))
            self.write_record(path, record)
        if os.path.exists(self.path):
            os.unlink(self.path)
        remove_if_empty(self.folder)
        if os.path.basename(os.path.dirname(self.folder)) == "dlperf":  # /var/lib/dlperf
            remove_if_empty(os.path.dirname(self.folder))

    # Files

    def directory(self, path):
        if not os.path.isdir(path):
            os.makedirs(path, 0o755)
            self.record["directories"].append(path)
            self.save()

    def write(self, path, content, mode=0o644):
        self.remember(path)
        self.note(path)
        if read_bytes(path) != content or (os.stat(path).st_mode & 0o777) != mode:
            write_whole(path, content, mode)

    def remember(self, path):
        content = read_bytes(path)
        mode = None if content is None else os.stat(path).st_mode & 0o777
        entry = [self.record["files"][path]] if path in self.record["files"] else []
        self.before.setdefault(path, (content, mode, entry))

    def roll_back(self):
        """Restore the files, and their entries in the record, from before this run."""
        before, self.before = self.before, {}
        for path, (content, mode, entry) in sorted(before.items(), key=lambda item: item[1][0] is not None):
            if content is not None:
                write_whole(path, content, mode)
            elif os.path.exists(path):  # first, because that needs no space on a full disk
                self.drop_lists(path)
                os.unlink(path)
            self.record["files"].pop(path, None)
            if entry:
                self.record["files"][path] = entry[0]
        if before:
            self.save()

    def disown(self, paths):
        """Remove files of this project for all families, whoever recorded them."""
        for path in paths:
            for place, record in self.others().items():
                if (record.get("files") or {}).pop(path, self) is not self:
                    self.write_record(place, record)
            if (self.record.get("files") or {}).pop(path, self) is not self:
                self.save()
            if path and os.path.exists(path):
                os.unlink(path)

    def note(self, path):
        """Record a path's content from before the first of the families that share it."""
        if path in self.record["files"]:
            return
        for record in self.others().values():
            if path in (record.get("files") or {}):
                self.record["files"][path] = record["files"][path]
                break
        else:
            was = read_bytes(path)
            self.record["files"][path] = None if was is None else {
                "content": base64.b64encode(was).decode("ascii"), "mode": os.stat(path).st_mode & 0o777,
            }  # fmt: skip
        self.save()

    def give_back(self, path):
        """Restore a file unless another family needs it."""
        self.remember(path)
        was = self.record["files"].pop(path)
        if not any(path in (record.get("files") or {}) for record in self.others().values()):
            if was is None:
                if os.path.exists(path):
                    self.drop_lists(path)
                    os.unlink(path)
            elif os.path.isdir(os.path.dirname(path)):
                write_whole(path, base64.b64decode(was["content"]), was["mode"])
        self.save()

    def drop_lists(self, path):
        """Remove apt's lists of a source that is removed, or dnf's cache of a repository."""
        if path.endswith(".repo"):
            name = os.path.basename(path)[: -len(".repo")]
            for cached in glob.glob("/var/cache/dnf/%s[-.]*" % name):  # a folder and files such as .solv
                shutil.rmtree(cached) if os.path.isdir(cached) else os.unlink(cached)
        if not path.endswith(".sources"):
            return
        match = re.search(r"(?m)^URIs: (\S+)", (read_bytes(path) or b"").decode("utf-8"))
        if match:
            # apt's file name for http://host/x86_64/ begins with host_x86%5f64_
            prefix = re.sub(r"^[a-z]+:(//)?", "", match.group(1)).rstrip("/").replace("_", "%5f").replace("/", "_")
            for package_list in glob.glob("/var/lib/apt/lists/%s_*" % prefix):
                os.unlink(package_list)

    def give_back_all(self, folder=""):
        """Restore all files, or those in a folder."""
        for path in sorted(self.record["files"]):
            if folder in path:
                self.give_back(path)

    def diff(self, files, stale):
        differences = []
        for path, content in sorted(files.items()):
            was = read_bytes(path)
            if was != content or (os.stat(path).st_mode & 0o777) != 0o644 or path not in (self.record.get("files") or {}):
                differences.append((path, (was, content)))
        differences += [(path, (read_bytes(path), None)) for path in stale]
        return [difference(path, *((side or b"").decode("utf-8", "replace") for side in sides)) for path, sides in differences]
