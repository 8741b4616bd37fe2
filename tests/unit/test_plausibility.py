"""What cannot be, or is unlikely: shares above 100 %, and runs of other machines in one table."""

import re
from pathlib import Path

import pytest
from command_line import call
from make_logs import gluoncv, maxtext, megatron, torchtitan, write
from summaries import printed_and_cases
from whole_logs import WHOLE_LOGS

from dlperf_runner.compare.conditions import Difference, differences

# ---- above 100 %


@pytest.mark.parametrize(
    ("rates", "is_told"),
    [((799.0, 800.0, 801.0), False), ((820.0, 821.0, 822.0), True), ((795.0, 801.0, 806.0), False)],
)
def test_an_efficiency_above_100_percent_is_told(
    tmp_path: Path, rates: tuple[float, ...], is_told: bool
) -> None:
    """8 devices in the place of one with 100 samples/s. Noise is no contradiction."""
    for repeat, rate in enumerate(rates, start=1):
        write(tmp_path / "1n1g" / f"rn50_b128_fp32_{repeat}.log", gluoncv(99.0 + repeat / 2))
        write(tmp_path / "1n8g" / f"rn50_b128_fp32_{repeat}.log", gluoncv(rate))
    out, _ = printed_and_cases(tmp_path)
    assert ("an efficiency above 100 % is unlikely: 1n8g 102.6 % of 1n1g" in out) is is_told


# ---- the program's own FLOPs


def titan(tflops: str, mfu: str = "35.12") -> list[str]:
    usual, changed = "tflops: 12.30  mfu: 1.20%", f"tflops: {tflops}  mfu: {mfu}%"
    return [line.replace(usual, changed) for line in torchtitan(6000, world=8)]


PRINTED = "throughput per GPU (TFLOP/s/GPU): 400.1 | learning rate"
MEGATRON = [line.replace("learning rate", PRINTED) for line in megatron(200.0)]
H100, A100 = ("--accelerator", "H100-SXM5-80GB"), ("--accelerator", "A100-SXM4-80GB")
OTHER_MODEL = "contradict those of the model at the same rate: 1n8g"
OTHER_PEAK = "another peak in TFLOP/s than that of the accelerator: 1n8g"
TOO_MUCH = "an MFU above 100 % is impossible: 1n8g"


@pytest.mark.parametrize(
    ("name", "lines", "options", "told"),
    [
        # 57.9 GFLOP per token of 8b at 8192, as in test_flops_tables, are 347.5 TFLOP/s here, which
        # are 35.12 % of an H100's 989.4, and 111.4 % of an A100's 312.
        ("llama8b_b2", titan("347.50"), H100, None),
        ("llama8b_b2", titan("309.00", "31.23"), H100, None),  # causal
        ("llama8b_b2", titan("1,347.50"), H100, f"{OTHER_MODEL} 1348, not 347.5"),
        ("llama8b_b2", titan("347.50"), A100, f"{OTHER_PEAK} 989.5, not 312"),
        # 134.909 TFLOP/s are printed at 8000 tokens/s; those of 8b are at least 385.
        ("llama3.1-8b_b4", maxtext(8000.0, world=8), (), f"{OTHER_MODEL} 134.9, not "),
        ("llama3-8b_b2", MEGATRON, (), f"{OTHER_MODEL} 400.1, not 2"),
        # 70 billion parameters at 20,000 tokens/s are more than the 989.4 TFLOP/s of an H100.
        ("llama70b_b2", torchtitan(20_000, world=8), H100, f"{TOO_MUCH} 973.2 %; check the model"),
    ],
)
def test_flops_and_shares_that_cannot_be_are_told(
    tmp_path: Path, name: str, lines: list[str], options: tuple[str, ...], told: str | None
) -> None:
    write(tmp_path / "1n8g" / f"{name}_bf16_1.log", lines)
    out, _ = printed_and_cases(tmp_path, *options)
    if told is None:
        assert not [text for text in (OTHER_MODEL, "another peak", TOO_MUCH) if text in out]
    else:
        assert told in out


@pytest.mark.parametrize(("data", "counts"), [([], True), (["synthetic"], True), (["tfds"], False)])
def test_a_loss_of_zero_is_that_of_synthetic_data(
    here: Path, data: list[str], counts: bool
) -> None:
    """AI-Hypercomputer/maxtext, pull requests 761 (loss: 0.000) and 1217 (data of zeros)."""
    lines = [re.sub(r"loss: \S+", "loss: 0.000", line) for line in maxtext(8000.0, world=8)]
    lines = [f"Config param dataset_type: {name}" for name in data] + lines
    write(here / "logs/1n8g/llama3.1-8b_b4_bf16_1.log", lines)
    out = call("summarize", "logs", status=0 if counts else 1).text
    assert ("synthetic data was all zeros" in out, "64000.00" in out) == (counts, counts)


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        ("1n2g", "expected 4 devices, or a multiple"),
        ("1n3g", "it states 32 = 4 x 2 (accumulated) x 4"),
        ("1n4g", "99.60"),
        ("1n8g", "2 devices share a batch"),
    ],
)
def test_batch_sizes_say_how_many_devices_trained(here: Path, topology: str, words: str) -> None:
    lines = [
        "  Instantaneous batch size per device = 4",
        "  Total train batch size (w. parallel, distributed & accumulation) = 32",
        "  Gradient Accumulation steps = 2",
        "{'train_runtime': 30.1, 'train_samples_per_second': 99.6, 'train_steps_per_second': 3.1}",
    ]
    write(here / "logs" / topology / "bert_bf16.log", lines)
    counts = topology not in ("1n2g", "1n3g")
    called = call("summarize", "logs", status=0 if counts else 2)
    assert words in " ".join(called.both.split())
    assert counts or ("share a batch" in called.text) == (topology == "1n8g")


