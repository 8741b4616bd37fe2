"""Step times, memory, model FLOPs and MFU in the tables of summarize and report."""

import json
import re
from pathlib import Path

import frame_rows
import pytest
from command_line import output
from frame_rows import Row, cases
from make_logs import arcface_torch, dllogger_pytorch, gluoncv, torchtitan, write
from summaries import printed_and_cases

FLOPS = 57_914_449_920  # per token of 8b at 8192, attention in full: see test_language_metrics


def logs_of(folder: Path, every: int = 1) -> Path:
    """Three repeats on one node with 8 devices, of 60 steps."""
    for repeat in (1, 2, 3):
        log = torchtitan(6000 + repeat, world=8, steps=60, every=every, warmup=10)
        write(folder / "1n8g" / f"llama8b_b2_bf16_{repeat}.log", log)
    return folder


def test_mfu_with_its_convention_and_its_peak(tmp_path: Path) -> None:
    out, (case,) = printed_and_cases(logs_of(tmp_path), "--accelerator", "H100-SXM5-80GB")
    assert float(case["model_tflops_per_device"]) == pytest.approx(6002 * FLOPS / 1e12)
    assert float(case["mfu"]) == pytest.approx(6002 * FLOPS / 989.4e12)
    assert case["flops_formula"] == "6N+12LdT (full attention)"
    assert case["peak_tflops_per_device"] == "989.4"
    assert case["peak_source"] == "dense bf16, NVIDIA H100 white paper, SXM5"
    assert "| TFLOP/s/device | MFU (6N+12LdT) |" in out
    assert "| 347.6 | 35.1% |" in out
    share = "6N+12LdT (full attention); MFU is their share of 989.4 TFLOP/s (dense bf16"
    assert share in out
    assert "MFU (6N+12LdT)" in (tmp_path / "out" / "summary.md").read_text()
    (found,) = json.loads((tmp_path / "out" / "summary.json").read_text())["cases"]
    assert found["mfu"] == float(case["mfu"])
    report = tmp_path / "report"
    output("report", tmp_path, "--output-dir", report, "--accelerator", "H100-SXM5-80GB")
    for name in ("report.md", "report.html"):
        text = (report / name).read_text()
        for words in ("MFU (6N+12LdT)", "35.1%", "dense bf16, NVIDIA H100 white paper"):
            assert words in text
    assert "step p99 (s)" in (report / "report.md").read_text()


def test_sequences_have_model_flops_too(tmp_path: Path) -> None:
    """NVIDIA's 580 sequences/s of 128 tokens on an A100: 1,879,977,984 FLOPs per token are 6 x
    307,038,208 and 12 x 24 x 1024 x 128."""
    lines = dllogger_pytorch(580.0)
    named = "arch : bert-large  sequence_length : 128 "
    lines[0] = lines[0].replace("arch : resnet50 ", named)
    write(tmp_path / "1n1g" / "bertlarge_b256_amp_1.log", lines)
    out, (case,) = printed_and_cases(tmp_path, "--accelerator", "A100-SXM4-80GB")
    assert (case["workload"], case["model"]) == ("pytorch-bert-large", "bert-large")
    flops = 6 * 307_038_208 + 12 * 24 * 1024 * 128
    assert float(case["mfu"]) == pytest.approx(580 * 128 * flops / 312e12)
    assert "MFU (6N+12LdT)" in out
    assert "tokens/s" not in out


def test_logs_of_arcface_in_pytorch_are_told_from_those_of_other_frameworks(tmp_path: Path) -> None:
    write(tmp_path / "1n8g" / "r50_b128_amp_1.log", arcface_torch(2271.33))
    _, (case,) = printed_and_cases(tmp_path)
    assert (case["workload"], case["model"]) == ("pytorch-arcface", "arcface-r50")
    # 17 of 100 steps are the warm-up, as 20 of 120 are: the line of steps 11 to 20 is left out.
    assert float(case["samples_per_second_median"]) == pytest.approx(2271.33)


@pytest.mark.parametrize("options", [(), ("--accelerator", "cpu"), ("--accelerator", "MI300A")])
def test_no_mfu_without_a_peak(tmp_path: Path, options: tuple[str, ...]) -> None:
    out, (case,) = printed_and_cases(logs_of(tmp_path), *options)
    assert float(case["model_tflops_per_device"]) == pytest.approx(6002 * FLOPS / 1e12)
    assert (case["mfu"], case["peak_tflops_per_device"]) == ("", "")
    assert "| MFU" not in out
    reason = "no MFU, because the peak of the accelerator at this precision is unknown"
    assert reason in out


