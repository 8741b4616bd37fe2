"""What a choice selects, and in which order."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from command_line import call
from hypothesis import given
from hypothesis import strategies as st
from plan_examples import choose, gpu_nodes, lab_nodes
from refusals import refusal

from dlperf_runner.catalog.reader import Catalog, load_catalog
from dlperf_runner.control.campaigns import memory_warnings
from dlperf_runner.core.case import Run, Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan.choice import Choice, parse_choice, recorded_choice
from dlperf_runner.plan.make import make_plan, plan_document
from dlperf_runner.report.plan_text import render


def cases(runs: tuple[Run, ...]) -> list[str]:
    """`fp32 b128 1n1g` of each case, in the plan's order."""
    texts = (
        f"{run.precision} b{run.batch_size_per_device} {run.nodes}n{run.gpus_per_node}g"
        for run in runs
    )
    return list(dict.fromkeys(texts))


def test_the_rails_of_the_stack_are_those_that_nccl_takes(catalog: Catalog) -> None:
    rails = {"infiniband": {"rails": "=mlx5_0,mlx5_1"}}
    usual = gpu_nodes()
    nodes = gpu_nodes(stack_overrides=rails)
    own = tuple(replace(node, env={"NCCL_IB_HCA": "^mlx5_4"}) for node in nodes)
    for hosts, expected in ((usual, None), (nodes, "=mlx5_0,mlx5_1"), (own, "^mlx5_4")):
        (run, *_) = make_plan(choose(workload="mxnet-resnet50v1b", nodes=2), catalog, hosts)
        assert run.commands[0].env.get("NCCL_IB_HCA") == expected


@pytest.mark.parametrize(
    ("domains", "nodes", "hosts", "across"),
    [
        # The first domain that has enough nodes, though others come first in the inventory.
        (["r1", "r2", "r2", "r2"], 2, ["node2", "node3"], ""),
        (["r1", "r2", "r1", "r2"], 2, ["node1", "node3"], ""),
        # As few domains as possible, one after the other.
        (["r1", "r2", "r1", "r2"], 4, ["node1", "node3", "node2", "node4"], "2 NVLink domains"),
        (["", "", "r2", "r2"], 2, ["node3", "node4"], ""),
        (["", "", "", ""], 2, ["node1", "node2"], ""),
    ],
)
def test_a_run_stays_within_an_nvlink_domain_that_has_enough_nodes(
    catalog: Catalog, domains: list[str], nodes: int, hosts: list[str], across: str
) -> None:
    racks = tuple(
        replace(node, nvlink_domain=domain)
        for node, domain in zip(lab_nodes(), domains, strict=True)
    )
    choice = choose(nodes=nodes)
    runs = make_plan(choice, catalog, racks)
    assert list(runs[0].hosts) == hosts
    shown = render(plan_document(choice, racks, runs))
    assert ("across" in shown, across in shown) == (bool(across), True)


@pytest.mark.parametrize(
    ("framework", "workload", "cases_of_smoke"),
    [
        ("mxnet", "mxnet-resnet50v1b", ["fp32 b2 1n1g", "fp32 b2 1n2g", "fp32 b2 2n2g"]),
        ("mxnet", "mxnet-arcface", ["fp32 b4 1n1g", "fp32 b4 1n2g"]),
        ("tensorflow", "tensorflow-resnet50v1.5", ["fp32 b2 1n1g", "fp32 b2 1n2g", "fp32 b2 2n2g"]),
        ("paddle", "paddle-arcface", ["fp32 b4 1n1g", "fp32 b4 1n2g", "fp32 b4 2n2g"]),
        ("oneflow", "oneflow-resnet50v1.5", ["fp32 b2 1n1g", "fp32 b2 1n2g", "fp32 b2 2n2g"]),
    ],
)
def test_the_lab_has_a_smoke_matrix_of_every_published_system(
    catalog: Catalog, framework: str, workload: str, cases_of_smoke: list[str]
) -> None:
    nodes = lab_nodes(frameworks=(framework,))
    runs = make_plan(choose(workload=workload), catalog, nodes)
    assert cases(runs) == cases_of_smoke
    for run in runs:
        for command in run.commands:
            assert f"/opt/dlperf/envs/{framework}/bin/python" in command.argv
            assert "--no-cuda" in command.argv


def test_a_batch_that_was_published_on_larger_gpus_is_planned_with_a_warning() -> None:
    image = {"nvcr.io/nvidia/tensorflow:20.12-tf1-py3": "sha256:" + "0" * 64}
    own = load_catalog()
    for memory, precision, told in ((16, "fp32", 1), (32, "fp32", 0), (16, "amp", 0)):
        name = f"Tesla V100-SXM2-{memory}GB"
        nodes = gpu_nodes(accelerator=name, container_images=image)
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
        "hung_after_s": 120,
        "hung_after_lines": 20,
        "first_step_s": 900,
        "hosts": ("node1", "node2"),
        "nvlink_domains": (),
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
        *("--batch-size", "2", "--dtype", "float32", "--iterations", "12", "--image-size", "64"),
        *("--classes", "1000", "--log-interval", "1", "--no-cuda"),
    )
    assert command.cwd == "/opt/dlperf/src/mxnet-resnet50v1b-builtin"


