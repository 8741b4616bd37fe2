"""Logs of programs that no format reads: what the messages suggest, and --regex."""

import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from command_line import call
from hypothesis import given
from hypothesis import strategies as st
from log_examples import lines_of
from make_logs import write
from other_logs import GOOD, load, only
from whole_logs import WHOLE_LOGS, throughput

from dlperf_runner.core.errors import UserError, by_cause
from dlperf_runner.logs.likely_lines import likely_line
from dlperf_runner.logs.pattern import Lines

NAME = "1n8g/rn50_b128_amp_1.log"


def program(
    line: str = "[x] upd {step} | obj 6.8 | {rate} img/s", rate: str = "100.0"
) -> list[str]:
    """60 steps of which 12 warm up, at a tenth of the speed."""
    slow = f"{float(rate) / 10:.2f}"
    return [line.format(step=n, rate=slow if n <= 12 else rate) for n in range(1, 61)]


REGEX = r"upd (?P<step>\d+) .*\| (?P<rate>[\d.]+) img/s"
STEP, RATE, TIME = r"it (?P<step>\d+) ", r"(?P<rate>[\d.]+)", r"(?P<step_time>[\d.]+)"
BESIDE = r"upd (?P<step>\d+) [^0-9]*(?P<rate>[\d.]+)"
WORLD, DEVICE = {"rates_are_per": "world"}, {"rates_are_per": "device"}
TOKENS, SAMPLES = {"unit": "tokens", **WORLD}, {"unit": "samples", **WORLD}
MS = {"step_time_unit": "ms"}


def suggested(problem: UserError) -> str:
    """The expression that a message suggests."""
    regex = re.search(r"--regex '(.*?)'", str(problem.hint))
    assert regex is not None
    return regex[1]


@pytest.mark.parametrize(
    ("line", "regex", "options", "value"),
    [
        ("upd {step} | 6.8 | {rate} img/s", REGEX, WORLD, 100),
        ("upd {step} | 6.8 | {rate} img/s", REGEX, {"rates_are_per": "node"}, 100),
        ("upd {step} | 6.8 | {rate} img/s", REGEX, DEVICE, 800),
        ("upd {step} | {rate} img/s", REGEX, {**WORLD, "warmup_steps": "0"}, (120 + 4800) / 60),
        ("it {step} {rate} tok/s", STEP + RATE, WORLD, 100),
        ("it {step} {rate}it/s", STEP + RATE, {}, 100 * 1024),
        ("it {step} {rate}k tok/s/gpu", STEP + RATE + "(?P<prefix>[kM]?)", DEVICE, 800_000),
        ("it {step} {rate} x", STEP + RATE, {"unit": "steps"}, 100 * 1024),
        ("it {step} {rate} ms", STEP + TIME, {}, 10 * 1024),
        ("it {step} (ms) {rate}", STEP + ".*?" + TIME, MS, 10 * 1024),
        ("it {step} {rate} ktok/s", STEP + RATE + " *(?P<prefix>[kKMG])", TOKENS, 100_000),
        ("it {step} tokens/s: {rate}", STEP + ".*: " + RATE, WORLD, 100),
        ("it {step} time_ms={rate}", STEP + ".*=" + TIME, {}, 10 * 1024),
        ("it {step} 3.5 s {rate}", STEP + ".* " + TIME, MS, 10 * 1024),
        # Other words beside a rate refuse nothing.
        ("upd {step} | {rate} kittens/s", BESIDE, SAMPLES, 100),
        ("upd {step} speed {rate} x | 12 ktok/s", BESIDE, SAMPLES, 100),
        ("upd {step} | samples/s: {rate} image size", BESIDE, SAMPLES, 100),
        ("upd {step} | (K) blocks, speed {rate}", BESIDE, SAMPLES, 100),
    ],
)
def test_rates(
    tmp_path: Path, line: str, regex: str, options: dict[str, str], value: float
) -> None:
    write(tmp_path / NAME, program(line))
    results = load(tmp_path, regex=regex, **options)
    assert results.problems == []
    assert throughput(results) == pytest.approx(value)
    unit = "tokens" if "tok" in line and options != SAMPLES else "samples"
    assert [(run.model, run.unit) for run in results.counted] == [("rn50", unit)]


@pytest.mark.parametrize(
    ("line", "regex", "options", "value"),
    [
        ("Throughput: 812.5 img/s", "hput: " + RATE, DEVICE, 6500),
        ("total 1.5k img/s", RATE + "(?P<prefix>k?)", WORLD, 1500),
        ("Mean step time: 512 ms", "time: " + TIME, {}, 8 * 128 / 0.512),
    ],
)
def test_one_rate_of_the_whole_run(
    tmp_path: Path, line: str, regex: str, options: dict[str, str], value: float
) -> None:
    path = write(tmp_path / NAME, ["start", line, "done"])
    results = load(path, regex=regex, warmup_steps="5", **options)
    assert throughput(results) == pytest.approx(value)
    assert {*results.frame.query("metric == 'samples_per_second'")["estimator"]} == {"whole_run"}
    notes = " ".join(results.notes)
    assert "one rate of the whole run" in notes and "--warmup-steps is not left out" in notes
    write(path, [line, line, re.sub("[15]", "6", line)])
    problem = only(load(path, regex=regex, **options))
    assert "several whole runs" in problem.problem and "(?P<step>" in str(problem.hint)


def test_a_resumed_run_has_a_share_of_its_own_steps_as_warm_up(tmp_path: Path) -> None:
    """20 % of its 60 steps, though nothing states how many steps the whole run had."""
    lines = [re.sub(r"upd (\d+)", lambda m: f"upd {int(m[1]) + 1631}", x) for x in program()]
    write(tmp_path / NAME, lines)
    results = load(tmp_path, regex=REGEX, rates_are_per="world")
    assert throughput(results) == pytest.approx(100)
    assert any("step 1632, so steps up to 1644 are its warm-up" in n for n in results.notes)


def test_an_excerpt_of_a_long_run_drops_a_share_of_what_the_rule_drops(tmp_path: Path) -> None:
    """The rule of NVIDIA's TensorFlow ConvNets drops the first 5 of 100 rates."""
    line = "DLL 2020-09-01 06:41:12.208914 - (3, {n}) imgs_per_sec : 1143.{d}"
    write(tmp_path / NAME, [line.format(n=n, d=n % 7) for n in range(16135, 16235)])
    results = load(tmp_path, model="resnet50v1.5", total_steps="16235")
    assert throughput(results) == pytest.approx(1143.3, abs=0.1)


