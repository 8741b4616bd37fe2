"""Stand-ins of the published cluster's vendors, and the apt of a node that has a mirror folder.

The payload is a stand-in; names, versions, addresses and signatures are as the vendors have them.
"""

import dataclasses
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils import deb_family, openpgp_key
from gpu_packages import cudnn_7, docker, driver_440, toolkit
from gpu_standins import CUDA, LEARNING, cuda_10_packages
from standin_repository import Standin, flat_repository, suite_repository

from dlperf_runner.bundle import apt, mirror
from dlperf_runner.bundle.archives import Source
from dlperf_runner.bundle.manifest import Item, Missing, digest
from dlperf_runner.bundle.mirror import MirrorOutcome
from dlperf_runner.bundle.needs import Needs
from dlperf_runner.bundle.release_tables import VendorFile, VendorRepository, wanted
from dlperf_runner.bundle.wheels import Target
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.stack import Stack
from dlperf_runner.catalog.suites import SYSTEMS
from dlperf_runner.provision.vendor import repository

PUBLISHED = load_catalog().stack("v100-cuda10.2")
CONTAINERS = "vendor/nvidia.github.io/libnvidia-container"
NCCL = f"{LEARNING}/nccl/secure/v2.7/prod/nccl-repo-ubuntu1804-2.7.3-ga-cuda10.2_1-1_amd64.deb"
OFED = (
    "vendor/content.mellanox.com/ofed/MLNX_OFED-5.0-2.1.8.0/"
    "MLNX_OFED_LINUX-5.0-2.1.8.0-ubuntu18.04-x86_64.tgz"
)
OPENMPI = "vendor/download.open-mpi.org/release/open-mpi/v4.0/openmpi-4.0.0.tar.gz"
NCCL_SOURCE = "vendor/github.com/NVIDIA/nccl/archive/refs/tags/v2.7.3-1.tar.gz"
PYTHON = "vendor/www.python.org/ftp/python/3.7.17/Python-3.7.17.tgz"


@dataclasses.dataclass(frozen=True)
class Site:
    """Stand-ins of all vendors of the published cluster's stack on Ubuntu 18.04."""

    folder: Path
    keys: dict[str, list[str]]
    checksums: dict[str, str]
    peer_memory: Path

    def settings(self, output: Path, **changed: Any) -> mirror.Settings:
        given = {
            "mirror": str(self.folder / "vendor"),
            "checksums": self.checksums,
            "files": {"infiniband_peer_memory_archive": str(self.peer_memory)},
            "keys": self.keys,
        }
        return settings_in(output, **(given | changed))


