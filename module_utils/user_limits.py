"""The highest session limits that this node allows, in the names and units of limits.conf(5). Python 2.7 and 3.6+.

No module of ansible.builtin tries a limit, and pam_limits refuses every login of a user whose limit the node does not allow. The facts and the
file take it from here without a task of its own.
"""

from __future__ import absolute_import, division, print_function

import os

try:
    import resource
except ImportError:  # python3-minimal lacks it; then the limits are written as requested
    resource = None

# Name in limits.conf: (constant of the resource module, bytes per unit)
LIMITS = {
    "core": ("RLIMIT_CORE", 1024),
    "memlock": ("RLIMIT_MEMLOCK", 1024),
    "nofile": ("RLIMIT_NOFILE", 1),
    "nproc": ("RLIMIT_NPROC", 1),
    "stack": ("RLIMIT_STACK", 1024),
}


def can_set(kind, value):
    """True if a process on this node can raise a limit to a value; tried in a child process."""
    child = os.fork()
    if child == 0:
        try:
            resource.setrlimit(kind, (value, value))
        except (OSError, ValueError):
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def reachable(name, wanted):
    """The wanted limit, or this node's hard limit if lower, in the units of limits.conf."""
    if resource is None:
        return wanted
    constant, unit = LIMITS[name]
    kind = getattr(resource, constant)
    value = resource.RLIM_INFINITY if wanted == "unlimited" else int(wanted) * unit
    if can_set(kind, value):
        return wanted
    hard = resource.getrlimit(kind)[1]
    return "unlimited" if hard == resource.RLIM_INFINITY else str(hard // unit)
