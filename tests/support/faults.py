"""Faults that a test can cause while a campaign runs on two nodes, as data: what happens, how it is
caused, and the category of the run that suffers it."""

from dataclasses import dataclass, field

RANK, ORTED, MPIRUN = "^[^ ]*python.*fault_program", "orted", "^/usr/bin/mpirun"
DONE = "done"
AT_START = "hung before its first steps"


@dataclass(frozen=True)
class Fault:
    """`before`: by shell on the node, before the run starts; `training`: while it trains; `undo`:
    afterwards. `program`: what the node's rank does."""

    name: str
    how: str
    outcome: str
    node: str = "node2"
    program: str = field(default="", kw_only=True)
    before: str = field(default="", kw_only=True)
    training: str = field(default="", kw_only=True)
    undo: str = field(default="", kw_only=True)


def program(name: str, how: str, outcome: str, what: str, *, node: str = "node2") -> Fault:
    return Fault(name, how, outcome, node, program=what)


def signalled(name: str, number: str, pattern: str, outcome: str, node: str = "node2") -> Fault:
    kill = f"kill -{number} $(pgrep -u dlperf -f '{pattern}' | tail -n 1)"
    return Fault(name, f"SIG{number}", outcome, node, training=kill)


def mounted(name: str, how: str, outcome: str, what: str, options: str, directory: str) -> Fault:
    """The program's rank writes into a file system that is mounted for it."""
    mount = f"mkdir -p {directory} && mount -t tmpfs -o {options} tmpfs {directory}"
    return Fault(name, how, outcome, program=what, before=mount, undo=f"umount {directory}")


def moved(name: str, how: str, outcome: str, path: str, node: str = "node2") -> Fault:
    away = f"{path}.away"
    return Fault(name, how, outcome, node, before=f"mv {path} {away}", undo=f"mv {away} {path}")


def replaced(name: str, how: str, outcome: str, path: str, edit: str, node: str) -> Fault:
    """With a file of the node changed by sed."""
    change = f"cp -a {path} {path}.before && sed -i '{edit}' {path}"
    return Fault(name, how, outcome, node, before=change, undo=f"mv {path}.before {path}")


def full(name: str, how: str, outcome: str, directory: str, node: str = "node1") -> Fault:
    mount = f"mount -t tmpfs -o size=64k,mode=1777 tmpfs {directory}"
    fill = f"head -c 64k /dev/zero > {directory}/filler || true"
    return Fault(name, how, outcome, node, before=f"{mount}; {fill}", undo=f"umount {directory}")


OTHER_PORT = (
    "sed -i '/^Port/d' /etc/ssh/sshd_config; sed -i '1i Port {}' /etc/ssh/sshd_config;"
    " kill -HUP $(pgrep -o -x sshd)"
)
# Many, because the tests' machine may be busy, and each in a session, because the kernel shares the
# CPU among sessions; until one has used half a second.
BURN = (
    "exec >/dev/null 2>&1; for n in $(seq 16); do"
    " setsid setpriv --reuid=4711 --clear-groups sh -c 'while :; do :; done' & done;"
    " until [ $(cut -d ' ' -f 14 /proc/$!/stat) -gt 50 ]; do sleep 0.2; done"
)

