"""What ran is the identity of a case: one pair of keys pools, pairs, records and follows it."""

from pathlib import Path
from typing import Any

import pytest
from command_line import call
from gpu_campaigns import A100, IMAGENET, NOISE, RATES, V100, campaign, on, scaled, words
from hypothesis import given
from hypothesis import strategies as st
from make_logs import campaign_run, gluoncv, write
from pandas import DataFrame

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands.summarize import summarize
from dlperf_runner.compare.campaigns import BaselineCase
from dlperf_runner.core.frame import COLUMNS
from dlperf_runner.core.identity import (
    CASE,
    ENVIRONMENT,
    IDENTITY,
    parameters_text,
    read_parameters,
)
from dlperf_runner.core.units import BANDWIDTH
from dlperf_runner.history.store import POINT
from dlperf_runner.report.case_tables import side_by_side
from dlperf_runner.report.labels import load_labels

pytestmark = pytest.mark.usefixtures("here")


# ---- the lists


def test_each_column_is_declared_once() -> None:
    assert not set(IDENTITY) & set(ENVIRONMENT)
    rest = {"global_batch_size", "repeat", "metric", "value", "unit", "estimator", "stated"}
    assert set(COLUMNS) == {*CASE, *rest, "log_sha256", "valid", "why_invalid"}
    assert set(CASE) <= set(POINT)
    values = {"unit", "estimator", "samples_per_second", "stated"}
    assert set(BaselineCase.model_fields) == {*CASE, *values}


@given(st.dictionaries(st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True), st.text()))
def test_parameters_can_be_read_back(parameters: dict[str, str]) -> None:
    assert read_parameters(parameters_text(parameters)) == parameters
    backwards = dict(reversed(list(parameters.items())))
    assert parameters_text(backwards) == parameters_text(parameters)


def test_parameters_are_those_that_change_what_is_measured() -> None:
    workloads = load_catalog().workloads
    for workload in workloads.values():
        if workload.unit == BANDWIDTH:  # it has no data
            continue
        for source, entry in workload.sources.items():
            measured = workload.measured_parameters(source, workload.parameters)
            # By default, all sources of the catalogue train on synthetic data.
            assert measured["data"] == "synthetic"
            assert entry.data is not None
            assert not {"frequent", "log_interval", "display_every"} & set(measured)
            assert not [value for value in measured.values() if str(value).startswith("/")]
    resnet = workloads["mxnet-resnet50v1b"]
    assert parameters_text(resnet.measured_parameters("upstream", IMAGENET)) == (
        "data=/data/imagenet/train.rec data_nthreads=8 image_size=224"
    )
    # The builtin program neither reads the file nor has such threads.
    assert parameters_text(resnet.measured_parameters("builtin", IMAGENET)) == (
        "data=synthetic image_size=224"
    )
    # How builtin is started counts if it was changed; upstream's start is the report's.
    changed = {**IMAGENET, "omp_num_threads": 4, "bind_to": "socket"}
    assert parameters_text(resnet.measured_parameters("builtin", changed)) == (
        "bind_to=socket data=synthetic image_size=224 omp_num_threads=4"
    )
    assert "omp_num_threads" not in resnet.measured_parameters("upstream", changed)
    faces = workloads["mxnet-arcface"]
    builtin = faces.measured_parameters("builtin", {**faces.parameters, "network": "y1"})
    assert parameters_text(builtin) == (
        "classes=85742 data=synthetic image_size=112 network=y1 parallel=model"
    )


# ---- summarize


def test_runs_over_one_and_two_nvlink_domains_are_two_cases(tmp_path: Path) -> None:
    one, two = {"nvlink_domains": ["rack1"]}, {"nvlink_domains": ["rack1", "rack2"]}
    campaign_run(tmp_path / "a", "1n1g", 1, gluoncv(100.0), **one)
    for repeat, changes in enumerate((one, one, two), start=1):
        campaign_run(tmp_path / "a", "2n1g", repeat, gluoncv(150.0 + repeat), **changes)
    campaign_run(tmp_path / "b", "2n1g", 1, gluoncv(150.0), **two)
    campaign_run(tmp_path / "c", "2n1g", 1, gluoncv(140.0), **two | {"source": "upstream"})
    result = summarize(tmp_path / "a")
    found = [(case["nvlink_domains"], case["repeats"], case["base_case"]) for case in result.cases]
    # They have one table and one base, but nothing is averaged.
    assert found == [(1, 1, "1n1g"), (1, 2, "1n1g"), (2, 1, "1n1g")]
    assert "| node_num | gpu_num | NVLink domains |" in words(result)
    # A scheduler chose the nodes; nothing is missing.
    text = words(result)
    assert "not pooled, because repeat 1, 2 ran on 2n1g, repeat 3 ran on 2n1g over 2" in text
    assert "of 3 for 1n1g" in text and "of 3 for 2n1g" not in text
    other = [case | {"framework": "other"} for case in summarize(tmp_path / "c").cases]
    cases = [case | {"campaign": "", "family": "resnet50"} for case in [*result.cases, *other]]
    (beside,) = side_by_side(cases, load_labels("en"))
    assert [[cell.text for cell in row] for row in beside.rows] == [
        ["1", "1", "1", "100.00", "1.00", ""],
        ["2", "2", "1", "151.50", "1.51", ""],
        ["2", "2", "2", "153.00", "1.53", "140.00"],
    ]
    compared = call("compare", str(tmp_path / "b"), str(tmp_path / "a")).text
    assert "2n1g over 2 NVLink domains" in compared
    assert "NVLink domains (2, 1)" not in compared


