"""Rates that cover several steps, and the rate that a program prints at its end."""

from __future__ import annotations

import pytest
from make_logs import ONEFLOW, TENSORFLOW, gluoncv, oneflow, plsc
from measured_logs import ARCFACE, PLSC, RESNET, changed, dll, run, values

from dlperf_runner.core.errors import UserError
from dlperf_runner.measure.estimators import Measured, Rule

approx = pytest.approx


def in_intervals(form: str, every: int, total: int, warmup: int) -> list[str]:
    """A log with a rate every so many steps, whose warm-up takes 100 times as long: 64 samples/s
    after it, in every format."""
    first, cost = (1, 0.0) if form == "plsc" else (every, 0.0)
    lines, covered = [], 0
    if form == "gluoncv_horovod":
        lines.append(f"INFO:root:Namespace(log_interval={every})")
    elif form == "mxnet_speedometer":
        lines.append(f"Called with argument: Namespace(frequent={every})")
    elif form == "oneflow_benchmark":
        lines.append(f"loss_print_every_n_iter = {every}")
    elif form == "plsc":
        lines.append(f"INFO x y] Set log period to {every}.")
    for step in range(first, total + 1, every):
        cost = sum(100.0 if n <= warmup else 1.0 for n in range(covered + 1, step + 1))
        rate, covered = 64 * (step - covered) / cost, step
        lines.append(
            {
                "gluoncv_horovod": f"Epoch[0] Batch[{step}]\tSpeed: {rate:.3f} samples/sec",
                "mxnet_speedometer": f"Iter[0] Batch [{step}]\tSpeed: {rate:.3f} samples/sec",
                "oneflow_benchmark": f"train: epoch 0, iter {step}, samples/s: {rate:.3f}",
                "plsc": f"INFO 2021-03-12 10:00:00,000 x] Pass:0 batch:{step - 1} loss:4.5"
                f" qps:{rate:.2f}",
            }[form]
        )
    return lines


INTERVALS = {
    "gluoncv_horovod": RESNET,
    "mxnet_speedometer": ARCFACE,
    "oneflow_benchmark": ONEFLOW,
    "plsc": PLSC,
}


@pytest.mark.parametrize("form", INTERVALS)
@pytest.mark.parametrize("every", [1, 2, 3, 7, 20, 30, 40, 50, 60, 74])
def test_rate_whose_steps_begin_in_the_warm_up_does_not_count(form: str, every: int) -> None:
    rule = changed(INTERVALS[form], rates_are_per="world")
    lines = in_intervals(form, every, rule.total_steps, rule.warmup_steps)
    try:
        found = values(run(form, lines, rule))
    except UserError as error:
        assert error.problem == "no rate is left after the warm-up"
        assert every > longest(form, rule)
    else:
        assert found["samples_per_second mean_of_rates"] == 64.0
        assert every <= longest(form, rule)


def longest(form: str, rule: Rule) -> int:
    """The longest interval for which a rate covers only steps after the warm-up."""
    first = {every: 1 if form == "plsc" else every for every in range(1, 201)}
    return max(
        every
        for every, start in first.items()
        for step in range(start, rule.total_steps + 1, every)
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
    assert caught.value.found == f"a rate every {every} steps"


@pytest.mark.parametrize("form", INTERVALS)
@pytest.mark.parametrize("stated", [2, 10])
def test_rates_at_another_interval_than_the_log_states_are_refused(form: str, stated: int) -> None:
    """How many steps a rate covers is then unknown, and with it the measured window."""
    rule = INTERVALS[form]
    head = in_intervals(form, stated, rule.total_steps, rule.warmup_steps)[0]
    steps = in_intervals(form, 1, rule.total_steps, rule.warmup_steps)[1:]
    with pytest.raises(UserError) as caught:
        run(form, [head, *steps], rule)
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


@pytest.mark.parametrize("final", ["126", "333", "3331", "33317", "33317.", "33317.6 6"])
def test_final_rate_must_be_whole(final: str) -> None:
    lines = dll(200, 10, final)
    with pytest.raises(UserError, match=rf"^train.log:{len(lines)}: the rate is not "):
        of_32_devices(lines)


@pytest.mark.parametrize("final", ["126.0", "3331.7", "29600.0", "36400.5"])
def test_final_rate_must_agree_with_the_printed_rates(final: str) -> None:
    with pytest.raises(UserError) as caught:
        of_32_devices(dll(200, 10, final))
    error = caught.value
    assert "contradicts the rates of its steps" in error.problem
    assert error.expected == "within 10% of their mean, 33000"
    assert float(str(error.found)) == float(final)


@pytest.mark.parametrize("final", ["29800.0", "33317.669883074355", "36200.0"])
def test_final_rate_within_its_bound(final: str) -> None:
    assert values(of_32_devices(dll(200, 10, final)))[
        "samples_per_second final_value"
    ] == pytest.approx(float(final), abs=0.005)


def test_second_final_rate_is_refused_with_both_lines() -> None:
    lines = dll(200, 10, "33317.5")
    with pytest.raises(UserError) as caught:
        of_32_devices([*lines, lines[-1].replace("33317.5", "33000.5")])
    assert caught.value.where == f"train.log:{len(lines) + 1}"
    assert caught.value.problem == f"the rate of the whole run repeats line {len(lines)}"
    assert caught.value.found == "33317.5, then 33000.5"


@pytest.mark.parametrize(
    ("form", "good", "bad", "rule"),
    [
        ("plsc", "qps:2545.30", "qps:2 545.30", PLSC),
        ("plsc", "qps:2545.30", "qps:2,545.30", PLSC),
        ("plsc", "qps:2545.30", "qps:2545.3", PLSC),
        ("plsc", "qps:2545.30", "qps: 545.30", PLSC),
        ("oneflow_benchmark", "samples/s: 384.250", "samples/s: 38\n4.250", ONEFLOW),
        ("oneflow_benchmark", "samples/s: 384.250", "samples/s: 384.25\n0", ONEFLOW),
        ("oneflow_benchmark", "samples/s: 384.250", "samples/s: 3", ONEFLOW),
        ("dllogger", "33000.0", "33000", TENSORFLOW),
        ("dllogger", "33000.0", "33000.0 0", TENSORFLOW),
        ("dllogger", "33000.0", "33000.0\n1", TENSORFLOW),
        ("gluoncv_horovod", "Speed: 9.25 ", "Speed: 9.2e5 ", RESNET),
        ("gluoncv_horovod", "Speed: 9.25 ", "Speed: 925 ", RESNET),
    ],
)
def test_rate_that_is_not_whole_is_refused(form: str, good: str, bad: str, rule: Rule) -> None:
    lines = {
        "plsc": plsc(2545.55),
        "oneflow_benchmark": oneflow(384.25),
        "dllogger": dll(200, 10, None),
        "gluoncv_horovod": gluoncv(9.0),
    }[form]
    text = "\n".join(lines) + "\n"
    assert good in text
    run(form, text, rule)
    number = text[: text.index(good)].count("\n") + 1
    with pytest.raises(UserError, match=rf"^train.log:{number}: the rate is not "):
        run(form, text.replace(good, bad, 1), rule)


def test_oneflow_wrapped_at_88_columns_is_refused() -> None:
    """It was 14.7, the mean of 38 and 3, for 384.25."""
    lines = [line[at : at + 88] for line in oneflow(384.25) for at in (0, 88)]
    with pytest.raises(UserError, match="the rate is not"):
        run("oneflow_benchmark", lines, ONEFLOW)
