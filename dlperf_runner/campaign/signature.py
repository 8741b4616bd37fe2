"""Signatures of manifests, made and checked by OpenSSH: `ssh-keygen -Y`.

The signature covers the manifest as it is when it is signed. By hand:

    ssh-keygen -Y verify -n dlperf_runner -f ALLOWED -I WHO -s manifest.jsonl.sig < manifest.jsonl
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from ..core.errors import UserError
from ..core.files import read_bytes, write_result
from .manifest import FILE, SIGNATURE, Manifest

NAMESPACE = "dlperf_runner"


def sign(place: Path, key: Path) -> Path:
    """Sign the manifest with a private key, or with the agent's key of this public one.

    ssh-keygen asks for a passphrase on the terminal. Raises UserError if it fails.
    """
    content = _read(place / FILE)
    done = _ssh_keygen("sign", "-f", str(key), content=content)
    if done.returncode != 0:
        raise UserError(
            "cannot sign the manifest",
            where=str(key),
            found=_last_line(done),
            expected="a private SSH key, or a public one whose private key ssh-agent holds",
        )
    return write_result(place / SIGNATURE, done.stdout, inside=place)


def check(place: Path, manifest: Manifest, allowed: Path | None) -> Iterator[tuple[bool, str]]:
    """Sentences about the signature; True before those that are differences.

    `allowed` is a file of allowed signers (ssh-keygen(1)). Without it, the signature must fit the
    manifest, but anybody may have made it.
    """
    signature = place / SIGNATURE
    if not signature.is_file():
        yield allowed is not None, f"{SIGNATURE}: the manifest is not signed"
        return
    read_bytes(signature, inside=place)  # refuses a link
    if allowed is None:
        options: Sequence[str] = ["check-novalidate", "-s", str(signature)]
    else:
        _read(allowed)  # for a clear message
        name = _signer(signature, allowed)
        if name is None:
            yield True, f"{SIGNATURE}: bad signature: its key is not in {allowed}"
            return
        options = ["verify", "-s", str(signature), "-f", str(allowed), "-I", name]
    lines = manifest.lines
    for count in range(len(lines), 0, -1):
        done = _ssh_keygen(*options, content=b"".join(lines[:count]))
        if done.returncode == 0:
            if count < len(lines):
                yield True, f"{SIGNATURE}: signs only the first {count} of {len(lines)} lines"
            # Good "dlperf_runner" signature for alice with ED25519 key SHA256:...
            said = done.stdout.decode().strip()
            hint = "" if allowed else "; --allowed-signers FILE checks whose key this is"
            yield False, f"{SIGNATURE}: {said}{hint}"
            return
    yield True, f"{SIGNATURE}: bad signature: it does not fit the manifest"


def _signer(signature: Path, allowed: Path) -> str | None:
    """The first principal whose key made the signature; None if none is allowed."""
    options = ("find-principals", "-s", str(signature), "-f", str(allowed))
    done = _ssh_keygen(*options, content=b"")
    return done.stdout.decode().splitlines()[0] if done.returncode == 0 else None


def _ssh_keygen(action: str, *options: str, content: bytes) -> subprocess.CompletedProcess[bytes]:
    argv = ["ssh-keygen", "-Y", action, "-n", NAMESPACE, *options]
    try:
        return subprocess.run(argv, input=content, capture_output=True, check=False)
    except FileNotFoundError:
        raise UserError(
            "ssh-keygen is not installed", expected="OpenSSH 8.2 or newer, for signatures"
        ) from None


def _last_line(done: subprocess.CompletedProcess[bytes]) -> str:
    lines = done.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"exit status {done.returncode}"


def _read(path: Path) -> bytes:
    try:
        return read_bytes(path)
    except OSError as error:
        found = error.strerror or str(error)
        raise UserError("cannot read the file", where=str(path), found=found) from None
