"""Archives of logs: read as if they were unpacked, and nothing of them is believed."""

import io
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import call
from make_logs import gluoncv, write
from other_logs import GOOD, cases, load, only

from dlperf_runner.core import files
from dlperf_runner.results import archives
from dlperf_runner.results.load import Results

NAMES = ("logs.tar", "logs.tar.gz", "logs.TGZ", "logs.zip")
TEXT = "\n".join(GOOD) + "\n"


def packed(path: Path, members: dict[str, str], *special: tarfile.TarInfo) -> Path:
    """An archive of files, and of members of a tar that are none."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, text in members.items():
                archive.writestr(name, text)
        return path
    mode = "w" if path.suffix == ".tar" else "w:gz"
    with tarfile.open(path, mode) as archive:  # type: ignore[call-overload]
        for name, text in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
        for info in special:
            archive.addfile(info)
    return path


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def topologies(results: Results) -> list[str]:
    return [str(run.topology) for run in results.counted]


def reasons(results: Results) -> list[str]:
    return [file.reason for file in results.skipped]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The directory for temporary files, which is empty at the end."""
    (tmp_path / "scratch").mkdir()
    monkeypatch.setattr(archives.tempfile, "tempdir", str(tmp_path / "scratch"))
    yield
    assert not [*(tmp_path / "scratch").iterdir()]


@pytest.mark.parametrize(
    ("start", "name"), [(b"7z\xbc\xaf\x27\x1c", "7-Zip"), (b"\xfd7zXZ\0", "xz"), (b"BZh9", "bzip2")]
)
def test_another_archive_is_refused_by_its_kind(tmp_path: Path, start: bytes, name: str) -> None:
    path = tmp_path / "logs.packed"
    path.write_bytes(start + bytes(range(256)))
    error = only(load(path))
    assert error.found == name and error.hint == "unpack logs.packed and give what was in it"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_given", [True, False])
def test_an_archive_is_read_as_if_unpacked(tmp_path: Path, name: str, is_given: bool) -> None:
    texts = {
        "bz128/1n1g/rn50_b128_fp32_1.log": TEXT,
        "./bz128/4n8g/rn50_b128_fp32_1.log": "\n".join([*gluoncv(51.0), ""]),
        "README.md": "x",
        "bz128/.rn50_b128_fp32_1n4g.log": TEXT,
    }
    for member, text in texts.items():
        write(tmp_path / "unpacked" / member, text.splitlines())
    path = packed(tmp_path / "packed" / name, texts)
    results, plain = load(path if is_given else path.parent), load(tmp_path / "unpacked")
    assert results.problems == [] and len(results.counted) == 2
    assert results.frame.equals(plain.frame)
    assert [file.path for file in results.skipped] == [path / "README.md"]
    assert results.counted[0].path == path / "bz128/1n1g/rn50_b128_fp32_1.log"


def test_the_name_of_an_archive_and_a_mapping_say_what_its_logs_are(here: Path) -> None:
    packed(here / "logs" / "4n8g.tar.gz", {"a.log": TEXT, "b.log": TEXT.replace("50.", "51.")})
    mapping = ["logs:", "  4n8g.tar.gz/a.log: {model: rn50, precision: fp32}"]
    write(here / "logs" / "mapping.yml", mapping)
    write(here / "logs" / "1n1g" / "rn50_b128_fp32_1.log", GOOD)
    results = load(here / "logs")
    assert cases(results)[-1] == ("mxnet-resnet50v1b", "fp32", 128, "4n8g", 1)
    assert "4n8g.tar.gz/b.log" in only(results).where


