"""The wheelhouse: pip fetches what locked requirements files name, digests verify it."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from ...core.errors import UserError
from ...core.files import write_whole
from ..folder.files import digests, move_verified
from ..folder.manifest import Item
from .locks import Kind, Pinned, RequirementsFile
from .target import Target


def release_of(filename: str) -> tuple[str, Version] | None:
    """Project and version of a wheel or sdist by its name; None for any other file."""
    try:
        if filename.endswith(".whl"):
            name, version, _, _ = parse_wheel_filename(filename)
        else:
            name, version = parse_sdist_filename(filename)
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None
    return canonicalize_name(name), version


def file_for(pinned: Pinned, files: Mapping[str, str], kind: Kind) -> str | None:
    """The name of the file in `files` (name -> sha256) that satisfies a requirement."""
    for filename, sha256 in files.items():
        if (
            sha256 in pinned.sha256
            and filename.endswith(".whl") == (kind == "wheel")
            and release_of(filename) == (pinned.name, Version(pinned.version))
        ):
            return filename
    return None


def download_argv(
    target: Target, kind: Kind, names: Sequence[str], requirements: Path, folder: Path
) -> list[str]:
    """pip's command line. Locks are complete, so pip resolves nothing (--no-deps)."""
    argv = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    argv += ["--no-input", "--progress-bar", "off", "--require-hashes", "--no-deps"]
    argv += ["--dest", str(folder), "--requirement", str(requirements)]
    if kind == "sdist":
        return [*argv, "--no-binary", ",".join(names)]
    if tuple(names) == ("uv",):
        # It declares Python 3.8 or newer, but is a program that runs without Python.
        argv.append("--ignore-requires-python")
    argv += ["--only-binary", ":all:", "--implementation", "cp"]
    argv += ["--python-version", target.python]
    for tag in target.platforms:
        argv += ["--platform", tag]
    return argv


def download(
    target: Target, wanted: RequirementsFile, missing: Sequence[Pinned], folder: Path
) -> None:
    """Fetch `missing` into `folder`, with the user's own pip configuration."""
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dlperf-pip-") as scratch:
        lines = Path(scratch) / "requirements.txt"
        write_whole(lines, "".join(f"{pinned.line()}\n" for pinned in missing))
        names = [pinned.name for pinned in missing]
        result = subprocess.run(
            download_argv(target, wanted.kind, names, lines, folder),
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode:
        output = result.stdout + result.stderr
        raise UserError(
            f"pip could not fetch {wanted.kind}s for Python {target.python} "
            f"(glibc {target.glibc}, {target.architecture})",
            where=wanted.path,
            found=errors_of(output),
            hint=hint_for(output, target),
        )


def errors_of(output: str) -> str:
    """The errors in pip's output."""
    if "No module named pip" in output:
        return "this Python has no pip (python -m ensurepip brings it)"
    lines = output.splitlines()
    errors = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR:")]
    mismatch = re.findall(r"^\s+(Expected sha256 .*|Got\s+.*)$", output, re.MULTILINE)
    text = "; ".join([*errors, *mismatch]) or (lines[-1].strip() if lines else "nothing")
    return text if len(text) <= 600 else text[:600] + "..."


def hint_for(output: str, target: Target) -> str | None:
    if "Retrying (" in output or "from versions: none" in output:
        return "is the package index reachable? pip's own configuration gives its address"
    if "No matching distribution" in output:
        return (
            f"the lock has a release without a wheel for Python {target.python}: compile it with"
            f" --universal --python-version {target.python}, or narrow the environment's `python`"
            " in catalog/frameworks"
        )
    return None


def bring(
    target: Target,
    requirements: Mapping[RequirementsFile, Sequence[Pinned]],
    output: Path,
    partial: Path,
    fetched: list[str],
    say: Callable[[str], None],
) -> list[Item]:
    """Have every required file in wheels/; add the paths that were not there to `fetched`."""
    house, arrivals = output / "wheels", partial / "wheels"
    house.mkdir(exist_ok=True)
    there = _files(house)
    # (file, requirement) -> who wants it; a file that several environments want is one item.
    chosen: dict[str, tuple[Pinned, RequirementsFile, list[str]]] = {}
    for wanted, pins in requirements.items():
        kinds = {pin: wanted.kind_of(pin.name) for pin in pins}
        missing = [pin for pin in pins if not file_for(pin, there, kinds[pin])]
        if missing:
            say(f"fetching {', '.join(map(str, missing))} of {wanted.path}")
            for kind in dict.fromkeys(kinds[pin] for pin in missing):
                of_kind = [pin for pin in missing if kinds[pin] == kind]
                download(target, replace(wanted, kind=kind), of_kind, arrivals)
            arrived = _files(arrivals)
            for pin in missing:
                name = file_for(pin, arrived, kinds[pin])
                if name is None:
                    raise UserError(f"pip fetched no {kinds[pin]} of {pin}", where=wanted.path)
                move_verified(arrivals / name, house / name, arrived[name])
                fetched.append(f"wheels/{name}")
                there[name] = arrived[name]
        for pin in pins:
            name = file_for(pin, there, kinds[pin]) or ""
            _, _, wanters = chosen.setdefault(name, (pin, wanted, []))
            wanters.append(wanted.wanted_by)
    return [
        Item(
            path=f"wheels/{name}",
            kind=wanted.kind_of(pin.name),
            name=pin.name,
            version=pin.version,
            sha256=there[name],
            size=(house / name).stat().st_size,
            wanted_by=tuple(wanters),
            why=f"{pin} in {wanted.path}",
        )
        for name, (pin, wanted, wanters) in sorted(chosen.items())
    ]


def _files(folder: Path) -> dict[str, str]:
    return digests(folder, (path.name for path in folder.iterdir()))
