"""Needs of a stack on a suite: packages by role, and locked requirements files."""

from __future__ import annotations

import platform
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
from .wheels import MACHINES, RequirementsFile, Target


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

    @property
    def of_vendors(self) -> list[VendorRepository | VendorFile]:
        return [*self.repositories, *self.files]


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
    # Nodes that have an interpreter of the operator's build none.
    stack = stack.model_copy(update={"python": None}) if python else stack
    require_suite(stack, suite_name)
    suite, is_gpu = SUITES[suite_name], stack.accelerator == "gpu"
    version = ".".join(stack.python.version.split(".")[:2]) if stack.python else suite.python
    architecture = debian_name(stack.processors[0] if is_gpu else platform.machine())
    target = Target(python or version, suite.glibc, architecture)
    packages = dict(stack.apt_packages)
    packages |= {role: tuple(names) for role, names in of_distribution(stack, suite_name)}
    packages |= {FURTHER: further} if further else {}
    requirements = [UV]
    skipped = list(_of_the_operator(stack, further))
    for name, environment in _environments(catalog, stack.name, frameworks).items():
        locks, debs, lacking = _of_environment(name, environment, target, suite_name)
        requirements += locks
        packages |= debs
        skipped += (SkippedNeed(name, reason) for reason in lacking)
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
            Missing(what, "the stack", f"suite {suite_name}", f"is refused: {why}")
            for what, why in refusals(stack, suite_name).items()
        ),
    )


def _of_environment(
    name: str, environment: Environment, target: Target, suite: str
) -> tuple[list[RequirementsFile], dict[str, tuple[str, ...]], list[str]]:
    """The requirements files of an environment, packages of the distribution by what needs them,
    and reasons why the folder lacks a part of it."""
    locks, lacking, by = [], [], f"horovod ({name})"
    if container := environment.container:
        lacking.append(f"its image is {container.image}, which nodes pull from its registry")
    lock, python = environment.requirements, environment.python
    if lock is None or python is None:
        return [], {}, lacking
    other = environment.alternative
    if other and other.requirements and target.python in SpecifierSet(other.python or ""):
        locks.append(RequirementsFile(other.requirements, f"{name} with the operator's wheel"))
    if target.python not in SpecifierSet(python):
        lacking.append(f"it takes Python {python}, and {suite} has {target.python}")
        return locks, {}, lacking
    locks.append(RequirementsFile(lock, name, sdists=environment.sdists))
    packages = {name: environment.apt_packages}
    if horovod := environment.horovod:
        locks.append(RequirementsFile(horovod.requirements, by, "sdist"))
        locks.append(RequirementsFile(horovod.build_requirements, f"{by}, its build"))
        packages[by] = horovod.apt_build_packages
    lacking += (
        f"its {wheel.distribution} {wheel.version} is the operator's: {wheel.reason}"
        for wheel in environment.operator_wheels
    )
    return locks, {role: names for role, names in packages.items() if names}, lacking


def as_inventory_says(
    catalog: Catalog, nodes: Sequence[Node], stack: str, suite: str
) -> tuple[Catalog, str, str]:
    """The catalogue with the nodes' own stack (`dlperf_stack_overrides`, `dlperf_adopt`,
    `dlperf_container_engine`), its name, and the nodes' suite if they say one.

    `stack`, `suite`: only the nodes of these. Raises UserError if there are none, or if they are of
    several kinds: a folder is for one.
    """
    fitting = (one for one in nodes if stack in ("", one.stack))
    matching = [one for one in fitting if not suite or one.suite in ("", suite)]
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
    if processor in stack.processors:
        return stack.model_copy(update={"processors": (processor,)})
    problem = f"the stack {stack.name} has no packages for this processor"
    expected = " or ".join(stack.processors)
    raise UserError(problem, where="--processor", expected=expected, found=processor)


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


def debian_name(machine: str) -> str:
    """Debian's name of a processor."""
    names = {python: debian for debian, python in MACHINES.items()}
    if machine not in names:
        problem = "mirror folders cannot be made on this machine"
        raise UserError(problem, expected=" or ".join(names), found=machine)
    return names[machine]


LIST_COLUMNS = ("kind", "name", "wanted by", "source", "known by")


def listing(needs: Needs) -> list[tuple[str, ...]]:
    """The needs in LIST_COLUMNS, as far as the project's own files say: without dependencies of
    packages."""
    distribution, index = ("the distribution", "its own key"), ("a package index", "hashes in it")
    packages = needs.packages.items()
    locks = needs.requirements
    return [
        *(thing.item for thing in needs.of_vendors),
        *(("deb", " ".join(names), role, *distribution) for role, names in packages),
        *(("requirements", lock.path, lock.wanted_by, *index) for lock in locks),
        *(("left out", one.environment, "", one.reason, "") for one in needs.skipped),
    ]
