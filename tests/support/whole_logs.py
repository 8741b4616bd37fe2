"""A log of a whole run in each wording of each format, where it would lie, and its throughput."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bert_logs import bert
from log_examples import EXAMPLES
from make_logs import (
    arcface_torch,
    dllogger,
    dllogger_pytorch,
    gluoncv,
    maxtext,
    megatron,
    oneflow,
    plsc,
    plsc_of,
    speedometer,
    torchtitan,
)
from nccl_logs import nccl_tests

from dlperf_runner.catalog.reader import own_workloads
from dlperf_runner.logs import formats
from dlperf_runner.results.load import Results, load_results
from dlperf_runner.results.statement import statements_of

EXACT = "fp32 or tf32"  # of a program that does not say which


@dataclass(frozen=True)
class WholeLog:
    """`path` names the case in a tree of logs, and `options` are what a user states besides.
    `value` is the throughput of all devices after the warm-up. `loss` matches a printed loss.
    `settings` are lines that the log states besides, and `changes` are other values of what it
    states: by the setting, the stated words, those in their place, and both values as an error
    shows them; or the words with {} for both values."""

    form: str
    path: str
    lines: Sequence[str]
    value: float
    loss: str | None = None
    settings: Sequence[str] = ()
    changes: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def text(self) -> str:
        return "\n".join([*self.settings, *self.lines]) + "\n"

    @property
    def states_steps(self) -> bool:
        """Whether the log or the catalogue says how many steps it has."""
        form = formats()[self.form]
        rule = {workload.log_format for workload in own_workloads().values()}
        return self.form in rule or form.whole_run or "number of steps" in self.changes

    def change(self, setting: str) -> tuple[str, ...]:
        """The stated words, those in their place, and both values."""
        words, *values = self.changes[setting]
        return (*map(words.format, values), *values) if "{}" in words else self.changes[setting]


def _falling(lines: Sequence[str]) -> list[str]:
    """Losses that fall with the batches."""
    return [
        re.sub(r"(?<=loss:)40.5", f"{200 - int(batch[1])}", line)
        if (batch := re.search(r"batch:(\d+)", line))
        else line
        for line in lines
    ]


_GLUONCV = ("gluoncv_horovod", "1n1g/rn50_b128_fp32_1.log")
_GLUONCV_LOSS = r"(?<=Loss\[)[\d.]+"
_CONVNETS = ("dllogger_pytorch", "1n8g/rn50_b256_amp_1.log")
_CONVNETS_CHANGES = {
    "batch size": ("batch_size : {}", "256", "128"),
    "world size": ("world_size : {}", "8", "4"),
    "precision": ("amp : True", "amp : False", "amp", EXACT),
    "number of steps": ("prof : {}", "100", "50"),
}
_DLLOGGER = {
    "batch size": ("batch_size : {}", "256", "128"),
    "world size": ("Num GPUs {}", "8", "4"),
    "precision": ("amp : True", "amp : False", "amp", EXACT),
    "number of steps": ("num_iter : {}", "500", "400"),
    "number of warm-up steps": ("warmup_steps : {}", "200", "100"),
}
_OPTION = "{:<24} {{}}".format

WHOLE_LOGS = {
    "gluoncv": WholeLog(
        *(*_GLUONCV, gluoncv(384.25, batch=None), 384.25, _GLUONCV_LOSS),
        [
            "INFO:root:Namespace(batch_size=128, dtype='float32', iterations=120, log_interval=1)",
            "INFO:root:world_size=1",
        ],
        {
            "batch size": ("batch_size={}", "128", "64"),
            "world size": ("world_size={}", "1", "4"),
            "precision": ("'float32'", "'float16'", EXACT, "fp16"),
            "number of steps": ("iterations={}", "120", "60"),
            "log interval": ("log_interval={}", "1", "2"),
        },
    ),
    "gluoncv, tagged": WholeLog(
        *(*_GLUONCV, ["[1,0]<stdout>:" + line for line in gluoncv(384.25, world=1)], 384.25),
        loss=_GLUONCV_LOSS,
    ),
    "speedometer": WholeLog(
        *("mxnet_speedometer", "1n8g/r100_b128_fp32_1.log", speedometer(234.2)),
        *(234.2, r"(?<=lossvalue=)[\d.]+"),
        [
            "Called with argument: Namespace(per_batch_size=128, ctx_num=8, dtype='float32',"
            " frequent=20) {'num_classes': 9, 'max_steps': 120}"
        ],
        {
            "batch size": ("per_batch_size={}", "128", "64"),
            "world size": ("ctx_num={}", "8", "4"),
            "precision": ("'float32'", "'float16'", EXACT, "fp16"),
            "number of steps": ("'max_steps': {}", "120", "60"),
            "classes": ("'num_classes': {}", "9", "8"),
        },
    ),
    "oneflow": WholeLog(
        *("oneflow_benchmark", "2n8g/rn50_b128_fp32_1.log", oneflow(384.25, times=True), 384.25),
        r"(?<=loss: )[\d.]+",
        [
            "batch_size_per_device = 128",
            "image_size = 224",
            "Running resnet50: num_gpu_per_node = 8, num_nodes = 2.",
            "num_iters = 200",
            "use_fp16 = False",
        ],
        {
            "batch size": ("per_device = {}", "128", "64"),
            "world size": ("num_gpu_per_node = 8", "num_gpu_per_node = 4", "16", "8"),
            "number of nodes": ("num_nodes = 2", "num_nodes = 4", "16", "32"),
            "precision": ("use_fp16 = False", "use_fp16 = True", "fp32", "fp16"),
            "number of steps": ("num_iters = {}", "200", "100"),
            "image size": ("image_size = {}", "224", "64"),
        },
    ),
    "plsc": WholeLog(
        *("plsc", "1n1g/r50_b128_fp32_1.log", plsc(397.75), 397.75, r"(?<=loss:)[\d.]+"),
        [
            "INFO 2021-03-12 09:59:00,000 entry.py:9] trainer_id: 0, num_trainers: 1",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Set train batch size to 128.",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Set num_classes to 9.",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Set number of batches to 150.",
            "INFO 2021-03-12 09:59:00,000 entry.py:9] Use mixed precision training: False",
        ],
        {
            "batch size": ("size to {}", "128", "64"),
            "world size": ("num_trainers: {}", "1", "2"),
            "precision": ("training: False", "training: True", EXACT, "fp16"),
            "number of steps": ("batches to {}", "150", "100"),
            "classes": ("num_classes to {}", "9", "8"),
        },
    ),
    # Trainer k of four prints 100 + k.
    "plsc, four trainers": WholeLog(
        *("plsc", "1n4g/r50_b128_fp32_1.log", _falling(plsc_of(4)), 101.5)
    ),
    "dllogger": WholeLog(
        *("dllogger", "1n8g/rn50_b256_amp_1.log"),
        *(dllogger(384.2512345678901, 8, amp=True, final=380.0123456789), 384.2512345678901),
        changes=_DLLOGGER,
    ),
    "dllogger, with losses and tags": WholeLog(
        *("dllogger", "1n8g/rn50_b256_amp_1.log"),
        dllogger(9400.5, 8, amp=True, final=9401.5, mode="train", tag="[1,0]<stdout>:"),
        *(9400.5, r"(?<=cross_entropy : )[\d.]+"),
    ),
    # The published rule takes the program's own mean of the largest topology.
    "dllogger, 32 devices": WholeLog(
        *("dllogger", "4n8g/rn50_b256_amp_1.log"),
        *(dllogger(384.2512345678901, 32, amp=True, final=380.0123456789), 380.0123456789),
    ),
    "dllogger_pytorch": WholeLog(
        *(*_CONVNETS, dllogger_pytorch(2480.33, world=8), 2480.33, r"(?<=train.loss : )[\d.]+"),
        changes=_CONVNETS_CHANGES,
    ),
    "dllogger_pytorch, JSON": WholeLog(
        *(*_CONVNETS, dllogger_pytorch(2480.3298, world=8, as_json=True), 2480.3298),
        loss=r"(?<=train.loss\": )[\d.]+",
    ),
    "arcface_torch": WholeLog(
        *("arcface_torch", "1n8g/r50_b128_amp_1.log", arcface_torch(2271.33), 2271.33),
        loss=r"(?<=  Loss )[\d.]+",
        changes={
            "batch size": (f": {_OPTION('batch_size')}", "128", "64"),
            "global batch size": (_OPTION("total_batch_size"), "1024", "512"),
            "precision": (
                *(_OPTION("fp16").format(value) for value in (True, False)),
                *("amp", EXACT),
            ),
            "number of steps": (_OPTION("total_step"), "100", "50"),
            "classes": (_OPTION("num_classes"), "93431", "9"),
        },
    ),
    "torchtitan": WholeLog(
        *("torchtitan", "1n8g/llama8b_b2_bf16_1.log", torchtitan(6835, world=8), 8 * 6835),
        r"(?<=loss: )[ \d.]+(?=  grad)",
        [
            "[titan] 2025-12-01 12:00:00,123 - root - INFO - "
            "Starting job: llama-8b, precision bfloat16,"
        ],
        {
            "micro batch size": ("local batch size {}", "2", "4"),
            "global batch size": ("global batch size {}", "16", "32"),
            "accumulation steps": ("accumulation steps {}", "1", "2"),
            "world size": ("dp_shard={}", "8", "4"),
            "precision": ("precision bfloat16", "precision float32", "bf16", EXACT),
            "number of steps": ("total steps {}", "100", "50"),
            "sequence length": ("sequence length {}", "8192", "4096"),
        },
    ),
    "maxtext": WholeLog(
        *("maxtext", "1n8g/llama3.1-8b_b4_bf16_1.log", maxtext(8671.794, world=8)),
        *(8 * 8671.794, r"(?<=loss: )[\d.]+"),
        changes={
            "batch size": ("batch_size: {}.0", "4", "2"),
            "world size": ("Num_devices: {}", "8", "4"),
            "precision": ("dtype: bfloat16", "dtype: float32", "bf16", EXACT),
            "number of steps": ("steps: {}", "30", "20"),
            "sequence length": ("length: {}", "2048", "1024"),
        },
    ),
    # 128 samples of 4096 tokens in 0.1234 s.
    "megatron": WholeLog(
        *("megatron", "1n8g/llama3-8b_b16_bf16_1.log", megatron(123.4, batch=128)),
        *(128 * 4096 / 0.1234, r"(?<=lm loss: )[\d.E+]+"),
        changes={
            "global batch size": (f"global_batch_size {'.' * 31} {{}}", "128", "64"),
            "world size": (f"world_size {'.' * 38} {{}}", "8", "4"),
            "precision": (f"bf16 {'.' * 44} True", f"fp16 {'.' * 44} True", "bf16", "fp16"),
            "bf16": (f"bf16 {'.' * 44} {{}}", "True", "False"),
            "number of steps": (f"train_iters {'.' * 37} {{}}", "100", "50"),
            "sequence length": (f"seq_length {'.' * 38} {{}}", "4096", "2048"),
        },
    ),
    # Batches of 128 sequences on 8 devices, each in 0.25 s.
    "dllogger_bert": WholeLog(
        *("dllogger_bert", "1n8g/bertlarge_b128_tf32_1.log", bert(0.25, world=8, steps=121)),
        8 * 128 / 0.25,
    ),
    "dllogger_bert, JSON": WholeLog(
        *("dllogger_bert", "1n8g/bertlarge_b128_tf32_1.log"),
        *(bert(0.25, world=8, steps=121, as_json=True), 8 * 128 / 0.25),
    ),
    # 16 GiB in 30 us and 16 GiB / 250 GB/s; a ring of 8 sends 7/4 of it. Printed with two digits.
    "nccl_tests": WholeLog(
        *("nccl_tests", "1n8g/allreduce_b1_fp32_1.log", nccl_tests(largest=2**34)),
        round(2**34 / (30 + 2**34 / 250_000) / 1000 * 7 / 4, 2),
    ),
}


# Whole logs among the examples of the formats.
WHOLE_LOGS |= {
    each.name: WholeLog(each.form, lines=each.data.decode().splitlines(), **each.entry["whole"])
    for each in EXAMPLES
    if "whole" in each.entry
}


def read_tree(files: Mapping[str, bytes], options: Mapping[str, str] | None = None) -> Results:
    """What is read of a tree with these files, with the shipped catalogue."""
    with tempfile.TemporaryDirectory() as name:
        for path, data in files.items():
            (Path(name) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(name) / path).write_bytes(data)
        statements = statements_of(options) if options else None
        return load_results(Path(name), jobs=1, statements=statements)


def read_as(log: WholeLog, content: str) -> Results:
    """What is read of this content in the place of the log."""
    content_of_path = {log.path: content.encode("utf-8", "surrogateescape")}
    return read_tree(content_of_path, options=log.options)


def throughput(results: Results) -> float | None:
    """That of the only counted run; None if none is counted."""
    rows = results.frame[results.frame["valid"]]
    values = rows[rows["metric"] == "samples_per_second"]["value"].tolist()
    return values[0] if values else None
