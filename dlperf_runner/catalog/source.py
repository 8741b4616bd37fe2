"""The schema of a workload's sources: its program, how it is started, and what it trains on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from ..core.case import Topology
from .types import Count, Entry, Name, ParameterTemplate, Regex, RelativePath, Value


class LauncherOptions(Entry):
    """Options of mpirun, by the size of a run. None: that run starts without the launcher."""

    one_device: tuple[str, ...] | None = ()
    one_node: tuple[str, ...] = ()
    several_nodes: tuple[str, ...] = ()

    def options_for(self, topology: Topology) -> tuple[str, ...] | None:
        if topology.world_size == 1:
            return self.one_device
        return self.one_node if topology.nodes == 1 else self.several_nodes


class Patch(Entry):
    """One declared change to an upstream file.

    `pattern` (multi-line mode) must match exactly `count` times. Each match is replaced by
    `replacement`, in which \\1 refers to a group.
    """

    file: RelativePath
    pattern: Regex
    replacement: str
    reason: str
    count: Count = 1


class AddedFile(Entry):
    """A short file that the upstream source needs but does not contain."""

    file: RelativePath
    content: str
    reason: str


class Preparation(Entry):
    """A command that runs once on a node before the first run. It creates the path `creates`."""

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    creates: Annotated[str, Field(pattern=r"^/")]


class DataParameter(Entry):
    """The parameter that names the data set. With one of the values `synthetic`, the data are
    synthetic.

    `dataset` is the data set of the published run. Inside it, the parameter names the path `below`,
    or its folder. `parts` is the parameter with the number of its files.
    """

    parameter: str
    synthetic: tuple[str, ...] = ()
    dataset: Name | None = None
    below: str = ""
    parts: str | None = None


class _Source(Entry):
    """The keys that both kinds of source share.

    `data`: the kind of training data, or the parameter that decides it.
    `launcher` and `flavor` (of the framework's environments) override the workload's defaults.
    A launcher may be a parameter, like `{launcher}`.
    `on_several_nodes`: further arguments there, by precision.
    `stacks`: the stacks that can run this source (empty: all).
    `only`: the values that it has of `variant`, `precision` and parameters (not named: all).
    `started_in`: the working directory. The benchmark user cannot write to the directory of the
    source, but can write to that of the run.
    """

    data: Literal["real", "synthetic"] | DataParameter | None = None
    launcher: Name | ParameterTemplate | None = None
    launcher_options: LauncherOptions = LauncherOptions.model_construct()
    flavor: Name | None = None
    stacks: tuple[Name, ...] = ()
    only: dict[str, tuple[Value, ...]] = {}
    started_in: Literal["source", "run"] = "source"
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    prepare: tuple[Preparation, ...] = ()
    environment: dict[str, str] = {}
    on_cpu: tuple[str, ...] = ()
    on_gpu: tuple[str, ...] = ()
    on_precision: dict[str, tuple[str, ...]] = {}
    on_several_nodes: dict[str, tuple[str, ...]] = {}

    @property
    def texts(self) -> Iterator[tuple[tuple[str | int, ...], str]]:
        """The templates of a run, each with its keys."""
        yield ("launcher",), self.launcher or ""
        for key in ("argv", "on_cpu", "on_gpu"):
            yield from (((key, number), text) for number, text in enumerate(getattr(self, key)))
        yield from ((("environment", key), text) for key, text in self.environment.items())
        groups = {
            "on_precision": self.on_precision,
            "on_several_nodes": self.on_several_nodes,
            "launcher_options": dict(self.launcher_options),
        }
        for key, group in groups.items():
            for name, several in group.items():
                yield from (((key, name, n), text) for n, text in enumerate(several or ()))


class BuiltinSource(_Source):
    """Files from this repository, or from the user's folder of the catalogue if the workload is
    there. They are copied into one directory on the node."""

    files: tuple[RelativePath, ...] = ()


class UpstreamSource(_Source):
    """A repository at a commit.

    `directory`: the working directory of the command; `.` is the repository's root. `paths`: the
    parts of the repository to copy (default: `directory`). `files`: files from this repository,
    copied into `directory`.
    """

    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    directory: RelativePath | Literal["."]
    paths: tuple[RelativePath, ...] = ()
    patches: tuple[Patch, ...] = ()
    added_files: tuple[AddedFile, ...] = ()
    files: tuple[RelativePath, ...] = ()

    @property
    def taken(self) -> tuple[str, ...]:
        return self.paths or (self.directory,)


Source = BuiltinSource | UpstreamSource


class Sources(Entry):
    builtin: BuiltinSource | None = None
    upstream: UpstreamSource | None = None

    def items(self) -> list[tuple[str, Source]]:
        pairs = (("builtin", self.builtin), ("upstream", self.upstream))
        return [(name, source) for name, source in pairs if source is not None]

    def named(self, name: str) -> Source | None:
        return dict(self.items()).get(name)
