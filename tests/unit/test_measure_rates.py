"""Rates that cover several steps, and the rate that a program prints at its end."""

import pytest
from make_logs import ARCFACE_TORCH, CONVNETS, LLAMA, MEGATRON, ONEFLOW, TENSORFLOW
from measured_logs import ARCFACE, PLSC, RESNET, changed, dll, run, values

from dlperf_runner.core.errors import UserError
from dlperf_runner.measure.estimators import Measured, Rule

approx = pytest.approx


# How a format states the interval of its rates, if it does.
STATED = {
    "gluoncv_horovod": "INFO:root:Namespace(log_interval={})",
    "mxnet_speedometer": "Called with argument: Namespace(frequent={})",
    "oneflow_benchmark": "loss_print_every_n_iter = {}",
    "plsc": "INFO x y] Set log period to {}.",
    "arcface_torch": "Training: 2022-03-01 10:00:00,123-: frequent                 {}",
    "dllogger_pytorch": "DLL 2022-06-14 15:40:21.026182 - PARAMETER print_freq : {} ",
    "megatron": f"  log_interval {'.' * 36} {{}}",
}
DLL = "DLL 2022-06-14 15:40:21.026182 -"
LINES = {
    "gluoncv_horovod": "Epoch[0] Batch[{step}]\tSpeed: {rate:.3f} samples/sec",
    "mxnet_speedometer": "Iter[0] Batch [{step}]\tSpeed: {rate:.3f} samples/sec",
    "oneflow_benchmark": "train: epoch 0, iter {step}, samples/s: {rate:.3f}",
    "plsc": "INFO 2021-03-12 10:00:00,000 x] Pass:0 batch:{before} loss:4.5 qps:{rate:.2f}",
    "arcface_torch": "Training: Speed {rate:.2f} samples/sec   Loss 1.5   LearningRate 0.1"
    "   Epoch: 0   Global Step: {step}   Required: 1 hours",
    "dllogger_pytorch": f"{DLL} Epoch: 0 Iteration: {{step}}  train.loss : 1.5  train.total_ips"
    " : {rate:.2f} img/s",
    "torchtitan": "step: {step:2}  loss:  1.50000  memory: 40.50GiB(51.20%)  tps: {rate:,.0f}"
    "  mfu: 1.20%",
    # Its rate is the time of a step, here of 64 samples.
    "megatron": " iteration {step:8d}/ 100 | elapsed time per iteration (ms): {milliseconds:.1f} |"
    " global batch size:    64 | lm loss: 1.5E+00 |",
}


def printed_steps(form: str, every: int, total: int) -> list[int]:
    """The steps whose lines have a rate."""
    first = {"plsc": 1, "arcface_torch": 2 * every}.get(form, every)
    steps = list(range(first, total + 1, every))
    return sorted({1, *steps}) if form in ("torchtitan", "megatron") else steps


def in_intervals(form: str, every: int, total: int, warmup: int) -> list[str]:
    """A log with a rate every so many steps, whose warm-up takes 100 times as long: 64 samples/s
    after it, in every format."""
    lines = [STATED[form].format(every)] if form in STATED else []
    covered = every if form == "arcface_torch" else 0
    for step in printed_steps(form, every, total):
        cost = sum(100.0 if n <= warmup else 1.0 for n in range(covered + 1, step + 1))
        seconds, covered = cost / (step - covered), step
        values_ = {"rate": max(1, 64 / seconds) if form == "torchtitan" else 64 / seconds}
        lines.append(
            LINES[form].format(step=step, before=step - 1, milliseconds=1000 * seconds, **values_)
        )
    return lines


INTERVALS = {
    "gluoncv_horovod": RESNET,
    "mxnet_speedometer": ARCFACE,
    "oneflow_benchmark": ONEFLOW,
    "plsc": PLSC,
    "arcface_torch": ARCFACE_TORCH,
    "dllogger_pytorch": CONVNETS,
    "torchtitan": LLAMA,
    "megatron": changed(MEGATRON, estimator="mean_of_rates"),
}


