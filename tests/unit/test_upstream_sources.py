"""The published sources as the catalogue declares them: commits, commands, patches, stand-ins.

That the patches fit is seen where DLPERF_SOURCE_MIRROR names a directory of git mirrors.
"""

from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from plan_examples import gpu_nodes, lab_nodes
from read_logs import read
from refusals import refusal
from upstream_sources import MEETING, PYTHON, SRC, added, plan, source_mirror, texts_of, upstream

from dlperf_runner.catalog.reader import Catalog
from dlperf_runner.core.case import Run
from dlperf_runner.plan.sources import prepare_source

# As the reports name them.
COMMITS = {
    "jax-llama": ("AI-Hypercomputer/maxtext", "e591f30c"),
    "mxnet-resnet50v1b": ("dmlc/gluon-cv", "f9a8a284"),
    "mxnet-arcface": ("deepinsight/insightface", "863a7ea9"),
    "paddle-arcface": ("PaddlePaddle/PLSC", "9bba9c90"),
    "oneflow-resnet50v1.5": ("Oneflow-Inc/OneFlow-Benchmark", "892f87e6"),
    "pytorch-arcface": ("deepinsight/insightface", "7fadd420"),
    "pytorch-bert-large": ("NVIDIA/DeepLearningExamples", "a07d20a1"),
    "pytorch-llama": ("pytorch/torchtitan", "9dec370a"),
    "pytorch-resnet50v1.5": ("NVIDIA/DeepLearningExamples", "5843f4e5"),
    "tensorflow-resnet50v1.5": ("NVIDIA/DeepLearningExamples", "4a15e914"),
}


@pytest.mark.parametrize("workload", COMMITS)
def test_every_published_source_is_declared_at_its_commit(catalog: Catalog, workload: str) -> None:
    source = upstream(catalog, workload)
    repository, commit = COMMITS[workload]
    assert source.repository == repository
    assert source.commit.startswith(commit)
    assert all(changed.reason for changed in (*source.patches, *source.added_files))
    for patch in source.patches:
        path = PurePosixPath(patch.file)
        assert any(path.is_relative_to(taken) for taken in source.taken), patch.file
    for file in source.added_files:
        assert PurePosixPath(file.file).parent == PurePosixPath(source.directory)
        compile(file.content, file.file, "exec")


@pytest.mark.parametrize("workload", COMMITS)
def test_the_declared_patches_fit_and_leave_python(
    catalog: Catalog, workload: str, tmp_path: Path
) -> None:
    texts = texts_of(prepare_source(catalog, workload, "upstream", source_mirror(), tmp_path).path)
    for name in {patch.file for patch in upstream(catalog, workload).patches}:
        compile(texts[name], name, "exec")


def test_a_parameter_or_a_cpu_changes_the_command(catalog: Catalog) -> None:
    nodes = gpu_nodes(frameworks=("mxnet-mkl",))
    run, *_ = plan(catalog, nodes, "parallel=data", workload="mxnet-arcface", nodes=1)
    assert run.commands[0].argv[2].endswith("/train_data.py")
    nodes = lab_nodes(stack="cpu-published", frameworks=("tensorflow",))
    options = {"workload": "tensorflow-resnet50v1.5", "matrix": "published", "gpus_per_node": 2}
    run, *_ = plan(catalog, nodes, nodes=2, **options)
    assert run.commands[0].argv[-1] == "--cpu"


def of_a100(catalog: Catalog, workload: str, *parameters: str, **options: Any) -> list[Run]:
    nodes = gpu_nodes(stack="a100-cuda11.8", frameworks=("pytorch",))
    chosen = {"workload": workload, "gpus_per_node": 8, "repeats": 1, **options}
    return plan(catalog, nodes, *parameters, **chosen)


def test_images_have_the_published_layout_of_their_precision(catalog: Catalog) -> None:
    planned = of_a100(catalog, "pytorch-resnet50v1.5", nodes=1)
    planned += of_a100(catalog, "pytorch-resnet50v1.5", "memory_format=nhwc", nodes=1)
    layouts = [(run.precision, run.parameters["memory_format"]) for run in planned]
    assert layouts == [("tf32", "nchw"), ("amp", "nhwc"), ("tf32", "nhwc"), ("amp", "nhwc")]


def test_bert_of_pytorch(catalog: Catalog) -> None:
    """scripts/run_pretraining.sh with dgxa100-80g_8gpu_fp16 of scripts/configs/pretrain_config.sh,
    without checkpoints; with the batch size of a forward pass, and the program's default place for
    --num_steps_per_checkpoint, --max_predictions_per_seq (which is not read)."""
    parameters = ("accumulation_steps=32", "lr=0.006")
    (run,) = of_a100(catalog, "pytorch-bert-large", *parameters, precision="amp", nodes=1)
    directory = f"{SRC}/pytorch-bert-large-upstream/PyTorch/LanguageModeling/BERT"
    assert run.commands[0].argv == (
        *(*PYTHON, "-m", "torch.distributed.run", "--nnodes=1", "--node-rank=0"),
        *("--nproc-per-node=8", *MEETING, f"{directory}/run_pretraining.py"),
        *("--input_dir=", "--output_dir=checkpoints", "--config_file=bert_configs/large.json"),
        *("--vocab_file=vocab/vocab", "--train_batch_size=256", "--max_seq_length=128"),
        *("--max_steps=120", "--warmup_proportion=0.2843", "--learning_rate=0.006", "--seed=42"),
        *("--gradient_accumulation_steps=32", "--log_freq=1", "--allreduce_post_accumulation"),
        *("--do_train", "--json-summary", "dllogger.json", "--disable_progress_bar"),
        *("--num_workers=4", "--skip_checkpoint", "--fp16", "--allreduce_post_accumulation_fp16"),
    )
    assert run.commands[0].cwd == ""
    (run,) = of_a100(catalog, "pytorch-bert-large", matrix="phase2", precision="tf32", nodes=1)
    argv = run.commands[0].argv
    assert {"--max_seq_length=512", "--train_batch_size=16"} < set(argv)
    assert "--fp16" not in argv


