"""Installing and removing a family of packages, as on every system; apt_family and dnf_family say how.

The subclasses query and change the node. `record` is what Undo keeps: the state before the first change.
"""

from __future__ import absolute_import, division, print_function

import hashlib
from collections import namedtuple

from ansible.module_utils.deb_family import base, is_member, listings, obsolete, wrong_versions
from ansible.module_utils.deb_undo import Undo
from ansible.module_utils.openpgp_key import dearmored, key_problem
from ansible.module_utils.site_proxy import proxied
from ansible.module_utils.urls import fetch_url
from ansible.module_utils.whole_files import difference, read_bytes


TEXT, NEEDED = {"type": "str"}, {"type": "str", "required": True}
LIST = {"type": "list", "elements": "str"}
STRINGS, NEEDED_STRINGS = dict(LIST, default=[]), dict(LIST, required=True)
# The arguments that define a family.
DEFINITION = {
    "name": NEEDED,
    "packages": {"type": "dict", "default": {}},
    "pins": {"type": "list", "elements": "dict", "default": [], "options": {"packages": NEEDED_STRINGS, "version": NEEDED}},
    "replaces": STRINGS,
    "repository": {"type": "dict", "options": {
        "name": NEEDED, "uri": NEEDED, "suite": {"type": "str", "default": "/"}, "components": STRINGS,
        "key": dict(NEEDED, no_log=False), "key_sha256": dict(TEXT, no_log=False), "fingerprints": NEEDED_STRINGS,
        "signed": {"type": "str", "choices": ["packages", "index"], "default": "packages"}}},
    "stream": TEXT,
    "lock_timeout": {"type": "int", "default": 300},
    "undo": {"type": "path", "default": "/var/lib/dlperf/undo"},
}  # fmt: skip
Lack = namedtuple("Lack", "present is_interrupted files stale wrong drop diff changed")


def message(names, problem, remedy):
    return "%s: %s. %s." % (", ".join(names), problem, remedy[:1].upper() + remedy[1:])


def unreached(proxy):
    """The remedy if an address cannot be reached."""
    way = "the proxy %s" % proxy if proxy else "the proxy (dlperf_proxy; none is set)"
    return "check the URL, %s, or the mirror in dlperf_mirror and dlperf_vendor_mirror" % way


def fetched_key(module, repository, fail):
    """The repository's keyring, in binary form. Calls `fail(problem, remedy)` if the key is missing or another one."""
    address = repository["key"]
    if address.startswith(("/", "file:")):
        data = read_bytes(address[5:] if address.startswith("file:") else address)
        if data is None:
            fail("the repository's key %s does not exist" % address, "copy it there, or correct the path")
    else:
        with proxied(address) as proxy:
            response, info = fetch_url(module, address, timeout=30)
        if info["status"] != 200:
            fail("cannot download the repository's key from %s: %s" % (address, info["msg"]), unreached(proxy))
        data = response.read()
    digest = hashlib.sha256(data).hexdigest()
    wanted = repository.get("key_sha256")
    if wanted and digest != wanted:
        fail("the repository's key %s has the wrong checksum: expected sha256 %s, found %s" % (address, wanted, digest),
             "compare it with the checksum that the vendor publishes")  # fmt: skip
    problem = key_problem(data, repository["fingerprints"])
    if problem:
        fail("the repository's key %s is not the expected one: %s" % (address, problem),
             "compare the fingerprint with the one that the vendor publishes; nothing was changed")  # fmt: skip
    return dearmored(data)


