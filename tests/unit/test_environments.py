"""Environments that an ordinary user makes: real ones, of a wheel of a few bytes."""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from captured import captured
from command_line import call
from tiny_index import wheel

from dlperf_runner.catalog.framework import Environment
from dlperf_runner.commands import env as environments
from dlperf_runner.commands.env import WantedEnvironment, install_command
from dlperf_runner.core.paths import OWN_CATALOG

MINOR = f"{sys.version_info.major}.{sys.version_info.minor}"
FRAMEWORK = f"""\
name: tinylib
title: Tiny
import_name: tinylib
environments:
  cpu:
    python: ">={MINOR},<3.{sys.version_info.minor + 1}"
    requirements: requirements/tinylib.txt
"""
ON_CPU = ("--stack", "cpu")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalogue with one framework, and a mirror with its wheel."""
    for folder in ("frameworks", "requirements", "mirror/wheels"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "frameworks" / "tinylib.yml").write_text(FRAMEWORK)
    lock(tmp_path, "1.0")
    monkeypatch.setenv(OWN_CATALOG, str(tmp_path))
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def lock(site: Path, version: str) -> None:
    line = wheel(site / "mirror" / "wheels", "tinylib", version, "py3-none-any")
    (site / "requirements" / "tinylib.txt").write_text(line)


def build(site: Path, *options: object, status: int = 0) -> str:
    given = ("--output-dir", site / "envs", "--mirror", site / "mirror", *options)
    return call("env", "build", *ON_CPU, "tinylib", *given, status=status).both


def version_in(place: Path) -> str:
    code = "import tinylib, importlib.metadata as m; print(m.version('tinylib'), tinylib.__file__)"
    version, file = captured(place / "bin" / "python", "-I", "-c", code).stdout.split()
    assert Path(file).is_relative_to(place)
    return version


def test_an_environment_works_where_it_was_made_and_elsewhere(site: Path) -> None:
    place = site / "envs" / "tinylib"
    assert f"{place}\n" in build(site)
    record = json.loads((place / "dlperf-environment.json").read_text())
    lines = (site / "requirements" / "tinylib.txt").read_bytes()
    assert record["packages"] == {"tinylib": "1.0"}
    assert record["requirements_sha256"] == hashlib.sha256(lines).hexdigest()
    assert [path.name for path in place.parent.iterdir()] == ["tinylib"]
    assert not (place / ".lock").exists()
    elsewhere = site / "moved" / "there"
    elsewhere.parent.mkdir()
    place.rename(elsewhere)
    assert version_in(elsewhere) == "1.0"


def test_a_second_build_does_nothing_and_another_lock_replaces_it(site: Path) -> None:
    place = site / "envs" / "tinylib"
    build(site)
    made = place.stat().st_ino
    assert "up to date" in build(site)
    assert place.stat().st_ino == made
    lock(site, "2.0")
    build(site)
    assert version_in(place) == "2.0"


def test_a_failed_build_leaves_the_earlier_environment(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build(site)
    place = site / "envs" / "tinylib"
    # A wheel that is not what was locked.
    lock(site, "2.0")
    lines = site / "requirements" / "tinylib.txt"
    lines.write_text(lines.read_text().rsplit(":", 1)[0] + ":" + "0" * 64 + "\n")
    assert "Hash mismatch" in build(site, status=2)
    assert version_in(place) == "1.0"
    # One that works only under its first name.
    lock(site, "3.0")
    tried = environments._try

    def only_first(wanted: WantedEnvironment, directory: Path) -> None:
        tried(wanted, directory)
        if directory == place:
            raise environments.UserError("moved")

    monkeypatch.setattr(environments, "_try", only_first)
    assert "error: moved" in build(site, status=2)
    assert version_in(place) == "1.0"
    assert [path.name for path in place.parent.iterdir()] == ["tinylib"]


def test_what_is_something_else_is_left_alone(site: Path) -> None:
    (site / "envs" / "tinylib").mkdir(parents=True)
    (site / "envs" / "tinylib" / "thesis.txt").write_text("mine")
    assert "this directory is not an environment" in build(site, status=2)
    assert (site / "envs" / "tinylib" / "thesis.txt").read_text() == "mine"


def test_a_python_that_the_environment_does_not_take(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = FRAMEWORK.replace(f">={MINOR},<3.{sys.version_info.minor + 1}", ">=3.7,<3.8")
    (site / "frameworks" / "tinylib.yml").write_text(wrong)
    error = build(site, "--python", sys.executable, status=2)
    assert f"expected >=3.7,<3.8, found {MINOR}" in error
    # No site has it, and there is nothing to download it from.
    (site / "downloads.json").write_text("{}")
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(site / "downloads.json"))
    error = build(site, status=2)
    assert "No download found for request" in error
    assert "UV_PYTHON_INSTALL_MIRROR" in error
    assert "cannot be combined" in build(site, "--python", "x", "--own-python", status=2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("pytorch", *ON_CPU), "packages of the distribution: python3-torch"),
        (("mxnet", *ON_CPU), "Horovod must be compiled"),
        (("mxnet", "--stack", "h100-cuda12.9"), "no CUDA 12"),
        (("jaxx", *ON_CPU), "unknown environment 'jaxx' .*jax"),
        (("jax", "--stack", "h100"), "unknown stack 'h100'"),
    ],
)
def test_what_cannot_be_made_as_a_user(arguments: tuple[str, ...], message: str) -> None:
    error = " ".join(call("env", "build", *arguments, status=2).err.split())
    assert re.search(message, error), error


def test_the_command_of_an_installation() -> None:
    environment = Environment(python=">=3.11,<3.15", requirements="requirements/jax-cuda12.txt")
    jax = WantedEnvironment(
        *("jax", "h100-cuda12.9", "jax", environment, ">=3.11,<3.15", Path("/r.txt")), "http://m/w/"
    )
    assert install_command("uv", jax, Path("/e/jax")) == [
        *("uv", "pip", "install", "--quiet", "--require-hashes", "--link-mode", "copy"),
        *("--compile-bytecode", "--python", "/e/jax/bin/python", "--break-system-packages"),
        *("--no-index", "--find-links", "http://m/w/", "-r", "/r.txt"),
    ]


@pytest.fixture
def portable() -> tuple[Path, str]:
    """The directory of a Python that shares it with nothing else, and its version."""
    code = "import sys; print(sys.base_prefix, *sys.version_info[:3])"
    for folder in os.environ["PATH"].split(os.pathsep):
        program = Path(folder) / f"python{MINOR}"
        done = program.is_file() and captured(program, "-c", code)
        if done and done.returncode == 0:
            prefix, *version = done.stdout.split()
            if Path(prefix) not in (Path("/usr"), Path("/usr/local")):
                return Path(prefix), ".".join(version)
    pytest.skip(f"there is no Python {MINOR} in a directory of its own")


def test_an_environment_with_a_python_of_its_own(
    site: Path, portable: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv unpacks an archive of this Python, in the form of those that it downloads. The Python of
    the active virtual environment stays where it is."""
    archive, (base, version) = site / "python.tar.gz", portable
    unneeded = {"test", "site-packages", "__pycache__", "idlelib", f"config-{MINOR}"}

    def kept(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
        parts = {part.removesuffix("-x86_64-linux-gnu") for part in Path(entry.name).parts}
        return None if parts & unneeded else entry

    with tarfile.open(archive, "w:gz", compresslevel=1) as tar:
        tar.add(base / "bin" / f"python{MINOR}", f"python/bin/python{MINOR}")
        tar.add(base / "lib" / f"python{MINOR}", f"python/lib/python{MINOR}", filter=kept)
        for shared in base.glob("lib/libpython*.so*"):
            tar.add(shared, f"python/lib/{shared.name}")
        link = tarfile.TarInfo("python/bin/python3")
        link.type, link.linkname = tarfile.SYMTYPE, f"python{MINOR}"
        tar.addfile(link)
    numbers = zip(("major", "minor", "patch"), map(int, version.split(".")), strict=True)
    entry = {"name": "cpython", "arch": {"family": "x86_64", "variant": None}, "os": "linux"}
    entry |= {"libc": "gnu", **dict(numbers), "prerelease": "", "variant": None}
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    entry |= {"url": archive.as_uri(), "build": "20260101", "sha256": digest}
    name = f"cpython-{version}-linux-x86_64-gnu"
    (site / "downloads.json").write_text(json.dumps({name: entry}))
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS_JSON_URL", str(site / "downloads.json"))
    shutil.unpack_archive(archive, site / "users")
    python, active = site / "users" / "python" / "bin" / f"python{MINOR}", site / "active"
    subprocess.run([python, "-m", "venv", "--without-pip", active], check=True)
    monkeypatch.setenv("VIRTUAL_ENV", str(active))
    assert "gets a Python of its own" in build(site, "--own-python")
    assert python.is_file()
    elsewhere = (site / "envs" / "tinylib").rename(site / "moved")
    assert version_in(elsewhere) == "1.0"
    code = "import sys; print(sys.base_prefix)"
    assert captured(elsewhere / "bin/python", "-I", "-c", code).stdout == f"{elsewhere}\n"
