"""A node's stack: a document of catalog/stacks/ with the inventory's `dlperf_stack_overrides`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
VARIABLE = "dlperf_stack_overrides"
# The parts of a stack and their keys, as in dlperf_runner/catalog/stack.py; empty: any value.
KEYS = {
    "title": "",
    "accelerator": "",
    "suites": "",
    "systems": "",
    "apt_packages": "",
    "gpu": "models",
    "driver": "version method",
    "cuda": "version",
    "cudnn": "version",
    "cuda_libraries": "version",
    "nccl": "version",
    "openmpi": "method version",
    "python": "version",
    "infiniband": "method version peer_memory rails rate_gbps roce_rate_gbps",
    "container_runtime": "engine version toolkit",
    "tuning": "cpu_governor numa_balancing persistence application_clocks locked_clocks",
    "least_bus_bandwidth": "one_node several_nodes",
}


def document(
    name: str, overrides: Mapping[str, Any] | None = None, root: str = str(ROOT)
) -> dict[str, Any]:
    """A stack with the inventory's changes. Raises ValueError for an unknown name or key."""
    folder = Path(root, "dlperf_runner/catalog/stacks")
    path = folder / f"{name}.yml"
    if not path.is_file():
        known = ", ".join(sorted(entry.stem for entry in folder.glob("*.yml")))
        raise ValueError(f"unknown name {name} in stacks; known names: {known}")
    check(overrides or {})
    return merged(_read(path), overrides or {})


def refusal(name: str, overrides: Mapping[str, Any] | None = None) -> str:
    """Why there is no such stack, or no such change of it; empty if there is."""
    try:
        mpirun(name, overrides)
    except ValueError as error:
        return str(error)
    return ""


def check(overrides: Mapping[str, Any]) -> None:
    """Raises ValueError for a key that no stack has: it would change nothing."""
    _known(overrides, KEYS, VARIABLE)
    for part, value in overrides.items():
        if value is not None and KEYS[part]:
            if not isinstance(value, Mapping):
                raise ValueError(
                    f"{VARIABLE}: {part} must have keys ({KEYS[part]}) or be null, found {value!r}"
                )
            _known(value, KEYS[part].split(), f"{VARIABLE}: {part}")


def _known(keys: Mapping[str, Any], known: Any, where: str) -> None:
    if unknown := [str(key) for key in keys if key not in known]:
        raise ValueError(
            f"unknown key {', '.join(unknown)} in {where}; known keys: {', '.join(known)}"
        )


def merged(own: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` in `own`, recursively. A null removes the key; lists are replaced."""
    result = dict(own)
    for key, value in changes.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, Mapping):
            before = result.get(key)
            result[key] = merged(before if isinstance(before, Mapping) else {}, value)
        else:
            result[key] = value
    return result


def mpirun(name: str, overrides: Mapping[str, Any] | None = None, root: str = str(ROOT)) -> str:
    """The path of a stack's mpirun, which differs for a build from source."""
    method = document(name, overrides, root).get("openmpi", {}).get("method", "package")
    paths = _read(Path(root, "dlperf_runner/catalog/mpirun.yml"))["paths"]
    if str(method) not in paths:
        raise ValueError(f"unknown openmpi.method {method!r}; known methods: {', '.join(paths)}")
    return str(paths[method])


def rails(name: str, overrides: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> str:
    """The network devices that NCCL uses, in the syntax of NCCL_IB_HCA; empty if unnamed.

    `variables` are those of dlperf_env, which override the stack.
    """
    own = document(name, overrides).get("infiniband", {}).get("rails", "")
    return str(variables.get("NCCL_IB_HCA", own))


def _read(path: Path) -> dict[str, Any]:
    # Ansible's from_yaml would take 20 ms per document.
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    found: dict[str, Any] = yaml.load(path.read_text(encoding="utf-8"), Loader=loader)  # noqa: S506  both are safe
    return found


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "stack_document": document,
            "stack_mpirun": mpirun,
            "stack_rails": rails,
            "stack_refusal": refusal,
        }
