"""The system's apt, run in a private directory: it resolves, fetches and verifies packages.

It needs no root and leaves the machine's own apt alone. Its list of installed packages is empty,
so what it would install is the complete closure. It always demands signatures.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from ...core.errors import UserError
from ...core.files import write_whole
from ..folder.manifest import Item
from .archives import DISTRIBUTIONS, Source

# Every node has these before provisioning; what is installed may need newer versions of them.
BASE = ("?essential", "?priority(required)")
# The private apt inherits the machine's network settings (proxies, certificates, clocks) and
# nothing else: above all no hooks and no leniency about signatures.
_NETWORK = re.compile(
    r"Acquire::(?:https?|ftp|tor|Retries|ForceIPv[46]|Queue-Mode|SRV|Proxy|"
    r"Check-Valid-Until|Check-Date|Max-FutureTime)\b",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class AptPackage:
    """A package that apt chose, with its address and digest."""

    name: str
    version: str
    architecture: str
    filename: str
    url: str
    size: int
    sha256: str

    @property
    def exact(self) -> str:
        """The argument of apt-get that names it."""
        qualified = self.name if self.architecture == "all" else f"{self.name}:{self.architecture}"
        return f"{qualified}={self.version}"

    def item(self, path: str, wanted_by: tuple[str, ...], why: str) -> Item:
        name, version = self.name, self.version
        return Item(path, "deb", name, version, self.sha256, self.size, wanted_by, why)


@dataclass(frozen=True)
class Root:
    """The directory of a private apt."""

    directory: Path
    architecture: str


def prepare(root: Root, sources: Sequence[Source], preferences: str = "") -> None:
    """Write the private apt's configuration; existing package lists stay, so an update is quick.
    `preferences`: the text of an apt_preferences(5) file."""
    packages = {str(one.keyring): one.keyring_package for one in DISTRIBUTIONS.values()}
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
    write_whole(base / "status", "")
    write_whole(base / "etc/sources.sources", "\n".join(s.stanza() for s in sources))
    write_whole(base / "etc/preferences", preferences)
    host = _run(None, ["apt-config", "dump"]).stdout
    write_whole(base / "apt.conf", configuration(root, host))


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
            # apt rebuilds it in a moment; on disk it would take 40 MB.
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
    # By default an unreachable source is a warning: apt would silently resolve from old lists, or
    # without security updates.
    result = _run(root, ["apt-get", "update", "-o", "APT::Update::Error-Mode=any"])
    if result.returncode:
        raise UserError(
            "the package lists could not be fetched and verified",
            found=_errors(result),
            hint="choose another archive with --debian-mirror",
        )


def resolve(root: Root, packages: Iterable[str], *, where: str) -> tuple[AptPackage, ...]:
    """`packages` and everything they depend on, in the versions that apt prefers."""
    result = _run(root, ["apt-get", "-qq", "-y", "--print-uris", "install", *packages])
    if result.returncode:
        # With -qq, apt does not name the unmet dependencies.
        wordy = _run(root, ["apt-get", "-q", "-y", "--print-uris", "install", *packages]).stdout
        raise UserError(
            "apt finds no complete set of packages",
            where=where,
            found="; ".join([_errors(result), *unmet(wordy)]),
        )
    return parse_uris(result.stdout)


def candidates(root: Root, names: Collection[str]) -> tuple[AptPackage, ...]:
    """Each package in the version that apt prefers, without what it depends on."""
    if not names:
        return ()
    result = _run(root, ["apt-get", "-qq", "--print-uris", "download", *names])
    if result.returncode:
        raise UserError("apt cannot choose versions of these packages", found=_errors(result))
    return parse_uris(result.stdout)


def names(root: Root) -> list[str]:
    """Every package that some source has."""
    return _run(root, ["apt-cache", "pkgnames"]).stdout.split()


def versions(root: Root, names: Collection[str]) -> list[tuple[str, str, str]]:
    """(name, version, source) of every version of these packages, the newest of each first."""
    text = _run(root, ["apt-cache", "madison", *names]).stdout if names else ""
    rows = [[part.strip() for part in line.split(" | ")] for line in text.splitlines()]
    return [(name, version, source) for name, version, source in rows]


def unmet(output: str) -> list[str]:
    """The unmet dependencies that apt-get names, like `dkms : Depends: gcc but ...`."""
    _, _, after = output.partition("unmet dependencies:\n")
    lines = [line for line in after.splitlines() if line.startswith(" ")]
    return [" ".join(line.split()) for line in lines[:5]]


# 'http://host/debian/pool/main/g/gcc-12/gcc-12-base_12.2.0-14%2bdeb12u1_amd64.deb' gcc-12-base_12.2.0-14+deb12u1_amd64.deb 37596 SHA256:1896...  # noqa: E501
_URI = re.compile(r"'(?P<url>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})")


def parse_uris(text: str) -> tuple[AptPackage, ...]:
    """The lines of `apt-get --print-uris`; a line without a SHA256 is an error."""
    choices = []
    for line in text.splitlines():
        match = _URI.match(line)
        parts = unquote(match["file"]).removesuffix(".deb").split("_") if match else []
        if not match or len(parts) != 3:
            raise UserError(
                "apt-get --print-uris printed an unknown line",
                expected="'URL' NAME_VERSION_ARCHITECTURE.deb SIZE SHA256:DIGEST",
                found=line[:200],
            )
        name, version, architecture = parts
        file, url, size, sha256 = match.group("file", "url", "size", "sha256")
        choices.append(AptPackage(name, version, architecture, file, url, int(size), sha256))
    return tuple(choices)


def stanzas(root: Root, choices: Sequence[AptPackage]) -> dict[str, str]:
    """The index entry of each choice by its sha256, from the lists that apt has verified."""
    result = _run(root, ["apt-cache", "show", *(choice.exact for choice in choices)])
    found: dict[str, str] = {}
    for stanza in result.stdout.split("\n\n"):
        match = re.search(r"^SHA256: ([0-9a-f]{64})$", stanza, re.MULTILINE)
        if match:
            found.setdefault(match[1], stanza.strip("\n") + "\n")
    for choice in choices:
        if choice.sha256 not in found:
            raise UserError(f"apt-cache shows no entry for {choice.exact}", found=_errors(result))
    return found


def download(root: Root, choices: Sequence[AptPackage], folder: Path) -> None:
    """Fetch exactly these packages into `folder`; apt checks them against the signed lists."""
    argv = ["apt-get", "-qq", "download", *(choice.exact for choice in choices)]
    result = _run(root, argv, cwd=folder)
    if result.returncode:
        raise UserError("packages could not be fetched", found=_errors(result))


def _run(
    root: Root | None, argv: Sequence[str], cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of the private apt; without `root`, of the machine's own."""
    own = {"APT_CONFIG": str(root.directory.resolve() / "apt.conf")} if root else {}
    variables = {**os.environ, "LC_ALL": "C.UTF-8", **own}
    return subprocess.run(argv, capture_output=True, text=True, check=False, cwd=cwd, env=variables)


def _errors(result: subprocess.CompletedProcess[str]) -> str:
    """The lines in which apt reports errors (E:), or its last line if there are none."""
    lines = [line for line in result.stderr.splitlines() if line.startswith("E: ")]
    lines = lines or result.stderr.splitlines()[-1:] or [f"exit status {result.returncode}"]
    more = f" (and {len(lines) - 3} more)" if len(lines) > 3 else ""
    return "; ".join(line.removeprefix("E: ") for line in lines[:3]) + more
