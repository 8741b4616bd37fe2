"""The wheelhouse: locked requirements files, read for the nodes' interpreter; pip fetches what they
name, digests verify it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..core.errors import UserError
from ..core.files import read_text, write_whole
from .manifest import Item, digests, move_verified

Kind = Literal["wheel", "sdist"]
# Debian's name of an architecture, and Python's.
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Target:
    """An interpreter of the nodes, not the one that runs pip here. `glibc` decides which wheels
    run."""

    python: str
    glibc: str
    architecture: str

    @property
    def markers(self) -> dict[str, str]:
        """The PEP 508 marker variables of that interpreter."""
        return {
            "implementation_name": "cpython",
            "implementation_version": f"{self.python}.0",
            "os_name": "posix",
            "platform_machine": MACHINES[self.architecture],
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": f"{self.python}.0",
            "python_version": self.python,
            "sys_platform": "linux",
            "extra": "",
        }

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags of the wheels that run there, newest first (PEP 600 and its ancestors)."""
        machine = MACHINES[self.architecture]
        minor = int(self.glibc.split(".")[1])
        oldest = 5 if machine == "x86_64" else 17
        old = ["manylinux2014"] + (["manylinux2010", "manylinux1"] if machine == "x86_64" else [])
        names = [f"manylinux_2_{version}" for version in range(minor, oldest - 1, -1)]
        return tuple(f"{name}_{machine}" for name in (*names, *old, "linux"))


@dataclass(frozen=True)
class RequirementsFile:
    """A locked requirements file; `path` is relative to the repository's root. `sdists`: the
    releases in it that have no wheel, if most have one."""

    path: str
    wanted_by: str
    kind: Kind = "wheel"
    sdists: tuple[str, ...] = ()

    def kind_of(self, name: str) -> Kind:
        return "sdist" if name in self.sdists else self.kind


@dataclass(frozen=True)
class Pinned:
    """One release of one project, and the digests of the files that satisfy it."""

    name: str
    version: str
    sha256: frozenset[str]

    def __str__(self) -> str:
        return f"{self.name}=={self.version}"

    def line(self) -> str:
        hashes = " ".join(f"--hash=sha256:{digest}" for digest in sorted(self.sha256))
        return f"{self.name}=={self.version} {hashes}"


# ---- locks


def read(wanted: RequirementsFile, root: Path, target: Target) -> tuple[Pinned, ...]:
    """The requirements of a file that hold on the target, in file order. Raises UserError."""
    try:
        text = read_text(root / wanted.path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"the requirements of {wanted.wanted_by} cannot be read",
            where=wanted.path,
            found=str(error),
        ) from error
    return parse(text, wanted.path, target)


