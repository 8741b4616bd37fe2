"""Messages name what to type next, and what they name works."""

import re
from pathlib import Path

import pytest
from command_line import call
from make_logs import ROOT

from dlperf_runner.measure.numbering import LogLines, wrong_step
from dlperf_runner.results.log_head import same_network

LOGS = ROOT / "examples" / "logs"


def test_not_comparable_names_the_options_that_decide() -> None:
    text = call("compare", LOGS).text
    assert "6 not comparable" in text
    options = re.findall(r"--condition (\S+)", text)
    assert options == ["accelerator=V100-SXM2-16GB", "data=real", "image_size=224"]
    assert "if it ran so, it is comparable with --assume-published, or with --condition" in text
    assert "6 reproduced" in call("compare", LOGS, "--assume-published").text
    given = [word for option in options for word in ("--condition", option)]
    assert "6 reproduced" in call("compare", LOGS, *given).text
    # A condition may be written as the table does.
    written = [word.replace("image_size", "image size") for word in given]
    assert call("compare", LOGS, *written).text == call("compare", LOGS, *given).text


@pytest.mark.parametrize(
    ("step", "hint"),
    [(0, "missing? If the program counts from 0: `first_step: 0`"), (70, "missing?")],
)
def test_a_first_step_of_0_names_the_key_that_states_it(step: int, hint: str) -> None:
    error = wrong_step([step], 0, 50, LogLines(lambda _: 1, "train.log"))
    assert f"train.log:1: the first step is {step} (expected 50, found {step})" in str(error)
    assert hint in str(error)
    assert ("first_step" in str(error)) == (step == 0)


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (["plan", "--model", "resnet"], "did you mean resnet50?"),
        (["explain", LOGS, "--to", "mxnet-resnet50"], "did you mean mxnet-resnet50v1b?"),
        (["compare", LOGS, "--condition", "imagesize=224"], "NAME=VALUE, where NAME is one of"),
        (["summarize"], "name a directory of logs: dlperf summarize DIR"),
        (["status"], "no campaign has been run below ./results"),
        (["stop"], "no campaign has been run below ./results"),
        (["archive"], "no campaign has been run below ./results"),
        (["list", "workload"], "did you mean workloads?"),
        (["init", "--from", "h10"], "did you mean h100?"),
        (["bandwidth", "."], "expected logs of nccl-tests, found a directory"),
    ],
)
def test_errors_name_what_to_type_next(
    words: list[object], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = call(*words, status=2).err
    assert wanted in error
    assert "found nothing" not in error
    assert "None" not in error


@pytest.mark.parametrize(
    ("name", "other", "is_same"),
    [
        ("llama-3.1-8b", "llama-8b", True),
        ("llama-3-8b", "Llama-3.1-8B", True),
        ("llama3_8b", "llama-3.1-8b", True),
        ("llama-3.1-70b", "llama-8b", False),
        ("llama-2-7b", "llama-7b", False),
        ("r50", "resnet50", True),
        ("vit-b16", "vit_base_patch16_224.augreg_in1k", True),
        ("vit-b16", "vit_large_patch16_224", False),
        ("bert-large-uncased", "bertlarge", True),
        ("r50", "resnet101", False),
    ],
)
def test_a_network_has_one_name_in_all_programs(name: str, other: str, is_same: bool) -> None:
    """MaxText, Megatron-LM and torchtitan write the same size of Llama 3 differently."""
    assert same_network(name, other) == is_same
