"""The history: campaigns in and out of one file, several writers, files that are none; and the
command."""

import json
import multiprocessing
import os
import shutil
import sqlite3
import xml.etree.ElementTree as ET
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from command_line import call, output
from compare_rows import CASE
from make_logs import KNOWN, campaign_run, gluoncv, write

from dlperf_runner.commands.summarize import summarize
from dlperf_runner.core.errors import UserError
from dlperf_runner.core.frame import make_frame
from dlperf_runner.history.store import (
    RecordedCampaign,
    campaign_identity,
    case_id,
    history_of,
    points,
    record,
    recorded_tables,
)
from dlperf_runner.report.terminal import Screen

RATES = {"1n1g": (380.0, 381.0, 383.5), "1n4g": (1500.0, 1503.0, 1499.0)}
CASES = [f"mxnet-resnet50v1b-builtin_fp32_b128_{topology}" for topology in RATES]
IDS = [f"{case}_cpu_1a977325" for case in CASES]  # parameters and steps have a digest


def campaign(
    directory: Path, created: str = "2026-11-20T10:00:00+01:00", factor: float = 1.0, **changes: Any
) -> Path:
    for topology, rates in RATES.items():
        for repeat, rate in enumerate(rates, start=1):
            campaign_run(directory, topology, repeat, gluoncv(rate * factor), **changes)
    document = {"id": directory.name, "created": created}
    (directory / "campaign.json").write_text(json.dumps(document), encoding="utf-8")
    return directory


def recorded(directory: Path, history: Path) -> Path:
    result = summarize(directory, models=KNOWN)
    record(history, campaign_identity(directory), result.frame, result.cases)
    return history


def rows_of(history: Path, campaign: Path) -> list[dict[str, Any]]:
    tables = recorded_tables(history, campaign_identity(campaign))
    assert tables
    return tables["measurements"]


def test_logs_of_another_campaign_of_the_history_are_noted(tmp_path: Path) -> None:
    history = tmp_path / "history.sqlite"
    one, two = campaign(tmp_path / "one"), campaign(tmp_path / "two", factor=1.01)
    copy = tmp_path / "copy"
    shutil.copytree(one / "runs", copy / "runs")
    assert "twice" not in output("summarize", one, "--history", history)
    assert "twice" not in output("summarize", two, "--history", history)
    told = f"{history}: one has some of these logs, too, so they are in the history twice\n"
    assert told in output("summarize", copy, "--history", history)
    assert "twice" not in output("summarize", two, "--history", history)


def test_a_campaign_comes_out_as_it_went_in(tmp_path: Path) -> None:
    directory = campaign(tmp_path / "one")
    history = recorded(directory, tmp_path / "history.sqlite")
    found = points(history)
    assert [point["case_id"] for point in found] == IDS
    first = found[0]
    assert (first["campaign"], first["created"]) == ("one", "2026-11-20T09:00:00+00:00")
    assert first["samples_per_second_median"] == 381.0
    assert first["samples_per_second_ci_low"] == 380.0
    assert first["samples_per_second_ci_high"] == 383.5
    assert (first["repeats"], first["estimator"]) == (3, "mean_of_rates")
    assert (first["framework_version"], first["driver"], first["container"]) == ("1.9.1", None, "")
    rows = rows_of(history, directory)
    speeds = [row["value"] for row in rows if row["metric"] == "samples_per_second"]
    assert speeds == [*RATES["1n1g"], *RATES["1n4g"]]
    assert all(row["valid"] == 1 for row in rows)


def test_another_gpu_is_another_case() -> None:
    gpus = ("V100-SXM2-16GB", "A100-SXM4-40GB", None)
    assert len({case_id({**CASE, "accelerator": gpu}) for gpu in gpus}) == 3


def test_summarising_again_replaces_only_its_own_rows(tmp_path: Path) -> None:
    history = recorded(campaign(tmp_path / "one"), tmp_path / "history.sqlite")
    recorded(campaign(tmp_path / "two", "2026-11-21T10:00:00+00:00", 2.0), history)
    log = tmp_path / "one" / "runs" / CASES[0] / "r2" / "rn50_b128_fp32_2.log"
    write(log, gluoncv(390.0))
    recorded(tmp_path / "one", history)
    assert [point["samples_per_second_median"] for point in points(history)[:2]] == [383.5, 762.0]
    assert len(rows_of(history, tmp_path / "two")) == len(rows_of(history, tmp_path / "one"))


