"""Start or stop the lab, or check whether this machine can run it.

    lab_control.py base --suite bookworm --base FILE
    lab_control.py up --directory DIR --nodes 4 --suite bookworm --base FILE --mirror-dir DIR
    lab_control.py down --directory DIR
    lab_control.py check --base FILE

Prints one JSON object, or exits with status 1 and a reason on stderr. Uses only the standard
library. A lab is one process tree in its own namespaces (lab_holder.py): killing its first process
removes all processes, mounts, network links and namespaces of the lab.
"""

import argparse
import contextlib
import fcntl
import getpass
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

NETWORK = "10.11.0"
MIRROR_PORT = 8010
MAX_CONTROL_PATH = 107 - 28
MAX_NODES = 253  # 10.11.0.2 to 10.11.0.254

PACKAGES = "openssh-server,python3,python3-apt,sudo,iproute2,tini"
# Command: its package
PROGRAMS = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "ip": "iproute2",
    "tar": "tar",
    "ssh": "openssh-client",
    "ssh-keygen": "openssh-client",
    "nc.openbsd": "netcat-openbsd",
}
PROGRAMS_OF_USER = {"newuidmap": "uidmap", "newgidmap": "uidmap"}
PROGRAMS_OF_BASE = {"mmdebstrap": "mmdebstrap", "apt-get": "apt", "gpgv": "gpgv"}
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"

# Contents of a lab's directory. Nothing else is ever removed from it, and nothing at all from a
# directory without the mark.
MARK = ".dlperf-lab"
STATE = (
    "lab.json",
    "ssh_config",
    "known_hosts",
    "id_ed25519",
    "id_ed25519.pub",
    "holder.log",
    "container_images.json",
)
STATE_DIRECTORIES = ("host_keys", "log", "cm", "root")

# Tried first, in new namespaces, to find out which operation a machine forbids.
TRIAL = """
step() { what=$1; shift; "$@" || { echo "refused: $what" >&2; exit 1; }; }
step "a tmpfs (mount -t tmpfs)" mount -t tmpfs tmpfs /mnt
mkdir /mnt/base /mnt/upper /mnt/work /mnt/root /mnt/proc
step "a network bridge (ip link add type bridge)" ip link add lab0 type bridge
step "network interfaces in pairs (ip link add type veth)" ip link add v0 type veth peer name v1
step "/proc in a process namespace (masked in a container?)" mount -t proc proc /mnt/proc
step "/sys in a network namespace (masked in a container?)" mount -t sysfs -o ro sysfs /mnt/base
"""


class LabError(Exception):
    """The message says what is wrong and what to do."""


def search_path():
    return os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin"


def unshare_argv(*, network):
    """The command that starts a process tree in new namespaces; killing it removes everything."""
    argv = ["unshare"]
    if os.geteuid() != 0:
        argv += ["--user", "--map-auto", "--map-root-user"]
    if network:
        argv += ["--net", "--uts", "--ipc"]
    return [*argv, "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
            "--mount-proc", "--"]  # fmt: skip


def require_programs(programs):
    path = search_path()
    missing = {
        name: package for name, package in programs.items() if not shutil.which(name, path=path)
    }
    if missing:
        raise LabError(
            f"missing: {', '.join(missing)}. "
            f"Install with: apt-get install {' '.join(sorted(set(missing.values())))}"
        )


def has_subordinate_ids(path, user, uid):
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return False
    fields = [line.split(":") for line in lines]
    return any(len(f) == 3 and f[0] in (user, str(uid)) and int(f[2]) >= 65535 for f in fields)


def check(base=None):
    """Raise LabError if this machine or this user cannot run a lab.

    If the base root filesystem does not exist yet, the programs that build it are required too.
    """
    programs = PROGRAMS | ({} if os.geteuid() == 0 else PROGRAMS_OF_USER)
    make = base and not base.exists()
    require_programs(programs | PROGRAMS_OF_BASE if make else programs)
    if make and not Path(KEYRING).exists():
        raise LabError(f"missing: {KEYRING}. Install with: apt-get install debian-archive-keyring")
    user = getpass.getuser()
    if os.geteuid() != 0:
        for path, option in (("/etc/subuid", "--add-subuids"), ("/etc/subgid", "--add-subgids")):
            if not has_subordinate_ids(path, user, os.getuid()):
                raise LabError(
                    f"{path} has no 65536 subordinate ids for {user}. "
                    f"Run once as root: usermod {option} 100000-165535 {user} "
                    "(with a range that no other user has)"
                )
    done = subprocess.run(
        [*unshare_argv(network=True), "sh", "-c", TRIAL],
        check=False, capture_output=True, text=True,
        env={**os.environ, "PATH": search_path(), "LC_ALL": "C"},
    )  # fmt: skip
    if done.returncode != 0:
        raise LabError(f"this machine does not allow the lab: {done.stderr.strip()}{way_out()}")


