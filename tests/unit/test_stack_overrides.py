"""dlperf_stack_overrides means the same to Ansible, the doctor and the plan."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from provisioning_choices import choice, node
from refusals import refusal

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.stack import Stack, merged
from dlperf_runner.catalog.suites import RELEASES
from dlperf_runner.plan.inventory import nodes_of
from dlperf_runner.provision import arguments

H100 = "h100-cuda12.9"


NESTED = st.recursive(
    st.none() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
)
DOCUMENTS = st.dictionaries(st.sampled_from("abc"), NESTED, max_size=3)


@given(DOCUMENTS, DOCUMENTS)
def test_a_null_removes_a_key_and_nothing_else_does(
    own: dict[str, Any], changes: dict[str, Any]
) -> None:
    result = merged(own, changes)
    for key, value in changes.items():
        assert (key in result) == (value is not None)
    assert {k: v for k, v in result.items() if k not in changes} == {
        k: v for k, v in own.items() if k not in changes
    }


def read(overrides: Any, name: str = H100) -> Any:
    """The stack of one node, as doctor and plan see it."""
    variables = {
        "dlperf_devices_per_node": 8,
        "dlperf_accelerator": "NVIDIA H200",
        "dlperf_stack": name,
        "dlperf_stack_overrides": overrides,
    }
    (found,) = nodes_of({"nodes": {"hosts": ["a"]}, "_meta": {"hostvars": {"a": variables}}})
    return load_catalog().stack_of(found)


CHANGES: list[dict[str, Any]] = [
    {"infiniband": {"rate_gbps": 100, "rails": "=mlx5_0:1,mlx5_1"}},
    {"infiniband": {"rate_gbps": None}},
    {"infiniband": None, "cudnn": None},
    {"openmpi": {"method": "package", "version": None}},
    {"tuning": {"locked_clocks": {"minimum": 1200, "maximum": 1500}}},
    {"apt_packages": {"openmpi": ["libnuma1", "libucx0"]}},
    {"driver": {"version": "570.86.15"}},
    {},
]


@pytest.mark.parametrize("overrides", CHANGES)
def test_an_override_reaches_the_roles_and_the_doctor_alike(overrides: dict[str, Any]) -> None:
    told = arguments.for_node(choice(stack=H100, stack_overrides=overrides), node(), {})
    own = Stack.model_validate(told["gpu_node_stack"]).model_dump(exclude={"cuda_libraries"})
    doctors = RELEASES.on("jammy", read(overrides))
    assert own == doctors.model_dump(exclude={"cuda_libraries"})
    packages = told["gpu_node_stack"]["apt_packages"]["openmpi"]
    assert told["openmpi_packages"] == packages
    method = told["gpu_node_stack"]["openmpi"]["method"]
    assert told["openmpi_method"] == method
    assert told["openmpi_mpirun"] == arguments.stack_mpirun(H100, overrides)


def test_a_part_that_is_null_is_not_installed() -> None:
    told = arguments.for_node(
        choice(stack=H100, stack_overrides={"cudnn": None, "infiniband": None}), node(), {}
    )
    assert not {"cudnn", "infiniband"} & set(told["gpu_node_stack"])
    assert read({"infiniband": None}).infiniband is None


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        ({"infinband": {}}, "infinband"),
        ({"infiniband": {"rate": 100}}, "rate"),
        ({"cuda": "12.8"}, "cuda"),
        ({"openmpi": "source"}, "openmpi"),
        ({"name": "other"}, "name"),
        ({"cudn": None}, "cudn"),
        ({"infiniband": {"rate": None}}, "rate"),
        ({"openmpi": {"method": "sourc"}}, "openmpi.method"),
        ({"openmpi": {"method": ["source"]}}, "openmpi.method"),
    ],
)
def test_what_is_no_part_of_a_stack_is_refused(overrides: dict[str, Any], said: str) -> None:
    is_method = said == "openmpi.method"
    function = arguments.stack_mpirun if is_method else arguments.stack_document
    told = refusal(function, H100, overrides)
    assert said in told and told.startswith("dlperf_stack_overrides")
    assert not is_method or "'package' or 'source'" in told
    told = refusal(read, overrides)
    assert said in told and told.startswith("host a: dlperf_stack_overrides")


def test_the_rails_are_those_of_dlperf_env_or_of_the_stack() -> None:
    overrides = {"infiniband": {"rails": "mlx5_0"}}
    assert arguments.stack_rails(H100, overrides, {}) == "mlx5_0"
    assert arguments.stack_rails(H100, overrides, {"NCCL_IB_HCA": "^mlx5_4"}) == "^mlx5_4"
    assert arguments.stack_rails(H100, {}, {}) == arguments.stack_rails("cpu", {}, {}) == ""
