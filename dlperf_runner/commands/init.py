"""The command `init`: an inventory from an example for one kind of GPU."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from ..core.errors import unknown_name
from ..core.files import read_text, write_whole
from ..core.paths import copy_shipped, is_clone, shipped
from ..options import completes, option

ORDER = 20
HELP = """
directory [DIR]: The directory of the new inventory.
show_list --list: List the examples, and create nothing.
"""


class Example(NamedTuple):
    """A folder of inventory/, the words in it that are others for these nodes, and a workload that
    runs on them."""

    nodes: str
    folder: str = "example-h100"
    words: tuple[tuple[str, str], ...] = ()
    workload: str = "pytorch-resnet50v1.5"


_A100 = ("NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"), ("h100-cuda12.9", "a100-cuda11.8")
_B200 = ("NVIDIA H100 80GB HBM3", "NVIDIA B200"), ("h100-cuda12.9", "b200-cuda13")


# Reports are of nodes with 8 GPUs.
_SMOKE = """\
# For the batch sizes of the reports: --matrix published --nodes 1,2,4 --gpus-per-node 4
dlperf_matrix: smoke
"""
_RACK = """\
# All nodes of one name share GPU memory by IMEX. Nodes of another rack have its name in hosts.yml.
# A run stays within one domain that has enough nodes; reports show over how many others went.
dlperf_nvlink_domain: rack1

"""


def _of_amd(gpu: str, stack: str) -> Example:
    return Example(
        f"4 nodes with 8 {gpu} each, RoCE; a wheel of torch for ROCm 7 is yours",
        words=(
            *(("NVIDIA H100 80GB HBM3", f"AMD Instinct {gpu}"), ("h100-cuda12.9", stack)),
            *(("8 H100", f"8 {gpu}"), ("pytorch, jax, tensorflow2, nccl", "pytorch, jax, rccl")),
        ),
    )


EXAMPLES = {
    "h100": Example("4 nodes with 8 H100 each, RoCE; H200 alike"),
    "a100": Example(
        "4 nodes with 8 A100 each, RoCE",
        words=(*_A100, ("8 H100", "8 A100"), ("expects 400 Gb/s", "expects 200 Gb/s")),
    ),
    "b200": Example(
        "4 nodes with 8 B200 each, RoCE",
        words=(*_B200, ("8 H100", "8 B200"), ("jax, tensorflow2, nccl", "jax, nccl")),
    ),
    "gb200": Example(
        "4 nodes of an NVL72 rack with 4 GB200 each, RoCE beside NVLink; GB300 alike",
        words=(
            *(("NVIDIA H100 80GB HBM3", "NVIDIA GB200"), ("h100-cuda12.9", "b200-cuda13")),
            *(("4 HGX nodes with 8 H100 each", "4 nodes of an NVL72 rack with 4 GB200 each"),),
            *(("per_node: 8", "per_node: 4"), ("jax, tensorflow2, nccl", "jax, nccl")),
            ("dlperf_matrix: published\n", _SMOKE),
            ("# The network of the benchmark", f"{_RACK}# The network of the benchmark"),
        ),
    ),
    "mi300x": _of_amd("MI300X", "mi300-rocm7"),
    "mi355x": _of_amd("MI355X", "mi355-rocm7"),
    "v100": Example(
        "4 nodes with 8 V100 each, InfiniBand: the published cluster",
        "example",
        workload="mxnet-resnet50v1b",
    ),
}


def command(
    directory: Path = Path("inventory"),
    example: Annotated[
        str,
        option(
            "--from",
            f"The GPUs of your nodes: {', '.join(EXAMPLES)}; default: h100. A terminal is asked.",
            "NAME",
            autocompletion=completes(lambda: EXAMPLES),
        ),
    ] = "",
    show_list: bool = False,
) -> None:
    """Create an inventory from an example, and print the next steps.

    Example: dlperf init inventory/mine --from a100"""
    if show_list:
        for name, each in EXAMPLES.items():
            print(f"{name:6}  {each.nodes}")
        return
    if not example and sys.stdin.isatty():
        example = typer.prompt(f"GPUs of your nodes ({', '.join(EXAMPLES)})", default="h100")
    name = (example or "h100").lower()
    made = init_inventory(directory, name)
    workload = EXAMPLES[name].workload
    print(f"Created {made} for {EXAMPLES[name].nodes}.")
    print("Set names and addresses in hosts.yml, and what differs in group_vars/nodes.yml. Then:")
    print(f"  dlperf provision -i {made} --check    # what would change; changes nothing")
    print(f"  dlperf provision -i {made}")
    print(f"  dlperf run -i {made} --workload {workload}")


def init_inventory(directory: Path, name: str) -> Path:
    """Copy an example inventory. Raises UserError if the directory already exists."""
    if name not in EXAMPLES:
        raise unknown_name("example", name, EXAMPLES, "--from")
    examples = shipped() / "inventory"
    if directory.is_dir() and is_clone() and directory.resolve() == examples:
        directory = directory / "mine"
    copy_shipped(f"inventory/{EXAMPLES[name].folder}", directory, "dlperf init DIR")
    for path in sorted(directory.rglob("*.yml")):
        text = read_text(path)
        for old, new in EXAMPLES[name].words:
            text = text.replace(old, new)
        write_whole(path, text)
    return directory
