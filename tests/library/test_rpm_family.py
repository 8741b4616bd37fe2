"""The pure parts of families of packages on the RHEL family, from recorded facts and transactions.

The recorded output is of dnf 4.14 and rpm 4.18 with stand-in packages (test_rpm_systems.py).
"""

import subprocess
from pathlib import Path

import pytest
from ansible.module_utils import dnf_family, node_packages, openpgp_key, rpm_family, whole_files
from standins import program

RPM = """\
dkms\t1-1.el9\tnoarch
nvidia-driver-cuda\t3:580.105.08-1.el9\tx86_64
libnccl\t2.29.7-1+cuda12.9\tx86_64
glibc\t2.34-100.el9\tx86_64
glibc\t2.34-100.el9\ti686
kernel-devel\t5.14.0-427.13.1.el9_4\tx86_64
kernel-devel\t5.14.0-503.11.1.el9_5\tx86_64
gpg-pubkey\t8fc65c8f-6b031001\t(none)
"""
REMOVING = """\
Dependencies resolved.
================================================================================
 Package                      Arch        Version                  Repo    Size
================================================================================
Installing:
 libnccl-devel                x86_64      2.29.7-1+cuda12.9        x      6.1 k
 nvidia-driver-with-a-name-that-fills-the-line
                              x86_64      3:580.178.04-1.el9       x      6.2 k
Installing dependencies:
 kmod-nvidia-open-dkms        noarch      3:580.178.04-1.el9       x      6.1 k
Removing:
 cuda-drivers                 x86_64      535.183.01-1             @x      6.1 k
Removing dependent packages:
 site-tools                   x86_64      1-1                      @site   6.1 k

Transaction Summary
================================================================================
Install  3 Packages
Remove   2 Packages

Total size: 55 k
Operation aborted.
"""
LOCKS = """\
# Added lock on Mon Nov 16 10:00:00 2026
kernel-core-0:5.14.0-427.13.1.el9_4.*
# BEGIN dlperf_runner cuda
cuda-toolkit-12-9-12.9.1-1
# END dlperf_runner cuda
nvidia-driver-cuda-3:535.104.12-1.el9.*
"""


def test_versions_beside_each_other_and_other_architectures_are_told_apart() -> None:
    assert rpm_family.installed(RPM) == {
        "dkms": "1-1.el9",
        "nvidia-driver-cuda": "3:580.105.08-1.el9",
        "libnccl": "2.29.7-1+cuda12.9",
        "glibc": "2.34-100.el9",
        "glibc.i686": "2.34-100.el9",
        "kernel-devel-5.14.0-427.13.1.el9_4": "5.14.0-427.13.1.el9_4",
        "kernel-devel-5.14.0-503.11.1.el9_5": "5.14.0-503.11.1.el9_5",
        "gpg-pubkey-8fc65c8f-6b031001": "8fc65c8f-6b031001",
    }


def test_a_transaction_is_read_even_where_its_lines_are_wrapped() -> None:
    found = rpm_family.transaction(REMOVING)
    wrapped = "nvidia-driver-with-a-name-that-fills-the-line"
    assert [name for name, *_others in found["Installing"]] == ["libnccl-devel", wrapped]
    assert rpm_family.removals(REMOVING) == ["cuda-drivers", "site-tools"]
    driver = dict.fromkeys((wrapped, "kmod-nvidia-open-dkms"), "3:580.178.04-1.el9")
    assert rpm_family.arrivals(REMOVING) == {"libnccl-devel": "2.29.7-1+cuda12.9", **driver}


NO_KEY = "Public key for libnccl-2.30.0-1.rpm is not installed\nError: GPG check FAILED\n"
CONFLICT = (
    "Error:\n Problem: conflicting requests\n  - nothing provides dkms needed by kmod-nvidia\n"
)
NOT_THERE = (
    "Errors during downloading metadata for repository 'x':\n  - Status code: 404 for http\n"
)
HIDDEN = "All matches were filtered out by exclude filtering for argument:"
FROZEN = "Read-only file system"
HELD_BY = "The application with PID 19 is: dnf-automatic"


@pytest.mark.parametrize(
    ("said", "meaning", "remedy"),
    [
        (NO_KEY, "not signed with the repository's configured key", "fingerprint"),
        ("Error: Unable to find a match: libnccl-9", "in this version", "--showduplicates"),
        (CONFLICT, "nothing provides dkms", "EPEL"),
        (NOT_THERE, "does not exist", "dlperf_vendor_mirror"),
        (f"{HIDDEN} kernel-devel\nError: Unable to find a match", "hides", "excludepkgs"),
        (f"Error: can't create transaction lock on /usr/share/rpm ({FROZEN})", "bootc", "image"),
        ("Curl error (6): Could not resolve host: mirror", "cannot reach", "dlperf_vendor_mirror"),
        (
            f"already locked by 19\n  {HELD_BY}\n",
            f"{HELD_BY}; already locked",
            "dlperf_lock_timeout",
        ),
    ],
)
def test_what_dnf_says_is_explained(said: str, meaning: str, remedy: str) -> None:
    explained, advice = rpm_family.explanation(said)
    assert meaning in explained and remedy in advice
    assert rpm_family.explanation("Complete!") is None


