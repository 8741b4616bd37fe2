"""The planned content of a mirror folder, as far as the project's own files say."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..catalog.framework import Environment
from ..catalog.reader import Catalog
from ..catalog.stack import Stack
from . import wheels
from .needs import FURTHER, UV, Needs
from .release_tables import of_distribution, require_suite, wanted

COLUMNS = ("kind", "name", "wanted by", "source", "known by")


def of_stack(
    catalog: Catalog, stack: Stack, suite: str, further: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Everything that a stack with GPUs needs on a system, in COLUMNS, without the dependencies of
    packages. `further`: what the operator asks for in addition."""
    require_suite(stack, suite)
    rows: list[tuple[str, ...]] = [thing.item for thing in wanted(stack, suite)]
    packages = [*stack.apt_packages.items(), *of_distribution(stack, suite), (FURTHER, further)]
    rows += [_packages(names, role) for role, names in packages if names]
    rows.append(_requirements(UV.path, "python_env"))
    interpreters: dict[str, list[str]] = {}
    for framework in catalog.frameworks.values():
        for name, environment in framework.environments_on(stack.name).items():
            rows += _of_environment(name, environment)
            # An interpreter that the stack builds is among the files.
            if environment.python and not stack.python:
                interpreters.setdefault(environment.python, []).append(name)
    source = "python_env_interpreter of the operator, where the distribution has none"
    rows += [
        ("interpreter", f"Python {python}", ", ".join(names), source, "its version")
        for python, names in interpreters.items()
    ]
    return rows


def _of_environment(name: str, environment: Environment) -> Iterator[tuple[str, ...]]:
    if path := environment.requirements:
        yield _requirements(path, name)
    if environment.apt_packages:
        yield _packages(environment.apt_packages, name)
    for wheel in environment.operator_wheels:
        source = "dlperf_operator_wheels of the operator"
        yield ("wheel", f"{wheel.distribution} {wheel.version}", name, source, "sha256 in it")
    if horovod := environment.horovod:
        by = f"horovod ({name})"
        yield _requirements(horovod.requirements, by)
        yield _requirements(horovod.build_requirements, f"{by}, its build")
        if packages := horovod.apt_build_packages:
            yield _packages(packages, f"{by}, its build")
    if image := environment.container:
        yield ("image", image.image, name, "its registry", "digest in dlperf_container_images")


def _packages(names: Sequence[str], wanted_by: str) -> tuple[str, ...]:
    return ("deb", " ".join(names), wanted_by, "the distribution", "its own key")


def _requirements(path: str, wanted_by: str) -> tuple[str, ...]:
    return ("requirements", path, wanted_by, "a package index", "hashes in it")


def of_needs(needs: Needs) -> list[tuple[str, str, str]]:
    """(kind, name, wanted by) of what a stack without GPUs needs."""
    rows = [
        ("deb", name, role)
        for role, names in needs.packages.items()
        for name in dict.fromkeys(names)
    ]
    for one in needs.requirements:
        pins = wheels.read(one, needs.root, needs.target)
        rows += [(one.kind_of(pin.name), str(pin), one.wanted_by) for pin in pins]
    return rows
