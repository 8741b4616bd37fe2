"""The schema of catalog/published/: a report, its tables, and the comparison rule."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from ..core.units import SAMPLES, Unit
from .entry import first_mistake
from .types import Count, CountOrNone, Entry, Name, RelativePath, TopologyText, entry_error, listed

Text = Annotated[str, Field(min_length=1)]


class PublishedCommand(Entry):
    """The command that a script of the report runs, on the topologies named (none: all).

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
    """The needs of the published matrix: disk space of a node, and the GPU memory that the report
    states or whose cards it used."""

    disk: Text
    gpu_memory: Text


class Reproduction(Entry):
    """The ways to reproduce a report. `only_there`: what nobody can show without the report's
    GPUs."""

    commands: Annotated[tuple[PublishedCommand, ...], Field(min_length=1)]
    differences: tuple[DeclaredDifference, ...] = ()
    software: tuple[Software, ...] = ()
    needs: ReproductionNeeds
    only_there: Annotated[tuple[Text, ...], Field(min_length=1)]


Rate = Annotated[float, Field(gt=0, allow_inf_nan=False, strict=True)]
Rows = dict[TopologyText, Rate]


class Conditions(Entry):
    """The conditions of a measurement. None means that the report does not state it.

    `accelerator`: the product (V100-SXM2-16GB). `data`: the kind of training data.
    `memory_format`: the layout of images in memory (nchw, nhwc).
    `input_pipeline`: the software that reads the data (framework: the framework's own).
    `noise`: how synthetic data are made (fresh: each sample when it is read).
    `statistic`: how the `repeats` were combined into one number.
    `recipe`: what computes in a lower precision than the model, such as float8; none if nothing.
    `recompute`: the activations that the backward pass computes again.
    `global_batch_size`: if that per device is not stated, or several devices share the samples of a
    `micro_batch_size`.
    `flops_formula`: how a publication counts floating-point operations.
    `machine`: which of several equal machines.
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
    memory_format: Literal["nchw", "nhwc"] | None = None
    input_pipeline: str | None = None
    noise: str | None = None
    xla: bool | None = None
    sequence_length: Count | None = None
    compile: bool | None = None
    recipe: str | None = None
    recompute: Literal["none", "selective", "full"] | None = None
    global_batch_size: Count | None = None
    micro_batch_size: Count | None = None
    accumulation_steps: Count | None = None
    message_bytes: Count | None = None
    nvls: bool | None = None
    flops_formula: str | None = None
    machine: str | None = None
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
    """The source of the numbers: a file of a public repository, at a commit that contains them.
    A `*` in its name stands for the files of several runs. `computed`: how the numbers follow from
    the files, if they do not contain them.

    A source that has no commits gives its `title` instead, and in `no_commit` the reason and how to
    find it, such as `web page, read on 2026-11-22`.
    """

    repository: Annotated[str, Field(pattern=r"^[\w.-]+/[\w.-]+$")] | None = None
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")] | None = None
    file: RelativePath | None = None
    title: Annotated[str, Field(min_length=1)] | None = None
    no_commit: Annotated[str, Field(min_length=1)] | None = None
    computed: Annotated[str, Field(min_length=1)] | None = None

    @model_validator(mode="after")
    def _can_be_looked_up(self) -> Citation:
        wanted = ("repository", "commit", "file"), ("title", "no_commit")
        given = tuple(name for name in (*wanted[0], *wanted[1]) if getattr(self, name) is not None)
        if given not in wanted:
            expected = " or ".join(", ".join(names) for names in wanted)
            raise entry_error("the source cannot be looked up", expected, listed(given))
        return self

    def __str__(self) -> str:
        if self.commit is None:
            return f"{self.title} ({self.no_commit})"
        return f"{self.repository} {self.commit[:7]}, {self.file}"


class PublishedTable(Entry):
    """The numbers for one model, precision and batch size, by topology.

    `runs`: the values of single runs, if they were published. `conditions` and `cases` (by
    topology): the conditions that differ from those of the report. `source`: if the file at the
    report's commit does not contain this table. `contradiction`: why the numbers cannot be right;
    they are listed, but nothing is judged by them. `file`: where the table stands, if
    that is another file of the report's repository.
    """

    model: Name
    precision: Name | None = None
    batch_size_per_device: Count | None = None
    contradiction: Annotated[str, Field(min_length=1)] | None = None
    date: str | None = None
    file: RelativePath | None = None
    source: Citation | None = None
    conditions: Conditions = Conditions.model_construct()
    cases: dict[TopologyText, Conditions] = {}
    rows: Annotated[Rows, Field(min_length=1)]
    runs: dict[TopologyText, Annotated[tuple[Rate, ...], Field(min_length=1)]] = {}

    @model_validator(mode="after")
    def _of_these_rows(self) -> PublishedTable:
        for name in ("runs", "cases"):
            for topology in getattr(self, name):
                if topology not in self.rows:
                    allowed = f"one of {listed(self.rows)}"
                    raise entry_error("no row has this topology", allowed, str(topology), name)
        return self


class TableGrid(Entry):
    """Many tables as rows of one grid. Each column is a key of a table or one of its conditions;
    null: the table does not have it. `same`: what all tables have.
    """

    same: dict[str, Any] = {}
    columns: Annotated[tuple[str, ...], Field(min_length=1)]
    tables: Annotated[tuple[tuple[Any, ...], ...], Field(min_length=1)]

    def expanded(self) -> tuple[PublishedTable, ...]:
        return tuple(map(self._table, range(len(self.tables))))

    @model_validator(mode="after")
    def _is_made_of_tables(self) -> TableGrid:
        for number, row in enumerate(self.tables):
            if len(row) != len(self.columns):
                expected = f"{len(self.columns)} values, one for each column"
                raise entry_error(
                    "the row has another length", expected, len(row), "tables", number
                )
            try:
                self._table(number)
            except ValidationError as error:
                problem, keys, expected, value, _ = first_mistake(error)
                place = f"{'.'.join(map(str, keys))}: {problem}"
                raise PydanticCustomError(
                    "dlperf",
                    place,
                    {"expected": expected, "found": value, "keys": ("tables", number)},
                ) from None
        return self

    def _table(self, number: int) -> PublishedTable:
        row = zip(self.columns, self.tables[number], strict=True)
        given = {**self.same, **{name: value for name, value in row if value is not None}}
        table = {name: given[name] for name in given if name in PublishedTable.model_fields}
        conditions = {name: value for name, value in given.items() if name not in table}
        return PublishedTable.model_validate({**table, "conditions": conditions})


class PublishedReport(Entry):
    """A publication.

    `unit`: what its numbers count in a second; with `per_device`, they are of one device.
    `workload`: the workload that its numbers belong to, if any; `other_workloads`: others to which
    they are compared.
    `workload_models`: the workload's model for each model that has another name there.
    `tables` and `grid`: its numbers. `rows_of`: its name in published.csv. `logs`: addresses of
    its logs.
    """

    name: Name
    title: str
    publisher: str
    source: Citation
    date: Annotated[str, Field(pattern=r"^\d{4}(-\d\d(-\d\d)?)?$")]
    framework: Name
    unit: Unit = SAMPLES
    per_device: bool = False
    workload: Name | None = None
    other_workloads: tuple[Name, ...] = ()
    workload_models: dict[Name, Name] = {}
    rows_of: str | None = None
    conditions: Conditions
    cases: dict[TopologyText, Conditions] = {}
    tables: tuple[PublishedTable, ...] = ()
    grid: TableGrid | None = None
    logs: tuple[str, ...] = ()
    reproduction: Reproduction | None = None

    @property
    def all_tables(self) -> tuple[PublishedTable, ...]:
        return self.tables + (self.grid.expanded() if self.grid else ())

    @model_validator(mode="after")
    def _something_is_published(self) -> PublishedReport:
        if not (self.tables or self.grid or self.rows_of):
            raise entry_error(
                "the report has no numbers", "tables, grid or rows_of", None, "tables"
            )
        return self


class RecordedConditions(Entry):
    """Conditions of a workload's source that the record of a run does not contain; `logs`: of those
    that have no record."""

    input_pipeline: str | None = None
    noise: str | None = None
    xla: bool | None = None
    compile: bool | None = None
    recipe: str | None = None


class ComparisonRule(Entry):
    """The rule by which a speed matches the published one: see catalog/published/rule.yml."""

    name: Name
    tolerance: Annotated[float, Field(gt=0, lt=1)]
    must_be_equal: tuple[str, ...]
    workloads: dict[Name, dict[Literal["builtin", "upstream", "logs"], RecordedConditions]] = {}
