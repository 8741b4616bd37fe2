"""Publications of today's accelerators, compared by unit, accelerator and conditions."""

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import compare_rows
import pytest
from compare_rows import rows
from frame_rows import frame
from plan_examples import gpu_nodes

from dlperf_runner.catalog.published_numbers import load_rule
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands import list as listing
from dlperf_runner.compare.conditions import conditions_of, parse_stated
from dlperf_runner.compare.published import published_points, side_by_side
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.frame import records
from dlperf_runner.core.identity import parameters_text
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan
from dlperf_runner.report.compare_text import render_publications
from dlperf_runner.results.run_record import FoundRun
from dlperf_runner.stats.summary import summarize

# ---- the numbers


def test_the_list_names_unit_contradiction_and_unknown_workloads() -> None:
    text = " ".join(listing.render(load_catalog(), "published", 100).split())
    assert "numbers resnet50v1.5 amp: 1n1g b1280 1974.75" in text
    assert "contradictory 8 GPUs are 8.24 times as fast as one" in text
    assert " TFLOP/s" in text
    reasons = [
        number["contradiction"]
        for number in listing.document(load_catalog(), "published")["published"]
    ]
    assert len(list(filter(None, reasons))) == 2 + 6  # PaddlePaddle's AMP; Lambda's H200 NVL


# ---- comparisons

TITAN: dict[str, object] = {"sequence_length": "8192", "compile": False, "recipe": "none"}
TITAN |= {"recompute": "selective", "parallelism": "fsdp"}
CASE: dict[str, Any] = {"workload": "pytorch-llama", "framework": "pytorch", "model": "llama-8b"}
CASE |= {"precision": "bf16", "batch_size_per_device": 2, "nodes": 1, "gpus_per_node": 8}
CASE |= {"accelerator": "H100-SXM5-96GB"}


def compared(
    rate: float, conditions: Mapping[str, object] = TITAN, every: bool = False, **case: Any
) -> list[dict[str, Any]]:
    """Five runs at about this rate of all devices, beside the catalogue's numbers."""
    values = [rate * (1 + n / 10000) for n in range(-2, 3)]
    return compare_rows.compared(rows(values, **{**CASE, **case}), conditions, every=every)


def test_an_h100_campaign_stands_beside_the_number_of_its_conditions() -> None:
    (eager,) = compared(8 * 5762)
    assert (eager["verdict"], eager["published"]) == ("reproduced", 8 * 5762)
    assert eager["report"] == "torchtitan-llama3.1-h100"
    assert "pytorch/torchtitan b5bcd76, benchmarks/llama3_h100" in eager["published_source"]
    (compiled,) = compared(8 * 5762, {**TITAN, "compile": True})
    assert (compiled["verdict"], compiled["published"]) == ("slower", 8 * 6667)
    (float8,) = compared(128 * 8380, {**TITAN, "compile": True, "recipe": "float8"}, nodes=16)
    assert (float8["verdict"], float8["published"]) == ("reproduced", 128 * 8380)


@pytest.mark.parametrize(
    ("changes", "factor"),
    [
        ({"sequence_length": "4096"}, "sequence length (4096, 8192)"),
        ({"sequence_length": None}, "sequence length (unknown, 8192)"),
        ({"recompute": "full"}, "recompute (full, selective)"),
        ({"parallelism": "ddp"}, "parallelism (ddp, fsdp)"),
        ({"recipe": "float8 rowwise"}, "recipe (float8 rowwise, none)"),
        ({"accelerator": "H100-80GB-HBM3"}, "accelerator (H100-80GB-HBM3, H100-SXM 96GB HBM2e"),
    ],
)
def test_what_must_be_equal(changes: dict[str, object], factor: str) -> None:
    (case,) = compared(8 * 5762, {**TITAN, **changes})
    assert case["verdict"] == "not comparable"
    assert factor in case["factors"]
    assert case["ratio"] == pytest.approx(1)


