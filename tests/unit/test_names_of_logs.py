"""Names of logs are hints: what they say in which form, and what the user states where they say
nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from command_line import call
from make_logs import dllogger, gluoncv, megatron, oneflow, write
from other_logs import GOOD, load, only, speedometer
from whole_logs import WHOLE_LOGS, throughput

from dlperf_runner.core.case import Topology
from dlperf_runner.results.log_name import words_of
from dlperf_runner.stats.summary import summarize

BARE = oneflow(384.0)  # states nothing
STEPS_ALONE = [line for line in megatron(500.0, batch=16) if "elapsed time per iteration" in line]


@pytest.mark.parametrize(
    ("stem", "directories", "said"),
    [
        ("rn50-b256-amp-1n8g", (), {"first": ("rn50",), "batch_size": 256, "precision": "amp"}),
        ("ResNet50-8gpu-amp-bs64", (), {"first": ("resnet50",), "devices": 8, "batch_size": 64}),
        ("llama3.1-8b_b2_bf16", (), {"first": ("llama3.1-8b",), "batch_size": 2}),
        ("qwen3-30b-a3b_bf16_1", (), {"first": ("qwen3-30b-a3b",), "repeat": 1}),
        ("rn50 b32 fp16", (), {"batch_size": 32, "precision": "fp16"}),
        ("rn50_b128_fp32_run3", (), {"repeat": 3}),
        ("rn50_b128_fp32_seed-7", (), {"repeat": 7}),
        # The size of a model, not that of a batch.
        ("vit_b16_b128_amp", (), {"first": ("vit-b16",), "batch_size": 128}),
        ("efficientnet_b4_fp32", (), {"first": ("efficientnet-b4",), "batch_size": None}),
        ("efficientnet_v1_b4_b160", (), {"first": ("efficientnet", "v1-b4"), "batch_size": 160}),
        ("llama3-8b_b200_fp8", (), {"batch_size": None, "first": ("llama3-8b", "b200")}),
        ("train", ("llama3-8b_b200_fp8",), {"batch_size": None}),
        # Of a node, or of both?
        ("rn50-2nodes-8gpus-b128", (), {"first": ("rn50", "2nodes"), "devices": None}),
        ("rn50-multi-node-8gpus", (), {"devices": None, "topology": None}),
        ("rn50-8gpus-b128", ("4nodes",), {"devices": None, "topology": None}),
        ("rn50-2n-8gpus", (), {"devices": None, "topology": None}),
        ("llama3-8b-8gpus-per-node", (), {"first": ("llama3-8b",), "devices": None}),
        ("rn50-single-node-8gpus", (), {"devices": None, "topology": Topology(1, 8)}),
        # A directory that says their number alone; gpu3 may be that of a device.
        ("train", ("run1", "8gpus"), {"devices": 8, "repeat": 1}),
        ("rn50-amp", ("ngpu=8", "16_gpus"), {"devices": 8}),
        ("rn50-4gpu", ("8gpus",), {"devices": 4}),
        ("train", ("resnet50_8gpu",), {"devices": 8}),
        ("train", ("r100_1n8g",), {"first": ("r100", "train"), "topology": Topology(1, 8)}),
        ("train", ("dgx_8gpu",), {"devices": None}),  # a machine
        ("rn50_0", ("1N8G",), {"repeat": 0, "topology_directory": "1N8G"}),
        ("train", ("4gpus", "1n8g"), {"devices": 4, "topology_directory": "1n8g"}),
        ("train", ("8xA100", "1n4g"), {"devices": None, "topology_directory": "1n4g"}),  # a machine
        ("train", ("1n2g", "8gpus"), {"devices": None, "topology_directory": "1n2g"}),
        ("train", ("8gpus", "2nodes"), {"devices": None, "topology": None}),
        ("rn50-2nodes-8gpus-per-node", (), {"devices": None, "topology": Topology(2, 8)}),
        ("rn50-8gpus-per-node", ("4-nodes",), {"topology": Topology(4, 8)}),
        ("rn50_N2_G8_b128", (), {"first": ("rn50",), "topology": Topology(2, 8)}),
        ("rn50_bs256_fp32_DP_N2C8_log", (), {"batch_size": 256, "topology": Topology(2, 8)}),
        ("rn50-nodes2-gpus8", (), {"topology": Topology(2, 8), "devices": None}),
        ("train", ("gpus8", "nodes=2"), {"topology": Topology(2, 8)}),
        ("train", ("gpus16", "nodes2"), {"nodes": 2, "topology": None}),  # those of all
        ("train", ("gpu3", "node2"), {"nodes": None, "topology": None}),
        ("train", ("2x8",), {"topology_directory": "2x8"}),
        ("train", ("N1_G8", "llama3_8b"), {"model_directory": "llama3-8b"}),
        # A product may be anything, such as a mesh or the size of images, where others say it.
        ("train", ("2x4", "4n8g"), {"topology_directory": "4n8g"}),
        ("train", ("224x8", "8gpus"), {"devices": 8, "topology_directory": None}),
        ("train", ("2x8", "1x8"), {"topology_directory": None}),
        ("rn50_1n8g", ("4x8",), {"topology_directory": None}),
        # Numbers of other names are none of nodes.
        ("rn50_fp32_2gpus_2", ("nodes",), {"devices": 2, "repeat": 2, "nodes": None}),
        ("deeplabv3+_1n8g_b16", (), {"first": ("deeplabv3+",)}),
        ("model=rn50,amp=true,bs=8,gpus=8", (), {"first": ("rn50",), "precision": "amp"}),
        ("amp=false,bs=8,gpus=8", (), {"first": (), "precision": None}),
        ("lr=0.1,bs=8,gpus=8,fp16", ("resnet50",), {"first": (), "others": ("lr0.1",)}),
        ("mmdet_2x8_b2_fp32", ("224x224",), {"topology": None, "topology_directory": None}),
        ("train", ("rn50_fp32",), {"model_directory": None}),
        # A number of nodes alone is no topology yet.
        ("llama3-8b_bf16", ("4nodes",), {"nodes": 4, "topology": None}),
        ("llama3-8b_bf16", ("two-node",), {"nodes": 2}),
        ("llama3-8b_bf16", ("multi-node",), {"nodes": None}),
        ("llama3-8b_bf16", ("node2",), {"nodes": None}),
        ("llama3-8b_4nodes", ("2nodes",), {"nodes": None}),
        # Devices and what they are.
        ("llama3-8b_16xA100_bf16", (), {"devices": 16, "accelerator": "A100"}),
        ("llama3-8b_gb200_bf16", (), {"global_batch_size": None}),
        ("llama3-8b-h100x8-bf16", (), {"devices": 8, "accelerator": "H100"}),
        ("llama3-8b_2x8xH100", (), {"topology": Topology(2, 8), "devices": None}),
        ("llama3-8x7b_bf16", (), {"devices": None, "first": ("llama3-8x7b",)}),
        ("faster-rcnn_r50_8xb2-amp-200e_coco", (), {"devices": None, "batch_size": 2}),  # OpenMMLab
        ("20230524_201000", ("resnet50_8xb32_fp32",), {"devices": None, "batch_size": 32}),
        ("llama3-8b_bf16", ("8xH100",), {"devices": 8}),
        ("llama3-8b_bf16", ("gpu3",), {"devices": None}),
        ("llama3-8b_bf16", ("old-8gpus",), {"devices": None}),
        ("llama3-8b_bf16_gbs512", (), {"global_batch_size": 512, "batch_size": None}),
        # A directory for each setting.
        ("run1", ("8gpus", "bs64", "fp32"), {"batch_size": 64, "precision": "fp32", "devices": 8}),
        ("rn50-8gpu", ("bs64", "amp"), {"batch_size": 64, "precision": "amp"}),
        ("rn50-8gpu", ("bs64", "b8"), {"batch_size": None}),
        # Other spellings.
        ("ResNet-50 (bs=64, fp32) 2 GPUs", (), {"batch_size": 64, "devices": 2}),
        ("rn50_batch_size_64-float16", (), {"batch_size": 64, "precision": "fp16", "others": ()}),
        ("rn50-bsz-8-bfloat16-num_gpus_4", (), {"batch_size": 8, "precision": "bf16"}),
        ("rn50_batch64_mixed-precision", (), {"first": ("rn50",), "precision": "amp"}),
        ("rn50_global_batch_64", (), {"global_batch_size": 64, "batch_size": None}),
        ("rn50_bs64_total", (), {"global_batch_size": 64, "batch_size": None}),
        ("rn50_train_batch_size_64", (), {"batch_size": None}),  # DeepSpeed's is that of all
        ("rn50_batch_2_fp32", (), {"batch_size": None}),
        ("rn50_no-amp_b8", (), {"precision": None, "first": ("rn50", "noamp")}),
        ("rn50_amp_off_b8", (), {"precision": None}),
        ("rn50_8-cards_b8", (), {"devices": 8}),
        ("vgg_16_gpu_b8", (), {"devices": None}),
        ("rn50_1 GPU_b8", (), {"devices": 1}),
        ("rn50_gpus_4_5_b8", (), {"devices": None}),
        ("rn50_gpus-16_b8", (), {"devices": 16}),
        # The nearest directory that says several settings says what the file does not.
        ("oneflow", ("rn50_bs128_1n1g_fp32", "b64_fp16"), {"batch_size": 128, "precision": "fp32"}),
        ("train", ("run2", "rn50-b128-fp32-1n8g"), {"repeat": 2, "batch_size": 128}),
        ("rn50_b128_fp32", ("rn50_b64_fp16",), {"batch_size": 128, "precision": "fp32"}),
        ("train", ("b64",), {"batch_size": None}),
        # Beside a directory with the topology, one setting names a run.
        ("train", ("llama3-8b_bf16", "1n8g"), {"first": ("llama3-8b", "train")}),
        ("train", ("gpu3", "amp", "rn50_b128_fp32", "1n8g"), {"batch_size": 128}),
        ("slurm-4711", ("run2", "2nodes", "llama3-8b_bf16"), {"precision": "bf16", "repeat": 2}),
    ],
)
def test_words(stem: str, directories: tuple[str, ...], said: dict[str, object]) -> None:
    words = words_of(stem, directories)
    assert {name: getattr(words, name) for name in said} == said


@pytest.mark.parametrize(
    "name", ["log/workerlog.{}", "rank{}.log", "attempt_0/{}/stdout.log", "out/1/rank.{}/stdout"]
)
def test_logs_of_ranks_are_one_run(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "1n2g/rn50_b128_fp32"
    for rank in (1, 0):
        write(folder / name.format(rank), gluoncv(100.0 + rank, world=2))
    write(tmp_path / "other/1n2g/rn50_b128_fp32" / name.format(1), gluoncv(101.0, world=2))
    results = load(tmp_path)
    assert (results.problems, results.is_incomplete) == ([], False)
    assert [run.path for run in results.counted] == [folder / name.format(0)]
    notes = " ".join(results.notes)
    shown = (folder / name.format(0)).relative_to(tmp_path)
    assert f"ranks of the run of {shown}, which is counted once: " in notes
    assert "copies of" in notes


def test_a_rank_that_prints_no_rate_is_no_problem(tmp_path: Path) -> None:
    """In most programs rank 0 prints; rank 0 without a rate is reported."""
    folder = tmp_path / "1n2g/rn50_b128_fp32/log"
    write(folder / "workerlog.0", gluoncv(100.0, world=2))
    write(folder / "workerlog.1", ["W0301 20:00:00.1 device_context.cc:447] device: 1"])
    write(folder / "workerlog.2", [])
    results = load(tmp_path)
    assert (results.problems, len(results.counted)) == ([], 1)
    write(folder / "workerlog.0", ["started"])
    assert "no line has a known format" in str(only(load(tmp_path)))


def test_rn50_is_also_a_network_that_the_log_states(tmp_path: Path) -> None:
    """In GluonCV's logs, rn50 is resnet50_v1b by the catalogue."""
    lines = ["INFO:root:Namespace(model='resnet50_v1')", *gluoncv(100.0)]
    write(tmp_path / "1n1g/rn50_b128_fp32.log", lines)
    (run,) = load(tmp_path).counted
    assert run.model == "resnet50_v1"


