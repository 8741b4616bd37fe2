"""Needs of a stack on a suite: packages by role, and locked requirements files."""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from packaging.specifiers import SpecifierSet

from ..catalog.reader import Catalog, lookup
from ..catalog.suites import SUITES
from ..catalog.workload import Environment, Stack
from ..core.errors import UserError
from ..core.node import Node
from .manifest import Missing, SkippedNeed
from .release_tables import (
    VendorFile,
    VendorRepository,
    of_distribution,
    refusals,
    require_suite,
    wanted,
)
from .wheels import MACHINES, RequirementsFile, Target, read


@dataclass(frozen=True)
class Needs:
    """Everything that provisioning a stack on a suite installs: the distribution's packages by
    role, locked requirements files (below `root`), and what vendors have. `refused`: versions that
    the roles refuse on the suite."""

    stack: str
    suite: str
    target: Target
    packages: Mapping[str, tuple[str, ...]]
    requirements: tuple[RequirementsFile, ...] = ()
    skipped: tuple[SkippedNeed, ...] = ()
    root: Path = Path()
    repositories: tuple[VendorRepository, ...] = ()
    files: tuple[VendorFile, ...] = ()
    refused: tuple[Missing, ...] = ()


# The option by which the operator names packages; the manifest says that it wants them.
FURTHER = "--package"
# Roles that run only if an inventory asks for them: a folder can do without their packages.
OPTIONAL = frozenset({"container", "slurm", "slurm_accounting", "time_service"})
# Nodes get uv before any environment, because it makes the environments.
UV = RequirementsFile("requirements/uv.txt", "uv")


def of_stack(
    catalog: Catalog,
    stack_name: str,
    suite_name: str,
    root: Path,
    frameworks: tuple[str, ...] = (),
    python: str = "",
    further: tuple[str, ...] = (),
    keys: Mapping[str, list[str]] | None = None,
) -> Needs:
    """The needs of `stack_name` by the catalogue, with the environments of `frameworks`, or of all
    that have one. An environment is left out, with the reason, if the suite lacks its Python.
    `python`: the version of `python_env_interpreter`, if the nodes have one; they then build none.
    `further`: packages of the distribution that only the operator knows. `keys`: as
    dlperf_vendor_keys."""
    stack = lookup("stack", stack_name, catalog.stacks, "--stack")
    stack = without_python(stack) if python else stack
    require_suite(stack, suite_name)
    suite = SUITES[suite_name]
    version = ".".join(stack.python.version.split(".")[:2]) if stack.python else suite.python
    of_stack = {python: debian for debian, python in MACHINES.items()}[stack.processors[0]]
    architecture = of_stack if stack.accelerator == "gpu" else host_architecture()
    target = Target(python or version, suite.glibc, architecture)
    packages = dict(stack.apt_packages)
    packages |= {role: tuple(names) for role, names in of_distribution(stack, suite_name)}
    if further:
        packages[FURTHER] = further
    requirements = [UV]
    skipped = list(_of_the_operator(stack, further))
    for name, environment in _environments(catalog, stack.name, frameworks).items():
        skipped += _left_out(name, environment, target, suite_name)
        requirements += _locks(name, environment, target)
        if _fits(environment, target):
            packages |= {name: environment.apt_packages} if environment.apt_packages else {}
            if (horovod := environment.horovod) and horovod.apt_build_packages:
                packages[f"horovod ({name})"] = horovod.apt_build_packages
    things = wanted(stack, suite_name, keys)
    return Needs(
        stack=stack.name,
        suite=suite_name,
        target=target,
        packages=packages,
        requirements=tuple(requirements),
        skipped=tuple(skipped),
        root=root,
        repositories=tuple(one for one in things if isinstance(one, VendorRepository)),
        files=tuple(one for one in things if isinstance(one, VendorFile)),
        refused=tuple(
            Missing(
                re.split(" does not | is unknown", why)[0],
                "the stack",
                f"suite {suite_name}",
                f"is refused: {why}",
            )
            for why in refusals(stack, suite_name)
        ),
    )


def _fits(environment: Environment, target: Target) -> bool:
    """True if an environment is made on the nodes, with the target's interpreter."""
    is_made = environment.python is not None and environment.requirements is not None
    return is_made and target.python in SpecifierSet(environment.python or "")


def _locks(name: str, environment: Environment, target: Target) -> Iterator[RequirementsFile]:
    """The requirements files of an environment."""
    is_made = environment.python is not None and environment.requirements is not None
    other = environment.alternative if is_made else None
    if other and other.requirements and target.python in SpecifierSet(other.python or ""):
        yield RequirementsFile(other.requirements, f"{name} with the operator's wheel")
    if environment.requirements and _fits(environment, target):
        yield RequirementsFile(environment.requirements, name, sdists=environment.sdists)
        if horovod := environment.horovod:
            by = f"horovod ({name})"
            yield RequirementsFile(horovod.requirements, by, "sdist")
            yield RequirementsFile(horovod.build_requirements, f"{by}, its build")


