"""The base of nodes from a root filesystem that the operator names: a folder, a tarball or its URL.

It is copied onto a tmpfs in new namespaces, where this file runs as a program. There it is checked,
gets the packages that it lacks from the operator's archive, and leaves as a tar. The source is only
read. Uses only the standard library and tar.
"""

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # python -I leaves this folder out

from lab_machine import LabError, apt_proxy, made_apart, require_programs
from lab_node import MS_NODEV, mount, mount_devices

# Where it may be, and the package that has it. On Debian and Ubuntu, provisioning installs Python.
NEEDED = {
    "sshd": (["/usr/sbin/sshd"], {"apt-get": "openssh-server", "dnf": "openssh-server"}),
    "bash": (["/bin/bash"], {"apt-get": "bash", "dnf": "bash"}),
    "ip": (["/usr/sbin/ip", "/sbin/ip", "/bin/ip"], {"apt-get": "iproute2", "dnf": "iproute"}),
    "python3": (["/usr/bin/python3", "/usr/libexec/platform-python"], {"dnf": "python3"}),
}
KERNEL = ("dev", "proc", "run", "sys")
# The holder writes or mounts here before a node has its own root: a link would lead it elsewhere.
DIRECTORIES = ("etc", "etc/ssh", "root", "root/.ansible", "root/.ansible/tmp", "root/.ssh")
DIRECTORIES += ("shared", "var", "var/lib")
# Each node gets its own.
REPLACED = ("etc/hostname", "etc/hosts", "etc/resolv.conf", "root/.ssh/authorized_keys")
MACHINES = {3: "i386", 21: "ppc64", 22: "s390x", 40: "arm", 62: "x86_64", 183: "aarch64"}
TAR = ["tar", "--numeric-owner", "--xattrs", "--xattrs-include=security.capability"]
TAR += ["--warning=no-file-ignored"]  # a socket
KEPT_OUT = ["--anchored"]
KEPT_OUT += [f"--exclude={prefix}{name}/*" for name in KERNEL for prefix in ("", "/", "./")]
PLACE = Path("/mnt")
OWN = Path("/run/lab")  # on a tmpfs, so nothing of it stays


def is_address(source):
    return "://" in source


def folder_state(folder):
    """A digest of the names, modes, owners, sizes and times of change of all that is in it."""
    digest = hashlib.sha256()
    device = folder.stat().st_dev
    for place, folders, files in os.walk(folder):
        kept_out = KERNEL if place == str(folder) else ()
        states = {name: os.lstat(Path(place, name)) for name in sorted(folders + files)}
        folders[:] = [n for n in folders if n not in kept_out and states[n].st_dev == device]
        for name, state in states.items():
            if name not in kept_out:
                fields = (state.st_mode, state.st_uid, state.st_gid, state.st_size)
                digest.update(os.fsencode(f"{place}/{name}\0{fields}{state.st_ctime_ns}\0"))
    return digest.hexdigest()


def file_digest(path):
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def source_state(source, checksum):
    """A text that changes when the source does; LabError if that is missing or another one."""
    if is_address(source):
        if not checksum:
            raise LabError(f"lab_rootfs is the URL {source}. Add its checksum, lab_rootfs_sha256")
        return checksum
    path = Path(source)
    try:
        if path.is_dir():
            if checksum:
                raise LabError(f"lab_rootfs {source} is a folder. Leave lab_rootfs_sha256 out")
            return folder_state(path)
        digest = file_digest(path)
    except OSError as error:
        raise LabError(f"cannot read lab_rootfs {source}: {error.strerror}") from error
    if checksum and digest != checksum:
        raise LabError(f"lab_rootfs {source}: expected sha256 {checksum}, found {digest}")
    return digest


def download(address, checksum, path):
    try:
        # Any scheme: the operator names the address, and the checksum is checked below.
        with urllib.request.urlopen(address, timeout=60) as answer, path.open("wb") as file:  # noqa: S310
            shutil.copyfileobj(answer, file)
    except (OSError, ValueError) as error:
        raise LabError(f"cannot download lab_rootfs {address}: {error}") from error
    digest = file_digest(path)
    if digest != checksum:
        raise LabError(f"lab_rootfs {address}: expected sha256 {checksum}, found {digest}")


