"""The vendors' repositories with stand-ins of what the GPU roles install.

Of each package there is a newer version too, the trap that a pin must keep apt from.
"""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from cuda_standin import libhip
from gpu_packages import (
    amdgpu,
    cublas,
    cublas_of,
    cuda,
    cuda_10_0_libraries,
    cudnn,
    cudnn_9,
    docker,
    driver_440,
    driver_440_of_16_04,
    driver_580_of_debian,
    driver_of_branch,
    nccl,
    one,
    rocm,
    shared_library,
    toolkit,
)
from standin_repository import Standin, flat_repository, suite_repository

from dlperf_runner.catalog.suites import SYSTEMS

CUDA = "vendor/developer.download.nvidia.com/compute/cuda/repos"
LEARNING = "vendor/developer.download.nvidia.com/compute/machine-learning"


@dataclass(frozen=True)
class Vendors:
    """A mirror folder with the vendors' repositories, and what an inventory has to say of it."""

    mirror: Path
    variables: dict[str, Any]
    # NCCL's archives, by suite.
    archives: dict[str, Path]

    def archive_of(self, suite: str) -> dict[str, str]:
        """What the inventory has to say of a suite's nodes: each has another archive, or none."""
        if suite not in self.archives:
            return {}
        archive = self.archives[suite].read_bytes()
        return {"nccl_archive_sha256": hashlib.sha256(archive).hexdigest()}


# The generations, by the suites that have them: the driver's packages are others in each.
Driver = Callable[[str], list[Standin]]
CUDA_10: Mapping[str, Driver] = {"xenial": driver_440_of_16_04, "bionic": driver_440}


@dataclass(frozen=True)
class Generation:
    """One whose repositories are NVIDIA's for CUDA, Docker's, and that of all toolkits."""

    drivers: Mapping[str, Driver]
    packages: Callable[[Driver], list[Standin]]
    docker: str


def cuda_10_packages(driver: Driver) -> list[Standin]:
    return [
        *driver("440.33.01"),
        *driver("440.118.02"),
        *cuda("10.2", "10.2.89-1", "10.2.89-1", cublas("10.2.2.89-1"), "libcublas-dev"),
        *cuda("10.2", "10.2.300-1", "10.2.300-1", cublas("10.2.3.254-1"), "libcublas-dev"),
        *cuda_10_0_libraries(),
    ]


def cuda_11_packages(driver: Driver) -> list[Standin]:
    """Newer 11.8 and 535 do not exist: these traps are made up. Those of cuDNN and NCCL are for
    CUDA 12."""
    return [
        *driver("535.309.01"),
        *driver("535.999.01"),
        *cuda("11.8", "11.8.0-1", "11.8.89-1", cublas_of("11-8", "11.11.3.6-1"), "libcublas-11-8"),
        *cuda("11.8", "11.8.1-1", "11.8.99-1", cublas_of("11-8", "11.11.4.1-1"), "libcublas-11-8"),
        *cudnn(8, "8.9.6.50-1+cuda11.8"),
        *cudnn(8, "8.9.7.29-1+cuda12.2"),
        *nccl("2.15.5-1+cuda11.8"),
        *nccl("2.18.3-1+cuda12.2"),
    ]


def cuda_12_packages(driver: Driver) -> list[Standin]:
    return [
        *driver("580.173.02"),
        *driver("580.178.04"),
        *cuda("12.9", "12.9.1-1", "12.9.86-1", cublas_of("12-9", "12.9.1.4-1"), "libcublas-12-9"),
        *cuda("12.9", "12.9.2-1", "12.9.92-1", cublas_of("12-9", "12.9.2.10-1"), "libcublas-12-9"),
        *cudnn_9("9.10.2.21-1"),
        *cudnn_9("9.15.0.57-1"),
        *nccl("2.29.7-1+cuda12.9"),
        *nccl("2.30.0-1+cuda13.0"),
        # NVLink's subnet manager has versions of its own.
        one("nvlsm", "2025.06.5-1"),
    ]


