"""Logs of others: how they are found and named, what the user may state, and where results go."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from make_logs import SHARED_LOGS, campaign_run, dllogger, gluoncv, oneflow, plsc, write
from pandas import DataFrame
from peak_memory import peak_of
from typer.testing import CliRunner

from dlperf_runner.catalog.published_numbers import load_rule
from dlperf_runner.cli.main import app
from dlperf_runner.commands.summarize import summarize
from dlperf_runner.compare.conditions import read_conditions
from dlperf_runner.core.errors import UserError
from dlperf_runner.results import compressed
from dlperf_runner.results.load import Results, load_results
from dlperf_runner.results.statement import statements_of

GOOD = gluoncv(50.0)


def call(*arguments: object, status: int = 0) -> SimpleNamespace:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == status, result.output + str(result.exception)
    return SimpleNamespace(
        out=result.stdout, err=result.stderr, text=" ".join(result.stdout.split())
    )


def load(*sources: Path, mapping: Path | None = None, **options: str) -> Results:
    return load_results(sources, statements=statements_of(options, mapping), jobs=1)


def only(results: Results) -> UserError:
    (problem,) = results.problems
    return problem


def cases(results: Results) -> list[tuple[str, str, int, str, int]]:
    return [
        (run.workload, run.precision, run.batch_size_per_device, str(run.topology), run.repeat)
        for run in results.counted
    ]


def speedometer(network: str, *, parallel: bool = False) -> list[str]:
    """A log of ArcFace as its programs print it, with the line of their options."""
    head = (
        f"Called with argument: Namespace(batch_size=2, ctx_num=1,"
        f"{' ctx_num_classes=10,' if parallel else ''} frequent=20, network='{network}',"
        f" per_batch_size=2) {{'max_steps': 120}}"
    )
    step = "Iter[0] Batch [{1}]" if parallel else "Epoch[0] Batch [{0}-{1}]"
    return [
        head,
        *(
            f"INFO:root:{step.format(n - 20, n)}\tSpeed: 2{n % 7}.5 samples/sec"
            for n in range(20, 121, 20)
        ),
    ]


# ---- names


NINE = {
    "tf_rn50_1n2g_cpu_mpirun.log": dllogger(50.0, 2, amp=False, final=50.0, batch=2),
    "tf_rn50_b256_amp_1n8g_v100_2022-11.log": dllogger(50.0, 8, amp=True, final=50.0),
    "tf_rn50_b256_fp32_1n1g_v100_2022-11.log": dllogger(50.0, 1, amp=False, final=50.0),
    "tf_rn50_b4_1n1g_cpu.log": dllogger(50.0, 1, amp=False, final=50.0, batch=4),
    "rn50_b2_fp32_1n1g_cpu.log": gluoncv(50.0, batch=2),
    "arcface_y1_b2_train_cpu.log": speedometer("y1"),
    "arcface_y1_b2_train_parall_cpu.log": speedometer("y1", parallel=True),
    "rn50_b128_fp32_1n1g_v100_seed_sample.log": oneflow(384.0),
    "r50_b4_1n1g_cpu.log": plsc(4.0),
}


def test_the_words_of_a_name_count_in_any_order(tmp_path: Path) -> None:
    for name, lines in NINE.items():
        write(tmp_path / name, lines)
    results = load(tmp_path)
    assert results.problems == []
    found = {
        run.path.name: (run.model, run.precision, run.batch_size_per_device, str(run.topology))
        for run in results.counted
    }
    assert found == {
        "tf_rn50_1n2g_cpu_mpirun.log": ("resnet50v1.5", "fp32", 2, "1n2g"),
        "tf_rn50_b256_amp_1n8g_v100_2022-11.log": ("resnet50v1.5", "amp", 256, "1n8g"),
        "tf_rn50_b256_fp32_1n1g_v100_2022-11.log": ("resnet50v1.5", "fp32", 256, "1n1g"),
        "tf_rn50_b4_1n1g_cpu.log": ("resnet50v1.5", "fp32", 4, "1n1g"),
        "rn50_b2_fp32_1n1g_cpu.log": ("resnet50v1b", "fp32", 2, "1n1g"),
        "arcface_y1_b2_train_cpu.log": ("arcface-y1", "fp32", 2, "1n1g"),
        "arcface_y1_b2_train_parall_cpu.log": ("arcface-y1", "fp32", 2, "1n1g"),
        "rn50_b128_fp32_1n1g_v100_seed_sample.log": ("resnet50v1.5", "fp32", 128, "1n1g"),
        "r50_b4_1n1g_cpu.log": ("arcface", "fp32", 4, "1n1g"),
    }
    accelerators = {run.path.name: run.accelerator for run in results.counted}
    assert accelerators["tf_rn50_b4_1n1g_cpu.log"] == "cpu"
    assert accelerators["tf_rn50_b256_amp_1n8g_v100_2022-11.log"] == "V100"


@pytest.mark.parametrize("topology", [(1, 1), (1, 4), (4, 8)])
def test_the_log_of_the_oneflow_report_says_what_ran_itself(
    tmp_path: Path, topology: tuple[int, int]
) -> None:
    """Its script calls every log oneflow.log; the program prints its arguments before it trains."""
    nodes, devices = topology
    arguments = [
        f"Running resnet50: num_gpu_per_node = {devices}, num_nodes = {nodes}.",
        *("dtype = float32", "model = resnet50", "use_fp16 = None", "num_epochs = 1"),
        *("batch_size_per_device = 160", "val_batch_size_per_device = 125"),
        *("image_size = 224", "train_data_dir = /path/to/ofrecord/train"),
        "loss_print_every_n_iter = 20",
    ]
    write(tmp_path / "oneflow_temp/oneflow.log", [*arguments, *oneflow(382.324)])
    assert cases(load(tmp_path)) == [
        ("oneflow-resnet50v1.5", "fp32", 160, f"{nodes}n{devices}g", 1)
    ]


@pytest.mark.skipif(not SHARED_LOGS.is_dir(), reason="the public logs are not here")
def test_public_logs_are_identified() -> None:
    """Two have all steps of the published rule, and so has the sample; the others say what they
    lack, and none is unknown."""
    results = load(SHARED_LOGS)
    assert {run.path.name for run in results.runs} == set(NINE)
    assert {round(row.value, 2) for row in results.frame.itertuples() if row.valid} >= {415.79}


@pytest.mark.parametrize(
    ("name", "lines", "found"),
    [
        ("pytorch_gpu1_fp32_bs256.txt", NINE["tf_rn50_b256_fp32_1n1g_v100_2022-11.log"], "pytorch"),
        ("bert_gpu8_amp_bs256.txt", NINE["tf_rn50_b256_amp_1n8g_v100_2022-11.log"], "bert"),
        ("rn50_b128_fp32_1n1g_pytorch.log", GOOD, "pytorch"),
        ("r50_b128_fp32_1n1g.log", GOOD, "r50"),
        ("y1_r100_b2_fp32_1n1g.log", speedometer("y1"), "r100"),
    ],
)
def test_a_name_of_something_else_is_refused(
    tmp_path: Path, name: str, lines: list[str], found: str
) -> None:
    write(tmp_path / name, lines)
    problem = only(load(tmp_path))
    assert problem.problem.startswith("no workload of the catalogue has ")
    assert problem.found == found


@pytest.mark.parametrize(
    "name", ["rn50_b128_b64_fp32_1n1g.log", "rn50_b128_fp32_1n1g_2n8g.log", "rn50_fp32_bf16_b1.log"]
)
def test_a_name_that_contradicts_itself_is_refused(tmp_path: Path, name: str) -> None:
    write(tmp_path / name, GOOD)
    assert "the file name says two values of" in only(load(tmp_path)).problem


# ---- what a log states about itself


PARAMETER = (
    "DLL 2022-11-24 03:54:04.072998 - PARAMETER arch : {arch}  batch_size : 256  num_iter : {steps}"
    "  iter_unit : batch  warmup_steps : {warmup}  display_every : 10  data_dir : {data}"
    "  dali : {dali}  synthetic_data_size : 224  xla : {xla}  amp : True  cpu : {cpu} "
)
STATED = {
    "arch": "resnet50",
    "steps": 500,
    "warmup": 200,
    "data": "/data/tfrecords",
    "dali": False,
    "xla": True,
    "cpu": False,
}


def stating(**changes: object) -> list[str]:
    """A log of DLLogger with all that its program states."""
    _, *rest = dllogger(9400.0, 8, amp=True, final=9400.0)
    return [PARAMETER.format(**{**STATED, **changes}), *rest]


@pytest.mark.parametrize(
    ("name", "lines", "expected", "found"),
    [
        (
            "rn50_b256_amp_1n8g.log",
            stating(arch="resnext101-32x4d"),
            "resnet50v1.5",
            "resnext101-32x4d",
        ),
        (
            "rn50_b128_fp32_1n1g.log",
            [
                "INFO:root:Namespace(batch_size=128, dtype='float32', model='vgg16')",
                *gluoncv(50.0, batch=None),
            ],
            "resnet50v1b",
            "vgg16",
        ),
        (
            "rn50_b128_fp32_1n1g.log",
            ["model = vgg16", "num_gpu_per_node = 1, num_nodes = 1", *oneflow(50.0)],
            "resnet50v1.5",
            "vgg16",
        ),
        ("r100_b2_fp32_1n1g.log", speedometer("y1"), "arcface-r100", "y1"),
    ],
)
def test_another_network_in_the_log_is_refused_with_both(
    tmp_path: Path, name: str, lines: list[str], expected: str, found: str
) -> None:
    path = write(tmp_path / name, lines)
    problem = only(load(path))
    assert problem.problem == "the network contradicts the file name"
    assert (problem.expected, problem.found) == (expected, found)
    assert str(problem.where).startswith(f"{path}:1")


def test_a_log_of_a_campaign_with_another_network_is_refused(tmp_path: Path) -> None:
    lines = ["INFO:root:Namespace(batch_size=128, model='resnet50_v1b')", *GOOD[2:]]
    campaign_run(tmp_path, "1n1g", 1, lines)
    other = [line.replace("resnet50_v1b", "resnet50_v1d") for line in lines]
    campaign_run(tmp_path, "1n2g", 1, other)
    results = load(tmp_path)
    assert len(results.counted) == 1
    assert only(results).problem == "the network contradicts the plan"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "data=/data/tfrecords input_pipeline=framework xla=true"),
        ({"dali": True, "xla": False}, "data=/data/tfrecords input_pipeline=DALI xla=false"),
        ({"data": None}, "data=synthetic image_size=224 xla=true"),
    ],
)
def test_what_the_log_states_is_used_in_comparisons(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, object],
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "logs" / "tf_gpu8_amp_bs256.txt", stating(**changes))
    (run,) = load(path).counted
    assert run.parameters == expected
    (known,) = read_conditions([run], load_rule()).values()
    assert known["xla"] is ("xla=true" in expected)
    assert known["data"] == ("real" if "data=/" in expected else "synthetic")
    assert known.get("image_size") == ("224" if "image_size" in expected else None)
    for text in ("data (unknown", "XLA (unknown"):
        assert text not in call("compare", "logs").text


def test_a_condition_that_the_log_contradicts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It replaced what the log states, and a run with XLA was compared with one without."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs" / "tf_gpu8_amp_bs256_v100.txt", stating())
    told = call("compare", "logs", "--condition", "xla=false", status=2).err
    assert "--condition xla: the stated condition contradicts the log or its record" in told
    assert "expected yes (logs/tf_gpu8_amp_bs256_v100.txt), found no" in told
    call("compare", "logs", "--condition", "data=synthetic", status=2)
    # More than the log says is no contradiction.
    agrees = ("xla=true", "data=real", "accelerator=V100-SXM2-32GB")
    options = [word for text in agrees for word in ("--condition", text)]
    call("compare", "logs", *options)
    # Less is no reason to forget what is known.
    write(tmp_path / "pcie" / "tf_gpu8_amp_bs256.txt", stating())
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
    assert "number of steps contradicts" in only(load_with_steps(tmp_path, path, 400, 250)).problem
    told = only(load_with_steps(tmp_path, path, 500, 200))
    assert told.problem == "the number of warm-up steps contradicts the calculation rule"


def load_with_steps(directory: Path, path: Path, total: int, warmup: int) -> Results:
    mapping = directory / "m.yml"
    mapping.write_text(f'logs: {{"*.log": {{total_steps: {total}, warmup_steps: {warmup}}}}}')
    return load(path, mapping=mapping)


def test_a_log_of_a_cpu_is_none_of_a_gpu(tmp_path: Path) -> None:
    path = write(tmp_path / "rn50_b256_amp_1n8g.log", stating(cpu=True))
    assert [run.accelerator for run in load(path).counted] == ["cpu"]
    problem = only(load(path, accelerator="V100"))
    assert (problem.expected, problem.found) == ("V100", "cpu : True")


# ---- files


@pytest.mark.parametrize(
    "name",
    ["rn50_b128_fp32_1n1g" + end for end in ("", ".out", ".TXT", ".Log", ".err", ".log.gz", ".gz")]
    + ["resnet50v1b_b128_fp32_1n1g"],
)
@pytest.mark.parametrize("is_given", [True, False])
def test_extensions(tmp_path: Path, name: str, is_given: bool) -> None:
    path = write(tmp_path / "logs" / name, GOOD)
    plain = load(path).frame
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(path.read_bytes()))
    results = load(path if is_given else path.parent)
    assert cases(results) == [("mxnet-resnet50v1b", "fp32", 128, "1n1g", 1)]
    assert results.frame.equals(plain)  # the digest is that of the expanded log, too


def test_what_is_skipped_is_listed_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs" / "1n1g" / "rn50_b128_fp32_1.log", GOOD)
    write(tmp_path / "logs" / "1n1g" / "rn50_b128_fp32_1.log.node2", GOOD)
    for name in ("run.py", "LICENSE", "setup.log", ".hidden.log"):
        write(tmp_path / "logs" / name, ["nothing here"])
    document = json.loads(call("summarize", "logs", "--json").out)
    assert document["skipped"] == {
        "logs/1n1g/rn50_b128_fp32_1.log.node2": "not the name of a log",
        "logs/run.py": "not the name of a log",
        "logs/LICENSE": "no line of the log has a rate",
        "logs/setup.log": "no line of the log has a rate",
    }
    text = call("summarize", "logs").text
    assert "not read (not the name of a log): 1n1g/rn50_b128_fp32_1.log.node2, run.py" in text
    assert "not read (no line of the log has a rate): LICENSE, setup.log" in text


def test_files_and_directories_together_and_none_twice(tmp_path: Path) -> None:
    one = write(tmp_path / "a" / "4n8g" / "rn50_b128_fp32_1.log", GOOD)
    two = write(tmp_path / "b" / "rn50_b128_fp32_2n8g_1.out", gluoncv(51.0))
    write(tmp_path / "b" / "rn50_b128_fp32_1n8g_1.out", gluoncv(52.0))
    assert [str(run.topology) for run in load(one, two).counted] == ["4n8g", "2n8g"]
    assert len(load(one, tmp_path / "b", two, one.parent).counted) == 3
    # A file that is named is read, whatever its name.
    other = write(tmp_path / "c" / "output.data", GOOD)
    assert load(other, model="rn50", topology="1n2g", precision="fp32").counted
    assert "no line of the log has a rate" in only(load(write(tmp_path / "x.py", ["x"]))).problem


def test_a_bomb_is_refused_in_little_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rn50_b128_fp32_1n1g.log.gz"
    with gzip.open(path, "wb") as file:
        file.write("\n".join(GOOD).encode() + b"\n")
        for _ in range(300):
            file.write(bytes(2**20))
    program = """
