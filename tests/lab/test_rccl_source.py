"""The catalogue's command for rccl-tests, with Debian's hipcc, RCCL and OpenMPI, for one generation
of GPUs: on one node of the lab, installed from a mirror of Debian's archive.

No archive that tests reach has the source of rccl-tests. A stand-in takes its place, in CUDA's
words, with the targets and variables of its Makefiles. DLPERF_SOURCE_MIRROR adds rccl-tests itself.
"""

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ansible.module_utils import cuda_proof
from lab_under_test import END, Lab
from upstream_sources import source_mirror, upstream

from dlperf_runner.bundle import archives
from dlperf_runner.bundle.mirror import Settings, make
from dlperf_runner.bundle.needs import Needs
from dlperf_runner.bundle.wheels import Target
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.suites import SUITES
from dlperf_runner.plan.sources import PreparedSource, prepare_source

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.build]  # minutes

WORKLOAD = "rccl-allreduce"
BUILT = "/opt/dlperf/data/rccl-tests-ae3e6357"
GPU = "gfx942"  # of MI300
HIP_LIBRARY = cuda_proof.LIBRARIES[1]
PACKAGES = (
    "hipcc",
    "hipify-perl",
    "libopenmpi-dev",
    "librccl-dev",
    "make",
    "openmpi-bin",
    "python3",
)
OPERATIONS = {"all_reduce": "ncclAllReduce", "reduce_scatter": "ncclReduceScatter"}
TOP = """\
default : src.build
src.% :
	${MAKE} -C src $* BUILDDIR=$(abspath $(BUILDDIR))
"""
SOURCES = """\
HIPCC = $(ROCM_PATH)/bin/hipcc
HIPIFY_DIR = $(BUILDDIR)/hipify
HIPCUFLAGS := -std=c++14
HIPCUFLAGS += -I$(ROCM_PATH)/include -I$(MPI_HOME)/include -DMPI_SUPPORT=$(MPI)
HIPLDFLAGS = -L$(ROCM_PATH)/lib -lhsa-runtime64 -L$(MPI_HOME)/lib -lmpi -lrccl
include ../verifiable/verifiable.mk
build : $(patsubst %.cu,$(BUILDDIR)/%_perf,$(wildcard *.cu))
$(HIPIFY_DIR)/%.h : ../verifiable/%.h
	mkdir -p $(HIPIFY_DIR)
	hipify-perl $< > $@
$(HIPIFY_DIR)/%.cu.cpp : %.cu
	mkdir -p $(HIPIFY_DIR)
	hipify-perl $< > $@
$(BUILDDIR)/%_perf : $(HIPIFY_DIR)/%.cu.cpp $(TEST_VERIFIABLE_HDRS)
	$(HIPCC) -o $@ $(HIPCUFLAGS) $< $(HIPLDFLAGS)
"""
PROGRAM = """\
#include "cuda_runtime.h"
#include <rccl/rccl.h>
#include "verifiable.h"
#include "rccl_float8.h"
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

__global__ void fill(float *numbers) { numbers[threadIdx.x] = threadIdx.x; }

static void check(cudaError_t code) {
  if (code == cudaSuccess) return;
  printf("HIP failure: '%s'\\n", cudaGetErrorString(code));
  exit(1);
}

int main(int argc, char **argv) {
  int ranks, rank;
  ncclUniqueId id;
  ncclComm_t comm;
  cudaStream_t stream;
  float *numbers;
  MPI_Init(&argc, &argv);
  MPI_Comm_size(MPI_COMM_WORLD, &ranks);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  check(cudaSetDevice(rank));
  check(cudaStreamCreate(&stream));
  check(cudaMalloc((void **)&numbers, COUNT * ranks * sizeof(float)));
  fill<<<1, COUNT, 0, stream>>>(numbers);
  if (rank == 0) ncclGetUniqueId(&id);
  MPI_Bcast(&id, sizeof(id), MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclCommInitRank(&comm, ranks, id, rank);
  OPERATION(numbers, numbers, COUNT, ncclFloat, ncclSum, comm, stream);
  check(cudaStreamSynchronize(stream));
  return MPI_Finalize();
}
"""
STAND_IN = {
    "Makefile": TOP,
    "src/Makefile": SOURCES,
    "verifiable/verifiable.mk": "TEST_VERIFIABLE_HDRS =\n",
    "verifiable/verifiable.h": "enum { COUNT = 256 };\n",
    "verifiable/rccl_float8.h": "",
    **{f"src/{name}.cu": PROGRAM.replace("OPERATION", of) for name, of in OPERATIONS.items()},
}
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
# The folders that AMD's packages and the role openmpi make.
PREPARED = f"""
set -e
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt trixie main' > /etc/apt/sources.list
apt-get -qq update
export DEBIAN_FRONTEND=noninteractive
apt-get -qq install --no-install-recommends {" ".join(PACKAGES)} > /dev/null
mkdir -p /opt/rocm /opt/dlperf/data
ln -s /usr/bin /usr/include /opt/rocm/
ln -s {LIBRARIES} /opt/rocm/lib
ln -s $(dpkg -L rocm-device-libs-17 | grep 'amdgcn$') /opt/rocm/amdgcn
ln -s {LIBRARIES}/openmpi /usr/local/openmpi
"""
# Of the proof's kernel, by the compiler in ROCm's library (since ROCm 6, in one of its own).
COMPILED = f"""
import ctypes
rtc = ctypes.CDLL("{HIP_LIBRARY}")
program, size = ctypes.c_void_p(), ctypes.c_size_t()
assert not rtc.hiprtcCreateProgram(ctypes.byref(program), {cuda_proof.HIP!r}, b"", 0, None, None)
option = (ctypes.c_char_p * 1)(b"--offload-arch={GPU}")
assert not rtc.hiprtcCompileProgram(program, 1, option)
assert not rtc.hiprtcGetCodeSize(program, ctypes.byref(size))
assert size.value
"""


