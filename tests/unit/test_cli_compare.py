"""The command `compare`, on trees of logs and on campaigns: what it says, and how it ends."""

import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from make_logs import campaign_run, gluoncv, write
from published_logs import NGC, SOURCES, TABLES, workload_of, write_logs

REAL = {"accelerator": "V100-SXM2-16GB", "data": "real", "image_size": "224", "xla": "false"}
FACES = {**REAL, "image_size": "112", "classes": "85742"}
# What each report says of its runs, and logs do not.
CONDITIONS: dict[str, dict[str, str]] = {
    "mxnet-resnet50v1b.md": REAL,
    "mxnet-insightface-arcface.md": {**FACES, "parallelism": "model"},
    "oneflow-resnet50v1.5.md": REAL,
    "paddle-plsc-arcface.md": {**FACES, "data": "synthetic"},
    NGC: {
        **REAL,
        "accelerator": "V100-SXM2-32GB",
        "xla": "true",
        "input_pipeline": "framework",
    },
}
RUNS = (384.16, 384.19, 385.23, 384.04, 385.31)


def stated(source: str) -> list[str]:
    return [part for k, v in CONDITIONS[source].items() for part in ("--condition", f"{k}={v}")]


def as_json(*arguments: str | Path) -> dict[str, Any]:
    result = call("compare", *arguments, "--json", status=None)
    assert result.document["status"] == result.status
    return result.document


@pytest.mark.parametrize(
    ("source", "factor", "verdict"),
    [
        *((source, 1.0, "reproduced") for source in SOURCES),
        *(("mxnet-resnet50v1b.md", *row) for row in ((1.1, "faster"), (0.9, "slower"))),
    ],
)
def test_published_runs_as_they_are_and_scaled(
    tmp_path: Path, source: str, factor: float, verdict: str
) -> None:
    """Golden: logs with the runs of a report, in the conditions that it states. NGC and
    OneFlow published one run of each case, and one run of the user decides nothing."""
    cases = as_json(write_logs(tmp_path, source, factor), *stated(source))["cases"]
    single = workload_of(source).matrices["published"].repeats == 1
    assert {case["verdict"] for case in cases} == {"undecided" if single else verdict}
    published = sorted(float(e["samples_per_second"]) for e in TABLES if e["source"] == source)
    assert sorted(case["published"] for case in cases) == published
    for case in cases:
        assert case["ratio"] == pytest.approx(factor, abs=1e-3)
        assert (case["report"], case["factors"]) == (source.removesuffix(".md"), None)


def test_logs_alone_do_not_say_what_they_ran_on(tmp_path: Path) -> None:
    directory = write_logs(tmp_path, "paddle-plsc-arcface.md")
    document = as_json(directory)
    assert {case["verdict"] for case in document["cases"]} == {"not comparable"}
    assert document["cases"][0]["factors"] == (
        "accelerator (unknown, V100-SXM2-16GB), data (unknown, synthetic),"
        " image size (unknown, 112), classes (unknown, 85742)"
    )
    # Unless somebody says that it was as published.
    document = as_json(directory, "--assume-published")
    assert {case["verdict"] for case in document["cases"]} == {"reproduced"}
    assert document["cases"][0]["assumed"].startswith("accelerator V100-SXM2-16GB, data synthetic")
    assert "5 not comparable" in " ".join(call("compare", directory).out.split())


def campaign(directory: Path, factor: float = 1.0, runs: int = 5, **changes: Any) -> Path:
    """A campaign of five runs on one device and on two; the records' keys can be changed."""
    write(directory / "campaign.json", ["{}"])
    for topology, scale in (("1n1g", 1.0), ("1n2g", 1.95)):
        for repeat, value in enumerate(RUNS[:runs], start=1):
            lines = gluoncv(round(value * scale * factor, 2))
            campaign_run(directory, topology, repeat, lines, **changes)
    return directory


