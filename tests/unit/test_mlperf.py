"""Result logs of MLPerf Training: one run, the result of several, and a whole round."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import fmean

import pytest
from command_line import call
from csv_tables import table
from damaged_lines import damaged
from hypothesis import given, settings
from hypothesis import strategies as st
from make_logs import write
from mlperf_rounds import event, of_epochs, result_log, write_result
from read_logs import pieces

from dlperf_runner.core.errors import UserError
from dlperf_runner.logs import LineError, mllog
from dlperf_runner.mlperf import round as mlperf_round
from dlperf_runner.mlperf.round import (
    MlperfResult,
    MlperfRun,
    Round,
    measure_run,
    olympic_mean,
    read_round,
    result_logs,
)


def measured(content: list[str] | bytes, size: int | None = None) -> MlperfRun:
    data = content if isinstance(content, bytes) else "\n".join(content) + "\n"
    return measure_run(mllog.read(pieces(data, size)), "result_0.txt")


def read_below(directory: Path, *, consecutive: bool = False) -> Round:
    return read_round(result_logs(directory), directory.resolve(), consecutive=consecutive)


def only(root: Path) -> MlperfResult:
    (result,) = read_below(root).results
    return result


# ---- a run


@pytest.mark.parametrize("counts", ["cumulative", "of the block", "at its start"])
def test_samples_are_counted_between_evaluations(counts: str) -> None:
    run = measured(result_log(820.0, counts=counts))
    assert (run.time_to_train_s, run.status) == (820.0, "success")
    assert run.samples_per_second == {"blocks": 2 * 12288 / 790}
    assert (run.evaluations, run.quality, run.sequence_length) == (2, 3.2, 8192)
    # Without the first two: 5.0, 0.5, [0.5, 0.5, 0.5, 5.0, 0.5, 0.5, 0.5, 0.5]
    assert run.step_times["median"] == 0.5
    assert run.step_times["p99"] == pytest.approx(0.5 + 0.93 * 4.5)


def with_seconds(line: str) -> str:
    head, mark, text = line.partition(":::MLLOG ")
    document = json.loads(text)
    seconds = document.pop("time_ms") / 1000
    if "train_step_time" not in text:  # Alibaba printed none
        document = dict(reversed(document.items()))
    return f"{head}{mark}{json.dumps({**document, 'time_s': seconds})}"


def of_v06(line: str) -> str:
    """The line as v0.6 has it, partly with the single quotes of Intel's."""
    document = json.loads(line.partition(":::MLLOG ")[2])
    value, metadata = json.dumps(document["value"]), repr(document["metadata"])
    content = f'{{"value": {value}, "metadata": {metadata}}}'
    return f":::MLL {document['time_ms'] / 1000:.9f} {document['key']}: {content}"


FIRST, *REST = WHOLE = result_log(820.0)


@pytest.mark.parametrize(
    "content",
    [
        [*WHOLE, event(10**7, "eval_accuracy", 9.9), event(10**7, "block_stop", samples_count=1)],
        [*WHOLE, event(0, "run_start")],  # of another rank
        "\n".join(f"{line}Epoch 1: 50%" for line in WHOLE).encode() + b"\n 45%|\xe2\x96\n",
        [*REST, re.sub(r'"time_ms": \d+', '"time_ms": 0', FIRST)],  # v0.7 of Google
        [*map(with_seconds, WHOLE)],  # v0.7 of Alibaba, in another order of keys
        [line if "tracked_stats" in line else of_v06(line) for line in WHOLE],
    ],
)
def test_the_same_run_may_be_written_otherwise(content: list[str] | bytes) -> None:
    assert measured(content) == measured(WHOLE)


OTHER_BATCH = [line.replace("global_batch", "train_batch") for line in WHOLE]
LONG = result_log(600.0)  # its blocks take 400 and 390 s
AGAIN = event(900_000, "run_start")
LATER = [re.sub(r'(?<="time_ms": )\d+', lambda m: str(int(m[0]) + 900_000), line) for line in WHOLE]


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (REST, "result_0.txt: the log does not say what ran (expected submission_benchmark"),
        (REST, "found no benchmark, 820000 ms"),
        (LONG, "the blocks last longer than the run"),
        ([line.replace("block_st", "epoch_st") for line in LONG], "the epochs last longer than"),
        ([*WHOLE, AGAIN], "another run begins in the same log"),
        ([*LATER, *WHOLE], "another run ends in the same log"),
        ([*WHOLE[:-1], AGAIN, WHOLE[-1]], "another run begins in the same log"),  # not ended
        ([*WHOLE[:-1], event(1, "eval_accuracy", {}), WHOLE[-1]], "eval_accuracy: no value"),
    ],
)
def test_a_log_that_is_not_of_one_run_is_refused(lines: list[str], told: str) -> None:
    with pytest.raises((UserError, LineError)) as caught:
        measured(lines)
    assert told in str(caught.value)


