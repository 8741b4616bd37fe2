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


def load(folder: Path, name: str, lines: list[str]) -> Results:
    return load_results(write(folder / name, lines).parents[1])


def case_of(folder: Path, name: str, lines: list[str]) -> dict[str, Any]:
    """The only case of a log."""
    results = load(folder, name, lines)
    assert results.problems == []
    (case,) = records(summarize(results.frame))
    return case


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


# ---- torchtitan


FOUR_BATCHES = (
    ("global batch size 16", "global batch size 64"),
    ("accumulation steps 1", "accumulation steps 4"),
)


def test_accumulated_batches_belong_to_the_batch_of_a_step(tmp_path: Path) -> None:
    """4 batches of 2 samples of 8192 tokens on each device: 8 samples a step."""
    lines = torchtitan(8192, world=8, every=1, steps=60, warmup=10)
    lines = replaced(lines, *FOUR_BATCHES)
    case = case_of(tmp_path, TITAN, lines)
    assert case["batch_size_per_device"] == 8
    expected = "accumulation_steps=4 micro_batch_size=2 parallel=fsdp sequence_length=8192"
    assert case["parameters"] == expected
    assert case["samples_per_second_median"] == 8 * 8192
    assert case["step_time_median_s"] == pytest.approx(8.0)
    rows = records(load(tmp_path, TITAN, lines).frame)
    assert {row["global_batch_size"] for row in rows} == {64}


def test_a_name_with_the_batch_of_a_rank_is_no_contradiction(tmp_path: Path) -> None:
    lines = replaced(torchtitan(8192, world=8), *FOUR_BATCHES)
    for batch in (2, 8):
        name = f"{batch}/1n8g/llama8b_b{batch}_bf16_1.log"
        assert case_of(tmp_path, name, lines)["batch_size_per_device"] == 8
    (problem,) = load(tmp_path / "c", "1n8g/llama8b_b4_bf16_1.log", lines).problems
    assert problem.problem == "the global batch size contradicts the file name"


@pytest.mark.parametrize(
    ("mesh", "batch", "parameters"),
    [
        ("dp_replicate=8, dp_shard=1, cp=1, tp=1", "16", "parallel=ddp"),
        ("dp_replicate=1, dp_shard=2, cp=1, tp=4", "4", "'parallel=fsdp, tp 4'"),
        ("dp_replicate=2, dp_shard=2, cp=2, tp=1", "8", "'parallel=ddp, cp 2, fsdp 2'"),
    ],
)
def test_the_mesh_identifies_a_case(tmp_path: Path, mesh: str, batch: str, parameters: str) -> None:
    """The devices of a data-parallel rank share its 2 samples."""
    old = "dp_replicate=1, dp_shard=8, cp=1, tp=1"
    pairs = (old, mesh), ("global batch size 16", f"global batch size {batch}")
    case = case_of(tmp_path, TITAN, replaced(torchtitan(6000, world=8), *pairs))
    assert case["batch_size_per_device"] == int(batch) / 8
    assert parameters in case["parameters"]
    assert case["world_size"] == 8


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


def test_earlier_and_later_words_for_mesh_and_batch(tmp_path: Path) -> None:
    """pytorch/torchtitan PR 1690 (2-D mesh) and 73aed7f (tokens in the place of batches)."""
    lines = torchtitan(6000, world=8)
    earlier = [
        "Building 2-D device mesh with ['dp_shard', 'tp'], [4, 2]",
        "Trainer is initialized with local batch size 16, global batch size 64 (gradient"
        " accumulation steps 1), sequence length 8192, total steps 100 (warmup 200).",
    ]
    case = case_of(tmp_path / "a", TITAN, [*earlier, *lines[2:]])
    assert (case["world_size"], case["batch_size_per_device"]) == (8, 8)
    assert "'parallel=fsdp, tp 2'" in case["parameters"]
    later = (
        "Trainer is initialized with 8192 tokens per DP rank, 131072 tokens per train step,"
        " gradient accumulation steps 2, maximum context length 8192, total steps 100 (warmup 10)"
    )
    case = case_of(tmp_path / "b", TITAN, [lines[0], later, *lines[2:]])
    assert case["batch_size_per_device"] == 2
    assert "accumulation_steps=2" in case["parameters"]
    other = later.replace("131072", "131073")
    (problem,) = load(tmp_path / "c", TITAN, [lines[0], other, *lines[2:]]).problems
    assert problem.problem == "the tokens of a step are no whole number of sequences"


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