def test_a_name_may_say_more_than_the_log(tmp_path: Path) -> None:
    for layers in (50, 152):
        lines = ["INFO:root:Namespace(model='resnet')", *gluoncv(100.0)]
        write(tmp_path / f"1n1g/resnet{layers}_b128_fp32.log", lines)
    assert {run.model for run in load(tmp_path).counted} == {"resnet50", "resnet152"}


def test_logs_of_the_nodes_of_a_run_are_one_run(tmp_path: Path) -> None:
    for node in (1, 2):
        write(tmp_path / f"2n1g/rn50_b128_fp32/node{node}.log", gluoncv(100.0 + node, world=2))
        write(tmp_path / f"1n2g/rn50_b128_fp32/node{node}.log", gluoncv(90.0 + node, world=2))
    counted = [(str(run.topology), run.path.name) for run in load(tmp_path).counted]
    # Those of one node each are of two machines.
    assert counted == [("1n2g", "node1.log"), ("1n2g", "node2.log"), ("2n1g", "node1.log")]


WORLD8 = gluoncv(380.0, world=8)
GPT = megatron(500.0, batch=64, world=16)
YOLO = WHOLE_LOGS["ultralytics/whole"].text.splitlines()
DETECTOR = WHOLE_LOGS["mmengine/whole"].text.splitlines()


