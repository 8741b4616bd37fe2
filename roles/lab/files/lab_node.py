"""A node of the lab: its file system, network and identity, up to its first process.

    tmpfs <directory>/root    base/                  the base root filesystem, shared by all nodes
                              nodes/<n>/{upper,work,root}     changes of node n and its overlay
    node n                    own mount, network, process, host name and IPC namespaces; bash, sshd

Uses only the standard library and the commands ip, mount, tar and pivot_root.
"""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC = 0x00020000, 0x04000000, 0x08000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT = 1, 2, 4, 8, 32
MS_BIND, MS_REC = 4096, 16384
MNT_DETACH = 2

DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
DEVICE_LINKS = {
    "ptmx": "pts/ptmx",
    "fd": "/proc/self/fd",
    "stdin": "/proc/self/fd/0",
    "stdout": "/proc/self/fd/1",
    "stderr": "/proc/self/fd/2",
}
# If root runs the lab without a user namespace, these capabilities would affect the machine itself.
DROPPED_CAPABILITIES = {"sys_module": 16, "sys_rawio": 17, "sys_time": 25, "mknod": 27}
PR_CAPBSET_DROP = 24
# A node's first process: it starts the server, ends all that the node runs when it is told to end,
# and reaps what others leave. bash, because every system has it; Rocky Linux and Ubuntu's main
# component have no tini. Job control (-m) gives the server a group of its own, and SIGINT.
INIT = Path("run/lab/lab-init")  # Ansible takes a name that ends in sh for no service manager
INIT_SCRIPT = """
set -m
"$@" &
server=$!
trap 'kill -TERM -- -$server' INT TERM
while wait $server; kill -0 $server 2> /dev/null; do :; done
wait $server  # again: a signal can have ended the wait before
"""
SERVER = ["/usr/sbin/sshd", "-D", "-e"]
NODE_ENVIRONMENT = {
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME": "/root",
    "container": "dlperf-lab",  # facts and roles detect a container by this variable
}

libc = ctypes.CDLL(None, use_errno=True)


def say(text):
    print(time.strftime("%H:%M:%S"), text, file=sys.stderr, flush=True)


def unshare(flags):
    if libc.unshare(flags) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), "unshare")


def mount(source, target, kind="", flags=0, options=""):
    done = libc.mount(
        os.fsencode(source), os.fsencode(target), kind.encode(), flags, options.encode()
    )
    if done != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"mount {kind or source} {options}: {os.strerror(number)}", target)


def bind(source, target):
    mount(source, target, flags=MS_BIND)


def ip(*lines):
    """Run lines of the command ip in one process."""
    done = subprocess.run(
        ["ip", "-batch", "-"], check=False, input="\n".join(lines) + "\n",
        text=True, capture_output=True,
    )  # fmt: skip
    if done.returncode != 0:
        raise RuntimeError(f"ip: {done.stderr.strip()}\nin: {lines[0]} ...")


def without_ipv6():
    """Turn IPv6 off: it is not used, and the announcements of 64 nodes would take time."""
    for scope in ("all", "default"):
        switch = Path(f"/proc/sys/net/ipv6/conf/{scope}/disable_ipv6")
        if switch.exists():
            switch.write_text("1")


class Node:
    """Name, address and paths of node n; paths are relative to the tmpfs."""

    def __init__(self, number, lab):
        self.number = number
        self.name = f"node{number}"
        self.address = f"{lab['network']}.{number + 1}"
        self.lab = lab
        self.changes = Path(f"nodes/{number}/upper")
        self.work = Path(f"nodes/{number}/work")
        self.root = Path(f"nodes/{number}/root")
        self.images = Path(f"nodes/{number}/images")
        self.keys = Path(lab["directory"]) / "host_keys"
        self.log = Path(lab["directory"]) / "log" / f"{self.name}.log"


def overlay_kind(directory):
    """The kind of the nodes' overlays, see mount_root; tests set DLPERF_LAB_OVERLAY."""
    if os.environ.get("DLPERF_LAB_OVERLAY"):
        return os.environ["DLPERF_LAB_OVERLAY"]
    for kind, attribute in (("trusted", "trusted.overlay.t"), ("user", "user.overlay.t")):
        try:
            os.setxattr(directory, attribute, b"y")
        except OSError:
            continue
        return kind
    return "copy"


def mount_root(node):
    """Mount the node's root: an overlay of the node's own changes over the base.

    Overlays on tmpfs need trusted.* attributes, which only the machine's root can write, or user.*
    attributes, which tmpfs supports since Linux 6.6. On an older kernel, nodes of an ordinary user
    get a copy of the base.
    """
    for directory in (node.changes, node.work, node.root):
        directory.mkdir(parents=True)
    if node.lab["overlay"] == "copy":
        subprocess.run(["cp", "-a", "base/.", str(node.root)], check=True)
        mount(node.root, node.root, flags=MS_BIND)
        return
    options = f"lowerdir=base,upperdir={node.changes},workdir={node.work}"
    if node.lab["overlay"] == "user":
        options += ",userxattr"
    mount("overlay", node.root, "overlay", 0, options)


