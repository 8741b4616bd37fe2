"""The manifest: written whole, read back equal, and what it finds damaged."""

import hashlib
import json
from pathlib import Path

import pytest

from dlperf_runner.bundle import manifest
from dlperf_runner.bundle.manifest import Item, MirrorManifest, SkippedNeed


def item(path: str, content: bytes) -> Item:
    digest = hashlib.sha256(content).hexdigest()
    return Item(path, "deb", path, "1", digest, len(content), ("a", "b"), "a > b")


def folder_with(tmp_path: Path, *names: str) -> MirrorManifest:
    for name in names:
        (tmp_path / name).write_bytes(name.encode() * 100)
    files = tuple(item(name, name.encode() * 100) for name in names)
    skipped = (SkippedNeed("mxnet", "no"),)
    return MirrorManifest("cpu", "x", "amd64", "3.11", "00", "now", ("u",), "F", skipped, files)


def test_read_back(tmp_path: Path) -> None:
    written = folder_with(tmp_path, "a", "b")
    manifest.write(tmp_path, written)
    assert manifest.read(tmp_path) == written
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b'{"format": 0}',
        b'{"format": 1}',
        b"\xff",
        b'{"format": 1, "files": 3}',
    ],
)
def test_what_is_no_manifest_is_none(tmp_path: Path, content: bytes) -> None:
    (tmp_path / manifest.NAME).write_bytes(content)
    assert manifest.read(tmp_path) is None


def test_a_future_format_is_none(tmp_path: Path) -> None:
    document = folder_with(tmp_path, "a").to_json() | {"format": manifest.FORMAT + 1}
    (tmp_path / manifest.NAME).write_text(json.dumps(document))
    assert manifest.read(tmp_path) is None


def test_damage(tmp_path: Path) -> None:
    whole = folder_with(tmp_path, "right", "altered", "cut", "grown", "gone")
    assert manifest.damaged(tmp_path, whole) == ()
    (tmp_path / "altered").write_bytes(b"x" * len((tmp_path / "altered").read_bytes()))
    (tmp_path / "cut").write_bytes((tmp_path / "cut").read_bytes()[:-1])
    (tmp_path / "grown").write_bytes((tmp_path / "grown").read_bytes() + b"x")
    (tmp_path / "gone").unlink()
    assert manifest.damaged(tmp_path, whole) == ("altered", "cut", "grown", "gone")
