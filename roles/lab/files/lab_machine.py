"""Needs of a lab from this machine: permissions, programs, and the base root filesystem of nodes.

Uses only the standard library.
"""

import contextlib
import getpass
import os
import re
import shutil
import subprocess
from pathlib import Path

PACKAGES = "openssh-server,python3,python3-apt,sudo,iproute2"
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
SUITES = ("bookworm", "bullseye", "trixie")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"  # of SUITES

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


def check(base=None, keyring=KEYRING):
    """Raise LabError if this machine or this user cannot run a lab.

    If the base root filesystem does not exist yet, what builds it is required too.
    """
    programs = PROGRAMS | ({} if os.geteuid() == 0 else PROGRAMS_OF_USER)
    make = base and not base.exists()
    require_programs(programs | PROGRAMS_OF_BASE if make else programs)
    if make and not Path(keyring).exists():
        package = ". Install with: apt-get install debian-archive-keyring"
        raise LabError(f"missing: {keyring}{package if keyring == KEYRING else ''}")
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


def apt_proxy():
    """The proxy in this machine's apt configuration, as values of apt's option -o."""
    try:
        done = subprocess.run(
            ["apt-config", "dump", "--format", "%F=%v%n", "Acquire::http", "Acquire::https"],
            check=False, capture_output=True, text=True,
        )  # fmt: skip
    except OSError:
        return []  # the machine has no apt
    return re.findall(r"(?m)^Acquire::https?::Proxy.*", done.stdout)


def made_apart(target, argv_for, environment=None):
    """Run a command in new namespaces that writes a file to its standard output or its path.

    The file becomes `target` if the command succeeds; else the end of its messages is returned.
    """
    part = target.with_name(f".{target.name}.{os.getpid()}.tar")
    process = None
    try:
        with part.open("wb") as file:
            process = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", *unshare_argv(network=False), *argv_for(part)],
                env={**os.environ, "PATH": search_path(), **(environment or {})}, cwd="/",
                stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE, text=True,
            )  # fmt: skip
        _, messages = process.communicate()
        if process.returncode != 0:
            return "\n".join(messages.splitlines()[-12:]) or f"status {process.returncode}"
        part.rename(target)
    finally:
        if process:
            process.kill()
            process.wait()
        part.unlink(missing_ok=True)
    return ""


def require_archive(suite, archive):
    """LabError unless it is known from where the suite comes and who signs it."""
    if not re.fullmatch(r"[a-z][a-z0-9.-]*", suite):
        raise LabError(f"lab_suite is {suite!r}; expected a code name, such as bookworm or noble")
    if suite not in SUITES and not (archive["archive"] and archive["keyring"]):
        raise LabError(
            f"lab_suite is {suite}; expected {', '.join(SUITES)}. For a suite of another archive,"
            " set lab_archive to its address and lab_archive_keyring to the file of its keys"
        )


def make_base(suite, target, archive=None, *, dry_run=False):
    """Build the tar of a bare Debian or Ubuntu with mmdebstrap, on a tmpfs that ends with it."""
    archive = archive or {"archive": "", "components": ["main"], "keyring": ""}
    require_archive(suite, archive)
    if target.exists() or dry_run:
        return not target.exists()
    keyring = archive["keyring"] or KEYRING
    check(target, keyring)
    target.parent.mkdir(parents=True, exist_ok=True)
    address = archive["archive"] or debian_mirror()
    components = " ".join(archive["components"])
    # The tree is on the process's own tmpfs, so nothing is left however it ends. It is mounted
    # on a folder that all users can access (unlike a home) and that does not contain the target.
    place = next(p for p in ("/tmp", "/mnt", "/media") if not target.resolve().is_relative_to(p))  # noqa: S108
    seen = f"{place}/keyring{'.asc' if keyring.endswith('.asc') else '.gpg'}"

    def command(part):
        argv = [
            "mmdebstrap", "--mode=root", "--variant=minbase", f"--include={PACKAGES}",
            # Without device nodes: a user namespace cannot create them; nodes mount a /dev.
            "--skip=output/mknod,output/dev", *(f"--aptopt={line}" for line in apt_proxy()),
            # Remove this machine's host name and resolver, and host keys: every node gets its own.
            '--customize-hook=rm -f "$1"/etc/hostname "$1"/etc/resolv.conf "$1"/etc/ssh/ssh_host_*',
            '--customize-hook=sed -i "s/ \\[signed-by=[^]]*\\]//" "$1"/etc/apt/sources.list',
            # Not --keyring, beside which mmdebstrap also takes the keys of well-known suites.
            suite, str(part.resolve()), f"deb [signed-by={seen}] {address} {suite} {components}",
        ]  # fmt: skip
        # apt checks signatures as another user, who may not see the operator's keyring.
        script = (
            f'exec 3< "$1" && mount -t tmpfs -o mode=1777 tmpfs {place}'
            f' && cat <&3 > {seen} && shift && exec "$@"'
        )
        return ["sh", "-c", script, "sh", str(Path(keyring).absolute()), *argv]

    if failure := made_apart(target, command, {"TMPDIR": place}):
        raise LabError(f"mmdebstrap failed to build {suite}:\n{failure}")
    return True
