"""The proof of libraries that a framework opens by name, with libraries that a compiler makes."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from captured import captured
from gpu_packages import shared_library
from standins import PROJECT

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="needs a compiler")
PROOF = (PROJECT / "roles/framework/files/libraries.py").read_text()
NAMES = ("libcudart.so.10.0", "libcudnn.so.7")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """As the module unpacked_packages leaves it: links to the libraries."""
    for name in NAMES:
        (tmp_path / f"{name}.130").write_bytes(shared_library())
        (tmp_path / "lib").mkdir(exist_ok=True)
        (tmp_path / "lib" / name).symlink_to(f"../{name}.130")
    return tmp_path / "lib"


def prove(folder: Path, *names: str) -> subprocess.CompletedProcess[str]:
    environment = {"LD_LIBRARY_PATH": str(folder)}
    return captured(sys.executable, "-c", PROOF, "json", *names, env=environment)


def test_libraries_of_the_folder_are_found(folder: Path) -> None:
    done = prove(folder, *NAMES)
    assert (done.returncode, done.stdout) == (0, "found 2 libraries\n"), done.stderr


def test_each_library_that_is_missing_is_named(folder: Path) -> None:
    done = prove(folder, *NAMES, "libcupti.so.10.0", "libcufft.so.10.0")
    assert done.returncode == 1
    for name in ("libcupti.so.10.0", "libcufft.so.10.0"):
        assert f"{name}: cannot open shared object file" in done.stderr


def test_a_library_of_another_folder_is_no_proof(folder: Path) -> None:
    """A cuDNN 7 of the system would be for another CUDA."""
    done = prove(folder, *NAMES, "libm.so.6")
    assert done.returncode == 1
    assert done.stderr == f"libm.so.6 was not taken from {folder}\n"


def test_a_file_that_is_no_library_is_told(folder: Path) -> None:
    (folder / "libcufft.so.10.0").write_bytes(b"stand-in" * 100)
    assert "invalid ELF header" in prove(folder, "libcufft.so.10.0").stderr