def test_minigo_states_its_batch_by_another_name() -> None:
    assert measured(OTHER_BATCH).global_batch_size is None  # v1.1: dlrm
    run = measured([line.replace("llama31_8b", "minigo") for line in OTHER_BATCH])
    assert (run.time_to_train_s, run.global_batch_size) == (820.0, 32)


@pytest.mark.parametrize(
    ("old", "new", "note"),
    [
        (r"(\"time_ms\": \d+)", r"\g<1>.410645", None),  # v0.7: Intel
        (r"\"metadata\": ", r'"metadata":  ', None),  # v2.0: H3C
        # v0.7: minigo
        (
            *(r"(.*\"train_samples\", \"value\": )\d+(.*)", r"\g<0>\n\g<1>59398\2"),
            "1281167 and 59398",
        ),
        (r"(\"train_samples\", \"value\": )(\d+)", r"\1[\2]", "is not stated"),  # v1.1: Graphcore
    ],
)
def test_what_some_submitters_print_otherwise(old: str, new: str, note: str | None) -> None:
    """A note says why a rate is unknown."""
    lines = of_epochs(615.0)
    others = [re.sub(old, new, line) for line in lines]
    assert others != lines
    assert (run := measured(others)).time_to_train_s == 615
    assert run.samples_per_second == ({} if note else measured(lines).samples_per_second)
    assert run.throughput_note == note or str(note) in str(run.throughput_note)


@pytest.mark.parametrize(
    ("lost", "gap"),
    [
        ("block_start", "line 11: the block has no start"),
        ("block_stop", "line 6: the block has no"),
    ],
)
def test_blocks_of_older_rounds_that_are_not_whole_cost_only_their_rate(
    lost: str, gap: str
) -> None:
    lines = result_log(830)
    lines.remove(next(line for line in lines if lost in line))
    run = measured(lines)
    assert (run.time_to_train_s, run.samples_per_second.get("blocks")) == (830, None)
    assert str(run.throughput_note).startswith(gap)


def test_one_run_may_have_several_targets() -> None:
    both = {"BBOX": "0.3771", "SEGM": "0.3392"}
    for value in (both, {"accuracy": both}, [0.3771, 0.3392]):  # the others: v0.6
        lines = [*result_log(830)[:-1], event(829_000, "eval_accuracy", value), result_log(830)[-1]]
        assert measured(lines).quality == 0.3392


def test_step_times_of_v6_have_no_step_and_some_are_none() -> None:
    """The first after an evaluation took no step, and a block ends with a mean."""
    lines = [re.sub(r', "step": [\d.]+', "", line) for line in result_log(830)]
    expected = measured(lines).step_times
    at = next(n for n, line in enumerate(lines) if "block_stop" in line)
    mean = event(1, "tracked_stats", {"train_step_time": 77.0}, samples_count=1)
    none = {"train_step_time": 0.0055, "reduced_train_loss": 4.9}
    lines[at:at] = [mean, event(2, "tracked_stats", none, samples_count=1)]
    assert measured(lines).step_times == expected == measured(result_log(830)).step_times


def test_systems_of_v06_describe_their_nodes_in_a_list(tmp_path: Path) -> None:
    write_result(tmp_path, [[*map(of_v06, result_log(8200.0 + n))] for n in range(10)])
    (path,) = tmp_path.rglob("systems/*.json")
    nodes = {"num_nodes": "24", "num_accelerators": 8, "accelerator": "V100"}
    path.write_text(json.dumps({"nodes": [nodes]}))
    result = only(tmp_path)
    assert (result.nodes, result.accelerators_per_node, result.accelerator) == (24, 8, "V100")
    path.write_text("org: NVIDIA")  # theirs are no JSON
    assert only(tmp_path).time_to_train_min == result.time_to_train_min
    (note,) = read_below(tmp_path).notes
    assert f"not described in {path.relative_to(tmp_path)}" in note


