"""Signed apt repositories of stand-in packages: names, versions and dependencies are the vendors',
the content is not.

What is real in a test with them is apt, dpkg, pins, keys, order, idempotence and undo.
"""

import gzip
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dlperf_runner.bundle.archives import sign

needs_apt = pytest.mark.skipif(
    not all(map(shutil.which, ("apt-get", "dpkg-deb", "gpg", "gpgv"))),
    reason="needs apt, dpkg and gpg",
)
Forms = Mapping[str, Callable[[bytes], bytes]]
FORMS: Forms = {"": bytes, ".gz": lambda content: gzip.compress(content, mtime=0)}


@dataclass(frozen=True)
class Standin:
    """A package; `files` are its content by absolute path."""

    name: str
    version: str
    depends: str = ""
    conflicts: str = ""
    provides: str = ""
    files: Mapping[str, str | bytes] = field(default_factory=dict)
    executables: frozenset[str] = frozenset()
    postinst: str = ""

    @property
    def filename(self) -> str:
        return f"{self.name}_{self.version.replace(':', '%3a')}_amd64.deb"

    @property
    def control(self) -> str:
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "amd64",
            # dpkg calls it name:amd64 then, and apt does not.
            "Multi-Arch": "same" if self.name.startswith("lib") else "",
            "Maintainer": "Stand-in <standin@example.invalid>",
            "Depends": self.depends,
            "Conflicts": self.conflicts,
            "Provides": self.provides,
            "Description": "stand-in of a test, without the vendor's content",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    def build(self, folder: Path) -> Path:
        with tempfile.TemporaryDirectory() as tree:
            return self._build(folder, Path(tree))

    def _build(self, folder: Path, tree: Path) -> Path:
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN/control").write_text(self.control)
        scripts = {"postinst": self.postinst}
        for name, text in scripts.items():
            if text:
                (tree / "DEBIAN" / name).write_text(f"#!/bin/sh\nset -e\n{text}\n")
                (tree / "DEBIAN" / name).chmod(0o755)
        files = {f"/usr/share/doc/{self.name}/standin": f"{self.name} {self.version}\n"}
        for path, text in {**files, **self.files}.items():
            target = tree / path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(text.encode() if isinstance(text, str) else text)
            target.chmod(0o755 if path in self.executables else 0o644)
        tree.chmod(0o755)
        folder.mkdir(parents=True, exist_ok=True)
        made = folder / self.filename
        # -Znone: nothing to gain by compressing it, and quick.
        argv = ["dpkg-deb", "--root-owner-group", "-Znone", "--build", tree, made]
        same = os.environ | {"SOURCE_DATE_EPOCH": "1600000000"}  # the same bytes each time
        subprocess.run(argv, check=True, capture_output=True, env=same)
        return made

    def stanza(self, deb: Path, filename: str) -> str:
        content = deb.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        return f"{self.control}Filename: {filename}\nSize: {len(content)}\nSHA256: {digest}\n"


def stanzas_of(packages: Iterable[Standin], folder: Path, below: str) -> list[str]:
    """Build them into a folder, which the index knows as `below`; what the index says of each."""

    def made(package: Standin) -> str:
        deb = package.build(folder)
        return package.stanza(deb, below + deb.name)

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(made, packages))


def flat_repository(folder: Path, packages: Iterable[Standin], key_folder: Path, key: str) -> str:
    """A repository as NVIDIA lays them out: everything in one folder, which is the suite `/`.

    The public key lies in it as `key`; returns its fingerprint.
    """
    stanzas = stanzas_of(packages, folder, "./")
    return index(folder, stanzas, key_folder, key, {})


def suite_repository(
    folder: Path,
    suite: str,
    component: str,
    packages: Iterable[Standin],
    key_folder: Path,
    key: str,
    forms: Forms = FORMS,
    by_hash: bool = False,
) -> str:
    """A repository with suites and components, as Docker lays it out."""
    where = folder / "dists" / suite
    stanzas = stanzas_of(packages, where / "pool", f"dists/{suite}/pool/")
    fields = {"Suite": suite, "Codename": suite, "Components": component, "Architectures": "amd64"}
    below = f"{component}/binary-amd64/"
    return index(where, stanzas, key_folder, "../../" + key, fields, below, forms, by_hash)


def index(
    folder: Path,
    stanzas: list[str],
    key_folder: Path,
    key: str,
    fields: Mapping[str, str],
    below: str = "",
    forms: Forms = FORMS,
    by_hash: bool = False,
) -> str:
    """Write an index in each of `forms` (suffix -> how it is packed), and sign it.

    apt looks only for what is named unpacked too, so that always is, there or not.
    """
    text = "\n".join(stanzas).encode()
    files = {f"{below}Packages{suffix}": pack(text) for suffix, pack in forms.items()}
    named = {f"{below}Packages": text, **files}
    for path, content in files.items():
        digest = hashlib.sha256(content).hexdigest()
        for at in (path, *([f"{below}by-hash/SHA256/{digest}"] if by_hash else [])):
            (folder / at).parent.mkdir(parents=True, exist_ok=True)
            (folder / at).write_bytes(content)
    lines = [
        "Origin: stand-in",
        "Label: stand-in",
        *(["Acquire-By-Hash: yes"] if by_hash else []),
        *(f"{name}: {value}" for name, value in fields.items()),
        "Date: Sat, 21 Nov 2020 00:00:00 UTC",
        "SHA256:",
        *(f" {hashlib.sha256(c).hexdigest()} {len(c)} {path}" for path, c in named.items()),
        "",
    ]
    signed = sign("\n".join(lines).encode(), key_folder)
    (folder / "Release").write_text("\n".join(lines))
    (folder / "InRelease").write_bytes(signed.inline)
    (folder / "Release.gpg").write_bytes(signed.detached)
    (folder / key).write_bytes(signed.public_armoured)
    return signed.fingerprint
