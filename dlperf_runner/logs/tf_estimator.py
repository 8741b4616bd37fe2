"""TensorFlow 1's Estimator and TPUEstimator (BERT, tensorflow/models): steps per second, the mean
since the line before.

    INFO:tensorflow:global_step/sec: 1.73561
    INFO:tensorflow:examples/sec: 20.8273                    (of TPUEstimator, on GPUs, too)
    INFO:tensorflow:loss = 4.264659, step = 100 (57.617 sec)       (of Estimator)
    I0401 11:54:43.865536 1397 tpu_estimator.py:2307] global_step/sec: 1.73561    (once more)
    INFO:tensorflow:global step 5: loss = 62.5264 (0.424 sec/step)      (of slim, one step)

The interval is that of the lines with a step; if there are none, steps count the lines. The second
line, divided by the first, gives the batch of a step.

Each process prints its own steps; the lines of a second logger, which are the same, do not count.
Of a log of slim, the last kind of lines does.

Source: tensorflow/tensorflow v1.15.0, python/training/basic_session_run_hooks.py;
tensorflow/estimator 1.15, python/estimator/tpu/tpu_estimator.py; google-research/bert, issue 70;
tensorflow/models, issue 2980 (2017).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise

from . import text
from .records import Columns, Expression, Format, Header, LineError, StepTable
from .steps import counted_blocks

_ENTRY = re.compile(
    rb"\bglobal_step/sec: (?P<rate>[\d.]{1,32}+(?>(?:e[+-]\d\d)?))(?P<step>)%s"
    rb"|\bexamples/sec: (?P<examples>[\d.]{1,32}+)%s"
    rb"|\bloss = (?P<loss>[^\s,]{1,64}+), step = (?P<at>\d{1,12}+)\b"
    rb"(?: \((?P<seconds>[\d.]{1,32}+) sec\))?" % (text.END, text.END)
)


def as_table(pieces: Iterable[bytes]) -> StepTable:
    """The rates, with the steps of the lines of losses."""
    table, lines, places = StepTable([], Columns()), list[int](), list[int]()
    intervals = list[tuple[int, int, float | None]]()  # steps, lines of rates, seconds at each loss
    before, markers = b"", [_LINES.marker, b"examples/sec: ", b", step = "]
    for _, of_rank in counted_blocks(_LINES, pieces, markers=markers):
        for match in _ENTRY.finditer(of_rank.data):
            printed, before = before, match[0]
            if match["at"]:
                if places and int(match["at"]) < places[-1]:
                    raise _restarted(of_rank.line(match.start()), int(match["at"]), places[-1])
                places.append(int(match["at"]))
                seconds = text.optional_numbers([match["seconds"]])[0]
                intervals.append((places[-1], len(lines), seconds))
                if lines:
                    table.columns.losses[-1] = text.optional_numbers([match["loss"]])[0]
            elif match["rate"] and printed != match[0]:
                table.columns.samples_per_second.append(text.rate_in(match, _LINES))
                table.columns.losses.append(None)
                lines.append(of_rank.line(match.start()))
            elif match["examples"] and len(lines) == 1:
                batch = float(match["examples"]) / table.columns.samples_per_second[0]
                table.headers.append(Header(lines[0], global_batch_size=round(batch)))
    _refuse_other_rate(intervals, table.columns.samples_per_second, lines)
    distances = Counter(step - last for last, step in pairwise(places) if step > last)
    every = distances.most_common(1)[0][0] if distances else 1
    start = places[0] - places[0] % every if places else 0
    table.columns.steps.extend(start + every * (n + 1) for n in range(len(lines)))
    table.columns.unix_times.extend(None for _ in lines)
    return table._replace(lines=lines, headers=table.headers[:1])


def _refuse_other_rate(
    losses: Sequence[tuple[int, int, float | None]], rates: Sequence[float], lines: Sequence[int]
) -> None:
    """Raise LineError if more rates than between most others stand between two losses, and
    contradict the seconds that the second one prints. `losses`: of each its step, the number of
    rates before it, and its seconds."""
    between = [
        (step - last, count - before, count, seconds)
        for (last, before, _), (step, count, seconds) in pairwise(losses)
    ]
    (usual, times), *_ = Counter(each[:2] for each in between).most_common(1) or [((0, 0), 0)]
    if not usual[1] or times <= 0.6 * len(between):
        return  # rates and losses have intervals of their own
    for steps, number, count, seconds in between:
        if not seconds or steps > usual[0] or number <= usual[1]:
            continue
        by_rates = sum(steps / number / rate for rate in rates[count - number : count])
        if not 0.8 < by_rates / seconds < 1.25:
            raise LineError(
                lines[count - 1],
                "the rates between two losses contradict their time",
                expected=f"{seconds:g} s",
                found=f"{by_rates:.3f} s by {number} rates, where others have {usual[1]}",
                hint="remove lines of another process or of an evaluation",
            )


def _restarted(line: int, step: int, before: int) -> LineError:
    problem = f"step {step} follows {before}: the program was started again"
    hint = "keep the lines of one start, each in a file of its own"
    return LineError(line, problem, expected=f"{before} or more", found=str(step), hint=hint)


_LINES = Format(
    name="tf_estimator",
    sample="INFO:tensorflow:global_step/sec: 1.73561",
    marker=b"global_step/sec: ",
    entry=_ENTRY,
    rate=rb"\d+(?:\.\d+)?(?:e[+-]\d\d)?",
    statements=(),
    is_library=True,
    rates_are_per="step",
    counts_batches=True,
    framework="tensorflow",
)
_SLIM = replace(
    _LINES,
    sample="INFO:tensorflow:global step 5: loss = 62.5264 (0.424 sec/step)",
    marker=b" sec/step)",
    entry=Expression(
        rb"global step (?P<step>\d{1,12}+): loss = (?P<loss>%(w)s) \((?P<rate>%(w)s) sec/step\)"
        % {b"w": text.WORD}
    ),
    rate=rb"\d+\.\d{2,3}",
    one_step=True,
    seconds=1.0,
    is_library=False,
)
FORMAT = replace(_LINES, table=as_table, variants=(_SLIM,))
