"""A user's program as a workload in a folder of their own: described, planned, run, and read."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import call
from make_logs import ROOT, gluoncv, write
from own_workload import NODES, REGEX, init, said
from planned_campaigns import set_outcome

from dlperf_runner import logs
from dlperf_runner.campaign.directory import read_plan
from dlperf_runner.catalog import reader
from dlperf_runner.commands import init_workload as command
from dlperf_runner.compare.campaigns import read_baseline
from dlperf_runner.provision import environments

LOG = "logs/1n2g/mine_b4_fp32_1.log"


def lines_of(steps: int = 12, rate: float = 101.5) -> list[str]:
    """What PROGRAM prints of 12 steps, or of the first of them."""
    return [f"it {n}/12 | {rate:.2f} img/s | loss {9 - n / 10}" for n in range(1, steps + 1)]


def test_round_trip(folder: Path, tmp_path: Path) -> None:
    init("train.py")
    assert "mine: mine framework mxnet --model mine" in said("list", "workloads")
    campaign = tmp_path / "campaign"
    options = ("--workload", "mine", "-i", "hosts.json", "--campaign", campaign)
    plan = call("plan", *options, "--json").document
    assert [run["id"] for run in plan["runs"]] == [
        "mine-builtin_fp32_b4_1n1g/r1",
        "mine-builtin_fp32_b4_1n2g/r1",
    ]
    source = call("source", "--workload", "mine", "--json").document
    shutil.unpack_archive(source["path"], tmp_path / "node")
    for run in plan["runs"]:
        (started,) = run["commands"]
        python, *argv = started["argv"]
        assert python == "/opt/dlperf/envs/mxnet/bin/python"
        log = subprocess.run(
            [sys.executable, *argv], cwd=tmp_path / "node", capture_output=True, check=True
        ).stdout
        record = set_outcome(campaign, run, status="done", exit_status=0, versions={})
        record.with_name(run["log_name"]).write_bytes(log)
    text = said("summarize", campaign, "--no-history")
    assert "mine builtin, fp32, batch size 4 per device" in text
    cases = json.loads((campaign / "summary.json").read_text())["cases"]
    assert [case["world_size"] for case in cases] == [1, 2]
    one, two = (case["samples_per_second_median"] for case in cases)
    assert cases[1]["speedup"] == pytest.approx(two / one)
    assert "loss_last" in (campaign / "measurements.csv").read_text()
    said("report", campaign)
    assert "mine" in (campaign / "report" / "report.md").read_text()
    assert "not published" in said("compare", campaign, status=1)


def test_results_keep_the_unit_that_their_runs_had(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What was recorded with a catalogue is shown without it: nothing looks the unit up again."""
    init("train.py", unit="tokens")
    for repeat in (1, 2):
        write(tmp_path / LOG.replace("_1.", f"_{repeat}."), lines_of(rate=100.5 + repeat))
    said("summarize", "logs", "--history", "h.sqlite")
    said("compare", "--save-baseline", "before", "logs")
    monkeypatch.setenv("DLPERF_CATALOG", "")
    reader.forget()
    (case,) = call("history", "--history", "h.sqlite", "--json").document["cases"]
    assert case["points"][0]["tokens_per_second_median"] == 102
    assert "| tokens/s |" in said("history", "--history", "h.sqlite")
    assert "| tokens/s |" in said("history", "--history", "h.sqlite", "--case", "mine")
    exported = said("export", "prometheus", "h.sqlite")
    assert "dlperf_throughput_tokens_per_second{" in exported
    assert "samples" not in exported
    assert read_baseline("before")["unit"].unique().tolist() == ["tokens/s"]


def test_rates_of_two_units_are_not_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    init("train.py", unit="tokens")
    write(tmp_path / LOG, lines_of())
    said("summarize", "logs", "--history", "h.sqlite")
    said("compare", "--save-baseline", "before", "logs")
    shutil.rmtree(folder)
    reader.forget()
    init("train.py")  # the same workload counts samples now
    write(tmp_path / LOG, lines_of(rate=200.5))
    text = said("compare", "--baseline", "before", "logs", status=2)
    assert "count different things" in text
    assert "expected tokens/s, as on the first side, found samples/s" in text
    said("summarize", "logs", "--history", "h.sqlite")
    cases = call("history", "--history", "h.sqlite", "--json").document["cases"]
    assert [(len(case["points"]), case["case_id"].split()[-1]) for case in cases] == [
        (1, "tokens/s"),
        (1, "samples/s"),
    ]


