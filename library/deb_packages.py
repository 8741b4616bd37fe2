#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "deb_packages",
    "short_description": "Install the distribution's packages that the node does not have yet",
    "description": [
        "Differs from C(ansible.builtin.apt) in three ways that a bare cluster needs. It needs no python-apt on the node, so check mode "
        "works on a fresh node. If everything is installed, it runs one C(dpkg-query) instead of loading an apt cache. It refreshes the "
        "package lists only before an installation.",
        "On the RHEL family it installs the packages with dnf, by the names that module_utils/node_packages.py gives.",
        "It installs nothing while containers have GPUs.",
        "It records what it installs in C(/var/lib/dlperf/undo/packages.json), so that C(package_family) can remove it.",
    ],
    "options": {
        "names": {"type": "list", "elements": "str", "required": True, "description":
            "Packages as C(name) or C(name=version), by Debian's names."},
        "lock_timeout": {"type": "int", "default": 300, "description": "How many seconds to wait for another package manager."},
    },
}  # fmt: skip

RETURN = r"""
versions: {description: "Version of each installed package, by name.", returned: always, type: dict}
"""

from ansible.module_utils import nvidia_kernel
from ansible.module_utils.apt_family import ENVIRONMENT, AptPackages
from ansible.module_utils.apt_sources import make_way
from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.deb_family import explanation
from ansible.module_utils.deb_undo import Undo
from ansible.module_utils.dnf_family import RpmPackages, install_others
from ansible.module_utils.dpkg_locks import run_when_free
from ansible.module_utils.node_packages import has_rpm, own_name, versions
from ansible.module_utils.package_family import message
from ansible.module_utils.rpm_family import explanation as rpm_explanation
from ansible.module_utils.whole_files import difference

UNDO = "/var/lib/dlperf/undo"


def of_dnf(names):
    return [own_name(name).replace("=", "-") for name in names]


def install_by_dnf(module, names):
    packages = of_dnf(names)
    code, output, errors = install_others(module, UNDO, packages)
    if code != 0:
        messages = (output + "\n" + errors).strip()
        problem = rpm_explanation(messages) or (messages[-1500:], "fix this and run again")
        module.fail_json(msg=message(["installing " + ", ".join(packages)], *problem), rc=code, stdout=output, stderr=errors)


def install_by_apt(module, names, is_downgrade):
    apt = ["apt-get", "-q", "-y", "-o", "Dpkg::Options::=--force-confdef", "-o", "Dpkg::Options::=--force-confold"]
    downgrade = ["--allow-downgrades"] if is_downgrade else []

    def install():
        messages = ""
        for argv in (
            # Finish packages that an interrupted run left half installed.
            ["dpkg", "--force-confdef", "--force-confold", "--configure", "-a"],
            apt + ["update"],  # an unreachable source is only a warning, unless packages are then missing
            apt + ["install", "--no-install-recommends"] + downgrade + names,
        ):
            code, output, errors = run_when_free(module, argv, module.params["lock_timeout"], ENVIRONMENT)
            messages = (messages + errors)[-3000:]
            if code != 0:
                break
        return code == 0, (code, argv, output, errors, messages)

    undo = Undo(UNDO, "packages")
    make_way(module, undo)
    is_done, (code, argv, output, errors, messages) = undo.during(AptPackages(module), install)
    if not is_done:
        _meaning, remedy = explanation(errors) or ("", "")
        module.fail_json(
            msg="installing %s: %s failed: %s\n%s"
            % (", ".join(names), " ".join(argv), (messages or output[-3000:]).strip(), remedy[:1].upper() + remedy[1:]),
            rc=code,
            stdout=output,
        )


def listing(packages):
    return "".join("%s %s\n" % item for item in sorted(packages.items()))


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    # {name: version, or None for any version}
    wanted = dict((name.split("=", 1) + [None])[:2] for name in module.params["names"])
    if not wanted:
        module.exit_json(changed=False, versions={})
    before = versions(sorted(wanted))
    missing = sorted(name for name, version in wanted.items() if name not in before or version not in (None, before[name]))
    if not missing:
        module.exit_json(changed=False, versions=before)
    names = [name if wanted[name] is None else name + "=" + wanted[name] for name in missing]
    if module.check_mode:
        present = before
        after = dict(before, **dict((own_name(name) if has_rpm() else name, wanted[name] or "newest") for name in missing))
        # With what they depend on, if the node has lists of packages.
        if has_rpm():
            more = RpmPackages(module).rehearsed(of_dnf(names))
        else:
            more = AptPackages(module).rehearsed(["apt-get", "-s", "install", "--no-install-recommends"] + names)
        before, after = (dict(before, **more[0]), dict(after, **more[1])) if more else (before, after)
        module.exit_json(changed=True, versions=present, diff=difference("packages", *map(listing, (before, after))))
    containers = nvidia_kernel.containers("/")
    if containers:
        module.fail_json(msg="containers on the node have GPUs (%s), and can lose them when packages are installed (daemon-reload): %s. End them, "
                             "then run again" % (", ".join(containers), ", ".join(names)))  # fmt: skip
    if has_rpm():
        install_by_dnf(module, names)
    else:
        install_by_apt(module, names, any("=" in name for name in names))
    after = versions(sorted(wanted))
    absent = [name for name in missing if name not in after]
    if absent:
        module.fail_json(msg="the installation succeeded, but these packages are not installed: " + ", ".join(absent))
    module.exit_json(changed=True, versions=after, diff=difference("packages", *map(listing, (before, after))))


if __name__ == "__main__":
    main()