def test_a_moved_campaign_is_the_same_and_another_of_its_name_is_not(tmp_path: Path) -> None:
    history = recorded(campaign(tmp_path / "one"), tmp_path / "history.sqlite")
    (tmp_path / "one").rename(tmp_path / "moved")
    recorded(tmp_path / "moved", history)
    assert len(points(history)) == 2
    recorded(campaign(tmp_path / "one", "2026-11-22T10:00:00+00:00"), history)
    assert [point["created"][:10] for point in points(history)[:2]] == ["2026-11-20", "2026-11-22"]


def test_a_tree_of_logs_is_recorded_once_though_it_grows(here: Path) -> None:
    history = here / "history.sqlite"
    for repeat in (1, 2):
        write(here / "logs" / "1n1g" / f"rn50_b128_fp32_{repeat}.log", gluoncv(380.0 + repeat))
        recorded(here / "logs", history)
    (point,) = points(history)
    assert (point["repeats"], point["samples_per_second_median"]) == (2, 381.5)


def test_campaigns_of_one_name_and_second_are_told_apart(tmp_path: Path) -> None:
    """Two clusters began at the same time. Each keeps its results, however often it is recorded."""
    history = tmp_path / "history.sqlite"
    places = [tmp_path / name / "results" / "one" for name in ("a", "b", "c")]
    for place, factor in zip(places, (1.0, 2.0, 3.0), strict=True):
        campaign(place, factor=factor)
    shown = {"one": 381.0, f"one ({places[1].parent})": 762.0, f"one ({places[2].parent})": 1143.0}
    for place in (*places, places[1], places[0]):
        text = output("summarize", place, "--history", history)
        assert ("is recorded as one (" in text) == (place != places[0])
    found = [point for point in points(history) if point["world_size"] == 1]
    assert {point["campaign"]: point["samples_per_second_median"] for point in found} == shown
    for place in places:
        output("summarize", place, "--verify", "--history", history)
        assert rows_of_logs(history, place) == 6
    # One of them grows: its other logs are recorded already.
    campaign_run(places[1], "1n1g", 4, gluoncv(900.0))
    recorded(places[1], history)
    found = [point for point in points(history) if point["world_size"] == 1]
    assert sorted(point["repeats"] for point in found) == [3, 3, 4]


def rows_of_logs(history: Path, directory: Path) -> int:
    """The number of logs in the entry of a campaign, all of which are its own."""
    logs = {*summarize(directory, models=KNOWN).frame["log_sha256"].dropna()}
    tables = recorded_tables(history, campaign_identity(directory), logs)
    assert tables
    assert {row["log_sha256"] for row in tables["measurements"]} == logs
    return len(logs)


