#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: node_health_info
short_description: System, Python, disk, clock, MPI and package sources of a node
description:
  - What a preflight asks of a node beside its GPUs and its fabric. Changes nothing.
options:
  root: {description: Where the node's root is; for tests., type: path, default: /}
  paths: {description: Folders whose filesystems are told about; of one that is not there it is the nearest above., type: list, elements: path, default: [/]}
  mpirun: {description: The mpirun that is asked for its version., type: path, default: /usr/bin/mpirun}
  mirror:
    description: >-
      Address or path of the mirror folder that the node installs from. Of apt's sources only those behind it are asked then; on a node that
      is not provisioned yet there are others, which do not matter.
    type: str
  stamps: {description: Folder of the stamps of the module C(proof)., type: path, default: /opt/dlperf/stamps}
  timeout: {description: Seconds that a program or an address may take., type: int, default: 15}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Look at the node
  node_health_info:
    paths: [/, /opt/dlperf]
    mirror: http://mirror.example/dlperf
  register: node_health
"""

RETURN = r"""
time: {description: The node's clock, seconds since 1970., returned: always, type: float}
python: {description: Version of the Python that the modules run in., returned: always, type: str}
executable: {description: Where it is., returned: always, type: str}
system: {description: As debian12 or ubuntu18.04; null where the node does not say., returned: always, type: str}
system_title: {description: As the node calls it., returned: always, type: str}
kernel: {description: Release of the kernel that runs., returned: always, type: str}
architecture: {description: Of the machine., returned: always, type: str}
cpus: {description: Processors that are online., returned: always, type: int}
memory_mib: {description: Memory of the machine; null where it is not told., returned: always, type: int}
disks: {description: 'C(free_mib), C(total_mib) and C(read_only) by path; null where it cannot be told.', returned: always, type: dict}
openmpi: {description: Version of OpenMPI; null without one., returned: always, type: str}
addresses: {description: 'By address of a package source null where it answers, else what came instead.', returned: always, type: dict}
signatures:
  description: >-
    What apt says against the signed lists of the sources that provisioning put there (a key that expired or is another, an address that
    does not answer); empty where all is well, null where there are none.
  returned: always
  type: list
stamps: {description: Inputs of what has been proven by name., returned: always, type: dict}
"""

import glob
import io
import json
import os
import platform
import re
import shutil
import sys
import tempfile
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_reading import bounded, program, text
from ansible.module_utils.trusted_path import root_distrusts

try:
    from urllib.request import urlopen
except ImportError:
    from urllib2 import urlopen


def os_release(content):
    """(debian12, its title) of os-release(5)."""
    pairs = (line.partition("=") for line in (content or "").splitlines() if "=" in line)
    values = dict((key.strip(), value.strip().strip("\"'")) for key, _equals, value in pairs)
    name, version = values.get("ID"), values.get("VERSION_ID", "")
    return (name + version if name else None), values.get("PRETTY_NAME")


def disk(path):
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    try:
        found = os.statvfs(path)
    except OSError:
        return None
    size = found.f_frsize
    return {
        "free_mib": found.f_bavail * size // 1048576,
        "total_mib": found.f_blocks * size // 1048576,
        "read_only": bool(found.f_flag & 1),
    }


def memory_mib(root):
    match = re.search(r"(?m)^MemTotal:\s+(\d+) kB$", text(root, "proc/meminfo") or "")
    return int(match.group(1)) // 1024 if match else None


def openmpi(path, timeout):
    """mpirun (Open MPI) 4.0.0"""
    if not os.access(path, os.X_OK) or root_distrusts(path):
        return None
    told = bounded([path, "--version"], timeout)["output"]
    match = re.search(r"Open ?MPI\)? v?(\d+\.\d+\.\d+\w*)", told)
    return match.group(1) if match else None


def apt_addresses(timeout):
    """The signed lists of apt's sources: 'http://mirror/apt/dists/bookworm/InRelease' mirror_..._InRelease 0"""
    apt = program("apt-get")
    told = bounded([apt, "--print-uris", "update"], timeout)["output"] if apt else ""
    return re.findall(r"(?m)^'(\S+/InRelease)' ", told)


def signatures(root, timeout):
    """What apt says of the sources of our own when it gets and verifies their signed lists, and nothing else.

    apt itself is asked, in folders of its own: which keys it takes, and what it falls back to, is nowhere else the same.
    """
    apt = program("apt-get")
    places = ("sources.list.d", "dlperf-mirror.d")
    sources = [path for place in places for path in glob.glob(os.path.join(root, "etc/apt", place, "dlperf*"))]
    if not apt or not sources:
        return None
    folder = tempfile.mkdtemp(prefix="node_health_info-")
    try:
        os.chmod(folder, 0o755)  # apt reads as a user of its own
        for name in ("lists/partial", "cache/archives/partial", "sources"):
            os.makedirs(os.path.join(folder, name))
        for source in sources:
            shutil.copy(source, os.path.join(folder, "sources"))
        options = [
            "Dir::Etc::sourcelist=/dev/null",
            "Dir::Etc::sourceparts=%s/sources" % folder,
            "Dir::State::lists=%s/lists" % folder,
            "Dir::Cache=%s/cache" % folder,
            "Acquire::IndexTargets::deb::Packages::DefaultEnabled=false",
            "Acquire::IndexTargets::deb::Translations::DefaultEnabled=false",
            "Acquire::Retries=0",
            "Acquire::http::Timeout=%d" % timeout,
            "Acquire::https::Timeout=%d" % timeout,
        ]
        told = bounded([apt, "update", "-q"] + [part for option in options for part in ("-o", option)], 4 * timeout)
        found = re.findall(r"(?m)^[EW]: (.*)$", told["errors"] + told["output"])
        if told["late"]:
            found.append("apt-get update did not end in %d s" % (4 * timeout))
        elif told["code"] and not found:
            found.append("apt-get update ended with exit status %s" % told["code"])
        return sorted(set(line[:300] for line in found))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def complaint(address, timeout):
    """Why an address is of no use; None where it answers."""
    if address.startswith("file:"):
        address = address[len("file:") :]
    if address.startswith("/"):
        return None if os.path.exists(address) else "there is no such path"
    try:
        urlopen(address, timeout=timeout).read(1)
    except (EnvironmentError, ValueError) as error:  # what urllib raises is an OSError, in Python 2 an IOError
        return str(getattr(error, "reason", None) or error)[:300]
    return None


def proven(folder):
    """The inputs of each proof; a stamp that cannot be read proves nothing."""
    found = {}
    for path in glob.glob(os.path.join(folder, "*.json")):
        try:
            with io.open(path, encoding="utf-8") as stream:
                stamp = json.load(stream)
            found[stamp["proven"]] = stamp["inputs"]
        except (EnvironmentError, ValueError, KeyError, TypeError):
            continue
    return found


def main():
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "default": "/"},
            "paths": {"type": "list", "elements": "path", "default": ["/"]},
            "mpirun": {"type": "path", "default": "/usr/bin/mpirun"},
            "mirror": {"type": "str"},
            "stamps": {"type": "path", "default": "/opt/dlperf/stamps"},
            "timeout": {"type": "int", "default": 15},
        },
        supports_check_mode=True,
    )
    given = module.params
    now = time.time()
    root, timeout = given["root"], given["timeout"]
    system, title = os_release(text(root, "etc/os-release") or text(root, "usr/lib/os-release"))
    mirror = (given["mirror"] or "").rstrip("/")
    asked = [address for address in apt_addresses(timeout) if re.sub("^file:", "", address).startswith(mirror)]
    asked += [mirror + "/manifest.json"] if mirror else []
    module.exit_json(
        changed=False,
        time=now,
        python=".".join(str(part) for part in sys.version_info[:3]),
        executable=sys.executable,
        system=system,
        system_title=title,
        kernel=platform.release(),
        architecture=platform.machine(),
        cpus=os.sysconf("SC_NPROCESSORS_ONLN"),
        memory_mib=memory_mib(root),
        disks=dict((path, disk(path)) for path in given["paths"]),
        openmpi=openmpi(given["mpirun"], timeout),
        addresses=dict((address, complaint(address, timeout)) for address in asked),
        signatures=signatures(root, timeout),
        stamps=proven(given["stamps"]),
    )


if __name__ == "__main__":
    main()
