"""The main process of a lab: everything in the lab lives in its namespaces and ends with it.

Started by lab_control.py as the first process of new user (for an ordinary user), mount, network,
process, host name and IPC namespaces. It unpacks the base root filesystem onto a tmpfs, creates the
bridge, starts the nodes (lab_node.py) and the server of the mirror, reports "ready" and then only
waits.

    bridge lab0 10.11.0.1     <-- veth --> eth0 of node n, 10.11.0.<n+1>
"""

import functools
import http.server
import json
import os
import select
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # python -I leaves this folder out

from lab_node import (
    MS_NODEV,
    NODE_ENVIRONMENT,
    Node,
    ip,
    mount,
    overlay_kind,
    run_node,
    say,
    without_ipv6,
)

BRIDGE_MAC = "02:00:00:00:00:01"


def start_nodes(nodes):
    """Fork every node into its network namespace, connect all of them at once, and let them run.

    Returns the name of each node by its first process.
    """
    ready, i_am_ready = os.pipe()
    gate, open_gate = os.pipe()
    started, i_have_started = os.pipe()
    children = {}
    for node in nodes:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                os.close(open_gate)
                os.close(ready)
                os.close(started)
                run_node(node, i_am_ready, gate, i_have_started)
                status = 0
            except Exception as error:
                say(f"{node.name} cannot start: {type(error).__name__}: {error}")
            finally:
                os._exit(status)
        children[pid] = node
    for end in (i_am_ready, gate, i_have_started):
        os.close(end)
    waiting = len(nodes)
    while waiting:
        answered = len(os.read(ready, 4096))
        if not answered:
            raise RuntimeError("a node could not create its network namespace")
        waiting -= answered
    os.close(ready)
    lines = []
    for pid, node in children.items():
        lines += [
            f"link add {node.name} type veth peer name eth0 netns {pid}",
            f"link set {node.name} master lab0 up",
        ]
    ip(*lines)
    os.close(open_gate)
    for pid, node in children.items():
        _, status = os.waitpid(pid, 0)
        if status != 0:
            raise RuntimeError(f"{node.name} did not start")
    with open(started) as lines:  # noqa: PTH123 - a descriptor
        return {int(pid): name for pid, name in map(str.split, lines)}


class MirrorHandler(http.server.SimpleHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60

    def copyfile(self, source, outputfile):
        outputfile.flush()
        try:
            self.connection.sendfile(source)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def log_request(self, code="-", size="-"):
        """Only errors are logged."""

    def log_message(self, format, *args):
        say(f"mirror: {self.address_string()} {format % args}")


class MirrorServer(http.server.ThreadingHTTPServer):
    request_queue_size = 512
    daemon_threads = True


def serve_mirror(lab):
    """Fork the server of the mirror folder and return its process; it already listens."""
    handler = functools.partial(MirrorHandler, directory=lab["mirror_dir"])
    server = MirrorServer((lab["bridge_address"], lab["mirror_port"]), handler)
    process = os.fork()
    if process == 0:
        server.serve_forever()
    server.socket.close()
    return process


def wait_for_sshd(nodes, seconds, wanted):
    deadline = time.monotonic() + seconds
    for node in nodes:
        while True:
            try:
                with socket.create_connection((node.address, 22), timeout=seconds) as connection:
                    if connection.recv(4) == b"SSH-":
                        break
            except OSError:
                pass
            wanted()
            if os.waitpid(-1, os.WNOHANG) != (0, 0):
                raise RuntimeError("a node ended during its start; see its error above")
            if time.monotonic() > deadline:
                reason = node.log.read_text() if node.log.exists() else ""
                raise RuntimeError(f"{node.name} does not answer on port 22\n{reason}")
            time.sleep(0.05)


def hold(lab, status, lease):
    directory = Path(lab["directory"])

    def wanted():
        """Stop if the process that requested this lab ended before the lab was running."""
        if select.select([lease], [], [], 0)[0]:
            raise SystemExit("cancelled before the lab was running")

    store = directory / "root"
    mount("tmpfs", store, "tmpfs", MS_NODEV, f"mode=755,size={lab['storage_size']}")
    os.chdir(store)
    Path("base").mkdir()
    subprocess.run(
        ["tar", "-C", "base", "--numeric-owner", "--xattrs", "--xattrs-include=security.capability",
         "--exclude=./dev/*", "-xpf", lab["base"]],
        check=True,
    )  # fmt: skip
    lab["overlay"] = overlay_kind("base")
    say(f"base unpacked, overlay: {lab['overlay']}")
    wanted()
    without_ipv6()
    ip(
        "link set lo up",
        # With its own MAC address. Else it has its ports' lowest one, which changes when a node
        # stops; then packets from other nodes are lost until they resolve it again.
        f"link add lab0 address {BRIDGE_MAC} type bridge forward_delay 0",
        f"addr add {lab['bridge_address']}/24 brd + dev lab0",
        "link set lab0 up",
    )
    mirror = {serve_mirror(lab): "the mirror"}
    nodes = [Node(number, lab) for number in range(1, lab["nodes"] + 1)]
    names = start_nodes(nodes)
    say("nodes started")
    wait_for_sshd(nodes, lab["timeout"], wanted)
    say("all nodes answer")
    os.write(status, b"ready\n")
    os.close(status)
    if os.read(lease, 5) != b"keep\n":
        raise SystemExit("cancelled before the lab was running")
    while True:
        try:
            process, status = os.wait()
        except ChildProcessError:
            time.sleep(3600)  # all nodes and the mirror have ended, but the lab has not
        else:
            name = (names | mirror).get(process, f"process {process}")
            say(f"{name} ended with {os.waitstatus_to_exitcode(status)}")


def main():
    lab, status, lease = json.loads(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    os.environ["PATH"] = NODE_ENVIRONMENT["PATH"] + ":" + os.environ.get("PATH", "")
    os.umask(0o022)
    for pipe in (status, lease):
        os.set_inheritable(pipe, False)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        hold(lab, status, lease)
    except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
        sys.exit(f"the lab cannot start: {error}")


if __name__ == "__main__":
    main()