GPUS = {"driver": "440.33.01", "gpus": ["Tesla V100-SXM2-16GB"] * 8}
V100 = {
    "source": "upstream", "accelerator": "gpu", "stack": "v100-cuda10.2",
    "parameters": {"rec_train": "/data/imagenet/train.rec", "image_size": 224},
    "commands": [{"host": "node1", "argv": ["mpirun", "python", "train_horovod.py"]}],
    "outcome": {
        "status": "done", "hosts": {"node1": GPUS, "node2": GPUS},
        "versions": {"mxnet-cu102": "1.6.0"},
    },
}  # fmt: skip
A100 = {"node1": {"driver": "535.1", "gpus": ["NVIDIA A100-SXM4-40GB"]}}


def test_what_the_record_tells_is_not_the_published(tmp_path: Path) -> None:
    noise = {"rec_train": "/opt/dlperf/data/noise/train.rec", "image_size": 64}
    outcome = {"status": "done", "hosts": A100, "versions": {"mxnet": "1.9.1"}}
    changed = {**V100, "parameters": noise, "outcome": outcome}
    (first, _) = as_json(campaign(tmp_path, **changed))["cases"]
    assert first["factors"] == (
        "accelerator (A100-SXM4-40GB, V100-SXM2-16GB), data (synthetic, real), image size (64, 224)"
    )
    assert first["noted"] == (
        "framework version (1.9.1, 1.6.0), driver (535.1, 440.33.01), CUDA (unknown, 10.2),"
        " cuDNN (unknown, 7.6.5), NCCL (unknown, 2.7.3)"
    )


# ---- two campaigns


@pytest.mark.parametrize(
    ("limit", "status", "verdict"), [("15%", 0, "passed"), ("3%", 1, "failed")]
)
def test_fail_if_slower(tmp_path: Path, limit: str, status: int, verdict: str) -> None:
    a, b = campaign(tmp_path / "a"), campaign(tmp_path / "b", 0.9)
    file = tmp_path / "ci" / "junit.xml"
    document = as_json(a, b, "--fail-if-slower", limit, "--junit", file)
    assert document["status"] == status
    assert [case["limit_verdict"] for case in document["cases"]] == [verdict] * 2
    call("compare", a, b)
    (suite,) = ET.parse(file).getroot()  # noqa: S314  # it was made here
    assert suite.get("name") == f"{a} and {b}"
    counts = [suite.get(key) for key in ("tests", "failures", "errors")]
    assert counts == ["2", str(2 * status), "0"]
    result = call("compare", a, b, "--junit", tmp_path / "a" / "campaign.json" / "x.xml", status=2)
    assert "cannot write the result" in result.err


def test_one_run_each_is_never_passed_silently(tmp_path: Path) -> None:
    a, b = campaign(tmp_path / "a", runs=1), campaign(tmp_path / "b", 1.01, runs=1)
    result = call("compare", a, b, "--fail-if-slower", "3%", status=1)
    assert "1 and 1 runs are too few for a verdict; 4 and 4 are" in result.text
    allow = ("--fail-if-slower", "3%", "--allow-undecided")
    junit = tmp_path / "compare.xml"
    assert "2 too few runs" in call("compare", a, b, *allow, "--junit", junit, status=1).out
    assert 'errors="2"' in junit.read_text(encoding="utf-8")
    # A CPU is not comparable, unless the user allows it: no limit can be held to the publication.
    result = call("compare", a, "--fail-if-slower", "3%", status=1)
    assert "it is not comparable with the publication" in result.text
    call("compare", a, "--assume-published", *allow)


def test_a_campaign_of_which_nothing_counts_does_not_pass(tmp_path: Path) -> None:
    a, b = campaign(tmp_path / "a"), tmp_path / "b"
    write(b / "campaign.json", ["{}"])
    campaign_run(b, "1n1g", 1, None, outcome={"status": "failed", "message": "no"})
    call("compare", a, b, "--fail-if-slower", "3%", status=1)
    call("compare", b, "--fail-if-slower", "3%", status=1)
    assert call("compare", b, status=1).out == "No run could be counted.\n"


