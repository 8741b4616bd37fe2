"""DLLogger of NVIDIA's DeepLearningExamples: the printed rate is that of all devices.

    DLL 2026-11-20 13:58:34.784710 - (0, 2) total_ips : 3.375044106150882
    DLL 2026-11-20 13:58:37.925081 - () train_throughput : 4.104384208700401 images/s

`total_ips` is the rate of the last step. It is printed every `display_every` steps, counted from 0,
but not during warm-up. `train_throughput` is the mean over all measured steps; some versions print
no unit. Only rank 0 prints. mpirun's tag can be before, inside or after the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from . import text
from .records import Columns, Format, Header, Line, Step

_ENTRY = re.compile(
    r"(?:(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{6}) - )?"
    r"(?:\(\d*,? ?(\d{1,12})?\) )?(total_ips|train_throughput) : (\S+)",
    re.ASCII,
)
_PARAMETER = re.compile(r"(\w+) : (\S+)", re.ASCII)
_WORLD = re.compile(r"\bNum GPUs (\d+)", re.ASCII)


def parse(lines: Iterable[Line]) -> Iterator[Step | Header]:
    """Steps and headers, in the order of the log."""
    for number, line, rank in text.by_rank(lines):
        found = False
        for stamp, step, key, printed in _ENTRY.findall(line):
            found = True
            value = text.rate(number, printed)
            if key == "train_throughput":
                yield Header(line=number, final_samples_per_second=value, printed=printed)
            elif step:
                time = text.unix_time(stamp)
                yield Step(int(step) + 1, value, number, printed, None, time, rank)
        if not found:
            yield from _headers(number, line)


def _headers(number: int, line: str) -> Iterator[Header]:
    if " PARAMETER " in line:
        options = dict(_PARAMETER.findall(line.partition(" PARAMETER ")[2]))
        batches = options.get("iter_unit") == "batch"
        amp = {"True": "amp", "False": "fp32"}
        yield Header(
            line=number,
            batch_size_per_device=text.count(number, "batch size", options.get("batch_size")),
            precision=amp.get(options.get("amp", "")),
            total_steps=text.count(number, "number of steps", options.get("num_iter"))
            if batches
            else None,
            log_every=text.count(number, "log interval", options.get("display_every")),
        )
    elif world := _WORLD.search(line):
        yield Header(line=number, world_size=text.count(number, "number of GPUs", world[1]))


def columns(lines: str) -> Columns | None:
    """The steps of a whole log, and the last rate that it prints for the whole run."""
    entries = _ENTRY.findall(lines)
    steps = [entry for entry in entries if entry[1] and entry[2] == "total_ips"]
    stamps, numbers, _, rates = text.transposed(steps, 4)
    means = [printed for _, _, key, printed in entries if key == "train_throughput"]
    speeds, final = text.numbers(rates), text.numbers(means[-1:] or ["0"])
    if speeds is None or final is None or len(steps) + len(means) < len(entries):
        return None
    return Columns(
        [int(number) + 1 for number in numbers],
        speeds,
        [None] * len(speeds),
        [text.unix_time(stamp) for stamp in stamps],
        final[0] if means else None,
    )


FORMAT = Format(
    name="dllogger",
    sample="DLL 2026-11-20 13:58:34.784710 - (0, 2) total_ips : 3.375044106150882",
    step_markers=("total_ips", "train_throughput"),
    head_markers=(" PARAMETER ", "Num GPUs "),
    parse=parse,
    columns=columns,
    zero_based=True,
    silent_warmup=True,
)
