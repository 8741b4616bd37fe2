"""Reads campaigns and writes a report: report.html, report.md, plots and results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..campaign.directory import name_of
from ..campaign.manifest import seal
from ..compare.conditions import parse_stated
from ..core.errors import UserError
from ..core.extras import require
from ..core.files import is_campaign, json_text, read_bytes, remove, write_result
from ..core.frame import records
from ..options import AboutLogs, exit_with, followed, print_json, reading_logs, states
from ..report.charts import draw, look_different, program, workers
from ..report.document import (
    Campaign,
    Document,
    Figure,
    make_cases,
    make_document,
    make_figures,
    read_campaign_record,
    report_command,
)
from ..report.labels import load_labels
from ..report.result_files import destination, guarded, source_document
from ..results.statement import NOTHING, Statements, with_conditions

if TYPE_CHECKING:
    from ..catalog.workload import Model
    from ..compare.conditions import Values
    from ..report.charts import Chart

ORDER = 180
HELP = """
directories CAMPAIGN...: Campaigns, or directories of published logs.
--output-dir DIR: Output directory; default: CAMPAIGN/report, results/<name>/report for other logs,
  or ./report for several campaigns.
--lang LANGUAGE: en or zh.
--one-chart: Draw all precisions and batch sizes of a model in one chart.
"""


@states
def command(
    about: AboutLogs,
    directories: list[Path],
    output_dir: Path | None = None,
    lang: str = "en",
    one_chart: bool = False,
    condition: list[str] | None = None,
    as_json: bool = False,
) -> None:
    """Write report.html, report.md, plots and results.{csv,json,xlsx,tex}. The exit status is 1 if
    a run failed, is missing or is invalid, and 2 if a log failed validation.

    Example: dlperf report examples/logs --lang zh"""
    require("report", "scipy", "vl_convert", "xlsxwriter")  # before logs are read for minutes
    made = make_report(
        directories,
        output_dir,
        lang,
        conditions=condition or [],
        statements=about.statements(),
        one_chart=one_chart,
    )
    if as_json:
        files, problems = [*map(str, made.paths)], [*map(str, made.problems)]
        document = {"answers": made.answers, "files": files}
        print_json({**document, "notes": made.notes, "problems": problems})
    else:
        for text in (*made.answers, *made.notes, *map(str, made.paths)):
            print(text)
    exit_with(made.problems, made.is_incomplete)


@dataclass(frozen=True)
class Report:
    """The result of `make_report`. `problems` are logs that failed validation. `is_incomplete`: a
    run failed, is missing or is invalid."""

    answers: tuple[str, ...]
    paths: tuple[Path, ...]
    notes: tuple[str, ...]
    problems: tuple[UserError, ...]
    is_incomplete: bool


def make_report(
    directories: Sequence[Path],
    output_dir: Path | None = None,
    language: str = "en",
    conditions: Sequence[str] = (),
    statements: Statements = NOTHING,
    one_chart: bool = False,
) -> Report:
    """Write the report of one or more campaigns into `output_dir`.

    The default directory is `report` in the campaign, or in results/<name> for other logs, or in
    the current directory for several campaigns. `statements` are what the user states about logs.
    `conditions` are strings such as `data=real`: conditions that the logs do not record.

    Raises UserError if there are no results, or if the report cannot be written.
    """
    from ..report import html, xlsx

    t = load_labels(language)
    if len(directories) == 1:
        conditions = with_conditions(conditions, statements, directories[0])
    options = {"lang": language, "conditions": list(conditions), "one_chart": one_chart}
    material = _material(directories, options, None, statements)
    is_one = output_dir is None and len(directories) == 1
    source = source_document(directories) if is_one else {}
    if output_dir is None:
        output_dir = destination(directories) / "report" if is_one else Path("report")
    inside = guarded(directories) if is_one else output_dir
    charts = _charts(material.figures)
    notes: tuple[str, ...] = ()
    with workers(len(charts)) as pool:
        script = pool.submit(program)
        drawn = pool.map(draw, charts.values(), chunksize=4)
        has_letters = t.language == "en" or not charts or pool.submit(look_different)
        document = _document(directories, material, options, statements)
        # Charts take long to hand over, and no sheet has one.
        tables = replace(document, sections=(), series_not_counted=(), figures=())
        workbook = pool.submit(xlsx.render, tables)
        shown = zip(charts, drawn, strict=True)
        pictures = dict(followed(shown, len(charts), "painting plots"))
        svgs = {name: picture.svg for name, picture in pictures.items()}
        if isinstance(has_letters, Future) and not has_letters.result():
            # A PNG has its letters in it: where no font has Chinese ones, it speaks English.
            charts = _charts(material.drawn_in("en", one_chart))
            pictures = dict(zip(charts, pool.map(draw, charts.values(), chunksize=4), strict=True))
            notes = (t("png_language"),)
        data = _data(document, options)
        page = html.render(document, svgs, script.result(), (*data, "results.xlsx"))
        files = {"report.html": page.encode(), **data, "results.xlsx": workbook.result()}
    files |= {f"plots/{name}.svg": f"{svg}\n".encode() for name, svg in svgs.items()}
    for name, picture in pictures.items():
        files |= {f"plots/{name}.png": picture.png, f"plots/{name}.pdf": picture.pdf}
    for name, text in source.items():
        write_result(output_dir.parent / name, text, inside)
    paths = _written(files, output_dir, inside)
    problems = tuple(problem for each in material.campaigns for problem in each.results.problems)
    is_incomplete = any(each.results.is_incomplete for each in material.campaigns)
    return Report(tuple(map(str, document.answers)), paths, notes, problems, is_incomplete)


@dataclass(frozen=True)
class _Material:
    """The parts of a document. Its figures can be drawn before the document is complete."""

    campaigns: Sequence[Campaign]
    cases: tuple[dict[str, Any], ...]
    published: Sequence[Mapping[str, Any]]
    figures: tuple[Figure, ...] = ()

    def drawn_in(self, language: str, one_chart: bool) -> tuple[Figure, ...]:
        labels = load_labels(language)
        return tuple(make_figures(self.cases, self.published, one_chart, labels))


def _material(
    directories: Sequence[Path],
    options: Mapping[str, Any],
    models: Sequence[Model] | None,
    statements: Statements = NOTHING,
) -> _Material:
    from ..compare.published import published_points

    campaigns = list(_campaigns(directories, models, statements))
    cases = make_cases(campaigns, _families())
    made = _Material(campaigns, cases, published_points(cases))
    return replace(made, figures=made.drawn_in(options["lang"], options["one_chart"]))


def _document(
    directories: Sequence[Path],
    material: _Material,
    options: Mapping[str, Any],
    statements: Statements = NOTHING,
) -> Document:
    """The document of `directories`, and the command that makes it. Campaigns keep their part of
    the catalogue."""
    from ..core.paths import own_catalog

    catalog = None if all(map(is_campaign, directories)) else own_catalog()
    return make_document(
        material.campaigns,
        material.cases,
        material.figures,
        list(_compared(material.campaigns, parse_stated(options["conditions"]))),
        report_command(directories, statements, options, catalog),
        load_labels(options["lang"]),
    )


def _charts(figures: Iterable[Figure]) -> dict[str, Chart]:
    return {name: chart for figure in figures for name, chart in figure.charts}


def _written(files: Mapping[str, bytes], folder: Path, inside: Path) -> tuple[Path, ...]:
    """Write the files of a report, and remove the plots of an older one."""
    former = _former_plots(folder, inside)
    paths = tuple(write_result(folder / name, content, inside) for name, content in files.items())
    for path in former - set(paths):
        remove(path, inside)
    seal(folder, "report", paths)
    return paths


def _campaigns(
    directories: Sequence[Path],
    models: Sequence[Model] | None,
    statements: Statements = NOTHING,
) -> Iterator[Campaign]:
    from ..report.result_files import notes_on
    from ..results.discovery import of_each
    from ..results.load import catalogued, load_results
    from ..stats.notes import case_notes
    from ..stats.summary import summarize

    models = catalogued(directories) if models is None else models
    names = [name_of(directory) for directory in directories]
    stated = of_each(directories, statements)
    of_others: dict[str, str] = {}  # the names of campaigns by their logs
    for (directory, statement), name in zip(stated, names, strict=True):
        results = load_results(
            directory, models, statements=statement, with_series=True, progress=reading_logs
        )
        shown = name if names.count(name) == 1 else str(directory)
        cases = records(summarize(results.frame))
        # The report has a separate table of runs that were not counted.
        more = [note for note in results.notes if not note.startswith("not counted: ")]
        copied = dict.fromkeys(of_others[log] for log in results.logs if log in of_others)
        more += [f"some logs are copies of those of {other}" for other in copied]
        of_others |= dict.fromkeys(results.logs, shown)
        recorded = read_campaign_record(directory)
        calculated = (*case_notes(results.frame, cases), *notes_on(cases, results))
        notes = (*recorded.notes, *calculated, *more)
        yield Campaign(shown, results, cases, recorded, notes)


def _families() -> dict[tuple[str, str], str]:
    """The family of each model that is a version of the same model in several frameworks.

    Workloads with variants are excluded: their models are not versions of each other.
    """
    from ..catalog.reader import load_catalog

    return {
        (workload.name, workload.model): workload.families[0]
        for workload in load_catalog().workloads.values()
        if workload.families and not workload.variants
    }


def _compared(
    campaigns: Sequence[Campaign], stated: Values
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The result of compare_published for each campaign."""
    from ..catalog.published_numbers import load_rule
    from ..compare.conditions import read_conditions
    from ..compare.published import compare_published

    rule = load_rule()
    for campaign in campaigns:
        if campaign.cases:
            results = campaign.results
            conditions = read_conditions(results.counted, results.models, rule, stated)
            rows = compare_published(results.frame, conditions, rule=rule, cases=campaign.cases)
            yield campaign.name, rows