@pytest.mark.parametrize(
    ("form", "other"), [("litgpt", "1n2g"), ("colossalai", "1n3g"), ("nanochat", "1n2g")]
)
def test_logs_of_other_devices_than_their_name_says(here: Path, form: str, other: str) -> None:
    log = WHOLE_LOGS[f"{form}/whole"]
    write(here / log.path.replace("1n8g", other), log.text.splitlines())
    options = [f"--{name.replace('_', '-')}={value}" for name, value in log.options.items()]
    called = call("summarize", other, *options, status=2).both
    assert "contradict the number of devices" in " ".join(called.split())


# ---- other machines and settings


def scaled(folder: Path, *names: str) -> Path:
    """A 1-device run and an 8-device run with these paths."""
    for name, rate in zip(names, (100.0, 1500.0), strict=True):
        write(folder / name.replace("RUN", "rn50_b128_fp32"), gluoncv(rate))
    return folder


@pytest.mark.parametrize(
    ("names", "directories"),
    [
        (("v100box/1n1g/RUN_1.log", "h100box/1n8g/RUN_1.log"), {"v100box", "h100box"}),
        (("dgx-v100/1n1g/RUN_1.log", "dgx-a100/1n8g/RUN_1.log"), {"dgx-v100", "dgx-a100"}),
        (("RUN_1n1g_noxla_1.log", "RUN_1n8g_xla_1.log"), {"*noxla*", "*xla*"}),
        (("RUN_1n1g_1.log", "RUN_1n8g_bigbox_1.log"), {"", "*bigbox*"}),
    ],
)
def test_other_words_give_no_speed_up(
    tmp_path: Path, names: tuple[str, str], directories: set[str]
) -> None:
    out, cases = printed_and_cases(scaled(tmp_path, *names))
    assert {case["directory"] for case in cases} == directories
    assert [case["speedup"] for case in cases if case["world_size"] == "8"] == [""]
    assert "not pooled, because the runs differ in directory" in out


def test_repeats_in_directories_of_their_own_stay_repeats(tmp_path: Path) -> None:
    """Only the words that tell machines apart make tables, not those of the repeats beside them."""
    for number, box in enumerate(("v100box", "h100box"), start=0):
        for run in (1, 2, 3):
            repeat = 3 * number + run
            for devices in (1, 8):
                name = f"{box}-run{run}/rn50_b128_fp32_1n{devices}g_{repeat}.log"
                rate = 384.0 * (1 + 2 * number) * devices + repeat
                write(tmp_path / name, gluoncv(rate, world=devices))
    _, cases = printed_and_cases(tmp_path)
    assert {(case["directory"], case["world_size"], case["repeats"]) for case in cases} == {
        (directory, world, "3") for directory in ("*v100box*", "*h100box*") for world in "18"
    }


@pytest.mark.parametrize(
    "names",
    [
        ("single-node/1n1g/RUN_1.log", "multi-node/1n8g/RUN_1.log"),
        ("1gpu/RUN_1n1g_1.log", "8gpus/RUN_1n8g_1.log"),
        ("run1/1n1g/RUN_1.log", "run2/1n8g/RUN_1.log"),
        ("2022-11-20/1n1g/RUN_1.log", "2022-11-21/1n8g/RUN_1.log"),
        ("RUN_1n1g_xla_1.log", "RUN_1n8g_xla_1.log"),
        ("bz128/1n1g/RUN_1.log", "bz128/1n8g/RUN_1.log"),
    ],
)
def test_sizes_repeats_and_dates_are_no_other_words(tmp_path: Path, names: tuple[str, str]) -> None:
    _, cases = printed_and_cases(scaled(tmp_path, *names))
    assert [float(case["speedup"]) for case in cases] == [1.0, 15.0]


# ---- an accelerator that is named by its family only


@pytest.mark.parametrize(
    ("mine", "other", "is_partial"),
    [
        ("V100", "V100-SXM2-16GB", True),
        ("H100", "H100-SXM", True),
        ("V100-16GB", "V100-SXM2-16GB", None),
        ("V100-SXM2-16GB", "V100", None),
        ("H100", "H100", None),
        ("A100", "V100-SXM2-16GB", False),
    ],
)
def test_a_family_is_no_product(mine: str, other: str, is_partial: bool | None) -> None:
    found = differences({"accelerator": mine}, {"accelerator": other})
    expected = (
        [Difference("accelerator", mine, other, is_partial)] if is_partial is not None else []
    )
    assert found == expected