@pytest.mark.parametrize(
    ("name", "lines", "options", "said"),
    [
        ("rn50,bs=128,nodes=1,gpus=8,precision=fp32.log", WORLD8, {}, {"model": "resnet50v1b"}),
        ("model=vgg16,bs=128,fp32_1n8g.log", WORLD8, {}, {"model": "vgg16"}),
        ("a+b@(x)_b128_fp32_1n8g.log", WORLD8, {}, {"model": "a-b-x"}),
        # A program trains any model.
        ("mynet_b128_fp32_1n1g.log", GOOD, {}, {"workload": "gluoncv-horovod", "model": "mynet"}),
        # The user says which one is right.
        ("bs64/rn50_b128_fp32_1n1g.log", GOOD, {"batch_size": "128"}, {}),
        # The devices of the log are divided among the nodes of the name.
        ("2nodes/gpt_bf16.log", GPT, {}, {"topology": "2n8g"}),
        ("4nodes/gpt_bf16.log", GPT, {}, {"topology": "4n4g"}),
        ("8xH100/gpt_bf16.log", GPT, {}, {"topology": "2n8g"}),  # those of a node
        ("16xH100/gpt_bf16.log", GPT, {}, {"topology": "2n8g"}),
        ("4xH100/gpt_bf16.log", GPT, {"topology": "4n4g"}, {"topology": "4n4g"}),
        ("gpt_bf16_gbs64_2n8g.log", GPT, {}, {"batch_size_per_device": "4"}),
        ("gpt_bf16_bs4_2n8g.log", GPT, {}, {"batch_size_per_device": "4"}),
        ("gpt_bf16_BS64_2n8g.log", GPT, {}, {"batch_size_per_device": "4"}),  # with a note
        # A network in the log is more than a directory, and confirms what is stated.
        ("resnet50/1n4g/train.log", YOLO, {}, {"model": "yolov8n"}),
        ("yolo84_1n4g.log", YOLO, {"model": "yolov8n"}, {"model": "yolov8n"}),
        # A backbone is no name of a detector.
        ("mask_rcnn_r50_fpn_1x_b2_fp32_1n1g.log", DETECTOR, {}, {"model": "mask-rcnn-r50-fpn"}),
        ("nightly_r50_b2_fp32_1n1g.log", DETECTOR, {}, {"model": "r50"}),
        ("solov2_r50_b2_fp32_1n1g.log", DETECTOR, {}, {"model": "solov2-r50"}),
        ("r50_fpn_b2_fp32_1n1g.log", DETECTOR, {}, {"model": "r50"}),
        ("pytorch_train_r50_b2_fp32_1n1g.log", DETECTOR, {}, {"model": "r50"}),
        # Names that say nothing.
        ("1n1g/mynet_b128_fp32/training.log", GOOD, {}, {"model": "mynet"}),
        ("1n1g/mynet_b128_fp32/nohup.out", GOOD, {}, {"model": "mynet"}),
    ],
)
def test_what_a_name_says_beside_its_log(
    tmp_path: Path, name: str, lines: list[str], options: dict[str, str], said: dict[str, str]
) -> None:
    write(tmp_path / name, lines)
    results = load(tmp_path, **options)
    (run,) = results.counted
    assert {key: str(getattr(run, key)) for key in said} == said
    assert any("as that of all devices" in note for note in results.notes) == ("BS64" in name)


