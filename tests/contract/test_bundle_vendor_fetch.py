"""The vendors' part of a mirror folder: fetched from repositories that the test has signed, laid
out as their vendors do, and read by apt at the addresses that the roles have for it.

The payload is a stand-in; apt, gpgv, signatures, digests and HTTP are real, on this machine alone.
"""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_packages import cudnn_7
from gpu_standins import CUDA, LEARNING
from range_server import RangeServer
from standin_repository import flat_repository, needs_apt
from vendor_site import (
    NCCL,
    NCCL_SOURCE,
    OFED,
    OPENMPI,
    PUBLISHED,
    PYTHON,
    Made,
    Site,
    fetch,
    make_site,
    node_of,
    only,
)

from dlperf_runner.bundle.debian import apt
from dlperf_runner.bundle.folder.files import digest
from dlperf_runner.bundle.folder.manifest import Item
from dlperf_runner.bundle.vendor.indexes_and_files import VendorSettings
from dlperf_runner.catalog.stack import Release, Stack

ROOT = Path(__file__).parents[2]

pytestmark = needs_apt


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Site:
    return make_site(tmp_path_factory.mktemp("vendors"))


@pytest.fixture(scope="module")
def whole(site: Site, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Made]:
    output = tmp_path_factory.mktemp("whole")
    return output, fetch(PUBLISHED, "bionic", site.settings(output))


@pytest.fixture
def output(whole: tuple[Path, Made], tmp_path: Path) -> Path:
    """A copy, to be spoiled."""
    return Path(shutil.copytree(whole[0], tmp_path / "output"))


# ---- the whole of a stack


def test_all_of_a_stack_is_there_and_no_newer_version(site: Site, whole: tuple[Path, Made]) -> None:
    output, made = whole
    assert made.missing == ()
    for path in (NCCL, NCCL_SOURCE, OFED, OPENMPI, PYTHON):
        assert (output / path).read_bytes() == (site.folder / path).read_bytes()
    debs = installed(made)
    assert len(debs) == len({item.name for item in debs}) == 21
    assert len(made.of_kind("deb")) == 21 + 9
    versions = {item.name: item.version for item in debs}
    # Which cuda-drivers asks for, in any version that is new enough.
    assert versions["libnvidia-gl-440"] == "440.33.01-0ubuntu1"
    assert versions["libcublas10"] == "10.2.2.89-1"
    assert {p.relative_to(output / "vendor").as_posix() for p in files(output)} == {
        *made.files,
        "v100-cuda10.2-bionic.json",
    }
    assert {path: digest(output / "vendor" / path) for path in made.files} == {
        path: item.sha256 for path, item in made.files.items()
    }


def installed(made: Made) -> list[Item]:
    """Its packages but those that nodes unpack beside these."""
    return [item for item in made.of_kind("deb") if item.wanted_by != ("cuda_libraries",)]


def files(output: Path) -> list[Path]:
    return [path for path in (output / "vendor").rglob("*") if path.is_file()]


def test_it_is_said_what_the_inventory_has_to_say(site: Site, whole: tuple[Path, Made]) -> None:
    output, made = whole
    archive = output / "vendor/operator/nv_peer_mem-1.0.tar.gz"
    # OpenMPI's, too: it is not the table's.
    assert made.variables == {
        **site.checksums,
        "infiniband_peer_memory_archive": str(archive),
        "dlperf_vendor_keys": site.keys,
    }
    assert archive.read_bytes() == b"source"


def test_apt_finds_all_of_it_where_the_roles_look(
    whole: tuple[Path, Made], tmp_path: Path, site: Site
) -> None:
    """With sources, preferences and names as the roles' own rules and texts have them."""
    output, made = whole
    root, names = node_of(tmp_path / "node", output, site.keys)
    apt.update(root)
    # A member of the driver's family that none of it asks for.
    choices = apt.resolve(root, [*names, "libxnvctrl0"], where="the test")
    assert {choice.name: choice.sha256 for choice in choices} == {
        item.name: item.sha256 for item in installed(made)
    }
    (tmp_path / "got").mkdir()
    apt.download(root, choices, tmp_path / "got")
    assert len(list((tmp_path / "got").iterdir())) == 21


