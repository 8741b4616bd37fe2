"""Logs of language-model programs: what their examples do not show."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command_line import call
from log_examples import example
from make_logs import write
from other_logs import load
from read_logs import pieces, steps
from whole_logs import WHOLE_LOGS, read_as, read_tree, throughput

from dlperf_runner import logs
from dlperf_runner.stats.summary import summarize

TRAINER = WHOLE_LOGS["hf_trainer/whole"]
DEEPSPEED = WHOLE_LOGS["deepspeed/whole"]


def trained(old: str, new: str) -> str:
    """The log of the Trainer with other words."""
    assert old in TRAINER.text
    return TRAINER.text.replace(old, new)


def test_earlier_trainers_print_steps_per_second_under_the_name_of_samples() -> None:
    content = trained(" 264.51, 'train_steps_per_second': 1.033, 'train_loss': 2.14295,", " 1.033,")
    assert throughput(read_as(TRAINER, content)) == pytest.approx(1.033 * 256)


def test_an_epoch_on_more_devices_has_fewer_steps_and_a_speed_up(tmp_path: Path) -> None:
    for world, rate, total in ((8, 264.51, 50), (16, 502.569, 25)):
        words = {"= 256": f"= {world * 32}", "steps = 50": f"steps = {total}", "264.51": f"{rate}"}
        text = TRAINER.text
        for old, new in words.items():
            text = text.replace(old, new)
        write(tmp_path / f"bert-large_b32_fp16_{world // 8}n8g.log", text.splitlines())
    table = summarize(load(tmp_path).frame).sort_values("world_size")
    assert table["speedup"].tolist() == pytest.approx([1.0, 1.9])


def test_the_json_files_of_a_run_of_the_trainer_are_one_run(tmp_path: Path) -> None:
    for name in ("all_results", "train_results", "trainer_state"):
        line = '    "train_samples_per_second": 264.51,'
        write(tmp_path / f"1n8g/bert-large_bf16/{name}.json", [f'{{ "{name}": 1,', line])
    regex = r"train_samples_per_second\W+(?P<rate>[\d.]+)"
    options = ["--regex", regex, "--unit", "samples", "--rates-are-per", "world", "--no-history"]
    result = call("summarize", str(tmp_path), *options, "--output-dir", str(tmp_path / "out"))
    assert "|        1 |       8 |    264.51 |       - |          - | 1 |" in result.out


def test_repeats_of_other_lengths_are_told(tmp_path: Path) -> None:
    for repeat, total in enumerate((50, 500), 1):
        text = TRAINER.text.replace("steps = 50", f"steps = {total}")
        write(tmp_path / f"bert-large_b32_fp16_1n8g_{repeat}.log", text.splitlines())
    (note,) = [note for note in load(tmp_path).notes if "pooled" in note]
    assert "the runs have 50 and 500 steps" in note


def test_deepspeed_lines_in_a_log_of_the_trainer_are_its_rates_of_steps() -> None:
    final = re.search(r"\{'train_runtime'.*", TRAINER.text)
    assert final is not None
    content = f"{DEEPSPEED.text}{final[0]}\n"
    assert throughput(read_as(DEEPSPEED, content)) == pytest.approx(DEEPSPEED.value)


def test_steps_of_later_epochs_count_whose_batches_begin_anew() -> None:
    """DeepSpeed-Chat begins `micro_step` anew in each epoch, but not `global_step`."""

    def later(match: re.Match[str]) -> str:
        step = int(match[1])
        return match[0] if step < 30 else f"epoch=1/micro_step={step - 20}/global_step={step},"

    content = re.sub(r"epoch=0/micro_step=\d+/global_step=(\d+),", later, DEEPSPEED.text)
    assert "epoch=1/" in content
    assert throughput(read_as(DEEPSPEED, content)) == pytest.approx(DEEPSPEED.value)


@pytest.mark.parametrize(
    "other",
    [
        "Epoch 0: 100%|#####| 40/40 [00:10<00:00, 3.99it/s]\r\n",
        "# Avg bus bandwidth    : 83.256\n",
        "40/40 [==============================] - 2s 40ms/step - loss: 0.5\n",
    ],
)
def test_lines_of_something_else_do_not_hide_those_of_deepspeed(other: str) -> None:
    found = logs.detect(pieces((DEEPSPEED.text + other).encode()))
    assert found is not None and found.name == "deepspeed"


def test_bars_before_that_of_the_training_are_none_of_a_resumed_run() -> None:
    """Of an evaluation with as many batches, and of a data set without examples."""
    total = 50
    bar = "  {}%|#####     | {}/{} [{}<01:00,  5.00it/s]\r".format
    others = bar(0, 0, 0, "00:00") + bar(9, 5, 0, "00:01")
    others += bar(0, 0, total, "00:00") + bar(50, total // 2, total, "00:01")
    begun = bar(0, 0, total, "00:00")
    assert throughput(read_as(TRAINER, f"{others}\n{begun}\n{TRAINER.text}")) == TRAINER.value


def test_means_of_all_steps_give_the_rates_since_the_line_before() -> None:
    """At 10 and 20 steps/s of 10 samples, after the first two steps, which do not count."""
    line = "[timer.py:189:stop] 0/{}, SamplesPerSec={}\n".format
    content = line(10, 100.0) + line(20, 18 / (8 / 100 + 10 / 200)) + line(30, 150.0)
    assert steps("deepspeed", content) == [
        (10, pytest.approx(100)),
        (20, pytest.approx(200)),
        (30, pytest.approx(10 / (28 / 150 - 8 / 100 - 10 / 200))),
    ]


@pytest.mark.parametrize("batch", [12, 60])
def test_tokens_of_a_step_need_no_batch(batch: int) -> None:
    log = WHOLE_LOGS["nanogpt/whole"]
    path = log.path.replace("b60", f"b{batch}")
    results = read_tree({path: log.text.encode()}, options=log.options)
    assert throughput(results) == pytest.approx(log.value)


def test_a_batch_of_nanogpt_may_be_one_of_those_that_a_step_accumulates(tmp_path: Path) -> None:
    log = WHOLE_LOGS["nanogpt/whole"]
    lines = [line for line in log.text.splitlines() if "tokens per iteration" not in line]
    path = write(tmp_path / "gpt2_1n8g_bf16.log", lines)
    words = ("summarize", path, "--batch-size=12", "--sequence-length=1024")
    assert "state it with --accumulation-steps (1 without" in call(*words, status=2).err
    assert "| 1 |" in call(*words, "--accumulation-steps=1").out


def test_a_rate_whose_step_is_missing_is_refused() -> None:
    log = example("olmo_core/wording")
    without = log.data.partition(b"\n")[2]
    with pytest.raises(logs.LineError, match=r"line 2: .* has its step .* a line with \[step="):
        logs.parse(logs.formats()["olmo_core"], pieces(without))


def test_several_ranks_with_steps_of_several_lines() -> None:
    """Each rank's rate belongs to the step that it printed, whoever printed between."""
    content = (
        "[rank0]: [step=2/4,epoch=1]\n[rank1]: [step=2/4,epoch=1]\n"
        "[rank1]:     throughput/device/TPS=11,000\n[rank0]:     throughput/device/TPS=11,001\n"
        "[rank1]: [step=3/4,epoch=1]\n[rank0]: [step=3/4,epoch=1]\n"
        "[rank0]:     throughput/device/TPS=11,002\n[rank1]:     throughput/device/TPS=11,003\n"
    )
    assert steps("olmo_core", content) in (
        [(2, 11001.0), (3, 11002.0)],
        [(2, 11000.0), (3, 11003.0)],
    )


def test_a_mean_of_the_last_100_steps_counts_if_none_of_them_is_in_the_warmup() -> None:
    """The rates of OLMo, of 300 steps of which the first 60 are the warm-up."""
    lines = "[step={}/300]\n    throughput/device/tokens_per_second={}\n".format
    content = "".join(lines(n, "9,000" if n < 160 else "10,000") for n in range(2, 301))
    results = read_tree({"1n8g/olmo-1b_b4_bf16_1.log": content.encode()})
    assert throughput(results) == pytest.approx(80_000)
