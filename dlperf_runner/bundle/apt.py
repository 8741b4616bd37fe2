"""The system's apt, run in a private directory: it resolves, fetches and verifies.

It needs no root and leaves the machine's own apt alone. Its list of installed packages is empty,
so what it would install is the complete closure. It always demands signatures.
"""

from __future__ import annotations

import gzip
import lzma
import os
import re
import subprocess
import tempfile
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from debian.deb822 import Deb822, PkgRelation

from ..core.errors import UserError
from ..core.files import write_whole
from .archives import DISTRIBUTIONS, Source, sign
from .manifest import Item, digest, digests

# Every node has these before provisioning; what is installed may need newer versions of them.
BASE = ("?essential", "?priority(required)")
HELPER = "/usr/lib/apt/apt-helper"
# The private apt inherits the machine's network settings (proxies, certificates, clocks) and
# nothing else: above all no hooks and no leniency about signatures.
_NETWORK = re.compile(
    r"Acquire::(?:https?|ftp|tor|Retries|ForceIPv[46]|Queue-Mode|SRV|Proxy|"
    r"Check-Valid-Until|Check-Date|Max-FutureTime)\b",
    re.IGNORECASE,
)
# As root, apt would drop to a user that cannot write into a private folder. It rebuilds pkgcache in
# a moment; on disk it would take 40 MB.
_CONFIGURATION = """\
Dir "{base}";
Dir::State::status "{base}/status";
Dir::Cache::pkgcache "";
Dir::Etc::netrc "/etc/apt/auth.conf";
Dir::Etc::netrcparts "/etc/apt/auth.conf.d";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Sandbox::User "root";
APT::Install-Recommends "false";
APT::Install-Suggests "false";
APT::Get::AllowUnauthenticated "false";
Acquire::AllowInsecureRepositories "false";
Acquire::AllowWeakRepositories "false";
Acquire::AllowDowngradeToInsecureRepositories "false";
Acquire::Languages "none";
Acquire::IndexTargets::deb::Contents-deb::DefaultEnabled "false";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
Acquire::ForceHash "SHA256";
"""
_FOLDERS = ("apt.conf.d", "preferences.d", "sources.list.d", "trusted.gpg.d")


class FetchError(Exception):
    """The reason why a download failed, in words that follow its name."""


class NotThereError(FetchError):
    """The source does not have it."""


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

    @property
    def sources(self) -> Path:
        """The file that lists its sources."""
        return self.directory / "etc/apt/sources.list.d/mirror.sources"


def prepare(root: Root, sources: Sequence[Source] = (), preferences: str = "") -> None:
    """Write the private apt's configuration; existing package lists stay, so an update is quick.
    `preferences`: the text of an apt_preferences(5) file."""
    packages = {str(one.keyring): one.keyring_package for one in DISTRIBUTIONS.values()}
    for source in sources:
        if not Path(source.signed_by).is_file():
            package = packages.get(source.signed_by)
            raise UserError(
                f"the keyring {source.signed_by} that verifies {source.uri} is missing",
                hint=f"install the package {package}" if package else None,
            )
    base, etc = root.directory, root.directory / "etc/apt"
    for folder in _FOLDERS:
        (etc / folder).mkdir(parents=True, exist_ok=True)
    for folder in ("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"):
        (base / folder).mkdir(parents=True, exist_ok=True)
    write_whole(base / "status", "")
    write_whole(root.sources, "\n".join(s.stanza() for s in sources))
    write_whole(etc / "preferences", preferences)
    host = _run(None, ["apt-config", "dump"]).stdout
    write_whole(base / "apt.conf", configuration(root, host))


def configuration(root: Root, host_dump: str) -> str:
    """apt.conf of the private apt; `host_dump` is what `apt-config dump` says on this machine."""
    network = [line for line in host_dump.splitlines() if _NETWORK.match(line)]
    base = root.directory.resolve()
    rest = _CONFIGURATION.format(base=base, architecture=root.architecture)
    # Before apt 2.3, none was the default.
    return "\n".join(['Acquire::Retries "3";', *network, rest])


