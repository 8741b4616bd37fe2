"""Sources of packages (the distributions' archives, or the mirrors this machine uses), and gpg for
the keys that verify them."""

from __future__ import annotations

import platform
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from debian.deb822 import Deb822

from ..core.errors import UserError
from ..core.files import read_bytes, read_text, write_whole


@dataclass(frozen=True)
class Distribution:
    """Debian or Ubuntu. `name`: its ID in os-release; `ports`: the archive for Arm; `security`:
    what follows the archive's address for security updates; `gpu_components`: what NVIDIA's
    packages need in addition."""

    name: str
    archive: str
    ports: str
    security: str
    components: tuple[str, ...]
    gpu_components: tuple[str, ...]
    keyring: Path
    keyring_package: str


DEBIAN = Distribution(
    name="debian",
    archive="http://deb.debian.org/debian",
    ports="http://deb.debian.org/debian",
    security="-security",
    components=("main",),
    gpu_components=("contrib",),
    keyring=Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    keyring_package="debian-archive-keyring",
)
UBUNTU = Distribution(
    name="ubuntu",
    archive="http://archive.ubuntu.com/ubuntu",
    ports="http://ports.ubuntu.com/ubuntu-ports",
    security="",
    components=("main", "universe"),
    gpu_components=(),
    keyring=Path("/usr/share/keyrings/ubuntu-archive-keyring.gpg"),
    keyring_package="ubuntu-archive-keyring (of Debian 13) or ubuntu-keyring (of Ubuntu)",
)
DISTRIBUTIONS = {one.name: one for one in (DEBIAN, UBUNTU)}


@dataclass(frozen=True)
class Source:
    """One archive: its address, its suites, its components (none for a flat repository), and the
    keyring that verifies its signature."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...] = ("main",)
    signed_by: str = str(DEBIAN.keyring)

    def stanza(self) -> str:
        components = f"Components: {' '.join(self.components)}\n" if self.components else ""
        return (
            f"Types: deb\nURIs: {self.uri}\nSuites: {' '.join(self.suites)}\n"
            f"{components}Signed-By: {self.signed_by}\n"
        )


def sources_of(
    distribution: Distribution,
    suite: str,
    archive: str = "",
    security: str = "",
    *,
    signed_by: str = "",
    has_gpus: bool = False,
) -> tuple[Source, ...]:
    """The suite with its updates and security updates, so that versions match a freshly installed
    system; from the distribution's own archive or from a mirror."""
    archive = (archive or distribution.archive).rstrip("/")
    security = (security or f"{archive}{distribution.security}").rstrip("/")
    components = distribution.components + (distribution.gpu_components if has_gpus else ())
    key = signed_by or str(distribution.keyring)
    return (
        Source(archive, (suite, f"{suite}-updates"), components, key),
        Source(security, (f"{suite}-security",), components, key),
    )


def host_sources(
    suite: str,
    distribution: Distribution = DEBIAN,
    *,
    has_gpus: bool = False,
    apt: Path = Path("/etc/apt"),
) -> tuple[Source, ...]:
    """The archive that this machine uses, if it runs that distribution; else the official one. A
    site's mirror has all suites at one address, so it also serves others than the machine's."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        release = {}
    archive, security, signed_by = "", "", ""
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") == distribution.name:
        for stanza in _stanzas(apt):
            suites = stanza["Suites"].split()
            uri, key = stanza["URIs"].split()[-1], stanza.get("Signed-By", "")
            if codename in suites:
                # A key inside a file is ignored.
                archive, signed_by = uri, key if key.startswith("/") else ""
            if f"{codename}-security" in suites:
                security = uri
    options = {"signed_by": signed_by}
    return sources_of(distribution, suite, archive, security, **options, has_gpus=has_gpus)


def _stanzas(apt: Path) -> Iterator[Deb822]:
    """The enabled sources with the component main of a directory like /etc/apt."""
    # deb [options] URI suite component... # comment
    line = re.compile(r"(?m)^deb\s+(?:\[([^\]]*)\]\s*)?([^\s\[]\S*)\s+(\S+)\s+([^#\n]+)")
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*.*"))]:
        text = read_text(path, errors="replace") if path.is_file() else ""
        if path.suffix == ".list":
            stanzas = []
            for options, uri, suite, components in line.findall(text):
                key = re.search(r"signed-by=\"?([^\s\"]+)", options)
                fields = {"Types": "deb", "URIs": uri, "Suites": suite, "Components": components}
                stanzas.append(Deb822({**fields, "Signed-By": key[1] if key else ""}))
        else:
            stanzas = list(Deb822.iter_paragraphs(text)) if path.suffix == ".sources" else []
        for stanza in stanzas:
            is_enabled = "deb" in stanza.get("Types", "").split() and stanza.get("Enabled") != "no"
            if is_enabled and "main" in stanza.get("Components", "").split():
                yield stanza


# ---- keys


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
            name = "dlperf mirror <mirror@localhost>"
            _gpg(home, ["--quick-generate-key", name, "rsa3072", "sign", "never"])
            key_folder.mkdir(parents=True, exist_ok=True)
            key_folder.chmod(0o700)
            write_whole(secret, _gpg(home, ["--armor", "--export-secret-keys"]), 0o600)
        listing = _gpg(home, ["--with-colons", "--list-keys"]).decode()
        fingerprint = re.search(r"(?m)^fpr:+([0-9A-F]{40}):", listing)
        if not fingerprint:
            raise UserError("no key in it", where=str(secret), hint="remove it and run again")
        return Signed(
            inline=_gpg(home, ["--clearsign"], release),
            detached=_gpg(home, ["--armor", "--detach-sign"], release),
            public_armoured=_gpg(home, ["--armor", "--export"]),
            public_binary=_gpg(home, ["--export"]),
            fingerprint=fingerprint[1],
        )


def keyring(content: bytes) -> tuple[bytes, list[str]]:
    """The binary form of a public key file, armoured or not, and the fingerprints of its primary
    keys. Raises ValueError for any other file."""
    begin, end = (
        content.count(b"-----%s PGP PUBLIC KEY BLOCK-----" % edge) for edge in (b"BEGIN", b"END")
    )
    if begin != end:
        raise ValueError("it was cut off")
    with _home() as home:
        try:
            listing = _gpg(home, ["--with-colons", "--show-keys"], content).decode()
            binary = _gpg(home, ["--dearmor"], content) if begin else content
        except UserError as error:
            raise ValueError(f"gpg reads no public key in it: {error.found}") from None
    if re.search("(?m)^sec:", listing):
        raise ValueError("it contains a secret key")
    return binary, re.findall(r"(?m)^pub:.*\n(?:.*\n)??fpr:+([0-9A-F]{40}):", listing)


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
    argv = ["gpg", "--homedir", home, "--batch", "--yes", "--quiet", "--digest-algo", "SHA512"]
    argv += ["--pinentry-mode", "loopback", "--passphrase", "", *arguments]
    result = subprocess.run(argv, input=content, capture_output=True, check=False)
    if result.returncode:
        lines = result.stderr.decode(errors="replace").strip().splitlines()
        raise UserError("gpg failed", where=" ".join(arguments), found="; ".join(lines[-2:]))
    return result.stdout
