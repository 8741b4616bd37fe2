"""Model FLOPs of transformers, and MFU: the share of the hardware's peak that they use.

Two conventions count attention differently; a number means nothing without its convention:

- full: 6 N + 12 L d T per token (Chowdhery et al., PaLM, arXiv 2204.02311, appendix B; torchtitan;
  MaxText before July 2025). Every token attends to all T.
- causal: 6 N + 6 L d T. Only half of the pairs are needed (MaxText since July 2025, docs/reference/
  performance_metrics.md at e591f30).

N: the parameters that multiply each token; torchtitan leaves out the input embedding, PaLM counts
all. Of BERT's parameters, those that predict a token multiply only the tokens to predict and count
as that part. L: layers. d: heads times the size of a head. T: tokens of a sample. Recomputed
activations are no model FLOPs.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..catalog.accelerators import Peak
from ..catalog.workload import Attention, Transformer
from ..core.frame import LOG_TFLOPS_RATIO, MFU, MODEL_TFLOPS, PEAK_TFLOPS
from .estimators import Measurement

FORMULAS = {
    Attention.FULL: "6N+12LdT (full attention)",
    Attention.CAUSAL: "6N+6LdT (causal attention)",
}


def flops_per_token(transformer: Transformer, sequence_length: int) -> int:
    """The FLOPs of training on one token: forward, and twice as many backward."""
    per_pair = 12 if transformer.attention is Attention.FULL else 6
    return _per_token(transformer, sequence_length, per_pair)


def _per_token(transformer: Transformer, sequence_length: int, per_pair: int) -> int:
    attention = per_pair * transformer.layers * transformer.width * sequence_length
    return 6 * transformer.parameters + attention


def model_flops(
    tokens_per_second: float,
    transformer: Transformer,
    sequence_length: int,
    peak: Peak | None,
    printed: float | None = None,
) -> Iterator[Measurement]:
    """The model FLOPs of one device that trains on so many tokens/s, and the share of its peak. The
    estimator is the formula. `printed`: the TFLOP/s that the program computed, by a convention of
    its own; if they are between those of the two conventions, their ratio to the model's is 1."""
    formula = FORMULAS[transformer.attention]
    tflops = tokens_per_second * flops_per_token(transformer, sequence_length) / 1e12
    yield Measurement(MODEL_TFLOPS, tflops, "TFLOP/s", formula)
    if peak is not None:
        yield Measurement(MFU, tflops / peak.tflops, "1", formula)
        yield Measurement(PEAK_TFLOPS, peak.tflops, "TFLOP/s", peak.source)
    if printed is not None:
        low, high = (
            tokens_per_second * _per_token(transformer, sequence_length, per_pair) / 1e12
            for per_pair in (6, 12)
        )
        yield Measurement(LOG_TFLOPS_RATIO, printed / min(max(printed, low), high), "1", "both")