def test_hpc_has_a_folder_for_each_kind_of_scaling(tmp_path: Path) -> None:
    logs = [[line.replace("llama31_8b", "openfold") for line in WHOLE]] * 10
    folder = write_result(tmp_path, logs, benchmark="openfold")
    strong = folder.parent / "strong"
    strong.mkdir()
    folder.rename(strong / "openfold")
    outcome = read_below(tmp_path)
    assert not outcome.problems
    (result,) = outcome.results
    assert (result.system, result.nodes, result.time_to_train_min) == ("one", 1, 820 / 60)
    shown = call("summarize", strong, "--no-history", "--output-dir", tmp_path / "out").text
    assert "openfold: MLPerf's time to train of 10 runs" in shown
    strong.rename(folder.parent / "weak")
    (problem,) = read_below(tmp_path).problems
    assert problem.problem.startswith("weak scaling of MLPerf HPC has no time to train")


def test_what_a_foreign_log_says_obeys_no_terminal(tmp_path: Path) -> None:
    lines = [line.replace("llama31_8b", r"\u001b[2Jnet") for line in WHOLE]
    folder = write_result(tmp_path, [lines] * 10, benchmark="\x1b[2Jnet")
    for words in (("mlperf", tmp_path), ("summarize", tmp_path, "--no-history")):
        called = call(*words, status=1)
        assert "\x1b" not in called.both
        assert r"\x1b[2Jnet: MLPerf's time to train" in called.text
    deep = event(1, "eval_accuracy").replace("null", "[" * 99_999 + "]" * 99_999)
    write(folder / "result_0.txt", [*WHOLE[:-1], deep, WHOLE[-1]])
    (problem,) = read_below(tmp_path).problems
    assert problem.problem == "the line is not one that mllog prints"


def test_power_is_no_run(tmp_path: Path) -> None:
    folder = write_result(tmp_path, [result_log(8200.0 + n) for n in range(10)])
    write(folder / "power/result_0/node_0.txt", [event(0, "power_reading", 700.0)])
    called = call("summarize", folder, "--json", "--no-history")
    assert "power that a result of MLPerf drew, no run" in called.document["skipped"].values()


@pytest.mark.parametrize("key", ["number_of_nodes", "number of nodes"])
@pytest.mark.parametrize("nodes", [2, 2.0, "2", "2.0"])
def test_systems_may_write_counts_differently(tmp_path: Path, key: str, nodes: object) -> None:
    write_result(tmp_path, [result_log(8200.0 + n) for n in range(10)])
    (path,) = tmp_path.rglob("systems/*.json")
    described = json.loads(path.read_text())
    described.pop("number_of_nodes")
    path.write_text(json.dumps({**described, key: nodes}))
    assert only(tmp_path).nodes == 2


@given(st.integers(1, 300))
@settings(max_examples=30, deadline=None)
def test_pieces_do_not_matter(size: int) -> None:
    assert measured(result_log(820.0), size) == measured(result_log(820.0))


# ---- what train_samples counts, as the published logs have it


@pytest.mark.parametrize(
    ("benchmark", "stated", "batch", "samples", "note"),
    [
        ("resnet", 1281167, 3200, 1281167, None),
        ("resnet", 1277952, 16384, 1277952, None),  # v0.7: without the rest of a batch
        ("rnnt", 278016, 1536, 278016, None),  # without the longest samples
        ("ssd", 117266, 3072, 117266, None),  # v1.1: COCO
        ("ssd", 4572, 256, 1170301, "counts batches"),  # v3.1, v4.0 and v4.1
        ("ssd", 576, 2048, 1170301, "counts batches"),
        ("ssd", 464, 2528, 1170301, "counts batches"),
        ("retinanet", 12191, 96, 1170301, "counts batches"),  # v5.0
        ("retinanet", 1170301, 96, 1170301, None),
        ("maskrcnn", 40000, 96, None, "is 40000, which is neither"),  # planned iterations
        ("resnet", 160000, 2048, None, "is 160000, which is neither"),  # another data set
        ("minigo", 8192, 4096, None, "are not known"),
        ("a_new_one", 1281167, 256, None, "are not known"),
    ],
)
def test_samples_of_an_epoch(
    benchmark: str, stated: int, batch: int, samples: int | None, note: str | None
) -> None:
    run = measured(of_epochs(615.0, benchmark=benchmark, samples=stated, batch=batch))
    expected = (
        {} if samples is None else {"epochs": 2 * samples / 600, "whole_run": 2 * samples / 615}
    )
    assert run.samples_per_second == pytest.approx(expected)
    assert run.throughput_note == note or str(note) in str(run.throughput_note)


