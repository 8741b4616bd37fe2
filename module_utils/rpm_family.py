"""Families of packages on the RHEL family: dnf's files, rpm's state, locks and messages (pure functions)."""

from __future__ import absolute_import, division, print_function

import fnmatch
import re

from ansible.module_utils.deb_family import HEADER
from ansible.module_utils.deb_family import explanation as explained
from ansible.module_utils.whole_files import around_block, with_block

LOCKS = "/etc/dnf/plugins/versionlock.list"
LOCK_PLUGIN = "python3-dnf-plugin-versionlock"
# Lines for `installed`
QUERY = ["rpm", "-qa", "--qf", r"%{NAME}\t%|EPOCH?{%{EPOCH}:}:{}|%{VERSION}-%{RELEASE}\t%{ARCH}\n"]
# rpm keeps several versions of these, so a version is part of their names here.
PARALLEL = re.compile(r"(kernel(-core|-devel|-devel-matched|-modules|-modules-core|-modules-extra)?|gpg-pubkey)$")
FOREIGN = ("i386", "i686")

# Error: can't create transaction lock on /usr/share/rpm/.rpm.lock (Read-only file system)
READ_ONLY = r"Read-only file system|bootc system is configured to be read-only"
HIDDEN = r"filtered out by exclude filtering"
# (pattern in dnf's output, explanation, remedy). The first match counts.
MEANINGS = (
    (r"No space left on device|more space needed on",
     "the node's disk is full", "free disk space (df -h; dnf clean packages) and run again"),
    (READ_ONLY, "the node's system is read-only, as by ostree or bootc", "install the packages in its image, boot that, and run again"),
    (r"GPG check FAILED|not correct for this package|Public key for \S+ is not installed|is not signed|BAD, key ID|signature .*NOT OK",
     "its packages are not signed with the repository's configured key",
     "compare the key's fingerprint with the vendor's; a mirror must keep the vendor's signatures"),
    (r"checksum doesn't match|Checksum error|Downloading successful, but checksum",
     "a download was incomplete or does not match the repository's index",
     "run again; if the error persists, copy the repository again and check proxies in between"),
    (r"Status code: 404|Cannot download repomd\.xml|Cannot find a valid baseurl|Couldn't open file",
     "the repository or one of its files does not exist", "check the URL, or the mirror in dlperf_vendor_mirror"),
    (r"Could(?:n't| not) (?:resolve|connect)|Connection refused|timed out|Network is unreachable|No route to host",
     "the node cannot reach the repository", "set dlperf_vendor_mirror to a mirror that the node can reach"),
    (r"nothing provides (\S+)", "the packages need others that none of the node's repositories has",
     "enable the distribution's repositories (BaseOS, AppStream, CRB or PowerTools) and EPEL, which has dkms"),
    (HIDDEN, "the node's dnf hides the package",
     "allow it: excludepkgs of dnf.conf and of repositories, dnf versionlock list, and NVIDIA's plugin of dnf can hide it"),
    (r"filtered out by modular filtering", "another stream of the package's module is enabled", "see dnf module list"),
    (r"Unable to find a match|No match for argument", "none of the node's repositories has the package in this version",
     "choose a version that they have (dnf --showduplicates list NAME), or add this one to the mirror"),
    (r"conflicting requests|conflicts with|cannot install the best candidate|cannot install both",
     "the packages conflict with installed packages",
     "see dnf's message; remove the conflicting packages, or release their locks (dnf versionlock delete)"),
    (r"already locked by \d+|The application with PID \d+ is|(?:Failed to obtain|can't create) (?:the )?transaction lock",
     "another dnf or rpm is running on the node", "wait for it or stop it, then run again; dlperf_lock_timeout sets how long to wait"),
)  # fmt: skip


def explanation(output):
    """(explanation with the matching lines, remedy) for dnf's output; None if unknown."""
    return explained(output, MEANINGS)


def without_epoch(version):
    """580.105.08-1.el9 for 3:580.105.08-1.el9, as release tables and the names of packages' files have it."""
    return re.sub(r"^\d+:", "", version)