class Node:
    """A module whose commands end with these statuses, one after the other."""

    def __init__(self, lock_timeout: int, *statuses: int) -> None:
        self.params = {"lock_timeout": lock_timeout}
        self.statuses = list(statuses)

    def run_command(self, argv: list[str], **_options: object) -> tuple[int, str, str]:
        assert "--setopt=exit_on_lock=True" in argv
        return self.statuses.pop(0), "", ""


def test_a_dnf_that_another_one_blocks_is_started_again_until_the_time_is_over() -> None:
    assert dnf_family.run_dnf(node := Node(60, 200, 0), ["makecache"])[0] == 0
    assert node.statuses == []
    assert dnf_family.run_dnf(node := Node(0, 200, 0), ["makecache"])[0] == 200
    assert node.statuses == [0]
    # Another failure is not repeated.
    assert dnf_family.run_dnf(node := Node(60, 1, 0), ["makecache"])[0] == 1


def test_locks_of_a_family_are_replaced_where_they_are_and_others_stay() -> None:
    lines = rpm_family.lock_lines(
        {"libnccl": "2.29.7-1"}, [{"packages": ["a", "b"], "version": "1-*"}]
    )
    assert lines == ["libnccl-2.29.7-1", "a-1-*", "b-1-*"]
    added = rpm_family.locked(LOCKS, "nccl", lines)
    assert added.startswith(LOCKS) and added.count("libnccl-2.29.7-1") == 1
    assert rpm_family.locked(added, "nccl", lines) == added
    assert rpm_family.locked(added, "nccl", []) == LOCKS
    changed = rpm_family.locked(added, "cuda", ["cuda-toolkit-11-8-11.8.0-1"])
    assert changed == added.replace("cuda-toolkit-12-9-12.9.1-1", "cuda-toolkit-11-8-11.8.0-1")
    assert rpm_family.locked("", "nccl", []) == ""


def test_anothers_lock_on_another_version_is_found() -> None:
    wanted = {"nvidia-driver-cuda": "580.105.08-1.el9"}
    assert rpm_family.foreign_locks(LOCKS, wanted) == ["nvidia-driver-cuda-3:535.104.12-1.el9.*"]
    assert rpm_family.foreign_locks(LOCKS, {"nvidia-driver-cuda": "535.104.12-1.el9"}) == []
    # The lines of this project are no others'.
    assert rpm_family.foreign_locks(LOCKS, {"cuda-toolkit-12-9": "12.9.2-1"}) == []
    excluded = "!libnccl-0:2.29.7-1+cuda12.9.*\n"
    assert rpm_family.foreign_locks(excluded, {"libnccl": "2.29.7-1+cuda12.9"})
    assert not rpm_family.foreign_locks(excluded, {"libnccl": "2.30.0-1+cuda13.0"})


@pytest.mark.parametrize(("signed", "packages", "index"), [("packages", 1, 0), ("index", 0, 1)])
def test_a_repository_is_always_verified(signed: str, packages: int, index: int) -> None:
    repository = {"name": "nvidia-cuda", "uri": "file:/srv/x/", "signed": signed}
    text = rpm_family.repository_text(repository, "/etc/pki/rpm-gpg/dlperf-nvidia-cuda")
    assert "[dlperf-nvidia-cuda]\n" in text
    assert "baseurl=file:///srv/x/\n" in text
    assert "gpgkey=file:///etc/pki/rpm-gpg/dlperf-nvidia-cuda\n" in text
    assert f"\ngpgcheck={packages}\nrepo_gpgcheck={index}\n" in text


def test_a_key_in_armour_is_the_same_key() -> None:
    binary = bytes(range(256)) * 3
    armour = openpgp_key.armored(binary)
    assert openpgp_key.dearmored(armour) == binary
    assert max(map(len, armour.splitlines())) == 64


@pytest.mark.parametrize(
    ("release", "is_rpm"),
    [
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n', True),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"\n', True),
        ('ID="rhel"\nID_LIKE="fedora"\n', True),
        ("ID=ubuntu\nID_LIKE=debian\n", False),
        ('PRETTY_NAME="not rhel"\nID=debian\n', False),
    ],
)
def test_the_system_says_whether_its_packages_are_rpm(
    tmp_path: Path, release: str, is_rpm: bool
) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/os-release").write_text(release)
    assert node_packages.has_rpm(str(tmp_path)) == is_rpm
    assert not node_packages.has_rpm(str(tmp_path / "nowhere"))


def test_labels_are_restored_only_where_selinux_is_on(tmp_path: Path) -> None:
    told = tmp_path / "told"
    folder = program(tmp_path / "bin", "restorecon", f'echo "$@" >> {told}')
    enforce = tmp_path / "enforce"
    script = whole_files.RELABEL.replace("/sys/fs/selinux/enforce", str(enforce))
    argv = ["sh", "-c", script, "sh", "/home/dlperf/.ssh"]
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    subprocess.run(argv, check=True, env=environment)
    assert not told.exists()
    enforce.write_text("1")
    subprocess.run(argv, check=True, env=environment)
    assert told.read_text() == "-R /home/dlperf/.ssh\n"
