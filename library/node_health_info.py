#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "node_health_info",
    "short_description": "Gather facts about system, Python, disk, clock, MPI and package sources of a node",
    "description": "Gathers the facts that preflight.yml needs, except those about GPUs and fabric. Changes nothing.",
    "options": {
        "root": {"type": "path", "default": "/", "description": "The node's root directory; tests set another one."},
        "paths": {"type": "list", "elements": "path", "default": ["/"], "description":
            "Folders whose filesystems to return; for a missing folder, the nearest existing parent."},
        "mpirun": {"type": "path", "default": "/usr/bin/mpirun", "description": "The mpirun whose version to return."},
        "mirror": {"type": "str", "description":
            "URL or path of the mirror folder that the node installs from. If set, only apt sources in this mirror are checked: other "
            "sources of a node that is not provisioned yet do not matter."},
        "stamps": {"type": "path", "default": "/opt/dlperf/stamps", "description": "Folder of the stamps of the module C(proof)."},
        "timeout": {"type": "int", "default": 15, "description": "Time limit of each program or URL in seconds."},
    },
}  # fmt: skip

RETURN = r"""
time: {description: The node's clock in seconds since 1970., returned: always, type: float}
synchronized: {description: "Whether the kernel's clock is synchronized, as adjtimex(2) says; null if it does not say.", returned: always, type: bool}
time_services: {description: Names of the running time services., returned: always, type: list}
python: {description: Version of the Python that runs Ansible's modules., returned: always, type: str}
system: {description: "System, such as debian12 or ubuntu18.04; null if unknown.", returned: always, type: str}
kernel: {description: Release of the running kernel., returned: always, type: str}
architecture: {description: Architecture of the machine., returned: always, type: str}
cpus: {description: Number of online processors., returned: always, type: int}
disks: {description: 'C(free_mib), C(free_files), C(total_mib) and C(read_only) by path; null if unknown.', returned: always, type: dict}
openmpi: {description: Version of OpenMPI; null if not installed., returned: always, type: str}
addresses: {description: 'For each address of a package source, null if it can be reached, else the error.', returned: always, type: dict}
signatures: {returned: always, type: list, description:
  "apt's errors about the signed lists of the sources that provisioning set up (such as an expired or wrong key, or an unreachable
  address); empty if there are no errors, null if there are no such sources."}
stamps: {description: "Inputs of past verifications, by name.", returned: always, type: dict}
"""

import ctypes
import glob
import os
import platform
import re
import shutil
import sys
import tempfile
import time

from ansible.module_utils import stamps
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_probes import bounded, disk, names, openmpi, os_release, program, text
from ansible.module_utils.site_proxy import proxied
from ansible.module_utils.trusted_path import root_distrusts

try:
    from urllib.request import urlopen
except ImportError:
    from urllib2 import urlopen


def system(root):
    """debian12; rhel9 for Rocky Linux 9.4."""
    values = os_release(root)
    name, version = values.get("ID"), values.get("VERSION_ID", "")
    if name in ("rhel", "rocky", "almalinux"):
        name, version = "rhel", version.partition(".")[0]
    return name + version if name else None


# Names of processes, which the kernel cuts to 15 characters.
TIME_SERVICES = ("chronyd", "ntpd", "ptp4l", "systemd-timesyn")
UNSYNCHRONIZED = 0x40  # STA_UNSYNC of <sys/timex.h>


def synchronized():
    timex = (ctypes.c_long * 64)()  # struct timex: modes, offset, freq, maxerror, esterror, status and more
    try:
        answer = ctypes.CDLL(None).adjtimex(timex)
    except (OSError, AttributeError):
        return None
    return None if answer == -1 else not timex[5] & UNSYNCHRONIZED


def time_services(root):
    running = set(text(root, "proc", name, "comm") for name in names(root, "proc") if name.isdigit())
    return sorted(name for name in TIME_SERVICES if name in running)


def apt_addresses(timeout):
    """The signed lists of apt's sources: 'http://mirror/apt/dists/bookworm/InRelease' mirror_..._InRelease 0"""
    apt = program("apt-get")
    answer = bounded([apt, "--print-uris", "update"], timeout)["output"] if apt else ""
    return re.findall(r"(?m)^'(\S+/InRelease)' ", answer)


def signatures(root, timeout):
    """apt's errors when it downloads and verifies only the signed lists of this project's sources.

    Runs apt itself, with separate folders, because only apt knows which keys it accepts and which fallbacks it uses.
    """
    apt = program("apt-get")
    places = ("sources.list.d", "dlperf-mirror.d")
    sources = [path for place in places for path in glob.glob(os.path.join(root, "etc/apt", place, "dlperf*"))]
    if not apt or not sources:
        return None
    folder = tempfile.mkdtemp(prefix="node_health_info-")
    try:
        os.chmod(folder, 0o755)  # apt reads as its own user
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
        answer = bounded([apt, "update", "-q"] + [part for option in options for part in ("-o", option)], 4 * timeout)
        errors = re.findall(r"(?m)^[EW]: (.*)$", answer["errors"] + answer["output"])
        if answer["late"]:
            errors.append("apt-get update did not finish within %d s" % (4 * timeout))
        elif answer["code"] and not errors:
            errors.append("apt-get update failed with exit status %s" % answer["code"])
        return sorted(set(line[:300] for line in errors))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def complaint(address, timeout):
    """The reason why an address cannot be used; None if it can."""
    if address.startswith("file:"):
        address = address[len("file:") :]
    if address.startswith("/"):
        return None if os.path.exists(address) else "the path does not exist"
    with proxied(address) as proxy:
        try:
            urlopen(address, timeout=timeout).read(1)
        except (EnvironmentError, ValueError) as error:  # urllib raises OSError, in Python 2 IOError
            way = "through the proxy %s: " % proxy if proxy else ""
            return (way + str(getattr(error, "reason", None) or error))[:300]
    return None


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    given = module.params
    now = time.time()
    root, timeout = given["root"], given["timeout"]
    mirror = (given["mirror"] or "").rstrip("/")
    asked = [address for address in apt_addresses(timeout) if re.sub("^file:", "", address).startswith(mirror)]
    asked += [mirror + "/manifest.json"] if mirror else []
    module.exit_json(
        changed=False,
        time=now,
        synchronized=synchronized(),
        time_services=time_services(root),
        python=".".join(str(part) for part in sys.version_info[:3]),
        system=system(root),
        kernel=platform.release(),
        architecture=platform.machine(),
        cpus=os.sysconf("SC_NPROCESSORS_ONLN"),
        disks=dict((path, disk(path)) for path in given["paths"]),
        openmpi=None if root_distrusts(given["mpirun"]) else openmpi(given["mpirun"], timeout),
        addresses=dict((address, complaint(address, timeout)) for address in asked),
        signatures=signatures(root, timeout),
        stamps=stamps.inputs(given["stamps"]),
    )


if __name__ == "__main__":
    main()
