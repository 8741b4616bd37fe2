"""NCCL 2.7.3 from source, where no archive of NVIDIA's is given: one node builds it, the other gets
what was built. The source and nvcc are stand-ins, whose Makefiles have the targets and variables of
NVIDIA's; compiler, build user, shipping, loader and removal are real.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from fabric_standins import tar_of
from lab_under_test import Lab, Shared, sharing

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.gpu_roles]  # minutes

NODES = ("node1", "node2")
# As in NVIDIA/nccl v2.7.3-1: no configure, `install: src.install`, PREFIX and CUDA_HOME.
TOP = """\
default : src.build
install : src.install
BUILDDIR ?= $(abspath ./build)
src.%:
	${MAKE} -C src $* BUILDDIR=$(abspath $(BUILDDIR))
"""
SOURCES = r"""
CUDA_HOME ?= /usr/local/cuda
PREFIX ?= /usr/local
SONAME := -Wl,-soname,libnccl.so.2
build : $(BUILDDIR)/lib/libnccl.so.2.7.3
$(BUILDDIR)/lib/libnccl.so.2.7.3 : nccl.c
	mkdir -p $(BUILDDIR)/lib/pkgconfig $(BUILDDIR)/include
	$(CUDA_HOME)/bin/nvcc -shared -fPIC -DGENCODE='"$(NVCC_GENCODE)"' $(SONAME) -o $@ nccl.c
	ln -sf libnccl.so.2.7.3 $(BUILDDIR)/lib/libnccl.so.2
	ln -sf libnccl.so.2 $(BUILDDIR)/lib/libnccl.so
	ar cr $(BUILDDIR)/lib/libnccl_static.a
	echo prefix=$(PREFIX) > $(BUILDDIR)/lib/pkgconfig/nccl.pc
	cp nccl.h nccl_net.h $(BUILDDIR)/include
install : build
	mkdir -p $(PREFIX)/lib/pkgconfig $(PREFIX)/include
	cp -P $(BUILDDIR)/lib/lib* $(PREFIX)/lib/
	cp -P $(BUILDDIR)/lib/pkgconfig/* $(PREFIX)/lib/pkgconfig/
	cp $(BUILDDIR)/include/* $(PREFIX)/include/
"""
CODE = """\
int ncclGetVersion(int *version) { *version = 2703; return 0; }
const char *ncclGencode(void) { return GENCODE; }
"""
FILES = {
    "Makefile": TOP,
    "src/Makefile": SOURCES,
    "src/nccl.c": CODE,
    "src/nccl.h": "int ncclGetVersion(int *version);\nconst char *ncclGencode(void);\n",
    "src/nccl_net.h": "",
}
PROGRAM = """\
#include <nccl.h>
#include <stdio.h>
int main(void) { int v; ncclGetVersion(&v); printf("%d %s\\n", v, ncclGencode()); return 0; }
"""
PREPARED = """
set -e
mkdir -p /usr/local/cuda/bin
printf '#!/bin/sh\\nexec cc "$@"\\n' > /usr/local/cuda/bin/nvcc
chmod 755 /usr/local/cuda/bin/nvcc
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main' > /etc/apt/sources.list
"""


@dataclass(frozen=True)
class Cluster:
    lab: Lab
    variables: dict[str, object]

    def role(self, **changed: object) -> tuple[int, str]:
        given = json.dumps(
            {"role": "nccl", "dlperf_stack": "v100-cuda10.2", **self.variables, **changed}
        )
        done = self.lab.command("ansible-playbook", "tests/lab/plays/role.yml", "-e", given)
        return done.returncode, re.sub(r"\s+", " ", done.stdout)


@dataclass(frozen=True)
class Built:
    """Two nodes with the NCCL that one of them built, and what was said on the way there."""

    cluster: Cluster
    refused: tuple[int, str]
    first: tuple[int, str]


@contextmanager
def provisioned(scratch: Path, mirror: Path) -> Iterator[Built]:
    archive = scratch / "v2.7.3-1.tar.gz"
    given = {
        "nccl_version": "2.7.3",
        "nccl_system": "ubuntu18.04",
        "nccl_source_archive": str(archive),
        "nccl_source_sha256": tar_of(archive, "nccl-2.7.3-1", FILES),
        "nccl_build_packages": ["gcc", "libc6-dev", "make"],
        "nccl_cache": str(scratch / "cache"),
        "nccl_mirror": "",
    }
    with Lab(scratch / "lab").running(nodes=len(NODES), mirror=mirror) as lab:
        for node in NODES:
            lab.said(node, PREPARED)
        cluster = Cluster(lab, given)
        refused = cluster.role(nccl_source_sha256="0" * 64)
        assert lab.ssh("node1", "test -e /usr/local/nccl").returncode == 1
        yield Built(cluster, refused, cluster.role())


shared = sharing(provisioned)


@pytest.fixture
def built(shared: Shared[Built]) -> Built:
    return shared.get()


def test_another_file_is_not_built(built: Built) -> None:
    status, output = built.refused
    assert status == 2, output
    assert "nccl_source_sha256" in output


def test_one_node_builds_it_and_both_load_it(built: Built) -> None:
    lab, (status, output) = built.cluster.lab, built.first
    assert status == 0, output
    made = output.partition("TASK [source_build : Build it (takes many minutes)]")[2]
    assert made.partition("TASK [")[0].count("changed: ") == 1
    lab.said("node1", f"cat > /srv/it.c <<'END'\n{PROGRAM}\nEND")
    shown = lab.said("node1", "cd /srv && cc it.c -lnccl -o it && ./it")
    assert shown == "2703 -gencode=arch=compute_70,code=sm_70"
    for node in NODES:
        listed = lab.said(node, "ldconfig -p | grep libnccl.so.2")
        assert listed.endswith("=> /usr/local/nccl/lib/libnccl.so.2")
        pc = lab.said(node, "cat /usr/local/nccl/lib/pkgconfig/nccl.pc")
        assert pc == "prefix=/usr/local/nccl"
        owners = lab.said(node, "stat -c %U /usr/local/nccl/lib/*")
        assert set(owners.split()) == {"root"}
    assert lab.ssh("node1", "getent passwd dlperf-build").returncode == 2


def test_the_second_run_changes_nothing(built: Built) -> None:
    status, output = built.cluster.role()
    assert status == 0, output
    recap = output.rpartition("PLAY RECAP")[2]
    assert re.findall(r"changed=(\d+)", recap) == ["0", "0"], output


def test_removal_leaves_nothing_that_leads_to_it(shared: Shared[Built]) -> None:
    cluster = shared.last().cluster
    status, output = cluster.role(part="absent")
    assert status == 0, output
    for node in NODES:
        assert cluster.lab.ssh(node, "ldconfig -p | grep nccl").stdout == ""
        left = cluster.lab.ssh(
            node, "ls -d /usr/local/nccl /usr/local/*/*nccl* /etc/ld.so.conf.d/dlperf*"
        )
        assert left.stdout == ""
