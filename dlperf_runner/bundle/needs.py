"""What a stack needs on a suite: packages by role, and locked requirements files."""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet

from ..catalog.reader import Catalog, lookup
from ..catalog.workload import Environment, Stack
from ..core.errors import UserError
from .archives import DEBIAN, UBUNTU, Distribution
from .manifest import Skipped
from .vendor import of_distribution

Kind = Literal["wheel", "sdist"]


@dataclass(frozen=True)
class Suite:
    """A release of a distribution: its Python, and its C library, which decides which wheels can
    run."""

    name: str
    python: str
    glibc: str
    distribution: Distribution = DEBIAN


SUITES = {
    suite.name: suite
    for suite in (
        Suite("bullseye", python="3.9", glibc="2.31"),
        Suite("bookworm", python="3.11", glibc="2.36"),
        Suite("trixie", python="3.13", glibc="2.41"),
        Suite("xenial", python="3.5", glibc="2.23", distribution=UBUNTU),
        Suite("bionic", python="3.6", glibc="2.27", distribution=UBUNTU),
        Suite("focal", python="3.8", glibc="2.31", distribution=UBUNTU),
        Suite("jammy", python="3.10", glibc="2.35", distribution=UBUNTU),
        Suite("noble", python="3.12", glibc="2.39", distribution=UBUNTU),
    )
}

# Debian's name of an architecture, and Python's.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class RequirementsFile:
    """A locked requirements file; `path` is relative to the repository's root. `sdists` are those
    of its releases that are no wheels, where the others are."""

    path: str
    wanted_by: str
    kind: Kind = "wheel"
    sdists: tuple[str, ...] = ()

    def kind_of(self, name: str) -> Kind:
        return "sdist" if name in self.sdists else self.kind


@dataclass(frozen=True)
class Needs:
    """Everything that provisioning a stack on a suite installs."""

    stack: str
    suite: Suite
    architecture: str
    packages: Mapping[str, tuple[str, ...]]
    requirements: tuple[RequirementsFile, ...]
    skipped: tuple[Skipped, ...] = ()
    root: Path = Path()


# The option by which the operator names packages, which are said to be wanted by it.
FURTHER = "--package"
# uv is installed on the nodes before any environment, and makes them.
UV = RequirementsFile("requirements/uv.txt", "uv")


def of_stack(
    catalog: Catalog,
    stack_name: str,
    suite_name: str,
    root: Path,
    frameworks: tuple[str, ...] = (),
    python: str = "",
    further: tuple[str, ...] = (),
) -> Needs:
    """What the catalogue says that `stack_name` needs, with the environments of `frameworks`, or of
    all that have one; those whose Python the suite does not have are left out, and the reason is
    kept. `python`: version of the nodes' interpreter (3.7) where it is neither the stack's nor the
    suite's own. `further`: packages of the distribution that only the operator knows of."""
    stack = lookup("stack", stack_name, catalog.stacks, "--stack")
    suite = suite_named(suite_name, stack.suites)
    own = ".".join(stack.python.version.split(".")[:2]) if stack.python else suite.python
    suite = replace(suite, python=python or own)
    packages = dict(stack.apt_packages)
    packages |= {role: tuple(names) for role, names in of_distribution(stack)}
    if further:
        packages[FURTHER] = further
    requirements = [UV]
    skipped = list(_of_the_operator(stack, further))
    for name, environment in _environments(catalog, stack.name, frameworks).items():
        if environment.python is None or environment.requirements is None:
            image = environment.container.image if environment.container else "its image"
            skipped.append(Skipped(name, f"it is {image}, which nodes pull from its registry"))
            continue
        if not SpecifierSet(environment.python).contains(suite.python):
            reason = f"it takes Python {environment.python}, and {suite.name} has {suite.python}"
            skipped.append(Skipped(name, reason))
            continue
        skipped += [
            Skipped(name, f"its {w.distribution} {w.version} is the operator's: {w.reason}")
            for w in environment.operator_wheels
        ]
        requirements.append(
            RequirementsFile(environment.requirements, name, sdists=environment.sdists)
        )
        if horovod := environment.horovod:
            by = f"horovod ({name})"
            requirements.append(RequirementsFile(horovod.requirements, by, "sdist"))
            requirements.append(RequirementsFile(horovod.build_requirements, f"{by}, its build"))
            if horovod.apt_build_packages:
                packages[by] = horovod.apt_build_packages
    return Needs(
        stack=stack.name,
        suite=suite,
        # Vendors have nothing else.
        architecture="amd64" if stack.accelerator == "gpu" else host_architecture(),
        packages=packages,
        requirements=tuple(requirements),
        skipped=tuple(skipped),
        root=root,
    )


