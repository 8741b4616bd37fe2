"""Where packages come from: the distributions' archives, as this machine is told to reach them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Distribution:
    """Who publishes suites. `name` is that of os-release; security updates lie where `security`
    follows the archive's address; `gpu_components` are what NVIDIA's packages ask for besides."""

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


@dataclass(frozen=True)
class Source:
    """One archive: its address, its suites (without components where it is flat), and the keyring
    that its signature must match."""

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
    """The suite with its updates and security updates, so that versions agree with a new base; of
    the distribution's own archive, or of a mirror of it."""
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
    """The archive as this machine is told to reach it, if it has that distribution; else the
    official one.

    A site's own mirror carries all suites under one address, so it serves for another suite than
    the machine's own as well.
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
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".list":
            entries += parse_one_line_sources(text, keyring)
        elif path.suffix == ".sources":
            entries += parse_deb822_sources(text, keyring)
    return [entry for entry in entries if "main" in entry.components]


def parse_one_line_sources(text: str, keyring: str = str(DEBIAN.keyring)) -> list[Source]:
    """`deb [options] URI suite component...` lines of a sources.list; `keyring` is that of what
    names none."""
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
    """The stanzas of a .sources file; a key that stands in the file itself is not taken over."""
    sources = []
    for stanza in re.split(r"\n\s*\n", text):
        lines = [line for line in stanza.splitlines() if not line.startswith("#")]
        fields = {
            key.strip().lower(): value.strip()
            for key, _, value in (line.partition(":") for line in lines if line[:1].strip())
        }
        if "deb" not in fields.get("types", "").split() or fields.get("enabled") == "no":
            continue
        signed_by = fields.get("signed-by", "")
        for uri in fields.get("uris", "").split():
            sources.append(
                Source(
                    uri.rstrip("/"),
                    tuple(fields.get("suites", "").split()),
                    tuple(fields.get("components", "").split()),
                    signed_by if signed_by.startswith("/") else keyring,
                )
            )
    return sources


def _release(etc: Path) -> dict[str, str]:
    try:
        lines = (etc / "os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {k: v.strip('"') for k, _, v in (line.partition("=") for line in lines)}
