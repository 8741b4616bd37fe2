"""Times and rates that an expression of the user takes and that are means since the start.

    INFO ... Rank: 0; [ep: 0] iter: 500; lr: 0.12; loss: 7.2; btime(ms): 462; eta: ...     (VISSL)
    Epoch: [0/484] Iter:[70/371], Time: 0.83, lr: [0.0099], Loss: 2.327890                 (HRNet)

Nothing in such a line says so, but the numbers do: behind a slow start, the mean after n steps is
c + a / n. The time of n steps is then n times their mean, and the rates that count are those of
each tenth of the run, or of its epoch if means begin again in each. Means of a run that began at
its later speed are near the time of a step anyway.

Source: facebookresearch/vissl, hooks/log_hooks.py; HRNet/HRNet-Semantic-Segmentation,
lib/core/function.py; xingyizhou/CenterNet, src/lib/trains/base_trainer.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from statistics import correlation, linear_regression

from . import text
from .lightning import Epoch, Update, table_of
from .records import Format, Header, LineError, StepTable
from .statements import headers
from .steps import counted_blocks

_WARMUP = 0.2
_FEWEST = 8  # lines behind it
_LEAST_DROP = 0.01  # of the means behind the warm-up
_ALIKE = 0.99  # correlation
NOTE = (
    "the lines print means since the start, as their numbers show: the rates are computed from the"
    " differences between lines"
)


def with_differences(form: Format, pieces: Callable[[], Iterable[bytes]]) -> Format:
    """The format of an expression; with a table of differences if what it takes are means since the
    start."""
    if form.whole_run or form.table or "prefix" in form.entry.groupindex:
        return form
    try:
        epochs = _epochs(_updates(form, pieces(), []))
    except LineError:
        return form  # which is reported when the log is read
    if not epochs or not _are_means_since_start(epochs[0].updates):
        return form
    return replace(form, table=partial(_as_table, form))


def _updates(form: Format, pieces: Iterable[bytes], stated: list[Header]) -> Iterator[Update]:
    """The mean of each line, as a rate and as the time of all steps so far; adds the headers.
    Raises LineError if a rate is not whole."""
    step, inverse = b"", "inverse" in form.entry.groupindex
    for block, of_rank in counted_blocks(form, pieces):
        stated += headers(form, block, of_rank)
        for match in form.entry.finditer(of_rank.data):
            step = match["step"] or step
            if match["rate"] and int(step or 0):
                rate = text.rate(match["rate"], form)
                rate = 1 / rate if inverse and match["inverse"] else rate
                time = int(step) / rate
                line = of_rank.line(match.start("rate"))
                yield Update(int(step), rate, time, time, int(time), None, line)


def _epochs(updates: Iterable[Update]) -> list[Epoch]:
    """The lines of each epoch: steps begin again in each."""
    epochs: list[Epoch] = []
    for update in updates:
        last = epochs[-1].updates[-1].step if epochs else update.step + 1
        if update.step < last:
            epochs.append(Epoch(0))
        if not epochs[-1].updates or update.step > last:
            epochs[-1].updates.append(update)
    length = max((epoch.updates[-1].step for epoch in epochs), default=0)
    return [Epoch(length, epoch.updates) for epoch in epochs]


def _are_means_since_start(updates: Sequence[Update]) -> bool:
    """True if the times of a step decrease as c + a / n behind the warm-up."""
    warm = [update for update in updates if update.step >= _WARMUP * updates[-1].step]
    inverse, times = (
        [1 / n for n in each] for each in zip(*((u.step, u.rate) for u in warm), strict=True)
    )
    if len(warm) < _FEWEST or len({*times}) == 1:
        return False
    drop = linear_regression(inverse, times).slope * (inverse[0] - inverse[-1])
    return correlation(inverse, times) > _ALIKE and drop > _LEAST_DROP * times[-1]


def _as_table(form: Format, pieces: Iterable[bytes]) -> StepTable:
    """The rates of the parts of each epoch."""
    stated: list[Header] = []
    epochs = _epochs(_updates(form, pieces, stated))
    table = table_of(stated, dict(enumerate(epochs)))
    return table._replace(notes=[*table.notes, NOTE])