def installed(output):
    """{name: version} of installed packages, from rpm's lines in QUERY."""
    versions = {}
    for line in output.splitlines():
        name, version, architecture = line.split("\t")
        if PARALLEL.match(name):
            name = "%s-%s" % (name, version)
        elif architecture in FOREIGN:
            name += "." + architecture
        versions[name] = version
    return versions


def repository_text(repository, keyring):
    """The repository for /etc/yum.repos.d; the key verifies each package, or the index that has their checksums."""
    uri = re.sub(r"^file:/+", "file:///", repository["uri"])
    is_index = repository["signed"] == "index"
    fields = (
        ("name", repository["name"] + ", for dlperf_runner"), ("baseurl", uri), ("enabled", 1), ("gpgkey", "file://" + keyring),
        ("gpgcheck", int(not is_index)), ("repo_gpgcheck", int(is_index)),
    )  # fmt: skip
    return HEADER + "[dlperf-%s]\n" % repository["name"] + "".join("%s=%s\n" % field for field in fields)


def stream_text(stream):
    """dnf's state of a module, such as nvidia-driver:580-open, of which one stream is enabled."""
    name, _colon, stream = stream.partition(":")
    return "[%s]\nname=%s\nstream=%s\nprofiles=\nstate=enabled\n" % (name, name, stream)


def lock_lines(packages, pins):
    """Patterns of the plugin versionlock: it hides all other versions of packages whose names they match."""
    lines = ["%s-%s" % item for item in sorted(packages.items())]
    return lines + ["%s-%s" % (name, pin["version"]) for pin in pins for name in pin["packages"]]


def locked(text, family, lines):
    """The list of locks with the family's lines, or without any if there are none. Other lines stay where they are."""
    before, _lines, behind = around_block(text, "dlperf_runner " + family)
    return with_block(before, lines, behind, "dlperf_runner " + family)


def of_others(text):
    """The list of locks without those of families."""
    return re.sub(r"(?ms)^# BEGIN dlperf_runner (\S+)\n.*?^# END dlperf_runner \1\n", "", text)


def foreign_locks(text, wanted):
    """Others' locks in the list that do not allow the wanted versions. `wanted`: {name: version, or None for any}."""
    result = []
    for line in of_others(text).splitlines():
        # !nvidia-driver-3:535.104.12-1.el9.*
        match = re.match(r"!?([^#\s]+?)-(?:\d+:)?(\d[^-]*-[^-]+)$", line.strip())
        if match and match.group(1) in wanted:
            version = wanted[match.group(1)]
            is_excluded = line.startswith("!")
            if version and fnmatch.fnmatchcase(version + ".x86_64", match.group(2) + "*") is is_excluded:
                result.append(line.strip())
    return result


def transaction(output):
    """{heading: [(name, architecture, version)]} of the transaction that dnf prints: Installing, Upgrading, Downgrading, Removing and so on.

    Installing:
     libnccl       x86_64   2.29.7-1+cuda12.9   dlperf-nvidia-cuda   120 M
     kmod-nvidia-open-dkms
                   noarch   3:580.105.08-1.el9  dlperf-nvidia-cuda   9 M
    """
    parts, heading = {}, None
    for line in output.splitlines():
        if re.match(r"[A-Z][a-z]+[ a-z]*:$", line):
            heading = line[:-1]
        elif not line.startswith(" "):
            heading = None
        elif heading and re.match(r" [A-Za-z0-9]", line):
            parts.setdefault(heading, []).append(line.split())
        elif heading in parts:
            parts[heading][-1] += line.split()
    return dict((each, [tuple(fields[:3]) for fields in lines]) for each, lines in parts.items())


def removals(output):
    """Names of the packages that dnf's transaction removes."""
    return sorted(
        set(package[0] for heading, packages in transaction(output).items() if heading.startswith("Removing") for package in packages)
    )


def arrivals(output):
    """{name: version} of the packages that dnf's transaction installs, in other versions, too."""
    headings = ("Installing", "Upgrading", "Downgrading", "Reinstalling")
    packages = [package for heading, them in transaction(output).items() if heading.startswith(headings) for package in them]
    return installed("".join("%s\t%s\t%s\n" % (name, version, architecture) for name, architecture, version in packages))


def is_aborted(messages):
    """True if dnf --assumeno found a transaction; it exits with 1 then, too."""
    return "Operation aborted" in messages
