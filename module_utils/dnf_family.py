"""A family of packages on the RHEL family: dnf's repositories, streams of modules, transactions and version locks."""

from __future__ import absolute_import, division, print_function

import fnmatch
import os
import re
import shutil
import tempfile
import time

from ansible.module_utils.deb_family import is_member
from ansible.module_utils.deb_undo import Undo
from ansible.module_utils.openpgp_key import armored
from ansible.module_utils.package_family import Family
from ansible.module_utils.rpm_family import (
    HIDDEN,
    LOCK_PLUGIN,
    LOCKS,
    QUERY,
    READ_ONLY,
    arrivals,
    explanation,
    foreign_locks,
    installed,
    is_aborted,
    lock_lines,
    locked,
    of_others,
    removals,
    repository_text,
    stream_text,
    without_epoch,
)
from ansible.module_utils.whole_files import read_bytes, write_whole

ENVIRONMENT = {"LC_ALL": "C"}
# obsoletes: NVIDIA renames packages between branches, and an old name would give the new branch.
DNF = [
    "dnf", "-y", "--setopt=install_weak_deps=False", "--setopt=clean_requirements_on_remove=False",
    "--setopt=obsoletes=False", "--setopt=exit_on_lock=True",
]  # fmt: skip
LOCKED = 200  # dnf's exit status if another dnf runs


def run_dnf(module, arguments):
    """(exit status, output, errors) of a dnf that was started when no other one ran, or of the last attempt."""
    end = time.time() + module.params["lock_timeout"]
    while True:
        code, output, errors = module.run_command(DNF + arguments, environ_update=ENVIRONMENT)
        is_locked = code == LOCKED or (code != 0 and "transaction lock" in output + errors and not re.search(READ_ONLY, output + errors))
        if not is_locked or time.time() >= end:
            return code, output, errors
        time.sleep(1)


def without_writing(folder):
    """dnf's options for the node's repositories and indexes, with all that it writes below the folder."""
    options = ["--setopt=logdir=" + folder, "--setopt=metadata_expire=never", "--setopt=*.metadata_expire=never"]
    # Of the cache only the indexes, beside which dnf writes its own state; the families' are read anew.
    index = re.compile(r"(?!dlperf-).+(-[0-9a-f]{16}|\.solvx?)$")
    for option, place, linked in (("reposdir", "/etc/yum.repos.d", re.compile(".")), ("cachedir", "/var/cache/dnf", index)):
        copy = os.path.join(folder, option)
        os.mkdir(copy)
        for name in os.listdir(place) if os.path.isdir(place) else []:
            if linked.match(name):
                os.symlink(os.path.join(place, name), os.path.join(copy, name))
        options.append("--setopt=%s=%s" % (option, copy))
    return options


class RpmPackages(object):
    """The packages of a node, as rpm records them."""

    def __init__(self, module):
        self.module = module

    def snapshot(self):
        """{name: version} of all packages on the node."""
        code, output, errors = self.module.run_command(QUERY, environ_update=ENVIRONMENT)
        if code != 0:
            self.module.fail_json(msg="rpm -qa failed: " + errors, rc=code)
        return installed(output)

    def rehearsed(self, names, options=None):
        """({name: version} before, after, removed names) of the packages that dnf would change to install these; None if it cannot say."""
        folder = tempfile.mkdtemp(prefix="dnf_family-")
        try:
            argv = (without_writing(folder) if options is None else options) + ["--assumeno", "install"] + names
            code, output, errors = run_dnf(self.module, argv)
        finally:
            shutil.rmtree(folder)
        if code != 0 and not is_aborted(output + errors):
            self.refuse_hidden(code, output, errors)
            return None
        now, after, gone = self.snapshot(), arrivals(output), removals(output)
        return dict((name, now[name]) for name in list(after) + gone if name in now), after, gone

    def refuse_hidden(self, code, output, errors):
        """Fail if the node's locks or excludes hide packages, from the transaction as well."""

    def holds(self):
        return []  # locks are lines of a list, of which absent takes only the family's

    def autos(self):
        return []


def install_others(module, folder, names):
    """Install packages that no family owns, and record them so that `packages` can be removed; dnf's result."""

    def install():
        result = run_dnf(module, ["install"] + names)
        return result[0] == 0, result

    return Undo(folder, "packages").during(RpmPackages(module), install)[1]


