"""What a choice selects, and what is refused."""

from __future__ import annotations

import re
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_examples import gpu_nodes, lab_nodes, write_catalog

from dlperf_runner.catalog.reader import Catalog, load_catalog
from dlperf_runner.core.case import Run, Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan.cases import left_out
from dlperf_runner.plan.choice import Choice, choice_of_variables, choice_options, parse_choice
from dlperf_runner.plan.make import make_plan, plan_document
from dlperf_runner.plan.memory import memory_warnings


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Catalog:
    return load_catalog(write_catalog(tmp_path_factory.mktemp("catalog")))


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def cases(runs: tuple[Run, ...]) -> list[str]:
    """`fp32 b128 1n1g` of each case, in the plan's order."""
    texts = (
        f"{run.precision} b{run.batch_size_per_device} {run.nodes}n{run.gpus_per_node}g"
        for run in runs
    )
    return list(dict.fromkeys(texts))


def choose(**options: object) -> Choice:
    return parse_choice(options)


# ---- what a choice selects


def test_the_rails_of_the_stack_are_those_that_nccl_takes(catalog: Catalog) -> None:
    rails = {"infiniband": {"rails": "=mlx5_0,mlx5_1"}}
    usual = tuple(replace(node, stack="v100-cuda10.2") for node in gpu_nodes())
    nodes = tuple(replace(node, stack_overrides=rails) for node in usual)
    own = tuple(replace(node, env={"NCCL_IB_HCA": "^mlx5_4"}) for node in nodes)
    for hosts, expected in ((usual, None), (nodes, "=mlx5_0,mlx5_1"), (own, "^mlx5_4")):
        (run, *_) = make_plan(choose(workload="mxnet-resnet50v1b", nodes=2), catalog, hosts)
        assert run.commands[0].env.get("NCCL_IB_HCA") == expected


def test_smoke_is_the_labs_default(catalog: Catalog) -> None:
    runs = make_plan(choose(model="resnet50v1b"), catalog, lab_nodes())
    assert [run.id for run in runs] == [
        "mxnet-resnet50v1b-builtin_fp32_b2_1n1g/r1",
        "mxnet-resnet50v1b-builtin_fp32_b2_1n2g/r1",
        "mxnet-resnet50v1b-builtin_fp32_b2_2n2g/r1",
    ]


@pytest.mark.parametrize(
    ("framework", "workload", "cases_of_smoke"),
    [
        ("mxnet", "mxnet-arcface", ["fp32 b4 1n1g", "fp32 b4 1n2g"]),
        ("tensorflow", "tensorflow-resnet50v1.5", ["fp32 b2 1n1g", "fp32 b2 1n2g", "fp32 b2 2n2g"]),
        ("paddle", "paddle-arcface", ["fp32 b4 1n1g", "fp32 b4 1n2g", "fp32 b4 2n2g"]),
        ("oneflow", "oneflow-resnet50v1.5", ["fp32 b2 1n1g", "fp32 b2 1n2g", "fp32 b2 2n2g"]),
    ],
)
def test_the_lab_has_a_smoke_matrix_of_every_published_system(
    catalog: Catalog, framework: str, workload: str, cases_of_smoke: list[str]
) -> None:
    nodes = tuple(replace(node, frameworks=(framework,)) for node in lab_nodes())
    runs = make_plan(choose(workload=workload), catalog, nodes)
    assert cases(runs) == cases_of_smoke
    for run in runs:
        for command in run.commands:
            assert f"/opt/dlperf/envs/{framework}/bin/python" in command.argv
            assert "--no-cuda" in command.argv


def test_a_batch_that_was_published_on_larger_gpus_is_planned_with_a_warning() -> None:
    image = {"nvcr.io/nvidia/tensorflow:20.12-tf1-py3": "sha256:" + "0" * 64}
    changes = {"stack": "v100-cuda10.2", "container_images": image}
    own = load_catalog()
    for memory, precision, told in ((16, "fp32", 1), (32, "fp32", 0), (16, "amp", 0)):
        name = f"Tesla V100-SXM2-{memory}GB"
        nodes = tuple(replace(node, accelerator=name, **changes) for node in gpu_nodes())
        choice = choose(workload="tensorflow-resnet50v1.5", precision=precision)
        lines = memory_warnings(make_plan(choice, own, nodes), own.workloads)
        assert len(lines) == told
        for line in lines:
            assert "batch 256 in fp32 was published on GPUs with 32 GB" in line
            assert "Tesla V100-SXM2-16GB" in line


