"""The proofs of frameworks and of Horovod on GPU stacks, with stand-ins for the frameworks: what
computes on the CPU, or without NCCL, is no proof there."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import jinja2
import pytest
import yaml
from captured import captured
from framework_standins import KINDS, TENSORS
from gpu_packages import shared_library
from provisioning_choices import choice, node
from standins import PROJECT

from dlperf_runner.provision import arguments, environments

COMPUTE = PROJECT / "roles/framework/files/compute.py"
ALL_REDUCE = PROJECT / "roles/horovod/files/all_reduce.py"


def run(program: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    return captured(sys.executable, "-c", program.read_text(), *arguments, env=environment)


def standin(folder: Path, kind: str, gpu: str) -> None:
    (folder / "own.py").write_text(TENSORS + KINDS[kind][0].replace("{gpu}", gpu))


def expected(role: str, **item: Any) -> str:
    """The pattern of the proof in a role, as Ansible makes it."""
    tasks = yaml.safe_load((PROJECT / f"roles/{role}/tasks/verify.yml").read_text())
    commands = tasks[-1]["proof"]["commands"]
    command = commands[0] if role == "framework" else tasks[-1]["vars"]["__horovod_all_reduce"]
    text = command["expect"]
    return str(jinja2.Template(text).render(item=item, horovod_environment=item))


@pytest.mark.parametrize("kind", KINDS)
def test_frameworks_compute_on_the_gpu(tmp_path: Path, kind: str) -> None:
    standin(tmp_path, kind, KINDS[kind][1])
    done = run(COMPUTE, tmp_path, "own", "own.tensor", "", "gpu")
    assert done.returncode == 0, done.stderr
    assert re.search(expected("framework", device="gpu"), done.stdout.rstrip())
    assert not re.search(expected("framework", device=""), done.stdout.rstrip())
    plain = run(COMPUTE, tmp_path, "own", "own.tensor", "")
    assert re.search(expected("framework"), plain.stdout.rstrip()), plain.stderr
    assert not re.search(expected("framework", device="gpu"), plain.stdout.rstrip())


@pytest.mark.parametrize(
    ("kind", "where"),
    [
        ("tensorflow", "CPU:0"),
        ("paddle", "cpu"),
        ("jax", "cpu:0"),  # JAX 0.10
        ("jax", "TFRT_CPU_0"),  # earlier ones
        ("paddle2", "cpu"),
    ],
)
def test_a_framework_that_computes_on_the_cpu_without_a_word_is_no_proof(
    tmp_path: Path, kind: str, where: str
) -> None:
    standin(tmp_path, kind, where)
    done = run(COMPUTE, tmp_path, "own", "own.tensor", "", "gpu")
    assert done.returncode == 1
    assert "not on the GPU" in done.stderr
    assert "computed [" not in done.stdout


def test_an_error_of_the_driver_is_told(tmp_path: Path) -> None:
    """What cuda() raises where the fabric manager does not run."""
    standin(tmp_path, "torch", "cuda:0")
    with (tmp_path / "own.py").open("a") as file:
        file.write("def broken(self): raise RuntimeError('CUDA error 802')\nTorch.cuda = broken\n")
    done = run(COMPUTE, tmp_path, "own", "own.tensor", "", "gpu")
    assert (done.returncode, "CUDA error 802" in done.stderr) == (1, True)


HOROVOD = """
import {kind}
def init(): pass
def shutdown(): pass
def rank(): return 1
def size(): return 2
def local_rank(): return 0
def nccl_built(): return {nccl}
def allreduce(tensor, average, name):
    assert not average
    return {result}
"""
# The other rank gave [2, 101].
SUM = "tensor + type(tensor)([2, 101], tensor.where)"


@pytest.mark.parametrize("kind", ["mxnet", "tensorflow"])
@pytest.mark.parametrize(
    ("nccl", "result", "where", "problem"),
    [
        ("20703", SUM, None, None),
        ("0", SUM, None, "Horovod is built without NCCL"),
        ("20703", "type(tensor)((tensor.values + [2, 101]), 'CPU:0')", None, "not on the GPU"),
        ("20703", SUM, "CPU:0", "not on the GPU"),
    ],
)
def test_horovods_sum_is_nccls(
    tmp_path: Path, kind: str, nccl: str, result: str, where: str | None, problem: str | None
) -> None:
    text = TENSORS + KINDS[kind][0].replace("{gpu}", where or KINDS[kind][1])
    (tmp_path / f"{kind}.py").write_text(text)
    (tmp_path / "hvd.py").write_text(HOROVOD.format(kind=kind, nccl=nccl, result=result))
    done = run(ALL_REDUCE, tmp_path, "hvd", f"{kind}.tensor", "", "gpu")
    if problem:
        assert done.returncode == 1
        assert problem in done.stderr
        assert "sum [" not in done.stdout
        return
    assert done.returncode == 0, done.stderr
    assert re.search(expected("horovod", device="gpu"), done.stdout.rstrip())
    assert done.stdout.rstrip().endswith("sum [7.0, 502.0] by NCCL")


@pytest.mark.parametrize(
    ("stack", "devices"),
    [
        ("cpu", {"mxnet": "", "nccl": ""}),
        ("v100-cuda10.2", {"mxnet": "gpu", "tensorflow": "gpu", "paddle": "gpu"}),
        # nccl has no tensors; nccl-tests is what proves it.
        ("h100-cuda12.9", {"pytorch": "gpu", "nccl": ""}),
    ],
)
def test_only_gpu_stacks_ask_for_the_gpu_and_prove_again(
    stack: str, devices: dict[str, str]
) -> None:
    told = arguments.for_node(choice(stack=stack, frameworks=list(devices)), node(), {})
    made = told["framework_environments"]
    assert {entry["name"]: entry["device"] for entry in made} == devices
    chosen = ("/usr/bin/mpirun", "ib0", ())
    for key, inputs in (
        ("framework_environments", environments.inputs),
        ("horovod_environments", lambda entry: environments.horovod_inputs(entry, *chosen)),
    ):
        for entry in told[key]:
            before = {name: value for name, value in entry.items() if name != "device"}
            assert (inputs(entry) != inputs(before)) == bool(entry["device"])


# ---- libraries that a framework opens by name, which a compiler makes

PROOF = (PROJECT / "roles/framework/files/libraries.py").read_text()
NAMES = ("libcudart.so.10.0", "libcudnn.so.7")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As the module unpacked_packages leaves it: links to the libraries."""
    if not shutil.which("gcc"):
        pytest.skip("needs a compiler")
    for name in NAMES:
        (tmp_path / f"{name}.130").write_bytes(shared_library())
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / name).symlink_to(f"../{name}.130")
    return tmp_path / "lib"


def prove(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    environment = {"LD_LIBRARY_PATH": str(folder)}
    return captured(sys.executable, "-c", PROOF, "json", *names, env=environment)


def test_libraries_that_are_missing_or_of_another_folder_are_no_proof(folder: Path) -> None:
    """A cuDNN 7 of the system would be for another CUDA."""
    done = prove(folder, *NAMES)
    assert (done.returncode, done.stdout) == (0, "found 2 libraries\n"), done.stderr
    done = prove(folder, *NAMES, "libm.so.6", "libcupti.so.10.0", "libcufft.so.10.0")
    assert done.returncode == 1
    assert f"libm.so.6 was not taken from {folder}\n" in done.stderr
    for name in ("libcupti.so.10.0", "libcufft.so.10.0"):
        assert f"{name}: cannot open shared object file" in done.stderr
