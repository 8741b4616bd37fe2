"""Wheels of a few bytes, in a folder that is pip's only index."""

import base64
import hashlib
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from dlperf_runner.bundle.manifest import digest


def wheel(
    folder: Path,
    name: str,
    version: str,
    tag: str = "cp311-cp311-manylinux_2_28_x86_64",
    content: Mapping[str, str] | None = None,
) -> str:
    """Make one, of an empty module unless it has some content; a line of a lock that names it."""
    module = name.replace("-", "_")
    info = f"{module}-{version}.dist-info"
    files = {
        **(content or {f"{module}.py": ""}),
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = "".join(
        f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(t.encode()).digest()).decode()},"
        f"{len(t)}\n"
        for path, t in files.items()
    )
    path = folder / f"{module}-{version}-{tag}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for entry, text in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(zipfile.ZipInfo(entry, (2020, 1, 1, 0, 0, 0)), text)
    return f"{name}=={version} --hash=sha256:{digest(path)}\n"


def module_wheel(folder: Path, name: str, version: str) -> tuple[Path, str]:
    """A wheel of one module, which holds its version and is called as the distribution's name is
    before `_`; and the wheel's SHA-256."""
    content = {f"{name.partition('_')[0]}.py": f"__version__ = {version!r}\n"}
    line = wheel(folder, name, version, "py3-none-any", content)
    return folder / f"{name}-{version}-py3-none-any.whl", line.strip().rpartition(":")[2]


def only_this_index(patch: pytest.MonkeyPatch, index: Path) -> None:
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        patch.delenv(name)
    patch.setenv("PIP_CONFIG_FILE", os.devnull)
    patch.setenv("PIP_NO_INDEX", "1")
    patch.setenv("PIP_FIND_LINKS", str(index))
    patch.setenv("PIP_NO_CACHE_DIR", "1")
