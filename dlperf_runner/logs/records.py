"""What a log says: a Step for a line with a rate, a Header for a line that states what ran."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Step(NamedTuple):
    """A rate that the log prints.

    `step` is the last iteration that the rate covers, counted from 1. `printed` is the rate as it
    stands in the log. `rank` is the process that printed it, where the log says so. `unix_time`
    is in seconds; a time stamp without a zone is taken as UTC, so only differences mean anything.
    """

    step: int
    samples_per_second: float
    line: int
    printed: str
    loss: float | None = None
    unix_time: float | None = None
    rank: int | None = None


class Columns(NamedTuple):
    """Steps as columns of equal length, each as in Step; and the rate over the whole run, where
    the program prints one."""

    steps: Sequence[int]
    samples_per_second: Sequence[float]
    losses: Sequence[float | None]
    unix_times: Sequence[float | None]
    final_samples_per_second: float | None = None


def columns(steps: Sequence[Step], final: float | None = None) -> Columns:
    """Steps, and the rate over the whole run, as columns."""
    return Columns(
        [step.step for step in steps],
        [step.samples_per_second for step in steps],
        [step.loss for step in steps],
        [step.unix_time for step in steps],
        final,
    )


@dataclass(frozen=True)
class Header:
    """What a line of the log states about its run; None is what that line does not say.

    `final_samples_per_second` is the rate over the whole run that some programs print at the end,
    and `printed` that rate as it stands in the log. `writer` is the process that states this, of
    several that print every step into the same log and sign none of those lines.
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


# Behind the last line of a log that has no newline there.
CUT = "…"

# Number and text of a line, or of the part around a marker of one that is absurdly long.
Line = tuple[int, str]


class LineError(Exception):
    """A line of a log that cannot be what it should be; who knows the file adds its name."""

    def __init__(self, line: int, problem: str, *, expected: str, found: str) -> None:
        super().__init__(f"line {line}: {problem} (expected {expected}, found {found})")
        self.line = line
        self.problem = problem
        self.expected = expected
        self.found = found


@dataclass(frozen=True)
class Format:
    """A kind of log. Only lines with one of these literal texts are given to `parse`.

    `step_markers` are looked for in the whole log, `head_markers` only up to the first line that
    has a step marker. `sample` is a line with a rate, for messages. `zero_based`: the log counts
    iterations from 0, so its first line is that of step 1. `silent_warmup`: nothing is printed
    during warm-up. `columns` takes lines with step markers, without tags of mpirun, all at once;
    it gives what `parse` does, or None where a line is odd. It may be left out: it saves time.
    """

    name: str
    sample: str
    step_markers: tuple[str, ...]
    head_markers: tuple[str, ...]
    parse: Callable[[Iterable[Line]], Iterator[Step | Header]]
    columns: Callable[[str], Columns | None] | None = None
    zero_based: bool = False
    silent_warmup: bool = False
