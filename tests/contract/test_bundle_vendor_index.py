"""The forms in which vendors publish their indexes: packed in one way or another, by name or by
hash. What the bundle keeps of them is read by apt, which verifies it again.

The payload is a stand-in; apt, gpgv, signatures, digests and HTTP are real, on this machine alone.
"""

from __future__ import annotations

import bz2
import lzma
import shutil
from pathlib import Path

import pytest
from gpu_packages import cudnn_7
from range_server import RangeServer
from standin_repository import FORMS, Forms, flat_repository, needs_apt, suite_repository

from dlperf_runner.bundle.debian import apt
from dlperf_runner.bundle.debian.archives import Source
from dlperf_runner.bundle.folder.files import digest
from dlperf_runner.bundle.vendor import repository
from dlperf_runner.bundle.vendor.download import Fetcher, FetchError
from dlperf_runner.bundle.vendor.release_tables import VendorRepository

pytestmark = needs_apt
PACKAGES = cudnn_7("7.6.5.32-1+cuda10.2")
NAMES = {"libcudnn7", "libcudnn7-dev"}
HOST = "vendor.example"
DISTS = f"{HOST}/dists/bionic"
INDEX = f"{DISTS}/main/binary-amd64/Packages"
ALL: Forms = {
    **FORMS,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".lzma": lambda content: lzma.compress(content, lzma.FORMAT_ALONE),
    # No program of this test packs this; the bundle hands it on as it is.
    ".zst": lambda content: b"zstandard of " + content,
}


class Vendor:
    """A signed repository below `folder`, and a bundle's folder that it is fetched into."""

    def __init__(self, scratch: Path, forms: Forms, by_hash: bool) -> None:
        self.folder, self.scratch, self.key = scratch / "site", scratch, scratch / "key"
        where = self.folder / HOST
        fingerprint = suite_repository(
            where, "bionic", "main", PACKAGES, self.key, "key.asc", forms, by_hash
        )
        uri = f"https://{HOST}/"
        self.one = VendorRepository(
            "role", "vendor", uri, "bionic", ("main",), uri + "key.asc", (fingerprint,), "", (), ()
        )

    def bring(self, mirror: str = "", refresh: bool = False) -> tuple[list[str], Fetcher]:
        """The paths of key and index, in the bundle's folder."""
        fetcher = Fetcher(self.scratch / "bundle", mirror or str(self.folder))
        return repository.bring(self.one, fetcher, refresh), fetcher

    def at(self, path: str, suffix: str) -> str:
        """Where the vendor has a form of the index: by name, or by hash."""
        name = INDEX + suffix
        hashed = f"{Path(INDEX).parent}/by-hash/SHA256/{digest(self.folder / name)}"
        return {"name": name, "hash": hashed}[path]


def has(fetcher: Fetcher, path: str) -> bool:
    return (fetcher.folder / path).is_file()


def read_by_apt(vendor: Vendor, scratch: Path) -> tuple[set[str], set[str]]:
    """The packages that apt knows from the bundle's folder alone, and the index files that it asked
    for."""
    keyring = scratch / "ring.asc"
    shutil.copy(vendor.folder / HOST / "key.asc", keyring)
    with RangeServer(scratch / "bundle") as server:
        root = apt.Root(scratch / "node", "amd64")
        source = Source(f"{server.url}/{HOST}", ("bionic",), ("main",), str(keyring))
        apt.prepare(root, [source])
        apt.update(root)
        asked = {path for path, _ in server.asked if "/binary-amd64/" in path}
        return set(apt.names(root)), asked


@pytest.mark.parametrize("by_hash", [False, True], ids=["by name", "by hash"])
@pytest.mark.parametrize("suffix", [suffix for suffix in ALL if suffix != ".zst"])
def test_an_index_in_any_one_form_is_read_and_apt_reads_it_too(
    tmp_path: Path, suffix: str, by_hash: bool
) -> None:
    vendor = Vendor(tmp_path, {suffix: ALL[suffix]}, by_hash)
    _, fetcher = vendor.bring()
    known, asked = read_by_apt(vendor, tmp_path)
    assert known == NAMES
    assert asked == {vendor.at("hash" if by_hash else "name", suffix)}
    assert has(fetcher, vendor.at("name", suffix))


