"""Writes a workload into the user's own folder of the catalogue, and checks it there."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from ..core.errors import UserError, unknown_name
from ..core.files import read_bytes, remove, write_whole
from ..core.paths import own_catalog
from ..core.units import SAMPLES
from ..logs.pattern import DURATION, Lines, counts_steps, seconds_of
from ..options import completes, option, text_option, with_options
from ..plan.choice import option_name, whole_number

ORDER = 250
FOLDER = "workloads"


class Question(NamedTuple):
    """A fact about a workload: its option, text, and the name of its value. Only those without a
    default are asked for."""

    name: str
    text: str
    metavar: str
    default: str = ""
    asked: bool = True


QUESTIONS = (
    Question("name", "The name of the workload", "NAME"),
    Question(
        "command",
        "The command of each process, such as '{python} train.py --batch {batch_size_per_device}'",
        "COMMAND",
    ),
    Question("framework", "The framework in whose environment or image it runs", "NAME"),
    Question("launcher", "What starts its processes, such as torchrun or single_process", "NAME"),
    Question(
        "log_format", "The format of its log; own for a regular expression of your own", "NAME"
    ),
    Question(
        "regex",
        "A regular expression for the lines with a rate, with the groups step, rate or step_time,"
        " and perhaps loss",
        "REGEX",
    ),
    Question("sample", "A line that the expression must match, for its unit", "LINE", asked=False),
    Question("unit", "What its rates count, samples or tokens", "UNIT"),
    Question(
        "rates_are_per",
        "Whose rate it prints: world (all devices), node, device, or step (steps per second)",
        "WHOSE",
    ),
    Question(
        *("step_time_unit", "The unit of step_time: s, ms, us, or s/100 of 100 steps", "UNIT"),
        "that of the sample, or s",
        asked=False,
    ),
    Question("log_every", "The steps from one line to the next", "N", "1", False),
    Question("total_steps", "The steps of a run", "N", "120", False),
    Question("warmup_steps", "The first steps, which do not count", "N", "20", False),
    Question("batch_size", "The batch size per device", "N", "1", False),
    Question("precision", "The precision", "NAME", "fp32", False),
    Question("topologies", "Nodes and devices per node", "1n1g[,2n8g]", "1n1g", False),
    Question("repeats", "How often each case runs", "N", "5", False),
)
_FEW = 12  # answers that a question shows
OWN = "own"  # the format that a regular expression describes
Files = Annotated[
    list[Path] | None,
    option(
        "--file", "A file of the program, which is copied to the nodes; may be repeated.", "PATH"
    ),
]


def choices(name: str, folder: Path | None = None) -> list[str]:
    """The answers that a question takes; empty if it takes any."""
    from ..catalog.entry import CATALOG
    from ..launchers import launchers
    from ..logs import formats

    if name == "framework":
        folders = (
            root.glob("frameworks/*.yml") for root in (CATALOG, folder or own_catalog() or CATALOG)
        )
        return sorted({path.stem for each in folders for path in each})
    if name in ("launcher", "log_format"):
        return [*launchers()] if name == "launcher" else [*formats(), OWN]
    few: dict[str, list[str]] = {
        "unit": [SAMPLES, "tokens"],
        "rates_are_per": ["world", "node", "device", "step"],
        "step_time_unit": ["s", "ms", "us"],
        "precision": ["fp32", "tf32", "amp", "bf16", "fp16"],
    }
    return few.get(name, [])


@partial(
    with_options,
    options=[
        text_option(
            q.name,
            option_name(q.name),
            q.text + (f"; default: {q.default}." if q.default else "."),
            q.metavar,
            autocompletion=completes(partial(choices, q.name)),
        )
        for q in QUESTIONS
    ],
)
def command(values: Mapping[str, str], files: Files = None) -> None:
    """Describe a program of your own as a workload, in your own folder of the catalogue. On a
    terminal, asks for what the options do not say. The folder is that of --catalog.

    Example: dlperf --catalog catalog init-workload"""
    folder = own_catalog()
    left = missing(values)
    if not on_terminal() and (left or folder is None):
        names = [*(["--catalog"] if folder is None else []), *(option_name(q.name) for q in left)]
        raise UserError("options are missing", expected=", ".join(names))
    given: dict[str, Any] = dict(values)
    if folder is None:
        folder = Path(typer.prompt("The folder of your catalogue", default="catalog")).absolute()
    while left:
        answers = choices(left[0].name, folder)
        text = (
            f"{left[0].text} ({', '.join(answers)})" if 0 < len(answers) <= _FEW else left[0].text
        )
        given[left[0].name] = typer.prompt(
            text,
            default=left[0].default or None,
            value_proc=partial(checked, left[0].name, folder),
        )
        left = missing(given)
    made = init_workload(folder, given, files or ())
    where = shlex.quote(str(folder))
    print(f"Created {made}. See what would run, run it, and read its logs:")
    for command in (f"plan --workload {given['name']}", f"run --workload {given['name']}"):
        print(f"  dlperf --catalog {where} {command}")
    print(f"  dlperf --catalog {where} summarize")


def checked(name: str, folder: Path, answer: str) -> str:
    """An answer as it is. Raises the error after which a terminal is asked again."""
    answers = choices(name, folder)
    if answers and answer not in answers:
        raise typer.BadParameter(str(unknown_name("answer", answer, answers)))
    if name == "name" and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", answer):
        raise typer.BadParameter(
            "a name has letters, digits, dots and hyphens, and begins with none of these two"
        )
    if name == "name" and (folder / FOLDER / f"{answer}.yml").exists():
        raise typer.BadParameter("the workload exists already; take a new name")
    try:
        groups = re.compile(answer).groupindex if name == "regex" else {}
        shlex.split(answer if name == "command" else "")
    except (re.error, ValueError) as error:
        raise typer.BadParameter(str(error)) from None
    if name == "regex" and not ("step" in groups and {"rate", DURATION} & set(groups)):
        raise typer.BadParameter(
            f"it needs the groups (?P<step>...) and (?P<rate>...) or {DURATION}"
        )
    return answer


def on_terminal() -> bool:
    """True if there is somebody to ask."""
    return sys.stdin.isatty()


def missing(values: Mapping[str, str]) -> list[Question]:
    """The questions that must still be answered."""
    open_ones = [q for q in QUESTIONS if q.asked and not values.get(q.name)]
    regex, form = values.get("regex"), values.get("log_format", "")
    if regex:
        # The rates of durations and of it/s are those of steps.
        skipped = {"log_format", *(["rates_are_per"] if _is_per_step(values) else [])}
    else:
        skipped = {"regex", "rates_are_per"} if form not in ("", OWN) else set()
    return [question for question in open_ones if question.name not in skipped]


def _is_per_step(values: Mapping[str, str]) -> bool:
    """True if the expression, or the unit in its sample, says that steps are counted."""
    if f"(?P<{DURATION}>" in values["regex"]:
        return True
    return counts_steps(_unit(values["regex"], values.get("sample", "")))


def _unit(regex: str, sample: str) -> str:
    """The unit behind the rate of the sample; empty if it has none, or if the expression is not
    valid, which the catalogue says."""
    try:
        return Lines(regex, sample).unit_in(sample) or ""
    except re.error:
        return ""


def init_workload(folder: Path, values: Mapping[str, str], files: Sequence[Path] = ()) -> Path:
    """Write the workload and copies of its files. Raises UserError, and writes nothing, if the
    catalogue would not take it."""
    import yaml

    from ..catalog import reader

    name = values["name"]
    path = folder / FOLDER / f"{name}.yml"
    if path.name != f"{name}.yml" or path.parent != folder / FOLDER or path.exists():
        raise UserError(
            "the workload exists already" if path.exists() else "invalid name",
            where=f"--name: {path}",
            expected="a new name of letters, digits, dots and hyphens",
            found=name,
        )
    place = folder / "files" / name
    document = _document(values, [f"files/{name}/{file.name}" for file in files])
    made: list[Path] = []
    try:
        for file in files:
            mode = 0o777 if os.access(file, os.X_OK) else 0o666
            write_whole(place / file.name, read_bytes(file), mode, inside=folder)
            made.append(place / file.name)
        made.append(path)
        text = yaml.safe_dump(document, sort_keys=False, width=120, allow_unicode=True)
        write_whole(
            path,
            f"# Every key is explained in docs/catalogue.md of dlperf_runner.\n{text}",
            inside=folder,
        )
        reader.forget()
        reader.load_catalog()
    except (OSError, UserError) as error:
        for one in made:
            remove(one, inside=folder)
        reader.forget()
        if isinstance(error, UserError):
            raise
        raise UserError(
            "cannot copy the file", where=str(error.filename), found=error.strerror
        ) from None
    return path


def _document(values: Mapping[str, str], files: Sequence[str]) -> dict[str, Any]:
    """The content of the workload's file."""
    given = {q.name: values.get(q.name) or q.default for q in QUESTIONS}
    numbers = {
        n: whole_number(given[n], n) for n in ("total_steps", "log_every", "batch_size", "repeats")
    }
    warmup = whole_number(given["warmup_steps"], "warmup_steps", 0)
    form = given["log_format"]
    whose = values.get("rates_are_per") or ""
    pattern: dict[str, Any] = {}
    if regex := given["regex"]:
        form, pattern = f"{given['name']}-log", {"log_pattern": _pattern(values)}
        whose = whose or ("step" if _is_per_step(values) else "")
    is_duration = f"(?P<{DURATION}>" in regex
    short = given["name"].lower().replace("_", "-")
    try:
        argv = shlex.split(given["command"])
    except ValueError as error:
        raise UserError(f"{error}", where="--command", found=given["command"]) from None
    return {
        "name": given["name"],
        "title": given["name"],
        "framework": given["framework"],
        "model": short,
        "short_name": short,
        "log_format": form,
        **pattern,
        **({"unit": given["unit"]} if given["unit"] != SAMPLES else {}),
        "launcher": given["launcher"],
        "rule": {
            "total_steps": numbers["total_steps"],
            "warmup_steps": warmup,
            "estimator": "harmonic_mean_of_rates" if is_duration else "mean_of_rates",
            "log_every": numbers["log_every"],
            **({"rates_are_per": whose} if whose else {}),
        },
        "sources": {"builtin": {"files": list(files), "argv": argv}},
        # The names are the default matrices of inventories.
        "matrices": {
            matrix: {
                "topologies": given["topologies"].split(","),
                "batches": [
                    {
                        "precision": given["precision"],
                        "batch_size_per_device": numbers["batch_size"],
                    }
                ],
                "repeats": repeats,
            }
            for matrix, repeats in {"published": numbers["repeats"], "smoke": 1}.items()
        },
    }


def _pattern(values: Mapping[str, str]) -> dict[str, Any]:
    """The user's log format."""
    from ..catalog.log_pattern import SECONDS

    regex, sample, unit = (values.get(n) or "" for n in ("regex", "sample", "step_time_unit"))
    if f"(?P<{DURATION}>" in regex and not unit:
        seconds = seconds_of(_unit(regex, sample))
        unit = next((name for name in ("ms", "us") if SECONDS[name] == seconds), "")
    return {
        "regex": regex,
        **({"sample": sample} if sample else {}),
        **({"step_time_unit": unit} if unit else {}),
    }
