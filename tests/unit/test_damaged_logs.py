"""Damaged logs of every format: each is refused with its line, or gives the right number.

The whole logs are those of support/whole_logs.py, read with the shipped catalogue as `summarize`
reads a tree.
"""

import itertools
import re
from dataclasses import dataclass, replace

import pytest
from damaged_lines import damaged, wrapped
from hypothesis import given, settings
from hypothesis import strategies as st
from log_examples import EXAMPLES
from make_logs import dllogger
from other_logs import only
from whole_logs import WHOLE_LOGS, WholeLog, read_as, read_tree, throughput

from dlperf_runner.catalog.reader import own_workloads
from dlperf_runner.core.errors import UserError
from dlperf_runner.logs import formats
from dlperf_runner.results.load import Results

NAMES = sorted(WHOLE_LOGS)
CHANGES = [(name, setting) for name, log in WHOLE_LOGS.items() for setting in log.changes]
WAYS = ("cut", "lose lines", "repeat elsewhere", "wrap", "wrap a line", "overwrite")
BEGINS_LATER = "the log begins with step "
MANY = settings(max_examples=100, deadline=None)
SOME = settings(max_examples=30, deadline=None)


def line_of(problem: UserError) -> int | None:
    """The line that a problem names."""
    line = str(problem.where).rpartition(":")[2]
    return int(line) if line.isdigit() else None


def is_refused_or_right(log: WholeLog, content: str) -> None:
    """No number but the right one, and no missing number without a reason. A log without its
    beginning is one of fewer steps, as is one without its end if no line states their number."""
    results = read_as(log, content)
    value = throughput(results)
    is_excerpt = any(BEGINS_LATER in note for note in results.notes) or not log.states_steps
    assert value is None or value == pytest.approx(log.value, rel=0.01 if is_excerpt else 1e-12)
    assert value is not None or results.problems or results.notes
    for problem in results.problems:
        assert problem.where
        assert problem.problem


def test_every_format_and_every_setting_is_here() -> None:
    assert {log.form for log in WHOLE_LOGS.values()} == set(formats())
    workloads = (each for each in own_workloads().values() if each.log_pattern is None)
    catalogued = {workload.log_format for workload in workloads}
    trainings = {name for name in catalogued if formats()[name].table is None}
    assert trainings <= {log.form for log in WHOLE_LOGS.values() if log.loss}
    stating = {name for name in catalogued if formats()[name].statements}
    assert stating <= {log.form for log in WHOLE_LOGS.values() if log.changes}
    for log in WHOLE_LOGS.values():
        if log.changes and log.form in catalogued:
            assert {"precision", "number of steps"} <= set(log.changes)
            assert {"batch size", "global batch size"} & set(log.changes)
            assert {"world size", "global batch size"} & set(log.changes)


@pytest.mark.parametrize("name", NAMES)
def test_a_whole_log_gives_its_number(name: str) -> None:
    log = WHOLE_LOGS[name]
    results = read_as(log, log.text)
    assert results.problems == []
    assert throughput(results) == pytest.approx(log.value, rel=1e-12)
    with_carriage_returns = read_as(log, log.text.replace("\n", "\r\n"))
    assert throughput(with_carriage_returns) == throughput(results)


@pytest.mark.parametrize("name", NAMES)
def test_another_first_step_than_that_of_a_log_is_refused_or_changes_little(name: str) -> None:
    log = WHOLE_LOGS[name]
    results = read_as(replace(log, options={**log.options, "first_step": "5"}), log.text)
    value = throughput(results)
    assert results.problems if value is None else value == pytest.approx(log.value, rel=0.02)


@MANY
@given(st.data(), st.sampled_from(NAMES))
def test_a_damaged_log_is_refused_or_right(data: st.DataObject, name: str) -> None:
    log = WHOLE_LOGS[name]
    lines = log.text.splitlines()
    is_refused_or_right(log, data.draw(damaged(lines, WAYS)))