class DnfFamily(Family, RpmPackages):
    manager, unhold = "dnf", "dnf versionlock delete"
    locks_before = None  # the text, once it may change

    @property
    def one_repository(self):
        return ["--disablerepo=*", "--enablerepo=dlperf-" + self.repository["name"]]

    @property
    def erasing(self):
        return ["--allowerasing"] if self.definition["replaces"] else []

    # Query the node

    def run(self, arguments, doing):
        code, output, errors = run_dnf(self.module, arguments)
        if code != 0:
            self.explain(doing, code, output, errors)
        return output

    def explain(self, doing, code, output, errors):
        messages = (output + "\n" + errors).strip()
        meaning, remedy = explanation(messages) or ("dnf failed with status %d: %s" % (code, messages[-1500:]), "fix this and run again")
        self.fail("%s: %s" % (doing, meaning), remedy, rc=code, stdout=output, stderr=errors)

    def state(self):
        """The members, {name: (version without epoch, locked)}; rpm leaves none of them unfinished."""
        is_locked = self.locks() == self.wanted_locks()
        present = self.snapshot().items()
        return dict((n, (without_epoch(version), is_locked)) for n, version in present if is_member(n, self.members)), False

    def locks(self):
        return (read_bytes(LOCKS) or b"").decode("utf-8")

    def wanted_locks(self, lines=None):
        try:
            return locked(self.locks(), self.name, lock_lines(self.packages, self.pins) if lines is None else lines)
        except ValueError as error:
            self.module.fail_json(msg="%s: %s: %s. Correct the file and run again." % (self.name, LOCKS, error))

    def keyring(self):
        return "/etc/pki/rpm-gpg/dlperf-" + self.repository["name"]

    def fetched_keyring(self):
        binary = Family.fetched_keyring(self)
        return None if binary is None else armored(binary)  # rpm reads no binary key

    def files(self):
        """{path: content} of the family's files in /etc, except the key and the locks, which have other owners' lines."""
        contents = {}
        if self.repository:
            path = "/etc/yum.repos.d/dlperf-%s.repo" % self.repository["name"]
            contents[path] = repository_text(self.repository, self.keyring()).encode("utf-8")
        stream = self.definition["stream"]
        if stream:
            contents["/etc/dnf/modules.d/%s.module" % stream.partition(":")[0]] = stream_text(stream).encode("utf-8")
        return contents

    def foreign_holds(self, _present, wrong):
        return foreign_locks(self.locks(), wrong)

    # Present

    def rehearsal(self, lack):
        """As that of apt: by dnf with the family's repository and locks in a folder of its own. Before the plugin of locks is installed,
        the pins choose the dependencies."""
        folder = tempfile.mkdtemp(prefix="dnf_family-")
        try:
            options = self.without_placing(folder)
            if self.repository and run_dnf(self.module, options + self.one_repository + ["makecache"])[0] != 0:
                return None
            return self.with_pins(options, lack)
        finally:
            shutil.rmtree(folder)

    def with_pins(self, options, lack):
        options = options + self.erasing
        names = self.names(lack.wrong) + ([] if os.path.exists(LOCKS) else [LOCK_PLUGIN])
        while True:
            result = self.rehearsed(names, options)
            if result is None:
                return None
            before, after, gone = result
            pinned = dict((name, pin["version"]) for pin in self.pins for name in after if is_member(name, pin["packages"]))
            more = [
                "%s-%s" % (name, version)
                for name, version in sorted(pinned.items())
                if name not in lack.wrong and not fnmatch.fnmatchcase(without_epoch(after[name]), version)
            ]
            if not set(more) - set(names):
                break
            names += more
        self.refuse_removals(gone, lack.drop)
        now = self.snapshot()
        return dict(before, **dict((name, now[name]) for name in lack.drop if name in now)), after

    def without_placing(self, folder):
        """The same as `without_writing`, with the family's repository and locks. Its stream can be enabled nowhere else, so all streams count."""
        options = without_writing(folder) + self.with_locks(folder)
        if self.repository:
            keyring, binary = self.keyring(), self.fetched_keyring()
            if binary is not None:
                keyring = os.path.join(folder, "keyring")
                write_whole(keyring, binary, 0o644)
            text = repository_text(self.repository, keyring) + "module_hotfixes=1\n"
            path = os.path.join(folder, "reposdir", "dlperf-%s.repo" % self.repository["name"])
            write_whole(path, text.encode("utf-8"), 0o644)
        return options

    def with_locks(self, folder):
        """dnf's option for the node's settings of plugins, with the family's locks and those of others."""
        place, copy, locks = os.path.dirname(LOCKS), os.path.join(folder, "plugins"), os.path.join(folder, "versionlock.list")
        os.mkdir(copy)
        for name in os.listdir(place) if os.path.isdir(place) else []:
            os.symlink(os.path.join(place, name), os.path.join(copy, name))
        settings = os.path.join(copy, "versionlock.conf")
        if os.path.exists(settings):
            text = re.sub(r"(?m)^\s*locklist\s*=.*$", "locklist = " + locks, read_bytes(settings).decode("utf-8"))
            os.unlink(settings)
            write_whole(settings, text.encode("utf-8"), 0o644)
            # Other families change theirs, too.
            text = locked(of_others(self.locks()), self.name, lock_lines(self.packages, self.pins))
            write_whole(locks, text.encode("utf-8"), 0o644)
        return ["--setopt=pluginconfpath=" + copy]

    def refuse_hidden(self, code, output, errors):
        if re.search(HIDDEN, output + errors):
            self.explain("choosing the packages", code, output, errors)

    def roll_back(self):
        Family.roll_back(self)
        if self.locks_before is not None:
            self.write_locks(self.locks_before)

    def lock(self):
        """dnf reports by itself that another one runs."""

    def place(self, files, stale, binary):
        """Write the family's files, and fail if dnf cannot read the repository."""
        if not os.path.exists(LOCKS):
            code, output, errors = install_others(self.module, self.definition["undo"], [LOCK_PLUGIN])
            if code != 0:
                self.explain("installing " + LOCK_PLUGIN, code, output, errors)
        self.locks_before = self.locks()
        for path in list(files) + ([self.keyring()] if binary is not None else []):
            self.undo.directory(os.path.dirname(path))
        self.place_files(files, stale, binary)
        if self.repository:
            code, output, errors = run_dnf(self.module, self.one_repository + ["--refresh", "makecache"])
            if code != 0:
                self.explain("repository " + self.repository["uri"], code, output, errors)

    def install(self, wrong, drop):
        self.write_locks(self.wanted_locks())  # first, because they choose the versions of dependencies, too
        if drop:
            self.refuse_removals(self.would_remove(drop), drop)
            self.run(["remove"] + drop, "removing " + ", ".join(drop))
        names = self.names(wrong)
        if not names:
            return
        argv = self.erasing + ["install"] + names
        code, output, errors = run_dnf(self.module, ["--assumeno"] + argv)
        if not is_aborted(output + errors) and code != 0:
            # Dependencies come from the node's other repositories, whose indexes may be old.
            code, output, errors = run_dnf(self.module, ["--refresh", "--assumeno"] + argv)
            if not is_aborted(output + errors) and code != 0:
                self.explain("choosing the packages", code, output, errors)
        self.refuse_removals(removals(output), drop)
        self.run(argv, "installing " + ", ".join(names))

    def names(self, wrong):
        return ["%s-%s" % (name, version or self.pinned(name)) for name, version in sorted(wrong.items())]

    def pinned(self, name):
        return next(pin["version"] for pin in self.pins if is_member(name, pin["packages"]))

    def hold(self):
        self.write_locks(self.wanted_locks())

    def write_locks(self, text):
        if self.locks() != text:
            write_whole(LOCKS, text.encode("utf-8"), 0o644)

    # Absent

    def release(self, _record):
        if os.path.exists(LOCKS):
            self.write_locks(self.wanted_locks([]))

    def would_remove(self, names):
        packages = [name for name in names if not is_key(name)]
        if not packages:
            return set(names)
        code, output, errors = run_dnf(self.module, ["--assumeno", "remove"] + packages)
        if code != 0 and not is_aborted(output + errors):
            self.explain("simulating the removal", code, output, errors)
        parallel = dict((name.rpartition("-")[0].rpartition("-")[0], name) for name in packages)
        return set(parallel.get(name, name) for name in removals(output))

    def remove(self, names):
        packages = [name for name in names if not is_key(name)]
        if packages:
            self.run(["remove"] + packages, "removing " + ", ".join(packages))
        for key in filter(is_key, names):
            self.module.run_command(["rpm", "-e", key], check_rc=True, environ_update=ENVIRONMENT)

    def restore(self, _record, back):
        """Reinstall the previous versions and packages at once, or one by one if that fails; return the failed ones."""
        names = ["%s-%s" % item for item in sorted(back.items())]
        if not names or run_dnf(self.module, ["install"] + names)[0] == 0:
            return []
        return [name for name in names if run_dnf(self.module, ["install", name])[0] != 0]


def is_key(name):
    return name.startswith("gpg-pubkey-")
