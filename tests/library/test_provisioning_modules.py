"""The modules that provision nodes, executed on this machine as Ansible executes them there."""

from __future__ import annotations

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from executed_modules import HAVE_RUNUSER, ME, call
from filters import provision
from standins import MODULE_UTILS, wheel


class TestNodeFiles:
    def test_a_second_run_changes_nothing(self, tmp_path: Path) -> None:
        hosts = tmp_path / "hosts"
        hosts.write_text("127.0.0.1 localhost\n")
        entries = [
            {"path": str(tmp_path / "tree" / "deep"), "state": "directory", "mode": "0750"},
            {"path": str(tmp_path / "tree" / "file"), "content": "text", "mode": "0600"},
            {"path": str(tmp_path / "tree" / "ended"), "content": "größer\n"},
            {"path": str(hosts), "state": "block", "content": "10.11.0.2 node1"},
        ]
        checked = call("node_files", check=True, entries=entries[::2])
        assert checked["changed"]
        assert not (tmp_path / "tree").exists()
        first = call("node_files", entries=entries)
        assert first["changed_paths"] == [entry["path"] for entry in entries]
        assert (tmp_path / "tree" / "file").read_text() == "text\n"
        assert (tmp_path / "tree" / "file").stat().st_mode & 0o777 == 0o600
        assert (tmp_path / "tree" / "deep").stat().st_mode & 0o777 == 0o750
        assert not call("node_files", entries=entries)["changed"]

    def test_a_keyring_is_the_binary_of_an_armored_key(self, tmp_path: Path) -> None:
        block = "PGP PUBLIC KEY BLOCK-----"
        armored = f"-----BEGIN {block}\n\nmDMEZA==\n-----END {block}\n"
        path = tmp_path / "mirror.gpg"
        entries = [{"path": str(path), "state": "keyring", "content": armored}]
        assert call("node_files", check=True, entries=entries)["changed"]
        assert not path.exists()
        assert call("node_files", entries=entries)["changed"]
        assert path.read_bytes() == b"\x98\x33\x04\x64"
        assert not call("node_files", entries=entries)["changed"]
        entries[0]["content"] = armored[:60]
        assert "armour" in call("node_files", entries=entries)["msg"]

    def test_a_name_of_the_cluster_is_no_loopback_address(self, tmp_path: Path) -> None:
        """`127.0.1.1 node1` is what Debian's installer writes, and the first line counts."""
        hosts = tmp_path / "hosts"
        before = (
            "127.0.0.1\tlocalhost node2\n"
            "127.0.1.1\tnode1.example.org node1\t# by the installer\n"
            "127.0.1.1 node10\n"
            "10.0.0.9 node2.other\n"
            "# 127.0.1.1 node1\n"
            "::1 ip6-localhost ip6-loopback node1\n"
        )
        hosts.write_text(before)

        def block(content: str, check: bool = False) -> dict[str, Any]:
            entry = {"path": str(hosts), "state": "hosts", "content": content}
            return call("node_files", check=check, entries=[entry])

        cluster = "10.11.0.2 node1\n10.11.0.3 node2"
        assert block(cluster, check=True)["changed"]
        assert hosts.read_text() == before
        block(cluster)
        after = hosts.read_text()
        lines = [line.partition("#")[0].split() for line in after.splitlines()]
        assert [fields for fields in lines if fields] == [
            ["127.0.0.1", "localhost"],
            ["127.0.1.1", "node10"],
            ["10.0.0.9", "node2.other"],
            ["::1", "ip6-localhost", "ip6-loopback"],
            # With its full name, by which the host knows its domain.
            ["10.11.0.2", "node1.example.org", "node1"],
            ["10.11.0.3", "node2"],
        ]
        assert not block(cluster)["changed"]
        # A line that somebody adds later.
        hosts.write_text(after + "127.0.1.1 node2\n")
        assert block(cluster)["changed"]
        assert "\n127.0.1.1 node2\n" not in hosts.read_text()
        # node1 leaves the cluster, and has its lines again.
        block("10.11.0.3 node2")
        assert "\n127.0.1.1\tnode1.example.org node1\t# by the installer\n" in hosts.read_text()
        block("")
        assert hosts.read_text() == before + "127.0.1.1 node2\n"

    def test_a_block_is_replaced_and_removed_and_the_rest_stays(self, tmp_path: Path) -> None:
        hosts = tmp_path / "hosts"
        hosts.write_text("first\n")

        def block(content: str) -> dict[str, Any]:
            entry = {"path": str(hosts), "state": "block", "content": content}
            return call("node_files", entries=[entry])

        block("one\ntwo")
        hosts.write_text(hosts.read_text() + "last\n")
        block("three")
        assert hosts.read_text() == (
            "first\n# BEGIN dlperf_runner\nthree\n# END dlperf_runner\nlast\n"
        )
        assert block("")["changed"]
        assert hosts.read_text() == "first\nlast\n"

    def test_a_block_whose_end_is_lost_is_refused(self, tmp_path: Path) -> None:
        hosts = tmp_path / "hosts"
        hosts.write_text("# BEGIN dlperf_runner\nsomebody's line\n")
        result = call(
            "node_files", entries=[{"path": str(hosts), "state": "block", "content": "x"}]
        )
        assert result["failed"]
        assert "# END" in result["msg"]
        assert "somebody's line" in hosts.read_text()