@pytest.mark.parametrize("form", INTERVALS)
@pytest.mark.parametrize("every", [1, 2, 3, 7, 20, 30, 40, 50, 60, 74])
def test_rate_whose_steps_begin_in_the_warm_up_does_not_count(form: str, every: int) -> None:
    per_step = form == "megatron"
    rule = changed(INTERVALS[form], rates_are_per="step" if per_step else "world")
    lines = in_intervals(form, every, rule.total_steps, rule.warmup_steps)
    try:
        found = values(run(form, lines, rule, batch=64, precision="amp"))
    except UserError as error:
        assert error.problem == refusal(form, every, rule)
        assert every > longest(form, rule)
    else:
        assert found["samples_per_second mean_of_rates"] == approx(64.0, rel=1e-12)
        assert every <= longest(form, rule)


def refusal(form: str, every: int, rule: Rule) -> str:
    """Why a log whose rates all begin in the warm-up is refused."""
    steps = printed_steps(form, every, rule.total_steps)
    if not steps:
        return "the log has no rate of a single step"
    if form not in STATED and len(steps) < 3:  # nothing shows that no step between is missing
        return f"the first step is {every}"
    return "no rate is left after the warm-up"


def longest(form: str, rule: Rule) -> int:
    """The longest interval for which a rate covers only steps after the warm-up."""
    return max(
        every
        for every in range(1, 201)
        for step in printed_steps(form, every, rule.total_steps)
        if step - every >= rule.warmup_steps
    )


@pytest.mark.parametrize(
    ("form", "every", "needed"),
    # gluon-cv: the lines 60 and 120. PLSC counts from 0: the lines 0, 74 and 148, of which the last
    # covers the batches 75 to 148.
    [("gluoncv_horovod", 120, 60), ("plsc", 100, 74)],
)
def test_interval_that_leaves_nothing_is_refused_with_what_it_needed(
    form: str, every: int, needed: int
) -> None:
    rule = INTERVALS[form]
    with pytest.raises(UserError) as caught:
        run(form, in_intervals(form, every, rule.total_steps, rule.warmup_steps), rule)
    assert caught.value.problem == "no rate is left after the warm-up"
    assert str(caught.value.expected).startswith(f"a rate every {needed} steps or fewer")
    assert caught.value.found == f"rates of {every} steps each"


@pytest.mark.parametrize("form", STATED)
@pytest.mark.parametrize("stated", [2, 10])
def test_rates_at_another_interval_than_the_log_states_are_refused(form: str, stated: int) -> None:
    """How many steps a rate covers is then unknown, and with it the measured window."""
    rule = INTERVALS[form]
    head = in_intervals(form, stated, rule.total_steps, rule.warmup_steps)[0]
    steps = in_intervals(form, 1, rule.total_steps, rule.warmup_steps)[1:]
    with pytest.raises(UserError) as caught:
        run(form, [head, *steps], rule, batch=64, precision="amp")
    assert caught.value.expected == f"a rate every {stated} steps"
    assert caught.value.found == "a rate every step"


def test_dllogger_prints_the_rate_of_a_single_step() -> None:
    """Every tenth step: the line of step 201 says nothing of those before."""
    rule = changed(TENSORFLOW, drop_first_values=0, warmup_steps=200)
    found = values(run("dllogger", dll(200, 10, None), rule))
    assert found["samples_per_second mean_of_rates"] == 33000.0


# ---- the rate that a program prints at its end


def of_32_devices(lines: list[str]) -> Measured:
    return run("dllogger", lines, TENSORFLOW, "4n8g", "amp", 256)


def test_second_final_rate_is_refused_with_both_lines() -> None:
    lines = dll(200, 10, "33317.5")
    with pytest.raises(UserError) as caught:
        of_32_devices([*lines, lines[-1].replace("33317.5", "33000.5")])
    assert caught.value.where == f"train.log:{len(lines) + 1}"
    assert caught.value.problem == f"the rate of the whole run repeats line {len(lines)}"
    assert caught.value.found == "33317.5, then 33000.5"
