"""The signed index of an apt repository: Packages files, Release, and their signatures."""

from __future__ import annotations

import gzip
import hashlib
import lzma
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from ...core.files import write_whole
from ..folder.files import digests
from ..folder.manifest import Item
from .index_entry import Package
from .openpgp import sign


def index_files(
    packages: Iterable[Package], suite: str, architecture: str, date: datetime
) -> dict[str, bytes]:
    """Path below apt/ -> content, without the signatures."""
    ordered = sorted(packages, key=lambda package: (package.name, package.version))
    text = "\n".join(package.stanza for package in ordered).encode()
    folder = f"main/binary-{architecture}"
    files = {
        f"{folder}/Packages": text,
        f"{folder}/Packages.gz": gzip.compress(text, mtime=0),
        f"{folder}/Packages.xz": lzma.compress(text),
    }
    lines = [
        "Origin: dlperf",
        "Label: dlperf mirror",
        f"Suite: {suite}",
        f"Codename: {suite}",
        f"Date: {date.strftime('%a, %d %b %Y %H:%M:%S UTC')}",
        f"Architectures: {architecture}",
        "Components: main",
        "SHA256:",
        *(f" {hashlib.sha256(c).hexdigest()} {len(c)} {path}" for path, c in files.items()),
        "",
    ]
    files["Release"] = "\n".join(lines).encode()
    return {f"dists/{suite}/{path}": content for path, content in files.items()}


def write(
    packages: Iterable[Package], suite: str, architecture: str, folder: Path, key_folder: Path
) -> tuple[list[Item], str]:
    """Write the signed index of `packages` below `folder`; InRelease, which apt reads first, is the
    last. Return its files and the key's fingerprint."""
    files = index_files(packages, suite, architecture, datetime.now(UTC))
    signed = sign(files[f"dists/{suite}/Release"], key_folder)
    files |= {
        "dlperf-mirror.asc": signed.public_armoured,
        "dlperf-mirror.gpg": signed.public_binary,
        f"dists/{suite}/Release.gpg": signed.detached,
        f"dists/{suite}/InRelease": signed.inline,
    }
    for path, content in files.items():
        write_whole(folder / path, content)
    items = [
        Item(
            path=f"apt/{path}",
            kind="index" if path.startswith("dists/") else "key",
            name=Path(path).name,
            version="",
            sha256=sha256,
            size=(folder / path).stat().st_size,
            wanted_by=("apt",),
            why="the signed index of the packages, or the key that verifies it",
        )
        for path, sha256 in digests(folder, files).items()
    ]
    return items, signed.fingerprint
