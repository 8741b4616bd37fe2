"""The module node_files: files, blocks in files of others, keyrings and limits."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from executed_modules import FEW_FILES, call


def test_a_second_run_changes_nothing(tmp_path: Path) -> None:
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
    assert [diff["after_header"] for diff in first["diff"]] == [entry["path"] for entry in entries]
    assert (tmp_path / "tree" / "file").read_text() == "text\n"
    assert (tmp_path / "tree" / "file").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "tree" / "deep").stat().st_mode & 0o777 == 0o750
    assert not call("node_files", entries=entries)["changed"]


def test_a_keyring_is_the_binary_of_an_armored_key(tmp_path: Path) -> None:
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


def test_a_name_of_the_cluster_is_no_loopback_address(tmp_path: Path) -> None:
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


def test_a_block_is_replaced_and_removed_and_the_rest_stays(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("first\n")

    def block(content: str) -> dict[str, Any]:
        entry = {"path": str(hosts), "state": "block", "content": content}
        return call("node_files", entries=[entry])

    block("one\ntwo")
    hosts.write_text(hosts.read_text() + "last\n")
    block("three")
    assert hosts.read_text() == ("first\n# BEGIN dlperf_runner\nthree\n# END dlperf_runner\nlast\n")
    assert block("")["changed"]
    assert hosts.read_text() == "first\nlast\n"


def test_a_block_whose_end_is_lost_is_refused(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts"
    hosts.write_text("# BEGIN dlperf_runner\nsomebody's line\n")
    result = call("node_files", entries=[{"path": str(hosts), "state": "block", "content": "x"}])
    assert result["failed"]
    assert "# END" in result["msg"]
    assert "somebody's line" in hosts.read_text()


def test_a_limit_is_written_as_high_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "limits.conf"

    def limit(value: str, prefix: Sequence[str] = ()) -> dict[str, Any]:
        entry = {"path": str(path), "state": "limits", "user": "somebody"}
        return call("node_files", prefix=prefix, entries=[entry | {"limits": {"nofile": value}}])

    assert limit("64")["changed"]
    assert "somebody - nofile 64\n" in path.read_text()
    assert not limit("64")["changed"]
    assert "requested 99999" in str(limit("99999", FEW_FILES)["warnings"])
    assert "somebody - nofile 256\n" in path.read_text()
    assert "found nofile: much" in limit("much")["msg"]