def test_baseline(here: Path) -> None:
    a, b = campaign(here / "results" / "a"), campaign(here / "results" / "b", 0.9)
    assert call("compare", a, "--save-baseline", "main").out == "results/baselines/main.json\n"
    assert "--replace" in call("compare", a, "--save-baseline", "main", status=2).err
    call("compare", a, "--save-baseline", "main", "--replace")
    same = campaign(here / "results" / "same", 1.001)
    assert as_json("--baseline", "main", same, "--fail-if-slower", "3%")["status"] == 0
    assert as_json("--baseline", "main", b, "--fail-if-slower", "3%")["status"] == 1
    result = call("compare", "--baseline", "other", b, status=2)
    assert result.err.count("expected one of main") == 1
    # Without a directory it is the latest campaign.
    (here / "results" / "latest").symlink_to("a")
    assert as_json()["compared"] == "results/latest and published results"


def uneven(directory: Path) -> Path:
    """The campaign with rates that go up and down in every log, as real ones do."""

    def changed(match: re.Match[str]) -> str:
        return f"{match[1]}{float(match[3]) + int(match[2]) % 17 / 10:.6f}"

    for log in directory.rglob("*.log"):
        log.write_text(re.sub(r"(Batch\[(\d+)\]\tSpeed: )([\d.]+)", changed, log.read_text()))
    return directory


def copied(directory: Path, copy: Path, ends: bytes = b"\n") -> Path:
    """The logs of a directory under other names, with mpirun's tags and a byte order mark."""
    copy.mkdir()
    for number, log in enumerate(sorted(directory.rglob("*.log")), start=1):
        lines = [b"[1,0]<stdout>:" + line for line in log.read_bytes().splitlines()]
        topology = "1n2g" if "1n2g" in str(log) else "1n1g"
        name = f"rn50_b128_fp32_{topology}_{number}.log"
        (copy / name).write_bytes(b"\xef\xbb\xbf" + ends.join([*lines, b""]))
    return copy


@pytest.mark.parametrize("is_baseline", [False, True], ids=["campaigns", "baseline"])
def test_a_campaign_is_not_compared_with_a_copy_of_its_logs(here: Path, is_baseline: bool) -> None:
    """The copy differs in the bytes of every log, and was "equal, passed"."""
    a, other = (uneven(campaign(here / n, f)) for n, f in (("a", 1.0), ("other", 1.001)))
    call("compare", a, "--save-baseline", "main")
    older = ("--baseline", "main") if is_baseline else (a,)
    for copy in (copied(a, here / "b", b"\r\n"), a):
        message = " ".join(call("compare", *older, copy, status=2).err.split())
        assert f"{copy}: two campaigns have the same log, so one is a copy" in message
        assert f"rn50_b128_fp32_1.log of {'baseline main' if is_baseline else a}" in message
        assert ("(same rates)" in message) == (copy != a)
    call("compare", *older, other)


def test_a_report_notes_copies(tmp_path: Path) -> None:
    a = uneven(campaign(tmp_path / "a", runs=1))
    b, out = copied(a, tmp_path / "b", b"\r\n"), tmp_path / "out"
    call("report", a, b, f"--output-dir={out}")
    assert "some logs are copies of those of a" in (out / "report.md").read_text(encoding="utf-8")


def test_an_allowed_difference_that_does_not_exist_is_noted(tmp_path: Path) -> None:
    a, b = campaign(tmp_path / "a", **V100), campaign(tmp_path / "b", 1.001, **V100)
    allowed = ("--fail-if-slower", "3%", "--allow-different", "accelerator")
    note = "--allow-different accelerator: has no effect, because no pair differs in it"
    assert call("compare", a, b, *allowed).err.splitlines() == [note]
    c = campaign(tmp_path / "c", **{**V100, "outcome": {**V100["outcome"], "hosts": A100}})
    assert call("compare", b, c, *allowed).err == ""


