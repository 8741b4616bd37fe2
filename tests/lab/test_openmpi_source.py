"""OpenMPI itself, of the source that Debian keeps: one node of the lab builds it with CUDA's
header, the other gets what was built, and both run it. Nothing here is a stand-in; there are no
GPUs.

The tests build on each other, in the order in which they stand.
"""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from lab_under_test import Lab

from dlperf_runner.bundle import apt
from dlperf_runner.bundle.archives import host_sources
from dlperf_runner.bundle.manifest import digest

pytestmark = [pytest.mark.lab, pytest.mark.heavy]  # ten minutes of compiling

VERSION = "4.1.4"  # of the suite that the lab's nodes have
PREFIX = "/usr/local/openmpi"
CUDA = "/usr/local/cuda"
CUDA_HEADERS = (
    "nvidia-cuda-runtime-cu12==12.9.79"
    " --hash=sha256:25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3"
)
# What this proof has no use for would take most of the time.
LESS = ("--enable-mpi-fortran=no", "--disable-oshmem", "--disable-io-romio", "--disable-man-pages")
LESS += tuple(f"--without-{name}" for name in ("ucx", "verbs", "ofi", "psm2"))
LESS += ("--enable-mca-no-build=coll-ml,coll-hcoll,vprotocol,sharedfp,fcoll,fs,fbtl,crs",)


@dataclass(frozen=True)
class Cluster:
    lab: Lab
    variables: str
    cache: Path

    def provision(self) -> str:
        options = ("--tags", "node_base,ssh_mesh,openmpi", "-e", self.variables)
        return self.lab.play("provision.yml", *options)


def source_of_openmpi(folder: Path) -> Path:
    """As apt has verified it, packed again: the lab's mirror has no xz-utils."""
    root = apt.Root(folder / "apt", "amd64")
    apt.prepare(root, host_sources("bookworm"))
    sources = root.directory / "etc/sources.sources"
    sources.write_text(sources.read_text().replace("Types: deb\n", "Types: deb-src\n"))
    apt.update(root)
    subprocess.run(
        ["apt-get", "source", "-qq", "--download-only", "openmpi"],
        cwd=folder,
        env={**os.environ, "APT_CONFIG": str(root.directory.resolve() / "apt.conf")},
        check=True,
    )
    packed = folder / f"openmpi-{VERSION}.tar.gz"
    with lzma.open(folder / f"openmpi_{VERSION}.orig.tar.xz") as source:
        packed.write_bytes(gzip.compress(source.read(), 1, mtime=0))
    return packed


def cuda_header(folder: Path) -> bytes:
    (folder / "cuda.txt").write_text(CUDA_HEADERS)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--dest", folder, "-r", folder / "cuda.txt"], check=True)
    (wheel,) = folder.glob("nvidia_cuda_runtime*.whl")
    return zipfile.ZipFile(wheel).read("nvidia/cuda_runtime/include/cuda.h")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Cluster]:
    scratch = tmp_path_factory.mktemp("openmpi")
    source, header = source_of_openmpi(scratch), cuda_header(scratch)
    given = {
        "provision_packages": [
            *("python3-apt", "sudo", "rsync", "ca-certificates"),
            *("openssh-client", "openssh-server", "libnuma1"),
        ],
        "openmpi_packages": ["libnuma1"],
        "openmpi_method": "source",
        "openmpi_version": VERSION,
        "openmpi_archive": str(source),
        "openmpi_sha256": digest(source),
        "openmpi_mpirun": f"{PREFIX}/bin/mpirun",
        "openmpi_cache": str(scratch / "cache"),
        "openmpi_build_packages": ["gcc", "g++", "libc6-dev", "make"],
        "openmpi_configure_options": [
            "--enable-orterun-prefix-by-default",
            f"--with-cuda={CUDA}",
            *LESS,
        ],
    }
    lab = Lab(scratch / "lab")
    lab.up(lab_nodes=2, lab_mirror_dir=mirror)
    try:
        placed = f"mkdir -p {CUDA}/include && cat > {CUDA}/include/cuda.h"
        subprocess.run(lab.ssh_argv("node1", placed), input=header, check=True)
        yield Cluster(lab, json.dumps(given), scratch / "cache")
    finally:
        lab.down()


def test_one_node_builds_it_and_both_have_it(cluster: Cluster) -> None:
    cluster.provision()
    (record,) = cluster.cache.glob("*/build.json")
    assert json.loads(record.read_text())["built_on"] == "node1"
    for node in ("node1", "node2"):
        said = cluster.lab.said(node, f"{PREFIX}/bin/ompi_info --parsable --all")
        assert f"ompi:version:full:{VERSION}" in said
        assert "opal_built_with_cuda_support:value:true" in said
        assert "--enable-orterun-prefix-by-default" in said
        assert f"path:prefix:{PREFIX}" in said
    assert cluster.lab.ssh("node2", "command -v gcc /usr/bin/mpirun").stdout == ""


def test_it_starts_processes_on_both_nodes_without_a_word_of_where_it_is(cluster: Cluster) -> None:
    """--enable-orterun-prefix-by-default: no PATH, no LD_LIBRARY_PATH, no --prefix."""
    options = "--host node1:1,node2:1 -np 2 --bind-to none --mca oob_tcp_if_include eth0"
    command = "sh -c 'hostname; ompi_info --version'"
    argv = f"{PREFIX}/bin/mpirun {options} {command}"
    said = cluster.lab.said("node1", f"cd / && runuser -u dlperf -- {argv}")
    assert {"node1", "node2"} <= set(said.split())
    assert said.count(f"Open MPI v{VERSION}") == 2


def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    output = cluster.provision()
    assert re.findall(r"node\d +: ok=\d+ +changed=(\d+)", output) == ["0", "0"]
