"""When a command hangs, what its processes are doing then, and how they end on the other nodes of the run."""

from __future__ import absolute_import, division, print_function

import json
import os
import re

from .lock import uptime
from .owned_file import create, size_and_end
from .process_table import STATES_S, states

TAIL_BYTES = 16384


def state_name(host):
    """The file beside the log with the state of a run that hung."""
    return "hang-%s.txt" % re.sub(r"[^A-Za-z0-9._-]", "_", host or "node")


def of_run(kind, began, params):
    """A request for the processes of the run that has begun then."""
    return "%s,%d,%s" % (kind, uptime() - began + 1, json.dumps(params["marks"]))


def keep_states(params, pids, began, agents):
    """Write the end of the log, the state of the run's processes on this node and its others, and the table of processes. Never fails.

    Returns the other nodes that cannot be reached.
    """
    blocks = [(params["host"], states(pids))]
    answers = agents.gather(params["hosts"], of_run("states", began, params), "stated", 2 * STATES_S)
    blocks += [(host, "\n".join(answers.get(host, ["no answer"]))) for host in sorted(params["hosts"])]
    end = size_and_end(os.path.join(params["directory"], params["log"]), TAIL_BYTES)[1]
    try:
        with os.fdopen(create(os.path.join(params["directory"], state_name(params["host"]))), "wb") as handle:
            handle.write(b"== end of the log\n" + end)
            for host, block in blocks:
                handle.write(("\n==== %s\n%s\n" % (host, block)).encode("utf-8"))
    except (IOError, OSError):
        pass  # a full disk, for example
    return [host for host in params["hosts"] if host not in answers]


def end_others(params, hosts, began, agents):
    """Kill the run's processes on these other nodes. Returns a line for each that is left, and for each node that does not answer."""
    answers = agents.gather(hosts, of_run("end", began, params), "ended", STATES_S)
    silent = ["cannot be checked for processes of the run"]
    return ["%s: %s" % (host, line) for host in sorted(hosts) for line in answers.get(host, silent)]
