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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

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
    r"(?i)Acquire::(?:https?|ftp|tor|Retries|ForceIPv[46]|Queue-Mode|SRV|Proxy|"
    r"Check-Valid-Until|Check-Date|Max-FutureTime)\b"
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
_FOLDERS = (
    *(f"etc/apt/{name}.d" for name in ("apt.conf", "preferences", "sources.list", "trusted.gpg")),
    *("var/lib/apt/lists/partial", "var/cache/apt/archives/partial"),
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
    for folder in _FOLDERS:
        (root.directory / folder).mkdir(parents=True, exist_ok=True)
    host = _run(None, "apt-config", "dump").stdout
    for path, text in {
        root.directory / "status": "",
        root.directory / "apt.conf": configuration(root, host),
        root.directory / "etc/apt/preferences": preferences,
        root.sources: "\n".join(source.stanza() for source in sources),
    }.items():
        write_whole(path, text)


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
    result = _run(root, "apt-get", "update", "-o", "APT::Update::Error-Mode=any")
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
    for line in _run(root, *argv, "Created-By: Packages").stdout.splitlines():
        uri, filename, key = line.split("\t")
        if uri.rstrip("/") == source.uri.rstrip("/"):
            start = filename[: filename.rindex(key.replace("/", "_"))]
            paths = {name: Path(start + name) for name in ("InRelease", "Release", "Release.gpg")}
            return {name: path for name, path in paths.items() if path.is_file()}
    return {}


def resolve(root: Root, packages: Iterable[str], *, where: str) -> tuple[AptPackage, ...]:
    """`packages` and everything they depend on, in the versions that apt prefers."""
    return _chosen(root, where, "install", *packages)


def candidates(root: Root, names: Collection[str]) -> tuple[AptPackage, ...]:
    """Each package in the version that apt prefers, without what it depends on."""
    return _chosen(root, "the packages of vendors", "download", *names) if names else ()


def _chosen(root: Root, where: str, *argv: str) -> tuple[AptPackage, ...]:
    # With -qq, apt would not name unmet dependencies.
    result = _run(root, "apt-get", "-q", "-y", "--print-uris", *argv)
    if not result.returncode:
        return parse_uris(result.stdout)
    # " dkms : Depends: gcc (>= 4) but it is not installable", with more lines for more of dkms
    unmet = re.findall(r"(?m)^ +((?:\S+ : )?(?:Pre)?Depends: .*)$", result.stdout)
    reason = "; ".join([_shortened(_complaints(result)), *(one.strip() for one in unmet[:5])])
    raise UserError("apt finds no complete set of packages", where=where, found=reason)


def names(root: Root) -> list[str]:
    """Every package that some source has."""
    return _run(root, "apt-cache", "pkgnames").stdout.split()


def versions(root: Root, names: Collection[str]) -> list[tuple[str, str, str]]:
    """(name, version, source) of every version of these packages, the newest of each first."""
    text = _run(root, "apt-cache", "madison", *names).stdout if names else ""
    rows = [[part.strip() for part in line.split(" | ")] for line in text.splitlines()]
    return [(name, version, source) for name, version, source in rows]


# 'http://host/debian/pool/main/g/gcc-12/gcc-12-base_12.2.0-14%2bdeb12u1_amd64.deb' gcc-12-base_12.2.0-14+deb12u1_amd64.deb 37596 SHA256:1896...  # noqa: E501
_URI = re.compile(r"'(?P<url>[^']+)' (?P<file>\S+) (?P<size>\d+) SHA256:(?P<sha256>[0-9a-f]{64})")


def parse_uris(text: str) -> tuple[AptPackage, ...]:
    """The packages of `apt-get --print-uris`; one without a SHA256 is an error."""
    choices = []
    for line in text.splitlines():
        if line.startswith("'"):
            if not (match := _URI.match(line)):
                expected = "'URL' NAME_VERSION_ARCHITECTURE.deb SIZE SHA256:DIGEST"
                problem = "apt-get --print-uris printed an unknown line"
                raise UserError(problem, expected=expected, found=line[:200])
            file, url, size, sha256 = match.group("file", "url", "size", "sha256")
            name, version, architecture = unquote(file).removesuffix(".deb").split("_")
            choices.append(AptPackage(name, version, architecture, file, url, int(size), sha256))
    return tuple(choices)


def fetch(root: Root, wanted: Mapping[Path, tuple[str, str]]) -> dict[Path, str]:
    """Fetch files to their places, each from an address and with a sha256, which may be empty; what
    an earlier run left there is resumed. Returns those that failed with the reason, in words that
    follow a name."""
    argv: list[str] = []
    reasons, parts = {}, {target for target in wanted if target.is_file()}
    for target, (origin, sha256) in wanted.items():
        # Of file:, apt-helper would make a link.
        source = re.sub("^file:", "copy:", origin)
        path = Path(unquote(source.removeprefix("copy:")))
        if source.startswith("copy:") and not path.is_file():
            reasons[target] = f"is not at {path}"
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        argv += [source, str(target), *([f"SHA256:{sha256}"] if sha256 else [])]
    result = _run(root, HELPER, "-qq", "download-file", *argv) if argv else None
    if not result or not result.returncode:
        return reasons
    complaints = [line for line in _complaints(result) if line != "Download Failed"]
    for target in wanted.keys() - reasons.keys():
        source, sha256 = wanted[target]
        is_right = target.is_file() and sha256 in ("", digest(target))
        if reason := _about(source, complaints) or ("" if is_right else _shortened(complaints)):
            reasons[target] = f"cannot be fetched: {reason}"
        failed = target.with_name(f"{target.name}.FAILED")
        path = Path(unquote(re.sub("^(?:file|copy):", "", source)))
        if not is_right and not failed.is_file() and path.is_file() and target.is_file():
            # apt 3.0 leaves there what it copied; what is shorter is only a part of it.
            failed = target if target.stat().st_size == path.stat().st_size else failed
        if not is_right and failed.is_file():
            reasons[target] = (
                f"is another file: sha256 {sha256} was expected, found {digest(failed)}"
                f" ({failed.stat().st_size} bytes of {source})"
            )
            failed.unlink()
    # What lay there was part of another file.
    again = {target: wanted[target] for target in parts & reasons.keys() if not target.exists()}
    return {target: reasons[target] for target in reasons.keys() - again.keys()} | (
        fetch(root, again) if again else {}
    )


def _run(root: Root | None, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run a program of the private apt; without `root`, of the machine's own."""
    private = {"APT_CONFIG": str(root.directory.resolve() / "apt.conf")} if root else {}
    # After a bad signature, apt leaves the key in the directory for temporary files.
    with tempfile.TemporaryDirectory(prefix="dlperf-apt-") as scratch:
        variables = {**os.environ, "LC_ALL": "C.UTF-8", "TMPDIR": scratch, **private}
        return subprocess.run(argv, capture_output=True, text=True, check=False, env=variables)


def _complaints(result: subprocess.CompletedProcess[str]) -> list[str]:
    """The lines in which apt reports errors and warnings, or its last line if there are none."""
    starts = ("E: ", "W: GPG", "W: OpenPGP")  # apt 3.0 verifies by sqv
    lines = [line for line in result.stderr.splitlines() if line.startswith(starts)]
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


# ---- the reason for each package


@dataclass(frozen=True)
class Reason:
    """The roles that need a package, and one chain of dependencies that leads to it."""

    wanted_by: tuple[str, ...]
    why: str


def closure(
    root: Root, base: Iterable[str], wanted: Mapping[str, Iterable[str]], *, where: str
) -> dict[AptPackage, tuple[Deb822, Reason]]:
    """The closure of `base` and of the packages that each role wants, as apt-get takes them: what
    apt chose, with its entry in the lists that apt has verified and the reason for it."""
    packages = dict.fromkeys(name for names in wanted.values() for name in names)
    choices = resolve(root, (*base, *packages), where=where)
    shown = _run(root, "apt-cache", "show", *(choice.exact for choice in choices)).stdout
    entries = {entry["SHA256"]: entry for entry in Deb822.iter_paragraphs(shown)}
    roots = {role: [name.partition("=")[0] for name in names] for role, names in wanted.items()}
    why = reasons([entries[choice.sha256] for choice in choices], roots)
    return {choice: (entries[choice.sha256], why[choice.name]) for choice in choices}


def path_of(entry: Deb822) -> str:
    """The path of a package's file by the index. Raises UserError if that would lie outside
    the index's folder."""
    filename = entry["Filename"]
    if filename.startswith("/") or ".." in filename.split("/") or not filename.endswith(".deb"):
        raise UserError(f"the index puts {entry['Package']} outside its folder", found=filename)
    return f"apt/{filename.removeprefix('./')}"


def _names(entry: Deb822, *fields: str) -> list[str]:
    """`a (>= 1) | b:any, c [amd64]` as a, b, c: apt judges versions."""
    text = ", ".join(filter(None, (entry.get(field, "").strip(", ") for field in fields)))
    groups = PkgRelation.parse_relations(text) if text else []
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
        ways = {name: name for wish in names for name in providers.get(wish, [])}
        # Breadth first: the list grows by each package that is reached.
        for current in (queue := list(ways)):
            for one in _names(by_name[current], "Pre-Depends", "Depends"):
                for name in providers.get(one, []):
                    if name not in ways:
                        ways[name] = f"{ways[current]} > {name}"
                        queue.append(name)
        for name in ways:
            wanted_by[name].append(role)
        chains = ways | chains
    return {
        name: Reason(tuple(wanted_by[name]) or ("base system",), chains.get(name, name))
        for name in by_name
    }


# ---- the folder's own index


def write_index(
    entries: Iterable[Deb822], suite: str, architecture: str, folder: Path, key_folder: Path
) -> tuple[list[Item], str]:
    """Write the signed index of `entries` below `folder`; InRelease, which apt reads first, is the
    last. Return its files and the key's fingerprint."""
    dists = f"dists/{suite}"
    packages = f"{dists}/main/binary-{architecture}/Packages"
    text = "\n".join(sorted(entry.dump() for entry in entries)).encode()
    packed = {"": text, ".gz": gzip.compress(text, mtime=0), ".xz": lzma.compress(text)}
    files = {f"{packages}{suffix}": content for suffix, content in packed.items()}
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
    signed = sign(result.stdout, key_folder)
    last = {
        f"{dists}/Release": result.stdout,
        "dlperf-mirror.asc": signed.public_armoured,
        "dlperf-mirror.gpg": signed.public_binary,
        f"{dists}/Release.gpg": signed.detached,
        f"{dists}/InRelease": signed.inline,
    }
    for path, content in last.items():
        write_whole(folder / path, content)
    kinds = dict.fromkeys(files, "index")
    kinds |= {path: "index" if path.startswith("dists/") else "key" for path in last}
    why = "the signed index of the packages, or the key that verifies it"
    return items_of(folder, "apt/", kinds, ("apt",), why), signed.fingerprint


def items_of(
    folder: Path, start: str, kinds: Mapping[str, str], wanted_by: tuple[str, ...], why: str
) -> list[Item]:
    """The items of indexes and keys by their paths in `folder`, which is `start` in the mirror."""
    return [
        Item(
            f"{start}{path}",
            kinds[path],
            Path(path).name,
            "",
            sha256,
            (folder / path).stat().st_size,
            wanted_by,
            why,
        )
        for path, sha256 in digests(folder, kinds).items()
    ]