def update(root: Root) -> list[str]:
    """Fetch the package lists and verify their signatures. Returns apt's errors and warnings if a
    source failed: without it, apt would resolve from old lists or without security updates."""
    result = _run(root, ["apt-get", "update", "-o", "APT::Update::Error-Mode=any"])
    return _complaints(result) if result.returncode else []


def read_lists(
    root: Root, sources: Sequence[Source], others: Sequence[Source] = (), preferences: str = ""
) -> dict[Source, str]:
    """Prepare and update. Returns those of `others` that failed, with apt's reason, and goes on
    without them. Raises UserError if one of `sources` fails."""
    prepare(root, [*others, *sources], preferences)
    if not (complaints := update(root)):
        return {}
    reasons = {source: _about(source.uri, complaints) for source in others}
    if failed := {source: reason for source, reason in reasons.items() if reason}:
        rest = [source for source in others if source not in failed]
        return failed | read_lists(root, sources, rest, preferences)
    raise UserError(
        "the package lists could not be fetched and verified",
        found=_shortened(complaints),
        hint="choose another archive with --debian-mirror",
    )


def signed_files(root: Root, source: Source) -> dict[str, Path]:
    """The files of a source that apt has verified: InRelease, or Release and Release.gpg."""
    argv = ["apt-get", "indextargets", "--format", "$(REPO_URI)\t$(FILENAME)\t$(METAKEY)"]
    for line in _run(root, [*argv, "Created-By: Packages"]).stdout.splitlines():
        uri, filename, key = line.split("\t")
        if uri.rstrip("/") == source.uri.rstrip("/"):
            start = filename[: filename.rindex(key.replace("/", "_"))]
            paths = {name: Path(start + name) for name in ("InRelease", "Release", "Release.gpg")}
            return {name: path for name, path in paths.items() if path.is_file()}
    return {}


def resolve(root: Root, packages: Iterable[str], *, where: str) -> tuple[AptPackage, ...]:
    """`packages` and everything they depend on, in the versions that apt prefers."""
    argv = ["-y", "--print-uris", "install", *packages]
    result = _run(root, ["apt-get", "-qq", *argv])
    if result.returncode:
        # With -qq, apt does not name the unmet dependencies.
        unmet_ones = unmet(_run(root, ["apt-get", "-q", *argv]).stdout)
        reason = "; ".join([_shortened(_complaints(result)), *unmet_ones])
        raise UserError("apt finds no complete set of packages", where=where, found=reason)
    return parse_uris(result.stdout)


def candidates(root: Root, names: Collection[str]) -> tuple[AptPackage, ...]:
    """Each package in the version that apt prefers, without what it depends on."""
    if not names:
        return ()
    result = _run(root, ["apt-get", "-qq", "--print-uris", "download", *names])
    if result.returncode:
        reason = _shortened(_complaints(result))
        raise UserError("apt cannot choose versions of these packages", found=reason)
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


def entries(root: Root, choices: Sequence[AptPackage]) -> dict[str, Deb822]:
    """The index entry of each choice by its sha256, from the lists that apt has verified."""
    result = _run(root, ["apt-cache", "show", *(choice.exact for choice in choices)])
    shown = {entry.get("SHA256", ""): entry for entry in Deb822.iter_paragraphs(result.stdout)}
    for choice in choices:
        if choice.sha256 not in shown:
            reason = _shortened(_complaints(result))
            raise UserError(f"apt-cache shows no entry for {choice.exact}", found=reason)
    return {choice.sha256: shown[choice.sha256] for choice in choices}


def download(root: Root, choices: Sequence[AptPackage], folder: Path) -> dict[AptPackage, str]:
    """Fetch exactly these packages into `folder`, and check them against the signed lists; what an
    earlier run left is resumed. Returns those that could not be fetched, with apt's reason."""
    argv = [HELPER, "-qq", "download-file"]
    for choice in choices:
        # Of file:, it would make a link.
        source = re.sub("^file:", "copy:", choice.url)
        argv += [source, str(folder / choice.filename), f"SHA256:{choice.sha256}"]
    result = _run(root, argv)
    if not result.returncode:
        return {}
    for choice in choices:
        (folder / f"{choice.filename}.FAILED").unlink(missing_ok=True)
    complaints = _complaints(result)
    reasons = {choice: _about(choice.url, complaints) for choice in choices}
    failed = {choice: reason for choice, reason in reasons.items() if reason}
    return failed or dict.fromkeys(choices, _shortened(complaints))


