"""Where the time of a step goes: what the programs measure, with stand-ins for their frameworks."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import builtin_common
import jax_common
import mxnet_resnet50
import paddle3_resnet50
import pytest
import tensorflow2_resnet50
from builtin_common import ALONE_STEPS, BUCKET

from dlperf_runner.workloads import pytorch_common as common

TEXT = "seconds of a step without communication, by rank: "
REDUCED = "all-reduce of the gradients alone: "
CUDA = SimpleNamespace(type="cuda")


class Values(list[float]):
    def tolist(self) -> list[float]:
        return list(self)


class Steps:
    """A clock that only steps move: the first ones, which still send buffers, take 9 s, all others
    0.25 s; an all-reduce takes 0.5 s."""

    def __init__(self, before: int = 1, may_step: Callable[[], bool] = lambda: True) -> None:
        self.taken, self.now, self.before, self.may_step = 0, 0.0, before, may_step

    def step(self) -> float:
        assert self.may_step()
        self.taken += 1
        self.now += 9.0 if self.taken <= self.before else 0.25
        return 1.0

    def all_reduce(self, *_: Any, **__: Any) -> Any:
        self.now += 0.5
        return SimpleNamespace(wait=lambda: None)

    def clock(self) -> float:
        return self.now


class Parallel:
    """In place of DistributedDataParallel: it says whether it communicates."""

    quiet = False

    def parameters(self) -> Iterator[SimpleNamespace]:
        for size in (BUCKET, 100):
            yield SimpleNamespace(device="cpu", numel=lambda size=size: size)

    def modules(self) -> list[object]:
        return [self]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.quiet = True
        yield
        self.quiet = False


def torch_of(*others: float) -> Any:
    """What the program uses of PyTorch; the other ranks' times are given."""

    def all_reduce(values: Values, async_op: bool = False) -> Any:
        for rank, value in enumerate(others[: len(values)]):
            values[rank] += value
        return SimpleNamespace(wait=lambda: None)

    return SimpleNamespace(
        float64=None,
        zeros=lambda size, **_: Values([0.0] * min(size, 2)),
        nn=SimpleNamespace(parallel=SimpleNamespace(DistributedDataParallel=Parallel)),
        distributed=SimpleNamespace(barrier=lambda: None, all_reduce=all_reduce),
    )


def test_the_program_times_steps_without_communication() -> None:
    network = Parallel()
    steps = Steps(common.ALONE_BEFORE, lambda: network.quiet)
    place = common.PyTorchProcess(1, 2, 1)
    torch = torch_of(0.5)
    alone, reduced = common.alone(torch, network, steps.step, lambda *_: None, place, steps.clock)
    assert alone == f"{TEXT}0.500000 0.250000"
    assert reduced.startswith(f"{REDUCED}{4 * BUCKET + 400} bytes")
    assert steps.taken == common.ALONE_BEFORE + ALONE_STEPS


