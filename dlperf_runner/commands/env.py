"""Makes the environment of a framework as an ordinary user, in a folder that all nodes share.

uv installs the catalogue's hash-locked requirements. An environment is made under another name,
tried there, renamed, and tried again, so that it is known to work in two places.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from packaging.specifiers import SpecifierSet

from ..catalog.framework import Environment, Framework
from ..catalog.reader import load_catalog, lookup
from ..core.errors import UserError, as_user_error
from ..core.files import read_bytes, write_json
from ..core.paths import shipped
from ..options import completes, print_note

ORDER = 60
HELP = """
action build: The word build.
--stack NAME: The stack of the nodes.
--output-dir DIR: A folder that all nodes share; default: envs/STACK.
--python PATH: A Python that all nodes have at this path.
--own-python: Give each environment a Python of its own, even if the site has one that is new
  enough.
--mirror MIRROR: The folder or URL of a mirror that `bundle` made.
"""


def command(
    action: str,
    names: Annotated[
        list[str],
        typer.Argument(
            help="Frameworks, or environments of their flavors, such as mxnet-mkl.",
            metavar="NAME...",
            autocompletion=completes("framework"),
        ),
    ],
    stack: str,
    output_dir: Path | None = None,
    python: str = "",
    own_python: bool = False,
    mirror: str = "",
) -> None:
    """Make the hash-locked environments of frameworks, without root and Ansible, in a shared
    folder. They can be moved.

    Example: dlperf env build pytorch --stack h100-cuda12.9"""
    if action != "build":
        raise UserError("unknown action", where="env", expected="build", found=action)
    if python and own_python:
        raise UserError("--python and --own-python cannot be combined")
    folder = output_dir or Path("envs") / stack
    wanted = [_wanted(name, stack, mirror) for name in names]
    uv = _uv()
    for one in wanted:
        place = folder.absolute() / one.name
        if _is_made(place, one):
            print_note(f"{one.name} is up to date")
        else:
            _make(uv, one, place, python, own_python=own_python)
            print_note(f"{one.name} was made and imported in two places")
        print(place)


RECORD = "dlperf-environment.json"
_NO_PYTHON = (
    "uv downloads Python from GitHub, or from UV_PYTHON_INSTALL_MIRROR; with --python, the"
    " environment uses one of the site"
)
_SHOWN = 2000  # characters of the end of an error


@dataclass(frozen=True)
class WantedEnvironment:
    """An environment to make. `python`: the versions that it takes. `wheels`: a folder or URL that
    is then the only source."""

    name: str
    stack: str
    module: str
    environment: Environment
    python: str
    requirements: Path
    wheels: str = ""

    @property
    def digest(self) -> str:
        return hashlib.sha256(read_bytes(self.requirements)).hexdigest()


def _wanted(name: str, stack: str, mirror: str) -> WantedEnvironment:
    """The environment of a framework, or of one of its flavors, such as mxnet-mkl."""
    catalog = load_catalog()
    catalog.stack(stack, "--stack")
    environments = {
        key: (framework, environment)
        for framework in catalog.frameworks.values()
        for key, environment in framework.environments_on(stack).items()
    }
    if name in catalog.frameworks and name not in environments:
        raise UserError(catalog.frameworks[name].why_not(stack), where="--stack", found=stack)
    framework, environment = lookup("environment", name, environments, f"NAME on {stack}")
    if environment.python is None or environment.requirements is None:
        raise UserError(
            f"{name} on {stack} exists only as an image", where=name, hint="run it in a container"
        )
    if problem := _needs_more(framework, environment):
        raise UserError(f"{name} on {stack} cannot be made as a user: {problem}", where=name)
    requirements = shipped() / environment.requirements
    wheels = f"{mirror.rstrip('/')}/wheels/" if mirror else ""
    return WantedEnvironment(
        name, stack, framework.import_name, environment, environment.python, requirements, wheels
    )


def _needs_more(framework: Framework, environment: Environment) -> str:
    """The parts that wheels alone do not bring; empty if they bring everything."""
    if environment.apt_packages:
        return f"it needs packages of the distribution: {', '.join(environment.apt_packages)}"
    if environment.operator_wheels:
        names = ", ".join(wheel.distribution for wheel in environment.operator_wheels)
        return f"no index has its wheels: {names}"
    if environment.horovod:
        return f"Horovod must be compiled for {framework.title} with the cluster's MPI"
    return ""


# ---- making


def _make(uv: str, wanted: WantedEnvironment, place: Path, path: str, *, own_python: bool) -> None:
    if place.exists() and not (place / RECORD).is_file():
        raise UserError(
            "this directory is not an environment",
            where=str(place),
            expected="no directory, or an environment that this command made",
            hint="remove it, or choose another folder with --output-dir",
        )
    staging = place.with_name(f".{place.name}.{os.urandom(8).hex()}")
    os.umask(0o022)  # all users of the folder can read it
    try:
        with as_user_error("cannot make the environment", place):
            place.parent.mkdir(parents=True, exist_ok=True)
            if python := "" if own_python else _site_python(uv, wanted, path):
                _run(venv_command(uv, python, staging))
            else:
                print_note(f"{wanted.name} gets a Python of its own ({wanted.python})")
                _own_python(uv, wanted, staging)
            print_note(f"{wanted.name}: installing {wanted.requirements.name}")
            _run(install_command(uv, wanted, staging))
            _try(wanted, staging)
            _record(uv, wanted, staging)
            (staging / ".lock").unlink(missing_ok=True)  # of uv; all could write to it
            _exchange(staging, place, wanted)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def venv_command(uv: str, python: str, directory: Path) -> list[str]:
    """Its scripts find their Python beside them, so that the directory can be moved."""
    return [uv, "venv", "--quiet", "--relocatable", "--python", python, str(directory)]


def install_command(uv: str, wanted: WantedEnvironment, directory: Path) -> list[str]:
    """Install exactly what is locked; files are copies, because a cache may be cleaned."""
    argv = [uv, "pip", "install", "--quiet", "--require-hashes", "--link-mode", "copy"]
    argv += ["--compile-bytecode", "--python", str(directory / "bin" / "python")]
    argv += ["--break-system-packages"]  # a Python of its own says that it is managed by uv
    if wanted.wheels:
        argv += ["--no-index", "--find-links", wanted.wheels]
    return [*argv, "-r", str(wanted.requirements)]


def _site_python(uv: str, wanted: WantedEnvironment, path: str) -> str:
    """The Python of this site that the environment takes, by default any. Empty if there is
    none."""
    if not path:
        search = _started([uv, "python", "find", "--system", "--no-managed-python", wanted.python])
        return search.stdout.strip() if search.returncode == 0 else ""
    code = "import sys; print(*sys.version_info[:3], sep='.')"
    version = _run([path, "-c", code]).strip()
    if version not in SpecifierSet(wanted.python):
        raise UserError(
            f"the environment of {wanted.name} does not take this Python",
            where=f"--python {path}",
            expected=wanted.python,
            found=version,
            hint="without --python, the environment gets a Python of its own if it needs one",
        )
    return path


def _own_python(uv: str, wanted: WantedEnvironment, directory: Path) -> None:
    """Make the directory a copy of Python that depends on no other path."""
    downloads = directory.with_name(f"{directory.name}.python")
    environment = {"UV_PYTHON_INSTALL_DIR": str(downloads), "UV_PYTHON_DOWNLOADS": "manual"}
    try:
        _run([uv, "python", "install", "--no-bin", wanted.python], environment, _NO_PYTHON)
        program = _unpacked_python(downloads)
        program.parents[1].rename(directory)
        link = directory / "bin" / "python"
        if not link.exists():
            link.symlink_to(program.name)
    finally:
        shutil.rmtree(downloads, ignore_errors=True)


def _unpacked_python(downloads: Path) -> Path:
    """The Python that uv has unpacked there. `uv python find` may name another one: that of the
    active virtual environment, which must stay where it is."""
    programs = [
        program
        for program in downloads.glob("*/bin/python3.*")
        if re.fullmatch(r"python3\.\d+", program.name) and not program.parents[1].is_symlink()
    ]
    if len(programs) != 1:
        raise UserError(
            "uv has not unpacked one Python",
            where=str(downloads),
            expected="one directory with bin/python3.N",
            found=", ".join(map(str, programs)) or "none",
        )
    return programs[0]


def _try(wanted: WantedEnvironment, directory: Path) -> None:
    """Import the framework from the environment, alone."""
    python = str(directory / "bin" / "python")
    code = f"import sys, {wanted.module}; assert sys.prefix == {str(directory)!r}, sys.prefix"
    done = _started([python, "-I", "-c", code], wanted.environment.variables)
    if done.returncode:
        raise UserError(
            f"{wanted.module} cannot be imported from the environment",
            where=str(directory),
            found=_end(done),
            hint="make the environment on a node that has the libraries of the stack",
        )


def _record(uv: str, wanted: WantedEnvironment, directory: Path) -> None:
    python = str(directory / "bin" / "python")
    packages = json.loads(_run([uv, "pip", "list", "--format", "json", "--python", python]))
    version = _run([python, "-c", "import platform; print(platform.python_version())"])
    document = {
        "environment": wanted.name,
        "stack": wanted.stack,
        "python": version.strip(),
        "requirements": wanted.requirements.name,
        "requirements_sha256": wanted.digest,
        "packages": {package["name"]: package["version"] for package in packages},
    }
    write_json(directory / RECORD, document)


def _is_made(place: Path, wanted: WantedEnvironment) -> bool:
    """True if a complete environment of these requirements is there."""
    with suppress(OSError, ValueError):
        record = json.loads(read_bytes(place / RECORD))
        same = (record["stack"], record["requirements_sha256"]) == (wanted.stack, wanted.digest)
        return same and os.access(place / "bin" / "python", os.X_OK)
    return False


def _exchange(staging: Path, place: Path, wanted: WantedEnvironment) -> None:
    """Put a new environment in the place of an earlier one, which stays if it does not work
    there."""
    former = staging.with_name(f"{staging.name}.former")
    if place.exists():
        place.rename(former)
    staging.rename(place)
    try:
        _try(wanted, place)
    except UserError:
        shutil.rmtree(place)
        if former.exists():
            former.rename(place)
        raise
    shutil.rmtree(former, ignore_errors=True)


# ---- programs


def _uv() -> str:
    neighbour = Path(sys.executable).with_name("uv")
    path = str(neighbour) if neighbour.is_file() else shutil.which("uv")
    if path is None:
        raise UserError("uv is missing", expected="uv on PATH", hint="pip install uv")
    return path


def _started(
    argv: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    settings = {"UV_NO_CONFIG": "1", "UV_NO_PROGRESS": "1", "UV_PYTHON_DOWNLOADS": "never"}
    return subprocess.run(
        argv,
        env={**variables, **settings, **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


def _run(
    argv: Sequence[str], environment: Mapping[str, str] | None = None, hint: str | None = None
) -> str:
    done = _started(argv, environment)
    if done.returncode:
        raise UserError(f"this command failed: {shlex.join(argv)}", found=_end(done), hint=hint)
    return done.stdout


def _end(done: subprocess.CompletedProcess[str]) -> str:
    return (done.stderr or done.stdout).strip()[-_SHOWN:] or f"status {done.returncode}"
