"""The training step of jax_llama.py: what one device does, and its compilation for all."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax_common import DATA, Collectives
from jax_llama_model import initial, logits, shapes
from llama_sizes import Size

# Of the vocabulary, so many tokens occur.
ALPHABET = 64
BETAS, EPSILON, WEIGHT_DECAY, LARGEST_NORM = (0.9, 0.95), 1e-8, 0.1, 1.0


def sharded_axes(size: Size, devices: int, parallel: str) -> Any:
    """For each parameter the longest axis of its matrix that the devices divide; -1 if none."""

    def axis(shape: tuple[int, ...]) -> int:
        fitting = [number for number, length in enumerate(shape) if length % devices == 0]
        if parallel == "dp" or len(shape) < 2 or not fitting:
            return -1
        return max(fitting, key=lambda number: shape[number])

    known = shapes(size)
    blocks = {name: axis(shape[1:]) for name, shape in known.pop("blocks").items()}
    return {"blocks": blocks, **{name: axis(shape) for name, shape in known.items()}}


def specs_of(axes: Any) -> Any:
    """The axes as JAX takes them; those of blocks come after that of the layers."""

    def spec(path: Any, axis: int) -> Any:
        before = axis + (path[0].key == "blocks")
        return jax.P(*(None,) * before, DATA) if axis >= 0 else jax.P()

    return jax.tree.map_with_path(spec, axes)


def batch(key: Any, batch_size: int, length: int) -> Any:
    """Sequences of one token more than the length: arithmetic progressions modulo ALPHABET."""
    first_key, difference_key = jax.random.split(key)
    first = jax.random.randint(first_key, (batch_size, 1), 0, ALPHABET)
    difference = jax.random.randint(difference_key, (batch_size, 1), 1, 4)
    return (first + difference * jnp.arange(length + 1)) % ALPHABET


def summed(gradient: Any, axes: Any, together: Collectives) -> Any:
    """The gradient over all devices. Gathering a sharded parameter has summed its own already."""
    return jax.tree.map(lambda own, axis: own if axis >= 0 else together.sum(own), gradient, axes)


def clipped(gradient: Any, axes: Any, together: Collectives) -> Any:
    parts = {True: jnp.zeros(()), False: jnp.zeros(())}  # of what is sharded, and of what is not
    for own, axis in zip(jax.tree.leaves(gradient), jax.tree.leaves(axes), strict=True):
        parts[axis >= 0] += jnp.sum(own * own)
    norm = jnp.sqrt(together.sum(parts[True]) + parts[False])
    return jax.tree.map(lambda own: own * jnp.minimum(1.0, LARGEST_NORM / norm), gradient)


def adamw(parameters: Any, moments: Any, gradient: Any, number: Any, lr: float) -> Any:
    """The parameters and both moments after update `number`, which counts from 1."""
    fast, slow = BETAS
    mean, square = moments
    mean = jax.tree.map(lambda old, new: fast * old + (1 - fast) * new, mean, gradient)
    square = jax.tree.map(lambda old, new: slow * old + (1 - slow) * new * new, square, gradient)

    def updated(value: Any, mean: Any, square: Any) -> Any:
        deviation = jnp.sqrt(square / (1 - slow**number)) + EPSILON
        return value - lr * (mean / (1 - fast**number) / deviation + WEIGHT_DECAY * value)

    return jax.tree.map(updated, parameters, mean, square), (mean, square)


def training(
    arguments: argparse.Namespace, size: Size, mesh: Any
) -> tuple[Any, Callable[[bool], Callable[..., tuple[Any, Any]]]]:
    """The state before the first step, and what compiles the step, with or without communication:
    from a state to the next one and the loss."""
    axes = sharded_axes(size, mesh.size, arguments.parallel)
    specs = specs_of(axes)
    state_specs = (jax.P(), specs, (specs, specs))  # of number, parameters and moments

    def begin() -> Any:
        parameters = initial(size, jax.random.key(arguments.seed))
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        return jnp.zeros((), jnp.int32), parameters, (zeros, zeros)

    def loss_of(parameters: Any, tokens: Any, together: Collectives) -> Any:
        """This device's part of the mean over all devices."""
        found = logits(size, parameters, axes, tokens[:, :-1], arguments, together)
        odds = jax.nn.log_softmax(found.astype(jnp.float32))
        picked = jnp.take_along_axis(odds, tokens[:, 1:, None], axis=-1)
        return -picked.mean() / mesh.size

    def step(state: Any, together: Collectives) -> Any:
        number, parameters, moments = state
        key = jax.random.fold_in(jax.random.key(arguments.seed + 1), number)
        key = jax.random.fold_in(key, jax.lax.axis_index(DATA))
        tokens = batch(key, arguments.batch_size, arguments.sequence_length)
        loss, gradient = jax.value_and_grad(loss_of)(parameters, tokens, together)
        gradient = clipped(summed(gradient, axes, together), axes, together)
        parameters, moments = adamw(parameters, moments, gradient, number + 1, arguments.lr)
        return (number + 1, parameters, moments), together.sum(loss)

    shardings = jax.tree.map(lambda spec: jax.NamedSharding(mesh, spec), state_specs)

    def compiled(alone: bool) -> Callable[..., tuple[Any, Any]]:
        per_device = jax.shard_map(
            partial(step, together=Collectives(jax, mesh.size, alone)),
            mesh=mesh,
            in_specs=(state_specs,),
            out_specs=(state_specs, jax.P()),
            check_vma=False,
        )
        return jax.jit(per_device, donate_argnums=0)

    return jax.jit(begin, out_shardings=shardings)(), compiled