class TestDebPackages:
    def test_what_is_installed_costs_no_apt(self) -> None:
        result = call("deb_packages", names=["base-files", "dpkg"])
        assert not result["changed"]
        assert set(result["versions"]) == {"base-files", "dpkg"}

    def test_check_mode_names_what_would_be_installed(self) -> None:
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
shift 4
"$@"
kill $! 2>/dev/null || true
"""


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("repository")
    control = folder / "empty/DEBIAN/control"
    control.parent.mkdir(parents=True)
    control.write_text(
        "Package: dlperf-empty\nVersion: 1.0\nArchitecture: all\n"
        "Maintainer: tests <tests@example.invalid>\nDescription: nothing\n"
    )
    subprocess.run(["dpkg-deb", "--build", "empty", "."], cwd=folder, check=True)
    index = subprocess.run(
        ["apt-ftparchive", "packages", "."], cwd=folder, check=True, capture_output=True
    )
    (folder / "Packages").write_bytes(index.stdout)
    return folder


class TestLocks:
    def installed(self, repository: Path, lock: str, seconds: int, timeout: int) -> dict[str, Any]:
        script = ["unshare", "--map-root-user", "--mount", "sh", "-c", PRIVATE_ROOT, "sh"]
        prefix = [*script, str(repository), f"/var/{lock}", str(seconds), sys.executable]
        return call("deb_packages", prefix=prefix, names=["dlperf-empty"], lock_timeout=timeout)

    @pytest.mark.parametrize("lock", ["lib/dpkg/lock-frontend", "lib/apt/lists/lock"])
    def test_it_is_waited_for(self, repository: Path, lock: str) -> None:
        result = self.installed(repository, lock, 4, 60)
        assert result.get("versions") == {"dlperf-empty": "1.0"}, result

    def test_it_is_waited_for_so_long_and_its_holder_named(self, repository: Path) -> None:
        result = self.installed(repository, "lib/dpkg/lock-frontend", 60, 2)
        assert result["failed"]
        assert re.search(
            r"python\S*, process \d+ has held /var/lib/dpkg/lock-frontend for 2 s", result["msg"]
        )
        assert result["msg"].endswith("dlperf_lock_timeout sets how long to wait")

    @pytest.mark.parametrize(("seconds", "status"), [(3, 0), (60, 100)])
    def test_before_there_is_a_python_it_is_waited_for_too(
        self, repository: Path, seconds: int, status: int
    ) -> None:
        """The script by which the role bootstrap installs Python."""
        lock = "/var/lib/dpkg/lock-frontend"
        script = Path(__file__).parents[2] / "roles/bootstrap/files/install_python.sh"
        argv = ["unshare", "--map-root-user", "--mount", "sh", "-c", PRIVATE_ROOT, "sh"]
        argv += [str(repository), lock, str(seconds), sys.executable]
        argv += ["sh", str(script), "dlperf-empty", "20" if status == 0 else "2"]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == status, done.stdout + done.stderr
        if status == 0:
            assert "Setting up dlperf-empty (1.0)" in done.stdout
        else:
            assert re.match(rf"python\S*, process \d+ has held {lock} for 2 s", done.stderr)

    def test_a_lock_that_is_taken_after_the_check_is_waited_for_again(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """dpkg's words of Ubuntu 16.04, which lost the race."""
        monkeypatch.syspath_prepend(MODULE_UTILS)
        locks = importlib.import_module("dpkg_locks")
        monkeypatch.setattr(locks, "LOCKS", ())
        lost = "dpkg: error: dpkg status database is locked by another process\n"
        answers = [(2, "", lost), (0, "configured", "")]
        module = SimpleNamespace(run_command=lambda *_, **__: answers.pop(0))
        done = locks.run_when_free(module, ["dpkg", "--configure", "-a"], 60, {})
        assert done == (0, "configured", "")
        answers += [(1, "", "E: broken"), (0, "", "")]
        assert locks.run_when_free(module, ["dpkg"], 60, {})[0] == 1


