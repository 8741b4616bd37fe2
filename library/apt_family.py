#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: apt_family
short_description: Install, pin and hold exact versions of related packages from their repository, or remove them
description:
  - One execution sets up the repository with its own keyring, apt preferences that pin the family, exact
    versions (upgrade or downgrade), and holds. If nothing has to change, it runs only C(dpkg-query) and C(apt-config), but not apt.
  - Before any change it records the previous state in O(undo). O(state=absent) removes exactly what was installed since,
    and restores the previous versions, packages, holds and files.
  - If an execution is interrupted, the next one repairs it.
options:
  name: {description: Name of the family. Its files and its record have this name., type: str, required: true}
  state: {description: Whether to install or to remove the family., type: str, choices: [present, absent], default: present}
  packages: {description: "Packages to install, with their exact versions.", type: dict, default: {}}
  pins:
    description: Further members of the family, which apt installs as dependencies.
    type: list
    elements: dict
    default: []
    suboptions:
      packages: {description: Names or globs of packages., type: list, elements: str, required: true}
      version: {description: Version or glob to pin them to., type: str, required: true}
  replaces:
    description: Globs of packages that the family may replace. They are restored when it is removed.
    type: list
    elements: str
    default: []
  repository:
    description: Repository of the family; by default the node's existing sources.
    type: dict
    suboptions:
      name: {description: "Name of its files. Families with the same repository share them.", type: str, required: true}
      uri: {description: "URL, or C(file:) and a folder on the node.", type: str, required: true}
      suite: {description: "The suite; C(/) or C(./) for a flat repository.", type: str, default: /}
      components: {description: Components; none for a flat repository., type: list, elements: str, default: []}
      architectures: {description: "Architectures to use; by default all.", type: list, elements: str, default: []}
      key: {description: URL of its public key or a path on the node., type: str, required: true}
      fingerprints:
        description: Fingerprints of the primary keys that this file may contain. Any other key is refused.
        type: list
        elements: str
        required: true
      key_sha256: {description: "SHA-256 of the key's file, if known.", type: str}
  lock_timeout: {description: How many seconds to wait for another apt or dpkg., type: int, default: 300}
  undo: {description: Folder of the records., type: path, default: /var/lib/dlperf/undo}
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Keep NCCL at the version of the stack
  apt_family:
    name: nccl
    packages: {libnccl2: 2.7.3-1+cuda10.2, libnccl-dev: 2.7.3-1+cuda10.2}
    repository:
      name: nccl-local
      uri: file:/var/lib/dlperf/repositories/nccl
      key: /var/lib/dlperf/repositories/nccl/7fa2af80.pub
      fingerprints: [AE09FE4BBD223A84B2CCFCE3F60F4B3D7FA2AF80]
