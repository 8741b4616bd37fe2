"""A decoder like Llama for jax_llama.py, as functions of its parameters: RMSNorm, rotary positions,
grouped-query attention, SwiGLU; and its training step, for one device and compiled for all.

What is called sharded has on each device its part of one axis. The functions run per device, inside
`shard_map`: they gather a parameter where they use it, and the gradient of that is scattered again.
Parameters of all blocks are stacked, so that one compiled block serves all.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax_common import DATA, Collectives
from llama_sizes import SIZES, Size

EPSILON = 1e-5
# Of the vocabulary, so many tokens occur.
ALPHABET = 64
BETAS, ADAM_EPSILON, WEIGHT_DECAY, LARGEST_NORM = (0.9, 0.95), 1e-8, 0.1, 1.0
GATHERED = "gathered"
# What of its activations the backward pass of a block computes again. A gathered parameter is
# gathered again in each case: kept, it would undo the sharding.
policies = jax.checkpoint_policies
POLICIES = {
    "none": policies.save_anything_except_these_names(GATHERED),
    "selective": policies.dots_with_no_batch_dims_saveable,
    "full": policies.nothing_saveable,
}


def shapes(size: Size) -> dict[str, Any]:
    """Shapes of the parameters; those of blocks begin with the number of layers."""
    queries, keys = size.heads * size.head_dim, size.kv_heads * size.head_dim
    block = {
        "attention_norm": (size.dim,),
        "query": (size.dim, queries),
        "key": (size.dim, keys),
        "value": (size.dim, keys),
        "attention_output": (queries, size.dim),
        "feed_forward_norm": (size.dim,),
        "gate": (size.dim, size.hidden),
        "up": (size.dim, size.hidden),
        "down": (size.hidden, size.dim),
    }
    parameters: dict[str, Any] = {
        "embedding": (size.vocabulary, size.dim),
        "blocks": {name: (size.layers, *shape) for name, shape in block.items()},
        "norm": (size.dim,),
    }
    if not size.tied:
        parameters["output"] = (size.dim, size.vocabulary)
    return parameters


def initial(size: Size, key: Any) -> dict[str, Any]:
    """Normal with 0.02, and for what is added to the residual stream less with the depth."""

    def values(path: Any, shape: tuple[int, ...]) -> Any:
        name = path[-1].key
        if name.endswith("norm"):
            return jnp.ones(shape)
        added = name in ("attention_output", "down")
        deviation = 0.02 / (2 * size.layers) ** 0.5 if added else 0.02
        subkey = jax.random.fold_in(key, sum(name.encode()))
        return deviation * jax.random.normal(subkey, shape)

    return jax.tree.map_with_path(values, shapes(size), is_leaf=lambda x: isinstance(x, tuple))


def normalised(hidden: Any, scale: Any) -> Any:
    exact = hidden.astype(jnp.float32)
    mean = jnp.mean(exact * exact, axis=-1, keepdims=True)
    return (exact * jax.lax.rsqrt(mean + EPSILON) * scale).astype(hidden.dtype)


def rotated(vectors: Any, theta: float) -> Any:
    """Rotate each pair (i, i + half) of (batch, position, head, head_dim) by an angle."""
    length, half = vectors.shape[1], vectors.shape[3] // 2
    frequencies = theta ** -(jnp.arange(half, dtype=jnp.float32) / half)
    angles = jnp.arange(length, dtype=jnp.float32)[:, None] * frequencies
    cosines, sines = jnp.cos(angles)[:, None, :], jnp.sin(angles)[:, None, :]
    first, second = jnp.split(vectors.astype(jnp.float32), 2, axis=-1)
    turned = (first * cosines - second * sines, first * sines + second * cosines)
    return jnp.concatenate(turned, axis=-1).astype(vectors.dtype)


def logits(
    size: Size,
    parameters: Any,
    axes: Any,
    tokens: Any,
    arguments: argparse.Namespace,
    together: Collectives,
) -> Any:
    """Tokens (batch, position) to logits (batch, position, vocabulary), in the chosen type.

    `axes`: over which axis each parameter is sharded, in a block without that of the layers;
    -1: over none.
    """

    def whole(parameter: Any, axis: int) -> Any:
        parameter = parameter.astype(arguments.dtype)
        if axis >= 0:
            parameter = together.gather(parameter, axis)
        return checkpoint_name(parameter, GATHERED)

    def block(hidden: Any, layer: Any) -> tuple[Any, None]:
        weights = {
            name: value if name.endswith("norm") else whole(value, axes["blocks"][name])
            for name, value in layer.items()
        }
        heads = (*hidden.shape[:2], -1, size.head_dim)
        entering = normalised(hidden, weights["attention_norm"])
        query, key, value = (
            (entering @ weights[name]).reshape(heads) for name in ("query", "key", "value")
        )
        attended = jax.nn.dot_product_attention(
            rotated(query, size.rope_theta),
            rotated(key, size.rope_theta),
            value,
            is_causal=True,
            implementation=arguments.attention,
        )
        hidden = hidden + attended.reshape(*hidden.shape[:2], -1) @ weights["attention_output"]
        entering = normalised(hidden, weights["feed_forward_norm"])
        gated = jax.nn.silu(entering @ weights["gate"]) * (entering @ weights["up"])
        return hidden + gated @ weights["down"], None

    embedding = whole(parameters["embedding"], axes["embedding"])
    taken = jax.checkpoint(block, policy=POLICIES[arguments.recompute])
    hidden, _ = jax.lax.scan(taken, embedding[tokens], parameters["blocks"])
    hidden = normalised(hidden, parameters["norm"])
    output = embedding.T if size.tied else whole(parameters["output"], axes["output"])
    return hidden @ output


def sharded_axes(size: Size, devices: int, parallel: str) -> Any:
    """For each parameter the longest axis of its matrix that the devices divide; -1 if none."""

    def axis(shape: tuple[int, ...]) -> int:
        fitting = [number for number, length in enumerate(shape) if length % devices == 0]
        if parallel == "dp" or len(shape) < 2 or not fitting:
            return -1
        return max(fitting, key=lambda number: shape[number])

    by_name = shapes(size)
    blocks = {name: axis(shape[1:]) for name, shape in by_name.pop("blocks").items()}
    return {"blocks": blocks, **{name: axis(shape) for name, shape in by_name.items()}}


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
    return jax.tree.map(lambda one, axis: one if axis >= 0 else together.sum(one), gradient, axes)


def clipped(gradient: Any, axes: Any, together: Collectives) -> Any:
    parts = {True: jnp.zeros(()), False: jnp.zeros(())}  # of what is sharded, and of what is not
    for value, axis in zip(jax.tree.leaves(gradient), jax.tree.leaves(axes), strict=True):
        parts[axis >= 0] += jnp.sum(value * value)
    norm = jnp.sqrt(together.sum(parts[True]) + parts[False])
    return jax.tree.map(lambda value: value * jnp.minimum(1.0, LARGEST_NORM / norm), gradient)


def adamw(parameters: Any, moments: Any, gradient: Any, number: Any, lr: float) -> Any:
    """The parameters and both moments after update `number`, which counts from 1."""
    fast, slow = BETAS
    mean, square = moments
    mean = jax.tree.map(lambda old, new: fast * old + (1 - fast) * new, mean, gradient)
    square = jax.tree.map(lambda old, new: slow * old + (1 - slow) * new * new, square, gradient)

    def updated(value: Any, mean: Any, square: Any) -> Any:
        deviation = jnp.sqrt(square / (1 - slow**number)) + ADAM_EPSILON
        return value - lr * (mean / (1 - fast**number) / deviation + WEIGHT_DECAY * value)

    return jax.tree.map(updated, parameters, mean, square), (mean, square)


def training(
    arguments: argparse.Namespace, mesh: Any
) -> tuple[Any, Callable[[bool], Callable[..., tuple[Any, Any]]]]:
    """The state before the first step, and what compiles the step, with or without communication:
    from a state to the next one and the loss."""
    if arguments.dtype == "float32":
        jax.config.update("jax_default_matmul_precision", "highest")  # a GPU would take TF32
    size = SIZES[arguments.model]
    axes = sharded_axes(size, mesh.size, arguments.parallel)
    specs = specs_of(axes)
    state_specs = (jax.P(), specs, (specs, specs))  # of number, parameters and moments

    def begin() -> Any:
        parameters = initial(size, jax.random.key(arguments.seed))
        zeros = jax.tree.map(jnp.zeros_like, parameters)
        return jnp.zeros((), jnp.int32), parameters, (zeros, zeros)

    def loss_of(parameters: Any, tokens: Any, together: Collectives) -> Any:
        """This device's part of the mean over all devices."""
        scores = logits(size, parameters, axes, tokens[:, :-1], arguments, together)
        odds = jax.nn.log_softmax(scores.astype(jnp.float32))
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
