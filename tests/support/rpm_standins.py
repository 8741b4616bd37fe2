"""Stand-ins of the vendors' rpm packages: names, versions, streams and dependencies are theirs, the
content is not."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml
from gpu_packages import DOCKER, DRIVER

Package = dict[str, Any]
MIRROR = "/srv/vendors"
CUDA = "developer.download.nvidia.com/compute/cuda/repos"
# What the roles ask the distribution for, and dkms of EPEL.
DISTRIBUTION = (
    "ca-certificates dkms infiniband-diags kernel-devel libgomp libibverbs-utils libquadmath"
    " numactl-libs openssh-clients openssh-server python3 rdma-core rsync sudo"
)


def one(name: str, version: str, requires: str = "", **more: Any) -> Package:
    return {"name": name, "version": version, "requires": requires, **more}


def fabric(names: Iterable[str], version: str, obsoletes: str = "") -> list[Package]:
    manager, library = names
    says = f"#!/bin/sh\necho 'Fabric Manager version is : {version}'\n"
    program = {"/usr/bin/nv-fabricmanager": says}
    return [
        one(manager, f"{version}-1", files=program, obsoletes=obsoletes),
        one(library, f"{version}-1"),
    ]


def driver(version: str, kmod: str, dist: str) -> list[Package]:
    exact = f"3:{version}-1.{dist}"
    parts = ("nvidia-driver-cuda-libs", "libnvidia-ml", "nvidia-persistenced", "nvidia-modprobe")
    requires = ", ".join(
        [*(f"{name} >= 3:{version}" for name in parts), f"nvidia-kmod = 3:{version}"]
    )
    return [
        one("nvidia-driver-cuda", exact, requires),
        one(
            kmod,
            exact,
            "dkms, nvidia-kmod-common = 3:" + version,
            provides=f"nvidia-kmod = 3:{version}",
            noarch=True,
        ),
        one("nvidia-kmod-common", exact, noarch=True),
        *(one(name, exact) for name in parts),
    ]


def driver_535(version: str, dist: str) -> list[Package]:
    names = ("nvidia-fabric-manager", "libnvidia-nscq-535")
    return [*driver(version, "kmod-nvidia-latest-dkms", dist), *fabric(names, version)]


def driver_580(version: str, dist: str) -> list[Package]:
    """Its fabric manager has another name than before, and takes the place of the former one."""
    names = ("nvidia-fabricmanager", "libnvidia-nscq")
    return [
        *driver(version, "kmod-nvidia-open-dkms", dist),
        *fabric(names, version, "nvidia-fabric-manager"),
    ]


def cuda(series: str, version: str, compiler: str, blas: str) -> list[Package]:
    dashed = series.replace(".", "-")
    nvcc = {f"/usr/local/cuda-{series}/bin/nvcc": DRIVER}
    requires = f"cuda-nvcc-{dashed} >= {compiler}, libcublas-devel-{dashed} >= {blas}"
    return [
        one(f"cuda-toolkit-{dashed}", f"{version}-1", requires),
        one(f"cuda-nvcc-{dashed}", f"{compiler}-1", files=nvcc),
        one(f"libcublas-{dashed}", f"{blas}-1"),
        one(f"libcublas-devel-{dashed}", f"{blas}-1", f"libcublas-{dashed} >= {blas}"),
    ]


def nccl(version: str) -> list[Package]:
    return [
        one("libnccl", version, files={"/usr/lib64/libnccl.so.2": version}),
        one("libnccl-devel", version, f"libnccl = {version}"),
    ]


def cudnn_8(version: str) -> list[Package]:
    return [
        one("libcudnn8", version, files={"/usr/lib64/libcudnn.so.8": version}),
        one("libcudnn8-devel", version, f"libcudnn8 = {version}"),
    ]


def cudnn_9(version: str) -> list[Package]:
    return [
        one("libcudnn9-cuda-12", version, files={"/usr/lib64/libcudnn.so.9": version}),
        one("libcudnn9-headers-cuda-12", version),
        one(
            "libcudnn9-devel-cuda-12",
            version,
            f"libcudnn9-cuda-12 = {version}, libcudnn9-headers-cuda-12",
        ),
    ]


def docker(version: str, containerd: str, dist: str) -> list[Package]:
    return [
        one("docker-ce", f"3:{version}-1.{dist}", "containerd.io, docker-ce-cli"),
        one("docker-ce-cli", f"1:{version}-1.{dist}", files={"/usr/bin/docker": DOCKER}),
        one("containerd.io", f"{containerd}.{dist}"),
    ]


def toolkit(version: str) -> list[Package]:
    base = f"nvidia-container-toolkit-base = {version}"
    return [
        one("nvidia-container-toolkit", version, f"{base}, libnvidia-container-tools >= {version}"),
        one("nvidia-container-toolkit-base", version, files={"/usr/bin/nvidia-ctk": DRIVER}),
        one("libnvidia-container-tools", version, f"libnvidia-container1 >= {version}"),
        one("libnvidia-container1", version),
    ]


def stream(name: str, packages: list[Package]) -> str:
    """A stream of NVIDIA's module. dnf hides its packages unless this stream is enabled."""
    artifacts = []
    for each in packages:
        version = each["version"] if ":" in each["version"] else f"0:{each['version']}"
        artifacts.append(f"{each['name']}-{version}.{'noarch' if each.get('noarch') else 'x86_64'}")
    data = {
        "name": "nvidia-driver", "stream": name, "version": 20251107000000, "context": "00000000",
        "arch": "x86_64", "summary": "stand-in", "description": "stand-in",
        "license": {"module": ["MIT"]}, "artifacts": {"rpms": artifacts},
    }  # fmt: skip
    document = {"document": "modulemd", "version": 2, "data": data}
    return yaml.safe_dump(document, explicit_start=True, explicit_end=True)


