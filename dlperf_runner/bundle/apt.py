"""The distribution's own apt, in a directory of its own: it resolves, fetches and verifies.

Nothing of the machine's apt is touched and no root is needed. The list of installed packages is
empty, so what apt would install is the complete closure, and signatures are always demanded.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ..core.errors import UserError
from .archives import DEBIAN, UBUNTU, Source

# What every node has before provisioning, and what may have to move with what is installed.
BASE = ("?essential", "?priority(required)")
# The machine's way to the network (proxies, certificates, clocks) holds for the private apt too;
# nothing else of its configuration does, above all not hooks and not leniency about signatures.
_NETWORK = re.compile(
    r"Acquire::(?:https?|ftp|tor|Retries|ForceIPv[46]|Queue-Mode|SRV|Proxy|"
    r"Check-Valid-Until|Check-Date|Max-FutureTime)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Choice:
    """A package that apt chose: what it is called, where it lies, and its digest."""

    name: str
    version: str
    architecture: str
    filename: str
    url: str
    size: int
    sha256: str

    @property
    def exact(self) -> str:
        """As apt-get takes it."""
        qualified = self.name if self.architecture == "all" else f"{self.name}:{self.architecture}"
        return f"{qualified}={self.version}"


@dataclass(frozen=True)
class Root:
    """The directory of a private apt."""

    directory: Path
    architecture: str


def prepare(root: Root, sources: Sequence[Source], preferences: str = "") -> None:
    """Write the private apt's configuration; existing package lists are kept for a quick update.
    `preferences`: as apt_preferences(5) has them."""
    packages = {str(one.keyring): one.keyring_package for one in (DEBIAN, UBUNTU)}
    for source in sources:
        if not Path(source.signed_by).is_file():
            raise UserError(
                f"the keyring {source.signed_by} that verifies {source.uri} is missing",
                hint=f"install the package {packages[source.signed_by]}"
                if source.signed_by in packages
                else None,
            )
    base = root.directory
    for part in ("etc/empty", "lists/partial", "cache/archives/partial"):
        (base / part).mkdir(parents=True, exist_ok=True)
    (base / "status").write_text("")
    (base / "etc/sources.sources").write_text("\n".join(s.stanza() for s in sources))
    (base / "etc/preferences").write_text(preferences)
    host = subprocess.run(
        ["apt-config", "dump"], capture_output=True, text=True, check=False, env=_environment(None)
    ).stdout
    (base / "apt.conf").write_text(configuration(root, host))


def configuration(root: Root, host_dump: str) -> str:
    """apt.conf of the private apt; `host_dump` is what `apt-config dump` says on this machine."""
    base = root.directory.resolve()
    network = [line for line in host_dump.splitlines() if _NETWORK.match(line)]
    return "\n".join(
        [
            *network,
            f'Dir "{base}";',
            f'Dir::Etc "{base}/etc";',
            f'Dir::Etc::parts "{base}/etc/empty";',
            f'Dir::Etc::main "{base}/etc/none";',
            f'Dir::Etc::sourcelist "{base}/etc/sources.sources";',
            f'Dir::Etc::sourceparts "{base}/etc/empty";',
            f'Dir::Etc::preferences "{base}/etc/preferences";',
            f'Dir::Etc::preferencesparts "{base}/etc/empty";',
            f'Dir::Etc::trusted "{base}/etc/none";',
            f'Dir::Etc::trustedparts "{base}/etc/empty";',
            'Dir::Etc::netrc "/etc/apt/auth.conf";',
            'Dir::Etc::netrcparts "/etc/apt/auth.conf.d";',
            f'Dir::State "{base}";',
            'Dir::State::lists "lists";',
            f'Dir::State::status "{base}/status";',
            f'Dir::Cache "{base}/cache";',
            # Made anew from its source in a moment; on disk it would be 40 MB.
            'Dir::Cache::pkgcache "";',
            f'APT::Architecture "{root.architecture}";',
            f'APT::Architectures {{ "{root.architecture}"; }};',
            # As root, apt would drop to a user that cannot write into a private folder.
            'APT::Sandbox::User "root";',
            'APT::Install-Recommends "false";',
            'APT::Install-Suggests "false";',
            'APT::Get::AllowUnauthenticated "false";',
            'Acquire::AllowInsecureRepositories "false";',
            'Acquire::AllowWeakRepositories "false";',
            'Acquire::AllowDowngradeToInsecureRepositories "false";',
            'Acquire::Languages "none";',
            'Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";',
            'Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";',
            'Acquire::ForceHash "SHA256";',
            "",
        ]
    )


def update(root: Root) -> None:
    """Fetch the package lists and verify their signatures."""
    # A source that cannot be reached would otherwise be a warning, and the closure would silently
    # be computed from old lists, or without security updates.
    result = _run(root, ["apt-get", "update", "-o", "APT::Update::Error-Mode=any"])
    if result.returncode:
        raise UserError(
            "the package lists could not be fetched and verified",
            found=_errors(result),
            hint="another archive is chosen by --debian-mirror",
        )


def resolve(root: Root, packages: Iterable[str], *, where: str) -> tuple[Choice, ...]:
    """What `packages` and all that they depend on are, in the versions that apt prefers."""
    result = _run(root, ["apt-get", "-qq", "-y", "--print-uris", "install", *packages])
    if result.returncode:
        # Only in more words it says what is wanting.
        wordy = _run(root, ["apt-get", "-q", "-y", "--print-uris", "install", *packages]).stdout
        raise UserError(
            "apt finds no complete set of packages",
            where=where,
            found="; ".join([_errors(result), *unmet(wordy)]),
        )
    return parse_uris(result.stdout)


def unmet(output: str) -> list[str]:
    """The dependencies that apt-get says are not met, as `dkms : Depends: gcc but ...`."""
    _, _, after = output.partition("unmet dependencies:\n")
    lines = [line for line in after.splitlines() if line.startswith(" ")]
    return [" ".join(line.split()) for line in lines[:5]]


# 'http://host/debian/pool/main/g/gcc-12/gcc-12-base_12.2.0-14%2bdeb12u1_amd64.deb' gcc-12-base_12.2.0-14+deb12u1_amd64.deb 37596 SHA256:1896...  # noqa: E501
_URI = re.compile(r"'(?P<url>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})")


def parse_uris(text: str) -> tuple[Choice, ...]:
    """The lines of `apt-get --print-uris`; one without a SHA256 is an error, never a choice."""
    choices = []
    for line in text.splitlines():
        match = _URI.match(line)
        parts = unquote(match["file"]).removesuffix(".deb").split("_") if match else []
        if not match or len(parts) != 3:
            raise UserError(
                "apt-get --print-uris printed what is not understood",
                expected="'URL' NAME_VERSION_ARCHITECTURE.deb SIZE SHA256:DIGEST",
                found=line[:200],
            )
        choices.append(
            Choice(
                parts[0],
                parts[1],
                parts[2],
                match["file"],
                match["url"],
                int(match["size"]),
                match["sha256"],
            )
        )
    return tuple(choices)


def stanzas(root: Root, choices: Sequence[Choice]) -> dict[str, str]:
    """The index entry of each choice by its sha256, out of the lists that apt has verified."""
    result = _run(root, ["apt-cache", "show", *(choice.exact for choice in choices)])
    found: dict[str, str] = {}
    for stanza in result.stdout.split("\n\n"):
        match = re.search(r"^SHA256: ([0-9a-f]{64})$", stanza, re.MULTILINE)
        if match:
            found.setdefault(match[1], stanza.strip("\n") + "\n")
    for choice in choices:
        if choice.sha256 not in found:
            raise UserError(f"apt-cache shows no entry of {choice.exact}", found=_errors(result))
    return found


def download(root: Root, choices: Sequence[Choice], folder: Path) -> None:
    """Fetch exactly these packages into `folder`; apt compares them with the signed lists."""
    if not choices:
        return
    result = _run(
        root, ["apt-get", "-qq", "download", *(choice.exact for choice in choices)], cwd=folder
    )
    if result.returncode:
        raise UserError("packages could not be fetched", found=_errors(result))


def _environment(root: Root | None) -> dict[str, str]:
    own = {"APT_CONFIG": str(root.directory.resolve() / "apt.conf")} if root else {}
    return {**os.environ, "LC_ALL": "C.UTF-8", **own}


def _run(
    root: Root, argv: Sequence[str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, capture_output=True, text=True, check=False, cwd=cwd, env=_environment(root)
    )


def _errors(result: subprocess.CompletedProcess[str]) -> str:
    """apt's own words: lines that start with E:, or the last line where there are none."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("E: ")]
    lines = lines or result.stderr.splitlines()[-1:] or [f"exit status {result.returncode}"]
    more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
    return "; ".join(line.removeprefix("E: ") for line in lines[:3]) + more