def make_rootfs(cache, source, checksum, suite, archive, *, dry_run=False):
    """Make the base of a source unless it is in the cache; its path, and whether it is new.

    Its name has the state of the source, so a source that has changed makes another base.
    """
    if not is_address(source):
        source = str(Path(source).expanduser())
        if not Path(source).is_absolute():
            raise LabError(f"lab_rootfs is {source}; expected an absolute path or a URL")
        if Path(source) in (cache.absolute(), *cache.absolute().parents):
            raise LabError(f"lab_rootfs {source} contains lab_cache_dir {cache}. Set another one")
    checksum = checksum.lower()
    state = f"{suite} {source_state(source, checksum)}"
    prefix = f"rootfs-{hashlib.sha256(source.encode()).hexdigest()[:8]}-"
    target = cache / f"{prefix}{hashlib.sha256(state.encode()).hexdigest()[:16]}.tar"
    if target.exists() or dry_run:
        return target, not target.exists()
    require_programs({"unshare": "util-linux", "tar": "tar"})
    cache.mkdir(parents=True, exist_ok=True)
    job = {**archive, "source": source, "suite": suite, "proxy": apt_proxy()}
    with contextlib.ExitStack() as stack:
        if is_address(source):
            part = cache / f".{prefix}{os.getpid()}.download"
            stack.callback(part.unlink, missing_ok=True)
            download(source, checksum, part)
            job["source"] = str(part.absolute())
        argv = [sys.executable, "-I", str(Path(__file__).absolute()), json.dumps(job)]
        failure = made_apart(target, lambda _: argv)
    if failure:
        raise LabError(f"lab_rootfs {source}: {failure}")
    for older in cache.glob(f"{prefix}*.tar"):
        if older != target:
            older.unlink()
    return target, True


# --- in new namespaces, with the copy as root -------------------------------------------------


def os_release(text):
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key.strip(): value.strip().strip("\"'") for key, _, value in pairs}


def machine_of(program):
    """The processor of a program in the format ELF."""
    with Path(program).open("rb") as file:
        head = file.read(20)
    number = int.from_bytes(head[18:20], "little" if head[5:6] == b"\1" else "big")
    return MACHINES.get(number, f"ELF machine {number}") if head[:4] == b"\x7fELF" else "no program"


def checked(root, job):
    """The package manager and the packages to install; LabError with all that is wrong."""
    try:
        release = os_release((root / "etc/os-release").read_text(errors="replace"))
    except OSError:
        entries = sorted(path.name for path in root.iterdir() if path.name not in KERNEL)
        hint = ""
        if {"manifest.json", "oci-layout"} & set(entries):
            hint = ". It is an image of containers: export one of its containers (podman export)"
        listed = ", ".join(entries[:8]) or "nothing"
        message = f"no root filesystem: it has no /etc/os-release, but {listed}{hint}"
        raise LabError(message) from None
    name = release.get("PRETTY_NAME") or release.get("ID", "?")
    problems = [f"/{path} is a link" for path in DIRECTORIES if (root / path).is_symlink()]
    try:
        machine = machine_of(root / "bin/sh")
    except OSError:
        problems.append("it has no /bin/sh")
    else:
        if machine != job["machine"]:
            problems.append(f"it is for {machine}, and this machine is {job['machine']}")
    manager = next((m for m in ("apt-get", "dnf") if (root / "usr/bin" / m).exists()), "")
    codename = release.get("VERSION_CODENAME", "")
    if manager == "apt-get" and codename != job["suite"]:
        problems.append(
            f"its suite is {codename or 'not in /etc/os-release'}, and lab_suite is {job['suite']}"
        )
    missing = {
        program: packages.get(manager, "")
        for program, (paths, packages) in NEEDED.items()
        if not any((root / path.lstrip("/")).exists() for path in paths)
        and (manager in packages or manager != "apt-get")
    }
    if missing and not (manager and job["archive"] and job["keyring"]):
        remedy = "Install it there"
        if manager:
            remedy = (
                f"Name the archive that {manager} shall install {' '.join(missing.values())} from:"
                " lab_archive and lab_archive_keyring"
            )
        problems.append(f"it lacks {', '.join(missing)}. {remedy}")
    if problems:
        raise LabError(f"{name}: {'; '.join(problems)}")
    return manager, list(missing.values())


