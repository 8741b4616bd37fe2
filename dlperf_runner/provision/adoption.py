"""Parts that a node keeps (`dlperf_adopt`) and parts that may be replaced (`dlperf_replace`).

`node` holds the facts of the module software_info.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from ..catalog.stack import ADOPTED
from .nvidia_driver import OPERATORS

TITLES = {
    "driver": "the driver",
    "container_runtime": "the container engine",
    "infiniband": "MLNX_OFED",
    "openmpi": "OpenMPI",
    "cuda": "CUDA",
    "cudnn": "cuDNN",
    "nccl": "NCCL",
    "rocm": "ROCm",
}
ALL = "all"
# The parts to which families of packages belong.
_PARTS = {
    "cuda": "cuda",
    "cudnn": "cudnn",
    "nccl": "nccl",
    "rocm": "rocm",
    "amdgpu_driver": "driver",
    "nvidia_driver": "driver",
    "container_engine": "container_runtime",
    "container_toolkit": "container_runtime",
}


def adopted_stack(
    stack: Mapping[str, Any], parts: Sequence[str] | str, node: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The stack in which the node's own software stands for the adopted parts."""
    parts = chosen(parts)
    result = {key: value for key, value in stack.items() if key not in parts}
    facts = node or {}
    if "driver" in parts and "driver" in stack:
        version = (facts.get("driver") or {}).get("version", "")
        result["driver"] = {"version": version, "method": "adopted"}
    if "driver" in parts and "rocm" in result:
        result["rocm"] = {"version": stack["rocm"]["version"]}
    if "infiniband" in parts and "infiniband" in stack:
        ofed = facts.get("infiniband", {}).get("ofed") or ""
        result["infiniband"] = {**stack["infiniband"], "method": "adopted", "version": ofed}
    if "openmpi" in parts:
        result["openmpi"] = {"method": "adopted"}
        result["apt_packages"] = {**stack["apt_packages"], "openmpi": []}
    return result


def record(parts: Sequence[str], node: Mapping[str, Any]) -> dict[str, Any]:
    """The kept version of each part, as provisioning records it on the node."""
    kept = {part: _versions(node.get(part)) for part in TITLES if part in chosen(parts)}
    if "container_runtime" in kept:
        kept["container_runtime"]["toolkit"] = node["toolkit"]
    return kept


def files(parts: Sequence[str], node: Mapping[str, Any]) -> list[dict[str, str]]:
    """Entries of the module node_files for the record: a node that keeps nothing has none."""
    folder, path = "/var/lib/dlperf", "/var/lib/dlperf/adopted.json"
    if not parts:
        return [{"path": path, "state": "absent"}]
    content = json.dumps(record(parts, node), indent=4, sort_keys=True) + "\n"
    return [{"path": folder, "state": "directory"}, {"path": path, "content": content}]


def _versions(part: Mapping[str, Any] | None) -> dict[str, Any]:
    """The versions among the facts of a part: {docker: 24.0.7} for engines."""
    return {
        key: value.get("version") if isinstance(value, Mapping) else value
        for key, value in (part or {}).items()
        if key != "is_ours"
    }


def report(
    parts: Sequence[str], node: Mapping[str, Any], stack: Mapping[str, Any]
) -> dict[str, Any]:
    """Facts for the doctor: of each part what was `recorded`, what the node has now (`kept`) and
    what that means. A failure to gather the facts stays one."""
    if node.get("failed") or node.get("unreachable"):
        return dict(node)
    texts_by_kind = meanings(chosen(parts), node, stack)
    texts = [*texts_by_kind["problems"], *texts_by_kind["notes"]]
    return {
        "recorded": node["recorded"],
        "kept": record(parts, node),
        "meanings": {text.partition(":")[0]: text for text in texts},
        "problems": [text.partition(":")[0] for text in texts_by_kind["problems"]],
    }


