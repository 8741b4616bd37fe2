#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: node_facts
short_description: What provisioning asks of a node before it changes anything, in one execution
description:
  - The release, the interpreters, packages, a user, virtual environments, and what has been proven (the stamps of
    the module C(proof)). Where it is as it shall be, no further execution is needed.
options:
  packages: {description: Packages whose versions are asked for., type: list, elements: str, default: []}
  user: {description: A user who is asked about., type: str}
  environments: {description: Paths of virtual environments., type: list, elements: path, default: []}
  builds: {description: Places of builds from source., type: list, elements: path, default: []}
  limits: {description: Limits as C(node_files) takes them., type: dict, default: {}}
  interpreter: {description: The interpreter that environments are made with., type: path, default: /usr/bin/python3}
  stamps: {description: Folder of the stamps., type: path, default: /opt/dlperf/stamps}
attributes:
  check_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Look at the nodes
  node_facts:
    packages: [podman]

- name: Say which podman they have
  ansible.builtin.debug:
    var: ansible_facts.dlperf_node.packages.podman
"""

RETURN = r"""
ansible_facts:
  description: >-
    C(distribution), C(distribution_version) and C(distribution_release), as C(setup) calls them, and C(dlperf_node).
  returned: always
  type: dict
  contains:
    dlperf_node:
      description: >-
        What was found. Roles read the variable of this name, which provision.yml sets: this with C(complete), paths of the environments that
        are as pinned, in place of C(environments). Without the variable a role takes nothing for known, and looks for itself.
      type: dict
      contains:
        interpreter: {description: The interpreter that was asked about., type: str}
        python_version: {description: Its version; null where it cannot be started., type: str}
        interpreters: {description: Other interpreters that the node has., type: list, elements: str}
        packages: {description: Version of each package that is installed., type: dict}
        user: {description: C(home) and C(shell) of the user; empty where there is none., type: dict}
        limits: {description: Each of the limits as high as the node allows it., type: dict}
        environments:
          description: >-
            By path, for each that exists: C(python), the version that made it, and C(distributions), with C(version) and C(url) (null for what
            came from an index) of each by its normalised name.
          type: dict
        builds: {description: Key of each of our builds by its place., type: dict}
        stamps: {description: "The inputs of each proof by its name, where the files that it depends on are unchanged.", type: dict}
"""

import glob
import io
import json
import os
import pwd
import re

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.stamps import standing
from ansible.module_utils.trusted_path import root_distrusts
from ansible.module_utils.user_limits import LIMITS, reachable

VERSION = "import sys; print('.'.join(str(part) for part in sys.version_info[:3]))"


def os_release(path="/etc/os-release"):
    """The variables of os-release(5)."""
    with io.open(path, encoding="utf-8") as stream:
        pairs = (line.strip().partition("=") for line in stream if "=" in line)
        return dict((key, value.strip("\"'")) for key, _equals, value in pairs)


def packages_of(module, names):
    """Version of each package that dpkg has installed; none on a node without dpkg."""
    if not names or not os.access("/usr/bin/dpkg-query", os.X_OK):
        return {}
    argv = ["dpkg-query", "-W", "-f", r"${Package}\t${Version}\t${Status}\n"] + names
    _code, output, _errors = module.run_command(argv, environ_update={"LC_ALL": "C"})
    lines = (line.split("\t") for line in output.splitlines())
    return dict((line[0], line[1]) for line in lines if line[2].endswith(" ok installed"))


def user_of(name):
    try:
        user = pwd.getpwnam(name)
    except KeyError:
        return {}
    return {"home": user.pw_dir, "shell": user.pw_shell}


def environment_of(path):
    """Python and distributions of a virtual environment, without starting it; None where there is none."""
    try:
        with io.open(os.path.join(path, "pyvenv.cfg"), encoding="utf-8") as stream:
            match = re.search(r"(?m)^version(?:_info)?\s*=\s*([\d.]*\d)", stream.read())
    except (IOError, OSError):
        return None
    unfinished = os.path.exists(os.path.join(path, "dlperf-unfinished"))
    if unfinished or not match or not os.access(os.path.join(path, "bin", "python"), os.X_OK):
        return None
    found = {}
    for folder in glob.glob(os.path.join(path, "lib", "python3*", "site-packages", "*.dist-info")):
        name, _dash, version = os.path.basename(folder)[: -len(".dist-info")].rpartition("-")
        url = None
        direct = os.path.join(folder, "direct_url.json")
        if os.path.exists(direct):
            with io.open(direct, encoding="utf-8") as stream:
                url = json.load(stream).get("url")
        found[re.sub(r"[-_.]+", "-", name).lower()] = {"version": version, "url": url}
    return {"python": match.group(1), "distributions": found}


def build_of(path):
    """The key that the role source_build has put into a build; None where there is none."""
    try:
        with io.open(os.path.join(path, ".dlperf-build"), encoding="utf-8") as stream:
            return stream.read().strip()
    except (IOError, OSError):
        return None


def main():
    module = AnsibleModule(
        argument_spec={
            "interpreter": {"type": "path", "default": "/usr/bin/python3"},
            "stamps": {"type": "path", "default": "/opt/dlperf/stamps"},
            "packages": {"type": "list", "elements": "str", "default": []},
            "user": {"type": "str"},
            "limits": {"type": "dict", "default": {}},
            "environments": {"type": "list", "elements": "path", "default": []},
            "builds": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    interpreter = module.params["interpreter"]
    version = None
    reason = root_distrusts(interpreter)
    if reason:
        module.fail_json(msg="%s, so root does not start %s. Let nobody but root write it, or choose another one." % (reason, interpreter))
    if os.access(interpreter, os.X_OK):
        code, output, _errors = module.run_command([interpreter, "-I", "-S", "-c", VERSION])
        version = output.strip() if code == 0 else None
    release = os_release()
    environments = dict((path, environment_of(path)) for path in module.params["environments"])
    builds = dict((path, build_of(path)) for path in module.params["builds"])
    others = glob.glob("/usr/bin/python3.*[0-9]") + glob.glob("/usr/local/bin/python3.*[0-9]")
    found = {
        "interpreter": interpreter,
        "python_version": version,
        "interpreters": sorted(
            path for path in others if os.path.realpath(path) != os.path.realpath(interpreter)
        ),
        "packages": packages_of(module, module.params["packages"]),
        "user": user_of(module.params["user"]) if module.params["user"] else {},
        "limits": dict(
            (name, reachable(name, str(wanted)))
            for name, wanted in module.params["limits"].items()
            if name in LIMITS
        ),
        "environments": dict((path, found) for path, found in environments.items() if found),
        "builds": dict((path, key) for path, key in builds.items() if key),
        "stamps": standing(module.params["stamps"]),
    }
    module.exit_json(
        changed=False,
        ansible_facts={
            "distribution": release.get("NAME", "").split(" ")[0] or None,
            "distribution_version": release.get("VERSION_ID"),
            # Ubuntu 16.04 has only the latter, at first.
            "distribution_release": release.get("VERSION_CODENAME") or release.get("UBUNTU_CODENAME"),
            "dlperf_node": found,
        },
    )


if __name__ == "__main__":
    main()
