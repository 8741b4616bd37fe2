"""OpenPGP keys and signatures, made and read by gpg."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..core.errors import UserError
from ..core.files import read_bytes, write_whole

_KEY_NAME = "dlperf mirror <mirror@localhost>"
_EDGES = [f"-----{edge} PGP PUBLIC KEY BLOCK-----".encode() for edge in ("BEGIN", "END")]


@dataclass(frozen=True)
class Signed:
    """Both forms of a signature, and the public key in both forms."""

    inline: bytes
    detached: bytes
    public_armoured: bytes
    public_binary: bytes
    fingerprint: str


def sign(release: bytes, key_folder: Path) -> Signed:
    """Sign with the key in `key_folder`; make one if there is none. It is an RSA key, because the
    gpgv of old nodes does not know Ed25519."""
    secret = key_folder / "secret.asc"
    with _home() as home:
        if secret.is_file():
            _gpg(home, ["--import"], read_bytes(secret))
        else:
            _gpg(home, ["--quick-generate-key", _KEY_NAME, "rsa3072", "sign", "never"])
            key_folder.mkdir(parents=True, exist_ok=True)
            key_folder.chmod(0o700)
            write_whole(secret, _gpg(home, ["--armor", "--export-secret-keys"]), 0o600)
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


def keyring(content: bytes) -> tuple[bytes, list[str]]:
    """The binary form of a public key file, armoured or not, and the fingerprints of its primary
    keys. Raises ValueError for any other file."""
    begin, end = (content.count(edge) for edge in _EDGES)
    if begin != end:
        raise ValueError("it was cut off")
    with _home() as home:
        try:
            listing = _gpg(home, ["--with-colons", "--show-keys"], content).decode()
            binary = _gpg(home, ["--dearmor"], content) if begin else content
        except UserError as error:
            raise ValueError(f"gpg reads no public key in it: {error.found}") from None
    if re.search("^sec:", listing, re.MULTILINE):
        raise ValueError("it contains a secret key")
    return binary, re.findall(r"^pub:.*\n(?:.*\n)??fpr:+([0-9A-F]{40}):", listing, re.MULTILINE)


@contextmanager
def _home() -> Iterator[str]:
    """A home of gpg's for a moment: its agent needs a short socket path and must not stay."""
    with tempfile.TemporaryDirectory(prefix="dlperf-gpg-") as home:
        try:
            yield home
        finally:
            argv = ["gpgconf", "--homedir", home, "--kill", "all"]
            subprocess.run(argv, check=False, capture_output=True)


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
