"""Sources of packages: the distributions' archives, or the mirrors this machine uses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from debian.deb822 import Deb822

from ..core.files import read_text


@dataclass(frozen=True)
class Distribution:
    """Debian or Ubuntu. `name`: its ID in os-release; `security`: suffix of the archive's address
    for security updates; `gpu_components`: what NVIDIA's packages need in addition."""

    name: str
    archive: str
    security: str
    components: tuple[str, ...]
    gpu_components: tuple[str, ...]
    keyring: Path
    keyring_package: str


DEBIAN = Distribution(
    name="debian",
    archive="http://deb.debian.org/debian",
    security="-security",
    components=("main",),
    gpu_components=("contrib",),
    keyring=Path("/usr/share/keyrings/debian-archive-keyring.gpg"),
    keyring_package="debian-archive-keyring",
)
UBUNTU = Distribution(
    name="ubuntu",
    archive="http://archive.ubuntu.com/ubuntu",
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
    etc: Path = Path("/etc"),
    distribution: Distribution = DEBIAN,
    *,
    has_gpus: bool = False,
) -> tuple[Source, ...]:
    """The archive that this machine uses, if it runs that distribution; else the official one.

    A site's mirror has all suites at one address, so it also serves other suites than the
    machine's own.
    """
    release: dict[str, str] = {}
    if (etc / "os-release").is_file():
        pairs = (line.partition("=") for line in read_text(etc / "os-release").splitlines())
        release = {name: value.strip('"') for name, _, value in pairs}
    archive, security, signed_by = "", "", ""
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") == distribution.name:
        for source in _of_this_machine(etc / "apt", str(distribution.keyring)):
            if codename in source.suites:
                archive, signed_by = source.uri, source.signed_by
            if f"{codename}-security" in source.suites:
                security = source.uri
    return sources_of(
        distribution, suite, archive, security, signed_by=signed_by, has_gpus=has_gpus
    )


def _of_this_machine(apt: Path, keyring: str) -> Iterator[Source]:
    """Its sources with the component main. A key inside a file is ignored: `keyring` stands for
    it, and for a source that names none."""
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file() or path.suffix not in (".list", ".sources"):
            continue
        text = read_text(path, errors="replace")
        for stanza in _one_line(text) if path.suffix == ".list" else Deb822.iter_paragraphs(text):
            components = tuple(stanza.get("Components", "").split())
            is_on = "deb" in stanza.get("Types", "").split() and stanza.get("Enabled") != "no"
            if is_on and "main" in components:
                key = stanza.get("Signed-By", "")
                key = key if key.startswith("/") else keyring
                for uri in stanza.get("URIs", "").split():
                    suites = tuple(stanza.get("Suites", "").split())
                    yield Source(uri.rstrip("/"), suites, components, key)


def _one_line(text: str) -> Iterator[dict[str, str]]:
    """`deb [options] URI suite component...` lines of a sources.list, as stanzas."""
    line = re.compile(r"^deb\s+(?:\[([^\]]*)\]\s*)?([^\s\[]\S*)\s+(\S+)\s+([^#\n]+)", re.MULTILINE)
    for options, uri, suite, components in line.findall(text):
        key = re.search(r"signed-by=(\S+)", options)
        fields = {"Types": "deb", "URIs": uri, "Suites": suite, "Components": components}
        yield fields | ({"Signed-By": key[1].strip('"')} if key else {})