class TestLimits:
    def limit(self, path: Path, value: str, prefix: Sequence[str] = ()) -> dict[str, Any]:
        entry = {
            "path": str(path),
            "state": "limits",
            "user": "somebody",
            "limits": {"nofile": value},
        }
        return call("node_files", prefix=prefix, entries=[entry])

    def test_a_limit_that_can_be_set_is_written_as_it_stands(self, tmp_path: Path) -> None:
        path = tmp_path / "limits.conf"
        assert self.limit(path, "64")["changed"]
        assert "somebody - nofile 64\n" in path.read_text()
        assert not self.limit(path, "64")["changed"]

    def test_one_that_cannot_be_raised_is_written_as_high_as_it_goes(self, tmp_path: Path) -> None:
        path = tmp_path / "limits.conf"
        prefix = ["prlimit", "--nofile=256:256"]
        if os.geteuid() == 0:
            prefix += ["setpriv", "--bounding-set", "-sys_resource"]
        result = self.limit(path, "99999", prefix)
        assert "somebody - nofile 256\n" in path.read_text()
        assert "requested 99999" in str(result["warnings"])

    def test_an_unknown_limit_is_refused(self, tmp_path: Path) -> None:
        result = self.limit(tmp_path / "limits.conf", "much")
        assert result["failed"]
        assert "found nofile: much" in result["msg"]


@pytest.mark.skipif(not HAVE_RUNUSER, reason="runs a command as another user")
class TestProof:
    def prove(self, stamps: Path, argv: list[str], expect: str, **more: Any) -> dict[str, Any]:
        command = {"name": "it", "argv": argv, "expect": expect}
        return call("proof", name="p", commands=[command], user=ME, stamps=str(stamps), **more)

    def test_what_is_proven_is_not_run_again_until_its_inputs_change(self, tmp_path: Path) -> None:
        count = tmp_path / "count"
        argv = ["sh", "-c", f"echo x >> {count}; echo sum 3"]
        outcomes = [
            self.prove(tmp_path, argv, "^sum 3$", inputs={"version": version}, force=force)
            for version, force in [("1", False), ("1", False), ("2", False), ("2", True)]
        ]
        assert [outcome["proven"] for outcome in outcomes] == ["now", "before", "now", "now"]
        assert [outcome["changed"] for outcome in outcomes] == [True, False, True, False]
        assert count.read_text() == "x\n" * 3

    def test_an_exit_status_of_0_is_not_enough(self, tmp_path: Path) -> None:
        result = self.prove(tmp_path, ["echo", "sum 4"], "^sum 3$")
        assert result["failed"]
        assert "sum 4" in result["msg"]
        assert not list(tmp_path.iterdir())

    def test_a_failure_takes_the_stamp_away(self, tmp_path: Path) -> None:
        self.prove(tmp_path, ["echo", "ok"], "ok")
        assert list(tmp_path.iterdir())
        result = self.prove(tmp_path, ["sh", "-c", "echo why >&2; exit 3"], "ok", force=True)
        assert "exit status 3; output: why" in result["msg"]
        assert not list(tmp_path.iterdir())

    def test_what_hangs_is_ended_with_its_children(self, tmp_path: Path) -> None:
        marker = f"3600.{os.getpid()}"
        result = self.prove(tmp_path, ["sh", "-c", f"sleep {marker} & wait"], "ok", timeout=1)
        assert "not finished within 1 s" in result["msg"]
        left = subprocess.run(["pgrep", "-f", f"sleep {marker}"], check=False, capture_output=True)
        assert not left.stdout

    def test_what_left_the_session_and_keeps_its_output_is_not_waited_for(
        self, tmp_path: Path
    ) -> None:
        began = time.monotonic()
        command = ["sh", "-c", "setsid sleep 30 & echo ok"]
        assert self.prove(tmp_path, command, "^ok$")["proven"] == "now"
        assert time.monotonic() - began < 20

    def test_check_mode_runs_nothing(self, tmp_path: Path) -> None:
        result = self.prove(tmp_path, ["touch", str(tmp_path / "x")], "ok", check=True)
        assert result["proven"] == "no"


