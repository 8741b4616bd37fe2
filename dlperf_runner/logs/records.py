"""Records of a log: a Step for a line with a rate, a Header for a line that states the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Step(NamedTuple):
    """A rate that the log prints.

    `step` is the last iteration that the rate covers, counted from 1. `printed` is the rate as
    text, as in the log. `rank` is the process that printed it, if the log says so. `unix_time` is
    in seconds; a time stamp without a time zone is taken as UTC, so only differences are
    meaningful.
    """

    step: int
    samples_per_second: float
    line: int
    printed: str
    loss: float | None = None
    unix_time: float | None = None
    rank: int | None = None


class Columns(NamedTuple):
    """Steps as columns of equal length, with the meaning that they have in Step, and the rate over
    the whole run if the program prints one."""

    steps: Sequence[int]
    samples_per_second: Sequence[float]
    losses: Sequence[float | None]
    unix_times: Sequence[float | None]
    final_samples_per_second: float | None = None


def columns(steps: Sequence[Step], final: float | None = None) -> Columns:
    """Convert steps, and the rate over the whole run, to columns."""
    return Columns(
        [step.step for step in steps],
        [step.samples_per_second for step in steps],
        [step.loss for step in steps],
        [step.unix_time for step in steps],
        final,
    )


@dataclass(frozen=True)
class Header:
    """What a line of the log states about its run. A field is None if the line does not state it.

    `final_samples_per_second` is the rate over the whole run that some programs print at the end;
    `printed` is that rate as text, as in the log. Several processes may print every step into the
    same log without naming themselves; `writer` is then the process that printed this header.
    """

    line: int
    batch_size_per_device: int | None = None
    world_size: int | None = None
    precision: str | None = None
    total_steps: int | None = None
    log_every: int | None = None
    final_samples_per_second: float | None = None
    printed: str = ""
    writer: int | None = None


# Appended to the last line of a log if that line has no newline.
CUT = "…"

# Line number and text. Of an extremely long line, the text is the part around a marker.
Line = tuple[int, str]


class LineError(Exception):
    """A line of a log is invalid. The caller that knows the file adds its name."""

    def __init__(self, line: int, problem: str, *, expected: str, found: str) -> None:
        super().__init__(f"line {line}: {problem} (expected {expected}, found {found})")
        self.line = line
        self.problem = problem
        self.expected = expected
        self.found = found


@dataclass(frozen=True)
class Format:
    """A log format. `parse` gets only the lines that contain one of the literal markers.

    `step_markers` are searched in the whole log, `head_markers` only up to the first line with a
    step marker. `sample` is a line with a rate, for messages. `zero_based`: the log counts
    iterations from 0, so its first line is that of step 1. `silent_warmup`: nothing is printed
    during warm-up. `columns` is optional and faster: it takes all lines with step markers at once,
    without mpirun's tags. It returns the same steps as `parse`, or None if a line is irregular.
    """

    name: str
    sample: str
    step_markers: tuple[str, ...]
    head_markers: tuple[str, ...]
    parse: Callable[[Iterable[Line]], Iterator[Step | Header]]
    columns: Callable[[str], Columns | None] | None = None
    zero_based: bool = False
    silent_warmup: bool = False