def download_file(root: Root, source: str, target: Path, sha256: str = "") -> None:
    """Fetch an address, or a path of this machine; what an earlier run left at `target` is resumed.
    Raises FetchError."""
    if not re.match(r"https?://", source):
        path = Path(source.removeprefix("file:")).absolute()
        if not path.is_file():
            raise NotThereError(f"is not at {path}")
        source = f"copy:{quoted(str(path))}"
    had_part, failed = target.exists(), target.with_name(f"{target.name}.FAILED")
    target.parent.mkdir(parents=True, exist_ok=True)
    check = [f"SHA256:{sha256}"] if sha256 else []
    result = _run(root, [HELPER, "-qq", "download-file", source, str(target), *check])
    if not result.returncode:
        return
    reason = _shortened([line for line in _complaints(result) if line != "Download Failed"])
    if failed.is_file():
        received, size = digest(failed), failed.stat().st_size
        failed.unlink()
        if had_part:  # that of an earlier run was of another file
            download_file(root, source, target, sha256)
            return
        raise FetchError(
            f"is another file: sha256 {sha256} was expected, found {received}"
            f" ({size} bytes of {source})"
        )
    kind = NotThereError if re.search(r"  (?:404|410) ", reason) else FetchError
    raise kind(f"cannot be fetched: {reason}")


def quoted(path: str) -> str:
    """A path, quoted for an address."""
    return quote(path, safe="/~")


def _run(root: Root | None, argv: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Run a program of the private apt; without `root`, of the machine's own."""
    private = {"APT_CONFIG": str(root.directory.resolve() / "apt.conf")} if root else {}
    # After a bad signature, apt leaves the key in the directory for temporary files.
    with tempfile.TemporaryDirectory(prefix="dlperf-apt-") as scratch:
        variables = {**os.environ, "LC_ALL": "C.UTF-8", "TMPDIR": scratch, **private}
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=variables)


