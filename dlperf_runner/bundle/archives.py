"""Where packages come from: Debian's archives, as this machine is told to reach them."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
DEBIAN = "http://deb.debian.org/debian"


@dataclass(frozen=True)
class Source:
    """One archive: its address, its suites, and the keyring that its signature must match."""

    uri: str
    suites: tuple[str, ...]
    components: tuple[str, ...] = ("main",)
    signed_by: str = str(KEYRING)

    def stanza(self) -> str:
        return (
            f"Types: deb\nURIs: {self.uri}\nSuites: {' '.join(self.suites)}\n"
            f"Components: {' '.join(self.components)}\nSigned-By: {self.signed_by}\n"
        )


def debian_sources(suite: str, archive: str, security: str, signed_by: str) -> tuple[Source, ...]:
    """The suite with its updates and security updates, so that versions agree with a new base."""
    return (
        Source(archive, (suite, f"{suite}-updates"), signed_by=signed_by),
        Source(security, (f"{suite}-security",), signed_by=signed_by),
    )


def host_sources(suite: str, etc: Path = Path("/etc")) -> tuple[Source, ...]:
    """Debian's archive as this machine is told to reach it, else deb.debian.org.

    A site's own mirror carries all suites under one address, so it serves for another suite than
    the machine's own as well.
    """
    entries = _host_entries(etc) if _is_debian(etc) else []
    archive, security, signed_by = DEBIAN, None, str(KEYRING)
    codename = _codename(etc)
    for source in entries:
        if codename in source.suites:
            archive, signed_by = source.uri, source.signed_by
        if f"{codename}-security" in source.suites:
            security = source.uri
    return debian_sources(suite, archive, security or f"{archive}-security", signed_by)


def _host_entries(etc: Path) -> list[Source]:
    apt = etc / "apt"
    entries: list[Source] = []
    for path in [apt / "sources.list", *sorted((apt / "sources.list.d").glob("*"))]:
        if not path.is_file():
            continue
        text = path.read_text(encoding="utf-8", errors="replace")
        if path.suffix == ".list":
            entries += parse_one_line_sources(text)
        elif path.suffix == ".sources":
            entries += parse_deb822_sources(text)
    return [entry for entry in entries if "main" in entry.components]


def parse_one_line_sources(text: str) -> list[Source]:
    """`deb [options] URI suite component...` lines of a sources.list."""
    sources = []
    for raw in text.splitlines():
        match = re.match(r"deb\s+(?:\[(?P<options>[^\]]*)\]\s*)?(?P<rest>.+)", raw.split("#")[0])
        words = match["rest"].split() if match else []
        if match is None or len(words) < 3:
            continue
        options = dict(o.split("=", 1) for o in shlex.split(match["options"] or "") if "=" in o)
        signed_by = options.get("signed-by", str(KEYRING))
        sources.append(Source(words[0].rstrip("/"), (words[1],), tuple(words[2:]), signed_by))
    return sources


def parse_deb822_sources(text: str) -> list[Source]:
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
                    signed_by if signed_by.startswith("/") else str(KEYRING),
                )
            )
    return sources


def _release(etc: Path) -> dict[str, str]:
    try:
        lines = (etc / "os-release").read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return {k: v.strip('"') for k, _, v in (line.partition("=") for line in lines)}


def _is_debian(etc: Path) -> bool:
    return _release(etc).get("ID") == "debian"


def _codename(etc: Path) -> str:
    return _release(etc).get("VERSION_CODENAME", "")
