"""A family of packages on Debian and Ubuntu: apt's files, transactions, pins and holds."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import os

from ansible.module_utils.deb_family import (
    QUERY_FORMAT,
    base,
    explanation,
    installed,
    interrupted,
    is_member,
    preferences_text,
    simulated,
    source_text,
)
from ansible.module_utils.dpkg_locks import REMEDY, run_when_free, wait_for_locks
from ansible.module_utils.package_family import Family

ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "APT_LISTCHANGES_FRONTEND": "none"}
APT = [
    "apt-get", "-q", "-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages",
    "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
    "-o", "Acquire::Retries=2", "-o", "APT::Get::AutomaticRemove=false",
]  # fmt: skip


class AptFamily(Family):
    manager, unhold = "apt", "apt-mark unhold"

    # Query the node

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

    def apt(self, argv):
        return run_when_free(self.module, argv, self.module.params["lock_timeout"], ENVIRONMENT)

    def query(self, names=()):
        argv = ["dpkg-query", "-W", "-f", QUERY_FORMAT] + list(names)
        code, output, errors = self.module.run_command(argv, environ_update=ENVIRONMENT)
        if code in (0, 1):  # 1: an unknown name
            return output
        self.module.fail_json(msg="dpkg-query failed: " + errors, rc=code)

    def state(self):
        """The members, {name: (version, on hold)}, and whether an interrupted run left some of them unfinished."""
        output = self.query(self.members)
        return installed(output), bool(interrupted(output))

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
        contents = {"/etc/apt/preferences.d/dlperf-%s.pref" % self.name: preferences_text(self.packages, self.pins).encode("utf-8")}
        if self.repository:
            contents[self.source()] = source_text(self.repository, self.keyring()).encode("utf-8")
        return contents

    def foreign_holds(self, there, wrong):
        ours = self.undo.record.get("held") or []
        return sorted(n for n, (_v, hold) in there.items() if hold and base(n) in wrong and n not in ours)

    def strangers(self, removes, allowed):
        return sorted(name for name in removes if not is_member(name, allowed))

    # Present

    def lock(self):
        problem = wait_for_locks(self.module.params["lock_timeout"])
        if problem:
            self.fail(problem, REMEDY)

    def place(self, files, stale, binary):
        """Write the family's files; undo this if apt cannot read the repository."""
        if binary is not None:
            self.undo.directory("/etc/apt/keyrings")
        was = self.place_files(files, stale, binary)
        if not self.repository:
            return
        argv = ["-o", "Dir::Etc::sourcelist=" + self.source(), "-o", "Dir::Etc::sourceparts=-", "-o", "APT::Get::List-Cleanup=0"]
        code, output, errors = self.apt(APT + argv + ["update"])
        said = "\n" + output + "\n" + errors
        if code != 0 or "\nErr:" in said or "\nW: Failed to fetch" in said:
            self.give_files_back(was)
            meaning, remedy = explanation(said) or (said.strip()[-1500:], "see apt's message")
            self.fail("repository %s: %s" % (self.repository["uri"], meaning), remedy, rc=code, stdout=output, stderr=errors)

    def install(self, wrong, drop):
        names = [name if version is None else "%s=%s" % (name, version) for name, version in sorted(wrong.items())]
        argv = ["install"] + names + [name + "-" for name in drop]
        self.finish_interrupted()
        code, output, errors = self.module.run_command(APT + ["-s"] + argv, environ_update=ENVIRONMENT)
        if code != 0:
            # Dependencies come from the node's other sources, whose package lists may be old or missing.
            self.apt(APT + ["update"])
            output = self.run(APT + ["-s"] + argv, "choosing the packages")
        self.refuse_removals(simulated(output)[1], drop)
        self.run(APT + argv, "installing " + ", ".join(names or self.packages))

    def finish_interrupted(self):
        self.run(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"], "finishing an interrupted dpkg")

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

    def release(self, record):
        self.finish_interrupted()
        held = sorted(set(record.get("held") or []) & set(self.holds()) - set(record["before"]["holds"]))
        if held:
            self.run(["apt-mark", "unhold"] + held, "releasing its packages")

    def would_remove(self, names):
        return set(map(base, simulated(self.run(APT + ["-s", "purge"] + names, "simulating the removal"))[1]))

    def remove(self, names):
        self.run(APT + ["purge"] + names, "removing " + ", ".join(names))

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
