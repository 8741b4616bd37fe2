"""Workloads without a program: their logs are read and compared, and no plan contains them."""

from __future__ import annotations

from pathlib import Path

import pytest
from command_line import call
from make_logs import maxtext, megatron, write
from plan_examples import lab_nodes

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan


def compared(directory: Path, *options: str, recipe: str = "none") -> dict[str, dict[str, object]]:
    arguments = ["compare", "--json", str(directory), "--condition", f"recipe={recipe}", *options]
    cases = call(*arguments).document["cases"]
    return {f"{case['nodes']}n{case['gpus_per_node']}g": case for case in cases}


def test_maxtext_logs_stand_beside_their_publication(tmp_path: Path) -> None:
    """MaxText on 32 nodes with 8 H200: 1,055.949 tokens/s/device (gpu-recipes bad95b2)."""
    for nodes in (1, 32):
        for repeat in range(1, 6):
            log = maxtext(1050 + repeat, batch=2, length=8192, world=8 * nodes)
            write(tmp_path / f"{nodes}n8g" / f"llama3.1-70b_b2_bf16_{repeat}.log", log)
    cases = compared(tmp_path, "--condition", "accelerator=H200-SXM-141GB")
    found = cases["32n8g"]
    assert (found["workload"], found["unit"]) == ("jax-llama", "tokens/s")
    assert found["published"] == pytest.approx(256 * 1055.949)
    assert (found["verdict"], found["mine"]) == ("reproduced", 256 * 1053)
    assert cases["1n8g"]["verdict"] == "not published"
    other = compared(tmp_path, "--condition", "accelerator=H100-80GB")["32n8g"]
    assert (other["verdict"], other["published"]) == ("not comparable", found["published"])
    assert str(other["factors"]).startswith("accelerator (H100-80GB, H200-SXM)")


def test_megatron_logs_stand_beside_their_publication(tmp_path: Path) -> None:
    """Megatron-LM's Llama 3 8B on 8 H100: 13,812 tokens/s/device, of 128 sequences together."""
    milliseconds = 1000 * 128 * 8192 / (8 * 13812)
    for repeat in range(5):
        log = megatron(milliseconds + repeat, batch=128, length=8192)
        write(tmp_path / "1n8g" / f"llama3-8b_b16_bf16_{repeat + 1}.log", log)
    stated = ("accelerator=H100-SXM5-80GB", "parallelism=tp1 pp1 cp2")
    options = [word for text in stated for word in ("--condition", text)]
    case = compared(tmp_path, *options, recipe="fp8")["1n8g"]
    assert (case["verdict"], case["published"]) == ("reproduced", 8 * 13812)
    assert case["report"] == "megatron-lm-llama3-h100"
    case = compared(tmp_path, *options)["1n8g"]
    assert (case["verdict"], case["factors"]) == ("not comparable", "recipe (none, fp8)")


def test_no_plan_contains_them() -> None:
    everything = make_plan(parse_choice({}), load_catalog(), lab_nodes())
    assert "megatron-llama" not in {run.workload for run in everything}
    with pytest.raises(UserError, match="no program for megatron-llama; only its logs can be read"):
        make_plan(parse_choice({"workload": "megatron-llama"}), load_catalog(), lab_nodes())
