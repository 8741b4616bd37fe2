"""Metrics of language models: step times, memory, model FLOPs and MFU."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_logs import LLAMA, MEGATRON, megatron, torchtitan
from measured_logs import run, values

from dlperf_runner.catalog.accelerators import Peak, memory_of, peak_of
from dlperf_runner.catalog.reader import own_workloads
from dlperf_runner.catalog.workload import Attention, Transformer
from dlperf_runner.core.errors import UserError
from dlperf_runner.measure.energy import flops_per_token, model_flops
from dlperf_runner.measure.step_parts import percentile
from dlperf_runner.workloads.llama_sizes import SIZES, Size
from dlperf_runner.workloads.pytorch_bert import SIZES as BERT_SIZES
from dlperf_runner.workloads.pytorch_llama import PEAK_FLOPS

# Llama 3.1 8B: 8,030,261,248 parameters, of which 128,256 x 4,096 are the input embedding;
# 32 layers, 32 heads of 128.
LLAMA_8B = Transformer(parameters=8_030_261_248 - 128_256 * 4096, layers=32, width=32 * 128)


def transformer_of(workload: str, variant: str) -> Transformer:
    found = own_workloads()[workload].variants[variant].transformer
    assert found is not None
    return found


# ---- tokens per second of all devices


@pytest.mark.parametrize("every", [10, 2])
def test_a_longer_interval_than_the_rules_is_believed_after_step_1(every: int) -> None:
    """torchtitan prints every 10 steps, this project's own program every step."""
    every_step = LLAMA.model_copy(update={"log_every": 1})
    lines = torchtitan(6835, every=every)
    found = values(run("torchtitan", lines, every_step, batch=2, length=8192))
    assert found["samples_per_second mean_of_rates"] == 6835
    for lost in (1, every, 2 * every, 5 * every):
        rest = [line for line in lines if f"INFO - step: {lost:2} " not in line]
        assert len(rest) == len(lines) - 1
        with pytest.raises(UserError, match="step"):
            run("torchtitan", rest, every_step, batch=2, length=8192)


def test_megatron_needs_the_sequence_length() -> None:
    with pytest.raises(UserError, match="cannot determine the number of tokens in a step"):
        run("megatron", megatron(200.0), MEGATRON, "1n8g", "bf16", batch=2, unit="tokens")


# ---- step times


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=50), st.sampled_from([50, 95, 99]))
def test_percentile_is_that_of_numpy(sample: list[float], percent: float) -> None:
    ordered = sorted(sample)
    assert percentile(ordered, percent) == pytest.approx(np.percentile(ordered, percent), rel=1e-9)


def test_memory_that_the_log_prints() -> None:
    lines = [
        line.replace("40.50GiB", "41.25GiB") if "step: 70" in line else line
        for line in torchtitan(6835)
    ]
    found = values(run("torchtitan", lines, LLAMA, batch=2, length=8192))
    assert found["memory_peak as_printed"] == 41.25 * 1024


# ---- model FLOPs


def device(tokens: float, transformer: Transformer, length: int, peak: float) -> dict[str, float]:
    found = model_flops(tokens, transformer, length, Peak(peak, "a data sheet"))
    return {measurement.metric: measurement.value for measurement in found}


def test_flops_of_llama_by_both_conventions() -> None:
    # 6 * 7,504,924,672 = 45,029,548,032; 32 * 4096 * 8192 = 1,073,741,824
    causal = LLAMA_8B.model_copy(update={"attention": Attention.CAUSAL})
    assert flops_per_token(LLAMA_8B, 8192) == 45_029_548_032 + 12 * 1_073_741_824
    assert flops_per_token(causal, 8192) == 45_029_548_032 + 6 * 1_073_741_824
    names = {m.estimator for m in model_flops(1, causal, 8192, None)}
    assert names == {"6N+6LdT (causal attention)"}


def test_mfu_that_others_publish() -> None:
    """pytorch/torchtitan b5bcd76, benchmarks/llama3_h100_202412_torchtitan.md: `training on 8 or
    128 H100 GPUs without Float8 achieves 33% to 39% MFU`; peak in torchtitan/tools/utils.py.
    PaLM: Chowdhery et al., arXiv 2204.02311, appendix B and table 3: 540.35 B parameters, 118
    layers, 48 heads of 256, 2048 tokens, 238.3 K tokens/s on 6144 TPU v4 of 275 TFLOP/s: 46.2 %."""
    for tokens, percent in ((5762, 33), (6667, 39)):
        assert int(100 * device(tokens, LLAMA_8B, 8192, 989)["mfu"]) == percent
    palm = Transformer(parameters=540_350_000_000, layers=118, width=48 * 256)
    assert round(device(238_300 / 6144, palm, 2048, 275)["mfu"], 3) == 0.462


def test_transformers_of_the_catalogue_are_those_of_the_program() -> None:
    names = set()
    for workload in ("jax-llama", "pytorch-llama"):
        for name in own_workloads()[workload].variants:
            names.add(f"llama-{name}")
            expected = SIZES[f"llama-{name}"].flops_per_token(4096)
            assert flops_per_token(transformer_of(workload, name), 4096) == expected
    assert names == SIZES.keys()


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        # Of the published checkpoints' own counts (Llama 2, 3.1 and 3.2).
        ("llama-2-7b", 6_738_415_616),
        ("llama-1b", 1_235_814_400),
        ("llama-8b", 8_030_261_248),
        ("llama-3.1-8b", 8_030_261_248),
        ("llama-70b", 70_553_706_496),
        ("llama-3.1-405b", 405_853_388_800),
    ],
)
def test_sizes_are_those_of_the_published_models(model: str, parameters: int) -> None:
    assert SIZES[model].parameters == parameters


