"""The vendors' part of a mirror folder: fetched from repositories that the test has signed, laid
out as their vendors do, and read by apt at the addresses that the roles have for it.

The payload is a stand-in; apt, gpgv, signatures, digests and HTTP are real, on this machine alone.
"""

from __future__ import annotations

import bz2
import dataclasses
import lzma
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from gpu_packages import cudnn_7, one
from gpu_standins import LEARNING
from range_server import RangeServer
from standin_repository import FORMS, Forms, Standin, flat_repository, needs_apt, suite_repository
from vendor_site import (
    NCCL,
    NCCL_SOURCE,
    OFED,
    OPENMPI,
    PUBLISHED,
    PYTHON,
    Site,
    fetch,
    make_site,
    of_kind,
    only,
    settings_in,
)

from dlperf_runner.bundle import apt, mirror
from dlperf_runner.bundle.archives import Source
from dlperf_runner.bundle.manifest import digest
from dlperf_runner.bundle.mirror import MirrorOutcome, Settings
from dlperf_runner.bundle.needs import Needs
from dlperf_runner.bundle.release_tables import VendorRepository
from dlperf_runner.bundle.vendors import Downloads, FetchError
from dlperf_runner.bundle.wheels import Target
from dlperf_runner.catalog.stack import Release, Stack

pytestmark = [needs_apt, pytest.mark.heavy, pytest.mark.gpu_roles]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("vendors"))


# ---- the whole of a stack


@pytest.fixture(scope="module")
def whole(site: Site, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, MirrorOutcome]:
    output = tmp_path_factory.mktemp("whole") / "output"
    return output, fetch(PUBLISHED, "bionic", site.settings(output))


def test_all_of_a_stack_is_present_and_no_newer_version(
    site: Site, whole: tuple[Path, MirrorOutcome]
) -> None:
    output, outcome = whole
    assert outcome.missing == ()
    for path in (NCCL, NCCL_SOURCE, OFED, OPENMPI, PYTHON):
        assert (output / path).read_bytes() == (site.folder / path).read_bytes()
    # Some nodes unpack beside these.
    debs = [item for item in of_kind(outcome, "deb") if item.wanted_by != ("cuda_libraries",)]
    assert len(debs) == len({item.name for item in debs}) == 21
    assert len(of_kind(outcome, "deb")) == 21 + 9
    versions = {item.name: item.version for item in debs}
    # Which cuda-drivers asks for, in any version that is new enough.
    assert versions["libnvidia-gl-440"] == "440.33.01-0ubuntu1"
    assert versions["libcublas10"] == "10.2.2.89-1"
    named = {item.path: item.sha256 for item in outcome.manifest.files}
    present = [path for path in (output / "vendor").rglob("*") if path.is_file()]
    assert {path: sha256 for path, sha256 in named.items() if path.startswith("vendor/")} == {
        path.relative_to(output).as_posix(): digest(path) for path in present
    }
    # OpenMPI's checksum, too: it is not the table's.
    archive = output / "vendor/operator/nv_peer_mem-1.0.tar.gz"
    assert archive.read_bytes() == b"source"
    assert outcome.variables == {
        **site.checksums,
        "infiniband_peer_memory_archive": str(archive),
        "dlperf_vendor_keys": site.keys,
    }


# ---- one repository, that has faults


SMALL = Stack(
    name="small",
    title="cuDNN alone",
    accelerator="gpu",
    suites=("bionic",),
    cudnn=Release(version="7.6.5.32"),
)
FOLDER = f"{LEARNING}/repos/ubuntu1804/x86_64"
DEB = f"{FOLDER}/libcudnn7_7.6.5.32-1+cuda10.2_amd64.deb"
OTHER = f"{FOLDER}/libcudnn7-dev_7.6.5.32-1+cuda10.2_amd64.deb"


@dataclasses.dataclass(frozen=True)
class Small:
    """`folder` has the vendors' site as `vendor`, below which are hosts."""

    folder: Path
    settings: Settings

    def fetch(self, **changed: Any) -> MirrorOutcome:
        return fetch(SMALL, "bionic", dataclasses.replace(self.settings, **changed))

    def has(self, path: str) -> bool:
        return (self.settings.output / path).is_file()