@pytest.mark.parametrize("name", ["rn50_b128_fp32_{}.log", "rn50_b128_fp32_{}.out"])
def test_each_night_of_a_path_is_kept(here: Path, name: str) -> None:
    """A job writes its logs to the same path every night; none of them is one of the night before.
    Also within a second."""
    history = here / "history.sqlite"
    for night in range(1, 5):
        shutil.rmtree(here / "logs", ignore_errors=True)
        for repeat in (1, 2):
            path = here / "logs" / "1n1g" / name.format(repeat)
            write(path, gluoncv(100.0 * night + repeat))
            os.utime(path, (1e9 + 86400 * (night // 2),) * 2)
        recorded(here / "logs", history)
    found = points(history)
    assert [point["samples_per_second_median"] for point in found] == [101.5, 201.5, 301.5, 401.5]
    assert [point["created"][8:10] for point in found] == ["09", "10", "10", "11"]
    assert len({(point["campaign"], point["created"]) for point in found}) == 4


def test_a_campaign_without_logs_replaces_none(tmp_path: Path) -> None:
    """It failed; whether it is the recorded one cannot be known."""
    history = recorded(campaign(tmp_path / "a" / "one"), tmp_path / "history.sqlite")
    failed = campaign_identity(campaign(tmp_path / "b" / "one"))
    for _ in range(2):
        record(history, failed, make_frame([], []), [])
    assert [point["samples_per_second_median"] for point in points(history)] == [381.0, 1500.0]
    with sqlite3.connect(history) as database:
        assert database.execute("SELECT count(*) FROM campaigns").fetchone() == (2,)
    database.close()


def test_a_try_without_results_replaces_none(tmp_path: Path) -> None:
    """Its logs are the recorded ones, and none of them counts any more."""
    history = recorded(campaign(tmp_path / "one"), tmp_path / "history.sqlite")
    before = points(history)
    result = summarize(tmp_path / "one", models=KNOWN)
    record(history, campaign_identity(tmp_path / "one"), result.frame, [])
    assert points(history) == before


def _write_often(arguments: tuple[Path, Path]) -> None:
    directory, history = arguments
    for _ in range(5):
        recorded(directory, history)


def test_two_processes_may_write_at_once(tmp_path: Path) -> None:
    history = tmp_path / "history.sqlite"
    directories = [campaign(tmp_path / name, f"2026-11-2{name}T10:00:00") for name in "1234"]
    with multiprocessing.get_context("fork").Pool(4) as pool:
        pool.map(_write_often, [(directory, history) for directory in directories])
    assert [point["campaign"] for point in points(history)] == [*"1234"] * 2


def test_nothing_is_kept_of_a_transaction_that_did_not_end(tmp_path: Path) -> None:
    history = recorded(campaign(tmp_path / "one"), tmp_path / "history.sqlite")
    result = summarize(tmp_path / "one", models=KNOWN)
    for case in result.cases:
        del case["stack"]
    with pytest.raises(KeyError):  # in the middle: the runs are written, the cases cannot be
        record(history, campaign_identity(tmp_path / "one"), result.frame, result.cases)
    assert len(points(history)) == 2


def _of_schema(number: int) -> Callable[[Path], None]:
    """A database with an older or newer schema; 0: of another program."""

    def make(path: Path) -> None:
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE campaigns (id INTEGER)")
            database.execute(f"PRAGMA application_id = {0x646C7066 if number else 0}")
            database.execute(f"PRAGMA user_version = {number}")

    return make


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: path.write_bytes(b"nothing, but long enough" * 200), "not a database"),
        (_of_schema(0), "a database of another program"),
        (_of_schema(4), "expected an SQLite file of schema 5, found schema 4"),
        (_of_schema(6), "expected an SQLite file of schema 5, found schema 6"),
    ],
)
def test_a_file_that_is_no_history_is_refused_and_left_alone(
    tmp_path: Path, make: Any, found: str
) -> None:
    path = tmp_path / "history.sqlite"
    make(path)
    before = path.read_bytes()
    for action in (lambda: points(path), lambda: recorded(campaign(tmp_path / "one"), path)):
        with pytest.raises(UserError, match=f"this file is not a campaign history.*{found}"):
            action()
        assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("column", "value"),
    [("unit", "[]"), ("nodes", b"x"), ("samples_per_second_median", float("inf"))],
)
def test_values_of_a_history_that_no_campaign_has_are_refused(
    tmp_path: Path, column: str, value: object
) -> None:
    path = recorded(campaign(tmp_path / "one"), tmp_path / "history.sqlite")
    with closing(sqlite3.connect(path)) as history:
        history.execute(f"UPDATE cases SET {column} = ?", (value,))  # noqa: S608
        history.commit()
    with pytest.raises(UserError, match=f"a case whose {column} is "):
        points(path)


def test_damage_inside_a_history_is_no_traceback(tmp_path: Path) -> None:
    path = recorded(campaign(tmp_path / "one"), tmp_path / "history.sqlite")
    data = bytearray(path.read_bytes())
    data[4096:] = b"\xff" * (len(data) - 4096)
    path.write_bytes(data)
    with pytest.raises(UserError, match=r"not a campaign history|cannot be read"):
        points(path)


