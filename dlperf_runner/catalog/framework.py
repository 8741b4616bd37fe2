"""What an entry of catalog/frameworks/ is: a framework, and its environments per stack."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from .types import Entry, Name, RelativePath, wrong


class Horovod(Entry):
    """How Horovod is built for a framework, and the module whose import proves it."""

    version: str
    requirements: RelativePath
    build_requirements: RelativePath
    build_environment: dict[str, str] = {}
    module: str
    apt_build_packages: tuple[str, ...] = ()


class OperatorWheel(Entry):
    """A wheel that no package index has: the operator names its path and sha256 in the inventory,
    as `dlperf_operator_wheels: {<distribution>: {path: ..., sha256: ...}}`."""

    distribution: Name
    version: str
    reason: str


class Container(Entry):
    """An image that holds the environment, by the name that its registry knows it by. It is run by
    the digest that the inventory gives for that name. `python` and `mpirun` are those inside."""

    image: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._:/-]*[a-z0-9]$")]
    python: str = "python"
    mpirun: str = "mpirun"


class Environment(Entry):
    """A framework's virtual environment on the nodes of one stack, or the image that holds it.

    Without requirements there is the image only; without `container`, the image is made of a
    node's own environment.
    """

    python: str | None = None
    requirements: RelativePath | None = None
    container: Container | None = None
    distribution: str | None = None  # the framework's own among the requirements; None: its name
    sdists: tuple[str, ...] = ()  # those of the requirements that have no wheel; pure Python
    horovod: Horovod | None = None
    operator_wheels: tuple[OperatorWheel, ...] = ()
    tensor: str | None = None  # where it is not the framework's
    eager: str | None = None  # what old versions must call first, that tensors hold numbers

    @model_validator(mode="after")
    def _there_is_something(self) -> Environment:
        if (self.python is None) != (self.requirements is None):
            missing = "python" if self.python is None else "requirements"
            raise wrong("an environment has an interpreter and requirements", missing, None)
        if self.requirements is None and self.container is None:
            raise wrong("this environment is empty", "python and requirements, or container", {})
        return self


class Framework(Entry):
    """A deep-learning framework, and its environment per stack.

    `flavors` are other environments of it, by name and stack, for sources that name a flavor:
    another build or version of the framework. On a stack that has no environment of the flavor,
    the framework's own serves.
    """

    name: Name
    title: str
    import_name: str
    tensor: str | None = None  # dotted name of what makes a tensor of a list, for proofs
    environments: dict[str, Environment]
    flavors: dict[Name, dict[str, Environment]] = {}

    @property
    def stacks(self) -> tuple[str, ...]:
        """Every stack that one of its environments is for."""
        flavored = (stack for flavor in self.flavors.values() for stack in flavor)
        return tuple(dict.fromkeys((*self.environments, *flavored)))

    def environments_on(self, stack: str) -> dict[str, Environment]:
        """The environments for nodes of that stack, by their names there."""
        own = {self.name: self.environments[stack]} if stack in self.environments else {}
        flavored = {
            f"{self.name}-{flavor}": stacks[stack]
            for flavor, stacks in self.flavors.items()
            if stack in stacks
        }
        return {**own, **flavored}

    def environment_name(self, stack: str, flavor: str | None) -> str | None:
        """What the environment is called on nodes of that stack: `mxnet`, or `mxnet-mkl`; None
        where there is none."""
        if flavor is not None and stack in self.flavors[flavor]:
            return f"{self.name}-{flavor}"
        return self.name if stack in self.environments else None