@pytest.fixture
def small(site: Site, tmp_path: Path) -> Small:
    # A space, as folders may have.
    folder, name = tmp_path / "the site", "nvidia-machine-learning"
    shutil.copytree(site.folder / FOLDER, folder / FOLDER)
    keys = {name: site.keys[name]}
    settings = settings_in(tmp_path / "the mirror", mirror=str(folder / "vendor"), keys=keys)
    shutil.copytree(site.folder.parent / "key", tmp_path / "cache/mirror-key")
    return Small(folder, settings)


def another_key(small: Small, tmp_path: Path) -> None:
    packages = cudnn_7("7.6.5.32-1+cuda10.2")
    flat_repository(small.folder / FOLDER, packages, tmp_path / "another", "7fa2af80.pub")


def another_signature(small: Small, tmp_path: Path) -> None:
    key = (small.folder / FOLDER / "7fa2af80.pub").read_bytes()
    another_key(small, tmp_path)
    (small.folder / FOLDER / "7fa2af80.pub").write_bytes(key)


def altered_index(small: Small, tmp_path: Path) -> None:
    for name in ("Packages", "Packages.gz"):
        (small.folder / FOLDER / name).write_bytes(b"Package: something else\n")


def altered_signed_text(small: Small, tmp_path: Path) -> None:
    file = small.folder / FOLDER / "InRelease"
    file.write_text(file.read_text().replace("Label: stand-in", "Label: standing"))


def no_signature(small: Small, tmp_path: Path) -> None:
    for name in ("InRelease", "Release.gpg"):
        (small.folder / FOLDER / name).unlink()


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (another_key, "has the wrong key"),
        # In the words of apt 2.6, or of apt 3.0 with sqv
        (another_signature, "NO_PUBKEY|Missing key"),
        (altered_signed_text, "BADSIG|Message has been manipulated"),
        (altered_index, "Hash Sum mismatch|Undetermined Error"),
        (no_signature, "is not signed"),
    ],
)
def test_what_its_vendor_has_not_signed_is_not_taken(
    small: Small, tmp_path: Path, spoil: Callable[[Small, Path], None], reason: str
) -> None:
    spoil(small, tmp_path)
    missing = only(small.fetch())
    assert missing.name == "repository nvidia-machine-learning"
    assert re.search(reason, missing.reason)
    assert not list((small.settings.output / "vendor").rglob("*.deb"))
    assert not small.has(f"{FOLDER}/InRelease")


def test_an_altered_package_is_left_out_and_the_rest_is_fetched(small: Small) -> None:
    content = (small.folder / DEB).read_bytes()
    (small.folder / DEB).write_bytes(content[:-1] + b"?")
    missing = only(small.fetch())
    assert missing.name == "libcudnn7 7.6.5.32-1+cuda10.2"
    assert missing.source == f"https://{FOLDER.removeprefix('vendor/')}"
    assert "is another file" in missing.reason
    assert not small.has(DEB) and small.has(OTHER)
    (small.folder / DEB).write_bytes(content)
    again = small.fetch()
    assert (again.missing, again.fetched) == ((), (DEB,))


def test_what_an_earlier_run_had_outlives_a_vendor_that_has_it_no_more(small: Small) -> None:
    # A detached signature will do.
    (small.folder / FOLDER / "InRelease").unlink()
    assert small.fetch().missing == ()
    assert small.has(f"{FOLDER}/Release.gpg") and small.has(DEB)
    shutil.rmtree(small.folder)
    assert small.fetch().missing == ()
    assert only(small.fetch(refresh=True)).name == "repository nvidia-machine-learning"
    assert small.has(DEB)


