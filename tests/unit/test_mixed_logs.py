"""Directories with results of several kinds: each kind has its table."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path

import pytest
from command_line import call
from make_logs import write
from mlperf_rounds import result_log
from nccl_logs import nccl_tests
from other_logs import GOOD, load
from recorded_campaign import RUN as RUN_DIRECTORY

from dlperf_runner.core.errors import UserError
from dlperf_runner.results.load import load_results

RUN = f"{RUN_DIRECTORY}/run.json"
RESULTS = "round/ACME/results/8xH100/llama31_8b"
SYSTEM = '{"number_of_nodes": 1, "accelerators_per_node": 8, "accelerator_model_name": "H100"}'


@pytest.fixture
def logs(here: Path) -> Path:
    """Results of MLPerf, one of its logs alone, a table of nccl-tests and a training run."""
    for number in range(10):
        write(here / "logs" / RESULTS / f"result_{number}.txt", result_log(900 + number))
    write(here / "logs" / "round/ACME/systems/8xH100.json", [SYSTEM])
    write(here / "logs" / "mlperf.log", result_log(1200))
    write(here / "logs" / "nccl.out", [*nccl_tests(), *nccl_tests(200)])
    write(here / "logs" / "1n1g" / "rn50_b128_fp32_1.log", GOOD)
    return here / "logs"


def test_each_kind_has_its_table(logs: Path) -> None:
    called = call("summarize", "logs", "--output-dir", "out")
    for text in (
        "mxnet-resnet50v1b, fp32, batch size 128 per device",
        "llama31_8b: MLPerf's time to train of 10 runs, in minutes",
        "| ACME      | 8xH100 |",
        "Runs of MLPerf: the time from run_start to run_stop",
        "| logs/mlperf.log | llama31_8b | success |    32 |  20.000 |",
        "| 1073741824 |",
    ):
        assert text in called.out
    assert "error" not in called.both and "failed validation" not in called.both
    assert "not read" not in called.both
    document = call("summarize", "logs", "--json", "--output-dir", "out").document
    (result,) = document["mlperf"]["results"]
    assert result["time_to_train_min"] == pytest.approx(904.5 / 60)
    assert document["mlperf"]["runs"]["logs/mlperf.log"]["time_to_train_s"] == 1200
    assert [t["collective"] for t in document["bandwidth"]["logs/nccl.out"]] == ["all_reduce"] * 2
    assert len(document["cases"]) == 1
    call("summarize", "logs", "--verify", "--output-dir", "out")


def test_results_without_training_runs_write_nothing(logs: Path) -> None:
    called = call("summarize", logs / RESULTS, "--output-dir", "out")
    assert "MLPerf's time to train" in called.out and "No run" not in called.out
    assert not Path("out").exists()
    with pytest.raises(UserError, match="no logs found"):
        load_results(logs / RESULTS)  # a report would be empty


def test_what_is_wrong_with_other_results_is_that_of_their_commands(logs: Path) -> None:
    write(logs / "nccl.out", nccl_tests(wrong="3", end="36 FAILED"))
    assert "| 1073741824 |" in call("summarize", "logs", status=1).out
    write(logs / "mlperf.log", result_log(1200)[:-1])
    called = call("summarize", "logs", status=2)
    assert "error: logs/mlperf.log: the log has no run_stop" in called.both
    assert "failed validation" not in called.both


def test_a_stated_expression_reads_a_log_of_mlperf_as_that_of_a_run(here: Path) -> None:
    steps = [f"step {n}: 100.5 tok/s" for n in range(1, 61)]
    write(here / "logs/1n1g/x_b1_bf16_1.log", [*result_log(1200)[:3], *steps])
    assert "Runs of MLPerf" not in call("summarize", "logs", status=2).out
    regex = r"step (?P<step>\d+): (?P<rate>[\d.]+) tok/s"
    out = call("summarize", "logs", "--regex", regex, "--rates-are-per", "world").out
    assert "100.50" in out


def test_json_files_are_logs_if_a_format_reads_them(logs: Path) -> None:
    for name in ("log.json", "raport.jsonl", "log.json.gz"):
        path = write(logs / name / "rn50" / "1n2g" / name, GOOD)
        if path.suffix == ".gz":
            path.write_bytes(gzip.compress(path.read_bytes()))
        results = load(logs / name, model="rn50", precision="fp32")
        assert [str(run.topology) for run in results.counted] == ["1n2g"]
    call("summarize", "logs/1n1g", "--output-dir", "logs/1n1g")  # its own files are no logs
    assert [file.path.name for file in load_results(logs / "1n1g").skipped] == []


def test_campaigns_among_logs_have_tables_of_their_own(logs: Path, campaign: Path) -> None:
    alone = call("summarize", campaign, "--json", "--no-history").document["cases"]
    campaign.rename(logs / "one")
    before = {path: path.read_bytes() for path in logs.rglob("*") if path.is_file()}
    called = call("summarize", "logs")
    assert "Campaign logs/one\n\nmxnet-resnet50v1b builtin, fp32" in called.out
    assert before == {path: path.read_bytes() for path in logs.rglob("*") if path.is_file()}
    for name in ("logs", "campaign"):
        with tarfile.open(f"{name}.tar.gz", "w:gz") as archive:
            archive.add("logs" if name == "logs" else "logs/one", ".")
    for source, place in (
        ("logs", "logs/one"),
        ("logs.tar.gz", "logs.tar.gz/one"),
        ("campaign.tar.gz", "campaign.tar.gz"),
    ):
        document = call("summarize", source, "--json").document
        assert document["campaigns"][place]["cases"] == alone
        assert len(document["cases"]) == (place != source)
    with pytest.raises(UserError, match="no logs found"):
        load_results(Path("campaign.tar.gz"))  # a report would be empty


def test_a_campaign_among_logs_gains_nothing(logs: Path, campaign: Path) -> None:
    (campaign / "secret").write_text("my key")
    for number, (name, text) in enumerate(
        [(RUN, "{}"), (f"{RUN}/x", "a file that is a directory, too"), ("../../../stolen", "out")]
    ):
        place = Path(f"hostile-{number}")
        write(place / "1n1g/rn50_b128_fp32_1.log", GOOD)
        with tarfile.open(place / "c.tar.gz", "w:gz") as archive:
            for path in (f"c/{RUN}", f"c/{name}", "c/campaign.json"):
                info = tarfile.TarInfo(path)
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
        called = call("summarize", place, status=2)
        assert "mxnet-resnet50v1b, fp32" in called.out
        assert f"{place}/c.tar.gz" in called.err and "/tmp" not in called.err.replace(str(logs), "")
    assert not [*Path().rglob("stolen")]
    (campaign / "runs/link").symlink_to(campaign / "secret")
    (campaign / RUN).unlink()
    (campaign / RUN).symlink_to("../../../secret")
    campaign.rename(logs / "one")
    called = call("summarize", "logs", status=2)
    assert "logs/one/runs" in called.err and "links in campaigns" in called.err
    assert "my key" not in called.both
