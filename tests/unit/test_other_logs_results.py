"""Where results of logs of others go, exit statuses, and names that nothing may obey."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest
from command_line import call
from csv_tables import table
from make_logs import campaign_run, dllogger, gluoncv, megatron, oneflow, write
from other_logs import GOOD, load, only, speedometer

from dlperf_runner.commands.summarize import summarize


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
    assert "results/logs/summary.csv\n" in call("summarize", logs).out
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


def test_logs_of_the_same_name_have_directories_of_their_own(here: Path) -> None:
    for place in ("a/logs", "b/logs", "results/logs", "c/latest"):
        write(here / place / "rn50_b128_fp32_1n1g.log", GOOD)
    campaign_run(here / "results" / "one", "1n1g", 1, GOOD)
    (here / "results" / "latest").symlink_to("one")
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


def test_a_directory_that_cannot_be_written_to_still_gives_the_table(here: Path) -> None:
    write(here / "logs" / "rn50_b128_fp32_1n1g.log", GOOD)
    (here / "results").write_text("a file, so that nothing can be written into it")
    text = call("summarize", "logs").text
    assert "| 1 | 1 | 50.00 " in text
    assert "the results were not written: results/logs/summary.csv: " in text
    # Where it was asked for, that is an error; the table is there all the same.
    result = call("summarize", "logs", "--output-dir", "results/mine", status=2)
    assert "| 1 | 1 | 50.00 " in result.text
    assert "cannot write the result" in result.err


def test_a_run_that_failed_or_is_missing_is_exit_status_1(here: Path) -> None:
    for name, changes in {
        "good": {},
        "failed": {"outcome": {"status": "failed", "message": "boom"}},
        "planned": {"outcome": {"status": "planned"}},
        "running": {"outcome": {"status": "running"}},
    }.items():
        campaign_run(here / name, "1n1g", 1, GOOD)
        campaign_run(here / name, "1n2g", 1, GOOD, **changes)
        for command in ("summarize", "report"):
            call(command, name, status=0 if name == "good" else 1)
    # A log that fails validation is more than a run that is missing.
    campaign_run(here / "failed", "1n4g", 1, GOOD[:-9])
    for command in ("summarize", "report"):
        call(command, "failed", status=2)


def test_a_planned_run_without_a_record_is_exit_status_1(here: Path) -> None:
    folder = campaign_run(here / "c", "1n1g", 1, GOOD)
    run = json.loads((folder / "run.json").read_text())
    lost = {**run, "id": f"{run['case']}/r2", "repeat": 2}
    (here / "c" / "plan.json").write_text(json.dumps({"runs": [run]}))
    (here / "c" / "campaign.json").write_text("{}")
    assert call("summarize", "c", "--no-history")
    (here / "c" / "plan.json").write_text(json.dumps({"runs": [run, lost]}))
    text = call("summarize", "c", "--no-history", status=1).text
    assert f"not counted: {lost['id']} has no record" in text


def test_a_log_without_a_loss_is_said_not_to_be_checked(tmp_path: Path) -> None:
    for repeat, lines in ((1, oneflow(384.0)), (2, oneflow(385.0))):
        write(tmp_path / f"rn50_b128_fp32_1n1g_{repeat}.log", lines)
    assert not any("loss" in note for note in load(tmp_path).notes)
    write(tmp_path / "tf_gpu8_amp_bs256.txt", dllogger(9400.0, 8, amp=True, final=9400.0))
    write(tmp_path / "r100_b2_fp32_1n1g_1.log", speedometer("r100", parallel=True))
    assert "loss not checked: 2 of 4 logs print none" in load(tmp_path).notes


COUNTERS = " number of skipped iterations: {skipped:3d} | number of nan iterations: {nan:3d} |"


@pytest.mark.parametrize(
    ("lines_without_loss", "skipped", "nan", "step"),
    [(11, 0, 0, 1), (0, 10, 10, 1), (11, 10, 10, 1), (2, 1, 0, None), (0, 0, 0, None)],
)
def test_the_counters_of_megatron_say_that_a_loss_is_no_number(
    here: Path, lines_without_loss: int, skipped: int, nan: int, step: int | None
) -> None:
    """It prints a loss above 0 only, so no loss in bf16, which skips no iteration. In fp16, the
    first iterations are skipped until the loss scale fits, and have no loss then."""
    lines = megatron(123.4, batch=128, world=8)
    counted = lines[:-11]
    for number, line in enumerate(lines[-11:]):
        is_silent = number < lines_without_loss
        has_skipped = is_silent or nan > 0
        counters = COUNTERS.format(skipped=has_skipped * skipped, nan=has_skipped * nan)
        counted.append((re.sub(r" lm loss: \S+ \|", "", line) if is_silent else line) + counters)
    write(here / "logs/1n8g/llama3-8b_b16_bf16_1.log", counted)
    text = call("summarize", "logs", status=0 if step is None else 1).text
    assert (f"the loss is not finite at step {step}" in text) == (step is not None)
    assert "loss not checked" not in text


@pytest.mark.parametrize("noise", [0, 2**21], ids=["one-piece", "pieces"])
def test_a_log_of_two_programs_is_refused_with_both(tmp_path: Path, noise: int) -> None:
    lines = [*GOOD, *["x" * 1023] * (noise // 1024), *oneflow(50.0)]
    path = write(tmp_path / "rn50_b128_fp32_1n1g.log", lines)
    problem = only(load(path))
    first = next(n for n, line in enumerate(GOOD, 1) if "Speed: " in line)
    second = next(n for n, line in enumerate(lines, 1) if "samples/s: " in line)
    assert problem.problem == "two programs wrote into this log"
    assert problem.where == f"{path}:{second}"
    assert problem.expected == f"rates of gluoncv_horovod only, as in line {first}"
    assert problem.found == "a rate of oneflow_benchmark"


@pytest.mark.parametrize(("skipped", "of_all", "status"), [(10, 80, 1), (2, 16, 1), (1, 8, 0)])
def test_a_run_whose_steps_were_skipped_is_invalid(
    here: Path, skipped: int, of_all: int, status: int
) -> None:
    """fp16 whose loss scale never fits: no step changes a weight, and no loss is printed."""
    told = f"the program skipped {of_all} of the 80 measured steps"
    lines = megatron(123.4, batch=128, world=8)
    counters = COUNTERS.format(skipped=skipped, nan=0)
    silent = [re.sub(r" lm loss: \S+ \|", "", line) + counters for line in lines[-11:]]
    write(here / "logs/1n8g/llama3-8b_b16_bf16_1.log", lines[:-11] + silent)
    assert told in call("summarize", "logs", status=status).text


def test_what_is_no_file_is_told_and_not_waited_for(here: Path) -> None:
    write(here / "logs/1n1g/rn50_b128_fp32_1.log", GOOD)
    write(here / "more/1n2g/rn50_b128_fp32_1.log", GOOD)
    pipe = here / "logs/1n1g/rn50_b128_fp32_2.log"
    os.mkfifo(pipe)
    (here / "logs/1n1g/rn50_b128_fp32_3.log").symlink_to("nowhere")
    (here / "logs/1n2g").symlink_to(here / "more/1n2g")
    text = call("summarize", "logs").text
    assert "not read (not a file): 1n1g/rn50_b128_fp32_2.log, 1n1g/rn50_b128_fp32_3.log" in text
    assert "not read (a link to a directory): 1n2g" in text
    assert "logs are read from files" in call("summarize", pipe, status=2).err


HOSTILE = ("=1+1", "@SUM(1)", "<script>alert(1)", "a|b", "new\nline", "\x1b[31mred", "\udcff")


def test_no_name_is_obeyed_or_breaks_a_table(here: Path) -> None:
    """Directories of others may have any name, even one that is not UTF-8."""
    for number, name in enumerate(HOSTILE, start=50):
        write(here / "logs" / name / "1n1g" / "rn50_b128_fp32_1.log", gluoncv(float(number)))
    out = call("summarize", "logs").out
    assert "\x1b" not in out
    assert "directory \\x1b[31mred" in out
    told = {row["directory"] for row in table(Path("results/logs/summary.csv"))}
    assert {"'=1+1", "'@SUM(1)", r"new\nline", r"\x1b[31mred", r"\udcff"} <= told
    markdown = Path("results/logs/summary.md").read_text()
    assert "<script" not in markdown
    assert r"a\|b" in markdown
    call("summarize", "logs", "--verify")
    call("report", "logs")
    assert "<script>alert" not in Path("results/logs/report/report.html").read_text()
    assert r"results/\udcff/summary.csv" in call("summarize", Path("logs") / HOSTILE[-1]).out


def test_messages_show_what_a_terminal_would_obey(tmp_path: Path) -> None:
    lines = [line.replace("float32", "\x1bc") for line in gluoncv(50.0)]
    path = write(tmp_path / "1n1g" / "rn50_b128_fp32_1.log", lines)
    result = call("summarize", path, status=2)
    assert r"\x1bc" in result.err
    assert "\x1b" not in result.err + result.out