def test_the_option_stands_before_or_behind_the_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    init("train.py")
    monkeypatch.setenv("DLPERF_CATALOG", "")
    assert "mine" not in said("list", "workloads")
    for words in (
        ("--catalog", str(folder), "list", "workloads"),
        ("list", "workloads", f"--catalog={folder}"),
        ("list", "--catalog", "catalog", "workloads"),
    ):
        assert "mine: mine" in said(*words)
        # Playbooks and the processes that they start inherit it.
        assert os.environ["DLPERF_CATALOG"] == str(folder)
        monkeypatch.setenv("DLPERF_CATALOG", "")


def test_all_that_is_missing_is_named_at_once(folder: Path) -> None:
    assert "requires an argument" in said("list", "workloads", "--catalog", status=2)
    text = init(without=("--name", "--regex", "--unit"), status=2)
    assert "options are missing (expected --name, --log-format, --regex, --unit)" in text
    for option, more in (("--regex", {"log_format": "own"}), ("--rates-are-per", {})):
        text = init("train.py", without=(option,), **more, status=2)
        assert f"options are missing (expected {option})" in text
    assert not folder.exists()


def test_a_terminal_is_asked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "on_terminal", lambda: True)
    answers = ["mine", "{python} train.py {total_steps} 1 1", "mxnet", "direct", "own", REGEX]
    answers += ["tokens", "device", ""]
    call("init-workload", "--file", "train.py", input="\n".join(answers))
    mine = reader.load_catalog().workload("mine")
    assert (mine.unit, mine.launcher, mine.rule.rates_are_per) == ("tokens", "direct", "device")
    assert mine.log_pattern is not None
    assert mine.log_pattern.regex == REGEX


@pytest.mark.parametrize(
    ("form", "whose"),
    [
        ("torchtitan", "device"),
        ("megatron", "step"),
        ("mxnet_speedometer", "node"),
        ("dllogger_pytorch", "world"),
    ],
)
def test_a_built_in_format_needs_no_expression_and_knows_whose_rates_it_has(
    folder: Path, form: str, whose: str
) -> None:
    init("train.py", without=("--regex", "--sample", "--rates-are-per"), log_format=form)
    mine = reader.load_catalog().workload("mine")
    assert (mine.log_format, mine.log_pattern) == (form, None)
    assert mine.rule.rates_are_per == whose


def test_iterations_per_second_are_no_samples_per_second(folder: Path, tmp_path: Path) -> None:
    bar = {"regex": r"(?P<step>\d+)/12 .*?(?P<rate>[\d.]+)it/s", "sample": "1/12 [00:01, 2.50it/s]"}
    text = init("train.py", **bar, status=2)  # says world
    assert "the log has it/s, which count steps" in text
    assert "rates_are_per: step (--rates-are-per step)" in text
    init("train.py", without=("--rates-are-per",), **bar)
    # The bar turns to s/it if a step is slow; all of its lines are one, with carriage returns.
    lines = "\r".join(f"{n}/12 [00:0{n % 9}, {2.5 if n > 2 else 1.5}it/s]" for n in range(1, 13))
    write(tmp_path / LOG, [lines])
    assert "| 20.00 |" in said("summarize", "logs")  # 2 * 4 samples, 2.5 times a second
    write(tmp_path / LOG, [lines.replace("2.5it/s]\r9", "2.50s/it]\r9")])
    assert "the log ends with step" not in said("summarize", "logs", status=2)


