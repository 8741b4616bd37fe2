"""A stack with GPUs on Ubuntu in one folder: the vendors' packages with what they depend on in the
distribution, and wheels for the Python that the stack builds.

The archive of Ubuntu, the vendors and the index of Python packages are stand-ins, signed by keys of
the test; apt, gpg, pip and what they refuse are real. Nothing here uses the network.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from executed_modules import call
from gpu_packages import one
from mirror_site import lost
from standin_repository import Standin, needs_apt, suite_repository
from tiny_index import only_this_index, wheel
from typer.testing import CliRunner, Result
from vendor_site import NCCL, OFED, PUBLISHED, Site, make_site, node_of

from dlperf_runner.bundle import apt, archives, mirror, needs, release_tables
from dlperf_runner.bundle import manifest as manifests
from dlperf_runner.bundle.archives import Source
from dlperf_runner.bundle.manifest import digest
from dlperf_runner.bundle.release_tables import of_distribution
from dlperf_runner.bundle.wheels import RequirementsFile
from dlperf_runner.catalog.framework import Environment
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands import app
from dlperf_runner.core import paths
from dlperf_runner.provision import vendor

pytestmark = [needs_apt, pytest.mark.heavy, pytest.mark.gpu_roles]
HEADERS = "linux-headers-5.4.0-42-generic"
# What vendors' packages ask for that vendors do not have.
DEPENDS = {"nvidia-dkms-440": "dkms (>= 2)", "containerd.io": "libseccomp2"}
NAMED = {
    name
    for names in [
        *PUBLISHED.apt_packages.values(),
        *(n for _, n in of_distribution(PUBLISHED, "bionic")),
    ]
    for name in names
}
CHAINS = [
    one("dkms", "2.3", "gcc, make, libboth"),
    one("gcc", "7.4", "gcc-7"),
    one("gcc-7", "7.5", "libxnvctrl0"),
    one("libseccomp2", "2.4"),
    one(HEADERS, "5.4.0-42.46", "linux-headers-5.4.0-42"),
    one("linux-headers-5.4.0-42", "5.4.0-42.46"),
]
# The same name in Ubuntu and at a vendor, who has the newer one; and Ubuntu's own, which is newer
# than the one that the stack's pins keep to.
BOTH = [one("libboth", "1"), one("nvidia-modprobe", "999"), one("libxnvctrl0", "999")]
THEIRS = (
    "vendor/developer.download.nvidia.com/compute/cuda/repos/ubuntu1804/x86_64/libboth_2_amd64.deb"
)


def publish_ubuntu(folder: Path, key: Path, packages: Iterable[Standin]) -> None:
    for suite, of_suite in (
        ("bionic", packages),
        ("bionic-updates", [one("libseccomp2", "2.5")]),
        ("bionic-security", []),
    ):
        suite_repository(folder, suite, "main", of_suite, key, "key.asc")


def ubuntu_packages() -> list[Standin]:
    chains = {package.name for package in CHAINS}
    return [*CHAINS, *BOTH, *(one(name, "1") for name in sorted(NAMED - chains)), one("other", "1")]


@pytest.fixture(scope="module")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Path]:
    """The vendors; and a folder with the archive of Ubuntu, an index and a lock."""
    folder = tmp_path_factory.mktemp("upstream")
    site = make_site(folder / "vendors", DEPENDS, [one("libboth", "2")])
    publish_ubuntu(folder / "ubuntu", folder / "key", ubuntu_packages())
    (folder / "index").mkdir()
    tags = ("cp36-cp36m", "cp37-cp37m", "cp38-cp38")
    lines = [
        wheel(folder / "index", "tinynet", "1.9", f"{tag}-manylinux2014_x86_64") for tag in tags
    ]
    (folder / "lock.txt").write_text(
        " ".join([lines[0].strip(), *(line.split()[1] for line in lines[1:])]) + "\n"
    )
    return site, folder


@dataclasses.dataclass
class Bundle:
    """The command, in this process, on a machine whose keyring of Ubuntu is the stand-in's."""

    site: Site
    ubuntu: Path
    output: Path

    def make(self, *options: str) -> Result:
        settings = self.site.settings(self.output)
        pairs = [
            *(("--checksum", f"{name}={text}") for name, text in settings.checksums.items()),
            *(("--file", f"{name}={text}") for name, text in settings.files.items()),
            *(("--vendor-key", f"{name}={key[0]}") for name, key in settings.keys.items()),
        ]
        given = [text for pair in pairs for text in pair]
        where = ["--vendor-mirror", settings.mirror, "--debian-mirror", f"file:{self.ubuntu}"]
        # Only its image counts (bundle_in), so that there is no wheel of the real index.
        what = ["--stack", "v100-cuda10.2", "--suite", "bionic", "--framework", "tensorflow"]
        argv = ["bundle", *what, *where, "--output-dir", str(self.output), *given, *options]
        return CliRunner().invoke(app, argv)

    def items(self) -> dict[str, manifests.Item]:
        made = manifests.read(self.output)
        assert made is not None
        return {item.name: item for item in made.files}

    def files(self) -> dict[str, int]:
        return {
            path.relative_to(self.output).as_posix(): path.stat().st_mtime_ns
            for path in self.output.rglob("*")
            if path.is_file() and path.name != ".lock"
        }


