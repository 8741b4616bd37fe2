"""The modules of passwordless SSH between nodes."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from executed_modules import HAVE_RUNUSER, ME, call
from standins import program


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

    @pytest.fixture
    def host_key(self, tmp_path: Path) -> dict[str, list[str]]:
        (tmp_path / "host.pub").write_text("ssh-ed25519 AAAAhost root@here\n")
        return {"host_key_files": [str(tmp_path / "host.pub")]}

    def test_keys_are_made_once_and_strangers_stay(
        self, home: Path, tmp_path: Path, host_key: dict[str, list[str]]
    ) -> None:
        arguments = {"comment": "a@node1", **host_key}
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

        def trust(*members: dict[str, Any], check: bool = False) -> dict[str, Any]:
            return self.call(home, "ssh_mesh_trust", check, members=members, known_hosts=str(known))

        one = self.member("node1", first["public_key"])
        two = self.member("node2", "ssh-ed25519 AAAAtwo")
        assert trust(one, two, check=True)["changed"]
        assert not known.exists()
        assert trust(one, two)["members"] == ["node1", "node2"]
        assert not trust(one, two)["changed"]
        lines = authorized.read_text().splitlines()
        assert lines[0] == "ssh-rsa AAAAB3 a colleague"
        assert (
            'from="10.11.0.1,10.11.0.2",no-agent-forwarding,no-port-forwarding,no-X11-forwarding'
            " ssh-ed25519 AAAAtwo dlperf_runner:node2"
        ) in lines
        assert "node2,10.11.0.2 ssh-ed25519 AAAAhostnode2 dlperf_runner:node2" in known.read_text()
        assert authorized.stat().st_mode & 0o777 == 0o600

        # node2 is down in this run: it keeps its entries. Then it is no member any more.
        down = self.member("node2", None)
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
        given = {"members": [self.member("node1")], "known_hosts": str(tmp_path / "known")}
        result = self.call(home, "ssh_mesh_trust", **given)
        assert result.get("failed") or "secret" not in (ssh / "authorized_keys").read_text()
        assert secret.read_text() == "secret\n"

    @pytest.mark.parametrize("kind", ["FIFO", "device", "huge"])
    def test_what_blocks_or_never_ends_in_the_home_is_refused(
        self, home: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch,
        host_key: dict[str, list[str]],
    ) -> None:  # fmt: skip
        ssh = home / ".ssh"
        ssh.mkdir()
        os.chown(ssh, 64321, 64321)
        (ssh / "id_ed25519").touch()
        if kind == "FIFO":  # the limit of 20 seconds, and sooner
            script = f'[ "$2" = 20 ] || exit 9; shift 2; exec {shutil.which("timeout")} 2 "$@"'
            folder = program(tmp_path / "bin", "timeout", script)
            monkeypatch.setenv("PATH", str(folder), prepend=":")
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
        found = self.call(home, "ssh_mesh_identity", comment="it", **host_key)
        said = (
            "not finished within 20 s"
            if kind == "FIFO"
            else "id_ed25519.pub is not a valid public key"
        )
        assert said in found["msg"]

    NODES = tuple(f"node{number}" for number in range(1, 7))

    def at_once(self, home: Path, module: str, each: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Results of one execution per node, all at the same time, with one home."""
        with ThreadPoolExecutor(len(each)) as pool:
            made = [pool.submit(self.call, home, module, **given) for given in each]
            return [one.result() for one in made]

    def test_nodes_with_one_home_get_one_key(
        self, home: Path, host_key: dict[str, list[str]]
    ) -> None:
        each = [{"comment": f"a@{name}", "node": name, **host_key} for name in self.NODES]
        results = self.at_once(home, "ssh_mesh_identity", each)
        assert [result.get("msg") for result in results] == [None] * len(each)
        (key,) = {result["public_key"] for result in results}
        ssh = home / ".ssh"
        assert (ssh / "id_ed25519.pub").read_text().startswith(key)
        assert {path.name: path.stat().st_mode & 0o777 for path in ssh.iterdir()} == {
            "id_ed25519": 0o600,
            "id_ed25519.pub": 0o644,
            "dlperf_nodes": 0o700,
        }
        assert sorted(path.name for path in (ssh / "dlperf_nodes").iterdir()) == list(self.NODES)
        assert not any(
            result["changed"] for result in self.at_once(home, "ssh_mesh_identity", each)
        )

        # A node that loses its public key gets the same one again.
        (ssh / "id_ed25519.pub").unlink()
        assert self.call(home, "ssh_mesh_identity", **each[0])["public_key"] == key

    def member(self, name: str, key: str | None = "ssh-ed25519 AAAAone") -> dict[str, Any]:
        address = f"10.11.0.{name.removeprefix('node')}"
        keys = [f"ssh-ed25519 AAAAhost{name}"] if key else []
        return {"name": name, "addresses": [address], "public_key": key, "host_keys": keys}

    def test_nodes_with_one_home_trust_each_other(self, home: Path, tmp_path: Path) -> None:
        """Each of several runs at once knows the keys of one node only: none loses another's."""
        (home / ".ssh").mkdir(mode=0o700)
        authorized = home / ".ssh/authorized_keys"
        authorized.write_text("ssh-rsa AAAAB3 a colleague\n")
        for path in (home / ".ssh", authorized):
            os.chown(path, 64321, 64321)
        each = [
            {
                "members": [self.member(name, key if name == one else None) for name in self.NODES],
                "known_hosts": str(tmp_path / f"known-{one}"),
            }
            for one, key in zip(self.NODES, map("ssh-ed25519 AAAA{}".format, "abcdef"), strict=True)
        ]
        results = self.at_once(home, "ssh_mesh_trust", each)
        assert [result.get("msg") for result in results] == [None] * len(each)
        lines = authorized.read_text().splitlines()
        assert lines[0] == "ssh-rsa AAAAB3 a colleague"
        keys = [line.split("ssh-ed25519 ")[1] for line in lines[2:-1]]
        assert keys == [f"AAAA{key} dlperf_runner:node{n}" for n, key in enumerate("abcdef", 1)]
        assert [path.name for path in (home / ".ssh").iterdir()] == ["authorized_keys"]
        for name in self.NODES:
            known = tmp_path / f"known-{name}"
            assert known.read_text().splitlines()[1].startswith(f"{name},10.11.0.")
            assert known.stat().st_mode & 0o777 == 0o644

    def test_a_node_leaves_the_home_to_the_others(
        self, home: Path, tmp_path: Path, host_key: dict[str, list[str]]
    ) -> None:
        names, known = self.NODES[:2], str(tmp_path / "known")
        for name in names:
            self.call(home, "ssh_mesh_identity", comment="it", node=name, **host_key)
        everyone = [self.member(name) for name in names]
        self.call(home, "ssh_mesh_trust", members=everyone, known_hosts=known)
        authorized = home / ".ssh/authorized_keys"
        before = authorized.read_text()

        def leave(name: str, check: bool = False) -> dict[str, Any]:
            given = {"members": [], "leaves": name, "known_hosts": known}
            return self.call(home, "ssh_mesh_trust", check, **given)

        assert leave("node1", check=True)["others"] == ["node2"]
        assert leave("node1")["others"] == ["node2"]
        assert authorized.read_text() == before
        assert Path(known).read_text() == ""
        assert leave("node2")["others"] == []
        assert authorized.read_text() == ""
        assert not (home / ".ssh/dlperf_nodes").exists()

    def test_what_a_crash_has_left_is_no_lock(self, home: Path, tmp_path: Path) -> None:
        lock = home / ".ssh/authorized_keys.dlperf-lock"
        lock.mkdir(parents=True)
        for path in (lock.parent, lock):
            os.chown(path, 64321, 64321)
        os.utime(lock, (0, 0))
        known = str(tmp_path / "known")
        result = self.call(
            home, "ssh_mesh_trust", members=[self.member("node1")], known_hosts=known
        )
        assert result["members"] == ["node1"]
        assert not lock.exists()

    def test_one_number_is_needed_for_one_home(
        self, home: Path, host_key: dict[str, list[str]]
    ) -> None:
        os.chown(home, 64322, 64321)
        result = self.call(home, "ssh_mesh_identity", comment="it", **host_key)
        assert f"{home} belongs to the user with number 64322" in result["msg"]
        assert f"{self.ACCOUNT} has number 64321" in result["msg"]
        assert "set node_base_uid to it" in result["msg"]

    def test_an_address_that_is_none_is_refused(self, tmp_path: Path) -> None:
        one = {"name": "node1", "addresses": ["node1.example"], "host_keys": []}
        result = call("ssh_mesh_trust", user=ME, members=[one], known_hosts=str(tmp_path / "k"))
        assert result["failed"]
        assert "dlperf_address" in result["msg"]