RATE = r"(?P<step>\d+) (?P<rate>[\d.]+)"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"framework": "mxnett"}, "unknown framework 'mxnett'"),
        ({"launcher": "mpi"}, "unknown launcher"),
        ({"unit": "pixels"}, "unit"),
        ({"command": "{python} train.py {steps}"}, "unknown placeholder"),
        ({"command": "{python} 'train.py"}, "No closing quotation"),
        ({"regex": "it (?P<step>[0-9]+"}, "unterminated subpattern"),
        ({"regex": "it (?P<step>[0-9]+)"}, "wrong groups"),
        ({"regex": "(?P<step>.) (?P<rate>.) (?P<speed>.)"}, "wrong groups"),
        ({"regex": "(?P<rate>[0-9.]+) img"}, "has no step"),
        ({"sample": "step 3"}, "the expression does not match its sample"),
        ({"regex": RATE, "sample": "3 12.30 tok/s"}, "expected unit: tokens, found 'samples'"),
        (
            {"regex": "it (?P<step>[0-9]+)(?= ).*(?P<rate>[0-9]+)"},
            "RE2): invalid perl operator: (?=",
        ),
        ({"regex": RATE, "sample": "3 6,025.8 img/s"}, "does not take the whole rate"),
        ({"regex": RATE, "sample": "3 12.30k img/s"}, "goes on behind what the expression takes"),
        ({"regex": RATE.replace(".]", ",]"), "sample": "3 812,5 img/s"}, "take the whole rate"),
        ({"regex": RATE, "sample": "3 2.5ms/it"}, "a time, in ms/it (expected the group step_time"),
        ({"regex": RATE.replace("rate", "step_time"), "sample": "3 2.5 min"}, "in min (expected"),
        ({"warmup_steps": "12"}, "no steps remain to be measured"),
        ({"total_steps": "many"}, "invalid number"),
        ({"topologies": "2x8"}, "invalid topology"),
        ({"name": "mxnet-arcface"}, "the name of a built-in workload"),
        ({"name": "../mine"}, "invalid name"),
    ],
)
def test_what_the_catalogue_would_not_take_is_not_written(
    folder: Path, changes: dict[str, str], told: str
) -> None:
    assert told in init("train.py", **changes, status=2)
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_nothing_is_overwritten(folder: Path) -> None:
    assert "no such directory" in said("list", status=2) and str(folder) in said("list", status=2)
    init("train.py")
    before = (folder / "workloads" / "mine.yml").read_bytes()
    assert "the workload exists already" in init("train.py", unit="tokens", status=2)
    assert (folder / "workloads" / "mine.yml").read_bytes() == before
    assert (folder / "files" / "mine" / "train.py").is_file()


def recorded(folder: Path, name: str, **changes: str) -> Path:
    """A campaign of `mine` whose runs are done."""
    init("train.py", **changes)
    call("plan", "--workload", "mine", "-i", "hosts.json", "--campaign", name)
    campaign = folder.parent / name
    for run in read_plan(campaign)["runs"]:
        record = set_outcome(campaign, run, status="done", exit_status=0, versions={})
        write(record.with_name(run["log_name"]), lines_of())
    return campaign


