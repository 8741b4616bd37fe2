"""Bars of tqdm that an expression of the user describes, where its lines are no regular steps.

    100%|██████████| 100/100 [00:40<00:00,  2.50it/s, loss=1.96]
      3%|▎         | 3/100 [00:01<00:38,  2.52it/s, loss=1.91]

tqdm draws a bar at most ten times a second, so fast steps are printed at irregular intervals, and
each epoch has a bar of its own, with a number or not. What is read is the rate of each tenth of an
epoch, as of Lightning's bars. A bar that begins again is the next epoch. Of bars with
different numbers of steps, those that have most of them in all count: others are of validations.

The printed rates are smoothed, so those of long parts follow from the printed times.

Source: tqdm 4.66, tqdm/std.py (format_meter).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise

from .lightning import PARTS, Epoch, Update, are_means, table_of, update_of
from .pattern import IN_BAR
from .records import Format, Header, LineError, StepTable
from .statements import headers
from .steps import counted_blocks

_BAR = re.compile(
    rb"(?P<step>\d{1,9}+)/(?P<of_epoch>\d{1,9}+) \[(?P<elapsed>[\d:]{4,12}+)<[\d:?]{1,16}+, {1,8}+"
    rb"(?P<rate>\d{1,9}+\.\d{1,9}+)(?P<unit>[a-z]{1,16}+/s|s/[a-z]{1,16}+)(?P<loss>(?!))?"
)
_PAUSE = 2.0  # an interval so many times as long as any other one
_LONG = 10  # seconds, which are printed as whole ones


def with_bars(form: Format, pieces: Callable[[], Iterable[bytes]]) -> Format:
    """The format of an expression; with a table if it describes bars whose steps begin again, or
    have irregular intervals."""
    is_plain = form.seconds in (None, 1.0) and "prefix" not in form.entry.groupindex
    if form.whole_run or not is_plain or not IN_BAR.search(form.sample):
        return form
    bars = [*_updates(form, pieces(), [])]
    steps = [update.step for update, _ in bars]
    intervals = {b - a for a, b in pairwise(steps) if a != b}
    if len(bars) < 2 or (len(intervals) == 1 and min(intervals) > 0):
        return form
    return replace(form, table=partial(_as_table, form))


def _updates(
    form: Format, pieces: Iterable[bytes], stated: list[Header]
) -> Iterator[tuple[Update, int]]:
    """The bars that the expression describes, each with its number of steps; adds the headers."""
    for block, of_rank in counted_blocks(form, pieces):
        stated += headers(form, block, of_rank)
        for match in form.entry.finditer(of_rank.data):
            bar = _BAR.search(of_rank.data, match.start())
            if bar and bar.start("rate") == match.start("rate"):
                line = of_rank.line(match.start("rate"))
                if update := update_of(bar, line):
                    yield update, int(bar["of_epoch"])


def _as_table(form: Format, pieces: Iterable[bytes]) -> StepTable:
    """The rates of the parts of each epoch. Raises LineError if a bar begins again within one."""
    stated: list[Header] = []
    bars = [*_updates(form, pieces, stated)]
    trained: Counter[int] = Counter()
    for (before, _), (update, length) in pairwise([(bars[0][0]._replace(step=0), 0), *bars]):
        trained[length] += max(0, update.step - before.step)
    length = trained.most_common(1)[0][0]
    epochs: list[Epoch] = []
    for update in (update for update, steps in bars if steps == length):
        last = epochs[-1].updates[-1] if epochs else None
        if last is None or update.step < last.step:
            if last:
                _check_end(last, update, epochs[-1])
            epochs.append(Epoch(length))
        if not epochs[-1].updates or update.step > epochs[-1].updates[-1].step:
            epochs[-1].updates.append(update)
    longest = max(epoch.updates[-1].elapsed for epoch in epochs)
    if longest >= _LONG * PARTS and not are_means(epochs):
        epochs = [Epoch(length, [*map(_by_time, epoch.updates)]) for epoch in epochs]
    table = table_of(stated, dict(enumerate(epochs)))
    others = sorted(trained.keys() - {length})
    note = f"bars of {length} steps count, and no others, as of a validation: "
    note += ", ".join(map(str, others))
    return table._replace(notes=[*table.notes, note] if others else table.notes)


def _by_time(update: Update) -> Update:
    """The same with the mean rate since the start of the epoch, by the printed time."""
    least, most = update.elapsed, update.elapsed + 1
    return update._replace(rate=2 * update.step / (least + most), least=least, most=most)


def _check_end(last: Update, update: Update, epoch: Epoch) -> None:
    """Raise LineError if a bar begins again before its end."""
    gaps = [b.step - a.step for a, b in pairwise(epoch.updates)]
    if last.step + _PAUSE * max(gaps, default=0) < epoch.length:
        raise LineError(
            update.line,
            "a progress bar begins again before its end",
            expected=f"about {epoch.length} steps, as it has",
            found=f"step {update.step} behind step {last.step}",
            hint="do several processes or runs write to this log? Take the bar of one of them",
        )
