"""Writes a workload into the user's own folder of the catalogue, and checks it there."""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ..core.errors import UserError
from ..core.files import read_bytes, remove, write_whole
from ..core.units import SAMPLES
from ..logs.pattern import DURATION

FOLDER = "workloads"


class Question(NamedTuple):
    """What must be known of a workload: the option that states it, its text, and the name of its
    value. Only those without a default are asked for."""

    name: str
    text: str
    metavar: str
    default: str = ""
    asked: bool = True

    @property
    def option(self) -> str:
        return f"--{self.name.replace('_', '-')}"


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
        "A regular expression for the lines with a rate, with the groups step, rate or step_time"
        " (in seconds), and perhaps loss",
        "REGEX",
    ),
    Question("unit", "What its rates count, samples or tokens", "UNIT"),
    Question("sample", "A line that the expression must match", "LINE", asked=False),
    Question(
        "rates_are_per", "Whose rate it prints: world, node or device", "WHOSE", "world", False
    ),
    Question("log_every", "The steps from one line to the next", "N", "1", False),
    Question("total_steps", "The steps of a run", "N", "120", False),
    Question("warmup_steps", "The first steps, which do not count", "N", "20", False),
    Question("batch_size", "The batch size per device", "N", "1", False),
    Question("precision", "The precision", "NAME", "fp32", False),
    Question("topologies", "Nodes and devices per node", "1n1g[,2n8g]", "1n1g", False),
    Question("repeats", "How often each case runs", "N", "5", False),
)
OWN = "own"  # the format that a regular expression describes


def missing(values: Mapping[str, str]) -> list[Question]:
    """The questions that must still be answered."""
    open_ones = [q for q in QUESTIONS if q.asked and not values.get(q.name)]
    has_regex, form = bool(values.get("regex")), values.get("log_format", "")
    skipped = {"log_format"} if has_regex else {"regex"} if form not in ("", OWN) else set()
    return [question for question in open_ones if question.name not in skipped]


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
        n: _count(n, given[n]) for n in ("total_steps", "log_every", "batch_size", "repeats")
    }
    warmup = _count("warmup_steps", given["warmup_steps"], least=0)
    regex = given["regex"]
    is_duration = f"(?P<{DURATION}>" in regex
    sample = {"sample": given["sample"]} if given["sample"] else {}
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
        "log_format": f"{given['name']}-log" if regex else given["log_format"],
        **({"log_pattern": {"regex": regex, **sample}} if regex else {}),
        **({"unit": given["unit"]} if given["unit"] != SAMPLES else {}),
        "launcher": given["launcher"],
        "rule": {
            "total_steps": numbers["total_steps"],
            "warmup_steps": warmup,
            "estimator": "harmonic_mean_of_rates" if is_duration else "mean_of_rates",
            "log_every": numbers["log_every"],
            "rates_are_per": "step" if is_duration else given["rates_are_per"],
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


def _count(name: str, text: str, least: int = 1) -> int:
    if text.isascii() and text.isdigit() and len(text) < 10 and int(text) >= least:
        return int(text)
    raise UserError(
        "invalid number",
        where=f"--{name.replace('_', '-')}",
        expected=f"an integer of at least {least}",
        found=text,
    )
