"""The wheelhouse: what locked requirements files name, fetched by pip and compared by digest."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)
from packaging.version import Version

from ..core.errors import UserError
from .needs import Kind, Needs, RequirementsFile, wheel_platforms
from .requirements import Pinned


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


def file_for(pinned: Pinned, digests: Mapping[str, str], kind: Kind) -> str | None:
    """The file name, out of `digests` (name -> sha256), that satisfies a requirement."""
    for filename, sha256 in digests.items():
        if (
            sha256 in pinned.sha256
            and filename.endswith(".whl") == (kind == "wheel")
            and release_of(filename) == (pinned.name, Version(pinned.version))
        ):
            return filename
    return None


def download_argv(
    needs: Needs, kind: Kind, names: Sequence[str], requirements: Path, folder: Path
) -> list[str]:
    """pip's command line. Locks are complete, so pip resolves nothing (--no-deps)."""
    argv = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    argv += ["--no-input", "--progress-bar", "off", "--require-hashes", "--no-deps"]
    argv += ["--dest", str(folder), "--requirement", str(requirements)]
    if kind == "sdist":
        return [*argv, "--no-binary", ",".join(names)]
    if tuple(names) == ("uv",):
        # It says that it takes no Python before 3.8, and is a program that needs none to run.
        argv.append("--ignore-requires-python")
    argv += ["--only-binary", ":all:", "--implementation", "cp"]
    argv += ["--python-version", needs.suite.python]
    for tag in wheel_platforms(needs.suite, needs.architecture):
        argv += ["--platform", tag]
    return argv


def download(
    needs: Needs, wanted: RequirementsFile, missing: Sequence[Pinned], folder: Path
) -> None:
    """Fetch `missing` into `folder`, with the user's own pip configuration."""
    if not missing:
        return
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dlperf-pip-") as scratch:
        lines = Path(scratch) / "requirements.txt"
        lines.write_text("".join(f"{pinned.line()}\n" for pinned in missing))
        names = [pinned.name for pinned in missing]
        result = subprocess.run(
            download_argv(needs, wanted.kind, names, lines, folder),
            capture_output=True,
            text=True,
            check=False,
        )
    if result.returncode:
        output = result.stdout + result.stderr
        raise UserError(
            f"pip could not fetch {wanted.kind}s for Python {needs.suite.python} "
            f"({needs.suite.name}, {needs.architecture})",
            where=wanted.path,
            found=errors_of(output),
            hint=hint_for(output, needs),
        )


def errors_of(output: str) -> str:
    """pip's own words out of what it printed."""
    if "No module named pip" in output:
        return "this Python has no pip (python -m ensurepip brings it)"
    lines = output.splitlines()
    errors = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR:")]
    mismatch = re.findall(r"^\s+(Expected sha256 .*|Got\s+.*)$", output, re.MULTILINE)
    text = "; ".join([*errors, *mismatch]) or (lines[-1].strip() if lines else "nothing")
    return text if len(text) <= 600 else text[:600] + "..."


def hint_for(output: str, needs: Needs) -> str | None:
    if "Retrying (" in output or "from versions: none" in output:
        return "is the package index reachable? pip's own configuration says where it is"
    if "No matching distribution" in output:
        return (
            f"the lock holds a release without a wheel for Python {needs.suite.python}: compile it "
            f"with --universal --python-version {needs.suite.python}, or narrow the environment's "
            "`python` in catalog/frameworks"
        )
    return None
