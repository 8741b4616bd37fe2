"""Common parts of this project's PyTorch programs: the process's place, devices and precision.

Runs under torchrun, under mpirun, and alone, with PyTorch 2.6 or newer.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import fcntl
import functools
import importlib
import os
import resource
import socket
import struct
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from typing import Any, NamedTuple, NoReturn

from builtin_common import ALONE_STEPS, buckets, by_rank, parts, say_nothing
from builtin_common import leave as end
from builtin_common import say as say_plainly

SIOCGIFADDR = 0x8915
PORT = "29500"
# Where a launcher says which process this is, as rank, number of processes, and rank on its node.
PLACES = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
)


ALONE_BEFORE = 2  # steps without communication to get going; the first still sends buffers


class PyTorchProcess(NamedTuple):
    """The process among all processes, one per device."""

    rank: int
    world_size: int
    local_rank: int


def place_of(environment: Mapping[str, str]) -> PyTorchProcess:
    for names in PLACES:
        if names[0] in environment:
            return PyTorchProcess(*(int(environment[name]) for name in names))
    return PyTorchProcess(0, 1, 0)


def interface_towards(address: str) -> str:
    """The network interface that the kernel uses towards `address`. Empty if there is none.

    Without it, Gloo asks for the address of the host's own name, which may be 127.0.0.1.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((address, 9))  # sends nothing
        except OSError:
            return ""
        packed = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # it has no IPv4 address
                continue
            if answer[20:24] == packed:
                return name
    return ""


def complete_environment(place: PyTorchProcess, environment: MutableMapping[str, str]) -> None:
    """Set what `env://` and Gloo read and the launcher left unset."""
    for name, value in zip(PLACES[0], place, strict=True):
        environment.setdefault(name, str(value))
    environment.setdefault("MASTER_PORT", PORT)
    interface = interface_towards(environment["MASTER_ADDR"])
    if interface:
        environment.setdefault("GLOO_SOCKET_IFNAME", interface)


def do_without_libuv() -> None:
    """Let a PyTorch that is built without libuv, as Debian's is, meet torchrun: it would ask for
    libuv, whatever USE_LIBUV says."""
    meeting: Any = importlib.import_module("torch.distributed.rendezvous")
    meeting.TCPStore = functools.partial(meeting.TCPStore, use_libuv=False)


def join(torch: Any, use_cuda: bool) -> tuple[PyTorchProcess, Any]:
    """Take this process's device and join the others. Returns the place and the device."""
    place = place_of(os.environ)
    if use_cuda and not torch.cuda.is_available():
        sys.exit("PyTorch finds no GPU on this node; --no-cuda trains on the CPU")
    device = torch.device("cuda", place.local_rank) if use_cuda else torch.device("cpu")
    if use_cuda:
        torch.cuda.set_device(device)
    if place.world_size > 1 and "MASTER_ADDR" not in os.environ:
        sys.exit("MASTER_ADDR is not set: the launcher must give the address of rank 0's node")
    if "MASTER_ADDR" in os.environ:
        complete_environment(place, os.environ)
        if os.environ.get("USE_LIBUV") == "0":
            do_without_libuv()
        torch.distributed.init_process_group(
            "nccl" if use_cuda else "gloo",
            device_id=device if use_cuda else None,
            timeout=datetime.timedelta(minutes=10),
        )
    return place, device


def leave(program: str, problem: str | None) -> NoReturn:
    """End this process when all have come here, with status 1 if there is a problem.

    The process group is not destroyed: until pytorch/pytorch#154976 its end holds the interpreter's
    lock while it waits for a thread of Gloo that may need the lock (pytorch/pytorch#56297).
    """
    distributed = importlib.import_module("torch.distributed")

    def part() -> None:
        if distributed.is_initialized():
            distributed.barrier()

    end(program, problem, part)


def use_precision(torch: Any, precision: str) -> None:
    """Let matrix products and convolutions be as exact as the precision says."""
    has_tf32 = precision != "fp32"
    torch.set_float32_matmul_precision("high" if has_tf32 else "highest")
    torch.backends.cudnn.allow_tf32 = has_tf32
    torch.backends.cudnn.benchmark = True


def autocast(torch: Any, device: Any, precision: str) -> Any:
    """The context of a forward pass."""
    dtype = {"amp": torch.float16, "bf16": torch.bfloat16}.get(precision)
    return torch.autocast(device.type, dtype, enabled=dtype is not None)


def data_parallel(torch: Any, network: Any, device: Any) -> Any:
    """The network, whose gradients all processes average if there are several."""
    if not torch.distributed.is_initialized() or torch.distributed.get_world_size() == 1:
        return network
    ids = [device.index] if device.type == "cuda" else None
    return torch.nn.parallel.DistributedDataParallel(
        network, device_ids=ids, gradient_as_bucket_view=True
    )


def wait_for(torch: Any, device: Any) -> Callable[..., None]:
    """A call, of a step's result, that returns when the device has finished; a CPU has by then."""
    is_cuda = device.type == "cuda"
    return lambda *_: torch.cuda.synchronize() if is_cuda else None


class OwnParts:
    """In place of the collectives of FSDP2: each rank takes its own part for those of the others.

    What is computed is then wrong, but takes as long.
    """

    def __init__(self, torch: Any, place: PyTorchProcess) -> None:
        self.torch, self.place = torch, place

    def allocate(self, size: Sequence[int], *, dtype: Any, device: Any) -> Any:
        return self.torch.empty(*size, dtype=dtype, device=device)

    def __call__(self, output_tensor: Any, input_tensor: Any, **_: Any) -> None:
        whole = max(output_tensor, input_tensor, key=lambda tensor: tensor.numel())
        parts = whole.view(self.place.world_size, -1)
        if whole is output_tensor:
            parts.copy_(input_tensor.view(1, -1).expand_as(parts))
        else:
            output_tensor.view(-1).copy_(parts[self.place.rank])


