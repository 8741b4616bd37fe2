"""A linear layer that multiplies in float8 with one scale per tensor, computed anew in each step.

Inputs and weights are e4m3; gradients of outputs, whose range is wider, are e5m2. What is kept from
the forward pass to the backward pass stays in bf16. Needs a GPU of compute capability 8.9 or newer.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

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
    """Without bias; its output is bf16."""

    def forward(self, hidden: Any) -> Any:
        rows = hidden.flatten(0, -2).to(torch.bfloat16)
        outputs = Products.apply(rows, self.weight.to(torch.bfloat16))
        return outputs.unflatten(0, hidden.shape[:-1])
