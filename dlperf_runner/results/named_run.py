"""Identify the run of a log outside a campaign: from its name and directories, from what the user
states, and from what the log itself states. Sources that contradict each other are refused."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from .. import logs
from ..catalog.accelerators import may_use_tf32
from ..catalog.log_pattern import names
from ..catalog.workload import Model, Workload, program_model, workload_name
from ..core.case import Topology
from ..core.errors import UserError
from ..core.identity import RECIPES, as_batch_size
from ..core.units import BANDWIDTH, TOKENS
from ..measure.settings import same_precision
from .log_file import LogFile
from .log_head import (
    UNKNOWN_COLLECTIVE,
    accumulation_of,
    batch_of,
    head_of,
    headers_of,
    is_network_of,
    same_network,
)
from .log_name import (
    BY_NAME,
    PRODUCT,
    PathWords,
    size_of,
    stem_of,
    telling_words,
    topology_of_directory,
    words_of,
)
from .run_record import FoundRun
from .statement import Stated, Statement, words

FLAT_DEVICES_PER_NODE = 8  # as in the cluster of the NGC report; the names do not give the nodes
ASSUMED_NODES = (
    "the log names do not contain the number of nodes: assuming"
    f" {FLAT_DEVICES_PER_NODE} devices per node"
)
ASSUMED_BATCH = (
    "batch size unknown: neither names nor logs state it, so that a speed-up holds only if the runs"
    " of its table have the same; state it with --batch-size, or in mapping.yml"
)
ASSUMED_PRODUCT = "a directory such as 2x8 is taken as nodes x devices of a node"
_DIRECTORY = "the directory "
_PARTS = re.compile(r"[^a-z0-9]+")
# What messages call the fields of a statement.
_BACKBONE = re.compile(r"(?:r|rn|resnet|resnext|vgg|mobilenet|swin|vit|darknet|hrnet)\d")
# Words that say when or why something ran, and so are no part of a model's name.
_OF_THE_RUN = frozenset(
    ("nightly", "daily", "weekly", "bench", "benchmark", "perf", "baseline", "test", "debug", "ci")
)
_SETTINGS = {"batch_size": "batch size", "topology": "world size", "model": "network"}


@dataclass
class Candidates:
    """The models that logs may be of. `runs`: those that were identified without the content of
    their logs, by format and name without the repeat."""

    models: Sequence[Model]
    runs: dict[tuple[logs.Format, PathWords], FoundRun] = field(default_factory=dict)

    @cached_property
    def of_user(self) -> Sequence[Model]:
        """The models whose entry describes the log format."""
        return [model for model in self.models if model.workload.log_pattern]

    @cached_property
    def user_formats(self) -> Mapping[str, logs.Format]:
        """The log formats that these entries describe, by name."""
        patterns = {m.workload.log_format: m.workload.log_pattern for m in self.of_user}
        return {name: one.format_named(name) for name, one in patterns.items() if one}


def named_run(
    log: LogFile, path_words: PathWords, candidates: Candidates, statement: Statement
) -> FoundRun:
    """The run of a log. Raises UserError if it cannot be identified."""
    key = log.form, path_words._replace(repeat=None)
    if not statement and (other_repeat := candidates.runs.get(key)):
        number = 1 if path_words.repeat is None else path_words.repeat
        return other_repeat.but(path=log.path, repeat=number)
    identification = _Identification(log, path_words, candidates.models, statement)
    run = identification.run()
    if not statement and not identification.has_read_log:
        candidates.runs[key] = run
    return run


def is_named_like_a_run(path_words: PathWords) -> bool:
    """True if the name has the settings of a run. Such a file is damaged if it has no rates."""
    return path_words.batch_size is not None and path_words.precision is not None


def words_at(path: Path, directories: Sequence[str]) -> PathWords:
    """The settings in a path. Raises UserError if the name contradicts itself."""
    try:
        return words_of(stem_of(path.name) or path.stem, directories)
    except ValueError as error:
        raise UserError(str(error), where=str(path), found=path.name) from None


def named_formats(
    path_words: PathWords, candidates: Candidates, statement: Statement
) -> Mapping[str, logs.Format]:
    """The formats of the user's workloads that a statement, or else the path, names."""
    stated = (
        [statement["model"].value]
        if "model" in statement
        else [*path_words.first, *path_words.others]
    )
    named = [model for model in candidates.of_user if not {*stated}.isdisjoint(model.names)]
    names_of_formats = sorted({model.workload.log_format for model in named})
    return {name: candidates.user_formats[name] for name in names_of_formats}


