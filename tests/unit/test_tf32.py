"""TF32: a program that says only that mixed precision is off says neither fp32 nor tf32."""

from pathlib import Path

import pytest
from make_logs import arcface_torch, dllogger, dllogger_pytorch, gluoncv, write
from other_logs import load

from dlperf_runner.catalog.accelerators import may_use_tf32
from dlperf_runner.catalog.published_numbers import load_published

OFF = {
    "tf_rn50_b256": dllogger(3000.0, 8, amp=False, final=3000.0),
    "rn50_b256": [
        line.replace("amp : True", "amp : False") for line in dllogger_pytorch(2500.0, world=8)
    ],
    "r50_b128": [
        line.replace("fp16                     True", "fp16                     False")
        for line in arcface_torch(2271.25)
    ],
}


@pytest.mark.parametrize(("name", "lines"), OFF.items())
def test_without_amp_the_precision_has_to_be_stated(
    tmp_path: Path, name: str, lines: list[str]
) -> None:
    log = write(tmp_path / "1n8g" / f"{name}_1.log", lines)
    for accelerator in ({}, {"accelerator": "A100-SXM4-40GB"}, {"accelerator": "H100"}):
        (problem,) = load(log, **accelerator).problems
        assert "FP32 or TF32" in problem.problem
        assert "--precision tf32 or --precision fp32" in str(problem.hint)
    for precision in ("fp32", "tf32"):
        (run,) = load(log, precision=precision).counted
        assert (run.precision, run.assumed) == (precision, ())
    (run,) = load(log, accelerator="V100-SXM2-16GB").counted
    assert run.precision == "fp32"
    assert load(log, precision="bf16").problems


@pytest.mark.parametrize(("name", "lines"), OFF.items())
def test_tf32_in_a_name_is_no_contradiction(tmp_path: Path, name: str, lines: list[str]) -> None:
    (run,) = load(write(tmp_path / "1n8g" / f"{name}_tf32_1.log", lines)).counted
    assert run.precision == "tf32"


@pytest.mark.parametrize(
    ("name", "options", "is_told"),
    [
        ("rn50_b128_fp32_1n8g_1.log", {}, True),
        ("rn50_b128_fp32_1n8g_a100_1.log", {}, True),
        ("rn50_b128_fp32_1n8g_v100_1.log", {}, False),
        ("rn50_b128_fp32_1n8g_1.log", {"precision": "fp32"}, False),
        ("rn50_b128_fp32_1n8g_1.log", {"accelerator": "P100-PCIE-16GB"}, False),
        ("rn50_b128_fp16_1n8g_1.log", {}, False),
    ],
)
def test_fp32_in_a_name_alone_is_told(
    tmp_path: Path, name: str, options: dict[str, str], is_told: bool
) -> None:
    results = load(write(tmp_path / name, gluoncv(500.0, batch=None)), **options)
    assert len(results.counted) == 1
    assert any("FP32 or TF32" in note for note in results.notes) is is_told


def test_a_cpu_has_no_tf32(tmp_path: Path) -> None:
    lines = [
        line.replace("amp : False", "amp : False  cpu : True")
        for line in dllogger(30.0, 1, amp=False, final=30.0)
    ]
    (run,) = load(write(tmp_path / "1n1g" / "tf_rn50_b256_1.log", lines)).counted
    assert (run.precision, run.accelerator, run.assumed) == ("fp32", "cpu", ())


@pytest.mark.parametrize(
    ("accelerator", "may"),
    [
        (None, True),
        ("A100-SXM4-40GB", True),
        ("H100", True),
        ("L4", True),
        ("RTX A6000", True),
        ("GeForce RTX 3090", True),
        ("Instinct MI300X", True),
        ("cpu", False),
        ("V100", False),
        ("V100-SXM2-16GB", False),
        ("V100S-PCIE-32GB", False),
        ("T4", False),
        ("P4", False),
        ("P100-PCIE-16GB", False),
        ("GeForce RTX 2080 Ti", False),
        ("GeForce GTX 1080", False),
    ],
)
def test_accelerators_with_tf32(accelerator: str | None, may: bool) -> None:
    assert may_use_tf32(accelerator) is may


def test_published_numbers_in_tf32_are_of_gpus_with_it() -> None:
    numbers = [number for number in load_published() if number.precision == "tf32"]
    assert numbers
    assert all(may_use_tf32(number.conditions.accelerator) for number in numbers)
