"""The settings of a node's sshd that keep a user from logging in by a key. Python 2.7 and 3.6+."""

from __future__ import absolute_import, division, print_function

import fnmatch
import grp
import os
import platform
import pwd
import socket

from .node_probes import output

TIMEOUT_S = 10


def groups_of(user):
    """Names of the user's groups. A user that does not exist yet gets one of its own name, or the group users."""
    try:
        number = pwd.getpwnam(user).pw_gid
    except KeyError:
        return [user, "users"]
    if not hasattr(os, "getgrouplist"):  # Python 2.7
        return [group.gr_name for group in grp.getgrall() if group.gr_gid == number or user in group.gr_mem]
    return list(filter(None, map(_name, os.getgrouplist(user, number))))  # also those of a directory service, which lists none


def _name(number):
    try:
        return grp.getgrgid(number).gr_name
    except KeyError:
        return ""


def _numeric(name):
    """The address of a name; empty if the node does not know one by which others reach it."""
    try:
        address = socket.getaddrinfo(name, None)[0][4][0]
    except (socket.error, UnicodeError):
        return ""
    return "" if address.startswith("127.") or address == "::1" else address


def obstacles(printed, user, groups):
    """Settings in the output of C(sshd -T), such as `AllowUsers admin`; patterns with hosts count for every host if they allow, else for none."""
    values = {}
    for line in printed.splitlines():
        name, _space, value = line.partition(" ")
        # A line has one name of a user or a group, which may have blanks.
        is_name = name.lower().startswith(("allow", "deny"))
        values.setdefault(name.lower(), []).extend([value] if is_name else value.split())

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
    """Those of this node's sshd for a user who comes from an address or a name; empty if that is unknown, or sshd does not say."""
    place = _numeric(address)
    printed = place and output(TIMEOUT_S, "sshd", "-T", "-C", "user=%s,host=%s,addr=%s" % (user, platform.node(), place))
    return obstacles(printed or "", user, groups_of(user))
