"""The directory for the results of a campaign or of other logs."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path

from ..campaign.directory import LATEST, RESULTS
from ..campaign.manifest import FILE
from ..core.files import UnsafeFileError, is_campaign, json_text, read_bytes
from ..core.printable import printable
from .archives import stem_of_archive
from .log_name import stem_of

SOURCE = "source.json"  # in results/<name>/: the paths of the logs
_RESERVED = (LATEST, "baselines")


def destination(sources: Sequence[Path]) -> Path:
    """A campaign's own directory; for other logs, results/<name>, with a number if that belongs to
    something else."""
    if is_campaign(sources[0]):
        return sources[0]
    name = printable(_name(sources))
    for number in itertools.count(1):
        place = RESULTS / (name if number == 1 else f"{name}-{number}")
        is_free = place.name not in _RESERVED and not os.path.lexists(place)
        if is_free or _recorded(place) == _paths(sources):
            return place
    raise AssertionError


def guarded(sources: Sequence[Path]) -> Path:
    """The directory of `destination` or above it in which no link is followed."""
    return sources[0] if is_campaign(sources[0]) else RESULTS


def source_document(sources: Sequence[Path]) -> dict[str, str]:
    """The file that makes results/<name> the directory of these logs. Empty for a campaign."""
    if is_campaign(sources[0]):
        return {}
    return {SOURCE: json_text({"logs": _paths(sources), "manifest": FILE})}


def _name(sources: Sequence[Path]) -> str:
    only = sources[0].resolve()
    if len(sources) == 1:
        if only.is_file():
            return stem_of_archive(only.name) or stem_of(only.name) or only.name
        return only.name or "logs"
    return Path(os.path.commonpath([path.resolve() for path in sources])).name or "logs"


def _paths(sources: Sequence[Path]) -> list[str]:
    return sorted({printable(str(path.resolve())) for path in sources})


def _recorded(place: Path) -> object:
    """The logs whose directory this is. None if it belongs to something else."""
    try:
        return json.loads(read_bytes(place / SOURCE, inside=RESULTS))["logs"]
    except (OSError, ValueError, KeyError, TypeError, UnsafeFileError):  # such as results/latest
        return None