def test_a_later_run_has_what_was_not_there_and_resumes_what_was_cut_off(small: Small) -> None:
    path, other = (one.removeprefix("vendor/") for one in (DEB, OTHER))
    with RangeServer(small.folder / "vendor", gone={path}, cut={other: 100}) as server:
        gone, cut = sorted(small.fetch(mirror=server.url).missing, key=lambda one: len(one.name))
        assert "404" in gone.reason and f"{server.url}/{FOLDER[7:]}" in gone.reason
        assert cut.name == "libcudnn7-dev 7.6.5.32-1+cuda10.2"
        server.gone.clear()
        server.cut.clear()
        server.asked.clear()
        assert set(small.fetch(mirror=server.url).fetched) == {DEB, OTHER}
        assert {(path, ""), (other, "bytes=400-")} <= set(server.asked)
    missing = only(small.fetch(mirror=server.url, refresh=True))
    assert re.search("Could not connect|Unable to connect", missing.reason)
    assert server.url in missing.reason


# ---- single files, and the options for them


def stack_of(**role: Any) -> Stack:
    return Stack(name="files", title="One role", accelerator="gpu", suites=("bionic",), **role)


ARCHIVE = stack_of(nccl=PUBLISHED.nccl)
NETWORK = stack_of(infiniband=PUBLISHED.infiniband)
NO_CHECKSUM = "has no known checksum, and nothing is kept without one"


@pytest.fixture
def given(site: Site, tmp_path: Path) -> Callable[..., Settings]:
    """The settings that find the source of NCCL, with further ones."""
    source = {"nccl_source_sha256": site.checksums["nccl_source_sha256"]}
    shutil.copytree(site.folder.parent / "key", tmp_path / "cache/mirror-key")

    def settings(**changed: Any) -> Settings:
        checksums = source | changed.pop("checksums", {})
        further = {"mirror": str(site.folder / "vendor"), **changed}
        return settings_in(tmp_path / "mirror", checksums=checksums, **further)

    return settings


def test_an_archive_behind_a_login_is_asked_for_by_its_options(
    site: Site, given: Callable[..., Settings], tmp_path: Path
) -> None:
    output = tmp_path / "mirror"
    # Without a word of it, the nodes build the source.
    assert fetch(ARCHIVE, "bionic", given()).missing == ()
    assert (output / NCCL_SOURCE).is_file() and not (output / NCCL).exists()

    checksums = {"nccl_archive_sha256": site.checksums["nccl_archive_sha256"].upper()}
    missing = only(fetch(ARCHIVE, "bionic", given(mirror="", checksums=checksums)))
    assert missing.reason == "is behind a login"
    assert "--file nccl_archive=PATH" in missing.remedy

    files = {"nccl_archive": str(site.folder / NCCL)}
    settings = given(mirror="", files=files, checksums=checksums)
    assert fetch(ARCHIVE, "bionic", settings).missing == ()
    # At the vendor's address: the roles find it behind the mirror, whatever it was called here.
    assert digest(output / NCCL) == site.checksums["nccl_archive_sha256"]
    assert fetch(ARCHIVE, "bionic", given(mirror="")).missing == ()


def test_a_given_file_needs_its_checksum_and_has_to_match_it(
    site: Site, given: Callable[..., Settings], tmp_path: Path
) -> None:
    files = {"nccl_archive": str(site.folder / NCCL)}
    missing = only(fetch(ARCHIVE, "bionic", given(files=files)))
    assert missing.reason == NO_CHECKSUM
    assert "--checksum nccl_archive_sha256=SHA256" in missing.remedy
    wrong = {"nccl_archive_sha256": "0" * 64}
    missing = only(fetch(ARCHIVE, "bionic", given(files=files, checksums=wrong)))
    assert missing.reason.startswith(
        f"is another file: sha256 {'0' * 64} was expected, found {digest(site.folder / NCCL)}"
    )
    assert not (tmp_path / "mirror" / NCCL).exists()
    settings = given(files={"nccl_archive": str(tmp_path / "nothing.deb")}, checksums=wrong)
    assert only(fetch(ARCHIVE, "bionic", settings)).reason == f"is not at {tmp_path}/nothing.deb"


