"""A progress bar on standard error, if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

Item = TypeVar("Item")


def reading_logs(items: Iterable[Item], total: int) -> Iterable[Item]:
    """The items, with a progress bar for reading logs."""
    return followed(items, total, "reading logs")


def followed(items: Iterable[Item], total: int, doing: str) -> Iterable[Item]:
    """The items, with a progress bar that shows the activity and the count."""
    return _shown(items, total, doing) if sys.stderr.isatty() else items


def _shown(items: Iterable[Item], total: int, doing: str) -> Iterator[Item]:
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn(doing),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total)