def test_all_forms_are_kept(tmp_path: Path) -> None:
    vendor = Vendor(tmp_path, ALL, by_hash=True)
    paths, fetcher = vendor.bring()
    kept = {vendor.at(path, suffix) for suffix in ALL for path in ("name", "hash")}
    assert all(has(fetcher, path) for path in kept)
    assert kept <= set(paths)
    # A second time from the folder alone.
    assert vendor.bring(mirror=str(tmp_path / "nowhere"))[0] == paths


@pytest.mark.parametrize("gone", ["name", "hash"])
def test_an_index_at_one_of_its_two_addresses_is_enough(tmp_path: Path, gone: str) -> None:
    vendor = Vendor(tmp_path, {".xz": ALL[".xz"]}, by_hash=True)
    with RangeServer(vendor.folder, gone={vendor.at(gone, ".xz")}) as server:
        _, fetcher = vendor.bring(server.url)
    # Nodes have it at both.
    assert has(fetcher, vendor.at("name", ".xz")) and has(fetcher, vendor.at("hash", ".xz"))


def test_a_vendor_that_puts_a_new_index_in_the_old_ones_place_does_not_disturb(
    tmp_path: Path,
) -> None:
    """The signed text is of before, the file of that name is of after."""
    vendor = Vendor(tmp_path, ALL, by_hash=True)
    true = {vendor.at("hash", suffix) for suffix in ALL}
    for suffix in ALL:
        (vendor.folder / f"{INDEX}{suffix}").write_bytes(b"of another time")
    _, fetcher = vendor.bring()
    assert all(has(fetcher, path) for path in true)

    other = Vendor(tmp_path / "by name", {".xz": ALL[".xz"]}, by_hash=False)
    (other.folder / f"{INDEX}.xz").write_bytes(b"of another time")
    with pytest.raises(FetchError, match="is another file: sha256"):
        other.bring()


def test_forms_that_are_named_and_not_there_are_passed_over(tmp_path: Path) -> None:
    vendor = Vendor(tmp_path, ALL, by_hash=False)
    for suffix in ALL:
        if suffix != ".bz2":
            (vendor.folder / f"{INDEX}{suffix}").unlink()
    paths, _ = vendor.bring()
    assert [path for path in paths if "/Packages" in path] == [f"{INDEX}.bz2"]
    assert read_by_apt(vendor, tmp_path)[0] == NAMES


def test_a_form_of_an_earlier_time_does_not_stay(tmp_path: Path) -> None:
    """A node's apt would take it for damaged."""
    vendor = Vendor(tmp_path, ALL, by_hash=False)
    vendor.bring()
    suite_repository(
        vendor.folder / HOST, "bionic", "main", PACKAGES[:1], vendor.key, "key.asc", ALL
    )
    (vendor.folder / f"{INDEX}.xz").unlink()
    _, fetcher = vendor.bring(refresh=True)
    assert not has(fetcher, f"{INDEX}.xz") and has(fetcher, f"{INDEX}.gz")


@pytest.mark.parametrize("suffix", [".xz", ".gz", ".bz2", ".lzma"])
def test_an_index_that_is_signed_and_cannot_be_read_is_said(tmp_path: Path, suffix: str) -> None:
    def damaged(content: bytes) -> bytes:
        packed = ALL[suffix](content)
        return packed[:20] + bytes(20) + packed[40:]

    with pytest.raises(FetchError, match="has an index that cannot be read: "):
        Vendor(tmp_path, {suffix: damaged}, by_hash=False).bring()


def test_only_forms_that_cannot_be_read_are_an_error_that_names_the_index(tmp_path: Path) -> None:
    vendor = Vendor(tmp_path, {".zst": ALL[".zst"]}, by_hash=False)
    with pytest.raises(FetchError, match=f"has no readable index at https://{INDEX}$"):
        vendor.bring()


def test_a_flat_repository_packed_by_xz_alone(tmp_path: Path) -> None:
    forms = {".xz": lzma.compress}
    folder, uri = tmp_path / "site" / HOST, f"https://{HOST}/"
    key = flat_repository(folder, PACKAGES, tmp_path / "key", "key.asc", forms)
    one = VendorRepository("role", "vendor", uri, "/", (), uri + "key.asc", (key,), "", (), ())
    paths = repository.bring(
        one, Fetcher(tmp_path / "bundle", str(tmp_path / "site")), refresh=False
    )
    assert f"{HOST}/Packages.xz" in paths
