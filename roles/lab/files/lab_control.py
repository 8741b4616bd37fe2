"""Start or stop the lab, or check whether this machine can run it.

    lab_control.py base --suite bookworm --base FILE [--rootfs FOLDER|TARBALL|URL]
    lab_control.py up --directory DIR --nodes 4 --suite bookworm --base FILE --mirror-dir DIR
    lab_control.py down --directory DIR
    lab_control.py check --base FILE

Prints one JSON object (`base` is the tar that `up` needs), or exits with status 1 and a reason on
stderr. Uses only the standard library. A lab is one process tree in its own namespaces
(lab_holder.py): killing its first process removes all its processes, mounts, network links and
namespaces.
"""

import argparse
import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # python -I leaves this folder out

from lab_machine import (
    PROGRAMS,
    LabError,
    check,
    make_base,
    require_programs,
    search_path,
    unshare_argv,
)

NETWORK = "10.11.0"
MIRROR_PORT = 8010
MAX_CONTROL_PATH = 107 - 28
MAX_NODES = 253  # 10.11.0.2 to 10.11.0.254

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


@contextlib.contextmanager
def signals_deferred():
    """Let SIGINT and SIGTERM take effect after the block, so that it is whole."""
    arrived = []
    handlers = {
        number: signal.signal(number, lambda number, _: arrived.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number in arrived[:1]:
            signal.raise_signal(number)


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
    # A process that is ending has left its network already, some time before it is gone.
    in_network = os.path.exists(f"/proc/{state['pid']}/ns/net")  # noqa: PTH110 - no exceptions
    state["alive"] = in_network and process_start(state["pid"]) == state["started"]
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
    if state and process_start(state["pid"]) == state["started"]:
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
    lines = []
    for number in range(1, nodes + 1):
        path = directory / "host_keys" / f"node{number}"
        make_key(path, path.name)
        kind, key = path.with_suffix(".pub").read_text().split()[:2]
        lines.append(f"node{number},{NETWORK}.{number + 1} {kind} {key}\n")
    (directory / "known_hosts").write_text("".join(lines))


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


def cancel(directory, process):
    """End a holder, if there is one, and remove the files of a lab that did not start."""
    with signals_deferred():
        if process:
            process.kill()
            process.wait()
        close_connections(directory)
        remove_state(directory)


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
    for folder in filter(None, (config["mirror_dir"], config["shared_dir"])):
        Path(folder).mkdir(parents=True, exist_ok=True)
    process = None
    try:
        make_keys(directory, config["nodes"])
        lab = {
            **config, "directory": str(directory), "network": NETWORK,
            "bridge_address": f"{NETWORK}.1", "mirror_port": MIRROR_PORT,
            "timeout": 30 + config["nodes"],
        }  # fmt: skip
        with signals_deferred():  # a holder that is started is known, and so can be ended
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
        cancel(directory, process)
        raise
    return True


def options(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    actions = parser.add_subparsers(dest="action", required=True)
    base = actions.add_parser("base")
    base.add_argument("--rootfs", default="", help="a folder, a tarball or its URL")
    base.add_argument("--rootfs-sha256", default="")
    base.add_argument("--archive", default="", help="address of the packages")
    base.add_argument("--components", default="main", help="separated by commas")
    base.add_argument("--keyring", default="", help="with the keys that sign the archive")
    bring_up = actions.add_parser("up")
    take_down = actions.add_parser("down")
    only_check = actions.add_parser("check")
    for action in (bring_up, take_down):
        action.add_argument("--directory", type=Path, required=True)
    for action in (base, bring_up):
        action.add_argument("--suite", required=True)
    for action in (base, bring_up, only_check):
        action.add_argument("--base", type=Path, required=action is not only_check)
    for action in (base, bring_up, take_down):
        action.add_argument("--dry-run", action="store_true", help="only report what would change")
    bring_up.add_argument("--nodes", type=int, required=True)
    bring_up.add_argument("--mirror-dir", required=True)
    bring_up.add_argument("--storage-size", default="50%")
    bring_up.add_argument("--shared-dir", default="")
    bring_up.add_argument("--frameworks", default="", help="separated by commas")
    return parser.parse_args(argv)


def base(chosen):
    """Make the base of the nodes; its path, and whether it is new."""
    archive = {
        "archive": chosen.archive,
        "components": names_in(chosen.components),
        "keyring": str(Path(chosen.keyring).absolute()) if chosen.keyring else "",
    }
    if chosen.rootfs:
        from lab_rootfs import make_rootfs  # only here: inventory/lab starts this file, too

        source = (chosen.rootfs, chosen.rootfs_sha256)
        cache = chosen.base.parent
        return make_rootfs(cache, *source, chosen.suite, archive, dry_run=chosen.dry_run)
    return chosen.base, make_base(chosen.suite, chosen.base, archive, dry_run=chosen.dry_run)


def names_in(text):
    return [name for name in text.replace(" ", "").split(",") if name]


def run(chosen):
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
        "shared_dir": str(Path(chosen.shared_dir).absolute()) if chosen.shared_dir else None,
    }
    directory = chosen.directory.absolute()
    with only_one(directory):
        return up(directory, config, names_in(chosen.frameworks), dry_run=chosen.dry_run)


def main(argv=None):
    chosen = options(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("stopped by SIGTERM"))
    outcome = {}
    try:
        if chosen.action == "base":
            path, changed = base(chosen)
            outcome["base"] = str(path.absolute())
        else:
            changed = run(chosen)
    except LabError as error:
        sys.exit(str(error))
    except OSError as error:
        sys.exit(
            f"{error.filename or 'the lab'}: {error.strerror}. Name folders that you can write:"
            " DLPERF_LAB_DIR for the lab, DLPERF_CACHE for what it is made of"
        )
    except KeyboardInterrupt:
        sys.exit("interrupted")
    print(json.dumps({"changed": changed, **outcome}))


if __name__ == "__main__":
    main()
