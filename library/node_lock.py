#!/usr/bin/python
# -*- coding: utf-8 -*-
"""Take a node for one campaign, or give it back."""

from __future__ import absolute_import, division, print_function

__metaclass__ = type

DOCUMENTATION = r"""
module: node_lock
short_description: Take a node for one campaign, or give it back
description:
  - One campaign at a time has a node. The lock names its campaign, owner, controller and since when.
  - The holder renews its lease, as O(user), while it is alive (see C(module_utils/node_lock.py)). A lock whose lease ran out is taken over,
    and its old holder finds its lease gone.
options:
  state:
    description: V(held) takes the node or renews the lease, V(free) waits until nobody else holds it, V(absent) gives it back.
    type: str
    choices: [held, free, absent]
    default: held
  token: {description: "Names this holder; no other one ever has it.", type: str, required: true}
  campaign: {description: "What the lock is held for.", type: str, default: ""}
  owner: {description: "Who holds it.", type: str, default: ""}
  host: {description: "From which controller.", type: str, default: ""}
  user: {description: "Who renews the lease; empty for the user that this runs as.", type: str, default: ""}
  lease_s: {description: "Seconds without a renewal after which the holder is dead.", type: int, default: 120}
  wait_s: {description: "How long V(free) waits.", type: int, default: 0}
  directory: {description: "Where the lock is; the same for all campaigns of a node.", type: path, default: /run/dlperf}
author: [dlperf_runner]
"""

EXAMPLES = r"""
- name: Take the node
  node_lock:
    token: 5f0c
    campaign: /srv/results/20260101T000000Z
    owner: alice
    host: head
    user: dlperf
  become: true
  register: lock
  failed_when: not lock.held
"""

RETURN = r"""
held: {description: "Whether O(token) holds the node.", type: bool, returned: always}
holder: {description: "Who else holds it; empty where nobody does.", type: str, returned: always}
"""

import errno
import fcntl
import json
import os
import pwd
import re
import time

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.node_lock import DIRECTORY, age, boot_id, holder, lease_path, renew

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
    """Make the node O(token)'s. The old lease goes first: from then on nobody else renews it."""
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


def told(lock, directory):
    """Who holds the node, in words."""
    since = age(directory, lock["token"])
    return "campaign %s of %s on %s since %s (last renewed %d s ago)" % (
        lock.get("campaign"), lock.get("owner"), lock.get("host"), lock.get("since"), since or 0,
    )  # fmt: skip


def main():
    module = AnsibleModule(
        argument_spec={
            "state": {"type": "str", "choices": ["held", "free", "absent"], "default": "held"},
            "token": {"type": "str", "required": True, "no_log": False},
            "campaign": {"type": "str", "default": ""},
            "owner": {"type": "str", "default": ""},
            "host": {"type": "str", "default": ""},
            "user": {"type": "str", "default": ""},
            "lease_s": {"type": "int", "default": 120},
            "wait_s": {"type": "int", "default": 0},
            "directory": {"type": "path", "default": DIRECTORY},
        },
        supports_check_mode=True,
    )
    params, state, changed = module.params, module.params["state"], False
    directory, token = params["directory"], params["token"]
    if not re.match("[0-9A-Za-z]+$", token):
        module.fail_json(msg="token: letters and digits are expected, found %r" % token)
    if state != "free" and not module.check_mode:
        if not os.path.isdir(directory):
            os.makedirs(directory)
            os.chmod(directory, 0o755)
        # Nobody but root opens it, so nobody else can keep it.
        mutex = os.open(os.path.join(directory, "mutex"), os.O_CREAT | os.O_RDWR, 0o600)
        fcntl.flock(mutex, fcntl.LOCK_EX)
    deadline = time.time() + (params["wait_s"] if state == "free" else 0)
    while True:
        lock = holder(directory)
        if lock is None or lock["token"] == token or time.time() >= deadline:
            break
        time.sleep(POLL_S)
    others = told(lock, directory) if lock and lock["token"] != token else ""
    mine = bool(lock) and not others
    if state == "held" and not others:
        changed = not mine
        if changed and not module.check_mode:
            take(params)
        elif not module.check_mode:
            renew(directory, token)
        mine = True
    elif state == "absent":
        changed = mine
        if not module.check_mode:
            if mine:
                remove(os.path.join(directory, "lock"))
            remove(lease_path(directory, token))
        mine = False
    module.exit_json(changed=changed, held=mine, holder=others)


if __name__ == "__main__":
    main()
