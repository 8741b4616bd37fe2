"""The log format of a program that nobody described before: what a user states with --regex or in
mapping.yml."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from .. import logs
from ..catalog.entry import validated
from ..catalog.log_pattern import SECONDS, LogPattern
from ..core.errors import UserError
from ..core.units import SAMPLES, TOKENS
from ..logs.pattern import DURATION, counts_steps, of_pattern, seconds_of
from .log_file import LogFile
from .statement import Statement

NAME = "regex"
WITHOUT_MATCH = "the expression matches no line of some logs, which known formats read"
_ABOUT = ("unit", "rates_are_per", "step_time_unit")
_STEPS = "steps"


def sample_of(log: LogFile, statement: Statement) -> str | None:
    """The first line of a log that the stated expression matches; None if none is stated, or if
    another format reads the log. Raises UserError if nothing reads it."""
    stated = statement.get("regex")
    if stated is None:
        return None
    form = of_pattern(NAME, stated.value, "")
    with log.errors():
        sample = logs.first_line(form, log.pieces())
    if sample is None:
        try:
            _ = log.form
        except UserError as error:
            raise UserError(
                "the expression matches no line of the log",
                where=str(log.path),
                expected=f"lines that match {stated.value}",
                found=error.found,
                hint="RE2 searches it in each line, without labels of launchers and colours; the"
                " step is an integer",
            ) from None
    return sample


def stated_format(statement: Statement, sample: str, where: str) -> logs.Format:
    """The format that the user states for a log. The unit of the sample is that of all rates.
    Raises UserError if nothing says what the rates are."""
    regex = statement["regex"]
    unit = LogPattern.model_construct(regex=regex.value, sample=sample).unit
    about = {field: statement[field].value for field in _ABOUT if field in statement}
    is_duration = f"(?P<{DURATION}>" in regex.value
    of_time = about.get("step_time_unit", "s")
    if is_duration and "step_time_unit" not in about:
        of_time = next((n for n, s in SECONDS.items() if s == seconds_of(unit)), None)
    described = {"regex": regex.value, "sample": sample, "step_time_unit": of_time or "s"}
    form = validated(described, LogPattern, f"{where}: {regex.by}").format_named(NAME)
    whose = _whose(about, per_step=is_duration or counts_steps(unit))
    counted = about.get("unit", _counted(unit))
    if counted == _STEPS or (whose == "step" and counted is None):
        counted = SAMPLES  # of which a step has as many as the batch
    if missing := [*_missing(counted, whose, of_time)]:
        raise UserError(
            "nothing says what the rates of the expression are",
            where=where,
            expected=", ".join(missing),
            found=sample,
            hint="state it with these options, or in mapping.yml",
        )
    return replace(form, unit=counted, rates_are_per=whose)


def _whose(about: dict[str, Any], *, per_step: bool) -> Any:
    """Whose rates they are; None if nothing says it. Raises UserError if they are those of steps,
    and something else is stated."""
    whose = about.get("rates_are_per")
    per_step = per_step or about.get("unit") == _STEPS
    if per_step and whose not in (None, "step"):
        raise UserError(
            "the rates are those of steps",
            where="--rates-are-per",
            expected="step, because the lines or --unit say so",
            found=whose,
        )
    return "step" if per_step else whose


def _counted(unit: str) -> str | None:
    """What the unit behind a rate says that it counts; None if it says nothing."""
    what = unit.partition("/")[0].lower()
    if what in ("tok", "toks", "token", "tokens"):
        return TOKENS
    return SAMPLES if what in ("img", "imgs", "image", "images", "sample", "samples") else None


def _missing(unit: str | None, whose: str | None, seconds: str | None) -> Iterator[str]:
    """The options that must be given."""
    if seconds is None:
        yield "--step-time-unit s or ms"
    if unit is None:
        yield "--unit samples or tokens"
    if whose is None:
        yield "--rates-are-per world (all devices), node, device or step (steps per second)"
