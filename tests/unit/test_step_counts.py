"""Logs of others whose number of steps is not that of the catalogue: it is the one that the log, or
the user, states. Planned runs and publications keep theirs."""

import csv
import re
from pathlib import Path

import pytest
from command_line import call, output
from make_logs import campaign_run, gluoncv, megatron, torchtitan, write


def summarized(folder: Path, *options: str) -> list[dict[str, str]]:
    """The cases of summary.csv; the logs must be valid."""
    out = folder / "out"
    output("summarize", folder / "logs", "--output-dir", out, *options)
    with (out / "summary.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def refusal(folder: Path, *options: str) -> str:
    done = call("summarize", folder, *options, "--no-history", status=2)
    return " ".join(done.err.split())


def titan(folder: Path, lines: list[str], name: str = "llama8b_b2_bf16_1.log") -> Path:
    return write(folder / "logs" / "1n8g" / name, lines)


def without_header(lines: list[str]) -> list[str]:
    return [line for line in lines if "Trainer is initialized" not in line]


@pytest.mark.parametrize(("steps", "every", "warmup"), [(1000, 10, 167), (30, 1, 5), (20, 10, 4)])
def test_steps_of_torchtitans_header(tmp_path: Path, steps: int, every: int, warmup: int) -> None:
    """The warm-up is the same share as of the catalogue's 60 steps, 10, rounded up."""
    titan(tmp_path, torchtitan(6000, world=8, steps=steps, every=every, warmup=warmup))
    (case,) = summarized(tmp_path)
    assert (case["total_steps"], case["warmup_steps"]) == (str(steps), str(warmup))
    assert float(case["tokens_per_second_median"]) == 8 * 6000


@pytest.mark.parametrize("has_arguments", [True, False])
def test_steps_of_megatrons_lines(tmp_path: Path, has_arguments: bool) -> None:
    """Each line states the number of steps: iteration 20/ 200."""
    log = megatron(200.0, batch=16, length=4096, steps=200)
    if not has_arguments:
        log = [line for line in log if not line.startswith("  train_iters")]
    write(tmp_path / "logs" / "1n8g" / "llama3-8b_b2_bf16_1.log", log)
    (case,) = summarized(tmp_path)
    assert (case["total_steps"], case["warmup_steps"]) == ("200", "40")
    assert float(case["tokens_per_second_median"]) == pytest.approx(16 * 4096 / 0.2)


def test_a_log_that_ends_early_is_refused(tmp_path: Path) -> None:
    lines = torchtitan(6000, world=8, steps=1000)
    titan(
        tmp_path, [line for line in lines if not re.search(r"step: (5[1-9]|[6-9]\d|100)0 ", line)]
    )
    text = refusal(tmp_path / "logs")
    assert "the log ends with step 500 (expected step 1000 of 1000" in text


def test_without_a_header_the_user_states_the_steps(tmp_path: Path) -> None:
    path = titan(tmp_path, without_header(torchtitan(6000, world=8, steps=200, warmup=34)))
    (case,) = summarized(tmp_path)  # as many as it shows
    assert (case["total_steps"], case["warmup_steps"]) == ("200", "34")
    stated = ("--total-steps", "200")
    (case,) = summarized(tmp_path, *stated)
    assert (case["total_steps"], case["warmup_steps"]) == ("200", "34")
    (case,) = summarized(tmp_path, *stated, "--warmup-steps", "100")
    assert (case["total_steps"], case["warmup_steps"]) == ("200", "100")
    (path.parents[1] / "mapping.yml").write_text("logs:\n  '*.log': {total_steps: 200}\n")
    (case,) = summarized(tmp_path)
    assert (case["total_steps"], case["warmup_steps"]) == ("200", "34")


def test_a_log_that_contradicts_the_stated_steps_is_refused(tmp_path: Path) -> None:
    titan(tmp_path, torchtitan(6000, world=8, steps=200))
    text = refusal(tmp_path / "logs", "--total-steps", "100")
    assert "the number of steps contradicts" in text
    assert "(expected 100, found 200)" in text


def test_a_stated_warm_up_keeps_the_steps_of_the_log(tmp_path: Path) -> None:
    titan(tmp_path, torchtitan(6000, world=8, steps=200, warmup=100))
    (case,) = summarized(tmp_path, "--warmup-steps", "100")
    assert (case["total_steps"], case["warmup_steps"]) == ("200", "100")
    assert float(case["tokens_per_second_median"]) == 8 * 6000


def test_logs_of_other_lengths_are_no_repeats(tmp_path: Path) -> None:
    titan(tmp_path, torchtitan(6000, world=8, steps=60))
    titan(tmp_path, torchtitan(6000, world=8, steps=120), "llama8b_b2_bf16_2.log")
    assert [case["repeats"] for case in summarized(tmp_path)] == ["1", "1"]


def test_planned_runs_keep_their_steps(tmp_path: Path) -> None:
    planned = {"workload": "pytorch-llama", "model": "llama-8b", "framework": "pytorch"}
    planned |= {"precision": "bf16", "log_format": "torchtitan", "batch_size_per_device": 2}
    lines = torchtitan(6000, steps=120)
    campaign_run(tmp_path, "1n1g", 1, lines, **planned, total_steps=60, warmup_steps=10)
    text = refusal(tmp_path)
    assert "the number of steps contradicts the calculation rule (expected 60, found 120)" in text
    (log,) = tmp_path.glob("runs/*/*/*.log")
    log.write_text("\n".join(without_header(lines)) + "\n")
    text = refusal(tmp_path)
    assert "the log has more steps than the calculation rule" in text
    assert "--total-steps" not in text


def test_publications_keep_their_steps(tmp_path: Path) -> None:
    lines = gluoncv(384.0, steps=240)
    lines[1] = lines[1].replace("log_interval=1", "log_interval=1, iterations=240")
    write(tmp_path / "1n1g" / "rn50_b128_fp32_1.log", lines)
    assert "the number of steps contradicts the calculation rule" in refusal(tmp_path)


def test_a_run_that_ended_early_has_the_stated_steps(tmp_path: Path) -> None:
    lines = torchtitan(6000, world=8, steps=200)
    cut = next(n for n, line in enumerate(lines) if "step: 110 " in line)
    titan(tmp_path, lines[:cut])
    assert "state its steps: --total-steps 100" in refusal(tmp_path / "logs")
    (case,) = summarized(tmp_path, "--total-steps", "100")
    assert (case["total_steps"], float(case["tokens_per_second_median"])) == ("100", 8 * 6000)
    assert "the log ends with step 100" in refusal(tmp_path / "logs", "--total-steps", "150")