@pytest.mark.parametrize(("name", "width"), [("oneflow", 88), ("dllogger", 60)])
def test_a_log_wrapped_in_its_rate_is_refused_or_right(name: str, width: int) -> None:
    """samples/s: 38, or 3."""
    log = WHOLE_LOGS[name]
    is_refused_or_right(log, wrapped(log.text.splitlines(), width))


@pytest.mark.parametrize("name", NAMES)
def test_a_log_cut_in_its_last_rate_is_refused_or_right(name: str) -> None:
    """The last line needs no newline if its rate is whole all the same."""
    log = WHOLE_LOGS[name]
    whole = log.text.rstrip("\n")
    last = whole.rfind(f"{log.value:.2f}"[:3])  # the digits of the last rate, where they stand
    for end in {len(whole), *range(len(whole) - 8, len(whole), 4), *range(last, last + 21, 7)}:
        is_refused_or_right(log, whole[:end])


@pytest.mark.parametrize(
    ("name", "end"),
    [
        ("gluoncv", r"\nINFO:root:Epoch\[0\]\tSpeed: .*"),  # something follows the last rate
        ("dllogger", r"\n[^\n]*train_throughput[^\n]*"),  # a blank follows it
        ("dllogger, 32 devices", "images/s"),
        ("oneflow", r" 15970[\d.]*"),  # three decimals, always
        ("plsc", r"\n[^\n]*"),  # two decimals, always
    ],
)
def test_a_last_rate_that_is_whole_needs_no_newline(name: str, end: str) -> None:
    log = WHOLE_LOGS[name]
    text, number = re.subn(end + r"\Z", "", log.text.rstrip("\n"))
    assert number == 1
    assert throughput(read_as(log, text)) == pytest.approx(log.value, rel=1e-12)
    assert throughput(read_as(log, text.rstrip()[:-1])) in (None, throughput(read_as(log, text)))


@st.composite
def mutated(draw: st.DrawFn, data: bytes) -> bytes:
    """A log with some bytes replaced, removed, doubled or moved."""
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(len(data) - 1, 0)))
        end = min(len(data), start + draw(st.integers(0, 300)))
        piece = draw(st.one_of(st.binary(max_size=20), st.just(data[start:end] * 2), st.just(b"")))
        data = data[:start] + piece + data[end:]
    return data


def is_counted_or_reported(results: Results) -> None:
    """Every log is counted or reported, and a number is one that training can have."""
    assert len(results.counted) + len(results.problems) + len(results.notes) > 0
    valid = results.frame[results.frame["valid"]]
    rates = valid[valid["metric"] == "samples_per_second"]["value"]
    assert len(rates) == len(results.counted)
    assert all(0 < rate < 1e12 for rate in rates)
    for problem in results.problems:
        assert problem.where
        assert problem.problem


LOGS = [(log.path, log.text.encode()) for log in WHOLE_LOGS.values()]
LOGS += [("1n1g/rn50_b128_fp32_1.log", log.data) for log in EXAMPLES]


@MANY
@given(st.data(), st.sampled_from(LOGS))
def test_a_log_with_other_bytes_is_counted_or_reported(
    data: st.DataObject, log: tuple[str, bytes]
) -> None:
    path, content = log
    is_counted_or_reported(read_tree({path: data.draw(mutated(content))}))


@SOME
@given(st.binary(max_size=2000))
def test_any_bytes_beside_a_good_log(data: bytes) -> None:
    log = WHOLE_LOGS["gluoncv"]
    results = read_tree({"1n2g/rn50_b128_fp32_2.log": data, log.path: log.text.encode()})
    is_counted_or_reported(results)
    assert throughput(results) == log.value


# ---- a run that was started again


@pytest.mark.parametrize(
    ("name", "setting", "place"),
    [(*change, place) for change, place in zip(CHANGES, itertools.cycle([0.3, 1.0]), strict=False)],
)
def test_a_restart_with_another_setting_is_refused_with_both_lines(
    name: str, setting: str, place: float
) -> None:
    log = WHOLE_LOGS[name]
    old, new, value, other = log.change(setting)
    lines = log.text.splitlines()
    first = next(number for number, line in enumerate(lines, 1) if old in line)
    # All rates may come after the statement, whose line is then still one of the log's head.
    at = max(first, round(place * len(lines)))
    restarted = [*lines[:at], lines[first - 1].replace(old, new), *lines[at:]]
    problem = only(read_as(log, "\n".join(restarted) + "\n"))
    assert (line_of(problem), problem.expected, problem.found) == (at + 1, value, other)
    stated = "world size" if setting == "number of nodes" else setting
    assert problem.problem == f"the {stated} contradicts line {first}"
    assert "started again" in str(problem)


