"""The schema of a workload's variants: the networks that it trains."""

from __future__ import annotations

from enum import Enum

from .types import Count, Entry, Name, Parameters


class Attention(Enum):
    """How the FLOPs of attention are counted (see measure/flops.py)."""

    FULL = "full"
    CAUSAL = "causal"


class Transformer(Entry):
    """What the FLOPs of a transformer depend on. `parameters`: those that multiply each token, so
    not the input embedding; those that multiply a part of the tokens count as that part. `width`:
    heads times the size of a head."""

    parameters: Count
    layers: Count
    width: Count
    attention: Attention = Attention.FULL


class Variant(Entry):
    """One of several networks that a workload trains. Its model is `<model>-<variant>`. Without a
    `transformer`, its FLOPs are unknown."""

    short_name: Name
    parameters: Parameters = {}
    transformer: Transformer | None = None
