"""What a log states about its run before its first steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import logs
from .log_file import Log
from .statement import Stated

# The names of the fields in records of logs.
_FIELDS = {
    "batch_size": "batch_size_per_device",
    "world_size": "world_size",
    "precision": "precision",
}


def head_of(log: Log) -> Mapping[str, Stated]:
    """The settings that the log states, by field; `by` names the line. Raises UserError if a line
    is invalid."""
    with log.errors():
        headers = logs.parse(log.form, log.pieces(), most=0).headers
    found: dict[str, Stated] = {}
    for header in headers:
        for field, attribute in _FIELDS.items():
            value: Any = getattr(header, attribute)
            if value is not None:
                found.setdefault(field, Stated(value, f"line {header.line} of the log"))
    return found