def _of_the_operator(stack: Stack, further: tuple[str, ...]) -> Iterator[Skipped]:
    """Packages of the distribution that nodes need, and that nothing here can name."""
    if stack.driver and not any(name.startswith("linux-headers-") for name in further):
        yield Skipped(
            "the kernel's headers",
            f"the driver is built with them on nodes that have them not yet; {FURTHER}"
            " linux-headers-VERSION, with the VERSION that uname -r says there",
        )
    if stack.infiniband and stack.infiniband.method == "mlnx_ofed":
        yield Skipped(
            "MLNX_OFED",
            "what its installer takes of the distribution is known to it alone; what it says on a"
            f" node that it lacks is for {FURTHER}",
        )


def _environments(catalog: Catalog, stack: str, names: tuple[str, ...]) -> dict[str, Environment]:
    """In the catalogue's order, whatever the order of `names`: the same choice, the same needs."""
    there = {
        name: environment
        for framework in catalog.frameworks.values()
        for name, environment in framework.environments_on(stack).items()
    }
    for name in names:
        if name not in there:
            lookup("framework", name, catalog.frameworks, "--framework")
            raise UserError(
                f"this framework has no environment for stack {stack}",
                where="--framework",
                expected=f"one of {', '.join(there)}",
                found=repr(name),
            )
    return {name: found for name, found in there.items() if not names or name in names}


def suite_named(name: str, allowed: tuple[str, ...]) -> Suite:
    known = [suite for suite in allowed if suite in SUITES]
    if name not in known:
        raise UserError(
            "the stack is not made for this suite",
            where="--suite",
            expected=" or ".join(known) or "a stack that names suites",
            found=name,
        )
    return SUITES[name]


def host_architecture() -> str:
    """Debian's name of this machine's architecture; the nodes are taken to have the same."""
    machine = platform.machine()
    for debian, python in MACHINES.items():
        if machine == python:
            return debian
    raise UserError(
        "mirrors can be made on these machines only",
        expected=" or ".join(MACHINES.values()),
        found=machine,
    )


def marker_environment(suite: Suite, architecture: str) -> dict[str, str]:
    """PEP 508 marker variables as the node's own interpreter has them."""
    return {
        "implementation_name": "cpython",
        "implementation_version": f"{suite.python}.0",
        "os_name": "posix",
        "platform_machine": MACHINES[architecture],
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": f"{suite.python}.0",
        "python_version": suite.python,
        "sys_platform": "linux",
        "extra": "",
    }


def wheel_platforms(suite: Suite, architecture: str) -> tuple[str, ...]:
    """Platform tags of the wheels that run there, newest first (PEP 600 and its ancestors)."""
    machine = MACHINES[architecture]
    minor = int(suite.glibc.split(".")[1])
    oldest = 5 if machine == "x86_64" else 17
    tags = [f"manylinux_2_{version}_{machine}" for version in range(minor, oldest - 1, -1)]
    ancestors = ["manylinux2014"] + (["manylinux2010", "manylinux1"] if machine == "x86_64" else [])
    return (*tags, *(f"{name}_{machine}" for name in ancestors), f"linux_{machine}")
