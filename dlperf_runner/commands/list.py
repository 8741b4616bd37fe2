"""The output of `list`: the catalogue and the formats of logs, as text for people and as one
document for programs."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Annotated, Any

import typer

from .. import logs
from ..catalog.framework import Environment
from ..catalog.published_numbers import PublishedNumber, as_record, load_published
from ..catalog.reader import Catalog, folder_of, load_catalog
from ..catalog.source import Source, UpstreamSource
from ..catalog.workload import Matrix, Workload
from ..core.errors import unknown_name
from ..core.lists import counted, grouped
from ..core.paths import PACKAGE
from ..core.units import SAMPLES, per_second
from ..options import completes, print_json, screen
from ..report.terminal import wrapped

ORDER = 240
# A named value below an entry, such as ("log", "plsc").
Detail = tuple[str, str]
Block = tuple[str, list[Detail]]
_SOURCES = 3  # of a publication, that are named; --json has all


def command(
    what: Annotated[
        str,
        typer.Argument(
            help="Show only workloads, matrices, frameworks, stacks, published or formats.",
            metavar="[WHAT]",
            show_default=False,
            autocompletion=completes(lambda: SECTIONS),
        ),
    ] = "",
    as_json: bool = False,
) -> None:
    """Show the workloads, matrices, frameworks, stacks and published numbers of the catalogue, and
    the formats of logs that are read.

    Example: dlperf list published"""
    if as_json:
        print_json(document(load_catalog(), what))
    else:
        print(render(load_catalog(), what, screen().prose), end="")


def document(catalog: Catalog, what: str = "") -> dict[str, Any]:
    """The whole catalogue, or only the kind `what`. Each matrix has its keys, cases and runs."""
    everything: dict[str, Any] = {
        "workloads": _dumped(catalog.workloads),
        "matrices": {
            workload.name: {
                name: {
                    **matrix.model_dump(mode="json", exclude_none=True),
                    "rule": workload.rule_of(name).model_dump(mode="json", exclude_none=True),
                    "cases": cases(matrix),
                    "runs": cases(matrix) * matrix.repeats,
                }
                for name, matrix in workload.matrices.items()
            }
            for workload in catalog.workloads.values()
        },
        "frameworks": _dumped(catalog.frameworks),
        "stacks": _dumped(catalog.stacks),
        "published": [as_record(number) for number in load_published()],
        "formats": dict(_abouts()),
    }
    return {name: everything[name] for name in _chosen(what)}


def render(catalog: Catalog, what: str = "", width: int = 80) -> str:
    """The same as text; without `what` only the names, which fit a screen. No line is wider than
    `width`, unless a single word is."""
    if not what:
        return "".join(f"{line}\n" for line in _names(catalog, width))
    lines: list[str] = []
    for name in _chosen(what):
        lines.append(name.capitalize())
        for heading, details in SECTIONS[name](catalog):
            lines += wrapped(heading, width, first="  ", rest="      ")
            indent = max(len(label) for label, _ in details) + 2
            for label, text in details:
                first, rest = "    " + label.ljust(indent), " " * (4 + indent)
                lines += wrapped(text, width, first=first, rest=rest)
        lines.append("")
    return "\n".join(lines)


def _names(catalog: Catalog, width: int) -> Iterator[str]:
    numbers = load_published()
    named = {"workloads": catalog.workloads, "frameworks": catalog.frameworks}
    for kind, entries in {**named, "stacks": catalog.stacks}.items():
        yield from wrapped(f"{len(entries)} {kind}: {', '.join(entries)}", width, rest="  ")
    yield f"{sum(len(workload.matrices) for workload in catalog.workloads.values())} matrices"
    yield f"{len(numbers)} published numbers of {len({n.report for n in numbers})} reports"
    yield f"{len(logs.formats())} formats of logs"
    yield from wrapped(f"Details: dlperf list {', '.join(SECTIONS)}", width, rest="  ")


def cases(matrix: Matrix) -> int:
    return len(matrix.topologies) * len(matrix.batches)


def _chosen(what: str) -> list[str]:
    if not what:
        return list(SECTIONS)
    if what not in SECTIONS:
        raise unknown_name("kind of catalogue entry", what, SECTIONS)
    return [what]


def _dumped(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: entry.model_dump(mode="json", exclude_none=True) for name, entry in entries.items()
    }


def _workloads(catalog: Catalog) -> Iterator[Block]:
    for workload in catalog.workloads.values():
        details = [
            ("framework", workload.framework),
            ("--model", ", ".join(workload.model_names)),
            ("--precision", ", ".join(workload.precisions)),
            ("log format", workload.log_format),
            *([("unit", per_second(workload.unit))] if workload.unit != SAMPLES else []),
            *((name, _source(workload, source)) for name, source in workload.sources.items()),
            *([("upstream", f"none: {workload.no_upstream}")] if workload.no_upstream else []),
            *([] if workload.sources.items() else [("runs", "no; logs only")]),
        ]
        if (folder := folder_of(workload.name)) != PACKAGE.parent:
            details.append(("catalogue", str(folder)))
        if workload.published:
            details.append(("published", workload.published))
        yield f"{workload.name}: {workload.title}", details


def _source(workload: Workload, source: Source) -> str:
    if isinstance(source, UpstreamSource):
        parts = [f"{source.repository} at {source.commit[:12]}"]
        if source.patches:
            parts.append(counted(len(source.patches), "patch", "patches"))
    else:
        parts = [", ".join(path.rpartition("/")[2] for path in source.files)]
    parts.append(f"started by {workload.launcher_of(source, workload.parameters)}")
    if source.flavor:
        parts.append(f"flavor {source.flavor}")
    if source.stacks:
        parts.append(f"on {' or '.join(source.stacks)} only")
    return ", ".join(parts)


def _matrices(catalog: Catalog) -> Iterator[Block]:
    for workload in catalog.workloads.values():
        for name, matrix in workload.matrices.items():
            rule = workload.rule_of(name)
            runs = counted(cases(matrix) * matrix.repeats, "run")
            yield (
                f"{workload.name} {name}: {counted(cases(matrix), 'case')}, {runs}",
                [
                    ("topologies", " ".join(map(str, matrix.topologies))),
                    ("batches", ", ".join(_batches(matrix))),
                    (
                        "each",
                        f"{counted(matrix.repeats, 'repeat')} of {rule.total_steps} iterations,"
                        f" {rule.warmup_steps} of them warm-up",
                    ),
                ],
            )


def _batches(matrix: Matrix) -> Iterator[str]:
    """`r100 fp32 b64 b96`: the batch sizes of each network and precision."""
    networks = grouped(matrix.batches, lambda entry: f"{entry.variant} {entry.precision}".strip())
    for name, entries in networks.items():
        yield " ".join([name, *(f"b{entry.batch_size_per_device}" for entry in entries)])


def _frameworks(catalog: Catalog) -> Iterator[Block]:
    for framework in catalog.frameworks.values():
        details = [(stack, _environment(e)) for stack, e in framework.environments.items()]
        for flavor, environments in framework.flavors.items():
            details += [
                (f"{stack} ({flavor})", _environment(e)) for stack, e in environments.items()
            ]
        missing = {**framework.unavailable, **framework.lacking}
        details += [(name, f"none: {why}") for name, why in missing.items()]
        yield f"{framework.name}: {framework.title}", details or [("environments", "none")]


def _environment(environment: Environment) -> str:
    values = environment.model_dump(exclude_none=True)
    parts = [
        f"Python {values['python']}" if values.get("python") else "",
        values.get("requirements") or "",
        *(f"package {name} of the distribution" for name in environment.apt_packages),
        f"Horovod {environment.horovod.version}" if environment.horovod else "",
        *(f"operator's wheel of {w['distribution']}" for w in values["operator_wheels"]),
        f"image {values['container']['image']}" if "container" in values else "",
    ]
    other = f"; or {_environment(environment.alternative)}" if environment.alternative else ""
    return ", ".join(part for part in parts if part) + other


def _stacks(catalog: Catalog) -> Iterator[Block]:
    for stack in catalog.stacks.values():
        details = [
            ("accelerator", stack.accelerator),
            ("suites", ", ".join([*stack.suites, *stack.systems]) or "any"),
            ("processors", ", ".join(stack.processors)),
        ]
        versions = stack.model_dump(
            exclude_none=True,
            exclude={
                *("name", "title", "accelerator", "suites", "systems", "processors"),
                "apt_packages",
            },
        )
        for name, values in versions.items():
            texts = (
                # The version is shown without its key.
                _text(value) if key in ("version", "models") else f"{key} {_text(value)}"
                for key, value in sorted(values.items(), key=lambda item: item[0] != "version")
            )
            details.append((name, ", ".join(texts)))
        yield f"{stack.name}: {stack.title}", details


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _published(catalog: Catalog) -> Iterator[Block]:
    for name, numbers in grouped(load_published(), attrgetter("report")).items():
        first = numbers[0]
        unknown = "" if first.workload in catalog.workloads else " (not in this catalogue yet)"
        sources = list(dict.fromkeys(number.source for number in numbers))
        reasons = dict.fromkeys(n.contradiction for n in numbers if n.contradiction)
        accelerators = dict.fromkeys(n.conditions.accelerator or "unknown" for n in numbers)
        details = [
            *([("workload", first.workload + unknown)] if first.workload else []),
            ("source", "; ".join(sources[:_SOURCES])),
            *([("more", counted(more, "source"))] if (more := len(sources) - _SOURCES) > 0 else []),
            ("date", min(number.date for number in numbers)),
            ("accelerators", ", ".join(accelerators)),
            *(("contradictory", reason) for reason in reasons),
            *_tables(numbers),
        ]
        yield f"{name}: {first.title}", details


def _tables(numbers: Sequence[PublishedNumber]) -> Iterator[Detail]:
    """`resnet50v1b fp32: 1n1g b128 390.6, 1n8g b128 2549.4 samples/s`"""
    tables = grouped(numbers, lambda n: " ".join(filter(None, (n.model, n.precision))))
    for name, cells in tables.items():
        batches = (f" b{n.batch_size_per_device}" if n.batch_size_per_device else "" for n in cells)
        texts = (
            f"{n.topology}{batch} {n.samples_per_second:.6g}"
            for n, batch in zip(cells, batches, strict=True)
        )
        yield "numbers", f"{name}: {', '.join(texts)} {per_second(cells[0].unit)}"


def _formats(_: Catalog) -> Iterator[Block]:
    yield counted(len(logs.formats()), "format"), list(_abouts())


def _abouts() -> Iterator[Detail]:
    """Each format with its program and what a printed rate is."""
    for name in logs.formats():
        about = inspect.getdoc(importlib.import_module(f"{logs.__name__}.{name}")) or ""
        yield name, " ".join(about.partition("\n\n")[0].split())


SECTIONS: dict[str, Callable[[Catalog], Iterator[Block]]] = {
    "workloads": _workloads,
    "matrices": _matrices,
    "frameworks": _frameworks,
    "stacks": _stacks,
    "published": _published,
    "formats": _formats,
}