def debian_mirror(folder: Path) -> Path:
    """The packages with all that they depend on, beyond what the nodes have."""
    suite = SUITES["trixie"]
    needs = Needs("cpu", "trixie", Target(suite.python, suite.glibc, "amd64"), {"rocm": PACKAGES})
    settings = Settings(folder, folder.with_name("cache"), archives.host_sources("trixie")[:1])
    outcome = make(needs, settings)
    assert not outcome.missing
    return folder


def stand_in(folder: Path) -> str:
    """The folder of mirrors with the stand-in; its commit."""
    repository = folder / "ROCm/rccl-tests"
    for path, text in STAND_IN.items():
        place = repository / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    git = ["git", "-C", str(repository), "-c", "user.name=t", "-c", "user.email=t@t"]
    for argv in (["init", "-q"], ["add", "."], ["commit", "-qm", "stand-in"]):
        subprocess.run([*git, *argv], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True)
    return head.stdout.strip()


@pytest.fixture(params=["stand-in", "rccl-tests"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> PreparedSource:
    catalog = load_catalog()
    if request.param == "rccl-tests":
        return prepare_source(catalog, WORKLOAD, "upstream", source_mirror(), tmp_path)
    entry = catalog.workload(WORKLOAD)
    declared = upstream(catalog, WORKLOAD).model_copy(update={"commit": stand_in(tmp_path)})
    sources = entry.sources.model_copy(update={"upstream": declared})
    changed = entry.model_copy(update={"sources": sources})
    catalog = replace(catalog, workloads={WORKLOAD: changed})
    return prepare_source(catalog, WORKLOAD, "upstream", str(tmp_path), tmp_path)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    scratch = tmp_path_factory.mktemp("rccl")
    mirror = debian_mirror(scratch / "mirror")
    with Lab(scratch / "lab").running(1, "trixie", mirror) as lab:
        at_length(lab, PREPARED)
        yield lab


def at_length(lab: Lab, command: str, stdin: Path = Path("/dev/null")) -> None:
    with stdin.open() as stream:
        done = subprocess.run(
            lab.ssh_argv("node1", command), stdin=stream, capture_output=True, text=True,
            check=False, timeout=600,
        )  # fmt: skip
    assert done.returncode == 0, done.stdout[-END:] + done.stderr[-END:]


def test_its_programs_are_compiled_for_the_gpu_and_find_none(
    lab: Lab, source: PreparedSource
) -> None:
    lab.said("node1", f"rm -rf {BUILT} {source.directory}; mkdir -p {source.directory}")
    at_length(lab, f"tar -xC {source.directory}", source.path)
    for command in source.prepare:
        # hipcc finds no GPU on the node to compile for.
        at_length(lab, f"HCC_AMDGPU_TARGET={GPU} {shlex.join(command.argv)}")
        lab.said("node1", f"test -e {command.creates}")
    for operation in OPERATIONS:
        program = f"{BUILT}/{operation}_perf"
        libraries = lab.said("node1", f"ldd {program}")
        assert all(f"{name} => /" in libraries for name in ("librccl.so.1", "libmpi.so.40"))
        assert lab.said("node1", f"grep -ao 'amdhsa--gfx[0-9a-f]*' {program} | sort -u").endswith(
            GPU
        )
        done = lab.ssh("node1", f"mpirun --allow-run-as-root -np 1 {program} -b 8 -e 8")
        assert done.returncode != 0
        assert "no ROCm-capable device is detected" in done.stdout


def test_the_proof_of_role_rocm_compiles_its_kernel_and_finds_no_gpu(lab: Lab) -> None:
    lab.said("node1", f"python3 -c {shlex.quote(COMPILED)}")
    done = lab.command("ansible", "node1", "-m", "gpu_compute", "-a", f"library={HIP_LIBRARY}")
    assert done.returncode == 2, done.stdout
    assert "(module amdgpu not loaded)" in done.stdout, done.stdout
