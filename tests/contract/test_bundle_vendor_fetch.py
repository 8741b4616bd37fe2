"""The vendors' part of a mirror folder: fetched from repositories that the test has signed, laid
out as their vendors do, and read by apt at the addresses that the roles have for it.

The payload is a stand-in; apt, gpgv, signatures, digests and HTTP are real, on this machine alone.
"""

from __future__ import annotations

import dataclasses
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from gpu_standins import CUDA, LEARNING, cudnn_7
from range_server import RangeServer
from standin_repository import flat_repository
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
)

from dlperf_runner.bundle.debian import apt
from dlperf_runner.bundle.folder.files import digest
from dlperf_runner.bundle.folder.manifest import Item, Missing
from dlperf_runner.bundle.vendor.indexes_and_files import Settings
from dlperf_runner.catalog.stack import Release, Stack
from dlperf_runner.core.errors import UserError

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(
    not all(shutil.which(command) for command in ("apt-get", "dpkg-deb", "gpg", "gpgv")),
    reason="needs apt, dpkg and gpg",
)


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
        Settings(
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
    settings: Settings

    def fetch(self, **changed: Any) -> Made:
        return fetch(SMALL, "bionic", dataclasses.replace(self.settings, **changed))

    def has(self, path: str) -> bool:
        return (self.settings.output / "vendor" / path).is_file()


@pytest.fixture
def small(site: Site, tmp_path: Path) -> Small:
    folder = tmp_path / "site"
    shutil.copytree(site.folder / "vendor" / FOLDER, folder / FOLDER)
    name = "nvidia-machine-learning"
    settings = Settings(tmp_path / "output", mirror=str(folder), keys={name: site.keys[name]})
    return Small(folder, settings)


def only(made: Made) -> Missing:
    (missing,) = made.missing
    return missing


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


# ---- files


def stack_of(**roles: Any) -> Stack:
    return SMALL.model_copy(update={"name": "files", "cudnn": None, **roles})


ARCHIVE = stack_of(nccl=PUBLISHED.nccl)


def source_of(site: Site) -> Callable[..., Settings]:
    """The settings that find the source of NCCL, with further ones."""

    def settings(output: Path, **changed: Any) -> Settings:
        checksums = {"nccl_source_sha256": site.checksums["nccl_source_sha256"]}
        checksums |= changed.pop("checksums", {})
        return Settings(
            output, **{"mirror": str(site.folder / "vendor"), "checksums": checksums, **changed}
        )

    return settings


NETWORK = stack_of(infiniband=PUBLISHED.infiniband)


def test_an_archive_behind_a_login_is_asked_for_by_its_options(site: Site, tmp_path: Path) -> None:
    # Without a word of it, the nodes build the source.
    source = source_of(site)
    assert fetch(ARCHIVE, "bionic", source(tmp_path)).missing == ()
    assert (tmp_path / NCCL_SOURCE).is_file() and not (tmp_path / NCCL).exists()

    given = {"nccl_archive_sha256": site.checksums["nccl_archive_sha256"].upper()}
    missing = only(fetch(ARCHIVE, "bionic", source(tmp_path, mirror="", checksums=given)))
    assert missing.reason == "is behind a login"
    assert "--file nccl_archive=PATH" in missing.remedy

    settings = source(
        tmp_path, mirror="", files={"nccl_archive": str(site.folder / NCCL)}, checksums=given
    )
    assert fetch(ARCHIVE, "bionic", settings).missing == ()
    # At the vendor's address: the roles find it behind the mirror, whatever it was called here.
    assert digest(tmp_path / NCCL) == site.checksums["nccl_archive_sha256"]
    assert fetch(ARCHIVE, "bionic", source(tmp_path, mirror="")).missing == ()


def test_a_given_file_needs_its_checksum_and_has_to_have_it(site: Site, tmp_path: Path) -> None:
    source, files = source_of(site), {"nccl_archive": str(site.folder / NCCL)}
    missing = only(fetch(ARCHIVE, "bionic", source(tmp_path, files=files)))
    assert missing.reason == "has no known checksum, and nothing is kept without one"
    assert "--checksum nccl_archive_sha256=SHA256" in missing.remedy
    wrong = {"nccl_archive_sha256": "0" * 64}
    missing = only(fetch(ARCHIVE, "bionic", source(tmp_path, files=files, checksums=wrong)))
    assert f"sha256 {'0' * 64} was expected" in missing.reason
    assert not (tmp_path / NCCL).exists()
    files = {"nccl_archive": str(tmp_path / "nothing.deb")}
    settings = source(tmp_path, files=files, checksums=wrong)
    assert only(fetch(ARCHIVE, "bionic", settings)).reason == f"is not at {tmp_path}/nothing.deb"


def test_checksums_that_no_table_has_are_asked_for_by_their_variables(
    site: Site, tmp_path: Path
) -> None:
    settings = Settings(tmp_path, mirror=str(site.folder / "vendor"))
    # Nobody asks for nv_peer_mem, which is optional, unless the operator has begun to give it.
    ofed = only(fetch(NETWORK, "bionic", settings))
    assert ofed.reason == "has no known checksum, and nothing is kept without one"
    assert "--checksum infiniband_archive_sha256=SHA256" in ofed.remedy
    files = {"infiniband_peer_memory_archive": str(site.peer_memory)}
    peer_memory = fetch(NETWORK, "bionic", dataclasses.replace(settings, files=files)).missing[-1]
    assert peer_memory.reason == "has no known checksum, and nothing is kept without one"
    assert "--checksum infiniband_peer_memory_sha256=SHA256" in peer_memory.remedy


# ---- options and exit statuses


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"checksums": {"cudnn_sha256": "0" * 64}}, "cudnn_sha256"),
        ({"checksums": {"nccl_archive_sha256": "0"}}, "0"),
        ({"files": {"nccl": "x"}}, "nccl"),
        ({"keys": {"docker": ["0" * 40]}}, "docker"),
    ],
)
def test_an_option_that_the_stack_has_no_use_for_is_an_error(
    tmp_path: Path, given: dict[str, Any], found: str
) -> None:
    with pytest.raises(UserError) as error:
        fetch(ARCHIVE, "bionic", Settings(tmp_path, **given))
    assert error.value.found == found
    assert not list(tmp_path.iterdir())


def test_a_system_that_the_stack_is_not_made_for_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not support this suite"):
        fetch(PUBLISHED, "noble", Settings(tmp_path))


def command(*options: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "dlperf_runner", "bundle", *options]
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--stack", "v100-cuda10.2", "--checksum", "unknown=1"), "--checksum"),
        (("--stack", "v100-cuda10.2", "--file", "nccl_archive"), "expected NAME=VALUE"),
        (("--stack", "cpu", "--vendor-mirror", "/mirror"), "the stack needs no files from vendors"),
    ],
)
def test_bad_options_are_exit_status_2(tmp_path: Path, options: tuple[str, ...], said: str) -> None:
    done = command(*options, "--output", str(tmp_path / "output"))
    assert done.returncode == 2, done.stderr
    assert said in done.stderr
    assert not (tmp_path / "output").exists()