def test_without_a_number_for_the_topology_there_is_none() -> None:
    """Llama 3.1 8B on 4 nodes is published on H200 and B200, on H100 on 1, 8 and 16."""
    (case,) = compared(32 * 5700, nodes=4)
    assert (case["verdict"], case["published"], case["ratio"]) == ("not published", None, None)
    assert case["factors"] == (
        "topology (4n8g; published on H100: 1n8g, 8n8g, 16n8g;"
        " with --all: on B200-SXM-180GB, on H200-SXM-141GB)"
    )
    for other in compared(32 * 5700, nodes=4, every=True):
        assert other["verdict"] == "not comparable"
        assert "accelerator (H100-SXM5-96GB, " in other["factors"]


def test_a_contradictory_number_is_shown_on_demand_and_judges_nothing() -> None:
    case: dict[str, Any] = {"workload": "paddle3-resnet50v1.5", "framework": "paddle"}
    case |= {"model": "resnet50v1.5", "precision": "amp", "batch_size_per_device": 256}
    case |= {"accelerator": "A100-SXM4-80GB"}
    (tf32,) = compared(23874, {"data": "real"}, **case)
    assert (tf32["verdict"], tf32["published"]) == ("not comparable", 8013)
    assert "precision (amp, tf32)" in tf32["factors"]
    shown = compared(23874, {"data": "real"}, every=True, **case)
    a100 = [row for row in shown if row["report"] == "nvidia-paddle-resnet50v1.5"]
    assert [row["published"] for row in a100] == [8013, 23874]
    assert a100[1]["verdict"] == "not comparable"
    assert "contradictory publication: 8 GPUs are 8.24 times" in a100[1]["factors"]
    assert "contradictory: 8 GPUs" in a100[1]["publication"]
    table = summarize(frame(rows([1.0], **{**CASE, **case})))
    assert published_points(records(table)) == []
    text = render_publications(side_by_side(framework="paddle", precision="amp", every=True))
    assert "contradictory: 8 GPUs are 8.24 times as fast as one" in " ".join(text.split())


def test_another_unit_is_no_number_to_compare_with() -> None:
    case = {"workload": "jax-llama", "framework": "jax", "model": "llama-2-7b"}
    conditions = {"sequence_length": "4096", "recipe": "none"}
    (found,) = compared(1e5, conditions, **case, batch_size_per_device=4, accelerator="H100-80GB")
    assert (found["verdict"], found["published"]) == ("not comparable", None)
    assert (found["ratio"], found["ratio_low"]) == (None, None)
    assert found["factors"] == "unit (tokens/s, TFLOP/s)"


def test_a_global_batch_size_stands_for_that_per_device() -> None:
    of_mlperf = {**TITAN, "recipe": "fp8 or nvfp4", "data": "real"}
    case = {"nodes": 8, "accelerator": "H100-SXM5-80GB"}
    (one,) = compared(64 * 11369.9, of_mlperf, batch_size_per_device=1, **case)
    assert (one["verdict"], one["report"]) == ("reproduced", "mlperf-training-v5.1-llama31-8b")
    (two,) = compared(64 * 11369.9, of_mlperf, batch_size_per_device=2, **case)
    assert two["factors"] == "global batch size (128, 64)"


def known_conditions(
    workload: str,
    source: str,
    parameters: str,
    recorded: Mapping[str, str] | None = None,
    **outcome: object,
) -> dict[str, object]:
    """The conditions of a run whose log states these parameters, and whose record has others."""
    nothing = dict.fromkeys(("accelerator", "framework_version", "container", "driver", "rule"))
    given = {"workload": workload, "framework": "pytorch", "source": source}
    run = SimpleNamespace(**given, parameters=parameters, **nothing)
    known = conditions_of(
        cast(FoundRun, run), {"parameters": recorded, "outcome": outcome}, load_rule()
    )
    return {name: value for name, value in known.items() if value is not None}


def test_the_conditions_of_a_run_are_its_parameters() -> None:
    texts = "compile=on data=synthetic parallel=fsdp recompute=full sequence_length=4096"
    known = known_conditions("x", "builtin", texts)
    expected = {"compile": True, "recompute": "full", "sequence_length": "4096"}
    assert {**known, **expected, "parallelism": "fsdp"} == known
    assert parse_stated(["compile=off", "recipe=float8"]) == {"compile": False, "recipe": "float8"}
    with pytest.raises(UserError, match="invalid value for compile"):
        parse_stated(["compile=perhaps"])


