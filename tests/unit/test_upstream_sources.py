"""The published sources as the catalogue declares them: commits, commands, patches, stand-ins.

That the patches fit is seen where DLPERF_SOURCE_MIRROR names a directory of git mirrors.
"""

from __future__ import annotations

import os
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from plan_examples import gpu_nodes, lab_nodes
from read_logs import read

from dlperf_runner.catalog.reader import Catalog
from dlperf_runner.catalog.workload import Preparation, UpstreamSource
from dlperf_runner.core.case import Run
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.node import Node
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan
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
SRC = "/opt/dlperf/src"


def upstream(catalog: Catalog, workload: str) -> UpstreamSource:
    source = catalog.workload(workload).sources.upstream
    assert source
    return source


def cluster(*frameworks: str) -> tuple[Node, ...]:
    """The cluster of the published tests."""
    return tuple(
        replace(node, stack="v100-cuda10.2", frameworks=frameworks) for node in gpu_nodes()
    )


def published_versions(*frameworks: str) -> tuple[Node, ...]:
    """The lab with the published versions of the frameworks."""
    return tuple(
        replace(node, stack="cpu-published", frameworks=frameworks) for node in lab_nodes()
    )


def plan(catalog: Catalog, on: tuple[Node, ...], *parameters: str, **options: Any) -> list[Run]:
    texts = {"source": "upstream", **{name: str(value) for name, value in options.items()}}
    return list(make_plan(parse_choice(texts, list(parameters)), catalog, on))


@pytest.mark.parametrize("workload", COMMITS)
def test_every_published_source_is_declared_at_its_commit(catalog: Catalog, workload: str) -> None:
    source = upstream(catalog, workload)
    repository, commit = COMMITS[workload]
    assert source.repository == repository
    assert source.commit.startswith(commit)
    for changed in (*source.patches, *source.added_files):
        assert changed.reason
    for patch in source.patches:
        path = PurePosixPath(patch.file)
        assert any(path.is_relative_to(taken) for taken in source.taken), patch.file
    for added in source.added_files:
        assert PurePosixPath(added.file).parent == PurePosixPath(source.directory)


@pytest.mark.parametrize("workload", COMMITS)
def test_the_declared_patches_fit_and_leave_python(
    catalog: Catalog, workload: str, tmp_path: Path
) -> None:
    mirror = os.environ.get("DLPERF_SOURCE_MIRROR")
    if not mirror:
        pytest.skip("DLPERF_SOURCE_MIRROR names no directory of git mirrors")
    made = prepare_source(catalog, workload, "upstream", mirror, tmp_path)
    patched = {patch.file for patch in upstream(catalog, workload).patches}
    texts = texts_of(made.path)
    for name in patched:
        compile(texts[name], name, "exec")


def texts_of(source: Path) -> dict[str, str]:
    """The Python and YAML files of a source's tar, by name."""
    with tarfile.open(source) as tar:
        members = [m for m in tar if m.isfile() and m.name.endswith((".py", ".yml"))]
        readers = {member.name: tar.extractfile(member) for member in members}
        return {name: reader.read().decode() for name, reader in readers.items() if reader}


@pytest.mark.parametrize(
    ("workload", "file", "declared"),
    [
        ("pytorch-llama", "torchtitan/config_manager.py", '"{}",'),
        ("jax-llama", "src/maxtext/configs/base.yml", "\n{}:"),
    ],
)
def test_the_commit_has_the_options_of_the_command(
    catalog: Catalog, workload: str, file: str, declared: str, tmp_path: Path
) -> None:
    mirror = os.environ.get("DLPERF_SOURCE_MIRROR")
    if not mirror:
        pytest.skip("DLPERF_SOURCE_MIRROR names no directory of git mirrors")
    text = texts_of(prepare_source(catalog, workload, "upstream", mirror, tmp_path).path)[file]
    argv = of_h100(catalog, workload)[0].commands[0].argv
    if workload == "jax-llama":
        argv = tuple(maxtext(catalog, argv)[1:])
    else:
        argv = argv[argv.index("--job.description") :]
    options = [word.partition("=")[0] for word in argv if "=" in word or word.startswith("--")]
    assert len(options) > 15
    assert [name for name in options if declared.format(name) not in text] == []


