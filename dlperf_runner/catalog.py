"""The only reader of catalog/: frameworks, workloads and stacks as frozen, checked values.

Every mistake is a UserError that names file and line, key, what was expected and what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, TypeVar

import yaml
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    StrictFloat,
    StrictInt,
    StrictStr,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError

from . import launchers, template
from .case import Topology
from .errors import UserError

CATALOG = Path(__file__).parent / "catalog"

# What an argv template may name besides the workload's own parameters.
RUN_KEYS = (
    "python",
    "workload",
    "framework",
    "model",
    "source",
    "precision",
    "batch_size_per_device",
    "global_batch_size",
    "nodes",
    "gpus_per_node",
    "world_size",
    "total_steps",
    "warmup_steps",
    "repeat",
)
# What an argv of `prepare` may name: it knows the node, and no run.
PREPARE_KEYS = ("python", "directory")


def _wrong(problem: str, expected: str, found: object, *keys: str | int) -> PydanticCustomError:
    """An error at `keys` below the model that raises it."""
    context = {"expected": expected, "found": _show(found), "keys": keys}
    return PydanticCustomError("dlperf", problem, context)


def _show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _topology(value: object) -> Topology:
    if isinstance(value, str):
        try:
            return Topology.parse(value)
        except ValueError:
            pass
    raise _wrong("this is no topology", "nodes and devices, like 2n8g", value)


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or value in ("", "."):
        raise _wrong("this path leads out of its tree", "a relative path without ..", value)
    return value


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise _wrong(f"{error}", "a regular expression", value) from None
    return value


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
RelativePath = Annotated[str, AfterValidator(_relative)]
Regex = Annotated[str, AfterValidator(_regex)]
Count = Annotated[StrictInt, Field(ge=1)]
CountOrNone = Annotated[StrictInt, Field(ge=0)]
TopologyText = Annotated[Topology, PlainValidator(_topology), PlainSerializer(str, return_type=str)]
Value = StrictStr | StrictInt | StrictFloat
Parameters = dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Value]


class _Model(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                if key not in cls.model_fields:
                    known = f"one of {', '.join(cls.model_fields)}"
                    raise _wrong("unknown key", known, key, str(key))
        return data


class Horovod(_Model):
    """How Horovod is built for a framework, and the module whose import proves it."""

    version: str
    requirements: RelativePath
    build_requirements: RelativePath
    build_environment: dict[str, str] = {}
    module: str
    apt_build_packages: tuple[str, ...] = ()


class Environment(_Model):
    """A framework's virtual environment on the nodes of one stack."""

    python: str
    requirements: RelativePath
    distribution: str | None = None  # the framework's own among the requirements; None: its name
    horovod: Horovod | None = None


class Framework(_Model):
    """A deep-learning framework, and its environment per stack."""

    name: Name
    title: str
    import_name: str
    tensor: str | None = None  # dotted name of what makes a tensor of a list, for proofs
    environments: dict[str, Environment]


class Stack(_Model):
    """Everything below the frameworks that a generation of nodes runs."""

    name: Name
    title: str
    accelerator: Literal["cpu", "gpu"]
    suites: tuple[str, ...] = ()
    apt_packages: dict[str, tuple[str, ...]] = {}


class Rule(_Model):
    """How a run's log becomes one number, as its publication did it.

    Steps count from 1; the first `warmup_steps` are not measured. `log_every`: the log has a line
    every n steps. `rates_are_per`: what a printed rate counts. `drop_first_values`: printed rates
    that are left out besides the warm-up. `round_rates_to`: digits to which each is rounded first.
    `final_value_from_world_size`: from this many devices on, the log's own final value counts.
    """

    total_steps: Count
    warmup_steps: CountOrNone
    estimator: Name
    log_every: Count = 1
    rates_are_per: Literal["world", "node", "device"] = "world"
    drop_first_values: CountOrNone = 0
    round_rates_to: CountOrNone | None = None
    final_value_from_world_size: Count | None = None

    @model_validator(mode="after")
    def _something_is_measured(self) -> Rule:
        if self.warmup_steps >= self.total_steps:
            raise _wrong(
                "no step is left to measure",
                f"fewer warm-up steps than total_steps, {self.total_steps}",
                self.warmup_steps,
                "warmup_steps",
            )
        return self


class RuleChange(_Model):
    """What a matrix changes in its workload's rule."""

    total_steps: Count | None = None
    warmup_steps: CountOrNone | None = None
    log_every: Count | None = None
    drop_first_values: CountOrNone | None = None


