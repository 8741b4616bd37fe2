"""The building blocks of catalogue entries: validated values, and errors with a location."""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable, Mapping
from pathlib import PurePosixPath
from typing import Annotated, Any

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
    model_validator,
)
from pydantic_core import PydanticCustomError

from ..core.case import Topology


def entry_error(
    problem: str, expected: str, value: object, *keys: str | int
) -> PydanticCustomError:
    """An error at `keys`, relative to the model that raises it."""
    context = {"expected": expected, "found": show(value), "keys": keys}
    return PydanticCustomError("dlperf", problem, context)


def refuse_unknown(problem: str, name: object, names: Collection[object], *keys: str | int) -> None:
    """Raise the error at `keys` that lists the known names, if the name is none of them."""
    if name not in names:
        raise entry_error(problem, f"one of {listed(names)}", name, *keys)


def show(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def listed(names: Iterable[object]) -> str:
    return ", ".join(str(name) for name in names) or "none"


def _topology(value: object) -> Topology:
    if isinstance(value, str):
        try:
            return Topology.parse(value)
        except ValueError:
            pass
    raise entry_error("invalid topology", "nodes and devices, like 2n8g", value)


def _relative(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or value in ("", "."):
        raise entry_error(
            "the path leads outside its directory", "a relative path without ..", value
        )
    return value


def _regex(value: str) -> str:
    try:
        re.compile(value)
    except re.error as error:
        raise entry_error(f"{error}", "a regular expression", value) from None
    return value


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
RelativePath = Annotated[str, AfterValidator(_relative)]
Regex = Annotated[str, AfterValidator(_regex)]
Count = Annotated[StrictInt, Field(ge=1)]
CountOrNone = Annotated[StrictInt, Field(ge=0)]
TopologyText = Annotated[Topology, PlainValidator(_topology), PlainSerializer(str, return_type=str)]
ParameterTemplate = Annotated[str, Field(pattern=r"^\{[a-z][a-z0-9_]*\}$")]
Value = StrictStr | StrictInt | StrictFloat
Parameters = dict[Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$")], Value]


class Entry(BaseModel):
    """A frozen entry. An unknown key is an error that lists the known keys."""

    # Most commands use few of the schemas: each is built at its first use. Therefore default values
    # are made by model_construct(), which needs no schema.
    model_config = ConfigDict(
        frozen=True, extra="forbid", arbitrary_types_allowed=True, defer_build=True
    )

    @model_validator(mode="before")
    @classmethod
    def _known_keys(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key in data:
                refuse_unknown("unknown key", key, cls.model_fields, str(key))
        return data


_FORMATTER = string.Formatter()


def placeholders(template: str) -> tuple[str, ...]:
    """The names between braces, in order. `{{` and `}}` are literal braces.

    Raises ValueError if the text between braces is not a plain name: attributes, indices,
    conversions and format specifications are not supported.
    """
    names = []
    for _, name, specification, conversion in _FORMATTER.parse(template):
        if name is None:
            continue
        if not name.isidentifier() or specification or conversion:
            raise ValueError(f"{template!r} has a placeholder that is not a plain {{name}}")
        names.append(name)
    return tuple(names)


def fill(templates: Iterable[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Replace the placeholders in each template.

    One template always gives one argument, even if a value contains spaces. Raises KeyError if
    `values` lacks a name; loading the catalogue already checks that.
    """
    return tuple(
        "".join(
            literal + ("" if name is None else str(values[name]))
            for literal, name, _, _ in _FORMATTER.parse(template)
        )
        for template in templates
    )
