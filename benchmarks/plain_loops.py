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
    from jax_llama_model import training
    from llama_sizes import SIZES

    return _jax_loop(arguments, lambda mesh: training(arguments, SIZES[arguments.model], mesh))


def jax_resnet50(arguments: argparse.Namespace) -> Loop:
    from jax_resnet50_step import training

    return _jax_loop(arguments, lambda mesh: training(arguments, mesh))


def _jax_loop(arguments: argparse.Namespace, training: Callable[[Any], tuple[Any, ...]]) -> Loop:
    import jax
    from jax_common import join

    mesh = join(jax, arguments.devices, arguments.no_cuda)
    jax.config.update("jax_default_matmul_precision", "highest")
    state, *batch, compiled = training(mesh)
    train = compiled(False)

    def step() -> Any:
        nonlocal state
        state, loss = train(state, *batch)
        return loss

    return step, jax.block_until_ready


def tensorflow2_resnet50(arguments: argparse.Namespace) -> Loop:
    import tensorflow as tf
    from tensorflow2_resnet50 import compiled_steps, join

    strategy, rank, _ = join(tf, arguments)
    return compiled_steps(tf, arguments, strategy, rank).step, float


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


class OnDevice:
    """The device of a PyTorch program, and how it trains in the precision that was chosen."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        import torch
        from pytorch_common import autocast, use_precision

        use_precision(torch, arguments.precision)
        self.device = torch.device("cpu" if arguments.no_cuda else "cuda")
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=arguments.precision == "amp")
        self.autocast = lambda: autocast(torch, self.device, arguments.precision)


def pytorch_resnet50(arguments: argparse.Namespace) -> Loop:
    import torch
    from pytorch_resnet50 import resnet50

    on = OnDevice(arguments)
    layout = {"device": on.device, "memory_format": torch.channels_last}
    network = resnet50(torch, arguments.classes).to(**layout)
    images = torch.randn(arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    images = images.to(**layout)
    labels = torch.randint(arguments.classes, (arguments.batch_size,), device=on.device)
    optimizer = torch.optim.SGD(
        network.parameters(), arguments.lr, arguments.momentum, 0, arguments.wd, nesterov=True
    )
    network = torch.compile(network) if arguments.compile else network

    def step() -> Any:
        optimizer.zero_grad()
        with on.autocast():
            loss = torch.nn.functional.cross_entropy(network(images), labels)
        on.scaler.scale(loss).backward()
        on.scaler.step(optimizer)
        on.scaler.update()
        return loss

    return step, torch.Tensor.item


def pytorch_bert(arguments: argparse.Namespace) -> Loop:
    import torch
    from pytorch_bert import POSITIONS, SIZES, batch
    from pytorch_bert_model import Bert, Lamb, decayed

    on = OnDevice(arguments)
    network = Bert(SIZES[arguments.model], POSITIONS).to(on.device)
    tokens, halves, indices, answers, follows = batch(torch, arguments, on.device)
    optimizer = Lamb(decayed(network), lr=arguments.lr)
    cross_entropy = torch.nn.functional.cross_entropy
    network = torch.compile(network) if arguments.compile else network

    def step() -> Any:
        optimizer.zero_grad()
        with on.autocast():
            of_tokens, of_halves = network(tokens, halves, indices)
            loss = cross_entropy(of_tokens, answers) + cross_entropy(of_halves, follows)
        on.scaler.scale(loss).backward()
        on.scaler.step(optimizer)
        on.scaler.update()
        return loss

    return step, torch.Tensor.item


def pytorch_llama(arguments: argparse.Namespace) -> Loop:
    import torch
    from llama_sizes import SIZES
    from pytorch_llama import batch
    from pytorch_llama_model import Llama

    device = torch.device("cpu" if arguments.no_cuda else "cuda")
    has_bf16 = arguments.precision == "bf16"
    torch.set_float32_matmul_precision("high" if arguments.precision == "tf32" else "highest")
    with torch.device("meta"):
        model = Llama(
            SIZES[arguments.model], arguments.sequence_length, arguments.recompute, torch.nn.Linear
        )
    model.to_empty(device=device)
    model.initialise()
    if arguments.compile:
        model.blocks = torch.nn.ModuleList(torch.compile(block) for block in model.blocks)
    optimizer = torch.optim.AdamW(
        model.parameters(), arguments.lr, (0.9, 0.95), weight_decay=0.1, fused=device.type == "cuda"
    )

    def step() -> Any:
        tokens = batch(torch, arguments, device)
        optimizer.zero_grad()
        with torch.autocast(device.type, torch.bfloat16, enabled=has_bf16):
            logits = model(tokens[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1).float(), tokens[:, 1:].flatten()
        )
        del logits
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

    on = OnDevice(arguments)
    network = NETWORKS[arguments.network]
    backbone = Backbone(network, arguments.image_size).to(on.device)
    head = PartialFC(
        arguments.classes,
        network.embedding,
        arguments.sample_rate,
        PyTorchProcess(0, 1, 0),
        MARGIN,
        SCALE,
    ).to(on.device)
    shape = (arguments.batch_size, 3, arguments.image_size, arguments.image_size)
    images = torch.randn(shape, device=on.device)
    labels = torch.randint(arguments.classes, (arguments.batch_size,), device=on.device)
    optimizer = torch.optim.SGD(
        [*backbone.parameters(), *head.parameters()],
        arguments.lr,
        arguments.momentum,
        weight_decay=arguments.wd,
    )

    def step() -> Any:
        optimizer.zero_grad()
        with on.autocast():
            embeddings = backbone(images)
        loss = head(embeddings.float(), labels)
        on.scaler.scale(loss).backward()
        on.scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(backbone.parameters(), LONGEST_GRADIENT)
        on.scaler.step(optimizer)
        on.scaler.update()
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
