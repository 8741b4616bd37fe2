"""Installed packages, on Debian and Ubuntu from dpkg and on the RHEL family from rpm.

Catalogue and roles name a distribution's packages as Debian does; `own_name` translates them for the RHEL family.
"""

from __future__ import absolute_import, division, print_function

import re

from ansible.module_utils.node_probes import bounded, os_release
from ansible.module_utils.rpm_family import LOCK_PLUGIN, QUERY, installed, without_epoch

TIMEOUT_S = 60
# The packages of Debian that have another name on RHEL 8 and 9.
NAMES = {
    "g++": "gcc-c++",
    "ibverbs-utils": "libibverbs-utils",
    "libbz2-dev": "bzip2-devel",
    "libffi-dev": "libffi-devel",
    "libglib2.0-0": "glib2",
    "libgomp1": "libgomp",
    "liblzma-dev": "xz-devel",
    "libnuma-dev": "numactl-devel",
    "libnuma1": "numactl-libs",
    "libopenmpi-dev": "openmpi-devel",
    "libopenmpi3": "openmpi",
    "libquadmath0": "libquadmath",
    "libsm6": "libSM",
    "libsqlite3-dev": "sqlite-devel",
    "libssl-dev": "openssl-devel",
    "libucx-dev": "ucx-devel",
    "libxext6": "libXext",
    "libxrender1": "libXrender",
    "openmpi-bin": "openmpi",
    "openssh-client": "openssh-clients",
    "python3-apt": LOCK_PLUGIN,  # what the package manager needs for the roles
    "python3-dev": "python3-devel",
    "python3-venv": "python3",  # has the module venv
    "xz-utils": "xz",
    "zlib1g-dev": "zlib-devel",
}


def has_rpm(root="/"):
    """True if the node is of the RHEL family: ID="rocky", ID_LIKE="rhel centos fedora"."""
    release = os_release(root)
    return "rhel" in (release.get("ID", "") + " " + release.get("ID_LIKE", "")).split()


def own_name(name):
    """The RHEL family's name of one of Debian's packages; names without a counterpart are the same."""
    headers = re.match(r"linux-headers-(\d.*)", name)
    return "kernel-devel-" + headers.group(1) if headers else NAMES.get(name, name)


def printed(argv):
    """Standard output of a program, whatever its status: dpkg-query and rpm fail for one unknown name."""
    return bounded(argv, TIMEOUT_S)["output"]


def own_versions(names):
    """{name: version} of the installed ones, by the names that were asked for."""
    present = installed(printed(QUERY))
    result = {}
    for name in names:
        # kernel-devel-5.14.0-427.13.1.el9_4.x86_64 is asked for by the kernel's release, and has no architecture there.
        package = re.sub(r"\.(x86_64|aarch64)$", "", own_name(name))
        if package not in present:  # python36 is RHEL 8's python3
            providers = printed(["rpm", "-q", "--whatprovides", "--qf"] + QUERY[3:] + [package])
            present[package] = next(iter(installed("\n".join(line for line in providers.splitlines() if "\t" in line)).values()), None)
        if present[package]:
            result[name] = present[package]
    return result


def versions(names):
    """{name: version} of the installed packages among `names`."""
    if not names:
        return {}
    if has_rpm():
        return dict((name, without_epoch(version)) for name, version in own_versions(names).items())
    output = printed(["dpkg-query", "-W", "-f", r"${Package}\t${Version}\t${Status}\n"] + list(names))
    lines = (line.split("\t") for line in output.splitlines())
    return dict((line[0], line[1]) for line in lines if line[2].endswith(" ok installed"))


def all_names():
    """Names of all installed packages."""
    if has_rpm():
        return sorted(installed(printed(QUERY)))
    lines = (line.split("\t") for line in printed(["dpkg-query", "-W", "-f", r"${Package}\t${Status}\n"]).splitlines())
    return sorted(name for name, status in lines if status.endswith(" installed"))