def test_a_run_in_full(catalog: Catalog) -> None:
    run = make_plan(choose(nodes=2), catalog, lab_nodes())[0]
    (command,) = run.commands
    assert asdict(run) | {"commands": ()} == {
        "id": "mxnet-resnet50v1b-builtin_fp32_b2_2n2g/r1",
        "case": "mxnet-resnet50v1b-builtin_fp32_b2_2n2g",
        "repeat": 1,
        "workload": "mxnet-resnet50v1b",
        "framework": "mxnet",
        "model": "resnet50v1b",
        "source": "builtin",
        "precision": "fp32",
        "batch_size_per_device": 2,
        "nodes": 2,
        "gpus_per_node": 2,
        "world_size": 4,
        "total_steps": 12,
        "warmup_steps": 4,
        "stack": "cpu",
        "accelerator": "cpu",
        "environment": "mxnet",
        "dataset": "",
        "container": "",
        "log_format": "gluoncv_horovod",
        "log_name": "rn50_b2_fp32_1.log",
        "timeout_s": 900,
        "hosts": ("node1", "node2"),
        "parameters": {
            "image_size": 64,
            "classes": 1000,
            "rec_train": "/opt/dlperf/data/noise/train.rec",
            "data_nthreads": 1,
            "omp_num_threads": 1,
            "bind_to": "none",
            "map_by": "slot",
        },
        "commands": (),
    }
    program = command.argv[command.argv.index("/opt/dlperf/envs/mxnet/bin/python") :]
    assert program == (
        *("/opt/dlperf/envs/mxnet/bin/python", "-u", "mxnet_resnet50.py"),
        *("--batch-size", "2"),
        *("--dtype", "float32"),
        *("--iterations", "12"),
        *("--image-size", "64"),
        *("--classes", "1000"),
        *("--log-interval", "1"),
        "--no-cuda",
    )
    assert command.cwd == "/opt/dlperf/src/mxnet-resnet50v1b-builtin"


def test_the_published_matrix(everything: Catalog) -> None:
    """Six topologies, two batches, five repeats, as the report has them."""
    runs = make_plan(choose(workload="mxnet-resnet50v1b"), everything, gpu_nodes())
    assert len(runs) == 60
    assert cases(runs) == [
        f"{batch} {topology}"
        for batch in ("fp32 b128", "fp16 b256")
        for topology in ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g")
    ]
    assert runs[0].log_name == "rn50_b128_fp32_1.log"
    assert "--no-cuda" not in runs[0].commands[0].argv
    assert sorted({run.repeat for run in runs}) == [1, 2, 3, 4, 5]


def test_the_published_arcface_matrix_has_both_networks(everything: Catalog) -> None:
    """20 cases, 100 runs."""
    runs = make_plan(choose(workload="mxnet-arcface"), everything, gpu_nodes())
    assert (len(cases(runs)), len(runs)) == (20, 100)
    assert {run.model for run in runs} == {"arcface-r100", "arcface-y1"}
    assert runs[0].log_name == "r100_b64_fp32_1.log"
    assert runs[-1].log_name == "y1_b352_fp32_5.log"
    assert runs[-1].id == "mxnet-arcface-builtin_y1_fp32_b352_1n8g/r5"
    assert "y1" in runs[-1].commands[0].argv


def test_a_network_can_be_chosen(everything: Catalog) -> None:
    runs = make_plan(choose(model="arcface-y1"), everything, gpu_nodes())
    assert {run.model for run in runs} == {"arcface-y1"}
    assert {run.workload for run in runs} == {"mxnet-arcface"}


def test_a_model_takes_every_workload_of_it(everything: Catalog) -> None:
    runs = make_plan(choose(model="arcface"), everything, gpu_nodes())
    assert {run.workload for run in runs} == {"mxnet-arcface", "paddle-arcface"}
    runs = make_plan(choose(model="resnet50"), everything, gpu_nodes())
    assert {run.framework for run in runs} == {"mxnet", "oneflow", "tensorflow"}
    runs = make_plan(choose(model="resnet50,arcface", framework="paddle"), everything, gpu_nodes())
    assert {run.workload for run in runs} == {"paddle-arcface"}


def test_without_a_choice_what_the_nodes_have_is_run(everything: Catalog) -> None:
    nodes = tuple(replace(node, frameworks=("paddle", "oneflow")) for node in gpu_nodes())
    runs = make_plan(Choice(), everything, nodes)
    assert {run.framework for run in runs} == {"paddle", "oneflow"}


