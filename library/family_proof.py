#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "family_proof",
    "short_description": "Verify that a family of packages has its versions and will keep them",
    "description": [
        "On Debian and Ubuntu, checks versions and holds in dpkg, candidates and priorities in apt's policy, and the packages' files.",
        "On the RHEL family, checks versions in rpm, the upgrades that dnf would install, and the packages' files.",
        "Does not rely on the records of the module C(package_family).",
    ],
    "options": {
        "name": {"type": "str", "required": True, "description": "Name of the family, for messages."},
        "packages": {"type": "dict", "required": True, "description": "Packages, with their exact versions."},
        "files": {"type": "list", "elements": "str", "default": [], "description":
            "Globs of the packages' files. Each glob must match a file."},
    },
    "attributes": {"check_mode": {"support": "partial", "details": "Verifies nothing if the packages are not installed yet."}},
}  # fmt: skip

import glob
import re

from ansible.module_utils.apt_family import AptPackages
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_family import base, installed
from ansible.module_utils.dnf_family import RpmPackages
from ansible.module_utils.node_packages import has_rpm
from ansible.module_utils.rpm_family import transaction, without_epoch


def policies(output):
    """{name: (candidate, {version: priority})} from apt-cache policy.

    libnccl2:
      Installed: 2.7.3-1+cuda10.2
      Candidate: 2.7.3-1+cuda10.2
      Version table:
     *** 2.7.3-1+cuda10.2 1001
            500 file:/var/nccl-repo ./ Packages
    """
    by_name, name = {}, None
    for line in output.splitlines():
        if re.match(r"\S+:$", line):
            name = line[:-1]
            by_name[name] = [None, {}]
        elif line.startswith("  Candidate: "):
            by_name[name][0] = line.split(": ", 1)[1]
        else:
            match = re.match(r"(?: \*\*\*|    ) (\S+) (-?\d+)$", line)
            if match and name:
                by_name[name][1][match.group(1)] = int(match.group(2))
    return by_name


def problems_of_apt(module, packages):
    """(versions of the installed ones, what is wrong with them)."""
    environment = {"LC_ALL": "C"}
    existing = dict((base(n), state) for n, state in installed(AptPackages(module).query(sorted(packages))).items())
    problems = []
    policy = policies(module.run_command(["apt-cache", "policy"] + sorted(packages), environ_update=environment)[1])
    for name, version in sorted(packages.items()):
        present, held = existing.get(name, ("nothing", False))
        if present == version and not held:
            problems.append("%s is not on hold" % name)
        candidate, priorities = policy.get(name, (None, {}))
        if candidate != version or priorities.get(version, 0) < 1001:
            problems.append(
                "apt would install %s %s, and version %s has priority %s instead of at least 1001"
                % (name, candidate, version, priorities.get(version, "none"))
            )
    return dict((name, version) for name, (version, _held) in existing.items()), problems


def problems_of_dnf(module, packages):
    """The same. dnf offers no version that the locks hide."""
    environment = {"LC_ALL": "C"}
    result = RpmPackages(module).snapshot()
    present = dict((name, without_epoch(result[name])) for name in packages if name in result)
    if not present:
        return present, []
    # repoquery would ignore the locks. Without an index in the cache, dnf has to fetch it.
    for option in (["-C"], []):
        query = ["dnf"] + option + ["--assumeno", "upgrade"] + sorted(present)
        code, output, errors = module.run_command(query, environ_update=environment)
        messages = output + errors
        if code == 0 or "Operation aborted" in messages:
            result = transaction(output)
            news = [package[0] for heading in ("Upgrading", "Installing") for package in result.get(heading, [])]
            return present, ["dnf would install another version of %s" % ", ".join(sorted(news))] if news else []
    return present, ["dnf --assumeno upgrade failed: %s" % messages.strip()[-500:]]


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    packages = module.params["packages"]
    present, problems = (problems_of_dnf if has_rpm() else problems_of_apt)(module, packages)
    if module.check_mode and set(present) != set(packages):
        module.exit_json(changed=False)
    for name, version in sorted(packages.items()):
        if present.get(name) != version:
            problems.insert(0, "%s should have version %s, found %s" % (name, version, present.get(name, "nothing")))
    for pattern in module.params["files"]:
        if not glob.glob(pattern):
            problems.append("%s is missing" % pattern)
    if problems:
        module.fail_json(
            msg="%s is not installed as required: %s. Provision the node again." % (module.params["name"], "; ".join(problems))
        )
    module.exit_json(changed=False)


if __name__ == "__main__":
    main()
