"""The published calculation rules, and logs that contradict what they should confirm."""

import re

import pytest
from log_examples import example
from make_logs import ONEFLOW, TENSORFLOW, gluoncv, plsc, plsc_of
from measured_logs import ARCFACE, PLSC, RESNET, changed, dll, run, values

from dlperf_runner.core.errors import UserError
from dlperf_runner.logs import formats, parse
from dlperf_runner.measure.estimators import Rule
from dlperf_runner.measure.numbering import LogLines, numbering

approx = pytest.approx

# ---- the published rules


def test_gluoncv_counts_steps_21_to_120() -> None:
    found = values(run("gluoncv_horovod", gluoncv(384.19), RESNET))
    assert found["samples_per_second mean_of_rates"] == 384.19
    # Half of the rates are 383.94 and half 384.44. No digit is dropped.
    harmonic = found["samples_per_second_harmonic_mean_of_rates harmonic_mean_of_rates"]
    assert harmonic == approx(2 / (1 / 383.94 + 1 / 384.44), rel=1e-12)
    assert found["loss_first as_printed"] == 7.99
    assert found["loss_last as_printed"] == 6.8


def speeds(*rates: str) -> list[str]:
    line = "INFO:root:Iter[0] Batch [{}]\tSpeed: {} samples/sec".format
    return [line(20 * n, rate) for n, rate in enumerate(rates, 1)]


@pytest.mark.parametrize(
    ("topology", "changes", "value"),
    [
        ("1n1g", {}, 100.12),  # (100.0 + 100.1 + 100.1 + 100.2 + 100.2) / 5
        ("2n4g", {}, 200.24),
        ("1n4g", {"rates_are_per": "device"}, 400.48),
    ],
)
def test_arcface_rounds_five_lines_to_a_digit_and_counts_nodes(
    topology: str, changes: dict[str, str], value: float
) -> None:
    lines = speeds("9.99", "100.04", "100.06", "100.11", "100.19", "100.21")
    found = values(run("mxnet_speedometer", lines, changed(ARCFACE, **changes), topology))
    assert found["samples_per_second mean_of_rates"] == approx(value)


def test_a_rate_that_the_rule_rounds_to_nothing_has_no_step_time() -> None:
    lines = speeds("9.99", "0.04", "0.16", "0.16", "0.16", "0.16")
    found = values(run("mxnet_speedometer", lines, ARCFACE))
    assert found["samples_per_second mean_of_rates"] == approx((0 + 4 * 0.2) / 5)
    assert not [name for name in found if name.startswith("step_time")]


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


def test_plsc_one_log_per_node() -> None:
    """Of four nodes' trainers, a log has those of its own node only; each prints the world's."""
    lines = [line for line in plsc_of(4) if "trainer_id: 3" not in line and "qps:103" not in line]
    found = run("plsc", lines, PLSC, "4n1g")
    assert values(found)["samples_per_second mean_of_rates"] == 101.0
    assert found.confirmed == {"world size"}


def test_plsc_by_time_stamps_as_its_second_script() -> None:
    """From the line of batch 50 to that of batch 150: 100 batches of 128 samples. The script was
    never published. Its README and its sister of ResNet50 take the time of 100 iterations, from the
    last line of the warm-up (Oneflow-Inc/DLPerf 67b8984 and 8962fb7)."""
    lines = plsc(397.78)
    for batch, time in ((50, "10:00:50,500"), (150, "10:02:22,628")):
        lines[batch] = lines[batch].replace(lines[batch][16:28], time)
    found = values(run("plsc", lines, PLSC))
    assert found["samples_per_second_time_stamps time_stamps"] == approx(128 * 100 / 92.128)


def test_plsc_real_log_of_150_batches() -> None:
    measured = run("plsc", example("plsc/r50_b2_1n1g_upstream_cpu").data, PLSC, batch=2)
    found = values(measured)
    # awk over the lines of batches 50 to 149.
    assert found["samples_per_second mean_of_rates"] == approx(487.87 / 100)
    # From 07:19:48,433 to 07:20:35,389.
    assert found["samples_per_second_time_stamps time_stamps"] == approx(100 * 2 / 46.956)
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
    lines = [re.sub(r"batch:(\d+)(.*) qps:.*", r"batch:\1\2 qps:\1.50", line) for line in lines]
    # The report's 100 iterations: the lines of batches 60 to 150, which cover 51 to 150.
    found = values(run("plsc", lines, PLSC))
    assert found["samples_per_second mean_of_rates"] == 105.5
    # A line every batch, of which 50 to 149 are the 100: the last one is not needed.
    assert values(run("plsc", plsc(100.0), PLSC))["samples_per_second mean_of_rates"] == 100.0
    # Without the line of batch 150, 90 remain.
    assert values(run("plsc", lines[:-1], PLSC))["samples_per_second mean_of_rates"] == 100.5


def test_surplus_steps_count_only_in_place_of_others() -> None:
    last = {49: 150, 50: 150, 51: 151, 53: 153, 55: 155, 56: 155, 90: 155}
    rule = changed(PLSC, surplus_steps=5)
    assert {before: rule.last_step(before) for before in last} == last
    assert PLSC.last_step(60) == 151


