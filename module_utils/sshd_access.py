"""The settings of a node's sshd that keep a user from logging in by a key. Python 2.7 and 3.6+."""

from __future__ import absolute_import, division, print_function

import fnmatch
import grp
import platform
import pwd

from .node_probes import output

TIMEOUT_S = 10


def groups_of(user):
    """Names of the user's groups. A user that does not exist yet gets one of its own name, or the group users."""
    try:
        number = pwd.getpwnam(user).pw_gid
    except KeyError:
        return [user, "users"]
    return [group.gr_name for group in grp.getgrall() if group.gr_gid == number or user in group.gr_mem]


def obstacles(printed, user, groups):
    """Settings in the output of C(sshd -T), such as `AllowUsers admin`; patterns with hosts count for every host if they allow, else for none."""
    values = {}
    for line in printed.splitlines():
        name, _space, value = line.partition(" ")
        values.setdefault(name.lower(), []).extend(value.split())

    def names(key, members):
        patterns = [each.partition("@")[0] for each in values.get(key, []) if key[:5] == "allow" or "@" not in each]
        return any(fnmatch.fnmatchcase(member, pattern) for member in members for pattern in patterns)

    files, methods = values.get("authorizedkeysfile", []), set(values.get("authenticationmethods", ["any"]))
    is_bad = (
        ("AllowUsers", "allowusers" in values and not names("allowusers", [user])),
        ("AllowGroups", "allowgroups" in values and not names("allowgroups", groups)),
        ("DenyUsers", names("denyusers", [user])),
        ("DenyGroups", names("denygroups", groups)),
        ("PubkeyAuthentication", values.get("pubkeyauthentication") == ["no"]),
        ("AuthorizedKeysFile", bool(files) and not any(path.endswith(".ssh/authorized_keys") for path in files)),
        ("AuthenticationMethods", not methods & {"any", "publickey"}),
    )
    return ["%s %s" % (name, " ".join(values[name.lower()])) for name, bad in is_bad if bad]


def obstacles_of(user, address):
    """Those of this node's sshd for a user who comes from an address; empty if sshd does not say."""
    printed = output(TIMEOUT_S, "sshd", "-T", "-C", "user=%s,host=%s,addr=%s" % (user, platform.node(), address or "127.0.0.1"))
    return obstacles(printed or "", user, groups_of(user))