def way_out():
    """Hints on how to allow namespaces, from the machine's settings."""
    hints = []
    for switch, allowed in (
        ("kernel/unprivileged_userns_clone", "1"),
        ("kernel/apparmor_restrict_unprivileged_userns", "0"),
    ):
        with contextlib.suppress(OSError):
            if os.geteuid() != 0 and Path("/proc/sys", switch).read_text().strip() != allowed:
                hints.append(f"sysctl -w {switch.replace('/', '.')}={allowed}")
    with contextlib.suppress(OSError):
        if Path("/proc/sys/user/max_user_namespaces").read_text().strip() == "0":
            hints.append("sysctl -w user.max_user_namespaces=10000")
    if hints:
        return f"\nThe kernel's settings forbid it. Run as root: {' && '.join(hints)}"
    if os.geteuid() != 0:
        return "\nTry the same command as root. If that fails, too, use -i inventory/local."
    return "\nStart a container with --privileged. If that is impossible, use -i inventory/local."


# --- the base root filesystem ---------------------------------------------------------------


def debian_mirror():
    """The Debian archive in this machine's apt sources, or else deb.debian.org."""
    with contextlib.suppress(OSError):
        done = subprocess.run(
            ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
        for address in done.stdout.split():
            if re.fullmatch(r"https?://\S+/debian/?", address):
                return address
    return "http://deb.debian.org/debian"


def apt_options():
    """mmdebstrap's options for the proxy in this machine's apt configuration, if any."""
    done = subprocess.run(
        ["apt-config", "dump", "Acquire::http", "Acquire::https"],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    wanted = [
        line for line in done.stdout.splitlines() if re.match(r"Acquire::https?::Proxy", line)
    ]
    return [f"--aptopt={line}" for line in wanted]


def make_base(suite, target, mirror, *, dry_run=False):
    """Build the tar of a bare Debian with mmdebstrap, on a tmpfs that ends with the process."""
    if target.exists():
        return False
    if dry_run:
        return True
    check(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{os.getpid()}.tar")
    command = [
        "mmdebstrap", "--mode=root", "--variant=minbase", f"--include={PACKAGES}",
        # Without device nodes: a user namespace cannot create them; nodes mount a /dev.
        "--skip=output/mknod,output/dev", *apt_options(),
        # Remove this machine's host name and resolver, and host keys: every node gets its own.
        '--customize-hook=rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/etc/ssh/ssh_host_*',
        suite, str(part.resolve()), f"deb {mirror or debian_mirror()} {suite} main",
    ]  # fmt: skip
    # The tree is on the process's own tmpfs, so nothing is left however it ends. It is mounted
    # on a folder that all users can access (unlike a home) and that does not contain the target.
    place = next(p for p in ("/tmp", "/mnt", "/media") if not part.resolve().is_relative_to(p))  # noqa: S108
    script = f"mount -t tmpfs -o mode=1777 tmpfs {place} && exec {shlex.join(command)}"
    process = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", *unshare_argv(network=False), "sh", "-c", script],
        env={**os.environ, "PATH": search_path(), "TMPDIR": place}, cwd="/",
        stdin=subprocess.DEVNULL, stdout=part.open("wb"), stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        _, messages = process.communicate()
        if process.returncode != 0:
            tail = "\n".join(messages.splitlines()[-12:])
            raise LabError(f"mmdebstrap failed to build {suite}:\n{tail}")
        part.rename(target)
    finally:
        process.kill()
        process.wait()
        part.unlink(missing_ok=True)
    return True


# --- the state of a lab ---------------------------------------------------------------------


@contextlib.contextmanager
def only_one(directory):
    """Let only one process at a time start or stop this lab; others wait."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
        with contextlib.suppress(OSError):
            directory.rmdir()  # fails unless it is empty


def process_start(pid):
    """Start time of a process in the kernel's ticks; None if it has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def only_child(parent):
    """The process started by `unshare --fork` (not every kernel has /proc/<pid>/.../children)."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                return int(stat.parent.name)
    raise LabError("the lab's process ended during the start")


def read_state(directory):
    """The content of lab.json and `alive`; None if there is none."""
    try:
        state = json.loads((directory / "lab.json").read_text())
    except (OSError, ValueError):
        return None
    state["alive"] = process_start(state["pid"]) == state["started"]
    return state


def write_whole(path, text):
    part = path.with_name(f".{path.name}.part")
    part.write_text(text)
    part.rename(path)


def close_connections(directory):
    """Close the SSH connections that Ansible keeps open between tasks."""
    sockets = directory / "cm"
    for control_path in sockets.iterdir() if sockets.is_dir() else ():
        subprocess.run(
            ["ssh", "-F", "none", "-O", "exit", "-o", f"ControlPath={control_path}", "lab"],
            check=False, capture_output=True, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def kill_holder(pid, supervisor):
    """Kill the first process of the lab's process namespace, and wait until all have ended.

    Its parent, the unshare command, ends after the kernel has ended every process in the namespace.
    """
    for target in (pid, supervisor):
        with contextlib.suppress(ProcessLookupError):
            os.kill(target, signal.SIGKILL)
        deadline = time.monotonic() + 30
        while process_start(target) is not None:
            if time.monotonic() > deadline:
                raise LabError(f"the lab's process {target} did not end within 30 s after SIGKILL")
            time.sleep(0.01)


def remove_state(directory):
    for name in STATE:
        (directory / name).unlink(missing_ok=True)
    for name in STATE_DIRECTORIES:
        path = directory / name
        shutil.rmtree(path.resolve(), ignore_errors=True)
        if path.is_symlink():
            path.unlink()
    (directory / MARK).unlink(missing_ok=True)


def down(directory, *, dry_run=False):
    """Stop the lab and remove its files; return whether there was anything to do."""
    if not (directory / MARK).exists():
        return False
    if dry_run:
        return True
    state = read_state(directory)
    close_connections(directory)
    if state and state["alive"]:
        kill_holder(state["pid"], state["supervisor"])
    remove_state(directory)
    return True


# --- up -------------------------------------------------------------------------------------


def make_control_directory(directory):
    """Create cm/ for the sockets of Ansible's SSH connections, as a link if its path is too long.

    A socket's path can have 107 bytes, and the socket's name and ssh's suffix need 28 of them.
    """
    control = directory / "cm"
    if len(os.fsencode(control)) <= MAX_CONTROL_PATH:
        control.mkdir(exist_ok=True)
    else:
        control.symlink_to(tempfile.mkdtemp(prefix="dlperf-lab-"))


def make_key(path, comment):
    subprocess.run(
        ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(path)], check=True
    )


def make_keys(directory, nodes):
    """Create the operator's key, a host key for every node, and known_hosts."""
    (directory / "host_keys").mkdir()
    make_key(directory / "id_ed25519", "operator of the lab")
    known = []
    for number in range(1, nodes + 1):
        path = directory / "host_keys" / f"node{number}"
        make_key(path, path.name)
        kind, key = path.with_suffix(".pub").read_text().split()[:2]
        known.append(f"node{number},{NETWORK}.{number + 1} {kind} {key}\n")
    (directory / "known_hosts").write_text("".join(known))


def ssh_config(directory, nodes, pid):
    """The configuration for ssh from outside the lab's network.

    nc connects inside this network and passes the socket to ssh (ProxyUseFdpass), so that no
    process stays in between.
    """
    enter = "nsenter --net" if os.geteuid() == 0 else "nsenter --preserve-credentials --user --net"
    quoted = str(directory).replace("%", "%%")
    names = "".join(
        f"Host node{number}\n  HostName {NETWORK}.{number + 1}\n" for number in range(1, nodes + 1)
    )
    return f"""# The lab's nodes: ssh -F {directory}/ssh_config node1
{names}Host node* {NETWORK}.*
  User root
  IdentityFile "{quoted}/id_ed25519"
  IdentitiesOnly yes
  PreferredAuthentications publickey
  UserKnownHostsFile "{quoted}/known_hosts"
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  ProxyUseFdpass yes
  ProxyCommand {enter} --target {pid} nc.openbsd -w 5 -F %h %p
"""


def start_holder(lab, directory):
    """Start the holder; return its process, the pipe from it and the pipe to it."""
    status_read, status_write = os.pipe()
    lease_read, lease_write = os.pipe()
    holder = Path(__file__).with_name("lab_holder.py")
    with (directory / "holder.log").open("wb") as log:
        process = subprocess.Popen(
            [*unshare_argv(network=True), sys.executable, "-I", str(holder),
             json.dumps(lab), str(status_write), str(lease_read)],
            env={**os.environ, "PATH": search_path()}, cwd="/", start_new_session=True,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(status_write, lease_read),
        )  # fmt: skip
    os.close(status_write)
    os.close(lease_read)
    return process, status_read, lease_write


def write_state(directory, state):
    write_whole(directory / "lab.json", json.dumps(state, indent=2) + "\n")


def up(directory, config, frameworks=(), *, dry_run=False):
    """Start the lab unless it is already running like this; return whether anything changed.

    `frameworks` are the nodes' frameworks in the inventory; an empty list keeps the current ones.
    """
    state = read_state(directory)
    if state and state["alive"] and all(state.get(key) == value for key, value in config.items()):
        if not frameworks or list(frameworks) == state.get("frameworks"):
            return False
        if not dry_run:
            del state["alive"]
            write_state(directory, {**state, "frameworks": list(frameworks)})
        return True
    if dry_run:
        return True
    require_programs(PROGRAMS)
    down(directory)
    for name in STATE_DIRECTORIES:
        with contextlib.suppress(OSError):
            (directory / name).rmdir()  # Ansible creates cm/ even if the lab is not running
    taken = [name for name in (*STATE, *STATE_DIRECTORIES) if (directory / name).exists()]
    if taken:
        raise LabError(
            f"lab_dir {directory} is not a lab's directory: it contains {', '.join(taken)}."
            " Choose another lab_dir"
        )
    (directory / MARK).touch()
    for name in ("log", "root"):
        (directory / name).mkdir(exist_ok=True)
    make_control_directory(directory)
    Path(config["mirror_dir"]).mkdir(parents=True, exist_ok=True)
    process = None
    try:
        make_keys(directory, config["nodes"])
        lab = {
            **config, "directory": str(directory), "network": NETWORK,
            "bridge_address": f"{NETWORK}.1", "mirror_port": MIRROR_PORT,
            "timeout": 30 + config["nodes"],
        }  # fmt: skip
        process, status, lease = start_holder(lab, directory)
        if os.read(status, 6) != b"ready\n":
            process.wait()
            check()  # gives a better message if the machine forbids labs
            log = (directory / "holder.log").read_text(errors="replace").strip()
            raise LabError(f"the lab did not start:\n{log}")
        pid = only_child(process.pid)
        write_whole(directory / "ssh_config", ssh_config(directory, config["nodes"], pid))
        state = {**config, "pid": pid, "started": process_start(pid), "supervisor": process.pid}
        write_state(directory, {**state, "frameworks": list(frameworks)})
        os.write(lease, b"keep\n")
    except BaseException:
        if process:
            process.kill()
            process.wait()
        close_connections(directory)
        remove_state(directory)
        raise
    return True


def options(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    base = actions.add_parser("base")
    base.add_argument("--mirror", default="")
    bring_up = actions.add_parser("up")
    take_down = actions.add_parser("down")
    only_check = actions.add_parser("check")
    for action in (bring_up, take_down):
        action.add_argument("--directory", type=Path, required=True)
    for action in (base, bring_up):
        action.add_argument("--suite", required=True)
    for action in (base, bring_up, only_check):
        action.add_argument("--base", type=Path, required=True)
    for action in (base, bring_up, take_down):
        action.add_argument("--dry-run", action="store_true", help="only report what would change")
    bring_up.add_argument("--nodes", type=int, required=True)
    bring_up.add_argument("--mirror-dir", required=True)
    bring_up.add_argument("--storage-size", default="50%")
    bring_up.add_argument("--frameworks", default="", help="separated by commas")
    return parser.parse_args(argv)


def run(chosen):
    if chosen.action == "base":
        return make_base(chosen.suite, chosen.base, chosen.mirror, dry_run=chosen.dry_run)
    if chosen.action == "down":
        directory = chosen.directory.absolute()
        with only_one(directory):
            return down(directory, dry_run=chosen.dry_run)
    if chosen.action == "check":
        check(chosen.base)
        return False
    if not 1 <= chosen.nodes <= MAX_NODES:
        raise LabError(f"lab_nodes is {chosen.nodes}; expected 1 to {MAX_NODES}")
    config = {
        "nodes": chosen.nodes,
        "suite": chosen.suite,
        "base": str(chosen.base.absolute()),
        "mirror_dir": str(Path(chosen.mirror_dir).absolute()),
        "storage_size": chosen.storage_size,
    }
    directory = chosen.directory.absolute()
    with only_one(directory):
        frameworks = [name for name in chosen.frameworks.replace(" ", "").split(",") if name]
        return up(directory, config, frameworks, dry_run=chosen.dry_run)


def main(argv=None):
    chosen = options(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
    try:
        changed = run(chosen)
    except LabError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit("interrupted")
    print(json.dumps({"changed": changed}))


if __name__ == "__main__":
    main()
