"""What provision.yml asks each node and tells the roles, of the catalogue's own stacks."""

import re
from typing import Any

import pytest
import yaml
from provisioning_choices import choice, node
from standins import PROJECT

from dlperf_runner.provision import arguments

UV = "/opt/dlperf/uv"
PINNED = (PROJECT / "requirements/uv.txt").read_text()


def told(mesh: dict[str, Any] | None = None, **changed: Any) -> dict[str, Any]:
    document: dict[str, Any] = arguments.for_node(choice(**changed), node(), mesh or {})
    return document


def test_the_published_cluster_gets_its_gpu_software_a_built_openmpi_and_a_python() -> None:
    document = told(stack="v100-cuda10.2", container_engine="podman")
    assert document["provision_roles"] == [
        *("node_base", "gpu_node", "ssh_mesh", "openmpi", "python", "framework", "horovod")
    ]
    assert document["provision_preflights"] == ["gpu_node", "openmpi", "python", "python_env"]
    assert document["gpu_node_stack"]["driver"] == {"version": "440.33.01"}
    assert document["openmpi_version"] == "4.0.0"
    assert document["openmpi_cuda"] == "/usr/local/cuda-10.2"
    assert document["openmpi_mpirun"] == "/usr/local/openmpi/bin/mpirun"
    assert document["python_version"] == "3.7.17"
    own = told(stack="v100-cuda10.2", interpreter="/opt/python3.7", mpirun="/opt/mpirun")
    assert own["python_version"] == ""
    assert "python" not in own["provision_roles"]
    assert own["openmpi_mpirun"] == "/opt/mpirun"


def test_libraries_of_another_cuda_come_with_the_environment_that_opens_them() -> None:
    stack = "v100-cuda10.2"
    document = told(stack=stack, frameworks=["mxnet", "tensorflow"])
    assert document["gpu_node_stack"]["cuda_libraries"] == {"version": "10.0.130"}
    _, tensorflow = document["framework_environments"]
    table = yaml.safe_load((PROJECT / "roles/cuda_libraries/vars/main.yml").read_text())
    release = table["__cuda_libraries_releases"]["10.0.130"]
    assert tensorflow["variables"]["LD_LIBRARY_PATH"] == f"{release['directory']}/lib"
    assert f"={release['directory']}/" in tensorflow["variables"]["XLA_FLAGS"]
    assert "cuda_libraries" not in told(stack=stack, frameworks=["mxnet"])["gpu_node_stack"]
    images = {"nvcr.io/nvidia/tensorflow:20.12-tf1-py3": "sha256:" + "0" * 64}
    in_image = told(stack=stack, frameworks=["tensorflow"], container_images=images)
    assert "cuda_libraries" not in in_image["gpu_node_stack"]
    assert in_image["framework_environments"] == []
    assert in_image["container_images"] == list(images)


@pytest.mark.parametrize(
    ("consent", "role", "place", "packages"),
    [
        ({"time": "chrony"}, "time_service", 1, {"chrony"}),
        ({"slurm": True}, "slurm", -1, {"munge", "slurmctld", "slurmd", "slurm-client"}),
    ],
)
def test_time_and_scheduler_are_installed_with_consent_only(
    consent: dict[str, Any], role: str, place: int, packages: set[str]
) -> None:
    assert role not in told()["provision_roles"]
    assert not packages & set(told()["node_base_packages"])
    document = told(**consent)
    assert document["provision_roles"][place] == role
    assert role in document["provision_preflights"]
    assert packages <= set(document["node_base_packages"])


def pinned(text: str) -> dict[str, Any]:
    """An environment that has all pins of a lock file."""
    pins = re.findall(r"(?m)^([\w.-]+)==(\S+)", text)
    have = {name.lower(): {"version": version, "url": None} for name, version in pins}
    return {"python": "3.11.2", "distributions": have}


def test_environments_count_only_where_the_inventory_means_them() -> None:
    """Those of the node alone are none of a shared folder, and the other way round."""
    mxnet = "/opt/dlperf/envs/mxnet"
    locked = (PROJECT / "requirements/mxnet-cpu.txt").read_text()
    there = {UV: pinned(PINNED), mxnet: pinned(locked)}

    def counts(shared: str, links: dict[str, str]) -> list[str]:
        chosen = choice(shared=shared, frameworks=["mxnet"])
        document = arguments.for_node(chosen, node(environments=there, links=links), {})
        assert ("framework" in document["provision_preflights"]) == bool(shared)
        complete: list[str] = document["dlperf_node"]["complete"]
        return complete

    link = {"/opt/dlperf/envs": "/shared/envs"}
    assert counts("", {}) == counts("/shared", link) == [UV, mxnet]
    assert counts("/shared", {}) == counts("", link) == counts("/other", link) == [UV]


def test_what_is_as_pinned_is_complete_unless_the_python_that_made_it_goes() -> None:
    there = node(environments={UV: pinned(PINNED)})
    known = arguments.for_node(choice(), there, {})["dlperf_node"]
    assert known["complete"] == [UV]
    assert "environments" not in known
    built = {**there, "builds": {"/opt/dlperf/python": "python-3.7.17_x"}}
    document = arguments.for_node(choice(), built, {})
    assert document["dlperf_node"]["complete"] == []
    assert "python" in document["provision_roles"]
    assert document["python_version"] == ""
    kept = arguments.for_node(choice(python="3.11.2"), built, {})
    assert kept["dlperf_node"]["complete"] == [UV]


def test_a_nodes_own_proof_of_a_mesh_that_the_others_do_not_share_does_not_count() -> None:
    stamps = {"ssh_mesh": {"trust": "a"}, "openmpi": {"interface": "eth0"}}
    proven = node(stamps=stamps)
    alone = arguments.for_node(choice(), proven, {})["dlperf_node"]["stamps"]
    assert alone == {"openmpi": {"interface": "eth0"}}
    agreed = arguments.for_node(choice(), proven, {"trust": "a"})["dlperf_node"]["stamps"]
    assert agreed == stamps
