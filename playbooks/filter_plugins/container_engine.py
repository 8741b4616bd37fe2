"""The default container engine of a node, by its release; dlperf_runner/catalog/suites.py computes
the same for the plan."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

SUITES = Path(__file__).parents[2] / "dlperf_runner/catalog/suites.yml"


@cache
def releases() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(SUITES.read_text(encoding="utf-8"))
    return found


def default(release: str) -> str:
    """Rootless podman where the release's (such as noble) can give containers the GPUs."""
    return "docker" if too_old(releases()["suites"].get(release, {}).get("podman")) else "podman"


def chosen(stack: Mapping[str, Any], named: str, release: str) -> dict[str, Any]:
    """The part container_runtime of a stack with the engine: the inventory's, the stack's, or the
    default of the node's release. A version is Docker's."""
    own = stack.get("container_runtime", {})
    engine = named or own.get("engine") or default(release)
    return {k: v for k, v in own.items() if k != "version" or engine == "docker"} | {
        "engine": engine
    }


def refusal(engine: str, release: str, installed: str | None) -> str:
    """Why a node cannot give containers of the engine its GPUs; empty if it can. `installed` is the
    version of its podman."""
    version = installed or releases()["suites"].get(release, {}).get("podman")
    if engine != "podman" or not too_old(version):
        return ""
    return (
        f"podman gives containers the GPUs by CDI, which it knows from"
        f" {releases()['podman_with_cdi']} on; this node's is {version or 'none'}."
        " Set dlperf_container_engine to docker, or install a newer podman on the nodes"
    )


def other_release(said: str, found: str) -> str:
    """Why dlperf_suite, which the plan believes, is wrong; empty if it is not."""
    if not said or said == found:
        return ""
    return f"dlperf_suite is {said}, but the node is {found or 'of an unknown release'}. Correct it"


def too_old(version: str | None) -> bool:
    return not version or numbers(version) < numbers(releases()["podman_with_cdi"])


def numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2])


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "container_engine": default,
            "container_engine_chosen": chosen,
            "container_engine_other_release": other_release,
            "container_engine_refusal": refusal,
        }
