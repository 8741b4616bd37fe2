"""Logs of every format that are cut, wrapped or otherwise damaged: each is refused, or gives the
number that a few lines of Python compute from the whole log."""

from __future__ import annotations

import re
from functools import partial, reduce
from statistics import fmean
from typing import NamedTuple

import pytest
from bert_logs import RULE as BERT
from bert_logs import bert
from damaged_lines import damaged, wrapped
from hypothesis import example, given, settings
from hypothesis import strategies as st
from make_logs import (
    ARCFACE_TORCH,
    CONVNETS,
    LLAMA,
    MAXTEXT,
    MEGATRON,
    ONEFLOW,
    RULES,
    TENSORFLOW,
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

from dlperf_runner import logs
from dlperf_runner.catalog.rule import Rule
from dlperf_runner.core.case import Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.measure.estimators import Expected
from dlperf_runner.measure.run import measure


class Made(NamedTuple):
    """A log; how to find steps and rates in it; and which of them count, by step."""

    form: str
    lines: list[str]
    rule: Rule
    pattern: str
    first: int
    last: int
    world: int = 1


GLUON = r"Epoch\[0\] Batch\[(\d+)\]\tSpeed: ([\d.]+) "
TAG = "[1,0]<stdout>:"
MADE = {
    "gluoncv": Made(
        "gluoncv_horovod", gluoncv(384.25, world=1), RULES["mxnet-resnet50v1b.md"], GLUON, 21, 120
    ),
    "gluoncv, tagged": Made(
        "gluoncv_horovod",
        [TAG + line for line in gluoncv(384.25, world=1)],
        *(RULES["mxnet-resnet50v1b.md"], GLUON, 21, 120),
    ),
    "speedometer": Made(
        "mxnet_speedometer",
        speedometer(234.2),
        RULES["mxnet-insightface-arcface.md"],
        *(r"Batch \[\d+-(\d+)\]\tSpeed: ([\d.]+) ", 40, 120),
    ),
    "oneflow": Made(
        *("oneflow_benchmark", oneflow(384.25, times=True), ONEFLOW),
        *(r"iter (\d+),.*samples/s: ([\d.]+)", 40, 200),
    ),
    "plsc": Made(
        *("plsc", plsc(397.75), RULES["paddle-plsc-arcface.md"]),
        *(r"batch:(\d+) .*qps:([\d.]+)", 50, 149),
    ),
    "plsc, four trainers": Made(
        *("plsc", plsc_of(4), RULES["paddle-plsc-arcface.md"]),
        *(r"batch:(\d+) .*qps:([\d.]+)", 50, 149, 4),
    ),
    "dllogger": Made(
        "dllogger",
        dllogger(384.2512345678901, 1, amp=False, final=380.0123456789, batch=128),
        *(TENSORFLOW, r", (\d+)\) total_ips : ([\d.]+)", 250, 490),
    ),
    "dllogger, tagged": Made(
        "dllogger",
        dllogger(384.2512345678901, 1, amp=False, final=380.0123456789, batch=128, tag=TAG),
        *(TENSORFLOW, r", (\d+)\) total_ips : ([\d.]+)", 250, 490),
    ),
    "dllogger_pytorch": Made(
        "dllogger_pytorch",
        dllogger_pytorch(2480.33, batch=128, world=1),
        *(CONVNETS, r"Iteration: (\d+) .*total_ips : ([\d.]+)", 30, 100),
    ),
    "dllogger_pytorch, JSON": Made(
        "dllogger_pytorch",
        dllogger_pytorch(2480.3298, batch=128, world=1, as_json=True),
        *(CONVNETS, r'"step": \[0, (\d+)\].*total_ips": ([\d.]+)', 30, 100),
    ),
    "arcface_torch": Made(
        "arcface_torch",
        arcface_torch(2271.33, world=1),
        *(ARCFACE_TORCH, r"-(?=Speed .* 0   Global Step: (\d+))Speed ([\d.]+) ", 30, 100),
    ),
    "torchtitan": Made(
        "torchtitan",
        torchtitan(6835, batch=128),
        *(LLAMA, r"- step: +(\d+) .*tps: ([\d,]+)", 30, 100),
    ),
    "maxtext": Made(
        "maxtext",
        maxtext(8671.794, batch=128),
        *(MAXTEXT, r"completed step: (\d+).*Tokens/s/device: ([\d.]+)", 10, 29),
    ),
    "megatron": Made(
        "megatron",
        megatron(123.4, batch=128, world=1),
        *(MEGATRON, r"iteration +(\d+)/.*iteration \(ms\): ([\d.]+)", 30, 100),
    ),
    "dllogger_bert": Made(
        *("dllogger_bert", bert(0.25), BERT),
        *(r"(?=DLL .*Iteration: (\d+)  average).*?:(\d\d:\d\d\.\d+) -", 20, 99),
    ),
    "dllogger_bert, JSON": Made(
        *("dllogger_bert", bert(0.25, as_json=True), BERT),
        *(r'(?=.* \[0, (\d+)\], "data": ."average)DLLL ."timestamp": "([\d.]+)"', 20, 99),
    ),
    "nccl_tests": Made(
        "nccl_tests",
        nccl_tests(largest=2**34),
        Rule(total_steps=20, warmup_steps=0, log_every=20, estimator="mean_of_rates"),
        *(r"^ +(?=17179869184)()\d+ .*? -1 +[\d.]+ +[\d.]+ +([\d.]+)", 0, 0, 8),
    ),
    "dllogger, 32 devices": Made(
        "dllogger",
        dllogger(384.2512345678901, 32, amp=False, final=380.0123456789, batch=128),
        *(TENSORFLOW, r"\(()\) train_throughput : ([\d.]+)", 0, 0, 32),
    ),
}


def reference(made: Made) -> float:
    if made.form == "dllogger_bert":  # from the line that ends the warm-up to the last one
        times = [
            reduce(lambda minutes, seconds: 60 * minutes + seconds, map(float, time.split(":")))
            for line in made.lines
            for step, time in re.findall(made.pattern, line)
            if made.first <= int(step) <= made.last
        ]
        return 128 * (len(times) - 1) / (times[-1] - times[0])
    rates = [
        round(float(rate.replace(",", "")), 1 if made.rule.round_rates_to else 99)
        for line in made.lines
        for step, rate in re.findall(made.pattern, line)
        if made.first <= int(step or 0) <= made.last
    ]
    if made.form == "megatron":  # samples over time, from milliseconds
        return 128 * 1000 / fmean(rates)
    return fmean(rates)


def number(made: Made, content: str) -> float:
    """The throughput that is reported. Raises UserError or LineError if the log is refused."""
    form, pieces = logs.formats()[made.form], [content.encode()]
    topology = Topology(4, 8) if made.world == 32 else Topology(1, made.world)
    precisions = {"maxtext": "bf16", "megatron": "bf16"}
    precisions |= dict.fromkeys(("arcface_torch", "dllogger_pytorch"), "amp")
    precision = precisions.get(made.form, "fp32")
    expected = Expected(lambda _: "the plan", topology, precision, 128)
    line_of = partial(logs.line_of, form, pieces)
    found, _, _ = measure(form, logs.parse(form, pieces), made.rule, expected, line_of, "log")
    return found.measurements[0].value


WAYS = ("cut", "lose lines", "repeat elsewhere", "wrap", "wrap a line", "overwrite")


@pytest.mark.parametrize("name", MADE)
def test_whole_log_gives_the_number_of_the_reference(name: str) -> None:
    made = MADE[name]
    found = number(made, "\n".join(made.lines) + "\n")
    assert found == pytest.approx(reference(made), rel=1e-12)


def test_every_format_is_mutated() -> None:
    assert {made.form for made in MADE.values()} == set(logs.formats())


@settings(max_examples=600, deadline=None)
@given(st.data(), st.sampled_from(sorted(MADE)))
def test_mutated_log_is_refused_or_gives_the_number_of_the_reference(
    data: st.DataObject, name: str
) -> None:
    made = MADE[name]
    try:
        found = number(made, data.draw(damaged(made.lines, WAYS, "x ,-.e\x00é\t")))
    except (UserError, logs.LineError):
        return
    assert found == pytest.approx(reference(made), rel=1e-12)


@settings(deadline=None)
@given(st.sampled_from(sorted(MADE)), st.integers(20, 130))
@example("oneflow", 88)  # samples/s: 38, or 3
@example("dllogger", 60)
def test_wrapped_log_is_refused_or_gives_the_number_of_the_reference(name: str, width: int) -> None:
    made = MADE[name]
    try:
        found = number(made, wrapped(made.lines, width))
    except (UserError, logs.LineError):
        return
    assert found == pytest.approx(reference(made), rel=1e-12)
