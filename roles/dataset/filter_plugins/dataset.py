"""The data sets of the inventory with what the catalogue knows about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from ansible.errors import AnsibleFilterError

CATALOGUE = Path(__file__).resolve().parents[3] / "dlperf_runner/catalog/datasets.yml"
GIVEN = ("archive", "sha256", "images", "seed", "shared", "synthetic", "path", "parts", "records")


def dataset_sets(
    given: Mapping[str, Mapping[str, Any]], names: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """The data sets as arguments of the role: all, or those with these names.

    `given` is dlperf_datasets. `dlperf plan` checks its keys more strictly.
    """
    known = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))["datasets"]
    return [_one(name, entry, known) for name, entry in given.items() if not names or name in names]


def _one(name: str, entry: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    if name not in known:
        raise AnsibleFilterError(
            f"dlperf_datasets: unknown data set {name}; known names: {', '.join(known)}"
        )
    if unknown := [key for key in entry if key not in GIVEN]:
        raise AnsibleFilterError(
            f"dlperf_datasets: {name}: unknown key {unknown[0]}; known keys: {', '.join(GIVEN)}"
        )
    if bool(entry.get("path")) == bool(entry.get("synthetic")):
        raise AnsibleFilterError(f"dlperf_datasets: {name}: give either path, or synthetic: true")
    of = known[name]
    parts = int(entry.get("parts") or of.get("parts") or 1)
    files = [
        template.format(part=part, parts=parts)
        for template in of["files"]
        for part in range(parts if "{part" in template else 1)
    ]
    return {
        "name": name,
        "format": of["format"],
        "files": files,
        "pattern": of.get("pattern") or "",
        "classes": of["classes"],
        "faces": of.get("faces", False),
        **of["image"],
        **{key: entry[key] for key in GIVEN if entry.get(key) and key != "parts"},
        "records": int(entry.get("records") or of["records"]),
        "path": entry.get("path") or of["synthetic"],
        "made": any(entry.get(key) for key in ("archive", "images", "synthetic")),
    }


def dataset_facts(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """What the check of each data set found, by name, for the records of runs."""
    keys = ("files", "bytes", "records", "digest")
    return {
        result["item"]["name"]: {
            "path": result["item"]["path"],
            **{key: result[key] for key in keys},
        }
        for result in results
    }


def dataset_digests(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], name: str
) -> dict[str, str]:
    """The digest of the data set on each host that has it and passed the check."""
    found = {host: hostvars[host].get("dataset_found", {}).get(name) for host in hosts}
    return {host: one["digest"] for host, one in found.items() if one}


class FilterModule:
    def filters(self) -> dict[str, Any]:
        return {
            "dataset_digests": dataset_digests,
            "dataset_facts": dataset_facts,
            "dataset_sets": dataset_sets,
        }
