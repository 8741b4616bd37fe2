"""ResNet-50 v1.5 for jax_resnet50.py: the network, the step of one device, and its compilation."""

from __future__ import annotations

import argparse
import itertools
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax_common import DATA, Collectives
from resnet50 import EXPANSION, FEATURES, bottlenecks

KEPT, EPSILON = 0.9, 1e-5  # of the running statistics of batch normalisation
NHWC = ("NHWC", "HWIO", "NHWC")


def convolutions() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Names and shapes of all convolutions: height, width, inputs, outputs."""
    yield "stem", (7, 7, 3, 64)
    for number, (inputs, channels, _) in enumerate(bottlenecks()):
        outputs = channels * EXPANSION
        yield f"{number}.1", (1, 1, inputs, channels)
        yield f"{number}.2", (3, 3, channels, channels)
        yield f"{number}.3", (1, 1, channels, outputs)
        if inputs != outputs:
            yield f"{number}.shortcut", (1, 1, inputs, outputs)


def initial(key: Any, classes: int) -> tuple[Any, Any]:
    """The parameters, and the running statistics. 25,557,032 parameters for 1000 classes.

    The last normalisation of a block begins at zero, so that the block begins as its shortcut.
    """
    shapes = dict(convolutions())
    # All noise at once: the code of a generator for each of 53 kernels takes long to compile.
    ends = list(itertools.accumulate(math.prod(shape) for shape in shapes.values()))
    parts = jnp.split(jax.random.normal(key, ends[-1:]), ends[:-1])
    limit = FEATURES**-0.5
    weight = jax.random.uniform(key, (FEATURES, classes), minval=-limit, maxval=limit)
    parameters: dict[str, Any] = {"dense": {"kernel": weight, "bias": jnp.zeros(classes)}}
    statistics: dict[str, Any] = {}
    for noise, (name, shape) in zip(parts, shapes.items(), strict=True):
        *_, outputs = shape
        deviation = (2 / (shape[0] * shape[1] * outputs)) ** 0.5  # He et al. 2015, by outputs
        parameters[name] = {
            "kernel": deviation * noise.reshape(shape),
            "scale": jnp.full(outputs, 0.0 if name.endswith(".3") else 1.0),
            "bias": jnp.zeros(outputs),
        }
        statistics[name] = {"mean": jnp.zeros(outputs), "variance": jnp.ones(outputs)}
    return parameters, statistics


def forward(parameters: Any, statistics: Any, images: Any) -> tuple[Any, Any]:
    """Images (batch, height, width, 3) to logits (batch, classes), and the next statistics."""
    following: dict[str, Any] = {}

    def convolved(name: str, entering: Any, stride: int = 1) -> Any:
        """Convolution and batch normalisation. v1.5: the stride is in the 3x3 convolution."""
        weights = parameters[name]
        pad = weights["kernel"].shape[0] // 2
        output = jax.lax.conv_general_dilated(
            entering,
            weights["kernel"].astype(entering.dtype),
            (stride, stride),
            [(pad, pad)] * 2,
            dimension_numbers=NHWC,
        )
        exact = output.astype(jnp.float32)
        mean, square = exact.mean((0, 1, 2)), (exact * exact).mean((0, 1, 2))  # in one pass
        variance = jnp.maximum(square - mean * mean, 0)
        following[name] = {
            key: KEPT * statistics[name][key] + (1 - KEPT) * jax.lax.stop_gradient(new)
            for key, new in (("mean", mean), ("variance", variance))
        }
        scale = weights["scale"] * jax.lax.rsqrt(variance + EPSILON)
        return ((exact - mean) * scale + weights["bias"]).astype(entering.dtype)

    hidden = jax.nn.relu(convolved("stem", images, 2))
    padding = ((0, 0), (1, 1), (1, 1), (0, 0))
    window = ((1, 3, 3, 1), (1, 2, 2, 1))
    hidden = jax.lax.reduce_window(hidden, -jnp.inf, jax.lax.max, *window, padding)
    for number, (_, _, stride) in enumerate(bottlenecks()):
        body = jax.nn.relu(convolved(f"{number}.1", hidden))
        body = jax.nn.relu(convolved(f"{number}.2", body, stride))
        body = convolved(f"{number}.3", body)
        if f"{number}.shortcut" in parameters:
            hidden = convolved(f"{number}.shortcut", hidden, stride)
        hidden = jax.nn.relu(body + hidden)
    features = hidden.astype(jnp.float32).mean((1, 2)).astype(hidden.dtype)
    dense = parameters["dense"]
    return features @ dense["kernel"].astype(features.dtype) + dense["bias"], following


def training(
    arguments: argparse.Namespace, mesh: Any
) -> tuple[Any, Any, Callable[[bool], Callable[..., tuple[Any, Any]]]]:
    """The state before the first step, the batch, and what compiles the step, with or without
    communication: from a state and the batch to the next state and the loss. Each device has
    running statistics of its own."""
    exactness = {"fp32": "highest", "tf32": "tensorfloat32"}.get(arguments.precision)
    jax.config.update("jax_default_matmul_precision", exactness)
    dtype = jnp.bfloat16 if arguments.precision == "bf16" else jnp.float32

    def begin() -> tuple[Any, Any]:
        """One device's state and batch."""
        parameters, statistics = initial(jax.random.key(arguments.seed), arguments.classes)
        velocity = jax.tree.map(jnp.zeros_like, parameters)
        key = jax.random.fold_in(jax.random.key(arguments.seed + 1), jax.lax.axis_index(DATA))
        shape = (arguments.batch_size, arguments.image_size, arguments.image_size, 3)
        labels = jax.random.randint(key, shape[:1], 0, arguments.classes)
        images = jax.random.normal(key, shape).astype(dtype)
        return (parameters, velocity, jax.tree.map(lambda each: each[None], statistics)), (
            images,
            labels,
        )

    def step(state: Any, batch: Any, together: Collectives) -> Any:
        parameters, velocity, statistics = state
        images, labels = batch

        def loss_of(parameters: Any) -> Any:
            local = jax.tree.map(lambda each: each[0], statistics)
            logits, following = forward(parameters, local, images)
            odds = jax.nn.log_softmax(logits.astype(jnp.float32))
            loss = -jnp.take_along_axis(odds, labels[:, None], axis=-1).mean()
            return loss, jax.tree.map(lambda each: each[None], following)

        (loss, statistics), gradient = jax.value_and_grad(loss_of, has_aux=True)(parameters)
        gradient = jax.tree.map(
            lambda slope, value: together.mean(slope) + arguments.wd * value, gradient, parameters
        )
        velocity = jax.tree.map(lambda old, new: arguments.momentum * old + new, velocity, gradient)
        # Nesterov's momentum
        parameters = jax.tree.map(
            lambda value, new, fast: value - arguments.lr * (new + arguments.momentum * fast),
            *(parameters, gradient, velocity),
        )
        return (parameters, velocity, statistics), together.mean(loss)

    everywhere, divided = jax.P(), jax.P(DATA)
    state, batch = (everywhere, everywhere, divided), (divided, divided)

    def per_device(function: Any, takes: Any, gives: Any) -> Any:
        return jax.shard_map(function, mesh=mesh, in_specs=takes, out_specs=gives, check_vma=False)

    def compiled(alone: bool) -> Callable[..., tuple[Any, Any]]:
        bound = partial(step, together=Collectives(jax, mesh.size, alone))
        whole = jax.jit(per_device(bound, (state, batch), (state, everywhere)), donate_argnums=0)
        return whole.lower(first, data).compile()

    first, data = jax.jit(per_device(begin, (), (state, batch)))()
    return first, data, compiled
