"""What a new user downloads for the lab: nothing of CUDA, as far as today's frameworks go."""

import re

import pytest

from dlperf_runner.catalog.framework import Environment
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.paths import project

TODAY = ("pytorch", "jax", "tensorflow2", "paddle3", "nccl")
# Packages of CUDA's libraries, and those whose wheels on the index need or hold them.
CUDA = re.compile(r"nvidia-.*|.*cuda.*|.*-cu1\d|.*-gpu|cupy.*|torch|triton|tensorflow")


def of_cuda(requirements: str) -> list[str]:
    """The packages of a lock, without extras, that bring CUDA."""
    text = (project() / requirements).read_text(encoding="utf-8")
    pinned = re.findall(r"^([\w.-]+)(?:\[.*\])?==", text, re.MULTILINE)
    assert bool(pinned) == ("==" in text)  # PyTorch's has none: the distribution's package
    return [name for name in pinned if CUDA.fullmatch(name.lower())]


def locks(environment: Environment) -> list[str]:
    own = [environment.requirements] if environment.requirements else []
    return own + (locks(environment.alternative) if environment.alternative else [])


@pytest.mark.parametrize("framework", TODAY)
def test_the_lab_needs_nothing_of_cuda(framework: str) -> None:
    environments = load_catalog().frameworks[framework].environments_on("cpu")
    found = [lock for environment in environments.values() for lock in locks(environment)]
    assert found
    for lock in found:
        assert of_cuda(lock) == [], lock


def test_a_lock_with_cuda_is_noticed() -> None:
    """OneFlow's has it: its wheels on the index are for GPUs."""
    assert "nvidia-cublas-cu11" in of_cuda("requirements/oneflow-cpu.txt")
    assert "torch" in of_cuda("requirements/pytorch-cuda13.txt")