def test_resnet_of_pytorch(catalog: Catalog) -> None:
    """resnet50v1.5/README.md: launch.py --model resnet50 --precision AMP --mode benchmark_training
    --platform DGXA100 <path to imagenet> --raport-file benchmark.json --epochs 1 --prof 100; the
    mode benchmark_training_short is the same with synthetic images."""
    runs = of_a100(catalog, "pytorch-resnet50v1.5", precision="amp", nodes=2)
    (run,) = runs
    directory = f"{SRC}/pytorch-resnet50v1.5-upstream/PyTorch/Classification/ConvNets"
    assert run.commands[1].argv == (
        *(*PYTHON, "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1"),
        *("--nproc-per-node=8", *MEETING, f"{directory}/launch.py"),
        *("--model", "resnet50", "--mode", "benchmark_training_short", "--platform", "DGXA100"),
        *("none", "--raport-file", "benchmark.json", "--epochs", "1", "--prof", "120"),
        *("--batch-size", "256", "--image-size", "224", "--num_classes", "1000"),
        *("--memory-format", "nhwc", "--print-freq", "1", "--precision", "AMP"),
    )


def test_arcface_of_pytorch(catalog: Catalog) -> None:
    """docs/speed_benchmark.md: train.py configs/3millions_pfc on 8 GPUs, which is train_v2.py and
    configs/3millions.py now."""
    (run,) = of_a100(catalog, "pytorch-arcface", matrix="identities", nodes=1)
    (command,) = run.commands
    directory = f"{SRC}/pytorch-arcface-upstream/recognition/arcface_torch"
    assert command.argv == (
        *(*PYTHON, "-m", "torch.distributed.run", "--nnodes=1", "--node-rank=0"),
        *("--nproc-per-node=8", *MEETING, f"{directory}/train_v2.py", "configs/3millions.py"),
    )
    own = {name: value for name, value in command.env.items() if name.startswith("DLPERF_")}
    words = "BATCH_SIZE=128 CLASSES=3000000 LOG_INTERVAL=1 LR=0.1 NETWORK=r50 PRECISION=amp"
    words += f" SAMPLES={120 * 8 * 128} SAMPLE_RATE=0.1 STEPS=120"
    assert sorted(f"{name[7:]}={value}" for name, value in own.items()) == words.split()


@pytest.mark.parametrize(
    ("workload", "source", "environment"),
    [
        ("mxnet-resnet50v1b", "builtin", "mxnet"),
        ("mxnet-resnet50v1b", "upstream", "mxnet"),
        ("mxnet-arcface", "builtin", "mxnet-mkl"),
        ("mxnet-arcface", "upstream", "mxnet-mkl"),
        ("paddle-arcface", "builtin", "paddle-paddle2"),
        ("paddle-arcface", "upstream", "paddle"),
        ("oneflow-resnet50v1.5", "upstream", "oneflow"),
    ],
)
def test_the_environment_of_the_published_cluster(
    catalog: Catalog, workload: str, source: str, environment: str
) -> None:
    nodes = gpu_nodes(frameworks=(environment,))
    runs = plan(catalog, nodes, workload=workload, source=source, repeats=1, nodes=1)
    assert {run.environment for run in runs} == {environment}


def test_a_source_that_the_stack_cannot_run_is_refused(catalog: Catalog) -> None:
    cpu = lab_nodes(stack="cpu", frameworks=())
    for workload, source, nodes in (
        ("oneflow-resnet50v1.5", "upstream", cpu),
        ("tensorflow-resnet50v1.5", "upstream", cpu),
        ("paddle-arcface", "upstream", cpu),
        ("oneflow-resnet50v1.5", "builtin", gpu_nodes(frameworks=())),
        ("paddle-arcface", "builtin", lab_nodes(stack="cpu-published", frameworks=())),
    ):
        told = refusal(plan, catalog, nodes, workload=workload, source=source)
        assert f"{workload} cannot run its source {source!r} on the stack {nodes[0].stack}" in told


def test_the_stand_in_for_dllogger_prints_what_is_read(
    catalog: Catalog, capsys: pytest.CaptureFixture[str]
) -> None:
    dllogger = added(catalog, "tensorflow-resnet50v1.5", "dllogger.py")
    verbosity = dllogger["Verbosity"].VERBOSE
    dllogger["init"](
        backends=[
            dllogger["JSONStreamBackend"](verbosity=verbosity, filename="/nowhere/log.json"),
            dllogger["StdOutBackend"](verbosity=verbosity),
        ]
    )
    dllogger["log"](data={"total_ips": 4.25}, step=(0, 7))
    # utils/hooks/training_hooks.py, which the mode train uses.
    losses = {"cross_entropy": 6.5, "l2_loss": 0.9, "total_loss": 7.4}
    dllogger["log"](data={"imgs_per_sec": 4.75, **losses, "learning_rate": 0.1}, step=(0, 8))
    dllogger["log"](data={**losses, "learning_rate": 0.1}, step=(0,))
    dllogger["log"](data={"train_throughput": 4.5}, step=())
    dllogger["init"](backends=[])
    dllogger["log"](data={"total_ips": 1.0}, step=(0, 8))
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    _, steps = read("dllogger", "".join(f"{line}\n" for line in lines))
    found = [(step.step, step.samples_per_second, step.loss) for step in steps]
    assert found == [(8, 4.25, None), (9, 4.75, 6.5)]  # the first is 0
