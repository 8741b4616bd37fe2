"""The inventory is read as Ansible reads it; a wrong variable is told with its host."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from refusals import refusal

from dlperf_runner.control.campaigns import plan_of_playbook
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.plan import inventory
from dlperf_runner.plan.inventory import ADOPTED, nodes_of, read_inventory

GOOD = {
    "dlperf_devices_per_node": 8,
    "dlperf_accelerator": "Tesla V100-SXM2-16GB",
    "dlperf_stack": "v100-cuda10.2",
}


def listing(**hosts: dict[str, Any]) -> dict[str, Any]:
    """What `ansible-inventory --list` prints for hosts of the group."""
    return {"_meta": {"hostvars": hosts}, "nodes": {"hosts": list(hosts)}}


@pytest.mark.parametrize(
    "words",
    [
        ("doctor", "--hunt", "compute"),
        ("ab", "--workload", "pytorch-llama", "--a", "X=1", "--b", "X=2"),
        ("bisect", "--workload", "pytorch-llama", "--name", "X", "--versions", "1,2"),
    ],
    ids=lambda words: words[0],
)
def test_a_limit_that_the_inventory_lacks_names_its_nodes(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    (tmp_path / "hosts").write_text("[nodes]\nnode1\nnode2\n")
    options = ("-i", tmp_path / "hosts", "--limit", "node1,node9")
    text = call(*words, *options, status=2).err
    assert "the inventory lacks a node (expected some of node1, node2, found node9)" in text
    assert "--limit node1,node2" in text


def test_defaults() -> None:
    # The stack builds its OpenMPI.
    own = "/usr/local/openmpi/bin/mpirun"
    expected = Node("a", "a", 8, "Tesla V100-SXM2-16GB", "v100-cuda10.2", mpirun=own)
    assert nodes_of(listing(a=GOOD)) == (expected,)
    (node,) = nodes_of(listing(a={**GOOD, "dlperf_stack": "cpu"}))
    assert node.mpirun == "/usr/bin/mpirun"


def test_every_variable() -> None:
    more = {
        "dlperf_devices_per_node": "8",  # as group variables in INI inventories are
        "ansible_host": "192.168.0.9",
        "dlperf_address": "10.11.0.2",
        "dlperf_interface": "ib0",
        "dlperf_frameworks": ["mxnet", "paddle"],
        "dlperf_user": "bench",
        "dlperf_matrix": "smoke",
        "dlperf_env": {"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": 0},
        "dlperf_mpirun": "/opt/mpi/bin/mpirun",
        "dlperf_mpirun_args": ["--oversubscribe"],
    }
    ((usual,), (node,)) = (nodes_of(listing(a={**GOOD, **given})) for given in ({}, more))
    assert node == replace(
        usual,
        address="10.11.0.2",
        interface="ib0",
        frameworks=("mxnet", "paddle"),
        user="bench",
        matrix="smoke",
        env={"NCCL_DEBUG": "INFO", "NCCL_IB_DISABLE": "0"},
        mpirun="/opt/mpi/bin/mpirun",
        mpirun_args=("--oversubscribe",),
    )


def test_a_plain_reference_is_followed() -> None:
    variables = {
        **GOOD,
        "ansible_host": "10.11.0.2",
        "dlperf_address": "{{ ansible_host }}",
        "dlperf_user": "{{ inventory_hostname }}",
    }
    (node,) = nodes_of(listing(a=variables))
    assert (node.address, node.user) == ("10.11.0.2", "a")


@pytest.mark.parametrize("template", ["{{ ansible_host | upper }}", "{{ nowhere }}", "{{ loop }}"])
def test_what_only_a_playbook_can_compute_is_refused(template: str) -> None:
    variables = {**GOOD, "dlperf_address": template, "loop": "{{ loop }}"}
    with pytest.raises(UserError, match="this template can only be evaluated in a playbook"):
        nodes_of(listing(a=variables))


def test_order_is_the_inventorys_and_children_count_once() -> None:
    names = [f"node{number}" for number in range(12, 0, -1)]
    groups = listing(**dict.fromkeys(names, GOOD))
    groups["nodes"] = {"hosts": ["node7"], "children": ["rack1", "rack2"]}
    groups["rack1"] = {"hosts": names[:6]}
    groups["rack2"] = {"hosts": names[6:]}
    found = [node.name for node in nodes_of(groups)]
    assert found == ["node7", *[name for name in names if name != "node7"]]


@pytest.mark.parametrize("variable", GOOD)
def test_a_missing_variable_is_named(variable: str) -> None:
    misspelt = variable.replace("e", "", 1)
    variables = {misspelt if name == variable else name: value for name, value in GOOD.items()}
    told = refusal(nodes_of, listing(a=GOOD, b=variables))
    assert f"host b: the variable {variable} is missing" in told
    assert f"found the variable {misspelt}" in told


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("dlperf_devices_per_node", 0, "an integer of at least 1"),
        ("dlperf_devices_per_node", True, "an integer of at least 1"),
        ("dlperf_devices_per_node", 2.5, "an integer of at least 1"),
        ("dlperf_devices_per_node", "two", "an integer of at least 1"),
        ("dlperf_accelerator", "", "cpu, or the accelerator's name"),
        ("dlperf_stack", ["cpu"], "the name of a stack"),
        ("dlperf_interface", "--version", "the name of a network interface"),
        ("dlperf_interface", "eth0,eth1", "the name of a network interface"),
        ("dlperf_address", "-oProxyCommand=x", "an address or a host name"),
        ("dlperf_frameworks", "mxnet", "a list of frameworks"),
        ("dlperf_env", ["A=1"], "variable names with strings or numbers"),
        ("dlperf_env", {"A-B": "1"}, "variable names with strings or numbers"),
        ("dlperf_env", {"A": True}, "variable names with strings or numbers"),
        ("dlperf_env", {"A": "x\ny"}, "variable names with strings or numbers"),
        ("dlperf_mpirun", "mpirun", "an absolute path"),
        ("dlperf_mpirun_args", "--oversubscribe", "a list of arguments"),
        ("dlperf_user", None, "a user name"),
        ("dlperf_stack_overrides", {"name": "x"}, "keys of a stack, without its name"),
        ("dlperf_mpi_transport", "verbs", "one of tcp, ucx"),
        ("dlperf_adopt", ["kernel"], f"all, or a list of {', '.join(ADOPTED)}"),
    ],
)
def test_a_wrong_value_is_told(variable: str, value: object, expected: str) -> None:
    assert refusal(nodes_of, listing(a=GOOD, b={**GOOD, variable: value})) == (
        f"host b: {variable}: invalid value (expected {expected}, found {value!r})"
    )


def test_a_node_that_keeps_its_openmpi_says_where_it_is() -> None:
    with pytest.raises(UserError, match=r"host a: dlperf_adopt: .*expected dlperf_mpirun"):
        nodes_of(listing(a={**GOOD, "dlperf_adopt": ["openmpi"]}))
    own = {"dlperf_adopt": ["openmpi"], "dlperf_mpirun": "/opt/mpi/bin/mpirun"}
    (node,) = nodes_of(listing(a={**GOOD, **own}))
    assert (node.mpirun, node.adopted) == ("/opt/mpi/bin/mpirun", ("openmpi",))


def test_no_node_says_what_to_do() -> None:
    told = refusal(nodes_of, {"_meta": {"hostvars": {}}, "other": {"hosts": ["a"]}})
    assert "no host in the group 'nodes'" in told and "dlperf lab up" in told


def test_a_path_that_is_not_there_is_told_without_asking_ansible(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="inventory not found"):
        read_inventory([str(tmp_path / "none")])


def test_extra_variables_of_the_playbook_are_planned_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bench.yml -e dlperf_env=...` was accepted and had no effect on the plan."""
    nodes = listing(a={**GOOD, "dlperf_frameworks": ["mxnet"], "dlperf_env": {"A": "1", "B": "2"}})
    monkeypatch.setattr(inventory, "_list_inventory", lambda *_: nodes)
    extra = {"dlperf_env": {"A": "3"}, "model": "resnet50v1b", "nodes": 1}
    planned = plan_of_playbook(extra)["plan"]
    environments = [run["commands"][0]["env"] for run in planned["runs"]]
    assert all(env["A"] == "3" and "B" not in env for env in environments)
    with pytest.raises(UserError, match="host a: dlperf_interface: invalid"):
        plan_of_playbook({"dlperf_interface": "--version"})