def _complaints(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines in which apt reports errors and warnings, or its last line if there are none."""
    lines = [line for line in result.stderr.splitlines() if line.startswith(("E: ", "W: GPG"))]
    lines = lines or result.stderr.splitlines()[-1:] or [f"exit status {result.returncode}"]
    return [line.removeprefix("E: ").removeprefix("W: ") for line in lines]


def _about(uri: str, complaints: Iterable[str]) -> str:
    """Those of apt's complaints that name an address, which apt writes with or without %20."""
    address = re.sub("^file:", "", unquote(uri)).rstrip("/")
    start = re.compile(re.escape(address) + r"(?:[/ ]|$)")
    return "; ".join(line for line in complaints if start.search(unquote(line)))


def _shortened(complaints: Sequence[str]) -> str:
    more = f" (and {len(complaints) - 3} more)" if len(complaints) > 3 else ""
    return "; ".join(complaints[:3]) + more


@dataclass(frozen=True)
class Reason:
    """The roles that need a package, and one chain of dependencies that leads to it."""

    wanted_by: tuple[str, ...]
    why: str


def closure(
    root: Root, base: Iterable[str], wanted: Mapping[str, Iterable[str]], *, where: str
) -> dict[AptPackage, tuple[Deb822, Reason]]:
    """The closure of `base` and of the packages that each role wants, as apt-get takes them: what
    apt chose, with the index entry of each and the reason for it."""
    names = dict.fromkeys(name for names in wanted.values() for name in names)
    choices = resolve(root, (*base, *names), where=where)
    by_digest = entries(root, choices)
    roots = {role: [name.partition("=")[0] for name in names] for role, names in wanted.items()}
    why = reasons(by_digest.values(), roots)
    return {choice: (by_digest[choice.sha256], why[choice.name]) for choice in choices}


def path_of(entry: Deb822) -> str:
    """The path of a package's file by the index. Raises UserError if that would lie outside
    the index's folder."""
    filename = entry["Filename"]
    if filename.startswith("/") or ".." in filename.split("/") or not filename.endswith(".deb"):
        raise UserError(f"the index puts {entry['Package']} outside its folder", found=filename)
    return f"apt/{filename.removeprefix('./')}"


def _names(entry: Deb822, *fields: str) -> list[str]:
    """`a (>= 1) | b:any, c [amd64]` as a, b, c: apt judges versions."""
    texts = filter(None, (entry.get(field, "").strip(", ") for field in fields))
    groups = (group for text in texts for group in PkgRelation.parse_relations(text))
    return [one["name"] for group in groups for one in group]


def reasons(entries: Iterable[Deb822], wanted: Mapping[str, Iterable[str]]) -> dict[str, Reason]:
    """For each package by name: the roles that need it, and the shortest chain to it.

    `wanted`: the packages that each role names. The closure also has the packages that every node
    has, because an installation may need newer versions of them.
    """
    by_name = {entry["Package"]: entry for entry in entries}
    providers: dict[str, list[str]] = {name: [name] for name in by_name}
    for name, entry in by_name.items():
        for virtual in _names(entry, "Provides"):
            providers.setdefault(virtual, []).append(name)
    is_base = {"Essential": "yes", "Priority": "required"}.items()
    base = [name for name, entry in by_name.items() if is_base & entry.items()]
    wanted_by: dict[str, list[str]] = {name: [] for name in by_name}
    chains: dict[str, str] = {}
    for role, names in {**wanted, "base system": base}.items():
        # Breadth first: each package that is reached, with the chain to it.
        ways: dict[str, tuple[str, ...]] = {
            name: (name,) for wish in names for name in providers.get(wish, [])
        }
        queue = deque(ways)
        while queue:
            current = queue.popleft()
            for one in _names(by_name[current], "Pre-Depends", "Depends"):
                for name in providers.get(one, []):
                    if name not in ways:
                        ways[name] = (*ways[current], name)
                        queue.append(name)
        for name, way in ways.items():
            wanted_by[name].append(role)
            chains.setdefault(name, " > ".join(way))
    return {
        name: Reason(tuple(wanted_by[name]) or ("base system",), chains.get(name, name))
        for name in by_name
    }


def write_index(
    entries: Iterable[Deb822], suite: str, architecture: str, folder: Path, key_folder: Path
) -> tuple[list[Item], str]:
    """Write the signed index of `entries` below `folder`; InRelease, which apt reads first, is the
    last. Return its files and the key's fingerprint."""
    dists, below = f"dists/{suite}", f"main/binary-{architecture}"
    text = "\n".join(sorted(entry.dump() for entry in entries)).encode()
    forms = {"": text, ".gz": gzip.compress(text, mtime=0), ".xz": lzma.compress(text)}
    files = {f"{dists}/{below}/Packages{suffix}": content for suffix, content in forms.items()}
    for path, content in files.items():
        write_whole(folder / path, content)
    fields = {"Origin": "dlperf", "Label": "dlperf mirror", "Suite": suite, "Codename": suite}
    fields |= {"Architectures": architecture, "Components": "main"}
    # By default, it would list an earlier Release, too.
    fields |= {"Default-Patterns": "false", "Patterns::": "Packages*"}
    options = [f"APT::FTPArchive::Release::{name}={value}" for name, value in fields.items()]
    argv = ["apt-ftparchive", *(word for one in options for word in ("-o", one)), "release", dists]
    result = subprocess.run(argv, cwd=folder, capture_output=True, check=False)
    if result.returncode:
        message = result.stderr.decode(errors="replace").strip()
        raise UserError("apt-ftparchive failed", where=str(folder / dists), found=message)
    release = result.stdout
    signed = sign(release, key_folder)
    ends = {
        f"{dists}/Release": release,
        "dlperf-mirror.asc": signed.public_armoured,
        "dlperf-mirror.gpg": signed.public_binary,
        f"{dists}/Release.gpg": signed.detached,
        f"{dists}/InRelease": signed.inline,
    }
    for path, content in ends.items():
        write_whole(folder / path, content)
    items = [
        Item(
            path=f"apt/{path}",
            kind="index" if path.startswith("dists/") else "key",
            name=Path(path).name,
            version="",
            sha256=sha256,
            size=(folder / path).stat().st_size,
            wanted_by=("apt",),
            why="the signed index of the packages, or the key that verifies it",
        )
        for path, sha256 in digests(folder, {**files, **ends}).items()
    ]
    return items, signed.fingerprint
