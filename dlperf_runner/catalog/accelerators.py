"""The peak speed of products, as catalog/accelerators.yml lists it."""

from __future__ import annotations

import functools
import re
from typing import Annotated, NamedTuple

from pydantic import Field

from .entry import CATALOG, load_entry
from .types import Entry, Name, Regex

Tflops = Annotated[float, Field(gt=0)]


class MemoryBandwidth(Entry):
    """The bandwidth of a device's memory in GB/s, and who states it."""

    gbps: Annotated[float, Field(gt=0)]
    source: str


class Product(Entry):
    """A product by the names that drivers report. `tflops`: of one device, for dense matrices, by
    precision. `memory`: if all of these names have the same."""

    names: Regex
    source: str
    tflops: dict[Name, Tflops]
    memory: MemoryBandwidth | None = None


class Accelerators(Entry):
    """`without_tf32`: the names of accelerators that cannot multiply in TF32."""

    name: Name
    without_tf32: Regex
    products: tuple[Product, ...]


class Peak(NamedTuple):
    """The peak speed of a device for dense matrices, and who states it."""

    tflops: float
    source: str


@functools.cache
def peak_of(accelerator: str | None, precision: str) -> Peak | None:
    """The peak of a product at a precision; None if either is unknown."""
    product = _product(accelerator)
    tflops = product and product.tflops.get(precision)
    return Peak(tflops, f"dense {precision}, {product.source}") if product and tflops else None


def memory_of(accelerator: str | None) -> tuple[float, str] | None:
    """The memory bandwidth of a product in GB/s, and who states it; None if it is unknown."""
    product = _product(accelerator)
    return (product.memory.gbps, product.memory.source) if product and product.memory else None


def _product(accelerator: str | None) -> Product | None:
    for product in _accelerators().products:
        if re.fullmatch(product.names, accelerator or "", re.ASCII | re.IGNORECASE):
            return product
    return None


@functools.cache
def may_use_tf32(accelerator: str | None) -> bool:
    """True if an accelerator may multiply matrices of fp32 in TF32; True if it is unknown."""
    names = _accelerators().without_tf32
    return not re.fullmatch(names, accelerator or "", re.ASCII | re.IGNORECASE)


@functools.cache
def _accelerators() -> Accelerators:
    return load_entry(CATALOG / "accelerators.yml", Accelerators)
