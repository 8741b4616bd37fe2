"""A campaign from somebody else gains nothing: no link in it is followed, nothing outside of it
changes, and what is no file never stops a command."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import call, output
from make_logs import gluoncv, write
from own_workload import init
from recorded_campaign import LOG, RUN

from dlperf_runner.campaign.directory import retry
from dlperf_runner.catalog import reader
from dlperf_runner.core.errors import UserError

LINK = "symbolic links in campaigns and results are not followed"
COMMANDS = ("summarize", "report", "status", "archive", "export prometheus", "compare", "history")
FILES = (
    *(LOG, f"{RUN}/telemetry-node1.csv", f"{RUN}/run.json", "campaign.json", "plan.json"),
    *("manifest.jsonl", "summary.json", "report/results.json"),
)


@pytest.fixture
def home(campaign: Path) -> Path:
    """The user's files, above the campaign."""
    home = campaign.parents[1]
    (home / "thesis/plots").mkdir(parents=True)
    (home / "thesis/report.html").write_text("my thesis")
    (home / "thesis/plots/first.svg").write_text("my plot")
    (home / "secret").write_text("my key")
    return home


def files_in(directory: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def outside(home: Path, campaign: Path) -> dict[str, bytes]:
    """All files of the user but the campaign and its history."""
    inside = str(campaign.relative_to(home))
    found = files_in(home).items()
    return {k: v for k, v in found if not k.startswith(inside) and "history.sqlite" not in k}


def arguments(command: str, campaign: Path) -> tuple[object, ...]:
    if command == "history":
        return ("history", "--history", campaign.parent / "history.sqlite")
    return (*command.split(), campaign)


def refused(place: Path, *words: object) -> None:
    """The command ends with status 2 and names the link."""
    said = " ".join(output(*words, status=2).split())
    assert LINK in said
    assert str(place) in said.replace(" ", "")


@pytest.mark.parametrize(
    ("name", "command"),
    [
        *((name, "report") for name in ("report", "report/report.html", "report/plots")),
        *(("summary.csv", "summarize"), ("runs", "summarize")),
        *((LOG, "archive"), ("runs", "archive")),
    ],
)
def test_a_link_in_a_campaign_is_refused(
    campaign: Path, home: Path, name: str, command: str
) -> None:
    (campaign / name).rename(home / "former")
    (campaign / name).symlink_to(home / "former")
    before = outside(home, campaign)
    refused(campaign / name, command, campaign)
    assert outside(home, campaign) == before
    assert not (campaign / f"{name}.gz").exists()


@pytest.mark.parametrize("key", ["case", "repeat", "log_name"])
def test_a_plan_names_no_place_outside(campaign: Path, home: Path, key: str) -> None:
    plan = campaign / "plan.json"
    value = f'"{key}": "1/../../../../../thesis"'
    plan.write_text(re.sub(rf'"{key}": ("[^"]*"|\d+)', value, plan.read_text(), count=1))
    before = outside(home, campaign)
    for command in ("archive", "status", "summarize"):
        assert "slash" in output(command, campaign, status=2)
    assert outside(home, campaign) == before


def test_a_record_names_no_place_outside(campaign: Path) -> None:
    record = json.loads((campaign / RUN / "run.json").read_text()) | {"case": "../../thesis"}
    with pytest.raises(UserError, match="name its directory"):
        retry(campaign, record)


@pytest.mark.parametrize("is_dangling", [True, False])
def test_the_history_beside_a_campaign_is_no_link(
    campaign: Path, home: Path, is_dangling: bool
) -> None:
    history = campaign.parent / "history.sqlite"
    history.rename(home / "mine.sqlite")
    target = home / (".bash_profile" if is_dangling else "mine.sqlite")
    history.symlink_to(target)
    before = outside(home, campaign)
    refused(history, "summarize", campaign)
    assert outside(home, campaign) == before
    assert not (home / ".bash_profile").exists()


def test_a_link_that_the_user_names_is_followed(campaign: Path, home: Path) -> None:
    (home / "link").symlink_to(campaign)
    for command in COMMANDS[:-1]:
        call(*arguments(command, home / "link"), status=0 if command != "compare" else None)
    assert (campaign / "report/report.html").is_file()


@pytest.fixture
def limited() -> Iterator[None]:
    """Ends a test that waits for a pipe."""

    def fail(*_: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize(
    ("name", "kind"),
    [*((name, "pipe") for name in FILES), *((name, "device") for name in (LOG, "plan.json"))],
)
def test_what_is_no_file_stops_no_command(
    campaign: Path, limited: None, name: str, kind: str
) -> None:
    (campaign / name).unlink()
    if kind == "pipe":
        os.mkfifo(campaign / name)
    else:
        (campaign / name).symlink_to("/dev/zero")
    # The report reads what summarize reads, and draws it.
    for command in (each for each in COMMANDS if each != "report" or name == LOG):
        called = call(*arguments(command, campaign), status=None)
        assert called.status in (0, 1, 2), called.both
        assert "Traceback" not in called.both


def test_a_pipe_in_place_of_the_history_stops_no_command(campaign: Path, limited: None) -> None:
    history = campaign.parent / "history.sqlite"
    history.unlink()
    os.mkfifo(history)
    assert "no history found" in output("history", "--history", history, status=2)
    assert "not a regular file" in output("summarize", campaign, status=2)


@pytest.mark.parametrize("word", ["111n" * 50 + "z", "ngpu" * 50 + "z"])
def test_no_name_of_a_log_stops_a_command(tmp_path: Path, limited: None, word: str) -> None:
    """Words that can be taken apart in exponentially many ways."""
    for repeat in (1, 2):
        write(tmp_path / f"rn50_b128_fp32_1n1g_{word}_{repeat}.log", gluoncv(50.0 * repeat))
    results = tmp_path / "results"
    assert "50.00-100.00" in output("summarize", tmp_path, "--output-dir", results)


@pytest.mark.parametrize("name", ["files/mine/train.py", "files/mine"])
def test_a_link_in_a_catalogue_brings_no_file_to_the_nodes(folder: Path, name: str) -> None:
    init("train.py")
    outside = folder.parent / "elsewhere"
    (folder / name).rename(outside)
    (folder / name).symlink_to(outside)
    refused(folder / name, "source", "--workload", "mine")


def test_a_link_in_a_catalogue_is_not_kept_in_a_campaign(folder: Path, tmp_path: Path) -> None:
    init("train.py")
    entry = folder / "workloads/mine.yml"
    entry.rename(tmp_path / "mine.yml")
    entry.symlink_to(tmp_path / "mine.yml")
    reader.forget()
    plan = ("plan", "--workload", "mine", "-i", "hosts.json", "--campaign", tmp_path / "campaign")
    refused(entry, *plan)


def test_programs_on_nodes_write_through_no_link(tmp_path: Path) -> None:
    from dlperf_runner.schedulers.on_nodes import job_run, node_facts

    secret = tmp_path / "secret"
    secret.write_text("my key")
    for name in ("ended.1.json", "node1"):
        (tmp_path / f".{name}").symlink_to(secret)
    job_run.write(tmp_path / "ended.1.json", {"exit_status": 0})
    node_facts.main(str(tmp_path), "node1", "mpirun-that-is-not-there", "{}")
    assert secret.read_text() == "my key"
    assert json.loads((tmp_path / "ended.1.json").read_text()) == {"exit_status": 0}
    assert json.loads((tmp_path / "facts.node1.json").read_text())["versions"] == {}
