"""The safe reader and writer: no links in campaigns, regular files only, random new names."""

import gzip
import os
import re
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dlperf_runner.core import files
from dlperf_runner.core.errors import UserError

LINK = "symbolic links in campaigns and results are not followed"


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    directory = tmp_path / "campaign"
    (directory / "runs/case/r1").mkdir(parents=True)
    (directory / "campaign.json").write_text("{}")
    (directory / "runs/case/r1/run.json").write_text("{}")
    return directory


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """The user's own file, and a place for a new one."""
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/report.html").write_text("my thesis")
    return tmp_path / "thesis"


def tree(directory: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in directory.iterdir()}


READERS: list[Callable[[Path], object]] = [
    *(files.read_bytes, files.read_text, files.read_json),
    *(files.open_read, files.open_stored, files.open_gzip),
]
WRITERS: list[Callable[[Path], object]] = [
    lambda path: files.write_whole(path, "new"),
    lambda path: files.write_result(path, "new"),
    lambda path: files.write_json(path, {}),
    files.open_append,
]
LINKED = {
    "file": ("report.html", "../thesis/report.html", "report.html"),
    "dangling": ("manifest.jsonl", "../thesis/new", "manifest.jsonl"),
    "directory": ("report", "../thesis", "report/report.html"),
    "absolute": ("report", "{outside}", "report/report.html"),
    "deep": ("runs/case/r1/log", "../../../../thesis/report.html", "runs/case/r1/log"),
    "runs": ("runs/other", "../../thesis", "runs/other/report.html"),
    "no campaign": ("runs/case/r1/log", "{outside}/report.html", "runs/case/r1/log"),
}


@pytest.mark.parametrize("use", [*READERS, *WRITERS])
@pytest.mark.parametrize("kind", LINKED)
def test_no_link_in_a_campaign_is_followed(
    campaign: Path, outside: Path, use: Callable[[Path], object], kind: str
) -> None:
    name, target, path = LINKED[kind]
    if kind == "no campaign":
        (campaign / "campaign.json").unlink()
    (campaign / name).symlink_to(target.format(outside=outside))
    before = tree(outside)
    with pytest.raises(UserError, match=LINK) as error:
        use(campaign / path)
    assert error.value.where == str(campaign / name)
    assert target.format(outside=outside) in str(error.value.found)
    assert tree(outside) == before
    assert (campaign / name).is_symlink()


@pytest.mark.parametrize("use", [*READERS, *WRITERS])
@pytest.mark.parametrize("kind", ["pipe", "socket", "device"])
def test_only_regular_files_are_opened(
    campaign: Path, monkeypatch: pytest.MonkeyPatch, use: Callable[[Path], object], kind: str
) -> None:
    path = campaign / "runs/case/r1/log"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        monkeypatch.chdir(path.parent)  # an address is short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    else:
        path = Path("/dev/zero")
        if use in WRITERS:
            use = files.open_append  # a rename would replace it
    with pytest.raises(UserError, match="not a regular file") as error:
        use(path)
    assert error.value.found == f"a {kind}"


@pytest.mark.parametrize("use", [files.read_bytes, files.read_json, files.open_stored])
def test_a_link_to_a_file_is_read_elsewhere(tmp_path: Path, use: Callable[[Path], object]) -> None:
    (tmp_path / "settings.json").write_text("{}")
    (tmp_path / "link.json").symlink_to("settings.json")
    assert use(tmp_path / "link.json") is not None
    with pytest.raises(UserError, match=LINK):
        files.read_bytes(tmp_path / "link.json", inside=tmp_path)


def test_a_link_to_a_campaign_is_the_users_own(campaign: Path) -> None:
    latest = campaign.parent / "latest"
    latest.symlink_to(campaign.name)
    assert files.read_json(latest / "campaign.json") == {}
    files.write_result(latest / "report/plots/a.svg", "svg")
    assert (campaign / "report/plots/a.svg").read_text() == "svg"
    with files.open_append(latest / "manifest.jsonl") as file:
        file.write(b"line\n")
    assert (campaign / "manifest.jsonl").read_text() == "line\n"


