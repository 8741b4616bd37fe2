"""What a campaign recorded of itself: its nodes, what they differ in, and its commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign.directory import RESULTS, name_of
from ..core.files import as_object, is_campaign, readable_json
from .plan_text import shell_line

if TYPE_CHECKING:
    from ..results.statement import Statements

# Facts that name a node are different on every one, and say nothing.
_NAMES = {"hostname", "address"}


@dataclass(frozen=True)
class CampaignRecord:
    """A campaign's records, as far as it has any: a tree of logs has none."""

    campaign: Mapping[str, Any]
    runs: Sequence[Mapping[str, Any]]
    facts: Mapping[str, Mapping[str, str]]  # by host, then name
    versions: Mapping[str, Mapping[str, str]]  # by environment

    @property
    def created(self) -> str:
        """When the campaign was made, to the minute; what is no time as it stands."""
        text = str(self.campaign.get("created") or "")
        try:
            return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        except ValueError:
            return text

    @property
    def notes(self) -> list[str]:
        """The notes and tags of its campaign file."""
        notes, tags = self.campaign.get("notes"), self.campaign.get("tags")
        named = f"tags: {', '.join(map(str, tags))}" if isinstance(tags, list) and tags else ""
        return [*filter(None, (str(notes) if notes else "", named))]

    @property
    def inventory(self) -> list[Mapping[str, Any]]:
        nodes = self.campaign.get("inventory")
        return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def read_campaign_record(directory: Path) -> CampaignRecord:
    """What is recorded below a directory. What cannot be read is left out: the results say what is
    wrong with it."""
    records = map(readable_json, sorted((directory / "runs").glob("*/*/run.json")))
    runs = [record for record in records if record]
    facts = _in_turn(
        (host, name, value)
        for run in runs
        for host, own in as_object(as_object(run.get("outcome")).get("hosts")).items()
        for name, value in as_object(own).items()
        if value not in (None, "", [], {})
    )
    versions = _in_turn(
        (str(run.get("environment") or run.get("framework")), name, version)
        for run in runs
        for name, version in as_object(as_object(run.get("outcome")).get("versions")).items()
    )
    by_name = {environment: dict(sorted(own.items())) for environment, own in versions.items()}
    return CampaignRecord(readable_json(directory / "campaign.json"), runs, facts, by_name)


def _in_turn(found: Iterable[tuple[str, str, object]]) -> dict[str, dict[str, str]]:
    """Texts by host or environment, then by name; of one that changed meanwhile, each in its
    turn."""
    turns: dict[str, dict[str, dict[str, None]]] = {}
    for place, name, value in found:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        turns.setdefault(place, {}).setdefault(name, {})[text] = None
    return {
        place: {name: " → ".join(texts) for name, texts in own.items()}
        for place, own in sorted(turns.items())
    }


def differences(facts: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[str, str, list[str]]]:
    """What nodes differ in: a fact, one of its values, and the nodes that have it. The value of a
    node that has not got the fact is an empty text."""
    names = dict.fromkeys(name for own in facts.values() for name in own if name not in _NAMES)
    for name in names:
        hosts: dict[str, list[str]] = {}
        for host, own in facts.items():
            hosts.setdefault(own.get(name, ""), []).append(host)
        if len(hosts) > 1:
            for value, having in sorted(hosts.items(), key=lambda item: (-len(item[1]), item[0])):
                yield name, value, having


def run_command(campaign: Mapping[str, Any]) -> str:
    """The command that makes the same campaign anew, given the same inventory."""
    words = ["dlperf", "run"]
    for name, value in as_object(campaign.get("choice")).items():
        if name == "parameters":
            for key, one in as_object(value).items():
                words += ["--parameter", f"{key}={one}"]
        elif value not in (None, "", []):
            texts = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", ",".join(map(str, texts))]
    return shlex.join(words)


def report_command(
    directories: Sequence[Path],
    statements: Statements,
    options: Mapping[str, Any],
    catalog: Path | None,
) -> str:
    """The command that makes the same report of these campaigns and logs."""
    words = ["dlperf"]
    words += ["--catalog", str(catalog)] if catalog else []
    words.append("report")
    # A campaign may be moved, and its report does not change then.
    words += [
        str(RESULTS / name_of(path)) if is_campaign(path) else str(path) for path in directories
    ]
    words += statements.arguments()
    words += [word for text in options["conditions"] for word in ("--condition", text)]
    words += ["--lang", options["lang"]] if options["lang"] != "en" else []
    words += ["--one-chart"] if options["one_chart"] else []
    return shlex.join(words)


def case_commands(runs: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """For each case, the commands of its first run, one per line and host."""
    by_case: dict[str, str] = {}
    for run in runs:
        commands = run.get("commands")
        if not isinstance(commands, list) or not commands:
            continue
        with suppress(KeyError, TypeError, AttributeError):  # a record of another time
            lines = [f"# {command['host']}\n{shell_line(command)}" for command in commands]
            by_case.setdefault(str(run.get("case")), "\n".join(lines))
    return list(by_case.items())
