"""The example inventories as they are shipped: what their stacks have is installed and planned, and
the controller that they need is named first."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from command_line import call
from packaging.specifiers import SpecifierSet
from standins import PROJECT

from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.suites import CONTROLLERS, SUITES
from dlperf_runner.commands import init
from dlperf_runner.commands.init import EXAMPLES
from dlperf_runner.provision import environments

CATALOG = load_catalog()


@pytest.fixture(scope="module")
def mine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An inventory of each example, by its name."""
    place = tmp_path_factory.mktemp("mine")
    for name in EXAMPLES:
        init.init_inventory(place / name, name)
    return place


def said(inventory: Path) -> dict[str, Any]:
    return dict(yaml.safe_load((inventory / "group_vars/nodes.yml").read_text()))


@cache
def cli(*arguments: str) -> Any:
    return call(*arguments, "--json").document


@pytest.mark.parametrize("example", EXAMPLES)
def test_every_workload_of_the_stack_is_planned_and_list_says_why_there_are_no_others(
    mine: Path, example: str
) -> None:
    stack = said(mine / example)["dlperf_stack"]
    # No report is of nodes with 4 GPUs.
    few = ("--nodes", "1,2,4", "--gpus-per-node", "4") if example == "gb200" else ()
    plan = cli("plan", "-i", str(mine / example), "--matrix", "published", *few)
    planned = {run["workload"] for run in plan["runs"]}
    told = cli("list", "frameworks")["frameworks"]
    # The only environment that the published stack has and the example leaves out.
    by_operator = {"oneflow"} if example == "v100" else set()
    for name, entry in CATALOG.workloads.items():
        has_source = any(
            not each.stacks or stack in each.stacks for _, each in entry.sources.items()
        )
        if entry.only_if_named:
            assert name not in planned
            continue
        has_environment = stack in CATALOG.frameworks[entry.framework].stacks
        is_left_out = entry.framework in by_operator
        assert (name in planned) == (has_environment and has_source and not is_left_out)
        if is_left_out:
            assert told[entry.framework]["environments"][stack]["operator_wheels"]
        if not has_environment:
            assert told[entry.framework]["unavailable"][stack]
    nodes = {run["hosts"][-1] for run in plan["runs"]}
    assert "NODE4" in nodes
    # What `init` says to run; its accelerator is one of the stack's.
    assert init.EXAMPLES[example].workload in planned
    models = {model.removeprefix("Tesla ") for model in CATALOG.stack(stack).gpu.models}
    assert said(mine / example)["dlperf_accelerator"].removeprefix("Tesla ") in models


def test_the_python_that_is_built_fits_all_of_todays_environments(mine: Path) -> None:
    inventory = said(mine / "h100")
    built, stack = inventory["python_version"], inventory["dlperf_stack"]
    wanted = {
        item["name"]: SpecifierSet(item["requires_python"])
        for item in environments.installed(inventory["dlperf_frameworks"], stack)
    }
    assert all(built in pythons for pythons in wanted.values())
    releases = yaml.safe_load((PROJECT / "roles/python/vars/main.yml").read_text())
    assert built in releases["__python_releases"]
    # Where the comment says to leave it out, each release's own fits; on Ubuntu 22.04 it does not.
    fits = {
        suite: all(SUITES[suite].python in pythons for pythons in wanted.values())
        for suite in CATALOG.stack(stack).suites
    }
    assert fits == {"jammy": False, "noble": True, "bookworm": True}


def test_a_plan_for_a_rack_stays_within_its_nvlink_domain(mine: Path) -> None:
    runs = cli("plan", "-i", str(mine / "gb200"))["runs"]
    assert {run["workload"] for run in runs} >= {"pytorch-llama", "nccl-allreduce", "jax-llama"}
    assert {tuple(run["nvlink_domains"]) for run in runs} == {("rack1",)}
    files = ("hosts.yml", "group_vars/nodes.yml")
    made = "".join((mine / "gb200" / file).read_text() for file in files)
    assert "H100" not in made and "8 " not in made.replace("58 ", "")


@pytest.mark.parametrize("file", ["hosts.yml", "group_vars/nodes.yml"])
def test_the_published_example_names_its_ansible_first(file: str) -> None:
    text = (PROJECT / "inventory/example" / file).read_text()
    first = text[: text.index("\n", text.index("ansible-core"))]
    assert all(line.startswith(("---", "#")) for line in first.splitlines())
    pythons = [SUITES[suite].python for suite in CATALOG.stack("v100-cuda10.2").suites]
    (core,) = (name for name in CONTROLLERS if f"ansible-core {name} " in text)
    newest = [name for name, each in CONTROLLERS.items() if not each.python2]
    assert CONTROLLERS[core].python2
    # No newer one manages the Python of either system.
    assert all(
        tuple(map(int, python.split("."))) < tuple(map(int, CONTROLLERS[name].oldest.split(".")))
        for name in newest
        for python in pythons
    )
    assert f"make setup ANSIBLE={core}" in text
    assert f".venv-{core}" in text
    assert (PROJECT / f"requirements/ansible-{core}.txt").is_file()