REQUIREMENT = "{name} @ file://{path} --hash=sha256:{digest}"


class TestPythonEnvironment:
    UV = str(Path(sys.executable).parent / "uv")

    def environment(self, folder: Path, requirements: str = "", **more: Any) -> dict[str, Any]:
        given = {"interpreter": os.path.realpath(sys.executable), "uv": self.UV, **more}
        return call(
            "python_environment",
            path=str(folder / "env"),
            requirements=requirements,
            find_links=str(folder),
            **given,
        )

    def test_it_is_made_once_and_follows_its_pins(self, tmp_path: Path) -> None:
        _path, one = wheel(tmp_path, "alpha", "1.0")
        _path, two = wheel(tmp_path, "alpha", "2.0")
        first = f"alpha==1.0 \\\n    --hash=sha256:{one}\n"
        second = f"alpha==2.0 ; python_version >= '3.8' \\\n    --hash=sha256:{two}\n"
        checked = self.environment(tmp_path, first, check=True)
        assert checked["changed"]
        assert checked["diff"]["after"] == "alpha==1.0\n"
        assert not (tmp_path / "env").exists()
        assert self.environment(tmp_path, first)["packages"] == {"alpha": "1.0"}
        shared = [path for path in (tmp_path / "env").rglob("*") if path.stat().st_mode & 0o022]
        assert shared == []
        assert not self.environment(tmp_path, first)["changed"]
        assert self.environment(tmp_path, second)["packages"] == {"alpha": "2.0"}
        assert not self.environment(tmp_path, second, check=True)["changed"]

    def test_an_interpreter_that_is_not_there_will_be_there_after_check_mode(
        self, tmp_path: Path
    ) -> None:
        """What built it has only said that it would."""
        absent = str(tmp_path / "python/bin/python3")
        assert self.environment(tmp_path, interpreter=absent, check=True)["changed"]
        result = self.environment(tmp_path, interpreter=absent)
        assert result["failed"]
        assert f"this node has no interpreter {absent}" in result["msg"]

    @pytest.mark.parametrize("seen", [True, False])
    def test_it_sees_the_packages_of_the_distribution_where_that_is_asked_for(
        self, tmp_path: Path, seen: bool
    ) -> None:
        self.environment(tmp_path, system_packages=seen)
        settings = (tmp_path / "env/pyvenv.cfg").read_text()
        assert f"include-system-site-packages = {str(seen).lower()}" in settings

    def test_an_environment_whose_filling_was_cut_off_is_made_anew(self, tmp_path: Path) -> None:
        _path, digest = wheel(tmp_path, "alpha", "1.0")
        text = f"alpha==1.0 --hash=sha256:{digest}"
        self.environment(tmp_path, text)
        (tmp_path / "env" / "dlperf-unfinished").touch()
        (module,) = (tmp_path / "env").glob("lib/*/site-packages/alpha.py")
        module.unlink()
        assert self.environment(tmp_path, text)["changed"]
        assert module.exists()
        assert not self.environment(tmp_path, text)["changed"]

    def test_a_wheel_with_another_hash_is_refused(self, tmp_path: Path) -> None:
        wheel(tmp_path, "alpha", "1.0")
        result = self.environment(tmp_path, f"alpha==1.0 --hash=sha256:{'0' * 64}")
        assert result["failed"]
        assert "hash" in result["msg"].lower()

    def test_a_wheel_by_its_path_is_replaced_when_the_path_changes(self, tmp_path: Path) -> None:
        for folder in ("a", "b"):
            (tmp_path / folder).mkdir()
            path, digest = wheel(tmp_path / folder, "alpha", "1.0")
            text = REQUIREMENT.format(name="alpha", path=path, digest=digest)
            assert self.environment(tmp_path, text, dependencies=False)["changed"]
            assert not self.environment(tmp_path, text, dependencies=False)["changed"]

    @pytest.mark.parametrize(
        ("built", "uv"),
        [("net_cu102-0.1.8", UV), ("net_cu102-0.1.8", None), ("net-0.1.8+git.17a2bdc9b", UV)],
    )
    def test_an_operators_wheel_is_installed_under_the_name_of_its_metadata(
        self, tmp_path: Path, built: str, uv: str | None
    ) -> None:
        """Of an entry of the catalogue that is called net."""
        path, digest = wheel(tmp_path, *built.split("-"))
        wanted = {"distribution": "net", "names": ["net_cu102"], "version": "0.1.8", "reason": ""}
        given = {"net": {"path": path, "sha256": digest}}
        found = provision._operator_wheel("net", wanted, given)
        text = REQUIREMENT.format(name=found["distribution"], path=path, digest=digest)
        made = self.environment(tmp_path, text, dependencies=False, uv=uv)
        name = found["distribution"].replace("_", "-")
        assert made["packages"] == {name: found["version"]}, made
        assert not self.environment(tmp_path, text, dependencies=False, uv=uv)["changed"]
        (module,) = (tmp_path / "env").glob("lib/*/site-packages/net.py")
        assert found["version"] in module.read_text()

    def test_a_requirement_for_another_python_is_left_out(self, tmp_path: Path) -> None:
        digest = f" --hash=sha256:{'0' * 64}\n"
        text = (
            f"alpha==1.0 ; python_full_version < '3.8' and sys_platform == 'linux'{digest}"
            f"beta==1.0 ; (sys_platform == 'win32' or platform_machine == 'none'){digest}"
        )
        assert self.environment(tmp_path, text)["packages"] == {}


