"""The data sets of the inventory with what the catalogue knows about each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..catalog.entry import validated
from ..catalog.reader import lookup
from ..catalog.stack import plain
from ..catalog.workload import DataSetPlace, datasets

# Keys of an entry of the inventory that the role takes as they are.
SAME = ("archive", "sha256", "images", "seed", "shared", "synthetic")


def sets(given: Mapping[str, Mapping[str, Any]], names: Sequence[str] = ()) -> list[dict[str, Any]]:
    """The data sets of dlperf_datasets as arguments of the role: all, or those with these names.
    Raises UserError for an unknown name, key or value."""
    return [_arguments(name, entry) for name, entry in given.items() if not names or name in names]


def _arguments(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    data = lookup("data set", name, datasets(), "dlperf_datasets")
    place = validated(plain(entry), DataSetPlace, f"dlperf_datasets: {name}")
    parts = place.parts or data.parts or 1
    stated = {key: value for key in SAME if (value := getattr(place, key))}
    return {
        "name": name,
        "format": data.format,
        "files": [
            template.format(part=part, parts=parts)
            for template in data.files
            for part in range(parts if "{part" in template else 1)
        ],
        "pattern": data.pattern or "",
        "classes": data.classes,
        "faces": data.faces,
        **data.image.model_dump(),
        **stated,
        "records": place.records or data.records,
        "path": place.path or data.synthetic,
        "made": bool(place.archive or place.images or place.synthetic),
    }


def facts(results: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """The measurements of the check of each data set, by name, for the records of runs."""
    keys = ("files", "bytes", "records", "digest")
    return {
        result["item"]["name"]: {
            "path": result["item"]["path"],
            **{key: result[key] for key in keys},
        }
        for result in results
    }


def digests(
    hosts: Sequence[str], hostvars: Mapping[str, Mapping[str, Any]], name: str
) -> dict[str, str]:
    """The digest of the data set on each host that has it and passed the check."""
    measured = {host: hostvars[host].get("dataset_found", {}).get(name) for host in hosts}
    return {host: facts["digest"] for host, facts in measured.items() if facts}


def of_runs(runs: Sequence[Mapping[str, Any]], host: str) -> list[str]:
    """The data sets that the runs of a node read."""
    names = (run.get("dataset") for run in runs if host in run["hosts"])
    return [name for name in dict.fromkeys(names) if name]


def ready_runs(
    runs: Sequence[Mapping[str, Any]], hosts: Sequence[str], hostvars: Mapping[str, Any]
) -> dict[str, Any]:
    """`bench_possible`: the numbers of the runs whose nodes are all ready; and the facts of the
    nodes that are (`bench_facts_by_host`)."""
    facts = {
        host: hostvars[host]["bench_facts"] for host in hosts if "bench_ready" in hostvars[host]
    }
    possible = [number for number, run in enumerate(runs) if facts.keys() >= set(run["hosts"])]
    return {"bench_possible": possible, "bench_facts_by_host": facts}
