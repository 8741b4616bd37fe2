"""Logs of others whose number of steps is not that of the catalogue: it is the one that the log, or
the user, states. Planned runs and publications keep theirs."""

import re
from pathlib import Path

import pytest
from command_line import call
from make_logs import campaign_run, dllogger, dllogger_pytorch, gluoncv, megatron, torchtitan, write
from summaries import printed_and_cases


def refusal(folder: Path, *options: str) -> str:
    done = call("summarize", folder, *options, "--no-history", status=2)
    return " ".join(done.err.split())


LLAMA = "llama8b_b2_bf16_1.log"


def titan(folder: Path, lines: list[str], name: str = LLAMA) -> None:
    write(folder / "logs" / "1n8g" / name, lines)


def without_header(lines: list[str]) -> list[str]:
    return [line for line in lines if "Trainer is initialized" not in line]


def cut(lines: list[str], step: int) -> list[str]:
    return lines[: next(n for n, line in enumerate(lines) if f"step: {step} " in line)]


TITAN_200 = torchtitan(6000, world=8, steps=200, warmup=34)
HALF_WARM = torchtitan(6000, world=8, steps=200, warmup=100)
EARLY = cut(torchtitan(6000, world=8, steps=200), 110)
MEGATRON_200 = megatron(200.0, batch=16, length=4096, steps=200)
ONLY_ITERATIONS = [line for line in MEGATRON_200 if "train_iters" not in line[:13]]
LLAMA3 = "llama3-8b_b2_bf16_1.log"  # of Megatron
RATES = {LLAMA: 8 * 6000, LLAMA3: 16 * 4096 / 0.2}
MAPPING = "logs:\n  '*.log': {total_steps: 200}\n"


@pytest.mark.parametrize(
    ("name", "lines", "options", "steps", "warmup"),
    [
        # The warm-up is the same share as of the catalogue's 60 steps, 10, rounded up.
        (LLAMA, torchtitan(6000, world=8, steps=1000, warmup=167), "", "1000", "167"),
        (LLAMA, torchtitan(6000, world=8, steps=30, every=1, warmup=5), "", "30", "5"),
        (LLAMA, torchtitan(6000, world=8, steps=20, warmup=4), "", "20", "4"),
        # Each line states the number of steps: iteration 20/ 200.
        (LLAMA3, MEGATRON_200, "", "200", "40"),
        (LLAMA3, ONLY_ITERATIONS, "", "200", "40"),
        # Without a header there are as many as it shows, or as the user states.
        (LLAMA, without_header(TITAN_200), "", "200", "34"),
        (LLAMA, without_header(TITAN_200), "--total-steps=200", "200", "34"),
        (LLAMA, without_header(TITAN_200), "--total-steps=200 --warmup-steps=100", "200", "100"),
        (LLAMA, without_header(TITAN_200), MAPPING, "200", "34"),
        (LLAMA, HALF_WARM, "--warmup-steps=100", "200", "100"),
        # A run that ended early.
        (LLAMA, EARLY, "--total-steps=100", "100", "17"),
    ],
)
def test_steps_that_a_log_or_the_user_states(
    tmp_path: Path, name: str, lines: list[str], options: str, steps: str, warmup: str
) -> None:
    titan(tmp_path, lines, name)
    if options == MAPPING:
        (tmp_path / "logs" / "mapping.yml").write_text(options)
    words = [] if options == MAPPING else options.split()
    _, (case,) = printed_and_cases(tmp_path / "logs", *words)
    assert (case["total_steps"], case["warmup_steps"]) == (steps, warmup)
    assert float(case["tokens_per_second_median"]) == pytest.approx(RATES[name])


@pytest.mark.parametrize(
    ("lines", "options", "words"),
    [
        (
            *(cut(torchtitan(6000, world=8, steps=1000), 510), ""),
            "the log ends with step 500 (expected step 1000 of 1000",
        ),
        (EARLY, "", "state its steps: --total-steps 100"),
        (EARLY, "--total-steps=150", "the log ends with step 100"),
        (TITAN_200, "--total-steps=100", "steps contradicts | expected 100, found 200"),
    ],
)  # fmt: skip
def test_a_log_that_ends_early_or_contradicts_the_stated_steps_is_refused(
    tmp_path: Path, lines: list[str], options: str, words: str
) -> None:
    titan(tmp_path, lines)
    text = refusal(tmp_path / "logs", *options.split())
    assert all(word in text for word in words.split(" | "))


def test_another_warmup_in_the_log_is_refused_with_the_option_that_reads_it(
    tmp_path: Path,
) -> None:
    lines = dllogger(2890.0, 2, amp=True, final=2890.0, mode="train")
    lines = [line.replace("warmup_steps : 200", "warmup_steps : 100") for line in lines]
    lines = [re.sub(r"\(0, (\d+)\)", lambda m: f"(0, {int(m[1]) - 100})", n) for n in lines]
    write(tmp_path / "logs" / "1n2g" / "rn50_b256_amp_1.log", lines)
    option = re.search(r"--total-steps \d+", refusal(tmp_path / "logs"))
    assert option is not None
    _, (case,) = printed_and_cases(tmp_path / "logs", *option[0].split())
    assert (case["total_steps"], case["warmup_steps"]) == ("391", "100")


@pytest.mark.parametrize(("missing", "status"), [(1, 0), (2, 2)])
def test_the_last_step_may_have_no_line(tmp_path: Path, missing: int, status: int) -> None:
    """NVIDIA's ConvNets leave their loop in step 100, with --prof 100, before they print it."""
    options, *lines = dllogger_pytorch(2500.0, world=8)
    steps = [line for line in lines if "Iteration" in line][:-missing]
    write(tmp_path / "logs" / "1n8g" / "rn50_b256_amp_1.log", [options, *steps])
    done = call("summarize", tmp_path / "logs", "--no-history", status=status)
    assert ("the log ends with step 80 (expected step 90 of 100" in done.err) == (status == 2)


def test_logs_of_other_lengths_are_no_repeats(tmp_path: Path) -> None:
    for repeat, steps in ((1, 60), (2, 120)):
        titan(tmp_path, torchtitan(6000, world=8, steps=steps), f"llama8b_b2_bf16_{repeat}.log")
    _, cases = printed_and_cases(tmp_path / "logs")
    assert [case["repeats"] for case in cases] == ["1", "1"]


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