@pytest.mark.skipif(not HAVE_RUNUSER, reason="acts as another user")
class TestSshMesh:
    """With an account that exists only in a mount namespace around the module."""

    ACCOUNT = "dlperfmesh"

    @pytest.fixture
    def home(self) -> Iterator[Path]:
        with tempfile.TemporaryDirectory() as folder:
            Path(folder).chmod(0o755)
            home = Path(folder) / "home"
            home.mkdir()
            os.chown(home, 64321, 64321)
            for name, line in (
                ("passwd", f"{self.ACCOUNT}:x:64321:64321::{home}:/bin/sh\n"),
                ("shadow", f"{self.ACCOUNT}:*:19000:0:99999:7:::\n"),
                ("group", f"{self.ACCOUNT}:x:64321:\n"),
            ):
                (Path(folder) / name).write_text(Path("/etc", name).read_text() + line)
            yield home

    def call(self, home: Path, module: str, check: bool = False, **given: Any) -> dict[str, Any]:
        binds = "".join(
            f"mount --bind {home.parent}/{name} /etc/{name} && "
            for name in ("passwd", "shadow", "group")
        )
        prefix = ["unshare", "--mount", "sh", "-c", binds + 'exec "$@"', "sh"]
        return call(module, check, prefix, user=self.ACCOUNT, **given)

    def test_keys_are_made_once_and_strangers_stay(self, home: Path, tmp_path: Path) -> None:
        host_key = tmp_path / "host.pub"
        host_key.write_text("ssh-ed25519 AAAAhost root@here\n")
        arguments = {
            "comment": "a@node1",
            "host_key_files": [str(host_key)],
        }
        checked = self.call(home, "ssh_mesh_identity", check=True, **arguments)
        assert checked["changed"]
        assert checked["public_key"] is None
        first = self.call(home, "ssh_mesh_identity", **arguments)
        assert first["public_key"].startswith("ssh-ed25519 AAAA")
        assert first["host_keys"] == ["ssh-ed25519 AAAAhost"]
        again = self.call(home, "ssh_mesh_identity", **arguments)
        assert not again["changed"]
        assert again["public_key"] == first["public_key"]
        ssh = home / ".ssh"
        assert ssh.stat().st_mode & 0o777 == 0o700
        assert (ssh / "id_ed25519").stat().st_uid == 64321

        authorized, known = ssh / "authorized_keys", tmp_path / "known"
        authorized.write_text("ssh-rsa AAAAB3 a colleague\n")

        def member(name: str, number: int, key: str | None) -> dict[str, Any]:
            keys = [f"ssh-ed25519 AAAAhost{number}"] if key else []
            return {
                "name": name,
                "addresses": [f"10.11.0.{number}"],
                "public_key": key,
                "host_keys": keys,
            }

        def trust(*members: dict[str, Any], check: bool = False) -> dict[str, Any]:
            return self.call(home, "ssh_mesh_trust", check, members=members, known_hosts=str(known))

        one = member("node1", 2, first["public_key"])
        two = member("node2", 3, "ssh-ed25519 AAAAtwo")
        assert trust(one, two, check=True)["changed"]
        assert not known.exists()
        assert trust(one, two)["members"] == ["node1", "node2"]
        assert not trust(one, two)["changed"]
        lines = authorized.read_text().splitlines()
        assert lines[0] == "ssh-rsa AAAAB3 a colleague"
        assert (
            'from="10.11.0.2,10.11.0.3",no-agent-forwarding,no-port-forwarding,no-X11-forwarding'
            " ssh-ed25519 AAAAtwo dlperf_runner:node2"
        ) in lines
        assert "node2,10.11.0.3 ssh-ed25519 AAAAhost3 dlperf_runner:node2" in known.read_text()
        assert authorized.stat().st_mode & 0o777 == 0o600

        # node2 is down in this run: it keeps its entries. Then it is no member any more.
        down = member("node2", 3, None)
        assert not trust(one, down)["changed"]
        assert trust(one)["changed"]
        assert "node2" not in authorized.read_text() + known.read_text()
        assert "a colleague" in authorized.read_text()

    def test_a_link_in_the_home_shows_root_no_file(self, home: Path, tmp_path: Path) -> None:
        secret = tmp_path / "secret"
        secret.write_text("secret\n")
        secret.chmod(0o600)
        ssh = home / ".ssh"
        ssh.mkdir()
        (ssh / "authorized_keys").symlink_to(secret)
        for path in (ssh, ssh / "authorized_keys"):
            os.chown(path, 64321, 64321, follow_symlinks=False)
        one = {
            "name": "node1",
            "addresses": ["10.11.0.2"],
            "public_key": "ssh-ed25519 AAAA",
            "host_keys": ["ssh-ed25519 AAAA"],
        }
        known = str(tmp_path / "known")
        result = self.call(home, "ssh_mesh_trust", members=[one], known_hosts=known)
        assert result.get("failed") or "secret" not in (ssh / "authorized_keys").read_text()
        assert secret.read_text() == "secret\n"

    @pytest.mark.parametrize("kind", ["FIFO", "device", "huge"])
    def test_what_blocks_or_never_ends_in_the_home_is_refused(
        self, home: Path, tmp_path: Path, kind: str
    ) -> None:
        ssh = home / ".ssh"
        ssh.mkdir()
        os.chown(ssh, 64321, 64321)
        host_key = tmp_path / "host.pub"
        host_key.write_text("ssh-ed25519 AAAAhost root@here\n")
        (ssh / "id_ed25519").touch()
        for path in (ssh / "authorized_keys", ssh / "id_ed25519.pub"):
            if kind == "FIFO":
                os.mkfifo(path)
                path.chmod(0o644)
            elif kind == "device":
                path.symlink_to("/dev/zero")
            else:
                path.touch()
                os.truncate(path, 1 << 40)
        given = {"members": [], "known_hosts": str(tmp_path / "known")}
        result = self.call(home, "ssh_mesh_trust", **given)
        assert f"{ssh}/authorized_keys: " in result["msg"]
        found = self.call(home, "ssh_mesh_identity", comment="it", host_key_files=[str(host_key)])
        said = (
            "not finished within 20 s"
            if kind == "FIFO"
            else "id_ed25519.pub is not a valid public key"
        )
        assert said in found["msg"]

    def test_an_address_that_is_none_is_refused(self, tmp_path: Path) -> None:
        one = {"name": "node1", "addresses": ["node1.example"], "host_keys": []}
        result = call("ssh_mesh_trust", user=ME, members=[one], known_hosts=str(tmp_path / "k"))
        assert result["failed"]
        assert "dlperf_address" in result["msg"]


