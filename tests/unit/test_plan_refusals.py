"""Choices and inventories that cannot be planned, and what holds for any choice."""

import re
from dataclasses import replace

import pytest
import refusals
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_examples import choose, gpu_nodes, lab_nodes

from dlperf_runner.catalog.reader import Catalog, load_catalog
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.plan.cases import left_out, not_planned
from dlperf_runner.plan.choice import Choice, choice_of_variables, choice_options, parse_choice
from dlperf_runner.plan.make import make_plan
from dlperf_runner.plan.parameters import check_names


def refusal(choice: Choice, catalog: Catalog, nodes: tuple[Node, ...]) -> str:
    return refusals.refusal(make_plan, choice, catalog, nodes)


def test_more_than_the_inventory_has_is_named_per_case(catalog: Catalog) -> None:
    told = refusal(choose(matrix="published"), catalog, lab_nodes())
    cases = re.findall(r"(\dn\dg) needs (\d) nodes? with (\d) devices", told)
    assert cases == [("1n4g", "1", "4"), ("1n8g", "1", "8"), ("2n8g", "2", "8"), ("4n8g", "4", "8")]
    assert "4 nodes node1..node4 with 2 devices each" in told and "--gpus-per-node" in told
    assert "5n2g needs 5 nodes with 2 devices\n" in refusal(choose(nodes=5), catalog, lab_nodes())


RESNET = {"workload": "mxnet-resnet50v1b"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"model": "vgg"}, "--model: 'vgg' arcface-r100 resnet50"),
        ({"framework": "torch"}, "--framework: 'torch' mxnet pytorch"),
        ({"workload": "x"}, "--workload: 'x' jax-llama"),
        ({**RESNET, "precision": "fp8"}, "--precision: mxnet-resnet50v1b 'fp8' fp32 fp16"),
        ({**RESNET, "matrix": "huge"}, "--matrix: mxnet-resnet50v1b 'huge' published smoke"),
        ({"model": "resnet50v1b", "framework": "paddle"}, "--model resnet50v1b: paddle-arcface"),
        ({"workload": "mxnet-arcface", "nodes": 2}, "--nodes 2: 1 mxnet-arcface"),
        ({**RESNET, "warmup": 120}, "--warmup: 120 120"),
        ({"framework": "oneflow", "iterations": 39, "warmup": 20}, "--iterations: 20 40 39"),
    ],
)
def test_a_choice_that_selects_nothing_is_told(
    catalog: Catalog, options: dict[str, object], words: str
) -> None:
    told = refusal(choose(**options), catalog, gpu_nodes())
    option, *values = re.split(r"(?<!--model) ", words)
    assert told.startswith(option)
    assert re.search(".*".join(rf"(?<!\w){re.escape(value)}(?!\w)" for value in values), told)


def test_of_a_family_those_with_the_source_are_planned_and_the_others_told() -> None:
    catalog, nodes = load_catalog(), lab_nodes(frameworks=("mxnet", "tensorflow2", "tensorflow"))
    choice = choose(model="resnet50", source="upstream")
    planned = {run.workload for run in make_plan(choice, catalog, nodes)}
    assert planned == {"mxnet-resnet50v1b"}
    told = not_planned(choice, catalog, nodes, planned)
    assert not planned & set(told)
    assert told["tensorflow2-resnet50v1.5"].startswith(
        "it has no source 'upstream': the published program, classifier_trainer.py"
    )
    # Its TensorFlow 1 is on the stack cpu-published.
    reason = "it cannot run its source 'upstream' on the stack cpu (dlperf_stack), only on "
    assert told["tensorflow-resnet50v1.5"].startswith(reason)
    # With both sources, each runs with those that it has.
    choice = choose(model="resnet50", source="builtin,upstream")
    runs = make_plan(choice, catalog, nodes)
    for workload, sources in (
        ("mxnet-resnet50v1b", {"builtin", "upstream"}),
        ("tensorflow2-resnet50v1.5", {"builtin"}),
    ):
        assert {run.source for run in runs if run.workload == workload} == sources
    assert "tensorflow2-resnet50v1.5" in not_planned(choice, catalog, nodes, planned)
    # None has it.
    message = refusal(choose(framework="tensorflow2", source="upstream"), catalog, nodes)
    assert message.startswith("--source: ") and "(expected one of builtin)" in message
    lacking = "tensorflow2-resnet50v1.5 has no source 'upstream'"
    assert f"{lacking}: the published program, classifier_trainer.py" in message


