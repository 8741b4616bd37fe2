"""A family of packages: the files that pin it, what dpkg says of it, and what changed (pure functions)."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

import fnmatch
import re

HEADER = "# Made by dlperf_runner\n"
# One line of dpkg-query, for `installed`
QUERY_FORMAT = r"${binary:Package}\t${Version}\t${Status}\n"

# What apt and dpkg say, what it means, and the way out. The first that matches counts; \1 stands for a group.
MEANINGS = (
    (
        r"No space left on device|don't have enough free space in (\S+)\b|not enough free disk space",
        "the node's disk is full",
        "make room (df -h; apt-get clean) and run again",
    ),
    (
        r"NO_PUBKEY ([0-9A-F]+)|following signatures couldn't be verified",
        "the repository is signed with another key than the one that was given for it",
        "compare the key's fingerprint with what the vendor publishes; a mirror must not sign anew",
    ),
    (
        r"BADSIG|is not signed|EXPKEYSIG|REVKEYSIG|invalid signature|clearsigned file isn't valid",
        "the repository's signature is not valid",
        "copy the repository anew, with its Release files",
    ),
    (
        r"Hash Sum mismatch|File has unexpected size|unexpected end of file|Connection closed prematurely"
        r"|wrong size|did not match",
        "a download was cut off, or is not what the repository's signed index says",
        "run again; where it stays, copy the repository anew and look at proxies in between",
    ),
    (
        r"404 +(?:Not Found|File not found)|does not have a Release file|no longer has a Release file",
        "the repository, or a file of it, is not there (404)",
        "check the address, or the mirror that dlperf_mirror and dlperf_vendor_mirror name",
    ),
    (
        r"Could not (?:resolve|connect)|Temporary failure resolving|Connection (?:refused|timed out)"
        r"|Network is unreachable|Unable to connect|No route to host",
        "the repository cannot be reached from the node",
        "name a mirror that the node reaches (dlperf_mirror)",
    ),
    (
        r"Conflicting values set for option Signed-By",
        "another source of the node names the same repository with another key",
        "remove that source (grep -r '^[^#].*URL' /etc/apt/sources.list*), ours brings its own",
    ),
    (
        r"Could not get lock (\S+)|Unable to (?:acquire|lock)|is another process using it",
        "another apt or dpkg is at work on the node",
        "wait for it (unattended-upgrades?) and run again",
    ),
    (
        r"Version '([^']+)' for '([^']+)' was not found",
        "the repository does not have the version",
        "run again with a version that it has (apt-cache madison NAME), or mirror this one",
    ),
    (
        r"Unable to locate package (\S+)|has no installation candidate",
        "no source of the node has a package",
        "check that the repository is the one for this system",
    ),
    (
        r"unmet dependencies|held broken packages|have been held back",
        "the packages cannot be installed together with what the node has",
        "see apt's own words; remove what stands in the way, or release its hold (apt-mark unhold)",
    ),
)


def explanation(output):
    """What apt's output means and the way out, and the lines that say so; None where it is unknown."""
    for pattern, meaning, remedy in MEANINGS:
        if re.search(pattern, output):
            lines = [line.strip() for line in output.splitlines() if re.search(pattern, line)]
            return "%s (%s)" % (meaning, "; ".join(sorted(set(lines))[:3])), remedy
    return None


def source_text(repository, keyring):
    """The repository as a deb822 source, which apt knows since 1.1 (Ubuntu 16.04)."""
    fields = [("Types", "deb"), ("URIs", repository["uri"]), ("Suites", repository["suite"])]
    if repository.get("components"):
        fields.append(("Components", " ".join(repository["components"])))
    if repository.get("architectures"):
        fields.append(("Architectures", " ".join(repository["architectures"])))
    fields.append(("Signed-By", keyring))
    return HEADER + "".join("%s: %s\n" % field for field in fields)


