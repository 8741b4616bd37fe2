"""The two keys of a case, as columns of the frame. Other lists of such columns derive from them.

IDENTITY is what ran. Two campaigns are paired by it. ENVIRONMENT is what it ran on. Only runs that
are equal in both are repeats of each other. None means unknown; an empty text means none.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from .node import SYNTHETIC_DATASETS

TOPOLOGY = ("nodes", "gpus_per_node", "world_size")
IDENTITY = (
    "framework",
    "workload",
    "model",
    "source",
    "parameters",  # as parameters_text writes them
    "precision",
    "batch_size_per_device",
    "total_steps",
    "warmup_steps",
    # Only of logs that their directories tell apart, or, as in *noxla*, words in their names.
    "directory",
    *TOPOLOGY,
    "nvlink_domains",  # how many the nodes are in; None if the inventory names none
)
ENVIRONMENT = (
    "framework_version",
    "accelerator",  # the product, as the nodes reported it, or cpu
    "node_gpus",  # how many GPUs each node reported
    "driver",
    "stack",
    "container",
)
CASE = (*IDENTITY, *ENVIRONMENT)
# Cases that agree in these columns are in one table, and share a base case.
GROUP = tuple(n for n in CASE if n not in ("framework", *TOPOLOGY, "nvlink_domains"))
INTEGERS = (
    *("batch_size_per_device", "total_steps", "warmup_steps"),
    *(*TOPOLOGY, "nvlink_domains"),
)

CaseKey = tuple[Any, ...]
# Precisions that logs state as a recipe.
RECIPES = ("fp8", "mxfp8", "nvfp4")
# fp8-cs, fp8-mx, float8, mxfp8, te_fp8_delayedscaling
_FP8 = re.compile(r"(?:te_|nanoo_)?(?:mx)?(?:fp8|float8)", re.ASCII)


def case_key(case: Mapping[Any, Any]) -> CaseKey:
    """The key of a row with plain values."""
    return tuple(case[name] for name in CASE)


def columns_of(key: CaseKey) -> dict[str, Any]:
    """The columns of a case by their names: the reverse of `case_key`."""
    return dict(zip(CASE, key, strict=True))


def differing(rows: Sequence[Mapping[str, Any]], names: Iterable[str]) -> dict[str, set[Any]]:
    """The columns in which rows differ, with their values."""
    values = {name: {row[name] for row in rows} for name in names}
    return {name: of_column for name, of_column in values.items() if len(of_column) > 1}


def topology_text(case: Mapping[Any, Any]) -> str:
    """The topology of a row of the frame: `2n8g`, or `36n4g over 2 NVLink domains`."""
    domains = case.get("nvlink_domains") or 1
    over = f" over {domains:.0f} NVLink domains" if domains > 1 else ""
    return f"{case['nodes']}n{case['gpus_per_node']}g{over}"


def as_batch_size(number: float) -> float:
    """A batch size per device: an integer, or a fraction if several devices share a sample."""
    return int(number) if number == int(number) else round(number, 6)


def batch_text(batch: float | None) -> str:
    """A batch size per device in the title of a table."""
    return "batch size unknown" if batch is None else f"batch size {batch} per device"


def value_text(value: object) -> str:
    """A value of a key in a sentence."""
    return "unknown" if value is None else str(value) or "none"


_LABELS = {
    "xla": "XLA",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "nvls": "NVLS",
    "nvlink_domains": "NVLink domains",
    "node_gpus": "GPUs in a node",
}

_SXM = {"NVIDIA H200": "H200-SXM", "NVIDIA B200": "B200-SXM"}


def label(name: str) -> str:
    """The display name of a column, a parameter or a condition."""
    return _LABELS.get(name, name.replace("_", " "))


def short_product(name: str) -> str:
    """The product name without the brand: V100-SXM2-16GB for Tesla V100-SXM2-16GB. Newer drivers
    report the same GPU with the brand. They name the SXM of H200 and B200 by the family alone, and
    others in full, such as NVIDIA H200 NVL."""
    name = name.strip()
    return _SXM.get(name) or re.sub(r"^(NVIDIA |Tesla )+", "", name)


def data_of(data_set: object, synthetic: Collection[str]) -> str:
    """The parameter `data` of a run on this data set: its path, or `synthetic`, or
    `synthetic-dataset` for files like the real ones that the role `dataset` made. The same data set
    may have another path elsewhere, but only a person can say so."""
    if data_set in synthetic:
        return "synthetic"
    path = posixpath.normpath(str(data_set))
    return "synthetic-dataset" if path.startswith(f"{SYNTHETIC_DATASETS}/") else path


def data_kind(data: str | None) -> str | None:
    """The kind of data, as publications state it: synthetic or real, without the files' place."""
    return data if data in (None, "synthetic", "synthetic-dataset") else "real"


def precision_of_recipe(recipe: str | None) -> str | None:
    """The precision in which a recipe multiplies, one of RECIPES; None if it is none of them. Part
    of the products keep the precision of the model."""
    if recipe and "nvfp4" in recipe:
        return "nvfp4"
    if recipe and _FP8.match(recipe):
        return "mxfp8" if "mx" in recipe else "fp8"
    return None


def parameters_text(parameters: Mapping[str, object]) -> str:
    """Parameters as canonical text: `data=synthetic image_size=64`."""
    return shlex.join(f"{name}={parameters[name]}" for name in sorted(parameters))


def read_parameters(text: str | None) -> dict[str, str]:
    """The parameters in a canonical text; none if they are unknown."""
    try:
        words = shlex.split(text) if text else []
    except ValueError:  # edited by hand
        words = text.split() if text else []
    return {name: value for name, _, value in (word.partition("=") for word in words)}
