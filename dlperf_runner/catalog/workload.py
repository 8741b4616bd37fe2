"""The schema of catalog/workloads/: the keys of an entry, and checks across keys."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from .. import launchers, logs
from ..core.identity import data_of
from ..core.units import SAMPLES, Unit
from ..logs import Format
from ..logs.pattern import counted_in
from . import types
from .entry import CATALOG, first_mistake, load_entry
from .framework import Environment as Environment
from .framework import Framework as Framework
from .framework import Horovod as Horovod
from .framework import OperatorWheel as OperatorWheel
from .log_pattern import LogPattern, names
from .source import DataParameter, Source, Sources
from .stack import Stack as Stack
from .types import (
    Count,
    CountOrNone,
    Entry,
    Name,
    Parameters,
    TopologyText,
    entry_error,
    listed,
    refuse_unknown,
)

Absolute = Annotated[str, Field(pattern=r"^/[^:{}\x00-\x1f]*$")]


class SyntheticImage(Entry):
    """The properties of synthetic images."""

    width: Count
    height: Count
    mean_bytes: Count


class DataSet(Entry):
    """A data set. `files` are templates for `part` and `parts`. `pattern` is the glob by which a
    program finds them. `synthetic` is the path of the synthetic one on nodes. `faces`: with the
    records of identities that insightface reads."""

    title: str
    format: Literal["recordio", "tfrecord", "ofrecord"]
    files: Annotated[tuple[str, ...], Field(min_length=1)]
    parts: Count | None = None
    pattern: str | None = None
    records: Count
    classes: Count
    image: SyntheticImage
    faces: bool = False
    synthetic: Absolute


class DataSets(Entry):
    name: Name
    datasets: dict[Name, DataSet]


class DataSetPlace(Entry):
    """An entry of `dlperf_datasets`: where a data set lies on the nodes, and what the role makes it
    of. Without `archive`, `images` and `synthetic`, it is there already."""

    path: Absolute | None = None
    shared: bool = False
    parts: Count | None = None
    records: Count | None = None
    archive: str | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] | None = None
    images: Absolute | None = None
    synthetic: bool = False
    seed: Annotated[int, Field(ge=0, lt=1 << 31)] = 0

    @model_validator(mode="after")
    def _consistent(self) -> DataSetPlace:
        given = [n for n in ("archive", "images", "synthetic") if getattr(self, n)]
        if len(given) > 1:
            raise entry_error("more than one origin", "one of archive, images, synthetic", given)
        if self.synthetic == (self.path is not None):
            stated = "path and synthetic" if self.path else "neither"
            raise entry_error("unclear place", "either path, or synthetic: true", stated)
        if (self.archive is None) != (self.sha256 is None):
            raise entry_error(
                "an archive needs its checksum", "archive and sha256", given or "sha256"
            )
        return self


@functools.cache
def datasets() -> Mapping[str, DataSet]:
    return load_entry(CATALOG / "datasets.yml", DataSets).datasets


class Rule(Entry):
    """The rule by which a publication computes one number from a run's log.

    Steps count from 1. The first `warmup_steps` of `total_steps` are not measured.
    `log_every`: the log has a line every n steps, unless the log itself states another interval.
    `rates_are_per`: what a printed rate refers to. Per step, it is the number of steps per second.
    A built-in log format has its own default.
    `drop_first_values`: the number of printed rates to drop in addition to the warm-up.
    `round_rates_to`: the digits to which each rate is rounded before use.
    `final_value_from_world_size`: with at least this many devices, the rate that the program
    prints at its end is the result.
    `published_estimator`: the estimator of the published numbers, if the workload's own is another.
    `surplus_steps`: lines that a program prints beyond `total_steps` before it stops.
    `round_value_to`: the decimals of the published result. Statistics use all digits.
    """

    total_steps: Count
    warmup_steps: CountOrNone
    estimator: Name
    log_every: Count = 1
    rates_are_per: Literal["world", "node", "device", "step"] = "world"
    drop_first_values: CountOrNone = 0
    round_rates_to: CountOrNone | None = None
    final_value_from_world_size: Count | None = None
    published_estimator: Literal["mean_of_lines"] | None = None
    surplus_steps: CountOrNone = 0
    round_value_to: CountOrNone = 2

    def warmup_of(self, total_steps: int) -> int:
        """The warm-up of a run with so many steps: the same share, rounded up to a line of the log,
        so that each line is either warm-up or measured."""
        lines = math.ceil(self.warmup_steps * total_steps / self.total_steps / self.log_every)
        return min(lines * self.log_every, total_steps - 1)

    def last_step(self, before: int) -> int:
        """The last step of a window that begins after step `before`. It is total_steps. Lines that
        do not end with the warm-up leave steps out at the beginning: then as many of the surplus
        steps belong to the window."""
        surplus = before - self.warmup_steps
        return self.total_steps + max(0, min(surplus, self.surplus_steps))

    @model_validator(mode="after")
    def _something_is_measured(self) -> Rule:
        if self.warmup_steps >= self.total_steps:
            raise entry_error(
                "no steps remain to be measured",
                f"fewer warm-up steps than total_steps, {self.total_steps}",
                self.warmup_steps,
                "warmup_steps",
            )
        return self


class RuleChange(Entry):
    """The changes that a matrix makes to its workload's rule."""

    total_steps: Count | None = None
    warmup_steps: CountOrNone | None = None
    log_every: Count | None = None
    drop_first_values: CountOrNone | None = None