@pytest.mark.parametrize("waited", [True, False])
def test_waiting_for_data_is_no_pause(tmp_path: Path, waited: bool) -> None:
    """Each 16th step takes 5 s longer: mmdetection tells whether it waited for data."""
    line = "05:30 - mmdet - INFO - Epoch [1][{}/320]\tlr: 0.1, time: {}, data_time: {}, loss: {}"
    slow = ("5.300", "5.010" if waited else "0.010")
    lines = [
        line.format(n, *(("0.300", "0.010") if n % 16 else slow), 3 - n / 320)
        for n in range(1, 321)
    ]
    write(tmp_path / "train.log", lines)
    results = load(tmp_path, model="frcnn", batch_size="2", topology="1n1g", precision="fp32")
    seconds = (15 * 0.3 + 5.3) / 16 if waited else 0.3
    assert throughput(results) == pytest.approx(2 / seconds)
    note = next((n for n in results.notes if "the training paused" in n), None)
    assert (note is None) == waited
    assert note is None or f"with it {1 / 0.6125:.6g}" in note


@pytest.mark.parametrize(
    ("first", "options", "told"),
    [
        ("upd 1 begins", {}, None),
        ("| 1.0 img/s", {}, "no line before the first rate has its step"),
        ("upd 1 begins", {"first_step": "501"}, "begins with step 501"),
        ("upd 1 begins", {"log_every": "1"}, None),
        ("upd 1 begins", {"log_every": "5"}, "a rate every 5 steps"),
    ],
)
def test_lines_of_a_step(
    tmp_path: Path, first: str, options: dict[str, str], told: str | None
) -> None:
    lines = [first, "| 100.0 img/s", *program("upd {step} begins\nloss 6.8\n| {rate} img/s")[1:]]
    write(tmp_path / "rn50_fp16_1n8g.log", lines)
    regex = r"upd (?P<step>\d+) |\| (?P<rate>[\d.]+) img/s"
    results = load(tmp_path, regex=regex, rates_are_per="world", warmup_steps="12", **options)
    texts = [str(problem) for problem in results.problems] + results.notes
    assert told is None or any(told in text for text in texts)
    if results.counted:
        assert any("batch size unknown" in note for note in results.notes)
        assert throughput(results) == pytest.approx(100)


@pytest.mark.parametrize(
    ("end", "told"),
    [
        ("100.10k tok/s\n", ""),
        ("100.10", "ends in the middle"),
        ("100.10k", "100.10"),
        ("100.10 x k\n", "found '100.10 k'"),
        ("100.10Q\n", "found '100.10 Q'"),
    ],
)
def test_the_prefix_of_a_rate_is_whole_and_behind_it(tmp_path: Path, end: str, told: str) -> None:
    lines = program("it {step} {rate}0k tok/s")
    text = "\n".join(lines[:-1]) + f"\nit 60 {end}"
    (tmp_path / NAME).parent.mkdir()
    (tmp_path / NAME).write_text(text)
    regex = STEP + RATE + r".*?(?P<prefix>[kKMQ]?)(?: tok/s)?$"
    results = load(tmp_path, regex=regex, **TOKENS)
    assert [told in str(problem) for problem in results.problems] == [True] * bool(told)