def test_options_of_a_precision_are_appended(everything: Catalog) -> None:
    choice = choose(framework="tensorflow", precision="amp", nodes=1, gpus_per_node=1)
    (run,) = make_plan(choice, everything, gpu_nodes())
    assert run.commands[0].argv[-4:] == ("--batch_size", "256", "--use_tf_amp", "--use_xla")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"precision": "fp16", "nodes": "2,4"}, ["fp16 b256 2n8g", "fp16 b256 4n8g"]),
        ({"nodes": 3, "batch_size": 128}, ["fp32 b128 3n8g"]),
        ({"gpus_per_node": 4}, ["fp32 b128 1n4g", "fp16 b256 1n4g"]),
        ({"gpus_per_node": 3, "batch_size": 128}, ["fp32 b128 1n3g"]),
        (
            {"nodes": "1,2", "gpus_per_node": "1,8", "precision": "fp32"},
            ["fp32 b128 1n1g", "fp32 b128 1n8g", "fp32 b128 2n1g", "fp32 b128 2n8g"],
        ),
        ({"nodes": 2, "batch_size": 96}, ["fp32 b96 2n8g", "fp16 b96 2n8g"]),
        (
            {"nodes": 2, "batch_size": "128,96", "precision": "fp32"},
            ["fp32 b128 2n8g", "fp32 b96 2n8g"],
        ),
        ({"nodes": 2, "precision": "fp16", "batch_size": 128}, ["fp16 b128 2n8g"]),
    ],
)
def test_filters_narrow_the_matrix_or_add_to_it(
    everything: Catalog, options: dict[str, object], expected: list[str]
) -> None:
    choice = choose(workload="mxnet-resnet50v1b", **options)
    assert cases(make_plan(choice, everything, gpu_nodes())) == expected


def test_a_precision_that_the_matrix_lacks_runs_its_batch_sizes(catalog: Catalog) -> None:
    runs = make_plan(choose(model="resnet50v1b", precision="fp16", nodes=2), catalog, lab_nodes())
    assert cases(runs) == ["fp16 b2 2n2g"]


def test_twelve_nodes(catalog: Catalog) -> None:
    (run,) = make_plan(choose(nodes=12), catalog, lab_nodes(16))
    assert run.case.endswith("_12n2g")
    assert run.hosts == tuple(f"node{number}" for number in range(1, 13))


def test_both_sources(everything: Catalog) -> None:
    choice = choose(workload="mxnet-resnet50v1b", source="builtin,upstream", nodes=2)
    runs = make_plan(choice, everything, gpu_nodes())
    assert list(dict.fromkeys(run.source for run in runs)) == ["builtin", "upstream"]
    assert runs[-1].commands[0].cwd == (
        "/opt/dlperf/src/mxnet-resnet50v1b-upstream/scripts/classification/imagenet"
    )


def test_hosts_are_the_first_that_have_enough_devices(everything: Catalog) -> None:
    small, *big = gpu_nodes(3)
    nodes = (replace(small, devices_per_node=4), *big)
    choice = choose(workload="mxnet-resnet50v1b", nodes=1, gpus_per_node="4,8", repeats=1)
    runs = make_plan(choice, everything, nodes)
    hosts = {f"{run.precision} {run.gpus_per_node}": run.hosts for run in runs}
    assert hosts["fp32 4"] == ("node1",)
    assert hosts["fp32 8"] == ("node2",)


def test_parameters(catalog: Catalog) -> None:
    choice = parse_choice({"nodes": 2}, ["image_size=32"])
    (run,) = make_plan(choice, catalog, lab_nodes())
    assert run.parameters["image_size"] == 32
    assert (run.parameters["classes"], run.parameters["data_nthreads"]) == (1000, 1)
    argv = run.commands[0].argv
    assert argv[argv.index("--image-size") + 1] == "32"


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ({}, (120, 20)),
        ({"iterations": 60}, (60, 10)),
        ({"iterations": 7}, (7, 2)),
        ({"iterations": 1}, (1, 0)),
        ({"iterations": 60, "warmup": 0}, (60, 0)),
        ({"warmup": 30}, (120, 30)),
    ],
)
def test_iterations_keep_the_published_proportion_of_warm_up(
    everything: Catalog, options: dict[str, object], window: tuple[int, int]
) -> None:
    choice = choose(workload="mxnet-resnet50v1b", nodes=4, **options)
    run = make_plan(choice, everything, gpu_nodes())[0]
    assert (run.total_steps, run.warmup_steps) == window