@pytest.mark.parametrize("name", [name for name, log in WHOLE_LOGS.items() if log.changes])
def test_a_log_that_repeats_its_settings_is_right(name: str) -> None:
    log = WHOLE_LOGS[name]
    words = [log.change(setting)[0] for setting in log.changes]
    lines = log.text.splitlines()
    stated = [line for line in lines if any(word in line for word in words)]
    middle = len(lines) * 2 // 3
    results = read_as(log, "\n".join([*lines[:middle], *stated, *lines[middle:]]) + "\n")
    assert throughput(results) == pytest.approx(log.value, rel=1e-12)


# ---- losses


WITH_LOSS = [name for name, log in WHOLE_LOGS.items() if log.loss]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, value) for name in WITH_LOSS for value in ("6.9", "nan", "-inf")),
        *(("gluoncv", "0.0"), ("gluoncv", "1e30")),
    ],
)
def test_a_loss_that_is_always_the_same_or_no_number_is_invalid(name: str, value: str) -> None:
    log = WHOLE_LOGS[name]
    results = read_as(log, re.sub(str(log.loss), value, log.text))
    assert throughput(results) is None
    why = "the loss is not finite" if "n" in value else "the loss is "
    assert any(why in note for note in results.notes)


# ---- damage with the message that is expected


@dataclass(frozen=True)
class Damage:
    """The first `old` of a whole log becomes `new`. The problem names the line, and says `problem`,
    `expected` and `found`; None: whatever it is. `line`: from where `old` is."""

    log: str
    old: str
    new: str
    problem: str
    expected: str | None = None
    found: str | None = None
    line: int = 0


SPEED = "INFO:root:Epoch[0] Batch[{}]\tSpeed: {} samples/sec\n".format
ODD, LAST = SPEED(51, "384.50"), SPEED(120, "384.00")
IMPOSSIBLE = "the rate is not possible in training"
POSITIVE = "a number above 0 and below 1e+12"
FAR, MEAN = "contradicts the rates of its steps", "within 10% of their mean, 384.251"
CONTRADICTS = "contradicts the "
WRAPPED = "the line is wrapped within a number"
UNKNOWN = "no line has a known format"
RATES = "lines with a rate in a known format"
# Of transformers' Trainer, which prints the rate of the whole run at its end.
TRAINER = WHOLE_LOGS["hf_trainer/whole"]
FINAL = TRAINER.text[TRAINER.text.index("{'train_runtime'") :].partition("\n")[0] + "\n"
HEAD = "Gradient Accumulation steps"
RESUMED = ">>   Continuing training from global step {}\n".format
TORN = "100%|\udce2| 50/50 [00:48<00:00]"  # a character of a progress bar
WHOLE = {name: WHOLE_LOGS[name].text for name in ("gluoncv", "lightning/whole", "fairseq/whole")}
BAR = "Epoch 0:   5%|          | 10/200 [00:01<00:36,  5.26it/s"
# Means since the start, whose first step or whose digits are unknown.
MEANS = WHOLE_LOGS["detectron2/whole"].text
START = "Starting training from iteration 0\n"
LATER = re.sub(r"iter: (\d+)", lambda step: f"iter: {5000 + int(step[1])}", MEANS)
SHORT = LATER[: LATER.index("eta: 0:02:38")].replace("iter: 50", "iter: 90")


