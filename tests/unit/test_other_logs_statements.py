"""What the user states about the logs of others, by options and in mapping.yml."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import call
from make_logs import campaign_run, gluoncv, write
from other_logs import GOOD, cases, load, only, speedometer
from whole_logs import WHOLE_LOGS

from dlperf_runner.core.errors import UserError


def test_options_say_what_neither_log_nor_name_says(here: Path) -> None:
    write(here / "logs" / "slurm-4711.out", gluoncv(50.0, batch=None, dtype="x"))
    problem = call("summarize", "logs", status=2).err
    assert "does not identify the run of this gluoncv_horovod log" in problem
    assert "state what ran with --model, --topology, --precision, or in mapping.yml" in problem
    options = {"--model": "resnet50", "--topology": "2n4g"}
    for option, value in options.items():
        call("summarize", "logs", option, value, "--precision", "fp32", status=2)
    given = [text for pair in options.items() for text in pair]
    assert "--precision" in call("summarize", "logs", *given, status=2).err
    without_batch = call("summarize", "logs", *given, "--precision", "fp32").out
    assert "batch size unknown: neither names nor logs state it" in " ".join(without_batch.split())
    given += ["--batch-size", "96"]
    more = ("--precision", "FP32", "--accelerator", "V100-SXM2-16GB", "--framework", "mx")
    document = json.loads(call("summarize", "logs", *given, *more, "--json").out)
    (case,) = document["cases"]
    assert case["world_size"] == 8
    assert "the world size is from --topology, not from the log: 1 of 1 runs" in document["notes"]
    assert case["batch_size_per_device"] == 96
    assert case["accelerator"] == "V100-SXM2-16GB"
    call("summarize", "logs", *given, *more, "--verify")


@pytest.mark.parametrize(
    ("name", "lines", "options", "both"),
    [
        ("rn50_b128_fp32_1n1g.log", GOOD, {"batch_size": "64"}, ("64", "128")),
        ("rn50_b128_fp32_1n1g.log", GOOD, {"precision": "fp16"}, ("fp16", "fp32")),
        ("rn50_b128_fp32_1n1g.log", GOOD, {"topology": "1n8g"}, ("1n8g", "1n1g")),
        ("4n8g/rn50_b128_fp32.log", GOOD, {"topology": "1n8g"}, ("4n8g", "1n8g")),
        ("bz128/rn50_fp32_1n1g.log", GOOD, {"batch_size": "64"}, ("128", "64")),
        ("rn50_b128_fp32_1n1g.log", GOOD, {"model": "vgg16"}, ("rn50", "vgg16")),
        ("rn50_b128_fp32_1n1g.log", GOOD, {"framework": "tf"}, ("tf", "gluoncv_horovod")),
        ("y1_b2_fp32_1n1g.log", speedometer("y1"), {"model": "r100"}, ("r100", "y1")),
        ("rn50_v100_b128_fp32_1n1g.log", GOOD, {"accelerator": "A100-PCIE"}, ("A100-PCIE", "V100")),
        # The name says nothing, the log does.
        ("rn50_1n1g.log", GOOD, {"batch_size": "64"}, ("64", "128")),
        ("rn50.log", gluoncv(50.0, world=4), {"topology": "1n8g"}, ("8", "4")),
        ("tf_gpu16_amp_bs256.txt", GOOD, {"topology": "1n8g"}, ("tf", "gluon")),
        ("mx_gpu16_fp32_bs128.txt", GOOD, {"topology": "1n8g"}, ("8", "16")),
    ],
)
def test_a_statement_that_contradicts_log_or_name_is_refused_with_both(
    tmp_path: Path, name: str, lines: list[str], options: dict[str, str], both: tuple[str, str]
) -> None:
    path = write(tmp_path / name, lines)
    # The model that is stated about a single log is that of the log, whatever its name says.
    for source in (tmp_path,) if "model" in options else (path, tmp_path):
        try:
            problem = only(load(source, **options))
        except UserError as error:
            problem = error
        told = f"{problem.problem} {problem.expected} {problem.found}"
        assert all(value in told for value in both), problem


def test_what_follows_from_a_statement_is_that_of_its_option(tmp_path: Path) -> None:
    path = write(tmp_path / "rn50_b64_fp32_1n1g.log", GOOD)
    assert only(load(path, topology="1n1g")).problem == "the batch size contradicts the file name"
    path = write(tmp_path / "rn50_fp32.log", gluoncv(50.0, batch=None))
    options = {"topology": "1n1g", "global_batch_size": "128"}
    results = load(path, **options)
    assert results.unconfirmed["batch size", "--global-batch-size"] == 1
    lines = WHOLE_LOGS["tf_cnn_benchmarks/whole"].text.splitlines()
    path = write(tmp_path / "rn50_fp32_1.log", lines)
    told = only(load(path, topology="2n8g", model="resnet50")).problem
    assert told == "the global batch size contradicts --topology"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch-size", "0"), "--batch-size: invalid batch size"),
        (("--topology", "8"), "invalid topology (expected nodes and devices, like 2n8g"),
        (("--framework", "theano"), "--framework: unknown framework"),
        (("--precision", "fp31"), "--precision: unknown precision"),
        (("--mapping", "missing.yml"), "missing.yml: cannot read the file"),
        (("--history", "h.sqlite", "logs"), "one directory at a time can be recorded"),
    ],
)
def test_bad_options(here: Path, options: tuple[str, ...], message: str) -> None:
    write(here / "logs" / "rn50_b128_fp32_1n1g.log", GOOD)
    assert message in call("summarize", "logs", *options, status=2).err


MAPPING = """\
logs:
  "v100/{topology}/*.out": {model: resnet50v1b, precision: fp32, accelerator: V100}
  "**/try{repeat}.out": {batch_size: 128}