class BatchEntry(_Model):
    precision: Name
    batch_size_per_device: Count
    variant: str = ""


class Matrix(_Model):
    """The cases that belong together: every batch on every topology, `repeats` times."""

    topologies: Annotated[tuple[TopologyText, ...], Field(min_length=1)]
    batches: Annotated[tuple[BatchEntry, ...], Field(min_length=1)]
    repeats: Count = 1
    rule: RuleChange = RuleChange()
    parameters: Parameters = {}
    timeout_s: Count = 3600


class Variant(_Model):
    """One of several networks that a workload trains; its model is `<model>-<variant>`."""

    short_name: Name
    parameters: Parameters = {}


class Patch(_Model):
    """One declared change of an upstream file: `pattern` (multi-line mode) must match exactly
    `count` times and becomes `replacement`, in which \\1 stands for a group."""

    file: RelativePath
    pattern: Regex
    replacement: str
    reason: str
    count: Count = 1


class AddedFile(_Model):
    """A file of a few lines that the upstream source needs and does not have."""

    file: RelativePath
    content: str
    reason: str


class Preparation(_Model):
    """A command that runs once on a node, before its first run: `creates` is there afterwards."""

    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    creates: Annotated[str, Field(pattern=r"^/")]


class _Source(_Model):
    argv: Annotated[tuple[str, ...], Field(min_length=1)]
    prepare: tuple[Preparation, ...] = ()
    environment: dict[str, str] = {}
    on_cpu: tuple[str, ...] = ()
    on_gpu: tuple[str, ...] = ()
    on_precision: dict[str, tuple[str, ...]] = {}


class BuiltinSource(_Source):
    """Files of this repository, copied side by side into one directory of the node."""

    files: Annotated[tuple[RelativePath, ...], Field(min_length=1)]


class UpstreamSource(_Source):
    """A repository at a commit. `directory` is where the command runs; `paths` are what is taken
    of the repository (default: that directory); `files` of this repository are put beside it,
    into `directory`."""

    repository: Annotated[str, Field(pattern=r"^[A-Za-z0-9-]+/[A-Za-z0-9._-]+$")]
    commit: Annotated[str, Field(pattern=r"^[0-9a-f]{40}$")]
    directory: RelativePath
    paths: tuple[RelativePath, ...] = ()
    patches: tuple[Patch, ...] = ()
    added_files: tuple[AddedFile, ...] = ()
    files: tuple[RelativePath, ...] = ()

    @property
    def taken(self) -> tuple[str, ...]:
        return self.paths or (self.directory,)


class Sources(_Model):
    builtin: BuiltinSource | None = None
    upstream: UpstreamSource | None = None

    def items(self) -> list[tuple[str, BuiltinSource | UpstreamSource]]:
        pairs = (("builtin", self.builtin), ("upstream", self.upstream))
        return [(name, source) for name, source in pairs if source is not None]

    def named(self, name: str) -> BuiltinSource | UpstreamSource | None:
        return dict(self.items()).get(name)