def install_argv(manager, packages, job, keyring):
    """The commands that install packages from the operator's archive and from nowhere else."""
    if manager == "dnf":
        settings = ["gpgcheck=1", f"gpgkey=file://{keyring}"]
        argv = ["dnf", "-y", "--repofrompath", f"lab,{job['archive']}", "--repo", "lab"]
        argv += [f"--setopt=lab.{setting}" for setting in settings]
        return [[*argv, "--setopt=install_weak_deps=0", "install", *packages]]
    options = [
        f"Dir::Etc::SourceList={OWN}/sources.list",
        "Dir::Etc::SourceParts=/dev/null",
        f"Dir::State::Lists={OWN}/lists",
        f"Dir::Cache::Archives={OWN}/archives",
        "Acquire::AllowInsecureRepositories=false",
        "APT::Get::AllowUnauthenticated=false",
        "APT::Sandbox::User=root",
        *job["proxy"],
    ]
    argv = ["apt-get", "-q", "-y", *(part for option in options for part in ("-o", option))]
    return [[*argv, "update"], [*argv, "install", "--no-install-recommends", *packages]]


def install(manager, packages, job, keyring, resolver):
    """Install packages; this process's root is the copy."""
    for folder in (OWN, OWN / "lists/partial", OWN / "archives/partial"):
        folder.mkdir(parents=True, exist_ok=True)
    seen = OWN / ("keyring.asc" if keyring.startswith(b"-----BEGIN") else "keyring.gpg")
    seen.write_bytes(keyring)
    source = f"{job['archive']} {job['suite']} {' '.join(job['components'])}"
    (OWN / "sources.list").write_text(f"deb [signed-by={seen}] {source}\n")
    Path("/etc/resolv.conf").unlink(missing_ok=True)
    Path("/etc/resolv.conf").write_text(resolver)
    no_start = Path("/usr/sbin/policy-rc.d")  # nothing is started while packages are installed
    if made := manager == "apt-get" and not no_start.exists():
        no_start.write_text("#!/bin/sh\nexit 101\n")
        no_start.chmod(0o755)
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
    for argv in install_argv(manager, packages, job, seen):
        done = subprocess.run(
            argv, check=False, env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace",
        )  # fmt: skip
        if done.returncode != 0:
            tail = "\n".join(done.stdout.splitlines()[-12:])
            raise LabError(f"cannot install {' '.join(packages)}:\n{tail}")
    if made:
        no_start.unlink()


def prepare(root, job):
    """Check the copy, install what it lacks, and remove what each node gets of its own."""
    keyring = Path(job["keyring"]).read_bytes() if job["keyring"] else b""
    resolver = Path("/etc/resolv.conf").read_text() if Path("/etc/resolv.conf").exists() else ""
    job["machine"] = machine_of("/proc/self/exe")
    os.chroot(root)
    os.chdir("/")
    manager, packages = checked(Path("/"), job)
    if packages:
        install(manager, packages, job, keyring, resolver)
    for path in [*(Path("/", name) for name in REPLACED), *Path("/etc/ssh").glob("ssh_host_*")]:
        path.unlink(missing_ok=True)


def main():
    job = json.loads(sys.argv[1])
    source = os.open(job["source"], os.O_RDONLY)  # before the tmpfs, which may hide it
    given = f"/proc/{os.getpid()}/fd/{source}"
    mount("tmpfs", PLACE, "tmpfs", MS_NODEV, "mode=755")
    root = PLACE / "root"
    root.mkdir()
    unpack = [*TAR, "-C", str(root), *KEPT_OUT, "-xp"]
    if Path(given).is_dir():
        pack = [*TAR, "-C", given, "--one-file-system", *KEPT_OUT, "-c", "."]
        with subprocess.Popen(pack, stdout=subprocess.PIPE) as packing:
            done = subprocess.run([*unpack, "-f", "-"], stdin=packing.stdout, check=False)
        failed = packing.returncode or done.returncode
    else:
        failed = subprocess.run([*unpack, "-f", given], check=False).returncode
    if failed:
        sys.exit("tar cannot copy it")
    for name in KERNEL:
        if (root / name).is_symlink():
            sys.exit(f"/{name} is a link")
        (root / name).mkdir(exist_ok=True)
    mount("proc", root / "proc", "proc")
    mount_devices(root)
    mount("tmpfs", root / "run", "tmpfs", 0, "mode=755")
    child = os.fork()
    if child == 0:
        try:
            prepare(root, job)
        except (LabError, OSError) as error:
            print(error, file=sys.stderr, flush=True)
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1] != 0:
        sys.exit(1)
    os.execvp("tar", [*TAR, "-C", str(root), "--one-file-system", *KEPT_OUT, "-c", "."])  # noqa: S606


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(str(error))