def test_steps_that_count_in_each_epoch_anew(tmp_path: Path) -> None:
    line = "epoch: {}/3, iter: {}/45, iter_time: 0.{}s".format
    lines = [line(n // 4, 10 * (n % 4 + 1), 50 if n % 4 else 70) for n in range(4, 16)]
    regex = r"iter: (?P<step>\d+).*?iter_time: " + TIME
    write(tmp_path / NAME, lines)
    assert "groups epoch and of_epoch" in str(only(load(tmp_path, regex=regex)))
    regex = r"epoch: (?P<epoch>\d+).*?" + regex.replace(".*?", "/(?P<of_epoch>\\d+).*?")
    results = load(tmp_path, regex=regex, warmup_steps="45")
    # The mean duration of the 8 lines behind the first epoch: (2 * 0.7 s + 6 * 0.5 s) / 8.
    assert (results.problems, throughput(results)) == ([], pytest.approx(1024 / 0.55))


@pytest.mark.parametrize(
    ("line", "options", "told"),
    [
        ("upd {step} | {rate} x", {}, "--unit samples or tokens, --rates-are-per"),
        ("upd {step} | {rate} it/s", WORLD, "the rates are those of steps"),
        ("upd {step} | {rate} s", WORLD, "the rate of the sample is a time"),
        ("upd {step} | {rate}k img/s", WORLD, "the rate of the sample goes on"),
        ("run {step} | {rate} x", {}, "the expression matches no line of the log"),
        # Words that contradict the options.
        ("upd {step} | {rate} ktok/s", TOKENS, "units of k "),
        ("upd {step} | {rate} kilotokens/s", TOKENS, "units of kilo "),
        ("upd {step} | {rate} thousand tokens/s", TOKENS, "units of thousand "),
        ("upd {step} | throughput(ktok/s): {rate}", TOKENS, "units of k "),
        ("upd {step} ktok/s: {rate}", TOKENS, "units of k "),
        ("upd {step} | tokens/s (K) = {rate}", TOKENS, "units of K "),
        ("upd {step} | {rate}K tok/s", TOKENS, "found '10.00K'"),
        ("upd {step} | {rate} img/h", SAMPLES, "per h "),
        ("upd {step} | {rate} img/gpu/min", SAMPLES, "per min "),
        ("upd {step} | {rate} samples per minute", SAMPLES, "per minute "),
        ("upd {step} | images/hour: {rate}", SAMPLES, "per hour "),
        ("upd {step} | {rate} img/s/gpu", SAMPLES, "--rates-are-per device"),
        ("upd {step} | samples per sec (per gpu): {rate}", SAMPLES, "--rates-are-per device"),
        ("upd {step} | {rate}/s/gpu", SAMPLES, "--rates-are-per device"),
        ("upd {step} | {rate} tok/s", SAMPLES, "--unit tokens"),
        ("upd {step} | tokens_per_sec={rate}", SAMPLES, "--unit tokens"),
        # flax's examples and mlx-lm
        ("upd {step} | steps/sec={rate} samples/sec=9", SAMPLES, "--rates-are-per step"),
        ("upd {step} lr e-x, It/sec {rate}, Tokens/sec 9", TOKENS, "--rates-are-per step"),
        ("upd {step} (s) = {rate}", MS, "step_time_unit: s (--step-time-unit s)"),
    ],
)
def test_what_the_words_beside_a_number_leave_open_or_contradict(
    tmp_path: Path, line: str, options: dict[str, str], told: str
) -> None:
    write(tmp_path / NAME, program(line))
    regex = BESIDE.replace("rate", "step_time") if options == MS else BESIDE
    assert told in str(only(load(tmp_path, regex=regex, **options)))


def test_time_stamps_alone_give_the_times_of_steps(tmp_path: Path) -> None:
    """Two ranks print, past midnight, and another epoch follows: as in icefall."""
    start = datetime(2025, 3, 3, 23, 58, 0, 500_000)
    lines = [
        f"{start + timedelta(seconds=25 * n):%Y-%m-%d %H:%M:%S,%f} INFO ({rank}/2) Epoch 1,"
        f" batch {50 * n}, loss[loss=0.{99 - n}]"
        for n in range(16)
        for rank in range(2)
    ]
    log = write(tmp_path / "1n8g_rn50_b128_fp32.log", [*lines, lines[0].replace("3-03", "3-05")])
    hint = str(only(load(tmp_path)).hint)
    command = hint[hint.index("LC_ALL=C") : hint.index("\nand give")]
    subprocess.run(["sh", "-c", command], check=True, cwd=tmp_path)
    log.unlink()
    regex = r"step (?P<step>\d+) took (?P<step_time>[\d.]+) s"
    assert f"--regex '{regex}' --step-time-unit s" in hint
    results = load(tmp_path, regex=regex, step_time_unit="s", accumulation_steps="1")
    assert throughput(results) == pytest.approx(8 * 128 * 2)


def test_numbers_of_a_csv_file_are_apart(tmp_path: Path) -> None:
    """Also 12,100.0 if the step is that of the expression, which the guess names by the head."""
    lines = ["step,img/s", *program("{step},{rate}")[1:]]
    path = write(tmp_path / "1n8g/rn50_b128_fp32.log", lines)
    regex = r"^(?P<step>\d+),(?P<rate>[\d.eE+-]+)"
    assert suggested(only(load(path))) == regex
    assert throughput(load(path, regex=regex, **SAMPLES)) == 100
    problem = only(load(path, regex=r"(?P<step>\d)0,(?P<rate>.*)", **SAMPLES))
    assert "of which the expression takes 100.0" in str(problem)


def test_a_column_of_samples_is_better_than_one_of_steps(tmp_path: Path) -> None:
    """As Lightning's ThroughputMonitor writes them with a CSVLogger."""
    head = "epoch,step,train/device/batches_per_sec,train/device/samples_per_sec"
    rows = [f"0,{step},{rate / 32},{rate}" for step, rate in enumerate(range(900, 920), 10)]
    hint = str(only(load(write(tmp_path / "1n8g/rn50_b32_fp32.log", [head, *rows]))).hint)
    regex = r"^[^,]*,(?P<step>\d+),[^,]*,(?P<rate>[\d.eE+-]+)"
    assert f"--regex '{regex}' --unit samples --rates-are-per device\n" in hint


def test_bad_expressions(here: Path) -> None:
    write(here / "logs" / NAME, program())
    for options, told in (
        (["--regex", r"(?P<step>\d+)"], "the groups step, rate or step_time"),
        (["--regex", r"(?P<step>\d+)(?=x)(?P<rate>\d+)"], "no lookaround"),
        (["--regex", STEP + TIME + "(?P<prefix>k?)"], "behind a rate, not behind a time"),
        (["--regex", REGEX + "(?P<of_epoch>)"], "the group epoch beside of_epoch"),
        (["--unit", "tokens"], "the expression, too: --regex"),
        (["--regex", REGEX, "--unit", "bytes"], "'samples', 'tokens' or 'steps'"),
    ):
        assert told in call("summarize", "logs", *options, status=2).both


def test_a_mapping_gives_expressions_by_path_and_before_built_in_formats(here: Path) -> None:
    write(here / "logs" / "a" / NAME, program())
    timm = "Train: 0 [{step:4d}/61 (  0%)]  Loss: 6.9 (6.9)  Time: 1.0s, {rate}/s  (1.0s, 2.0/s)"
    write(here / "logs" / "b" / NAME, program(timm))
    b = r"{regex: '\[ *(?P<step>\d+)/.* (?P<rate>[\d.]+)/s  \(', unit: samples,"
    mapping = ["logs:", f"  a/**: {{regex: '{REGEX}', rates_are_per: world}}"]
    write(here / "logs" / "mapping.yml", [*mapping, f"  b/**: {b} rates_are_per: device}}"])
    results = load(here / "logs")
    assert results.problems == []
    rates = results.frame.query("metric == 'samples_per_second'")["value"]
    assert [*rates] == [pytest.approx(100), pytest.approx(800)]


@pytest.mark.parametrize("command", ["report", "compare", "export github"])
def test_other_commands_take_an_expression(here: Path, command: str) -> None:
    write(here / "logs" / NAME, program())
    options = ["--regex", REGEX, "--rates-are-per", "world", "--total-steps", "60"]
    called = call(*command.split(), "logs", *options, status=None)
    assert "no effect" not in called.both and "no known format" not in called.both


def test_the_time_of_a_sample_is_not_that_of_a_step(here: Path) -> None:
    """TensorFlow 1.15's Keras: 500 us/sample are 2000 samples/s, whatever the batch size is."""
    lines = [
        f"Epoch {n}/9\n4000/4000 [===] - 2s 500us/sample - loss: 1.{n}\n" for n in range(1, 10)
    ]
    write(here / "logs" / "cnn_1n2g_b64_fp32.log", lines)
    regex = r"Epoch (?P<step>\d+)/|s (?P<step_time>\d+)us/sample"
    assert "--rates-are-per world" in str(only(load(here / "logs", regex=regex)).expected)
    results = load(here / "logs", regex=regex, **DEVICE)
    assert (results.problems, throughput(results)) == ([], pytest.approx(2 * 2000))


def test_a_time_of_many_steps_has_such_a_unit(here: Path) -> None:
    """MindCV prints that of all steps since the line before; time stamps show it."""
    line = "[2023-03-02 10:{time}] batch: [{step}/1251], loss: {loss}, time: 10.0s"
    lines = [
        line.format(time=f"{n // 6:02d}:{n % 6}0", step=100 * n, loss=7 - n / 9)
        for n in range(1, 40)
    ]
    write(here / "logs" / "rn50_1n2g_b64_fp32.log", lines)
    regex = r"batch: \[(?P<step>\d+).*time: (?P<step_time>[\d.]+)"
    assert "--step-time-unit s/1" in str(only(load(here / "logs", regex=regex)).hint)
    results = load(here / "logs", regex=regex, step_time_unit="s/100")
    (rate,) = results.frame.query("metric == 'samples_per_second'")["value"]
    assert (results.problems, rate) == ([], pytest.approx(2 * 64 * 100 / 10))
    # Several lines with the same stamp
    line = "2023-03-02 10:{n:02d}:{s:02d} batch: [{step}/900], time: 3.0s"
    times = [divmod(3 * step // 10, 60) for step in range(1, 300)]
    often = [line.format(n=n, s=s, step=step) for step, (n, s) in enumerate(times, 1)]
    write(here / "logs" / "rn50_1n2g_b64_fp32.log", often)
    assert "--step-time-unit s/10" in str(only(load(here / "logs", regex=regex)).hint)
    # One long step is none of many, which its line counts for all since the line before.
    lines = [line.replace("10.0s", "90.0s" if n == 20 else "0.1s") for n, line in enumerate(lines)]
    write(here / "logs" / "rn50_1n2g_b64_fp32.log", lines)
    results = load(here / "logs", regex=regex, step_time_unit="s")
    assert (results.problems, throughput(results)) == ([], pytest.approx(2 * 64 / 0.1))


def test_logs_that_a_known_format_reads_need_no_expression(here: Path) -> None:
    write(here / "logs" / NAME, program())
    write(here / "logs" / "1n1g" / "rn50_b128_fp32_1.log", GOOD)
    results = load(here / "logs", regex=REGEX, rates_are_per="world")
    assert results.problems == []
    assert sorted(run.workload for run in results.counted) == ["mxnet-resnet50v1b", "regex"]
    assert any("matches no line of some logs" in note for note in results.notes)


LIKELY = {
    "[x] upd {n} | obj 6.8 | {r} img/s": r"upd +(?P<step>\d+).*?\| +(?P<rate>[\d.,]*\d) +img/s",
    "12:00:{n:02d} {n}/99 [00:01<00:02, {r}it/s]": r"(?P<rate>[\d.,]*\d)(?:it/s|s/it)",
    "step: {n}  tps: 7,{n}01  mfu: 3.4%": r"step: +(?P<step>\d+).*?tps: +(?P<rate>[\d.,]*\d)",
    "Speed {r} samples/sec  Step: {n}": r"Speed +(?P<rate>[\d.,]*\d)",
    "iter {n} | elapsed time per iteration (ms): {r}": r"(?P<step_time>[\d.,]*\d)",
    "step:{n}/99 total_time:{n}00ms dt:{r}ms": r"dt:(?P<step_time>",
    # OpenPCDet, and TensorFlow's slim with two loggers.
    "[00:04/1:05:18] Acc_iter {n} Data time: 0.0{n}(0.02) Batch time: {r}({r})": "Batch +time: +(",
    "global step {n}: loss = 7.3 ({r} sec/step)\nglobal step {n}: loss = 7.3 ({r} sec/step)":
        r"step +(?P<step>\d+).*?\((?P<step_time>",
    "train | step: {n:6d} | steps/sec:    {r} | output:": r"steps/sec: +(?P<rate>",  # padded
    "loss {r} at {n} ": None,
    # Parts of a step; an epoch's time; a mean since the start, which the next number is not.
    "step: {n}/99 | fwd time: 0.2s | opt time: 0.1s | step time: {r}s": "step +time: +(?P<step_ti",
    "step {n} fwd 94.5ms bwd 189.0ms total {r}ms": "total +(?P<step_time>",
    "Epoch {n:03d}/100 | train loss 0.3 | time {r}s": None,
    "step {n} avg throughput: 9{n}.5 now: {r} img/s": r"now: +(?P<rate>[\d.,]*\d) +img/s",
    "{n}/99 [00:01<00:02, 8.1it/s, loss=2.2, wps={r}]": r"wps=(?P<rate>",
    "[{n}/1000] loss 2.99 data {r} ms, lr 1e-4": None,
    "{n} | loss 7.0 | lr 4.9e-05 | {r}ms | mfu 0.21%": r".*?\| +(?P<step_time>",  # llama2.c
    "step {n} | samples per sec (per gpu): {r}": r"gpu\): +(?P<rate>",
    # Picotron, InternEvo and fairseq2.
    "Step: {n}  | Loss: 6.8 | Tokens/s:  {r}K | Tokens/s/GPU: 7.1K":
        r"Tokens/s: +(?P<rate>[\d.,]*\d)(?P<prefix>[kKMG]?)",
    "tflops=190.1,step={n},loss=6.8,tgs (tokens/gpu/second)={r},tgs/last_tgs_1={r},lr=4e-7":
        r"\(tokens/gpu/second\)=(?P<rate>[\d.,]*\d)",
    "(step {n}) - loss: 6.8 | Elements per Second: 12,{n}1 | Number of Elements: 65,536":
        r"Second: +(?P<rate>",
    # verl before it printed a rate, and pith-train.
    "step:{n} - score/mean:0.1 - timing_s/gen:74.02 - timing_s/step:{r} - timing_ms/adv:0.1":
        r"timing_s/step:(?P<step_time>",
    "step {n}/99 | step-time 2.5 sec | loss 2.6 | tokens-per-second {r} | gpu-memory 63.6 GB":
        r"second +(?P<rate>",
    # SupContrast, whose DT is the time of loading; IsaacGym's rl_games; F5-TTS.
    "Train: [1][{n}/391]\tBT {r} (0.260)\tDT 0.001 (0.012)\tloss 7.0 (7.1)": r"BT +(?P<step_time>",
    "fps step: 512345 fps total: {r} epoch: {n}/500 frames: 655{n}": r"total: +(?P<rate>",
    "Epoch 1/11: 3%|{bar:<9}| {n}/99 [00:01<00:02, {r}update/s, loss=0.7]":
        r"\| +(?P<step>\d+).*?, +(?P<rate>[\d.,]*\d)(?:update/s|s/update)",
    # The unit behind a number is the name of the next one.
    "step: {n} loss: 2.{n} samples/s: {r}": r"samples/s: +(?P<rate>",
    "step {n} loss 2.{n} tok/s {r} lr 0.1": r"tok/s +(?P<rate>",
    # torch_xla's examples and Marian.
    "| Training Device=xla:0/0 Epoch=1 Step={n} Loss=6.8 Rate={r} GlobalRate=88.5 Time=10:00:00":
        r"Step=(?P<step>\d+).*?Rate=(?P<rate>",
    "Ep. 1 : Up. {n} : Sen. 97,000 : Cost 5.1 : Time 51.6s : {r} words/s : gNorm 1.2":
        r"(?P<rate>[\d.,]*\d) +words/s",
    # Lingua, which prints its rate with an exponent.
    "0: INFO - step: {n}  loss: 9.9  flops: 4.2e+14  wps: {r}e+04  data: 0.0023  lr: 3.0e-04":
        r"wps: +(?P<rate>[\d.,]*\de[+-]\d+)",
    # open_clip, whose numbers are aligned, and Composer's bar.
    "Train Epoch: 0 [{n:4d}/9900 (1%)] Batch (t): 0.5, {r}/s, 9/s/gpu": r"\[ *(?P<step>\d+).*?, +",
    "Train Epoch: 0 [{n:4d}/9900 (1%)] Batch (t): 0.5, 10{n}./s, {r}/s/gpu": r"\d)\.?/s",
    # PaddleSeg of 2021, HiFi-GAN, NVIDIA's Tacotron 2, nerfstudio, FunASR, and HugeCTR, whose time
    # is that of many steps.
    "epoch=1, iter={n}/9, loss=2.8, batch_cost={r}, reader_cost=0.2": r"batch_cost=(?P<step_time>",
    "Steps : {n}, Gen Loss Total : 60.1, s/b : {r}": r"s/b +: +(?P<step_time>",
    "Train loss {n} 0.45 Grad Norm 1.23 {r}s/it": r"(?P<step_time>[\d.,]*\d)s/it",
    "{n} (0.33%)    {r} ms    12 m, 30 s    161.2 K": r"\) +(?P<step_time>[\d.,]*\d)",
    "step: {n}, 'forward_time': '0.2', 'backward_and_AllReduce_time': '0.3', 'total_time': '{r}'":
        r"total_time': +'(?P<step_time>",
    "Iter: {n} Time(200 iters): {r}s Loss: 0.12": None,
    "train Epoch 0: 1%|{bar:<9}| {n}/99 [00:01<00:02, {r}ba/s, loss=2.2]": r"\| +(?P<step>\d+)",
    # fairseq of 2018; two ranks of OneFlow's models; a fork of litgpt with its validation.
    "| epoch 010  {n} / 8223 loss=1.3, wps={r}, wpb=908": r"epoch +[\d.,]+ +(?P<step>\d+).*?wps=(",
    "[0] [train], epoch: 0/50, iter: {n}/99, throughput: {r}\n"
    "[1] [train], epoch: 0/50, iter: {n}/99, throughput: {r}": r"iter: +(?P<step>\d+).*?throughput",
    "iter {n} step 7 | loss: 2.6 | iter time: {r} ms\niter {n} | val_loss: 3.9 val_time: {r} ms":
        r"iter +time: +(?P<step_time>",
    # A bar that is drawn twice in each step: torchtune's. GNMT of NVIDIA with two ranks, and a bar
    # of datasets.
    "0:1|{n}|Loss: 1.2: 2%|# | {n}/99 [06:45<17:27, {r}s/it]\n"
    "0:1|{n}|Loss: 1.3: 2%|# | {n}/99 [06:45<17:27, {r}s/it]":
        r"\| +(?P<step>\d+).*?, +(?P<step_time>[\d.,]*\d)(?:it/s|s/it)",
    "1: TRAIN [0][{n}/99]\tTime 0.4 (0.0)\tTok/s {r} (0)\n"
    "0: TRAIN [0][{n}/99]\tTime 0.4 (0.0)\tTok/s {r} (0)": r"Tok/s +(?P<rate>",
    "iter {n}: {r} FPS\nMap: 1%|# | {n}/99 [00:01<00:02, 99.1 examples/s]\n"
    "Map: 2%|# | {n}/99 [00:01<00:02, 99.2 examples/s]": r": +(?P<rate>[\d.,]*\d) +FPS",
    "10:00:{n}: step {n}, duration = {r}": r"duration += +(?P<step_time>",
    # Darknet; hszhao/semseg; CenterNet; WeNet, whose Batch is no time.
    " {n}: 3.27, 3.02 avg loss, 0.010 rate, {r} seconds, 64 images, 30.8 hours left":
        r"rate, +(?P<step_time>",
    "Epoch: [1/200][{n}/371] Data 0.001 (0.002) Batch {r} (0.9) Remain 10:00:00 Loss 2.1":
        r"Batch +(?P<step_time>",
    "ctdet/d train: [1][{n}/99]|Tot: 0:00:02 |loss 5.9 |Data 0.001s(0.002s) |Net {r}s":
        r"\|Net +(?P<step_time>",
    "nsamp: {n}, time_since_last_print: {r}, p0loss = 2.80": None,  # KataGo
    "0.5 DEBUG TRAIN Batch 0/{n} loss 2{r} lr 0.1": None,
    "Iteration: 1%|# | {n}/99 [0:01<0:02, {r}s/it]\nEpoch: 1%|# | {n}/99 [1:00:01<0:02, 9.1s/it]":
        r"Iteration: +.*?\| +(?P<step>",
}  # fmt: skip


@pytest.mark.parametrize("line", LIKELY)
def test_the_most_likely_line_and_its_expression(line: str) -> None:
    lines = [
        "pip 1.2 from 3.4",
        *(line.format(n=n, r=f"{90 + n % 7 / 7:.2f}", bar="█" * (n // 8)) for n in range(10, 60)),
    ]
    likely = likely_line([("\n".join(lines) + "\n").encode()])
    assert likely is not None and likely.line == lines[1].split("\n")[0].strip()
    if (wanted := LIKELY[line]) is None:
        assert likely.regex is None
        return
    assert likely.regex is not None and wanted in likely.regex
    found = list(Lines(likely.regex).finditer("\n".join(lines).encode()))
    assert [*dict.fromkeys(int(match["step"]) for match in found)] == [*range(10, 60)]


ELSEWHERE = {
    "{{'loss': 2.2, 'train_speed(iter/s)': {r}, 'global_step/max_steps': '{n}/94', "
    "'elapsed_time': '16m {n}s', 'remaining_time': '2h 7m 13s'}}": "'train_samples_per_second'",
    '{{"loss": 2.2, "train_speed(s/it)": {r}, "global_step/max_steps": "{n}/94"}}': "ms-swift",
    " {n}/99 [00:01<00:02, {r}s/it]\n{{'loss': 2.2, 'tokens/train_per_sec_per_gpu': {r}, "
    "'epoch': 0.{n}}}": "tokens/train_per_sec_per_gpu.: (?P<rate>",
    " iteration {n}/ 99 | consumed samples: 8 | \nelapsed time per iteration (ms): {r} |":
        "the lines of Megatron are wrapped",
    '"average_bus_bandwidth": {{\n"bandwidth": {r}}}': "jq -c",
    '{{"log": "Epoch[0] Batch [{n}] Speed: {r} img/s\\n", "stream": "stdout"}}': "jq -rj .log",
    ":::MLPv0.5.0 resnet 15600000{n}.123 (a.py:1) run_start": "MLPerf v0.5 are not read",
    " {n}/99 [00:01<00:02, {r}s/it]\n{{'loss': 2.2, 'epoch': 0.{n}}}": "or describe its bar",
    " Train throughput/samples_per_sec: {r}": "'Train time/batch: (?P<step>\\d+)|Train throughput",
    "{{'loss': {r}, 'learning_rate': 4e-05, 'epoch': 0.{n}}}": "'train_samples_per_second'",
    "Step Time : {r}s GPU utilization: 244.3MODEL_TFLOP/s/GPU": "which the last rank prints",
    "2024-05-01 10:{n}:00.123456: Epoch {n}\n"
    "2024-05-01 10:{n}:59.234567: Epoch time: {r} s": "unit s/250",
    "INFO train.py:9 step:{n} smpl:{n}0 ep:{n} updt_s:{r} data_s:0.01\nINFO train.py:9 step:1K "
    "smpl:8K ep:{n} updt_s:{r} data_s:0.01": "nl > numbered.log",
    "tick {n}     kimg 4.{n}      time 1m {n}s       sec/tick {r}    sec/kimg {r}": "unit s/125",
    "(epoch: 1, iters: {n}, time: {r}, data: 0.110) G_GAN: 0.912": "s --batch-size 1",
    "0/9 6.7G 0.0{n} 0.067 0.017 10  640: 100%|███| 200/200 00:50": "TQDM_BAR_FORMAT",
    "[gpu01:0/2] 1epoch:train:{n}-{n}batch: iter_time=2.9e-04, train_time={r}": "s/ACCUM_GRAD",
    '"train_samples_per_second": {r}': r"train_samples_per_second\W+(?P<rate>[\d.]+)",
    '{{"current_steps": {n}, "loss": {r}, "lr": 0.1, "remaining_time": "0:02:04"}}':
        "include_num_input_tokens_seen: true",
}  # fmt: skip


@pytest.mark.parametrize("line", ELSEWHERE)
def test_a_log_of_a_program_that_prints_rates_elsewhere(here: Path, line: str) -> None:
    lines = [line.format(n=n, r=f"{2 + n % 7 / 7:.2f}") for n in range(10, 60)]
    write(here / "logs" / "1n8g" / "train.log", lines)
    assert ELSEWHERE[line] in " ".join(call("summarize", "logs", status=2).err.split())


def test_the_options_beside_a_guess_are_those_that_it_needs(here: Path) -> None:
    for line, options in (
        (
            "ips: {n}.5",
            "--unit UNIT --rates-are-per WHOSE\n  UNIT: samples, tokens or steps; WHOSE",
        ),
        ("{n} img/s", "--unit samples --rates-are-per WHOSE\n  WHOSE: world (all"),
        ("{n} tokens/s/gpu", "--unit tokens --rates-are-per device\nor describe"),
        ("{n}.5 it/s", "--unit steps --rates-are-per step\nor describe"),
        ("time {n}.5 s", "--step-time-unit s\n  s/100 if each"),
        ("time: {n}.5,", "--step-time-unit UNIT\n  UNIT: s, ms or us; s/100 if each"),
    ):
        lines = [f"upd {n} " + line.format(n=n % 7) for n in range(10, 60)]
        write(here / "logs" / "1n8g" / "train.log", lines)
        error = call("summarize", "logs", status=2).err
        assert f"' {options}" in error, error


def test_the_expression_leaves_out_lines_of_a_validation() -> None:
    line = "12:00 INFO: epoch:0  , {} step:{:<4}, loss: 0.7, ips: 92.{} images/sec."
    lines = [line.format("train", n, n % 7) for n in range(40)]
    lines += [line.format("valid", n, n % 7).replace("loss", "top1") for n in range(40, 48)]
    likely = likely_line([("\n".join(lines) + "\n").encode()])
    assert likely is not None and likely.regex is not None
    found = Lines(likely.regex).finditer("\n".join(lines).encode())
    assert [int(match["step"]) for match in found] == [*range(40)]


@pytest.mark.parametrize(
    "rate",
    [
        "Throughput: {} samples/s",
        "mean (sentences/sec) = {}",
        '{{"samples_per_s": {}, "n": 3}}',
        "GPU Time per batch:   {} milliseconds",  # pytorch/benchmark, run.py
    ],
)
def test_a_log_with_one_rate_has_that_of_its_run(here: Path, rate: str) -> None:
    lines = ["lr 0.1", rate.format("812.5"), "Time to first batch: 31.5 ms"]
    path = write(here / NAME, lines)
    problem = only(load(path))
    assert "one rate for the whole run" in str(problem.hint)
    options, value = (MS, 8 * 128 / 0.8125) if "batch" in rate else (SAMPLES, 812.5)
    assert throughput(load(path, regex=suggested(problem), **options)) == pytest.approx(value)


@pytest.mark.parametrize(
    ("line", "groups"),
    [
        # HRNet; BasicSR; GluonCV's train_yolo3.py; DGL's GraphSAGE; WeNet; OpenNMT-py of 2017,
        # whose epochs may be short.
        ("Epoch: [{e}][{n:3d}/40] Speed {r} samples/s Data 0.1s", ["epoch", "of_epoch"]),
        ("[EDSR..][epoch: {e}, iter: {all:,d}, (1e-4,)] [time (data): {t} (0.0)]", []),
        ("INFO:root:[Epoch {e}][Batch {n}], LR: 2.8E-04, Speed: {r} samples/sec", ["epoch"]),
        ("Epoch {e:05d} | Step {n:05d} | Speed (samples/sec) {r} | GPU 1200.3 MB", ["epoch"]),
        ("DEBUG TRAIN | samples/sec {r}| Batch {e}/{n} loss 24.4 rank 0", ["epoch"]),
        ("Epoch {e}, {n:2d}/ 40; {r} samples/s; {all} s elapsed", ["epoch", "of_epoch"]),
    ],
)
def test_a_guess_follows_steps_through_the_epochs(here: Path, line: str, groups: list[str]) -> None:
    lines = [
        line.format(e=e, n=n, all=900 + 40 * e + n, r=500 + n % 3, t=f"{0.5 + n % 3 / 1e3:.3f}")
        for e in range(3)
        for n in range(0, 40, 8 if "elapsed" in line else 2)
    ]
    path = write(here / NAME, lines)
    regex = suggested(only(load(path)))
    assert [name for name in ("epoch", "of_epoch") if f"<{name}>" in regex] == groups
    options = {"step_time_unit": "s"} if "{t}" in line else SAMPLES
    assert load(path, regex=regex, **options).problems == []


@pytest.mark.parametrize(
    ("line", "options", "value"),
    [
        # microsoft/DeepSpeedExamples, perf.py; foundation-model-stack/fms-fsdp; coqui-ai/Trainer;
        # smallcorgi/Faster-RCNN_TF
        (
            "iter: {step} / 700, total loss: 2.7, lr: 0.001\nspeed: {rate}s / iter",
            {"step_time_unit": "s"},
            8 * 128 / 39.02,
        ),
        (
            "Epoch: 0, Step: {step}, Rank: 0, loss = 1.9\n"
            "Model Parameters: 1.3 B, Latency: 0.41s, TFLOPs: 58.21, Samples/sec: {rate}, X: 1",
            SAMPLES,
            39.02,
        ),
        (
            "step: {step}\nseen 8 tokens\ncurrent step time: 0.4\ncurrent token per gpu per sec: "
            "{rate}\noverall token per gpu per sec: 38.01",
            {"unit": "tokens", **DEVICE},
            8 * 39.02,
        ),
        (
            "-- STEP: {step}/99 -- GLOBAL_STEP: {step}\n   | > step_time: {rate}  (38.0123)\n"
            "   | > loader_time: 0.1  (0.1)",
            {"step_time_unit": "s"},
            8 * 128 / 39.02,
        ),
    ],
)
def test_a_step_and_its_rate_on_two_lines(
    here: Path, line: str, options: dict[str, str], value: float
) -> None:
    lines = program(line, "39.02")
    path = write(here / NAME, lines)
    problem = only(load(path))
    assert "takes the step of another line" in str(problem.hint)
    results = load(path, regex=suggested(problem), **options)
    assert throughput(results) == pytest.approx(value)
    whole = "\n".join(lines).split("\n")
    lost = next(n for n in range(40, len(whole)) if "39.02" in whole[n])
    write(path, [*whole[:lost], *whole[lost + 1 :]])
    assert "lines are missing" in str(only(load(path, regex=suggested(problem), **options)).hint)


def test_logs_without_such_lines_have_none() -> None:
    assert likely_line([b"a\nb 1\nc 1 2\n"]) is None
    assert likely_line([b"1 2 3\n" * 5]) is None  # no step
    assert likely_line([b"E2E (Tokens/s): 92.5\n" * 5]) is None  # 2 is none


@given(st.lists(st.text("a1.\x00\\\ufffdé: /st[]()", max_size=60), min_size=1, max_size=4))
def test_any_line_gives_a_valid_suggestion_or_none(lines: list[str]) -> None:
    repeated = [line + f" step {n} {n / 7:.2f} it/s" for n in range(4) for line in lines]
    likely = likely_line(["\n".join(repeated).encode("utf-8", "replace")])
    assert likely is None or likely.regex is None or Lines(likely.regex)


def test_the_suggestion_of_a_message_works(here: Path) -> None:
    """Logs with the same cause are one error, and its options give the table."""
    for topology in ("1n1g", "1n8g", "2n8g"):
        write(here / "logs" / topology / "rn50_b128_amp_1.log", program())
    told = call("summarize", "logs", status=2).both
    assert told.count("no known format reads this log") == 1
    assert "logs/1n1g/rn50_b128_amp_1.log, logs/1n8g/" in told and "init-workload" in told
    suggested = re.search(r"--regex '(.*)' --unit", told)
    assert suggested is not None
    about = ["--unit", "samples", "--rates-are-per", "world"]
    table = call("summarize", "logs", "--regex", suggested[1], *about).out
    assert table.count("100.00") >= 3


def test_the_guess_of_a_bar_takes_all_of_its_lines() -> None:
    """As SpeechBrain draws it, without words."""
    bars = [f"{n:3d}%|{'█' * (n // 9):<11}| {n}/99 [00:01<00:02, 1.5s/it]" for n in range(1, 100)]
    likely = likely_line(["\r".join(bars).encode()])
    assert likely is not None and likely.regex is not None
    assert len([*Lines(likely.regex, bars[0], 1.0).finditer("\r".join(bars).encode())]) == 99


@pytest.mark.parametrize("unit", ["it", "batch"])
@pytest.mark.parametrize("group", ["rate", "step_time"])
def test_a_bar_may_change_between_its_two_units(tmp_path: Path, group: str, unit: str) -> None:
    speeds = {step: (f"1.25s/{unit}", f"0.80{unit}/s")[step % 2] for step in range(1, 41)}
    if group == "step_time":
        speeds = {step: speeds[step + 1] for step in range(1, 40)}
    bars = "\r".join(f"{n}%|#  | {n}/41 [00:01<00:09, {speed}]" for n, speed in speeds.items())
    path = write(tmp_path / "1n1g/cnn_b32_fp32_1.log", [bars])
    options = {"step_time_unit": "s"} if group == "step_time" else {}
    regex = rf"\| (?P<step>\d+)/.*, (?P<{group}>[\d.]+)(?:{unit}/s|s/{unit})"
    assert throughput(load(path, regex=regex, unit="steps", **options)) == pytest.approx(32 * 0.8)
    if options:  # of several steps, one of the two cannot be meant
        assert "not a number" in str(
            only(load(path, regex=regex, unit="steps", step_time_unit="s/9"))
        )


def bars(*lengths: int, step_s: float = 0.04, every: int = 1, label: str = "") -> list[str]:
    """The bars of tqdm, of so many steps each, one behind the other. The first 12 steps take four
    times as long. A step in `every` is drawn, and its rate is smoothed."""
    lines, trained = [], 0
    for length in lengths:
        drawn, elapsed, mean = [f"{label}  0%|          | 0/{length} [00:00<?, ?it/s]"], 0.0, 0.0
        for step in range(1, length + 1):
            trained += 1
            elapsed += (last := step_s * (4 if trained <= 12 else 1))
            mean = 0.3 * last + 0.7 * (mean or last)
            rate = f"{1 / mean:5.2f}it/s" if mean < 1 else f"{mean:5.2f}s/it"
            times = f"{int(elapsed) // 60:02}:{int(elapsed) % 60:02}<00:09"
            if step % every < 2 or step == length:
                bar = f"{'#' * (step // 30)}{step % 10}".ljust(12)
                drawn.append(f"{label}{step:3d}%|{bar}| {step}/{length} [{times}, {rate}]")
        lines.append("\r".join(drawn))
    return lines


@pytest.mark.parametrize(
    ("lines", "rate", "words"),
    [
        (bars(300, 300, 300), 25.0, ""),
        (bars(300, 40, 300, 40), 25.0, "bars of 300 steps count, and no others"),
        (bars(300, every=5), 25.0, ""),
        (bars(300, 300, every=7, label="Training:"), 25.0, ""),
        (bars(100, 100, step_s=2.5), 0.4, ""),  # smoothed more slowly than the warm-up ends
    ],
)
def test_bars_without_the_number_of_their_epoch(
    here: Path, lines: list[str], rate: float, words: str
) -> None:
    path = write(here / NAME, lines)
    regex = suggested(only(load(path)))
    options = {"step_time_unit": "s"} if "step_time" in regex else {"unit": "steps"}
    results = load(path, regex=regex, **options)
    assert throughput(results) == pytest.approx(8 * 128 * rate, rel=0.003)
    assert words in " ".join(results.notes)


def test_a_bar_that_two_processes_draw_is_refused(here: Path) -> None:
    one, other = (line.split("\r") for line in bars(300, 300))
    path = write(here / NAME, [*one[:100], *other[:90], *one[100:], *other[90:]])
    problem = only(load(path, regex=suggested(only(load(path))), unit="steps"))
    assert problem.problem == "a progress bar begins again before its end"


@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize("unit", ["ms", "img/s"])
@pytest.mark.parametrize("slow", [1, 5])
def test_means_since_the_start_are_recognised(
    here: Path, slow: int, unit: str, epochs: int
) -> None:
    """The first 20 steps are slow. Neither the mean of one that is not slow nor the times of single
    steps are taken for such means."""
    lines, single = [], []
    for epoch in range(epochs):
        spent = 0.0
        for step in range(1, 401):
            spent += (last := 0.4 * (slow if step <= 20 and not epoch else 1) + step % 3 / 1000)
            if step % 10 == 0:
                for kept, time in ((lines, spent / step), (single, last)):
                    printed = (
                        f"{1000 * time:.0f} ms" if unit == "ms" else f"{1024 / time:.1f} img/s"
                    )
                    kept.append(f"ep [{epoch}] iter: {step}/400; loss: 7.2; btime: {printed};")
    options = MS if unit == "ms" else SAMPLES
    regex = r"ep \[(?P<epoch>\d+)\] iter: (?P<step>\d+)/(?P<of_epoch>\d+); .*btime: "
    regex += "(?P<step_time>[0-9.]+)" if unit == "ms" else "(?P<rate>[0-9.]+)"
    for kept in (lines, single):
        results = load(write(here / NAME, kept), regex=regex, **options)
        assert throughput(results) == pytest.approx(1024 / 0.401, rel=0.005)
        has_note = any("means since the start" in note for note in results.notes)
        assert has_note == (slow > 1 and kept is lines)


@pytest.mark.parametrize("drawn", [1, 4])
@pytest.mark.parametrize(
    "settings",
    [
        # huggingface/diffusers, train_text_to_image.py; kohya-ss/sd-scripts, train_network.py
        "Num processes: 4\nMixed precision type: fp16\n11/21/2025 10:00:00 - INFO - __main__ -   "
        "Instantaneous batch size per device = 2\n  Gradient Accumulation steps = 4",
        "  batch size per device / バッチサイズ: 2\n  gradient accumulation steps / 勾配 = 4",
    ],
)
def test_a_bar_of_steps_counts_all_accumulated_batches(
    tmp_path: Path, settings: str, drawn: int
) -> None:
    """It is drawn again for each of them, but for the last step, which ends the run."""
    steps = [n for n in range(1, 50) for _ in range(drawn)] + [50]
    bars = "\r".join(f"Steps: {n}%|# | {n}/50 [00:01<00:09, 2.00s/it, loss=0.1]" for n in steps)
    path = write(tmp_path / "1n4g/cnn_fp16_1.log", [settings, bars])
    options = {"regex": r"\| (?P<step>\d+)/.*, (?P<step_time>[\d.]+)s/it"}
    assert throughput(load(path, **options)) == pytest.approx(2 * 4 * 4 / 2)
    assert "contradicts --batch-size" in only(load(path, batch_size="8", **options)).problem


@pytest.mark.parametrize(
    ("name", "options", "value"),
    [
        ("tf2_timehistory/ranks", DEVICE, 2 * 402.9),
        ("tf2_timehistory/ranks", WORLD, 402.9),
        ("keras/maybe_samples", {"global_batch_size": "1"}, 250.0),
        ("keras/old_accuracy", {"batch_size": "8"}, 2 * 8 / 0.007),
    ],
)
def test_the_expression_of_a_refusal_works(
    tmp_path: Path, name: str, options: dict[str, str], value: float
) -> None:
    path = write(tmp_path / "1n2g/cnn_fp32_1.log", lines_of(name))
    regex = suggested(only(load(path, batch_size="8")))
    results = load(path, regex=regex, unit="samples", **options)
    assert throughput(results) == pytest.approx(value, rel=0.002)


def test_a_log_of_an_estimator_that_was_started_again_is_refused(tmp_path: Path) -> None:
    log = WHOLE_LOGS["tf_estimator/whole"]
    path = write(tmp_path / log.path, 2 * log.text.splitlines())
    assert "was started again" in only(load(path, **log.options)).problem


def test_an_unknown_log_without_a_telling_name_is_no_silence(here: Path) -> None:
    write(here / "logs" / "train.log", program())
    write(here / "logs" / "LICENSE", ["nothing"])
    assert "init-workload" in call("summarize", "logs", status=2).both


def test_problems_by_cause() -> None:
    same = [UserError("p", where=f"{n}.log", found=f"{n}", hint="h") for n in range(7)]
    other = UserError("q", where="x.log", expected="1")
    merged = [str(problem) for problem in by_cause([*same, other, "text"])]
    assert merged == [
        "text",
        "0.log, 1.log, 2.log, 3.log, 4.log and 2 more: p (found 0 in the first)\n  h",
        "x.log: q (expected 1)",
    ]
