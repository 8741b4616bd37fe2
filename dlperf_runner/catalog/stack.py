"""The schema of catalog/stacks/: every version that the roles install on the nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from .types import Count, Entry, Name, entry_error

# The versions that a stack does not demand of a node that keeps what it has (`dlperf_adopt`).
ADOPTED: dict[str, Any] = {
    "driver": None,
    "container_runtime": None,
    "infiniband": {"version": None},
    "openmpi": None,
    "cuda": None,
    "cudnn": None,
    "nccl": None,
    "rocm": None,
    "tuning": None,
    # No parts of a stack, but files of a node.
    "hosts": None,
    "known_hosts": None,
}


def plain(value: Any) -> Any:
    """A copy with ordinary dictionaries and lists. Ansible gives filters its own, whose members it
    computes when Python reads them; pydantic, which is no Python, would find what is behind."""
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


def merged(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` in `base`, recursively. A null removes the key; lists are replaced."""
    result = dict(base)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[key] = value
    return result


Engine = Literal["docker", "podman"]
# A version must be a string, because YAML reads 12.10 as the number 12.1.
Version = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+~:-]*$")]


class Driver(Entry):
    """NVIDIA's driver, from the packages of a repository or from the run file. `packages` with
    their versions: of a version that the role's release table does not have."""

    version: Version
    method: Literal["package", "runfile"] = "package"
    packages: dict[str, Version] | None = None


class Release(Entry):
    """A version. It must be a key in the release table of its role."""

    version: Version


class Rocm(Entry):
    """ROCm with RCCL, and AMD's driver; without `driver`, the node keeps its own."""

    version: Version
    driver: Version | None = None


class OpenMpi(Entry):
    """`package` is the distribution's OpenMPI. `source` builds OpenMPI and needs a version."""

    method: Literal["package", "source"] = "package"
    version: Version | None = None

    @model_validator(mode="after")
    def _source_has_a_version(self) -> OpenMpi:
        if self.method == "source" and self.version is None:
            raise entry_error("method source requires a version", "a version", None, "version")
        return self


class InfiniBand(Entry):
    """`rails`: the ports that NCCL uses, in the syntax of NCCL_IB_HCA.

    `rate_gbps`: the full rate of an InfiniBand link, `roce_rate_gbps` that of an Ethernet port if
    it is not the card's own. `peer_memory`: the module for GPUDirect RDMA.
    """

    method: Literal["inbox", "mlnx_ofed"] = "inbox"
    version: Version | None = None
    peer_memory: Literal["nv_peer_mem", "nvidia-peermem"] | None = None
    rails: Annotated[str, Field(pattern=r"^\^?=?[\w.-]+(:\d+)?(,[\w.-]+(:\d+)?)*$")] | None = None
    rate_gbps: Count | None = None
    roce_rate_gbps: Count | None = None


class ContainerRuntime(Entry):
    """A container engine, and NVIDIA's toolkit that gives containers access to its GPUs.

    Without an engine, the release of the nodes decides (catalog/suites.yml). `version` is Docker's;
    without it, Docker comes from the distribution, as podman always does. `last`: Docker's last
    version for releases that got no newer one. `packages`: as for the driver, of Docker.
    """

    engine: Engine | None = None
    version: Version | None = None
    last: dict[Name, Version] = {}
    packages: dict[str, Version] | None = None
    toolkit: Version | None = None


class Gpu(Entry):
    """The GPU models that the stack supports, by the names that nvidia-smi prints."""

    models: tuple[str, ...] = ()


class ApplicationClocks(Entry):
    """The clocks of GPUs under load, in MHz."""

    memory: Count
    graphics: Count


class LockedClocks(Entry):
    """The lower and upper limit of GPU clocks, in MHz."""

    minimum: Count
    maximum: Count


class Tuning(Entry):
    """Node settings that must be equal for comparable runs. An unset one is left unchanged."""

    cpu_governor: str | None = None
    numa_balancing: bool | None = None
    persistence: bool | None = None
    application_clocks: ApplicationClocks | None = None
    locked_clocks: LockedClocks | None = None


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class LeastBusBandwidth(Entry):
    """The GB/s of bus bandwidth that the all-reduce of nccl-tests must reach at 16 GiB: on all GPUs
    of one node, and over several nodes."""

    one_node: Rate | None = None
    several_nodes: Rate | None = None


class Stack(Entry):
    """All software below the frameworks on one generation of nodes."""

    name: Name
    title: str
    accelerator: Literal["cpu", "gpu"]
    suites: tuple[str, ...] = ()
    # Further systems, of which no mirror can be made. RHEL's are also those of its rebuilds.
    systems: tuple[Literal["rhel8", "rhel9"], ...] = ()
    apt_packages: dict[str, tuple[str, ...]] = {}
    # Those for which the vendors' parts, and the wheels of the environments, exist; a mirror folder
    # is for the first.
    processors: tuple[Literal["x86_64", "aarch64"], ...] = ("x86_64",)
    gpu: Gpu | None = None
    driver: Driver | None = None
    cuda: Release | None = None
    cudnn: Release | None = None
    # Of another CUDA, for environments with `libraries`.
    cuda_libraries: Release | None = None
    nccl: Release | None = None
    rocm: Rocm | None = None
    openmpi: OpenMpi | None = None
    # Built from source if the suites have no Python version that the frameworks support.
    python: Release | None = None
    infiniband: InfiniBand | None = None
    container_runtime: ContainerRuntime | None = None
    tuning: Tuning | None = None
    least_bus_bandwidth: LeastBusBandwidth | None = None
