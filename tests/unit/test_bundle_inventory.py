"""A mirror folder for an inventory's nodes: with their changes of the stack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import call, output

from dlperf_runner.bundle.needs import as_inventory_says
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node

H100 = "h100-cuda12.9"


def node(name: str = "a", **said: Any) -> Node:
    given = {"address": "10.0.0.1", "devices_per_node": 8, "accelerator": "H100", "stack": H100}
    return Node(name=name, **(given | said))


def listed(*argv: str) -> dict[str, str]:
    """The names of what a mirror would hold, by what wants them."""
    rows = call("bundle", *argv, "--list", "--json").document
    return {row["wanted by"]: row["name"] for row in reversed(rows) if row["kind"] != "image"}


def test_the_folder_has_what_the_inventory_makes_of_the_stack(tmp_path: Path) -> None:
    hosts = {
        "dlperf_devices_per_node": 8,
        "dlperf_accelerator": "NVIDIA H100 80GB HBM3",
        "dlperf_stack": H100,
        "dlperf_suite": "noble",
        "dlperf_container_engine": "docker",
        "dlperf_stack_overrides": {"cudnn": None, "openmpi": {"version": "4.1.6"}},
        "dlperf_adopt": ["driver"],
    }
    inventory = tmp_path / "hosts.json"
    inventory.write_text(json.dumps({"nodes": {"hosts": {"a": hosts, "b": hosts}}}))
    without = listed("--stack", H100, "--suite", "noble")
    assert without["openmpi"].startswith("openmpi-5.0.8")
    assert {"nvidia_driver", "cudnn"} < set(without)
    assert without["container_runtime (podman)"] == "podman crun"
    own = listed("-i", str(inventory))
    assert own["openmpi"].startswith("openmpi-4.1.6")
    assert not {"nvidia_driver", "cudnn", "container_runtime (podman)"} & set(own)
    assert "~noble" in own["container_runtime"]
    told = output("bundle", "-i", inventory, "--stack", "cpu", "--list", status=2)
    assert "expected stack cpu, found h100-cuda12.9 noble" in " ".join(told.split())


def test_a_folder_is_for_one_kind_of_node() -> None:
    nodes = [node(), node("b"), node("c", stack="cpu", accelerator="cpu")]
    catalog, stack, suite = as_inventory_says(load_catalog(), nodes, H100, "")
    assert (stack, suite, catalog.stack(H100)) == (H100, "", load_catalog().stack(H100))
    with pytest.raises(UserError, match=r"host c: the nodes need different packages[\s\S]*--limit"):
        as_inventory_says(load_catalog(), nodes, "", "")
    other = node("b", stack_overrides={"cudnn": None})
    with pytest.raises(UserError, match=r"host b: the nodes need different packages"):
        as_inventory_says(load_catalog(), [node(), other], H100, "")
    mixed = [node(suite="jammy"), node("b", suite="noble")]
    assert as_inventory_says(load_catalog(), mixed, "", "noble")[2] == "noble"
    with pytest.raises(UserError, match="host b"):
        as_inventory_says(load_catalog(), mixed, "", "")


def test_nothing_is_limited_without_an_inventory() -> None:
    told = output("bundle", "--limit", "a", "--list", status=2)
    assert "--limit: there is nothing to limit" in told