def test_the_published_matrices(catalog: Catalog) -> None:
    """As the reports have them: six topologies, two batches, five repeats; and two networks."""
    runs = make_plan(choose(workload="mxnet-resnet50v1b"), catalog, gpu_nodes())
    assert len(runs) == 60
    assert cases(runs) == [
        f"{batch} {topology}"
        for batch in ("fp32 b128", "fp16 b256")
        for topology in ("1n1g", "1n2g", "1n4g", "1n8g", "2n8g", "4n8g")
    ]
    assert runs[0].log_name == "rn50_b128_fp32_1.log"
    assert "--no-cuda" not in runs[0].commands[0].argv
    assert sorted({run.repeat for run in runs}) == [1, 2, 3, 4, 5]
    runs = make_plan(choose(workload="mxnet-arcface"), catalog, gpu_nodes())
    assert (len(cases(runs)), len(runs)) == (20, 100)
    assert {run.model for run in runs} == {"arcface-r100", "arcface-y1"}
    assert (runs[0].log_name, runs[-1].log_name) == ("r100_b64_fp32_1.log", "y1_b352_fp32_5.log")
    assert runs[-1].id == "mxnet-arcface-builtin_y1_fp32_b352_1n8g/r5"
    assert "y1" in runs[-1].commands[0].argv


def test_a_model_takes_every_workload_of_it(catalog: Catalog) -> None:
    for options, planned in (
        ({"model": "arcface"}, {"mxnet-arcface", "paddle-arcface"}),
        ({"model": "resnet50,arcface", "framework": "paddle"}, {"paddle-arcface"}),
    ):
        runs = make_plan(choose(**options), catalog, gpu_nodes())
        assert {run.workload for run in runs} == planned
    runs = make_plan(choose(model="resnet50"), catalog, gpu_nodes())
    assert {run.framework for run in runs} == {"mxnet", "oneflow", "tensorflow"}
    # Without a choice, what the nodes have.
    runs = make_plan(Choice(), catalog, gpu_nodes(frameworks=("paddle-paddle2", "oneflow")))
    assert {run.framework for run in runs} == {"paddle", "oneflow"}


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
    catalog: Catalog, options: dict[str, object], expected: list[str]
) -> None:
    choice = choose(workload="mxnet-resnet50v1b", **options)
    assert cases(make_plan(choice, catalog, gpu_nodes())) == expected


def test_a_precision_that_the_matrix_lacks_runs_its_batch_sizes(catalog: Catalog) -> None:
    runs = make_plan(choose(model="resnet50v1b", precision="fp16", nodes=2), catalog, lab_nodes())
    assert cases(runs) == ["fp16 b2 2n2g"]


def test_both_sources(catalog: Catalog) -> None:
    choice = choose(workload="mxnet-resnet50v1b", source="builtin,upstream", nodes=2)
    runs = make_plan(choice, catalog, gpu_nodes())
    assert list(dict.fromkeys(run.source for run in runs)) == ["builtin", "upstream"]
    assert runs[-1].commands[0].cwd == (
        "/opt/dlperf/src/mxnet-resnet50v1b-upstream/scripts/classification/imagenet"
    )


def test_hosts_are_the_first_that_have_enough_devices(catalog: Catalog) -> None:
    small, *big = gpu_nodes(3)
    nodes = (replace(small, devices_per_node=4), *big)
    choice = choose(workload="mxnet-resnet50v1b", nodes=1, gpus_per_node="4,8", repeats=1)
    runs = make_plan(choice, catalog, nodes)
    hosts = {f"{run.precision} {run.gpus_per_node}": run.hosts for run in runs}
    assert hosts["fp32 4"] == ("node1",)
    assert hosts["fp32 8"] == ("node2",)


@pytest.mark.parametrize(
    ("options", "window"),
    [
        ({}, (120, 20)),
        ({"iterations": 60}, (60, 10)),
        ({"iterations": 7}, (7, 2)),
        ({"iterations": 1}, (1, 0)),
        ({"iterations": 60, "warmup": 0}, (60, 0)),
        ({"warmup": 30}, (120, 30)),
        # OneFlow prints a line every 20 iterations, and the first is dropped.
        ({"workload": "oneflow-resnet50v1.5", "iterations": 60}, (60, 20)),
    ],
)
def test_iterations_keep_the_published_proportion_of_warm_up(
    catalog: Catalog, options: dict[str, object], window: tuple[int, int]
) -> None:
    choice = choose(**{"workload": "mxnet-resnet50v1b", "nodes": 4, **options})
    run = make_plan(choice, catalog, gpu_nodes())[0]
    assert (run.total_steps, run.warmup_steps) == window


def test_more_iterations_may_take_longer(catalog: Catalog) -> None:
    (run,) = make_plan(choose(nodes=2, iterations=120), catalog, lab_nodes())
    assert run.timeout_s == 9000


