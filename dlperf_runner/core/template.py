"""Templates of the catalogue: `{name}` stands for a value, everything else for itself."""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping

_FORMATTER = string.Formatter()


def placeholders(template: str) -> tuple[str, ...]:
    """The names between braces, in order. `{{` and `}}` are literal braces.

    Raises ValueError for anything but a plain name between braces: attributes, indices,
    conversions and format specifications have no meaning here.
    """
    names = []
    for _, name, specification, conversion in _FORMATTER.parse(template):
        if name is None:
            continue
        if not name.isidentifier() or specification or conversion:
            raise ValueError(f"{template!r} holds a placeholder that is no plain {{name}}")
        names.append(name)
    return tuple(names)


def fill(templates: Iterable[str], values: Mapping[str, object]) -> tuple[str, ...]:
    """Each template with its placeholders replaced; one template stays one argument, whatever
    the value holds. A name that `values` lacks is a KeyError: the catalogue was checked."""
    return tuple(
        "".join(
            literal + ("" if name is None else str(values[name]))
            for literal, name, _, _ in _FORMATTER.parse(template)
        )
        for template in templates
    )
