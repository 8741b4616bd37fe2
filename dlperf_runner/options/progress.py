"""A progress bar on standard error. It appears only on a terminal and after two seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

PATIENCE_S = 2.0
_EVERY_S = 0.1
Item = TypeVar("Item")


def reading_logs(items: Iterable[Item], total: int) -> Iterable[Item]:
    """The items, with a progress bar for reading logs."""
    return followed(items, total, "reading logs")


def followed(items: Iterable[Item], total: int, doing: str) -> Iterable[Item]:
    """The items, with a progress bar that shows the activity and the count."""
    return _shown(items, total, doing) if sys.stderr.isatty() else items


def _shown(items: Iterable[Item], total: int, doing: str) -> Iterator[Item]:
    bar: Progress | None = None
    begun = shown = time.monotonic()
    try:
        for number, item in enumerate(items, start=1):
            yield item
            now = time.monotonic()
            if now - begun < PATIENCE_S or now - shown < _EVERY_S:
                continue
            shown = now
            if bar is None:
                bar = _bar(total, doing)
            bar.update(bar.task_ids[0], completed=number)
    finally:
        if bar is not None:
            bar.stop()


def _bar(total: int, doing: str) -> Progress:
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn(doing),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    bar.add_task("", total=total)
    bar.start()
    return bar