def problems(
    parts: Sequence[str],
    node: Mapping[str, Any],
    mpirun: str,
    engine: str = "",
    images: Mapping[str, str] | None = None,
) -> list[str]:
    """The reasons why the node cannot keep these parts. `mpirun`, `engine` and `images` are the
    inventory's dlperf_mpirun, dlperf_container_engine and dlperf_container_images."""
    reasons = []
    names = [*ADOPTED, ALL]
    if unknown := [part for part in parts if part not in names]:
        reasons.append(f"dlperf_adopt: unknown {', '.join(unknown)}; known: {', '.join(names)}")
    if "driver" in parts and node.get("is_operators"):
        reasons.append(OPERATORS)
    if "driver" in parts and not node["driver"]:
        reasons.append("dlperf_adopt has driver, but no driver is loaded on the node")
    if "container_runtime" in parts and (engine or images):
        has = node["container_runtime"]
        if not has:
            reasons.append(
                "dlperf_adopt has container_runtime, but the node has neither docker nor podman"
            )
        elif engine not in has:
            reasons.append(
                "dlperf_adopt has container_runtime: dlperf_container_engine must be one of the"
                f" node's engines ({', '.join(has)}), and is {engine or 'unset'}"
            )
    if "openmpi" in parts and not mpirun:
        reasons.append(
            "dlperf_adopt has openmpi: set dlperf_mpirun to the path of the node's mpirun"
        )
    elif "openmpi" in parts and not node["openmpi"]:
        reasons.append(f"dlperf_adopt has openmpi, but {mpirun} is no mpirun of OpenMPI")
    return reasons


def meanings(
    parts: Sequence[str], node: Mapping[str, Any], stack: Mapping[str, Any]
) -> dict[str, list[str]]:
    """The meaning of the adopted versions for the workloads: `problems` and `notes`. `stack` is
    that without adoption."""
    texts: dict[str, list[str]] = {"problems": [], "notes": []}
    if "driver" in parts and node["driver"]:
        kind, text = _of_driver(node["driver"], stack)
        texts[kind].append(text)
    if "container_runtime" in parts and node["container_runtime"]:
        toolkit = node["toolkit"]
        has = (
            f"NVIDIA's container toolkit {toolkit}"
            if toolkit
            else "no NVIDIA container toolkit: containers cannot use the GPUs"
        )
        engines = node["container_runtime"].items()
        names = ", ".join(f"{engine} {each['version']}" for engine, each in engines)
        texts["notes"].append(f"container_runtime: {names}, {has}")
    if "infiniband" in parts:
        fabric = node["infiniband"]
        ofed, core = fabric["ofed"] or "none", fabric["rdma_core"] or "none"
        wanted = stack.get("infiniband", {}).get("version")
        instead = f" (the stack has {wanted})" if wanted and wanted != ofed else ""
        texts["notes"].append(f"infiniband: MLNX_OFED {ofed}{instead}, rdma-core {core}")
    if "openmpi" in parts and node["openmpi"]:
        version, wanted = node["openmpi"]["version"], stack.get("openmpi", {}).get("version")
        instead = f" (the stack has {wanted})" if wanted and wanted != version else ""
        texts["notes"].append(f"openmpi: {version}{instead}; Horovod is built against it")
    for part in {"cuda", "cudnn", "nccl", "rocm"} & stack.keys() & set(parts):
        has, wanted = (node.get(part) or {}).get("version", "none"), stack[part]["version"]
        instead = f" (the stack has {wanted})" if wanted != has else ""
        texts["notes"].append(f"{part}: {has}{instead}; frameworks may bring one of their own")
    return texts