def test_checksums_that_no_table_has_are_asked_for_by_their_variables(
    site: Site, given: Callable[..., Settings]
) -> None:
    settings = dataclasses.replace(given(), checksums={})
    # Nobody asks for nv_peer_mem, which is optional, unless the operator has begun to give it.
    ofed = only(fetch(NETWORK, "bionic", settings))
    assert ofed.reason == NO_CHECKSUM
    assert "--checksum infiniband_archive_sha256=SHA256" in ofed.remedy
    files = {"infiniband_peer_memory_archive": str(site.peer_memory)}
    peer_memory = fetch(NETWORK, "bionic", dataclasses.replace(settings, files=files)).missing[-1]
    assert peer_memory.reason == NO_CHECKSUM
    assert "--checksum infiniband_peer_memory_sha256=SHA256" in peer_memory.remedy


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--checksum cudnn_sha256=0", "the stack does not use this"),
        ("--file nccl=x", "the stack does not use this"),
        ("--vendor-key other=0", "the stack does not use this"),
        ("--checksum nccl_archive_sha256=0", "invalid sha256"),
        ("--file nccl_archive", "expected NAME=VALUE"),
        ("--suite noble", "does not support this suite"),
        ("--stack cpu --vendor-mirror /mirror", "the stack needs no files from vendors"),
    ],
)
def test_bad_options_are_exit_status_2(tmp_path: Path, options: str, message: str) -> None:
    argv = ("bundle", "--stack", "v100-cuda10.2", *options.split())
    assert message in call(*argv, "--output-dir", tmp_path / "output", status=2).err
    assert not (tmp_path / "output").exists()


# ---- downloads


@pytest.mark.parametrize("has_ranges", [True, False])
def test_an_interrupted_download_is_resumed(tmp_path: Path, has_ranges: bool) -> None:
    site, target = tmp_path / "site", tmp_path / "downloads/file"
    site.mkdir()
    (site / "file").write_bytes(bytes(range(256)) * 1000)
    root = apt.Root(tmp_path / "apt", "amd64")
    apt.prepare(root)
    sha256 = digest(site / "file")
    with RangeServer(site, cut={"file": 1000}, has_ranges=has_ranges) as server:
        wanted = {target: (f"{server.url}/file", sha256)}
        (reason,) = apt.fetch(root, wanted).values()
        assert reason.startswith("cannot be fetched: ") and f"{server.url}/file" in reason
        size = target.stat().st_size
        assert (size > 1000) == has_ranges
        server.asked.clear()
        server.cut.clear()
        assert apt.fetch(root, wanted) == {}
        assert server.asked == [("file", f"bytes={size}-")]
        assert digest(target) == sha256
        # The beginning of another file, and something longer.
        for content in (b"beginning of something else", b"longer" * 100_000):
            target.write_bytes(content)
            assert apt.fetch(root, wanted) == {}
            assert digest(target) == sha256
        server.gone.add("file")
        target.unlink()
        assert " 404 " in apt.fetch(root, wanted)[target]


@pytest.mark.parametrize("url", ["https://../x", "https://host/%2e%2e/%2e%2e/x", "/etc/passwd"])
def test_no_address_leads_out_of_the_folder(tmp_path: Path, url: str) -> None:
    downloads = Downloads(tmp_path, apt.Root(tmp_path, "amd64"))
    with pytest.raises(FetchError, match="leads out of its folder"):
        downloads.path(url)


# ---- forms of an index: packed in one way or another, by name or by hash


HOST = "vendor.example"
INDEX = f"{HOST}/dists/bionic/main/binary-amd64/Packages"
ALL: Forms = {**FORMS, ".xz": lzma.compress, ".bz2": bz2.compress}