def test_warm_up_is_whole_log_lines(everything: Catalog) -> None:
    """OneFlow prints a line every 20 iterations, and the first is dropped."""
    choice = choose(framework="oneflow", iterations=60, nodes=1, gpus_per_node=1, batch_size=128)
    run = make_plan(choice, everything, gpu_nodes())[0]
    assert (run.total_steps, run.warmup_steps) == (60, 20)


def test_more_iterations_may_take_longer(catalog: Catalog) -> None:
    (run,) = make_plan(choose(nodes=2, iterations=120), catalog, lab_nodes())
    assert run.timeout_s == 9000


# ---- what is refused


def refusal(choice: Choice, catalog: Catalog, nodes: tuple[object, ...]) -> str:
    with pytest.raises(UserError) as caught:
        make_plan(choice, catalog, nodes)
    return str(caught.value)


def test_more_than_the_inventory_has_is_named_per_case(catalog: Catalog) -> None:
    assert refusal(choose(matrix="published"), catalog, lab_nodes()) == (
        "the plan needs more than the inventory has:\n"
        "  1n4g needs 1 node with 4 devices\n"
        "  1n8g needs 1 node with 8 devices\n"
        "  2n8g needs 2 nodes with 8 devices\n"
        "  4n8g needs 4 nodes with 8 devices\n"
        "  the inventory has 4 nodes node1..node4 with 2 devices each\n"
        "  reduce the plan with --nodes, --gpus-per-node or --matrix"
    )
    assert "5n2g needs 5 nodes with 2 devices\n" in refusal(choose(nodes=5), catalog, lab_nodes())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"model": "vgg"},
            "--model: unknown model 'vgg' (expected one of arcface, arcface-r100, arcface-y1,"
            " llama, llama-1b, llama-70b, llama-8b, llama-lab, ",
        ),
        (
            {"framework": "torch"},
            "--framework: unknown framework 'torch' (expected one of mxnet, ",
        ),
        ({"workload": "x"}, "--workload: unknown workload 'x' (expected one of mxnet-arcface, "),
        (
            {"workload": "mxnet-resnet50v1b", "precision": "fp8"},
            "--precision: mxnet-resnet50v1b has no precision 'fp8' (expected one of fp32, fp16)",
        ),
        (
            {"workload": "mxnet-resnet50v1b", "matrix": "huge"},
            "--matrix: mxnet-resnet50v1b has no matrix 'huge' (expected one of published, smoke)",
        ),
        (
            {"model": "resnet50v1b", "framework": "paddle"},
            "--model resnet50v1b: no workload matches"
            " (expected a value that matches paddle-arcface)",
        ),
        (
            {"workload": "mxnet-arcface", "nodes": 2},
            "--nodes 2: no workload runs on so many nodes (expected at most 1 for mxnet-arcface)",
        ),
        (
            {"workload": "mxnet-arcface", "source": "upstream"},
            "--source: mxnet-arcface has no source 'upstream' (expected one of builtin)",
        ),
        (
            {"workload": "mxnet-resnet50v1b", "warmup": 120},
            "--warmup: no steps remain to be measured (expected fewer than the 120 iterations,"
            " found 120)",
        ),
        (
            {"framework": "oneflow", "iterations": 39, "warmup": 20},
            "--iterations: the log has one line per 20 steps, and none remains to be measured"
            " (expected at least 40, found 39)",
        ),
    ],
)
def test_a_choice_that_selects_nothing_is_told(
    everything: Catalog, options: dict[str, object], message: str
) -> None:
    assert message in refusal(choose(**options), everything, gpu_nodes())


@pytest.mark.parametrize("key", ["accelerator", "stack"])
def test_nodes_that_differ_cannot_stand_in_one_plan(everything: Catalog, key: str) -> None:
    *same, last = gpu_nodes()
    nodes = (*same, replace(last, **{key: "other"}))
    message = refusal(choose(workload="mxnet-resnet50v1b"), everything, nodes)
    assert message.startswith(f"host node4: dlperf_{key}: the nodes of one plan must be")
    assert "as on node1, found other" in message
    # A plan that does not use the odd one is all right.
    assert make_plan(choose(workload="mxnet-resnet50v1b", nodes="1,2"), everything, nodes)


def test_a_framework_that_the_nodes_lack_is_told(everything: Catalog) -> None:
    message = refusal(choose(model="resnet50"), everything, lab_nodes(2))
    assert message.startswith("node1, node2: oneflow-resnet50v1.5 needs oneflow, which these nodes")


