"""The schema of catalog/frameworks/: a framework and its environments per stack."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import Field, model_validator

from .types import Count, Entry, Name, RelativePath, entry_error


class Horovod(Entry):
    """The build of Horovod for a framework. Importing `module` proves the build."""

    version: str
    requirements: RelativePath
    build_requirements: RelativePath
    build_environment: dict[str, str] = {}
    module: str
    apt_build_packages: tuple[str, ...] = ()


class OperatorWheel(Entry):
    """A wheel that no package index provides. The operator sets its path and sha256 in the
    inventory: `dlperf_operator_wheels: {<distribution>: {path: ..., sha256: ...}}`. `names`: other
    distribution names that the wheel may have."""

    distribution: Name
    names: tuple[Name, ...] = ()
    version: str
    reason: str


class Container(Entry):
    """A container image with the environment, by its name in the registry.

    Runs use the digest that the inventory sets for that name. `python` and `mpirun` are the
    programs inside the image.
    """

    image: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._:/-]*[a-z0-9]$")]
    python: str = "python"
    mpirun: str = "mpirun"

    def is_among(self, images: Iterable[str]) -> bool:
        """True if the image is one of these, with whatever tag."""
        return without_tag(self.image) in map(without_tag, images)


def without_tag(image: str) -> str:
    """nvcr.io/nvidia/tensorflow for nvcr.io/nvidia/tensorflow:20.12-tf1-py3."""
    return re.sub(r":[^:/]*$", "", image)


class Environment(Entry):
    """A framework's virtual environment on the nodes of one stack, or an image that contains it.

    Without requirements, only the image exists. With both, the image is used if the inventory has
    its digest. Without `container`, an image is built from a node's own environment.
    `alternative` takes its place where the inventory gives the wheels that it needs.
    """

    python: str | None = None
    requirements: RelativePath | None = None
    apt_packages: tuple[str, ...] = ()  # it then sees the distribution's Python packages
    container: Container | None = None
    distribution: str | None = None  # the framework's own package; None: named like the framework
    sdists: tuple[str, ...] = ()  # requirements that have no wheel; pure Python
    horovod: Horovod | None = None
    operator_wheels: tuple[OperatorWheel, ...] = ()
    tensor: str | None = None  # if it differs from the framework's
    # What the framework opens by name; each must be in the LD_LIBRARY_PATH of `variables`.
    libraries: tuple[str, ...] = ()
    variables: dict[str, str] = {}  # of all processes, unless they run in a container
    alternative: Environment | None = None
    eager: str | None = None  # old versions must call this first, so that tensors have values

    def given(self, wheels: Iterable[str]) -> Environment:
        """The alternative, if the operator gives the wheels that it needs; else this one."""
        other = self.alternative
        needed = {wheel.distribution for wheel in other.operator_wheels} if other else set()
        return other if other and needed and needed <= set(wheels) else self

    def image_with(self, digests: Iterable[str]) -> str:
        """The image that the environment is: because there is nothing else, or because the
        inventory has a digest of it. Empty for an environment that nodes install."""
        image = self.container
        is_image = image and (self.requirements is None or image.is_among(digests))
        return image.image if image and is_image else ""

    @model_validator(mode="after")
    def _there_is_something(self) -> Environment:
        if (self.python is None) != (self.requirements is None):
            missing = "python" if self.python is None else "requirements"
            raise entry_error("python and requirements must be set together", missing, None)
        if self.requirements is None and self.container is None:
            raise entry_error(
                "the environment is empty", "python and requirements, or container", {}
            )
        return self


class Framework(Entry):
    """A deep-learning framework and its environment per stack.

    `flavors` are environments with another build or version of the framework, by name and stack.
    A source can request a flavor. If a stack has no environment for the flavor, the framework's
    default environment is used. `unavailable`: why a stack has no environment. `lacking`: libraries
    that its programs would use, and why no environment has them. `first_step_s`: the longest time
    without a new line of the log before its first steps, with room for compilation.
    """

    name: Name
    title: str
    import_name: str
    tensor: str | None = None  # dotted name of the function that creates a tensor, for checks
    first_step_s: Count = 900
    environments: dict[str, Environment]
    flavors: dict[Name, dict[str, Environment]] = {}
    unavailable: dict[str, str] = {}
    lacking: dict[str, str] = {}

    @property
    def stacks(self) -> tuple[str, ...]:
        """All stacks that the framework has an environment for."""
        flavored = (stack for flavor in self.flavors.values() for stack in flavor)
        return tuple(dict.fromkeys((*self.environments, *flavored)))

    @property
    def environment_names(self) -> tuple[str, ...]:
        """The names of all environments, on whatever stack."""
        return (self.name, *(f"{self.name}-{flavor}" for flavor in self.flavors))

    def environments_on(self, stack: str) -> dict[str, Environment]:
        """The environments on nodes of the stack, by name."""
        unflavored = {self.name: self.environments[stack]} if stack in self.environments else {}
        flavored = {
            f"{self.name}-{flavor}": stacks[stack]
            for flavor, stacks in self.flavors.items()
            if stack in stacks
        }
        return {**unflavored, **flavored}

    def why_not(self, stack: str) -> str:
        """The reason why there is no environment for the stack, as a sentence without its end."""
        reason = f": {self.unavailable[stack]}" if stack in self.unavailable else ""
        return f"{self.name} has no environment for the stack {stack}{reason}"

    def environment_name(self, stack: str, flavor: str | None) -> str | None:
        """The environment's name on nodes of the stack, such as `mxnet` or `mxnet-mkl`. None if
        the stack has no environment."""
        if flavor is not None and stack in self.flavors[flavor]:
            return f"{self.name}-{flavor}"
        return self.name if stack in self.environments else None
