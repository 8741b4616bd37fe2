"""What a log must confirm before it is measured, and damage that is refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_logs import ONEFLOW, TENSORFLOW, dllogger, gluoncv, oneflow, plsc, speedometer
from measured_logs import ARCFACE, FIXTURES, PLSC, RESNET, changed, run, values

from dlperf_runner.core.errors import UserError
from dlperf_runner.measure.estimators import Rule

approx = pytest.approx


@pytest.mark.parametrize(
    ("line", "topology", "precision", "batch", "message"),
    [
        ("Namespace(batch_size=64)", "1n1g", "fp32", 128, "batch size .*expected 128, found 64"),
        ("world_size=4", "1n8g", "fp32", 128, "world size .*expected 8, found 4"),
        ("Namespace(dtype='float16')", "1n1g", "fp32", 128, "precision .*fp32, found fp16"),
        ("Namespace(iterations=12)", "1n1g", "fp32", 128, "steps .*expected 120, found 12"),
    ],
)
def test_statement_that_contradicts_the_plan(
    line: str, topology: str, precision: str, batch: int, message: str
) -> None:
    lines = [f"INFO:root:{line}", *gluoncv(9.0, batch=None)]
    with pytest.raises(UserError, match=f"^train.log:1: the .*{message}"):
        run("gluoncv_horovod", lines, RESNET, topology, precision, batch)


def test_what_the_log_states_is_known() -> None:
    assert run("gluoncv_horovod", gluoncv(9.0, batch=None), RESNET).confirmed == frozenset()
    found = run("gluoncv_horovod", gluoncv(9.0, world=1), RESNET).confirmed
    assert found == {"batch size", "world size", "precision"}


# ---- damage


def speed(step: int, rate: object = "5.00") -> str:
    return f"INFO:root:Epoch[0] Batch[{step}]\tSpeed: {rate} samples/sec"


@pytest.mark.parametrize("rate", ["0", "0.00", "-3.5", "nan", "inf", "1e400", "-inf", "1e15"])
@pytest.mark.parametrize("step", [2, 118])
def test_impossible_rate(rate: str, step: int) -> None:
    lines = [speed(n, rate if n == step else "5.00") for n in range(1, 121)]
    with pytest.raises(UserError) as caught:
        run("gluoncv_horovod", lines, RESNET)
    assert caught.value.where == f"train.log:{step}"
    assert caught.value.found == rate
    assert caught.value.expected == "a number above 0 and below 1e+12"


def test_missing_step() -> None:
    lines = [speed(n) for n in range(1, 121) if n != 117]
    with pytest.raises(UserError) as caught:
        run("gluoncv_horovod", lines, RESNET)
    error = caught.value
    assert (error.where, error.problem) == ("train.log:117", "step 118 follows 116")
    assert (error.expected, error.found) == ("117", "118")
    assert "truncated?" in str(error)


@pytest.mark.parametrize(
    ("order", "problem"),
    [
        ([*range(1, 51), 50, *range(51, 121)], "step 50 repeats line 50"),
        ([*range(1, 51), 49, *range(51, 121)], "step 49 follows 50"),
        ([*range(1, 121), *range(1, 121)], "step 1 follows 120"),
        (range(30, 121), "the first step is 30"),
        (range(1, 122), "the log has more steps than the calculation rule"),
        (range(1, 93), "the log ends with step 92"),
        (range(1, 121, 2), "step 3 follows 1"),
    ],
)
def test_steps_that_are_not_those_of_the_plan(order: list[int], problem: str) -> None:
    with pytest.raises(UserError) as caught:
        run("gluoncv_horovod", [speed(step) for step in order], RESNET)
    assert caught.value.problem == problem
    assert str(caught.value.where).startswith("train.log:")
    assert caught.value.expected
    assert caught.value.found


@pytest.mark.parametrize(
    ("name", "form", "rule"),
    [
        ("arcface_y1_b2_train_cpu", "mxnet_speedometer", ARCFACE),  # the epoch had 120 batches
        ("arcface_y1_b2_train_parall_cpu", "mxnet_speedometer", ARCFACE),
        ("r50_b4_1n1g_cpu", "plsc", PLSC),  # aborted
        ("rn50_b2_fp32_1n1g_cpu", "gluoncv_horovod", RESNET),
    ],
)
def test_real_logs_that_ended_early(name: str, form: str, rule: Rule) -> None:
    data = (FIXTURES / form / f"{name}.log").read_bytes()
    with pytest.raises(UserError, match="the log ends with step"):
        run(form, data, rule, batch=4 if form == "plsc" else 2)


def test_real_log_whole_by_its_own_rule() -> None:
    data = (FIXTURES / "gluoncv_horovod" / "rn50_b2_fp32_1n1g_cpu.log").read_bytes()
    rule = Rule(estimator="mean_of_rates", total_steps=30, warmup_steps=28)
    found = values(run("gluoncv_horovod", data, rule, batch=2))
    assert found["samples_per_second mean_of_rates"] == approx((2.37 + 2.69) / 2)


@pytest.mark.parametrize(
    ("name", "rule", "topology", "batch", "value"),
    [
        # (41.1 + 41.0 + 41.8 + 40.4) / 4
        (
            "mxnet_speedometer/arcface_y1_b4_1n2g_builtin_cpu",
            changed(ARCFACE, total_steps=10, warmup_steps=2, log_every=2),
            *("1n2g", 4, 164.3 / 4),
        ),
        # 4.976528 + 5.341662 + 7.302606 + 5.623811 + 5.938023 + 5.278616 = 34.461246, of six
        (
            "dllogger/tf_rn50_b2_2n2g_builtin_cpu",
            Rule(estimator="mean_of_rates", total_steps=8, warmup_steps=2),
            *("2n2g", 2, 34.461246 / 6),
        ),
        # 6.66 + 6.52 + 6.64 + 8.40 + 8.34 + 7.34 = 43.90, of six
        (
            "plsc/r50_b4_2n2g_builtin_cpu",
            changed(PLSC, total_steps=8, warmup_steps=2),
            *("2n2g", 4, 43.90 / 6),
        ),
        # 4.231593 + 4.140910 + 4.008767 + 3.351039 + 3.575051 + 3.300721 + 3.548204 + 3.509093
        # = 29.665378, of eight
        (
            "gluoncv_horovod/rn50_b2_fp32_2n2g_builtin_cpu",
            Rule(estimator="mean_of_rates", total_steps=12, warmup_steps=4),
            *("2n2g", 2, 29.665378 / 8),
        ),
    ],
)
def test_real_logs_of_the_lab_confirm_all_of_the_plan(
    name: str, rule: Rule, topology: str, batch: int, value: float
) -> None:
    data = (FIXTURES / f"{name}.log").read_bytes()
    found = run(name.partition("/")[0], data, rule, topology, batch=batch)
    assert values(found)["samples_per_second mean_of_rates"] == approx(value, rel=1e-6)
    confirmed = {"batch size", "world size", "precision", "number of steps"}
    confirmed |= {"number of warm-up steps"} if name.startswith("dllogger") else set()
    confirmed |= {"network"} if name.startswith(("dllogger", "mxnet_speedometer")) else set()
    assert found.confirmed == confirmed


def test_no_step_at_all() -> None:
    with pytest.raises(UserError, match="the log has no rate of a single step"):
        run("gluoncv_horovod", "nothing\n", RESNET)


def test_closer_lines_than_the_rule_knows_are_no_damage() -> None:
    lines = [f"INFO:root:Iter[0] Batch [{n}]\tSpeed: {n}.0 samples/sec" for n in range(10, 121, 10)]
    # (30 + 40 + ... + 120) / 10
    found = values(run("mxnet_speedometer", lines, ARCFACE))
    assert found["samples_per_second mean_of_rates"] == 75.0


def test_ranks_that_print_the_same_line_are_one() -> None:
    lines = [
        f"[1,{rank}]<stdout>:{speed(n, rate)}"
        for n in range(1, 121)
        for rank, rate in ((3, "5.00"), (0, "5.10"))
    ]
    found = values(run("gluoncv_horovod", lines, RESNET))
    assert found["samples_per_second mean_of_rates"] == 5.0


def test_ranks_whose_rates_differ_are_ambiguous() -> None:
    """Two runs of eight devices each, started by one mpirun, or with one log."""
    lines = [
        f"[1,{rank}]<stdout>:{speed(n, rate)}"
        for n in range(1, 121)
        # The first steps of a run differ, whatever it is.
        for rank, rate in ((0, "700.00"), (8, "300.00" if n > 1 else "700.00"))
    ]
    with pytest.raises(UserError) as caught:
        run("gluoncv_horovod", lines, RESNET)
    error = caught.value
    assert error.problem == "the ranks 0 and 8 print different rates of the same steps"
    assert (error.where, error.found) == ("train.log:240", "300")
    assert error.expected == "about 700, as in line 239"
    assert "keep the lines of one" in str(error.hint)


@pytest.mark.parametrize(
    ("final", "difference"),
    [(384.25, None), (387.0, None), (420.0, "9.3 % above"), (350.0, "8.9 % below")],
)
def test_final_rate_that_is_not_that_of_the_steps_is_noted(
    final: float, difference: str | None
) -> None:
    lines = dllogger(384.25, 1, amp=False, final=final, batch=128)
    note = (
        f"train.log: the rate that the program prints at its end, {final:g}, is {difference} the"
        " mean of the rates of its steps, 384.25"
    )
    assert run("dllogger", lines, TENSORFLOW).notes == ((note,) if difference else ())


# The last lines of logs without a newline at the end, and what the log is read as.
@pytest.mark.parametrize(
    ("form", "lines", "rule"),
    [
        ("oneflow_benchmark", oneflow(384.25), ONEFLOW),
        ("plsc", plsc(397.75), PLSC),
        ("dllogger", dllogger(384.25, 1, amp=False, final=380.25, batch=128)[:-1], TENSORFLOW),
        ("dllogger", dllogger(384.25, 1, amp=False, final=380.25, batch=128), TENSORFLOW),
    ],
)
def test_last_line_without_a_newline_is_read(form: str, lines: list[str], rule: Rule) -> None:
    """Two or three decimals, always, or a blank behind the rate show that the last rate is whole;
    one that was cut is refused or, where steps are missing then, the log."""
    whole, text = run(form, lines, rule), "\n".join(lines)
    assert values(run(form, text, rule)) == values(whole)
    for cut in range(1, 12):
        with contextlib.suppress(UserError):
            assert run(form, text[:-cut], rule).measurements[0] == whole.measurements[0]


def test_final_rate_with_the_blank_of_dllogger_and_no_newline() -> None:
    lines = dllogger(384.25, 32, amp=False, final=380.123456789, batch=128)
    text = "\n".join(lines).removesuffix("images/s")
    found = values(run("dllogger", text, TENSORFLOW, "4n8g"))
    assert found["samples_per_second final_value"] == 380.123456789
    for cut in range(1, 8):
        with pytest.raises(UserError, match="the log ends in the middle of this line"):
            run("dllogger", text[:-cut], TENSORFLOW, "4n8g")


@pytest.mark.parametrize("loss", ["nan", "inf"])
def test_loss_that_is_no_number_is_said(loss: str) -> None:
    text = "\n".join(gluoncv(9.0)).replace("Loss[7.600]", f"Loss[{loss}]")
    found = run("gluoncv_horovod", text, RESNET)
    assert found.notes == ("train.log: the loss is not finite from step 40 on",)


@given(st.lists(st.integers(-2, 125), max_size=140))
def test_a_value_means_that_every_step_is_there(order: list[int]) -> None:
    text = "".join(speed(step, "5") + "\n" for step in order)
    try:
        run("gluoncv_horovod", text, RESNET)
    except UserError as error:
        assert str(error.where).startswith("train.log")
    else:
        assert order == list(range(1, 121))


@given(st.floats(0.01, 1e6))
def test_mean_of_equal_rates_is_the_rate(rate: float) -> None:
    rate = round(rate, 2)
    found = values(run("gluoncv_horovod", [speed(n, rate) for n in range(1, 121)], RESNET))
    assert found["samples_per_second mean_of_rates"] == approx(rate)


@given(st.floats(20, 2000))
def test_made_logs_of_arcface_have_their_speed(rate: float) -> None:
    # What the golden tests stand on: five rates of one digit have a mean in steps of 0.02.
    rate = round(round(rate * 50) / 50, 2)
    found = values(run("mxnet_speedometer", speedometer(rate), ARCFACE))
    assert found["samples_per_second mean_of_rates"] == approx(rate)
