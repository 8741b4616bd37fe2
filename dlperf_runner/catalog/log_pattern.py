"""The schema of a user's own log format, a regular expression in the file of its workload; and
words in the names of logs, by what they say about a run, as catalog/names.yml lists them."""

from __future__ import annotations

import functools
import re
from typing import Annotated, Literal

from pydantic import AfterValidator, StringConstraints, model_validator

from ..logs import Format
from ..logs.pattern import (
    DURATION,
    EPOCHS,
    GROUPS,
    Lines,
    UnitWords,
    counts_steps,
    is_prefix,
    of_pattern,
    seconds_of,
    units_of_bar,
    words_of_rate,
    words_of_time,
)
from .entry import CATALOG, load_entry
from .types import Entry, Name, Regex, entry_error

SECONDS = {"s": 1.0, "ms": 0.001, "us": 1e-6}
# s/100 is the unit of a time of 100 steps.
StepTimeUnit = Annotated[str, StringConstraints(pattern=r"^(s|ms|us)(/[1-9][0-9]{0,5})?$")]


def _with_groups(regex: str) -> str:
    """An expression that describes lines with a rate. Raises an error if it does not, or if RE2
    does not know it."""
    groups = set(re.compile(regex).groupindex)
    expected = "the groups step, rate or step_time, and perhaps loss, such as (?P<rate>[0-9.]+);"
    expected += " without step, it is one rate of the whole run"
    is_one = len(groups & {"rate", DURATION}) == 1
    if groups & {*EPOCHS} == {"of_epoch"}:
        expected = "the group epoch beside of_epoch, the number of steps of an epoch"
        is_one = False
    if groups >= {"prefix", DURATION}:
        expected, is_one = "the group prefix, such as k, behind a rate, not behind a time", False
    is_counted = "step" in groups or not groups & {"loss", *EPOCHS}
    if not is_counted or not is_one or not groups <= set(GROUPS):
        raise entry_error("wrong groups", expected, ", ".join(sorted(groups)) or "none")
    try:
        of_pattern("sample", regex, "")
    except re.error as error:
        expected = "no lookaround such as (?=...), no reference to a group, no count above 1000"
        raise entry_error(str(error), expected, regex) from None
    return regex


LinesRegex = Annotated[Regex, AfterValidator(_with_groups)]