@pytest.mark.parametrize("command", ["summarize", "report", "compare"])
def test_every_command_takes_what_nobody_else_says(here: Path, command: str) -> None:
    for name, factor in (("a", 1.0), ("b", 1.001)):
        for repeat, value in enumerate(RUNS, start=1):
            lines = [line for line in gluoncv(value * factor) if "Namespace" not in line]
            write(here / name / f"run_{repeat}.log", lines)
    options = "--model=resnet50v1b --framework=mxnet --topology=1n1g --batch-size=128"
    options += " --precision=fp32 --accelerator=V100-SXM2-16GB"
    sources = ["a", "b"] if command == "compare" else ["a"]
    assert call(command, *sources, *options.split()).err == ""
    # Beside a campaign, they are about the other logs.
    c = campaign(here / "c", 1.002)
    if command != "summarize":  # they have no case in common
        call(command, "a", c, *options.split(), status=int(command == "compare"))
    refused = call(command, c, *options.split(), status=2).err
    assert "nothing can be stated about a campaign" in refused


# ---- publications, and bad input


def test_publications_side_by_side() -> None:
    result = call("compare", "--published", "--model", "resnet50v1.5", "--framework", "tensorflow")
    assert "414.73" in result.out and "362.44" in result.out
    document = call("compare", "--published", "--precision", "tf32", "--all", "--json").document
    assert {p["precision"] for p in document["publications"]} == {"tf32"}


COMBINED, NO_EFFECT = "these arguments cannot be combined", "has no effect with "


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("a b c", COMBINED),
        ("--baseline x", COMBINED),
        ("--baseline x --save-baseline y a", COMBINED),
        ("--published a", COMBINED),
        ("--published --save-baseline x", COMBINED),
        ("--published --model lenet", "no number is published for model lenet"),
        ("--published --fail-if-slower 3%", NO_EFFECT + "--published"),
        ("--published --topology 1n1g", f"--topology: this option {NO_EFFECT}--published"),
        ("a b --condition data=real", NO_EFFECT + "two campaigns"),
        ("a --baseline x --all", NO_EFFECT + "two campaigns"),
        ("a --save-baseline x --json", NO_EFFECT + "--save-baseline"),
        ("a --replace", "this option only with --save-baseline"),
        ("a --fail-if-slower 3", "invalid percentage"),
        ("a --fail-if-slower 100%", "invalid percentage"),
        ("a --fail-if-slower -3%", "invalid percentage"),
        ("nowhere", "there is no such file or directory"),
    ],
)
def test_bad_input(here: Path, arguments: str, message: str) -> None:
    assert message in call("compare", *arguments.split(), status=2).err


def test_logs_that_cannot_be_believed_are_bad_input(tmp_path: Path) -> None:
    directory = campaign(tmp_path)
    log = next(directory.glob("runs/*_1n1g/r1/*.log"))
    log.write_text("\n".join(log.read_text(encoding="utf-8").splitlines()[:40]), encoding="utf-8")
    result = call("compare", directory, status=2)
    assert "the log ends with step" in result.err
    assert "1n2g" in result.out


def test_runs_that_pmix_started_are_told_from_those_of_mpirun(tmp_path: Path) -> None:
    outcomes = {"mpirun": {"status": "done"}, "PMIx": {"status": "done", "mpi": "pmix"}}
    for name, ways in (("a", ("mpirun",)), ("b", ("PMIx",)), ("c", ("mpirun", "PMIx"))):
        for repeat, way in enumerate(ways, start=1):
            rate = 90.0 + ord(name) + repeat
            campaign_run(tmp_path / name, "1n2g", repeat, gluoncv(rate), outcome=outcomes[way])
    a, b, c = (tmp_path / name for name in "abc")
    case = "mxnet-resnet50v1b builtin fp32 b128 1n2g"
    for other, ways in ((b, "PMIx"), (c, "PMIx and mpirun")):
        note = f"{case}: started by mpirun in the first campaign, by {ways} in the second"
        assert call("compare", a, other).err.splitlines() == [note]
    pooled = f"{case}: pooled, although PMIx started r2 and mpirun started r1"
    assert pooled in " ".join(call("summarize", c, status=None).out.split())
    assert "pooled, although" not in call("summarize", b, status=None).out