class Attention(Enum):
    """The way to count the FLOPs of attention (see measure/energy.py)."""

    FULL = "full"
    CAUSAL = "causal"


class Transformer(Entry):
    """The sizes on which the FLOPs of a transformer depend. `parameters`: those that multiply each
    token, so not the input embedding; those that multiply a part of the tokens count as that part.
    `width`: heads times the size of a head."""

    parameters: Count
    layers: Count
    width: Count
    attention: Attention = Attention.FULL


class Variant(Entry):
    """One of several networks that a workload trains. Its model is `<model>-<variant>`. Without a
    `transformer`, its FLOPs are unknown."""

    short_name: Name
    parameters: Parameters = {}
    transformer: Transformer | None = None


# The names that an argv template can use in addition to the workload's own parameters.
RUN_KEYS = (
    *("python", "workload", "framework", "model", "source", "precision"),
    *("batch_size_per_device", "global_batch_size"),
    *("nodes", "gpus_per_node", "world_size", "devices"),
    *("total_steps", "total_samples", "warmup_steps", "repeat"),
)
# The names that an argv of `prepare` can use: it depends on the node, but not on a run.
PREPARE_KEYS = ("python", "directory")


class BatchEntry(Entry):
    """`published_gpu_memory_gb`: that of the report's GPUs, if the batch needs it."""

    precision: Name
    batch_size_per_device: Count
    variant: str = ""
    published_gpu_memory_gb: Count | None = None


class Matrix(Entry):
    """A set of cases: every batch on every topology, `repeats` times.

    A run is stopped after `timeout_s`. It hangs if its log has no new line for `hung_after_s` and
    for `hung_after_lines` times the median time between two lines. What is silent between lines,
    such as a validation or writing a checkpoint, must be shorter. Before its log has a rhythm, it
    hangs if it has no new line for `first_step_s`, by default that of the framework.
    """

    topologies: Annotated[tuple[TopologyText, ...], Field(min_length=1)]
    batches: Annotated[tuple[BatchEntry, ...], Field(min_length=1)]
    repeats: Count = 1
    rule: RuleChange = RuleChange.model_construct()
    parameters: Parameters = {}
    timeout_s: Count = 3600
    hung_after_s: Count = 300
    hung_after_lines: Count = 20
    first_step_s: Count | None = None


