"""The plain training loop of each program: the same model, batch, options and compiled step, and
nothing else. programs.py runs it with an interpreter that has the framework.

    PYTHONPATH=dlperf_runner/workloads python benchmarks/plain_loops.py jax_llama 5 40 --no-cuda

That are 5 steps, the line `plain`, 40 steps, and the line again. Options are the program's own.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable
from typing import Any

# What starts a step and returns its loss, and what waits for that.
Loop = tuple[Callable[[], Any], Callable[[Any], object]]


def jax_llama(arguments: argparse.Namespace) -> Loop:
    import jax
    from jax_common import join
    from jax_llama_step import training
    from llama_sizes import SIZES

    mesh = join(jax, arguments.devices, arguments.no_cuda)
    jax.config.update("jax_default_matmul_precision", "highest")
    state, compiled = training(arguments, SIZES[arguments.model], mesh)
    train = compiled(False)

    def step() -> Any:
        nonlocal state
        state, loss = train(state)
        return loss

    return step, jax.block_until_ready


def jax_resnet50(arguments: argparse.Namespace) -> Loop:
    import jax
    from jax_common import join
    from jax_resnet50_step import training

    mesh = join(jax, arguments.devices, arguments.no_cuda)
    jax.config.update("jax_default_matmul_precision", "highest")
    state, batch, compiled = training(arguments, mesh)
    train = compiled(False)

    def step() -> Any:
        nonlocal state
        state, loss = train(state, batch)
        return loss

    return step, jax.block_until_ready


def tensorflow2_resnet50(arguments: argparse.Namespace) -> Loop:
    import tensorflow as tf
    from tensorflow2_resnet50 import join, training

    strategy, rank, _ = join(tf, arguments)
    return training(tf, arguments, strategy, rank).step, float


def paddle3_resnet50(arguments: argparse.Namespace) -> Loop:
    import paddle
    from paddle3_resnet50 import resnet50

    paddle.set_device("cpu")
    network = resnet50(paddle, arguments.classes, arguments.memory_format.upper())
    optimizer = paddle.optimizer.Momentum(
        arguments.lr, arguments.momentum, network.parameters(), True, arguments.wd
    )
    images = paddle.randn((arguments.batch_size, *[arguments.image_size] * 2, 3))
    labels = paddle.randint(0, arguments.classes, (arguments.batch_size,))

    def step() -> Any:
        loss = paddle.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.clear_grad()
        return loss

    return step, float


def pytorch_resnet50(arguments: argparse.Namespace) -> Loop:
    import torch
    from pytorch_resnet50 import resnet50

    network = resnet50(torch, arguments.classes).to(memory_format=torch.channels_last)
    images = torch.randn(arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(arguments.classes, (arguments.batch_size,))
    optimizer = torch.optim.SGD(
        network.parameters(), arguments.lr, arguments.momentum, 0, arguments.wd, nesterov=True
    )

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        loss.backward()
        optimizer.step()
        return loss

    return step, torch.Tensor.item


def pytorch_bert(arguments: argparse.Namespace) -> Loop:
    import torch
    from pytorch_bert import POSITIONS, SIZES, batch
    from pytorch_bert_model import Bert, Lamb, decayed

    network = Bert(SIZES[arguments.model], POSITIONS)
    tokens, halves, indices, answers, follows = batch(torch, arguments, torch.device("cpu"))
    optimizer = Lamb(decayed(network), lr=arguments.lr)
    cross_entropy = torch.nn.functional.cross_entropy

    def step() -> Any:
        optimizer.zero_grad()
        of_tokens, of_halves = network(tokens, halves, indices)
        loss = cross_entropy(of_tokens, answers) + cross_entropy(of_halves, follows)
        loss.backward()
        optimizer.step()
        return loss

    return step, torch.Tensor.item


def pytorch_llama(arguments: argparse.Namespace) -> Loop:
    import torch
    from llama_sizes import SIZES
    from pytorch_llama import batch
    from pytorch_llama_model import Llama

    model = Llama(
        SIZES[arguments.model], arguments.sequence_length, arguments.recompute, torch.nn.Linear
    )
    model.initialise()
    optimizer = torch.optim.AdamW(model.parameters(), arguments.lr, (0.9, 0.95), weight_decay=0.1)

    def step() -> Any:
        tokens = batch(torch, arguments, torch.device("cpu"))
        optimizer.zero_grad()
        logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        return loss

    return step, torch.Tensor.item


def pytorch_arcface(arguments: argparse.Namespace) -> Loop:
    import torch
    from pytorch_arcface import LONGEST_GRADIENT, MARGIN, NETWORKS, SCALE
    from pytorch_arcface_model import Backbone, PartialFC
    from pytorch_common import PyTorchProcess

    network = NETWORKS[arguments.network]
    backbone = Backbone(network, arguments.image_size)
    head = PartialFC(
        arguments.classes,
        network.embedding,
        arguments.sample_rate,
        PyTorchProcess(0, 1, 0),
        MARGIN,
        SCALE,
    )
    images = torch.randn(arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    labels = torch.randint(arguments.classes, (arguments.batch_size,))
    optimizer = torch.optim.SGD(
        [*backbone.parameters(), *head.parameters()],
        arguments.lr,
        arguments.momentum,
        weight_decay=arguments.wd,
    )

    def step() -> Any:
        optimizer.zero_grad()
        loss = head(backbone(images), labels)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), LONGEST_GRADIENT)
        optimizer.step()
        return loss

    return step, torch.Tensor.item


def main() -> None:
    program, warmup, steps, *options = sys.argv[1:]
    arguments = importlib.import_module(program).parse_arguments(options)
    step, wait = globals()[program](arguments)
    for number in (int(warmup), int(steps)):
        for _ in range(number):
            running = step()
        wait(running)
        print("plain", flush=True)


if __name__ == "__main__":
    main()