@given(nodes=st.integers(1, 10**6), devices=st.integers(1, 10**3))
def test_a_topology_is_its_text(nodes: int, devices: int) -> None:
    assert Topology.parse(str(Topology(nodes, devices))) == Topology(nodes, devices)


# ---- the order of the runs of a plan


def planned(catalog: Catalog, **options: object) -> list[str]:
    """`1n2g/r3` for each run."""
    choice = parse_choice({"workload": "mxnet-resnet50v1b", "precision": "fp32", **options})
    return [short(run) for run in make_plan(choice, catalog, gpu_nodes())]


def short(run: Run) -> str:
    return f"{run.nodes}n{run.gpus_per_node}g/r{run.repeat}"


def test_repeats_are_interleaved_unless_another_order_is_chosen(catalog: Catalog) -> None:
    topologies = {"gpus_per_node": "1,2,4", "repeats": 2}
    interleaved = [f"1n{g}g/r{r}" for r in (1, 2) for g in (1, 2, 4)]
    assert planned(catalog, **topologies) == interleaved
    assert planned(catalog, **topologies, order="interleaved") == interleaved
    grouped = [f"1n{g}g/r{r}" for g in (1, 2, 4) for r in (1, 2)]
    assert planned(catalog, **topologies, order="grouped") == grouped


def test_a_case_with_more_repeats_than_others_ends_the_interleaved_order(
    catalog: Catalog,
) -> None:
    choice = parse_choice({"model": "resnet50v1b,resnet50v1.5", "nodes": 1, "gpus_per_node": 1})
    runs = make_plan(choice, catalog, gpu_nodes())
    assert [run.repeat for run in runs] == sorted(run.repeat for run in runs)
    assert {run.workload for run in runs if run.repeat == 5} == {"mxnet-resnet50v1b"}
    assert len({run.workload for run in runs if run.repeat == 1}) > 1


def test_a_random_order_is_the_one_of_its_seed(catalog: Catalog) -> None:
    first = planned(catalog, order="random", seed=1)
    assert first == planned(catalog, order="random", seed=1)
    assert first != planned(catalog, order="random", seed=2)
    assert sorted(first) == sorted(planned(catalog))
    # The repeats of a case ascend, so that r1 is its first run.
    for topology in {name.partition("/")[0] for name in first}:
        of_case = [name for name in first if name.startswith(f"{topology}/")]
        assert of_case == [f"{topology}/r{repeat}" for repeat in range(1, 6)]
    # Each of the 6 cases is about as often first as any other: 20 of 120 times, give or take 4.
    firsts = [planned(catalog, order="random", seed=seed, repeats=1)[0] for seed in range(120)]
    assert all(8 <= firsts.count(name) <= 36 for name in set(firsts))


@pytest.mark.usefixtures("lab")
def test_the_plan_records_order_and_seed(tmp_path: Path) -> None:
    argv = ["plan", "--json", "--order", "random", "--repeats", "5"]
    directory = tmp_path / "results" / "one"
    document = call(*argv, "--campaign", directory).document
    seed = document["choice"]["seed"]
    assert document["choice"]["order"] == "random"
    assert isinstance(seed, int)
    for name in ("plan.json", "campaign.json"):
        assert json.loads((directory / name).read_text())["choice"]["seed"] == seed
    # A new seed each time; the recorded one gives the recorded order.
    other = call(*argv).document
    again = call(*argv, "--seed", seed).document
    assert other["choice"]["seed"] != seed
    assert [run["id"] for run in again["runs"]] == [run["id"] for run in document["runs"]]
    text = call("plan", "--order", "random", "--seed", "7", "--repeats", "5")
    assert "25 runs, random (seed 7); nothing was run" in text.out
    # Each case once, whatever the order.
    assert text.out.count("mxnet-resnet50v1b-builtin_fp32_b2_1n2g: ") == 1
    assert recorded_choice(document["choice"]) == Choice(order="random", seed=seed, repeats=5)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": "sorted"}, "--order: unknown order 'sorted' (expected one of interleaved, grou"),
        ({"seed": 1}, "--seed: a seed has an effect only on a random order (expected --order ran"),
        ({"order": "random", "seed": "x"}, "--seed: invalid number"),
        ({"until_ci": "1"}, "--until-ci: invalid percentage (expected a percentage below 100"),
        ({"max_repeats": 9}, "--max-repeats: this option has an effect only with --until-ci"),
        ({"until_ci": "1%", "max_repeats": 4}, "expected at least 5, found 4"),
        ({"until_ci": "1%", "max_repeats": 7, "repeats": 8}, "expected at least 8, found 7"),
    ],
)
def test_what_cannot_be_is_refused(
    catalog: Catalog, options: dict[str, object], message: str
) -> None:
    assert message in refusal(planned, catalog, **options)


def test_an_unknown_key_of_a_recorded_choice_is_refused(catalog: Catalog) -> None:
    document = plan_document(Choice(), gpu_nodes(), make_plan(Choice(), catalog, gpu_nodes()))
    assert recorded_choice(json.loads(json.dumps(document))["choice"]) == Choice()
    with pytest.raises(UserError, match="found colour"):
        recorded_choice({**document["choice"], "colour": "red"})