def repositories(release: str) -> dict[str, dict[str, Any]]:
    """The vendors' repositories of RHEL 8 or 9, for rpm_repository.py: all generations, and newer
    versions of each."""
    dist = f"el{release}"
    branches = {
        "535-dkms": [*driver_535("535.183.01", dist), *driver_535("535.309.01", dist)],
        "580-open": [*driver_580("580.105.08", dist), *driver_580("580.178.04", dist)],
        "latest-dkms": driver("590.48.01", "kmod-nvidia-latest-dkms", dist),
    }
    libraries = [
        *cuda("11.8", "11.8.0", "11.8.89", "11.11.3.6"),
        *cuda("11.8", "11.8.1", "11.8.99", "11.11.4.1"),
        *cuda("12.9", "12.9.1", "12.9.86", "12.9.1.4"),
        *cuda("12.9", "12.9.2", "12.9.92", "12.9.2.10"),
        *cuda("13.0", "13.0.2", "13.0.88", "13.1.0.3"),
        *cuda("13.0", "13.0.3", "13.0.98", "13.1.1.3"),
        *cudnn_8("8.9.6.50-1.cuda11.8"),
        *cudnn_8("8.9.7.29-1.cuda12.2"),
        *cudnn_9("9.10.2.21-1"),
        *cudnn_9("9.15.0.57-1"),
        *nccl("2.15.5-1+cuda11.8"),
        *nccl("2.28.9-1+cuda13.0"),
        *nccl("2.29.7-1+cuda12.9"),
        *nccl("2.30.0-1+cuda13.0"),
    ]
    engines = [
        *docker("28.1.1", "1.7.27-3.1", dist),
        *docker("28.2.2", "1.7.28-1", dist)[:2],
        *docker("29.0.0", "9.9.9-1", dist),
    ]
    cuda_folder = f"{MIRROR}/{CUDA}/rhel{release}/x86_64"
    docker_folder = f"{MIRROR}/download.docker.com/linux/rhel"
    container = f"{MIRROR}/nvidia.github.io/libnvidia-container"
    return {
        cuda_folder: {
            "packages": [package for each in branches.values() for package in each] + libraries,
            "modules": "".join(stream(name, each) for name, each in branches.items()),
            "key": "nvidia-cuda", "key_path": f"{cuda_folder}/D42D0685.pub", "signed": "packages",
        },
        f"{docker_folder}/{release}/x86_64/stable": {
            "packages": engines,
            "key": "docker", "key_path": f"{docker_folder}/gpg", "signed": "packages",
        },
        f"{container}/stable/rpm/x86_64": {
            "packages": [*toolkit("1.18.2-1"), *toolkit("1.98.2-1")],
            "key": "nvidia-container", "key_path": f"{container}/gpgkey", "signed": "index",
        },
        "/srv/foreign": {
            "packages": [one("foreign", f"1-1.{dist}")],
            "key": "foreign", "key_path": "/srv/foreign.asc", "signed": "packages",
        },
        "/srv/distribution": {
            "packages": [one(name, f"1-1.{dist}") for name in DISTRIBUTION.split()],
            "key": "distribution", "key_path": "/srv/distribution.asc", "signed": "packages",
        },
    }  # fmt: skip