class Vendor:
    """A signed repository, and a mirror folder that has its index."""

    def __init__(self, scratch: Path, forms: Forms, by_hash: bool, key: Path) -> None:
        self.scratch, self.site, self.key = scratch, scratch / "site", scratch / "key"
        shutil.copytree(key, self.key)
        shutil.copytree(key, scratch / "cache/mirror-key")
        self.fingerprint = self.publish(forms, by_hash)

    def publish(self, forms: Forms, by_hash: bool, packages: int = 2) -> str:
        where, some = self.site / HOST, cudnn_7("7.6.5.32-1+cuda10.2")[:packages]
        return suite_repository(where, "bionic", "main", some, self.key, "key.asc", forms, by_hash)

    def bring(self, address: str = "", refresh: bool = False) -> MirrorOutcome:
        uri, key = f"https://{HOST}/", (self.fingerprint,)
        repository = VendorRepository(
            "role", "vendor", uri, "bionic", ("main",), f"{uri}key.asc", key, "", (), ()
        )
        needs = Needs("s", "bionic", Target("3.6", "2.27", "amd64"), {}, repositories=(repository,))
        place = address or str(self.site)
        settings = settings_in(self.scratch / "mirror", mirror=place, refresh=refresh)
        return mirror.make(needs, settings)

    def has(self, path: str) -> bool:
        return (self.scratch / "mirror/vendor" / path).is_file()

    def hashed(self, suffix: str) -> str:
        return f"{Path(INDEX).parent}/by-hash/SHA256/{digest(self.site / (INDEX + suffix))}"

    def is_read_by_apt(self, scheme: str) -> bool:
        """Whether a node's apt knows the packages from the mirror folder alone."""
        shutil.copy(self.site / HOST / "key.asc", self.scratch / "ring.asc")
        root = apt.Root(self.scratch / f"node-{scheme}", "amd64")
        with RangeServer(self.scratch / "mirror/vendor") as server:
            base = server.url if scheme == "http" else f"file:{server.folder}"
            source = Source(
                f"{base}/{HOST}", ("bionic",), ("main",), str(self.scratch / "ring.asc")
            )
            apt.prepare(root, [source])
            return not apt.update(root) and set(apt.names(root)) == {"libcudnn7", "libcudnn7-dev"}


@pytest.fixture(scope="module")
def key(site: Site) -> Path:
    return site.folder.parent / "key"


@pytest.mark.parametrize(
    ("suffix", "by_hash"), [*zip(ALL, (False, True, True, False), strict=True)]
)
def test_an_index_in_any_one_form_is_kept_and_read_by_nodes(
    tmp_path: Path, suffix: str, by_hash: bool, key: Path
) -> None:
    vendor = Vendor(tmp_path, {suffix: ALL[suffix]}, by_hash, key)
    assert vendor.bring().missing == ()
    assert vendor.has(INDEX + suffix)
    assert vendor.has(vendor.hashed(suffix)) == by_hash
    assert vendor.is_read_by_apt("file") and vendor.is_read_by_apt("http")


def test_every_form_that_the_vendor_has_is_kept_and_none_of_an_earlier_time(
    tmp_path: Path, key: Path
) -> None:
    vendor = Vendor(tmp_path, ALL, True, key)
    files = {item.path for item in of_kind(vendor.bring(), "index")}
    kept = [path for suffix in ALL for path in (INDEX + suffix, vendor.hashed(suffix))]
    assert {f"vendor/{path}" for path in kept} < files
    # Listed, and not there; a node's apt would take the earlier one for damaged.
    vendor.publish(ALL, by_hash=False, packages=1)
    (vendor.site / f"{INDEX}.xz").unlink()
    later = time.time() + 60
    os.utime(vendor.site / HOST / "dists/bionic/InRelease", (later, later))
    vendor.bring(refresh=True)
    assert not vendor.has(f"{INDEX}.xz") and vendor.has(f"{INDEX}.gz")


def test_one_of_the_two_addresses_of_an_index_is_enough(tmp_path: Path, key: Path) -> None:
    vendor = Vendor(tmp_path, {".xz": lzma.compress}, True, key)
    both = {f"{INDEX}.xz", vendor.hashed(".xz")}
    for gone in both:
        with RangeServer(vendor.site, gone={gone}) as server:
            assert vendor.bring(server.url, refresh=True).missing == ()
        # Nodes have it at both.
        assert all(vendor.has(path) for path in both)
        shutil.rmtree(tmp_path / "mirror")
    # The signed text is of before, the file of that name is of after.
    (vendor.site / f"{INDEX}.xz").write_bytes(b"of another time")
    assert vendor.bring().missing == ()


