"""A family of packages on Debian and Ubuntu: apt's files, transactions, pins and holds."""

from __future__ import absolute_import, division, print_function

import os
import shutil
import tempfile

from ansible.module_utils.apt_sources import is_ours, make_way, of_repository, site_problem, sources, unreadable, where
from ansible.module_utils.deb_family import (
    QUERY_FORMAT,
    base,
    explanation,
    installed,
    interrupted,
    preferences_text,
    simulated,
    source_text,
)
from ansible.module_utils.dpkg_locks import REMEDY, run_when_free, wait_for_locks
from ansible.module_utils.package_family import Family
from ansible.module_utils.whole_files import write_whole

# needrestart's hook of apt restarts services (by default since Ubuntu 24.04) that the list of changes does not have.
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C", "APT_LISTCHANGES_FRONTEND": "none", "NEEDRESTART_SUSPEND": "1", "NEEDRESTART_MODE": "l",
}  # fmt: skip
UNPACKED = "/var/lib/dlperf/repositories/"  # the repositories of vendors' archives
APT = [
    "apt-get", "-q", "-y", "--no-install-recommends", "--allow-downgrades", "--allow-change-held-packages",
    "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold",
    "-o", "Acquire::Retries=2", "-o", "APT::Get::AutomaticRemove=false",
]  # fmt: skip


class AptPackages(object):
    """The packages of a node, as dpkg and apt record them."""

    def __init__(self, module):
        self.module = module

    def query(self, names=()):
        argv = ["dpkg-query", "-W", "-f", QUERY_FORMAT] + list(names)
        code, output, errors = self.module.run_command(argv, environ_update=ENVIRONMENT)
        if code in (0, 1):  # 1: an unknown name
            return output
        self.module.fail_json(msg="dpkg-query failed: " + errors, rc=code)

    def snapshot(self):
        return dict((name, version) for name, (version, _hold) in installed(self.query()).items())

    def holds(self):
        return sorted(name for name, (_version, hold) in installed(self.query()).items() if hold)

    def rehearsed(self, argv):
        """({name: version} before, after) of the packages that apt would change; None if it cannot say, as without lists of packages."""
        code, output, _errors = self.module.run_command(argv, environ_update=ENVIRONMENT)
        if code != 0:
            return None
        installs, removes = simulated(output)
        now = dict((base(name), version) for name, version in self.snapshot().items())
        return dict((name, now[name]) for name in list(installs) + list(removes) if name in now), installs

    def autos(self):
        return self.module.run_command(["apt-mark", "showauto"], check_rc=True, environ_update=ENVIRONMENT)[1].split()


