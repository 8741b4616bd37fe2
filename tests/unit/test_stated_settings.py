"""Settings that a log states and that change what a rate or a step is: they identify the case."""

import math
from pathlib import Path
from typing import Any

import pytest
from make_logs import (
    arcface_torch,
    dllogger,
    dllogger_pytorch,
    maxtext,
    megatron,
    oneflow,
    torchtitan,
    write,
)

from dlperf_runner.core.frame import records
from dlperf_runner.core.identity import read_parameters
from dlperf_runner.results.load import Results, load_results
from dlperf_runner.stats.summary import summarize

TITAN = "1n8g/llama8b_bf16_1.log"
MAXTEXT = "1n8g/llama3.1-8b_bf16_1.log"
MEGATRON = "1n8g/llama3-8b_bf16_1.log"
CONVNETS = "1n8g/rn50_b256_amp_1.log"


def load(folder: Path, name: str, lines: list[str]) -> Results:
    return load_results(write(folder / name, lines).parents[1])


def replaced(lines: list[str], *pairs: tuple[str, str]) -> list[str]:
    text = "\n".join(lines)
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text.split("\n")


def with_arguments(**arguments: object) -> list[str]:
    """A log of Megatron-LM with further arguments."""
    head, *lines = megatron(200.0, batch=128, world=8)
    return [head, *(f"  {k} {'.' * (48 - len(k))} {v}" for k, v in arguments.items()), *lines]


def titan(*pairs: tuple[str, str], tokens: int = 6000) -> list[str]:
    return replaced(torchtitan(tokens, world=8, every=1, steps=60, warmup=10), *pairs)


def titan_mesh(mesh: str, batch: int) -> list[str]:
    old = "dp_replicate=1, dp_shard=8, cp=1, tp=1"
    return titan((old, mesh), ("global batch size 16", f"global batch size {batch}"))


def maxtext_share(tokens: float, world: int, share: str) -> list[str]:
    """The samples of a device as Python prints the fraction."""
    lines = maxtext(tokens, world=world)
    return replaced(lines, ("per_device_batch_size: 4.0", f"per_device_batch_size: {share}"))


def convnets(setting: str = "", *, amp: bool = True) -> list[str]:
    return replaced(dllogger_pytorch(2500.0, world=8), ("amp : True", f"{setting}amp : {amp}"))


FOUR_BATCHES = titan(
    ("global batch size 16", "global batch size 64"),
    ("accumulation steps 1", "accumulation steps 4"),
    tokens=8192,
)
# pytorch/torchtitan PR 1690 (2-D mesh) and 73aed7f (tokens in the place of batches).
EARLIER = [
    "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]",
    "Trainer is initialized with local batch size 16, global batch size 64 (gradient"
    " accumulation steps 1), sequence length 8192, total steps 100 (warmup 200).",
    *torchtitan(6000, world=8)[2:],
]


def later(tokens: int) -> list[str]:
    head, _, *lines = torchtitan(6000, world=8)
    words = (
        f"Trainer is initialized with 8192 tokens per DP rank, {tokens} tokens per train step,"
        " gradient accumulation steps 2, maximum context length 8192, total steps 100 (warmup 10)"
    )
    return [head, words, *lines]


HALF = maxtext_share(256.0, 8, "0.5")
MAXTEXT_CONFIG = [
    "Config param gradient_accumulation_steps: 4",
    "Config param quantization: fp8",
    "Config param remat_policy: minimal_with_context",
    "Config param ici_fsdp_parallelism: -1",
    "Config param ici_tensor_parallelism: 2",
]
MAXTEXT_PLAIN = [line.replace(": fp8", ": ").replace(": 4", ": 1") for line in MAXTEXT_CONFIG]
BELOW = replaced(
    with_arguments(
        micro_batch_size=1, tensor_model_parallel_size=8, pipeline_model_parallel_size=8
    ),
    (f"world_size {'.' * 38} 8", f"world_size {'.' * 38} 256"),
)
MEGATRON_MESH = (
    "using world size: 8, data-parallel size: 1, context-parallel size: 2, hierarchical"
    " context-parallel sizes: None, tensor-model-parallel size: 4, pipeline-model-parallel"
    " size: 1"
)
OTHER_MESH = [MEGATRON_MESH, *with_arguments(tensor_model_parallel_size=2)]
GRADIENT_ACC = arcface_torch(1.0)[0].partition("-: ")[0] + "-: gradient_acc             4"
TWO_NODES = ["gpu_num_per_node = 8", "num_nodes = 2", *oneflow(384.25)]
FP16 = "fp16                     {}".format


def a_case(
    name: str, lines: list[str], batch: float | None = None, stated: str = "", **values: float
) -> Any:
    """The parameters are separated by semicolons; one without a value is not stated."""
    if batch is not None:
        values["batch_size_per_device"] = batch
    return name, lines, values, dict(each.split("=") for each in stated.split("; ") if each)