# ---- which packages apt chooses under the pins of a stack


Chosen = Callable[..., tuple[list[str], list[str]]]


def family(
    role: str, packages: dict[str, str], members: dict[str, str] | None = None
) -> VendorRepository:
    pins = tuple(((glob,), version) for glob, version in (members or {}).items())
    uri, exact = f"https://{HOST}/", tuple(packages.items())
    return VendorRepository("vendor", role, uri, "/", (), f"{uri}key.asc", (), "", exact, pins)


@pytest.fixture
def chosen(tmp_path: Path, key: Path) -> Chosen:
    """What is in the folder when a vendor has `packages`, and what is missing."""

    def make(packages: list[Standin], *families: VendorRepository) -> tuple[list[str], list[str]]:
        fingerprint = flat_repository(tmp_path / "site" / HOST, packages, key, "key.asc")
        signed = [dataclasses.replace(one, fingerprints=(fingerprint,)) for one in families]
        target = Target("3.6", "2.27", "amd64")
        needs = Needs("stack", "bionic", target, {}, repositories=tuple(signed))
        shutil.copytree(key, tmp_path / "cache/mirror-key")
        settings = settings_in(tmp_path / "mirror", mirror=str(tmp_path / "site"))
        outcome = mirror.make(needs, settings)
        debs = [f"{item.name}={item.version}" for item in of_kind(outcome, "deb")]
        return sorted(debs), [missing.reason for missing in outcome.missing]

    return make


def test_dependencies_are_pinned_or_the_newest_that_fits(chosen: Chosen) -> None:
    packages = [
        one("cuda", "1", "member"),
        one("driver", "1", "part (>= 1), tool (>= 1) | other"),
        one("driver", "2"),
        *(one(name, v) for name in ("part", "tool", "member") for v in ("1", "2", "10")),
    ]
    # A pin of another family counts.
    families = (family("cuda", {"cuda": "1"}), family("driver", {"driver": "1"}, {"member": "1"}))
    pinned = dataclasses.replace(families[1], pins=((("part", "member"), "1"),))
    expected = ["cuda=1", "driver=1", "member=1", "part=1", "tool=10"]
    assert chosen(packages, families[0], pinned) == (expected, [])


@pytest.mark.parametrize("members", [{}, {"driver-*": "1"}, {"driver-*": "3"}], ids=str)
def test_members_that_nothing_asks_for_are_kept_for_nodes_that_have_them(
    chosen: Chosen, members: dict[str, str]
) -> None:
    packages = [
        one("driver", "1"),
        # They cannot be installed beside each other.
        one("driver-extra", "1", conflicts="driver-server"),
        one("driver-extra", "2"),
        one("driver-server", "1"),
    ]
    expected = ["driver-extra=1", "driver-server=1"] if "1" in members.values() else []
    wanted = family("driver", {"driver": "1"}, members)
    assert chosen(packages, wanted) == (sorted(["driver=1", *expected]), [])


def test_a_version_that_the_vendor_lacks_is_named_with_those_that_it_has(chosen: Chosen) -> None:
    packages = [one("driver", version) for version in ("9", "10", "10~rc1")]
    wanted = family("driver", {"driver": "8", "gone": "1"})
    assert chosen([*packages, one("other", "1")], wanted) == (
        [],
        [
            "does not have it: driver=8 is not in it; it has 10, 10~rc1, 9",
            "does not have it: gone=1 is not in it; it has none",
        ],
    )


def test_the_newest_is_kept_of_what_nodes_install_in_any_version(chosen: Chosen) -> None:
    packages = [one("nvlsm", version) for version in ("9", "10", "10~rc1")]
    wanted = family("fabric_manager", {"nvlsm": "*"})
    missing = ["does not have it: gone=* is not in it; it has none"]
    assert chosen(
        packages, dataclasses.replace(wanted, packages=(("nvlsm", "*"), ("gone", "*")))
    ) == (["nvlsm=10"], missing)