def test_a_second_run_needs_no_vendor_and_changes_nothing(output: Path, site: Site) -> None:
    before = {path: path.stat().st_mtime_ns for path in files(output)}
    again = fetch(
        PUBLISHED,
        "bionic",
        VendorSettings(
            output,
            mirror=str(output / "nowhere"),
            keys=site.keys,
            # The table has the vendor's.
            checksums={
                f"{name}_sha256": site.checksums[f"{name}_sha256"]
                for name in ("openmpi", "python", "nccl_source")
            },
        ),
    )
    assert (again.missing, again.fetched, again.repaired) == ((), (), ())
    assert {path: path.stat().st_mtime_ns for path in files(output)} == before


def test_what_was_altered_or_lost_is_fetched_again(output: Path, site: Site) -> None:
    cuda_folder = f"{CUDA}/ubuntu1804/x86_64".removeprefix("vendor/")
    altered = [
        f"{cuda_folder}/libcublas10_10.2.2.89-1_amd64.deb",
        f"{cuda_folder}/Packages",
        f"{cuda_folder}/3bf863cc.pub",
        "download.docker.com/linux/ubuntu/dists/bionic/InRelease",
        OFED.removeprefix("vendor/"),
    ]
    # Not the first form of the index that would be read.
    lost = ["nvidia.github.io/libnvidia-container/stable/ubuntu18.04/amd64/Packages.gz"]
    right = {path: (output / "vendor" / path).read_bytes() for path in altered + lost}
    for path in altered:
        (output / "vendor" / path).write_bytes(right[path][:-9] + b"other bits")
    (output / "vendor" / lost[0]).unlink()
    again = fetch(PUBLISHED, "bionic", site.settings(output))
    assert again.missing == ()
    assert set(again.repaired) == set(again.fetched) == set(altered + lost)
    assert {path: (output / "vendor" / path).read_bytes() for path in right} == right


# ---- one repository, that has faults


SMALL = Stack(
    name="small",
    title="cuDNN alone",
    accelerator="gpu",
    suites=("bionic",),
    cudnn=Release(version="7.6.5.32"),
)
FOLDER = f"{LEARNING}/repos/ubuntu1804/x86_64".removeprefix("vendor/")
DEB = f"{FOLDER}/libcudnn7_7.6.5.32-1+cuda10.2_amd64.deb"
OTHER = f"{FOLDER}/libcudnn7-dev_7.6.5.32-1+cuda10.2_amd64.deb"


@dataclasses.dataclass(frozen=True)
class Small:
    """`folder` is the vendors' site, below it are hosts."""

    folder: Path
    settings: VendorSettings

    def fetch(self, **changed: Any) -> Made:
        return fetch(SMALL, "bionic", dataclasses.replace(self.settings, **changed))

    def has(self, path: str) -> bool:
        return (self.settings.output / "vendor" / path).is_file()


@pytest.fixture
def small(site: Site, tmp_path: Path) -> Small:
    folder = tmp_path / "site"
    shutil.copytree(site.folder / "vendor" / FOLDER, folder / FOLDER)
    name = "nvidia-machine-learning"
    settings = VendorSettings(tmp_path / "output", mirror=str(folder), keys={name: site.keys[name]})
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


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (another_key, "has the wrong key"),
        (another_signature, "it was made with another key"),
        (altered_signed_text, "it does not match the content"),
        (altered_index, "is another file: sha256"),
    ],
)
def test_what_its_vendor_has_not_signed_is_not_taken(
    small: Small, tmp_path: Path, spoil: Callable[[Small, Path], None], reason: str
) -> None:
    spoil(small, tmp_path)
    missing = only(small.fetch())
    assert missing.name == "repository nvidia-machine-learning"
    assert reason in missing.reason
    assert not list((small.settings.output / "vendor").rglob("*.deb"))
    assert not small.has(f"{FOLDER}/InRelease")


