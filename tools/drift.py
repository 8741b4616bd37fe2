"""Do the newest versions of programs still print what the log formats read? `make drift`.

    python -m tools.drift

Downloads the newest wheel of each package in drift.yml with pip, without installing or running any
of it, and looks for the texts of each format among the strings in the file that prints them. The
exit status is 1 if one is missing. A package without a wheel in the index is named.
"""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_suffix(".yml")
PYTHON = "3.12"  # which the newest wheels support; it is not the one that runs


def main() -> int:
    """Print a line for each file, and return the exit status."""
    entries = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    has_drifted = False
    with tempfile.TemporaryDirectory() as folder:
        packages = dict.fromkeys(entry["package"] for entry in entries)
        wheels = {package: newest(package, Path(folder) / package) for package in packages}
        for entry in entries:
            wheel = wheels[entry["package"]]
            lost = missing(wheel, entry) if wheel and entry["file"] else []
            has_drifted |= bool(lost)
            print(f"{entry['format']}: {_verdict(entry, wheel, lost)}")
    return int(has_drifted)


def _verdict(entry: Mapping[str, Any], wheel: Path | None, lost: Sequence[str]) -> str:
    if wheel is None:
        return f"not checked, because the index has no wheel of {entry['package']}"
    version = " ".join(wheel.name.split("-")[:2])
    if not entry["file"]:
        return f"not checked, because the program is not in the wheel of {version}"
    place = f"{version}, {entry['file']}"
    return f"NO LONGER in {place}: {', '.join(map(repr, lost))}" if lost else f"as in {place}"


def newest(package: str, folder: Path) -> Path | None:
    """The newest wheel of a package, in a folder of its own; None if the index has none."""
    argv = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    argv += ["--only-binary", ":all:", "--python-version", PYTHON, "--dest", str(folder), package]
    subprocess.run(argv, check=False, stderr=subprocess.DEVNULL)
    return next(folder.glob("*.whl"), None)


def missing(wheel: Path, entry: Mapping[str, Any]) -> list[str]:
    """The texts that no string of the file has; all if the wheel does not have the file."""
    with zipfile.ZipFile(wheel) as archive:
        has_file = entry["file"] in archive.namelist()
        strings = list(_strings(archive.read(entry["file"]))) if has_file else []
    return [text for text in entry["texts"] if not any(text in string for string in strings)]


def _strings(source: bytes) -> Iterator[str]:
    """The strings in a program, and the parts of those that it formats."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


if __name__ == "__main__":
    sys.exit(main())