@pytest.mark.parametrize(
    ("benchmark", "trained", "expected"),
    [
        # v3.1 to v5.0: epoch_num counts samples of bert, whatever train_samples was planned
        ("bert", 2849088, {"epochs": 2849088 / 500, "whole_run": 2849088 / 515}),
        # and tokens of gpt3, 2048 of a sample
        ("gpt3", 1211105280, {"epochs": 591360 / 500, "whole_run": 591360 / 515}),
        ("bert", 1, {}),  # v1.1: epoch_num is that of the epoch
    ],
)
def test_an_epoch_number_may_count_samples_or_tokens(
    benchmark: str, trained: int, expected: dict[str, float]
) -> None:
    lines = [
        event(-1, "submission_benchmark", benchmark),
        event(-1, "global_batch_size", 1024),
        event(-1, "train_samples", 3_600_000),
        event(0, "run_start"),
        event(0, "epoch_start", epoch_num=1),
        event(500_000, "epoch_stop", epoch_num=trained),
        event(510_000, "eval_accuracy", 0.72, epoch_num=trained),
        event(515_000, "run_stop", status="success"),
    ]
    run = measured(lines)
    assert run.samples_per_second == pytest.approx(expected)
    if not expected:
        assert "how many samples were trained" in str(run.throughput_note)


# ---- damage


def test_training_may_begin_before_the_run_and_go_on_beyond_the_stop() -> None:
    """Stable Diffusion is evaluated afterwards; run_stop has the time of the first good state."""
    early = [line for line in of_epochs(600.0) if "epoch_st" not in line]
    early[3:3] = [event(-2, "epoch_start", epoch_num=1)]
    early[-1:-1] = [event(600_000, "epoch_stop", epoch_num=1)]
    assert measured(early).time_to_train_s == 600.0
    run = measured(result_log(400.0))
    assert (run.time_to_train_s, run.samples_per_second) == (400.0, {"blocks": 2 * 12288 / 790})


LOGS = {
    "cumulative": WHOLE,
    "of the block": result_log(820.0, counts="of the block"),
    "at its start": result_log(820.0, counts="at its start"),
}


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("12288", "12288.5", "samples_count is not a whole number"),
        (r'"time_ms": \d', '"time_ms": -', "JSON with time_ms"),  # its first digit became a sign
    ],
)
def test_a_damaged_line_is_told_with_its_number(old: str, new: str, told: str) -> None:
    lines = [re.sub(old, new, line) for line in WHOLE]
    with pytest.raises(LineError, match=told) as caught:
        measured(lines)
    first = next(n for n, line in enumerate(WHOLE, 1) if lines[n - 1] != line)
    assert caught.value.line == first


@settings(max_examples=300, deadline=None)
@given(st.data(), st.sampled_from(sorted(LOGS)))
def test_a_damaged_log_is_refused_or_gives_the_same_throughput(
    data: st.DataObject, name: str
) -> None:
    ways = ("cut", "lose a line", "double", "wrap a line", "overwrite")
    try:
        run = measured(data.draw(damaged(LOGS[name], ways)).encode())
    except (UserError, LineError):
        return
    whole = measured(LOGS[name])
    assert run.time_to_train_s == whole.time_to_train_s
    assert run.samples_per_second in (whole.samples_per_second, {})


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=400))
def test_any_bytes_are_refused(data: bytes) -> None:
    with pytest.raises((UserError, LineError)):
        measured(b":::MLLOG {" + data)


# ---- the result of several runs


def test_olympic_mean() -> None:
    # 10 runs: without 1 and 10, the mean of 2 to 9 is 5.5.
    assert olympic_mean(range(10, 0, -1), failed=0, dropped=1) == 5.5
    # A failed run is the slowest: without 1, the mean of 2 to 9.
    assert olympic_mean(range(1, 10), failed=1, dropped=1) == 5.5
    assert olympic_mean(range(1, 9), failed=2, dropped=1) is None
    # unet3d: 40 runs without the 4 fastest and the 4 slowest
    assert olympic_mean(range(40), failed=0, dropped=4) == fmean(range(4, 36))
    assert olympic_mean([1.0], failed=0, dropped=1) is None


