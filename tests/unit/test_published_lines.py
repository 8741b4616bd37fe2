"""The estimator of PLSC's published numbers, which averages lines, and comparisons by it."""

import re
from pathlib import Path
from statistics import fmean

import pytest
from make_logs import published, write

from dlperf_runner.catalog.published_numbers import load_rule
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.compare.conditions import read_conditions
from dlperf_runner.compare.published import compare_published
from dlperf_runner.core.case import Topology
from dlperf_runner.core.frame import records
from dlperf_runner.report.compare_text import render_published
from dlperf_runner.results.load import Results, load_results
from dlperf_runner.stats.notes import case_notes
from dlperf_runner.stats.summary import summarize

TOPOLOGIES = ("1n1g", "1n4g", "1n8g", "2n8g", "4n8g")
RUNS = [run for run in published("published_runs") if run["source"] == "paddle-plsc-arcface.md"]
METRIC = "samples_per_second"


def node_log(
    topology: str, speed: float, *, every: int = 10, other: float = 1.5, trainers: int = 0
) -> list[str]:
    """The log of the first node: `speed`, a little more or less from line to line, in the lines
    that the published script averages, and `other` in the rest."""
    of = Topology.parse(topology)
    counted = range(50 // 10 * of.nodes, 150 // 10 * of.nodes)
    stamp = "INFO 2021-03-12 10:00:00,000 entry.py:203]"
    world = trainers or of.world_size
    head = [f"{stamp} trainer_id: {k}, num_trainers: {world}" for k in range(of.gpus_per_node)]
    head.append(f"{stamp} Set log period to {every}.")
    lines = []
    for batch in range(0, 151, every):
        for _ in range(of.gpus_per_node):
            near = speed + (0.25 if len(lines) % 2 else -0.25)
            rate = near if len(lines) in counted else other
            lines.append(f"{stamp} Pass:0 batch:{batch} lr:0.1 loss:40.{batch:03d} qps:{rate:.2f}")
    return head + lines


def by_script(lines: list[str], nodes: int) -> float:
    """What extract_paddle_logs.py of Oneflow-Inc/DLPerf a057d7f computes from a log, unrounded."""
    rates = [float(re.findall(r" qps:([0-9]+\.[0-9]+)", li)[0]) for li in lines if "Pass:0 b" in li]
    return fmean(rates[50 // 10 * nodes : 150 // 10 * nodes])


def load(directory: Path, topology: str, lines: list[str], repeat: int = 1) -> Results:
    write(directory / "bz128" / topology / f"r50_b128_fp32_{repeat}.log", lines)
    return load_results([directory], jobs=1)


def metrics(results: Results) -> dict[str, float]:
    assert results.problems == []
    return results.frame.dropna(subset="value").set_index("metric")["value"].to_dict()


@pytest.mark.parametrize("topology", TOPOLOGIES)
def test_published_script_and_own_estimator_are_both_reported(
    tmp_path: Path, topology: str
) -> None:
    lines = node_log(topology, 400.0, other=300.0)
    found = metrics(load(tmp_path, topology, lines))
    nodes = Topology.parse(topology).nodes
    assert found[f"{METRIC}_mean_of_lines"] == by_script(lines, nodes) == 400.0
    # The workload's own estimator: the 100 iterations after batch 50, the lines of 60 to 150.
    own = [
        float(line.rpartition(":")[2])
        for line in lines
        if (batch := re.search(r"batch:(\d+)", line)) and 60 <= int(batch[1]) <= 150
    ]
    assert found[METRIC] == pytest.approx(fmean(own), rel=1e-12)


@pytest.mark.parametrize(
    ("topology", "lines", "rate"),
    [
        ("1n4g", node_log("1n4g", 400.0, every=1, other=300.0), 300.0),
        # One trainer on each of four nodes prints 16 lines; the script takes 21 to 60.
        ("4n1g", node_log("4n1g", 400.0, other=300.0), 300.0),
        # One of several trainers prints, as with the builtin source: lines 6 to 15 of 8 trainers
        # are of batches 0 and 10, those of one are of batches 50 to 140.
        # The own estimator has those of 60 to 150: 5 of 399.75, 4 of 400.25 and one of 1.5.
        ("1n8g", node_log("1n1g", 400.0, trainers=8), 360.125),
    ],
)
def test_no_published_estimator_where_the_script_would_average_other_lines(
    tmp_path: Path, topology: str, lines: list[str], rate: float
) -> None:
    found = metrics(load(tmp_path, topology, lines))
    assert found[METRIC] == rate
    assert not {f"{METRIC}_mean_of_lines", "warmup_lines"} & found.keys()


def test_a_note_counts_the_lines_of_the_warmup(tmp_path: Path) -> None:
    for topology in TOPOLOGIES:
        results = load(tmp_path, topology, node_log(topology, 400.0, other=300.0))
    notes = " ".join(case_notes(results.frame, records(summarize(results.frame))))
    # Of one trainer, the line of batch 50, which covers the batches 41 to 50. Of 4 nodes with 8
    # trainers each, lines 21 to 60: 4 of batch 20, 8 each of 30, 40 and 50, and 12 later ones.
    assert "mean_of_lines, the published estimator, counts lines that begin in the warm-up" in notes
    assert "1n1g 1, 1n4g 10, 1n8g 10, 2n8g 20, 4n8g 28" in notes


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    """Logs from which the published script computes the published runs. Their other lines are 10 %
    faster."""
    directory = tmp_path_factory.mktemp("logs")
    for run in RUNS:
        value = float(run["samples_per_second"])
        lines = node_log(run["topology"], value, other=1.1 * value)
        found = load(directory, run["topology"], lines, int(run["repeat"]))
    return found


def test_publication_is_compared_by_its_own_estimator(results: Results) -> None:
    table = compare_published(results.frame, assume=True)
    cases = {f"{row['nodes']}n{row['gpus_per_node']}g": row for row in table}
    assert list(cases) == list(TOPOLOGIES)
    for case in cases.values():
        assert case["estimator"] == "mean_of_lines"
        assert round(case["mine"], 2) == case["published"]
        assert (case["repeats"], case["verdict"]) == (5, "reproduced")
        assert "estimator" not in (case["noted"] or "")
    text = " ".join(render_published(table, 0.05).split())
    assert "throughput by mean_of_lines, as published, not by mean_of_rates" in text


@pytest.mark.parametrize(
    ("noise", "noted"),
    [("fresh", []), ("repeated", ["repeated, fresh"]), ("one batch", ["one batch, fresh"])],
)
def test_a_log_without_a_record_states_how_the_noise_was_made(
    tmp_path: Path, noise: str, noted: list[str]
) -> None:
    lines = [f"Set noise to {noise}.", *node_log("1n1g", 397.78)]
    found = load(tmp_path, "1n1g", lines)
    conditions = read_conditions(found.counted, found.models, load_rule())
    (case,) = compare_published(found.frame, conditions)
    assert re.findall(r"noise \((.*?)\)", case["noted"]) == noted


def test_a_run_without_the_published_estimator_is_compared_by_its_own(results: Results) -> None:
    frame = results.frame
    lost = (frame["metric"] == f"{METRIC}_mean_of_lines") & (frame["repeat"] == 5)
    for case in compare_published(frame[~lost], assume=True):
        assert (case["estimator"], case["by"], case["repeats"]) == ("mean_of_rates", None, 5)
        assert "estimator (mean_of_rates, mean_of_lines)" in case["noted"]


def test_campaigns_print_at_the_published_interval() -> None:
    workload = load_catalog().workloads["paddle-arcface"]
    assert workload.rule.log_every == workload.parameters["log_period"] == 10
    for source in (workload.sources.builtin, workload.sources.upstream):
        assert source is not None
        assert source.argv[source.argv.index("--log-period") + 1] == "{log_period}"
