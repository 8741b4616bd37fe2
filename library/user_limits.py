#!/usr/bin/python
from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: user_limits
short_description: Raise the resource limits of a user, as high as this node can
description:
  - Writes a file for pam_limits. A node that is a container cannot raise a limit above its own; pam_limits would
    then refuse every login of the user. So each limit is tried first (in a child process), and one that
    cannot be raised is written as high as the node allows, with a warning.
options:
  user: {description: The user whose sessions get the limits., type: str, required: true}
  limits:
    description: "Limits by their name in limits.conf(5), in its units: memlock in KiB, nofile a number; or C(unlimited)."
    type: dict
    required: true
  path: {description: File below /etc/security/limits.d., type: path, required: true}
attributes:
  check_mode: {support: full}
  diff_mode: {support: full}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Let the benchmark user lock all memory
  user_limits:
    user: dlperf
    limits: {memlock: unlimited, nofile: 1048576}
    path: /etc/security/limits.d/90-dlperf.conf
"""

RETURN = r"""
limits:
  description: The limits as written.
  returned: always
  type: dict
"""

import io
import os
import tempfile

try:
    import resource
except ImportError:  # python3-minimal has none; the packages of the role bring it
    resource = None

from ansible.module_utils.basic import AnsibleModule

# Name in limits.conf: (constant of the resource module, bytes per unit)
KINDS = {
    "core": ("RLIMIT_CORE", 1024),
    "data": ("RLIMIT_DATA", 1024),
    "fsize": ("RLIMIT_FSIZE", 1024),
    "memlock": ("RLIMIT_MEMLOCK", 1024),
    "nofile": ("RLIMIT_NOFILE", 1),
    "nproc": ("RLIMIT_NPROC", 1),
    "stack": ("RLIMIT_STACK", 1024),
}


def can_set(kind, value):
    """Whether a process of this node can raise the limit so far; tried in a child, so that nothing stays."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def reachable(name, wanted):
    """The wanted limit, or the hard limit that this node has, in the units of limits.conf."""
    constant, unit = KINDS[name]
    kind = getattr(resource, constant)
    value = resource.RLIM_INFINITY if wanted == "unlimited" else int(wanted) * unit
    if can_set(kind, value):
        return wanted
    hard = resource.getrlimit(kind)[1]
    return "unlimited" if hard == resource.RLIM_INFINITY else str(hard // unit)


def main():
    module = AnsibleModule(
        argument_spec={
            "user": {"type": "str", "required": True},
            "limits": {"type": "dict", "required": True},
            "path": {"type": "path", "required": True},
        },
        supports_check_mode=True,
    )
    user, path = module.params["user"], module.params["path"]
    limits = {}
    for name, wanted in sorted(module.params["limits"].items()):
        wanted = str(wanted)
        if name not in KINDS or not (wanted == "unlimited" or wanted.isdigit()):
            module.fail_json(
                msg="limits: one of %s with a number or 'unlimited' was expected, found %s: %s"
                % (", ".join(sorted(KINDS)), name, wanted)
            )
        limits[name] = wanted
        if resource is None:
            continue
        limits[name] = reachable(name, wanted)
        if limits[name] != wanted:
            module.warn(
                "%s of %s: %s was wanted, this node (a container?) allows %s"
                % (name, user, wanted, limits[name])
            )

    after = u"# Made by dlperf_runner\n" + u"".join(
        u"%s - %s %s\n" % (user, name, limits[name]) for name in sorted(limits)
    )
    before = u""
    if os.path.exists(path):
        with io.open(path, encoding="utf-8") as stream:
            before = stream.read()
    if before != after and not module.check_mode:
        if not os.path.isdir(os.path.dirname(path)):
            os.makedirs(os.path.dirname(path))
        handle, temporary = tempfile.mkstemp(dir=module.tmpdir)
        with io.open(handle, "w", encoding="utf-8") as stream:
            stream.write(after)
        os.chmod(temporary, 0o644)
        module.atomic_move(temporary, path)
        os.chmod(path, 0o644)
    module.exit_json(
        changed=before != after,
        limits=limits,
        diff={"before_header": path, "after_header": path, "before": before, "after": after},
    )


if __name__ == "__main__":
    main()
