"""What node_health_info tells of this machine and of made trees, with stand-ins of programs."""

import hashlib
import json
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import standins
from standins import call, program, tree


def health(tmp_path: Path, *path: Path, **options: Any) -> dict[str, Any]:
    root = tmp_path / "root"
    root.mkdir(exist_ok=True)
    return call("node_health_info", tmp_path, path, root=str(root), **options)


def test_a_node(tmp_path: Path) -> None:
    tree(
        tmp_path / "root",
        {
            "etc/os-release": 'PRETTY_NAME="Ubuntu 18.04.6 LTS"\nID=ubuntu\nVERSION_ID="18.04"',
            "proc/612/comm": "systemd-timesyn\n",
            "proc/77/comm": "chronyd-helper\n",
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
    # A kernel that refuses to tell is as good as one that tells.
    assert found["synchronized"] in (True, False, None)
    assert found["time_services"] == ["systemd-timesyn"]
    assert (found["system"], found["openmpi"]) == ("ubuntu18.04", "4.0.0")
    assert found["stamps"] == {"a": {"b": 1}}
    for disk in found["disks"].values():
        assert 0 <= disk["free_mib"] <= disk["total_mib"]
        assert disk["read_only"] is False
    assert set(found["disks"]) == {"/", str(tmp_path / "not/yet")}
    assert found["addresses"] == {}


def test_what_is_not_there_is_null(tmp_path: Path) -> None:
    found = health(tmp_path, mpirun="/nowhere/mpirun", mirror="http://127.0.0.1:9")
    assert (found["system"], found["openmpi"]) == (None, None)
    assert "refused" in found["addresses"]["http://127.0.0.1:9/manifest.json"]


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
        f"file:{mirror}/apt/dists/b/InRelease": "the path does not exist",
    }
    found = health(tmp_path, bins)["addresses"]
    assert "refused" in found.pop("http://127.0.0.1:9/dists/c/InRelease")
    assert found == answers
    of_mirror = health(tmp_path, bins, mirror=f"{mirror}/")["addresses"]
    assert of_mirror == answers | {f"{mirror}/manifest.json": None}


@pytest.fixture
def open_path() -> Iterator[Path]:
    """A folder that apt's own user can read too, as pytest's are not."""
    with tempfile.TemporaryDirectory(prefix="dlperf-test-") as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def test_signed_lists_are_verified_by_apt_itself(tmp_path: Path, open_path: Path) -> None:
    """Real gpg and real apt-get, on a repository without packages."""
    home = tmp_path / "g"
    gpg = partial(standins.gpg, home)
    for name in ("right", "other"):
        gpg("--quick-generate-key", name, "ed25519", "sign", "never")
    release = (
        "Suite: stable\nDate: Thu, 01 Jan 2026 00:00:00 UTC\nSHA256:\n"
        f" {hashlib.sha256().hexdigest()} 0 main/binary-amd64/Packages\n"
    )
    repository = tree(open_path / "repository", {"dists/stable/Release": release})
    lists = repository / "dists/stable"
    key = open_path / "key.gpg"
    key.write_bytes(gpg("--export", "right"))
    source = f"Types: deb\nURIs: file:{repository}\nSuites: stable\nComponents: main\n"
    tree(
        tmp_path / "root",
        {"etc/apt/dlperf-mirror.d/dlperf-a.sources": f"{source}Signed-By: {key}\n"},
    )
    bins = [Path(shutil.which(name) or "").parent for name in ("apt-get", "gpgv", "dpkg")]

    def said(signer: str) -> str:
        signed = gpg(
            "--local-user", signer, "--clear-sign", "--output", "-", str(lists / "Release")
        )
        (lists / "InRelease").write_bytes(signed)
        return "; ".join(health(tmp_path, *bins)["signatures"])

    assert said("right") == ""
    assert re.search("NO_PUBKEY|signature verification failed", said("other"))  # of apt 3.0
    shutil.rmtree(lists)
    assert "does not have a Release file" in "; ".join(health(tmp_path, *bins)["signatures"])
    shutil.rmtree(tmp_path / "root/etc")
    assert health(tmp_path, *bins)["signatures"] is None
    subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=False)
