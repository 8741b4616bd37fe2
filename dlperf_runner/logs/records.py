"""The content of a log: its steps as columns, and a Header for each line that states settings."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

from ..core.units import Unit


@dataclass
class Columns:
    """The lines with a rate, in the order of the log, as lists of equal length.

    `steps`: the last iteration that a rate covers, counted from 1. `samples_per_second`: positive
    finite rates, as printed. `losses` and `unix_times` (s): None where the log has none. A time
    stamp without a time zone is taken as UTC, so only differences are meaningful. `means`: what a
    step took, or a sample if rates count samples, as the mean of its epoch up to each line, in s;
    empty if the format has none.
    """

    steps: list[int] = field(default_factory=list)
    samples_per_second: list[float] = field(default_factory=list)
    losses: list[float | None] = field(default_factory=list)
    unix_times: list[float | None] = field(default_factory=list)
    means: list[float] = field(default_factory=list)

    def extend(self, more: Columns) -> None:
        """Append the lines of the next part of a log."""
        for name, column in vars(self).items():
            column.extend(getattr(more, name))

    def take(self, indices: Sequence[int]) -> Columns:
        """Some of the lines."""
        columns = vars(self).values()
        return Columns(*([column[index] for index in indices if column] for column in columns))


@dataclass(frozen=True)
class Header:
    """The settings that a line of the log states. A field is None if the line does not state it.

    `final_samples_per_second` is the rate over the measured steps that some programs print at the
    end, `whole_run_samples_per_second` one that includes steps of the warm-up.
    Several processes may print every step into the same log without naming themselves; `writer` is
    then the process that printed this header. `network` is the model as the program calls it.
    `parameters` are further options of the program, as printed: `xla`, `data`, `image_size` ...
    A batch size per device may be a fraction if several devices share a sample. A precision or
    a network may be one of several: `fp32|tf32`.
    """

    line: int
    batch_size_per_device: float | None = None
    global_batch_size: int | None = None
    world_size: int | None = None
    nodes: int | None = None
    precision: str | None = None
    total_steps: int | None = None
    warmup_steps: int | None = None
    log_every: int | None = None
    final_samples_per_second: float | None = None
    whole_run_samples_per_second: float | None = None
    writer: int | None = None
    network: str | None = None
    tokens_per_step: int | None = None
    parameters: tuple[tuple[str, str], ...] = ()


# Appended to the last line of a log if that line has no newline.
CUT = "…"


class StepTable(NamedTuple):
    """The content of a log whose rates are no steps. `lines` are those of the rates, and `notes`
    say what else they include."""

    headers: list[Header]
    columns: Columns
    epoch_length: int | None = None
    lines: Sequence[int] = ()
    notes: Sequence[str] = ()


class LineError(Exception):
    """A line of a log is invalid. The caller that knows the file adds its name."""

    def __init__(
        self, line: int, problem: str, *, expected: str, found: str, hint: str | None = None
    ) -> None:
        super().__init__(f"line {line}: {problem} (expected {expected}, found {found})")
        self.line = line
        self.problem = problem
        self.expected = expected
        self.found = found
        self.hint = hint

    def at(self, line: int) -> LineError:
        """The same at another line."""
        return LineError(
            line, self.problem, expected=self.expected, found=self.found, hint=self.hint
        )


class Refusal(NamedTuple):
    """The reason why the rates of a log are not usable, what it should have, and what to do.
    `is_certain`: no other line of the log gives its rates."""

    problem: str
    expected: str
    hint: str
    is_certain: bool = False


@dataclass(frozen=True, eq=False)
class Statement:
    """Lines that state settings. `marker` is a literal text that each of them contains.

    `expression` either has named groups, each called as the field of Header that it gives, or it
    matches pairs of an option and a value, and `options` maps options to fields. The groups
    `nodes` and `devices_per_node` give the world size together; `iterations` and `updates` up to a
    line, the number of accumulated batches; `samples_per_s` and `step_ms`, the global batch size.
    Groups like `mesh_tp` are degrees of parallelism; with an empty group `whole_mesh`, their
    product is the world size. Together with `sequence_length`, `tokens_per_step` gives the global
    batch size. Other names become `parameters`. `values` translates printed values; the names of
    dtypes are always translated.
    With a `refusal`, a line that matches says that the rates of its log are not usable.
    """

    marker: str
    expression: str | re.Pattern[str]
    options: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    refusal: Refusal | None = None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The compiled expression. Only that of a format that is read is needed."""
        if isinstance(self.expression, str):
            return re.compile(self.expression, re.ASCII)
        return self.expression

    @cached_property
    def is_final(self) -> bool:
        return "final_samples_per_second" in self.pattern.groupindex


