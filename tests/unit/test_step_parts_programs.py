"""Where the time of a step goes: what the programs measure, with stand-ins for their frameworks."""

import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import builtin_common
import jax_common
import mxnet_resnet50
import paddle3_resnet50
import pytest
import tensorflow2_resnet50

from dlperf_runner.workloads import pytorch_common as common

TEXT = "seconds of a step without communication, by rank: "


class Parallel:
    """In place of DistributedDataParallel: it counts the steps, and who communicates."""

    def __init__(self) -> None:
        self.quiet = False

    def parameters(self) -> Iterator[types.SimpleNamespace]:
        for size in (builtin_common.BUCKET, 100):
            yield types.SimpleNamespace(device="cpu", numel=lambda size=size: size)

    def modules(self) -> list[object]:
        return [self]

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        self.quiet = True
        yield
        self.quiet = False


class Values(list[float]):
    def tolist(self) -> list[float]:
        return list(self)


def torch_of(others: list[float]) -> Any:
    """What the program uses of PyTorch; the other ranks' times are given."""

    def all_reduce(values: Values, async_op: bool = False) -> Any:
        for rank, value in enumerate(others[: len(values)]):
            values[rank] += value
        return types.SimpleNamespace(wait=lambda: None)

    return types.SimpleNamespace(
        float64=None,
        zeros=lambda size, **_: Values([0.0] * min(size, 2)),
        nn=types.SimpleNamespace(parallel=types.SimpleNamespace(DistributedDataParallel=Parallel)),
        distributed=types.SimpleNamespace(barrier=lambda: None, all_reduce=all_reduce),
    )


def test_the_program_times_steps_without_communication() -> None:
    passed, network = [0.0], Parallel()

    def step() -> None:
        assert network.quiet
        # The first steps still send buffers.
        passed.append(9.0 if len(passed) <= common.ALONE_BEFORE else 0.25)

    found = common.alone(
        torch_of([0.5, 0.0]),
        network,
        step,
        lambda: None,
        common.PyTorchProcess(1, 2, 1),
        lambda: sum(passed),
    )
    assert found[0] == f"{TEXT}0.500000 0.250000"
    assert found[1].startswith(
        f"all-reduce of the gradients alone: {4 * builtin_common.BUCKET + 400} bytes"
    )
    assert len(passed) == 1 + common.ALONE_BEFORE + builtin_common.ALONE_STEPS


def test_the_interface_that_sends_most_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket of 26 MB, reduced five times in 0.5 s each; lo sends a little meanwhile."""
    counts = iter([{"lo": 9, "eth1": 100}, {"lo": 99, "eth1": 10**8}])
    monkeypatch.setattr(builtin_common, "sent_bytes", lambda: next(counts))
    times = iter([1.0, 3.5])
    values, wait = builtin_common.BUCKET, lambda: None
    told = common.all_reduce_alone(torch_of([]), values, "cpu", wait, lambda: next(times))
    assert told == "all-reduce of the gradients alone: 26214400 bytes in 0.500000 s through eth1"
    few = iter([{"eth1": 100}, {"eth1": 10**6}])  # GPUs exchanged the rest
    monkeypatch.setattr(builtin_common, "sent_bytes", lambda: next(few))
    times = iter([1.0, 3.5])
    told = common.all_reduce_alone(torch_of([]), values, "cpu", wait, lambda: next(times))
    assert told.endswith(" s")


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

    network = types.SimpleNamespace(modules=lambda: [object(), Block(), Block()])
    silent = common.silence(torch_of([]), network, common.PyTorchProcess(0, 2, 0))
    assert silent is not None
    assert [[type(each) for each in of] for of in set_by_block] == [[common.OwnParts] * 2] * 2


def test_a_single_process_and_what_always_communicates_print_nothing() -> None:
    network = types.SimpleNamespace(modules=lambda: [object()])
    for place in (common.PyTorchProcess(0, 2, 0), common.PyTorchProcess(0, 1, 0)):
        assert common.alone(torch_of([]), network, lambda: None, lambda: None, place) == []


def test_jax_times_its_step_for_all_devices_of_a_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two processes with two devices each, this is the second."""
    passed, ranks = [0.0], [0.5, 0.5]

    def step() -> None:
        passed.append(0.25 if len(passed) > 1 else 9.0)  # the first is not timed

    together = types.SimpleNamespace(
        sync_global_devices=lambda _: None,
        process_allgather=lambda own: types.SimpleNamespace(reshape=lambda _: Values(ranks + own)),
    )
    monkeypatch.setattr(jax_common.importlib, "import_module", lambda _: together)
    jax = types.SimpleNamespace(
        block_until_ready=lambda _: None, local_device_count=lambda: 2,
        numpy=types.SimpleNamespace(array=list),
    )  # fmt: skip
    mesh = types.SimpleNamespace(size=4)
    told = jax_common.alone(jax, step, mesh, lambda: sum(passed))
    assert told == f"{TEXT}0.500000 0.500000 0.250000 0.250000"
    assert len(passed) == 2 + builtin_common.ALONE_STEPS
    assert jax_common.alone(jax, step, types.SimpleNamespace(size=1)) is None