def test_the_interface_that_sends_most_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of 26 MB, reduced five times in 0.5 s each."""
    for sent, end in (
        ([{"lo": 9, "eth1": 100}, {"lo": 99, "eth1": 10**8}], " through eth1"),
        ([{"eth1": 100}, {"eth1": 10**6}], ""),  # GPUs exchanged the rest
    ):
        monkeypatch.setattr(builtin_common, "sent_bytes", iter(sent).__next__)
        clock = iter([1.0, 3.5]).__next__
        text = builtin_common.said_all_reduce(lambda: None, 4 * BUCKET, clock)
        assert text == f"{REDUCED}26214400 bytes in 0.500000 s{end}"


def test_sent_bytes_are_those_of_the_kernel(tmp_path: Path) -> None:
    (tmp_path / "dev").write_text(
        "Inter-|   Receive                            |  Transmit\n"
        " face |bytes packets errs drop fifo frame compressed multicast|bytes packets errs\n"
        "    lo:     10    1    0    0    0     0          0         0      20    1    0\n"
        "  eth1: 1000000    9    0    0    0     0          0         0 3000000    9    0\n"
    )
    assert builtin_common.sent_bytes(str(tmp_path / "dev")) == {"lo": 20, "eth1": 3000000}
    assert builtin_common.sent_bytes(str(tmp_path / "none")) == {}
    assert "lo" in builtin_common.sent_bytes()


def test_a_sharded_network_takes_its_own_parts() -> None:
    """Two blocks of FSDP2, which each have their collectives; the whole has none."""
    set_by_block: list[list[object]] = []

    class Block:
        def __init__(self) -> None:
            set_by_block.append(mine := [])
            self.set_custom_all_gather = mine.append
            self.set_custom_reduce_scatter = mine.append

    network = SimpleNamespace(modules=lambda: [object(), Block(), Block()])
    silent = common.silence(torch_of(), network, common.PyTorchProcess(0, 2, 0))
    assert silent is not None
    assert [[type(each) for each in of] for of in set_by_block] == [[common.OwnParts] * 2] * 2


def test_a_single_process_and_what_always_communicates_print_nothing() -> None:
    network = SimpleNamespace(modules=lambda: [object()])
    for place in (common.PyTorchProcess(0, 2, 0), common.PyTorchProcess(0, 1, 0)):
        assert common.alone(torch_of(), network, lambda: None, lambda: None, place) == []


class Profiled:
    """In place of PyTorch on a GPU: a step takes 10 ms, and its two kernels of NCCL 1 and 2 ms. In
    the first step, they also wait for the profiler of another rank."""

    def __init__(
        self, other_rank: float = 0.5, lost: int = 0, supported: tuple[str, ...] = ("cpu", "cuda")
    ) -> None:
        torch = torch_of(other_rank)
        self.float64, self.zeros, self.distributed = None, torch.zeros, torch.distributed
        self.steps, self.waited, self.lost, self.is_on = 0, 0, lost, False
        self.profiler = SimpleNamespace(
            profile=self.profile,
            ProfilerActivity=SimpleNamespace(CUDA="cuda"),
            supported_activities=lambda: set(supported),
        )

    @contextmanager
    def profile(self, activities: list[str]) -> Iterator[SimpleNamespace]:
        assert activities == ["cuda"]
        self.is_on = True
        yield SimpleNamespace(events=lambda: [*self.events()][self.lost :])
        self.is_on = False

    def step(self) -> None:
        assert self.is_on
        self.steps += 1

    def wait(self) -> None:
        assert self.is_on, "the kernels must end before the profiler does"
        self.waited += 1

    def events(self) -> Iterator[SimpleNamespace]:
        for number in reversed(range(self.steps)):  # in no order
            for name, at, duration in (
                ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", 1, 1),
                ("ncclKernel_AllGather_RING_LL(ncclWorkElem)", 5, 2),
                ("nccl:all_reduce", 1, 9),
                ("void gemm_kernel<float>(float*)", 0, 8),
            ):
                length = 1000 * duration + (5000 if number == 0 and "Kernel" in name else 0)
                span = SimpleNamespace(
                    start=10_000 * number + 1000 * at, elapsed_us=lambda length=length: length
                )
                yield SimpleNamespace(name=name, time_range=span)


def kernels(torch: Profiled, world_size: int = 2, device: Any = CUDA) -> list[str]:
    place = common.PyTorchProcess(world_size - 1, world_size, world_size - 1)
    return common.nccl_kernels(torch, device, torch.step, torch.wait, place)


def test_the_program_adds_up_the_kernels_of_nccl() -> None:
    torch = Profiled()
    text = "seconds of NCCL kernels in a step, by rank: 0.500000 0.003000"
    assert kernels(torch) == [text]
    assert (torch.steps, torch.waited) == (1 + ALONE_STEPS, 1)


def test_kernels_that_a_profiler_did_not_see_are_not_printed() -> None:
    for torch in (Profiled(other_rank=0.0), Profiled(lost=1)):
        assert kernels(torch) == []
        assert torch.steps == 1 + ALONE_STEPS


def test_nothing_is_profiled_on_a_cpu_on_one_device_or_if_pytorch_cannot() -> None:
    """A profiler that does not support GPUs would end the program."""
    torch, without = Profiled(), Profiled(supported=("cpu",))
    assert kernels(torch, device=SimpleNamespace(type="cpu")) == []
    assert kernels(torch, world_size=1) == kernels(without) == []
    assert torch.steps == without.steps == 0


def test_jax_times_its_step_for_all_devices_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two processes with two devices each, this is the second."""
    together = SimpleNamespace(
        sync_global_devices=lambda _: None,
        process_allgather=lambda own: SimpleNamespace(reshape=lambda _: Values([0.5, 0.5, *own])),
    )
    monkeypatch.setattr(jax_common.importlib, "import_module", lambda _: together)
    jax = SimpleNamespace(
        block_until_ready=lambda _: None, local_device_count=lambda: 2,
        numpy=SimpleNamespace(array=list),
    )  # fmt: skip
    steps = Steps()
    texts = jax_common.alone(jax, steps.step, SimpleNamespace(size=4), steps.clock)
    assert texts == [f"{TEXT}0.500000 0.500000 0.250000 0.250000"]
    assert steps.taken == 1 + ALONE_STEPS
    assert jax_common.alone(jax, steps.step, SimpleNamespace(size=1)) == []