def stated(
    marker: str,
    expression: str,
    *,
    values: Mapping[str, str] = MappingProxyType({}),
    refusal: Refusal | None = None,
) -> Statement:
    """The statement of an expression with named groups."""
    return Statement(marker, expression, values=values, refusal=refusal)


class Matched(Protocol):
    """The part of a match that formats need."""

    def __getitem__(self, group: str, /) -> Any: ...

    def start(self, group: str | int = 0, /) -> int: ...


class Entries(Protocol):
    """The part of a pattern that formats need."""

    @property
    def groupindex(self) -> Mapping[str, int]: ...

    def finditer(self, string: bytes, /) -> Iterator[Matched]: ...

    def findall(self, string: bytes, /) -> list[Any]: ...


class Watch(Protocol):
    """A reader of a log from block to block. Its lines have one of the `markers`. Returns headers
    that take several lines. Raises LineError if they show that the rates are not usable."""

    markers: ClassVar[tuple[bytes, ...]]

    def __call__(self, block: Any, /) -> Sequence[Header] | None: ...


class Expression:
    """A regular expression that is compiled when it is first used: a log needs that of one
    format."""

    def __init__(self, text: bytes) -> None:
        self._text = text

    @cached_property
    def compiled(self) -> re.Pattern[bytes]:
        """The compiled expression."""
        return re.compile(self._text)

    @property
    def groupindex(self) -> Mapping[str, int]:
        """The numbers of the groups by name."""
        return self.compiled.groupindex

    def finditer(self, string: bytes) -> Iterator[Matched]:
        """The matches in some bytes."""
        return self.compiled.finditer(string)

    def findall(self, string: bytes) -> list[Any]:
        """The groups of each match."""
        return self.compiled.findall(string)