class Workload(_Model):
    """A model trained by a framework: where its source is, how it starts, what its log means."""

    name: Name
    title: str
    framework: Name
    model: Name
    families: tuple[Name, ...] = ()
    short_name: Name
    log_format: Name
    launcher: Name
    max_nodes: Count | None = None
    rule: Rule
    parameters: Parameters = {}
    dtypes: dict[str, str] = {}
    variants: dict[Name, Variant] = {}
    sources: Sources
    matrices: Annotated[dict[Name, Matrix], Field(min_length=1)]
    published: str | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Workload:
        self._check_launcher()
        self._check_parameters()
        self._check_templates()
        self._check_matrices()
        return self

    def _check_launcher(self) -> None:
        if self.launcher not in launchers.LAUNCHERS:
            known = f"one of {', '.join(launchers.LAUNCHERS)}"
            raise _wrong("unknown launcher", known, self.launcher, "launcher")

    def _check_parameters(self) -> None:
        for name in self.parameters:
            if name in (*RUN_KEYS, "dtype"):
                raise _wrong(
                    "this name belongs to the run itself", "a name of its own", name, "parameters"
                )
        for kind, group in (("matrices", self.matrices), ("variants", self.variants)):
            for key, item in group.items():
                for name in item.parameters:
                    if name not in self.parameters:
                        raise _wrong(
                            "this parameter has no default",
                            f"one of the workload's parameters: {_list(self.parameters)}",
                            name,
                            *(kind, key, "parameters", name),
                        )

    def _check_templates(self) -> None:
        known = {*RUN_KEYS, *self.parameters, *(["dtype"] if self.dtypes else [])}
        if not self.sources.items():
            raise _wrong("there is no source", "builtin, upstream or both", {}, "sources")
        for source_name, source in self.sources.items():
            fields: list[tuple[tuple[str | int, ...], str]] = [
                *((("argv", n), text) for n, text in enumerate(source.argv)),
                *((("on_cpu", n), text) for n, text in enumerate(source.on_cpu)),
                *((("on_gpu", n), text) for n, text in enumerate(source.on_gpu)),
                *((("environment", key), text) for key, text in source.environment.items()),
                *(
                    (("on_precision", key, n), text)
                    for key, texts in source.on_precision.items()
                    for n, text in enumerate(texts)
                ),
                *(
                    (("prepare", m, "argv", n), text)
                    for m, preparation in enumerate(source.prepare)
                    for n, text in enumerate(preparation.argv)
                ),
            ]
            for keys, text in fields:
                allowed = PREPARE_KEYS if keys[0] == "prepare" else known
                where = ("sources", source_name, *keys)
                try:
                    names = template.placeholders(text)
                except ValueError as error:
                    raise _wrong(str(error), "{name}", text, *where) from None
                for name in names:
                    if name not in allowed:
                        expected = f"one of {', '.join(sorted(allowed))}"
                        raise _wrong("unknown placeholder", expected, name, *where)

    def _check_matrices(self) -> None:
        for name, matrix in self.matrices.items():
            try:
                self.rule_of(name)
            except ValidationError as error:
                detail = error.errors()[0].get("ctx", {})
                raise _wrong(
                    "no step is left to measure",
                    str(detail.get("expected")),
                    matrix.rule.model_dump(exclude_none=True),
                    *("matrices", name, "rule"),
                ) from None
            for number, entry in enumerate(matrix.batches):
                where = ("matrices", name, "batches", number)
                if self.dtypes and entry.precision not in self.dtypes:
                    raise _wrong(
                        "this precision has no dtype",
                        f"one of {_list(self.dtypes)}",
                        entry.precision,
                        *(*where, "precision"),
                    )
                if entry.variant not in (tuple(self.variants) or ("",)):
                    raise _wrong(
                        "unknown variant",
                        f"one of {_list(self.variants)}",
                        entry.variant,
                        *(*where, "variant"),
                    )
            if self.max_nodes is not None:
                for number, topology in enumerate(matrix.topologies):
                    if topology.nodes > self.max_nodes:
                        raise _wrong(
                            "too many nodes for this workload",
                            f"at most {self.max_nodes} (max_nodes)",
                            str(topology),
                            *("matrices", name, "topologies", number),
                        )

    def rule_of(self, matrix: str) -> Rule:
        """The rule with the matrix's changes."""
        change = self.matrices[matrix].rule.model_dump(exclude_none=True)
        return Rule.model_validate({**self.rule.model_dump(), **change})

    @property
    def precisions(self) -> tuple[str, ...]:
        """Every precision that the workload can run."""
        if self.dtypes:
            return tuple(self.dtypes)
        entries = (entry for matrix in self.matrices.values() for entry in matrix.batches)
        return tuple(dict.fromkeys(entry.precision for entry in entries))

    def model_name(self, variant: str) -> str:
        return f"{self.model}-{variant}" if variant else self.model

    @property
    def model_names(self) -> tuple[str, ...]:
        """What `model=` selects this workload by."""
        variants = (self.model_name(variant) for variant in self.variants)
        return tuple(dict.fromkeys((self.model, *variants, *self.families)))


@dataclass(frozen=True)
class Catalog:
    """Everything there is, by name."""

    frameworks: Mapping[str, Framework]
    workloads: Mapping[str, Workload]
    stacks: Mapping[str, Stack]

    def framework(self, name: str, where: str | None = None) -> Framework:
        return lookup("framework", name, self.frameworks, where)

    def workload(self, name: str, where: str | None = None) -> Workload:
        return lookup("workload", name, self.workloads, where)

    def stack(self, name: str, where: str | None = None) -> Stack:
        return lookup("stack", name, self.stacks, where)


_T = TypeVar("_T")
_M = TypeVar("_M", Framework, Workload, Stack)


def lookup(kind: str, name: str, known: Mapping[str, _T], where: str | None = None) -> _T:
    """The value of that name; a UserError that lists the known names where there is none."""
    try:
        return known[name]
    except KeyError:
        raise UserError(
            f"unknown {kind} {name!r}", where=where, expected=f"one of {_list(known)}"
        ) from None