def test_a_campaign_keeps_what_it_used_of_the_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is summarised where the folder is not: moved, in a new process, and by name."""
    own_framework(folder)
    (tmp_path / "hosts.json").write_text(json.dumps(NODES).replace("mxnet", "mylib"))
    campaign = recorded(folder, "campaign", framework="mylib", unit="tokens")
    kept = {path.relative_to(campaign / "catalog") for path in campaign.rglob("catalog/*/*")}
    assert kept == {Path("workloads/mine.yml"), Path("frameworks/mylib.yml")}
    assert "catalog/workloads/mine.yml" in (campaign / "manifest.jsonl").read_text()
    campaign.rename(tmp_path / "moved")
    shutil.rmtree(folder)
    monkeypatch.setenv("DLPERF_CATALOG", "")
    reader.forget()
    text = said("summarize", "moved", "--no-history")
    assert "| tokens/s |" in text
    assert "| 101.50 |" in text
    said("report", "moved")
    assert "not published" in said("compare", "moved", status=1)
    # Only what reads the campaign knows it.
    reader.forget()
    assert "mine" not in said("list", "workloads")


def test_campaigns_with_different_files_of_a_workload(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded(folder, "one")
    shutil.rmtree(folder)
    reader.forget()
    recorded(folder, "two", unit="tokens")
    said("compare", "one", "two", status=2)  # different units, but one file for both
    monkeypatch.setenv("DLPERF_CATALOG", "")
    reader.forget()
    text = said("compare", "one", "two", status=2)
    assert "two campaigns have different files of a workload" in text
    assert "name the folder to use: dlperf --catalog DIR" in text
    shutil.rmtree(tmp_path / "one" / "catalog")
    text = said("summarize", "one", "--no-history", status=2)
    assert "the workload is not in the catalogue" in text
    assert "name its folder: dlperf --catalog DIR" in text


# ---- expressions and logs that nobody can trust


RATE_LAST = {
    "regex": r"it (?P<step>\d+)/\d+ loss (?P<loss>\S+) rate (?P<rate>[\d.]+)",
    "sample": "it 1/12 loss 2.0 rate 3.5",
}
RATE_AT_END = RATE_LAST | {"regex": r"it (?P<step>\d+)/.*? (?:rate .*?)(?P<rate>[\d.]+)$"}


@pytest.mark.parametrize(
    ("options", "text", "told"),
    [
        ({}, "it 12/12 | 10 img", "the log ends with step 11"),
        ({}, "it 12/12 | 0.00 img/s | loss 1.0\n", "the rate is not possible in training"),
        ({}, "it 12/12 | 1..5 img/s | loss 1.0\n", "the rate is not a number"),
        ({}, "it 11/12 | 9.5 img/s | loss 1.0\n", "step 11 repeats"),
        # A rate that was cut or wrapped is no smaller rate.
        (RATE_LAST, "it 12/12 loss 1.0 rate 10", "ends in the middle of this line"),
        (RATE_LAST, "it 12/12 loss 1.0 rate 10\n1.50\n", "the rate is not"),
        # Nor is a part of one with separators.
        (RATE_LAST, "it 12/12 loss 1.0 rate 1'101.50\n", "the rate is not a number"),
        (RATE_AT_END, "it 12/12 loss 1.0 rate 1\u202f101.50\n", "the rate is not a number"),
    ],
)
def test_damaged_logs(
    folder: Path, tmp_path: Path, options: dict[str, str], text: str, told: str
) -> None:
    """11 whole lines, and a text in place of the last one."""
    init("train.py", **options)
    lines = [f"it {n}/12 loss 1.5 rate 101.50" for n in range(1, 12)] if options else lines_of(11)
    path = write(tmp_path / LOG, lines)
    path.write_text(path.read_text() + text)
    assert told in said("summarize", "logs", status=2)


@pytest.mark.parametrize(
    ("rates", "is_whole"),
    [
        (["101.50", "101.25"], True),  # always two decimals
        (["101.52", "101.25"], False),  # it may print as many as needed
        (["101.50", "101.5"], False),
        (["101.0", "101.5"], False),  # as many as needed, but at least one
        (["101.500", "101.25"], False),
        (["100", "110", "101"], False),
    ],
)
def test_a_last_rate_is_whole_if_the_other_rates_show_its_decimals(
    folder: Path, tmp_path: Path, rates: list[str], is_whole: bool
) -> None:
    regex = r"it (?P<step>\d+)/\d+ rate (?P<rate>\S+)"
    init("train.py", regex=regex, sample="it 1/12 rate 3.5")
    *others, last = rates
    lines = [f"it {n}/12 rate {others[n % len(others)]}" for n in range(1, 12)]
    path = write(tmp_path / LOG, lines)
    path.write_text(f"{path.read_text()}it 12/12 rate {last}")
    text = said("summarize", "logs", status=0 if is_whole else 2)
    cut = f"in the middle of this line (expected a newline after the rate, found '{last}')"
    assert is_whole or cut in text


WITHOUT_END = r"it (?P<step>\d+)/\d+ \| (?P<rate>[\d.]+)"
RATE_ONLY = r"it (?P<step>\d+)/.*?(?P<rate>\d+\.\d+) img/s"
SECONDS = r"it (?P<step>\d+)/\d+ \| (?P<step_time>[\d.]+)"


@pytest.mark.parametrize(
    ("regex", "sample", "rate"),
    [
        (WITHOUT_END, "it 3/12 | 12.50 img/s", "6,025.8 img/s"),
        (RATE_ONLY, "it 3/12 | 12.50 img/s", "6,025.8 img/s"),  # would take 025.8
        (WITHOUT_END, "it 3/12 | 12.50 img/s", "1.89987e+06 img/s"),
        (WITHOUT_END, "it 3/12 | 12.50 img/s", "12.30k img/s"),
        (WITHOUT_END, "it 3/12 | 12.50", "12.30k"),
        (WITHOUT_END, "it 3/12 | 12.50 img/s", "12.30 it/s"),
        (RATE_ONLY, "it 3/12 | 12.50 img/s", "-12.30 img/s"),
        (SECONDS, "it 3/12 | 0.5", "511.7 ms"),
        (SECONDS, "it 3/12 | 0.5 s", "511.7ms"),
        (SECONDS, "it 3/12 | 0.5", "1.5 min"),
    ],
)
def test_a_rate_that_goes_on_or_has_another_unit_is_refused(
    folder: Path, tmp_path: Path, regex: str, sample: str, rate: str
) -> None:
    init("train.py", regex=regex, sample=sample, rates_are_per="step")
    write(tmp_path / LOG, [f"it {n}/12 | {rate} | loss 1.0" for n in range(1, 13)])
    text = said("summarize", "logs", status=2)
    assert rate.removesuffix(" img/s") in text
    assert "mine_b4_fp32_1.log:1: the rate is not" in text


DURATION = r"(?P<step>\d+): (?P<step_time>[\d.]+)"
BESIDE = r"^(?P<step>\d+).*?(?P<rate>812[\d.]+)"


@pytest.mark.parametrize(
    ("regex", "sample", "options", "line", "shown"),
    [
        (DURATION, "1: 0.5 s", {}, "{}: {}.25 s", "32.00"),  # 2 * 4 samples in 0.25 s
        (DURATION, "1: 0.5", {"step_time_unit": "ms"}, "{0}: {2}250.00 ms/step", "32.00"),
        (DURATION, "1: 0.5 ms/step", {}, "{0}: {2}250.00 ms/step", "32.00"),
        # What stands beside a number is no part of it.
        (BESIDE, "1,812.5", {}, "{},2.{}01,812.50,0.1", "812.50"),
        (BESIDE, "1,812.5", {}, "{}, loss=2.{}01, rate=812.50, lr=0.1", "812.50"),
        (BESIDE, "1,812.5", {}, "{}|812.50|x", "812.50"),
        (BESIDE, "1,812.5", {}, "{};812.50", "812.50"),
    ],
)
def test_numbers_of_an_expression(
    folder: Path,
    tmp_path: Path,
    regex: str,
    sample: str,
    options: dict[str, str],
    line: str,
    shown: str,
) -> None:
    without = ("--rates-are-per",) if regex is DURATION else ()
    init("train.py", without=without, regex=regex, sample=sample, **options)
    first = [line.format(n, 3, 3) for n in (1, 2)]  # of the warm-up
    write(tmp_path / LOG, first + [line.format(n, 0, "") for n in range(3, 13)])
    assert f"| {shown} |" in said("summarize", "logs")


@pytest.mark.parametrize("length", [60, 250_000])
def test_no_expression_needs_more_than_linear_time(
    folder: Path, tmp_path: Path, length: int
) -> None:
    """A program that tries every way would need 2 to the power of the length for this."""
    init("train.py", regex=r"(?P<step>\d+) (?P<rate>[\d.]+) (a+)+b", sample="1 2.5 aab")
    write(tmp_path / LOG, [*(f"{n} 2.50 aab" for n in range(1, 13)), f"13 2.50 {'a' * length}"])
    assert logs.parse_tail(reader.format_named("mine-log"), (tmp_path / LOG).read_text()) == 2.5
    assert "| 2.50 |" in said("summarize", "logs")


def test_an_expression_that_matches_everything_takes_no_other_logs(
    folder: Path, tmp_path: Path
) -> None:
    init("train.py", regex=r"(?P<step>\d+).*?(?P<rate>[\d.]+)", sample="1 2.5")
    write(tmp_path / "logs" / "1n1g" / "rn50_b128_fp32_1.log", gluoncv(384.25))
    assert "mxnet-resnet50v1b, fp32" in said("summarize", "logs")


# ---- an environment of the user

PAGE = (ROOT / "docs" / "own-workload.md").read_text(encoding="utf-8")


def own_framework(folder: Path) -> None:
    """The framework of docs/own-workload.md, on CPUs."""
    _, _, rest = PAGE.partition("```yaml\n")
    content = rest.partition("```")[0].replace("h100-cuda12.9", "cpu")
    assert "name: mylib" in content
    write(folder / "frameworks" / "mylib.yml", content.splitlines())


def test_a_framework_of_the_user_is_planned_and_provisioned(folder: Path, tmp_path: Path) -> None:
    own_framework(folder)
    init("train.py", framework="mylib")
    nodes = json.loads(json.dumps(NODES).replace("mxnet", "mylib"))
    (tmp_path / "hosts.json").write_text(json.dumps(nodes))
    plan = call("plan", "--workload", "mine", "-i", "hosts.json", "--json").document
    assert plan["runs"][0]["commands"][0]["argv"][0] == "/opt/dlperf/envs/mylib/bin/python"
    (found,) = environments.installed(["mylib"], "cpu")
    assert found["requirements"] == f"{folder}/requirements.txt"
    assert (found["path"], found["import_name"]) == ("/opt/dlperf/envs/mylib", "mylib")
    # For `bundle`, which reads the file.
    own = reader.load_catalog().framework("mylib").environments["cpu"]
    assert own.requirements == f"{folder}/requirements.txt"
    # The built-in ones stay what they are.
    (built_in,) = environments.installed(["mxnet"], "cpu")
    assert built_in["requirements"].startswith(f"{ROOT}/requirements/")


def test_an_image_of_the_user_runs_by_its_digest(folder: Path, tmp_path: Path) -> None:
    """That of the comment in docs/own-workload.md."""
    container = PAGE.partition("# container: ")[2].partition("\n")[0]
    lines = ["name: mylib", "title: My library", "import_name: mylib", "environments:"]
    write(folder / "frameworks" / "mylib.yml", [*lines, f"  cpu: {{container: {container}}}"])
    init("train.py", framework="mylib")
    nodes = json.loads(json.dumps(NODES).replace("mxnet", "mylib"))
    hosts = tmp_path / "hosts.json"
    options = ("--workload", "mine", "-i", "hosts.json", "--container", "podman")
    hosts.write_text(json.dumps(nodes))
    assert "dlperf_container_images" in said("plan", *options, status=2)
    digest = f"sha256:{'ab' * 32}"
    nodes["nodes"]["hosts"]["node1"]["dlperf_container_images"] = {"registry/mylib": digest}
    hosts.write_text(json.dumps(nodes))
    run, _ = call("plan", *options, "--json").document["runs"]
    argv = run["commands"][0]["argv"]
    assert argv[2:5] == ['exec podman run "$@"', "podman", "--rm"]
    assert argv[-6:] == [f"registry/mylib@{digest}", "python3", "train.py", "12", "4", "1"]
    assert run["container"] == f"podman registry/mylib@{digest}"


def test_a_framework_with_a_built_in_name_is_refused(folder: Path) -> None:
    own_framework(folder)
    path = folder / "frameworks" / "mylib.yml"
    text = path.read_text().replace("name: mylib", "name: mxnet", 1)
    path.with_name("mxnet.yml").write_text(text)
    path.unlink()
    assert "the name of a built-in framework" in said("list", status=2)


def test_the_command_of_the_page(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/own-workload.md: its command writes a workload that torchrun starts."""
    _, _, rest = PAGE.partition("    dlperf --catalog ~/bench init-workload --name")
    words = shlex.split("--name" + rest.partition("\n\n")[0].replace("\\\n", " "))
    said("init-workload", *words)
    mine = reader.load_catalog().workload("mynet")
    assert (mine.launcher, mine.rule.rates_are_per, mine.rule.total_steps) == (
        *("torchrun", "device", 200),
    )
