"""Releases of Debian and Ubuntu, as catalog/suites.yml lists them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from .entry import CATALOG, load_entry
from .stack import Engine, Stack
from .types import Entry, Name

Number = Annotated[str, Field(pattern=r"^\d+(\.\d+)?$")]


class Suite(Entry):
    """A release. `python` and `podman` are the versions that it ships; None if it has no podman."""

    distribution: Literal["debian", "ubuntu"]
    version: Number
    python: Number
    glibc: Number
    podman: Number | None = None

    @property
    def system(self) -> str:
        """The name that the roles use, such as ubuntu18.04."""
        return self.distribution + self.version


class Suites(Entry):
    """The releases of Debian and Ubuntu; `podman_with_cdi` is the first podman that knows CDI."""

    name: Name
    podman_with_cdi: Number
    suites: dict[Name, Suite]

    def engine(self, suite: str) -> Engine:
        """The default container engine of a release: rootless podman if it can give containers the
        GPUs. Docker's users are as powerful as root."""
        podman = self.suites[suite].podman if suite in self.suites else None
        is_new = podman is not None and _numbers(podman) >= _numbers(self.podman_with_cdi)
        return "podman" if is_new else "docker"

    def on(self, suite: str, stack: Stack) -> Stack:
        """The stack with the container engine that it has on a release; a version is Docker's."""
        if (runtime := stack.container_runtime) is None:
            return stack
        engine = runtime.engine or self.engine(suite)
        version = runtime.version if engine == "docker" else None
        changed = runtime.model_copy(update={"engine": engine, "version": version})
        return stack.model_copy(update={"container_runtime": changed})


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


RELEASES = load_entry(CATALOG / "suites.yml", Suites)
SUITES = RELEASES.suites
# The names that the roles use, by code name.
SYSTEMS = {name: suite.system for name, suite in SUITES.items()}