def rates_that_are_not_whole() -> list[Damage]:
    rows = (
        ("plsc", "qps:398.00", "qps:3 98.00"),
        ("plsc", "qps:398.00", "qps:2,398.00"),
        ("plsc", "qps:398.00", "qps:398.0"),
        ("plsc", "qps:398.00", "qps:398.00\n398.00"),  # the digits of two whole rates
        ("plsc", "qps:398.00", "qps: 98.00"),
        ("oneflow", "samples/s: 384.500", "samples/s: 38\n4.500"),
        ("oneflow", "samples/s: 384.500", "samples/s: 384.50\n0"),
        ("oneflow", "samples/s: 384.500", "samples/s: 3"),
        ("dllogger", "384.2512345678901", "384"),
        ("dllogger", "384.2512345678901", "384.2512345678901 0"),
        ("dllogger", "384.2512345678901", "384.2512345678901\n1"),
        ("dllogger", "384.2512345678901", "5.0.0"),
        ("dllogger, 32 devices", "380.0123456789", "380"),
        ("dllogger, 32 devices", "380.0123456789", "380."),
        ("dllogger, 32 devices", "380.0123456789", "380.01 2"),
        ("llmc/whole", "MFU | 2026910 tok/s", "MFU | 2 026 910 tok/s"),
        ("deepspeed/whole", "CurrSamplesPerSec=1762.", "CurrSamplesPerSec=1.762,"),
        ("deepspeed/whole-2021", "SamplesPerSec=1670.", "SamplesPerSec=1.670,"),
        *(
            ("gluoncv", "Speed: 384.50 ", f"Speed: {rate} ")
            for rate in ("3.8e5", "385", "12.3INFO:root:x", "1_000", "1,5", "١٢", "--")
        ),
    )
    return [Damage(log, old, new, "the rate is not ") for log, old, new in rows]


