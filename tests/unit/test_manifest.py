"""The manifest: what was changed, deleted or added is reported with its file, signed or not."""

import errno
import json
import multiprocessing
import re
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import output
from gpu_campaigns import campaign
from make_logs import KNOWN, gluoncv, write
from recorded_campaign import LOG, RUN, replace

from dlperf_runner.campaign import execute
from dlperf_runner.campaign.manifest import FILE, append, parse, read, seal, seal_run
from dlperf_runner.commands.report import make_report
from dlperf_runner.commands.summarize import summarize
from dlperf_runner.commands.verify import verify
from dlperf_runner.core.errors import UserError


def in_json(path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document, indent=2) + "\n")


def in_history(statement: str) -> Callable[[Path], object]:
    def alter(campaign: Path) -> None:
        with sqlite3.connect(campaign.parent / "history.sqlite") as database:
            assert database.execute(statement).rowcount
        database.close()

    return alter


def other_log_summarised(campaign: Path) -> None:
    log = campaign / LOG
    log.write_text(re.sub(r"Speed: (1[01])\.", r"Speed: 2\1.", log.read_text()))
    output("summarize", campaign)


def edit_last_entry(campaign: Path, back: int = 0) -> None:
    lines = (campaign / FILE).read_bytes().splitlines(keepends=True)
    del lines[len(lines) - 1 - back]
    (campaign / FILE).write_bytes(b"".join(lines))


def cut(campaign: Path) -> None:
    (campaign / FILE).write_bytes((campaign / FILE).read_bytes()[:-30])


def digest(campaign: Path) -> None:
    def other(match: re.Match[str]) -> str:
        return match[1] + ("1" if match[2] == "0" else "0")

    text = (campaign / FILE).read_text()
    (campaign / FILE).write_text(re.sub(r"(run.json\": \")(\w)", other, text))


ALTERATIONS: dict[str, tuple[Callable[[Path], object], list[str]]] = {
    "log and its summary": (other_log_summarised, [f"{LOG}: changed since", f"{LOG}: its SHA-256"]),
    "argv": (
        lambda c: in_json(c / RUN / "run.json", lambda d: d["commands"][0]["argv"].append("-x")),
        [f"{RUN}/run.json: changed since", f"{RUN}/run.json: commands differ from plan.json"],
    ),
    "parameters": (
        lambda c: in_json(c / RUN / "run.json", lambda d: d["parameters"].update(lr=1)),
        [f"{RUN}/run.json: parameters differ from plan.json"],
    ),
    "deleted run": (
        lambda c: shutil.rmtree(c / RUN),
        [f"{RUN}/run.json: deleted since", f"{LOG}: deleted since", f"{RUN}: the run is in plan"],
    ),
    "added run": (
        lambda c: shutil.copytree(c / RUN, (c / RUN).with_name("r3")),
        [f"{RUN[:-1]}3/run.json: added", f"{RUN[:-1]}3/run.json: plan.json does not have this run"],
    ),
    "added telemetry": (
        lambda c: (c / RUN / "xid-node1.csv").write_text(""),
        [f"{RUN}/xid-node1.csv: added"],
    ),
    "plan": (
        lambda c: in_json(c / "plan.json", lambda d: d["runs"].pop()),
        [f"plan.json: changed since {FILE}:1", "plan.json does not have this run"],
    ),
    "report's numbers": (
        replace("report/results.csv", "mxnet", "torch"),
        [
            "report/results.csv: changed since",
            "report/results.csv: differs from what the logs give",
        ],
    ),
    "bz result": (
        lambda c: in_json(c / "bz2_result.json", lambda d: d.update(rn50={})),
        ["bz2_result.json: changed since", "bz2_result.json: differs from what the logs give"],
    ),
    "measurements.csv": (
        replace("measurements.csv", "mxnet", "torch"),
        ["measurements.csv: changed since", "recorded, but not in the logs", "but not recorded"],
    ),
    "summary.csv": (
        replace("summary.csv", "mxnet", "torch"),
        ["summary.csv: changed since", "summary.csv: differs from what the logs give"],
    ),
    "added result": (
        lambda c: (c / "bz9_result.json").write_text("{}"),
        ["bz9_result.json: added", "bz9_result.json: the logs give no such file"],
    ),
    "history, cases": (
        in_history("UPDATE cases SET speedup = 2 * speedup"),
        ["history.sqlite: rows of this campaign changed since", "speedup is 2.0, but 1.0 in the"],
    ),
    "history, measurements": (
        in_history("UPDATE measurements SET value = 2 * value"),
        ["history.sqlite: rows of this campaign changed since", "value is 20.0, but 10.0 in the"],
    ),
    "history, campaigns": (
        in_history("UPDATE campaigns SET recorded = '2020-01-01T00:00:00+00:00'"),
        ["history.sqlite: rows of this campaign changed since"],
    ),
    "history, added case": (
        in_history("INSERT INTO cases SELECT * FROM cases LIMIT 1"),
        ["history.sqlite: rows of this campaign changed since", "recorded, but not in the logs"],
    ),
    "manifest, cut": (cut, [f"{FILE}:8: the last line is incomplete", "report/report.md: added"]),
    "manifest, last line": (edit_last_entry, ["report/report.md: added"]),
    "manifest, inner line": (lambda c: edit_last_entry(c, 5), [f"{FILE}:3: the chain is broken"]),
    "manifest, digest": (
        digest,
        [f"{FILE}:2: the chain is broken", f"{RUN}/run.json: changed since"],
    ),
}


