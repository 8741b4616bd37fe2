"""The steps of a program in a plain loop, and nothing else. programs.py runs it with an interpreter
that has the framework.

    PYTHONPATH=dlperf_runner/workloads python benchmarks/plain_loops.py jax_llama 5 40 --no-cuda

That are 5 steps, the line `plain`, 40 steps, and the line again. Options are the program's own.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

# What starts a step and returns its loss, and what waits for that.
Loop = tuple[Callable[[], Any], Callable[[Any], object]]


def jax(program: ModuleType, arguments: argparse.Namespace) -> Loop:
    import jax
    from jax_common import join, two_steps

    mesh = join(jax, arguments.devices, arguments.no_cuda)
    model = {"jax_llama": "jax_llama_model", "jax_resnet50": "jax_resnet50_step"}[program.__name__]
    step, _ = two_steps(mesh, importlib.import_module(model).training(arguments, mesh))
    return step, jax.block_until_ready


def tensorflow2(program: ModuleType, arguments: argparse.Namespace) -> Loop:
    import tensorflow as tf

    strategy, rank, _ = program.join(tf, arguments)
    return program.compiled_steps(tf, arguments, strategy, rank).step, float


def paddle3(program: ModuleType, arguments: argparse.Namespace) -> Loop:
    import paddle

    _, step = program.prepared(paddle, arguments, *program.join(paddle, arguments.no_cuda))
    return step, float


def pytorch(program: ModuleType, arguments: argparse.Namespace) -> Loop:
    import torch
    from pytorch_common import join, wait_for

    place, device = join(torch, not arguments.no_cuda)
    arguments.parallel = "none"  # of Llama
    _, step = program.prepared(torch, arguments, place, device)
    return step, wait_for(torch, device)


def main() -> None:
    name, warmup, steps, *options = sys.argv[1:]
    program = importlib.import_module(name)
    loops = {"jax": jax, "paddle3": paddle3, "pytorch": pytorch, "tensorflow2": tensorflow2}
    step, wait = loops[name.partition("_")[0]](program, program.parse_arguments(options))
    for number in (int(warmup), int(steps)):
        for _ in range(number):
            result = step()
        wait(result)
        print("plain", flush=True)


if __name__ == "__main__":
    main()
