"""What a stack of catalog/stacks/ is: every version that the roles install on its nodes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .types import Count, Entry, Name, wrong

# A version is a text: YAML reads 12.10 as the number 12.1.
Version = Annotated[str, Field(pattern=r"^[0-9][0-9A-Za-z.+~:-]*$")]


class Driver(Entry):
    """NVIDIA's driver: of a repository's packages, or the run file."""

    version: Version
    method: Literal["package", "runfile"] = "package"


class Release(Entry):
    """A version, which is a key of its role's release table."""

    version: Version


class OpenMpi(Entry):
    """`package` is the distribution's; `source` is built once, and needs a version."""

    method: Literal["package", "source"] = "package"
    version: Version | None = None

    @model_validator(mode="after")
    def _source_has_a_version(self) -> OpenMpi:
        if self.method == "source" and self.version is None:
            raise wrong("there is no version to build", "a version", None, "version")
        return self


class InfiniBand(Entry):
    """`rate_gbps`: a link's full rate. `peer_memory`: what lets the cards read GPU memory."""

    method: Literal["inbox", "mlnx_ofed"] = "inbox"
    version: Version | None = None
    peer_memory: Literal["nv_peer_mem", "nvidia-peermem"] | None = None
    rate_gbps: Count | None = None


class ContainerRuntime(Entry):
    """An engine, and NVIDIA's toolkit by which its containers see the GPUs.

    Without a version the engine is the distribution's.
    """

    engine: Literal["docker", "podman"] = "docker"
    version: Version | None = None
    toolkit: Version


class Gpu(Entry):
    """The accelerators that the stack is made for, by the names that nvidia-smi prints."""

    models: tuple[str, ...] = ()


class ApplicationClocks(Entry):
    """What GPUs run at under load, in MHz."""

    memory: Count
    graphics: Count


class LockedClocks(Entry):
    """What GPUs' clocks keep within, in MHz."""

    minimum: Count
    maximum: Count


class Tuning(Entry):
    """Settings of the nodes that two runs must share; what is not named stays as it is."""

    cpu_governor: str | None = None
    numa_balancing: bool | None = None
    persistence: bool | None = None
    application_clocks: ApplicationClocks | None = None
    locked_clocks: LockedClocks | None = None


class Stack(Entry):
    """Everything below the frameworks that a generation of nodes runs."""

    name: Name
    title: str
    accelerator: Literal["cpu", "gpu"]
    suites: tuple[str, ...] = ()
    apt_packages: dict[str, tuple[str, ...]] = {}
    gpu: Gpu | None = None
    driver: Driver | None = None
    cuda: Release | None = None
    cudnn: Release | None = None
    nccl: Release | None = None
    openmpi: OpenMpi | None = None
    # Built of its source, where the suites have none that the frameworks take.
    python: Release | None = None
    infiniband: InfiniBand | None = None
    container_runtime: ContainerRuntime | None = None
    tuning: Tuning | None = None
