"""Results that cannot be read, or of which there are none, are told, and replace no good ones."""

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from captured import captured
from command_line import call
from csv_tables import table
from make_logs import ROOT, gluoncv, write
from planned_campaigns import create, end
from recorded_campaign import finished_campaign

# Root may read everything, but not without these capabilities.
AS_USER = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] * (os.geteuid() == 0)


def tree(place: Path) -> Path:
    for topology, world in (("1n1g", 1), ("1n8g", 8)):
        for repeat in (1, 2, 3):
            log = gluoncv(380.0 * world + repeat, world=world)
            write(place / f"bz128/{topology}/rn50_b128_fp32_{repeat}.log", log)
    return place


@pytest.mark.parametrize(
    ("where", "mode"),
    [
        *(("logs/bz128/1n8g", 0), ("of a case", 0), ("of a run", 0)),
        ("campaign/runs", 0o311),  # not listed
    ],
)
def test_an_unreadable_directory_is_an_error(here: Path, where: str, mode: int) -> None:
    """As an unreadable log is; the row was missing, and the exit status 0."""
    if where.startswith("logs"):
        source, closed = tree(here / "logs"), here / where
    else:
        source = here / "campaign"
        for run in create(source, nodes="1"):
            end(source, run, status="done", exit_status=0)
        case = next((source / "runs").iterdir())
        closed = {"of a case": case, "of a run": case / "r1"}.get(where, source / "runs")
    argv = [*AS_USER, sys.executable, "-m", "dlperf_runner", "summarize", source, "--no-history"]
    closed.chmod(mode)
    try:
        done = captured(*argv, cwd=here, env={**os.environ, "PYTHONPATH": str(ROOT)})
    finally:
        closed.chmod(0o755)
    assert done.returncode == 2, done.stdout + done.stderr
    assert f"{closed}: the directory cannot be read (found Permission denied)" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failed_second_try_replaces_nothing(here: Path) -> None:
    tree(here / "logs")
    call("summarize", "logs", "--history", "h.sqlite")
    place = here / "results/logs"
    before = {path: path.read_bytes() for path in place.iterdir()}
    recorded = call("history", "--history", "h.sqlite", "--json").document
    tried = call("summarize", "logs", "--precision", "fp16", "--history", "h.sqlite", status=2)
    assert "No run could be counted." in tried.out
    kept = "the earlier results in results/logs are kept, because no run could be counted"
    assert kept in tried.text
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    assert call("history", "--history", "h.sqlite", "--json").document == recorded
    call("summarize", "logs", "--precision", "fp16", "--history", "other.sqlite", status=2)
    elsewhere = ("summarize", "logs", "--output-dir", "results/logs", "--precision", "fp16")
    assert kept in call(*elsewhere, status=2).text
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    # Nor if the logs do not count any more.
    for log in (here / "logs").rglob("*.log"):
        log.write_text(re.sub(r"Loss\[7[0-9.]+", "Loss[nan", log.read_text()))
    call("summarize", "logs", "--history", "h.sqlite", status=1)
    assert {path: path.read_bytes() for path in place.iterdir()} == before
    assert call("history", "--history", "h.sqlite", "--json").document == recorded
    tree(here / "logs")
    # Without earlier results, the failed try is written; and with a good one, it is replaced.
    shutil.rmtree(place)
    call("summarize", "logs", "--precision", "fp16", status=2)
    assert json.loads((place / "summary.json").read_text())["cases"] == []
    call("summarize", "logs")
    assert len(table(place / "summary.csv")) == 2


def test_a_failed_second_try_of_a_campaign_is_no_other_campaign(here: Path) -> None:
    finished_campaign(here / "results")
    call("summarize", "results/one")
    recorded = call("history", "--json").document
    for log in (here / "results/one").glob("runs/*/*/*.log"):
        log.write_text("nothing")
    assert "another campaign" not in call("summarize", "results/one", status=2).both
    assert call("history", "--json").document == recorded


def test_runs_are_counted_among_those_that_count(here: Path) -> None:
    """`the batch size is from the file name, not from the log: 3 of 0 runs` was printed."""
    for repeat in (1, 2, 3):
        lines = gluoncv(380.0 + repeat, batch=None, world=8)
        write(here / f"logs/1n8g/rn50_b128_fp32_{repeat}.log", lines)
    told = "the batch size is from the file name, not from the log: "
    assert f"{told}3 of 3 runs" in call("summarize", "logs").text
    for invalid in (1, 2, 3):
        path = here / f"logs/1n8g/rn50_b128_fp32_{invalid}.log"
        path.write_text(re.sub(r"Loss\[7[0-9.]+", "Loss[nan", path.read_text()))
        printed = call("summarize", "logs", status=1).text
        number = 3 - invalid
        assert printed.count("not counted: ") == invalid
        assert (f"{told}{number} of {number} runs" in printed) == (number > 0)
        assert (told in printed) == (number > 0)


def test_a_comparison_of_nothing_is_no_success(here: Path) -> None:
    tree(here / "a")
    write(here / "b/1n4g/rn50_b64_fp32_1.log", gluoncv(900.0, batch=64, world=4))
    for gate in ([], ["--fail-if-slower", "3%", "--allow-undecided"]):
        called = call("compare", "a", "b", *gate, status=1)
        assert "no case was compared" in called.err
    document = call("compare", "a", "b", "--json", status=1).document
    assert document["status"] == 1
    called = call("compare", "a", "a", status=None)
    assert "no case was compared" not in called.err
    # No publication has this topology.
    write(here / "c/1n5g/rn50_b128_fp32_1.log", gluoncv(900.0, world=5))
    assert "no case was compared" in call("compare", "c", status=1).err