def test_result_of_ten_runs(tmp_path: Path) -> None:
    logs = [result_log(60.0 * minutes) for minutes in range(21, 31)]
    write_result(tmp_path, logs, scaling=1.02)
    result = only(tmp_path)
    assert result.time_to_train_min == pytest.approx(fmean(range(22, 30)) * 1.02)
    assert (result.runs, result.failed, result.runs_needed) == (10, 0, 10)
    assert (result.nodes, result.accelerators_per_node) == (1, 8)
    assert result.samples_per_second == 2 * 12288 / 790
    assert result.tokens_per_second_per_device == pytest.approx(2 * 12288 / 790 * 8192 / 8)
    assert (result.global_batch_size, result.estimator) == (32, "blocks")


def test_a_run_that_did_not_reach_its_target_is_the_slowest(tmp_path: Path) -> None:
    logs = [result_log(60.0 * minutes) for minutes in range(21, 30)]
    write_result(tmp_path, [*logs, result_log(9999.0, status="aborted")])
    found = read_below(tmp_path)
    assert found.results[0].time_to_train_min == pytest.approx(fmean(range(22, 30)))
    assert found.notes == ["NVIDIA/results/one/llama31_8b: 1 of 10 runs did not reach their target"]


def test_too_few_runs_have_no_score(tmp_path: Path) -> None:
    write_result(tmp_path, [result_log(1500.0)] * 9)
    assert only(tmp_path).time_to_train_min is None
    assert only(tmp_path).samples_per_second == 2 * 12288 / 790
    name = "NVIDIA/results/one/llama31_8b: no time to train, because"
    few = "it takes 10 runs, and 9 different ones can be counted"
    assert read_below(tmp_path).notes == [f"{name} {few}"]
    logs = [result_log(1500.0 + n, status="success" if n > 1 else "aborted") for n in range(10)]
    write_result(tmp_path, logs, system="two")
    name = name.replace("one", "two")
    assert (
        read_below(tmp_path).notes[-1] == f"{name} more than 1 of 10 runs failed or cannot be read"
    )


def test_wrong_benchmark_and_system_are_told(tmp_path: Path) -> None:
    folder = write_result(tmp_path, [result_log(1500.0)] * 2, benchmark="llama31_405b")
    assert {problem.problem for problem in read_below(tmp_path).problems} == {
        "the log is of another benchmark than its folder"
    }
    (folder.parents[2] / "systems" / "one.json").unlink()
    found = read_below(tmp_path)
    assert [result.nodes for result in found.results] == [None]
    assert any("unknown without NVIDIA/systems/one.json" in note for note in found.notes)
    with pytest.raises(UserError, match="no MLPerf results found"):
        read_below(tmp_path / "NVIDIA" / "systems")


def test_the_benchmark_of_a_folder_without_its_name_is_that_of_its_logs(tmp_path: Path) -> None:
    folder = write_result(tmp_path, [of_epochs(600.0)] * 5, benchmark="resnet")
    for path in folder.iterdir():
        path.rename(folder.parent / path.name)
    folder.rmdir()
    found = read_below(tmp_path)
    (result,) = found.results
    assert (result.benchmark, result.system, result.nodes) == ("resnet", "one", 1)
    assert result.time_to_train_min == pytest.approx(10.0)
    assert not found.problems
    text = "\n".join(result_log(1500.0, batch=256))
    (folder.parent / "result_4.txt").write_text(text)
    found = read_below(tmp_path)
    assert found.results == []
    assert "different benchmarks" in found.problems[-1].problem
    for path in folder.parent.glob("result_*.txt"):
        path.write_text("")
    assert read_below(tmp_path).results == []


def test_logs_of_runs_below_a_folder_called_results_are_no_round(tmp_path: Path) -> None:
    for number, lines in enumerate([of_epochs(600.0), result_log(1500.0)]):
        path = tmp_path / f"results/mine/run{number}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(lines))
    assert "Runs of MLPerf" in call("summarize", tmp_path).out


def test_throughput_is_by_an_estimator_that_all_runs_have(tmp_path: Path) -> None:
    part = [line for line in of_epochs(500.0, stopped=0.9) if "epoch_st" not in line]
    write_result(tmp_path, [of_epochs(615.0), part], benchmark="resnet")
    result = only(tmp_path)
    assert result.estimator == "whole_run"
    median = (2 * 1281167 / 615 + 0.9 * 1281167 / 500) / 2
    assert result.samples_per_second == pytest.approx(median)


