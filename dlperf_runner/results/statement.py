"""Statements of a user about logs that say too little: options, and mapping.yml.

    logs:
      "a100/{topology}/run{repeat}.log": {model: resnet50v1b, precision: fp16, batch_size: 256}
      "*.out": {accelerator: A100-SXM4-40GB}

A pattern is matched against the path below the given directory; one without a slash is matched
against the name of the file in any directory. `*` and `?` stand for text without a slash, `**` for
any text, and `{field}` for the value of that field.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, Field, StrictBool, ValidationError

from ..catalog.entry import read_entry
from ..catalog.log_pattern import LinesRegex, StepTimeUnit, names
from ..catalog.types import (
    Count,
    CountOrNone,
    Entry,
    Name,
    TopologyText,
    entry_error,
    listed,
)
from ..core.errors import UserError
from ..core.linear import compiled
from ..core.printable import printable

MAPPING = "mapping.yml"  # its name in a directory of logs


Word = Annotated[Name, AfterValidator(str.lower)]


class Fields(Entry):
    """The fields of a run that can be stated. `batch_size` is that per device. `first_step`: the
    step of the first line with a rate, counted from 1. `log_every`: the steps from one of these
    lines to the next. `rank`: the one whose lines count."""

    model: Word | None = None
    framework: Word | None = None
    topology: TopologyText | None = None
    batch_size: Count | None = None
    precision: Word | None = None
    accelerator: Annotated[str, Field(min_length=1)] | None = None
    repeat: CountOrNone | None = None
    total_steps: Count | None = None
    warmup_steps: CountOrNone | None = None
    first_step: Count | None = None
    log_every: Count | None = None
    global_batch_size: Count | None = None
    sequence_length: Count | None = None
    accumulation_steps: Count | None = None
    rank: CountOrNone | None = None
    # The format of a program that no format of this package reads: see stated_format.
    regex: LinesRegex | None = None
    unit: Literal["samples", "tokens", "steps"] | None = None
    rates_are_per: Literal["world", "node", "device", "step"] | None = None
    step_time_unit: StepTimeUnit | None = None


# The text that a placeholder matches.
_NUMBERS = (
    *("batch_size", "repeat", "total_steps", "warmup_steps", "first_step", "log_every"),
    *("global_batch_size", "sequence_length", "accumulation_steps", "rank"),
)
_TEXTS = {**dict.fromkeys(_NUMBERS, r"\d{1,9}"), "topology": r"\d{1,6}n\d{1,6}g"}
_PIECE = re.compile(r"\*\*/|\*\*|\*|\?|\{(\w+)\}|[^*?{]+|\{")
_IN_PATTERN = re.compile(r"\.[A-Za-z]", re.ASCII)
_WILD = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "?": "[^/]"}


@functools.cache
def _expression(pattern: str) -> Any:
    """The pattern as a regular expression. Raises ValueError for an unknown placeholder, and
    re.error for one that occurs twice."""
    text = ""
    for piece in _PIECE.finditer(pattern):
        if (name := piece[1]) is None:
            text += _WILD.get(piece[0]) or re.escape(piece[0])
        elif name not in Fields.model_fields:
            raise ValueError(name)
        else:
            text += f"(?P<{name}>{_TEXTS.get(name, '[^/]+?')})"
    return compiled(text if "/" in pattern else f"(?:.*/)?{text}")


def _match(pattern: str, path: str) -> Any:
    # A name of any bytes has surrogates, which no pattern in UTF-8 can name.
    return _expression(pattern).fullmatch(path.encode("utf-8", "replace").decode())


def _is_pattern(value: str) -> str:
    try:
        _expression(value)
    except ValueError as error:
        fields = f"one of {listed(Fields.model_fields)}"
        raise entry_error("unknown placeholder", fields, str(error)) from None
    except re.error as error:
        raise entry_error("invalid pattern", "each placeholder once", str(error)) from None
    return value


class PathMapping(Entry):
    """The content of mapping.yml: fields by pattern, and the conditions of a comparison."""

    logs: Mapping[Annotated[str, AfterValidator(_is_pattern)], Fields] = {}
    conditions: Mapping[str, StrictBool | str | int | float] = {}


def suggested_mapping(problems: Iterable[UserError], sources: Sequence[Path]) -> str:
    """A mapping with a line for each log that says too little, to be completed. The options that an
    error names are the fields that it lacks. Empty if there is no such log."""
    lines: list[str] = []
    for problem in problems:
        path = Path(re.sub(r":\d+$", "", problem.where or ""))
        base = next((s for s in sources if s.is_dir() and path.is_relative_to(s)), path.parent)
        named = re.findall(r"--([a-z-]+)", problem.hint or "")
        fields = dict.fromkeys(name.replace("-", "_") for name in named)
        fields |= {"repeat": None} if "repeat of the same case" in problem.problem else {}
        values = "".join(f"{name}: , " for name in fields if name in Fields.model_fields)
        if path.name and values:
            pattern = re.sub("[{}]", "?", path.relative_to(base).as_posix())  # {...} is a field
            text = json.dumps(pattern, ensure_ascii=False)
            lines += [f"  # {printable(problem.problem)}", f"  {text}: {{{values[:-2]}}}"]
    head = ["# Complete the values, and remove what you do not need.", "logs:"]
    return "\n".join([*head, *lines, ""]) if lines else ""


class Stated(NamedTuple):
    """A value and who states it: `--topology`, or a pattern of mapping.yml. `is_of_log`: the user
    states it about this log, not about all."""

    value: Any
    by: str
    is_of_log: bool = False


Statement = Mapping[str, Stated]  # by field


@dataclass(frozen=True)
class Statements:
    """All that the user states: `options` for every log, and a mapping by path."""

    options: Fields = field(default_factory=Fields.model_construct)
    mapping: PathMapping | None = None
    file: str = MAPPING

    def about(self, path: str, *, is_alone: bool = False) -> Statement:
        """The statements about the log with this path below the given directory, which may be the
        only one. Raises UserError if two of them contradict each other."""
        statement: dict[str, Stated] = {}
        for name, stated in self._all(path, is_alone=is_alone):
            first = statement.setdefault(name, stated)
            if stated.is_of_log and first.value == stated.value:
                statement[name] = stated
            elif first.value != stated.value:
                raise UserError(
                    f"two statements about the {words(name)} contradict each other",
                    where=path,
                    expected=f"{first.value} ({first.by})",
                    found=f"{stated.value} ({stated.by})",
                )
        return statement

    def _all(self, path: str, *, is_alone: bool) -> Iterator[tuple[str, Stated]]:
        for name, value in _given(self.options):
            yield name, Stated(value, f"--{name.replace('_', '-')}", is_alone)
        for pattern, fields in self.mapping.logs.items() if self.mapping else ():
            match = _match(pattern, path)
            if match is None:
                continue
            by = f"{self.file}, {pattern}"
            of_path = fields_of(match.groupdict(), where=f"{path}: {by}")
            for name, value in (*_given(fields), *_given(of_path)):
                yield name, Stated(value, by, is_of_log=True)

    def names(self, path: str) -> bool:
        """True if a pattern with an extension, such as train.log.{repeat}, matches this file. rn50*
        may mean logs alone, beside rn50.png."""
        patterns = self.mapping.logs if self.mapping else ()
        return any(_match(p, path) for p in patterns if _IN_PATTERN.search(p.rpartition("/")[2]))

    def arguments(self) -> list[str]:
        """The options of a command line with these statements."""
        words = [f"--{name.replace('_', '-')}={value}" for name, value in _given(self.options)]
        return words if self.mapping is None else [*words, f"--mapping={self.file}"]

    def unused(self, paths: Sequence[str]) -> list[str]:
        """The patterns that match none of the paths."""
        patterns = self.mapping.logs if self.mapping else ()
        return [p for p in patterns if not any(_match(p, path) for path in paths)]


NOTHING = Statements()


def _given(fields: Fields) -> Iterator[tuple[str, Any]]:
    return ((name, value) for name, value in fields if value is not None)


def fields_of(texts: Mapping[str, str], where: str | None = None) -> Fields:
    """Validate fields that are texts; an empty one is not stated. Without `where`, errors name the
    option."""
    values = {
        name: int(text) if name in _NUMBERS and text.isdecimal() else text
        for name, text in texts.items()
        if text
    }
    try:
        return Fields.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        context = first.get("ctx", {})
        name = str(first["loc"][0])
        raise UserError(
            f"invalid {words(name)}",
            where=where or f"--{name.replace('_', '-')}",
            expected=context.get("expected", first["msg"].removeprefix("Input should be ")),
            found=context.get("found", repr(first["input"])),
        ) from None


def words(field: str) -> str:
    """The name of a field in sentences."""
    return field.replace("_", " ")


def statements_of(options: Mapping[str, str], mapping: Path | None = None) -> Statements:
    """The statements of a command line: the texts of options, empty if not given, and a mapping
    file."""
    fields = fields_of(options)
    if mapping is None:
        return Statements(fields)
    return Statements(fields, read_entry(mapping, PathMapping), str(mapping))


def checked(statements: Statements, sources: Sequence[Path]) -> Statements:
    """The statements about logs in these sources: with the mapping.yml of a directory, unless there
    is another mapping. Raises UserError if a statement names an unknown framework or precision."""
    path = sources[0] / MAPPING
    if statements.mapping is None and len(sources) == 1 and path.is_file():
        statements = replace(statements, mapping=read_entry(path, PathMapping), file=MAPPING)
    _check_names(statements.options, "--")
    _check_expression(statements)
    for pattern, fields in statements.mapping.logs.items() if statements.mapping else ():
        _check_names(fields, f"{statements.file}: {pattern}: ")
    return statements


def with_conditions(texts: Sequence[str], statements: Statements, source: Path) -> list[str]:
    """The conditions of a command line, and those of a mapping that it does not state."""
    mapping = checked(statements, [source]).mapping
    stated = {text.partition("=")[0].strip() for text in texts}
    kept = mapping.conditions.items() if mapping else ()
    return [*texts, *(f"{name}={value}" for name, value in kept if name not in stated)]


def _check_expression(statements: Statements) -> None:
    """Raise UserError if only what an expression gives is described."""
    of_mapping = statements.mapping.logs.values() if statements.mapping else ()
    if any(fields.regex for fields in (statements.options, *of_mapping)):
        return
    for name, value in _given(statements.options):
        if name in ("unit", "rates_are_per", "step_time_unit"):
            raise UserError(
                "this describes the rates of an expression",
                where=f"--{name.replace('_', '-')}",
                expected="the expression, too: --regex",
                found=value,
            )


def _check_names(fields: Fields, where: str) -> None:
    frameworks = {w for f in names().frameworks for w in names().of_framework(f)}
    allowed = {"framework": sorted(frameworks), "precision": names().precisions}
    for name, values in allowed.items():
        value = getattr(fields, name)
        if value is not None and value not in values:
            raise UserError(
                f"unknown {name}",
                where=f"{where}{name}",
                expected=f"one of {listed(values)}",
                found=value,
            )
