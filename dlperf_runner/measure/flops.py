"""Model FLOPs of decoders, and MFU: the share of the hardware's peak that they use.

Two conventions count attention differently; a number means nothing without its convention:

- FULL: 6 N + 12 L d T per token (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B; torchtitan;
  MaxText before July 2025). Every token attends to all T.
- CAUSAL: 6 N + 6 L d T. Only half of the pairs are needed (MaxText since July 2025, docs/reference/
  performance_metrics.md at e591f30).

N: the parameters that multiply each token; torchtitan leaves out the input embedding, PaLM counts
all. L: layers. d: heads times the size of a head. T: tokens of a sample. Recomputed activations are
no model FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..core.errors import UserError


class Attention(Enum):
    """How the FLOPs of attention are counted; the value is the formula."""

    FULL = "6N + 12LdT (full attention)"
    CAUSAL = "6N + 6LdT (causal attention)"


@dataclass(frozen=True)
class Decoder:
    """What the FLOPs of a decoder depend on. `width`: heads times the size of a head."""

    parameters: int
    layers: int
    width: int

    def flops_per_token(self, sequence_length: int, attention: Attention) -> int:
        """The FLOPs of training on one token: forward, and twice as many backward."""
        per_pair = 12 if attention is Attention.FULL else 6
        return 6 * self.parameters + per_pair * self.layers * self.width * sequence_length


@dataclass(frozen=True)
class Utilization:
    """An MFU as a fraction, with the convention that it was computed by."""

    mfu: float
    attention: Attention

    def ratio_to(self, other: Utilization) -> float:
        """How many times the other one this is. Raises UserError if the conventions differ."""
        if self.attention is not other.attention:
            raise UserError(
                "MFU of different conventions cannot be compared",
                expected=other.attention.value,
                found=self.attention.value,
                hint="compare tokens/s",
            )
        return self.mfu / other.mfu


def utilization(
    tokens_per_second: float,
    decoder: Decoder,
    sequence_length: int,
    peak_flops: float,
    attention: Attention,
) -> Utilization:
    """The MFU of so many tokens/s on hardware with this peak, both of one device or of all."""
    flops = decoder.flops_per_token(sequence_length, attention)
    return Utilization(tokens_per_second * flops / peak_flops, attention)