DAMAGES = [
    *(
        Damage("gluoncv", SPEED(step, rate), SPEED(step, bad), IMPOSSIBLE, POSITIVE, bad)
        for step, rate in ((2, "7.50"), (118, "384.00"))
        for bad in ("0", "0.00", "-3.5", "nan", "inf", "1e400", "-inf", "1e15")
    ),
    *rates_that_are_not_whole(),
    # Steps that are not those of the plan.
    Damage("gluoncv", SPEED(117, "384.50"), "", "step 118 follows 116", "117", "118", 2),
    Damage("gluoncv", ODD, SPEED(50, "384.00") + ODD, "step 50 repeats line 153"),
    Damage("gluoncv", ODD, SPEED(49, "384.50") + ODD, "step 49 follows 50"),
    Damage("gluoncv", LAST, "", "the log ends with step 119", line=-3),
    Damage("gluoncv", LAST, LAST + SPEED(121, "384.50"), "the log has more steps", line=1),
    Damage("gluoncv", LAST, LAST + SPEED(1, "384.50"), "step 1 follows 120", line=1),
    # The missing line is noticed when all four have printed the next batch.
    Damage("plsc, four trainers", "Pass:0 batch:60 ", "Pass:7 batch:60 ", "3 processes", line=8),
    Damage(
        "ultralytics/whole",
        *("1.061     0.4706      1.084         10        640: 100%", "torn"),
        *("step 48 follows 16", "32", "48", 5),
    ),
    Damage(  # of newer versions, the number is that of the validation's batches
        *("mmengine/evaluations_of_mmseg", "Iter(val) [800]", "Iter(val) [400]"),
        *("step 850 follows 750", "800", "850", 1),
    ),
    Damage(
        "tf_estimator/whole",
        "INFO:tensorflow:loss = 7.10, step = 300",
        "INFO:tensorflow:global_step/sec: 0.81\nINFO:tensorflow:loss = 7.10, step = 300",
        *("the rates between two losses contradict their time", "39.841 s", None),
    ),
    # Of the trainer. It stopped after the first of three epochs, and counts the samples of all.
    *(
        Damage("hf_trainer/whole", old, new, text, line=line)
        for old, new, text, line in (
            (HEAD, RESUMED(20) + HEAD, "the run was resumed", 0),
            ("Num Epochs = 1", "Num Epochs = 3", "the number of epochs contradicts line 3", 16),
            ("optimization steps = 50", "optimization steps = 5\n0", WRAPPED, 0),
            (FINAL, FINAL + FINAL.replace("264.51", "265.51"), "rates of several whole runs", 1),
            ("{'train_runtime'", TORN + " {'train_runtime'", "not valid UTF-8", 0),
        )
    ),
    # Logs without a rate.
    Damage("gluoncv", WHOLE["gluoncv"], "", "the log is empty", RATES, "no lines"),
    Damage("gluoncv", WHOLE["gluoncv"], "nothing\nhere\n", UNKNOWN, RATES, "2 lines without one"),
    Damage("gluoncv", WHOLE["gluoncv"], "ÿþ", UNKNOWN, RATES, "1 line without one"),
    Damage("lightning/whole", WHOLE["lightning/whole"], BAR, "one line with a rate, that of"),
    # Rates that do not follow from each other.
    Damage(
        *("fairseq/whole", WHOLE["fairseq/whole"]),
        *(re.sub("ups=3", "ups=0", WHOLE["fairseq/whole"]), "count only some of the steps"),
        line=3,
    ),
    *(
        Damage("detectron2/whole", old, new, text, line=line)
        for old, new, text, line in (
            (MEANS, LATER.replace(START, "\n"), "depends on the first iteration", 7),
            (MEANS, SHORT, "has too few digits for so few lines", 11),
            ("time: 0.3328", "time: 0.3028", "does not follow from that of line 29", 0),
        )
    ),
    Damage(
        "llama_factory/whole",
        *('"total_tokens": 249872', '"total_tokens": 24987'),
        *("the number of tokens does not grow", "more than 185980", "24987"),
    ),
    # What the program prints at its end of its whole run.
    *(
        Damage("dllogger, 32 devices", "380.0123456789", bad, FAR, MEAN, f"{float(bad):g}")
        for bad in ("126.0", "38.1", "345.5", "423.5")
    ),
    # What is stated contradicts the name of the log.
    Damage("gluoncv", "batch_size=128", "batch_size=64", CONTRADICTS, "128", "64"),
    Damage("gluoncv", "batch_size=128", "batch_size=0", "batch size is not a positive number"),
    Damage("gluoncv", "world_size=1", "world_size=16", CONTRADICTS, "1", "16"),
    Damage("gluoncv", "'float32'", "'float16'", CONTRADICTS, "fp32", "fp16"),
    Damage("gluoncv", "iterations=120", "iterations=12", CONTRADICTS, "120", "12"),
    *(
        Damage(log, old, new + old, "the network contradicts the file name", *names)
        for log, old, new, *names in (
            ("gluoncv", "batch_size=", "model='vgg16', ", "resnet50v1b", "vgg16"),
            ("oneflow", "image_size =", "model = vgg16\n", "resnet50v1.5", "vgg16"),
            ("speedometer", "per_batch_size=", "network='y1', ", "arcface-r100", "y1"),
            ("dllogger", "batch_size :", "arch : resnext101  ", "resnet50v1.5", "resnext101"),
        )
    ),
    Damage(
        *("gluoncv", SPEED(117, "384.50"), f"\udcff {SPEED(117, '384.50')}"),
        *("the line is not valid UTF-8", "text", "a byte that is none"),
    ),
    # The sequence length stands in no name, so that nothing else would contradict it.
    Damage("megatron", ". 4096", ". 4\n096", WRAPPED),
    Damage("maxtext", "max_target_length: 2048", "max_target_length: 20\n48", WRAPPED),
    # Every line states it; the one after the first is another.
    Damage("megatron", "e:    128", "e:    256", "the global batch size changes", line=1),
    Damage("megatron", "/     100 ", "/     200 ", "the number of steps changes", line=1),
]


