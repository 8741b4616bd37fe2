"""A node's stack with the inventory's changes, in the form that roles take, and what it means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..catalog.reader import changed_stack, lookup, mpirun_of, own_stacks
from ..catalog.stack import Stack
from ..catalog.suites import RELEASES

# The parts of a stack whose release tables have packages for this processor only.
PROCESSOR = "x86_64"
PARTS = {
    "driver": "the driver",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "cuda_libraries": "CUDA's libraries",
    "nccl": "NCCL",
    "container_runtime": "the container engine",
}


def document(name: str, overrides: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A stack with the inventory's `dlperf_stack_overrides`, with the keys that are set.

    Raises UserError for an unknown stack, key or value.
    """
    return as_document(stack_of(name, overrides))


def as_document(stack: Stack) -> dict[str, Any]:
    """The stack in the form that roles take: the keys that are set."""
    return stack.model_dump(mode="json", exclude_unset=True, exclude_none=True)


def stack_of(name: str, overrides: Mapping[str, Any] | None) -> Stack:
    """The entry of the catalogue, with the inventory's changes."""
    stack = lookup("stack", name, own_stacks(), "dlperf_stack")
    return changed_stack(stack, overrides, "dlperf_stack_overrides") if overrides else stack


def mpirun(name: str, overrides: Mapping[str, Any] | None = None) -> str:
    """The path of a stack's mpirun. Raises UserError as `document` does."""
    return mpirun_of(stack_of(name, overrides).name, overrides)


def rails(name: str, overrides: Mapping[str, Any] | None, variables: Mapping[str, Any]) -> str:
    """The network devices that NCCL uses, in the syntax of NCCL_IB_HCA; empty if unnamed.

    `variables` are those of dlperf_env, which override the stack.
    """
    fabric = stack_of(name, overrides).infiniband
    return str(variables.get("NCCL_IB_HCA", (fabric and fabric.rails) or ""))


def processor_refusal(stack: Mapping[str, Any], processor: str, node: str) -> str:
    """Everything of the stack that a node with another processor cannot have; empty if nothing."""
    if processor in ("", PROCESSOR):
        return ""
    missing = [
        f"{title} {stack[part].get('version') or ''}".strip()
        for part, title in PARTS.items()
        if part in stack and stack[part].get("method") != "adopted"
    ]
    if (runtime := stack.get("container_runtime")) and "toolkit" in runtime:
        missing.append(f"NVIDIA's container toolkit {runtime['toolkit']}")
    if not missing:
        return ""
    return (
        f"{node} is {processor}, and the release tables have packages for {PROCESSOR} only. Missing"
        f" for stack {stack['name']}: {', '.join(missing)}. Install them yourself and keep them"
        " (dlperf_adopt: [driver, container_runtime]), with dlperf_stack_overrides that leave out"
        " the others, or use an image of the frameworks."
    )


def default_engine(release: str) -> str:
    """The container engine of a node whose inventory and stack name none."""
    return RELEASES.engine(release)


def engine_refusal(engine: str, release: str, installed: str | None) -> str:
    """The reason why a node cannot give containers of the engine its GPUs; empty if it can.
    `installed` is the version of its podman."""
    version = installed or RELEASES.podman(release)
    if engine != "podman" or RELEASES.has_cdi(version):
        return ""
    return (
        f"podman gives containers the GPUs by CDI, which it knows from"
        f" {RELEASES.podman_with_cdi} on; this node's is {version or 'none'}."
        " Set dlperf_container_engine to docker, or install a newer podman on the nodes"
    )


def release_refusal(stated: str, release: str) -> str:
    """The reason why dlperf_suite, which the plan believes, is wrong; empty if it is not."""
    if not stated or stated == release:
        return ""
    found = release or "of an unknown release"
    return f"dlperf_suite is {stated}, but the node is {found}. Correct it"