class Family(object):
    manager = ""  # of the packages, for messages
    unhold = ""  # what releases a hold
    has_own_sources = False  # whether the node's own sources can keep the family from being installed

    def __init__(self, module, definition):
        self.module, self.definition = module, definition
        self.name = definition["name"]
        self.packages = definition["packages"]
        self.pins = definition["pins"]
        self.repository = definition["repository"]
        self.undo = Undo(definition["undo"], self.name)
        self.members = list(self.packages) + [p for pin in self.pins for p in pin["packages"]]

    def fail(self, problem, remedy, **more):
        """The end of each failure: what this run placed is given back, because it can break every later command of the package manager."""
        try:
            self.roll_back()
            self.undo.settle(self.snapshot())
            if self.undo.record and self.undo.is_blank() and not self.is_interrupted():
                self.undo.forget()
        except EnvironmentError as error:  # such as a full disk
            problem += " (and restoring the files failed: %s)" % error
        self.module.fail_json(msg=message([self.name], problem, remedy), **more)

    def roll_back(self):
        self.undo.roll_back()

    def is_interrupted(self):
        """True if the package manager left any package unfinished."""
        return False

    def source_problem(self):
        """(problem, remedy) of the node's own sources, if they keep the family from being installed; else None. Nothing is changed."""

    def keyring_is_right(self):
        return key_problem(read_bytes(self.keyring()) or b"", self.repository["fingerprints"]) is None

    def keyring_path(self):
        return self.keyring() if self.repository else None

    def fetched_keyring(self):
        """Content of a keyring that has to be written; None if the node has the right one."""
        if not self.repository or self.keyring_is_right():
            return None
        return fetched_key(self.module, self.repository, self.fail)

    def lack(self):
        """The packages of the family that the node lacks; `changed`: whether it lacks anything."""
        present, is_interrupted = self.state()
        files = self.files()
        record = self.undo.record
        wrong = wrong_versions(present, self.packages, self.pins)
        unheld = sorted(name for name, (_version, hold) in present.items() if not hold)
        drop = obsolete(record, self.packages, self.pins)
        stale = [path for path in record.get("files") or {} if path not in files and path != self.keyring_path()]
        diff = self.undo.diff(files, stale)
        if self.repository and not self.keyring_is_right():
            diff.append(difference(self.keyring(), "", "".join(f + "\n" for f in self.repository["fingerprints"])))
        if wrong or unheld or drop:
            diff.append(difference("packages of %s" % self.name, *listings(present, wrong, drop)))
        changed = bool(diff or is_interrupted or record.get("unfinished"))
        return Lack(present, is_interrupted, files, stale, wrong, drop, diff, changed)

    def moved(self, lack):
        """Packages that this project did not install: those of another version, `libnccl2 2.30.7-1 by 2.29.7-1`, and those that the family
        replaces by their names, `containerd 1.7.24-0ubuntu1 by others`."""
        ours = set(self.undo.record.get("installed") or {}) | set(self.undo.record.get("changed") or {})
        before = dict((base(name), version) for name, (version, _hold) in lack.present.items() if name not in ours)
        moved = [
            "%s %s by %s" % (name, before[name], version) for name, version in sorted(lack.wrong.items()) if version and name in before
        ]
        others = dict(
            (base(name), version) for name, version in self.snapshot().items() if name not in ours and not is_member(name, self.members)
        )
        return moved + ["%s %s by others" % (name, others[name]) for name in sorted(self.definition["replaces"]) if name in others]

    def present(self):
        lack = self.lack()
        present, is_interrupted, files, stale, wrong, drop, diff, changed = lack
        problem = self.source_problem() if changed else None
        if problem:
            self.fail(*problem)
        self.refuse_foreign_holds(present, wrong)
        if not changed or self.module.check_mode:
            more = self.rehearsal(lack) if wrong or drop else None
            diff += [self.dependencies(wrong, drop, *more)] if more else []
            self.module.exit_json(changed=changed, diff=diff, versions=versions(present), removed=drop)
        self.lock()
        binary = self.fetched_keyring()
        definition = {"packages": self.packages, "pins": self.pins}
        name = self.repository["name"] if self.repository else None
        self.undo.begin(definition, self, name)
        try:
            self.place(files, [path for path in stale if path in self.undo.record["files"]], binary)
            if wrong or drop or is_interrupted:
                self.install(wrong, drop)
            self.hold()
        except EnvironmentError as error:
            self.fail(str(error), "fix this and run again")
        present, _is_interrupted = self.state()
        left = wrong_versions(present, self.packages, self.pins)
        if left:
            self.fail(
                "%s succeeded, but these packages have wrong versions: %s" % (self.manager, ", ".join(sorted(left))),
                "see what its sources have",
            )
        self.undo.finish(self.snapshot())
        self.module.exit_json(changed=True, diff=diff, versions=versions(present), removed=drop)

    def rehearsal(self, lack):
        """({name: version} before, after) of the packages that the transaction would change; None if that is unknown."""

    def dependencies(self, wrong, drop, before, after):
        """The diff of the packages that `listings` does not have. Those that a pin matches are held."""
        texts = []
        for side, ending in ((before, ""), (after, " held")):
            lines = ["%s %s%s\n" % (name, version, ending if is_member(name, self.members) else "") for name, version in sorted(side.items())
                     if not wrong.get(name) and name not in drop]  # fmt: skip
            texts.append("".join(lines))
        return difference("packages that %s needs" % self.name, *texts)

    def refuse_foreign_holds(self, present, wrong):
        foreign = self.foreign_holds(present, wrong)
        if foreign:
            self.fail(
                "another version of %s is held on the node" % ", ".join(foreign),
                "release the hold (%s %s), or choose a stack with that version" % (self.unhold, " ".join(foreign)),
            )

    def place_files(self, files, stale, binary):
        wanted = dict(files, **({self.keyring(): binary} if binary is not None else {}))
        for path in stale:
            self.undo.give_back(path)
        # Sorted paths write the keyring before the source that uses it: /etc/apt/keyrings, preferences.d, sources.list.d;
        # /etc/pki/rpm-gpg, /etc/yum.repos.d.
        for path, content in sorted(wanted.items()):
            self.undo.write(path, content)

    def refuse_removals(self, removes, drop):
        allowed = self.members + self.definition["replaces"] + [base(name) for name in drop]
        strange = sorted(name for name in removes if not is_member(name, allowed))
        if strange:
            self.fail(
                "installing it would remove %s, which does not belong to it" % ", ".join(strange),
                "if you do not need this, remove it by hand and run again",
            )

    def absent(self):
        record = self.undo.record
        if not record:
            self.module.exit_json(changed=False, versions={}, removed=[], kept=[], diff=[])
        now = self.snapshot()
        record = self.undo.settled(now)
        ours = sorted(name for name in record.get("installed") or {} if name in now)
        old = dict(record.get("changed") or {}, **(record.get("removed") or {}))
        back = dict((name, version) for name, version in old.items() if now.get(name) != version)
        before = "".join("%s %s\n" % (name, now[name]) for name in sorted(set(ours) | set(back)) if name in now)
        after = "".join("%s %s\n" % item for item in sorted(back.items()))
        diff = difference("packages of %s" % self.name, before, after)
        if self.module.check_mode:
            self.module.exit_json(changed=True, versions={}, removed=ours, kept=[], diff=diff)
        self.lock()
        self.undo.begin(record.get("definition"), self, record.get("repository"))
        self.release(record)
        ours, kept = self.removable(ours, list((record.get("definition") or {}).get("packages") or {}))
        self.undo.give_back_all("/preferences.d/")
        if ours:
            self.remove(ours)
        lost = self.restore(record, back)
        self.undo.give_back_all()
        self.undo.forget()
        for name in lost:
            self.module.warn("%s: cannot restore %s, because none of the node's sources has it" % (self.name, name))
        self.module.exit_json(changed=True, versions={}, removed=ours, kept=kept, diff=diff)

    def removable(self, ours, named):
        """The packages to remove and those to keep; fail if other packages need a named member."""
        bases = set(base(name) for name in ours)  # apt prints names without :amd64
        if not ours or self.would_remove(ours) <= bases:
            return ours, []
        kept = []
        for name in ours:
            others = sorted(self.would_remove([name]) - bases)
            if others and base(name) in named:
                self.fail("%s needs %s and was not installed by this role" % (", ".join(others), name), "remove it first, then run again")
            if others:
                kept.append(name)
        return [name for name in ours if name not in kept], kept


def versions(present):
    return dict((base(name), version) for name, (version, _hold) in present.items())