STEPS = megatron(500.0, batch=16)
TF = dllogger(50.0, 1, amp=False, final=50.0)


@pytest.mark.parametrize(
    ("name", "lines", "options", "told"),
    [
        ("bz64/1n1g/rn50_b128_fp32_1.log", GOOD, {}, "contradicts the directory bz64"),
        ("bz128/1n1g/rn50_b0_fp32_1.log", GOOD, {}, "the batch size must be at least 1"),
        ("bz128/rn50_b128_fp32_1.log", BARE, {}, "cannot determine the number of nodes"),
        ("bz128/0n8g/rn50_b128_fp32_1.log", BARE, {}, "cannot determine the number of nodes"),
        ("bz128/1n1g/train.log", GOOD, {}, "the file name does not identify the run"),
        ("2n8g/rn50_b128_fp32_4n8g_1.log", GOOD, {}, "topology in the file name contradicts"),
        ("模型_b128_fp32_1n8g.log", WORLD8, {}, "--model"),
        ("3nodes/gpt_bf16.log", GPT, {}, "--topology"),
        ("gpt_bf16_gbs128_2n8g.log", GPT, {}, "contradicts the file name"),
        ("yolo84_1n4g.log", YOLO, {"model": "vgg16"}, "found yolo84"),
        ("1n8g/llama3_bf16.log", STEPS, {"sequence_length": "2048"}, "expected 2048, found 4096"),
        ("1n8g/llama3_bf16.log", STEPS, {"sequence_length": "2048"}, "s --sequence-length"),
        ("pytorch_gpu1_fp32_bs256.txt", TF, {}, "(expected pytorch, found a dllogger log"),
        ("rn50_b128_fp32_1n1g_pytorch.log", GOOD, {}, "expected pytorch"),
        ("y1_r100_b2_fp32_1n1g.log", speedometer("y1"), {}, "(expected r100, found y1"),
        ("rn50_b128_b64_fp32_1n1g.log", GOOD, {}, "the file name says two values of"),
        ("rn50_b128_fp32_1n1g_2n8g.log", GOOD, {}, "the file name says two values of"),
        ("rn50_fp32_bf16_b1.log", GOOD, {}, "the file name says two values of"),
        ("bs64/rn50_b128_fp32_1n1g.log", GOOD, {}, "right one with --batch-size"),
        ("b64_amp/rn50_b128_fp32_1n1g.log", GOOD, {"batch_size": "128"}, "one with --precision"),
    ],
)
def test_a_name_that_says_too_little_or_something_else_is_refused(
    tmp_path: Path, name: str, lines: list[str], options: dict[str, str], told: str
) -> None:
    write(tmp_path / name, lines)
    problem = only(load(tmp_path, **options))
    assert str(problem.where).startswith(str(tmp_path / name))
    assert told in f"{problem.problem} (expected {problem.expected}, found {problem.found}) " + str(
        problem.hint
    )