class Workload(Entry):
    """A model trained with a framework: its source, its launcher and its log format. Without a
    source, its logs can be read, but it cannot be run.

    `no_upstream`: why it has no source `upstream`, shown by `list`.
    `unit`: what its throughput counts. `log_pattern`: describes `log_format` if it is the user's.
    `only_if_named`: it is planned only if the choice names it, because it is no training.
    `unmeasured`: the parameters that do not change what is measured, such as the log interval.
    `if_changed`: the parameters that identify a run only if they differ from their default.
    `of_variant`: the parameters that say which variant it is, so that only the model chooses them.
    `of_precision`: the defaults that a precision has instead.
    """

    name: Name
    title: str
    framework: Name
    model: Name
    families: tuple[Name, ...] = ()
    short_name: Name
    log_format: Name
    log_pattern: LogPattern | None = None
    unit: Unit = SAMPLES
    launcher: Name = "direct"
    max_nodes: Count | None = None
    only_if_named: bool = False
    rule: Rule
    parameters: Parameters = {}
    unmeasured: tuple[str, ...] = ()
    if_changed: tuple[str, ...] = ()
    of_variant: tuple[str, ...] = ()
    of_precision: dict[Name, Parameters] = {}
    dtypes: dict[str, str] = {}
    variants: dict[Name, Variant] = {}
    sources: Sources = Sources.model_construct()
    no_upstream: Annotated[str, Field(min_length=1)] | None = None
    matrices: dict[Name, Matrix] = {}
    published: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _rates_of_format(cls, data: Any) -> Any:
        """A built-in format says what its rates are per, unless the rule does."""
        if isinstance(data, dict) and isinstance(rule := data.get("rule"), dict):
            form = logs.formats().get(str(data.get("log_format")))
            if form is not None and "rates_are_per" not in rule:
                return {**data, "rule": {**rule, "rates_are_per": form.rates_are_per}}
        return data

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        self._check_program()
        self._check_rates()
        self._check_parameters()
        self._check_templates()
        self._check_launcher()
        self._check_matrices()
        return self

    def _check_program(self) -> None:
        if bool(self.sources.items()) != bool(self.matrices):
            missing = "matrices" if self.sources.items() else "sources"
            raise entry_error(f"a workload that runs has {missing}", missing, None, missing)
        if self.no_upstream and self.sources.named("upstream"):
            raise entry_error("it has an upstream source", "one of the two", "both", "no_upstream")

    def _check_rates(self) -> None:
        pattern, whose = self.log_pattern, self.rule.rates_are_per
        if pattern is not None and "(?P<step>" not in pattern.regex:
            problem, where = "the expression of a workload has no step", ("log_pattern", "regex")
            raise entry_error(problem, "the group step, too", pattern.regex, *where)
        if pattern is not None and pattern.is_per_step and whose != "step":
            raise entry_error(
                f"the log has {pattern.unit or 'durations'}, which count steps",
                "rates_are_per: step (--rates-are-per step)",
                whose,
                *("rule", "rates_are_per"),
            )
        if pattern is not None and pattern.unit_words.whose not in ("", whose):
            problem, expected = (
                "the sample says otherwise",
                f"rates_are_per: {pattern.unit_words.whose}",
            )
            raise entry_error(problem, expected, whose, "rule", "rates_are_per")
        counted = pattern and (counted_in(pattern.unit) or pattern.unit_words.counted)
        if counted and counted != self.unit:
            raise entry_error("the sample says otherwise", f"unit: {counted}", self.unit, "unit")

    def _check_launcher(self) -> None:
        named: list[tuple[str, tuple[str, ...]]] = [(self.launcher, ("launcher",))]
        for name, source in self.sources.items():
            named.append((self.launcher_of(source, self.parameters), ("sources", name, "launcher")))
        for launcher, where in named:
            refuse_unknown("unknown launcher", launcher, launchers.launchers(), *where)

    def _check_parameters(self) -> None:
        if reserved := [name for name in self.parameters if name in (*RUN_KEYS, "dtype")]:
            problem = "the parameter has a reserved name"
            raise entry_error(problem, "another name", reserved[0], "parameters")
        named: list[tuple[str, tuple[str | int, ...]]] = [
            (name, (key, number))
            for key in ("unmeasured", "if_changed", "of_variant")
            for number, name in enumerate(getattr(self, key))
        ]
        for key, source in self.sources.items():
            conditions = (name for name in source.only if name not in ("variant", "precision"))
            named += [(name, ("sources", key, "only", name)) for name in conditions]
            if not isinstance(data := source.data, DataParameter):
                continue
            at = ("sources", key, "data")
            named += [(data.parameter, (*at, "parameter"))]
            named += [(data.parts, (*at, "parts"))] if data.parts else []
            if data.dataset is not None:
                refuse_unknown("unknown data set", data.dataset, datasets(), *at, "dataset")
        for precision, values in self.of_precision.items():
            whose = ("of_precision", precision)
            refuse_unknown("unknown precision", precision, self.precisions, *whose)
            named += [(name, whose) for name in values]
        for name, where in named:
            refuse_unknown("unknown parameter", name, self.parameters, *where)
        for kind, group in (("matrices", self.matrices), ("variants", self.variants)):
            for key, item in group.items():
                for name in item.parameters:
                    if name not in self.parameters:
                        raise entry_error(
                            "the parameter has no default",
                            f"one of the workload's parameters: {listed(self.parameters)}",
                            name,
                            *(kind, key, "parameters", name),
                        )

    def _check_templates(self) -> None:
        run_keys = {*RUN_KEYS, *self.parameters, *(["dtype"] if self.dtypes else [])}
        for source_name, source in self.sources.items():
            of_preparation = (
                (("prepare", m, "argv", n), text)
                for m, preparation in enumerate(source.prepare)
                for n, text in enumerate(preparation.argv)
            )
            for keys, text in (*source.texts, *of_preparation):
                allowed = PREPARE_KEYS if keys[0] == "prepare" else run_keys
                where = ("sources", source_name, *keys)
                try:
                    names = types.placeholders(text)
                except ValueError as error:
                    raise entry_error(str(error), "{name}", text, *where) from None
                for name in names:
                    refuse_unknown("unknown placeholder", name, sorted(allowed), *where)

    def _check_matrices(self) -> None:
        for name, matrix in self.matrices.items():
            try:
                self.rule_of(name)
            except ValidationError as error:
                problem, _, expected, _, _ = first_mistake(error)
                changed = matrix.rule.model_dump(exclude_none=True)
                raise entry_error(problem, expected, changed, "matrices", name, "rule") from None
            for number, entry in enumerate(matrix.batches):
                where = ("matrices", name, "batches", number)
                if self.dtypes:
                    at = (*where, "precision")
                    refuse_unknown("the precision has no dtype", entry.precision, self.dtypes, *at)
                if entry.variant not in (tuple(self.variants) or ("",)):
                    allowed = f"one of {listed(self.variants)}"
                    raise entry_error("unknown variant", allowed, entry.variant, *where, "variant")
            if self.max_nodes is not None:
                for number, topology in enumerate(matrix.topologies):
                    if topology.nodes > self.max_nodes:
                        most = f"at most {self.max_nodes} (max_nodes)"
                        where = ("matrices", name, "topologies", number)
                        raise entry_error(
                            "too many nodes for this workload", most, str(topology), *where
                        )

    def launcher_of(self, source: Source, parameters: Mapping[str, object]) -> str:
        name = source.launcher or self.launcher
        return str(parameters.get(name[1:-1])) if name.startswith("{") else name

    def rule_of(self, matrix: str) -> Rule:
        """The workload's rule with the changes of the matrix."""
        change = self.matrices[matrix].rule.model_dump(exclude_none=True)
        return Rule.model_validate({**self.rule.model_dump(), **change})

    def measured_parameters(self, source: str, values: Mapping[str, object]) -> dict[str, object]:
        """The identity of the runs of a source, from all their parameters: the data, and
        those parameters that the source uses and that change what is measured."""
        entry = self.sources.named(source)
        if entry is None:
            return dict(values)
        used = {name for _, text in entry.texts for name in types.placeholders(text)}
        usual = {n for n in self.if_changed if str(values.get(n)) == str(self.parameters[n])}
        left_out = {*self.unmeasured, *usual}
        data: object = entry.data
        if isinstance(data, DataParameter):
            left_out.add(data.parameter)
            is_given = data.parameter in values
            data = data_of(values[data.parameter], data.synthetic) if is_given else None
        kept = {name: values[name] for name in values if name in used - left_out}
        return kept if data is None else {"data": data, **kept}

    @property
    def precisions(self) -> tuple[str, ...]:
        """All precisions that the workload supports."""
        if self.dtypes:
            return tuple(self.dtypes)
        entries = (entry for matrix in self.matrices.values() for entry in matrix.batches)
        return tuple(dict.fromkeys(entry.precision for entry in entries))

    def model_name(self, variant: str) -> str:
        return f"{self.model}-{variant}" if variant else self.model

    @property
    def model_names(self) -> tuple[str, ...]:
        """The values of `model=` that select this workload."""
        variants = (self.model_name(variant) for variant in self.variants)
        return tuple(dict.fromkeys((self.model, *variants, *self.families)))

    @property
    def models(self) -> tuple[Model, ...]:
        """The model, or each of its variants."""
        named = {self.model_name(key): v.short_name for key, v in self.variants.items()}
        return tuple(
            Model(self, name, short_name)
            for name, short_name in (named or {self.model: self.short_name}).items()
        )


