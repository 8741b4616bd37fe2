"""What a log states about its run: the settings before its first steps, and what the program calls
its network, its data and its options."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from .. import logs
from ..core.errors import UserError
from ..core.identity import data_of, parameters_text, read_parameters
from .log_file import LogFile
from .run_record import FoundRun, Known
from .statement import Stated

# The names of the fields in records of logs.
_FIELDS = {
    "batch_size": "batch_size_per_device",
    "world_size": "world_size",
    "nodes": "nodes",
    "precision": "precision",
}
_COUNT = re.compile(r"0*[1-9]\d{0,8}", re.ASCII)
# Parameters that programs print as the plan has them.
_PLANNED = (
    *("accumulation_steps", "classes", "image_size", "message_bytes", "noise", "parallel"),
    *("recipe", "sample_rate", "sequence_length"),
)


def head_of(log: LogFile) -> Mapping[str, Stated]:
    """The settings that the log states, by field; `by` names the line. Raises UserError if a line
    is invalid."""
    with log.errors():
        headers = logs.parse(log.form, log.pieces(), most=0).headers
    found: dict[str, Stated] = {}
    for header in headers:
        for field, attribute in _FIELDS.items():
            value: Any = getattr(header, attribute)
            if value is not None:
                found.setdefault(field, Stated(value, f"line {header.line} of the log"))
    return found


def check_network(headers: Iterable[logs.Header], run: FoundRun, entry: Known) -> None:
    """Raise UserError if the log states another network than that of its run."""
    for header in headers:
        if header.network is None:
            continue
        if _plain(header.network) not in map(_plain, entry.models):
            raise UserError(
                f"the network contradicts {run.source_of('network')}",
                where=f"{run.path}:{header.line}",
                expected=entry.model,
                found=header.network,
            )


@functools.cache
def _plain(name: str) -> str:
    """A name without what programs write differently: resnet50v1b for resnet50_v1b."""
    return re.sub(r"[-_ ]", "", name.lower())


def check_parameters(headers: Iterable[logs.Header], run: FoundRun) -> None:
    """Raise UserError if the log states another parameter than that of its planned run."""
    planned = read_parameters(run.parameters)
    for header in headers:
        for name, value in header.parameters:
            if name in _PLANNED and planned.get(name, value) != value:
                raise UserError(
                    f"the parameter {name} contradicts {run.source_of('parameters')}",
                    where=f"{run.path}:{header.line}",
                    expected=planned[name],
                    found=value,
                )


def with_options(run: FoundRun, headers: Iterable[logs.Header], entry: Known) -> FoundRun:
    """A run that is no part of a campaign, with what its log states: the parameters, the device,
    and the number of steps and warm-up steps. Without a published rule, the number of steps is
    enough; the share of the warm-up is that of the catalogue."""
    headers = list(headers)
    printed = dict(pair for header in reversed(headers) for pair in header.parameters)
    parameters = dict(_parameters(printed, entry))
    if parameters:
        run = replace(run, parameters=parameters_text(parameters))
    if printed.get("cpu") == "True":
        if run.accelerator not in (None, "cpu"):
            raise UserError(
                "the log contradicts the stated or named accelerator: it is of a CPU",
                where=str(run.path),
                expected=run.accelerator,
                found="cpu : True",
            )
        asserted = tuple(item for item in run.asserted if item[0] != "accelerator")
        run = replace(run, accelerator="cpu", asserted=asserted)
    stated = dict(run.stated_by)
    total, warmup = (
        getattr(run.rule, field) if field in stated else _first(headers, field)
        for field in ("total_steps", "warmup_steps")
    )
    if total is not None and warmup is None and not entry.is_published:
        warmup = entry.rule.warmup_of(total)
    if total is None or warmup is None or warmup >= total:
        return run
    return replace(run, rule=entry.rule_of(total, warmup))


def stated_counts(run: FoundRun, headers: Iterable[logs.Header]) -> dict[str, int]:
    """The parameters that are numbers above 0, as the plan or the log states them."""
    stated = dict(pair for header in headers for pair in header.parameters)
    stated |= read_parameters(run.parameters)
    return {name: int(text) for name, text in stated.items() if _COUNT.fullmatch(text)}


def _first(headers: Iterable[logs.Header], field: str) -> int | None:
    values = (getattr(header, field) for header in headers)
    return next((value for value in values if value is not None), None)


def _parameters(printed: Mapping[str, str], entry: Known) -> Iterator[tuple[str, str]]:
    """The parameters by the names of the catalogue, as far as the log states them."""
    for name in _PLANNED:
        if name in printed:
            yield name, printed[name]
    if "data" in printed:
        data = data_of(printed["data"], entry.synthetic_data)
        yield "data", data
        if data != "synthetic" and "dali" in printed:
            yield "input_pipeline", "DALI" if printed["dali"] == "True" else "framework"
    if "xla" in printed:
        yield "xla", printed["xla"].lower()
