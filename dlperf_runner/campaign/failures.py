"""Why a run failed: the category and the advice that its run.json has after its end."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ..core.files import is_regular, open_read, read_json, write_json
from .manifest import run_directory

HEAD, TAIL = 1 << 20, 3 << 20  # bytes of each file; the first and the last errors tell the cause
SHOWN = 200  # characters of a line


def explain(campaign: Path, run: str) -> None:
    """Add the category and the advice to the record of a run, if it failed. Raises UserError if the
    campaign has no such run."""
    path = run_directory(campaign, run) / "run.json"
    record = read_json(path)
    outcome = record.get("outcome")
    if not isinstance(outcome, dict) or outcome.get("status") != "failed":
        return
    from ..catalog.errors import cause_of

    message = str(outcome.get("message") or "")
    texts = list(_texts(path.parent, record))
    cause, line = cause_of(str(outcome.get("reason") or ""), message, texts)
    # A scheduler has chosen the nodes after the plan was made.
    hosts = list(outcome.get("hosts") or record.get("hosts") or ())
    advice = cause.advice_for({**record, "hosts": hosts})
    if (line := line[:SHOWN]) and line not in message:
        advice += f". In the log: {line}"
    outcome |= {"category": cause.category, "advice": advice}
    write_json(path, record)


def _texts(directory: Path, record: Mapping[str, Any]) -> Iterator[str]:
    """The logs of all nodes, and the kernel's messages about their GPUs."""
    log = str(record.get("log_name"))
    for path in sorted(directory.iterdir()):
        if path.name.startswith((log, "xid-")) and is_regular(path):
            with open_read(path) as file:
                size = os.fstat(file.fileno()).st_size
                content = file.read(HEAD)
                file.seek(max(HEAD, size - TAIL))
                yield (content + file.read()).decode(errors="replace")