def test_libraries_that_a_framework_brings_are_conditions() -> None:
    wheels = {"nvidia-cuda-runtime": "13.0.96", "nvidia-nccl-cu13": "2.28.9", "nvidia-nccl-x": "1"}
    # One of two is the run's, and the record does not say which.
    two = {**wheels, "nvidia-nccl-cu12": "2.26.2"}
    for versions, nccl in ((wheels, "2.28.9"), (two, None)):
        known = known_conditions("x", "builtin", "", versions=versions)
        assert [known.get(name) for name in ("cuda", "cudnn", "nccl")] == ["13.0.96", None, nccl]


@pytest.mark.parametrize(
    ("batch", "precision", "rates"),
    [
        (2560, "amp", {"nchw": 3125.08, "nhwc": 6665.20}),
        (1280, "tf32", {"NCHW": 2253.38, "nhwc": 3301.26}),  # as TensorFlow writes it
    ],
)
def test_the_layout_of_images_doubles_the_speed(
    batch: int, precision: str, rates: Mapping[str, float]
) -> None:
    """What one H200 measured beside Lambda's number, whose log says nchw."""
    case = {"workload": "pytorch-resnet50v1.5", "model": "resnet50v1.5", "unit": "samples/s"}
    case |= {"batch_size_per_device": batch, "precision": precision, "gpus_per_node": 1}
    known = {"accelerator": "H200-SXM", "data": "synthetic", "xla": False, "compile": False}
    found = [
        compared(rate, {**known, "memory_format": layout}, **case)[0]
        for layout, rate in rates.items()
    ]
    assert [one["verdict"] for one in found] == ["reproduced", "not comparable"]
    assert found[1]["factors"] == "memory format (nhwc, nchw)"


@pytest.mark.parametrize(
    ("matrix", "source", "published"),
    [("published", "builtin", 6667), ("published", "upstream", 6667), ("float8", "builtin", 8532)],
)
def test_a_matrix_plans_what_its_number_was_published_for(
    matrix: str, source: str, published: float
) -> None:
    h100 = {"stack": "h100-cuda12.9", "accelerator": "H100-SXM5-96GB"}
    nodes = [replace(node, **h100, frameworks=("pytorch",)) for node in gpu_nodes()]
    options = {"workload": "pytorch-llama", "matrix": matrix, "source": source, "nodes": "1"}
    catalog = load_catalog()
    (run,) = make_plan(parse_choice({**options, "repeats": "1"}, []), catalog, nodes)
    measured = catalog.workload(run.workload).measured_parameters(source, run.parameters)
    recorded = {name: str(value) for name, value in run.parameters.items()}
    texts = parameters_text(measured)
    known = known_conditions(run.workload, source, texts, recorded)
    (case,) = compared(8 * published, known)
    assert (case["verdict"], case["published"]) == ("reproduced", 8 * published)
    batch = (run.model, run.precision, run.batch_size_per_device)
    assert batch == (CASE["model"], CASE["precision"], CASE["batch_size_per_device"])


@pytest.mark.parametrize(("rate", "published"), [("1.0", 2271.33), ("0.1", 5299.56), ("0.2", None)])
def test_arcface_stands_beside_the_number_of_its_sample_rate(
    rate: str, published: float | None
) -> None:
    texts = f"classes=3000000 data=synthetic image_size=112 sample_rate={rate}"
    case = {"workload": "pytorch-arcface", "model": "arcface-r50", "precision": "amp"}
    v100 = {"batch_size_per_device": 128, "accelerator": "V100-SXM2-32GB"}
    known = known_conditions(case["workload"], "builtin", texts)
    (found,) = compared(published or 2271.33, known, **case, **v100)
    assert found["report"] == "insightface-arcface-torch"
    if published is None:
        assert found["verdict"] == "not comparable"
        assert "parallelism (partial FC, sample ratio 0.2, " in found["factors"]
    else:
        assert (found["verdict"], found["published"]) == ("reproduced", published)