# ---- MaxText


@pytest.mark.parametrize(("world", "printed"), [(128, "0.0078125"), (3, "0.3333333333333333")])
def test_many_devices_share_a_sample(tmp_path: Path, world: int, printed: str) -> None:
    """One sample of 2048 tokens on all devices, as Python prints the fraction."""
    share = ("per_device_batch_size: 4.0", f"per_device_batch_size: {printed}")
    lines = replaced(maxtext(2048 / world, world=world), share)
    name = f"{world}n1g/llama3.1-8b_bf16_1.log"
    case = case_of(tmp_path, name, lines)
    assert case["batch_size_per_device"] == round(1 / world, 6)
    assert case["step_time_median_s"] == pytest.approx(1.0, rel=1e-4)
    rows = records(load(tmp_path, name, lines).frame)
    assert {row["global_batch_size"] for row in rows} == {1}


def test_a_fraction_of_a_sample_per_device(tmp_path: Path) -> None:
    """4 samples of 2048 tokens on 8 devices in 2048 * 0.5 / 256 = 4 s."""
    lines = replaced(
        maxtext(256.0, world=8), ("per_device_batch_size: 4.0", "per_device_batch_size: 0.5")
    )
    case = case_of(tmp_path, MAXTEXT, lines)
    assert case["batch_size_per_device"] == 0.5
    assert case["step_time_median_s"] == pytest.approx(4.0)
    (row, *_) = records(load(tmp_path, MAXTEXT, lines).frame)
    assert row["global_batch_size"] == 4
    (problem,) = load(tmp_path / "b2", "1n8g/llama3.1-8b_b2_bf16_1.log", lines).problems
    assert (problem.problem, problem.expected, problem.found) == (
        *("the batch size contradicts the file name", "2"),
        "0.5",
    )


def test_accumulation_mesh_and_quantization_of_maxtext(tmp_path: Path) -> None:
    config = [
        "Config param gradient_accumulation_steps: 4",
        "Config param quantization: fp8",
        "Config param remat_policy: minimal_with_context",
        "Config param ici_fsdp_parallelism: -1",
        "Config param ici_tensor_parallelism: 2",
    ]
    case = case_of(tmp_path, MAXTEXT, [*config, *maxtext(8000.0, world=8)])
    assert case["batch_size_per_device"] == 16
    assert case["parameters"] == (
        "accumulation_steps=4 micro_batch_size=4 'parallel=fsdp, tp 2' recipe=fp8"
        " recompute=selective sequence_length=2048"
    )
    assert case["step_time_median_s"] == pytest.approx(16 * 2048 / 8000)
    plain = [*(line.replace(": fp8", ": ").replace(": 4", ": 1") for line in config)]
    case = case_of(tmp_path / "plain", MAXTEXT, [*plain, *maxtext(8000.0, world=8)])
    assert case["batch_size_per_device"] == 4
    assert "recipe=none" in case["parameters"]
    assert "accumulation" not in case["parameters"]


# ---- Megatron-LM


def test_a_global_batch_below_the_number_of_devices(tmp_path: Path) -> None:
    """128 samples on 256 devices: half a sample each. 128 * 4096 tokens in 0.2 s."""
    lines = with_arguments(
        micro_batch_size=1, tensor_model_parallel_size=8, pipeline_model_parallel_size=8
    )
    lines = replaced(lines, (f"world_size {'.' * 38} 8", f"world_size {'.' * 38} 256"))
    case = case_of(tmp_path, "32n8g/llama3-70b_bf16_1.log", lines)
    assert case["batch_size_per_device"] == 0.5
    assert "micro_batch_size=1" in case["parameters"]
    assert "'parallel=pp 8, tp 8'" in case["parameters"]
    assert case["samples_per_second_median"] == pytest.approx(128 * 4096 / 0.2)


