"""The container engine is the same for the plan, for provisioning and for a mirror: the operator's,
else the stack's, else rootless podman where the release's can give containers the GPUs."""

from dataclasses import replace
from typing import Any

import pytest
from plan_examples import gpu_nodes
from provisioning_choices import choice, node
from refusals import refusal

from dlperf_runner.bundle import release_tables
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.suites import RELEASES, SUITES
from dlperf_runner.plan.choice import Choice
from dlperf_runner.plan.containers import engine_for
from dlperf_runner.plan.inventory import nodes_of
from dlperf_runner.plan.make import make_plan
from dlperf_runner.provision import adoption, arguments

H100, V100 = "h100-cuda12.9", "v100-cuda10.2"
NGC = "nvcr.io/nvidia/tensorflow:20.12-tf1-py3"
DIGEST = "sha256:" + "5f" * 32
IN_IMAGE = load_catalog().framework("tensorflow").environments_on(V100)["tensorflow"]


def planned(stack: str, **said: Any) -> str:
    """The engine of the plan, of a node for whose environment the inventory has a digest."""
    (first,) = gpu_nodes(1)
    there = replace(first, stack=stack, container_images={NGC: DIGEST}, **said)
    return engine_for(None, IN_IMAGE, load_catalog().stack_of(there), there)


def provisioned(stack: str, release: str, engine: str = "", **changed: Any) -> dict[str, Any]:
    chosen = choice(stack=stack, container_engine=engine, release=release, **changed)
    told: dict[str, Any] = arguments.for_node(chosen, node(), {})
    return told


def test_podman_is_the_default_from_4_1_on() -> None:
    docker = ("bullseye", "xenial", "bionic", "focal", "jammy")  # podman 3.0, none and 3.4
    podman = ("bookworm", "trixie", "noble")  # 4.3, 5.4 and 4.9
    engines = dict.fromkeys(docker, "docker") | dict.fromkeys(podman, "podman")
    assert {suite: RELEASES.engine(suite) for suite in SUITES} == engines
    assert not RELEASES.has_cdi("4.0.3")
    assert RELEASES.has_cdi("4.1.0") and RELEASES.has_cdi("4.10.1")


@pytest.mark.parametrize("overrides", [{}, {"container_runtime": {"engine": "docker"}}])
@pytest.mark.parametrize("named", ["", "docker", "podman"])
@pytest.mark.parametrize("stack", [H100, V100, "a100-cuda11.8", "b200-cuda13"])
def test_plan_and_provisioning_agree(stack: str, named: str, overrides: dict[str, Any]) -> None:
    for suite in load_catalog().stack(stack).suites:
        told = provisioned(stack, suite, named, stack_overrides=overrides)
        runtime = told["gpu_node_stack"]["container_runtime"]
        assert runtime["engine"] == told["container_engine"]
        # Podman is the distribution's.
        assert ("version" in runtime) == (runtime["engine"] == "docker")
        said = {"suite": suite, "container_engine": named, "stack_overrides": overrides}
        assert planned(stack, **said) == told["container_engine"]
        by_hand = named or overrides.get("container_runtime", {}).get("engine")
        assert told["container_engine"] == (by_hand or RELEASES.engine(suite))


def test_a_release_gets_the_last_docker_that_there_is_for_it() -> None:
    def version(suite: str, **runtime: str | dict[str, str]) -> str:
        overrides = {"container_runtime": runtime} if runtime else {}
        told = provisioned("a100-cuda11.8", suite, stack_overrides=overrides)["gpu_node_stack"]
        return str(told["container_runtime"]["version"])

    assert [version(suite) for suite in ("focal", "jammy", "rhel9")] == ["28.1.1", *["29.8.1"] * 2]
    assert version("focal", version="20.10.7") == "20.10.7"  # the operator's, which is older
    assert version("focal", version="29.7.1", packages={"docker-ce": "5:29.7.1-1"}) == "29.7.1"


def test_a_plan_that_cannot_know_the_engine_asks() -> None:
    # All releases of these stacks have the same.
    assert planned(V100) == planned("a100-cuda11.8") == "docker"
    said = refusal(planned, H100)
    assert "host node1: dlperf_container_engine: the container engine is unknown" in said
    assert "dlperf_suite" in said
    assert "jammy (docker), noble (podman), bookworm (podman)" in said
    kept = {"adopted": ("container_runtime",)}
    assert "the engine that the node keeps" in refusal(planned, H100, suite="noble", **kept)
    assert planned(H100, container_engine="docker", **kept) == "docker"


def test_one_run_has_one_engine() -> None:
    images = {"container_images": {NGC: DIGEST}, "frameworks": ("tensorflow",), "stack": V100}
    first, second = gpu_nodes(2, **images)
    chosen = Choice(framework=("tensorflow",), nodes=(2,), gpus_per_node=(8,))
    mixed = (first, replace(second, container_engine="podman"))
    told = refusal(make_plan, chosen, load_catalog(), mixed)
    assert "different container engines" in told and "found docker, podman" in told


def test_the_inventory_names_the_release() -> None:
    variables = {"dlperf_devices_per_node": 8, "dlperf_accelerator": "x", "dlperf_stack": H100}

    def suites(suite: str) -> list[str]:
        hostvars = {"a": variables | {"dlperf_suite": suite}}
        nodes = nodes_of({"nodes": {"hosts": ["a"]}, "_meta": {"hostvars": hostvars}})
        return [node.suite for node in nodes]

    assert suites("noble") == ["noble"]
    told = refusal(suites, "nobel")
    assert "host a: dlperf_suite: " in told and "noble" in told and "found 'nobel'" in told
    for stated, release in (("noble", "noble"), ("", "jammy")):
        assert arguments.release_refusal(stated, release) == ""
    assert "the node is jammy" in arguments.release_refusal("noble", "jammy")


def test_podman_without_cdi_is_refused() -> None:
    refused = arguments.engine_refusal
    assert "this node's is 3.4" in refused("podman", "jammy", "")
    assert "this node's is none" in refused("podman", "focal", None)
    # What counts is the node's own, such as one of another repository.
    assert refused("podman", "jammy", "4.6.2") == ""
    assert "this node's is 3.4.4" in refused("podman", "noble", "3.4.4")
    assert refused("podman", "noble", "") == refused("docker", "jammy", "") == ""


def test_a_kept_engine_is_named_where_images_run() -> None:
    def problems(engine: str, *images: dict[str, str]) -> list[str]:
        has = {"container_runtime": {"docker": {"version": "24"}}}
        return adoption.problems(["container_runtime"], has, "", engine, *images)

    assert problems("") == problems("docker", {NGC: DIGEST}) == []
    (unset,) = problems("", {NGC: DIGEST})
    assert "one of the node's engines (docker), and is unset" in unset
    (other,) = problems("podman")
    assert "and is podman" in other


def test_a_mirror_has_the_engine_of_its_release() -> None:
    stack = load_catalog().stack(H100)
    docker, podman = (
        {item.item.name.split("=")[0] for item in release_tables.wanted(stack, suite)}
        for suite in ("jammy", "noble")
    )
    assert docker ^ podman == {"docker-ce"}
    of = dict(release_tables.of_distribution(stack, "noble"))
    assert of["container_runtime (podman)"] == ["podman", "crun"]
    of = dict(release_tables.of_distribution(stack, "jammy"))
    assert not [role for role in of if role.startswith("container_runtime")]
