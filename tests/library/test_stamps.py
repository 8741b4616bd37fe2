"""A stamp stands while its files are as they were: proof writes them down, node_facts looks."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from executed_modules import FEW_FILES, HAVE_RUNUSER, ME, call

DRIFTS: dict[str, Callable[[Path], Any]] = {
    "edited": lambda path: path.write_text(path.read_text() + "a line\n"),
    "of another mode": lambda path: path.chmod(0o600),
    "gone": lambda path: path.unlink(),
    "replaced by the same": lambda path: (
        path.with_name("new").write_text(path.read_text()),
        path.with_name("new").rename(path),
    ),
    "edited, with its old time": lambda path: (path.write_text("another"), os.utime(path, (1, 1))),
}


@pytest.fixture
def stood_on(tmp_path: Path) -> Path:
    path = tmp_path / "etc" / "hosts"
    path.parent.mkdir()
    path.write_text("it stood\n")
    os.utime(path, (1, 1))
    return path


def prove(stamps: Path, *files: object, **more: Any) -> dict[str, Any]:
    command = {"name": "it", "argv": ["echo", "ok"], "expect": "ok"}
    return call(
        "proof", name="p", commands=[command], user=ME, stamps=str(stamps), inputs={"version": 1},
        files=[str(path) for path in files], **more,
    )  # fmt: skip


def standing(stamps: Path) -> dict[str, Any]:
    facts: dict[str, Any] = call("node_facts", stamps=str(stamps))["ansible_facts"]
    return facts["dlperf_node"]["stamps"]


@pytest.mark.skipif(not HAVE_RUNUSER, reason="runs a command as another user")
@pytest.mark.parametrize("drift", DRIFTS)
def test_a_proof_counts_until_one_of_its_files_is(
    drift: str, stood_on: Path, tmp_path: Path
) -> None:
    stamps = tmp_path / "stamps"
    assert prove(stamps, stood_on)["changed"]
    assert prove(stamps, stood_on)["proven"] == "before"
    assert standing(stamps) == {"p": {"version": 1}}
    DRIFTS[drift](stood_on)
    assert standing(stamps) == {}
    assert prove(stamps, stood_on, check=True)["proven"] == "no"
    again = prove(stamps, stood_on)
    assert (again["proven"], again["changed"]) == ("now", False)
    assert standing(stamps) == {"p": {"version": 1}}


@pytest.mark.skipif(not HAVE_RUNUSER, reason="runs a command as another user")
def test_what_a_directory_contains_is_no_part_of_it_but_by_a_wildcard(
    stood_on: Path, tmp_path: Path
) -> None:
    stamps, folder = tmp_path / "stamps", stood_on.parent
    prove(stamps, folder)
    (folder / "other").touch()
    assert standing(stamps)
    folder.chmod(0o700)
    assert not standing(stamps)
    prove(stamps, folder / "*.sources")
    (folder / "new.sources").touch()
    assert not standing(stamps)


def test_a_stamp_that_cannot_be_read_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"proven": "a", "inputs": {}}')
    for name, text in {"b": "{", "c": "[1]", "d": '{"proven": "d"}'}.items():
        (tmp_path / f"{name}.json").write_text(text)
    assert standing(tmp_path) == {"a": {}}


def test_limits_are_said_as_high_as_the_node_allows_them() -> None:
    wanted = {"nofile": "99999", "core": "0"}
    facts = call("node_facts", prefix=FEW_FILES, limits=wanted)["ansible_facts"]
    assert facts["dlperf_node"]["limits"] == {"nofile": "256", "core": "0"}
