"""What a campaign recorded of itself: its nodes, what they differ in, and its commands."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .plan_text import shell_line

# Facts that name a node are different on every one, and say nothing.
_NAMES = {"hostname", "address"}


@dataclass(frozen=True)
class CampaignRecord:
    """A campaign's records, as far as it has any: a tree of logs has none."""

    campaign: Mapping[str, Any] | None = None
    runs: Sequence[Mapping[str, Any]] = ()
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by host, then name
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # by environment

    @property
    def created(self) -> str:
        """When the campaign was made, to the minute; what is no time as it stands."""
        text = str((self.campaign or {}).get("created") or "")
        try:
            return f"{datetime.fromisoformat(text).astimezone(UTC):%Y-%m-%d %H:%M} UTC"
        except ValueError:
            return text

    @property
    def notes(self) -> list[str]:
        """The notes and tags of its campaign file."""
        own = self.campaign or {}
        notes, tags = own.get("notes"), own.get("tags")
        named = f"tags: {', '.join(map(str, tags))}" if isinstance(tags, list) and tags else ""
        return [*filter(None, (str(notes) if notes else "", named))]

    @property
    def inventory(self) -> list[Mapping[str, Any]]:
        nodes = (self.campaign or {}).get("inventory")
        return [node for node in nodes if isinstance(node, dict)] if isinstance(nodes, list) else []


def read_campaign_record(directory: Path) -> CampaignRecord:
    """What is recorded below a directory. What cannot be read is left out: the results say what is
    wrong with it."""
    campaign = _object(directory / "campaign.json") or None
    records = (_object(path) for path in sorted((directory / "runs").glob("*/*/run.json")))
    runs = [record for record in records if record]
    return CampaignRecord(campaign, runs, _facts(runs), _versions(runs))


def _object(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError, RecursionError):
        value = json.loads(path.read_bytes())
        if isinstance(value, dict):
            return value
    return {}


def _outcome(run: Mapping[str, Any]) -> Mapping[str, Any]:
    outcome = run.get("outcome")
    return outcome if isinstance(outcome, dict) else {}


def _facts(runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """The facts of each host, as a text; of one that changed meanwhile, each in its turn."""
    by_host: dict[str, dict[str, dict[str, None]]] = {}
    for run in runs:
        hosts = _outcome(run).get("hosts")
        for host, facts in hosts.items() if isinstance(hosts, dict) else ():
            for name, value in facts.items() if isinstance(facts, dict) else ():
                if value not in (None, "", [], {}):
                    by_host.setdefault(str(host), {}).setdefault(str(name), {})[_shown(value)] = (
                        None
                    )
    return {
        host: {name: " → ".join(values) for name, values in facts.items()}
        for host, facts in sorted(by_host.items())
    }


def _versions(runs: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    by_environment: dict[str, dict[str, dict[str, None]]] = {}
    for run in runs:
        versions = _outcome(run).get("versions")
        environment = by_environment.setdefault(
            str(run.get("environment") or run.get("framework")), {}
        )
        for name, value in versions.items() if isinstance(versions, dict) else ():
            environment.setdefault(str(name), {})[_shown(value)] = None
    return {
        environment: {name: " → ".join(values) for name, values in sorted(versions.items())}
        for environment, versions in sorted(by_environment.items())
        if versions
    }


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


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
    choice = campaign.get("choice")
    words = ["python", "-m", "dlperf_runner", "run"]
    for name, value in choice.items() if isinstance(choice, dict) else ():
        if name == "parameters":
            for key, one in value.items() if isinstance(value, dict) else ():
                words += ["--parameter", f"{key}={one}"]
        elif value not in (None, "", []):
            texts = value if isinstance(value, list) else [value]
            words += [f"--{name.replace('_', '-')}", ",".join(map(str, texts))]
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