def bundle_in(
    folder: Path, upstream: tuple[Site, Path], patch: pytest.MonkeyPatch, name: str
) -> Bundle:
    site, there = upstream
    keyring = there / "ubuntu/key.asc"
    ubuntu = dataclasses.replace(archives.UBUNTU, keyring=keyring)
    patch.setitem(archives.DISTRIBUTIONS, "ubuntu", ubuntu)
    patch.setattr(needs, "UV", RequirementsFile(str(there / "lock.txt"), "uv"))
    whole = load_catalog().frameworks["tensorflow"].environments["v100-cuda10.2"]
    image = Environment(container=whole.container)
    patch.setattr(needs, "_environments", lambda *_: {"tensorflow": image})
    # What it keeps of the project's own: lists of packages, and the key that signs.
    patch.setattr(paths, "cache", lambda: there / "cache")
    only_this_index(patch, there / "index")
    return Bundle(site, there / "ubuntu", folder / name)


@pytest.fixture(scope="module")
def whole(
    upstream: tuple[Site, Path], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Bundle, Result]]:
    """A whole folder, to be read only."""
    with pytest.MonkeyPatch.context() as patch:
        # A space, as folders may have.
        bundle = bundle_in(tmp_path_factory.mktemp("whole"), upstream, patch, "the mirror")
        yield bundle, bundle.make("--package", HEADERS)


