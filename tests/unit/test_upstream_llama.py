"""torchtitan and MaxText, as the catalogue plans and changes them.

That their commits have the options is seen where DLPERF_SOURCE_MIRROR names a directory of git
mirrors.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from plan_examples import gpu_nodes
from read_logs import confirm
from refusals import refusal
from upstream_sources import MEETING, PYTHON, SRC, added, plan, source_mirror, texts_of

from dlperf_runner.catalog.reader import Catalog
from dlperf_runner.core.case import Run
from dlperf_runner.plan.sources import prepare_source

MAXTEXT_IMAGE = {"ghcr.io/nvidia/jax:maxtext": "sha256:" + "5e" * 32}
MAXTEXT_SETTINGS = (
    "run_name=run base_output_directory=output hardware=gpu model_name=llama2-7b"
    " dcn_data_parallelism=2 ici_data_parallelism=1 ici_fsdp_parallelism=8"
    " per_device_batch_size=4 max_target_length=4096 steps=30 learning_rate=0.0003"
    " dtype=bfloat16 remat_policy=minimal_with_context attention=cudnn_flash_te"
    " use_iota_embed=true scan_layers=false max_segments_per_seq=32"
    " dataset_type=synthetic enable_checkpointing=false async_checkpointing=false"
    " enable_tensorboard=false"
)


def of_h100(catalog: Catalog, workload: str, *parameters: str, **options: Any) -> list[Run]:
    framework = {"jax-llama": "jax-maxtext"}.get(workload, "pytorch")
    changes: dict[str, Any] = {"stack": "h100-cuda12.9", "frameworks": (framework,)}
    changes |= {"container_images": MAXTEXT_IMAGE, "container_engine": "docker"}
    chosen = {"workload": workload, "nodes": 2, "gpus_per_node": 8, "repeats": 1, **options}
    return plan(catalog, gpu_nodes(**changes), *parameters, **chosen)


def test_llama_of_torchtitan(catalog: Catalog) -> None:
    """train_configs/llama3_8b.toml with --training.batch_size 2 and --training.compile, as
    benchmarks/llama3_h100_202412_torchtitan.md says; without TensorBoard and profiles."""
    (run,) = of_h100(catalog, "pytorch-llama", matrix="published")
    assert [command.host for command in run.commands] == ["node1", "node2"]
    command = run.commands[1]
    about = "llama-8b, precision bf16, activation checkpointing selective, compile on"
    assert command.argv == (
        *(*PYTHON, "-m", "torch.distributed.run", "--nnodes=2", "--node-rank=1"),
        *("--nproc-per-node=8", *MEETING, f"{SRC}/pytorch-llama-upstream/train.py"),
        *("--job.description", about, "--model.name=llama3", "--model.flavor=llama-8b"),
        *("--optimizer.name=AdamW", "--optimizer.lr=0.0003", "--training.batch_size=2"),
        *("--training.seq_len=8192", "--training.steps=60", "--training.warmup_steps=10"),
        "--training.data_parallel_replicate_degree=1",
        "--training.data_parallel_shard_degree=-1",
        *("--training.mixed_precision_param=bfloat16", "--training.compile=on"),
        *(
            "--activation_checkpoint.mode=selective",
            "--activation_checkpoint.selective_ac_option=op",
        ),
        *("--metrics.log_freq=1", "--metrics.disable_color_printing"),
    )
    assert command.env["PYTORCH_CUDA_ALLOC_CONF"] == "expandable_segments:True"
    assert command.cwd == ""


def test_llama_of_maxtext(catalog: Catalog) -> None:
    """src/maxtext/configs/gpu/a3/llama_2_7b/2vm.sh with configs/gpu/models/llama2_7b.yml."""
    (run,) = of_h100(catalog, "jax-llama", matrix="published")
    digest = MAXTEXT_IMAGE["ghcr.io/nvidia/jax:maxtext"]
    assert run.container == f"docker ghcr.io/nvidia/jax@{digest}"
    for process, command in enumerate(run.commands):
        env = command.env
        assert env["JAX_COORDINATOR_ADDRESS"] == "10.11.0.2:29500"
        assert (env["JAX_NUM_PROCESSES"], env["JAX_PROCESS_ID"]) == ("2", str(process))
        assert "--xla_gpu_enable_latency_hiding_scheduler=true --xla" in env["XLA_FLAGS"]
        config, *settings = maxtext(catalog, command.argv)
        assert config == "/source/maxtext/configs/base.yml"
        assert sorted(settings) == sorted(MAXTEXT_SETTINGS.split())


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
    confirm(
        *("torchtitan", "".join(f"{began}{line}\n" for line in lines)),
        [(1, 1762.0, 12.2553), (2, 6667.0, 12.1034)],
        network="llama-8b", precision="bf16", world_size=16, global_batch_size=32, total_steps=60,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("workload", "options", "option", "found", "expected"),
    [
        ("pytorch-llama", {"matrix": "float8"}, "--parameter recipe", "float8", "none"),
        ("pytorch-llama", {"precision": "tf32"}, "--precision", "tf32", "bf16, fp32"),
        ("jax-llama", {"matrix": "small"}, "--model", "llama-3.2-1b", "llama-2-7b, llama-3.1-"),
        ("jax-llama", {"attention": "xla"}, "--parameter attention", "xla", "auto, cudnn"),
    ],
)
def test_what_a_published_source_does_not_have_is_refused(
    catalog: Catalog, workload: str, options: dict[str, str], option: str, found: str, expected: str
) -> None:
    parameters = [f"{name}={value}" for name, value in options.items() if name == "attention"]
    chosen = {"matrix": "published", **({} if parameters else options)}
    told = refusal(of_h100, catalog, workload, *parameters, **chosen)
    assert told.startswith(f"{option}: the upstream source of {workload} does not have")
    assert f"expected one of {expected}" in told and f"found {found})" in told


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
    made = prepare_source(catalog, workload, "upstream", source_mirror(), tmp_path)
    text = texts_of(made.path)[file]
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