def parse(text: str, where: str, target: Target) -> tuple[Pinned, ...]:
    """The requirements that hold on the target, in file order.

    pip evaluates markers for the interpreter that runs it, which is the controller's; the files
    are for the nodes'. Anything but `name==version --hash=sha256:...` is refused, because it could
    not be verified.
    """
    pinned = []
    for number, line in _logical_lines(text):
        specification, *hashes = line.split(" --hash=")
        digests = [one[7:].strip() for one in hashes if re.match(r"sha256:[0-9a-f]{64}\s*$", one)]
        try:
            requirement = Requirement(specification)
            (version,) = requirement.specifier
            if version.operator != "==" or "*" in version.version or not digests:
                raise ValueError
        except (InvalidRequirement, ValueError):
            raise UserError(
                "a requirement must be pinned and carry its sha256",
                where=f"{where}:{number}",
                expected="name==version --hash=sha256:...",
                found=line[:200],
            ) from None
        if not requirement.marker or requirement.marker.evaluate(dict(target.markers)):
            name = canonicalize_name(requirement.name)
            pinned.append(Pinned(name, version.version, frozenset(digests)))
    return tuple(pinned)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """(number of the first line, text with continuations joined), without comments and blanks."""
    first, parts = 1, []
    for number, raw in enumerate([*text.splitlines(), ""], start=1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip()
        parts.append(line.removesuffix("\\").strip())
        if not line.endswith("\\"):
            if logical := " ".join(filter(None, parts)):
                yield first, logical
            first, parts = number + 1, []


# ---- files


def file_for(pinned: Pinned, files: Mapping[str, str], kind: Kind) -> str | None:
    """The name of the file in `files` (name -> sha256) that satisfies a requirement."""
    for filename, sha256 in files.items():
        if sha256 in pinned.sha256 and filename.endswith(".whl") == (kind == "wheel"):
            return filename
    return None


def download_argv(
    target: Target, kind: Kind, names: Sequence[str], requirements: Path, folder: Path
) -> list[str]:
    """pip's command line. Locks are complete, so pip resolves nothing (--no-deps)."""
    argv = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    argv += ["--no-input", "--progress-bar", "off", "--require-hashes", "--no-deps"]
    argv += ["--dest", str(folder), "--requirement", str(requirements)]
    if kind == "sdist":
        return [*argv, "--no-binary", ",".join(names)]
    if tuple(names) == ("uv",):
        # It declares Python 3.8 or newer, but is a program that runs without Python.
        argv.append("--ignore-requires-python")
    argv += ["--only-binary", ":all:", "--implementation", "cp"]
    argv += ["--python-version", target.python]
    for tag in target.platforms:
        argv += ["--platform", tag]
    return argv


def download(
    target: Target, wanted: RequirementsFile, missing: Sequence[Pinned], folder: Path
) -> None:
    """Fetch `missing` into `folder`, with the user's own pip configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="dlperf-pip-") as scratch:
        lines = Path(scratch) / "requirements.txt"
        write_whole(lines, "".join(f"{pinned.line()}\n" for pinned in missing))
        names = [pinned.name for pinned in missing]
        argv = download_argv(target, wanted.kind, names, lines, folder)
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode:
        output = result.stdout + result.stderr
        raise UserError(
            f"pip could not fetch {wanted.kind}s for Python {target.python} "
            f"(glibc {target.glibc}, {target.architecture})",
            where=wanted.path,
            found=errors_of(output),
            hint=hint_for(output, target),
        )


def errors_of(output: str) -> str:
    """The errors in pip's output."""
    if "No module named pip" in output:
        return "this Python has no pip (python -m ensurepip brings it)"
    lines = output.splitlines()
    errors = [line.removeprefix("ERROR: ").strip() for line in lines if line.startswith("ERROR:")]
    mismatch = re.findall(r"^\s+(Expected sha256 .*|Got\s+.*)$", output, re.MULTILINE)
    text = "; ".join([*errors, *mismatch]) or (lines[-1].strip() if lines else "nothing")
    return text if len(text) <= 600 else text[:600] + "..."


def hint_for(output: str, target: Target) -> str | None:
    """The likely remedy for pip's errors."""
    if "Retrying (" in output or "from versions: none" in output:
        return "is the package index reachable? pip's own configuration gives its address"
    if "No matching distribution" in output:
        return (
            f"the lock has a release without a wheel for Python {target.python}: compile it with"
            f" --universal --python-version {target.python}, or narrow the environment's `python`"
            " in catalog/frameworks"
        )
    return None


def bring(
    target: Target,
    requirements: Mapping[RequirementsFile, Sequence[Pinned]],
    output: Path,
    partial: Path,
    fetched: list[str],
    say: Callable[[str], None],
) -> list[Item]:
    """Have every required file in wheels/; add the paths that were not there to `fetched`."""
    house, arrivals = output / "wheels", partial / "wheels"
    house.mkdir(exist_ok=True)
    present = _files(house)
    # file -> (requirement, who wants it); a file that several environments want is one item.
    chosen: dict[str, tuple[Pinned, RequirementsFile, list[str]]] = {}
    for wanted, pins in requirements.items():
        kinds = {pin: wanted.kind_of(pin.name) for pin in pins}
        missing = [pin for pin in pins if not file_for(pin, present, kinds[pin])]
        if missing:
            say(f"fetching {', '.join(map(str, missing))} of {wanted.path}")
            for kind in dict.fromkeys(kinds[pin] for pin in missing):
                of_kind = [pin for pin in missing if kinds[pin] == kind]
                download(target, replace(wanted, kind=kind), of_kind, arrivals)
            arrived = _files(arrivals)
            for pin in missing:
                if name := file_for(pin, arrived, kinds[pin]):
                    move_verified(arrivals / name, house / name, arrived[name])
                    fetched.append(f"wheels/{name}")
                    present[name] = arrived[name]
        for pin in pins:
            name = file_for(pin, present, kinds[pin])
            if name is None:
                raise UserError(f"pip fetched no {kinds[pin]} of {pin}", where=wanted.path)
            chosen.setdefault(name, (pin, wanted, []))[2].append(wanted.wanted_by)
    return [
        Item(
            path=f"wheels/{name}",
            kind=wanted.kind_of(pin.name),
            name=pin.name,
            version=pin.version,
            sha256=present[name],
            size=(house / name).stat().st_size,
            wanted_by=tuple(wanters),
            why=f"{pin} in {wanted.path}",
        )
        for name, (pin, wanted, wanters) in sorted(chosen.items())
    ]


def _files(folder: Path) -> dict[str, str]:
    return digests(folder, (path.name for path in folder.iterdir()))