def test_oneflow_drops_the_first_line() -> None:
    log = example("oneflow_benchmark/rn50_b128_fp32_1n1g_report")
    found = values(run("oneflow_benchmark", log.data, ONEFLOW))
    # The nine lines after the first; the table prints 385.096.
    assert found["samples_per_second mean_of_rates"] == approx(3465.861 / 9)


@pytest.mark.parametrize("every", [10, 1])
def test_tensorflow_takes_the_final_value_of_32_devices(every: int) -> None:
    # Published as 33317.67. Those logs have a line every step, and state no interval.
    lines = dll(200, every, "33317.669883074355")
    found = values(run("dllogger", lines, TENSORFLOW, "4n8g", "amp", 256))
    assert found["samples_per_second final_value"] == 33317.669883074355
    assert found["samples_per_second_mean_of_rates mean_of_rates"] == 33000.0


def test_tensorflow_without_the_final_value() -> None:
    with pytest.raises(UserError, match="no data for the estimator final_value"):
        run("dllogger", dll(200, 10, None), TENSORFLOW, "4n8g", "amp", 256)


def total(steps: int, warmup: int) -> Rule:
    return Rule(estimator="mean_of_rates", total_steps=steps, warmup_steps=warmup)


ARCFACE_CPU = changed(ARCFACE, total_steps=10, warmup_steps=2, log_every=2)
PLSC_CPU = changed(PLSC, total_steps=8, warmup_steps=2)


@pytest.mark.parametrize(
    ("name", "rule", "topology", "batch", "value"),
    [
        ("gluoncv_horovod/rn50_b2_fp32_1n1g_cpu", total(30, 28), "1n1g", 2, (2.37 + 2.69) / 2),
        # 4.043695 + 3.335083 + 3.744543 + 4.227116 + 2.825682 + 3.678060 = 21.854179, of six.
        ("dllogger/tf_rn50_1n2g_cpu_mpirun", total(8, 2), "1n2g", 2, 21.854179 / 6),
        # (41.1 + 41.0 + 41.8 + 40.4) / 4
        ("mxnet_speedometer/arcface_y1_b4_1n2g_builtin_cpu", ARCFACE_CPU, "1n2g", 4, 164.3 / 4),
        # 4.976528 + 5.341662 + 7.302606 + 5.623811 + 5.938023 + 5.278616 = 34.461246, of six
        ("dllogger/tf_rn50_b2_2n2g_builtin_cpu", total(8, 2), "2n2g", 2, 34.461246 / 6),
        # 6.66 + 6.52 + 6.64 + 8.40 + 8.34 + 7.34 = 43.90, of six
        ("plsc/r50_b4_2n2g_builtin_cpu", PLSC_CPU, "2n2g", 4, 43.90 / 6),
        # 4.231593 + 4.140910 + 4.008767 + 3.351039 + 3.575051 + 3.300721 + 3.548204 + 3.509093
        # = 29.665378, of eight
        ("gluoncv_horovod/rn50_b2_fp32_2n2g_builtin_cpu", total(12, 4), "2n2g", 2, 29.665378 / 8),
    ],
)
def test_real_logs_confirm_what_they_state(
    name: str, rule: Rule, topology: str, batch: int, value: float
) -> None:
    form = name.partition("/")[0]
    found = run(form, example(name).data, rule, topology, batch=batch)
    assert values(found)["samples_per_second mean_of_rates"] == approx(value, rel=1e-6)
    expected = {"batch size", "world size", "precision", "number of steps"}
    expected |= {"number of warm-up steps"} if form == "dllogger" else set()
    expected |= {"network"} if form in ("dllogger", "mxnet_speedometer") else set()
    # The oldest of these logs has no line of its options.
    assert found.confirmed == (set() if "1n1g" in name else expected)


def test_lines_at_the_end_of_epochs_are_between_the_regular_ones() -> None:
    """As PaddleOCR prints them, which counts the steps of all epochs together. The steps of the
    line behind them are fewer, too."""
    form = formats()["paddle"]
    line = (
        "epoch: [1/9], global_step: {}, lr: 0.1, loss: {}.5, samples: 32.0, ips: {:.5f} samples/s"
    )
    slow = [96, 100]
    steps = sorted({*range(10, 193, 10), 96, 192})
    lines = [line.format(n, 300 - n, 90.0 if n in slow else 100.0) for n in steps]
    ocr = next(variant for variant in form.variants if "global step" in variant.sample)
    log = parse(ocr, ["\n".join([*lines, ""]).encode()])
    rule = Rule(total_steps=192, warmup_steps=39, estimator="mean_of_rates")
    found = numbering(form, log.columns.steps, rule, LogLines(lambda index: index, "log"))
    assert (found.every, found.before) == (10, 0)
    assert [steps[n] for n in sorted(found.shorter)] == [96, 100, 192]
    with pytest.raises(UserError, match="step 96 follows 90"):
        numbering(form, [n for n in steps if n != 100], rule, LogLines(lambda index: index, "log"))