def mount_devices(root):
    """Mount a /dev with the machine's devices that are harmless, and terminals of its own."""
    (root / "dev").mkdir(exist_ok=True)
    mount("tmpfs", root / "dev", "tmpfs", MS_NOSUID, "mode=755,size=1m")
    for name in DEVICES:
        (root / "dev" / name).touch()
        bind(f"/dev/{name}", root / "dev" / name)
    for name, target in DEVICE_LINKS.items():
        (root / "dev" / name).symlink_to(target)
    (root / "dev/pts").mkdir()
    mount("devpts", root / "dev/pts", "devpts", 0, "newinstance,ptmxmode=0666,mode=620,gid=5")


def mount_kernel(node):
    """Mount /proc, /sys, /dev and /run of the node. The machine's own parts are read-only."""
    root = node.root
    mount("proc", root / "proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    bind(root / "proc/sys", root / "proc/sys")
    bind(root / "proc/sys/net", root / "proc/sys/net")  # belongs to the node and stays writable
    mount("none", root / "proc/sys", flags=MS_BIND | MS_REMOUNT | MS_RDONLY)
    mount("sysfs", root / "sys", "sysfs", MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC)
    mount_devices(root)
    (root / "dev/mqueue").mkdir()
    (root / "dev/shm").mkdir()
    mount("tmpfs", root / "dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    mount("tmpfs", root / "run", "tmpfs", MS_NOSUID | MS_NODEV, "mode=755")
    for name, mode in (("lock", 0o1777), ("sshd", 0o755)):
        (root / "run" / name).mkdir()
        (root / "run" / name).chmod(mode)


def mount_for_containers(node):
    """Mount what rootless container engines need on a node.

    They need a /proc without mounts over it (else the kernel refuses a container's own /proc, and
    /proc/sys is covered above), an ordinary folder in place of a cgroup, and a folder for images
    that is not an overlay.
    """
    uncovered = node.root / "run/lab/proc"
    uncovered.mkdir(parents=True)
    uncovered.parent.chmod(0o700)
    mount("proc", uncovered, "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    cgroup = node.root / "sys/fs/cgroup"
    if cgroup.is_dir():
        mount("tmpfs", cgroup, "tmpfs", MS_NOSUID | MS_NODEV | MS_NOEXEC, "mode=755,size=64k")
    images = node.root / "var/lib/containers"
    for directory in (images, node.images):
        directory.mkdir(parents=True, exist_ok=True)
    bind(node.images, images)


def mount_shared(node):
    """Show all nodes one folder of the machine, in place of NFS, whose server needs the kernel."""
    if node.lab["shared_dir"]:
        (node.root / "shared").mkdir(exist_ok=True)
        bind(node.lab["shared_dir"], node.root / "shared")


def write_identity(node):
    """Write the node's name, addresses, host key, and the operator's key."""
    etc = node.root / "etc"
    (etc / "hostname").write_text(f"{node.name}\n")
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{node.address} {node.name}\n")
    # Nothing listens there, so a DNS query fails at once instead of after many seconds. Not the
    # bridge's address, because the kernel limits its "port unreachable" replies to other hosts.
    (etc / "resolv.conf").unlink(missing_ok=True)
    (etc / "resolv.conf").write_text("nameserver 127.0.0.1\n")
    for suffix, mode in (("", 0o600), (".pub", 0o644)):
        key = etc / f"ssh/ssh_host_ed25519_key{suffix}"
        shutil.copyfile(node.keys / f"{node.name}{suffix}", key)
        key.chmod(mode)
    trusted = node.root / "root/.ssh/authorized_keys"
    trusted.parent.mkdir(mode=0o700, exist_ok=True)
    shutil.copyfile(Path(node.lab["directory"]) / "id_ed25519.pub", trusted)
    trusted.chmod(0o600)
    # Ansible's modules would warn that they have to make it.
    (node.root / "root/.ansible/tmp").mkdir(mode=0o700, parents=True, exist_ok=True)
    socket.sethostname(node.name)


def enter_root(root):
    """Make root this process's / and hide the machine's file systems."""
    os.chdir(root)
    subprocess.run(["pivot_root", ".", "."], check=True)
    if libc.umount2(b".", MNT_DETACH) != 0:
        raise OSError(ctypes.get_errno(), "umount2")
    os.chdir("/")


def run_node(node, ready, gate, started):
    """Start the node: this process ends, and its child is the node's first process."""
    unshare(CLONE_NEWNET)
    os.write(ready, b".")
    os.close(ready)
    os.read(gate, 1)  # wait until the holder has created eth0 here
    os.close(gate)
    without_ipv6()
    ip(
        "link set lo up",
        f"addr add {node.address}/24 brd + dev eth0",
        "link set eth0 up",
        "route add unreachable default",
    )
    unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID)
    first = os.fork()
    if first:
        os.write(started, f"{first} {node.name}\n".encode())
        return
    os.close(started)
    mount_root(node)
    mount_kernel(node)
    mount_for_containers(node)
    mount_shared(node)
    write_identity(node)
    with node.log.open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    enter_root(node.root)
    INIT.symlink_to("/bin/bash")
    for capability in DROPPED_CAPABILITIES.values():
        if libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0:
            raise OSError(ctypes.get_errno(), "prctl")
    for number in (signal.SIGTERM, signal.SIGCHLD, signal.SIGINT):
        signal.signal(number, signal.SIG_DFL)
    os.setsid()
    argv = [INIT.name, "-c", INIT_SCRIPT, INIT.name, *SERVER]
    os.execve(f"/{INIT}", argv, NODE_ENVIRONMENT)  # noqa: S606 - argv is constant
