"""The wheelhouse: locked requirements files, read for the nodes' interpreter; pip fetches what they
name and verifies it by their digests."""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from ..core.errors import UserError
from ..core.files import read_text, write_whole
from ..provision import vendor
from .manifest import Item, digests

Kind = Literal["wheel", "sdist"]
# Debian's name of an architecture, and Python's.
MACHINES = {names["debian"]: machine for machine, names in vendor.MACHINES.items()}


@dataclass(frozen=True)
class Target:
    """An interpreter of the nodes, not the one that runs pip here. `glibc` decides which wheels
    run."""

    python: str
    glibc: str
    architecture: str

    @property
    def machine(self) -> str:
        return MACHINES[self.architecture]

    @property
    def markers(self) -> dict[str, str]:
        """The PEP 508 marker variables in which the nodes may differ from this machine."""
        versions = dict.fromkeys(("implementation_version", "python_full_version"), self.python)
        return {
            **{name: f"{version}.0" for name, version in versions.items()},
            "python_version": self.python,
            "platform_machine": self.machine,
        }

    @property
    def platforms(self) -> tuple[str, ...]:
        """Platform tags of the wheels that run there, newest first (PEP 600 and its ancestors)."""
        is_x86, newest = self.machine == "x86_64", int(self.glibc.split(".")[1])
        tags = [f"manylinux_2_{minor}" for minor in range(newest, 4 if is_x86 else 16, -1)]
        old = ["manylinux2010", "manylinux1"] if is_x86 else []
        return tuple(f"{tag}_{self.machine}" for tag in (*tags, "manylinux2014", *old, "linux"))


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

    def file(self, files: Mapping[str, str], kind: Kind) -> str | None:
        """The name of the file in `files` (name -> sha256) that satisfies it."""
        for name, sha256 in files.items():
            if sha256 in self.sha256 and name.endswith(".whl") == (kind == "wheel"):
                return name
        return None


def read(lock: RequirementsFile, root: Path, target: Target) -> tuple[Pinned, ...]:
    """The requirements of a file that hold on the target, in file order. Raises UserError."""
    try:
        text = read_text(root / lock.path)
    except (OSError, UnicodeDecodeError) as error:
        problem = f"the requirements of {lock.wanted_by} cannot be read"
        raise UserError(problem, where=lock.path, found=str(error)) from error
    return parse(text, lock.path, target)


def parse(text: str, where: str, target: Target) -> tuple[Pinned, ...]:
    """The requirements that hold on the target, in file order. Anything but `name==version
    --hash=sha256:...` is refused, because it could not be verified.

    pip cannot do it: it evaluates markers for the interpreter that runs it, the controller's.
    """
    pinned = []
    plain = re.sub(r"(?m)(^|[ \t])#.*$", "", text)
    # A continued line is one match.
    for match in re.finditer(r"(?m)^[ \t]*\S(?:.*\\\n)*.*$", plain):
        line = " ".join(match[0].replace("\\\n", " ").split())
        specification, *hashes = line.split(" --hash=")
        sha256 = [one[7:] for one in hashes if re.fullmatch(r"sha256:[0-9a-f]{64}", one)]
        try:
            requirement = Requirement(specification)
            (version,) = requirement.specifier
            if version.operator != "==" or "*" in version.version or not sha256:
                raise ValueError
        except (InvalidRequirement, ValueError):
            raise UserError(
                "a requirement must be pinned and carry its sha256",
                where=f"{where}:{plain.count(chr(10), 0, match.start()) + 1}",
                expected="name==version --hash=sha256:...",
                found=line[:200],
            ) from None
        if not requirement.marker or requirement.marker.evaluate(dict(target.markers)):
            name = canonicalize_name(requirement.name)
            pinned.append(Pinned(name, version.version, frozenset(sha256)))
    return tuple(pinned)


