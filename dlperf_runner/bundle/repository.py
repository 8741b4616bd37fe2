"""An apt repository out of verified index entries: why each package is there, index, signature."""

from __future__ import annotations

import gzip
import hashlib
import lzma
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ..core.errors import UserError
from .manifest import write_whole

_KEY_NAME = "dlperf mirror <mirror@localhost>"


@dataclass(frozen=True)
class Package:
    """An entry of a Packages index."""

    name: str
    version: str
    filename: str
    size: int
    sha256: str
    base: bool
    depends: tuple[tuple[str, ...], ...]
    provides: tuple[str, ...]
    stanza: str


@dataclass(frozen=True)
class Reason:
    """The roles that lead to a package, and the chain of dependencies from one of them."""

    wanted_by: tuple[str, ...]
    why: str


def parse(stanza: str) -> Package:
    fields = {
        key: value.strip()
        for key, _, value in (line.partition(":") for line in stanza.splitlines() if line[:1] > " ")
    }
    filename = fields["Filename"]
    if filename.startswith("/") or ".." in filename.split("/") or not filename.endswith(".deb"):
        raise UserError(f"the index puts {fields['Package']} outside its folder", found=filename)
    return Package(
        name=fields["Package"],
        version=fields["Version"],
        filename=filename.removeprefix("./"),
        size=int(fields["Size"]),
        sha256=fields["SHA256"],
        base=fields.get("Essential") == "yes" or fields.get("Priority") == "required",
        depends=tuple(
            alternatives
            for field in ("Pre-Depends", "Depends")
            for alternatives in relations(fields.get(field, ""))
        ),
        provides=tuple(name for names in relations(fields.get("Provides", "")) for name in names),
        stanza=stanza,
    )


def relations(field: str) -> list[tuple[str, ...]]:
    """`a (>= 1) | b:any, c [amd64]` as [("a", "b"), ("c",)]: versions are apt's work."""
    return [
        tuple(re.split(r"[\s:(\[<]", alternative.strip(), maxsplit=1)[0] for alternative in names)
        for names in (part.split("|") for part in field.split(",") if part.strip())
    ]


def reasons(packages: Iterable[Package], wanted: Mapping[str, Iterable[str]]) -> dict[str, Reason]:
    """For each package by name: which role leads to it, and how, by the shortest way.

    `wanted` are the packages that each role names. What is essential or required on every node is
    there because a node's own copy may have to move with what is installed.
    """
    by_name = {package.name: package for package in packages}
    providers: dict[str, list[str]] = {name: [name] for name in by_name}
    for package in by_name.values():
        for virtual in package.provides:
            providers.setdefault(virtual, []).append(package.name)
    roles: dict[str, list[str]] = {name: list(names) for name, names in wanted.items()}
    roles["base system"] = [package.name for package in by_name.values() if package.base]
    wanted_by: dict[str, list[str]] = {name: [] for name in by_name}
    chains: dict[str, str] = {}
    for role, roots in roles.items():
        ways = _ways([r for name in roots for r in providers.get(name, [])], by_name, providers)
        for name, way in ways.items():
            wanted_by[name].append(role)
            chains.setdefault(name, " > ".join(way))
    return {
        name: Reason(tuple(wanted_by[name]) or ("base system",), chains.get(name, name))
        for name in by_name
    }


def _ways(
    roots: Iterable[str], by_name: Mapping[str, Package], providers: Mapping[str, list[str]]
) -> dict[str, tuple[str, ...]]:
    """Breadth first from `roots`: each package that is reached, with the way to it."""
    ways: dict[str, tuple[str, ...]] = {name: (name,) for name in roots}
    queue = deque(ways)
    while queue:
        current = queue.popleft()
        for alternatives in by_name[current].depends:
            for name in (p for a in alternatives for p in providers.get(a, [])):
                if name not in ways:
                    ways[name] = (*ways[current], name)
                    queue.append(name)
    return ways


def index_files(
    packages: Iterable[Package], suite: str, architecture: str, date: datetime
) -> dict[str, bytes]:
    """Path below apt/ -> content, of everything but the signatures."""
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


@dataclass(frozen=True)
class Signed:
    inline: bytes
    detached: bytes
    public_armoured: bytes
    public_binary: bytes
    fingerprint: str


def sign(release: bytes, key_folder: Path) -> Signed:
    """Sign with the key of `key_folder`, which is made where there is none.

    gpg works in a short-lived home: its agent's socket must have a short path, and no agent may
    stay behind. RSA, because the gpgv of old nodes knows no Ed25519.
    """
    secret = key_folder / "secret.asc"
    with tempfile.TemporaryDirectory(prefix="dlperf-gpg-") as home:
        try:
            if secret.is_file():
                _gpg(home, ["--import"], secret.read_bytes())
            else:
                _gpg(home, ["--quick-generate-key", _KEY_NAME, "rsa3072", "sign", "never"])
                _keep_secret(secret, _gpg(home, ["--armor", "--export-secret-keys"]))
            listing = _gpg(home, ["--with-colons", "--list-keys"]).decode()
            fingerprints = re.findall(r"^fpr:+([0-9A-F]{40}):", listing, re.MULTILINE)
            if not fingerprints:
                raise UserError("no key in it", where=str(secret), hint="remove it and run again")
            return Signed(
                inline=_gpg(home, ["--clearsign"], release),
                detached=_gpg(home, ["--armor", "--detach-sign"], release),
                public_armoured=_gpg(home, ["--armor", "--export"]),
                public_binary=_gpg(home, ["--export"]),
                fingerprint=fingerprints[0],
            )
        finally:
            subprocess.run(
                ["gpgconf", "--homedir", home, "--kill", "all"], check=False, capture_output=True
            )


def _keep_secret(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    temporary = path.with_name(f".{path.name}")
    temporary.unlink(missing_ok=True)
    temporary.touch(mode=0o600)
    temporary.write_bytes(content)
    temporary.replace(path)


def _gpg(home: str, arguments: list[str], content: bytes = b"") -> bytes:
    options = ["--batch", "--yes", "--quiet", "--pinentry-mode", "loopback", "--passphrase", ""]
    result = subprocess.run(
        ["gpg", "--homedir", home, *options, "--digest-algo", "SHA512", *arguments],
        input=content,
        capture_output=True,
        check=False,
    )
    if result.returncode:
        message = result.stderr.decode(errors="replace").strip().splitlines()
        raise UserError("gpg failed", where=" ".join(arguments), found="; ".join(message[-2:]))
    return result.stdout


def write_index(folder: Path, files: Mapping[str, bytes], signed: Signed, suite: str) -> None:
    """Put index and signatures below `folder`; the signed file that apt reads first comes last."""
    for path, content in {
        **files,
        "dlperf-mirror.asc": signed.public_armoured,
        "dlperf-mirror.gpg": signed.public_binary,
        f"dists/{suite}/Release.gpg": signed.detached,
        f"dists/{suite}/InRelease": signed.inline,
    }.items():
        write_whole(folder / path, content)