class _Identification:
    """The sources of one log. `head` is read only if it is needed."""

    def __init__(
        self, log: LogFile, path_words: PathWords, models: Sequence[Model], statement: Statement
    ) -> None:
        self.log = log
        self.path = log.path
        self.words = path_words
        self.statement = statement
        self.models = models
        self.asserted: list[tuple[str, str]] = []
        if self._is_named_by_directory():
            first = (*path_words.first, str(path_words.model_directory))
            path_words = self.words = path_words._replace(first=first)
        entry = _entry(log, path_words, models, statement, lambda: self.headers)
        if entry is None:
            raise self._without_model()
        self.entry = entry
        self.similar = _similar(entry, models) if "model" in statement else None
        self.other_models = [*_other_models(log, path_words, models, statement)]

    def _is_named_by_directory(self) -> bool:
        """True if only a directory names the model."""
        if self.words.model_directory is None or "model" in self.statement:
            return False
        by_name = [*_model_words(self.words, self.models), *_unknown(self.words)]
        return not by_name and not any(header.network for header in self.headers)

    @property
    def rank(self) -> str | None:
        stated = self.statement.get("rank")
        return str(stated.value) if stated else None

    @cached_property
    def headers(self) -> Sequence[logs.Header]:
        return headers_of(self.log, self.rank)

    @property
    def has_read_log(self) -> bool:
        return "headers" in vars(self)

    @cached_property
    def head(self) -> Mapping[str, Stated]:
        return head_of(self.headers)

    def run(self) -> FoundRun:
        for setting in ("framework", "total_steps", "warmup_steps"):
            self._assert(setting, filter(None, [self.statement.get(setting)]))
        by_name = [Stated(self.entry.name, BY_NAME)] if self.words.first else []
        self._assert("model", [*filter(None, [self.statement.get("model")]), *by_name])
        try:
            topology = self._topology()
            batch = self._batch_size(topology.world_size)
            accelerator = self._accelerator()
            precision = self._precision(accelerator)
        except _MissingError as error:
            raise self._all_missing(error) from None
        repeat = self._agreed("repeat", self._stated_by_user_or_name("repeat"))
        parameters = tuple(self._stated_parameters())
        steps, warmup = self._stated("total_steps"), self._stated("warmup_steps")
        warmup = None if self.log.form.whole_run else warmup
        rule = self.entry.workload.rule
        if steps is not None or warmup is not None:
            warmup = rule.warmup_steps if warmup is None else warmup
            rule = self.entry.rule_of(steps or rule.total_steps, warmup)
        return FoundRun(
            path=self.path,
            workload=self.entry.workload.name,
            framework=self.entry.workload.framework,
            model=self.entry.name,
            precision=precision,
            batch_size_per_device=batch,
            topology=topology,
            repeat=1 if repeat is None else repeat,  # some count from 0
            rule=rule,
            log_format=self.log.form.name,
            expected_by=BY_NAME,
            unit=self.entry.workload.unit,
            stated_by=tuple(self._stated_by().items()),
            accelerator=accelerator,
            asserted=tuple(self.asserted),
            rank=self.rank,
            stated_parameters=parameters,
            assumed=(*self._assumed(), *((ASSUMED_BATCH,) if batch is None else ())),
            first_step=self._stated("first_step"),
            log_every=self._stated("log_every"),
            other_words=" ".join((*self._unused_words(), *self.words.others)),
        )

    def _stated_by(self) -> dict[str, str]:
        """The sources of the settings that the user states, and of those that follow from them."""
        stated = {_SETTINGS.get(field, field): s.by for field, s in self.statement.items()}
        if "global_batch_size" in stated:
            stated.setdefault("batch size", stated["global_batch_size"])
        elif self.words.global_batch_size is not None:
            stated["global_batch_size"] = self.words.by
        if "world size" in stated:
            stated["number of nodes"] = stated["world size"]
        of_global = dict(self.asserted).get("batch_size_per_device", stated.get("world size"))
        return stated if of_global is None else {**stated, "global batch size": of_global}

    def _unused_words(self) -> Iterator[str]:
        """The words before the first setting that name nothing."""
        for word in self.words.first:
            of_model = word in self.entry.words or word in self.entry.name.split("-")
            is_network = names().is_model(word) and word not in self.other_models
            is_known = is_network or names().framework_of(word)
            if not of_model and not is_known and word != self.entry.name:
                yield word

    def _assumed(self) -> Iterator[str]:
        if self._nodes_are_assumed:
            yield ASSUMED_NODES
        if PRODUCT.fullmatch(self.words.topology_directory or ""):
            yield ASSUMED_PRODUCT
        if self.log.form.caveat:
            yield f"{self.log.form.name}: {self.log.form.caveat}"
        if self.log.form.whole_run and self._stated("warmup_steps"):
            by = self.statement["warmup_steps"].by
            yield f"the warm-up of {by} is not left out: a log has one rate of the whole run"
        if self.similar:
            yield f"no workload has the model {self.entry.name}; did you mean {self.similar}?"

        for word in self.other_models:
            model = self.statement["model"]
            yield f"the file name says {word}; {model.value} of {model.by} counts"

    def _stated_parameters(self) -> Iterator[tuple[str, str]]:
        for name in ("accumulation_steps", "sequence_length"):
            if name in self.statement:
                self._assert(name, [self.statement[name]])
                yield name, str(self.statement[name].value)

    def _without_model(self) -> UserError:
        """The error of a log that nothing says the model of, with all else that is missing."""
        if self.words.batch_size is None and self.words.precision is None:
            options = ", ".join(("--model", *self._needed_with_model()))
            return UserError(
                f"the file name does not identify the run of this {self.log.form.name} log",
                where=str(self.path),
                expected="a name like rn50_b128_fp32_1.log or tf_gpu8_amp_bs256.txt",
                found=self.path.name,
                hint=f"state what ran with {options}, or in mapping.yml",
            )
        return self._missing("model", "a name like rn50_b128_fp32_1.log", "--model")

    def _needed_with_model(self) -> Iterator[str]:
        """The options of what is needed whatever the model is, and nothing states."""
        words, world = self.words, self.head.get("world_size")
        places = (words.topology, words.topology_directory, words.devices)
        if (
            not any(places)
            and "topology" not in self.statement
            and not (world and (world.value == 1 or words.nodes))
        ):
            yield "--topology"
        batches = {"batch_size", "global_batch_size"}
        if (
            self.log.form.rates_are_per == "step"
            and not batches & {*self.statement, *self.head}
            and not any(h.tokens_per_step for h in self.headers)
            and batch_of(self.headers, self.log.form, 1)[0] is None
        ):
            yield "--batch-size"
        if not words.precision and not {"precision"} & {*self.statement, *self.head}:
            yield "--precision"
        if self._lacks_sequence_length():
            yield "--sequence-length"

    def _lacks_sequence_length(self) -> bool:
        """True if tokens/s need the sequence length, which nothing states."""
        form = self.log.form
        units = [m.workload.unit for m in self.models if m.workload.log_format == form.name]
        return (
            form.rates_are_per == "step"
            and (TOKENS in units or (not units and form.unit == TOKENS))
            and "sequence_length" not in self.statement
            and not any(h.tokens_per_step for h in self.headers)
            and not any("sequence_length" in dict(h.parameters) for h in self.headers)
        )

    def _all_missing(self, first: _MissingError) -> UserError:
        """The error of all settings that nothing states, of which `first` is one."""
        errors, batch = {first.option: first}, None
        for find in (
            self._topology,
            lambda: self._batch_size(1),
            lambda: self._precision(self._accelerator()),
        ):
            try:
                value = find()
                batch = batch or (isinstance(value, int | float) and value)
            except _MissingError as error:
                errors.setdefault(error.option, error)
            except UserError:
                continue  # of what depends on a setting that is missing
        if self._lacks_sequence_length():
            length = self._missing("sequence length", "", "--sequence-length")
            errors.setdefault(length.option, length)
        what = " and the ".join(
            error.problem.removeprefix("cannot determine the ") for error in errors.values()
        )
        is_asked = batch or {"--batch-size", "--global-batch-size"} & errors.keys()
        optional = "" if is_asked else " (and --batch-size, if you know it)"
        return UserError(
            f"cannot determine the {what}",
            where=first.where,
            expected=first.expected
            if len(errors) == 1
            else "a path like 4n8g/rn50_b128_fp32_1.log",
            found=first.found,
            hint=f"state {'it' if len(errors) == 1 else 'them'} with {', '.join(errors)}{optional},"
            " or in mapping.yml",
        )

    def _stated(self, field: str) -> int | None:
        stated = self.statement.get(field)
        return stated and int(stated.value)

    def _stated_by_user_or_name(self, field: str) -> Iterator[Stated]:
        """The statements of the user and of the file name about a field."""
        if field in self.statement:
            yield self.statement[field]
        if (value := getattr(self.words, field, None)) is not None:
            yield Stated(value, self.words.by)

    def _assert(self, name: str, statements: Iterable[Stated]) -> None:
        """Remember the first of these statements, which are not those of the log."""
        for stated in [*statements][:1]:
            by_path = stated.by.startswith(_DIRECTORY)
            self.asserted.append((name, "the directory name" if by_path else stated.by))

    def _in_log(self, field: str, *, needed: bool) -> Iterator[Stated]:
        """The log's statement, if it is needed or could contradict another one."""
        if (needed or field in self.statement) and field in self.head:
            yield self.head[field]

    def _agreed(
        self,
        field: str,
        statements: Iterator[Stated] | Sequence[Stated],
        of_directories: Sequence[tuple[Any, str]] = (),
    ) -> Any:
        """The value that all sources give, and the directories if no log and no option does; None
        if there is none."""
        statements, hint = [*statements], None
        if {stated.by for stated in statements} <= {BY_NAME}:
            others = [Stated(*named) for named in of_directories]
            statements += others
            hint = f"state the right one with --{field.replace(' ', '-')}, or in mapping.yml"
        first: Stated | None = None
        for stated in statements:
            first = first or stated
            if stated.value != first.value and not same_precision(stated.value, first.value):
                raise UserError(
                    f"the {words(field)} in {stated.by} contradicts {first.by}",
                    where=str(self.path),
                    expected=str(first.value),
                    found=str(stated.value),
                    hint=hint,
                )
        return first and first.value

    def _batch_size(self, world_size: int) -> float | None:
        """The batch size per device; None if nothing states it and rates count no steps."""
        if self.entry.workload.unit == BANDWIDTH:
            return 1  # it has none
        statements = [Stated(size_of(d), f"{_DIRECTORY}{d}") for d in self.words.batch_directories]
        statements += self._stated_by_user_or_name("batch_size")
        if stated := next(self._stated_by_user_or_name("global_batch_size"), None):
            shared = world_size * self._accumulated()
            statements.append(Stated(as_batch_size(stated.value / shared), stated.by))
        self._assert("batch_size_per_device", statements)
        if not statements or "batch_size" in self.statement:
            in_log, one_batch = batch_of(self.headers, self.log.form, world_size)
            if in_log and not (statements and statements[0].value == one_batch):
                statements.append(in_log)
        if any(stated.value == 0 for stated in statements):
            raise UserError(
                "the batch size must be at least 1", where=str(self.path), found=self.path.name
            )
        batch = self._agreed("batch size", statements, self.words.batches if statements else ())
        tokens = self.entry.workload.unit == TOKENS and any(h.tokens_per_step for h in self.headers)
        if batch is None and self.log.form.rates_are_per == "step" and not tokens:
            option = "--batch-size"
            if self.log.form.accumulates and (accumulation_of(self.headers) or 1) > 1:
                option = "--global-batch-size"
            raise self._missing("batch size", "a name like rn50_b128_fp32_1.log", option)
        if batch is None:
            return None
        return float(batch) if isinstance(batch, float) else int(batch)

    def _accumulated(self) -> int:
        """The batches of a step that the batch size per device does not count."""
        if self.log.form.batch_of_step:
            return 1
        stated = self._stated("accumulation_steps")
        return stated or accumulation_of(self.headers) or 1

    def _precision(self, accelerator: str | None) -> str:
        statements = [*self._stated_by_user_or_name("precision")]
        self._assert("precision", statements)
        if not statements or statements[0].value not in RECIPES:  # a log states these as a recipe
            statements += self._in_log("precision", needed=not statements)
        dtypes = self.entry.workload.dtypes
        if not statements and len(dtypes) == 1 and self.headers:  # it would state another one
            return next(iter(dtypes))
        of_directories = self.words.precisions if statements else ()
        precision = self._agreed("precision", statements, of_directories)
        if precision is None:
            raise self._missing("precision", "a name like rn50_b128_fp32_1.log", "--precision")
        if "|" not in str(precision):
            return str(precision)
        if self._is_on_cpu or not may_use_tf32(accelerator):
            return "fp32"
        raise UserError(
            "cannot determine the precision: without mixed precision, products of matrices are FP32"
            " or TF32",
            where=str(self.path),
            expected="fp32 or tf32, which is the default of A100 and newer GPUs in most frameworks",
            found=f"{self.head['precision'].by}, which states neither",
            hint="state it with --precision tf32 or --precision fp32, or in mapping.yml; an older"
            " GPU, named with --accelerator, has no TF32",
        )

    @property
    def _is_on_cpu(self) -> bool:
        return any(("cpu", "True") in header.parameters for header in self.headers)

    def _accelerator(self) -> str | None:
        """The stated product, which may be more specific than the name: V100-SXM2-16GB and v100."""
        statements = [*self._stated_by_user_or_name("accelerator")]
        if directory := self.words.accelerator_directory:
            statements.append(Stated(directory[1], f"{_DIRECTORY}{directory[0]}"))
        self._assert("accelerator", statements)
        if not statements:
            return None
        first = str(statements[0].value)
        parts = _PARTS.split(first.lower())
        if any(str(other.value).lower() not in parts for other in statements[1:]):
            self._agreed("accelerator", statements)
        return first or None

    @property
    def _nodes_are_assumed(self) -> bool:
        """True if only the number of devices is known, and 8 of them are taken for a node."""
        is_stated = (
            "topology" in self.statement or self.words.topology or self.words.topology_directory
        )
        return self.words.devices is not None and not is_stated

    def _topology(self) -> Topology:
        statements = []
        if directory := self.words.topology_directory:
            statements.append(Stated(topology_of_directory(directory), f"{_DIRECTORY}{directory}"))
        statements += self._stated_by_user_or_name("topology")
        topology: Topology | None = self._agreed("topology", statements)
        worlds = [Stated(topology.world_size, statements[0].by)] if topology else []
        named = self.words.devices
        in_log = self.head.get("world_size") if named == FLAT_DEVICES_PER_NODE else None
        if named and in_log and not topology and in_log.value > named and not in_log.value % named:
            topology = Topology(in_log.value // named, named)  # those of a node
            statements, worlds = [Stated(topology, BY_NAME)], [in_log]
        elif named is not None and not (topology and named == topology.gpus_per_node):
            worlds.append(Stated(named, BY_NAME))
        if not worlds or "topology" in self.statement:
            worlds += self._in_log("world_size", needed=True)
        devices: int | None = self._agreed("number of devices", worlds)
        if topology is None:
            topology = self._from_devices(devices)
            statements = [Stated(topology, BY_NAME)] if self.words.devices is not None else []
        self._assert("topology", statements)
        return topology

    def _from_devices(self, devices: int | None) -> Topology:
        if devices is not None and self.words.devices is not None:
            return self._flat(devices)
        nodes = int(self.head["nodes"].value) if "nodes" in self.head else self.words.nodes
        if devices and nodes and devices % nodes == 0:
            return Topology(nodes, devices // nodes)
        if devices == 1 or (devices and self.entry.workload.max_nodes == 1):
            return Topology(1, devices)
        raise self._missing(
            "number of nodes and devices",
            "a parent directory or a name with a topology like 4n8g",
            "--topology",
            f"{devices} devices in the log" if devices else None,
        )

    def _flat(self, devices: int) -> Topology:
        if 1 <= devices <= FLAT_DEVICES_PER_NODE:
            return Topology(1, devices)
        if devices and devices % FLAT_DEVICES_PER_NODE == 0:
            return Topology(devices // FLAT_DEVICES_PER_NODE, FLAT_DEVICES_PER_NODE)
        raise UserError(
            "cannot determine the number of nodes from the file name",
            where=str(self.path),
            expected=f"1 to {FLAT_DEVICES_PER_NODE} devices, or a multiple"
            f" of {FLAT_DEVICES_PER_NODE}",
            found=str(devices),
            hint="state it with --topology, or in mapping.yml",
        )

    def _missing(
        self, what: str, expected: str, option: str, in_log: str | None = None
    ) -> _MissingError:
        return _MissingError(
            f"cannot determine the {what}",
            where=str(self.path),
            expected=expected,
            found=in_log or self.path.name,
            hint=f"state it with {option}, or in mapping.yml",
            option=option,
        )


class _MissingError(UserError):
    """An error about a setting that nothing states. `option` states it."""

    def __init__(self, problem: str, *, option: str, **more: str | None) -> None:
        super().__init__(problem, **more)
        self.option = option


# ---- what ran


def entry_of(run: FoundRun, form: logs.Format, models: Sequence[Model]) -> Model | None:
    """The model of a run, of the catalogue or of a program; None if a campaign's is unknown."""
    of_name = (entry for entry in models if entry.name == run.model)
    entry = next((entry for entry in of_name if entry.workload.name == run.workload), None)
    if entry is None and run.workload == workload_name(form):
        return program_model(form, run.model, run.framework, _workloads(models))
    return entry


def _similar(entry: Model, models: Sequence[Model]) -> str | None:
    """The name of a model of the catalogue that is spelt like that of an unknown one."""
    names_of_models = {name for model in models for name in model.names}
    if entry.name in names_of_models:
        return None
    return next(
        iter(difflib.get_close_matches(entry.name, sorted(names_of_models), 1, cutoff=0.85)), None
    )


def _workloads(models: Sequence[Model]) -> dict[str, Workload]:
    return {model.workload.name: model.workload for model in models}


def _entry(
    log: LogFile,
    path_words: PathWords,
    models: Sequence[Model],
    statement: Statement,
    headers: Callable[[], Sequence[logs.Header]],
) -> Model | None:
    """The catalogue entry of a log: that of its format which every telling word and statement
    fits. Else, what a program with this format trains; None if nothing says that."""
    same_format = [entry for entry in models if entry.workload.log_format == log.form.name]
    fitting = same_format
    if stated := statement.get("framework"):
        fitting = [e for e in fitting if stated.value in names().of_framework(e.workload.framework)]
    framework = _framework(log, path_words, same_format, statement)
    if framework and "framework" not in statement:
        fitting = [entry for entry in fitting if entry.workload.framework == framework]
    telling = [*_model_words(path_words, models)]
    model = None
    if stated := statement.get("model"):
        model = stated.value
        fitting = [entry for entry in fitting if model in entry.names]
        others = [*_other_models(log, path_words, models, statement)]
        _refuse_other(log, others, stated, headers)
    else:
        of_format = {word for word in telling if any(word in e.names for e in same_format)}
        for word in of_format or telling:
            fitting = [entry for entry in fitting if word in entry.names]
        if of_format and not fitting and len(of_format) > 1:
            first, second, *_ = sorted(of_format)
            raise UserError(
                "the file name names two models",
                where=str(log.path),
                expected=first,
                found=second,
                hint="state what ran with --model, or in mapping.yml",
            )
    if len(fitting) > 1 and framework is None:
        # A format is of one framework; programs of others name their network differently.
        fitting = [e for e in fitting if e.workload.framework in log.form.name] or fitting
    if len(fitting) == 1 and model is None and _is_other(fitting[0], headers(), telling):
        fitting = []
    if len(fitting) == 1 and (model or telling or (framework and path_words.first)):
        return fitting[0]
    if fitting and (model or telling or framework):
        network = next((h.network for h in headers() if h.network), "")
        if len(named := [entry for entry in fitting if network.lower() in entry.names]) == 1:
            return named[0]
        raise UserError(
            f"several workloads of the catalogue have {log.form.name} logs with this name",
            where=str(log.path),
            expected="one of " + ", ".join(f"{e.short_name} ({e.workload.name})" for e in fitting),
            found="_".join(path_words.first) or log.path.name,
            hint="state it with --model and --framework, or in mapping.yml",
        )
    model = model or _network(log, headers(), telling)
    model = model or _as_name("-".join(_label(path_words, telling)))
    return program_model(log.form, model, framework, _workloads(models)) if model else None


def _is_other(entry: Model, headers: Sequence[logs.Header], words: Sequence[str]) -> bool:
    """True if the log states another network than that of an entry, and the words of its name may
    name that one: rn50 both resnet50_v1 and resnet50_v1b."""
    network = next((header.network for header in headers if header.network), None)
    if not network or not words or is_network_of(network, entry):
        return False
    return any(all(same_network(word, name) for word in words) for name in network.split("|"))


def _framework(
    log: LogFile, path_words: PathWords, same_format: Sequence[Model], statement: Statement
) -> str | None:
    """The framework that the user or the name states. Raises UserError if the format is of
    another one."""
    possible = {entry.workload.framework for entry in same_format}
    possible |= {*log.form.frameworks}
    by_name = [Stated(word, BY_NAME) for word in (*path_words.first, *path_words.others)]
    stated = statement.get("framework")
    for word, by, _ in [stated] if stated else by_name:
        named = names().framework_of(word)
        if named is None:
            continue
        fitting = [f for f in possible if word in names().of_framework(f)]
        if possible and not fitting and possible & {*names().frameworks}:
            raise UserError(
                f"the log is of another framework than {by} says",
                where=str(log.path),
                expected=word,
                found=f"a {log.form.name} log, of {', '.join(sorted(possible))}",
                hint="state it with --framework, or in mapping.yml",
            )
        return fitting[0] if fitting else named
    return None


def _model_words(path_words: PathWords, models: Sequence[Model]) -> Iterator[str]:
    for word in (*path_words.first, *path_words.others):
        is_known = any(word in entry.names for entry in models)
        if is_known or (names().is_model(word) and names().framework_of(word) is None):
            yield word


def _other_models(
    log: LogFile, path_words: PathWords, models: Sequence[Model], statement: Statement
) -> Iterator[str]:
    """The words that name another model than the stated one: of this format, or of a known family.
    One that is only a name of another program's model is none here."""
    if (stated := statement.get("model")) is None:
        return
    same_format = [entry for entry in models if entry.workload.log_format == log.form.name]
    same = {name for entry in same_format if stated.value in entry.names for name in entry.names}
    for word in _model_words(path_words, models):
        is_other = names().is_model(word) or any(word in entry.names for entry in same_format)
        if is_other and word not in same and not same_network(word, stated.value):
            yield word


_REPEAT = re.compile(r"(?<=_)\d{1,3}(?=\.\w+$)")


def _refuse_other(
    log: LogFile,
    others: Sequence[str],
    stated: Stated,
    headers: Callable[[], Sequence[logs.Header]],
) -> None:
    """Raise UserError if a name says another model than what the user states about all logs, and
    the log does not confirm it."""
    if not others or stated.is_of_log:
        return
    if not any(h.network and same_network(stated.value, h.network) for h in headers()):
        raise UserError(
            f"the file name contradicts {stated.by}",
            where=str(log.path),
            expected=stated.value,
            found=others[0],
            # One for all repeats, so that their problems become one.
            hint="what is stated about these logs alone wins: in mapping.yml, logs:"
            f' {{"**/{_REPEAT.sub("*", log.path.name)}": {{model: {stated.value}}}}}',
        )


def _label(path_words: PathWords, telling: Sequence[str]) -> Sequence[str]:
    """The words that name a model without an entry. A network behind other words may be a part of
    it, as r50 in mask_rcnn_r50_fpn is."""
    if not telling:
        return [*_unknown(path_words)]
    words = [w for w in path_words.first if w in telling or _may_name(w)]
    words = [w for w in words if w not in _OF_THE_RUN]
    is_part = words and words[0] not in telling and any(map(_BACKBONE.match, telling))
    return words if is_part else telling


def _unknown(path_words: PathWords) -> Iterator[str]:
    """The words before the first setting, which in most layouts name what ran."""
    if path_words.batch_size is None and path_words.precision is None:
        return
    yield from filter(_may_name, path_words.first)


def _may_name(word: str) -> bool:
    """True if a word is not a framework's, and says something."""
    return names().framework_of(word) is None and bool(telling_words(word))


def _network(log: LogFile, headers: Sequence[logs.Header], words: Sequence[str]) -> str | None:
    """The network that the log of a program states, with - for what no name of a model has;
    UNKNOWN_COLLECTIVE if it can be one of several. Raises UserError if a word of the log's name
    names another one."""
    stated = next((h for h in headers if h.network is not None), None)
    if stated is None or stated.network is None:
        return None
    possible = stated.network.split("|")
    fitting = [name for name in possible if all(same_network(word, name) for word in words)]
    if not fitting:
        raise UserError(
            "the network contradicts the file name",
            where=f"{log.path}:{stated.line}",
            expected=next(w for w in words if not all(same_network(w, name) for name in possible)),
            found=stated.network.replace("|", " or "),
            hint="state it with --model, or in mapping.yml",
        )
    if len(fitting) > 1:
        fitting = _in_name(fitting, log.path.name)
    if len(fitting) != 1:
        return _as_name(UNKNOWN_COLLECTIVE)
    # A word may say more: resnet50 of a log with network='resnet'.
    longer = [word for word in words if word.lower().startswith(fitting[0].lower())]
    return _as_name((longer or fitting)[0])


def _in_name(networks: Sequence[str], name: str) -> list[str]:
    """Those of the networks that the name of a log has, but for those that are a part of another
    one: all_gather of nccl_AllGather.log, and not gather."""
    plain = _PARTS.sub("", name.lower())
    named = [network for network in networks if _PARTS.sub("", network) in plain]
    return [n for n in named if not any(n != other and n in other for other in named)]


def _as_name(text: str) -> str | None:
    """The text with - for what no name of a model has; None if nothing is left."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-._") or None
