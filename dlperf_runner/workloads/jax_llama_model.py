"""A decoder like Llama for jax_llama.py, as functions of its parameters: RMSNorm, rotary positions,
grouped-query attention, SwiGLU.

What is called sharded has on each device its part of one axis. The functions run per device, inside
`shard_map`: they gather a parameter where they use it, and the gradient of that is scattered again.
Parameters of all blocks are stacked, so that one compiled block serves all.
"""

from __future__ import annotations

import argparse
from typing import Any

import jax
import jax.numpy as jnp
from jax.ad_checkpoint import checkpoint_name
from jax_common import Collectives
from llama_sizes import Size

EPSILON = 1e-5
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
    found: dict[str, Any] = {
        "embedding": (size.vocabulary, size.dim),
        "blocks": {name: (size.layers, *shape) for name, shape in block.items()},
        "norm": (size.dim,),
    }
    if not size.tied:
        found["output"] = (size.dim, size.vocabulary)
    return found


def initial(size: Size, key: Any) -> dict[str, Any]:
    """Normal with 0.02, and for what is added to the residual stream less with the depth."""

    def values(path: Any, shape: tuple[int, ...]) -> Any:
        name = path[-1].key
        if name.endswith("norm"):
            return jnp.ones(shape)
        added = name in ("attention_output", "down")
        deviation = 0.02 / (2 * size.layers) ** 0.5 if added else 0.02
        own = jax.random.fold_in(key, sum(name.encode()))
        return deviation * jax.random.normal(own, shape)

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

    def block(hidden: Any, own: Any) -> tuple[Any, None]:
        weights = {
            name: value if name.endswith("norm") else whole(value, axes["blocks"][name])
            for name, value in own.items()
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