def test_results_and_messages_name_the_archive(here: Path) -> None:
    bad = TEXT.replace("50.", "nan", 1)
    packed(here / "a.zip", {"1n1g/rn50_b128_fp32_1.log": TEXT, "1n2g/rn50_b128_fp32_1.log": bad})
    call("summarize", "a.zip", "--output-dir", "one", "--no-history", status=2)
    out = call("summarize", "a.zip", "--output-dir", "two", "--no-history", status=2).both
    assert "error: a.zip/1n2g/rn50_b128_fp32_1.log:" in out
    for path in (here / "one").iterdir():
        if path.name != "manifest.jsonl":
            assert path.read_bytes() == (here / "two" / path.name).read_bytes()
            assert b"scratch" not in path.read_bytes()


OUTSIDE = "its path leads out of the archive"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../1n1g/rn50_b128_fp32_1.log", OUTSIDE),
        ("/1n1g/rn50_b128_fp32_1.log", OUTSIDE),
        ("1n1g/more.zip", "an archive in an archive"),
    ],
)
@pytest.mark.parametrize("kind", ["a.tar.gz", "a.zip"])
def test_a_member_that_is_not_read(tmp_path: Path, kind: str, name: str, reason: str) -> None:
    separators = "\\" if kind == "a.zip" else "/"  # of Windows
    good = "logs/4n8g/rn50_b128_fp32_1.log".replace("/", separators)
    results = load(packed(tmp_path / "logs" / kind, {name: TEXT, good: TEXT}))
    assert (topologies(results), reasons(results)) == (["4n8g"], [reason])


def test_links_and_devices_are_not_read(tmp_path: Path) -> None:
    log = write(tmp_path / "outside" / "rn50_b128_fp32_1n1g.log", GOOD)
    good = {"4n8g/rn50_b128_fp32_1.log": TEXT}
    kinds = (
        special("1n1g/rn50_b128_fp32_1.log", tarfile.SYMTYPE, str(log)),
        special("1n2g/rn50_b128_fp32_1.log", tarfile.LNKTYPE, str(log)),
        special("1n4g/rn50_b128_fp32_1.log", tarfile.FIFOTYPE),
        special("1n8g/rn50_b128_fp32_1.log", tarfile.BLKTYPE),
    )
    results = load(packed(tmp_path / "a.tgz", good, *kinds))
    assert topologies(results) == ["4n8g"]
    link, other = "a link in an archive", "not a regular file in an archive"
    assert reasons(results) == [link, link, other, other]
    with zipfile.ZipFile(packed(tmp_path / "a.zip", good), "a") as archive:
        info = zipfile.ZipInfo("1n1g/rn50_b128_fp32_1.log")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        archive.writestr(info, str(log))
    assert reasons(load(tmp_path / "a.zip")) == [link]


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(files, "ALWAYS_EXPANDED", 1000)
    path = packed(tmp_path / name, {"1n1g/rn50_b128_fp32_1.log": TEXT, "a.log": "x" * 10_000_000})
    assert "suspiciously large" in only(load(path)).problem
    monkeypatch.setattr(files, "ALWAYS_EXPANDED", 2**30)
    monkeypatch.setattr(archives, "MOST_MEMBERS", 1)
    assert "suspiciously large" in only(load(path)).problem


def test_a_long_header_is_not_read_into_memory(tmp_path: Path) -> None:
    info = special("x", tarfile.XHDTYPE)
    info.size = 2**30
    (tmp_path / "a.tar").write_bytes(info.tobuf() + bytes(2**20))
    assert only(load(tmp_path / "a.tar")).found == "a header is too long"


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [0, 10, -700, -20])
def test_a_damaged_archive_is_told(tmp_path: Path, name: str, cut: int) -> None:
    path = packed(tmp_path / name, {"1n1g/rn50_b128_fp32_1.log": TEXT})
    size = path.stat().st_size
    if path.suffix == ".tar":
        size = 1024 + len(TEXT) // 512 * 512  # what follows is padding
        cut = min(cut, 10)
    path.write_bytes(path.read_bytes()[:size][:cut])
    problem = only(load(path))
    assert (problem.problem, problem.where) == ("the archive cannot be read", str(path))
