"""Packages that are unpacked beside installed ones, by the real apt and dpkg-deb from signed
repositories of stand-in packages."""

import json
from pathlib import Path
from typing import Any

import pytest
from executed_modules import call
from gpu_packages import cudnn_7, one
from standin_repository import flat_repository, needs_apt

pytestmark = needs_apt
CUDA = "/usr/local/cuda-10.0/targets/x86_64-linux/lib"
LIBRARIES = {
    f"{CUDA}/libcudart.so.10.0.130": "10.0",
    f"{CUDA}/stubs/libcuda.so": "stub",
    f"{CUDA}/libcudart_static.a": "static",
}
OLD, NEW = "7.6.5.32-1+cuda10.0", "7.6.5.32-1+cuda10.2"


@pytest.fixture
def parts(tmp_path: Path) -> list[dict[str, Any]]:
    """CUDA's runtime of one repository; cuDNN of another, which has it for two versions of CUDA."""
    runtime = one("cuda-cudart-10-0", "10.0.130-1", "cuda-license-10-0", files=LIBRARIES)
    content = {"cuda": [runtime], "learning": [*cudnn_7(OLD), *cudnn_7(NEW)]}
    wanted = {"cuda": {"cuda-cudart-10-0": "10.0.130-1"}, "learning": {"libcudnn7": OLD}}
    found = []
    for name, packages in content.items():
        folder = tmp_path / name
        fingerprint = flat_repository(folder, packages, tmp_path / f"{name}-key", "key.pub")
        repository = {
            "name": name,
            "uri": f"file:{folder}",
            "suite": "/",
            "key": str(folder / "key.pub"),
            "fingerprints": [fingerprint],
        }
        found.append({"repository": repository, "packages": wanted[name]})
    return found


def test_libraries_of_several_packages_are_beside_each_other(
    tmp_path: Path, parts: list[dict[str, Any]]
) -> None:
    path = tmp_path / "opt/cuda"
    assert call("unpacked_packages", check=True, path=str(path), parts=parts)["changed"]
    assert not path.exists()
    result = call("unpacked_packages", path=str(path), parts=parts)
    assert result["changed"], result
    versions = {name: found["version"] for name, found in result["packages"].items()}
    assert versions == {"cuda-cudart-10-0": "10.0.130-1", "libcudnn7": OLD}
    assert json.loads((path / ".dlperf-unpacked").read_text()) == result["packages"]
    links = {link.name: link.read_text() for link in (path / "lib").iterdir()}
    assert links == {"libcudart.so.10.0.130": "10.0", "libcudnn.so.7": OLD}
    assert [entry.name for entry in path.parent.iterdir()] == ["cuda"]
    assert not call("unpacked_packages", path=str(path), parts=parts)["changed"]


def test_another_version_takes_the_place_of_the_first(
    tmp_path: Path, parts: list[dict[str, Any]]
) -> None:
    path = str(tmp_path / "opt/cuda")
    call("unpacked_packages", path=path, parts=parts)
    parts[1]["packages"] = {"libcudnn7": NEW}
    assert call("unpacked_packages", path=path, parts=parts)["changed"]
    assert Path(path, "lib/libcudnn.so.7").read_text() == NEW
    assert call("unpacked_packages", path=path, parts=parts[1:])["changed"]
    assert [link.name for link in Path(path, "lib").iterdir()] == ["libcudnn.so.7"]


def test_a_folder_of_somebody_else_stays(tmp_path: Path, parts: list[dict[str, Any]]) -> None:
    (tmp_path / "theirs").mkdir()
    result = call("unpacked_packages", path=str(tmp_path / "theirs"), parts=parts)
    assert "is not this project's" in result["msg"]
    assert (tmp_path / "theirs").is_dir()


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        ("key", "is not the expected one: expected fingerprint " + "A" * 40),
        ("version", "the repository does not have this version"),
        ("package", "does not match the repository's signed index"),
        ("index", "the repository's signature is invalid"),
    ],
)
def test_what_the_signed_index_does_not_vouch_for_is_refused_and_leaves_nothing(
    tmp_path: Path, parts: list[dict[str, Any]], spoil: str, said: str
) -> None:
    folder = tmp_path / "learning"
    if spoil == "key":
        parts[1]["repository"]["fingerprints"] = ["A" * 40]
    elif spoil == "version":
        parts[1]["packages"] = {"libcudnn7": "7.6.5.32-1+cuda9.0"}
    else:
        pattern = "libcudnn7_*cuda10.0*.deb" if spoil == "package" else "InRelease"
        (file,) = folder.glob(pattern)
        content = bytearray(file.read_bytes())
        content[len(content) // 3] ^= 1
        file.write_bytes(content)
    path = tmp_path / "opt/cuda"
    result = call("unpacked_packages", path=str(path), parts=parts)
    assert result["failed"]
    assert said in result["msg"]
    assert list(path.parent.iterdir()) == []
