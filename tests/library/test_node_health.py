"""What node_health tells of this machine and of made trees; apt-get and mpirun are stand-ins."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from standins import call, interpreter, program, tree


def health(
    tmp_path: Path, *path: Path, python: str | None = None, **options: Any
) -> dict[str, Any]:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    return call("node_health", tmp_path, path, python, root=str(root), **options)


def test_a_node(tmp_path: Path) -> None:
    tree(
        tmp_path / "root",
        {
            "etc/os-release": 'PRETTY_NAME="Ubuntu 18.04.6 LTS"\nID=ubuntu\nVERSION_ID="18.04"',
            "proc/meminfo": "MemTotal:       395883404 kB\nMemFree: 1 kB",
        },
    )
    mpirun = program(tmp_path / "bin", "mpirun", "echo 'mpirun (Open MPI) 4.0.0'") / "mpirun"
    stamps = tree(tmp_path / "stamps", {"a.json": json.dumps({"proven": "a", "inputs": {"b": 1}})})
    (stamps / "broken.json").write_text("{")
    before = time.time()
    found = health(
        tmp_path, mpirun=str(mpirun), stamps=str(stamps), paths=["/", str(tmp_path / "not/yet")]
    )
    assert before <= found["time"] <= time.time()
    assert (found["system"], found["system_title"]) == ("ubuntu18.04", "Ubuntu 18.04.6 LTS")
    assert (found["memory_mib"], found["openmpi"]) == (386604, "4.0.0")
    assert found["stamps"] == {"a": {"b": 1}}
    for disk in found["disks"].values():
        assert 0 <= disk["free_mib"] <= disk["total_mib"]
        assert disk["read_only"] is False
    assert set(found["disks"]) == {"/", str(tmp_path / "not/yet")}
    assert found["addresses"] == {}


def test_what_is_not_there_is_null(tmp_path: Path) -> None:
    found = health(tmp_path, mpirun="/nowhere/mpirun")
    absent = ("system", "system_title", "memory_mib", "openmpi")
    assert [found[name] for name in absent] == [None] * 4


def test_sources_that_answer_and_that_do_not(tmp_path: Path) -> None:
    mirror = tree(tmp_path / "mirror", {"apt/dists/a/InRelease": "signed", "manifest.json": "{}"})
    lines = [
        f"'file:{mirror}/apt/dists/a/InRelease' a_InRelease 0 ",
        f"'file:{mirror}/apt/dists/b/InRelease' b_InRelease 0 ",
        f"'file:{mirror}/apt/dists/a/main/Packages.xz' a_Packages 0 ",
        "'http://127.0.0.1:9/dists/c/InRelease' c_InRelease 0 ",
    ]
    script = f'[ "$*" = "--print-uris update" ] && echo "{chr(10).join(lines)}"'
    bins = program(tmp_path / "bin", "apt-get", script)
    answers = {
        f"file:{mirror}/apt/dists/a/InRelease": None,
        f"file:{mirror}/apt/dists/b/InRelease": "there is no such path",
    }
    found = health(tmp_path, bins)["addresses"]
    assert "refused" in found.pop("http://127.0.0.1:9/dists/c/InRelease")
    assert found == answers
    of_mirror = health(tmp_path, bins, mirror=f"{mirror}/")["addresses"]
    assert of_mirror == answers | {f"{mirror}/manifest.json": None}


@pytest.mark.parametrize("version", ["2.7", "3.6", "3.12"])
def test_every_interpreter_that_nodes_have(tmp_path: Path, version: str) -> None:
    python = interpreter(version)
    if python is None:
        pytest.skip(f"there is no Python {version} on this machine")
    found = health(tmp_path, python=python, mirror="http://127.0.0.1:9")
    assert found["python"].startswith(f"{version}.")
    assert "refused" in found["addresses"]["http://127.0.0.1:9/manifest.json"]