class TestHorovodBasis:
    def test_the_key_names_what_the_wheel_depends_on(self, tmp_path: Path) -> None:
        site = tmp_path / "env" / "lib" / "python3.11" / "site-packages"
        (site / "mxnet-1.9.1.dist-info").mkdir(parents=True)
        mpirun = tmp_path / "mpirun"
        mpirun.write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
        mpirun.chmod(0o755)
        arguments = {
            "environment": str(tmp_path / "env"),
            "distribution": "mxnet",
            "version": "0.28.1",
            "mpirun": str(mpirun),
        }
        result = call("horovod_basis", options={"A": "1"}, **arguments)
        assert result["key"].startswith("horovod-0.28.1_mxnet-1.9.1_cp311_openmpi-4.1.4_glibc-2.")
        assert result["installed_key"] is None
        other = call("horovod_basis", options={"A": "2"}, **arguments)
        assert other["key"] != result["key"]

        info = site / "horovod-0.28.1.dist-info"
        info.mkdir()
        url = f"file:///opt/dlperf/wheels/{result['key']}/horovod-0.28.1-cp311.whl"
        (info / "direct_url.json").write_text(json.dumps({"url": url}))
        again = call("horovod_basis", check=True, options={"A": "1"}, **arguments)
        assert again["installed_key"] == result["key"]
        assert not again["changed"]

    def test_on_a_fresh_node_check_mode_goes_on_and_a_real_run_does_not(
        self, tmp_path: Path
    ) -> None:
        arguments = {
            "environment": str(tmp_path / "env"),
            "distribution": "mxnet",
            "version": "0.28.1",
            "mpirun": str(tmp_path / "mpirun"),
        }
        checked = call("horovod_basis", check=True, **arguments)
        assert checked["changed"]
        assert checked["key"] is None
        assert "mpirun" in call("horovod_basis", **arguments)["msg"]