"""

RETURN = r"""
versions: {description: Version of each installed member., returned: always, type: dict}
removed: {description: Removed packages., returned: always, type: list, elements: str}
kept: {description: Packages of the family that stay because other packages need them., returned: absent, type: list, elements: str}
"""

import os

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_family import (
    QUERY_FORMAT,
    base,
    explanation,
    installed,
    interrupted,
    is_member,
    listings,
    obsolete,
    preferences_text,
    simulated,
    source_text,
    wrong_versions,
)
from ansible.module_utils.deb_undo import Undo, read_bytes
from ansible.module_utils.dpkg_locks import REMEDY, run_when_free, wait_for_locks
from ansible.module_utils.openpgp_key import key_problem
from ansible.module_utils.repository_key import fetched_key

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "APT_LISTCHANGES_FRONTEND": "none"}
APT = [
    "apt-get", "-q", "-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages",
    "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
    "-o", "Acquire::Retries=2", "-o", "APT::Get::AutomaticRemove=false",
]  # fmt: skip


class Family(object):
    def __init__(self, module):
        self.module = module
        self.name = module.params["name"]
        self.packages = module.params["packages"]
        self.pins = module.params["pins"]
        self.repository = module.params["repository"]
        self.undo = Undo(module.params["undo"], self.name)
        self.members = list(self.packages) + [p for pin in self.pins for p in pin["packages"]]
        self.preferences = "/etc/apt/preferences.d/dlperf-%s.pref" % self.name

    # Query the node

    def fail(self, problem, remedy, **more):
        self.module.fail_json(msg="%s: %s. %s" % (self.name, problem, remedy[:1].upper() + remedy[1:] + "."), **more)

    def run(self, argv, doing):
        code, output, errors = self.apt(argv)
        said = output + "\n" + errors
        # apt-get update exits with 0 if a repository cannot be read but an old index exists.
        if code != 0 or (argv[-1] == "update" and "\nErr:" in "\n" + said):
            meaning, remedy = explanation(said) or (
                "%s failed with status %d: %s" % (" ".join(argv), code, said.strip()[-1500:]), "fix this and run again"
            )
            self.undo.settle(self.snapshot())
            self.fail("%s: %s" % (doing, meaning), remedy, rc=code, stdout=output, stderr=errors)
        return output

    def query(self, names=()):
        argv = ["dpkg-query", "-W", "-f", QUERY_FORMAT] + list(names)
        code, output, errors = self.module.run_command(argv, environ_update=ENVIRONMENT)
        if code in (0, 1):  # 1: an unknown name
            return output
        self.module.fail_json(msg="dpkg-query failed: " + errors, rc=code)

    def snapshot(self):
        return dict((name, version) for name, (version, _hold) in installed(self.query()).items())

    def keyring(self):
        return "/etc/apt/keyrings/dlperf-%s.gpg" % self.repository["name"]

    def source(self):
        """Path of the source file; on a node with a mirror, apt reads sources from another folder."""
        _code, output, _errors = self.module.run_command(["apt-config", "shell", "D", "Dir::Etc::sourceparts/d"])
        folder = output.strip().partition("=")[2].strip("'") or "/etc/apt/sources.list.d/"
        return os.path.join(folder, "dlperf-%s.sources" % self.repository["name"])

    def files(self):
        """{path: content} of the family's files in /etc/apt, except the keyring."""
        contents = {self.preferences: preferences_text(self.packages, self.pins).encode("utf-8")}
        if self.repository:
            contents[self.source()] = source_text(self.repository, self.keyring()).encode("utf-8")
        return contents

    def keyring_is_right(self):
        return key_problem(read_bytes(self.keyring()) or b"", self.repository["fingerprints"]) is None

    # Present

    def present(self):
        before = self.query(self.members)
        there, files = installed(before), self.files()
        record = self.undo.record
        wrong = wrong_versions(there, self.packages, self.pins)
        unheld = sorted(name for name, (_version, hold) in there.items() if not hold)
        drop = obsolete(record, self.packages, self.pins)
        stale = [path for path in record.get("files") or {} if path not in files and path != self.keyring_path()]
        diff = self.undo.diff(files, stale)
        if self.repository and not self.keyring_is_right():
            diff.append({"before_header": self.keyring(), "after_header": self.keyring(), "before": "",
                         "after": "".join(f + "\n" for f in self.repository["fingerprints"])})
        if wrong or unheld or drop:
            diff.append(self.package_diff(there, wrong, drop))
        changed = bool(diff or interrupted(before) or record.get("unfinished"))
        versions = dict((base(name), version) for name, (version, _hold) in there.items())
        if not changed or self.module.check_mode:
            self.module.exit_json(changed=changed, diff=diff, versions=versions, removed=drop)
        self.refuse_foreign_holds(there, wrong)
        self.lock()
        binary = None
        if self.repository and not self.keyring_is_right():
            binary = fetched_key(self.module, self.repository, self.fail)
        definition = {"packages": self.packages, "pins": self.pins}
        self.undo.begin(definition, self.snapshot, self.holds, self.autos, repository=self.repository_name())
        self.place(files, stale, binary)
        if wrong or drop or interrupted(before):
            self.install(wrong, drop)
        self.hold()
        self.undo.finish(self.snapshot())
        after = installed(self.query(self.members))
        left = wrong_versions(after, self.packages, self.pins)
        if left:
            self.fail("apt succeeded, but these packages have wrong versions: " + ", ".join(sorted(left)), "see apt-cache policy")
        versions = dict((base(name), version) for name, (version, _hold) in after.items())
        self.module.exit_json(changed=True, diff=diff, versions=versions, removed=drop)

    def repository_name(self):
        return self.repository["name"] if self.repository else None

    def keyring_path(self):
        return self.keyring() if self.repository else None

    def package_diff(self, there, wrong, drop):
        before, after = listings(there, wrong, drop)
        header = "packages of %s" % self.name
        return {"before_header": header, "after_header": header, "before": before, "after": after}

    def refuse_foreign_holds(self, there, wrong):
        ours = self.undo.record.get("held") or []
        foreign = [n for n, (_v, hold) in there.items() if hold and base(n) in wrong and n not in ours]
        if foreign:
            self.fail("another version of %s is held on the node" % ", ".join(sorted(foreign)),
                      "release the hold (apt-mark unhold %s), or choose a stack with that version" % " ".join(sorted(foreign)))

    def lock(self):
        problem = wait_for_locks(self.module.params["lock_timeout"])
        if problem:
            self.fail(problem, REMEDY)

    def apt(self, argv):
        return run_when_free(self.module, argv, self.module.params["lock_timeout"], ENVIRONMENT)

    def place(self, files, stale, binary):
        """Write the family's files; undo this if apt cannot read the repository."""
        wanted = dict(files, **({self.keyring(): binary} if binary is not None else {}))
        was = dict((path, read_bytes(path)) for path in wanted)
        if binary is not None:
            self.undo.directory("/etc/apt/keyrings")
        for path in stale:
            self.undo.give_back(path)
        # Sorted paths write the keyring before the source that uses it: /etc/apt/keyrings, preferences.d, sources.list.d.
        for path, content in sorted(wanted.items()):
            self.undo.write(path, content)
        if not self.repository:
            return
        source = self.source()
        argv = APT + ["-o", "Dir::Etc::sourcelist=" + source, "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0"]
        code, output, errors = self.apt(argv + ["update"])
        said = "\n" + output + "\n" + errors
        if code != 0 or "\nErr:" in said or "\nW: Failed to fetch" in said:
            # An unreadable source would break every later apt-get update on the node.
            for path in wanted:
                self.undo.take_back(path, was[path])
            self.undo.settle(self.snapshot())
            meaning, remedy = explanation(said) or (said.strip()[-1500:], "see apt's message")
            self.fail("repository %s: %s" % (self.repository["uri"], meaning), remedy, rc=code, stdout=output, stderr=errors)

    def install(self, wrong, drop):
        names = [name if version is None else "%s=%s" % (name, version) for name, version in sorted(wrong.items())]
        argv = ["install"] + names + [name + "-" for name in drop]
        self.run(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"], "finishing an interrupted dpkg")
        code, output, errors = self.module.run_command(APT + ["-s"] + argv, environ_update=ENVIRONMENT)
        if code != 0:
            # Dependencies come from the node's other sources, whose package lists may be old or missing.
            self.apt(APT + ["update"])
            output = self.run(APT + ["-s"] + argv, "choosing the packages")
        removes = simulated(output)[1]
        allowed = self.members + self.module.params["replaces"] + [base(name) for name in drop]
        strange = sorted(n for n in removes if not is_member(n, allowed))
        if strange:
            self.undo.settle(self.snapshot())
            self.fail("installing it would remove %s, which does not belong to it" % ", ".join(strange),
                      "if you do not need this, remove it by hand and run again")
        self.run(APT + argv, "installing " + ", ".join(names or self.packages))

    def hold(self):
        names = sorted(name for name, (_version, hold) in installed(self.query(self.members)).items() if not hold)
        if names:
            self.run(["apt-mark", "hold"] + names, "holding its packages")
        self.undo.record["held"] = sorted(set(self.undo.record.get("held") or []) | set(names))

    def holds(self):
        return sorted(name for name, (_version, hold) in installed(self.query()).items() if hold)

    def autos(self):
        return self.run(["apt-mark", "showauto"], "listing automatically installed packages").split()

    # Absent

    def absent(self):
        record = self.undo.record
        if not record:
            self.module.exit_json(changed=False, versions={}, removed=[], kept=[], diff=[])
        now = self.snapshot()
        record = self.undo.settled(now)
        ours = sorted(name for name in record.get("installed") or {} if name in now)
        old = dict(record.get("changed") or {}, **(record.get("removed") or {}))
        back = dict((name, version) for name, version in old.items() if now.get(name) != version)
        before = "".join("%s %s\n" % (name, now.get(name, "absent")) for name in sorted(set(ours) | set(back)))
        after = "".join("%s %s\n" % item for item in sorted(back.items()))
        diff = {"before_header": self.name, "after_header": self.name, "before": before, "after": after}
        if self.module.check_mode:
            self.module.exit_json(changed=True, versions={}, removed=ours, kept=[], diff=diff)
        self.lock()
        self.undo.begin(record.get("definition"), self.snapshot, self.holds, self.autos, repository=record.get("repository"))
        self.run(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"], "finishing an interrupted dpkg")
        held = sorted(set(record.get("held") or []) & set(self.holds()) - set(record["before"]["holds"]))
        if held:
            self.run(["apt-mark", "unhold"] + held, "releasing its packages")
        ours, kept = self.removable(ours, list((record.get("definition") or {}).get("packages") or {}))
        self.undo.give_back_preferences()
        if ours:
            self.run(APT + ["purge"] + ours, "removing " + ", ".join(ours))
        lost = self.restore(record, back)
        self.undo.give_back_all()
        self.undo.forget()
        for name in lost:
            self.module.warn("%s: cannot restore %s, because none of the node's sources has it" % (self.name, name))
        self.module.exit_json(changed=True, versions={}, removed=ours, kept=kept, diff=diff)

    def would_remove(self, names):
        return set(map(base, simulated(self.run(APT + ["-s", "purge"] + names, "simulating the removal"))[1]))

    def removable(self, ours, named):
        """The packages to remove and those to keep; fail if other packages need a named member."""
        bases = set(base(name) for name in ours)  # apt prints names without :amd64
        if not ours or self.would_remove(ours) <= bases:
            return ours, []
        kept = []
        for name in ours:
            others = sorted(self.would_remove([name]) - bases)
            if others and base(name) in named:
                self.undo.settle(self.snapshot())
                self.fail("%s needs %s and was not installed by this role" % (", ".join(others), name), "remove it first, then run again")
            if others:
                kept.append(name)
        return [name for name in ours if name not in kept], kept

    def restore(self, record, back):
        """Reinstall the previous versions and packages at once, or one by one if that fails; return the failed ones."""
        lost = []
        if back:
            names = ["%s=%s" % item for item in sorted(back.items())]
            code = self.apt(APT + ["install"] + names)[0]
            for name in names if code != 0 else []:
                if self.apt(APT + ["install", name])[0] != 0:
                    lost.append(name)
        there = self.snapshot()
        autos = sorted(name for name in back if name in record["before"]["autos"] and name in there)
        if autos:
            self.run(["apt-mark", "auto"] + autos, "marking packages as automatically installed")
        holds = sorted(name for name in record["before"]["holds"] if name in back and name in there)
        if holds:
            self.run(["apt-mark", "hold"] + holds, "restoring holds")
        return lost


def main():
    text, strings = {"type": "str"}, {"type": "list", "elements": "str", "default": []}
    needed = {"type": "str", "required": True}
    module = AnsibleModule(
        argument_spec={
            "name": needed,
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "packages": {"type": "dict", "default": {}},
            "pins": {"type": "list", "elements": "dict", "default": [],
                     "options": {"packages": dict(strings, required=True, default=None), "version": needed}},
            "replaces": strings,
            "repository": {"type": "dict", "options": {
                "name": needed, "uri": needed, "suite": {"type": "str", "default": "/"}, "components": strings,
                "architectures": strings, "key": dict(needed, no_log=False), "key_sha256": dict(text, no_log=False),
                "fingerprints": dict(strings, required=True, default=None)}},
            "lock_timeout": {"type": "int", "default": 300},
            "undo": {"type": "path", "default": "/var/lib/dlperf/undo"},
        },
        supports_check_mode=True,
    )
    family = Family(module)
    family.present() if module.params["state"] == "present" else family.absent()


if __name__ == "__main__":
    main()