def test_ranks_beyond_the_world_size_are_no_ranks(tmp_path: Path) -> None:
    for rank in (8, 16):  # such as those of LoRA
        write(tmp_path / f"1n2g/rn50_b128_fp32/rank{rank}.log", gluoncv(100.0 + rank, world=2))
    assert len(load(tmp_path).counted) == 2


@pytest.mark.parametrize("folder", ["2x8", "N2_G8", "nodes2/gpus8", "gpus8/nodes2"])
def test_directories_that_name_a_model_and_a_topology(tmp_path: Path, folder: str) -> None:
    path = write(tmp_path / "llama3_8b" / folder / "bf16_1.log", megatron(500.0, world=16))
    results = load(path)
    assert [(run.model, str(run.topology)) for run in results.counted] == [("llama-3-8b", "2n8g")]
    assert any("nodes x devices" in note for note in results.notes) == (folder == "2x8")
    write(path, megatron(500.0, world=8))
    assert "contradicts" in only(load(path)).problem


def test_archives_of_other_kinds_are_to_be_unpacked(tmp_path: Path) -> None:
    write(tmp_path / "rn50_b128_fp32_1n1g.log", gluoncv(50.0))
    for name in ("r.tar.bz2", "r.tar.xz", "r.7z"):
        (tmp_path / name).write_bytes(b"BZh9")
    (note,) = (note for note in load(tmp_path).notes if "r.tar.xz" in note)
    assert "unpack it" in note