def test_mfu_of_fp8_is_that_of_its_peak(tmp_path: Path) -> None:
    for log in logs_of(tmp_path).rglob("*.log"):
        said = "Starting job: llama-8b, precision bf16, recipe float8, compile on\n"
        log.write_text(said + log.read_text())
    _, (case,) = printed_and_cases(tmp_path, "--accelerator", "H100-SXM5-80GB")
    assert case["parameters"] == "parallel=fsdp recipe=float8 sequence_length=8192"
    assert float(case["model_tflops_per_device"]) == pytest.approx(6002 * FLOPS / 1e12)
    # NVIDIA H100 white paper: 1978.9 TFLOP/s in FP8, dense, SXM5
    assert float(case["mfu"]) == pytest.approx(6002 * FLOPS / 1978.9e12)
    assert case["peak_source"] == "dense fp8, NVIDIA H100 white paper, SXM5"


def test_samples_have_no_model_flops(tmp_path: Path) -> None:
    write(tmp_path / "1n1g" / "rn50_b128_fp32_1.log", gluoncv(384.25))
    out, (case,) = printed_and_cases(tmp_path, "--accelerator", "V100-SXM2-16GB")
    assert case["model_tflops_per_device"] == case["flops_formula"] == ""
    assert not [word for word in ("TFLOP", "MFU", "p95", "memory") if word in out]
    output("report", tmp_path, "--output-dir", tmp_path / "report")
    assert "step" not in (tmp_path / "report" / "report.md").read_text().partition("## What")[0]
    # 100 steps of 128 samples, half of them at 384 and half at 384.5 samples/s
    assert float(case["step_time_median_s"]) == pytest.approx((128 / 384 + 128 / 384.5) / 2)
    assert float(case["step_time_p99_s"]) == pytest.approx(128 / 384)


def test_step_times_and_memory(tmp_path: Path) -> None:
    out, (case,) = printed_and_cases(logs_of(tmp_path))
    # 2 samples of 8192 tokens at 6001 to 6003 tokens/s/device: the median of the runs
    assert float(case["step_time_p95_s"]) == pytest.approx(2 * 8192 / 6002)
    assert case["log_memory_mib"] == "41472.0"  # 40.50 GiB
    assert "| n | step p95 (s) | step p99 (s) | memory (MiB) |" in out
    assert "| 3 | 2.730 | 2.730 | 41472 |" in out


def test_means_of_steps_are_no_step_times_of_the_table(tmp_path: Path) -> None:
    out, (case,) = printed_and_cases(logs_of(tmp_path, every=10))
    assert case["step_time_estimator"] == "means_of_10_steps"
    assert "p95" not in out


def test_samples_without_a_published_report_have_step_times(tmp_path: Path) -> None:
    lines = dllogger_pytorch(100.0)
    every = [re.sub(r"Iteration: (\d+)0 ", r"Iteration: \1 ", line) for line in lines]
    every[0] = every[0].replace("prof : 100", "prof : 10").replace("freq : 10", "freq : 1")
    write(tmp_path / "1n1g" / "rn50_b256_amp_1.log", every)
    out, (case,) = printed_and_cases(tmp_path)
    assert "| step p95 (s) | step p99 (s) |" in out
    assert case["model_tflops_per_device"] == ""


def row(metric: str, value: float, estimator: str, repeat: int) -> Row:
    return frame_rows.row(value, "1n8g", repeat, metric=metric, estimator=estimator)


def test_two_conventions_are_never_mixed() -> None:
    runs = [row("samples_per_second", 1.0, "mean_of_rates", repeat) for repeat in (1, 2)]
    for second, expected in (("6N+12LdT", (0.4, "6N+12LdT")), ("6N+6LdT", (None, None))):
        both = [row("mfu", 0.3, "6N+12LdT", 1), row("mfu", 0.5, second, 2)]
        (case,) = cases([*runs, *both])
        assert (case["mfu"], case["flops_formula"]) == expected


def test_a_log_of_jax_in_the_format_of_pytorch_is_not_taken_for_pytorchs(tmp_path: Path) -> None:
    log = [
        line.replace("arch : resnet50", "arch : jax_resnet50") for line in dllogger_pytorch(100.0)
    ]
    write(tmp_path / "logs" / "1n1g" / "rn50_b256_amp_1.log", log)
    refused = output("summarize", tmp_path / "logs", "--output-dir", tmp_path / "out", status=2)
    assert "the network contradicts" in refused
    assert "jax_resnet50" in refused
    write(tmp_path / "jax" / "1n1g" / "jax_rn50_b256_amp_1.log", log)
    out = output("summarize", tmp_path / "jax", "--output-dir", tmp_path / "out2", "--json")
    assert '"workload": "jax-resnet50v1.5"' in out
