"""Stand-ins of what the GPU roles install, by the repository that they come from.

Names, versions and dependencies are the vendors'; of each package there is a newer version too,
the trap that a pin must keep apt from. The content is a few bytes.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from standin_repository import Standin, flat_repository, suite_repository

LIBRARY = "/usr/lib/x86_64-linux-gnu"
CUDA = "vendor/developer.download.nvidia.com/compute/cuda/repos"
LEARNING = "vendor/developer.download.nvidia.com/compute/machine-learning"
# What it is told is kept, but of standard input only the sum.
DOCKER = """#!/bin/sh
log=/var/log/standin-docker.log
echo "argv: $*" >> $log
case "$1 $2" in
  "login "*) echo "stdin: $(sha256sum)" >> $log; echo Login Succeeded ;;
  "image inspect") grep -q "^argv: pull $5$" $log ;;
esac
"""
DRIVER = "#!/bin/sh\necho stand-in\n"


def one(name: str, version: str, depends: str = "", **more: Any) -> Standin:
    return Standin(name, version, depends, **more)


def driver_440(version: str) -> list[Standin]:
    """cuda-drivers asks for a driver that is new enough; the driver for its own parts exactly."""
    exact = f"{version}-0ubuntu1"
    parts = ("libnvidia-compute-440", "libnvidia-gl-440", "nvidia-dkms-440", "nvidia-utils-440")
    return [
        one("cuda-drivers", f"{version}-1", f"nvidia-driver-440 (>= {version}), nvidia-modprobe"),
        one("nvidia-driver-440", exact, ", ".join(f"{part} (= {exact})" for part in parts)),
        *(one(part, exact) for part in parts),
        one("nvidia-modprobe", exact),
    ]


def driver_580(version: str) -> list[Standin]:
    exact = f"{version}-0ubuntu1"
    parts = ("libnvidia-compute-580", "nvidia-dkms-580-open", "nvidia-utils-580")
    return [
        one(
            "nvidia-driver-580-open",
            exact,
            ", ".join(f"{part} (= {exact})" for part in parts) + ", nvidia-modprobe",
            conflicts="nvidia-driver-440",
        ),
        *(one(part, exact) for part in parts),
        one("nvidia-modprobe", exact),
    ]


def cuda(
    series: str, version: str, compiler: str, blas: Iterable[Standin], parts: str
) -> list[Standin]:
    """The toolkit is a name for its parts, which have versions of their own."""
    dashed = series.replace(".", "-")
    nvcc = f"/usr/local/cuda-{series}/bin/nvcc"
    wants = f"cuda-nvcc-{dashed} (>= {compiler.split('-')[0]}), {parts}"
    program = {"files": {nvcc: DRIVER}, "executables": frozenset({nvcc})}
    return [
        one(f"cuda-toolkit-{dashed}", version, wants),
        one(f"cuda-nvcc-{dashed}", compiler, **program),
        *blas,
    ]


def cublas(version: str) -> list[Standin]:
    return [one("libcublas10", version), one("libcublas-dev", version, "libcublas10")]


def cudnn_7(version: str) -> list[Standin]:
    library = {f"{LIBRARY}/libcudnn.so.7": version}
    return [
        one("libcudnn7", version, files=library),
        one("libcudnn7-dev", version, f"libcudnn7 (= {version})"),
    ]


def cudnn_9(version: str) -> list[Standin]:
    library = {f"{LIBRARY}/libcudnn.so.9": version}
    headers = "libcudnn9-headers-cuda-12"
    return [
        one("libcudnn9-cuda-12", version, files=library),
        one(headers, version),
        one("libcudnn9-dev-cuda-12", version, f"libcudnn9-cuda-12 (= {version}), {headers}"),
    ]


def nccl(version: str) -> list[Standin]:
    return [
        one("libnccl2", version, files={f"{LIBRARY}/libnccl.so.2": version}),
        one("libnccl-dev", version, f"libnccl2 (= {version})"),
    ]


def docker(version: str, containerd: str) -> list[Standin]:
    program = "/usr/bin/docker"
    executables = frozenset({program})
    return [
        one("docker-ce", version, "containerd.io, docker-ce-cli"),
        one("docker-ce-cli", version, files={program: DOCKER}, executables=executables),
        one("containerd.io", containerd),
    ]


def toolkit(version: str) -> list[Standin]:
    program = "/usr/bin/nvidia-ctk"
    base = f"nvidia-container-toolkit-base (= {version})"
    return [
        one(
            "nvidia-container-toolkit", version, f"{base}, libnvidia-container-tools (>= {version})"
        ),
        one(
            "nvidia-container-toolkit-base",
            version,
            files={program: DRIVER},
            executables=frozenset({program}),
        ),
        one("libnvidia-container-tools", version, f"libnvidia-container1 (>= {version})"),
        one("libnvidia-container1", version),
    ]


@dataclass(frozen=True)
class Vendors:
    """A mirror folder with the vendors' repositories, and what an inventory has to say of it."""

    mirror: Path
    variables: dict[str, Any]
    nccl_archive: Path


