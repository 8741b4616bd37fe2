"""The table and the page of an acceptance, its signature, and the check of a page by its logs.

<folder>/acceptance.html        the page
<folder>/acceptance.json        the same for programs, with the digest and speed of each log
<folder>/manifest.jsonl, .sig   their digests, and the signature of these
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from ..core.lists import counted
from ..report.html import environment, policy
from ..report.numbers import as_published, decimals, percent
from ..report.tables import Cell, Column, span
from ..report.terminal import Screen, table
from .suite import SuiteFile

_VERDICTS = (FAILED, UNDECIDED, PASSED)
HTML, JSON = "acceptance.html", "acceptance.json"
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}
table{border-collapse:collapse;margin:1rem 0}th,td{border:1px solid #999;padding:.2rem .5rem;
text-align:left}.passed{color:#060}.failed{color:#b00}.undecided{color:#850}
.sum{font:12px monospace;word-break:break-all}pre{background:#eee;padding:.5rem;overflow:auto}
@media(prefers-color-scheme:dark){body{background:#111;color:#ddd}pre{background:#222}
.passed{color:#7c7}.failed{color:#f77}.undecided{color:#db6}}
"""
_COLUMNS = (
    Column("item"),
    Column("part"),
    Column("median", True),
    Column("n", True),
    Column("target", True),
    Column("difference", True),
    Column("margin", True),
    Column("verdict"),
    Column("why", wraps=True),
)


def _rows(document: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for part in document["parts"]:
        value, target = part["median"], part.get("target")
        speed = "-" if value is None else f"{value:.{decimals([value])}f} {part['unit']}"
        interval = span(part.get("low"), part.get("high"), percent, " to ").text
        yield (
            *(part["item"], part["part"], speed, str(part.get("judged_runs") or part["runs"])),
            *("-" if target is None else as_published(round(target, 6)), interval),
            *(f"-{part['margin']:.1%}", part["verdict"], part.get("why") or ""),
        )


def render(document: Mapping[str, Any], screen: Screen) -> str:
    """The table and the verdict on the whole."""
    rows = [
        [Cell(text, text, text if text in _VERDICTS else "") for text in row]
        for row in _rows(document)
    ]
    return f"{table(_COLUMNS, rows, screen)}\n{summary(document)}\n"


def summary(document: Mapping[str, Any]) -> str:
    """`failed: 1 failed, 7 passed.`"""
    verdicts = [part["verdict"] for part in document["parts"]]
    counts = (
        f"{verdicts.count(verdict)} {verdict}" for verdict in _VERDICTS if verdict in verdicts
    )
    return f"{document['verdict']}: {', '.join(counts)}."


def _method(document: Mapping[str, Any]) -> Iterator[str]:
    defaults = {name: field.default for name, field in SuiteFile.model_fields.items()}
    suite = {**defaults, **document["suite"]}
    number = counted(len(document["parts"]), "verdict")
    yield (
        "A part passes if the interval of its difference to the target is wholly above the margin,"
        " and fails if it is wholly below. The interval is Student's, of the logarithms of the"
        " speeds; to a reference, that of `dlperf compare`."
    )
    yield (
        f"The probability that any part passes wrongly is at most {suite['error']}, and so is that"
        f" of any that fails wrongly: {number} and the looks of each share it (Bonferroni). It"
        " holds for independent, normally distributed runs."
    )
    yield (
        f"Planned so that a part as fast as its target passes with {suite['good_passes']}, and one"
        f" {suite['slow']} slower fails with {suite['slow_fails']}."
    )
    for item in dict.fromkeys(part["item"] for part in document["parts"]):
        part = next(part for part in document["parts"] if part["item"] == item)
        looks = ", ".join(map(str, part["looks"])) or "none yet"
        scatter = part["deviation"]
        of_pilot = "" if scatter is None else f"; the pilot's runs scatter by {scatter:.2%} at most"
        published = f"; target: {part['published']}" if part.get("published") else ""
        yield f"{item}: looks at so many runs: {looks}{of_pilot}{published}."


def page(document: Mapping[str, Any]) -> str:
    """The page, in HTML that loads and runs nothing."""
    from markupsafe import Markup

    template = environment().from_string(read_text(Path(__file__).with_name("page.html.j2")))
    return template.render(
        document=document,
        suite={"name": SuiteFile.model_fields["name"].default, **document["suite"]},
        summary=summary(document),
        labels=[column.label for column in _COLUMNS],
        rows=list(_rows(document)),
        verdicts=_VERDICTS,
        method=list(_method(document)),
        version=document["version"],
        policy=policy(_STYLE),
        style=Markup(_STYLE),  # noqa: S704 - this file's own
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
    document = read_json(folder / JSON)
    try:
        keys = {name: document["suite"].get(name) for name in RecordedSuite.model_fields}
        _by_name(document)
    except (AttributeError, KeyError, TypeError):
        raise UserError("no document of an acceptance", where=str(folder / JSON)) from None
    validated(keys, RecordedSuite, f"{folder / JSON}: suite", "no document of an acceptance")
    return document


def _by_name(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its parts and their logs by name, in which each value has a place."""
    parts = {
        f"{part['item']} {part['part']}": {
            **part,
            "logs": {log["log"]: log for log in part["logs"]},
        }
        for part in document["parts"]
    }
    return {**document, "parts": parts}


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
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            yield from _differences(before.get(key), after.get(key), f"{where} {key}")
    elif before != after:
        page, here = (
            "missing" if each is None else "present" if isinstance(each, dict) else each
            for each in (before, after)
        )
        yield f"{where}: {page} on the page, {here} here"
