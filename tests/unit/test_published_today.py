"""Publications of today's accelerators: equal to the table they were taken from, each cited, and
compared by unit, accelerator and conditions."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace
from typing import Any, cast

import compare_rows
import pytest
from compare_rows import rows
from frame_rows import frame
from make_logs import SHARED
from plan_examples import gpu_nodes

from dlperf_runner.catalog.published_numbers import PublishedNumber, load_published, load_rule
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands import listing
from dlperf_runner.compare.conditions import conditions_of, family, parse_stated, same_product
from dlperf_runner.compare.publications import side_by_side
from dlperf_runner.compare.published import published_points
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.identity import parameters_text
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan
from dlperf_runner.report.compare_text import render_publications
from dlperf_runner.results.run_record import FoundRun
from dlperf_runner.stats.summary import summarize

TABLE = SHARED / "published" / "published_today.csv"
COLUMNS = {
    "samples": "samples_per_second",
    "tokens": "tokens_per_second_per_device",
    "TFLOP": "tflops_per_device",
}
SIZES = {"MiB": 2**20, "GiB": 2**30}
NUMBERS = load_published()


def of(report: str, **wanted: Any) -> list[PublishedNumber]:
    found = [n for n in NUMBERS if n.report == report]
    for name, value in wanted.items():
        found = [
            n for n in found if str(getattr(n, name, getattr(n.conditions, name, None))) == value
        ]
    return found


# ---- the table


def stated(line: Mapping[str, str], unit: str) -> Iterator[tuple[float, int | None]]:
    """The numbers of a line of the table, those of NCCL with the size of their message."""
    if unit != "GB":
        if text := line[COLUMNS[unit]]:
            yield float(text), None
        return
    first = re.match(r"busbw_GB_per_s=([\d.]+) message=(\d+)(MiB|GiB)", line["notes"])
    if first and line["nodes"]:
        size = int(first[2]) * SIZES[first[3]]
        yield float(first[1]), size
        off = re.search(r"NVLS_ENABLE=0: ([\d.]+)", line["notes"])
        yield from [(float(off[1]), size)] if off else []
        for value, number, name in re.findall(r"([\d.]+) at (\d+)(MiB|GiB)", line["notes"]):
            yield float(value), int(number) * SIZES[name]


TIME_TO_TRAIN = "a time to train alone"
THRESHOLD = "the limit of a health check, not a measurement"
# Why files of the table are not in the catalogue, by a pattern of their repository and name.
LEFT_OUT = {
    "mlcommons/training_results_v5.1 */llama2_70b_lora/*": TIME_TO_TRAIN,
    "mlcommons/training_results_v5.1 */retinanet/*": TIME_TO_TRAIN,
    "mlcommons/training_results_v5.1 AMD/results/MI35?X_*/llama31_8b/*": TIME_TO_TRAIN,
    "mlcommons/training_results_v5.1 Lenovo/results/SR?80aV3-*/llama31_8b/*": TIME_TO_TRAIN,
    "mlcommons/training_results_v5.1 Nebius/results/nebius_b200_n1/llama31_8b/*": TIME_TO_TRAIN,
    "mlcommons/training_results_v5.1 Nebius/results/nebius_b200_n4/llama31_8b/*": TIME_TO_TRAIN,
    "KellerJordan/modded-nanogpt *": TIME_TO_TRAIN,
    "Azure/azurehpc-health-checks *": THRESHOLD,
    "Azure/ai-infrastructure-on-azure *": "approximate, what its authors expect of a machine",
    "NVIDIA-NeMo/Megatron-Bridge examples/models/wan/*": (
        "TFLOP/s of a model that makes videos, without its precision and without its tokens/s"
    ),
}


def reasons_to_leave_out(line: Mapping[str, str]) -> list[str]:
    name = f"{line['source_repo']} {line['source_file']}"
    return [reason for pattern, reason in LEFT_OUT.items() if fnmatchcase(name, pattern)]


@pytest.mark.skipif(not TABLE.exists(), reason="the table of published numbers is not here")
def test_the_catalogue_says_what_the_table_says_and_nothing_is_left_out() -> None:
    with TABLE.open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    places = {(line["source_repo"], line["source_file"]) for line in lines}
    today = [n for n in NUMBERS if (n.citation.repository, n.citation.file) in places]
    assert {n.report for n in today} >= {n.report for n in NUMBERS if n.unit != "samples"}
    units: dict[tuple[str | None, str | None], set[str]] = {}
    for number in today:
        place = (number.citation.repository, number.citation.file)
        units.setdefault(place, set()).add(number.unit)
    pool, unused = [], set(LEFT_OUT.values())
    for line in lines:
        cited = units.get((line["source_repo"], line["source_file"]), set())
        found = [(line, value, size) for unit in cited for value, size in stated(line, unit)]
        reasons = reasons_to_leave_out(line)
        # Each line is in the catalogue, or there is one reason why not.
        assert (len(reasons), bool(found)) in ((0, True), (1, False)), line
        assert TIME_TO_TRAIN not in reasons or line["notes"].startswith("time_to_train_min="), line
        unused -= {*reasons}
        pool += found
    assert unused == set()
    for number in today:
        match = next(entry for entry in pool if agrees(number, *entry))
        pool.remove(match)
        commit = re.findall(r"\b[0-9a-f]{7,40}\b", match[0]["commit_or_url"])
        # MaxText has moved the file; it stands at a later commit under the table's name.
        moved = number.report == "maxtext-llama2-7b-a3"
        assert moved or any((number.citation.commit or "").startswith(c) for c in commit)
    assert pool == []


def agrees(n: PublishedNumber, line: Mapping[str, str], value: float, size: int | None) -> bool:
    known = n.conditions
    same = (
        (line["source_repo"], n.citation.repository),
        (line["source_file"], n.citation.file),
        (f"{line['nodes']}n{line['gpus_per_node']}g", str(n.topology)),
        (value, n.stated),
        (size, known.message_bytes),
        (line["sequence_length"] or None, known.sequence_length and str(known.sequence_length)),
        (re.findall(r"[A-Z]{1,3}\d{2,3}", line["accelerator"])[0], family(known.accelerator)),
    )
    batch = str(n.batch_size_per_device or known.micro_batch_size or "")
    # NeMo's recipes state their micro batch in the notes.
    return all(a == b for a, b in same) and line["batch_size_per_device"] in ("", batch)


def test_a_rate_of_one_device_is_that_of_all_times_their_number() -> None:
    eager, compiled, float8 = of(
        "torchtitan-llama3.1-h100", topology="1n8g", sequence_length="8192", model="llama3.1-8b"
    )
    assert [n.stated for n in (eager, compiled, float8)] == [5762, 6667, 8532]
    assert eager.samples_per_second == 8 * 5762
    assert (eager.unit, eager.conditions.parallelism) == ("tokens", "fsdp")
    assert [n.conditions.compile for n in (eager, compiled, float8)] == [False, True, True]
    assert [n.conditions.recipe for n in (eager, compiled, float8)] == ["none", "none", "float8"]


def test_the_list_names_unit_contradiction_and_unknown_workloads() -> None:
    text = " ".join(listing.render(load_catalog(), "published", 100).split())
    assert "12 of resnet50v1.5 tf32, resnet50v1.5 amp, resnet50v1.5 fp32, in samples/s" in text
    assert "contradictory 8 GPUs are 8.24 times as fast as one" in text
    assert "in TFLOP/s" in text
    reasons = [
        number["contradiction"]
        for number in listing.document(load_catalog(), "published")["published"]
    ]
    assert len(list(filter(None, reasons))) == 2 + 6  # PaddlePaddle's AMP; Lambda's H200 NVL


# ---- comparisons

TITAN = {
    "sequence_length": "8192",
    "compile": False,
    "recipe": "none",
    "recompute": "selective",
    "parallelism": "fsdp",
}
CASE = {
    "workload": "pytorch-llama",
    "framework": "pytorch",
    "model": "llama-8b",
    "precision": "bf16",
    "batch_size_per_device": 2,
    "nodes": 1,
    "gpus_per_node": 8,
    "accelerator": "H100-SXM5-96GB",
}


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
    case = {
        "workload": "paddle3-resnet50v1.5",
        "framework": "paddle",
        "model": "resnet50v1.5",
        "precision": "amp",
        "batch_size_per_device": 256,
        "accelerator": "A100-SXM4-80GB",
    }
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
    assert published_points(table).empty
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


@pytest.mark.parametrize(
    ("a", "b", "equal"),
    [
        ("H100-SXM 96GB HBM2e 500W", "H100-SXM5-96GB", True),
        ("NVIDIA B200", "B200-SXM-180GB", True),
        ("H100-SXM5-80GB", "H100-PCIe-80GB", False),
        ("H200-SXM", "H100-SXM", False),
    ],
)
def test_products_of_today(a: str, b: str, equal: bool) -> None:
    assert same_product(a, b) is equal


def known_conditions(
    workload: str, source: str, parameters: str, recorded: Mapping[str, str] | None = None
) -> dict[str, object]:
    """The conditions of a run whose log states these parameters, and whose record has others."""
    nothing = dict.fromkeys(("accelerator", "framework_version", "container", "driver", "rule"))
    run = SimpleNamespace(workload=workload, source=source, parameters=parameters, **nothing)
    known = conditions_of(cast(FoundRun, run), {"parameters": recorded}, load_rule())
    return {name: value for name, value in known.items() if value is not None}


def test_the_conditions_of_a_run_are_its_parameters() -> None:
    texts = "compile=on data=synthetic parallel=fsdp recompute=full sequence_length=4096"
    known = known_conditions("x", "builtin", texts)
    assert known["compile"] is True
    assert [known[n] for n in ("recompute", "sequence_length", "parallelism")] == [
        *("full", "4096", "fsdp")
    ]
    assert parse_stated(["compile=off", "recipe=float8"]) == {"compile": False, "recipe": "float8"}
    with pytest.raises(UserError, match="invalid value for compile"):
        parse_stated(["compile=perhaps"])


@pytest.mark.parametrize(
    ("matrix", "source", "published"),
    [
        ("published", "builtin", 6667),
        ("published", "upstream", 6667),
        ("float8", "builtin", 8532),
    ],
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


def test_bert_stands_beside_the_number_of_its_length_with_the_accumulation_named() -> None:
    texts = "accumulation_steps=32 compile=off data=/wiki sequence_length=128"
    case = {"workload": "pytorch-bert-large", "model": "bert-large", "precision": "amp"}
    a100 = {"batch_size_per_device": 256, "accelerator": "A100-SXM4-80GB"}
    known = known_conditions(case["workload"], "upstream", texts)
    for nodes, published, noted in ((1, 4553, False), (2, 9191, True)):
        (found,) = compared(published, known, **case, **a100, nodes=nodes)
        assert (found["verdict"], found["published"]) == ("reproduced", published)
        assert ("accumulation steps (32, 16)" in (found["noted"] or "")) == noted