@pytest.mark.parametrize("key", ["accelerator", "stack"])
def test_nodes_that_differ_cannot_stand_in_one_plan(catalog: Catalog, key: str) -> None:
    *same, last = gpu_nodes()
    nodes = (*same, replace(last, **{key: "other"}))
    message = refusal(choose(workload="mxnet-resnet50v1b"), catalog, nodes)
    assert message.startswith(f"host node4: dlperf_{key}: the nodes of one plan must be")
    assert "as on node1, found other" in message
    # A plan that does not use the odd one is all right.
    assert make_plan(choose(workload="mxnet-resnet50v1b", nodes="1,2"), catalog, nodes)


def test_a_framework_that_the_nodes_lack_is_told(catalog: Catalog) -> None:
    for choice in (choose(workload="jax-resnet50v1.5"), choose(model="resnet50v1.5")):
        message = refusal(choice, catalog, lab_nodes(2))
        told = "node1, node2: jax-resnet50v1.5 needs jax, which these nodes do not have"
        assert message.startswith(told)


def test_a_model_means_the_workloads_whose_framework_the_nodes_have() -> None:
    """A framework that is added to the catalogue takes nothing from an inventory that lacks it."""
    catalog, choice = load_catalog(), choose(model="arcface")
    nodes = lab_nodes(2, frameworks=("mxnet", "paddle"))
    planned = {run.workload for run in make_plan(choice, catalog, nodes)}
    assert planned == {"mxnet-arcface", "paddle-arcface"}
    assert not_planned(choice, catalog, nodes, planned) == {
        "pytorch-arcface": "these nodes do not have pytorch (dlperf_frameworks)"
    }


@pytest.mark.parametrize(
    "stack",
    ["a100-cuda11.8", "h100-cuda12.9", "b200-cuda13", "mi300-rocm7", "mi355-rocm7"],
)
def test_todays_nodes_run_what_exists_for_them_and_the_plan_says_what_does_not(stack: str) -> None:
    shipped = load_catalog()
    gpu = shipped.stack(stack).gpu
    nodes = gpu_nodes(stack=stack, accelerator=gpu.models[0] if gpu else "")
    planned = {run.workload for run in make_plan(Choice(), shipped, nodes)}
    models = ("jax-llama", "jax-resnet50v1.5", "pytorch-arcface", "pytorch-bert-large")
    built = {"tensorflow2-resnet50v1.5"} if stack in ("a100-cuda11.8", "h100-cuda12.9") else set()
    collectives = "rccl-allreduce" if "rocm" in stack else "nccl-allreduce"
    more = {collectives, "pytorch-llama", "pytorch-resnet50v1.5"}
    assert planned == {*built, *models, *more}
    reasons = left_out(shipped, nodes)
    workloads = shipped.workloads.items()
    runnable = {name for name, w in workloads if w.sources.items() and not w.only_if_named}
    assert planned | set(reasons) == runnable
    assert f"mxnet has no environment for the stack {stack}: " in reasons["mxnet-resnet50v1b"]
    # A family means those of its models that run there; a named workload must run.
    family = make_plan(choose(model="resnet50"), shipped, nodes)
    assert {run.workload for run in family} == {n for n in planned if n.endswith("resnet50v1.5")}
    assert f"mxnet has no environment for the stack {stack}: " in refusal(
        choose(workload="mxnet-resnet50v1b"), shipped, nodes
    )