QUICK = (
    program("out of memory in a rank", "allocates 4 EiB", "out of memory", "memory"),
    signalled("rank on node2 stopped", "STOP", RANK, "hung"),
    Fault(
        "sshd of node2 refuses",
        "listens on another port",
        "ssh refused",
        before=OTHER_PORT.format(2222),
        undo=OTHER_PORT.format(22),
    ),
)
FAULTS = (
    *QUICK,
    # ---- the program
    mounted(
        "disk full on a node",
        "writes 64 MiB to a file system of 1 MiB",
        "disk full",
        "disk",
        "size=1m,mode=1777",
        "/opt/dlperf/runs/full",
    ),
    mounted(
        "read-only file system on a node",
        "writes to one",
        "read-only file system",
        "read-only",
        "ro",
        "/home/dlperf/readonly",
    ),
    program("rank crashes", "SIGSEGV", "killed by a signal", "crash"),
    program("rank exits without a message", "`_exit(3)`", "program failed", "exit"),
    program("rank calls MPI_Abort", "`Abort(7)`", "program failed", "abort"),
    program("error of the program", "ValueError in one rank", "hung", "value"),
    program("missing Python module", "imports it", "missing software", "module"),
    program("missing library", "dlopen", "missing software", "library"),
    program("name that does not resolve", "connects to it", "name resolution", "resolve"),
    program("address without a route", "connects to it", "no route", "route"),
    program(
        "wrong network interface", "a rank that uses `lo` only", "wrong interface", "interface"
    ),
    program("rank sleeps", "3600 s within a step", "hung", "silent"),
    program("rank stops before its first step", "SIGSTOP", AT_START, "first-stops"),
    program("rank computes for ever before its first step", "a loop", AT_START, "first-spins"),
    program(
        "rank leaves 30 children and fails",
        "own sessions, ignore TERM",
        "program failed",
        "orphans",
    ),
    program("rank leaves 30 children and ends well", "own sessions, ignore TERM", DONE, "children"),
    program("log garbled", "8 KiB of no text between two steps", DONE, "garbled", node="node1"),
    program("log truncated", "to 200 bytes while it is written", DONE, "truncated", node="node1"),
    # ---- processes, while it trains
    signalled("rank on node1 stopped", "STOP", RANK, "hung", "node1"),
    signalled("rank on node2 killed", "KILL", RANK, "killed by a signal"),
    signalled("mpirun's daemon on node2 killed", "KILL", ORTED, "node lost"),
    signalled("mpirun stopped", "STOP", MPIRUN, "hung", "node1"),
    signalled("mpirun killed", "KILL", MPIRUN, "killed by a signal", "node1"),
    Fault(
        "supervisor killed",
        "SIGKILL",
        "node lost",
        "node1",
        training="kill -KILL $(ps -o ppid= -p $(pgrep -u dlperf -x mpirun))",
    ),
    Fault(
        "the controller's connections to node1 cut",
        "SIGKILL for its sshd sessions",
        DONE,
        "node1",
        training="pkill -KILL -f '^sshd: root@notty'",
    ),
    # ---- nodes, before a run
    moved(
        "node2 no longer takes the user's key",
        "authorized_keys removed",
        "ssh refused",
        "/home/dlperf/.ssh/authorized_keys",
    ),
    replaced(
        "wrong host key of node2",
        "in known_hosts of node1",
        "ssh refused",
        "/etc/ssh/ssh_known_hosts",
        "/node2/s/AAAAC3NzaC1lZDI1NTE5AAAAI[A-Za-z0-9]/AAAAC3NzaC1lZDI1NTE5AAAAIz/",
        "node1",
    ),
    replaced(
        "name of node2 does not resolve",
        "removed from /etc/hosts of node1, no DNS",
        "name resolution",
        "/etc/hosts",
        "/node2/d",
        "node1",
    ),
    Fault(
        "no route from node1 to node2",
        "route removed",
        "node lost",
        "node1",
        before="ip route add unreachable 10.11.0.3/32",
        undo="ip route del unreachable 10.11.0.3/32",
    ),
    moved("environment of node2 removed", "renamed", "MPI start", "/opt/dlperf/envs"),
    moved("mpirun of node1 removed", "renamed", "missing software", "/usr/bin/mpirun", "node1"),
    Fault(
        "home of node2 read-only",
        "mounted again",
        DONE,
        before="mount --bind /home/dlperf /home/dlperf && mount -o remount,bind,ro /home/dlperf",
        undo="umount /home/dlperf",
    ),
    full(
        "disk of the runs full on node1",
        "a full file system of 64 KiB",
        "disk full",
        "/opt/dlperf/runs",
    ),
    full("/tmp full on node2", "a full file system of 64 KiB", "disk full", "/tmp", "node2"),
    Fault(
        "somebody else's process on node2",
        "computes as another user",
        "node busy",
        before=BURN,
        undo="pkill -KILL -u 4711",
    ),
)