def make_vendors(mirror: Path, scratch: Path) -> Vendors:
    learning, containers = scratch / "learning-key", scratch / "container-key"
    new, docker_key = scratch / "cuda-key", scratch / "docker-key"
    keys = {}

    keys["nvidia-cuda"] = flat_repository(
        mirror / CUDA / "ubuntu1804/x86_64",
        [
            *driver_440("440.33.01"),
            *driver_440("440.118.02"),
            *cuda("10.2", "10.2.89-1", "10.2.89-1", cublas("10.2.2.89-1"), "libcublas-dev"),
            *cublas("10.2.3.254-1"),
        ],
        new,
        "3bf863cc.pub",
    )
    flat_repository(
        mirror / CUDA / "ubuntu2204/x86_64",
        [
            *driver_580("580.105.08"),
            *driver_580("580.178.04"),
            *cuda("12.9", "12.9.1-1", "12.9.86-1", (), "libcublas-12-9"),
            one("cuda-toolkit-12-9", "12.9.2-1"),
            one("libcublas-12-9", "12.9.1.4-1"),
            *cudnn_9("9.10.2.21-1"),
            *cudnn_9("9.15.0.57-1"),
            *nccl("2.29.7-1+cuda12.9"),
            *nccl("2.30.0-1+cuda13.0"),
        ],
        new,
        "3bf863cc.pub",
    )
    keys["nvidia-machine-learning"] = flat_repository(
        mirror / LEARNING / "repos/ubuntu1804/x86_64",
        [*cudnn_7("7.6.5.32-1+cuda10.2"), *cudnn_7("7.6.5.33-1+cuda10.2")],
        learning,
        "7fa2af80.pub",
    )
    for name, version in (
        ("stable/ubuntu18.04/amd64", "1.13.5-1"),
        ("stable/deb/amd64", "1.18.2-1"),
    ):
        folder = mirror / "vendor/nvidia.github.io/libnvidia-container"
        newer = version.replace(".", ".9", 1)
        fingerprint = flat_repository(
            folder / name, [*toolkit(version), *toolkit(newer)], containers, "gpgkey"
        )
        shutil.copy(folder / name / "gpgkey", folder / "gpgkey")
        keys["nvidia-container"] = keys["nvidia-container-legacy"] = fingerprint
    for suite, name, newer, containerd in (
        ("bionic", "5:20.10.7~3-0~ubuntu-bionic", "5:24.0.2-1~ubuntu.18.04~bionic", "1.4.6-1"),
        ("jammy", "5:28.2.2-1~ubuntu.22.04~jammy", "5:29.0.0-1~ubuntu.22.04~jammy", "1.7.27-1"),
    ):
        keys["docker"] = suite_repository(
            mirror / "vendor/download.docker.com/linux/ubuntu",
            suite,
            "stable",
            [*docker(name, containerd), *docker(newer, "9.9.9-1")],
            docker_key,
            "gpg",
        )
    archive, keys["nccl-2.7.3"] = nccl_archive(mirror, scratch, learning)
    variables = {
        "dlperf_mirror": "http://10.11.0.1:8010",
        "dlperf_vendor_keys": {name: [key] for name, key in keys.items()},
        "nccl_archive_sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        # Nothing asks for these but what is refused without them.
        "infiniband_archive_sha256": "0" * 64,
        "infiniband_peer_memory_archive": "/nowhere/nv_peer_mem.tar.gz",
        "infiniband_peer_memory_sha256": "0" * 64,
        "dlperf_frameworks": [],
        "dlperf_lock_timeout": 2,
    }
    return Vendors(mirror, variables, archive)


def nccl_archive(mirror: Path, scratch: Path, key: Path) -> tuple[Path, str]:
    """NVIDIA's local repository: a package that holds a repository."""
    local = scratch / "nccl-repo"
    packages = [*nccl("2.7.3-1+cuda10.2"), *nccl("2.8.4-1+cuda10.2")]
    fingerprint = flat_repository(local, packages, key, "7fa2af80.pub")
    content = {
        f"/var/nccl-repo-2.7.3-ga-cuda10.2/{path.name}": path.read_bytes()
        for path in local.iterdir()
    }
    name = "nccl-repo-ubuntu1804-2.7.3-ga-cuda10.2"
    folder = mirror / LEARNING / "nccl/secure/v2.7/prod"
    made = Standin(name, "1-1", files=content).build(folder)
    return made.rename(folder / f"{name}_1-1_amd64.deb"), fingerprint
