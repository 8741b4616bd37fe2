"""Releases of Debian and Ubuntu, as catalog/suites.yml lists them."""

from __future__ import annotations

import re
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
        return "podman" if self.has_cdi(self.podman(suite)) else "docker"

    def podman(self, suite: str) -> str | None:
        """The version of podman that a release ships."""
        return self.suites[suite].podman if suite in self.suites else None

    def has_cdi(self, podman: str | None) -> bool:
        """True if this version of podman can give containers the GPUs."""
        return bool(podman) and numbers(podman or "") >= numbers(self.podman_with_cdi)

    def on(self, suite: str, stack: Stack, engine: str = "") -> Stack:
        """The stack with the container engine that it has on a release, unless the inventory names
        one; a version is Docker's, and at most the last one for the release."""
        if (runtime := stack.container_runtime) is None:
            return stack
        engine = engine or runtime.engine or self.engine(suite)
        version = runtime.version if engine == "docker" else None
        last = None if runtime.packages else runtime.last.get(suite)
        if version and last and numbers(version) > numbers(last):
            version = last
        changed = runtime.model_copy(update={"engine": engine, "version": version})
        return stack.model_copy(update={"container_runtime": changed})


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, for comparisons: (3, 11, 2) of 3.11.2."""
    return tuple(map(int, re.findall(r"\d+", version)))


RELEASES = load_entry(CATALOG / "suites.yml", Suites)
SUITES = RELEASES.suites
# The names that the roles use, by code name.
SYSTEMS = {name: suite.system for name, suite in SUITES.items()}


class Controller(Entry):
    """The oldest and newest Python 3 on nodes, and whether Python 2.7 will do as well."""

    oldest: Number
    newest: Number
    python2: bool = False

    def fits(self, version: str) -> bool:
        """True if a node's Python runs the modules."""
        python = numbers(version)[:2]
        if python == (2, 7):
            return self.python2
        return numbers(self.oldest) <= python <= numbers(self.newest)

    def __str__(self) -> str:
        also = "2.7 or " if self.python2 else ""
        return f"{also}{self.oldest} to {self.newest}"


class Controllers(Entry):
    name: Name
    controllers: dict[Number, Controller]


CONTROLLERS = load_entry(CATALOG / "controllers.yml", Controllers).controllers


def controller(core: str) -> Controller | None:
    """The entry of a release of ansible-core, such as 2.19.14; None if it is unknown."""
    return CONTROLLERS.get(".".join(core.split(".")[:2]))