def test_arm_processors_need_a_stack_that_has_packages_for_them() -> None:
    shipped, chosen = load_catalog(), choose(workload="pytorch-llama")
    nodes = gpu_nodes(stack="h100-cuda12.9", accelerator="NVIDIA GB200")
    said = refusal(chosen, shipped, nodes)
    assert "h100-cuda12.9 has no packages for the Arm processors of NVIDIA GB200" in said
    assert "expected b200-cuda13" in said
    assert make_plan(chosen, shipped, gpu_nodes(stack="b200-cuda13", accelerator="NVIDIA GB200"))


def test_the_launcher_is_a_parameter_of_pytorch() -> None:
    shipped, nodes = load_catalog(), lab_nodes(2, frameworks=("pytorch",))
    chosen = choose(workload="pytorch-llama", nodes=2)
    (run,) = make_plan(chosen, shipped, nodes)
    assert [command.host for command in run.commands] == ["node1", "node2"]
    other = replace(chosen, parameters={"launcher": "torch_mpirun"})
    (by_mpirun,) = make_plan(other, shipped, nodes)
    (command,) = by_mpirun.commands
    assert command.argv[0] == "/usr/bin/mpirun"
    entry = shipped.workloads["pytorch-llama"]
    usual, changed = (entry.measured_parameters("builtin", r.parameters) for r in (run, by_mpirun))
    assert changed == {**usual, "launcher": "torch_mpirun"}
    unknown = replace(chosen, parameters={"launcher": "srun"})
    assert "--parameter launcher: unknown launcher 'srun'" in refusal(unknown, shipped, nodes)


def test_the_stack_must_be_known_and_fit(catalog: Catalog) -> None:
    odd = lab_nodes(stack="v100")
    assert "unknown stack 'v100' (expected one of a100-cuda11.8" in refusal(Choice(), catalog, odd)
    message = refusal(Choice(), catalog, lab_nodes(accelerator="A100"))
    assert "the accelerator does not match the stack (expected cpu, as in the stack cpu" in message


def test_default_matrices_that_differ_are_told(catalog: Catalog) -> None:
    first, second = lab_nodes(2)
    nodes = (first, replace(second, matrix="published"))
    assert refusal(Choice(), catalog, nodes).startswith("host node2: dlperf_matrix: the nodes have")
    assert make_plan(choose(matrix="smoke"), catalog, nodes)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("image_size", "--parameter: invalid parameter (expected name=value"),
        ("image_size=big", "--parameter image_size: invalid value (expected an integer"),
        ("size=3", "--parameter: unknown parameter 'size' (expected one of image_size, classes,"),
        ("image_size=1\n2", "--parameter: invalid parameter"),
    ],
)
def test_a_wrong_parameter_is_told(catalog: Catalog, text: str, message: str) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        make_plan(parse_choice({"model": "resnet50v1b"}, [text]), catalog, lab_nodes())


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("nodes", "1,-2"),
        ("nodes", "two"),
        ("batch_size", "²"),
        ("gpus_per_node", "9" * 5000),
        ("repeats", "0"),
        ("repeats", "1,2"),
        ("iterations", "0"),
        ("warmup", "-1"),
        ("source", "elsewhere"),
    ],
)
def test_a_wrong_option_is_told(option: str, text: str) -> None:
    with pytest.raises(UserError, match=f"^--{option.replace('_', '-')}: "):
        parse_choice({option: text})


def test_empty_means_not_given() -> None:
    """Ansible passes options on that nobody set."""
    options = dict.fromkeys(("model", "nodes", "matrix", "repeats", "warmup", "source"), "")
    assert parse_choice(options, [""]) == Choice()
    assert parse_choice({"nodes": " 1 , 2,1 ,"}).nodes == (1, 2)


