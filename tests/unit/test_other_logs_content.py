"""What the logs of others state about their runs, and what contradicts it."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
from command_line import call
from log_examples import example
from make_logs import campaign_run, write
from other_logs import GOOD, load, only, speedometer, stating
from pandas import DataFrame

from dlperf_runner.catalog.published_numbers import load_rule
from dlperf_runner.commands.summarize import summarize
from dlperf_runner.compare.conditions import read_conditions


@pytest.mark.parametrize(
    ("stated", "parameters", "problem"),
    [
        ("model='resnet50_v1b'", {}, None),
        ("model='resnet50_v1d'", {}, ("network", "resnet50v1b", "resnet50_v1d")),
        ("input_size=64", {"image_size": 64}, None),
        ("input_size=64", {"image_size": 224}, ("parameter image_size", "224", "64")),
    ],
)
def test_a_log_of_a_campaign_that_contradicts_the_plan_is_refused(
    tmp_path: Path,
    stated: str,
    parameters: dict[str, int],
    problem: tuple[str, str, str] | None,
) -> None:
    head = f"INFO:root:Namespace(batch_size=128, dtype='float32', {stated})"
    campaign_run(tmp_path, "1n1g", 1, [head, *GOOD[2:]], parameters=parameters)
    found = load(tmp_path).problems
    assert [(each.problem, each.expected, each.found) for each in found] == (
        [(f"the {problem[0]} contradicts the plan", *problem[1:])] if problem else []
    )


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "data=/data/tfrecords input_pipeline=framework xla=true"),
        ({"dali": True, "xla": False}, "data=/data/tfrecords input_pipeline=DALI xla=false"),
        ({"data": None}, "data=synthetic image_size=224 xla=true"),
    ],
)
def test_what_the_log_states_is_used_in_comparisons(
    here: Path, changes: dict[str, object], expected: str
) -> None:
    path = write(here / "logs" / "tf_gpu8_amp_bs256.txt", stating(**changes))
    results = load(path)
    (run,) = results.counted
    assert run.parameters == expected
    (known,) = read_conditions([run], results.models, load_rule()).values()
    assert known["xla"] is ("xla=true" in expected)
    assert known["data"] == ("real" if "data=/" in expected else "synthetic")
    assert known.get("image_size") == ("224" if "image_size" in expected else None)
    for text in ("data (unknown", "XLA (unknown"):
        assert text not in call("compare", "logs").text


def test_a_condition_that_the_log_contradicts_is_refused(here: Path) -> None:
    """It replaced what the log states, and a run with XLA was compared with one without."""
    write(here / "logs" / "tf_gpu8_amp_bs256_v100.txt", stating())
    told = call("compare", "logs", "--condition", "xla=false", status=2).err
    assert "--condition xla: the stated condition contradicts the log or its record" in told
    assert "expected yes (logs/tf_gpu8_amp_bs256_v100.txt), found no" in told
    call("compare", "logs", "--condition", "data=synthetic", status=2)
    # More than the log says is no contradiction.
    agrees = ("xla=true", "data=real", "accelerator=V100-SXM2-32GB")
    options = [word for text in agrees for word in ("--condition", text)]
    call("compare", "logs", *options)
    # Less is no reason to forget what is known.
    write(here / "pcie" / "tf_gpu8_amp_bs256.txt", stating())
    known = ("--accelerator", "V100-PCIE-32GB")
    for less in ((), ("--condition", "accelerator=V100")):
        assert "(V100-PCIE-32GB, V100-SXM2" in call("compare", "pcie", *known, *less).text


def test_logs_that_state_different_options_are_not_pooled(tmp_path: Path) -> None:
    for repeat, xla in ((1, True), (2, False)):
        write(tmp_path / f"rn50_b256_amp_1n8g_{repeat}.log", stating(xla=xla))
    for repeat, parallel in ((1, True), (2, False)):
        write(tmp_path / f"y1_b2_fp32_1n1g_{repeat}.log", speedometer("y1", parallel=parallel))
    for repeat, data in ((3, "/data/a/train"), (4, "/data/b/train/")):
        write(tmp_path / f"rn50_b256_amp_1n8g_{repeat}.log", stating(data=data))
    table = DataFrame(summarize(tmp_path, tmp_path / "out").cases)
    assert table["repeats"].tolist() == [1] * 6
    texts = " ".join(table["parameters"])
    for text in ("parallel=data", "parallel=model", "data=/data/a/train ", "data=/data/b/train "):
        assert text in texts


def test_the_measured_window_is_the_one_that_the_log_states(tmp_path: Path) -> None:
    lines = [line for line in stating(warmup=250) if not re.search(r"\(0, 2[0-4]0\)", line)]
    path = write(tmp_path / "rn50_b256_amp_1n8g.log", lines)
    (run,) = load(path).counted
    assert (run.total_steps, run.warmup_steps) == (500, 250)
    # What is stated must not contradict it.
    mapping = tmp_path / "m.yml"
    for total, warmup, told in ((400, 250, "steps"), (500, 200, "warm-up steps")):
        steps = f"total_steps: {total}, warmup_steps: {warmup}"
        mapping.write_text(f'logs: {{"*.log": {{{steps}}}}}')
        problem = only(load(path, mapping=mapping)).problem
        assert problem == f"the number of {told} contradicts {mapping}, *.log"


def test_a_log_of_a_cpu_is_none_of_a_gpu(tmp_path: Path) -> None:
    path = write(tmp_path / "rn50_b256_amp_1n8g.log", stating(cpu=True))
    assert [run.accelerator for run in load(path).counted] == ["cpu"]
    problem = only(load(path, accelerator="V100"))
    assert (problem.expected, problem.found) == ("V100", "cpu : True")


def test_options_are_read_in_any_order(tmp_path: Path) -> None:
    """Before Python 3.9, argparse sorted them by name."""
    for place, options in (
        ("sorted", "rec_train='/data/train.rec', use_rec=True"),
        ("given", "use_rec=True, rec_train='/data/train.rec'"),
    ):
        lines = ["INFO:root:Namespace(batch_size=128, dtype='float32', " + options + ")"]
        write(tmp_path / place / "1n1g" / "rn50_b128_fp32_1.log", [*lines, *GOOD[2:]])
        (run,) = load(tmp_path / place).counted
        assert run.parameters == "data=/data/train.rec"


def test_a_bar_of_nemo_with_rounded_samples_does_not_give_its_global_batch(tmp_path: Path) -> None:
    """The bar is as in NVIDIA/NeMo-Framework-Launcher issue 55: a step trained 2048 samples."""
    bars = [
        f"Epoch 0:  {n}%|    | {800 + n}/77225 [9:{n:02d}:00<878:01:48, 41.36s/it, loss=3.1,"
        f" v_num=, reduced_train_loss=3.090, global_step={799 + n}.0, consumed_samples=1.6{n}e+6]"
        for n in range(1, 9)
    ]
    log = write(tmp_path / "gpt3-20b_8n8g_b4_bf16.log", ["\r".join(bars)])
    error = only(load(log))
    assert "trains a global batch" in str(error) and "from its beginning" in str(error.hint)


def test_decimal_commas_are_named(tmp_path: Path) -> None:
    lines = example("megatron/wording").data.decode().replace(".", ",").splitlines()
    error = only(load(write(tmp_path / "gpt_1n8g_b4_bf16.log", lines)))
    assert "LC_ALL=C" in str(error.hint)


def test_the_command_that_takes_blanks_out_of_numbers_gives_the_log(tmp_path: Path) -> None:
    text = example("llmc/whole").data.decode()
    blanks = re.sub(r"\d{5,}(?= tok/s)", lambda rate: f"{int(rate[0]):,}".replace(",", " "), text)
    log = write(tmp_path / "gpt_1n8g_b4_bf16.log", blanks.splitlines())
    _, command = str(only(load(log)).hint).split(":\n")
    argv = shlex.split(command.replace("LOG > whole.log", str(log)))
    assert subprocess.run(argv, capture_output=True, text=True, check=True).stdout == text


@pytest.mark.parametrize("last", [80, 800])
def test_a_run_that_ends_within_its_first_epoch_has_the_rates_of_its_own_tenths(
    tmp_path: Path, last: int
) -> None:
    bars = [
        f"Epoch 0:   1%|    | {n}/77225 [{n // 120:02d}:{n // 2 % 60:02d}<9:59:59,  2.00it/s]"
        for n in range(10, last + 10, 10)
    ]
    log = write(tmp_path / "vit_1n1g_b32_fp32.log", ["\r".join(bars)])
    out = call("summarize", log, "--output-dir", tmp_path / "results").out
    assert re.search(r"\| +64\.00 \|", out), out
    assert f"the log ends in its first epoch, at step {last} of 77225" in " ".join(out.split())
