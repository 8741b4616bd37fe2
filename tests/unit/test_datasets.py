"""Where the inventory says that data sets lie, and what plans and results make of it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import output
from plan_examples import gpu_nodes, lab_nodes
from recorded_campaign import end

from dlperf_runner.campaign.directory import create_campaign
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.commands.report import make_report
from dlperf_runner.compare.conditions import differences
from dlperf_runner.core.case import Run
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.plan.choice import Choice, parse_choice
from dlperf_runner.plan.inventory import nodes_of
from dlperf_runner.plan.make import make_plan, plan_document
from dlperf_runner.plan.parameters import places
from dlperf_runner.provision import datasets
from dlperf_runner.report.plan_text import render

WHERE = "host node1: dlperf_datasets"
NGC = "nvcr.io/nvidia/tensorflow:20.12-tf1-py3"
DATASETS = {
    "imagenet-recordio": {"path": "/datasets/imagenet"},
    "imagenet-ofrecord": {"path": "/datasets/ofrecord", "parts": 256},
    "imagenet-tfrecord": {"path": "/data/tfrecords"},
    "faces_emore": {"synthetic": True},
}


def v100_nodes(datasets: dict[str, Any] | None = None, **changes: Any) -> tuple[Node, ...]:
    """The published cluster with these data sets."""
    more = {"container_images": {NGC: "sha256:" + "5f" * 32}, **changes}
    known = places(DATASETS if datasets is None else datasets, WHERE)
    return gpu_nodes(datasets=known, **more)


def planned(workload: str, nodes: tuple[Node, ...], **choice: Any) -> Run:
    chosen = Choice(workload=(workload,), source=("upstream",), repeats=1, nodes=(1,), **choice)
    return make_plan(chosen, load_catalog(), nodes)[0]


def kind(run: Run) -> object:
    workload = load_catalog().workload(run.workload)
    return workload.measured_parameters(run.source, run.parameters).get("data")


RECORDIO, OFRECORD = "/datasets/imagenet/train.rec", "/datasets/ofrecord/train"
PARTS = "--train_data_part_num=256"


@pytest.mark.parametrize(
    ("workload", "dataset", "arguments", "data"),
    [
        ("mxnet-resnet50v1b", "imagenet-recordio", {RECORDIO}, RECORDIO),
        (
            *("oneflow-resnet50v1.5", "imagenet-ofrecord"),
            *({f"--train_data_dir={OFRECORD}", PARTS}, OFRECORD),
        ),
        (
            *("tensorflow-resnet50v1.5", "imagenet-tfrecord"),
            *({"--data_dir=/data/tfrecords"}, "/data/tfrecords"),
        ),
        ("mxnet-arcface", "faces_emore", set(), "synthetic-dataset"),
    ],
)
def test_a_run_reads_the_data_set_of_the_inventory(
    workload: str, dataset: str, arguments: set[str], data: str
) -> None:
    run = planned(workload, v100_nodes())
    assert (run.dataset, kind(run)) == (dataset, data)
    assert arguments <= set(run.commands[0].argv)
    if workload == "mxnet-arcface":
        faces = "/opt/dlperf/data/synthetic/faces_emore"
        assert run.commands[0].env["DLPERF_DATASET"] == faces


def test_without_a_data_set_the_plan_says_synthetic() -> None:
    nodes = v100_nodes({})
    run = planned("tensorflow-resnet50v1.5", nodes)
    assert (run.dataset, kind(run)) == ("", "synthetic")
    text = render(plan_document(Choice(), nodes, [run]))
    assert ", data=synthetic\n" in text
    assert "the published run read imagenet-tfrecord (see docs/datasets.md)" in text
    # With data there is nothing to remark; on the CPU nobody compares with the publication.
    run = planned("tensorflow-resnet50v1.5", v100_nodes())
    text = render(plan_document(Choice(), nodes, [run]))
    assert ", data=/data/tfrecords\n" in text
    assert "published run" not in text


def test_the_choice_prefers_or_demands_a_kind_of_data() -> None:
    nodes = v100_nodes()
    run = planned("tensorflow-resnet50v1.5", nodes, data="synthetic")
    assert (run.dataset, "--data_dir=" in run.commands[0].argv) == ("", True)
    assert planned("tensorflow-resnet50v1.5", nodes, data="real").dataset == "imagenet-tfrecord"
    for data, workload, message in (
        ("synthetic-dataset", "tensorflow-resnet50v1.5", "expected real, with this source"),
        ("real", "mxnet-arcface", "expected synthetic-dataset, with this source"),
        ("real", "paddle-arcface", "expected synthetic, with this source"),
    ):
        with pytest.raises(UserError, match=message):
            planned(workload, nodes, data=data)
    with pytest.raises(UserError, match=r"imagenet-tfrecord: \{path: /datasets/...\}, found none"):
        planned("tensorflow-resnet50v1.5", v100_nodes({}), data="real")
    with pytest.raises(UserError, match="--data: unknown kind of data 'imagenet'"):
        parse_choice({"data": "imagenet"})


def test_a_parameter_overrides_the_inventory() -> None:
    chosen = {"parameters": {"rec_train": "/mine/train.rec"}}
    run = planned("mxnet-resnet50v1b", v100_nodes(), **chosen)
    assert (run.dataset, run.parameters["rec_train"]) == ("", "/mine/train.rec")
    with pytest.raises(UserError, match="expected real, with this source and inventory"):
        planned("mxnet-resnet50v1b", v100_nodes(), data="synthetic", **chosen)


def test_nodes_of_one_run_have_the_same_data() -> None:
    first, *others = v100_nodes()
    other = [replace(node, datasets={}) for node in others]
    choice = Choice(workload=("mxnet-resnet50v1b",), source=("upstream",), nodes=(2,))
    with pytest.raises(UserError, match="host node2: dlperf_datasets: imagenet-recordio"):
        make_plan(choice, load_catalog(), (first, *other))


ARCHIVE, TWO = {"path": "/f", "archive": "/f.tar"}, {"synthetic": True, "images": "/i"}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "expected data sets by name"),
        ({"imagenet": {}}, "unknown data set 'imagenet' .*imagenet-recordio"),
        ({"faces_emore": {}}, "faces_emore: unclear place .*found 'neither'"),
        ({"faces_emore": {"path": "faces"}}, "faces_emore: path: invalid value"),
        ({"faces_emore": {"path": "/{{ data }}"}}, "faces_emore: path: invalid value"),
        ({"faces_emore": {"paht": "/faces"}}, "faces_emore: paht: unknown key .*path"),
        ({"faces_emore": ARCHIVE}, "an archive needs its checksum"),
        ({"faces_emore": {**ARCHIVE, "sha256": "5f"}}, "faces_emore: sha256: invalid value"),
        ({"faces_emore": TWO}, "more than one origin .*images.*synthetic"),
    ],
)
def test_mistakes_in_the_inventory_are_named(given: object, message: str) -> None:
    hosts = {"dlperf_devices_per_node": 1, "dlperf_accelerator": "cpu", "dlperf_stack": "cpu"}
    hosts["dlperf_datasets"] = given
    listing = {"nodes": {"hosts": ["node1"]}, "_meta": {"hostvars": {"node1": hosts}}}
    with pytest.raises(UserError, match="host node1: dlperf_datasets") as error:
        nodes_of(listing)
    error.match(message)


# ---- containers


def volumes(run: Run) -> list[str]:
    argv = run.commands[0].argv
    return [argv[at + 1] for at, part in enumerate(argv) if part == "--volume"]


def test_a_container_mounts_the_data_read_only() -> None:
    tensorflow = "tensorflow-resnet50v1.5"
    chosen = {"parameters": {"data_dir": "/data/mine"}}
    assert "/data/mine:/data/mine:ro" in volumes(planned(tensorflow, v100_nodes({}), **chosen))
    assert "/data/tfrecords:/data/tfrecords:ro" in volumes(planned(tensorflow, v100_nodes()))
    # Once, where the inventory mounts it already.
    mounts = volumes(planned(tensorflow, v100_nodes(container_data=("/data",))))
    assert [each for each in mounts if each.startswith("/data")] == ["/data:/data:ro"]
    # The directory of a file.
    images = {"localhost/dlperf-mxnet": "sha256:" + "5f" * 32}
    recordio = planned("mxnet-resnet50v1b", v100_nodes(container_images=images), container="podman")
    assert "/datasets/imagenet:/datasets/imagenet:ro" in volumes(recordio)


def test_data_that_a_container_cannot_mount_are_refused() -> None:
    for path in ("tfrecords", "/data:1"):
        chosen = {"parameters": {"data_dir": path}}
        with pytest.raises(UserError, match=r"--parameter data_dir of tensorflow"):
            planned("tensorflow-resnet50v1.5", v100_nodes({}), **chosen)


# ---- results


def campaign(directory: Path, datasets: dict[str, Any], rate: float) -> Path:
    """One finished run of the upstream program on the lab's nodes with these data sets."""
    nodes = lab_nodes(1, datasets=places(datasets, WHERE))
    choice = parse_choice({"workload": "mxnet-resnet50v1b", "source": "upstream", "repeats": 1})
    choice = replace(choice, gpus_per_node=(1,), nodes=(1,))
    plan = create_campaign(directory, choice, nodes, make_plan(choice, load_catalog(), nodes))
    for run in json.loads(json.dumps(plan["runs"])):
        end(directory, run, rate)
    return directory