def test_a_throughput_that_is_not_as_stated_has_a_note(tmp_path: Path) -> None:
    logs = [of_epochs(615.0, benchmark="ssd", samples=4572)] * 5
    write_result(tmp_path, logs, benchmark="ssd")
    assert only(tmp_path).samples_per_second == 2 * 1170301 / 600
    text = call("mlperf", tmp_path).text
    assert "All: train_samples counts batches; an epoch is 1170301 samples." in text
    write_result(tmp_path, logs[:1], benchmark="ssd", system="two")
    logs = [of_epochs(615.0, benchmark="ssd", samples=99)]
    write_result(tmp_path, logs, benchmark="ssd", system="three")
    text = call("mlperf", tmp_path, status=1).text
    assert "NVIDIA two, NVIDIA one: train_samples counts batches" in text
    assert "NVIDIA three: train_samples is 99, which is neither" in text


# ---- logs that are not the runs of one result


def test_a_log_five_times_is_one_run(tmp_path: Path) -> None:
    folder = write_result(tmp_path, [of_epochs(615.0)], benchmark="resnet")
    text = (folder / "result_0.txt").read_text(encoding="utf-8")
    for number in range(1, 5):
        # The same lines behind another rank are the same run.
        (folder / f"result_{number}.txt").write_text(text.replace(" 0: ", f" {number}: "))
    found = read_below(tmp_path)
    assert (found.results[0].runs, found.results[0].failed) == (1, 0)
    assert found.results[0].time_to_train_min is None
    (problem,) = found.problems
    assert problem.problem == "several logs are of the same run"
    assert "result_1.txt, result_2.txt, result_3.txt, result_4.txt" in str(problem)
    assert "only result_0.txt counts" in call("mlperf", tmp_path, status=2).both


def test_runs_with_several_batch_sizes_are_no_result(tmp_path: Path) -> None:
    large = [result_log(60.0 * minutes, batch=64) for minutes in range(31, 34)]
    small = [result_log(60.0 * minutes) for minutes in range(21, 31)]
    write_result(tmp_path, [*small, *large])
    found = read_below(tmp_path)
    assert found.results == []
    assert "32 in result_0.txt" in str(found.problems[0])
    assert "--batch-size 32 " in call("mlperf", tmp_path, status=2).both
    out = call("mlperf", tmp_path, "--batch-size", "32", "--json")
    (row,) = out.document["results"]
    assert (row["global_batch_size"], row["runs"]) == (32, 10)
    assert row["time_to_train_min"] == pytest.approx(fmean(range(22, 30)))


def test_more_runs_than_count_have_no_score_without_a_choice(tmp_path: Path) -> None:
    """MLPerf's rules: of M > N runs, the N consecutive ones that are closest to the median."""
    minutes = [20, 21, 22, 23, 24, 90, 91]
    logs = [of_epochs(60.0 * number) for number in minutes]
    write_result(tmp_path, logs, benchmark="resnet")
    found = read_below(tmp_path)
    assert found.results[0].time_to_train_min is None
    assert found.problems[0].problem == "the result has more runs than its score takes"
    assert "--consecutive takes the 5 consecutive ones" in call("mlperf", tmp_path, status=2).both
    # Sets of 5 without their fastest and slowest: 22, 23, and (23 + 24 + 90) / 3. Median: 23.
    chosen = read_below(tmp_path, consecutive=True)
    assert chosen.problems == []
    assert (chosen.results[0].runs, chosen.results[0].time_to_train_min) == (5, 23)


def test_failed_runs_count_in_consecutive_sets(tmp_path: Path) -> None:
    statuses = ["aborted", "aborted", *["success"] * 5]
    logs = [
        of_epochs(60.0 * (20 + number), status=status) for number, status in enumerate(statuses)
    ]
    write_result(tmp_path, logs, benchmark="resnet")
    # The sets have no score (2 of 5 failed), 24 (23, 24 and 25, as the failed one is the slowest),
    # and 24 (23, 24 and 25 of 22 to 26).
    (result,) = read_below(tmp_path, consecutive=True).results
    assert (result.runs, result.failed, result.time_to_train_min) == (4, 1, 24)


