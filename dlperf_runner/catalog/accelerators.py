"""The peak speed of products, as catalog/accelerators.yml lists it."""

from __future__ import annotations

import functools
import re
from typing import Annotated, NamedTuple

from pydantic import Field

from .entry import CATALOG, load_entry
from .types import Entry, Name, Regex

Tflops = Annotated[float, Field(gt=0)]


class Product(Entry):
    """A product by the names that drivers report. `tflops`: of one device, for dense matrices, by
    precision."""

    names: Regex
    source: str
    tflops: dict[Name, Tflops]


class Accelerators(Entry):
    name: Name
    products: tuple[Product, ...]


class Peak(NamedTuple):
    """The peak speed of a device for dense matrices, and who states it."""

    tflops: float
    source: str


@functools.cache
def peak_of(accelerator: str | None, precision: str) -> Peak | None:
    """The peak of a product at a precision; None if either is unknown."""
    for product in _products():
        if not re.fullmatch(product.names, accelerator or "", re.ASCII | re.IGNORECASE):
            continue
        if tflops := product.tflops.get(precision):
            return Peak(tflops, f"dense {precision}, {product.source}")
    return None


@functools.cache
def _products() -> tuple[Product, ...]:
    return load_entry(CATALOG / "accelerators.yml", Accelerators).products