def test_table_report_and_comparison_show_the_data(tmp_path: Path) -> None:
    entry = "imagenet-recordio"
    real = campaign(tmp_path / "real", {entry: {"path": "/datasets/imagenet"}}, 10.0)
    made = campaign(tmp_path / "made", {entry: {"synthetic": True}}, 11.0)
    noise = campaign(tmp_path / "noise", {}, 12.0)
    shown = {real: "/datasets/imagenet/train.rec", made: "synthetic-dataset", noise: "synthetic"}
    page = make_report([*shown], tmp_path / "report").paths[0].read_text()
    for directory, data in shown.items():
        assert f", data={data} data_nthreads=1 " in " ".join(output("summarize", directory).split())
        assert f"data={data} data_nthreads" in page
    # Runs with different data are different cases.
    compared = " ".join(output("compare", real, made, status=1).split())
    assert "data=synthetic-dataset" in compared
    mine = {"data": "synthetic-dataset", "input_pipeline": "framework"}
    data, pipeline = map(str, differences(mine, {"data": "real", "input_pipeline": "DALI"}))
    assert data == "data (synthetic-dataset, real)"
    assert pipeline == "input pipeline (framework, DALI)"


# ---- what datasets.yml computes of its plan


def test_runs_start_whose_nodes_are_all_ready() -> None:
    runs: list[dict[str, Any]] = [{"hosts": ["a"]}, {"hosts": ["a", "b"]}]
    runs.append({"hosts": ["b"], "dataset": "d"})
    assert datasets.of_runs(runs, "b") == ["d"]
    assert datasets.of_runs(runs, "a") == []
    hosts: dict[str, Any] = {"a": {"bench_ready": True, "bench_facts": {"cpu": 1}}, "b": {}}
    ready = datasets.ready_runs(runs, ["a", "b"], hosts)
    assert ready == {"bench_possible": [0], "bench_facts_by_host": {"a": {"cpu": 1}}}
    hosts["b"] = {"bench_ready": True, "bench_facts": {"cpu": 2}}
    assert datasets.ready_runs(runs, ["a", "b"], hosts)["bench_possible"] == [0, 1, 2]