@pytest.mark.parametrize("name", ALTERATIONS)
def test_an_alteration_is_reported_with_its_file(campaign: Path, name: str) -> None:
    alter, expected = ALTERATIONS[name]
    alter(campaign)
    printed = output("summarize", "--verify", campaign, status=1)
    for text in expected:
        assert any(text in line for line in printed.splitlines()), (text, printed)


def test_what_was_not_altered_is_not_reported(campaign: Path) -> None:
    before = {p: p.read_bytes() for p in campaign.parent.rglob("*") if p.is_file()}
    assert output("summarize", "--verify", campaign) == (
        "manifest.jsonl.sig: the manifest is not signed\n"
        "everything that was compared is as it was recorded\n"
    )
    assert before == {p: p.read_bytes() for p in campaign.parent.rglob("*") if p.is_file()}
    manifest = read(campaign)
    assert manifest
    written = {path.relative_to(campaign).as_posix() for path in before if campaign in path.parents}
    assert written - {FILE} == manifest.files.keys() - {"../history.sqlite"}
    # Results that are the same are not recorded again.
    output("summarize", campaign, "--no-history")
    assert (campaign / FILE).read_bytes() == before[campaign / FILE]


def test_a_deleted_manifest_is_reported(campaign: Path) -> None:
    (campaign / FILE).unlink()
    assert "manifest.jsonl: missing\n" in output("summarize", "--verify", campaign, status=1)
    output("summarize", campaign, "--no-history")  # a new one cannot replace it
    printed = output("summarize", "--verify", campaign, status=1)
    assert "manifest.jsonl: began when there were files already" in printed


def test_a_deleted_manifest_of_other_logs_is_reported(here: Path) -> None:
    write(here / "logs/1n1g/rn50_b128_fp32_1.log", gluoncv(50.0))
    output("summarize", "logs")
    output("summarize", "--verify", "logs")
    (here / "results/logs" / FILE).unlink()
    assert "manifest.jsonl: missing\n" in output("summarize", "--verify", "logs", status=1)


def test_without_a_manifest_the_rest_is_compared(campaign: Path) -> None:
    """As of records whose campaign.json does not say that they have one."""
    in_json(campaign / "campaign.json", lambda d: d.pop("manifest"))
    (campaign / FILE).unlink()
    in_json(campaign / "report/results.json", lambda d: d.pop("made_with"))
    printed = output("summarize", "--verify", campaign, status=1)
    assert "results.json: does not say with which options the report was made" in printed
    make_report([campaign])
    (campaign / FILE).unlink()
    printed = output("summarize", "--verify", campaign)
    assert "no manifest: only logs, results, runs and plan were compared" in printed
    in_json(campaign / RUN / "run.json", lambda d: d["commands"][0]["argv"].append("-x"))
    printed = output("summarize", "--verify", campaign, status=1)
    assert f"{RUN}/run.json: commands differ from plan.json" in printed
    # A manifest that begins later says so, and covers what it found.
    output("summarize", campaign)
    (campaign / LOG).unlink()
    printed = output("summarize", "--verify", campaign, status=1)
    assert "manifest.jsonl: began when there were files already; it shows only later" in printed
    assert f"{LOG}: deleted since {FILE}:1 recorded it" in printed


