"""Root filesystems that an operator names for the lab: which are accepted, and what is installed.

tests/lab/test_lab_rootfs.py makes nodes of real ones.
"""

import hashlib
import importlib
import os
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FILES = Path(__file__).parents[2] / "roles/lab/files"
ARCHIVE = {"archive": "http://mirror.example/x", "components": ["main"], "keyring": "/keys.gpg"}
NO_ARCHIVE: dict[str, Any] = {"archive": "", "components": ["main"], "keyring": ""}
BOOKWORM = 'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nID=debian\nVERSION_CODENAME=bookworm\n'
NOBLE = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nVERSION_CODENAME=noble\nID=ubuntu\nID_LIKE=debian\n'
ROCKY = """\
ID="rocky"
ID_LIKE="rhel centos fedora"
PRETTY_NAME="Rocky Linux 9.4 (Blue Onyx)"
"""
PROGRAMS = ("bin/bash", "usr/sbin/sshd", "usr/sbin/ip", "usr/bin/python3")


@pytest.fixture
def rootfs(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(FILES)
    yield importlib.import_module("lab_rootfs")


def elf(machine: int) -> bytes:
    return b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HH", 3, machine) + bytes(44)


def tree(root: Path, release: str, *programs: str, machine: int = 62) -> Path:
    for folder in ("etc/ssh", "root", "bin", "usr/bin", "usr/sbin"):
        (root / folder).mkdir(parents=True)
    (root / "etc/os-release").write_text(release)
    for name in ("bin/sh", *programs):
        (root / name).write_bytes(elf(machine))
    return root


def job(suite: str = "bookworm", **archive: Any) -> dict[str, Any]:
    return {**NO_ARCHIVE, **archive, "suite": suite, "machine": "x86_64", "proxy": []}


def refusal(rootfs: ModuleType, root: Path, given: dict[str, Any]) -> str:
    with pytest.raises(rootfs.LabError) as refused:
        rootfs.checked(root, given)
    return str(refused.value)


@pytest.mark.parametrize(
    ("release", "suite", "manager", "programs"),
    [
        (BOOKWORM, "bookworm", "apt-get", PROGRAMS),
        (NOBLE, "noble", "apt-get", PROGRAMS[:-1]),  # provisioning installs Python there
        (ROCKY, "bookworm", "dnf", PROGRAMS),
    ],
)
def test_a_system_that_has_all_is_accepted(
    rootfs: ModuleType,
    tmp_path: Path,
    release: str,
    suite: str,
    manager: str,
    programs: tuple[str, ...],
) -> None:
    tree(tmp_path, release, *programs, f"usr/bin/{manager}")
    assert rootfs.checked(tmp_path, job(suite)) == (manager, [])


def test_all_that_is_missing_is_named_with_its_packages(rootfs: ModuleType, tmp_path: Path) -> None:
    """As a container's root filesystem of Rocky Linux, but for its Python."""
    tree(tmp_path, ROCKY, "bin/bash", "usr/bin/dnf")
    assert refusal(rootfs, tmp_path, job()) == (
        "Rocky Linux 9.4 (Blue Onyx): it lacks sshd, ip, python3. Name the archive that dnf shall"
        " install openssh-server iproute python3 from: lab_archive and lab_archive_keyring"
    )
    packages = ["openssh-server", "iproute", "python3"]
    assert rootfs.checked(tmp_path, job(**ARCHIVE)) == ("dnf", packages)
    (tmp_path / "usr/libexec").mkdir()
    (tmp_path / "usr/libexec/platform-python").touch()  # what Rocky Linux 8 has
    assert rootfs.checked(tmp_path, job(**ARCHIVE)) == ("dnf", packages[:-1])
    # Without a keyring nothing could be verified.
    assert "lacks sshd, ip. Name" in refusal(rootfs, tmp_path, job(**{**ARCHIVE, "keyring": ""}))


def test_every_problem_is_told_at_once(rootfs: ModuleType, tmp_path: Path) -> None:
    tree(tmp_path, NOBLE, "usr/bin/apt-get", "bin/bash", machine=183)
    (tmp_path / "var").symlink_to("/home")
    assert refusal(rootfs, tmp_path, job()) == (
        "Ubuntu 24.04.1 LTS: /var is a link; it is for aarch64, and this machine is x86_64;"
        " its suite is noble, and lab_suite is bookworm; it lacks sshd, ip. Name the archive that"
        " apt-get shall install openssh-server iproute2 from: lab_archive and lab_archive_keyring"
    )


def test_what_cannot_be_installed_into_is_refused_by_what_it_is(
    rootfs: ModuleType, tmp_path: Path
) -> None:
    alpine = tree(tmp_path / "alpine", 'ID=alpine\nPRETTY_NAME="Alpine Linux v3.20"\n', "bin/bash")
    told = "Alpine Linux v3.20: it lacks sshd, ip, python3. Install it there"
    assert refusal(rootfs, alpine, job(**ARCHIVE)) == told
    none = tmp_path / "none"
    none.mkdir()
    (none / "README").touch()
    told = "no root filesystem: it has no /etc/os-release, but README"
    assert refusal(rootfs, none, job()) == told
    (none / "manifest.json").touch()
    assert "It is an image of containers: export" in refusal(rootfs, none, job())


def test_packages_come_from_the_named_archive_only_and_are_verified(rootfs: ModuleType) -> None:
    update, install = rootfs.install_argv("apt-get", ["openssh-server"], job(**ARCHIVE), "/k.gpg")
    assert "Dir::Etc::SourceParts=/dev/null" in update
    assert "Acquire::AllowInsecureRepositories=false" in update
    assert "APT::Get::AllowUnauthenticated=false" in install
    assert install[-3:] == ["install", "--no-install-recommends", "openssh-server"]
    (dnf,) = rootfs.install_argv("dnf", ["iproute", "python3"], job(**ARCHIVE), "/k.asc")
    assert dnf == [
        "dnf", "-y", "--repofrompath", "lab,http://mirror.example/x", "--repo", "lab",
        "--setopt=lab.gpgcheck=1", "--setopt=lab.gpgkey=file:///k.asc",
        "--setopt=install_weak_deps=0", "install", "iproute", "python3",
    ]  # fmt: skip


# --- the source -------------------------------------------------------------------------------


def made(rootfs: ModuleType, cache: Path, source: object, checksum: str = "") -> str:
    with pytest.raises(rootfs.LabError) as refused:
        rootfs.make_rootfs(cache, str(source), checksum, "bookworm", NO_ARCHIVE)
    return str(refused.value)


def test_a_source_that_cannot_be_read_or_identified(rootfs: ModuleType, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    file = tmp_path / "rocky.tar.xz"
    file.write_bytes(b"x")
    address = "http://mirror.example/noble.tar.zst"
    zeros = "0" * 64
    digest = hashlib.sha256(b"x").hexdigest()
    assert made(rootfs, cache, address) == (
        f"lab_rootfs is the URL {address}. Add its checksum, lab_rootfs_sha256"
    )
    assert made(rootfs, cache, file, zeros) == (
        f"lab_rootfs {file}: expected sha256 {zeros}, found {digest}"
    )
    assert made(rootfs, cache, file.as_uri(), zeros).endswith(f"{zeros}, found {digest}")
    assert "cannot download" in made(rootfs, cache, (tmp_path / "none").as_uri(), zeros)
    none = tmp_path / "none"
    assert made(rootfs, cache, none) == f"cannot read lab_rootfs {none}: No such file or directory"
    assert "expected an absolute path or a URL" in made(rootfs, cache, "folder")
    assert "is a folder. Leave lab_rootfs_sha256 out" in made(rootfs, cache, FILES, zeros)
    assert f"{tmp_path} contains lab_cache_dir" in made(rootfs, cache, tmp_path)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_changed_source_is_another_base(rootfs: ModuleType, tmp_path: Path) -> None:
    folder = tree(tmp_path / "root", BOOKWORM, *PROGRAMS)
    (folder / "proc/1").mkdir(parents=True)

    def base() -> Path:
        make = rootfs.make_rootfs
        path, new = make(tmp_path, str(folder), "", "bookworm", NO_ARCHIVE, dry_run=True)
        assert new
        return path

    states = [base()]
    assert base() == states[0]
    (folder / "proc/2").mkdir()
    assert base() == states[0]
    time.sleep(0.02)  # longer than the clock of files
    (folder / "usr/sbin/sshd").write_bytes(elf(62))
    states.append(base())
    (folder / "usr/sbin/new").symlink_to("sshd")
    states.append(base())
    (folder / "usr/sbin/new").chmod(0o700)
    states.append(base())
    assert len(set(states)) == 4
    assert len({path.name[:16] for path in states}) == 1  # an older base of the source is removed


# --- a node's first process -------------------------------------------------------------------


def first_process(rootfs: ModuleType, command: str) -> subprocess.CompletedProcess[str]:
    script = importlib.import_module("lab_node").INIT_SCRIPT
    apart = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if os.geteuid() != 0:
        apart += ["--user", "--map-root-user"]
    argv = [*apart, "bash", "-c", script, "lab-init", "bash", "-c", command]
    trial = subprocess.run([*apart, "true"], check=False, capture_output=True, text=True)
    if trial.returncode != 0:
        pytest.skip(f"this machine allows no process namespace: {trial.stderr.strip()}")
    return subprocess.run(argv, capture_output=True, text=True, timeout=300, check=False)


def test_the_first_process_reaps_and_ends_with_the_server(rootfs: ModuleType) -> None:
    # Were they not reaped, they would stay as zombies.
    orphans = (
        "for n in 1 2 3; do (sleep 0.1 &); done; "
        "while ps -eo comm= | grep -q sleep; do read -t 0.1 < <(:) || :; done; "
        "ps -eo ppid=,stat=,comm=; exit 7"
    )
    done = first_process(rootfs, orphans)
    assert done.returncode == 7, done.stderr
    assert "sleep" not in done.stdout and "Z" not in done.stdout


@pytest.mark.parametrize("signal", ["TERM", "INT"])
def test_the_first_process_ends_all_of_the_servers_processes(
    rootfs: ModuleType, tmp_path: Path, signal: str
) -> None:
    told = tmp_path / "told"
    ready = tmp_path / "ready"
    child = f"trap 'echo asked > {told}; exit' TERM; : > {ready}; while :; do sleep 0.05; done"
    server = (
        f"trap 'wait; exit 9' TERM; until [ -e {ready} ]; do sleep 0.05; done; "
        f"kill -{signal} 1; while :; do sleep 0.05; done"
    )
    done = first_process(rootfs, f"bash -c {shlex.quote(child)} & {server}")
    assert done.returncode == 9, done.stderr
    assert told.read_text() == "asked\n"


def test_a_suite_of_another_archive_needs_its_address_and_keys(
    rootfs: ModuleType, tmp_path: Path
) -> None:
    machine = sys.modules["lab_machine"]
    with pytest.raises(machine.LabError) as refused:
        machine.make_base("noble", tmp_path / "noble.tar", {**ARCHIVE, "keyring": ""})
    assert "lab_suite is noble; expected bookworm, bullseye, trixie." in str(refused.value)
    assert "set lab_archive to its address and lab_archive_keyring" in str(refused.value)
    with pytest.raises(machine.LabError, match=r"expected a code name"):
        machine.make_base("../x", tmp_path / "x.tar", ARCHIVE)
    with pytest.raises(machine.LabError, match=r"missing: /keys.gpg$"):
        machine.make_base("noble", tmp_path / "noble.tar", ARCHIVE)
