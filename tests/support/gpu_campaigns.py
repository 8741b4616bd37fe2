"""Campaigns on GPUs that the nodes report, and commands on them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from command_line import Called
from make_logs import campaign_run, gluoncv, write

from dlperf_runner.commands.summarize import SummaryResult

V100, A100 = "Tesla V100-SXM2-16GB", "NVIDIA A100-SXM4-40GB"
IMAGENET = {"rec_train": "/data/imagenet/train.rec", "image_size": 224, "data_nthreads": 8}
NOISE = {"rec_train": "/opt/dlperf/data/noise/train.rec", "image_size": 64, "data_nthreads": 8}
RATES = (384.16, 384.19, 385.23, 384.04, 385.31)


def on(product: str | None, *, gpus: int = 8, driver: str | None = "440.33.01") -> dict[str, Any]:
    """The keys of a run record of nodes that reported this GPU; None: they reported nothing."""
    facts = {"driver": driver, "gpus": [product] * gpus} if product else {}
    return {
        "accelerator": "gpu",  # the inventory's word
        "stack": "cuda",
        "outcome": {"status": "done", "hosts": {"node1": facts}, "versions": {"mxnet": "1.9.1"}},
    }


def campaign(
    directory: Path,
    rates: Sequence[float] = RATES,
    *,
    created: str = "2026-11-20T10:00:00+00:00",
    **changes: Any,
) -> Path:
    for repeat, rate in enumerate(rates, start=1):
        campaign_run(directory, "1n1g", repeat, gluoncv(rate), **{**on(V100), **changes})
    document = {"schema": 1, "id": directory.name, "created": created}
    write(directory / "campaign.json", [json.dumps(document)])
    return directory


def scaled(factor: float) -> list[float]:
    return [round(rate * factor, 2) for rate in RATES]


def words(printed: Called | SummaryResult) -> str:
    return " ".join(printed.text.split())