def test_results_in_another_directory_have_their_own_manifest(
    campaign: Path, tmp_path: Path
) -> None:
    place = tmp_path / "elsewhere"
    output("summarize", campaign, "--output-dir", place, "--no-history")
    arguments = ("summarize", "--verify", campaign, "--output-dir", place, "--no-history")
    output(*arguments)
    (place / "summary.md").unlink()
    (campaign / RUN / "telemetry-node1.csv").unlink()
    printed = output(*arguments, status=1)
    assert "summary.md: deleted since" in printed
    assert "telemetry-node1.csv: deleted since" in printed


def test_results_of_other_logs_have_a_manifest(here: Path) -> None:
    """One of them is damaged: what is said of it is the same from everywhere."""
    for repeat in (1, 2):
        log = here / "logs" / "bz128" / "1n1g" / f"rn50_b128_fp32_{repeat}.log"
        write(log, gluoncv(380.0 + repeat, batch=128 * repeat))
    output("summarize", "logs", "--output-dir", "out", status=2)
    make_report([Path("logs")], Path("out/report"))
    place = here / "logs"
    arguments = ("summarize", "--verify", place, "--output-dir", here / "out")
    assert "difference" not in output(*arguments, status=2)
    (here / "out/report/report.html").write_text("faster")
    (here / "out/measurements.csv").unlink()
    printed = output(*arguments, status=1)
    assert "report/report.html: changed since manifest.jsonl:1 recorded it" in printed
    assert "measurements.csv: deleted since manifest.jsonl:1 recorded it" in printed


def test_a_campaign_under_another_name_is_the_same(campaign: Path, tmp_path: Path) -> None:
    """report.md and results.json named the directory."""
    copy = tmp_path / "results" / "copy of one"
    campaign.rename(copy)
    assert "as it was recorded" in output("summarize", "--verify", copy)
    before = (copy / "report/results.json").read_bytes()
    assert json.loads(before)["campaigns"].startswith("one")
    make_report([copy])
    assert (copy / "report/results.json").read_bytes() == before


def test_a_campaign_without_results_is_verified(finished: Path, tmp_path: Path) -> None:
    """As bench.yml alone leaves it: nobody has summarised it yet."""
    runs = finished / "one" / "runs"
    place = tmp_path / "one"
    shutil.copytree(runs, place / "runs")
    lines = (finished / "one" / FILE).read_bytes().splitlines(keepends=True)
    (place / FILE).write_bytes(b"".join(lines[:5]))
    for name in ("plan.json", "campaign.json"):
        shutil.copy(finished / "one" / name, place / name)
    printed = output("summarize", "--verify", place, "--no-history")
    assert "no results to compare with the logs" in printed
    (place / LOG).write_text("")
    assert f"{LOG}: changed since" in output("summarize", "--verify", place, status=1)


def test_an_interrupted_write_is_kept_and_followed(campaign: Path) -> None:
    """The process ended in the middle of a line. The next one chains to what is there."""
    cut(campaign)
    make_report([campaign])
    printed = output("summarize", "--verify", campaign)
    assert f"{FILE}:8: an incomplete line, from an interrupted write" in printed
    # The incomplete line is part of the chain now.
    text = (campaign / FILE).read_bytes().splitlines(keepends=True)
    text[7] = text[7][:-5] + b"\n"
    (campaign / FILE).write_bytes(b"".join(text))
    assert f"{FILE}:9: the chain is broken" in output("summarize", "--verify", campaign, status=1)