def maxtext(catalog: Catalog, argv: Sequence[str]) -> list[str]:
    """What the added file makes of the words of the command."""
    names = added(catalog, "jax-llama", "dlperf_maxtext.py")
    script = next(n for n, word in enumerate(argv) if word.endswith("dlperf_maxtext.py"))
    made: list[str] = names["arguments"](argv[script + 1 :])
    return made


@pytest.mark.parametrize("workload", COMMITS)
def test_added_files_are_python(catalog: Catalog, workload: str) -> None:
    for added in upstream(catalog, workload).added_files:
        compile(added.content, added.file, "exec")


# ---- commands


def test_arcface_of_mxnet(catalog: Catalog) -> None:
    nodes = cluster("mxnet-mkl")
    options = {"model": "arcface-r100", "batch_size": 64, "gpus_per_node": 8, "repeats": 1}
    (run,) = plan(catalog, nodes, workload="mxnet-arcface", **options)
    (command,) = run.commands
    arguments = (
        *("--network", "r100", "--loss", "arcface", "--dataset", "emore"),
        *("--per-batch-size", "64", "--frequent", "20"),
    )
    python = "/opt/dlperf/envs/mxnet-mkl/bin/python"
    script = f"{SRC}/mxnet-arcface-upstream/recognition/ArcFace/train_model.py"
    assert command.argv == (python, "-u", script, *arguments)
    assert command.env == {
        "CUDA_VISIBLE_DEVICES": "0,1,2,3,4,5,6,7",
        "DLPERF_MAX_STEPS": "120",
        "DLPERF_DATASET": "/opt/dlperf/data/noise112",
        "DLPERF_CLASSES": "85742",
        "DLPERF_CPU_DEVICES": "8",
    }
    assert command.cwd == ""
    (run,) = plan(catalog, nodes, "parallel=data", workload="mxnet-arcface", **options)
    assert run.commands[0].argv[2].endswith("/train_data.py")


def test_arcface_of_paddle(catalog: Catalog) -> None:
    runs = plan(catalog, cluster("paddle"), workload="paddle-arcface", nodes=4, repeats=1)
    (run,) = runs
    assert [command.host for command in run.commands] == ["node1", "node2", "node3", "node4"]
    assert run.commands[3].argv == (
        *("/opt/dlperf/envs/paddle/bin/python", "-u", "-m", "paddle.distributed.launch"),
        "--cluster_node_ips=10.11.0.2,10.11.0.3,10.11.0.4,10.11.0.5",
        "--node_ip=10.11.0.5",
        "--selected_gpus=0,1,2,3,4,5,6,7",
        f"{SRC}/paddle-arcface-upstream/demo/plsc_train.py",
        *("--batch-size", "128", "--last-batch", "150", "--log-period", "10"),
        *("--noise", "fresh", "--image-size", "112"),
        *("--classes", "85742", "--parallel", "model", "--lr", "auto"),
    )
    with pytest.raises(UserError, match="has no collective operations on the CPU"):
        plan(catalog, published_versions("paddle"), workload="paddle-arcface")


def test_resnet_of_oneflow(catalog: Catalog) -> None:
    options = {"nodes": 2, "batch_size": 160}
    (run,) = plan(catalog, cluster("oneflow"), workload="oneflow-resnet50v1.5", **options)
    assert {command.argv for command in run.commands} == {
        (
            *("/opt/dlperf/envs/oneflow/bin/python", "-u"),
            f"{SRC}/oneflow-resnet50v1.5-upstream/Classification/cnns/of_cnn_train_val.py",
            "--num_examples=512000",  # 2 nodes, 8 devices, 160 each, 200 iterations
            "--train_data_dir=",
            "--train_data_part_num=44",
            "--image_size=224",
            "--num_nodes=2",
            "--gpu_num_per_node=8",
            "--model_update=momentum",
            "--learning_rate=0.001",
            "--loss_print_every_n_iter=20",
            "--batch_size_per_device=160",
            "--val_batch_size_per_device=125",
            "--num_epoch=1",
            "--log_dir=./log",
            "--model=resnet50",
            "--node_ips=10.11.0.2,10.11.0.3",
        )
    }