@pytest.mark.parametrize(
    ("variant", "size"),
    [
        ("3-8b", (4096, 32, 32, 8, 14_336, 128_256)),
        ("3-70b", (8192, 80, 64, 8, 28_672, 128_256)),
        ("3.1-405b", (16_384, 126, 128, 8, 53_248, 128_256)),
    ],
)
def test_transformers_of_other_programs(variant: str, size: tuple[int, ...]) -> None:
    """The sizes of Llama 3.1 (arXiv 2407.21783, table 3)."""
    transformer = transformer_of("megatron-llama", variant)
    assert flops_per_token(transformer, 8192) == Size(*size).flops_per_token(8192)


def test_bert_counts_as_megatron_does() -> None:
    """Narayanan et al., arXiv 2104.04473, section 5.1, without the recomputation that it adds:
    72 B s l h^2 (1 + s / 6h + V / 12 l h) FLOPs. Here, 5 of 32 tokens have the part of V, and one
    more square matrix."""
    width, layers, vocabulary = 1024, 24, 30_528
    transformer = transformer_of("pytorch-bert-large", "large")
    for length in (128, 512):
        part = 5 / 32 * (vocabulary + width) / (12 * layers * width)
        expected = 72 * layers * width**2 * (1 + length / (6 * width) + part)
        assert flops_per_token(transformer, length) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("length", "sequences", "published"), [(128, 272, 64), (512, 52, 53)])
def test_speed_of_bert_that_deepspeed_publishes(
    length: int, sequences: int, published: int
) -> None:
    """DeepSpeed, `The Fastest and Most Efficient BERT Training`, May 2020: on a V100, 64 TFLOP/s
    are 272 sequences/s at length 128, and 53 are 52 at length 512."""
    transformer = transformer_of("pytorch-bert-large", "large")
    tflops = sequences * length * flops_per_token(transformer, length) / 1e12
    assert tflops == pytest.approx(published, rel=0.025)


@pytest.mark.parametrize("name", ["lab", "large"])
def test_transformers_of_bert_are_those_of_the_program(name: str) -> None:
    size = BERT_SIZES[f"bert-{name}"]
    layer = 4 * size.width**2 + 2 * size.width * size.hidden
    head = size.width**2 + size.width * size.vocabulary
    assert transformer_of("pytorch-bert-large", name) == Transformer(
        parameters=size.layers * layer + 5 * head // 32, layers=size.layers, width=size.width
    )


def test_peaks_are_those_by_which_the_program_prints_its_mfu() -> None:
    names = {
        "A100": "A100-SXM4-40GB", "H100 NVL": "H100 NVL", "H100": "H100 80GB HBM3", "H200": "H200",
        "B200": "B200",
    }  # fmt: skip
    assert names.keys() == PEAK_FLOPS.keys()
    for part, flops in PEAK_FLOPS.items():
        peak = peak_of(names[part], "bf16")
        assert peak is not None
        assert peak.tflops == pytest.approx(flops / 1e12, rel=1e-3)
        assert peak.source.startswith("dense bf16, NVIDIA ")


@pytest.mark.parametrize(
    ("accelerator", "precision"),
    [
        (None, "bf16"),
        ("cpu", "fp32"),
        ("h100", "bf16"),  # SXM or PCIe
        ("A100-SXM4-40GB+A100-PCIE-40GB", "bf16"),  # the nodes differ
        ("A100-SXM4-40GB", "fp8"),  # it has none
        ("V100-SXM2-16GB", "bf16"),
        ("Instinct MI300A", "bf16"),
        ("H200", "nvfp4"),
        ("B300", "nvfp4"),  # versions of its data sheet differ
        ("Instinct MI350X", "tf32"),
    ],
)
def test_what_is_unknown_has_no_peak(accelerator: str | None, precision: str) -> None:
    assert peak_of(accelerator, precision) is None


@pytest.mark.parametrize(
    ("accelerator", "precision", "tflops"),
    [
        # NVIDIA GB200 NVL72 data sheet, of one GPU with sparsity: 10 PFLOPS in FP8, 20 in FP4
        ("GB200", "mxfp8", 5000),
        ("GB200", "nvfp4", 10000),
        # GB300 NVL72: 1080 PFLOPS in dense FP4 on 72 GPUs
        ("GB300", "nvfp4", 1080_000 / 72),
        ("GH200 480GB", "fp8", 3958 / 2),
        ("H100 PCIe", "amp", 756),
        ("H100-SXM5-80GB", "amp", 989.4),
        ("V100-PCIE-16GB", "amp", 112),
        ("B300 SXM6 AC", "bf16", 36_000 / 2 / 8),
        # 304 compute units, 2048 operations in FP16 in each of 2.1e9 cycles
        ("AMD Instinct MI300X", "bf16", 304 * 2048 * 2.1e9 / 1e12),
        ("MI325X", "fp8", 304 * 4096 * 2.1e9 / 1e12),
        # 256 compute units with 8192 in FP8, at 2.2 and 2.4 GHz
        ("AMD Instinct MI350X", "mxfp8", 256 * 8192 * 2.2e9 / 1e12),
        ("Instinct MI355X", "fp8", 256 * 8192 * 2.4e9 / 1e12),
    ],
)
def test_peaks_are_those_of_dense_matrices(accelerator: str, precision: str, tflops: float) -> None:
    peak = peak_of(accelerator, precision)
    assert peak and peak.tflops == pytest.approx(tflops, abs=0.06)


@pytest.mark.parametrize(("product", "gbps"), [("B300 SXM6 AC", 7750), ("GB200", 8000)])
def test_a_memory_bandwidth_names_the_data_sheet(product: str, gbps: float) -> None:
    highest, source = memory_of(product) or (0.0, "")
    assert highest == gbps
    assert "data sheet" in source