@pytest.mark.parametrize(
    ("name", "lines", "values", "parameters"),
    [
        # 4 batches of 2 samples of 8192 tokens on each device: 8 samples a step.
        a_case(
            *(TITAN, FOUR_BATCHES, 8),
            "accumulation_steps=4; micro_batch_size=2; parallel=fsdp; sequence_length=8192",
            samples_per_second_median=8 * 8192, step_time_median_s=8.0, global_batch_size=64,
        ),
        # A name may have the batch of a rank or of a step.
        a_case("1n8g/llama8b_b2_bf16_1.log", FOUR_BATCHES, 8),
        a_case("1n8g/llama8b_b8_bf16_1.log", FOUR_BATCHES, 8),
        # The devices of a data-parallel rank share its 2 samples.
        a_case(TITAN, titan_mesh("dp_replicate=8, dp_shard=1, cp=1, tp=1", 16), 2, "parallel=ddp"),
        a_case(
            *(TITAN, titan_mesh("dp_replicate=1, dp_shard=2, cp=1, tp=4", 4), 0.5),
            "parallel=fsdp, tp 4", world_size=8,
        ),
        a_case(
            *(TITAN, titan_mesh("dp_replicate=2, dp_shard=2, cp=2, tp=1", 8), 1),
            "parallel=ddp, cp 2, fsdp 2",
        ),
        a_case(TITAN, EARLIER, 8, "parallel=fsdp, tp 2", world_size=8),
        a_case(TITAN, later(131072), 2, "accumulation_steps=2"),
        # One sample of 2048 tokens on all devices.
        a_case(
            *("128n1g/llama3.1-8b_bf16_1.log", maxtext_share(2048 / 128, 128, "0.0078125")),
            round(1 / 128, 6), step_time_median_s=1.0, global_batch_size=1,
        ),
        a_case(
            *("3n1g/llama3.1-8b_bf16_1.log", maxtext_share(2048 / 3, 3, "0.3333333333333333")),
            round(1 / 3, 6), step_time_median_s=1.0, global_batch_size=1,
        ),
        # 4 samples of 2048 tokens on 8 devices in 2048 * 0.5 / 256 = 4 s.
        a_case(MAXTEXT, HALF, 0.5, step_time_median_s=4.0, global_batch_size=4),
        a_case(
            *(MAXTEXT, [*MAXTEXT_CONFIG, *maxtext(8000.0, world=8)], 16),
            "accumulation_steps=4; micro_batch_size=4; parallel=fsdp, tp 2; recipe=fp8;"
            " recompute=selective; sequence_length=2048",
            step_time_median_s=16 * 2048 / 8000,
        ),
        a_case(
            *(MAXTEXT, [*MAXTEXT_PLAIN, *maxtext(8000.0, world=8)], 4),
            "recipe=none; accumulation_steps=",
        ),
        # 128 samples on 256 devices: half a sample each. 128 * 4096 tokens in 0.2 s.
        a_case(
            *("32n8g/llama3-70b_bf16_1.log", BELOW, 0.5),
            "micro_batch_size=1; parallel=pp 8, tp 8", samples_per_second_median=128 * 4096 / 0.2,
        ),
        a_case(MEGATRON, [MEGATRON_MESH, *megatron(200.0)], None, "parallel=cp 2, tp 4"),
        *(
            a_case(MEGATRON, with_arguments(**arguments), None, f"recipe={recipe}")
            for arguments, recipe in (
                ({"fp8": "None", "fp8_recipe": "delayed"}, "none"),
                ({"fp8": "hybrid", "fp8_recipe": "delayed"}, "fp8"),
                ({"fp8": "hybrid"}, "fp8"),
                ({"fp8": "e4m3", "fp8_recipe": "tensorwise"}, "fp8-cs-e4m3"),
                ({"fp8": "hybrid", "fp8_recipe": "mxfp8"}, "fp8-mx"),
                ({"fp8": "None", "fp4": "e2m1"}, "nvfp4"),
            )
        ),
        *(
            a_case(CONVNETS, convnets(f"{setting.replace('=', ' : ')}  "), None, setting)
            for setting in (
                *("optimizer_batch_size=4096", "memory_format=nchw", "data_backend=dali-cpu"),
                "jit=script",
            )
        ),
        a_case(CONVNETS, convnets(), None, "optimizer_batch_size=; data_backend=; jit="),
        # Its steps, batches and rates are those of single batches.
        a_case(
            *("1n8g/r50_b128_amp_1.log", [GRADIENT_ACC, *arcface_torch(2271.25)], 128),
            "gradient_acc=4", samples_per_second_median=2271.25,
        ),
        a_case("2n8g/rn50_b128_fp32_1.log", TWO_NODES, nodes=2),
    ],
)  # fmt: skip
def test_what_a_log_states_identifies_its_case(
    tmp_path: Path,
    name: str,
    lines: list[str],
    values: dict[str, float],
    parameters: dict[str, str],
) -> None:
    results = load(tmp_path, name, lines)
    assert results.problems == []
    (case,) = records(summarize(results.frame))
    (case["global_batch_size"],) = {row["global_batch_size"] for row in records(results.frame)}
    assert {key: case[key] for key in values} == pytest.approx(values, rel=1e-4)
    stated = read_parameters(case["parameters"] or "")
    assert {key: stated.get(key, "") for key in parameters} == parameters
    assert "sequence_length" not in parameters or stated == parameters  # where all are given
    if name in (TITAN, MAXTEXT, MEGATRON):
        assert case["precision"] == "bf16"  # of products besides those of a recipe


