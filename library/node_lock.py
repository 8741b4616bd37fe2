#!/usr/bin/python
from __future__ import absolute_import, division, print_function

DOCUMENTATION = {
    "module": "node_lock",
    "short_description": "Lock a node for one campaign, or release it",
    "description": [
        "Only one campaign at a time can hold a node. The lock contains its campaign, owner, controller and start time.",
        "The running campaign renews the lease of its lock as O(user) (see C(module_utils/run_agent/lock.py)). Another campaign can take "
        "over a lock with an expired lease; the old holder then notices that its lease is missing.",
        "The same campaign of the same O(owner) on the same O(host) takes its lock over at once. It has only one controller at a time, so "
        "the one that held the node was killed.",
    ],
    "options": {
        "state": {"type": "str", "choices": ["held", "free", "absent"], "default": "held", "description":
            "V(held) locks the node or renews the lease, V(free) waits until no other campaign holds it, V(absent) releases it."},
        "token": {"type": "str", "required": True, "no_log": False, "description": "Identifies the holder; must be unique."},
        "campaign": {"type": "str", "default": "", "description": "Campaign that holds the lock."},
        "owner": {"type": "str", "default": "", "description": "User who started the campaign."},
        "host": {"type": "str", "default": "", "description": "Controller of the campaign."},
        "user": {"type": "str", "default": "", "description": "User who renews the lease; empty for the user that runs the module."},
        "lease_s": {"type": "int", "default": 120, "description":
            "The holder is considered dead after this many seconds without a renewal."},
        "wait_s": {"type": "int", "default": 0, "description": "How many seconds V(free) waits at most."},
        "directory": {"type": "path", "default": "/run/dlperf", "description":
            "Directory of the lock; the same for all campaigns on a node."},
    },
}  # fmt: skip

RETURN = r"""
held: {description: "Whether O(token) holds the node.", type: bool, returned: always}
holder: {description: "Description of another holder; empty if there is none.", type: str, returned: always}
"""

import errno
import fcntl
import json
import os
import pwd
import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.run_agent.lock import age, boot_id, holder, lease_path, renew

POLL_S = 1


def remove(path):
    try:
        os.unlink(path)
    except OSError as error:
        if error.errno != errno.ENOENT:
            raise


def make_lease(params):
    path = lease_path(params["directory"], params["token"])
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
    renew(params["directory"], params["token"])
    if params["user"]:
        user = pwd.getpwnam(params["user"])
        if user.pw_uid != os.geteuid():
            os.chown(path, user.pw_uid, user.pw_gid)


def take(params):
    """Lock the node for O(token). The old lease is removed first, so that nobody can renew it."""
    directory = params["directory"]
    for name in os.listdir(directory):
        if name.startswith("lease."):
            remove(os.path.join(directory, name))
    make_lease(params)
    lock = dict((key, params[key]) for key in ("token", "campaign", "owner", "host", "lease_s"))
    lock.update(since=time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()), boot_id=boot_id())
    path = os.path.join(directory, "lock")
    with open(path + ".tmp", "w") as handle:
        json.dump(lock, handle)
    os.chmod(path + ".tmp", 0o644)
    os.rename(path + ".tmp", path)


def description(lock, directory):
    """A description of the lock's holder."""
    since = age(directory, lock["token"])
    return "campaign %s of %s on %s since %s (last renewed %d s ago)" % (
        lock.get("campaign"), lock.get("owner"), lock.get("host"), lock.get("since"), since or 0,
    )  # fmt: skip


def check(module, token, user):
    """Fail if a parameter is none, or if the node has no such user."""
    if not re.match("[0-9A-Za-z]+$", token):
        module.fail_json(msg="token must consist of letters and digits, found %r" % token)
    try:
        pwd.getpwnam(user or "root")
    except KeyError:
        module.fail_json(
            msg="the node is not provisioned: it has no user %s. Provision it with the same inventory:"
            " ansible-playbook provision.yml, or dlperf provision" % user
        )


def main():
    module = AnsibleModule(DOCUMENTATION["options"], supports_check_mode=True)
    params, state, changed = module.params, module.params["state"], False
    directory, token = params["directory"], params["token"]
    check(module, token, params["user"])
    if state != "free" and not module.check_mode:
        try:
            os.makedirs(directory)
            os.chmod(directory, 0o755)
        except OSError as error:  # two campaigns may make it at once
            if error.errno != errno.EEXIST:
                raise
        # Only root can open this file, so no other user can block the lock.
        mutex = os.open(os.path.join(directory, "mutex"), os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(mutex, fcntl.LOCK_EX)
    deadline = time.time() + (params["wait_s"] if state == "free" else 0)
    while True:
        lock = holder(directory)
        if lock is None or lock["token"] == token or time.time() >= deadline:
            break
        time.sleep(POLL_S)
    others = description(lock, directory) if lock and lock["token"] != token else ""
    is_held = bool(lock) and not others
    identity = ("campaign", "owner", "host")
    if state == "held" and others and params["campaign"] and all(lock.get(key) == params[key] for key in identity):
        others = ""
    if state == "held" and not others:
        changed = not is_held
        if changed and not module.check_mode:
            take(params)
        elif not module.check_mode:
            renew(directory, token)
        is_held = True
    elif state == "absent":
        changed = is_held
        if not module.check_mode:
            if is_held:
                remove(os.path.join(directory, "lock"))
            remove(lease_path(directory, token))
        is_held = False
    module.exit_json(changed=changed, held=is_held, holder=others)


if __name__ == "__main__":
    main()