@dataclass(frozen=True)
class Model:
    """A model of a workload: how the logs of its runs are named and measured."""

    workload: Workload
    name: str
    short_name: str

    @cached_property
    def names(self) -> tuple[str, ...]:
        """All names of the model."""
        return self.short_name, self.name, *self.workload.families, self.workload.model

    @cached_property
    def words(self) -> tuple[str, ...]:
        """All words that name the model or its framework in the name of a log."""
        return *self.names, *names().of_framework(self.workload.framework)

    @property
    def is_published(self) -> bool:
        """True if the rule is that of a publication, which logs must follow."""
        return self.workload.published is not None

    @property
    def synthetic_data(self) -> tuple[str, ...]:
        """The names of data sets that are synthetic. Without a data set, data are synthetic."""
        declared = (source.data for _, source in self.workload.sources.items())
        return ("", *(name for data in declared for name in getattr(data, "synthetic", ())))

    @property
    def transformer(self) -> Transformer | None:
        """The sizes on which the model's FLOPs depend, if they are known."""
        variants = self.workload.variants.items()
        of_name = (
            v.transformer for key, v in variants if self.workload.model_name(key) == self.name
        )
        return next(of_name, None)

    @cached_property
    def _rules(self) -> tuple[Rule, ...]:
        return tuple(map(self.workload.rule_of, self.workload.matrices))

    def rule_of(self, total_steps: int, warmup_steps: int) -> Rule:
        """The rule for a run with these steps: that of a matrix, or else the workload's with a
        proportional number of dropped values."""
        steps = {"total_steps": total_steps, "warmup_steps": warmup_steps}
        for rule in self._rules:
            if (rule.total_steps, rule.warmup_steps) == (total_steps, warmup_steps):
                return rule
        usual = self.workload.rule
        measured = max(total_steps - warmup_steps, 0)
        dropped = usual.drop_first_values * measured // (usual.total_steps - usual.warmup_steps)
        return usual.model_copy(update={**steps, "drop_first_values": dropped})