def test_mxnet_times_its_steps_without_horovod_and_horovod_without_steps() -> None:
    """A step takes 0.25 s and Horovod's all-reduce 0.5 s; the other rank needs 0.3 s."""
    passed = [0.0]

    def all_reduce() -> None:
        passed.append(0.5)

    trainer = types.SimpleNamespace(_allreduce_grads=all_reduce)

    def step() -> None:
        passed.append(0.25)
        trainer._allreduce_grads()

    found = mxnet_resnet50.parts(
        step, trainer, lambda own: [0.3, own], lambda: None, 1000, lambda: sum(passed)
    )
    assert found[0] == f"{TEXT}0.300000 0.250000"
    assert found[1].startswith("all-reduce of the gradients alone: 1000 bytes in 0.500000 s")


class Paddle:
    """What the program uses of Paddle, with two processes, of which this is the second. A step
    takes 0.25 s if the network is quiet, and the all-reduce of a piece 0.5 s."""

    def __init__(self) -> None:
        self.passed, self.network, self.reduced = [0.0], Parallel(), list[list[float]]()
        self.distributed = types.SimpleNamespace(
            get_rank=lambda: 1, get_world_size=lambda: 2, all_reduce=self.all_reduce
        )
        trained = types.SimpleNamespace(size=builtin_common.BUCKET + 100, stop_gradient=False)
        average = types.SimpleNamespace(size=7, stop_gradient=True)
        self.network.parameters = lambda: iter([trained, average])

    def to_tensor(self, values: list[float], _: str) -> Values:
        return Values(values)

    def zeros(self, shape: list[int]) -> Values:
        return Values(map(float, shape))

    def all_reduce(self, values: Values, sync_op: bool = True) -> Any:
        if sync_op:
            values[0] += 0.4  # of the first process
            return None
        self.passed.append(0.5)
        self.reduced.append(values.tolist())
        return types.SimpleNamespace(wait=lambda: None)

    def step(self) -> None:
        assert self.network.quiet
        self.passed.append(0.25 if len(self.passed) > 1 else 9.0)  # the first is not timed


def test_paddle_times_its_steps_without_communication(monkeypatch: pytest.MonkeyPatch) -> None:
    paddle = Paddle()
    now = lambda: sum(paddle.passed)  # noqa: E731
    found = paddle3_resnet50.alone(paddle, paddle.network, paddle.step, lambda: None, now)
    assert found[0] == f"{TEXT}0.400000 0.250000"
    size = 4 * (builtin_common.BUCKET + 100)
    assert found[1].startswith(f"all-reduce of the gradients alone: {size} bytes in 1.000000 s")
    assert paddle.reduced[:2] == [[builtin_common.BUCKET], [100]]
    paddle.distributed.get_world_size = lambda: 1
    assert paddle3_resnet50.alone(paddle, paddle.network, paddle.step, lambda: None, now) == []


def test_tensorflow_times_its_steps_without_communication() -> None:
    """Of two processes, this is the second. A step alone takes 0.25 s, an all-reduce 0.5 s."""
    passed = [0.0]

    def step() -> float:
        passed.append(0.25 if len(passed) > 1 else 9.0)
        return 1.0

    def all_reduce() -> float:
        passed.append(0.5)
        return 0.0

    trained = tensorflow2_resnet50.Training(lambda: 1 / 0, step, all_reduce, 1000)
    found = tensorflow2_resnet50.alone(lambda own: [0.4, own], trained, lambda: sum(passed))
    assert found[0] == f"{TEXT}0.400000 0.250000"
    assert found[1].startswith("all-reduce of the gradients alone: 1000 bytes in 0.500000 s")