class AptFamily(Family, AptPackages):
    manager, unhold = "apt", "apt-mark unhold"
    has_own_sources = True
    entries = None  # see `site_entries`

    # Query the node

    def run(self, argv, doing):
        code, output, errors = self.apt(argv)
        if code != 0:
            self.explain(doing, argv, code, output, errors)
        return output

    def explain(self, doing, argv, code, output, errors):
        messages = output + "\n" + errors
        meaning, remedy = explanation(messages) or (
            "%s failed with status %d: %s" % (" ".join(argv), code, messages.strip()[-1500:]),
            "fix this and run again",
        )
        self.fail("%s: %s" % (doing, meaning), remedy, rc=code, stdout=output, stderr=errors)

    def apt(self, argv):
        return run_when_free(self.module, argv, self.module.params["lock_timeout"], ENVIRONMENT)

    def state(self):
        """The members, {name: (version, on hold)}, and whether an interrupted run left some of them unfinished."""
        output = self.query(self.members)
        return installed(output), bool(interrupted(output))

    def keyring(self):
        return "/etc/apt/keyrings/dlperf-%s.gpg" % self.repository["name"]

    def source(self):
        """Path of the source file."""
        return os.path.join(where(self.module)[1], "dlperf-%s.sources" % self.repository["name"])

    def site_entries(self):
        """The entries of the node's other sources that have the family's repository; then the family uses them, and adds no source."""
        if self.entries is None:
            main, parts, self.architecture = where(self.module)
            foreign = [entry for entry in sources(main, parts) if not is_ours(entry)]
            self.entries = of_repository(foreign, self.repository, self.architecture) if self.repository else []
        return self.entries

    def source_problem(self):
        entries = self.site_entries()
        problem = site_problem(entries, self.repository, self.architecture) if entries else None
        return problem or unreadable(self.module)

    def is_interrupted(self):
        return bool(interrupted(self.query()))

    def keyring_is_right(self):
        return bool(self.site_entries()) or Family.keyring_is_right(self)

    def keyring_path(self):
        return None if self.site_entries() else Family.keyring_path(self)

    def files(self):
        """{path: content} of the family's files in /etc/apt, except the keyring."""
        contents = {"/etc/apt/preferences.d/dlperf-%s.pref" % self.name: preferences_text(self.packages, self.pins).encode("utf-8")}
        if self.repository and not self.site_entries():
            contents[self.source()] = source_text(self.repository, self.keyring()).encode("utf-8")
        return contents

    def foreign_holds(self, present, wrong):
        ours = self.undo.record.get("held") or []
        return sorted(n for n, (_v, hold) in present.items() if hold and base(n) in wrong and n not in ours)

    # Present

    def lock(self):
        problem = wait_for_locks(self.module.params["lock_timeout"])
        if problem:
            self.fail(problem, REMEDY)
        make_way(self.module, self.undo)

    def place(self, files, stale, binary):
        """Write the family's files, and fail if apt cannot read the repository or all sources together."""
        if binary is not None:
            self.undo.directory("/etc/apt/keyrings")
        self.place_files(files, stale, binary)
        self.run(["apt-get", "indextargets"], "reading the node's sources")
        if not self.repository:
            return
        self.check_update(*self.updated(self.source()))

    def check_update(self, code, output, errors):
        # apt-get update exits with 0 if a repository cannot be read but an old index exists.
        messages = "\n" + output + "\n" + errors
        if code != 0 or "\nErr:" in messages or "\nW: Failed to fetch" in messages:
            self.explain("repository " + self.repository["uri"], ["apt-get", "update"], code, output, errors)

    def updated(self, source, options=()):
        """apt-get's result of updating the family's repository alone: other sources of a site's file may be unreachable."""
        folder = tempfile.mkdtemp(prefix="apt_family-")
        try:
            texts = {}
            for entry in self.site_entries():
                path = os.path.join(folder, os.path.basename(entry["path"]))
                texts[path] = texts.get(path, "") + entry["text"] + "\n"
            for path, text in texts.items():
                write_whole(path, text.encode("utf-8"), 0o644)
            argv = list(options) + ["-o", "Dir::Etc::sourceparts=" + (folder if texts else "-"), "-o", "APT::Get::List-Cleanup=0"]
            argv += ["-o", "Dir::Etc::sourcelist=" + ("/dev/null" if texts else source)]
            return self.apt(APT + argv + ["update"])
        finally:
            shutil.rmtree(folder)

    def rehearsal(self, lack):
        """As `rehearsed`, of apt with the family's files in a folder of their own. Fails if it would remove what is not the family's."""
        if self.repository and self.repository["key"].startswith(UNPACKED) and not os.path.exists(self.repository["key"]):
            return None  # check mode unpacks no archive
        folder = tempfile.mkdtemp(prefix="apt_family-")
        try:
            os.chmod(folder, 0o755)  # apt reads as the user _apt
            options = self.without_placing(folder, lack.files)
            if self.repository:
                source = self.source()
                copy = os.path.join(folder, os.path.basename(os.path.dirname(source)), os.path.basename(source))
                self.check_update(*self.updated(copy, options))
            argv = APT + options + ["-s"] + self.transaction(lack.wrong, lack.drop)
            result = self.rehearsed(argv)
            if result is None:  # as without lists of the other sources
                self.apt(APT + options + ["-o", "APT::Get::List-Cleanup=0", "update"])
                result = self.rehearsed(argv)
            if result:
                self.refuse_removals(set(result[0]) - set(result[1]), lack.drop)
            return result
        finally:
            shutil.rmtree(folder)

    def without_placing(self, folder, files):
        """apt's options for the node's sources, preferences and lists together with the family's files, all of them below the folder."""
        texts = {}
        if self.repository and not self.site_entries():
            binary = self.fetched_keyring()
            keyring = os.path.join(folder, "keyring.gpg") if binary is not None else self.keyring()
            if binary is not None:
                write_whole(keyring, binary, 0o644)
            texts[self.source()] = source_text(self.repository, keyring).encode("utf-8")
        options = []
        for option, place in (("Dir::Etc::sourceparts", where(self.module)[1]), ("Dir::Etc::preferencesparts", "/etc/apt/preferences.d"),
                              ("Dir::State::lists", "/var/lib/apt/lists")):  # fmt: skip
            copy = os.path.join(folder, os.path.basename(place.rstrip("/")))
            os.makedirs(os.path.join(copy, "partial"), 0o755)
            for name in os.listdir(place) if os.path.isdir(place) else []:
                if name not in ("partial", "lock") and os.path.join(place, name) not in files:
                    os.symlink(os.path.join(place, name), os.path.join(copy, name))
            options += ["-o", "%s=%s" % (option, copy)]
        for path, content in dict(files, **texts).items():
            write_whole(os.path.join(folder, os.path.basename(os.path.dirname(path)), os.path.basename(path)), content, 0o644)
        return options + ["-o", "Dir::Cache::pkgcache=", "-o", "Dir::Cache::srcpkgcache="]

    def transaction(self, wrong, drop):
        names = [name if version is None else "%s=%s" % (name, version) for name, version in sorted(wrong.items())]
        return ["install"] + names + [name + "-" for name in drop]

    def install(self, wrong, drop):
        argv = self.transaction(wrong, drop)
        self.finish_interrupted()
        code, output, errors = self.module.run_command(APT + ["-s"] + argv, environ_update=ENVIRONMENT)
        if code != 0:
            # Dependencies come from the node's other sources, whose package lists may be old or missing.
            self.apt(APT + ["update"])
            output = self.run(APT + ["-s"] + argv, "choosing the packages")
        self.refuse_removals(simulated(output)[1], drop)
        self.run(APT + argv, "installing " + ", ".join(argv[1:] or self.packages))

    def finish_interrupted(self):
        self.run(["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"], "finishing an interrupted dpkg")

    def hold(self):
        names = sorted(name for name, (_version, hold) in installed(self.query(self.members)).items() if not hold)
        if names:
            self.run(["apt-mark", "hold"] + names, "holding its packages")
        self.undo.record["held"] = sorted(set(self.undo.record.get("held") or []) | set(names))

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
        present = self.snapshot()
        autos = sorted(name for name in back if name in record["before"]["autos"] and name in present)
        if autos:
            self.run(["apt-mark", "auto"] + autos, "marking packages as automatically installed")
        holds = sorted(name for name in record["before"]["holds"] if name in back and name in present)
        if holds:
            self.run(["apt-mark", "hold"] + holds, "restoring holds")
        return lost