def download_argv(
    target: Target, kind: Kind, names: Sequence[str], lock: Path, folder: Path
) -> list[str]:
    """pip's command line. Locks are complete, so pip resolves nothing (--no-deps)."""
    argv = [sys.executable, "-m", "pip", "download", "--disable-pip-version-check"]
    argv += ["--no-input", "--progress-bar", "off", "--require-hashes", "--no-deps"]
    argv += ["--dest", str(folder), "--requirement", str(lock)]
    if kind == "sdist":
        return [*argv, "--no-binary", ",".join(names)]
    if tuple(names) == ("uv",):
        # It declares Python 3.8 or newer, but is a program that runs without Python.
        argv.append("--ignore-requires-python")
    argv += ["--only-binary", ":all:", "--implementation", "cp"]
    argv += ["--python-version", target.python]
    return argv + [word for tag in target.platforms for word in ("--platform", tag)]


def download(target: Target, kind: Kind, where: str, pins: Sequence[Pinned], folder: Path) -> None:
    """Fetch releases into `folder`, with the user's own pip configuration. `where`: their file."""
    lines = [" ".join((str(pin), *(f"--hash=sha256:{one}" for one in pin.sha256))) for pin in pins]
    with tempfile.TemporaryDirectory(prefix="dlperf-pip-") as scratch:
        lock = Path(scratch) / "requirements.txt"
        write_whole(lock, "\n".join(lines))
        argv = download_argv(target, kind, [pin.name for pin in pins], lock, folder)
        result = subprocess.run(argv, capture_output=True, text=True, check=False)
    if result.returncode:
        output = result.stdout + result.stderr
        interpreter = f"Python {target.python} (glibc {target.glibc}, {target.architecture})"
        raise UserError(
            f"pip could not fetch {kind}s for {interpreter}",
            where=where,
            found=errors_of(output),
            hint=hint_for(output, target),
        )


def errors_of(output: str) -> str:
    """The errors in pip's output."""
    if "No module named pip" in output:
        return "this Python has no pip (python -m ensurepip brings it)"
    errors = re.findall(r"(?m)^(?:ERROR: |\s+(?=Expected sha256 |Got  ))(.*)$", output)
    text = "; ".join(one.strip() for one in errors or output.splitlines()[-1:]) or "nothing"
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
    fetched: list[str],
    say: Callable[[str], None],
) -> list[Item]:
    """Have every required file in wheels/; add the paths that were not there to `fetched`."""
    house = output / "wheels"
    house.mkdir(exist_ok=True)
    present = _files(house)
    # A file that several environments want is one item.
    wanters: dict[str, list[tuple[Pinned, RequirementsFile]]] = {}
    for lock, pins in requirements.items():
        missing: dict[Kind, list[Pinned]] = {}
        for pin in pins:
            if not pin.file(present, kind := lock.kind_of(pin.name)):
                missing.setdefault(kind, []).append(pin)
        for kind, some in missing.items():
            say(f"fetching {', '.join(map(str, some))} of {lock.path}")
            download(target, kind, lock.path, some, house)
        if missing:
            before, present = present, _files(house)
            fetched += [f"wheels/{name}" for name, _ in present.items() - before.items()]
        for pin in pins:
            name = pin.file(present, kind := lock.kind_of(pin.name))
            if name is None:
                raise UserError(f"pip fetched no {kind} of {pin}", where=lock.path)
            wanters.setdefault(name, []).append((pin, lock))
    return [
        Item(
            f"wheels/{name}",
            lock.kind_of(pin.name),
            pin.name,
            pin.version,
            present[name],
            (house / name).stat().st_size,
            tuple(one.wanted_by for _, one in wanters[name]),
            f"{pin} in {lock.path}",
        )
        for name, ((pin, lock), *_) in sorted(wanters.items())
    ]


def _files(folder: Path) -> dict[str, str]:
    return digests(folder, (path.name for path in folder.iterdir()))