NUMBERS = st.lists(st.integers(1, 12), max_size=3, unique=True).map(tuple)
CHOICES = st.builds(
    Choice,
    model=st.sampled_from([(), ("resnet50",), ("arcface",), ("arcface-y1", "resnet50v1b")]),
    precision=st.sampled_from([(), ("fp32",)]),
    batch_size=NUMBERS,
    nodes=NUMBERS,
    gpus_per_node=NUMBERS,
    repeats=st.none() | st.integers(1, 12),
    order=st.sampled_from(["interleaved", "grouped"]),
    iterations=st.none() | st.integers(1, 300),
    warmup=st.none() | st.integers(0, 300),
)


@settings(deadline=None)
@given(choice=CHOICES, count=st.integers(1, 12), devices=st.integers(1, 12))
def test_a_plan_has_unique_ids_and_stays_within_the_inventory(
    catalog: Catalog, choice: Choice, count: int, devices: int
) -> None:
    nodes = gpu_nodes(count, devices)
    try:
        runs = make_plan(choice, catalog, nodes)
    except UserError:
        return
    assert runs
    assert len({run.id for run in runs}) == len(runs)
    known = {node.name for node in nodes}
    for run in runs:
        assert set(run.hosts) <= known
        assert len(run.hosts) == len(set(run.hosts)) == run.nodes
        assert run.gpus_per_node <= devices
        assert run.world_size == run.nodes * run.gpus_per_node
        assert 0 <= run.warmup_steps < run.total_steps
        assert run.id == f"{run.case}/r{run.repeat}"
        assert {command.host for command in run.commands} <= set(run.hosts)
        assert not any("{" in argument for argument in run.commands[0].argv)
    for wanted, made in (
        (choice.nodes, {run.nodes for run in runs}),
        (choice.gpus_per_node, {run.gpus_per_node for run in runs}),
        (choice.batch_size, {run.batch_size_per_device for run in runs}),
    ):
        assert not wanted or made <= set(wanted)


@given(choice=CHOICES)
def test_options_say_the_same_as_the_choice(choice: Choice) -> None:
    assert parse_choice(choice_options(choice)) == choice


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"modle": "resnet50v1b"}, r"unknown option .modle. .*did you mean model\?"),
        ({"order": "random"}, "unknown option 'order' +did you mean run_order"),
        ({"image_size": 64}, "unknown option .image_size. .*one of"),
        ({"parameters": "image_size=64"}, "parameters must be an object"),
        ({"nodes": "two"}, "--nodes: invalid number"),
    ],
)
def test_variables_of_bench_that_are_wrong(variables: dict[str, object], message: str) -> None:
    told = refusals.refusal(choice_of_variables, variables, ("dlperf", "benchmark_run"))
    assert re.search(message, told.replace("\n", " "))


def test_variables_of_bench_become_a_choice() -> None:
    prefixes = ("dlperf", "benchmark_run")
    variables: dict[str, object] = {"nodes": [1, 2], "repeats": 3, "parameters": {"image_size": 64}}
    variables |= {"resume": "", "run_order": "random", "seed": 3}
    variables |= {"dlperf_user": "dlperf", "benchmark_run_wait_s": 1}
    choice = choice_of_variables(variables, prefixes)
    assert (choice.nodes, choice.repeats) == ((1, 2), 3)
    assert (choice.order, choice.seed) == ("random", 3)
    assert choice.parameters == {"image_size": "64"}
    assert choice_of_variables({}, prefixes).order == "interleaved"


@pytest.mark.parametrize(
    ("workload", "parameter", "model"),
    [
        ("mxnet-arcface", "network=y1", "arcface-y1"),
        ("nccl-allreduce", "operation=all_gather", "nccl-all-gather"),
    ],
)
def test_only_the_model_decides_which_variant_runs(
    workload: str, parameter: str, model: str
) -> None:
    choice = parse_choice({"workload": workload}, [parameter])
    told = refusals.refusal(check_names, choice, [load_catalog().workloads[workload]])
    assert told.startswith("--parameter: ") and f"'{parameter.partition('=')[0]}'" in told
    assert "--model" in told and model in told
