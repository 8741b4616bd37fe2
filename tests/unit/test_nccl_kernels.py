"""For how long kernels of NCCL run in a step: the program, and what the report makes of it."""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from builtin_common import ALONE_STEPS
from command_line import call
from make_logs import torchtitan, write

from dlperf_runner.workloads import pytorch_common as common

TEXT = "seconds of NCCL kernels in a step, by rank: "
CUDA = types.SimpleNamespace(type="cuda")


# ---- the program


class Profiled:
    """In place of PyTorch on a GPU: a step takes 10 ms, and its two kernels of NCCL 1 and 2 ms. In
    the first step, they also wait for the profiler of another rank."""

    def __init__(
        self, other_rank: float = 0.5, lost: int = 0, supported: tuple[str, ...] = ("cpu", "cuda")
    ) -> None:
        self.steps, self.other_rank, self.lost = 0, other_rank, lost
        self.float64, self.is_on, self.waited = None, False, 0
        activity = types.SimpleNamespace(CUDA="cuda")
        self.profiler = types.SimpleNamespace(
            profile=self.profile,
            ProfilerActivity=activity,
            supported_activities=lambda: set(supported),
        )
        self.distributed = types.SimpleNamespace(all_reduce=self.all_reduce)

    @contextmanager
    def profile(self, activities: list[str]) -> Iterator[types.SimpleNamespace]:
        assert activities == ["cuda"]
        self.is_on = True
        yield types.SimpleNamespace(events=lambda: self.events()[self.lost :])
        self.is_on = False

    def step(self) -> None:
        assert self.is_on
        self.steps += 1

    def wait(self) -> None:
        assert self.is_on, "the kernels must end before the profiler does"
        self.waited += 1

    def events(self) -> list[types.SimpleNamespace]:
        found = []
        for number in reversed(range(self.steps)):  # in no order
            for name, at, duration in (
                ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1, 1),
                ("ncclKernel_AllGather_RING_LL(ncclWorkElem)", 5, 2),
                ("nccl:all_reduce", 1, 9),
                ("void gemm_kernel<float>(float*)", 0, 8),
            ):
                late = 5000 if number == 0 and "Kernel" in name else 0
                length = 1000 * duration + late
                span = types.SimpleNamespace(
                    start=10_000 * number + 1000 * at, elapsed_us=lambda length=length: length
                )
                found.append(types.SimpleNamespace(name=name, time_range=span))
        return found

    def zeros(self, size: int, **_: object) -> Any:
        class Values(list[float]):
            def tolist(self) -> list[float]:
                return list(self)

        return Values([0.0] * size)

    def all_reduce(self, values: list[float]) -> None:
        values[0] += self.other_rank


def printed(torch: Profiled, world_size: int = 2, device: Any = CUDA) -> list[str]:
    place = common.PyTorchProcess(world_size - 1, world_size, world_size - 1)
    return common.nccl_kernels(torch, device, torch.step, torch.wait, place)


def test_the_program_adds_up_the_kernels_of_nccl() -> None:
    torch = Profiled()
    assert printed(torch) == [f"{TEXT}0.500000 0.003000"]
    assert (torch.steps, torch.waited) == (1 + ALONE_STEPS, 1)


@pytest.mark.parametrize("torch", [Profiled(other_rank=0.0), Profiled(lost=1)])
def test_kernels_that_a_profiler_did_not_see_are_not_printed(torch: Profiled) -> None:
    assert printed(torch) == []
    assert torch.steps == 1 + ALONE_STEPS


def test_a_pytorch_that_cannot_profile_a_gpu_prints_nothing() -> None:
    """Its profiler would end the program."""
    torch = Profiled(supported=("cpu",))
    assert printed(torch) == []
    assert torch.steps == 0


def test_nothing_is_profiled_on_a_cpu_or_on_one_device() -> None:
    torch = Profiled()
    assert printed(torch, device=types.SimpleNamespace(type="cpu")) == []
    assert printed(torch, world_size=1) == []
    assert torch.steps == 0


def test_the_profile_is_taken_before_the_networks_fall_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[object] = []
    step = lambda is_alone=False: calls.append(("step", is_alone))  # noqa: E731
    monkeypatch.setattr(common, "nccl_kernels", lambda *_: calls.append("kernels") or ["k"])
    monkeypatch.setattr(common, "alone", lambda _1, _2, take, *_: take() or ["a"])
    network = types.SimpleNamespace(parameters=lambda: iter([types.SimpleNamespace(device="cpu")]))
    place = common.PyTorchProcess(0, 2, 0)
    texts = common.communication(None, network, step, lambda: None, place, is_alone=True)
    assert (texts, calls) == (["k", "a"], ["kernels", ("step", True)])


# ---- the report


def titan(nccl: str, *, alone: bool = True) -> list[str]:
    """A step of 2 samples of 8192 tokens at 6,400 tokens/s/device on 2 nodes: 2.56 s."""
    stamp = "[titan] 2025-12-01 12:59:59,123 - root - INFO - "
    others = "seconds of a step without communication, by rank: 2.000000 2.100000 2.000000 2.300000"
    said = [f"{stamp}{TEXT}{nccl}", *([f"{stamp}{others}"] if alone else [])]
    return [*torchtitan(6400, world=4, steps=60, every=1, warmup=10), *said]


def measured(folder: Path) -> str:
    call("summarize", folder / "logs", "--output-dir", folder / "out")
    return (folder / "out" / "measurements.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize(
    ("language", "told"),
    [
        (
            "en",
            "On 2n2g, kernels of NCCL ran for 25.0% of a step, partly beside computation; waiting"
            " for slower ranks is included.",
        ),
        ("zh", "在 2n2g 上，NCCL 内核的运行时间占一步的 25.0%，其中一部分与计算同时进行"),
    ],
)
def test_the_report_says_for_how_long(
    tmp_path: Path, language: str, told: str, alone: bool
) -> None:
    log = titan("0.500000 0.600000 0.700000 0.760000", alone=alone)
    write(tmp_path / "logs" / "2n2g" / "llama8b_b2_bf16_1.log", log)
    call("report", tmp_path / "logs", "--output-dir", tmp_path / "report", "--lang", language)
    text = " ".join((tmp_path / "report" / "report.md").read_text(encoding="utf-8").split())
    assert told in text
    assert {"en": "NCCL kernels |", "zh": "NCCL 内核 |"}[language] in text
    assert "nccl_kernels,0.64,s,profiled_steps" in measured(tmp_path)


@pytest.mark.parametrize(
    "nccl", ["0.500000", "0.500000 0.600000 0.700000 0.76", "0.500000 0.600000 0.700000 0.000000"]
)
def test_times_that_are_not_whole_do_not_count(tmp_path: Path, nccl: str) -> None:
    write(tmp_path / "logs" / "2n2g" / "llama8b_b2_bf16_1.log", titan(nccl))
    rows = measured(tmp_path)
    assert "nccl_kernels" not in rows
    assert "alone_mean" in rows
