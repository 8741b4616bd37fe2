"""The schema of catalog/published/: a report, its tables, and the comparison rule."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from ..core.units import SAMPLES, Unit
from .reproduction import Reproduction
from .types import Count, CountOrNone, Entry, Name, RelativePath, TopologyText, listed, wrong

Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Rows = dict[TopologyText, Rate]


class Conditions(Entry):
    """The conditions of a measurement. None means that the report does not state it.

    `accelerator`: the product (V100-SXM2-16GB). `data`: the kind of training data.
    `input_pipeline`: the software that reads the data (framework: the framework's own).
    `noise`: how synthetic data are made (fresh: each sample when it is read).
    `statistic`: how the `repeats` were combined into one number.
    """

    accelerator: str | None = None
    interconnect: str | None = None
    driver: str | None = None
    cuda: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    framework_version: str | None = None
    container: str | None = None
    implementation: str | None = None
    data: Literal["real", "synthetic"] | None = None
    dataset: str | None = None
    image_size: Count | None = None
    classes: Count | None = None
    input_pipeline: str | None = None
    noise: str | None = None
    xla: bool | None = None
    parallelism: str | None = None
    loss_scaling: str | None = None
    total_steps: Count | None = None
    warmup_steps: CountOrNone | None = None
    estimator: str | None = None
    repeats: Count | None = None
    statistic: str | None = None

    def changed_by(self, change: Conditions) -> Conditions:
        """A copy in which the fields set in `change`, including None, replace these."""
        return self.model_copy(update=change.model_dump(include=change.model_fields_set))


class Citation(Entry):
    """Where the numbers stand: a file of a public repository, at a commit that contains them.

    A source that has no commits gives its `title` instead, and in `no_commit` the reason and how to
    find it, such as `web page, read on 2026-11-22`.
    """

    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    file: RelativePath | None = None
    title: Annotated[str, Field(min_length=1)] | None = None
    no_commit: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _can_be_looked_up(self) -> Citation:
        wanted = ("repository", "commit", "file"), ("title", "no_commit")
        given = tuple(name for name in (*wanted[0], *wanted[1]) if getattr(self, name) is not None)
        if given not in wanted:
            expected = " or ".join(", ".join(names) for names in wanted)
            raise wrong("the source cannot be looked up", expected, listed(given))
        return self

    def __str__(self) -> str:
        if self.commit is None:
            return f"{self.title} ({self.no_commit})"
        return f"{self.repository} {self.commit[:7]}, {self.file}"


class PublishedTable(Entry):
    """The numbers for one model, precision and batch size, by topology.

    `runs`: the values of single runs, if they were published. `conditions` and `cases` (by
    topology): the conditions that differ from those of the report. `source`: if the file at the
    report's commit does not contain this table.
    """

    model: Name
    precision: Name
    batch_size_per_device: Count
    date: str | None = None
    source: Citation | None = None
    conditions: Conditions = Conditions()
    cases: dict[TopologyText, Conditions] = {}
    rows: Annotated[Rows, Field(min_length=1)]
    runs: dict[TopologyText, Annotated[tuple[Rate, ...], Field(min_length=1)]] = {}

    @model_validator(mode="after")
    def _of_these_rows(self) -> PublishedTable:
        for name in ("runs", "cases"):
            for topology in getattr(self, name):
                if topology not in self.rows:
                    known = f"one of {listed(self.rows)}"
                    raise wrong("no row has this topology", known, str(topology), name)
        return self


class PublishedReport(Entry):
    """A publication.

    `unit`: what its numbers count in a second.
    `workload`: the workload in the catalogue that its numbers belong to, if any.
    `workload_models`: the workload's model for each model that has another name there.
    `rows_of`: its name in published.csv. `logs`: addresses of its logs.
    """

    name: Name
    title: str
    publisher: str
    source: Citation
    date: Annotated[str, Field(pattern=r"^\d{4}(-\d\d(-\d\d)?)?$")]
    framework: Name
    unit: Unit = SAMPLES
    workload: Name | None = None
    workload_models: dict[Name, Name] = {}
    rows_of: str | None = None
    conditions: Conditions
    cases: dict[TopologyText, Conditions] = {}
    tables: tuple[PublishedTable, ...] = ()
    logs: tuple[str, ...] = ()
    reproduction: Reproduction | None = None

    @model_validator(mode="after")
    def _something_is_published(self) -> PublishedReport:
        if not self.tables and self.rows_of is None:
            raise wrong("the report has no numbers", "tables or rows_of", None, "tables")
        return self


class RecordedConditions(Entry):
    """Conditions of a workload's source that the record of a run does not contain."""

    input_pipeline: str | None = None
    noise: str | None = None
    xla: bool | None = None


class ComparisonRule(Entry):
    """When a speed matches the published one: see catalog/published/rule.yml."""

    name: Name
    tolerance: Annotated[float, Field(gt=0, lt=1)]
    must_be_equal: tuple[str, ...]
    workloads: dict[Name, dict[Literal["builtin", "upstream"], RecordedConditions]] = {}
