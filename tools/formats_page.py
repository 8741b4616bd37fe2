"""Generates docs/log-formats.md from formats_page.md, the formats and their examples:

python -m tools.formats_page > docs/log-formats.md
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from dlperf_runner import logs
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.workload import program_model
from dlperf_runner.logs import Format

TEMPLATE = Path(__file__).with_suffix(".md")
EXAMPLES = Path(logs.__file__).parent / "examples"
_LONGEST = 400  # characters of an example line
_CODE = re.compile(r"(`[^`]*`)")


def render() -> str:
    """The page: the template, with a table and a section for each format, by the name of its
    program."""
    abouts = {path.parent.name: _about(path) for path in EXAMPLES.glob("*/examples.yml")}
    order = sorted(abouts, key=lambda name: abouts[name]["program"].strip("`").casefold())
    table = "".join(
        f"| [`{name}`](#{name}) | {abouts[name]['program']} | {abouts[name]['rate']} |"
        f" {abouts[name]['counts']} |\n"
        for name in order
    )
    sections = "\n".join(
        line for name in order for line in _section(logs.formats()[name], abouts[name])
    )
    page = TEMPLATE.read_text(encoding="utf-8")
    return page.replace("{table}\n", table).replace("{sections}\n", sections)


def _about(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return document


def _section(form: Format, about: Mapping[str, Any]) -> Iterator[str]:
    workloads = load_catalog().workloads
    rule = program_model(form, "any", None, workloads).workload
    catalogued = [w.framework for w in workloads.values() if w.log_format == form.name]
    yield f"### {form.name}\n"
    yield "| | |\n| --- | --- |"
    yield f"| program | {about['program']} |"
    frameworks = form.frameworks or dict.fromkeys(catalogued) or ["stated by the user"]
    yield f"| framework | {', '.join(frameworks)} |"
    yield f"| a printed rate | {about['rate']}; it counts {about['counts']} |"
    yield f"| throughput | {rule.unit}/s, by `{rule.rule.estimator}` |"
    yield f"| settings in the log | {', '.join(_settings(form)) or 'none'} |\n"
    module = importlib.import_module(f"{logs.__name__}.{form.name}")
    yield _prose(inspect.cleandoc(module.__doc__ or "")) + "\n"
    if form.caveat:
        yield f"A note below the table of results says: {form.caveat}.\n"
    if sources := _sources(about):
        yield "Versions, by their sources:\n"
        yield "".join(f"- {source}\n" for source in sources)
    yield from _example(form, about)


def _settings(form: Format) -> list[str]:
    """The statements of the log, by the names of the fields of a header and of parameters."""
    names = {"batch": "global_batch_size", "total": "total_steps", "last": "total_steps"}
    stated = {names[group] for group in form.entry.groupindex if group in names}
    for statement in form.statements:
        stated |= {*statement.pattern.groupindex, *statement.options.values()}
    return [f"`{name}`" for name in sorted(stated)]


def _sources(about: Mapping[str, Any]) -> list[str]:
    """The versions of the programs whose sources or output the examples repeat."""
    sources = [example["source"] for example in about["examples"] if "written" in example]
    return [*dict.fromkeys(_escaped(source) for source in sources)]


def _prose(text: str) -> str:
    """A docstring as Markdown: indented lines are code in both."""
    paragraphs = text.split("\n\n")
    return "\n\n".join(one if one.startswith("    ") else _escaped(one) for one in paragraphs)


def _escaped(text: str) -> str:
    parts = _CODE.split(text)
    parts[::2] = [re.sub(r"([*<])", r"\\\1", part) for part in parts[::2]]
    return "".join(parts)


def _example(form: Format, about: Mapping[str, Any]) -> Iterator[str]:
    """The first line with a rate of the plainest example, and how it is read."""
    with_rates = [one for one in about["examples"] if one.get("rates")]
    plain = [one for one in with_rates if one["log"] == "wording.excerpt"]
    example = (plain or with_rates)[0]
    data = (EXAMPLES / form.name / example["log"]).read_bytes()
    number = example["rates"][0][0]
    _, step, rate, *_ = [row for row in example["rates"] if row[0] == number][-1]  # of a bar
    line = data.decode(errors="replace").split("\n")[number - 1].strip().rpartition("\r")[2].strip()
    version = logs.detect([data], {form.name: form}) or form
    unit = " steps/s" if version.rates_are_per == "step" else ""
    yield (
        f"Line {number} of the example `{form.name}/{example['log']}` is read as step {step} and"
        f" the rate {rate:.9g}{unit}:\n"
    )
    yield f"    {line[:_LONGEST]}{'...' if len(line) > _LONGEST else ''}\n"


if __name__ == "__main__":
    print(render(), end="")