def make_site(
    scratch: Path, depends: Mapping[str, str] | None = None, further: Iterable[Standin] = ()
) -> Site:
    """Of each package there is a newer version, too: the trap. `depends`: what packages ask for
    besides, by name; `further`: packages that the repository of CUDA has besides."""

    def of(packages: Iterable[Standin]) -> list[Standin]:
        besides = depends or {}
        return [
            dataclasses.replace(one, depends=f"{one.depends}, {more}".removeprefix(", "))
            if (more := besides.get(one.name))
            else one
            for one in packages
        ]

    folder, key = scratch / "site", scratch / "key"
    toolkits = folder / CONTAINERS / "stable/ubuntu18.04/amd64"
    packages = [*cuda_10_packages(driver_440), *further]
    own = flat_repository(folder / CUDA / "ubuntu1804/x86_64", of(packages), key, "3bf863cc.pub")
    versions = ("7.6.5.32-1+cuda10.0", "7.6.5.32-1+cuda10.2", "7.6.5.33-1+cuda10.2")
    packages = [made for version in versions for made in cudnn_7(version)]
    learning = folder / LEARNING / "repos/ubuntu1804/x86_64"
    flat_repository(learning, packages, key, "7fa2af80.pub")
    flat_repository(toolkits, [*toolkit("1.13.5-1"), *toolkit("1.13.95-1")], key, "gpgkey")
    shutil.copy(toolkits / "gpgkey", folder / CONTAINERS / "gpgkey")
    packages = [
        *docker("5:20.10.7~3-0~ubuntu-bionic", "1.4.6-1"),
        *docker("5:24.0.2-1~ubuntu.18.04~bionic", "9.9.9-1"),
    ]
    where = folder / "vendor/download.docker.com/linux/ubuntu"
    suite_repository(where, "bionic", "stable", of(packages), key, "gpg")
    for path in (NCCL, NCCL_SOURCE, OFED, OPENMPI, PYTHON):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_bytes(path.encode() * 1000)
    (scratch / "nv_peer_mem-1.0.tar.gz").write_bytes(b"source")
    checksums = {
        "nccl_archive_sha256": digest(folder / NCCL),
        "nccl_source_sha256": digest(folder / NCCL_SOURCE),
        "infiniband_archive_sha256": digest(folder / OFED),
        "openmpi_sha256": digest(folder / OPENMPI),
        "python_sha256": digest(folder / PYTHON),
        "infiniband_peer_memory_sha256": digest(scratch / "nv_peer_mem-1.0.tar.gz"),
    }
    names = ("nvidia-cuda", "nvidia-machine-learning", "nvidia-container-legacy", "docker")
    keys = {name: [own] for name in names}
    return Site(folder, keys, checksums, scratch / "nv_peer_mem-1.0.tar.gz")


def fetch(stack: Stack, suite: str, settings: mirror.Settings) -> MirrorOutcome:
    """What a stack takes from vendors, and nothing from the distribution."""
    things = wanted(stack, suite, settings.keys)
    needs = Needs(
        *(stack.name, suite, Target("3.6", "2.27", "amd64"), {}),
        repositories=tuple(one for one in things if isinstance(one, VendorRepository)),
        files=tuple(one for one in things if isinstance(one, VendorFile)),
    )
    return mirror.make(needs, settings)


def settings_in(output: Path, **given: Any) -> mirror.Settings:
    """Without the distribution's archive."""
    return mirror.Settings(output, output.parent / "cache", (), base=(), **given)


def of_kind(outcome: MirrorOutcome, kind: str) -> list[Item]:
    """The vendors' files of a kind."""
    files = outcome.manifest.files
    return [item for item in files if item.kind == kind and item.path.startswith("vendor/")]


def node_of(
    folder: Path, mirror_folder: Path, keys: dict[str, list[str]], *sources: Source
) -> tuple[apt.Root, list[str]]:
    """The apt of a node, in `folder`, that has the vendors' repositories of a mirror folder and
    `sources`, with preferences as the roles' own rules and texts have them; and what the roles
    install by it."""
    root = apt.Root(folder, "amd64")
    stanzas, names, preferences = {}, [], []
    for one in wanted(PUBLISHED, "bionic", keys):
        if isinstance(one, VendorRepository):
            there = repository(one.name, SYSTEMS["bionic"], str(mirror_folder / "vendor"), keys)
            there["suite"] = one.suite
            ring = folder / f"{one.name}.gpg"
            armoured = Path(there["key"].removeprefix("file:")).read_bytes()
            ring.parent.mkdir(parents=True, exist_ok=True)
            ring.write_bytes(openpgp_key.dearmored(armoured))
            stanzas[one.name] = deb_family.source_text(there, str(ring))
            names += [f"{name}={version}" for name, version in one.packages]
            pins = [{"packages": list(globs), "version": glob} for globs, glob in one.pins]
            preferences.append(deb_family.preferences_text(dict(one.packages), pins))
    apt.prepare(root, sources, "\n".join(preferences))
    with root.sources.open("a") as file:
        file.write("".join(f"\n{stanza}" for stanza in stanzas.values()))
    return root, names


def only(outcome: MirrorOutcome) -> Missing:
    (missing,) = outcome.missing
    return missing
