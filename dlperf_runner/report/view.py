"""A table beside that of the training runs: what other programs of a directory measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ..core.errors import UserError
from .terminal import Screen


class View(NamedTuple):
    """`document`: its content for JSON. `is_negative`: a result is missing or wrong."""

    name: str
    render: Callable[[Screen], str]
    document: Any
    problems: Sequence[UserError]
    is_negative: bool
