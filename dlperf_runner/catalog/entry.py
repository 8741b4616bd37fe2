"""Reads one YAML file into a validated entry.

Every mistake is a UserError with file, line, key, expected value and actual value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError

from ..core.errors import UserError, as_user_error
from ..core.files import decoded, read_bytes
from .types import Entry, listed, show

CATALOG = Path(__file__).parent
# The libyaml loader is ten times faster, but some builds of PyYAML lack it.
LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_E = TypeVar("_E", bound=Entry)
# A few lines of aliases of aliases stand for more values than memory holds.
_MOST_REPEATED = 100_000
# Nested values from which the stack of libyaml's loader could overflow, which ends the process.
_DEEPEST = 5000


def load_entry(path: Path, model: type[_E]) -> _E:
    """Read and validate an entry. The file must have the same name as the entry."""
    entry, document = _read_entry(path, model)
    name = vars(entry)["name"]
    if name != path.stem:
        raise UserError(
            "the name of the entry differs from the name of its file",
            where=f"{display_path(path)}:{_find(document, ('name',))[0]}: name",
            expected=path.stem,
            found=name,
        )
    return entry


def read_entry(path: Path, model: type[_E]) -> _E:
    """Read and validate a file of the user."""
    return _read_entry(path, model)[0]


def read_located(path: Path, model: type[_E]) -> tuple[_E, Callable[[str], str]]:
    """Read and validate a file of the user; and say where a key of it stands."""
    entry, document = _read_entry(path, model)
    return entry, lambda key: f"{display_path(path)}:{_find(document, (key,))[0]}: {key}"


def validated(
    data: dict[str, Any], model: type[_E], where: str, name: str = "", hint: str | None = None
) -> _E:
    """Validate values that stand in no YAML file of their own. `name` and `hint`: of the error."""
    try:
        return model.model_validate(data)
    except ValidationError as error:
        problem, keys, expected, value, more = first_mistake(error)
        raise UserError(
            name or problem,
            where=": ".join(filter(None, (where, ".".join(map(str, keys))))),
            expected=expected,
            found=value,
            hint=hint or (f"{more} more" if more else None),
        ) from None


def _read_entry(path: Path, model: type[_E]) -> tuple[_E, yaml.Node | None]:
    data, document = _read_yaml(path)
    if not isinstance(data, dict):
        raise UserError(
            "invalid entry", where=display_path(path), expected="keys and values", found=show(data)
        )
    try:
        return model.model_validate(data), document
    except ValidationError as error:
        raise _user_error(path, document, error) from None


def _read_yaml(path: Path) -> tuple[Any, yaml.Node | None]:
    where = display_path(path)
    with as_user_error("cannot read the file", where):
        text = decoded(read_bytes(path), where)
    try:
        _refuse_deep(text)
        loader = LOADER(text)
        node = loader.get_single_node()
        if node is not None:
            _size(path, node, {})
        return loader.construct_document(node) if node else None, node
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark else ""
        raise UserError(f"invalid YAML: {error.problem or error}", where=where + line) from None
    except yaml.YAMLError as error:
        raise UserError(f"invalid YAML: {error}", where=where) from None
    except RecursionError:
        raise UserError("invalid YAML: a value is in itself, or too deep", where=where) from None


def _refuse_deep(text: str) -> None:
    """Raise RecursionError if values are nested too deep. Each level has a character at least."""
    if len(text) <= _DEEPEST:
        return
    depth = 0
    for event in yaml.parse(text, LOADER):
        depth += isinstance(event, yaml.CollectionStartEvent)
        depth -= isinstance(event, yaml.CollectionEndEvent)
        if depth > _DEEPEST:
            raise RecursionError


def _size(path: Path, node: yaml.Node, sizes: dict[int, int]) -> int:
    """The number of values in a node, with those that aliases repeat. Raises UserError if there are
    too many, or if a key is there twice. `sizes`: those of the nodes before, by identity."""
    if id(node) in sizes:
        return sizes[id(node)]
    size = 1
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                raise UserError(
                    "invalid YAML: a key is no text",
                    where=f"{display_path(path)}:{line}",
                    found="a list or a mapping",
                )
            if key.value in seen:
                raise UserError(
                    f"duplicate key {key.value!r}",
                    where=f"{display_path(path)}:{line}",
                    found=f"first use in line {seen[key.value]}",
                )
            seen[key.value] = line
            size += _size(path, value, sizes)
    elif isinstance(node, yaml.SequenceNode):
        size += sum(_size(path, item, sizes) for item in node.value)
    if size > len(sizes) + _MOST_REPEATED:
        raise UserError(
            "the aliases (*name) repeat too many values",
            where=f"{display_path(path)}:{node.start_mark.line + 1}",
            expected=f"at most {_MOST_REPEATED:,}",
            found=f"{size:,} values, most of them repeated",
        )
    sizes[id(node)] = size
    return size


def _user_error(path: Path, document: yaml.Node | None, error: ValidationError) -> UserError:
    """The first mistake as a UserError. The hint states the number of further mistakes."""
    problem, keys, expected, value, more = first_mistake(error)
    line, found_keys = _find(document, keys)
    # One value may stand for a list of one, without an index; pydantic adds the names of types.
    while keys != found_keys and (isinstance(keys[-1], int) or "[" in keys[-1]):
        keys = keys[:-1]
    dotted = ".".join(str(key) for key in keys)
    return UserError(
        problem,
        where=f"{display_path(path)}:{line}" + (f": {dotted}" if dotted else ""),
        expected=expected,
        found=value,
        hint=f"{more} more in this file" if more else None,
    )


def first_mistake(error: ValidationError) -> tuple[str, tuple[str | int, ...], str, str, int]:
    """Problem, keys, expected and found value of the first mistake, and the number of others."""
    errors = error.errors(include_url=False)
    first = errors[0]
    context = first.get("ctx", {})
    if first["type"] == "dlperf":
        keys = (*first["loc"], *context["keys"])
        problem, expected, value = first["msg"], context["expected"], context["found"]
    elif first["type"] == "missing":
        keys = first["loc"][:-1]
        key, given = str(first["loc"][-1]), first["input"]
        value = f"only {listed(given)}" if isinstance(given, dict) else show(given)
        problem, expected = f"the key {key} is missing", key
    else:
        keys = first["loc"]
        problem = "invalid value"
        expected = first["msg"].removeprefix("Input should be ")
        value = show(first["input"])
    keys = _without_types(keys)
    more = len({_without_types(item["loc"]) for item in errors}) - 1
    return problem, keys, expected, value, more


def _without_types(keys: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """The location without the type names that pydantic adds for members of a union."""
    return tuple(key for key in keys if key not in ("str", "int", "float", "[key]"))


def _find(node: yaml.Node | None, keys: Iterable[str | int]) -> tuple[int, tuple[str | int, ...]]:
    """The line of the value at `keys`, and these. If it does not exist, those of its nearest
    parent."""
    line, existing = node.start_mark.line if node else 0, []
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
        existing.append(key)
    return line + 1, tuple(existing)


def display_path(path: Path) -> str:
    """The path as shown to the user: relative to the package's parent if it is inside that."""
    root = CATALOG.parent.parent
    return str(path.relative_to(root)) if path.is_relative_to(root) else str(path)