@dataclass(frozen=True, eq=False)
class Format:
    """A log format.

    `entry` matches a line with a rate. Its named groups are `step`, `rate`, and optionally `loss`,
    `time`, `epoch` with `of_epoch` (steps count in each epoch anew, and each has so many steps),
    `memory_gib`, `tflops` (of a device), `mfu` (in percent), `compute` (the rate without
    waiting for data) or `waited` (the part of a step's seconds in which it did), `mean` (what
    `rate` is, of all steps of the epoch so far), `skipped` (the steps since the line before that
    changed no weight), `inverse` (the unit, if `rate` is the
    duration of a step in seconds), `prefix` (K, M ..., which multiplies `rate`), `steps_per_second`
    (as printed, to compare it with the time stamps), and what each of these lines states
    of the whole run: `batch`, the global batch size, `samples`, that of a device (ignored if it
    varies), and `total`, the number of steps, or `last`,
    the number of the last step, counted from 0.
    A match without a rate gives the loss of a step whose rate follows. `marker` is a literal text
    that each match contains. `rate`
    matches a whole rate, so that a number that was cut or wrapped is noticed. `sample` is a line
    with a rate, for messages.

    `opening`: a step has several lines. A match with a step and no rate contains this literal text
    instead of `marker`, and gives the step of the next matches, which have a rate and no step.
    `evaluation`: the literal text of lines of evaluations in the place of a step's; their matches
    have a group of this name.
    `zero_based`: the log counts iterations from 0, so its first line is that of step 1.
    `silent_warmup`: nothing is printed during warm-up. `one_step`: a rate is that of a single step;
    by default, a rate covers all steps since the line before it. `first_too`: the log has a line
    for step 1, whatever the interval. `skips_first`: the first interval has no line. `skips_last`:
    the last of the steps that the log states may have none. `seconds`:
    `rate` is the duration of a step in units of so many seconds; it becomes a rate in steps per
    second. `rates_are_per`: what a printed rate is of; of a step, it is in steps per second.
    `running_mean`: a rate is the mean of all steps behind the first ones, of which this is the
    number; it becomes that of the steps since the line before. With a group `amount`, steps differ,
    and that is what they counted so far.
    `is_library`: other programs print these lines into their logs, too. `batch_of_step`: the batch
    of a run counts all samples of a step, those of accumulated batches included; in other formats,
    the accumulated batches multiply it. `counts_batches`: a step of a log is one of the batches
    that the program accumulates, so they multiply nothing. `accumulates`: the program usually
    accumulates batches. `is_fp32`: the program is of a time before TF32, or measures no training.
    `table`: reads a log whose rates are no steps of a training, in the place of `entry`.
    `variants`: the formats, with the same name, of versions whose lines cannot be described
    together.

    `window`: a rate is the mean of so many last steps, whatever the interval between two lines.

    `watch`: what reads lines that show whether the rates of a log are usable.

    `caveat`: what its rates may hold besides, for a note below each table.

    `zero_loss`: what a loss of 0 at every step shows, if it is of synthetic data; in logs of other
    formats, such a run is invalid.

    `rank_rates`: the reason why the rates of a log in which several ranks print them are not
    usable unless the user states whose they are.

    If no workload of the catalogue has the format: `framework`, which may be one of several
    (`tensorflow2|jax`), and `unit`, what rates count.
    `whole_run`: a rate is that of a whole run or of all its steps after a warm-up, of which the log
    has one; `step` is then how many steps it covers, 1 if that is unknown. `warmup`: so many of so
    many steps are the warm-up of other ones.
    """

    name: str
    sample: str
    marker: bytes
    entry: Entries
    rate: bytes
    statements: tuple[Statement, ...]
    opening: bytes = b""
    evaluation: bytes = b""
    zero_based: bool = False
    silent_warmup: bool = False
    one_step: bool = False
    window: int | None = None
    first_too: bool = False
    skips_first: bool = False
    skips_last: bool = False
    seconds: float | None = None
    rates_are_per: Literal["world", "node", "device", "step"] = "world"
    running_mean: int | None = None
    is_library: bool = False
    batch_of_step: bool = False
    counts_batches: bool = False
    accumulates: bool = False
    is_fp32: bool = False
    table: Callable[[Iterable[bytes]], tuple[list[Header], Columns] | StepTable] | None = None
    variants: tuple[Format, ...] = ()
    framework: str | None = None
    unit: Unit | None = None
    warmup: tuple[int, int] = (20, 100)
    whole_run: bool = False
    watch: type[Watch] | None = None
    caveat: str | None = None
    zero_loss: str | None = None
    rank_rates: Refusal | None = None

    @property
    def frameworks(self) -> list[str]:
        """Those of which the program may be; the first one if nothing says which."""
        return self.framework.split("|") if self.framework else []

    @property
    def only_first_epoch(self) -> bool:
        """True if only the first epoch of a log counts: steps count in each epoch anew, and nothing
        states how many it has."""
        groups = self.entry.groupindex
        return self.table is None and "epoch" in groups and "of_epoch" not in groups

    @cached_property
    def markers(self) -> tuple[bytes, ...]:
        """The literal texts of the lines that are read; each line has one of them."""
        markers = (self.marker, *(statement.marker.encode() for statement in self.statements))
        others = filter(None, (self.opening, self.evaluation))
        return (*markers, *others, *(self.watch.markers if self.watch else ()))

    @cached_property
    def whole_rates(self) -> re.Pattern[bytes]:
        """Matches whole rates, each followed by a newline."""
        return re.compile(rb"(?>(?:(?:%s)\n)*)" % self.rate)