NO_AMP = ("precision contradicts the file name", ("amp", "fp32 or tf32"))


@pytest.mark.parametrize(
    ("name", "lines", "problem", "values"),
    [
        ("llama8b_b4_bf16_1.log", FOUR_BATCHES, "global batch size contradicts the file name", ()),
        ("llama8b_bf16_1.log", later(131073), "tokens of a step are no whole number of seq", ()),
        ("llama3.1-8b_b2_bf16_1.log", HALF, "batch size contradicts the file name", ("2", "0.5")),
        ("llama3-8b_bf16_1.log", OTHER_MESH, "mesh tp contradicts line 1", ()),
        ("rn50_b256_amp_1.log", convnets(amp=False), *NO_AMP),
        ("tf_rn50_b256_amp_1.log", dllogger(3000.0, 8, amp=False, final=3000.0), *NO_AMP),
        (
            *("r50_b128_amp_1.log", replaced(arcface_torch(2271.25), (FP16(True), FP16(False)))),
            *NO_AMP,
        ),
        ("rn50_b256_fp32_1.log", convnets("fp16 : True  ", amp=False), NO_AMP[0], ("fp32", "fp16")),
        ("rn50_b128_fp32_1.log", TWO_NODES, "number of nodes contradicts the file name", ()),
    ],
)  # fmt: skip
def test_what_a_log_states_contradicts_name_or_log(
    tmp_path: Path, name: str, lines: list[str], problem: str, values: tuple[str, ...]
) -> None:
    (error,) = load(tmp_path, f"1n8g/{name}", lines).problems
    assert problem in error.problem
    assert not values or (error.expected, error.found) == values


def test_fp16_before_amp(tmp_path: Path) -> None:
    (run,) = load(tmp_path, "1n8g/rn50_b256_1.log", convnets("fp16 : True  ", amp=False)).counted
    assert run.precision == "fp16"


@pytest.mark.parametrize(
    ("base", "wider", "parallel"),
    [
        ((1, 1, 1), (1, 16, 1), "fsdp"),
        ((1, 1, 8), (1, 2, 8), "'fsdp, tp 8'"),
        ((1, 8, 1), (2, 8, 1), "'ddp, fsdp 8'"),
        ((1, 8, 1), (1, 16, 1), "fsdp"),
    ],
)
def test_a_part_of_the_mesh_is_the_base_of_the_speed_up(
    tmp_path: Path, base: tuple[int, ...], wider: tuple[int, ...], parallel: str
) -> None:
    """Degrees are those of replicas, shards and tensor parallelism."""
    for degrees, tokens in ((base, 6000), (wider, 5400)):
        devices, ranks = math.prod(degrees), degrees[0] * degrees[1]
        lines = torchtitan(tokens, world=devices)
        mesh = "dp_replicate={}, dp_shard={}, cp=1, tp={}".format(*degrees)
        pairs = (
            (f"dp_replicate=1, dp_shard={devices}, cp=1, tp=1", mesh),
            (f"global batch size {2 * devices}", f"global batch size {2 * ranks}"),
        )
        place = f"{devices // 8}n8g" if devices > 7 else f"1n{devices}g"
        for repeat in (1, 2):
            write(tmp_path / place / f"llama8b_bf16_{repeat}.log", replaced(lines, *pairs))
    results = load_results(tmp_path)
    stated = {read_parameters(run.parameters)["parallel"] for run in results.counted}
    assert stated == {parallel.strip("'")}
    assert [case["speedup"] is not None for case in records(summarize(results.frame))] == [True] * 2


@pytest.mark.parametrize(
    ("line", "recipe"),
    [
        ("Float8 training active", "float8"),
        ("Float8 tensorwise scaled training active", "float8"),
        ("Float8 training active with recipe rowwise", "float8-rowwise"),
        ("Converted Linear layers to MXFP8Linear", "mxfp8"),
    ],
)
def test_float8_is_a_recipe_with_the_peak_of_fp8(tmp_path: Path, line: str, recipe: str) -> None:
    lines = [f"[titan] 2025-12-01 12:00:00,123 - root - INFO - {line}", *torchtitan(8000, world=8)]
    results = load(tmp_path, TITAN, lines)
    (run,) = results.counted
    assert f"recipe={recipe} " in str(run.parameters)
    assert run.precision == "bf16"  # of the other products
    # Named after it, or stated, it is the same case.
    for word in {"fp8", "mxfp8" if recipe == "mxfp8" else "fp8"}:
        (named,) = load(tmp_path / word, f"1n8g/llama8b_{word}_1.log", lines).counted
        assert (named.case, named.precision) == (run.case, "bf16")