class LogPattern(Entry):
    """The lines with a rate, as a regular expression with the groups `step`, `rate` or `step_time`,
    and optionally `loss`, `prefix` (k, M ... behind a rate), and `epoch` with `of_epoch` if steps
    count in each epoch anew. Without `step`, it is one line with the rate of the whole run.

    `sample`: such a line; it is checked, its unit is that of all rates, and messages show it.
    `first_step`: the number that the program gives the first step. `step_time_unit`: the unit of
    `step_time`; s/100 if it is the time of 100 steps.
    """

    regex: LinesRegex
    sample: str = ""
    first_step: Literal[0, 1] = 1
    step_time_unit: StepTimeUnit = "s"

    @model_validator(mode="after")
    def _has_sample(self) -> LogPattern:
        if self.sample:
            self._check_sample(self.format_named("sample"))
        return self

    def _check_sample(self, form: Format) -> None:
        match = next(iter(form.entry.finditer(self.sample.encode())), None)
        if match is None:
            raise entry_error(
                "the expression does not match its sample", self.regex, self.sample, "sample"
            )
        unit, rate = self.unit, match["rate"].decode("utf-8", "replace")
        is_duration = form.seconds is not None
        words = self.unit_words
        of_unit = seconds_of(self.step_time_unit)
        if is_duration and seconds_of(words.seconds) not in (None, of_unit):
            names = (n for n, seconds in SECONDS.items() if seconds == seconds_of(words.seconds))
            name = next(names, None)
            name = name and name + "".join(self.step_time_unit.partition("/")[1:])
            option = f"step_time_unit: {name} (--step-time-unit {name})"
            raise entry_error(
                f"the step time of the sample is in {words.seconds}",
                option if name else "a time in s, ms or us, or s/100 of 100 steps",
                self.step_time_unit if name else words.seconds,
                "sample",
            )
        if unit and not is_duration and seconds_of(unit) is not None:
            problem = f"the rate of the sample is a time, in {unit}"
            raise entry_error(problem, f"the group {DURATION} in place of rate", rate, "sample")
        if not is_duration and words.seconds:
            problem = f"the rate of the sample is per {words.seconds}"
            expected = "a rate per second, which the program, or a copy of the log, must give"
            raise entry_error(problem, expected, self.sample, "sample")
        if unit and is_prefix(unit):
            problem = "the rate of the sample goes on behind what the expression takes"
            expected = "the group prefix behind it: (?P<rate>[\\d.]+) *(?P<prefix>[kKMG]?)"
            raise entry_error(problem, expected, rate, "sample")
        if words.prefix:
            problem = f"the rate of the sample is in units of {words.prefix}"
            expected = "it as k, M or G behind the number, in a copy of the log if need be, and its"
            expected += " group: (?P<rate>[\\d.]+) *(?P<prefix>[kKMG])"
            raise entry_error(problem, expected, self.sample, "sample")
        if not form.whole_rates.fullmatch(match["rate"] + b"\n"):
            problem = "the expression does not take the whole rate of the sample"
            raise entry_error(problem, "a number such as 6025.8 or 6,025.8", rate, "sample")

    @property
    def unit(self) -> str:
        """The unit behind the rate of the sample; empty if it has none. Of a bar of tqdm, whose
        first steps are slow, that of the others: it/s."""
        lines = self.format_named("sample").entry
        unit = (lines.unit_in(self.sample) or "") if isinstance(lines, Lines) else ""
        is_bar = "inverse" in lines.groupindex and f"(?P<{DURATION}>" not in self.regex
        return units_of_bar(unit)[0] if is_bar else unit

    @property
    def unit_words(self) -> UnitWords:
        """The facts that the words beside the rate or the step time of the sample state."""
        lines = self.format_named("sample").entry
        if not isinstance(lines, Lines):
            return UnitWords()
        of_group = words_of_time if f"(?P<{DURATION}>" in self.regex else words_of_rate
        return of_group(*lines.around(self.sample))

    @property
    def is_per_step(self) -> bool:
        """True if what it gives are steps per second, as far as the sample says so."""
        return f"(?P<{DURATION}>" in self.regex or counts_steps(self.unit)

    def format_named(self, name: str) -> Format:
        """The format that it describes."""
        return of_pattern(
            name,
            self.regex,
            self.sample,
            zero_based=self.first_step == 0,
            seconds=SECONDS[self.step_time_unit.partition("/")[0]],
            steps=int(self.step_time_unit.partition("/")[2] or 1),
        )


# ---- names of logs

SIZES = (0, 1, 2, 3, 4, 5, 6, 7, 8, 16, 32)


class Names(Entry):
    """The words by what they name. `frameworks`: the short names of each framework. `models`: the
    first part of the names of models. `sized_models`: those whose name goes on with a size, as
    vit-b16 and efficientnet-b4 do."""

    name: Name
    frameworks: dict[Name, tuple[Name, ...]]
    models: tuple[Name, ...]
    accelerators: tuple[Name, ...]
    precisions: tuple[Name, ...]
    sized_models: tuple[Name, ...]

    def of_framework(self, framework: str) -> tuple[str, ...]:
        """All words that name this framework."""
        return framework, *self.frameworks.get(framework, ())

    def framework_of(self, word: str) -> str | None:
        """The framework that a word names."""
        return self._by_word.get(word)

    @functools.cached_property
    def _by_word(self) -> dict[str, str]:
        return {w: f for f in reversed(self.frameworks) for w in self.of_framework(f)}

    def has_size(self, model: str, word: str) -> bool:
        """True if a word like b16 is the size of a model rather than a batch size."""
        return model.split("-")[-1] in self.sized_models and int(word.lstrip("bs")) in SIZES

    def is_model(self, word: str) -> bool:
        """True if a word names a model: vgg, vgg16 or bert-large."""
        return self._of_models.fullmatch(word) is not None

    @functools.cached_property
    def _of_models(self) -> re.Pattern[str]:
        return re.compile(rf"(?:{'|'.join(map(re.escape, self.models))})(?:[-.\dv].*)?")


@functools.cache
def names() -> Names:
    return load_entry(CATALOG / "names.yml", Names)