def test_jobs_and_dates_are_repeats(tmp_path: Path) -> None:
    for n, word in enumerate(("job90", "job101", "2022-11-20")):
        write(tmp_path / f"a/rn50_b128_fp32_1n1g_{word}.log", gluoncv(50.0 + n))
    for n in (1, 2):
        write(tmp_path / f"rn50-b128-fp32-1n2g/run{n}/train.log", gluoncv(100.0 + n, world=2))
    results = load(tmp_path)
    assert results.problems == []
    found = sorted((str(run.topology), run.repeat, run.path.name) for run in results.counted)
    assert found == [
        ("1n1g", 1, "rn50_b128_fp32_1n1g_2022-11-20.log"),
        ("1n1g", 2, "rn50_b128_fp32_1n1g_job90.log"),
        ("1n1g", 3, "rn50_b128_fp32_1n1g_job101.log"),
        ("1n2g", 1, "train.log"),
        ("1n2g", 2, "train.log"),
    ]
    words = "the names of the logs have other words: 2022-11-20, job101, job90"
    assert any(f"1n1g: pooled, although {words}" in note for note in results.notes)


def test_all_that_is_missing_is_asked_for_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "train.log", BARE)
    problem = only(load(path, model="resnet50v1.5"))
    for option in ("--topology", "--batch-size", "--precision"):
        assert option in str(problem.hint)
    stated = {"topology": "1n1g", "batch_size": "128", "precision": "fp32"}
    assert len(load(path, model="resnet50v1.5", **stated).counted) == 1
    assert "--model" in str(only(load(path, **stated)).hint)


def test_a_model_that_is_spelt_like_another_is_asked_about(tmp_path: Path) -> None:
    path = write(tmp_path / "mine_b128_fp32_1n1g.log", GOOD)
    for model, asked in (("resnet50v15", True), ("resnet50v1b", False), ("mynet", False)):
        results = load(path, model=model)
        assert [run.model for run in results.counted] == [model]
        assert any("did you mean resnet50v1.5?" in note for note in results.notes) == asked


def test_a_mapping_to_complete_has_what_is_missing(here: Path) -> None:
    for name, rate in (("a/train.log", 384.0), ("a/other{2}.log", 390.0)):
        write(here / "logs" / name, oneflow(rate))
    call("summarize", "logs", "--model", "resnet50v1.5", "--suggest-mapping")
    mapping = here / "mapping.yml"
    document = yaml.safe_load(mapping.read_text())
    missing = {"topology": None, "precision": None, "batch_size": None}
    assert document == {"logs": {"a/other?2?.log": missing, "a/train.log": missing}}
    text = mapping.read_text().replace("topology: ,", "topology: 1n1g,")
    text = text.replace("precision: ,", "precision: fp32,")
    mapping.write_text(text.replace("batch_size: }", "batch_size: 128}"))
    results = load(here / "logs", mapping=mapping, model="resnet50v1.5")
    assert (len(results.counted), results.problems) == (2, [])
    assert "already" in call("summarize", "logs", "--suggest-mapping", status=2).err
    mapping.unlink()
    write(here / "whole/rn50_b128_fp32_1n1g_1.log", gluoncv(384.0))
    printed = call("summarize", "whole", "--suggest-mapping").out
    assert printed == "no log lacks a setting that a mapping could state, so none is written\n"
    assert not mapping.exists()


