"""Where packages come from: the distributions' archives, or the mirrors this machine uses."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from debian.deb822 import Deb822

from ...core.files import read_text


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
    release = _release(etc)
    archive, security, signed_by = "", "", ""
    codename = release.get("VERSION_CODENAME", "")
    if release.get("ID") == distribution.name:
        for source in _host_entries(etc, str(distribution.keyring)):
            if codename in source.suites:
                archive, signed_by = source.uri, source.signed_by
            if f"{codename}-security" in source.suites:
                security = source.uri
    return sources_of(
        distribution, suite, archive, security, signed_by=signed_by, has_gpus=has_gpus
    )


def _host_entries(etc: Path, keyring: str) -> list[Source]:
    apt = etc / "apt"
    entries: list[Source] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = read_text(path, errors="replace")
        if path.suffix == ".list":
            entries += parse_one_line_sources(text, keyring)
        elif path.suffix == ".sources":
            entries += parse_deb822_sources(text, keyring)
    return [entry for entry in entries if "main" in entry.components]


def parse_one_line_sources(text: str, keyring: str = str(DEBIAN.keyring)) -> list[Source]:
    """`deb [options] URI suite component...` lines of a sources.list; `keyring` applies to lines
    that name none."""
    sources = []
    for raw in text.splitlines():
        match = re.match(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<rest>.+)", raw.split("#")[0])
        words = match["rest"].split() if match else []
        if match is None or len(words) < 3:
            continue
        options = dict(o.split("=", 1) for o in shlex.split(match["options"] or "") if "=" in o)
        signed_by = options.get("signed-by", keyring)
        sources.append(Source(words[0].rstrip("/"), (words[1],), tuple(words[2:]), signed_by))
    return sources


def parse_deb822_sources(text: str, keyring: str = str(DEBIAN.keyring)) -> list[Source]:
    """The stanzas of a .sources file; a key inside the file itself is ignored."""
    sources = []
    for stanza in Deb822.iter_paragraphs(text):
        if "deb" not in stanza.get("Types", "").split() or stanza.get("Enabled") == "no":
            continue
        signed_by = stanza.get("Signed-By", "")
        sources += [
            Source(
                uri.rstrip("/"),
                tuple(stanza.get("Suites", "").split()),
                tuple(stanza.get("Components", "").split()),
                signed_by if signed_by.startswith("/") else keyring,
            )
            for uri in stanza.get("URIs", "").split()
        ]
    return sources


def _release(etc: Path) -> dict[str, str]:
    try:
        lines = read_text(etc / "os-release").splitlines()
    except OSError:
        return {}
    return {k: v.strip('"') for k, _, v in (line.partition("=") for line in lines)}
