"""The module deb_packages, and the locks of apt and dpkg that are waited for."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible.module_utils import dpkg_locks
from executed_modules import call
from standin_repository import Standin, stanzas_of


def test_what_is_installed_costs_no_apt() -> None:
    result = call("deb_packages", names=["base-files", "dpkg"])
    assert not result["changed"]
    assert set(result["versions"]) == {"base-files", "dpkg"}


def test_check_mode_names_what_would_be_installed() -> None:
    result = call("deb_packages", check=True, names=["dpkg", "no-such-package-here=1.2"])
    assert result["changed"]
    assert "no-such-package-here 1.2" in result["diff"]["after"]
    assert "no-such-package-here" not in result["diff"]["before"]


# Real apt and dpkg in a root that is private as far as they write, with a repository of one empty
# package. Another process holds one of their locks, by fcntl as they do. Arguments: the
# repository, the lock, for how many seconds, and Python; then the command.
PRIVATE_ROOT = r"""
set -e
for place in /etc/apt /var/lib /var/cache /var/log; do mount -t tmpfs tmpfs $place; done
mkdir -p /var/lib/dpkg/info /var/lib/dpkg/updates /var/lib/dpkg/triggers /var/lib/apt/lists/partial
mkdir -p /var/cache/apt/archives/partial /var/log/apt /etc/apt/apt.conf.d /etc/apt/preferences.d
touch /var/lib/dpkg/status
echo "deb [trusted=yes] file:$1 ./" > /etc/apt/sources.list
echo 'APT::Sandbox::User "root";' > /etc/apt/apt.conf.d/99test
"$4" -c '
import fcntl, os, sys, time
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o640)
fcntl.lockf(lock, fcntl.LOCK_EX)
open("/var/lib/held", "w").close()
time.sleep(float(sys.argv[2]))
' "$2" "$3" < /dev/null > /dev/null 2>&1 &
until test -e /var/lib/held; do sleep 0.1; done
trap 'kill $! 2>/dev/null || true' EXIT
shift 4
"$@"
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    (stanza,) = stanzas_of([Standin("dlperf-empty", "1.0")], folder, "./")
    (folder / "Packages").write_text(stanza)
    return folder


def rooted(repository: Path, lock: str, seconds: int) -> list[str]:
    """What stands before a command, so that its root is private and the lock is held."""
    script = ["unshare", "--map-root-user", "--mount", "sh", "-c", PRIVATE_ROOT, "sh"]
    return [*script, str(repository), f"/var/{lock}", str(seconds), sys.executable]


def bootstrapped(prefix: list[str], *options: str) -> subprocess.CompletedProcess[str]:
    """The script by which the role bootstrap installs Python."""
    script = Path(__file__).parents[2] / "roles/bootstrap/files/install_python.sh"
    argv = [*prefix, "sh", str(script), "dlperf-empty", *options]
    return subprocess.run(argv, capture_output=True, text=True, timeout=600, check=False)


def installed(repository: Path, lock: str, seconds: int, timeout: int) -> dict[str, Any]:
    prefix = rooted(repository, lock, seconds)
    return call("deb_packages", prefix=prefix, names=["dlperf-empty"], lock_timeout=timeout)


@pytest.mark.parametrize("lock", ["lib/dpkg/lock-frontend", "lib/apt/lists/lock"])
def test_it_is_waited_for(repository: Path, lock: str) -> None:
    result = installed(repository, lock, 4, 300)
    assert result.get("versions") == {"dlperf-empty": "1.0"}, result


def test_it_is_waited_for_so_long_and_its_holder_named(repository: Path) -> None:
    result = installed(repository, "lib/dpkg/lock-frontend", 600, 2)
    assert result["failed"]
    assert re.search(
        r"python\S*, process \d+ has held /var/lib/dpkg/lock-frontend for 2 s", result["msg"]
    )
    assert result["msg"].endswith("dlperf_lock_timeout sets how long to wait")


@pytest.mark.parametrize(("seconds", "status"), [(3, 0), (600, 100)])
def test_before_there_is_a_python_it_is_waited_for_too(
    repository: Path, seconds: int, status: int
) -> None:
    lock = "lib/dpkg/lock-frontend"
    prefix = rooted(repository, lock, seconds)
    done = bootstrapped(prefix, "300" if status == 0 else "2")
    assert done.returncode == status, done.stdout + done.stderr
    if status == 0:
        assert "Setting up dlperf-empty (1.0)" in done.stdout
    else:
        assert re.match(rf"python\S*, process \d+ has held /var/{lock} for 2 s", done.stderr)


def test_before_there_is_a_python_the_mirror_is_verified(repository: Path) -> None:
    """This one is not signed; tests/lab/test_lab_rootfs.py installs from one that is."""
    prefix = rooted(repository, "lib/dpkg/unused", 0)
    done = bootstrapped(prefix, "2", f"file:{repository}", "bookworm", "no key")
    assert done.returncode != 0
    assert "Setting up" not in done.stdout
    assert "does not have a Release file" in done.stderr


def test_a_lock_that_is_taken_after_the_check_is_waited_for_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """dpkg's words of Ubuntu 16.04, which lost the race."""
    monkeypatch.setattr(dpkg_locks, "LOCKS", ())
    lost = "dpkg: error: dpkg status database is locked by another process\n"
    answers = [(2, "", lost), (0, "configured", "")]
    module = SimpleNamespace(run_command=lambda *_, **__: answers.pop(0))
    done = dpkg_locks.run_when_free(module, ["dpkg", "--configure", "-a"], 60, {})
    assert done == (0, "configured", "")
    answers += [(1, "", "E: broken"), (0, "", "")]
    assert dpkg_locks.run_when_free(module, ["dpkg"], 60, {})[0] == 1