def _of_driver(driver: Mapping[str, Any], stack: Mapping[str, Any]) -> tuple[str, str]:
    version, native = driver["version"], driver["cuda"]
    wanted = stack.get("cuda", {}).get("version")
    planned = stack.get("driver", {}).get("version")
    instead = f" (the stack has {planned})" if planned and planned != version else ""
    text = f"driver: {version}{instead}"
    if not wanted:
        return "notes", text
    if not native:
        return "notes", f"{text}; nvidia-smi does not say which CUDA it supports"
    support = support_of(native, wanted)
    if support == "full":
        return "notes", f"{text} supports CUDA {native}, and with it the stack's {wanted}"
    if support == "limited":
        return "notes", (
            f"{text} supports CUDA {native}: programs of the stack's CUDA {wanted} run on it by"
            " minor version compatibility, but PTX is not compiled for the GPU, and new functions"
            " are missing. Compare speeds only with runs on the same driver"
        )
    return "problems", (
        f"{text} supports CUDA {native}, and the stack's CUDA {wanted} does not run on it. Update"
        " the driver, leave driver out of dlperf_adopt, or choose a CUDA up to"
        f" {native} (dlperf_stack_overrides)"
    )


def support_of(native: str, cuda: str) -> Literal["full", "limited", "none"]:
    """The support of a driver for programs of a CUDA: fully those of its own (`native`) and older
    ones; with limits newer ones of the same major version, from 11 on, because it cannot compile
    their PTX."""
    supported, wanted = ([int(part) for part in text.split(".")[:2]] for text in (native, cuda))
    if supported >= wanted:
        return "full"
    return "limited" if supported[0] == wanted[0] >= 11 else "none"


def chosen(parts: Sequence[str] | str) -> list[str]:
    """The parts that `dlperf_adopt` names: a list of them, or `all`."""
    named = [parts] if isinstance(parts, str) else list(parts)
    return [*ADOPTED] if ALL in named else named


def moved_refusals(
    foreign: Mapping[str, Sequence[str]], replaced: Sequence[str], problems: Sequence[str] = ()
) -> list[str]:
    """The reasons why packages of somebody else must not be moved to other versions. `foreign`: by
    family, from the module package_sources_info. `replaced`: the inventory's dlperf_replace.
    `problems`: those known already, which may ask for the same consent."""
    return [
        f"{TITLES[part]}: provisioning did not install these packages, and would replace"
        f" {', '.join(moved)}. Keep them (dlperf_adopt: [{part}]), or allow the replacement"
        f" (dlperf_replace: [{part}])"
        for family, moved in foreign.items()
        if (part := _PARTS.get(family))
        and part not in replaced
        and not any(f"dlperf_replace: [{part}]" in problem for problem in problems)
    ]


def work_refusal(
    work: Mapping[str, Sequence[str]], installs: Sequence[str], drains: bool, removes: bool = False
) -> str:
    """The running work that keeps a node from being changed, as a refusal; empty without any.
    `work` is from the module node_facts; `installs`: what would be installed; `removes`: the node
    is decommissioned."""
    if (jobs := work.get("jobs", ())) and not drains:
        ways = "dlperf provision --drain, or dlperf_drain: true"
        return (
            f"jobs of Slurm run on the node: {', '.join(jobs)}. Drain it first"
            f" ({'-e dlperf_drain=true' if removes else ways}), or run again when they have ended"
        )
    if (containers := work.get("gpu_containers", ())) and (installs or removes):
        change = "remove packages" if removes else f"install {', '.join(installs)}"
        return (
            f"containers on the node have GPUs: {', '.join(containers)}. To {change} makes systemd"
            " read its units again (daemon-reload), after which containers lose their GPUs. End"
            " them, then run again"
        )
    return ""


def replacement_refusal(
    part: str,
    installed: str | None,
    wanted: str,
    is_ours: bool,
    may_replace: bool,
    processes: Sequence[str],
) -> str:
    """The reason why a part must not be replaced; empty if it may be, or if nothing would be
    replaced."""
    if not installed or installed == wanted:
        return ""
    what = f"{TITLES[part]} {installed}"
    if not is_ours and not may_replace:
        return (
            f"{what} was not installed by provisioning, which would replace it by {wanted}. Keep it"
            f" (dlperf_adopt: [{part}]), or allow the replacement (dlperf_replace: [{part}])"
        )
    if processes:
        return (
            f"{what} would be replaced by {wanted} while processes use the GPUs:"
            f" {', '.join(processes)}. End them, then run again"
        )
    return ""
