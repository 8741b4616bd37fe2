"""The published calculation rules, and logs that contradict what they should confirm."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from make_logs import (
    ONEFLOW,
    RULES,
    SHARED_LOGS,
    TENSORFLOW,
    dllogger,
    gluoncv,
    oneflow,
    plsc,
    plsc_of,
    speedometer,
)

from dlperf_runner import logs
from dlperf_runner.core.case import Topology
from dlperf_runner.core.errors import UserError
from dlperf_runner.measure.estimators import Expected, Measured, Rule
from dlperf_runner.measure.run import measure

approx = pytest.approx

FIXTURES = Path(__file__).resolve().parents[1] / "fixtures" / "logs"
RESNET = RULES["mxnet-resnet50v1b.md"]
ARCFACE = RULES["mxnet-insightface-arcface.md"]
PLSC = RULES["paddle-plsc-arcface.md"]


def changed(rule: Rule, **values: object) -> Rule:
    """The rule with other values."""
    return Rule.model_validate({**rule.model_dump(), **values})


def run(
    form: str,
    lines: list[str] | str | bytes,
    rule: Rule,
    topology: str = "1n1g",
    precision: str = "fp32",
    batch: int = 128,
) -> Measured:
    text = "\n".join(lines) + "\n" if isinstance(lines, list) else lines
    data = text.encode() if isinstance(text, str) else text
    expected = Expected(lambda _: "the plan", Topology.parse(topology), precision, batch)
    entry = logs.formats()[form]
    line_of = partial(logs.line_of, entry, [data])
    try:
        return measure(entry, logs.parse(entry, [data]), rule, expected, line_of, "train.log")[0]
    except logs.LineError as error:
        raise UserError(
            error.problem,
            where=f"train.log:{error.line}",
            expected=error.expected,
            found=error.found,
        ) from None


def values(measured: Measured) -> dict[str, float]:
    return {f"{m.metric} {m.estimator}": m.value for m in measured.measurements}


# ---- the published rules


def test_gluoncv_counts_steps_21_to_120() -> None:
    found = values(run("gluoncv_horovod", gluoncv(384.19), RESNET))
    assert found["samples_per_second mean_of_rates"] == 384.19
    # Half of the rates are 383.94 and half 384.44. No digit is dropped.
    harmonic = found["samples_per_second_harmonic_mean_of_rates harmonic_mean_of_rates"]
    assert harmonic == approx(2 / (1 / 383.94 + 1 / 384.44), rel=1e-12)
    assert found["loss_first as_printed"] == 7.99
    assert found["loss_last as_printed"] == 6.8


def test_value_carries_its_unit() -> None:
    (first, *_) = run("gluoncv_horovod", gluoncv(384.19), RESNET).measurements
    assert (first.metric, first.unit, first.estimator) == (
        "samples_per_second",
        "samples/s",
        "mean_of_rates",
    )


def test_arcface_rounds_five_lines_to_a_digit_and_counts_nodes() -> None:
    lines = [
        f"INFO:root:Iter[0] Batch [{20 * n}]\tSpeed: {rate} samples/sec"
        for n, rate in enumerate(("9.99", "100.04", "100.06", "100.11", "100.19", "100.21"), 1)
    ]
    # (100.0 + 100.1 + 100.1 + 100.2 + 100.2) / 5 = 100.12
    one = values(run("mxnet_speedometer", lines, ARCFACE))
    assert one["samples_per_second mean_of_rates"] == approx(100.12)
    two = values(run("mxnet_speedometer", lines, ARCFACE, "2n4g"))
    assert two["samples_per_second mean_of_rates"] == approx(200.24)
    device = values(
        run("mxnet_speedometer", lines, changed(ARCFACE, rates_are_per="device"), "1n4g")
    )
    assert device["samples_per_second mean_of_rates"] == approx(400.48)


def test_plsc_by_rates_and_by_time_stamps() -> None:
    found = values(run("plsc", plsc(397.78), PLSC, "1n4g"))
    assert found["samples_per_second mean_of_rates"] == 397.78
    # A batch a second: 4 devices of 128 samples.
    assert found["samples_per_second_time_stamps time_stamps"] == 512.0


@pytest.mark.parametrize("every", [1, 10])
@pytest.mark.parametrize(("trainers", "topology"), [(4, "1n4g"), (8, "1n8g"), (2, "1n2g")])
def test_plsc_takes_the_lines_of_all_trainers(trainers: int, topology: str, every: int) -> None:
    """As the published script does: the mean of every line from batch 50 to 149."""
    found = run("plsc", plsc_of(trainers, every), PLSC, topology)
    mean = sum(100 + k for k in range(trainers)) / trainers
    assert values(found)["samples_per_second mean_of_rates"] == mean
    # A batch a second.
    stamped = values(found)["samples_per_second_time_stamps time_stamps"]
    assert stamped == 128.0 * trainers
    assert values(found)["loss_last as_printed"] == 40.5


@pytest.mark.parametrize("lose", [100, 400, 604])
def test_plsc_lost_line_of_one_of_four_trainers(lose: int) -> None:
    with pytest.raises(UserError, match=r"3 processes printed step|step \d+ follows"):
        run("plsc", plsc_of(4, lose=lose), PLSC, "1n4g")


def test_plsc_one_log_per_node() -> None:
    """Of four nodes' trainers, a log has those of its own node only; each prints the world's."""
    lines = [line for line in plsc_of(4) if "trainer_id: 3" not in line and "qps:103" not in line]
    found = run("plsc", lines, PLSC, "4n1g")
    assert values(found)["samples_per_second mean_of_rates"] == 101.0
    assert found.confirmed == {"world size"}


def test_plsc_by_time_stamps_as_its_second_script() -> None:
    """From the line of batch 50 to that of batch 149: 99 batches of 128 samples."""
    lines = plsc(397.78)
    for batch, time in ((50, "10:00:50,500"), (149, "10:02:22,628")):
        lines[batch] = lines[batch].replace(lines[batch][16:28], time)
    found = values(run("plsc", lines, PLSC))
    assert found["samples_per_second_time_stamps time_stamps"] == approx(128 * 99 / 92.128)


def test_plsc_real_log_of_150_batches() -> None:
    path = FIXTURES / "plsc" / "r50_b2_1n1g_upstream_cpu.log"
    measured = run("plsc", path.read_bytes(), PLSC, batch=2)
    found = values(measured)
    # awk over the lines of batches 50 to 149.
    assert found["samples_per_second mean_of_rates"] == approx(487.87 / 100)
    # From 07:19:48,433 to 07:20:35,044.
    assert found["samples_per_second_time_stamps time_stamps"] == approx(99 * 2 / 46.611)
    assert measured.confirmed == {"batch size", "world size"}


def test_plsc_prints_one_batch_more_than_it_measures() -> None:
    assert "batch:150 " in plsc(5.0)[-1]
    run("plsc", plsc(5.0), PLSC)
    run("plsc", plsc(5.0)[:-1], PLSC)
    with pytest.raises(UserError, match="more steps than the calculation rule"):
        run("plsc", [*plsc(5.0), plsc(5.0)[-1].replace("batch:150", "batch:151")], PLSC)
    with pytest.raises(UserError, match="more steps than the calculation rule"):
        run("plsc", plsc(5.0), changed(PLSC, surplus_steps=0))


def test_plsc_with_a_line_every_ten_batches() -> None:
    lines = ["INFO 2021-03-12 10:00:00,000 entry.py:203] Set log period to 10."]
    lines += [line for line in plsc(100.0) if re.search(r"batch:\d*0 ", line)]
    # Batches 50, 60, ... 140, all even: 99.75 each.
    assert values(run("plsc", lines, PLSC))["samples_per_second mean_of_rates"] == 99.75


def test_oneflow_drops_the_first_line() -> None:
    path = FIXTURES / "oneflow_benchmark" / "rn50_b128_fp32_1n1g_report.log"
    found = values(run("oneflow_benchmark", path.read_bytes(), ONEFLOW))
    # The nine lines after the first; the table prints 385.096.
    assert found["samples_per_second mean_of_rates"] == approx(3465.861 / 9)


@pytest.mark.skipif(not SHARED_LOGS.is_dir(), reason="the logs of others are not beside this")
@pytest.mark.parametrize(
    ("name", "topology", "precision", "value"),
    [
        # Other runs than the table's 414.73 and 9310.31: of 2022-11, by another house. awk over the
        # 30 printed values, the first five left out: 415.786 and 9405.356.
        ("tf_rn50_b256_fp32_1n1g", "1n1g", "fp32", 415.79),
        ("tf_rn50_b256_amp_1n8g", "1n8g", "amp", 9405.36),
        ("tf_rn50_b256_amp_1n8g", "1n8g", "fp16", 9405.36),
    ],
)
def test_tensorflow_drops_five_values(
    name: str, topology: str, precision: str, value: float
) -> None:
    (path,) = (SHARED_LOGS / "dllogger").glob(f"{name}_v100_*.log")
    found = run("dllogger", path.read_bytes(), TENSORFLOW, topology, precision, 256)
    assert values(found)["samples_per_second mean_of_rates"] == approx(value, abs=0.005)
    assert found.confirmed == {
        "batch size",
        "world size",
        "precision",
        "number of steps",
        "number of warm-up steps",
    }


def dll(first: int, every: int, final: str | None, rate: float = 33000.0) -> list[str]:
    stamp = "Tue Jun 14 15:40:21 2022[1,0]<stdout>:DLL 2022-06-14 15:40:21.026182 -"
    lines = [f"{stamp} (0, {step}) total_ips : {rate}" for step in range(first, 500, every)]
    return lines + ([f"{stamp} () train_throughput : {final}"] if final else [])


@pytest.mark.parametrize("every", [10, 1])
def test_tensorflow_takes_the_final_value_of_32_devices(every: int) -> None:
    # Published as 33317.67. Those logs have a line every step, and state no interval.
    lines = dll(200, every, "33317.669883074355")
    found = values(run("dllogger", lines, TENSORFLOW, "4n8g", "amp", 256))
    assert found["samples_per_second final_value"] == 33317.669883074355
    assert found["samples_per_second_mean_of_rates mean_of_rates"] == 33000.0


@pytest.mark.parametrize("tag", ["", "Tue Jun 14 15:40:21 2022[1,0]<stdout>:"])
def test_tensorflow_prints_its_loss_in_the_mode_train(tag: str) -> None:
    """As TrainingLoggingHook of utils/hooks/training_hooks.py prints it: rate, then losses."""
    lines = dllogger(400.0, 1, amp=False, final=400.0, tag=tag, mode="train")
    found = values(run("dllogger", lines, TENSORFLOW, batch=256))
    assert found["samples_per_second mean_of_rates"] == 400.0
    assert found["loss_first as_printed"] == 6.8
    assert found["loss_last as_printed"] == 6.51


def test_tensorflow_without_the_final_value() -> None:
    with pytest.raises(UserError, match="no data for the estimator final_value"):
        run("dllogger", dll(200, 10, None), TENSORFLOW, "4n8g", "amp", 256)


def test_tensorflow_on_cpu_prints_from_the_first_step_after_warmup() -> None:
    path = FIXTURES / "dllogger" / "tf_rn50_1n2g_cpu_mpirun.log"
    rule = Rule(estimator="mean_of_rates", total_steps=8, warmup_steps=2)
    found = run("dllogger", path.read_bytes(), rule, "1n2g", batch=2)
    # 4.043695 + 3.335083 + 3.744543 + 4.227116 + 2.825682 + 3.678060 = 21.854179, of six.
    assert values(found)["samples_per_second mean_of_rates"] == approx(21.854179 / 6)


# ---- what a log must confirm


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
    found = values(
        run(
            "gluoncv_horovod",
            data,
            Rule(estimator="mean_of_rates", total_steps=30, warmup_steps=28),
            batch=2,
        )
    )
    assert found["samples_per_second mean_of_rates"] == approx((2.37 + 2.69) / 2)


def test_real_log_of_four_processes_confirms_all_of_the_plan() -> None:
    data = (FIXTURES / "gluoncv_horovod" / "rn50_b2_fp32_2n2g_builtin_cpu.log").read_bytes()
    rule = Rule(estimator="mean_of_rates", total_steps=12, warmup_steps=4)
    found = run("gluoncv_horovod", data, rule, "2n2g", batch=2)
    # 4.231593 + 4.140910 + 4.008767 + 3.351039 + 3.575051 + 3.300721 + 3.548204 + 3.509093
    # = 29.665378, of eight.
    assert values(found)["samples_per_second mean_of_rates"] == approx(29.665378 / 8)
    assert found.confirmed == {"batch size", "world size", "precision", "number of steps"}


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
    ],
)
def test_real_logs_of_the_lab_confirm_all_of_the_plan(
    name: str, rule: Rule, topology: str, batch: int, value: float
) -> None:
    data = (FIXTURES / f"{name}.log").read_bytes()
    found = run(name.partition("/")[0], data, rule, topology, batch=batch)
    assert values(found)["samples_per_second mean_of_rates"] == approx(value, rel=1e-6)
    warmup = {"number of warm-up steps"} if name.startswith("dllogger") else set()
    assert found.confirmed == {"batch size", "world size", "precision", "number of steps"} | warmup


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
        for rank, rate in ((3, "5.00"), (0, "6.00"))
    ]
    found = values(run("gluoncv_horovod", lines, RESNET))
    assert found["samples_per_second mean_of_rates"] == 5.0


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


# ---- a run that was started again


@pytest.mark.parametrize(
    ("again", "what", "values_", "topology"),
    [
        ("world_size=8", "world size", ("16", "8"), "2n8g"),
        ("Namespace(batch_size=64)", "batch size", ("128", "64"), "2n8g"),
        ("Namespace(dtype='float16')", "precision", ("fp32", "fp16"), "2n8g"),
        ("Namespace(iterations=60)", "number of steps", ("120", "60"), "2n8g"),
        ("Namespace(log_interval=2)", "log interval", ("1", "2"), "2n8g"),
    ],
)
@pytest.mark.parametrize("at", [100, -1])
def test_restart_with_other_settings_is_refused_with_both_lines(
    again: str, what: str, values_: tuple[str, str], topology: str, at: int
) -> None:
    lines = gluoncv(9.0, world=16)
    lines[1] = lines[1].replace("log_interval=1", "log_interval=1, iterations=120")
    first = 3 if what == "world size" else 2
    lines.insert(at, f"INFO:root:{again}")
    with pytest.raises(UserError) as caught:
        run("gluoncv_horovod", lines, RESNET, topology)
    error = caught.value
    assert error.problem == f"the {what} contradicts line {first}"
    assert error.where == f"train.log:{lines.index(f'INFO:root:{again}') + 1}"
    assert (error.expected, error.found) == values_
    assert "started again" in str(error)


def test_settings_that_are_stated_again_are_no_contradiction() -> None:
    lines = gluoncv(9.0, world=1)
    lines[200:200] = lines[1:3]
    assert run("gluoncv_horovod", lines, RESNET).confirmed >= {"batch size", "world size"}


# ---- rates that cover several steps


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