@pytest.mark.parametrize(
    ("name", "model", "is_refused"),
    [
        ("r50_b128_fp32_1n1g.log", "resnet50v1b", False),  # of another program
        ("mine_b128_fp32_1n1g.log", "resnet50v1b", False),
        ("vgg16_b128_fp32_1n1g.log", "resnet50v1b", True),
        ("resnet50_b128_fp32_1n1g.log", "vgg16", True),
    ],
)
def test_a_stated_model_wins_over_a_word_that_only_looks_like_one(
    tmp_path: Path, name: str, model: str, is_refused: bool
) -> None:
    path = write(tmp_path / name, GOOD)
    results = load(tmp_path, model=model)
    assert bool(results.problems) == is_refused
    assert [run.model for run in results.counted] == [model] * (not is_refused)
    # What is stated about this log alone always wins: the option, or the mapping of the message.
    assert [run.model for run in load(path, model=model).counted] == [model]
    if is_refused:
        hint = str(results.problems[0].hint)
        mapping = write(tmp_path / "mapping.yml", [hint.partition("mapping.yml, ")[2]])
        results = load(tmp_path, mapping=mapping)
        assert [run.model for run in results.counted] == [model]
        told = f"the file name says {path.name.partition('_')[0]}; {model} of "
        assert any(note.startswith(told) for note in results.notes)


ITERATIONS = [f"iter {n}: loss {9 - n / 100:.4f}, time 500.00ms" for n in range(40)]
LITGPT = WHOLE_LOGS["litgpt/whole"]
OF_STEPS = [line for line in LITGPT.text.splitlines() if line.startswith("Epoch ")]
UNMARKED = [line.replace(" (step)", "") for line in OF_STEPS]
EPOCHS = [
    f"train: epoch {epoch}, iter {step}, loss: {9 - step / 100}, samples/s: 2510.125"
    for epoch in (3, 4)
    for step in range(20, 401, 20)
]
RANKS = [
    f"[1,{rank}]<stdout>:{line}"
    for both in zip(gluoncv(50.0), gluoncv(90.0), strict=True)
    for rank, line in enumerate(both)
]
LLAMA, GPT2, RN50 = "1n8g/llama3-8b_bf16_1.log", "1n8g/gpt2-124m_bf16_1.log", "rn50_b128_fp32_1n1g"


