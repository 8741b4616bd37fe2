"""Templates in the catalogue: `{name}` is replaced by a value, all other text is literal."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping

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
