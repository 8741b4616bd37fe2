"""A supervisor with connections to other nodes stays for the campaign's next run, whose module gives it the launch.

RUNS/.supervisor.NODE.TOKEN           the process ID of the supervisor, from just before its run's state says that it is finished
RUNS/.supervisor.NODE.TOKEN.launch    the options of the next launch. Whoever renames or removes it has it
"""

from __future__ import absolute_import, division, print_function

import os
import time

from .lock import age, uptime
from .owned_file import discard, read_whole, write_whole
from .process_table import is_alive

STAYS_S = 30
TAKES_S = 5
LIMIT_BYTES = 16 << 20


def place(params):
    """The folder in which a supervisor waits; None if it does not: without a campaign, or without other nodes."""
    if params["runs"] and params["lock"] and (params["hosts"] or params["idle"]):
        return os.path.join(params["runs"], ".supervisor.%s.%s" % (os.uname()[1], params["lock"]["token"]))
    return None


def hand_over(params):
    """Give a launch to the campaign's supervisor; False if none waits for it."""
    path = place(params)
    waiting = read_whole(path, LIMIT_BYTES) if path else None
    if not isinstance(waiting, int) or not is_alive(waiting):
        discard(path or "")
        return False
    launch = path + ".launch"
    before = os.umask(0o077)  # the environment is nobody else's business
    try:
        write_whole(launch, params)
    except (IOError, OSError):  # a full disk: the launch gets a supervisor of its own
        discard(launch + ".tmp")
        return False
    finally:
        os.umask(before)
    deadline = time.time() + TAKES_S
    while os.path.lexists(launch):
        if time.time() > deadline or not is_alive(waiting):
            try:
                os.unlink(launch)
            except OSError:
                return True  # taken just now
            discard(path)
            return False
        time.sleep(0.01)
    return True


def offer(params):
    """Say that this supervisor takes the campaign's next launch. Who sees that its run has finished gives it that launch, so this comes first."""
    path = place(params)
    try:
        if path:
            write_whole(path, os.getpid())
    except (IOError, OSError):
        pass  # the folder was removed: the next launch gets a supervisor of its own


def next_launch(params, agents):
    """Wait for the options of the campaign's next launch. None if there is none in time, or the campaign has given the node back."""
    path = place(params)
    if not path:
        return None
    agents.receive = None
    launch = path + ".launch"
    until = uptime() + STAYS_S
    taken = None
    try:
        while (
            taken is None
            and os.path.lexists(path)
            and uptime() < until
            and age(params["lock"]["directory"], params["lock"]["token"]) is not None
        ):
            agents.poll(0.02)
            taken = take(launch)
    except (IOError, OSError):
        pass  # the node's folder of locks cannot be read
    discard(path)
    return taken or take(launch)


def take(launch):
    path = launch + ".taken"
    try:
        os.rename(launch, path)
    except OSError:
        return None
    taken = read_whole(path, LIMIT_BYTES)
    discard(path)
    return native(taken)


def native(value):
    """With texts as this Python's own `str`, as Ansible gives them."""
    if isinstance(value, dict):
        return dict((native(key), native(item)) for key, item in value.items())
    if isinstance(value, list):
        return [native(item) for item in value]
    return value.encode("utf-8") if str is bytes and isinstance(value, type(b"".decode())) else value