def test_where_nothing_was_recorded(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no history found"):
        points(tmp_path / "history.sqlite")
    path = recorded(campaign(tmp_path / "one"), tmp_path / "history.sqlite")
    another = RecordedCampaign("another", "2026-01-01T00:00:00+00:00", "/")
    assert recorded_tables(path, another) is None
    (tmp_path / "directory").mkdir()
    with pytest.raises(UserError, match="the history cannot be written"):
        recorded(tmp_path / "one", tmp_path / "directory")


def test_a_history_lies_beside_campaigns_in_results_only(tmp_path: Path) -> None:
    assert history_of(tmp_path / "results" / "one") == tmp_path / "results" / "history.sqlite"
    assert history_of(tmp_path / "one") is None
    (tmp_path / "results" / "one").mkdir(parents=True)
    (tmp_path / "results" / "latest").symlink_to("one")
    assert history_of(tmp_path / "results" / "latest") == tmp_path / "results" / "history.sqlite"


# ---- the command line


@pytest.fixture(scope="module")
def ten_campaigns(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """From the sixth on 10 % slower, with another driver."""
    directory = tmp_path_factory.mktemp("years")
    for n in range(10):
        factor, changed = (1.0, {}) if n < 5 else (0.9, {"outcome": OUTCOME})
        factor *= 1 + n / 1000
        place = directory / "results" / f"c{n}"
        campaign(place, f"2026-10-{n + 1:02}T10:00:00", factor, **changed)
        recorded(place, directory / "results" / "history.sqlite")
    return directory


@pytest.fixture
def years(ten_campaigns: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(ten_campaigns)
    return ten_campaigns


VERSIONS = {"mxnet": "1.9.1"}
OUTCOME = {"status": "done", "hosts": {"node1": {"driver": "550.1"}}, "versions": VERSIONS}


def test_history_lists_cases_and_marks_where_they_changed(years: Path) -> None:
    out = output("history")
    assert "2026-10-10" in out
    document = call("history", "--json", "--since", "2026-10-04").document
    assert [case["case_id"] for case in document["cases"]] == IDS
    assert [len(case["points"]) for case in document["cases"]] == [7, 7]
    # Names are whole, so that --case takes them, and a change is found among all campaigns.
    header, _, line, *_ = out.splitlines()
    assert " ".join(header.split()) == "| case | changed | n | latest | samples/s |"
    change = "-9.6 % since 2026-10-06 c5; driver unknown -> 550.1"
    assert line.startswith(f"| {IDS[0]} | {change} |")
    # Where nothing is marked, nothing can be marked falsely.
    of_case, late = output("history", "--case", IDS[0]), output("history", "--since", "2026-10-07")
    for text, is_marked in ((out, True), (of_case, True), (late, False)):
        assert ("correlate by at most 0.5; more" in " ".join(text.split())) == is_marked
    assert output("history", "--framework", "tensorflow").startswith("The history has no")
    assert call("history", "--model", "resnet50", "--json").document == {"cases": []}


def test_a_change_is_found_among_all_campaigns_and_shown_with_the_last(years: Path) -> None:
    for start, index in (("2026-10-01", 5), ("2026-10-04", 2), ("2026-10-06", 0)):
        arguments = ("history", "--case", IDS[0], "--since", start)
        document = call(*arguments, "--json").document
        (change,) = document["cases"][0]["change_points"]
        assert (change["campaign"], change["index"]) == ("c5", index)
        assert change["differs"] == {"driver": ["unknown", "550.1"]}
        assert "changed by -9.6 %" in output(*arguments, "--plot", "since.svg")
    document = call("history", "--since", "2026-10-07", "--json").document
    assert [case["change_points"] for case in document["cases"]] == [[], []]
    late = ("history", "--since", "2027-01-01")
    assert call(*late, "--json").document == {"cases": []}
    assert "no campaign since" in output(*late, "--case", IDS[0], status=2)


@pytest.mark.parametrize("width", [60, 120])
def test_cases_can_be_told_apart_at_any_width(
    years: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr(Screen, "from_stream", lambda _: Screen(width))
    out = output("history")
    assert all(name in out for name in IDS)
    assert all(len(line) <= width for line in out.splitlines())


def test_history_of_one_case_with_its_plot(years: Path) -> None:
    out = output("history", "--case", IDS[0], "--plot", "plots/one.svg")
    assert out.splitlines()[0] == IDS[0]
    # 0.9 * 1.007 / 1.002
    (changed,) = [line for line in out.splitlines() if "changed by" in line]
    assert changed.startswith("| 2026-10-06 10:00 | c5")
    assert "| changed by -9.6 % (p = " in changed
    assert "driver unknown -> 550.1" in changed
    assert "plots/one.svg" in out
    texts = "".join(ET.fromstring((years / "plots/one.svg").read_text()).itertext())  # noqa: S314
    assert "change point" in texts
    assert "2026-10-01 to 2026-10-10" in texts
    output("history", "--case", IDS[0], "--plot", "one.png")
    assert (years / "one.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--case", "mxnet"], "several cases begin with this name"),
        (["--case", "x"], "case not found"),
        (["--plot", "x.svg"], "a plot shows one case"),
        (["--case", IDS[0], "--plot", "x.pdf"], "unsupported image format"),
        (["--since", "yesterday"], "invalid date"),
        (["--history", "none.sqlite"], "no history found"),
    ],
)
def test_bad_input(years: Path, arguments: list[str], message: str) -> None:
    assert message in output("history", *arguments, status=2)


def test_trees_and_campaigns_elsewhere_are_recorded_on_demand(here: Path) -> None:
    write(Path("results/logs/1n1g/rn50_b128_fp32_1.log"), gluoncv(380.0))
    campaign(Path("elsewhere"))
    campaign(Path("results/quiet"))
    output("summarize", "results/logs")
    output("summarize", "elsewhere")
    output("summarize", "results/quiet", "--no-history")
    assert list(here.rglob("*.sqlite")) == []
    output("summarize", "results/logs", "--history", "mine.sqlite")
    output("summarize", "elsewhere", "--history", "mine.sqlite")
    names = {point["campaign"] for point in points(Path("mine.sqlite"))}
    assert names == {str(here / "results/logs"), "elsewhere"}