# Steps are those of the log; the share of the warm-up is that of most workloads of the catalogue.
_RULE = Rule(total_steps=100, warmup_steps=20, estimator="mean_of_rates")


def workload_name(form: Format) -> str:
    """The name of the workload of a program: that of its log format."""
    return form.name.replace("_", "-")


def program_model(
    form: Format, model: str, framework: str | None, workloads: Mapping[str, Workload]
) -> Model:
    """A model that no workload of the catalogue has, with the rates that the format prints. What
    the format does not say is as in the first of the workloads with this format."""
    same = next((w for w in workloads.values() if w.log_format == form.name), None)
    by_format = next(iter(form.frameworks), same.framework if same else "unknown")
    unit = form.unit or (same.unit if same else "samples")
    workload = _program(form, framework or by_format, model, unit)
    return workload.models[0]


def _rule_of_program(form: Format) -> dict[str, object]:
    rule = {**_RULE.model_dump(), "rates_are_per": form.rates_are_per}
    rule["warmup_steps"], rule["total_steps"] = form.warmup
    if form.rates_are_per == "step":  # each is of as many steps, so their durations have a mean
        rule["estimator"] = "harmonic_mean_of_rates"
    if form.whole_run:
        rule |= {"total_steps": 1, "warmup_steps": 0, "estimator": "whole_run"}
    return rule | {"warmup_steps": 0} if form.silent_warmup else rule


@functools.lru_cache(maxsize=256)  # the logs of a tree are of few models
def _program(form: Format, framework: str, model: str, unit: str) -> Workload:
    return Workload.model_validate(
        {
            "name": workload_name(form),
            "title": form.name,
            "framework": framework,
            "model": model,
            "short_name": model,
            "log_format": form.name,
            "unit": unit,
            "rule": _rule_of_program(form),
        }
    )