@pytest.fixture
def bundle(upstream: tuple[Site, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundle:
    """Nothing made yet."""
    return bundle_in(tmp_path, upstream, monkeypatch, "new")


def test_what_is_left_out_is_listed_and_nothing_else_is_missing(
    whole: tuple[Bundle, Result],
) -> None:
    _, done = whole
    assert done.exit_code == 0, done.output
    left_out = [line for line in done.stderr.splitlines() if line.startswith("left out: ")]
    assert [line.split(": ")[1] for line in left_out] == ["MLNX_OFED", "tensorflow"]
    assert "nvcr.io/nvidia/tensorflow" in left_out[1]
    assert "nccl_archive_sha256: " in done.stdout
    assert "missing" not in done.stdout


def test_the_distributions_part_is_what_vendors_packages_depend_on(
    whole: tuple[Bundle, Result],
) -> None:
    bundle, _ = whole
    items = bundle.items()
    names = {name for name, item in items.items() if item.kind == "deb" and item.path[:4] == "apt/"}
    assert names == {*NAMED, *(package.name for package in CHAINS)}
    # The vendors' packages have the vendors' index.
    in_apt = {
        path.rpartition("/")[2].split("_")[0] for path in bundle.files() if path[:4] == "apt/"
    }
    assert {"dkms", "gcc-7"} < in_apt and not {"libboth", "cuda-drivers"} & in_apt
    # A package that two roles lead to has the shortest way from the first.
    assert items["dkms"].wanted_by == ("infiniband (nv_peer_mem)", "nvidia_driver")
    assert items["libseccomp2"].why == "containerd.io > libseccomp2"
    assert items["libseccomp2"].version == "2.5"
    assert items["linux-headers-5.4.0-42"].why == f"{HEADERS} > linux-headers-5.4.0-42"
    assert items[HEADERS].wanted_by == ("--package",)
    assert (items["libboth"].version, items["libboth"].path) == ("2", THEIRS)
    # Wheels are for the Python that the stack builds, not for that of Ubuntu 18.04, which is 3.6.
    (name,) = [path.name for path in (bundle.output / "wheels").iterdir()]
    assert name == "tinynet-1.9-cp37-cp37m-manylinux2014_x86_64.whl"
    document = json.loads((bundle.output / "manifest.json").read_text())
    target = (document["suite"], document["python"], document["architecture"])
    assert target == ("bionic", "3.7", "amd64")


def test_a_node_unpacks_libraries_of_another_cuda_from_it(
    whole: tuple[Bundle, Result], tmp_path: Path
) -> None:
    """The mirror has them without what they depend on, and cuDNN 7 for both versions of CUDA."""
    bundle, _ = whole
    table = release_tables.role_variables("cuda_libraries")["__cuda_libraries_releases"]["10.0.130"]
    folder = shutil.copytree(bundle.output / "vendor", tmp_path / "vendor")
    parts = vendor.parts(table["parts"], "ubuntu18.04", str(folder), bundle.site.keys)
    result = call("unpacked_packages", path=str(tmp_path / "cuda"), parts=parts)
    assert result.get("changed"), result
    wanted = {
        name: version for part in table["parts"] for name, version in part["packages"].items()
    }
    assert {name: one["version"] for name, one in result["packages"].items()} == wanted
    files = [path.rpartition("/")[2] for path in bundle.files()]
    assert sum(name.startswith("libcudnn7_7.6.5.32") for name in files) == 2
    assert not any("cuda-license" in name for name in files)


def test_a_node_installs_the_stack_from_the_folder_alone(
    whole: tuple[Bundle, Result], tmp_path: Path
) -> None:
    """As node_base and the roles of vendors have it: the folder, and no other source."""
    bundle, _ = whole
    # apt takes no path with a space.
    folder = Path(shutil.copytree(bundle.output, tmp_path / "mirror"))
    key = str(folder / "apt/dlperf-mirror.asc")
    source = Source(f"file:{folder}/apt", ("bionic",), signed_by=key)
    root, names = node_of(tmp_path / "apt", folder, bundle.site.keys, source)
    assert "cuda-drivers=440.33.01-1" in names and "docker-ce=5:20.10.7~3-0~ubuntu-bionic" in names
    assert not apt.update(root)
    choices = apt.resolve(root, [*names, *sorted(NAMED), HEADERS], where="the test")
    versions = {choice.name: choice.version for choice in choices}
    assert versions["nvidia-dkms-440"] == "440.33.01-0ubuntu1"
    assert versions["nvidia-modprobe"] == versions["libxnvctrl0"] == "440.33.01-0ubuntu1"
    assert (versions["dkms"], versions["gcc-7"], versions["libboth"]) == ("2.3", "7.5", "2")
    (tmp_path / "downloads").mkdir()
    assert not lost(root, choices, tmp_path / "downloads")
    assert len(list((tmp_path / "downloads").iterdir())) == len(choices) > 40


def test_a_second_run_asks_nobody_and_one_missing_thing_is_exit_status_1(
    whole: tuple[Bundle, Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle = dataclasses.replace(whole[0], output=tmp_path / "copy")
    shutil.copytree(whole[0].output, bundle.output)
    before = bundle.files()
    with monkeypatch.context() as patch:
        patch.setattr(apt, "read_lists", None)
        again = bundle.make("--package", HEADERS)
    assert again.exit_code == 0, again.output
    assert "files, 0 fetched, 0 removed" in again.stdout
    assert bundle.files() == before

    for path in (OFED, THEIRS, NCCL):
        (bundle.output / path).unlink()
    checksum = f"nccl_archive_sha256={'0' * 64}"
    done = bundle.make("--package", HEADERS, "--checksum", checksum, "--json")
    assert done.exit_code == 1, done.output
    document = json.loads(done.stdout)
    (missing,) = document["missing"]
    assert missing["name"].startswith("nccl-repo-ubuntu1804-2.7.3")
    assert set(document["repaired"]) == {OFED, THEIRS}
    item = bundle.items()["libboth"]
    assert digest(bundle.output / THEIRS) == item.sha256
    with monkeypatch.context() as patch:
        patch.setattr(apt, "read_lists", None)
        done = bundle.make("--package", HEADERS, "--checksum", checksum)
    assert (done.exit_code, "missing: 1\n" in done.stdout) == (1, True), done.output


def test_headers_of_the_nodes_kernel_are_asked_for_and_named_if_ubuntu_lacks_them(
    bundle: Bundle,
) -> None:
    done = bundle.make("--package", "linux-headers-4.15.0-1-generic", "--json")
    assert done.exit_code == 1, done.output
    (missing,) = json.loads(done.stdout)["missing"]
    assert missing["name"] == "apt/ and wheels/"
    assert "linux-headers-4.15.0-1-generic" in missing["reason"]
    # The rest is fetched, and wheels are not waited for.
    assert (bundle.output / NCCL).is_file()
    assert not list((bundle.output / "wheels").glob("*"))

    done = bundle.make()
    assert done.exit_code == 0, done.output
    assert "left out: the kernel's headers: the driver is built with them" in done.stderr
    assert "--package linux-headers-VERSION" in done.stderr


def test_a_dependency_that_no_source_has_is_named(bundle: Bundle, tmp_path: Path) -> None:
    bundle.ubuntu = tmp_path / "ubuntu"
    packages = [
        dataclasses.replace(package, depends="gcc, no-such-library (>= 3)")
        if package.name == "dkms"
        else package
        for package in ubuntu_packages()
    ]
    publish_ubuntu(bundle.ubuntu, bundle.site.folder.parents[1] / "key", packages)
    done = bundle.make()
    assert done.exit_code == 1
    assert "dkms : Depends: no-such-library (>= 3)" in done.stdout


def test_what_this_machine_lacks_is_named_with_its_package(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ubuntu = dataclasses.replace(archives.UBUNTU, keyring=tmp_path / "no.gpg")
    monkeypatch.setitem(archives.DISTRIBUTIONS, "ubuntu", ubuntu)
    done = bundle.make()
    assert done.exit_code == 1, done.output
    assert f"the keyring {tmp_path}/no.gpg" in done.stdout
    assert "install the package ubuntu-archive-keyring" in done.stdout

    shutil.rmtree(bundle.output)
    monkeypatch.setitem(mirror.PROGRAMS, "no-such-program", "its-package")
    done = bundle.make()
    assert done.exit_code == 2, done.output
    assert "no-such-program is missing" in done.stderr
    assert "install the package its-package" in done.stderr
    assert not bundle.output.exists()