def test_the_output_of_the_playbook_is_recorded(
    campaign: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def play(_: str, __: object, ___: object, state: execute.Playbook) -> None:
        state.log.write_text("PLAY\n")
        state.status = "successful"

    monkeypatch.setattr(execute, "run_playbook", play)
    assert execute.execute(campaign, []) == []
    output("summarize", "--verify", campaign)
    (campaign / "ansible.log").write_text("PLAY [again]\n")
    printed = output("summarize", "--verify", campaign, status=1)
    assert "ansible.log: changed since" in printed


def test_a_file_system_without_locks_has_a_manifest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr("dlperf_runner.campaign.manifest.fcntl.flock", flock)
    append(tmp_path, "a", {"a": "0"})
    manifest = read(tmp_path)
    assert manifest and list(manifest.files) == ["a"]


def _append(arguments: tuple[Path, int]) -> None:
    place, number = arguments
    for repeat in range(10):
        append(place, f"{number}", {f"{number}/{repeat}": "0"})


def test_several_processes_append_to_one_chain(tmp_path: Path) -> None:
    with multiprocessing.get_context("fork").Pool(3) as pool:
        pool.map(_append, [(tmp_path, number) for number in range(3)])
    manifest = read(tmp_path)
    assert manifest
    assert (len(manifest.lines), manifest.broken) == (30, [])
    assert sorted(manifest.files) == ["0/9", "1/9", "2/9"]


@pytest.mark.parametrize(
    "line", ["{}", "[]", "null", '{"number": 1}', '{"number": "1", "subject": 2}', "\x00", "é" * 10]
)
def test_a_manifest_that_is_none(line: str) -> None:
    assert parse(f"{line}\n".encode()).broken == [f"{FILE}:1: the last line is incomplete"]
    assert parse(b"").broken == []


def test_a_run_that_is_none_is_refused(campaign: Path, tmp_path: Path) -> None:
    for place, name in ((campaign, "runs/x/r1"), (tmp_path, "x/r1")):
        with pytest.raises(UserError, match="no such run"):
            seal_run(place, name)
    (tmp_path / FILE).mkdir()
    (tmp_path / "a.md").write_text("")
    with pytest.raises(Exception, match="cannot write the manifest"):
        seal(tmp_path, "summary", [tmp_path / "a.md"])


# ---- whether the recorded results match the logs


RATES = (380.0, 381.0, 383.5)
LAST = "runs/mxnet-resnet50v1b-builtin_fp32_b128_1n1g/r3/rn50_b128_fp32_3.log"


def test_verify_says_what_differs(here: Path) -> None:
    place = campaign(Path("results/one"), RATES)
    output("summarize", place)
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    fine = "everything that was compared is as it was recorded\n"
    assert output("summarize", "--verify", here / place).endswith(fine)
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before
    log = place / LAST
    write(log, gluoncv(379.0))
    out = output("summarize", "--verify", place, status=1)
    assert "samples_per_second_median is 381.0, but 380.0 in the logs" in out
    for name in ("measurements.csv", "history.sqlite"):
        lines = [line for line in out.splitlines() if line.startswith(f"{name}: ")]
        assert any("value is" in line and "383.5" in line and "379.0" in line for line in lines)
        # Of the run, once; not of each of its metrics.
        (line,) = (line for line in lines if "log_sha256" in line)
        assert " fp32 b128 1n1g " in line
        assert " r3: log_sha256 is " in line
    document = json.loads(output("summarize", "--verify", "--json", place, status=1))
    assert [*document["notes"], *document["differences"]] == out.splitlines()[:-1]


def test_verify_wants_results_and_the_campaign_in_the_history(tmp_path: Path) -> None:
    place = campaign(tmp_path / "one", RATES)
    summarize(place, models=KNOWN)
    assert verify(place, models=KNOWN).differences == []
    (found,) = verify(place, None, tmp_path / "history.sqlite", KNOWN).differences
    assert found.endswith("this campaign is not recorded")
    (place / "measurements.csv").unlink()
    result = verify(place, models=KNOWN)
    assert [line.startswith("measurements.csv: deleted") for line in result.differences] == [True]
    assert "file not found" in str(result.problems)
    (place / "manifest.jsonl").unlink()
    with pytest.raises(UserError, match="file not found"):
        verify(place, models=KNOWN)


def test_verify_tells_which_logs_it_does_not_believe(here: Path) -> None:
    place = campaign(Path("results/one"), RATES)
    log = place / LAST
    log.write_bytes(b"\xff\xfe binary")
    output("summarize", place, status=2)
    printed = output("summarize", "--verify", "--json", place, status=2)
    printed, _, told = printed.partition("error: ")
    document = json.loads(printed)
    assert document["differences"] == []
    assert document["problems"] == [told.rstrip()]
    assert told.startswith(str(log))


@pytest.mark.parametrize("place", ["absent", "empty", "file"])
def test_verify_of_what_has_no_record(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / place, tmp_path / place / "below"):
        message = "no recorded results to compare" if path.exists() else "no such file or directory"
        with pytest.raises(UserError, match=message):
            verify(path)
