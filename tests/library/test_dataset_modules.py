"""dataset_make and dataset_info: what they write and refuse, and the damage that they name."""

import hashlib
import io
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executed_modules import call
from PIL import Image

NOISE = {"records": 50, "classes": 10, "width": 48, "height": 32, "mean_bytes": 1500}
SETS: dict[str, dict[str, Any]] = {
    "recordio": {"format": "recordio", "files": ["train.rec", "train.idx"]},
    "tfrecord": {
        "format": "tfrecord",
        "files": [f"train-{part:05d}-of-00003" for part in range(3)],
    },
    "ofrecord": {"format": "ofrecord", "files": [f"train/part-{part:05d}" for part in range(4)]},
    "faces": {"format": "recordio", "files": ["train.rec", "train.idx"], "faces": True},
}
# Of the first file of each, by any Python: all nodes get the same bytes.
DIGESTS = {"recordio": "8ae4fe9882afe8bd", "tfrecord": "7b3be4265de930b1"}
DIGESTS |= {"ofrecord": "ecab32f1c0393633", "faces": "c1e2d26bae60cbf7"}


def make(path: Path, kind: str, **more: Any) -> dict[str, Any]:
    return call("dataset_make", path=str(path), **SETS[kind], **more)


def check(path: Path, kind: str, **more: Any) -> dict[str, Any]:
    given = {"classes": 10, "records": 50, **SETS[kind], **more}
    return call("dataset_info", path=str(path), **given)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def contents(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in files
    }


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A synthetic set in RecordIO; tests take copies."""
    path = tmp_path_factory.mktemp("made") / "set"
    make(path, "recordio", **NOISE)
    return path


@pytest.mark.parametrize("kind", SETS)
def test_a_synthetic_set_is_made_once_and_is_whole(tmp_path: Path, kind: str) -> None:
    square = {**NOISE, "height": 48} if kind == "faces" else NOISE
    width = 48 if kind == "faces" else 0
    assert make(tmp_path / "set", kind, **square)["changed"]
    found = check(tmp_path / "set", kind, width=width)
    assert found["problems"] == []
    assert (found["records"], found["files"]) == (50, len(SETS[kind]["files"]))
    assert found["sample"]["label"] == 0
    assert found["sample"]["bytes"] == pytest.approx(1500, rel=0.4)
    before = contents(tmp_path / "set")
    assert before[SETS[kind]["files"][0]].startswith(DIGESTS[kind])
    assert not make(tmp_path / "set", kind, **square)["changed"]
    # However many processes write it, the same seed gives the same files; another seed others.
    make(tmp_path / "again", kind, processors=3, **square)
    assert contents(tmp_path / "again") == before
    assert make(tmp_path / "again", kind, seed=1, **square)["changed"]
    assert contents(tmp_path / "again") != before
    assert names(tmp_path) == ["again", "set"]


def photographs(folder: Path) -> Path:
    """Three classes with 2, 3 and 4 JPEGs, each of its own colour."""
    for number, name in enumerate(["n01", "n02", "n03"]):
        (folder / name).mkdir(parents=True)
        for each in range(number + 2):
            image = Image.new("RGB", (20 + each, 30), (40 * number, 60 * each, 9))
            image.save(folder / name / f"{name}_{each}.JPEG")
    return folder


@pytest.mark.parametrize("kind", ["recordio", "tfrecord", "ofrecord"])
def test_a_folder_of_images_is_packed_as_it_is(tmp_path: Path, kind: str) -> None:
    images = photographs(tmp_path / "images")
    assert make(tmp_path / "set", kind, images=str(images))["changed"]
    found = check(tmp_path / "set", kind, classes=3, records=9)
    assert (found["problems"], found["records"]) == ([], 9)
    packed = b"".join(path.read_bytes() for path in (tmp_path / "set").rglob("*") if path.is_file())
    for path in images.rglob("*.JPEG"):
        assert path.read_bytes() in packed
    (images / "n01" / "n01_0.JPEG").write_bytes(b"\x89PNG")
    failed = make(tmp_path / "other", kind, images=str(images))
    assert "n01_0.JPEG is no JPEG" in failed["msg"]
    assert names(tmp_path) == ["images", "set"]


def archive(path: Path, *members: tuple[str, bytes]) -> dict[str, str]:
    with tarfile.open(path, "w:gz") as tar:
        for name, data in members:
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return {"archive": str(path), "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}


def test_an_archive_is_unpacked_only_with_its_checksum(tmp_path: Path, made: Path) -> None:
    parts = [(name, (made / name).read_bytes()) for name in ("train.rec", "train.idx")]
    given = archive(tmp_path / "set.tgz", *parts)
    wrong = make(tmp_path / "set", "recordio", **{**given, "sha256": "5f" * 32})
    assert f"the archive has the SHA-256 {given['sha256']}" in wrong["msg"]
    url = {**given, "archive": (tmp_path / "set.tgz").as_uri()}
    for name, origin in (("path", given), ("url", url)):
        assert make(tmp_path / name, "recordio", **origin)["changed"]
        assert not make(tmp_path / name, "recordio", **origin)["changed"]
        assert check(tmp_path / name, "recordio")["problems"] == []
    outside = archive(tmp_path / "bad.tgz", ("../train.rec", b"x"))
    assert (
        "neither a file nor a folder below it" in make(tmp_path / "x", "recordio", **outside)["msg"]
    )
    assert not (tmp_path / "train.rec").exists()


def test_what_the_module_did_not_make_stays(tmp_path: Path) -> None:
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "train.rec").write_text("mine")
    assert "was not made by this role" in make(tmp_path / "set", "recordio", **NOISE)["msg"]
    assert not call("dataset_make", path=str(tmp_path / "set"), state="absent")["changed"]
    assert (tmp_path / "set" / "train.rec").read_text() == "mine"
    make(tmp_path / "own", "recordio", **NOISE)
    assert call("dataset_make", check=True, path=str(tmp_path / "own"), state="absent")["changed"]
    assert call("dataset_make", path=str(tmp_path / "own"), state="absent")["changed"]
    assert names(tmp_path) == ["set"]


def test_a_disk_that_is_too_small_is_named_before_writing(tmp_path: Path) -> None:
    huge = {**NOISE, "records": 10**12}
    failed = make(tmp_path / "set", "tfrecord", **huge)
    assert "needs 1500000 GB" in failed["msg"]
    assert names(tmp_path) == []


def cut(data: bytes) -> bytes:
    return data[:-100]


JPEG = b"\xff\xd8\xff\xe0"
# A file, what becomes of its content, and what is said of it; None: it is removed.
DAMAGE: list[tuple[str, Callable[[bytes], bytes] | None, str]] = [
    ("train.idx", None, "1 of 2 files are missing: train.idx"),
    ("train.idx", lambda _: b"", "1 files are empty: train.idx"),
    ("train.rec", cut, "1 files have another size than when they were made: train.rec"),
    ("train.rec", lambda data: b"\xff" * len(data), "no record begins here"),
    ("train.rec", lambda data: data.replace(JPEG, b"\x89PNG"), "the image is no JPEG"),
    ("train.idx", lambda data: data[:-9] + b"nonsense\n", "not with a number and an offset"),
]


def damaged(path: Path, damage: Callable[[bytes], bytes] | None) -> None:
    content = path.read_bytes()
    path.unlink()
    if damage:
        path.write_bytes(damage(content))


@pytest.mark.parametrize(("name", "damage", "message"), DAMAGE)
def test_damage_is_named(
    tmp_path: Path, made: Path, name: str, damage: Callable[[bytes], bytes] | None, message: str
) -> None:
    shutil.copytree(made, tmp_path / "set")
    damaged(tmp_path / "set" / name, damage)
    (problem,) = check(tmp_path / "set", "recordio")["problems"]
    assert message in problem


def test_a_set_of_others_is_checked_without_a_manifest(tmp_path: Path, made: Path) -> None:
    shutil.copytree(made, tmp_path / "set")
    (tmp_path / "set" / "dlperf-dataset.json").unlink()
    found = check(tmp_path / "set", "recordio", records=51, classes=10)
    assert found["problems"] == ["it has 50 images, not 51"]
    damaged(tmp_path / "set/train.rec", cut)
    (problem,) = check(tmp_path / "set", "recordio")["problems"]
    assert "a record is cut short" in problem
    assert check(tmp_path / "none", "recordio")["problems"] == [
        f"there is no folder {tmp_path}/none"
    ]


def test_surplus_files_and_wrong_properties_are_named(tmp_path: Path) -> None:
    make(tmp_path / "set", "tfrecord", **NOISE)
    (tmp_path / "set" / "train-00000-of-00128").write_text("x")
    (problem,) = check(tmp_path / "set", "tfrecord", pattern="train-*")["problems"]
    assert problem.startswith(
        "1 files would be read, too, that do not belong to it: train-00000-of"
    )
    make(tmp_path / "faces", "faces", **{**NOISE, "height": 48})
    (tmp_path / "faces" / "property").write_text("93431,112,112\n")
    problems = check(tmp_path / "faces", "faces", width=48)["problems"]
    # It has another size, too.
    assert "1 files have another size than when they were made: property" in problems