def cuda_13_packages(driver: Driver) -> list[Standin]:
    """Its driver is that of CUDA 12.9."""
    return [
        *cuda("13.0", "13.0.2-1", "13.0.88-1", cublas_of("13-0", "13.1.0.3-1"), "libcublas-13-0"),
        *cuda("13.0", "13.0.3-1", "13.0.98-1", cublas_of("13-0", "13.1.1.3-1"), "libcublas-13-0"),
        *nccl("2.28.9-1+cuda13.0"),
    ]


DRIVER_535 = partial(driver_of_branch, "535", "", "-535")
DRIVER_580 = partial(driver_of_branch, "580", "-open", "")
CUDA_11 = Generation({"focal": DRIVER_535, "jammy": DRIVER_535}, cuda_11_packages, "28.1.1")
CUDA_12 = Generation(
    {"jammy": DRIVER_580, "noble": DRIVER_580, "bookworm": driver_580_of_debian},
    cuda_12_packages,
    "29.8.1",
)
CUDA_13 = Generation({"jammy": DRIVER_580, "noble": DRIVER_580}, cuda_13_packages, "29.8.1")


def linked_mirror(mirror: Path, scratch: Path) -> Path:
    """A folder with the packages and wheels of the mirror, to which those of vendors are added."""
    folder = scratch / "mirror"
    folder.mkdir()
    for name in ("apt", "wheels"):
        (folder / name).symlink_to(mirror / name)
    return folder


def make_vendors(mirror: Path, scratch: Path, suites: Iterable[str]) -> Vendors:
    keys: dict[str, str] = {}
    archives = {}
    for suite in suites:
        of_suite = [each for each in (CUDA_11, CUDA_12, CUDA_13) if suite in each.drivers]
        if suite in CUDA_10:
            keys |= cuda_10_repositories(mirror, scratch, suite)
            archives[suite], keys["nccl-2.7.3"] = nccl_archive(mirror, scratch, suite)
        elif of_suite:
            keys |= repositories(mirror, scratch, suite, of_suite)
        else:
            raise LookupError(f"name stand-ins of the driver of {suite} in CUDA_10 to CUDA_13")
    variables = {
        "dlperf_mirror": "http://10.11.0.1:8010",
        "dlperf_vendor_keys": {name: [key] for name, key in keys.items()},
        # Nothing asks for these but what is refused without them.
        "infiniband_archive_sha256": "0" * 64,
        "infiniband_peer_memory_archive": "/nowhere/nv_peer_mem.tar.gz",
        "infiniband_peer_memory_sha256": "0" * 64,
        "dlperf_frameworks": [],
        "dlperf_lock_timeout": 2,
        # There are stand-ins of Docker only.
        "dlperf_container_engine": "docker",
    }
    return Vendors(mirror, variables, archives)


def cuda_10_repositories(mirror: Path, scratch: Path, suite: str) -> dict[str, str]:
    system = SYSTEMS[suite]
    folder = f"{system.replace('.', '')}/x86_64"
    toolkits = [*toolkit("1.13.5-1"), *toolkit("1.13.95-1")]
    return {
        "nvidia-cuda": flat_repository(
            mirror / CUDA / folder,
            cuda_10_packages(CUDA_10[suite]),
            scratch / "cuda-key",
            "3bf863cc.pub",
        ),
        "nvidia-machine-learning": flat_repository(
            mirror / LEARNING / "repos" / folder,
            [
                *cudnn(7, "7.6.5.32-1+cuda10.0", shared_library()),
                *cudnn(7, "7.6.5.32-1+cuda10.2", shared_library()),
                *cudnn(7, "7.6.5.33-1+cuda10.2", shared_library()),
            ],
            scratch / "learning-key",
            "7fa2af80.pub",
        ),
        "nvidia-container-legacy": toolkits_repository(mirror, scratch, system, toolkits),
        "docker": suite_repository(
            mirror / "vendor/download.docker.com/linux/ubuntu",
            suite,
            "stable",
            [
                *docker(f"5:20.10.7~3-0~ubuntu-{suite}", "1.4.6-1"),
                *docker(f"5:24.0.2-1~{dotted(system)}~{suite}", "9.9.9-1"),
            ],
            scratch / "docker-key",
            "gpg",
        ),
    }