@pytest.mark.parametrize(
    ("name", "lines", "stated", "found"),
    [
        (LLAMA, STEPS_ALONE, "sequence_length=4096 global_batch_size=16", 16 * 4096 / 0.5),
        (LLAMA, STEPS_ALONE, "sequence_length=2048", 16 * 2048 / 0.5),
        (LLAMA, STEPS_ALONE, "sequence_length=1024 batch_size=2 accumulation_steps=4", 16 * 2048),
        (LLAMA, STEPS_ALONE, "sequence_length=4096 global_batch_size=32", "contradicts"),
        (LLAMA, STEPS_ALONE, "", "--sequence-length"),
        # The batch of a step is not that of an iteration.
        (LLAMA, UNMARKED, "global_batch_size=128", "--accumulation-steps"),
        (LLAMA, UNMARKED, "global_batch_size=128 accumulation_steps=4", LITGPT.value),
        (LLAMA, OF_STEPS, "global_batch_size=128", LITGPT.value),
        (LLAMA, OF_STEPS, "batch_size=16", "--global-batch-size 512, or 128 if"),
        # A batch beside stated accumulation may be one of several.
        (
            GPT2,
            ITERATIONS,
            "accumulation_steps=5 batch_size=12",
            "--global-batch-size 480, or 96 if",
        ),
        (GPT2, ITERATIONS, "accumulation_steps=5 global_batch_size=480", 480 * 1024 / 0.5),
        (GPT2, ITERATIONS, "accumulation_steps=1 batch_size=60", 480 * 1024 / 0.5),
        (GPT2.replace("bf16", "gbs480_bf16"), ITERATIONS, "accumulation_steps=5", 480 * 1024 / 0.5),
        # One epoch of the log counts.
        (RN50, EPOCHS, "total_steps=800", "epoch of a log counts; if that is whole"),
        (RN50, EPOCHS, "total_steps=400", 2510.125),
        # The user decides which rank counts.
        (RN50, RANKS, "", "--rank 0"),
        (RN50, RANKS, "rank=0", 50.0),
        (RN50, RANKS, "rank=1", 90.0),
    ],
)
def test_what_a_step_counts_can_be_stated(
    tmp_path: Path, name: str, lines: list[str], stated: str, found: float | str
) -> None:
    options = dict(word.split("=") for word in stated.split())
    if lines in (OF_STEPS, UNMARKED):
        options |= {"sequence_length": "2048", **LITGPT.options}
    if lines == ITERATIONS:
        options["sequence_length"] = "1024"
    results = load(write(tmp_path / name, lines), **options)
    if isinstance(found, str):
        assert found in str(only(results))
    else:
        assert throughput(results) == pytest.approx(found)
        is_stated = "sequence length (--sequence-length)" in str(results.frame["stated"].iloc[0])
        assert is_stated == ("sequence_length" in options)


@pytest.mark.parametrize("name", ["keras", "lightning", "litgpt", "mmengine"])
def test_a_line_of_one_accumulated_batch_is_not_multiplied(tmp_path: Path, name: str) -> None:
    log = WHOLE_LOGS[f"{name}/whole"]
    path = write(tmp_path / log.path, log.text.splitlines())
    results = load(path, accumulation_steps="4", **log.options)
    assert throughput(results) == pytest.approx(log.value)
    assert any("accumulation_steps=4 multiplies no rate" in note for note in results.notes)


@pytest.mark.parametrize(("batches", "speedup"), [((16, 8), 1.9), ((16, 16), None)])
def test_strong_scaling_has_a_speed_up(
    tmp_path: Path, batches: tuple[int, int], speedup: float | None
) -> None:
    """The same global batch on twice the devices; a batch size on one topology alone has none."""
    for devices, batch, rate in zip((8, 16), batches, (1000.0, 1900.0), strict=True):
        name = f"tf_gpu{devices}_amp_bs{batch}.txt"
        lines = dllogger(rate, devices, amp=True, final=rate, batch=batch)
        write(tmp_path / name, lines)
    table = summarize(load(tmp_path).frame)
    if speedup is None:  # weak scaling, in one table
        assert table["batch_size_per_device"].nunique() == 1
        return
    larger = table[table["world_size"] == 16].iloc[0]
    assert larger["speedup"] == pytest.approx(speedup, rel=1e-3)
    assert (larger["base_case"], larger["scaling_efficiency"]) == (
        "1n8g",
        pytest.approx(0.95, rel=1e-3),
    )


def test_logs_whose_names_differ_in_the_repeat_alone_are_read_for_what_only_they_state(
    tmp_path: Path,
) -> None:
    for repeat, batch in ((0, 64), (1, 32), (2, 32)):  # some count from 0
        for name, stated in (("rn50_fp32", batch), ("rn50_b128_fp32", 128)):
            path = tmp_path / f"1n1g/{name}_{repeat}.log"
            write(path, gluoncv(384.0 + repeat, batch=stated, world=1))
    runs = load(tmp_path).counted
    assert sorted((run.path.name, run.batch_size_per_device, run.repeat) for run in runs) == [
        *((f"rn50_b128_fp32_{n}.log", 128, n) for n in (0, 1, 2)),
        ("rn50_fp32_0.log", 64, 0),
        *((f"rn50_fp32_{n}.log", 32, n) for n in (1, 2)),
    ]
