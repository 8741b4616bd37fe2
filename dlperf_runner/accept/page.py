"""The table and the page of an acceptance, its signature, and the check of a page by its logs.

<folder>/acceptance.html        the page
<folder>/acceptance.json        the same for programs, with the digest and speed of each log
<folder>/manifest.jsonl, .sig   their digests, and the signature of these
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

from .. import __version__
from ..campaign.manifest import read, seal, sign
from ..catalog.entry import validated
from ..catalog.types import Entry, Name
from ..commands.verify import check_manifest
from ..compare.verdicts import FAILED, PASSED, UNDECIDED
from ..core.errors import UserError
from ..core.files import json_text, read_json, read_text, write_result
from ..core.lists import counted, grouped
from ..report.html import TEMPLATES, environment, policy
from ..report.labels import load_labels
from ..report.numbers import as_published, decimals, percent
from ..report.tables import Cell, Column, Table, cell, span
from ..report.terminal import Screen, table
from .suite import SuiteFile

HTML, JSON = "acceptance.html", "acceptance.json"
_NUMBERS = (Column(name, True) for name in ("median", "n", "target", "difference", "margin"))
_PARTS = (Column("item"), Column("part"), *_NUMBERS, Column("verdict"), Column("why", wraps=True))
_LOGS = ("item", "part", "log", "value", "sha256")


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[Cell, ...]]:
    for part in document["parts"]:
        value, target = part["median"], part.get("target")
        speed = "-" if value is None else f"{value:.{decimals([value])}f} {part['unit']}"
        texts = (part["item"], part["part"], speed, str(part.get("judged_runs") or part["runs"]))
        goal = cell(target and round(target, 6), as_published)
        difference = span(part.get("low"), part.get("high"), percent, " to ")
        verdict = Cell(part["verdict"], part["verdict"], part["verdict"])
        yield (
            *(*(Cell(text, text) for text in texts), goal, difference),
            *(cell(-part["margin"], ".1%"), verdict, cell(part.get("why"), absent="")),
        )


def render(document: Mapping[str, Any], screen: Screen) -> str:
    """The table, the verdict on the whole, and remarks."""
    return f"{table(_PARTS, _rows(document), screen)}\n{summary(document)}\n"


def summary(document: Mapping[str, Any]) -> str:
    """`failed: 1 failed, 7 passed.`, and the parts whose runs have no known order."""
    count = Counter(part["verdict"] for part in document["parts"])
    counts = (f"{count[name]} {name}" for name in (FAILED, UNDECIDED, PASSED) if count[name])
    lines = [f"{document['verdict']}: {', '.join(counts)}."]
    for part in document["parts"]:
        if number := part["without_start"]:
            runs = f"{part['item']}, {part['part']}: {counted(number, 'run')}"
            lines.append(f"{runs} without a recorded start, so the looks go by the names of logs.")
    return "\n".join(lines)


def page(document: Mapping[str, Any]) -> str:
    """The page, in HTML that loads and runs nothing."""
    from markupsafe import Markup

    style = read_text(TEMPLATES / "report.css")
    logs = [{**part, **log} for part in document["parts"] for log in part["logs"]]
    rows = tuple(tuple(cell(log[name]) for name in _LOGS) for log in logs)
    defaults = {name: field.default for name, field in SuiteFile.model_fields.items()}
    return (
        environment()
        .from_string(read_text(Path(__file__).with_name("page.html.j2")))
        .render(
            document=document,
            suite={**defaults, **document["suite"]},
            items=grouped(document["parts"], itemgetter("item")),
            summary=summary(document),
            parts=Table("parts", "Parts", _PARTS, tuple(_rows(document))),
            logs=Table("logs", "Logs", tuple(map(Column, _LOGS)), rows),
            t=load_labels("en"),
            policy=policy(style),
            style=Markup(style),  # noqa: S704 - this project's own
        )
    )


def write(document: Mapping[str, Any], folder: Path, key: Path | None) -> Path:
    """Write the page and record it in the folder's manifest; sign this with a key."""
    stamped = {"version": __version__, **document}
    files = [
        write_result(folder / JSON, json_text(stamped), inside=folder),
        write_result(folder / HTML, page(stamped), inside=folder),
    ]
    seal(folder, "accept", files)
    if key is not None:
        sign(folder, key)
    return folder / HTML


class RecordedSuite(Entry):
    """The keys of the suite on a page that a check reads; the rest is compared only."""

    nodes: tuple[Name, ...]
    units: dict[Name, tuple[Name, ...]]


def recorded(folder: Path) -> dict[str, Any]:
    """The document of a page, which anybody may have written. Raises UserError if it is none."""
    document, problem = read_json(folder / JSON), "no document of an acceptance"
    try:
        keys = {name: document["suite"].get(name) for name in RecordedSuite.model_fields}
        _by_name(document)
    except (AttributeError, KeyError, TypeError):
        raise UserError(problem, where=str(folder / JSON)) from None
    validated(keys, RecordedSuite, f"{folder / JSON}: suite", problem)
    return document


def _by_name(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its parts and their logs by name, in which each value has a place."""
    parts = {f"{part['item']} {part['part']}": part for part in document["parts"]}
    logs = {name: {f"{log['log']}": log for log in part["logs"]} for name, part in parts.items()}
    return {
        **document,
        "parts": {name: {**part, "logs": logs[name]} for name, part in parts.items()},
    }


def check(
    folder: Path, document: Mapping[str, Any], allowed_signers: Path | None
) -> tuple[list[str], list[str]]:
    """The differences between a page and what suite and logs give, and remarks."""
    sentences = list(check_manifest(folder, allowed_signers))
    differing = [sentence for differs, sentence in sentences if differs]
    if (manifest := read(folder)) and not {HTML, JSON} <= manifest.files.keys():
        differing.append(f"{folder}: the manifest does not record {HTML} and {JSON}")
    before = recorded(folder)
    after = {"version": before.get("version"), **document}
    differing += _differences(_by_name(before), _by_name(after), JSON)
    if not differing and read_text(folder / HTML) != page(after):
        differing.append(f"{HTML}: not the page of {JSON}")
    return differing, [sentence for differs, sentence in sentences if not differs]


def _differences(before: Any, after: Any, where: str) -> Iterator[str]:
    """A sentence for each place in which two documents differ."""
    sides = (before, after)
    if all(isinstance(side, dict) for side in sides):
        for key in sorted({*before, *after}):
            yield from _differences(before.get(key), after.get(key), f"{where} {key}")
    elif before != after:
        words = {type(None): "missing", dict: "present"}
        page, here = (words.get(type(side), side) for side in sides)
        yield f"{where}: {page} on the page, {here} here"
