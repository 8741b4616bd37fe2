"""Parameters with several values: axes of a plan, cases of their own in every result."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from make_logs import gluoncv, torchtitan, write
from plan_examples import lab_nodes
from planned_campaigns import set_outcome
from refusals import refusal

from dlperf_runner.campaign import directory as campaign
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands.report import make_report
from dlperf_runner.commands.summarize import summarize
from dlperf_runner.control import campaigns
from dlperf_runner.control.rounds import values_by_case
from dlperf_runner.plan import inventory
from dlperf_runner.plan.choice import choice_of_variables, parse_choice
from dlperf_runner.plan.make import make_plan
from dlperf_runner.stats.groups import setting, sweeps

pytestmark = pytest.mark.usefixtures("lab")
CASE = "mxnet-resnet50v1b-builtin{}_fp32_b2_{}"


def planned(*parameters: str, **options: object) -> list[str]:
    choice = parse_choice({"model": "resnet50v1b", **options}, parameters)
    return list(dict.fromkeys(run.case for run in make_plan(choice, load_catalog(), lab_nodes())))


def test_each_value_is_a_case_with_its_own_name() -> None:
    sizes, places = ("_image_size-32", "_image_size-64"), ("1n1g", "1n2g", "2n2g")
    expected = [CASE.format(size, place) for size in sizes for place in places]
    assert planned("image_size=32,64") == expected
    # A single value makes no axis, nor does one that is given twice.
    assert planned("image_size=32,32", nodes=2) == [CASE.format("", "2n2g")]
    # Axes multiply with each other and with the batch size.
    names = planned("image_size=32,64", "classes=10,20", nodes=2, batch_size="2,4")
    assert len(names) == 8 and CASE.format("_image_size-64_classes-10", "2n2g") in names


def test_a_workload_may_have_a_parameter_of_this_name() -> None:
    catalog = load_catalog()
    workload = catalog.workloads["mxnet-resnet50v1b"]
    own = workload.model_copy(update={"parameters": {**workload.parameters, "micro_batch": 1}})
    catalog = replace(catalog, workloads={**catalog.workloads, own.name: own})
    choice = parse_choice({"workload": own.name, "nodes": 2}, ["micro_batch=3"])
    (run,) = make_plan(choice, catalog, lab_nodes())
    assert (run.parameters["micro_batch"], run.batch_size_per_device) == (3, 2)


def test_the_commands_have_the_values_of_their_case() -> None:
    choice = parse_choice({"model": "resnet50v1b", "nodes": 2}, ["image_size=32,64"])
    for run in make_plan(choice, load_catalog(), lab_nodes()):
        size = run.parameters["image_size"]
        argv = run.commands[0].argv
        assert argv[argv.index("--image-size") + 1] == str(size)
        assert f"_image_size-{size}_" in run.id


def test_a_path_is_not_part_of_a_name() -> None:
    names = planned("rec_train=/data/a/train.rec,/data/b/train.rec", source="upstream", nodes=2)
    assert len(set(names)) == 2
    assert not any("/" in name for name in names)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (["image_size=32,x"], "--parameter image_size: invalid value"),
        (["image_size=32", "image_size=64"], "the parameter is given twice"),
        (["micro_batch=2,x"], "--parameter micro_batch: invalid value"),
        (["micro_batch=0"], "expected integers from 1 to 999999999"),
        (["micro_batch=1,1000000000"], "expected integers from 1 to 999999999"),
        (["rec_train=/a,/b"], "could not be told apart: their parameters do not include rec_train"),
    ],
)
def test_what_cannot_be_an_axis(parameters: list[str], message: str) -> None:
    """The builtin program reads no data set, so it would measure the same twice."""
    assert message in " ".join(refusal(planned, *parameters).split())


def test_the_batch_size_has_one_name() -> None:
    assert "given twice" in refusal(planned, "micro_batch=2,4", batch_size=2)


def test_bench_yml_takes_lists() -> None:
    choice = choice_of_variables({"parameters": {"image_size": [32, 64], "classes": 10}}, ())
    assert choice.parameters == {"image_size": "32,64", "classes": "10"}


def campaign_of(
    directory: Path,
    lines_of: Callable[[Mapping[str, Any]], list[str]],
    parameters: Iterable[str] = (),
    **options: object,
) -> Path:
    """A campaign on one device, four runs of each case, whose logs have these lines."""
    texts = {"model": "resnet50v1b", "nodes": 1, "gpus_per_node": 1, "repeats": 4, **options}
    campaigns.plan(parse_choice(texts, parameters), campaign=str(directory))
    for run in campaign.remaining_plan(directory)["runs"]:
        record = set_outcome(directory, run, status="done", exit_status=0, hosts={"node1": {}})
        write(record.with_name(run["log_name"]), lines_of(run))
    return directory


def log_of(run: Mapping[str, Any], rate: float) -> list[str]:
    steps = {"steps": run["total_steps"], "warmup": run["warmup_steps"]}
    dtype = {"fp32": "float32", "fp16": "float16"}[run["precision"]]
    batch = run["batch_size_per_device"]
    return gluoncv(rate + run["repeat"], batch=batch, world=1, dtype=dtype, **steps)


def measured(directory: Path, rates: Mapping[str, float]) -> Path:
    """A campaign whose logs have these rates by image size."""
    lines_of = lambda run: log_of(run, rates[str(run["parameters"]["image_size"])])  # noqa: E731
    return campaign_of(directory, lines_of, [f"image_size={','.join(rates)}"])


def sweeps_section(directory: Path) -> str:
    """What the report of a campaign says of its sweeps."""
    make_report([directory])
    page = (directory / "report" / "report.md").read_text(encoding="utf-8")
    _, _, section = page.partition("## Sweeps")
    return section.split("\n## ")[0]


RATES = {"32": 400.0, "48": 397.0, "64": 100.0}


def test_summaries_keep_the_cases_apart(tmp_path: Path) -> None:
    result = summarize(measured(tmp_path / "a", RATES))
    found = {
        setting(case, "image_size"): case["samples_per_second_median"] for case in result.cases
    }
    assert found == pytest.approx({"32": 402.5, "48": 399.5, "64": 102.5}, abs=0.01)
    assert len(json.loads(result.document)["cases"]) == 3
    (file,) = (tmp_path / "a").glob("bz2_result.json")
    assert len(json.loads(file.read_bytes())) == 3


def test_adaptive_repeats_count_the_runs_of_each_case(tmp_path: Path) -> None:
    directory = measured(tmp_path / "a", RATES)
    values = values_by_case(directory, campaign.read_plan(directory))
    sizes = {name: round(min(of)) for name, of in values.items()}
    expected = {"32": 401, "48": 398, "64": 101}
    assert sizes == {CASE.format(f"_image_size-{s}", "1n1g"): v for s, v in expected.items()}


def test_two_campaigns_are_compared_setting_by_setting(tmp_path: Path) -> None:
    first = measured(tmp_path / "a", RATES)
    second = measured(tmp_path / "b", {"32": 400.1, "48": 300.0, "64": 100.1})
    cases = call("compare", "--json", first, second).document["cases"]
    verdicts = {case["parameters"].split("image_size=")[1][:2]: case["verdict"] for case in cases}
    assert verdicts == {"32": "no difference shown", "48": "slower", "64": "no difference shown"}


def test_a_sweep_over_the_batch_size_alone(tmp_path: Path) -> None:
    rates = {1: 100.0, 2: 200.0, 4: 198.0}
    directory = campaign_of(
        tmp_path / "a",
        lambda run: log_of(run, rates[run["batch_size_per_device"]]),
        ["micro_batch=1,2,4"],
    )
    (sweep,) = sweeps(summarize(directory).cases)
    assert sweep.axes == ("batch_size_per_device",)
    section = sweeps_section(directory)
    assert "| batch size per device | 1n1g samples/s |" in section
    assert "Fastest on 1n1g: batch size per device 2, with 202.50 samples/s" in section
    assert "Not shown to be slower" in section
    assert section.endswith(": batch size per device 4.\n")


def test_a_matrix_with_a_batch_size_per_precision_is_no_sweep(tmp_path: Path) -> None:
    """As the published one of this workload: fp32 with 128 samples, fp16 with 256."""
    directory = campaign_of(
        tmp_path / "a", lambda run: log_of(run, 100.0), matrix="published", repeats=1
    )
    cases = summarize(directory).cases
    found = {(case["precision"], case["batch_size_per_device"]) for case in cases}
    assert found == {("fp32", 128), ("fp16", 256)}
    assert list(sweeps(cases)) == []
    assert sweeps_section(directory) == ""
    # Nor is a precision on one topology and another precision on another one.
    fp32, fp16 = ({**case, "batch_size_per_device": 128} for case in cases)
    assert list(sweeps([fp32, {**fp16, "nodes": 2, "world_size": 2}])) == []
    assert [sweep.axes for sweep in sweeps([fp32, fp16])] == [("precision",)]


def test_llama_by_precision_sequence_length_and_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        inventory, "read_inventory", lambda *_, **__: lab_nodes(frameworks=("pytorch",))
    )

    def lines_of(run: Mapping[str, Any]) -> list[str]:
        length = run["parameters"]["sequence_length"]
        faster = 2 if run["precision"] == "bf16" and run["parameters"]["compile"] == "on" else 1
        steps = {"steps": run["total_steps"], "warmup": run["warmup_steps"], "every": 1}
        return torchtitan(faster * 1000 + length + 10 * run["repeat"], length=length, **steps)

    directory = campaign_of(
        tmp_path / "a",
        lines_of,
        ["sequence_length=64,128", "compile=on,off"],
        model="llama-lab",
        workload="pytorch-llama",
        precision="bf16,fp32",
    )
    (sweep,) = sweeps(summarize(directory).cases)
    assert sweep.axes == ("precision", "compile", "sequence_length")
    section = sweeps_section(directory)
    assert "| precision | compile | sequence length | 1n1g tokens/s |" in section
    assert sum(line.startswith("|") for line in section.splitlines()) == 2 + 8
    best = "precision bf16, compile on, sequence length 128, with 2,153.00 tokens/s"
    assert f"Fastest on 1n1g: {best}" in section
    tables = json.loads((directory / "report" / "results.json").read_bytes())["tables"]
    (table,) = (rows for name, rows in tables.items() if name.startswith("sweep"))
    assert {row["sequence length"] for row in table} == {"64", "128"}
