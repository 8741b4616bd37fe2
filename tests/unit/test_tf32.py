"""TF32: a program that says only that mixed precision is off says neither fp32 nor tf32."""

from pathlib import Path

import pytest
from make_logs import arcface_torch, dllogger, dllogger_pytorch, gluoncv, write
from other_logs import load

from dlperf_runner.catalog.accelerators import may_use_tf32
from dlperf_runner.catalog.published_numbers import load_published


def replaced(lines: list[str], old: str, new: str) -> list[str]:
    return [line.replace(old, new) for line in lines]


OFF = {
    "tf_rn50_b256": dllogger(3000.0, 8, amp=False, final=3000.0),
    "rn50_b256": replaced(dllogger_pytorch(2500.0, world=8), "amp : True", "amp : False"),
    "r50_b128": replaced(arcface_torch(2271.25), f"fp16{' ' * 21}True", f"fp16{' ' * 21}False"),
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
    (run,) = load(write(tmp_path / "named" / "1n8g" / f"{name}_tf32_1.log", lines)).counted
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
    lines = replaced(
        dllogger(30.0, 1, amp=False, final=30.0), "amp : False", "amp : False  cpu : True"
    )
    (run,) = load(write(tmp_path / "1n1g" / "tf_rn50_b256_1.log", lines)).counted
    assert (run.precision, run.accelerator, run.assumed) == ("fp32", "cpu", ())


WITH_TF32 = (
    *(None, "A100-SXM4-40GB", "H100", "L4", "RTX A6000", "GeForce RTX 3090", "Instinct MI300X"),
)
WITHOUT = (
    *("cpu", "V100", "V100-SXM2-16GB", "V100S-PCIE-32GB", "T4", "P4", "P100-PCIE-16GB"),
    *("GeForce RTX 2080 Ti", "GeForce GTX 1080"),
)


def test_accelerators_with_tf32() -> None:
    assert [name for name in WITH_TF32 if not may_use_tf32(name)] == []
    assert [name for name in WITHOUT if may_use_tf32(name)] == []


def test_published_numbers_in_tf32_are_of_gpus_with_it() -> None:
    numbers = [number for number in load_published() if number.precision == "tf32"]
    assert numbers
    assert all(may_use_tf32(number.conditions.accelerator) for number in numbers)