def test_extra_variables_of_a_command_are_the_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ansible-inventory and ansible-playbook read them, each process of the command."""
    monkeypatch.setenv("DLPERF_EXTRA_VARS", "[]")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts.yml").write_text("nodes: {hosts: {a: {dlperf_devices_per_node: 8}}}")
    (tmp_path / "more.json").write_text(json.dumps({"dlperf_stack": "cpu"}))
    given = ["@more.json", '{"dlperf_env": {"A": "b c"}}', "dlperf_accelerator=cpu"]
    inventory.use_extra_variables(given)
    assert inventory.extra_options()[:2] == ["-e", f"@{tmp_path}/more.json"]
    monkeypatch.chdir("/")
    (node,) = read_inventory([str(tmp_path / "hosts.yml")])
    assert (node.stack, node.accelerator, node.env) == ("cpu", "cpu", {"A": "b c"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nodes=1", "nodes is no variable of nodes"),
        ('{"repeats": 1}', "repeats is no variable of nodes"),
        ("{", "invalid JSON"),
        ("dlperf_stack", "no value"),
        ("@none.yml", "file not found"),
    ],
)
def test_an_extra_variable_that_would_change_nothing_is_refused(
    text: str, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLPERF_EXTRA_VARS", "[]")
    with pytest.raises(UserError, match=problem):
        inventory.use_extra_variables([text])
    assert inventory.extra_options() == []