@pytest.mark.parametrize("stack", ["a100-cuda11.8", "h100-cuda12.9", "b200-cuda13"])
def test_todays_nodes_run_what_exists_for_them_and_the_plan_says_what_does_not(stack: str) -> None:
    shipped = load_catalog()
    nodes = [
        replace(node, stack=stack, accelerator="NVIDIA H100 80GB HBM3") for node in gpu_nodes()
    ]
    planned = {run.workload for run in make_plan(Choice(), shipped, nodes)}
    built = set() if stack == "b200-cuda13" else {"nccl-allreduce"}
    assert planned == {"pytorch-llama", "pytorch-resnet50v1.5"} | built
    reasons = left_out(shipped, nodes)
    runnable = {name for name, w in shipped.workloads.items() if w.sources.items()}
    assert planned | set(reasons) == runnable
    assert f"mxnet has no environment for the stack {stack}: " in reasons["mxnet-resnet50v1b"]
    # A family means those of its models that run there; a named workload must run.
    family = make_plan(choose(model="resnet50"), shipped, nodes)
    assert {run.workload for run in family} == {"pytorch-resnet50v1.5"}
    assert f"mxnet has no environment for the stack {stack}: " in refusal(
        choose(workload="mxnet-resnet50v1b"), shipped, nodes
    )


def test_the_launcher_is_a_parameter_of_pytorch() -> None:
    shipped, nodes = load_catalog(), [replace(n, frameworks=("pytorch",)) for n in lab_nodes(2)]
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
    odd = tuple(replace(node, stack="v100") for node in lab_nodes())
    assert "unknown stack 'v100' (expected one of a100-cuda11.8" in refusal(Choice(), catalog, odd)
    odd = tuple(replace(node, accelerator="A100") for node in lab_nodes())
    message = refusal(Choice(), catalog, odd)
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
    with pytest.raises(UserError) as caught:
        make_plan(parse_choice({"model": "resnet50v1b"}, [text]), catalog, lab_nodes())
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ("nodes", "0"),
        ("nodes", "1,-2"),
        ("nodes", "two"),
        ("nodes", "1n2g"),
        ("batch_size", "1e3"),
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


def test_the_document_says_what_was_chosen(catalog: Catalog) -> None:
    choice = choose(nodes=2)
    runs = make_plan(choice, catalog, lab_nodes())
    document = plan_document(choice, lab_nodes(), runs)
    assert list(document) == ["schema", "choice", "inventory", "runs"]
    assert document["schema"] == 1
    assert document["choice"]["nodes"] == (2,)
    assert [node["name"] for node in document["inventory"]] == ["node1", "node2", "node3", "node4"]
    assert document["runs"][0]["id"] == runs[0].id


# ---- what always holds

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
    everything: Catalog, choice: Choice, count: int, devices: int
) -> None:
    nodes = gpu_nodes(count, devices)
    try:
        runs = make_plan(choice, everything, nodes)
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


@given(nodes=st.integers(1, 10**6), devices=st.integers(1, 10**3))
def test_a_topology_is_its_text(nodes: int, devices: int) -> None:
    assert Topology.parse(str(Topology(nodes, devices))) == Topology(nodes, devices)


def test_the_catalogue_of_the_tests_is_separate(tmp_path: Path) -> None:
    """Adding a workload is a YAML file: one that is written here is planned at once."""
    catalog = load_catalog(write_catalog(tmp_path, "paddle-arcface"))
    runs = make_plan(choose(framework="paddle"), catalog, gpu_nodes())
    assert len(runs) == 25


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"modle": "resnet50v1b"}, r"unknown option modle .*did you mean model\?"),
        ({"image_size": 64}, "unknown option image_size"),
        ({"parameters": "image_size=64"}, "parameters must be an object"),
        ({"nodes": "two"}, "--nodes: invalid number"),
    ],
)
def test_variables_of_bench_that_are_wrong(variables: dict[str, object], message: str) -> None:
    with pytest.raises(UserError) as caught:
        choice_of_variables(variables, ("dlperf", "benchmark_run"))
    assert re.search(message, str(caught.value).replace("\n", " "))


def test_variables_of_bench_become_a_choice() -> None:
    variables = {
        "nodes": [1, 2],
        "repeats": 3,
        "parameters": {"image_size": 64},
        "resume": "",
        "dlperf_user": "dlperf",
        "benchmark_run_wait_s": 1,
    }
    choice = choice_of_variables(variables, ("dlperf", "benchmark_run"))
    assert (choice.nodes, choice.repeats) == ((1, 2), 3)
    assert choice.parameters == {"image_size": "64"}
