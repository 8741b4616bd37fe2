"""A log whose run was started again in the middle with other settings, in every format."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from make_logs import (
    ARCFACE_TORCH,
    CONVNETS,
    LLAMA,
    MAXTEXT,
    MEGATRON,
    ONEFLOW,
    TENSORFLOW,
    arcface_torch,
    dllogger,
    dllogger_pytorch,
    gluoncv,
    maxtext,
    megatron,
    oneflow,
    plsc,
    speedometer,
    torchtitan,
)
from measured_logs import ARCFACE, PLSC, RESNET, run

from dlperf_runner import logs
from dlperf_runner.core.errors import UserError
from dlperf_runner.measure.estimators import Measured, Rule


@dataclass(frozen=True)
class Example:
    """A whole log, its case, and the lines with which it could be started again: by the setting,
    the words of the line and those in their place, and both values in the error; or the words with
    {} for the values, and these."""

    lines: list[str]
    rule: Rule
    case: tuple[str, str, int]
    again: dict[str, tuple[str, ...]]
    head: list[str] = field(default_factory=list)

    @property
    def log(self) -> list[str]:
        return [*self.head, *self.lines]

    def restart(self, what: str) -> tuple[str, ...]:
        """The words, those in their place, and both values."""
        words, *values = self.again[what]
        return (*map(words.format, values), *values) if "{}" in words else self.again[what]


BATCH, WORLD, PRECISION, STEPS = "batch size", "world size", "precision", "number of steps"
GLOBAL = "global batch size"
EXACT = "fp32 or tf32"  # of a program that does not say which

EXAMPLES = {
    "gluoncv_horovod": Example(
        gluoncv(9.0, batch=None),
        RESNET,
        ("1n8g", "fp32", 128),
        {
            BATCH: ("batch_size={}", "128", "64"),
            WORLD: ("world_size={}", "8", "4"),
            PRECISION: ("'float32'", "'float16'", EXACT, "fp16"),
            STEPS: ("iterations={}", "120", "60"),
            "log interval": ("log_interval={}", "1", "2"),
        },
        [
            "INFO:root:Namespace(batch_size=128, dtype='float32', iterations=120, log_interval=1)",
            "INFO:root:world_size=8",
        ],
    ),
    "mxnet_speedometer": Example(
        speedometer(500.0),
        ARCFACE,
        ("1n8g", "fp32", 128),
        {
            BATCH: ("per_batch_size={}", "128", "64"),
            WORLD: ("ctx_num={}", "8", "4"),
            PRECISION: ("'float32'", "'float16'", EXACT, "fp16"),
            STEPS: ("'max_steps': {}", "120", "60"),
            "classes": ("'num_classes': {}", "9", "8"),
        },
        [
            "Called with argument: Namespace(per_batch_size=128, ctx_num=8, dtype='float32',"
            " frequent=20) {'num_classes': 9, 'max_steps': 120}"
        ],
    ),
    "oneflow_benchmark": Example(
        oneflow(384.25),
        ONEFLOW,
        ("2n8g", "fp32", 128),
        {
            BATCH: ("per_device = {}", "128", "64"),
            WORLD: ("num_gpu_per_node = 8", "num_gpu_per_node = 4", "16", "8"),
            "number of nodes": ("num_nodes = 2", "num_nodes = 4", "16", "32"),
            PRECISION: ("use_fp16 = False", "use_fp16 = True", "fp32", "fp16"),
            STEPS: ("num_iters = {}", "200", "100"),
            "image size": ("image_size = {}", "224", "64"),
        },
        [
            "batch_size_per_device = 128",
            "image_size = 224",
            "Running resnet50: num_gpu_per_node = 8, num_nodes = 2.",
            "num_iters = 200",
            "use_fp16 = False",
        ],
    ),
    "plsc": Example(
        plsc(2545.5),
        PLSC,
        ("1n1g", "fp32", 128),
        {
            BATCH: ("size to {}", "128", "64"),
            WORLD: ("num_trainers: {}", "1", "2"),
            PRECISION: ("training: False", "training: True", EXACT, "fp16"),
            STEPS: ("batches to {}", "150", "100"),
            "classes": ("num_classes to {}", "9", "8"),
        },
        [
            "INFO 2021-03-12 09:59:00,000 entry.py:9] trainer_id: 0, num_trainers: 1",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Set train batch size to 128.",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Set num_classes to 9.",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Set number of batches to 150.",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Use mixed precision training: False",
        ],
    ),
    "dllogger": Example(
        dllogger(3000.0, 8, amp=True, final=3000.0),
        TENSORFLOW,
        ("1n8g", "amp", 256),
        {
            BATCH: ("batch_size : {}", "256", "128"),
            WORLD: ("Num GPUs {}", "8", "4"),
            PRECISION: ("amp : True", "amp : False", "amp", EXACT),
            STEPS: ("num_iter : {}", "500", "400"),
            "number of warm-up steps": ("warmup_steps : {}", "200", "100"),
        },
    ),
    "dllogger_pytorch": Example(
        dllogger_pytorch(2500.0, world=8),
        CONVNETS,
        ("1n8g", "amp", 256),
        {
            BATCH: ("batch_size : {}", "256", "128"),
            WORLD: ("world_size : {}", "8", "4"),
            PRECISION: ("amp : True", "amp : False", "amp", EXACT),
            STEPS: ("prof : {}", "100", "50"),
        },
    ),
    "arcface_torch": Example(
        arcface_torch(2271.25),
        ARCFACE_TORCH,
        ("1n8g", "amp", 128),
        {
            BATCH: (": batch_size               {}", "128", "64"),
            # What its log says of the world size.
            GLOBAL: ("total_batch_size         {}", "1024", "512"),
            PRECISION: (
                "fp16                     True",
                "fp16                     False",
                "amp",
                EXACT,
            ),
            STEPS: ("total_step               {}", "100", "50"),
            "classes": ("num_classes              {}", "93431", "9"),
        },
    ),
    "torchtitan": Example(
        torchtitan(6835, world=8),
        LLAMA,
        ("1n8g", "bf16", 2),
        {
            "micro batch size": ("local batch size {}", "2", "4"),
            GLOBAL: ("global batch size {}", "16", "32"),
            "accumulation steps": ("accumulation steps {}", "1", "2"),
            WORLD: ("dp_shard={}", "8", "4"),
            PRECISION: ("precision bfloat16", "precision float32", "bf16", EXACT),
            STEPS: ("total steps {}", "100", "50"),
            "sequence length": ("sequence length {}", "8192", "4096"),
        },
        [
            "[titan] 2025-12-01 12:00:00,123 - root - INFO - "
            "Starting job: llama, precision bfloat16,"
        ],
    ),
    "maxtext": Example(
        maxtext(8000.0, world=8),
        MAXTEXT,
        ("1n8g", "bf16", 4),
        {
            BATCH: ("batch_size: {}.0", "4", "2"),
            WORLD: ("Num_devices: {}", "8", "4"),
            PRECISION: ("dtype: bfloat16", "dtype: float32", "bf16", EXACT),
            STEPS: ("steps: {}", "30", "20"),
            "sequence length": ("length: {}", "2048", "1024"),
        },
    ),
    "megatron": Example(
        megatron(200.0),
        MEGATRON,
        ("1n8g", "bf16", 2),
        {
            # What its log says of the batch size.
            GLOBAL: (". {}", "16", "8"),
            WORLD: (f"world_size {'.' * 38} {{}}", "8", "4"),
            PRECISION: (f"bf16 {'.' * 44} True", f"fp16 {'.' * 44} True", "bf16", "fp16"),
            "bf16": (f"bf16 {'.' * 44} {{}}", "True", "False"),
            STEPS: (f"train_iters {'.' * 37} {{}}", "100", "50"),
            "sequence length": (". {}", "4096", "2048"),
        },
    ),
}


def measured(form: str, lines: list[str]) -> Measured:
    example = EXAMPLES[form]
    topology, precision, batch = example.case
    return run(form, lines, example.rule, topology, precision, batch)


def test_each_format_that_states_settings_is_here() -> None:
    stating = {name for name, form in logs.formats().items() if form.statements}
    assert set(EXAMPLES) == stating
    for example in EXAMPLES.values():
        assert {PRECISION, STEPS} <= set(example.again)
        assert {BATCH, GLOBAL} & set(example.again)
        assert {WORLD, GLOBAL} & set(example.again)


@pytest.mark.parametrize("form", EXAMPLES)
def test_whole_logs_are_measured_and_so_are_those_that_repeat_their_settings(form: str) -> None:
    lines = EXAMPLES[form].log
    found = measured(form, lines)
    heads = [EXAMPLES[form].restart(what)[0] for what in EXAMPLES[form].again]
    stated = [line for line in lines if any(words in line for words in heads)]
    middle = len(lines) * 2 // 3
    again = measured(form, [*lines[:middle], *stated, *lines[middle:]])
    assert again.confirmed == found.confirmed


@pytest.mark.parametrize(
    ("form", "what"), [(form, what) for form, example in EXAMPLES.items() for what in example.again]
)
@pytest.mark.parametrize("place", [0.3, 0.7, 1.0])
def test_restart_with_another_setting_is_refused_with_both_lines(
    form: str, what: str, place: float
) -> None:
    example = EXAMPLES[form]
    old, new, value, other = example.restart(what)
    lines = example.log
    first = next(number for number, line in enumerate(lines, 1) if old in line)
    # All rates may come after the statement, whose line is then still one of the log's head.
    at = max(first, round(place * len(lines)))
    restarted = [*lines[:at], lines[first - 1].replace(old, new), *lines[at:]]
    with pytest.raises(UserError) as caught:
        measured(form, restarted)
    error = caught.value
    assert (error.where, error.expected, error.found) == (f"train.log:{at + 1}", value, other)
    stated = WORLD if what == "number of nodes" else what
    assert error.problem == f"the {stated} contradicts line {first}"
    assert "started again" in str(error)