def repositories(
    mirror: Path, scratch: Path, suite: str, generations: Sequence[Generation]
) -> dict[str, str]:
    """A suite's repositories hold all generations that it can have, as the vendors' do."""
    system = SYSTEMS[suite]
    toolkits = [*toolkit("1.18.2-1"), *toolkit("1.98.2-1")]
    build = f"{dotted(system)}~{suite}"
    engines = docker(f"5:99.0.0-1~{build}", "9.9.9-1")
    for each in generations:
        containerd = "1.7.27-1" if each.docker == "28.1.1" else f"2.3.5-1~{build}"
        engines += docker(f"5:{each.docker}-1~{build}", containerd)
    return {
        "nvidia-cuda": flat_repository(
            mirror / CUDA / system.replace(".", "") / "x86_64",
            [made for each in generations for made in each.packages(each.drivers[suite])],
            scratch / "cuda-key",
            "3bf863cc.pub",
        ),
        "nvidia-container": toolkits_repository(mirror, scratch, "deb", toolkits),
        "docker": suite_repository(
            mirror / "vendor/download.docker.com/linux" / dotted(system).partition(".")[0],
            suite,
            "stable",
            # Both generations have the same containerd.
            {made.filename: made for made in engines}.values(),
            scratch / "docker-key",
            "gpg",
        ),
    }


def amd_repositories(mirror: Path, scratch: Path, suite: str) -> dict[str, str]:
    """AMD's for the driver and for ROCm, each with a newer release that does not exist. What
    /srv/hip-fails on the node says fails when its GPUs compute."""
    hip = libhip(scratch, "/srv/hip-fails")
    above, release = mirror / "vendor/repo.radeon.com", SYSTEMS[suite].removeprefix("ubuntu")
    contents = {
        "amdgpu-30.30.4": (
            "amdgpu/30.30.4/ubuntu",
            amdgpu("6.16.13", "30.30.4", "30300400-2341068", release)
            + amdgpu("6.16.99", "30.30.9", "30300900-9999999", release),
        ),
        "rocm-7.2.4": (
            "rocm/apt/7.2.4",
            rocm("7.2.4", "70204-93", release, hip) + rocm("7.2.9", "70209-1", release, hip),
        ),
    }
    keys = {}
    for name, (folder, packages) in contents.items():
        where, ring = above / folder, scratch / "amd-key"
        keys[name] = suite_repository(where, suite, "main", packages, ring, "rocm.gpg.key")
        (above / "rocm").mkdir(parents=True, exist_ok=True)
        shutil.copy(where / "rocm.gpg.key", above / "rocm/rocm.gpg.key")
    return keys


def dotted(system: str) -> str:
    """ubuntu18.04 as Docker's versions have it: ubuntu.18.04."""
    return re.sub(r"(?<=[a-z])(?=\d)", ".", system)


def toolkits_repository(
    mirror: Path, scratch: Path, folder: str, packages: Iterable[Standin]
) -> str:
    """Those for one system or for all lie beside each other, under one key."""
    above = mirror / "vendor/nvidia.github.io/libnvidia-container"
    where = above / "stable" / folder / "amd64"
    fingerprint = flat_repository(where, packages, scratch / "container-key", "gpgkey")
    shutil.copy(where / "gpgkey", above / "gpgkey")
    return fingerprint


def nccl_archive(mirror: Path, scratch: Path, suite: str) -> tuple[Path, str]:
    """NVIDIA's local repository: a package that holds a repository."""
    system = SYSTEMS[suite].replace(".", "")
    local = scratch / f"nccl-repo-{system}"
    packages = [*nccl("2.7.3-1+cuda10.2"), *nccl("2.8.4-1+cuda10.2")]
    fingerprint = flat_repository(local, packages, scratch / "learning-key", "7fa2af80.pub")
    content = {
        f"/var/nccl-repo-2.7.3-ga-cuda10.2/{path.name}": path.read_bytes()
        for path in local.iterdir()
    }
    name = f"nccl-repo-{system}-2.7.3-ga-cuda10.2"
    folder = mirror / LEARNING / "nccl/secure/v2.7/prod"
    made = Standin(name, "1-1", files=content).build(folder)
    return made.rename(folder / f"{name}_1-1_amd64.deb"), fingerprint