# ---- files


def data_files(
    directories: Sequence[Path], models: Sequence[Model] | None, options: Mapping[str, Any]
) -> dict[str, bytes]:
    """The files of a report without pictures. They are the same each time they are written.
    `options` are those that its results.json says it was made with."""
    material = _material(directories, options, models)
    return _data(_document(directories, material, options), options)


def _data(document: Document, options: Mapping[str, Any]) -> dict[str, bytes]:
    from ..report import latex, markdown
    from ..report.result_files import csv

    return {
        "report.md": markdown.render_report(document).encode(),
        "results.csv": csv(document.cases).encode(),
        "results.tex": latex.render(document).encode(),
        "results.json": results_json(document, options).encode(),
    }


def results_json(document: Document, options: Mapping[str, Any]) -> str:
    """The unchanged cases, and the tables of the report as lists of objects."""
    tables = [*document.sweeps, *document.time, *document.side_by_side, document.compared]
    tables += document.environment
    tables += [table for table in (document.not_counted, document.differences) if table]
    whole = {
        "title": document.title,
        "campaigns": document.subtitle,
        "made_with": dict(options),
        "answers": [str(answer) for answer in document.answers],
        "cases": document.cases,
        "tables": {
            table.name: [
                dict(zip(table.labels, (cell.value for cell in row), strict=True))
                for row in table.rows
            ]
            for table in tables
        },
        "command": document.command,
        "commands": {
            commands.campaign: {"command": commands.command, "cases": dict(commands.cases)}
            for commands in document.commands
        },
        "plots": [name for figure in document.figures for name, _ in figure.charts],
        "methods": document.methods,
        "notes": document.notes,
        "problems": document.problems,
    }
    return json_text(whole)


def _former_plots(output_dir: Path, inside: Path) -> set[Path]:
    """The plots of an older report in the directory, as listed in its results.json."""
    try:
        names = list(json.loads(read_bytes(output_dir / "results.json", inside))["plots"])
    except (OSError, ValueError, KeyError, TypeError):
        return set()
    stems = [name for name in names if isinstance(name, str) and re.fullmatch(r"[\w.+-]+", name)]
    return {
        output_dir / "plots" / f"{name}.{kind}" for name in stems for kind in ("svg", "png", "pdf")
    }