@pytest.mark.parametrize("damage", DAMAGES, ids=lambda damage: f"{damage.log}: {damage.new!r}")
def test_damage_is_refused_with_its_line(damage: Damage) -> None:
    log = WHOLE_LOGS[damage.log]
    before, old, after = log.text.partition(damage.old)
    assert old
    problem = only(read_as(log, before + damage.new + after))
    assert damage.problem in problem.problem
    assert damage.expected in (None, problem.expected)
    assert damage.found in (None, problem.found)
    if line_of(problem) is not None:
        assert line_of(problem) == before.count("\n") + 1 + damage.line


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (HEAD, RESUMED(0) + HEAD),
        # Version 5 prints four digits, and programs print the object with all of them.
        ("'train_samples_per_second': 264.51", "'train_samples_per_second': '264.51'"),
        (FINAL, FINAL + FINAL.replace("264.51", "264.5")),
        ("Num Epochs = 1", "Num Epochs = 9,223,372,036,854,775,807"),
        ("'epoch': 1.0}", "'epoch': 0.98}"),  # epochs may end within one
        ("{'train_runtime'", TORN + "\r{'train_runtime'"),
    ],
)
def test_the_rate_of_the_trainer_in_other_words(old: str, new: str) -> None:
    assert old in TRAINER.text
    assert throughput(read_as(TRAINER, TRAINER.text.replace(old, new))) == TRAINER.value


@pytest.mark.parametrize(("lost", "warmup"), [(1, "20"), (19, "20"), (20, "37"), (60, "70")])
def test_a_log_without_its_beginning_has_its_own_warm_up(lost: int, warmup: str) -> None:
    """Its warm-up is the same share of its steps, unless that of the whole run has not ended."""
    log = WHOLE_LOGS["gluoncv"]
    content = log.text
    for step in range(1, lost + 1):
        content = re.sub(rf".*Batch\[{step}\].*\n", "", content)
    results = read_as(log, content)
    assert throughput(results) == pytest.approx(log.value, rel=1e-3)
    (note,) = (note for note in results.notes if BEGINS_LATER in note)
    assert f"the log begins with step {lost + 1}, so steps up to {warmup} are its warm-up" in note


@pytest.mark.parametrize(
    ("name", "old", "new", "rates"),
    [
        ("gluoncv", "Speed: 38", "Speed: 20", ("384", "204")),
        # The step stands in another line, or nowhere.
        ("olmo_core/whole", "TPS=11", "TPS=23", ("11811", "23811")),
        ("hf_trainer/whole", "second': 264.51", "second': 529.02", ("264.51", "529.02")),
    ],
)
def test_ranks_whose_rates_differ_are_ambiguous(
    name: str, old: str, new: str, rates: tuple[str, str]
) -> None:
    """Two runs of eight devices each, started by one mpirun, or with one log."""
    log = WHOLE_LOGS[name]
    both = []
    for line in log.text.splitlines():
        # The first steps of a run differ, whatever it is.
        other = re.sub(old, new, line)
        both += [f"[1,{rank}]<stdout>:{text}" for rank, text in ((0, line), (8, other))]
    problem = only(read_as(log, "\n".join(both) + "\n"))
    assert problem.problem == "the ranks 0 and 8 print different rates of the same steps"
    assert (problem.expected, problem.found) == (
        f"about {rates[0]}, as in line {line_of(problem) - 1}",
        rates[1],
    )
    assert "keep the lines of one" in str(problem.hint)


def test_ranks_that_print_the_same_steps_are_one() -> None:
    log = WHOLE_LOGS["gluoncv"]
    both = [
        f"[1,{rank}]<stdout>:{line.replace('384.50', rate)}"
        for line in log.text.splitlines()
        for rank, rate in ((3, "384.50"), (0, "385.50"))
    ]
    assert throughput(read_as(log, "\n".join(both) + "\n")) == log.value


@pytest.mark.parametrize(
    ("final", "difference"),
    [(384.25, None), (387.0, None), (420.0, "9.3 % above"), (350.0, "8.9 % below")],
)
def test_a_final_rate_that_is_not_that_of_the_steps_is_noted(
    final: float, difference: str | None
) -> None:
    lines = dllogger(384.25, 8, amp=True, final=final)
    log = WHOLE_LOGS["dllogger"]
    notes = [note for note in read_as(log, "\n".join(lines) + "\n").notes if "at its end" in note]
    told = f"the rate that the program prints at its end, {final:g}, is {difference} the mean"
    assert [told in note for note in notes] == [True] * (difference is not None)
