"""What a log states about its run before its first step."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import logs
from ..measure.by_line import located
from .log_file import Log
from .statement import Stated

# The names of the fields in records of logs.
_FIELDS = {
    "batch_size": "batch_size_per_device",
    "world_size": "world_size",
    "precision": "precision",
    "total_steps": "total_steps",
}


def head_of(log: Log) -> Mapping[str, Stated]:
    """The settings that the log states, by field; `by` names the line. Raises UserError if a line
    is invalid."""
    found: dict[str, Stated] = {}
    for header in _headers(log):
        for field, attribute in _FIELDS.items():
            value: Any = getattr(header, attribute)
            if value is not None:
                found.setdefault(field, Stated(value, f"line {header.line} of the log"))
    return found


def _headers(log: Log) -> list[logs.Header]:
    headers: list[logs.Header] = []
    with log.stream() as stream:
        try:
            for record in log.form.parse(logs.candidates(log.form, stream)):
                if isinstance(record, logs.Step):
                    break
                headers.append(record)
        except logs.LineError as error:
            raise located(error, str(log.path)) from None
    return headers