import sys
from pathlib import Path
from dlperf_runner.results.load import load_results
print(*load_results(Path(sys.argv[1])).problems)
"""
    message, peak = peak_of(program, path)
    assert "the compressed log is suspiciously large" in message
    assert peak < 300  # MB, of which most is pandas
    # Far fewer bytes are as many as the file may have.
    monkeypatch.setattr(compressed, "ALWAYS_ALLOWED", 1000)
    path.write_bytes(gzip.compress("\n".join(GOOD).encode() + b"x" * 5_000_000))
    assert "suspiciously large" in only(load(path)).problem


@pytest.mark.parametrize("cut", [5, 100, -1])
def test_a_damaged_compressed_log_is_told(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "rn50_b128_fp32_1n1g.log.gz"
    path.write_bytes(gzip.compress("\n".join(GOOD).encode())[:cut])
    assert only(load(path)).problem == "the compressed log is damaged"


# ---- what is stated


def test_options_say_what_neither_log_nor_name_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs" / "slurm-4711.out", gluoncv(50.0, batch=None, dtype="x"))
    problem = call("summarize", "logs", status=2).err
    assert "does not identify the run of this gluoncv_horovod log" in problem
    assert "state what ran with --model, or in mapping.yml" in problem
    options = {"--model": "resnet50", "--topology": "2n4g", "--batch-size": "96"}
    for option in options:
        rest = [text for pair in options.items() if pair[0] != option for text in pair]
        call("summarize", "logs", *rest, "--precision", "fp32", status=2)
    given = [text for pair in options.items() for text in pair]
    assert "--precision" in call("summarize", "logs", *given, status=2).err
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
        ("rn50_b128_fp32_1n1g.log", GOOD, {"model": "y1"}, ("y1", "gluoncv_horovod")),
        ("rn50_b128_fp32_1n1g.log", GOOD, {"framework": "tf"}, ("tf", "gluoncv_horovod")),
        ("vgg16_b128_fp32_1n1g.log", GOOD, {"model": "rn50"}, ("rn50", "vgg16")),
        ("y1_b2_fp32_1n1g.log", speedometer("y1"), {"model": "r100"}, ("r100", "y1")),
        ("rn50_v100_b128_fp32_1n1g.log", GOOD, {"accelerator": "A100-PCIE"}, ("A100-PCIE", "V100")),
        # The name says nothing, the log does.
        ("rn50_1n1g.log", GOOD, {"batch_size": "64"}, ("64", "128")),
        ("rn50_1n1g.log", GOOD, {"precision": "fp16"}, ("fp16", "fp32")),
        ("rn50.log", gluoncv(50.0, world=4), {"topology": "1n8g"}, ("8", "4")),
        ("tf_gpu16_amp_bs256.txt", GOOD, {"topology": "1n8g"}, ("tf", "gluon")),
        ("mx_gpu16_fp32_bs128.txt", GOOD, {"topology": "1n8g"}, ("8", "16")),
    ],
)
def test_a_statement_that_contradicts_log_or_name_is_refused_with_both(
    tmp_path: Path, name: str, lines: list[str], options: dict[str, str], both: tuple[str, str]
) -> None:
    path = write(tmp_path / name, lines)
    for source in (path, tmp_path):
        try:
            problem = only(load(source, **options))
        except UserError as error:
            problem = error
        told = f"{problem.problem} {problem.expected} {problem.found}"
        assert all(value in told for value in both), problem


def test_a_contradiction_names_who_stated_that_setting(tmp_path: Path) -> None:
    path = write(tmp_path / "rn50_b64_fp32_1n1g.log", GOOD)
    assert only(load(path, topology="1n1g")).problem == "the batch size contradicts the file name"


def test_topology_that_a_flat_name_leaves_open_can_be_stated(tmp_path: Path) -> None:
    path = write(tmp_path / "tf_gpu12_amp_bs256.txt", dllogger(50.0, 12, amp=True, final=50.0))
    assert "cannot determine the number of nodes" in only(load(path)).problem
    (run,) = load(path, topology="3n4g").counted
    assert (str(run.topology), run.assumed) == ("3n4g", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--batch-size", "many"), "--batch-size: invalid batch size"),
        (("--batch-size", "0"), "--batch-size: invalid batch size"),
        (
            ("--topology", "8"),
            "--topology: invalid topology (expected nodes and devices, like 2n8g",
        ),
        (("--model", "resnet51"), "--model: unknown model (expected one of arcface, "),
        (("--framework", "theano"), "--framework: unknown framework"),
        (("--precision", "fp31"), "--precision: unknown precision"),
        (("--mapping", "missing.yml"), "missing.yml: cannot read the file"),
        (("--history", "h.sqlite", "logs"), "one directory at a time can be recorded"),
    ],
)
def test_bad_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs" / "rn50_b128_fp32_1n1g.log", GOOD)
    assert message in call("summarize", "logs", *options, status=2).err


MAPPING = """\
logs:
  "v100/{topology}/*.out": {model: resnet50v1b, precision: fp32, accelerator: V100}
  "**/try{repeat}.out": {batch_size: 128}
