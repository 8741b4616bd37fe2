"""Nodes of a root filesystem or an archive that an operator names, and a node without Python that
gets one from the mirror.

The root filesystems are Debian's: one as a folder without sshd, one as a tarball without Python.
Ubuntu's and Rocky Linux's were not to be had; tests/unit/test_lab_rootfs.py has what they say.
"""

import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from ansible.module_utils.openpgp_key import armored
from lab_under_test import CONTROL, PROJECT, Lab

sys.path.insert(0, str(CONTROL.parent))
from lab_machine import KEYRING, debian_mirror
from lab_rootfs import folder_state

pytestmark = [
    pytest.mark.lab,
    pytest.mark.heavy,
    pytest.mark.nodes,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make root filesystems"),
]

FEW = ("-e", '{"dlperf_frameworks": []}')
ARCHIVE = {"lab_archive": debian_mirror(), "lab_archive_keyring": KEYRING}
PYTHON = "ls /usr/bin/python* /usr/lib/python3* 2> /dev/null; dpkg -l | grep python; true"


def base(suite: str, target: Path, *options: object) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-I", CONTROL, "base", "--suite", suite, "--base", target, *options]
    return subprocess.run(list(map(str, argv)), capture_output=True, text=True, check=False)


def purge(root: Path, pattern: str) -> None:
    """Remove packages from a root filesystem as its administrator would."""
    listed = f"dpkg-query -W -f '${{Package}}\\n' | grep -E '{pattern}'"
    (root / "dev").mkdir(exist_ok=True)
    script = 'mount --bind /dev "$1/dev" && mount -t proc proc "$1/proc" && exec chroot "$@"'
    apart = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child"]
    inside = ["sh", "-c", f"dpkg --purge --force-depends $({listed})"]
    argv = [*apart, "sh", "-c", script, "sh", str(root), *inside]
    done = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def refused(lab: Lab, **variables: object) -> str:
    pairs = [part for key, value in variables.items() for part in ("-e", f"{key}={value}")]
    done = lab.command("ansible-playbook", "playbooks/lab.yml", "-e", "lab_bundle=false", *pairs)
    assert done.returncode == 2, done.stdout
    assert not lab.directory.exists()
    return " ".join(done.stdout.split())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A bare Debian."""
    tarball = PROJECT / ".cache/lab/bookworm.tar"
    made = base("bookworm", tarball)
    assert made.returncode == 0, made.stderr
    root = tmp_path / "root"
    root.mkdir()
    argv = ["tar", "-C", root, "--numeric-owner", "--exclude=./dev/*", "-xpf", tarball]
    subprocess.run(argv, check=True)
    return root


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path / "lab")
    yield made
    made.down()


def test_nodes_of_a_folder_get_what_it_lacks_from_the_named_archive(
    lab: Lab, folder: Path, mirror: Path, tmp_path: Path
) -> None:
    purge(folder, "^(openssh-server|iproute2)$")
    (folder / "srv/mark").write_text("one\n")
    (folder / "srv/mark").chmod(0o640)
    os.chown(folder / "srv/mark", 4711, 4712)
    before = folder_state(folder)
    cache = tmp_path / "cache"
    options = {"lab_rootfs": folder, "lab_cache_dir": cache, "lab_nodes": 2}
    told = refused(lab, **options)
    assert "Debian GNU/Linux 12 (bookworm): it lacks sshd, ip." in told
    assert "apt-get shall install openssh-server iproute2 from: lab_archive and" in told
    foreign = mirror / "apt/dlperf-mirror.gpg"
    told = refused(lab, **options, **(ARCHIVE | {"lab_archive_keyring": foreign}))
    assert "cannot install openssh-server iproute2:" in told and "is not signed" in told
    assert list(cache.iterdir()) == []

    options |= ARCHIVE
    assert "changed=2" in lab.up(**options)
    assert folder_state(folder) == before
    for command in ("ansible.builtin.ping", "ansible.builtin.setup"):
        done = lab.command("ansible", "nodes", "-m", command)
        assert done.returncode == 0, done.stdout
    assert "ansible_distribution_release: bookworm" in done.stdout
    assert lab.said("node2", "hostname; id -un; cat /srv/mark").split() == ["node2", "root", "one"]
    assert lab.said("node1", "stat -c '%u %g %a' /srv/mark") == "4711 4712 640"
    assert lab.said("node1", "ps -o comm= -p 1; ls /etc/ssh/ssh_host_*_key").split() == [
        "lab-init", "/etc/ssh/ssh_host_ed25519_key",
    ]  # fmt: skip
    lab.said("node1", "echo node > /srv/mark; test ! -e /usr/sbin/policy-rc.d")
    assert (folder / "srv/mark").read_text() == "one\n"

    assert "changed=0" in lab.up(**options)
    (folder / "srv/mark").write_text("two\n")
    assert "changed=2" in lab.up(**options)
    assert lab.said("node1", "cat /srv/mark") == "two"
    assert len(list(cache.iterdir())) == 1


def test_nodes_of_a_tarball_without_python_get_one_from_the_mirror(
    lab: Lab, folder: Path, mirror: Path, tmp_path: Path
) -> None:
    """They reach the mirror only, and have no package source of their own."""
    purge(folder, "python")
    (folder / "etc/apt/sources.list").unlink()
    tarball = tmp_path / "debian.tar.zst"
    argv = ["tar", "-C", folder, "--numeric-owner", "--zstd", "-cf", tarball, "."]
    subprocess.run(argv, check=True)
    shutil.rmtree(folder)
    cache = tmp_path / "cache"
    lab.up(lab_rootfs=tarball, lab_cache_dir=cache, lab_nodes=2, lab_mirror_dir=mirror)
    assert lab.said("node1", PYTHON) == ""

    def provision(*options: str) -> subprocess.CompletedProcess[str]:
        return lab.command("ansible-playbook", "provision.yml", *FEW, *options)

    checked = provision("--check")
    assert checked.returncode == 0, checked.stdout
    assert "node1: it has no Python (debian12)" in checked.stdout
    foreign = tmp_path / "foreign.asc"
    foreign.write_bytes(armored(Path(KEYRING).read_bytes()))
    unknown = provision("--limit", "node1", "-e", f"node_base_mirror_key={foreign}")
    assert unknown.returncode == 2
    assert "cannot install python3:" in unknown.stdout
    assert "is not signed" in unknown.stdout or "NO_PUBKEY" in unknown.stdout
    none = provision("--limit", "node1", "-e", f"node_base_mirror_key={tmp_path}/none.asc")
    assert none.returncode == 2
    assert "the controller needs the mirror's public key" in " ".join(none.stdout.split())
    assert lab.said("node1", PYTHON) == ""

    done = provision()
    assert done.returncode == 0, done.stdout
    assert lab.said("node2", "/usr/bin/python3 --version").startswith("Python 3.11.")
    assert lab.said("node2", "ls -d /tmp/tmp.* 2> /dev/null; true") == ""
    assert lab.said("node1", "su dlperf -c 'ssh node2 hostname'") == "node2"
    again = provision()
    assert again.returncode == 0, again.stdout
    assert again.stdout.count("changed=0") == 2, again.stdout


def test_a_suite_of_a_named_archive_is_verified_with_the_named_keyring(
    mirror: Path, tmp_path: Path
) -> None:
    """The lab does not know `stable`, as it knows none of Ubuntu's suites."""
    target = tmp_path / "stable.tar"
    archive = ("--archive", debian_mirror(), "--keyring")
    unsigned = base("stable", target, *archive, mirror / "apt/dlperf-mirror.gpg")
    assert unsigned.returncode == 1
    assert "mmdebstrap failed to build stable" in unsigned.stderr
    assert "signed" in unsigned.stderr or "NO_PUBKEY" in unsigned.stderr, unsigned.stderr
    made = base("stable", target, *archive, KEYRING, "--components", "main,contrib")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == {"changed": True, "base": str(target)}
    with tarfile.open(target) as tar:
        sources = tar.extractfile("./etc/apt/sources.list")
        assert sources and b" stable main contrib\n" in sources.read()
        assert "./usr/sbin/sshd" in tar.getnames()
    assert [path.name for path in tmp_path.glob("*.tar")] == ["stable.tar"]


def test_a_tarball_that_leads_out_of_its_folder_is_refused(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    marks = [tmp_path / "by-name", tmp_path / "by-link/mark"]
    marks[1].parent.mkdir()
    release = tarfile.TarInfo("etc/os-release")
    out = tarfile.TarInfo(f"../../../../../..{marks[0]}")
    link = tarfile.TarInfo("x")
    link.type, link.linkname = tarfile.SYMTYPE, str(marks[1].parent)
    through = tarfile.TarInfo("x/mark")
    for number, members in enumerate([[release, out], [release, link, through]]):
        tarball = tmp_path / f"{number}.tar"
        with tarfile.open(tarball, "w") as tar:
            for member in members:
                tar.addfile(member, io.BytesIO())
        made = base("bookworm", cache / "bookworm.tar", "--rootfs", tarball)
        assert made.returncode == 1
        assert "tar cannot copy it" in made.stderr
    assert not any(mark.exists() for mark in marks)
    assert list(cache.iterdir()) == []