def test_resnet_of_tensorflow(catalog: Catalog) -> None:
    nodes = published_versions("tensorflow")
    options = {"matrix": "published", "nodes": 2, "gpus_per_node": 2, "precision": "amp"}
    (run,) = plan(catalog, nodes, workload="tensorflow-resnet50v1.5", **options)
    argv = run.commands[0].argv
    assert argv[argv.index("/opt/dlperf/envs/tensorflow/bin/python") :] == (
        *("/opt/dlperf/envs/tensorflow/bin/python", "-u", "main.py", "--mode=training_benchmark"),
        *("--warmup_steps", "200", "--num_iter", "500", "--iter_unit", "batch"),
        *("--batch_size", "256", "--display_every", "10", "--data_dir="),
        *("--synthetic_data_size=224", "--results_dir="),
        *("--use_tf_amp", "--use_static_loss_scaling", "--loss_scale=128", "--lr_init=0.01"),
        "--cpu",
    )


def of_a100(catalog: Catalog, workload: str, *parameters: str, **options: Any) -> list[Run]:
    nodes = [replace(n, stack="a100-cuda11.8", frameworks=("pytorch",)) for n in gpu_nodes()]
    chosen = {"workload": workload, "gpus_per_node": 8, "repeats": 1, **options}
    return plan(catalog, tuple(nodes), *parameters, **chosen)


MAXTEXT_IMAGE = {"ghcr.io/nvidia/jax:maxtext": "sha256:" + "5e" * 32}


def of_h100(catalog: Catalog, workload: str, *parameters: str, **options: Any) -> list[Run]:
    framework = {"jax-llama": "jax-maxtext"}.get(workload, "pytorch")
    changes: dict[str, Any] = {"stack": "h100-cuda12.9", "frameworks": (framework,)}
    changes |= {"container_images": MAXTEXT_IMAGE, "container_engine": "docker"}
    nodes = [replace(node, **changes) for node in gpu_nodes()]
    chosen = {"workload": workload, "nodes": 2, "gpus_per_node": 8, "repeats": 1, **options}
    return plan(catalog, tuple(nodes), *parameters, **chosen)


PYTHON = ("/opt/dlperf/envs/pytorch/bin/python", "-u")
MEETING = ("--master-addr=10.11.0.2", "--master-port=29500")


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
        "--input_dir=",
        "--output_dir=checkpoints",
        "--config_file=bert_configs/large.json",
        "--vocab_file=vocab/vocab",
        "--train_batch_size=256",
        "--max_seq_length=128",
        "--max_steps=120",
        "--warmup_proportion=0.2843",
        "--learning_rate=0.006",
        "--seed=42",
        "--gradient_accumulation_steps=32",
        "--log_freq=1",
        "--allreduce_post_accumulation",
        "--do_train",
        *("--json-summary", "dllogger.json"),
        "--disable_progress_bar",
        "--num_workers=4",
        "--skip_checkpoint",
        "--fp16",
        "--allreduce_post_accumulation_fp16",
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
    own = {name[7:]: value for name, value in command.env.items() if name.startswith("DLPERF_")}
    assert own == {
        "PRECISION": "amp",
        "STEPS": "120",
        "SAMPLES": str(120 * 8 * 128),
        "BATCH_SIZE": "128",
        "CLASSES": "3000000",
        "NETWORK": "r50",
        "SAMPLE_RATE": "0.1",
        "LR": "0.1",
        "LOG_INTERVAL": "1",
    }