def test_a_detached_signature_will_do(small: Small) -> None:
    (small.folder / FOLDER / "InRelease").unlink()
    assert small.fetch().missing == ()
    assert small.has(f"{FOLDER}/Release.gpg") and small.has(DEB)
    (small.folder / FOLDER / "Release.gpg").unlink()
    assert only(small.fetch(refresh=True)).reason.startswith("is not at ")


def test_an_altered_package_is_left_out_and_the_rest_is_there(small: Small) -> None:
    whole = (small.folder / DEB).read_bytes()
    (small.folder / DEB).write_bytes(whole[:-1] + b"?")
    missing = only(small.fetch())
    assert (missing.name, missing.source) == (Path(DEB).name, f"https://{FOLDER}")
    assert f"found {digest(small.folder / DEB)}" in missing.reason
    assert not small.has(DEB) and small.has(OTHER)
    (small.folder / DEB).write_bytes(whole)
    again = small.fetch()
    assert (again.missing, again.fetched) == ((), (DEB,))


def test_a_version_that_is_no_longer_there_is_named(small: Small, site: Site) -> None:
    newer = cudnn_7("7.6.5.33-1+cuda10.2")
    key = site.folder.parent / "key"
    flat_repository(small.folder / FOLDER, newer, key, "7fa2af80.pub")
    reasons = [missing.reason for missing in small.fetch().missing]
    assert len(reasons) == 2
    assert "libcudnn7=7.6.5.32-1+cuda10.2 is not in it; it has 7.6.5.33-1+cuda10.2" in reasons[0]


def test_what_an_earlier_run_had_outlives_a_vendor_that_has_it_no_more(small: Small) -> None:
    assert small.fetch().missing == ()
    shutil.rmtree(small.folder)
    assert small.fetch().missing == ()
    assert len(small.fetch(refresh=True).missing) == 1
    assert small.has(DEB)


def test_a_404_is_named_with_its_address_and_a_later_run_has_it(small: Small) -> None:
    with RangeServer(small.folder, gone={DEB}) as server:
        missing = only(small.fetch(mirror=server.url))
        assert "404" in missing.reason and f"{server.url}/{FOLDER}/libcudnn7_" in missing.reason
        assert small.has(OTHER)
        server.gone.clear()
        assert small.fetch(mirror=server.url).fetched == (DEB,)


@pytest.mark.parametrize("has_ranges", [True, False])
def test_what_was_cut_off_is_gone_on_with(small: Small, has_ranges: bool) -> None:
    size = (small.folder / DEB).stat().st_size
    with RangeServer(small.folder, cut={DEB: size // 4}, has_ranges=has_ranges) as server:
        missing = only(small.fetch(mirror=server.url))
        part = 3 * (size // 4) if has_ranges else size // 4
        assert missing.reason.startswith(f"was cut off after {part} of {size} bytes")
        assert not small.has(DEB)
        server.asked.clear()
        server.cut.clear()
        assert small.fetch(mirror=server.url).missing == ()
        assert server.asked == [(DEB, f"bytes={part}-")]
    assert digest(small.settings.output / "vendor" / DEB) == digest(small.folder / DEB)
    assert not (small.settings.output / "vendor/.partial").exists()


def test_a_beginning_of_something_else_is_thrown_away(small: Small) -> None:
    partial = small.settings.output / "vendor/.partial"
    partial.mkdir(parents=True)
    (partial / digest(small.folder / DEB)).write_bytes(b"beginning of something else")
    (partial / digest(small.folder / OTHER)).write_bytes(b"longer" * 10_000)
    with RangeServer(small.folder) as server:
        assert small.fetch(mirror=server.url).missing == ()
    assert small.has(DEB) and small.has(OTHER)


def test_an_index_that_was_cut_off_is_called_that(small: Small) -> None:
    with RangeServer(small.folder, cut={f"{FOLDER}/InRelease": 100}) as server:
        assert "was cut off after 100 of" in only(small.fetch(mirror=server.url)).reason


def test_a_vendor_that_does_not_answer_is_named(small: Small) -> None:
    with RangeServer(small.folder) as server:
        url = server.url
    missing = only(small.fetch(mirror=url))
    assert "cannot be fetched: " in missing.reason and url in missing.reason
