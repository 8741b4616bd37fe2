"""A tiny archive and a tiny index, and the mirror that is made of them."""

from __future__ import annotations

import dataclasses
import shutil
from collections.abc import Sequence
from pathlib import Path

from standin_repository import Standin, suite_repository

from dlperf_runner.bundle import apt
from dlperf_runner.bundle.archives import Source
from dlperf_runner.bundle.mirror import MirrorOutcome, Settings, make
from dlperf_runner.bundle.needs import Needs
from dlperf_runner.bundle.wheels import RequirementsFile, Target

POOL = "dists/tiny/pool"
PACKAGES = (
    Standin("mpi", "4.1", "libmpi (>= 4), ssh"),
    Standin("libmpi", "4.1"),
    Standin("ssh", "1:9.2"),
    Standin("unrelated", "1"),
)


def publish(work: Path, *packages: Standin) -> None:
    """An archive as a distribution publishes it."""
    suite_repository(
        work / "archive", "tiny", "main", packages, work / "archive-key", "dlperf-mirror.asc"
    )


@dataclasses.dataclass
class Site:
    """A tiny upstream, and the mirror that is made of it."""

    folder: Path
    needs: Needs
    settings: Settings

    @property
    def mirror(self) -> Path:
        return self.settings.output

    def make(self, **changes: object) -> MirrorOutcome:
        said: list[str] = []
        settings = dataclasses.replace(self.settings, **changes)  # type: ignore[arg-type]
        return make(self.needs, settings, said.append)

    def files(self) -> dict[str, int]:
        """Every file of the mirror and the time of its last change."""
        return {
            path.relative_to(self.mirror).as_posix(): path.stat().st_mtime_ns
            for path in self.mirror.rglob("*")
            if path.is_file() and path.name != ".lock"
        }

    def node(self) -> apt.Root:
        """The apt of a node that has this mirror and nothing else."""
        root = apt.Root(self.folder / "node", "amd64")
        shutil.rmtree(root.directory, ignore_errors=True)
        key = str(self.mirror / "apt/dlperf-mirror.asc")
        apt.prepare(root, [Source(f"file:{self.mirror}/apt", ("bookworm",), signed_by=key)])
        return root


def lost(node: apt.Root, choices: Sequence[apt.AptPackage], folder: Path) -> dict[str, str]:
    """Have a node fetch packages into a folder: those that it cannot, by name, with the reason."""
    wanted = {folder / choice.filename: (choice.url, choice.sha256) for choice in choices}
    return {path.name.split("_")[0]: why for path, why in apt.fetch(node, wanted).items()}


def site_in(work: Path) -> Site:
    needs = Needs(
        stack="cpu",
        suite="bookworm",
        target=Target("3.11", "2.36", "amd64"),
        packages={"openmpi": ("mpi",)},
        requirements=(RequirementsFile("uv.txt", "uv"), RequirementsFile("env.txt", "tinynet")),
        root=work,
    )
    archive = work / "archive"
    source = Source(f"file:{archive}", ("tiny",), signed_by=str(archive / "dlperf-mirror.asc"))
    return Site(work, needs, Settings(work / "mirror", work / "cache", (source,), base=()))