"""


def test_a_mapping_says_what_ran_by_path(here: Path) -> None:
    for topology in ("1n1g", "1n8g"):
        for repeat in (1, 2):
            path = here / "logs" / "v100" / topology / f"try{repeat}.out"
            write(path, gluoncv(50.0 + repeat, batch=None))
    mapping = here / "mine.yml"
    mapping.write_text(MAPPING)
    results = load(here / "logs", mapping=mapping)
    expected = [
        ("mxnet-resnet50v1b", "fp32", 128, topology, repeat)
        for topology in ("1n1g", "1n8g")
        for repeat in (1, 2)
    ]
    assert cases(results) == expected
    assert {run.accelerator for run in results.counted} == {"V100"}
    assert "do not identify" not in call("summarize", "logs", "--mapping", "mine.yml").text
    # In the directory itself it needs no option, in any command.
    mapping.rename(here / "logs" / "mapping.yml")
    assert cases(load(here / "logs")) == expected
    for command in ("summarize", "report", "compare"):
        call(command, "logs")


@pytest.mark.parametrize("archived", [False, True])
def test_a_mapping_admits_any_name_that_it_names(here: Path, archived: bool) -> None:
    logs = here / "logs"
    for repeat in (1, 2):
        write(logs / "1n8g" / f"train.log.{repeat}", gluoncv(50.0 + repeat))
        write(logs / "1n8g" / f"train.md.{repeat}", "no log\n")
    write(logs / "1n8g" / "train.log.2~", gluoncv(60.0))  # a copy that an editor left
    (here / "m.yml").write_text(
        'logs:\n  "**/{topology}/train.log.{repeat}": {model: resnet50v1b, precision: fp32}\n'
        '  "**/{topology}/train.log.?~": {model: resnet50v1b}\n'
        '  "**/{topology}/train*": {accelerator: V100}\n'  # says nothing about what is a log
    )
    if archived:
        shutil.make_archive(str(logs / "all"), "gztar", logs, "1n8g")
        shutil.rmtree(logs / "1n8g")
    results = load(logs, mapping=here / "m.yml")
    expected = [("mxnet-resnet50v1b", "fp32", 128, "1n8g", repeat) for repeat in (1, 2)]
    assert cases(results) == expected
    assert [file.path.name for file in results.skipped] == [
        "train.log.2~",
        "train.md.1",
        "train.md.2",
    ]
    with pytest.raises(UserError, match="no logs found"):
        load(logs)


LAUGHS = "a0: &a0 [x]\n"
LAUGHS += "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12))
LAUGHS += "logs: *a11"
DEEP = pytest.param(
    *("[" * 1_000_000, "m.yml", "invalid YAML: a value is in itself, or too deep"), id="deep"
)


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("logs: [a]", "m.yml:1: logs", "invalid value"),
        ('logs:\n  "*.out": {modell: x}', "m.yml:2: logs.*.out.modell", "unknown key"),
        ('logs:\n  "*.out":\n    batch_size: many', "m.yml:3: logs.*.out.batch_size", "integer"),
        ('logs:\n  "{gpus}.out": {model: rn50}', "m.yml:2: logs.{gpus}.out", "placeholder"),
        ('logs:\n  "{model}{model}": {}', "m.yml:2: logs.{model}{model}", "each placeholder once"),
        ("logs: {", "m.yml:2", "invalid YAML"),
        ("logs: &a {x: *a}", "m.yml", "invalid YAML: a value is in itself, or too deep"),
        ("? [logs]\n: 1", "m.yml:1", "a key is no text"),
        DEEP,
        ("", "m.yml", "expected keys and values"),
        (LAUGHS, "m.yml:6", "the aliases (*name) repeat too many values"),
    ],
)
def test_a_mapping_that_cannot_be_used(here: Path, text: str, where: str, message: str) -> None:
    write(here / "logs" / "rn50_b128_fp32_1n1g.log", GOOD)
    (here / "m.yml").write_text(text)
    err = call("summarize", "logs", "--mapping", "m.yml", status=2).err
    assert err.startswith(f"error: {where}")
    assert message in err


@pytest.mark.parametrize("pattern", [f"{'*a' * 24}b", f"{'**/' * 12}x", "*{model}" + "*-*" * 20])
def test_no_pattern_needs_more_than_linear_time(here: Path, pattern: str) -> None:
    """To try every way to divide this name among the stars would take years."""
    name = f"rn50_b128_fp32_{'a-' * 100}1.log"
    write(here / "logs" / "1n1g" / name, GOOD)
    (here / "logs" / "mapping.yml").write_text(f'logs:\n  "{pattern}": {{precision: fp32}}\n')
    call("summarize", "logs", status=None)


def test_statements_that_contradict_each_other_and_patterns_without_a_log(tmp_path: Path) -> None:
    write(tmp_path / "rn50_1.out", GOOD)
    (tmp_path / "mapping.yml").write_text(
        'logs:\n  "rn50*": {topology: 1n1g}\n  "*.out": {topology: 1n2g}\n  "x/*": {model: y1}\n'
    )
    results = load(tmp_path)
    told = str(only(results))
    assert "two statements about the topology contradict each other" in told
    assert "1n1g (mapping.yml, rn50*)" in told
    assert "1n2g (mapping.yml, *.out)" in told
    assert "mapping.yml: no log has a path like x/*" in results.notes


def test_nothing_can_be_stated_about_a_campaign(tmp_path: Path) -> None:
    campaign_run(tmp_path / "one", "1n1g", 1, GOOD)
    with pytest.raises(UserError, match="nothing can be stated about a campaign"):
        load(tmp_path / "one", batch_size="64")
    with pytest.raises(UserError, match="a campaign is summarized alone"):
        load(tmp_path / "one", tmp_path)
