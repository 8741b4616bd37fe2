"""What a GPU node's processor keeps the roles from installing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

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


def refusal(stack: Mapping[str, Any], processor: str, node: str) -> str:
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


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {"gpu_node_processor_refusal": refusal}