def preferences_text(packages, pins):
    """Priority 1001: apt keeps to these versions, and goes down to them, whatever newer ones there are.

    The first record that matches a version counts. A package that is named, and that a glob names too, gets no version but its own.
    """
    entries = []
    for name, version in sorted(packages.items()):
        entries.append(([name], version, 1001))
        if any(is_member(name, pin["packages"]) for pin in pins):
            entries.append(([name], "*", -1))
    entries += [(pin["packages"], pin["version"], 1001) for pin in pins]
    return HEADER + "\n".join(
        "Package: %s\nPin: version %s\nPin-Priority: %d\n" % (" ".join(names), version, priority)
        for names, version, priority in entries
    )


def base(name):
    """libc6 of libc6:amd64."""
    return name.partition(":")[0]


def installed(output):
    """{name: (version, on hold)} out of dpkg-query's lines in QUERY_FORMAT, of what is installed.

    A package that dpkg left in the middle (half-installed, half-configured, unpacked) is not.
    """
    found = {}
    for line in output.splitlines():
        name, version, status = line.split("\t")
        want, _error, state = status.split(" ")
        if state == "installed" or state.startswith("triggers-"):
            found[name] = (version, want == "hold")
    return found


def interrupted(output):
    """Names of the packages that dpkg left in the middle."""
    states = ("half-installed", "half-configured", "unpacked")
    lines = (line.split("\t") for line in output.splitlines())
    return sorted(line[0] for line in lines if line[2].rpartition(" ")[2] in states)


def is_member(name, patterns):
    return any(fnmatch.fnmatchcase(base(name), pattern) for pattern in patterns)


def wrong_versions(present, packages, pins):
    """{name: the version that it should have} of what is missing or another version; None: as pinned."""
    versions = dict((base(name), version) for name, (version, _held) in present.items())
    wrong = dict((n, v) for n, v in packages.items() if versions.get(n) != v)
    for pin in pins:
        for name, version in versions.items():
            if (
                name not in packages
                and is_member(name, pin["packages"])
                and not fnmatch.fnmatchcase(version, pin["version"])
            ):
                wrong[name] = None
    return wrong


def simulated(output):
    """{name: version} to install and {name: version} to remove, out of `apt-get -s`."""
    # Inst libnccl2 [2.28.3-1+cuda12.9] (2.7.3-1+cuda10.2 dlperf:stand-in [amd64]) / Remv libnccl2 [2.7.3-1+cuda10.2]
    installs = re.findall(r"(?m)^Inst (\S+)(?: \[\S+\])? \((\S+)", output)
    removes = re.findall(r"(?m)^(?:Remv|Purg) (\S+)(?: \[(\S+)\])?", output)
    return dict(installs), dict(removes)


def merged(record, before, now):
    """The record of what was put on a node, and what must be given back, after one more change.

    `before` and `now` are {name: version} of all packages. `installed` is ours, `changed` and `removed` hold the
    versions that were there before us.
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
    """What an earlier definition of the family put on, and the new one has no use for."""
    was = record.get("definition") or {}
    old = list(was.get("packages") or {}) + [p for pin in was.get("pins") or [] for p in pin["packages"]]
    new = list(packages) + [pattern for pin in pins for pattern in pin["packages"]]
    ours = record.get("installed") or {}
    return sorted(name for name in ours if is_member(name, old) and not is_member(name, new))


def listings(there, wrong, drop):
    """The family before and after a run, as text: `there` as `installed` says it, `wrong` as `wrong_versions` does."""
    before = dict((base(name), (version, hold)) for name, (version, hold) in there.items())
    after = dict((name, (wrong.get(name) or version, True)) for name, (version, _hold) in before.items())
    after.update((name, (version, True)) for name, version in wrong.items() if version)
    gone = [base(name) for name in drop]
    after = dict((name, state) for name, state in after.items() if name not in gone)
    return tuple(
        "".join("%s %s%s\n" % (name, version, " held" if hold else "") for name, (version, hold) in sorted(side.items()))
        for side in (before, after)
    )
