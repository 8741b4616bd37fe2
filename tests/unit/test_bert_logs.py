"""NVIDIA's own BERT logs, whose steps have times and no rates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bert_logs import RULE, bert
from command_line import call
from make_logs import write
from measured_logs import run
from read_logs import TAG, read, together

from dlperf_runner.core.errors import UserError
from dlperf_runner.logs import LineError, detect

FORM = "dllogger_bert"
approx = pytest.approx


def content(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def refused(lines: list[str]) -> str:
    with pytest.raises(LineError) as caught:
        read(FORM, content(lines))
    return str(caught.value)


@pytest.mark.parametrize("is_old", [False, True])
@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("accumulation", [1, 8])
def test_rates_follow_from_times(is_old: bool, as_json: bool, accumulation: int) -> None:
    lines = bert(0.25, world=8, accumulation=accumulation, as_json=as_json, is_old=is_old)
    assert getattr(detect([content(lines).encode()]), "name", None) == FORM
    headers, steps = read(FORM, content(lines))
    assert [step.step for step in steps] == list(range(1, 100))
    assert [step.samples_per_second for step in steps] == approx([4 / 3] * 20 + [4] * 79)
    assert [step.loss for step in steps[:2]] == [9.495 if is_old else None, 9.49]
    assert lines[steps[0].line - 1].count("average_loss") == 1
    stated = together(headers)
    assert (stated["world_size"], stated["total_steps"]) == (8, 99)
    assert (stated["network"], stated["batch_size_per_device"]) == ("bert-large", 128)
    expected = {"accumulation_steps": str(accumulation), "sequence_length": "128"}
    assert stated["parameters"] == expected


def test_lines_every_few_steps() -> None:
    lines = bert(0.25, world=4, steps=105, every=10)
    headers, steps = read(FORM, content(lines))
    assert [step.step for step in steps] == list(range(10, 101, 10))
    assert steps[-1].samples_per_second == approx(4)
    assert together(headers)["world_size"] == 4
    unseen = bert(0.25, world=4, steps=105, every=10, skipped=(104, 105))
    assert together(read(FORM, content(unseen))[0])["world_size"] == 4
    # 99 devices and 102 steps, or 98 devices and 103 steps, of which 4 do not count.
    unclear = bert(0.25, world=99, steps=100, every=10, skipped=(95, 101))
    assert "world_size" not in together(read(FORM, content(unclear))[0])


def test_tags_and_progress_bars_are_no_part_of_a_line() -> None:
    lines = [f"Iteration:   7%|▋ | 78/1147 [00:14<03:10]{TAG}{line}" for line in bert(0.25)]
    assert read(FORM, content(lines))[1][-1].samples_per_second == approx(4)


def changed(old: str, new: str) -> list[str]:
    return [line.replace(old, new) for line in bert(0.25)]


@pytest.mark.parametrize("is_old", [False, True])
def test_what_is_not_one_whole_run_is_refused(is_old: bool) -> None:
    lines = bert(0.25, is_old=is_old)
    for at in (0, 2, 3, 30, len(lines) - 3, len(lines) - 2, len(lines) - 1):
        assert refused(lines[:at] + lines[at + 1 :])
    assert "no whole training" in refused(lines[:50])
    assert "the beginning of the log is missing" in refused(lines[30:])
    assert "starts a second time" in refused(lines + lines)
    assert "a step follows the last one" in refused(lines + lines[4:])
    stopped = bert(0.25, is_old=is_old, max_steps=200.0, steps_this_run=200.0)
    assert "the training ended early (expected step 200" in refused(stopped)


RESUMED = [
    line.replace(f"Iteration: {n - 3} ", f"Iteration: {n + 497} ")
    for n, line in enumerate(bert(0.25))
]


@pytest.mark.parametrize(
    ("lines", "problem"),
    [
        (RESUMED, "was the run resumed? (expected 1 with the steps"),
        (bert(0.25, cuda_graphs=True), "with CUDA graphs"),
        (bert(0.25, log_freq=0.0), "log_freq is not a positive integer"),
        (changed("batch_size_per_gpu : 128", "batch_size_per_gpu : 120"), "a whole number of dev"),
        (changed("raw_train_time : 3", "raw_train_time : 4"), "contradicts its time, batch size"),
        (bert(0.25, phase2=True), "a whole number of devices"),
        (bert(-0.25), "the time is not after that of the line before"),
    ],
)
def test_what_contradicts_itself_is_refused(lines: list[str], problem: str) -> None:
    assert problem in refused(lines)


def test_settings_that_contradict_what_is_expected_are_refused() -> None:
    with pytest.raises(UserError, match="the world size contradicts"):
        run(FORM, bert(0.25, world=4), RULE, "1n8g", "fp32", batch=128)
    with pytest.raises(UserError, match="the batch size contradicts line 1"):
        run(FORM, bert(0.25, train_batch_size=64), RULE, "1n1g", "fp32", batch=128)


# Precision, batch size, sequence length, topology, accumulation steps, published sequences/s.
PUBLISHED = [
    ("amp", 256, 128, "1n1g", 1, 580),
    ("tf32", 128, 128, "1n8g", 64, 2486),
    ("amp", 256, 128, "32n8g", 1, 138294),
    ("tf32", 16, 512, "1n8g", 1, 860),
    ("tf32", 16, 512, "32n8g", 8, 21298),
    ("amp", 32, 512, "4n8g", 32, 6464),
]


def written(logs: Path, case: tuple[Any, ...]) -> None:
    """Six logs of a case, in phase 2 if the sequences are long, 0.1 % apart."""
    precision, batch, length, topology, accumulation, speed = case
    nodes, devices = map(int, topology.removesuffix("g").split("n"))
    options: dict[str, Any] = {"fp16": precision == "amp", "max_seq_length": length, "steps": 121}
    options |= {"batch": batch, "world": nodes * devices, "accumulation": accumulation}
    if length == 512:
        options |= {"phase2": True, "left_out": 50}
    for repeat in range(1, 7):
        seconds = nodes * devices * batch * accumulation / speed * (1 + repeat / 1000)
        lines = bert(seconds, as_json=repeat > 3, **options)
        write(logs / topology / f"bertlarge_b{batch}_{precision}_{repeat}.log", lines)


def compared(logs: Path, *options: str) -> list[dict[str, Any]]:
    """Those on the most nodes first."""
    cases = call("compare", logs, *options, "--json").document["cases"]
    return sorted(cases, key=lambda row: -row["nodes"])


A100 = ("--accelerator", "NVIDIA A100-SXM4-80GB", "--condition", "data=real")


def test_they_are_compared_with_what_nvidia_published_of_this_program(tmp_path: Path) -> None:
    for case in PUBLISHED:
        written(tmp_path, case)
    rows = compared(tmp_path, *A100)
    names = ("precision", "batch_size_per_device", "nodes", "gpus_per_node", "published")
    found = sorted(tuple(row[name] for name in names) for row in rows)
    assert found == sorted(
        (precision, batch, *map(int, topology[:-1].split("n")), speed)
        for precision, batch, _, topology, _, speed in PUBLISHED
    )
    assert {row["report"] for row in rows} == {"nvidia-pytorch-bert-large"}
    assert {row["verdict"] for row in rows} == {"reproduced"}
    assert all("accumulation" not in (row["noted"] or "") for row in rows if row["nodes"] > 1)


def test_other_sequence_lengths_precisions_and_batches_are_not_compared(tmp_path: Path) -> None:
    written(tmp_path, ("amp", 32, 128, "4n8g", 32, 6464))
    written(tmp_path, ("amp", 32, 512, "3n8g", 32, 6464))
    other, unpublished = compared(tmp_path, *A100)
    assert (other["verdict"], other["factors"]) == ("not comparable", "sequence length (128, 512)")
    assert unpublished["verdict"] == "not published"
    assert unpublished["factors"].startswith("topology (3n8g; published: 1n1g, 1n8g, 2n8g")
    (known, _) = compared(tmp_path)
    assert "accelerator (unknown, A100-SXM4-80GB)" in known["factors"]
    assert "data (unknown, real)" in known["factors"]


def test_a_clock_that_was_set_during_the_run_is_noticed(tmp_path: Path) -> None:
    """By an hour, as at the beginning of summer time; the other run's repeat is not missing."""
    lines = bert(0.25)
    late = [line.replace(" 15:17:", " 16:17:") for line in lines]
    assert late[0] == lines[0]
    assert "was a clock set?" in refused(late)
    for repeat, text in enumerate((lines, late), start=1):
        write(tmp_path / "logs" / "1n1g" / f"bertlarge_b128_tf32_{repeat}.log", text)
    done = call("summarize", tmp_path / "logs", "--output-dir", tmp_path / "out", status=2)
    assert "missing repeat" not in done.both
