#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "node_facts",
    "short_description": "Gather all facts that provisioning needs before it changes a node",
    "description":
        "Gathers the release, the interpreters, packages, a user, virtual environments, and past verifications (the stamps of the module "
        "C(proof)). If the node needs no change, no further module has to run.",
    "options": {
        "packages": {"type": "list", "elements": "str", "default": [], "description": "Packages whose versions to return."},
        "user": {"type": "str", "description": "User to look for."},
        "environments": {"type": "list", "elements": "path", "default": [], "description": "Paths of virtual environments."},
        "links": {"type": "list", "elements": "path", "default": [], "description": "Paths of links."},
        "builds": {"type": "list", "elements": "path", "default": [], "description": "Paths of builds from source."},
        "limits": {"type": "dict", "default": {}, "description": "Limits in the form of C(node_files)."},
        "names": {"type": "list", "elements": "str", "default": [], "description": "Names of nodes that the name service must resolve."},
        "address": {"type": "str", "default": "", "description": "Address or name in the network from which other nodes log in as O(user); empty asks nothing."},
        "interpreter": {"type": "path", "default": "/usr/bin/python3", "description": "Python interpreter for the environments."},
        "stamps": {"type": "path", "default": "/opt/dlperf/stamps", "description": "Folder of the stamps."},
    },
}  # fmt: skip

RETURN = r"""
ansible_facts:
  description: >-
    C(architecture), C(distribution), C(distribution_version) and C(distribution_release), named as by C(setup), and C(dlperf_node).
  returned: always
  type: dict
  contains:
    dlperf_node:
      description: >-
        The node's facts. Roles read a variable of the same name, in which provision.yml replaces C(environments) by C(complete), the paths of
        the environments that match their pins. Without this variable a role gathers the facts that it needs by itself.
      type: dict
      contains:
        interpreter: {description: "The module's option.", type: str}
        python_version: {description: Its version; null if it cannot be started., type: str}
        interpreters: {description: Other Python interpreters of the node., type: list, elements: str}
        packages: {description: Version of each installed package., type: dict}
        user:
          description: >-
            C(home), C(shell) and C(uid) of the user; empty if the user does not exist. C(has_home): the home exists; C(is_local): the user is in
            C(/etc/passwd), not in a directory service.
          type: dict
        limits: {description: The limits as far as the node allows them., type: dict}
        environments:
          description: >-
            Existing environments by path. Each has C(python), the version of its Python, and C(distributions), with C(version) and C(url)
            (null for a distribution from an index) by normalised name.
          type: dict
        links: {description: "Targets of the links, by path.", type: dict}
        unresolved: {description: "The first of O(names) that the node cannot resolve, at most three.", type: list, elements: str}
        sshd: {description: "Settings of sshd that keep O(user) from logging in.", type: list, elements: str}
        builds: {description: "Keys of the builds made by source_build, by path.", type: dict}
        work:
          description: >-
            What runs on the node: C(jobs), numbers of Slurm's jobs, and C(gpu_containers), processes of containers that have GPUs. C(drained):
            the node's name in Slurm if provisioning drained it and has not given it back, else empty.
          type: dict
        cloud_hosts: {description: "The file that lets cloud-init write /etc/hosts at each boot; null if none does.", type: str}
        adopted: {description: "Whether the node has a record of software that it keeps.", type: bool}
        stamps: {description: "Inputs of each past verification by its name, if the files it depends on are unchanged.", type: dict}
"""

import errno
import glob
import os
import platform
import pwd
import re
import socket

from ansible.module_utils import nvidia_kernel, slurm_node, sshd_access
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_packages import versions
from ansible.module_utils.node_probes import os_release, text
from ansible.module_utils.python_distributions import distributions, python_version, url_of
from ansible.module_utils.stamps import standing
from ansible.module_utils.trusted_path import refuse_program
from ansible.module_utils.user_limits import LIMITS, reachable

VERSION = "import sys; print('.'.join(str(part) for part in sys.version_info[:3]))"


