"""Published results for the same models: catalog/published/ as typed, validated numbers.

One YAML file per report states its source and the measurement conditions. The file also contains
the numbers, except for the reports that this project reproduces: their numbers are in
published.csv and published_runs.csv. A condition that a report does not state is None.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass, replace
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from ..core.case import Topology
from ..core.errors import UserError
from ..core.files import open_read
from ..core.frame import SAMPLES_PER_SECOND
from ..core.units import Unit, named
from .entry import CATALOG, load_entry
from .publication import Citation, ComparisonRule, Conditions, PublishedReport, PublishedTable

PUBLISHED = CATALOG / "published"
RULE = "rule"


@dataclass(frozen=True)
class PublishedNumber:
    """One published speed with its source, its configuration and its conditions."""

    report: str
    title: str
    publisher: str
    citation: Citation
    date: str
    framework: str
    workload: str | None
    other_workloads: tuple[str, ...]
    model: str
    workload_model: str
    precision: str | None
    batch_size_per_device: int | None
    topology: Topology
    stated: float  # as published, perhaps of one device
    samples_per_second: float  # of all devices; or tokens, as `unit` says
    unit: Unit
    runs: tuple[float, ...]
    conditions: Conditions
    speedup: float | None = None
    gpu_memory_mib: float | None = None
    contradiction: str | None = None  # why it cannot be right
    reproduced: bool = False  # the number is in published.csv; the workload reproduces it

    @property
    def workloads(self) -> tuple[str, ...]:
        """Those that it is compared with."""
        return (*([self.workload] if self.workload else []), *self.other_workloads)

    @property
    def source(self) -> str:
        """The citation, such as `Oneflow-Inc/DLPerf 092bfb4, MxNet/InsightFace/README.md`."""
        return str(self.citation)


@cache
def load_published(root: Path = PUBLISHED) -> tuple[PublishedNumber, ...]:
    """All published numbers, sorted by the name of the report, then in table order."""
    return tuple(number for report in load_reports(root) for number in _numbers(report, root))


@cache
def load_reports(root: Path = PUBLISHED) -> tuple[PublishedReport, ...]:
    paths = (path for path in sorted(root.glob("*.yml")) if path.stem != RULE)
    return tuple(load_entry(path, PublishedReport) for path in paths)


def reproduced_reports() -> tuple[PublishedReport, ...]:
    """The reports whose commands the catalogue holds."""
    return tuple(report for report in load_reports() if report.reproduction)


@cache
def load_rule() -> ComparisonRule:
    return load_entry(PUBLISHED / f"{RULE}.yml", ComparisonRule)


def as_record(number: PublishedNumber) -> dict[str, Any]:
    """The number and its conditions as one flat record for JSON."""
    topology = number.topology
    fields = {
        "report": number.report,
        "title": number.title,
        "publisher": number.publisher,
        "published_source": number.source,
        "published_commit": number.citation.commit,
        "date": number.date,
        "framework": number.framework,
        "workload": number.workload,
        "model": number.model,
        "precision": number.precision,
        "batch_size_per_device": number.batch_size_per_device,
        "nodes": topology.nodes,
        "gpus_per_node": topology.gpus_per_node,
        "world_size": topology.world_size,
        named(SAMPLES_PER_SECOND, number.unit): number.samples_per_second,
        "speedup": number.speedup,
        "gpu_memory_mib": number.gpu_memory_mib,
        "runs": list(number.runs),
        "contradiction": number.contradiction,
    }
    return {**fields, **number.conditions.model_dump()}


def _numbers(report: PublishedReport, root: Path) -> list[PublishedNumber]:
    numbers = [
        _number(report, table, topology, value)
        for table in report.all_tables
        for topology, value in table.rows.items()
    ]
    return [*_numbers_of_csv(report, root), *numbers] if report.rows_of else numbers


def _number(
    report: PublishedReport, table: PublishedTable, topology: Topology, value: float
) -> PublishedNumber:
    conditions = report.conditions.changed_by(table.conditions)
    for cases in (report.cases, table.cases):
        conditions = conditions.changed_by(cases.get(topology, Conditions()))
    devices = topology.world_size if report.per_device else 1
    in_file = {"file": table.file} if table.file else {}
    return PublishedNumber(
        report=report.name,
        title=report.title,
        publisher=report.publisher,
        framework=report.framework,
        workload=report.workload,
        other_workloads=report.other_workloads,
        citation=table.source or report.source.model_copy(update=in_file),
        date=table.date or report.date,
        model=table.model,
        workload_model=report.workload_models.get(table.model, table.model),
        precision=table.precision,
        batch_size_per_device=table.batch_size_per_device,
        topology=topology,
        stated=value,
        samples_per_second=value * devices,
        unit=report.unit,
        runs=tuple(run * devices for run in table.runs.get(topology, ())),
        conditions=conditions,
        contradiction=table.contradiction,
    )


def _numbers_of_csv(report: PublishedReport, root: Path) -> list[PublishedNumber]:
    """Each line of published.csv is a table with one row."""
    names = ("model", "precision", "batch_size_per_device")
    runs: dict[tuple[str, ...], list[float]] = {}
    for line in _lines(root / "published_runs.csv", report):
        key = (*(line[name] for name in names), line["topology"])
        runs.setdefault(key, []).append(float(line["samples_per_second"]))
    numbers = []
    for line in _lines(root / "published.csv", report):
        nodes, devices = int(line["nodes"]), int(line["gpus"])
        topology, value = Topology(nodes, devices // nodes), float(line["samples_per_second"])
        of_case = runs.get((*(line[name] for name in names), str(topology)), ())
        table = PublishedTable.model_construct(
            model=line["model"],
            precision=line["precision"],
            batch_size_per_device=int(line["batch_size_per_device"]),
            rows={topology: value},
            runs={topology: tuple(of_case)},
        )
        number = _number(report, table, topology, value)
        speedup, memory = (
            float(line[name]) if line[name] else None for name in ("speedup", "gpu_memory_mib")
        )
        numbers.append(replace(number, speedup=speedup, gpu_memory_mib=memory, reproduced=True))
    if not numbers:
        raise UserError(
            f"published.csv has no rows for the report {report.rows_of}",
            where=f"{root / report.name}.yml: rows_of",
        )
    return numbers


def _lines(path: Path, report: PublishedReport) -> list[dict[str, str]]:
    with TextIOWrapper(open_read(path), encoding="utf-8", newline="") as file:
        return [line for line in csv.DictReader(file) if line["source"] == report.rows_of]