def test_unreadable_logs_have_no_place_among_consecutive_ones(tmp_path: Path) -> None:
    folder = write_result(tmp_path, [of_epochs(1200.0)] * 5, benchmark="resnet")
    (folder / "result_9.txt").write_text("")
    problems = read_below(tmp_path, consecutive=True).problems
    assert "remove the logs that cannot be read" in str(problems[-1].hint)


def test_processes_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_result(tmp_path, [result_log(60.0 * minutes) for minutes in range(21, 31)])
    alone = read_below(tmp_path)
    monkeypatch.setattr(mlperf_round, "_MANY", 2)
    assert read_below(tmp_path) == alone


# ---- the command


def test_command_summarises_a_round(tmp_path: Path) -> None:
    write_result(tmp_path, [result_log(1500.0)] * 10)
    write_result(tmp_path, [result_log(900.0)] * 10, system="=two", number_of_nodes=2)
    write_result(tmp_path, [of_epochs(615.0)] * 5, benchmark="resnet", submitter="Dell")
    text = call("mlperf", tmp_path, "--csv", tmp_path / "all.csv").text
    assert "llama31_8b: MLPerf's time to train of 10 runs, in minutes" in text
    assert "| NVIDIA | one | NVIDIA H100-SXM5-80GB | 8 | 32 | 25.000 | 10 | 31.11 |" in text
    rows = {(row["system"], row["benchmark"]): row for row in table(tmp_path / "all.csv")}
    assert set(rows) == {("one", "llama31_8b"), ("'=two", "llama31_8b"), ("one", "resnet")}
    assert rows["one", "resnet"]["tokens_per_second"] == ""
    out = call("mlperf", tmp_path, "--json")
    found = {row["benchmark"]: row for row in out.document["results"]}
    assert found["resnet"]["samples_per_second"] == 2 * 1281167 / 600


# ---- MLCommons' compliance checker

# As mlperf-logging 4.1.68 prints its verdict: on the standard error output, after what it reads.
CHECKER = """
import sys
assert sys.argv[1:5] == ["--usage", "training", "--ruleset", "6.0.0"], sys.argv
print("INFO - Running compliance on file: " + sys.argv[-1], file=sys.stderr)
if "result_1" in sys.argv[-1]:
    print("WARNING -  Required EXACTLY_ONE occurrence of 'opt_name' but found 0", file=sys.stderr)
    print("------------------------------", file=sys.stderr)
    print("Failed checks for eval_accuracy : v['value'] <= 3.3", file=sys.stderr)
    print("ERROR - FAILED", file=sys.stderr)
    sys.exit(1)
if "result_2" in sys.argv[-1]:
    raise MemoryError
print("INFO - SUCCESS", file=sys.stderr)
"""


@pytest.fixture
def checker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site" / "mlperf_logging" / "compliance_checker"
    (package / "training_6.0.0").mkdir(parents=True)
    (package / "training_0.7.0_warn").mkdir()
    for folder in (package, package.parent):
        (folder / "__init__.py").touch()
    (package / "__main__.py").write_text(CHECKER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


def test_without_the_checker_its_package_is_named(tmp_path: Path) -> None:
    write_result(tmp_path, [result_log(800)])
    both = call("mlperf", tmp_path, "--check", "6.0", status=2).both
    assert "mlperf-logging is not installed" in both and "pip install" in both


@pytest.mark.usefixtures("checker")
def test_the_verdict_of_mlcommons_checker_is_shown(tmp_path: Path) -> None:
    place = write_result(tmp_path / "round", [result_log(800 + n) for n in range(3)])
    out = call("mlperf", tmp_path / "round", "--check", "v6.0", status=1)
    assert "1 of 3 logs comply with MLPerf's rules v6.0." in out.text
    lacking = "Required EXACTLY_ONE occurrence of 'opt_name' but found 0, Failed checks for"
    name = place.relative_to(tmp_path / "round") / "result_1.txt"
    assert f"{name}: not compliant: {lacking} eval_accuracy" in out.both
    assert "result_2.txt: not compliant: the checker itself failed: MemoryError" in out.both
    found = call("mlperf", tmp_path / "round", "--check", "6.0", "--json", status=1).document
    assert [len(lacking) for lacking in found["not_compliant"].values()] == [2, 1]
    both = call("mlperf", tmp_path / "round", "--check", "9.0", status=2).both
    assert "mlperf-logging has no such rules" in both and "one of 6.0.0" in both