def user_of(name):
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return {}
    is_local = any(line.startswith(name + ":") for line in (text("/etc/passwd") or "").splitlines())
    try:
        has_home = bool(os.stat(user.pw_dir))
    except OSError as error:
        has_home = error.errno != errno.ENOENT  # NFS may hide it from root
    return {"home": user.pw_dir, "shell": user.pw_shell, "uid": user.pw_uid, "is_local": is_local, "has_home": has_home}


def environment_of(path):
    """Python and distributions of a virtual environment, without starting it; None if it does not exist."""
    version = python_version(path)
    if not version:
        return None
    result = distributions(path).items()
    return {"python": version, "distributions": dict((name, {"version": v, "url": url_of(folder)}) for name, (v, folder) in result)}


def unresolved(names):
    """At most three, because each may take as long as the name service's timeout."""
    missing = []
    for name in names:
        try:
            socket.getaddrinfo(name, None)
        except (socket.error, UnicodeError):
            missing.append(name)
        if len(missing) == 3:
            break
    return missing


def cloud_hosts(root="/"):
    """The last file that lets cloud-init write /etc/hosts anew at each boot; None if it does not."""
    place = None
    folder, instance = [os.path.join(root, name) for name in ("etc/cloud", "var/lib/cloud/instance")]
    if os.path.exists(os.path.join(folder, "cloud-init.disabled")):
        return None
    parts = sorted(glob.glob(os.path.join(folder, "cloud.cfg.d/*.cfg")))
    # The instance's own data win over those of the cloud's vendor.
    parts += [os.path.join(instance, name + "cloud-config.txt") for name in ("vendor-", "vendor2-", "")]
    for path in [os.path.join(folder, "cloud.cfg")] + parts:
        values = re.findall(r"(?m)^manage_etc_hosts: *['\"]?(\w+)", text(path) or "")
        if values:
            place = path if values[-1].lower() in ("true", "yes", "on", "1", "template") else None
    return place


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    interpreter = module.params["interpreter"]
    version = None
    refuse_program(module, interpreter)
    if os.access(interpreter, os.X_OK):
        code, output, _errors = module.run_command([interpreter, "-I", "-S", "-c", VERSION])
        version = output.strip() if code == 0 else None
    release = os_release()
    environments = dict((path, environment_of(path)) for path in module.params["environments"])
    # The key written by the role source_build
    builds = dict((path, text(path, ".dlperf-build")) for path in module.params["builds"])
    others = glob.glob("/usr/bin/python3.*[0-9]") + glob.glob("/usr/local/bin/python3.*[0-9]")
    result = {
        "interpreter": interpreter,
        "python_version": version,
        "interpreters": sorted(path for path in others if os.path.realpath(path) != os.path.realpath(interpreter)),
        "packages": versions(module.params["packages"]),
        "user": user_of(module.params["user"]) if module.params["user"] else {},
        "limits": dict((name, reachable(name, str(wanted))) for name, wanted in module.params["limits"].items() if name in LIMITS),
        "environments": dict((path, result) for path, result in environments.items() if result),
        "links": dict((path, os.readlink(path)) for path in module.params["links"] if os.path.islink(path)),
        "unresolved": unresolved(module.params["names"]),
        "sshd": sshd_access.obstacles_of(module.params["user"], module.params["address"]) if module.params["address"] else [],
        "builds": dict((path, key) for path, key in builds.items() if key),
        "work": {"jobs": slurm_node.jobs("/"), "drained": slurm_node.drained("/"), "gpu_containers": nvidia_kernel.containers("/")},
        "cloud_hosts": cloud_hosts(),
        "adopted": os.path.exists("/var/lib/dlperf/adopted.json"),
        "stamps": standing(module.params["stamps"]),
    }
    module.exit_json(
        changed=False,
        ansible_facts={
            "architecture": platform.machine(),
            "distribution": release.get("NAME", "").split(" ")[0] or None,
            "distribution_version": release.get("VERSION_ID"),
            # Early releases of Ubuntu 16.04 have only the latter.
            "distribution_release": release.get("VERSION_CODENAME") or release.get("UBUNTU_CODENAME"),
            "dlperf_node": result,
        },
    )


if __name__ == "__main__":
    main()
