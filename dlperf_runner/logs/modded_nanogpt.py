"""modded-nanogpt (the speedruns of nanoGPT): the time of all steps so far, in ms.

    step:11/5100 train_loss:8.2431 train_time:138ms step_avg:138.10ms     (until December 2024)
    step:2/1770 train_time:523ms step_avg:261.51ms
    step:125/1770 val_loss:4.6344 train_time:17321ms step_avg:138.57ms     (if there are no others)
    step:250/3350 val_loss:4.2049 train_time:45.740s step_avg:182.96ms     (in track 3, of 2026)

Rates since the line before follow from these times. Steps count from 1. Until early 2025, the clock
began anew after 10 steps, in which `step_avg` is nan. Only rank 0 prints. The time of validations
does not count. The tokens of a step stand only in the program, which is printed into the log.

Source: KellerJordan/modded-nanogpt, train_gpt.py, and records/track_1_short of 2024-10-29,
2024-12-08 and 2025-05-25, and records/track_3_optimization.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from . import text
from .reader import blocks
from .records import Columns, Format, Header, LineError, StepTable

_ENTRY = re.compile(
    rb"\bstep:(?P<step>\d{1,9}+)/(?P<total>\d{1,9}+) "
    rb"(?:train_loss:(?P<loss>\S{1,32}+) |(?P<validation>val_loss:)\S{1,32}+ )?"
    rb"train_time:(?P<rate>\d{1,12}+(?>(?:\.\d{3})?))(?P<unit>m?s) "
    rb"step_avg:(?P<mean>\d{1,9}+\.\d\d|nan)ms"
)


def as_table(pieces: Iterable[bytes]) -> StepTable:
    """The rate of the steps since the line before. Raises LineError if the time does not grow."""
    table, lines, before = StepTable([], Columns()), [], (0, 0)
    for line, match in _timed(pieces):
        step, total = int(match["step"]), int(match["total"])
        time = round(float(match["rate"]) * (1000 if match["unit"] == b"s" else 1))
        _check_mean(line, step, time, before, match["mean"])
        table.headers.extend([Header(line, total_steps=total)] if not table.headers else ())
        if before == (0, 0) and step > 1:
            before = step, time
            continue
        steps, duration = step - before[0], time - before[1]
        if steps < 1 or duration < 1:
            problem, shown = "the time of the steps does not grow", f"{time} ms at step {step}"
            expected = f"more than {before[1]} ms, after step {before[0]}"
            raise LineError(line, problem, expected=expected, found=shown)
        table.columns.steps.append(step)
        table.columns.samples_per_second.append(1000 * steps / duration)
        table.columns.losses += text.optional_numbers([match["loss"] or b""])
        table.columns.unix_times.append(None)
        lines.append(line)
        before = step, time
    return table._replace(lines=lines)


def _timed(pieces: Iterable[bytes]) -> list[tuple[int, re.Match[bytes]]]:
    """The lines of steps with a time; those of validations if there are no others."""
    timed = [
        (block.line(match.start()), match)
        for block in blocks(pieces, [_LINES.marker])
        for match in _ENTRY.finditer(block.data)
        if match["mean"] != b"nan" and match["step"] != b"0"
    ]
    return [pair for pair in timed if not pair[1]["validation"]] or timed


def _check_mean(line: int, step: int, time: int, before: tuple[int, int], printed: bytes) -> None:
    """Raise LineError if the mean is not that of all steps, of those after the first 10, or of
    those since the line before, as in some programs of track 3."""
    mean = float(printed)
    spans = ((step, time), (step - 10, time), (step - before[0], time - before[1]))
    if not any(abs(n * mean - duration) <= 1.01 + 0.005 * n for n, duration in spans):
        raise LineError(
            line,
            "the mean duration contradicts the time of all steps",
            expected=f"{time / step:.2f} ms, or {time} ms by the steps after the first 10",
            found=f"{mean} ms",
        )


_LINES = Format(
    name="modded_nanogpt",
    sample="step:2/1770 train_time:523ms step_avg:261.51ms",
    marker=b"s step_avg:",
    entry=_ENTRY,
    rate=rb"\d+(?:\.\d{3})?",
    statements=(),
    rates_are_per="step",
    batch_of_step=True,
    framework="pytorch",
    unit="tokens",
)
FORMAT = replace(_LINES, table=as_table)