"""


def test_a_mapping_says_what_ran_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for topology in ("1n1g", "1n8g"):
        for repeat in (1, 2):
            path = tmp_path / "logs" / "v100" / topology / f"try{repeat}.out"
            write(path, gluoncv(50.0 + repeat, batch=None))
    mapping = tmp_path / "mine.yml"
    mapping.write_text(MAPPING)
    results = load(tmp_path / "logs", mapping=mapping)
    expected = [
        ("mxnet-resnet50v1b", "fp32", 128, topology, repeat)
        for topology in ("1n1g", "1n8g")
        for repeat in (1, 2)
    ]
    assert cases(results) == expected
    assert {run.accelerator for run in results.counted} == {"V100"}
    assert "do not identify" not in call("summarize", "logs", "--mapping", "mine.yml").text
    # In the directory itself it needs no option, in any command.
    mapping.rename(tmp_path / "logs" / "mapping.yml")
    assert cases(load(tmp_path / "logs")) == expected
    for command in ("summarize", "report", "compare"):
        call(command, "logs")


@pytest.mark.parametrize(
    ("text", "where", "message"),
    [
        ("logs: [a]", "m.yml:1: logs", "invalid value"),
        ('logs:\n  "*.out": {modell: x}', "m.yml:2: logs.*.out.modell", "unknown key"),
        ('logs:\n  "*.out":\n    batch_size: many', "m.yml:3: logs.*.out.batch_size", "integer"),
        ('logs:\n  "{gpus}.out": {model: rn50}', "m.yml:2: logs.{gpus}.out", "placeholder"),
        ('logs:\n  "{model}{model}": {}', "m.yml:2: logs.{model}{model}", "each placeholder once"),
        ('logs:\n  "*.out": {model: resnet51}', "m.yml: *.out: model", "unknown model"),
        ("logs: {", "m.yml:2", "invalid YAML"),
        ("", "m.yml", "expected keys and values"),
    ],
)
def test_a_mapping_that_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, where: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs" / "rn50_b128_fp32_1n1g.log", GOOD)
    (tmp_path / "m.yml").write_text(text)
    err = call("summarize", "logs", "--mapping", "m.yml", status=2).err
    assert err.startswith(f"error: {where}")
    assert message in err


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


# ---- where results go


def tree(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in path.rglob("*") if p.is_file()}


def test_nothing_is_written_into_a_tree_of_logs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logs = tmp_path / "theirs" / "logs"
    write(logs / "bz128" / "1n1g" / "rn50_b128_fp32_1.log", GOOD)
    before = tree(tmp_path / "theirs")
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    call("report", logs)
    out = call("summarize", logs).out
    assert "results/logs/summary.csv\n" in out
    call("summarize", "--verify", logs)
    assert tree(tmp_path / "theirs") == before
    assert {path.name for path in Path("results/logs").iterdir()} == {
        *("summary.csv", "summary.json", "summary.md", "measurements.csv", "bz128_result.json"),
        *("source.json", "report", "manifest.jsonl"),
    }
    assert json.loads(Path("results/logs/source.json").read_text()) == {
        "logs": [str(logs)],
        "manifest": "manifest.jsonl",
    }


def test_logs_of_the_same_name_have_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for place in ("a/logs", "b/logs", "results/logs", "c/latest"):
        write(tmp_path / place / "rn50_b128_fp32_1n1g.log", GOOD)
    campaign_run(tmp_path / "results" / "one", "1n1g", 1, GOOD)
    (tmp_path / "results" / "latest").symlink_to("one")
    places = {
        place: str(summarize(Path(place)).paths[0].parent)
        for place in ("a/logs", "b/logs", "results/logs", "c/latest", "a/logs", "results/latest")
    }
    assert places == {
        "a/logs": "results/logs-2",  # results/logs are logs themselves
        "b/logs": "results/logs-3",
        "results/logs": "results/logs-4",
        "c/latest": "results/latest-2",
        "results/latest": "results/latest",
    }
    one = Path("a/logs/rn50_b128_fp32_1n1g.log")
    assert str(summarize([one]).paths[0].parent) == "results/rn50_b128_fp32_1n1g"
    both = [one, Path("a/logs")]
    assert str(summarize(both).paths[0].parent) == "results/logs-5"


def test_a_directory_that_cannot_be_written_to_still_gives_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "logs" / "rn50_b128_fp32_1n1g.log", GOOD)
    (tmp_path / "results").write_text("a file, so that nothing can be written into it")
    text = call("summarize", "logs").text
    assert "| 1 | 1 | 50.00 " in text
    assert "the results were not written: results/logs/summary.csv: " in text
    # Where it was asked for, that is an error; the table is there all the same.
    result = call("summarize", "logs", "--output-dir", "results/mine", status=2)
    assert "| 1 | 1 | 50.00 " in result.text
    assert "cannot write the result" in result.err


# ---- exit statuses


def test_a_run_that_failed_or_is_missing_is_exit_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, changes in {
        "good": {},
        "failed": {"outcome": {"status": "failed", "message": "boom"}},
        "planned": {"outcome": {"status": "planned"}},
        "running": {"outcome": {"status": "running"}},
    }.items():
        campaign_run(tmp_path / name, "1n1g", 1, GOOD)
        campaign_run(tmp_path / name, "1n2g", 1, GOOD, **changes)
        for command in ("summarize", "report"):
            call(command, name, status=0 if name == "good" else 1)
    # A log that fails validation is more than a run that is missing.
    campaign_run(tmp_path / "failed", "1n4g", 1, GOOD[:-9])
    for command in ("summarize", "report"):
        call(command, "failed", status=2)


def test_a_planned_run_without_a_record_is_exit_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = campaign_run(tmp_path / "c", "1n1g", 1, GOOD)
    run = json.loads((folder / "run.json").read_text())
    lost = {**run, "id": f"{run['case']}/r2", "repeat": 2}
    (tmp_path / "c" / "plan.json").write_text(json.dumps({"runs": [run]}))
    (tmp_path / "c" / "campaign.json").write_text("{}")
    assert call("summarize", "c", "--no-history")
    (tmp_path / "c" / "plan.json").write_text(json.dumps({"runs": [run, lost]}))
    text = call("summarize", "c", "--no-history", status=1).text
    assert f"not counted: {lost['id']} has no record" in text


def test_a_log_without_a_loss_is_said_not_to_be_checked(tmp_path: Path) -> None:
    for repeat, lines in ((1, oneflow(384.0)), (2, oneflow(385.0))):
        write(tmp_path / f"rn50_b128_fp32_1n1g_{repeat}.log", lines)
    assert not any("loss" in note for note in load(tmp_path).notes)
    write(tmp_path / "tf_gpu8_amp_bs256.txt", dllogger(9400.0, 8, amp=True, final=9400.0))
    write(tmp_path / "r100_b2_fp32_1n1g_1.log", speedometer("r100", parallel=True))
    assert "loss not checked: 2 of 4 logs print none" in load(tmp_path).notes


@pytest.mark.parametrize("value", ["0.0", "6.9", "1e30"])
@pytest.mark.parametrize(
    ("name", "lines", "printed"),
    [
        ("rn50_b128_fp32_1n1g.log", GOOD, r"(?<=Loss\[)[\d.]+"),
        ("r50_b128_fp32_1n1g.log", plsc(397.0), r"(?<=loss:)[\d.]+"),
        ("rn50_b128_fp32_1n1g.log", oneflow(384.0), r"(?<=loss: )[\d.]+"),
        (
            "tf_gpu8_amp_bs256.txt",
            dllogger(9400.0, 8, amp=True, final=9400.0, mode="train"),
            r"(?<=cross_entropy : )[\d.]+",
        ),
    ],
)
def test_a_loss_that_is_never_another_is_invalid_in_every_format(
    tmp_path: Path, name: str, lines: list[str], printed: str, value: str
) -> None:
    path = write(tmp_path / name, lines)
    assert len(load(path).counted) == 1
    write(path, [re.sub(printed, value, line) for line in lines])
    results = load(path)
    assert results.counted == []
    assert "the loss is" in "".join(results.notes)


def test_a_run_that_is_invalid_is_exit_status_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = [line.replace("Loss[7.500]", "Loss[nan]") for line in GOOD]
    assert lines != GOOD
    write(tmp_path / "logs" / "rn50_b128_fp32_1n1g.log", lines)
    assert "the loss is not finite" in call("summarize", "logs", status=1).text


# ---- what a log states


def test_the_nodes_that_a_log_states_count(tmp_path: Path) -> None:
    """4 nodes with 2 devices are no node with 8."""
    head = ["num_gpu_per_node = 2, num_nodes = 4."]
    write(tmp_path / "1n8g" / "rn50_b128_fp32_1.log", [*head, *oneflow(50.0)])
    problem = only(load(tmp_path))
    assert problem.problem == "the number of nodes contradicts the file name"
    assert (problem.expected, problem.found) == ("1", "4")


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


def test_a_restart_with_another_image_size_is_refused(tmp_path: Path) -> None:
    def head(size: int) -> str:
        return f"INFO:root:Namespace(batch_size=128, dtype='float32', input_size={size})"

    lines = [head(64), *GOOD[2:180], head(224), *GOOD[180:]]
    write(tmp_path / "1n1g" / "rn50_b128_fp32_1.log", lines)
    problem = only(load(tmp_path))
    assert problem.problem == "the image size contradicts line 1"
    assert (problem.expected, problem.found) == ("64", "224")


def test_a_campaign_whose_log_states_another_image_size_is_refused(tmp_path: Path) -> None:
    head = "INFO:root:Namespace(batch_size=128, dtype='float32', input_size=64)"
    for topology, size in (("1n1g", 64), ("1n2g", 224)):
        parameters = {"image_size": size, "classes": 1000}
        campaign_run(tmp_path, topology, 1, [head, *GOOD[1:]], parameters=parameters)
    results = load(tmp_path)
    assert [str(run.topology) for run in results.counted] == ["1n1g"]
    problem = only(results)
    assert problem.problem == "the parameter image_size contradicts the plan"
    assert (problem.expected, problem.found) == ("224", "64")


# ---- names that a terminal, a spreadsheet or a page would obey


HOSTILE = ("=1+1", "@SUM(1)", "<script>alert(1)", "a|b", "new\nline", "\x1b[31mred", "\udcff")


def test_no_name_is_obeyed_or_breaks_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Directories of others may have any name, even one that is not UTF-8."""
    monkeypatch.chdir(tmp_path)
    for number, name in enumerate(HOSTILE, start=50):
        write(tmp_path / "logs" / name / "1n1g" / "rn50_b128_fp32_1.log", gluoncv(float(number)))
    out = call("summarize", "logs").out
    assert "\x1b" not in out
    assert "directory \\x1b[31mred" in out
    with Path("results/logs/summary.csv").open(encoding="utf-8", newline="") as file:
        told = {row["directory"] for row in csv.DictReader(file)}
    assert {"'=1+1", "'@SUM(1)", r"new\nline", r"\x1b[31mred", r"\udcff"} <= told
    markdown = Path("results/logs/summary.md").read_text()
    assert "<script" not in markdown
    assert r"a\|b" in markdown
    call("summarize", "logs", "--verify")
    call("report", "logs")
    assert "<script>alert" not in Path("results/logs/report/report.html").read_text()
    alone = call("summarize", Path("logs") / HOSTILE[-1]).out
    assert r"results/\udcff/summary.csv" in alone


def test_messages_show_what_a_terminal_would_obey(tmp_path: Path) -> None:
    lines = [line.replace("float32", "\x1b[2J") for line in gluoncv(50.0)]
    path = write(tmp_path / "1n1g" / "rn50_b128_fp32_1.log", lines)
    result = call("summarize", path, status=2)
    assert r"\x1b[2J" in result.err
    assert "\x1b" not in result.err + result.out
