"""The schema of `reproduction` in catalog/published/: what a report ran, and what we run instead.

A test compares the commands with the plan for the published matrix, flag by flag: each difference
must be declared, and each declared difference must occur.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from .types import Entry, Name, RelativePath, TopologyText, entry_error

Text = Annotated[str, Field(min_length=1)]


class PublishedCommand(Entry):
    """What a script of the report runs, on the topologies named (none: all).

    `script` is the file at the commit of `repository` that holds the command. `argv`,
    `on_precision` and `environment` are templates; their names are those of the workload's own
    templates, and `hosts`, `addresses` and `address`.
    """

    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    script: RelativePath
    topologies: tuple[TopologyText, ...] = ()
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    on_precision: dict[Name, tuple[str, ...]] = {}
    environment: dict[str, str] = {}


class DeclaredDifference(Entry):
    """A flag, a variable or an edit in which our command differs. None: the command lacks it.

    `kind`: a `site` has its own value; the value is the program's `default`; it is another `form`
    of the same; or something is `changed`. `compare` names the last ones. `between_nodes`: only
    runs on several nodes differ in it.
    """

    part: Literal["launcher", "interpreter", "program", "environment"]
    item: Text
    published: str | None = None
    ours: str | None = None
    kind: Literal["site", "default", "form", "changed"]
    between_nodes: bool = False
    reason: Text

    @model_validator(mode="after")
    def _differs(self) -> DeclaredDifference:
        if self.published == self.ours:
            raise entry_error("this is no difference", "other values", self.ours, "ours")
        return self


class Software(Entry):
    """A component of the report's environment and of ours. A difference needs a reason."""

    item: Text
    published: Text
    ours: Text
    reason: str | None = None

    @model_validator(mode="after")
    def _explained(self) -> Software:
        if (self.published == self.ours) != (self.reason is None):
            raise entry_error(
                "a difference has a reason", "published, ours, reason", self.ours, "reason"
            )
        return self


class ReproductionNeeds(Entry):
    """What the published matrix takes: disk space of a node, and the GPU memory that the report
    states or whose cards it used."""

    disk: Text
    gpu_memory: Text


class Reproduction(Entry):
    """How a report is reproduced. `only_there`: what nobody can show without the report's GPUs."""

    commands: Annotated[tuple[PublishedCommand, ...], Field(min_length=1)]
    differences: tuple[DeclaredDifference, ...] = ()
    software: tuple[Software, ...] = ()
    needs: ReproductionNeeds
    only_there: Annotated[tuple[Text, ...], Field(min_length=1)]
