"""A decoder like Llama 3 for pytorch_llama.py: RMSNorm, rotary positions, grouped-query attention,
SwiGLU; and a linear layer that multiplies in float8. Runs with PyTorch 2.6 or newer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import (
    CheckpointPolicy,
    checkpoint,
    create_selective_checkpoint_contexts,
)

if TYPE_CHECKING:
    from llama_sizes import Size


def rotated(vectors: Any, cosines: Any, sines: Any) -> Any:
    """Rotate each pair (i, i + half) of (batch, position, head, head_dim) by an angle."""
    first, second = vectors.float().chunk(2, dim=-1)
    cosines, sines = cosines[:, None, :], sines[:, None, :]
    turned = (first * cosines - second * sines, first * sines + second * cosines)
    return torch.cat(turned, dim=-1).type_as(vectors)


class GroupedQueryAttention(nn.Module):
    def __init__(self, size: Size, linear: type[nn.Linear]) -> None:
        super().__init__()
        self.size = size
        self.query = linear(size.dim, size.heads * size.head_dim, bias=False)
        self.key = linear(size.dim, size.kv_heads * size.head_dim, bias=False)
        self.value = linear(size.dim, size.kv_heads * size.head_dim, bias=False)
        self.output = linear(size.heads * size.head_dim, size.dim, bias=False)

    def forward(self, hidden: Any, cosines: Any, sines: Any) -> Any:
        batch, length, _ = hidden.shape
        shape = (batch, length, -1, self.size.head_dim)
        query = rotated(self.query(hidden).view(shape), cosines, sines)
        key = rotated(self.key(hidden).view(shape), cosines, sines)
        repeats = self.size.heads // self.size.kv_heads
        key, value = (
            each.repeat_interleave(repeats, dim=2) for each in (key, self.value(hidden).view(shape))
        )
        attended = functional.scaled_dot_product_attention(
            *(each.transpose(1, 2) for each in (query, key, value)), is_causal=True
        )
        return self.output(attended.transpose(1, 2).reshape(batch, length, -1))


class FeedForward(nn.Module):
    def __init__(self, size: Size, linear: type[nn.Linear]) -> None:
        super().__init__()
        self.gate = linear(size.dim, size.hidden, bias=False)
        self.up = linear(size.dim, size.hidden, bias=False)
        self.down = linear(size.hidden, size.dim, bias=False)

    def forward(self, hidden: Any) -> Any:
        return self.down(functional.silu(self.gate(hidden)) * self.up(hidden))


class TransformerBlock(nn.Module):
    """`recompute`: what of its activations the backward pass computes again, `none`, `full` or
    `selective` (all but attention and every second matrix product)."""

    def __init__(self, size: Size, recompute: str, linear: type[nn.Linear]) -> None:
        super().__init__()
        self.recompute = recompute
        self.attention_norm = nn.RMSNorm(size.dim, eps=1e-5)
        self.attention = GroupedQueryAttention(size, linear)
        self.feed_forward_norm = nn.RMSNorm(size.dim, eps=1e-5)
        self.feed_forward = FeedForward(size, linear)

    def forward(self, hidden: Any, cosines: Any, sines: Any) -> Any:
        if self.recompute == "none":
            return self.compute(hidden, cosines, sines)
        options = {"context_fn": selective_contexts} if self.recompute == "selective" else {}
        return checkpoint(self.compute, hidden, cosines, sines, use_reentrant=False, **options)

    def compute(self, hidden: Any, cosines: Any, sines: Any) -> Any:
        hidden = hidden + self.attention(self.attention_norm(hidden), cosines, sines)
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


def selective_contexts() -> Any:
    aten = torch.ops.aten
    kept = {
        aten._scaled_dot_product_flash_attention.default,
        aten._scaled_dot_product_efficient_attention.default,
        aten._scaled_dot_product_flash_attention_for_cpu.default,
        aten._scaled_dot_product_cudnn_attention.default,
    }
    products = {True: 0, False: 0}  # in the recomputation, and before

    def policy(context: Any, operation: Any, *_: Any, **__: Any) -> Any:
        is_kept = operation in kept
        if operation in (aten.mm.default, aten._scaled_mm.default):
            products[context.is_recompute] += 1
            is_kept = products[context.is_recompute] % 2 == 1
        return CheckpointPolicy.MUST_SAVE if is_kept else CheckpointPolicy.PREFER_RECOMPUTE

    return create_selective_checkpoint_contexts(policy)


class Llama(nn.Module):
    """Tokens (batch, position) to logits (batch, position, vocabulary).

    It may be made on the device `meta`; `initialise` gives it its values. `linear`: the kind of
    linear layers in the blocks.
    """

    def __init__(
        self,
        size: Size,
        sequence_length: int,
        recompute: str,
        linear: type[nn.Linear] = nn.Linear,
    ) -> None:
        super().__init__()
        self.size, self.sequence_length = size, sequence_length
        self.embedding = nn.Embedding(size.vocabulary, size.dim)
        self.blocks = nn.ModuleList(
            TransformerBlock(size, recompute, linear) for _ in range(size.layers)
        )
        self.norm = nn.RMSNorm(size.dim, eps=1e-5)
        self.output = None if size.tied else nn.Linear(size.dim, size.vocabulary, bias=False)
        angles = torch.empty(sequence_length, size.head_dim // 2)
        self.register_buffer("cosines", angles, persistent=False)
        self.register_buffer("sines", torch.empty_like(angles), persistent=False)

    def initialise(self) -> None:
        """Normal with 0.02, and for what is added to the residual stream less with the depth."""
        for name, parameter in self.named_parameters():
            if "norm" in name:
                nn.init.ones_(parameter)
            else:
                added = name.endswith(("attention.output.weight", "down.weight"))
                deviation = 0.02 / (2 * self.size.layers) ** 0.5 if added else 0.02
                nn.init.normal_(parameter, std=deviation)
        half = self.size.head_dim // 2
        device = self.cosines.device
        exponents = torch.arange(half, device=device, dtype=torch.float32) / half
        positions = torch.arange(self.sequence_length, device=device, dtype=torch.float32)
        angles = torch.outer(positions, self.size.rope_theta**-exponents)
        self.cosines.copy_(angles.cos())
        self.sines.copy_(angles.sin())

    def forward(self, tokens: Any) -> Any:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden, self.cosines, self.sines)
        hidden = self.norm(hidden)
        if self.output is None:
            return functional.linear(hidden, self.embedding.weight)
        return self.output(hidden)


TINY = 1e-12


def to_float8(values: Any, dtype: torch.dtype) -> tuple[Any, Any]:
    """The values, scaled so that the largest one is the largest of the type; and the scale that
    gives them back."""
    largest = torch.finfo(dtype).max
    scale = largest / values.abs().amax().float().clamp(min=TINY)
    scaled = (values.float() * scale).clamp(-largest, largest).to(dtype)
    return scaled, scale.reciprocal()


def product(left: Any, right: Any, dtype: torch.dtype, is_forward: bool) -> Any:
    """left @ right of two pairs of to_float8. The first must be in rows, the second in columns, as
    the hardware takes them. The forward pass can do with sums that are less exact."""
    (a, scale_a), (b, scale_b) = left, right
    return torch._scaled_mm(
        a.contiguous(),
        b.t().contiguous().t(),
        scale_a=scale_a,
        scale_b=scale_b,
        out_dtype=dtype,
        use_fast_accum=is_forward,
    )


def turned(pair: Any) -> Any:
    return pair[0].t(), pair[1]


class Products(torch.autograd.Function):
    """input (rows, in) and weight (out, in) to input @ weight.T, and its gradients."""

    @staticmethod
    def forward(context: Any, inputs: Any, weight: Any) -> Any:
        context.save_for_backward(inputs, weight)
        e4m3 = torch.float8_e4m3fn
        pairs = to_float8(inputs, e4m3), turned(to_float8(weight, e4m3))
        return product(*pairs, inputs.dtype, True)

    @staticmethod
    def backward(context: Any, *gradients: Any) -> Any:
        inputs, weight = context.saved_tensors
        e4m3 = torch.float8_e4m3fn
        gradient = to_float8(gradients[0], torch.float8_e5m2)
        of_inputs = product(gradient, to_float8(weight, e4m3), inputs.dtype, False)
        of_weight = product(turned(gradient), to_float8(inputs, e4m3), weight.dtype, False)
        return of_inputs, of_weight


class Float8Linear(nn.Linear):
    """Multiplies in float8 with one scale per tensor, computed anew in each step. Without bias.

    Inputs and weights are e4m3; gradients of outputs, whose range is wider, are e5m2. What is kept
    from the forward pass to the backward pass, and the output, are bf16. Needs a GPU of compute
    capability 8.9 or newer.
    """

    def forward(self, hidden: Any) -> Any:
        rows = hidden.flatten(0, -2).to(torch.bfloat16)
        outputs = Products.apply(rows, self.weight.to(torch.bfloat16))
        return outputs.unflatten(0, hidden.shape[:-1])
