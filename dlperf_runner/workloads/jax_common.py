"""Common parts of this project's JAX programs: the meeting of processes, the mesh, and timing.

Runs with JAX 0.10, one process per node.
"""

from __future__ import annotations

import functools
import importlib
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

from builtin_common import ALONE, by_rank, seconds_alone

# The axis of the mesh over which batches, and with FSDP parameters, are divided.
DATA = "data"
Result = TypeVar("Result")


class JaxProcess(NamedTuple):
    """The process among all processes, one per node."""

    process: int
    processes: int
    coordinator: str


def place_of(environment: Mapping[str, str]) -> JaxProcess:
    """As the launcher says it. Under mpirun, OpenMPI says which process this is."""
    names = ("JAX_PROCESS_ID", "OMPI_COMM_WORLD_RANK")
    process = next((environment[name] for name in names if name in environment), "0")
    processes = int(environment.get("JAX_NUM_PROCESSES", "1"))
    coordinator = environment.get("JAX_COORDINATOR_ADDRESS", "")
    if processes > 1 and not coordinator:
        sys.exit("JAX_COORDINATOR_ADDRESS is not set: the launcher must give it")
    return JaxProcess(int(process), processes, coordinator)


def address_towards(coordinator: str) -> str:
    """This host's own address on the network of the coordinator.

    Without it, Gloo asks for the address of the host's own name, which may be 127.0.0.1.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((coordinator.rpartition(":")[0], 9))  # sends nothing
        return probe.getsockname()[0]


def join(jax: Any, devices: int, on_cpu: bool) -> Any:
    """Take this node's devices and join the other nodes. Returns the mesh of all devices.

    A device on the CPU is one of XLA's, with a thread of its own.
    """
    place = place_of(os.environ)
    jax.config.update("jax_platforms", "cpu" if on_cpu else "cuda")
    # It would take TERM for a notice of preemption, and the process would outlive it.
    jax.config.update("jax_enable_preemption_service", False)
    if on_cpu:
        os.environ.setdefault("PJRT_NPROC", str(devices))  # threads of XLA
        jax.config.update("jax_num_cpu_devices", devices)
    if place.processes > 1:
        # The module from which JAX takes Gloo; there is no option for Gloo's address.
        internal: Any = importlib.import_module("jax._src.lib")._jax
        internal.make_gloo_tcp_collectives = functools.partial(
            internal.make_gloo_tcp_collectives, hostname=address_towards(place.coordinator)
        )
        # Deactivated: detection of a cluster wants a variable that OpenMPI 5 does not set.
        jax.distributed.initialize(
            place.coordinator,
            place.processes,
            place.process,
            cluster_detection_method="deactivate",
        )
    try:
        count = jax.local_device_count()
    except (RuntimeError, AssertionError) as error:  # without the plugin for GPUs, the latter
        sys.exit(f"JAX finds no GPU on this node; --no-cuda trains on the CPU. {error}".strip())
    if count != devices:
        sys.exit(f"{devices} devices expected on this node, found {count}")
    return jax.make_mesh((jax.device_count(),), (DATA,))


class Collectives:
    """Communication of the devices; `alone`, each takes its own part for those of the others.

    What is computed is then wrong, but takes as long.
    """

    def __init__(self, jax: Any, devices: int, alone: bool = False) -> None:
        self.jax, self.devices, self.alone = jax, devices, alone

    def sum(self, value: Any) -> Any:
        return value if self.alone else self.jax.lax.psum(value, DATA)

    def mean(self, value: Any) -> Any:
        return value if self.alone else self.jax.lax.pmean(value, DATA)

    def gather(self, part: Any, axis: int) -> Any:
        if self.alone:
            return self.jax.numpy.concatenate([part] * self.devices, axis=axis)
        return self.jax.lax.all_gather(part, DATA, axis=axis, tiled=True)


def two_steps(mesh: Any, training: tuple[Any, ...]) -> tuple[Callable[[], Any], Callable[[], Any]]:
    """Two functions that take a step and return its loss: with communication, and without.
    `training` has the first state, the batch if it is fixed, and what compiles either step.

    Both are compiled now, because a log that falls silent for as long is one that hangs.
    """
    state, *batch, compiled = training

    def take(step: Callable[..., tuple[Any, Any]]) -> Any:
        nonlocal state
        state, loss = step(state, *batch)
        return loss

    together = compiled(False)
    without = compiled(True) if mesh.size > 1 else together
    return functools.partial(take, together), functools.partial(take, without)


def alone(
    jax: Any,
    step: Callable[[], Any],
    mesh: Any,
    clock: Callable[[], float] = time.perf_counter,
) -> list[str]:
    """The text that says how long each device takes for a step without communication; none for a
    single one. The devices of a process run at the same time, and have the same number.

    To be called after the training, with a step that is compiled without communication.
    """
    if mesh.size == 1:
        return []
    together = importlib.import_module("jax.experimental.multihost_utils")
    seconds = seconds_alone(
        step,
        jax.block_until_ready,
        lambda: together.sync_global_devices("before the steps without communication"),
        clock=clock,
    )
    local = [seconds] * jax.local_device_count()
    everywhere = together.process_allgather(jax.numpy.array(local)).reshape(-1)
    return [by_rank(ALONE, everywhere.tolist())]


def completed(
    step: Callable[[], Result],
    wait: Callable[[Result], object],
    steps: int,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[tuple[Result, float]]:
    """Take the steps. Give each one's result when the device has completed it, and the seconds
    since the step before was complete.

    The next step is then under way already, so that the device does not wait for what is done with
    the result.
    """
    began, running = clock(), step()
    for number in range(1, steps + 1):
        following = step() if number < steps else None
        wait(running)
        now = clock()
        yield running, now - began
        began = now
        if following is not None:
            running = following