def test_mxnet_times_its_steps_without_horovod_and_horovod_without_steps() -> None:
    steps = Steps()
    trainer = SimpleNamespace(_allreduce_grads=steps.all_reduce)

    def step() -> None:
        steps.step()
        trainer._allreduce_grads()

    alone, reduced = mxnet_resnet50.without_horovod(
        step, trainer, lambda own: [0.3, own], lambda: None, 1000, steps.clock
    )
    assert alone == f"{TEXT}0.300000 0.250000"
    assert reduced.startswith(f"{REDUCED}1000 bytes in 0.500000 s")


class Paddle:
    """What the program uses of Paddle, with two processes, of which this is the second."""

    def __init__(self) -> None:
        self.network, self.reduced = Parallel(), list[list[float]]()
        self.steps = Steps(may_step=lambda: self.network.quiet)
        self.distributed = SimpleNamespace(
            get_rank=lambda: 1, get_world_size=lambda: 2, all_reduce=self.all_reduce
        )
        trained = SimpleNamespace(size=BUCKET + 100, stop_gradient=False)
        average = SimpleNamespace(size=7, stop_gradient=True)
        self.network.parameters = lambda: iter([trained, average])  # type: ignore[method-assign]

    def to_tensor(self, values: list[float], _: str) -> Values:
        return Values(values)

    def zeros(self, shape: list[int]) -> Values:
        return Values(map(float, shape))

    def all_reduce(self, values: Values, sync_op: bool = True) -> Any:
        if sync_op:
            values[0] += 0.4  # of the first process
            return None
        self.reduced.append(values.tolist())
        return self.steps.all_reduce()

    def alone(self) -> list[str]:
        step, clock = self.steps.step, self.steps.clock
        return paddle3_resnet50.alone(self, self.network, step, lambda *_: None, clock)


def test_paddle_times_its_steps_without_communication() -> None:
    paddle = Paddle()
    alone, reduced = paddle.alone()
    assert alone == f"{TEXT}0.400000 0.250000"
    assert reduced.startswith(f"{REDUCED}{4 * (BUCKET + 100)} bytes in 1.000000 s")
    assert paddle.reduced[:2] == [[BUCKET], [100]]
    paddle.distributed.get_world_size = lambda: 1
    assert paddle.alone() == []


def test_tensorflow_times_its_steps_without_communication() -> None:
    steps = Steps()
    reduce = lambda: steps.all_reduce() and 0.0  # noqa: E731
    trained = tensorflow2_resnet50.Training(lambda: 1 / 0, steps.step, reduce, 1000)
    alone, reduced = trained.parts(lambda own: [0.4, own], steps.clock)
    assert alone == f"{TEXT}0.400000 0.250000"
    assert reduced.startswith(f"{REDUCED}1000 bytes in 0.500000 s")