def test_llama_of_torchtitan(catalog: Catalog) -> None:
    """train_configs/llama3_8b.toml with --training.batch_size 2 and --training.compile, as
    benchmarks/llama3_h100_202412_torchtitan.md says; without TensorBoard and profiles."""
    (run,) = of_h100(catalog, "pytorch-llama", matrix="published")
    assert [command.host for command in run.commands] == ["node1", "node2"]
    command = run.commands[1]
    assert command.argv == (
        *(*PYTHON, "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1"),
        *("--nproc-per-node=8", *MEETING, f"{SRC}/pytorch-llama-upstream/train.py"),
        "--job.description",
        "llama-8b, precision bf16, activation checkpointing selective, compile on",
        "--model.name=llama3",
        "--model.flavor=llama-8b",
        "--optimizer.name=AdamW",
        "--optimizer.lr=0.0003",
        "--training.batch_size=2",
        "--training.seq_len=8192",
        "--training.steps=60",
        "--training.warmup_steps=10",
        "--training.data_parallel_replicate_degree=1",
        "--training.data_parallel_shard_degree=-1",
        "--training.mixed_precision_param=bfloat16",
        "--training.compile=on",
        "--activation_checkpoint.mode=selective",
        "--activation_checkpoint.selective_ac_option=op",
        "--metrics.log_freq=1",
        "--metrics.disable_color_printing",
    )
    assert command.env["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert command.cwd == ""


def test_llama_of_maxtext(catalog: Catalog) -> None:
    """src/maxtext/configs/gpu/a3/llama_2_7b/2vm.sh with configs/gpu/models/llama2_7b.yml."""
    (run,) = of_h100(catalog, "jax-llama", matrix="published")
    assert (
        run.container == f"docker ghcr.io/nvidia/jax@{MAXTEXT_IMAGE['ghcr.io/nvidia/jax:maxtext']}"
    )
    for process, command in enumerate(run.commands):
        assert command.env["JAX_COORDINATOR_ADDRESS"] == "10.11.0.2:29500"
        assert (command.env["JAX_NUM_PROCESSES"], command.env["JAX_PROCESS_ID"]) == (
            "2",
            str(process),
        )
        assert "--xla_gpu_enable_latency_hiding_scheduler=true --xla" in command.env["XLA_FLAGS"]
        config, *settings = maxtext(catalog, command.argv)
        assert config == "/source/maxtext/configs/base.yml"
        assert dict(setting.split("=") for setting in settings) == {
            "run_name": "run",
            "base_output_directory": "output",
            "hardware": "gpu",
            "model_name": "llama2-7b",
            "dcn_data_parallelism": "2",
            "ici_data_parallelism": "1",
            "ici_fsdp_parallelism": "8",
            "per_device_batch_size": "4",
            "max_target_length": "4096",
            "steps": "30",
            "learning_rate": "0.0003",
            "dtype": "bfloat16",
            "remat_policy": "minimal_with_context",
            "attention": "cudnn_flash_te",
            "use_iota_embed": "true",
            "scan_layers": "false",
            "max_segments_per_seq": "32",
            "dataset_type": "synthetic",
            "enable_checkpointing": "false",
            "async_checkpointing": "false",
            "enable_tensorboard": "false",
        }


def test_the_lines_of_torchtitan_at_that_commit_are_read(catalog: Catalog) -> None:
    """As train.py and parallel_dims.py of 9dec370a print them."""
    began = "2026-11-22 12:00:00,123 - root - INFO - "
    argv = of_h100(catalog, "pytorch-llama", matrix="published")[0].commands[0].argv
    lines = [
        f"Starting job: {argv[argv.index('--job.description') + 1]}",
        "Building 1-D device mesh with ['dp_shard'], [16]",
        "Training starts at step 1, with local batch size 2, global batch size 32, sequence length"
        " 8192, total steps 60 (warmup 10)",
        "step:  1  loss: 12.2553  memory: 50.01GiB(52.68%)  tps: 1,762  mfu: 10.31%",
        "step:  2  loss: 12.1034  memory: 77.00GiB(81.11%)  tps: 6,667  mfu: 39.00%",
    ]
    headers, steps = read("torchtitan", "".join(f"{began}{line}\n" for line in lines))
    assert [(s.step, s.samples_per_second, s.loss) for s in steps] == [
        *((1, 1762.0, 12.2553), (2, 6667.0, 12.1034))
    ]
    told = {k: v for h in headers for k, v in vars(h).items() if v not in (None, ())}
    assert (told["network"], told["precision"], told["world_size"]) == ("llama-8b", "bf16", 16)
    assert (told["batch_size_per_device"], told["total_steps"]) == (2, 60)


@pytest.mark.parametrize(
    ("workload", "options", "parameters", "told"),
    [
        (
            *("pytorch-llama", {"matrix": "float8"}, []),
            "--parameter recipe: the upstream source of pytorch-llama does not have this recipe"
            " (expected one of none, found float8)",
        ),
        (
            *("pytorch-llama", {"matrix": "published", "precision": "tf32"}, []),
            "--precision: the upstream source of pytorch-llama does not have this precision"
            " (expected one of bf16, fp32, found tf32)",
        ),
        (
            *("jax-llama", {"matrix": "small"}, []),
            "--model: the upstream source of jax-llama does not have this variant (expected one of"
            " llama-2-7b, llama-3.1-8b, llama-3.1-70b, llama-3.1-405b, found llama-3.2-1b)",
        ),
        (
            *("jax-llama", {"matrix": "published"}, ["attention=xla"]),
            "--parameter attention: the upstream source of jax-llama does not have this attention"
            " (expected one of auto, cudnn, found xla)",
        ),
    ],
)
def test_what_a_published_source_does_not_have_is_refused(
    catalog: Catalog, workload: str, options: dict[str, str], parameters: list[str], told: str
) -> None:
    with pytest.raises(UserError) as raised:
        of_h100(catalog, workload, *parameters, **options)
    assert str(raised.value).startswith(told)


# ---- environments


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
    options = {"workload": workload, "source": source, "repeats": 1, "nodes": 1}
    runs = plan(catalog, cluster(environment), **options)
    assert {run.environment for run in runs} == {environment}
    with pytest.raises(UserError) as caught:
        plan(catalog, cluster("other"), **options)
    assert str(caught.value).startswith(
        f"node1, node2, node3, node4: {workload} needs {environment}, which these nodes do not have"
        f" (expected {environment} in dlperf_frameworks, found other)"
    )


@pytest.mark.parametrize(
    ("workload", "source", "stack"),
    [
        ("oneflow-resnet50v1.5", "upstream", "cpu"),
        ("oneflow-resnet50v1.5", "builtin", "v100-cuda10.2"),
        ("tensorflow-resnet50v1.5", "upstream", "cpu"),
        ("paddle-arcface", "upstream", "cpu"),
        ("paddle-arcface", "builtin", "cpu-published"),
    ],
)
def test_a_source_that_the_stack_cannot_run_is_refused(
    catalog: Catalog, workload: str, source: str, stack: str
) -> None:
    nodes = gpu_nodes() if stack.startswith("v100") else lab_nodes()
    nodes = tuple(replace(node, stack=stack, frameworks=()) for node in nodes)
    with pytest.raises(UserError, match=f"{workload} does not run on the stack {stack}"):
        plan(catalog, nodes, workload=workload, source=source)


def test_the_runs_environment_prepares_the_nodes(catalog: Catalog, tmp_path: Path) -> None:
    entry = catalog.workload("mxnet-arcface")
    assert entry.sources.builtin
    preparation = Preparation(argv=("{python}", "{directory}/x.py"), creates="/opt/x")
    builtin = entry.sources.builtin.model_copy(update={"prepare": (preparation,)})
    sources = entry.sources.model_copy(update={"builtin": builtin})
    workload = entry.model_copy(update={"sources": sources})
    changed = replace(catalog, workloads={"mxnet-arcface": workload})
    for environment, name in (("mxnet-mkl", "mxnet-mkl"), (None, "mxnet")):
        made = prepare_source(
            changed, "mxnet-arcface", "builtin", None, tmp_path, environment=environment
        )
        (command,) = made.prepare
        assert command.argv == (
            f"/opt/dlperf/envs/{name}/bin/python",
            f"{SRC}/mxnet-arcface-builtin/x.py",
        )


# ---- stand-ins


def added(catalog: Catalog, workload: str, name: str) -> dict[str, Any]:
    """What the stand-in defines."""
    (content,) = (
        file.content
        for file in upstream(catalog, workload).added_files
        if PurePosixPath(file.file).name == name
    )
    namespace: dict[str, Any] = {"__name__": name, "__file__": f"/source/{name}"}
    exec(content, namespace)  # noqa: S102  this project's own text
    return namespace


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


def test_the_stand_in_for_easydict_is_a_dictionary_with_attributes(catalog: Catalog) -> None:
    config = added(catalog, "mxnet-arcface", "easydict.py")["EasyDict"]()
    config.emb_size = 512
    config["net_se"] = 0
    assert (config["emb_size"], config.net_se) == (512, 0)
    assert not hasattr(config, "spherenet")
