"""Families of packages: apt's files that pin them, dpkg's state, and changes (pure functions)."""

from __future__ import absolute_import, division, print_function

import fnmatch
import re

from ansible.module_utils.dpkg_locks import LOST, REMEDY

HEADER = "# Made by dlperf_runner\n"
# Format of dpkg-query's lines for `installed`
QUERY_FORMAT = r"${binary:Package}\t${Version}\t${Status}\n"

# (pattern in the output of apt or dpkg, explanation, remedy). The first match counts.
MEANINGS = (
    (r"No space left on device|don't have enough free space in (\S+)\b|not enough free disk space",
     "the node's disk is full", "free disk space (df -h; apt-get clean) and run again"),
    (r"SHA1 is not considered secure", "this node's apt (3.0 or later) does not accept the SHA-1 signature in the repository's key",
     "sign a copy of the repository with a key of your own (dlperf_vendor_mirror, dlperf_vendor_keys)"),
    (r"NO_PUBKEY ([0-9A-F]+)|Missing key [0-9A-F]+|following signatures couldn't be verified",
     "the repository is signed with another key than the configured one",
     "compare the key's fingerprint with the vendor's; a mirror must keep the vendor's signature"),
    (r"BADSIG|Message has been manipulated|is not signed|EXPKEYSIG|REVKEYSIG|invalid signature|clearsigned file isn't valid",
     "the repository's signature is invalid", "copy the repository again, including its Release files"),
    (r"Hash Sum mismatch|File has unexpected size|unexpected end of file|Connection closed prematurely"
     r"|wrong size|did not match", "a download was incomplete or does not match the repository's signed index",
     "run again; if the error persists, copy the repository again and check proxies in between"),
    (r"404 +(?:Not Found|File not found)|does not have a Release file|no longer has a Release file",
     "the repository or one of its files does not exist (404)", "check the URL, or the mirror in dlperf_mirror and dlperf_vendor_mirror"),
    (r"Could not (?:resolve|connect)|Temporary failure resolving|Connection (?:refused|timed out)"
     r"|Network is unreachable|Unable to connect|No route to host",
     "the node cannot reach the repository", "set dlperf_mirror to a mirror that the node can reach"),
    (r"Conflicting values set for option Signed-By",
     "two sources on the node have the same repository with different keys, and no apt command works",
     "remove one of them (grep -r '^[^#].*URL' /etc/apt/sources.list*)"),
    (LOST, "another apt or dpkg is running on the node", REMEDY),
    (r"Version '([^']+)' for '([^']+)' was not found",
     "the repository does not have this version", "choose a version that it has (apt-cache madison NAME), or add this one to the mirror"),
    (r"Unable to locate package (\S+)|has no installation candidate",
     "none of the node's sources has the package", "check that the repository is for this system"),
    (r"unmet dependencies|held broken packages|have been held back", "the packages conflict with installed packages",
     "see apt's message; remove the conflicting packages, or release their holds (apt-mark unhold)"),
)  # fmt: skip


def explanation(output, meanings=MEANINGS):
    """(explanation with the matching lines, remedy) for apt's output; None if unknown."""
    for pattern, meaning, remedy in meanings:
        if re.search(pattern, output):
            lines = [line.strip() for line in output.splitlines() if re.search(pattern, line)]
            return "%s (%s)" % (meaning, "; ".join(sorted(set(lines))[:3])), remedy
    return None


def source_text(repository, keyring):
    """The repository as a deb822 source, supported since apt 1.1 (Ubuntu 16.04)."""
    fields = [("Types", "deb"), ("URIs", repository["uri"]), ("Suites", repository["suite"])]
    if repository.get("components"):
        fields.append(("Components", " ".join(repository["components"])))
    fields.append(("Signed-By", keyring))
    return HEADER + "".join("%s: %s\n" % field for field in fields)


def preferences_text(packages, pins):
    """apt preferences with priority 1001: apt keeps these versions, or downgrades to them, even if newer ones exist.

    The first record that matches a version counts. A package in `packages` that also matches a glob is pinned to its own version only.
    """
    entries = []
    for name, version in sorted(packages.items()):
        entries.append(([name], version, 1001))
        if any(is_member(name, pin["packages"]) for pin in pins):
            entries.append(([name], "*", -1))
    entries += [(pin["packages"], pin["version"], 1001) for pin in pins]
    return HEADER + "\n".join(
        "Package: %s\nPin: version %s\nPin-Priority: %d\n" % (" ".join(names), version, priority) for names, version, priority in entries
    )