@pytest.mark.parametrize(
    ("arguments", "recipe"),
    [
        ({"fp8": "None", "fp8_recipe": "delayed"}, "none"),
        ({"fp8": "hybrid", "fp8_recipe": "delayed"}, "fp8"),
        ({"fp8": "hybrid"}, "fp8"),
        ({"fp8": "e4m3", "fp8_recipe": "tensorwise"}, "fp8-cs-e4m3"),
        ({"fp8": "hybrid", "fp8_recipe": "mxfp8"}, "fp8-mx"),
        ({"fp8": "None", "fp4": "e2m1"}, "nvfp4"),
    ],
)
def test_fp8_of_megatron(tmp_path: Path, arguments: dict[str, str], recipe: str) -> None:
    case = case_of(tmp_path, MEGATRON, with_arguments(**arguments))
    assert f"recipe={recipe} " in case["parameters"]
    assert case["precision"] == "bf16"


def test_the_line_before_the_arguments_states_the_mesh(tmp_path: Path) -> None:
    line = (
        "using world size: 8, data-parallel size: 1, context-parallel size: 2, hierarchical"
        " context-parallel sizes: None, tensor-model-parallel size: 4, pipeline-model-parallel"
        " size: 1"
    )
    case = case_of(tmp_path, MEGATRON, [line, *megatron(200.0)])
    assert "'parallel=cp 2, tp 4'" in case["parameters"]
    other = with_arguments(tensor_model_parallel_size=2)
    (problem,) = load(tmp_path / "other", MEGATRON, [line, *other]).problems
    assert problem.problem == "the mesh tp contradicts line 1"


# ---- vision


def test_amp_that_is_off_contradicts_a_name_with_amp(tmp_path: Path) -> None:
    off = ("amp : True", "amp : False")
    fp16 = "fp16                     {}".format
    for name, lines in (
        ("rn50_b256_amp_1.log", replaced(dllogger_pytorch(2500.0, world=8), off)),
        ("tf_rn50_b256_amp_1.log", dllogger(3000.0, 8, amp=False, final=3000.0)),
        ("r50_b128_amp_1.log", replaced(arcface_torch(2271.25), (fp16(True), fp16(False)))),
    ):
        (problem,) = load(tmp_path / name, f"1n8g/{name}", lines).problems
        assert problem.problem == "the precision contradicts the file name"
        assert (problem.expected, problem.found) == ("amp", "fp32 or tf32")


def test_fp16_before_amp(tmp_path: Path) -> None:
    lines = replaced(dllogger_pytorch(2500.0, world=8), ("amp : True", "fp16 : True  amp : False"))
    (run,) = load(tmp_path, "1n8g/rn50_b256_1.log", lines).counted
    assert run.precision == "fp16"
    (problem,) = load(tmp_path / "fp32", "1n8g/rn50_b256_fp32_1.log", lines).problems
    assert (problem.expected, problem.found) == ("fp32", "fp16")


@pytest.mark.parametrize(
    ("setting", "parameter"),
    [
        ("optimizer_batch_size : 4096", "optimizer_batch_size=4096"),
        ("memory_format : nchw", "memory_format=nchw"),
        ("data_backend : dali-cpu", "data_backend=dali-cpu"),
        ("jit : script", "jit=script"),
    ],
)
def test_settings_of_convnets(tmp_path: Path, setting: str, parameter: str) -> None:
    lines = dllogger_pytorch(2500.0, world=8)
    plain = case_of(tmp_path / "plain", "1n8g/rn50_b256_amp_1.log", lines)
    lines = replaced(lines, ("amp : True", f"amp : True  {setting}"))
    case = case_of(tmp_path / "other", "1n8g/rn50_b256_amp_1.log", lines)
    assert parameter in case["parameters"].split()
    assert parameter not in plain["parameters"].split()


def test_accumulation_of_arcface(tmp_path: Path) -> None:
    """Its steps, batches and rates are those of single batches."""
    lines = arcface_torch(2271.25)
    setting = lines[0].partition("-: ")[0] + "-: gradient_acc             4"
    case = case_of(tmp_path, "1n8g/r50_b128_amp_1.log", [setting, *lines])
    assert "gradient_acc=4" in case["parameters"]
    assert case["samples_per_second_median"] == pytest.approx(2271.25)
    assert case["batch_size_per_device"] == 128


def test_the_nodes_of_oneflow_without_its_first_line(tmp_path: Path) -> None:
    lines = ["gpu_num_per_node = 8", "num_nodes = 2", *oneflow(384.25)]
    (problem,) = load(tmp_path, "1n8g/rn50_b128_fp32_1.log", lines).problems
    assert problem.problem == "the number of nodes contradicts the file name"
    assert case_of(tmp_path / "two", "2n8g/rn50_b128_fp32_1.log", lines)["nodes"] == 2
