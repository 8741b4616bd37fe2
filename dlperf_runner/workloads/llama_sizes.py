"""The sizes of Llama that the programs of this project train, how their parameters and FLOPs are
counted, and the options that the programs share.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

from builtin_common import at_least, bare_options, positive


class Size(NamedTuple):
    """`tied`: the output layer is the transposed embedding."""

    dim: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    vocabulary: int
    tied: bool = False
    rope_theta: float = 500_000.0

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads

    @property
    def embedding_parameters(self) -> int:
        return self.vocabulary * self.dim

    @property
    def parameters(self) -> int:
        attention = self.dim * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        block = attention + 3 * self.dim * self.hidden + 2 * self.dim
        embeddings = (1 if self.tied else 2) * self.embedding_parameters
        return embeddings + self.layers * block + self.dim

    def flops_per_token(self, sequence_length: int, causal: bool = False) -> int:
        """Model FLOPs of a training step per token: 6 per parameter that multiplies, and attention
        in full, as torchtitan counts it, or half of it where the mask is causal, as MaxText does.
        Recomputation does not count.
        """
        multiplying = self.parameters - (0 if self.tied else self.embedding_parameters)
        attention = 12 * self.layers * self.heads * self.head_dim * sequence_length
        return 6 * multiplying + (attention // 2 if causal else attention)


_1B = Size(2048, 16, 32, 8, 8192, 128_256, tied=True)
_8B = Size(4096, 32, 32, 8, 14_336, 128_256)
_70B = Size(8192, 80, 64, 8, 28_672, 128_256)
SIZES = {
    "llama-lab": Size(256, 4, 8, 4, 704, 2048),
    "llama-1b": _1B,
    "llama-8b": _8B,
    "llama-70b": _70B,
    # The names of MaxText.
    "llama-2-7b": Size(4096, 32, 32, 32, 11_008, 32_000, rope_theta=10_000.0),
    "llama-3.2-1b": _1B,
    "llama-3.1-8b": _8B,
    "llama-3.1-70b": _70B,
    "llama-3.1-405b": Size(16_384, 126, 128, 8, 53_248, 128_256),
}


def llama_options(document: str | None, model: str, steps: int) -> argparse.ArgumentParser:
    parser = bare_options(document, lr=3e-4)
    parser.add_argument("--model", choices=SIZES, default=model)
    parser.add_argument("--batch-size", type=positive, default=1, help="sequences per device")
    parser.add_argument("--sequence-length", type=at_least(3), default=8192, help="in tokens")
    parser.add_argument("--recompute", choices=("none", "selective", "full"), default="selective")
    parser.add_argument("--steps", type=positive, default=steps)
    return parser