def _left_out(
    name: str, environment: Environment, target: Target, suite: str
) -> Iterator[SkippedNeed]:
    """The parts of an environment that a folder cannot have."""
    if container := environment.container:
        reason = f"its image is {container.image}, which nodes pull from its registry"
        yield SkippedNeed(name, reason)
    if environment.python is None or environment.requirements is None:
        return
    if not _fits(environment, target):
        reason = f"it takes Python {environment.python}, and {suite} has {target.python}"
        yield SkippedNeed(name, reason)
        return
    for wheel in environment.operator_wheels:
        reason = f"its {wheel.distribution} {wheel.version} is the operator's: {wheel.reason}"
        yield SkippedNeed(name, reason)


def as_inventory_says(
    catalog: Catalog, nodes: Sequence[Node], stack: str, suite: str
) -> tuple[Catalog, str, str]:
    """The catalogue with the nodes' own stack (`dlperf_stack_overrides`, `dlperf_adopt`,
    `dlperf_container_engine`), its name, and the nodes' suite if they say one.

    `stack`, `suite`: only the nodes of these. Raises UserError if there are none, or if they are of
    several kinds: a folder is for one.
    """
    matching = [
        node
        for node in nodes
        if stack in ("", node.stack) and (not suite or node.suite in ("", suite))
    ]
    if not matching:
        raise UserError(
            "no node of the inventory has this stack",
            where="--inventory",
            expected=f"stack {stack} {suite}".rstrip(),
            found=", ".join(dict.fromkeys(f"{node.stack} {node.suite}".strip() for node in nodes)),
        )
    first, changed = matching[0], _changed_stack(catalog, matching[0])
    for node in matching[1:]:
        if (node.suite, _changed_stack(catalog, node)) != (first.suite, changed):
            raise UserError(
                "the nodes need different packages",
                where=f"host {node.name}",
                expected=f"the stack, its changes and the suite of {first.name}",
                found="others",
                hint="make one folder for each kind of node: --limit, --stack, --suite",
            )
    catalog = replace(catalog, stacks={**catalog.stacks, changed.name: changed})
    return catalog, changed.name, suite or first.suite


def _changed_stack(catalog: Catalog, node: Node) -> Stack:
    stack = catalog.stack_of(node)
    if not (runtime := stack.container_runtime) or not node.container_engine:
        return stack
    with_engine = runtime.model_copy(update={"engine": node.container_engine})
    return stack.model_copy(update={"container_runtime": with_engine})


def on_processor(stack: Stack, processor: str) -> Stack:
    """The stack for nodes with this processor only. Raises UserError if it has no packages."""
    if processor not in stack.processors:
        raise UserError(
            f"the stack {stack.name} has no packages for this processor",
            where="--processor",
            expected=" or ".join(stack.processors),
            found=processor,
        )
    return stack.model_copy(update={"processors": (processor,)})


def without_python(stack: Stack) -> Stack:
    """The stack for nodes that have an interpreter of the operator's."""
    return stack.model_copy(update={"python": None})


def _of_the_operator(stack: Stack, further: tuple[str, ...]) -> Iterator[SkippedNeed]:
    """Packages of the distribution that nodes need and only the operator can name."""
    if stack.driver and not any(name.startswith("linux-headers-") for name in further):
        yield SkippedNeed(
            "the kernel's headers",
            f"the driver is built with them on nodes that lack them: give {FURTHER}"
            " linux-headers-VERSION, with the VERSION that uname -r prints there",
        )
    if stack.infiniband and stack.infiniband.method == "mlnx_ofed":
        yield SkippedNeed(
            "MLNX_OFED",
            "only its installer knows which packages of the distribution it needs: give those that"
            f" it reports missing on a node by {FURTHER}",
        )


def _environments(catalog: Catalog, stack: str, names: tuple[str, ...]) -> dict[str, Environment]:
    """In the catalogue's order, whatever the order of `names`."""
    environments = {
        name: environment
        for framework in catalog.frameworks.values()
        for name, environment in framework.environments_on(stack).items()
    }
    for name in names:
        if name not in environments:
            lookup("framework", name, catalog.frameworks, "--framework")
            raise UserError(
                f"this framework has no environment for stack {stack}",
                where="--framework",
                expected=f"one of {', '.join(environments)}",
                found=repr(name),
            )
    return {name: one for name, one in environments.items() if not names or name in names}


def host_architecture() -> str:
    """Debian's name of this machine's architecture; the nodes are assumed to have the same."""
    machine = platform.machine()
    for debian, python in MACHINES.items():
        if machine == python:
            return debian
    raise UserError(
        "mirror folders cannot be made on this machine",
        expected=" or ".join(MACHINES.values()),
        found=machine,
    )


# ---- the planned content, as far as the project's own files say

LIST_COLUMNS = ("kind", "name", "wanted by", "source", "known by")


def listed_stack(
    catalog: Catalog, stack: Stack, suite: str, further: Sequence[str] = ()
) -> list[tuple[str, ...]]:
    """Everything that a stack with GPUs needs on a system, in LIST_COLUMNS, without dependencies of
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


def listed_needs(needs: Needs) -> list[tuple[str, str, str]]:
    """(kind, name, wanted by) of what a stack without GPUs needs."""
    rows = [
        ("deb", name, role)
        for role, names in needs.packages.items()
        for name in dict.fromkeys(names)
    ]
    for one in needs.requirements:
        pins = read(one, needs.root, needs.target)
        rows += [(one.kind_of(pin.name), str(pin), one.wanted_by) for pin in pins]
    return rows
