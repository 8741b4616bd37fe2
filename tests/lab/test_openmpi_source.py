"""OpenMPI itself, 4 and 5, of the sources that Debian keeps: one node of the lab builds it with
CUDA's header, the other gets what was built, and both run it. There are no GPUs, and of the driver
there is a stand-in of libcuda, which 5 links to.
"""

import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from debian_source import upstream_source
from lab_under_test import Lab

from dlperf_runner.bundle.manifest import digest

# Ten minutes of compiling for each.
pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.build]

PREFIX = "/usr/local/openmpi"
CUDA = "/usr/local/cuda"
LIBRARY = "/usr/lib/x86_64-linux-gnu"
OPTIONS = ("--enable-orterun-prefix-by-default", f"--with-cuda={CUDA}")  # as of themselves
CUDA_HEADERS = (
    "nvidia-cuda-runtime-cu12==12.9.79"
    " --hash=sha256:25bba2dfb01d48a9b59ca474a1ac43c6ebf7011f1b0b8cc44f54eb6ac48a96c3"
)
# By version, the suite that has its source.
SUITES = {"4.1.4": "bookworm", "5.0.7": "trixie"}
# What this proof has no use for would take most of the time: parts of it, and speed.
LESS = ("--enable-mpi-fortran=no", "--disable-oshmem", "--disable-io-romio", "--disable-man-pages")
LESS += tuple(f"--without-{name}" for name in ("ucx", "verbs", "ofi", "psm2"))
LESS += ("CFLAGS=-O0", "CXXFLAGS=-O0")
LESS += ("--enable-mca-no-build=coll-ml,coll-hcoll,vprotocol,sharedfp,fcoll,fs,fbtl,crs",)


@dataclass(frozen=True)
class Cluster:
    version: str
    lab: Lab
    variables: str
    cache: Path

    def provision(self) -> str:
        options = ("--tags", "node_base,ssh_mesh,openmpi", "-e", self.variables)
        return self.lab.play("provision.yml", *options)


def cuda_header(folder: Path) -> bytes:
    (folder / "cuda.txt").write_text(CUDA_HEADERS)
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--require-hashes"]
    subprocess.run([*pip, "--dest", folder, "-r", folder / "cuda.txt"], check=True)
    (wheel,) = folder.glob("nvidia_cuda_runtime*.whl")
    return zipfile.ZipFile(wheel).read("nvidia/cuda_runtime/include/cuda.h")


def libcuda(folder: Path, header: bytes) -> bytes:
    """A stand-in of the driver's library: every function says that there is no GPU (100)."""
    names = sorted(set(re.findall(r"\bcu[A-Z]\w*", header.decode())) - {"cuDeviceGetCount"})
    source = "int cuDeviceGetCount(int *count) { *count = 0; return 0; }\n"
    source += "".join(f"int {name}(void) {{ return 100; }}\n" for name in names)
    library = folder / "libcuda.so.1"
    name = f"-Wl,-soname,{library.name}"
    argv = ["gcc", "-shared", "-fPIC", name, "-x", "c", "-", "-o", str(library)]
    subprocess.run(argv, input=source.encode(), check=True)
    return library.read_bytes()


@pytest.fixture(scope="module", params=SUITES)
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, mirror: Path
) -> Iterator[Cluster]:
    version, scratch = request.param, tmp_path_factory.mktemp("openmpi")
    if shutil.which("gcc") is None:
        pytest.skip("a stand-in of libcuda is compiled on this machine, by gcc")
    source = upstream_source("openmpi", scratch, SUITES[version])
    header = cuda_header(scratch)
    placed = {f"{CUDA}/include/cuda.h": header}
    if version.startswith("5"):
        # As the toolkit has it for linking, and the driver for running.
        stub = f"{CUDA}/targets/x86_64-linux/lib/stubs/libcuda.so"
        placed[stub] = placed[f"{LIBRARY}/libcuda.so.1"] = libcuda(scratch, header)
    given = {
        "node_base_packages": [
            *("sudo", "ca-certificates"),
            *("openssh-client", "openssh-server", "libnuma1"),
        ],
        "openmpi_packages": ["libnuma1"],
        "openmpi_method": "source",
        "openmpi_version": version,
        "openmpi_archive": str(source),
        "openmpi_sha256": digest(source),
        "openmpi_mpirun": f"{PREFIX}/bin/mpirun",
        "openmpi_cache": str(scratch / "cache"),
        "openmpi_build_packages": ["gcc", "g++", "libc6-dev", "make", "zlib1g-dev"],
        "openmpi_cuda": CUDA,
        "openmpi_configure_options": [*OPTIONS, *LESS],
    }
    if version.startswith("5"):
        # With a driver but no GPU, its module for CUDA fails in each all-reduce.
        given["openmpi_mpirun_args"] = ["--mca", "accelerator", "null"]
    lab = Lab(scratch / "lab")
    with lab.running(2, mirror=mirror):
        for path, content in placed.items():
            for node in ("node1", "node2"):
                place = f"mkdir -p {Path(path).parent} && cat > {path} && ldconfig"
                subprocess.run(lab.ssh_argv(node, place), input=content, check=True)
        built = Cluster(version, lab, json.dumps(given), scratch / "cache")
        built.provision()
        yield built


def test_one_node_builds_it_and_both_have_it(cluster: Cluster) -> None:
    (record,) = cluster.cache.glob("*/build.json")
    assert json.loads(record.read_text())["built_on"] == "node1"
    for node in ("node1", "node2"):
        said = cluster.lab.said(node, f"{PREFIX}/bin/ompi_info --parsable --all")
        assert f"ompi:version:full:{cluster.version}" in said
        assert "opal_built_with_cuda_support:value:true" in said
        assert "--enable-orterun-prefix-by-default" in said
        assert f"path:prefix:{PREFIX}" in said
    assert cluster.lab.ssh("node2", "command -v gcc /usr/bin/mpirun").stdout == ""


def test_it_starts_processes_on_both_nodes_without_a_word_of_where_it_is(cluster: Cluster) -> None:
    """--enable-orterun-prefix-by-default: no PATH, no LD_LIBRARY_PATH, no --prefix."""
    options = "--host node1:1,node2:1 -np 2 --bind-to none --mca oob_tcp_if_include eth0"
    command = f"sh -c 'hostname; {PREFIX}/bin/ompi_info --version'"
    argv = f"{PREFIX}/bin/mpirun {options} {command}"
    said = cluster.lab.said("node1", f"cd / && runuser -u dlperf -- {argv}")
    assert {"node1", "node2"} <= set(said.split())
    assert said.count(f"Open MPI v{cluster.version}") == 2


def test_the_second_run_changes_nothing(cluster: Cluster) -> None:
    output = cluster.provision()
    assert re.findall(r"node\d +: ok=\d+ +changed=(\d+)", output) == ["0", "0"]