def silence(
    torch: Any, network: Any, place: PyTorchProcess
) -> contextlib.AbstractContextManager[Any] | None:
    """Let the network train without communication; None if it cannot."""
    if isinstance(network, torch.nn.parallel.DistributedDataParallel):
        return network.no_sync()
    sharded = [part for part in network.modules() if hasattr(part, "set_custom_all_gather")]
    for part in sharded:
        part.set_custom_all_gather(OwnParts(torch, place))
        part.set_custom_reduce_scatter(OwnParts(torch, place))
    return contextlib.nullcontext() if sharded else None


def alone(
    torch: Any,
    network: Any,
    step: Callable[[], object],
    wait: Callable[..., None],
    place: PyTorchProcess,
    clock: Callable[[], float] = time.perf_counter,
) -> list[str]:
    """The texts of `parts`; none if the network cannot train without communication. FSDP with bf16
    sends as much as the all-reduce, which is in single precision and in the pieces of DDP.

    The rest of a step is communication that the computation does not hide, and waiting.
    """
    if place.world_size == 1 or (silent := silence(torch, network, place)) is None:
        return []
    device = next(network.parameters()).device
    values = sum(parameter.numel() for parameter in network.parameters())
    pieces = buckets(values, lambda size: torch.zeros(size, device=device))

    def reduce() -> None:
        for work in [torch.distributed.all_reduce(one, async_op=True) for one in pieces]:
            work.wait()
        wait()

    def gather(value: float) -> list[float]:
        return from_ranks(torch, value, device, place)

    with silent:
        return parts(step, wait, gather, reduce, 4 * values, ALONE_BEFORE, clock)


def from_ranks(torch: Any, value: float, device: Any, place: PyTorchProcess) -> list[float]:
    """The values of all ranks."""
    of_ranks = torch.zeros(place.world_size, dtype=torch.float64, device=device)
    of_ranks[place.rank] = value
    torch.distributed.all_reduce(of_ranks)
    return [float(each) for each in of_ranks.tolist()]


def nccl_kernels(
    torch: Any,
    device: Any,
    step: Callable[[], object],
    wait: Callable[[], None],
    place: PyTorchProcess,
) -> list[str]:
    """The text that says how long the kernels of NCCL run in a step, on each rank, as the profiler
    sees them; none on a CPU, and none if the profiler sees no kernels on some rank. To be called
    after the training and before `alone`.

    The kernels run beside those that compute, and each waits for the slowest rank, so this time is
    more than what communication adds to a step. In the first step, the ranks wait until the
    profiler has begun on all of them; it does not count.
    """
    activity = torch.profiler.ProfilerActivity.CUDA
    has_profiler = activity in torch.profiler.supported_activities()
    if place.world_size == 1 or device.type != "cuda" or not has_profiler:
        return []
    with torch.profiler.profile(activities=[activity]) as profiler:
        for _ in range(1 + ALONE_STEPS):
            step()
        wait()
    # "nccl:all_reduce" is no kernel, but PyTorch's name for what it calls.
    times = sorted(
        (event.time_range.start, event.time_range.elapsed_us())
        for event in profiler.events()
        if event.name.startswith("nccl") and not event.name.startswith("nccl:")
    )
    in_a_step, others = divmod(len(times), 1 + ALONE_STEPS)
    counted = [] if others else times[in_a_step:]
    seconds = sum(duration for _, duration in counted) / ALONE_STEPS / 1e6
    every = from_ranks(torch, seconds, device, place)
    return [by_rank("NCCL kernels in a step", every)] if all(every) else []


def mean_over_ranks(torch: Any, value: Any, place: PyTorchProcess) -> float:
    """The mean of a scalar tensor over all processes."""
    value = value.float().clone()
    if place.world_size > 1:
        torch.distributed.all_reduce(value)
        value /= place.world_size
    return float(value)


def peak_memory(torch: Any, device: Any) -> tuple[int, int]:
    """The peak memory of this process on its device in bytes, and the memory there is."""
    if device.type == "cuda":
        total = torch.cuda.get_device_properties(device).total_memory
        return torch.cuda.max_memory_reserved(device), total
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024, total


class PyTorchRun:
    """A training, ready to begin: what all programs need before the first step and behind the last.

    `state` says what runs, `prepared` gives the network and what takes a step. Only rank 0 says
    anything.
    """

    def __init__(
        self,
        arguments: argparse.Namespace,
        state: Callable[[Callable[[str], None], argparse.Namespace, int], None],
        prepared: Callable[..., tuple[Any, Callable[..., Any]]],
        say: Callable[[str], None] = say_plainly,
    ) -> None:
        # Imported here so that --help and a wrong option need no framework.
        import torch

        self.place, self.device = join(torch, not arguments.no_cuda)
        self.say = say if self.place.rank == 0 else say_nothing
        state(self.say, arguments, self.place.world_size)
        self.network, self.step = prepared(torch, arguments, self.place, self.device)
        self.wait = wait_for(torch, self.device)
        self.torch, self.samples = torch, self.place.world_size * arguments.batch_size

    def mean(self, loss: Any) -> float:
        return mean_over_ranks(self.torch, loss, self.place)

    def communication(self, **by_itself: Any) -> list[str]:
        """The texts about the kernels of NCCL and about steps without communication, to be said
        after the training. `by_itself`: arguments of such a step, if it takes some."""
        common = self.wait, self.place
        kernels = nccl_kernels(self.torch, self.device, self.step, *common)
        by_itself_step = functools.partial(self.step, **by_itself)
        return [*kernels, *alone(self.torch, self.network, by_itself_step, *common)]