def node_facts(**arguments: Any) -> dict[str, Any]:
    facts: dict[str, Any] = call("node_facts", **arguments)["ansible_facts"]
    return facts["dlperf_node"] | {"release": facts["distribution_release"]}


class TestNodeFacts:
    def test_it_says_release_interpreter_and_stamps(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text('{"proven": "a", "inputs": {"version": "1"}}')
        (tmp_path / "broken.json").write_text("{")
        result = node_facts(interpreter=sys.executable, stamps=str(tmp_path))
        assert result["stamps"] == {"a": {"version": "1"}}
        assert result["python_version"] == ".".join(str(part) for part in sys.version_info[:3])
        codename = f"VERSION_CODENAME={result['release']}\n"
        assert codename in Path("/etc/os-release").read_text()

    def test_it_says_which_builds_of_ours_are_there(self, tmp_path: Path) -> None:
        (tmp_path / "ours").mkdir()
        (tmp_path / "ours/.dlperf-build").write_text("python-3.7.17_1\n")
        (tmp_path / "foreign").mkdir()
        paths = [str(tmp_path / name) for name in ("ours", "foreign", "absent")]
        result = node_facts(builds=paths, stamps=str(tmp_path))
        assert result["builds"] == {paths[0]: "python-3.7.17_1"}

    def test_an_interpreter_that_is_not_there_has_no_version(self, tmp_path: Path) -> None:
        result = node_facts(interpreter=str(tmp_path / "python"), stamps=str(tmp_path))
        assert result["python_version"] is None
