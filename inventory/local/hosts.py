#!/usr/bin/env -S python3 -IS
"""This machine as the only node, if it cannot run the lab (as in a container without namespaces).

It carries the machine's own host name, which mpirun knows to be here without any SSH.

What it can do depends on who asks. Benchmarks run as soon as the machine is provisioned.
Provisioning installs packages, makes the user of the benchmarks and writes to /opt/dlperf: on
this very machine, and for that it needs root, or sudo without a password. An ordinary user of a
machine that forbids both namespaces and sudo cannot provision it, and is told so.
"""

import json
import socket
import sys

json.dump(
    {"_meta": {"hostvars": {}}, "nodes": {"hosts": [socket.gethostname()]}},
    sys.stdout,
)