def base(name):
    """libc6 for libc6:amd64."""
    return name.partition(":")[0]


def installed(output):
    """{name: (version, on hold)} of installed packages, from dpkg-query's lines in QUERY_FORMAT.

    Packages that dpkg left unfinished (half-installed, half-configured, unpacked) do not count.
    """
    versions = {}
    for line in output.splitlines():
        name, version, status = line.split("\t")
        want, _error, state = status.split(" ")
        if state == "installed" or state.startswith("triggers-"):
            versions[name] = (version, want == "hold")
    return versions


def interrupted(output):
    """Names of the packages that dpkg left unfinished."""
    states = ("half-installed", "half-configured", "unpacked")
    lines = (line.split("\t") for line in output.splitlines())
    return sorted(line[0] for line in lines if line[2].rpartition(" ")[2] in states)


def is_member(name, patterns):
    return any(fnmatch.fnmatchcase(base(name), pattern) for pattern in patterns)


def wrong_versions(present, packages, pins):
    """{name: wanted version} of missing packages and those with a wrong version; None means the pinned version."""
    versions = dict((base(name), version) for name, (version, _held) in present.items())
    wrong = dict((n, v) for n, v in packages.items() if versions.get(n) != v)
    for pin in pins:
        for name, version in versions.items():
            if name not in packages and is_member(name, pin["packages"]) and not fnmatch.fnmatchcase(version, pin["version"]):
                wrong[name] = None
    return wrong


def simulated(output):
    """{name: version} to install and {name: version} to remove, from the output of `apt-get -s`."""
    # Inst libnccl2 [2.28.3-1+cuda12.9] (2.7.3-1+cuda10.2 dlperf:stand-in [amd64]) / Remv libnccl2 [2.7.3-1+cuda10.2]
    installs = re.findall(r"(?m)^Inst (\S+)(?: \[\S+\])? \((\S+)", output)
    removes = re.findall(r"(?m)^(?:Remv|Purg) (\S+)(?: \[(\S+)\])?", output)
    return dict(installs), dict(removes)


def merged(record, before, now):
    """The record of installed packages and of versions to restore, after one more change.

    `before` and `now` are {name: version} of all packages. `installed` lists packages added since the first change;
    `changed` and `removed` hold the original versions.
    """
    ours = dict(record.get("installed") or {})
    changed = dict(record.get("changed") or {})
    removed = dict(record.get("removed") or {})
    for name in set(before) | set(now):
        old, new = before.get(name), now.get(name)
        if old == new:
            continue
        if old is None:
            first = removed.pop(name, None)
        elif name in ours:
            first = None
        else:
            first = changed.pop(name, old)
        ours.pop(name, None)
        if first is None:
            if new is not None:
                ours[name] = new
        elif new is None:
            removed[name] = first
        elif new != first:
            changed[name] = first
    return dict(record, installed=ours, changed=changed, removed=removed)


def obsolete(record, packages, pins):
    """Packages installed for an earlier definition of the family that the new one does not need."""
    was = record.get("definition") or {}
    old = list(was.get("packages") or {}) + [p for pin in was.get("pins") or [] for p in pin["packages"]]
    new = list(packages) + [pattern for pin in pins for pattern in pin["packages"]]
    ours = record.get("installed") or {}
    return sorted(name for name in ours if is_member(name, old) and not is_member(name, new))


def listings(present, wrong, drop):
    """The family before and after a run, as text; `there` is from `installed`, `wrong` from `wrong_versions`."""
    before = dict((base(name), (version, hold)) for name, (version, hold) in present.items())
    after = dict((name, (wrong.get(name) or version, True)) for name, (version, _hold) in before.items())
    after.update((name, (version, True)) for name, version in wrong.items() if version)
    gone = [base(name) for name in drop]
    after = dict((name, state) for name, state in after.items() if name not in gone)
    return tuple(
        "".join("%s %s%s\n" % (name, version, " held" if hold else "") for name, (version, hold) in sorted(side.items()))
        for side in (before, after)
    )