def load_catalog(root: Path = CATALOG) -> Catalog:
    """Read and check the whole catalogue below `root`."""
    frameworks = _load_all(root / "frameworks", Framework)
    workloads = _load_all(root / "workloads", Workload)
    stacks = _load_all(root / "stacks", Stack)
    for workload in workloads.values():
        path = root / "workloads" / f"{workload.name}.yml"
        lookup("framework", workload.framework, frameworks, f"{_shown(path)}: framework")
    for framework in frameworks.values():
        path = root / "frameworks" / f"{framework.name}.yml"
        for stack in framework.environments:
            lookup("stack", stack, stacks, f"{_shown(path)}: environments")
    return Catalog(frameworks, workloads, stacks)


def _load_all(directory: Path, model: type[_M]) -> dict[str, _M]:
    entries = (_load(path, model) for path in sorted(directory.glob("*.yml")))
    return {entry.name: entry for entry in entries}


def _load(path: Path, model: type[_M]) -> _M:
    data, document = _read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(
            "this is no catalogue entry",
            where=_shown(path),
            expected="keys and values",
            found=_show(data),
        )
    try:
        entry = model.model_validate(data)
    except ValidationError as error:
        raise _user_error(path, document, error) from None
    if entry.name != path.stem:
        raise UserError(
            "the entry's name and its file's name differ",
            where=f"{_shown(path)}:{_line(document, ('name',))}: name",
            expected=path.stem,
            found=entry.name,
        )
    return entry


def _read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    try:
        text = path.read_bytes().decode()
    except UnicodeDecodeError as error:
        raise UserError(
            "this is not UTF-8", where=_shown(path), found=f"byte {error.start}"
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        _refuse_duplicate_keys(path, node)
        return yaml.safe_load(text), node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(
            f"this is not YAML: {error.problem or error}", where=f"{_shown(path)}{line}"
        ) from None
    except yaml.YAMLError as error:
        raise UserError(f"this is not YAML: {error}", where=_shown(path)) from None


def _refuse_duplicate_keys(path: Path, node: yaml.Node | None) -> None:
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.value in seen:
                raise UserError(
                    f"the key {key.value!r} stands here twice",
                    where=f"{_shown(path)}:{line}",
                    found=f"the first in line {seen[key.value]}",
                )
            seen[key.value] = line
            _refuse_duplicate_keys(path, value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _refuse_duplicate_keys(path, item)


def _user_error(path: Path, document: yaml.Node | None, error: ValidationError) -> UserError:
    """The first mistake as a UserError; how many more there are is its hint."""
    errors = error.errors(include_url=False)
    first = errors[0]
    context = first.get("ctx", {})
    if first["type"] == "dlperf":
        keys = (*first["loc"], *context["keys"])
        problem, expected, found = first["msg"], context["expected"], context["found"]
    elif first["type"] == "missing":
        keys = first["loc"][:-1]
        key = str(first["loc"][-1])
        problem, expected, found = f"the key {key} is missing", key, _keys(first["input"])
    else:
        keys = first["loc"]
        problem = "this value does not fit"
        expected = first["msg"].removeprefix("Input should be ")
        found = _show(first["input"])
    keys = _without_types(keys)
    dotted = ".".join(str(key) for key in keys)
    more = len({_without_types(item["loc"]) for item in errors}) - 1
    return UserError(
        problem,
        where=f"{_shown(path)}:{_line(document, keys)}" + (f": {dotted}" if dotted else ""),
        expected=expected,
        found=found,
        hint=f"and {more} more in this file" if more else None,
    )


def _without_types(keys: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The location without what pydantic adds to tell the members of a union apart."""
    return tuple(key for key in keys if key not in ("str", "int", "float", "[key]"))


def _line(node: yaml.Node | None, keys: Iterable[str | int]) -> int:
    """The line on which the value at `keys` stands; of its innermost known parent otherwise."""
    line = node.start_mark.line if node else 0
    for key in keys:
        if isinstance(node, yaml.MappingNode):
            pairs = [pair for pair in node.value if pair[0].value == str(key)]
            if not pairs:
                break
            line, node = pairs[0][0].start_mark.line, pairs[0][1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(key, int):
            if key >= len(node.value):
                break
            node = node.value[key]
            line = node.start_mark.line
        else:
            break
    return line + 1


def _keys(value: object) -> str:
    return f"only {_list(value)}" if isinstance(value, dict) else _show(value)


def _list(names: Iterable[object]) -> str:
    return ", ".join(str(name) for name in names) or "none"


def _shown(path: Path) -> str:
    """The path as the user knows it: from the package's parent where it lies below that."""
    root = CATALOG.parent.parent
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