def test_the_outermost_campaign_counts(campaign: Path, outside: Path) -> None:
    # The target of the link is a campaign, too.
    (outside / "campaign.json").write_text("{}")
    (campaign / "report").symlink_to(outside)
    with pytest.raises(UserError, match=LINK):
        files.write_whole(campaign / "report/report.html", "new")


def test_the_current_directory_may_be_the_campaign(
    campaign: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (campaign / "report").symlink_to(outside)
    for place, path in (("", "report/report.html"), ("runs", "../report/report.html")):
        monkeypatch.chdir(campaign / place)
        with pytest.raises(UserError, match=LINK):
            files.write_whole(Path(path), "new")


def test_no_path_leads_out_of_its_directory(tmp_path: Path) -> None:
    for path in (tmp_path / "a/../../b", tmp_path.parent / "b"):
        with pytest.raises(UserError, match="leads out"):
            files.write_whole(path, "new", inside=tmp_path)


def test_names_of_new_files_cannot_be_predicted(campaign: Path) -> None:
    names = []
    for _ in range(2):
        with files.replacing(campaign / "summary.csv") as file:
            names += [path.name for path in campaign.glob(".*")]
            file.write(b"a")
    assert len(set(names)) == 2
    assert all(re.fullmatch(r"\.[0-9a-f]{16}\.tmp", name) for name in names)
    assert list(campaign.glob(".*")) == []


def test_a_file_at_the_new_name_is_not_used(
    campaign: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "_random_name", lambda: ".0.tmp")
    (campaign / ".0.tmp").symlink_to(outside / "new")
    with pytest.raises(FileExistsError):
        files.write_whole(campaign / "summary.csv", "new")
    assert list(tree(outside)) == ["report.html"]


def test_a_failed_write_leaves_the_former_file(campaign: Path) -> None:
    files.write_whole(campaign / "a/b.txt", "former")
    with pytest.raises(ZeroDivisionError), files.replacing(campaign / "a/b.txt") as file:
        file.write(b"half")
        raise ZeroDivisionError
    assert tree(campaign / "a") == {"b.txt": b"former"}


def test_the_mode_is_that_of_a_new_file(campaign: Path) -> None:
    files.write_whole(campaign / "secret", "a", mode=0o600)
    with files.open_append(campaign / "log", mode=0o600):
        pass
    assert {(campaign / name).stat().st_mode & 0o777 for name in ("secret", "log")} == {0o600}


def test_what_is_removed_is_in_the_campaign(campaign: Path, outside: Path) -> None:
    (campaign / "plots").symlink_to(outside)
    with pytest.raises(UserError, match=LINK):
        files.remove(campaign / "plots/report.html")
    files.remove(campaign / "plots")  # the link itself
    files.remove(campaign / "plots")
    assert list(tree(outside)) == ["report.html"]


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(files.MOST_BYTES + 1)
    with pytest.raises(UserError, match="too large"):
        files.read_bytes(tmp_path / "sparse")


def test_a_compressed_file_is_closed_with_its_reader(tmp_path: Path) -> None:
    (tmp_path / "log.gz").write_bytes(gzip.compress(b"lines"))
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    with files.open_stored(tmp_path / "log") as file:
        assert len(list(descriptors.iterdir())) > before
        assert file.read() == b"lines"
    assert len(list(descriptors.iterdir())) == before


def test_directories_and_missing_files_are_ordinary_errors(campaign: Path) -> None:
    with pytest.raises(IsADirectoryError):
        files.read_bytes(campaign / "runs")
    for path in (campaign / "none", campaign / "none/none", campaign.parent / "none"):
        with pytest.raises(FileNotFoundError, match=str(path.parent)):
            files.read_bytes(path)
    with pytest.raises(NotADirectoryError):
        files.write_whole(campaign / "campaign.json/a", "new")