@pytest.mark.parametrize(
    ("changes", "column", "values"),
    [
        ({"parameters": {"image_size": 224}}, "parameters", "data=synthetic image_size=224"),
        ({"total_steps": 60, "warmup_steps": 20}, "total steps", "60, 120"),
        ({"source": "upstream"}, "source", "builtin, upstream"),
        ({"stack": "v100-cuda10.2"}, "stack", "cuda, v100-cuda10.2"),
        (on(V100, gpus=4), "GPUs in a node", "4, 8"),
        (on(V100, driver="550.1"), "driver", "440.33.01, 550.1"),
        (on(None), "accelerator", "unknown, V100-SXM2-16GB"),
    ],
)
def test_runs_that_differ_in_one_thing_are_not_pooled(
    tmp_path: Path, changes: dict[str, Any], column: str, values: str
) -> None:
    for repeat in (1, 2):
        own = changes if repeat == 2 else {}
        lines = gluoncv(384.0 + repeat, steps=own.get("total_steps", 120))
        campaign_run(tmp_path, "1n1g", repeat, lines, **{**on(V100), **own})
    result = summarize(tmp_path)
    assert result.problems == []
    assert DataFrame(result.cases)["repeats"].tolist() == [1, 1]
    for text in ("not pooled, because the runs differ in", f"{column} (", values):
        assert text in words(result)
    # Each table has a title of its own.
    lines = (tmp_path / "summary.md").read_text().splitlines()
    assert len({line for line in lines if line.startswith("## mxnet-resnet50v1b ")}) == 2


# ---- compare


def test_a_gate_across_data_is_refused(tmp_path: Path) -> None:
    """Real ImageNet at 224 pixels and noise at 64 are no pair, however fast the noise is."""
    a = campaign(tmp_path / "a", source="upstream", parameters=IMAGENET)
    b = campaign(tmp_path / "b", scaled(5.2), source="upstream", parameters=NOISE)
    gate = ("compare", a, b, "--fail-if-slower", "3%")
    message = " ".join(call(*gate, status=2).err.split())
    assert "data (/data/imagenet/train.rec, synthetic); image size (224, 64)" in message
    assert "--allow-different data --allow-different image_size" in message
    # Without a gate, both are listed, and what keeps them apart is told.
    differing = "differs in data (/data/imagenet/train.rec, synthetic), image size (224, 64)"
    text = call("compare", a, b, status=1).text  # no case was compared
    assert differing in text
    assert "1 only in the first, 1 only in the second" in text
    # One name alone is not enough.
    call(*gate, "--allow-different", "data", status=2)
    for names in (("data", "image_size"), ("parameters",)):
        allowed = [part for name in names for part in ("--allow-different", name)]
        assert differing in call(*gate, *allowed).text


def by(file: str) -> dict[str, Any]:
    """Runs of the upstream program that read this file."""
    return {"source": "upstream", "parameters": {"rec_train": file}}


@pytest.mark.parametrize(
    ("first", "second", "told", "name"),
    [
        (on(V100), on(A100), "accelerator (V100-SXM2-16GB, A100-SXM4-40GB)", "accelerator"),
        (on(V100), on(None), "accelerator (V100-SXM2-16GB, unknown)", "accelerator"),
        ({"source": "builtin"}, by(NOISE["rec_train"]), "source (builtin, upstream)", "source"),
        (by("/data/a"), by("/data/b"), "data (/data/a, /data/b)", "data"),
    ],
)
def test_a_gate_across_what_must_be_equal_is_refused(
    tmp_path: Path, first: dict[str, Any], second: dict[str, Any], told: str, name: str
) -> None:
    a, b = campaign(tmp_path / "a", **first), campaign(tmp_path / "b", scaled(1.5), **second)
    gate = ("compare", a, b, "--fail-if-slower", "3%")
    result = call(*gate, status=2)
    assert told in " ".join(result.err.split())
    call(*gate, "--allow-different", name)


def test_runs_that_a_gate_does_not_see_are_told(tmp_path: Path) -> None:
    a, b = campaign(tmp_path / "a"), campaign(tmp_path / "b", scaled(1.001))
    campaign_run(b, "1n1g", 6, None, **{**on(V100), "outcome": {"status": "failed"}})
    result = call("compare", a, b, "--fail-if-slower", "3%")
    assert f"{b}: a run failed, is missing or is invalid, and is not compared" in result.err
    assert str(a) not in result.err


def test_two_unknowns_are_told_at_a_gate(tmp_path: Path) -> None:
    for place, rates in (("a", RATES), ("b", scaled(1.001))):
        for repeat, rate in enumerate(rates, start=1):
            write(tmp_path / place / "1n1g" / f"rn50_b128_fp32_{repeat}.log", gluoncv(rate))
    text = call("compare", tmp_path / "a", tmp_path / "b", "--fail-if-slower", "3%").text
    names = "source, parameters, framework version, accelerator"
    assert f"not recorded on either side, so it may differ: {names}" in text


def test_names_that_cannot_be_allowed(tmp_path: Path) -> None:
    a, b = campaign(tmp_path / "a"), campaign(tmp_path / "b")
    told = " ".join(call("compare", a, b, "--allow-different", "colour", status=2).err.split())
    assert "unknown condition 'colour' (expected one of source, parameters" in told
    call("compare", a, "--allow-different", "data", status=2)


# ---- history


def test_history_of_trees_says_that_it_does_not_know_the_gpu() -> None:
    for number in range(10):
        factor = 1.0 if number < 5 else 1.979
        for repeat, rate in enumerate(scaled(factor * (1 + number / 1000)), start=1):
            path = Path(f"t{number}") / "1n1g" / f"rn50_b128_fp32_{repeat}.log"
            write(path, gluoncv(rate))
        call("summarize", f"t{number}", "--history", "h.sqlite")
    out = call("history", "--history", "h.sqlite").text
    assert "not recorded: framework version, accelerator, GPUs in a node, driver" in out
