"""The steps of a log: all lines with a rate, as columns."""

from __future__ import annotations

import functools
from bisect import bisect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice, pairwise, repeat
from statistics import median

from . import text
from .reader import REPLACED, Block, blocks, holds
from .records import Columns, Format, LineError, Matched

# The last step with a loss, and the loss, by rank.
Losses = dict[str | None, tuple[bytes, bytes]]
# Groups of a line with a rate that state a setting of the run: the field of Header, and its words,
# empty if it may vary.
OF_RUN = {
    "samples": ("batch_size_per_device", ""),
    "batch": ("global_batch_size", "global batch size"),
    "total": ("total_steps", "number of steps"),
    "last": ("total_steps", "number of steps"),  # counted from 0
}
# Time stamps have whole seconds, and steps per second few digits.
_LEAST_STAMPED = 10  # s
_MOST_TOO_SLOW = 2
_LEAST_PAIRS, _ALIKE = 5, 0.2
_UNITS = {1.0: "s", 1e-3: "ms", 1e-6: "us"}


@dataclass
class Seen:
    """The state after the blocks before: losses, for formats that print the loss of a step on a
    line before its rate; what each line with a rate states of the whole run, by group; the highest
    memory use; and for each line with a rate, that without waiting for data, the TFLOP/s and the
    MFU that the program computed, and the number of skipped steps. `opened`: the last step, and its
    epoch, of each rank whose rate follows. `without_rate`: how many matches have none that counts.
    `running_mean`: the last step and rate, if rates are running means. `evaluated`: the steps of
    lines of evaluations in the place of a step's, with the number of rates before, which
    `rates` counts. `first_epoch`: the number of the first one, and
    `epoch_length`, its steps, if lines state them."""

    losses: Losses = field(default_factory=dict)
    of_run: dict[str, set[bytes]] = field(default_factory=dict)
    memory_gib: float | None = None
    compute_rates: list[float | None] = field(default_factory=list)
    tflops: list[float | None] = field(default_factory=list)
    mfu: list[float | None] = field(default_factory=list)
    skipped: list[int] = field(default_factory=list)
    opened: dict[str | None, tuple[bytes, ...]] = field(default_factory=dict)
    without_rate: int = 0
    running_mean: tuple[int, float] | None = None
    evaluated: dict[int, int] = field(default_factory=dict)
    rates: int = 0
    first_epoch: int | None = None
    epoch_length: int | None = None


def columns(form: Format, block: Block, seen: Seen) -> Columns:
    """The lines with a rate in a block. Raises LineError if a rate is invalid."""
    has_lines = any(holds(block.data, text) for text in (form.marker, form.opening) if text)
    entries = form.entry.findall(block.data) if has_lines or not form.marker else ()
    if not entries:
        return Columns()
    if not block.data.isascii() and holds(block.data, REPLACED):
        _check_bytes(form, block)
    group: dict[str, Sequence[bytes]] = dict(
        zip(form.entry.groupindex, zip(*entries, strict=True), strict=True)
    )
    kept = _of_first_epoch(group, seen)
    if not kept:
        return Columns()
    if form.opening:
        names = [name for name in ("step", "epoch", "of_epoch") if name in group]
        places = list(zip(*(group[name] for name in names), strict=True))
        places = _opened(form, block, places, group["rate"], seen.opened)
        group |= zip(names, zip(*places, strict=True), strict=True)
    steps, rates = group["step"], group["rate"]
    if form.whole_run:
        steps = [step or b"1" for step in steps]
    empty: Sequence[bytes] = (b"",) * len(kept)
    printed, times = group.get("loss", empty), group.get("time", empty)
    _add(seen, group)
    if seen.losses or not all(rates):
        writers = _writers(form, block)
        if len(kept) < len(entries):
            pairs = enumerate(islice(writers, len(entries)))
            writers = (writer for n, writer in pairs if n in kept)
        printed = list(_losses(writers, steps, rates, printed, seen.losses))
        with_rate = [n for n, rate in enumerate(rates) if rate]
        evaluations = _add_evaluations(seen, group, with_rate)
        seen.without_rate += len(rates) - len(with_rate) - evaluations
        steps, rates, times = ([column[n] for n in with_rate] for column in (steps, rates, times))
    seen.rates += len(rates)
    counted = _integers(b" ".join(steps))
    if "epoch" in group:
        with_rate = [n for n, rate in enumerate(group["rate"]) if rate]
        epochs, lengths = ([int(group[g][n]) for n in with_rate] for g in ("epoch", "of_epoch"))
        counted = tuple(_of_epochs(epochs, lengths, counted, seen))
    per_second = _rates(form, block, rates)
    if "inverse" in group:
        per_second = _inverted(per_second, group)
    if "prefix" in group:
        of_rates = (p for p, rate in zip(group["prefix"], group["rate"], strict=True) if rate)
        factors = [text.PREFIXES[prefix] for prefix in of_rates]
        per_second = [n * factor for n, factor in zip(per_second, factors, strict=True)]
    if form.running_mean is not None:
        amounts = _amounts(form, block, group, seen) if "amount" in group else counted
        per_second = list(_since_line_before(form.running_mean, amounts, per_second, seen))
    _check_speeds(form, block, counted, _speeds(group, per_second), times)
    means = [*map(float, group.get("mean", ()))]
    return Columns(
        [number + 1 for number in counted] if form.zero_based else list(counted),
        per_second,
        text.optional_numbers(printed),
        text.unix_times(times),
        means if form.seconds else [mean and 1 / mean for mean in means],
    )


def _add_evaluations(
    seen: Seen, group: Mapping[str, Sequence[bytes]], with_rate: Sequence[int]
) -> int:
    """Add the lines of evaluations, and return their number."""
    lines = [n for n, mark in enumerate(group.get("evaluation", ())) if mark]
    seen.evaluated |= {int(group["step"][n]): seen.rates + bisect(with_rate, n) for n in lines}
    return len(lines)


def _add(seen: Seen, group: Mapping[str, Sequence[bytes]]) -> None:
    """Add what the lines print besides steps and rates."""
    for name in [name for name in OF_RUN if name in group]:
        if stated := set(filter(None, group[name])):
            seen.of_run.setdefault(name, set()).update(stated)
    if "memory_gib" in group:
        seen.memory_gib = max(seen.memory_gib or 0, *map(float, group["memory_gib"]))
    if "compute" in group:
        seen.compute_rates += text.optional_numbers(group["compute"])
    if "waited" in group:
        numbers = (text.optional_numbers(group[name]) for name in ("rate", "waited"))
        # An evaluation has no rate; the line behind it waited for it, not for data.
        evaluated = [False, *(not rate for rate in group["rate"])]
        seen.compute_rates += (
            1 / (step - waited) if waited is not None and waited < step and not late else None
            for step, waited, late in zip(*numbers, evaluated, strict=False)
            if step
        )
    for name, column in (("tflops", seen.tflops), ("mfu", seen.mfu)):
        if name in group:
            column.extend(text.optional_numbers([n.replace(b",", b"") for n in group[name]]))
    if "skipped" in group:
        seen.skipped += [int(number or 0) for number in group["skipped"]]


def _amounts(
    form: Format, block: Block, group: Mapping[str, Sequence[bytes]], seen: Seen
) -> list[int]:
    """The samples or tokens up to each line. Raises LineError if that does not grow."""
    before = seen.running_mean[0] if seen.running_mean else 0
    amounts = [int(amount) for amount in group["amount"]]
    for index, (earlier, amount) in enumerate(pairwise([before, *amounts])):
        if amount <= earlier:
            match = next(islice(with_rate(form, block.data), index, None))
            raise LineError(
                block.line(match.start("rate")),
                "the number of tokens does not grow",
                expected=f"more than {earlier}",
                found=str(amount),
            )
    return amounts


def _of_first_epoch(group: dict[str, Sequence[bytes]], seen: Seen) -> Collection[int]:
    """The indices of the lines that count: those of the first epoch of a log, if lines do not state
    how many steps an epoch has. Takes all others out of the groups."""
    every = range(len(group["step"]))
    if "epoch" not in group or "of_epoch" in group:
        return every
    epochs = group.pop("epoch")
    if seen.first_epoch is None:
        seen.first_epoch = int(epochs[0])
    if epochs.count(epochs[0]) == len(epochs) and int(epochs[0]) == seen.first_epoch:
        return every
    kept = {n: None for n in every if int(epochs[n]) == seen.first_epoch}
    seen.without_rate += len(epochs) - len(kept)
    group |= {name: [column[n] for n in kept] for name, column in group.items()}
    return kept


def _opened(
    form: Format,
    block: Block,
    places: Sequence[tuple[bytes, ...]],
    rates: Sequence[bytes],
    opened: dict[str | None, tuple[bytes, ...]],
) -> list[tuple[bytes, ...]]:
    """The step and the epoch of each match: those of its rank's last match with a step. Raises
    LineError if none has one before a rate."""
    of_lines = []
    for index, (writer, place) in enumerate(zip(_writers(form, block), places, strict=False)):
        if not place[0] and writer not in opened:
            at = next(islice(form.entry.finditer(block.data), index, None)).start("rate")
            raise LineError(
                block.line(at),
                "no line before the first rate has its step",
                expected=f"a line with {form.opening.decode()}",
                found=f"the rate {rates[index].decode('utf-8', 'replace')}",
                hint="if the log begins in the middle of a step, remove its lines; if no line has a"
                " step, let the program print it, too",
            )
        opened[writer] = place if place[0] else opened[writer]
        of_lines.append(opened[writer])
    return of_lines


def _of_epochs(
    epochs: Sequence[int], lengths: Sequence[int], steps: Sequence[int], seen: Seen
) -> Iterator[int]:
    """The steps counted from the beginning of the first epoch."""
    for epoch, length, step in zip(epochs, lengths, steps, strict=True):
        seen.first_epoch = epoch if seen.first_epoch is None else seen.first_epoch
        seen.epoch_length = length if seen.epoch_length is None else seen.epoch_length
        yield (epoch - seen.first_epoch) * seen.epoch_length + step


def _since_line_before(
    uncounted: int, amounts: Sequence[int], means: Sequence[float], seen: Seen
) -> Iterator[float]:
    """The rates since the line before, from running means and the steps, or what steps counted, up
    to each line."""
    for amount, mean in zip(amounts, means, strict=True):
        before, earlier = seen.running_mean or (uncounted, mean)
        duration = (amount - uncounted) / mean - (before - uncounted) / earlier
        # A step that does not follow is reported when all are numbered.
        yield (amount - before) / duration if amount > before and duration > 0 else mean
        seen.running_mean = amount, mean


def _speeds(
    group: Mapping[str, Sequence[bytes]], per_second: Sequence[float]
) -> Sequence[float | None]:
    """The steps per second of the lines, where they print rates in samples, too."""
    printed = group.get("steps_per_second")
    return per_second if printed is None else text.optional_numbers(printed)


def _check_speeds(
    form: Format,
    block: Block,
    steps: Sequence[int],
    speeds: Sequence[float | None],
    stamps: Sequence[bytes],
) -> None:
    """Raise LineError if the time stamps show many more steps per second than the lines print: then
    the program counted only some of its steps, as in the rates, or its durations are of several.
    Only users' expressions have both durations and time stamps."""
    is_stated = form.seconds or "steps_per_second" in form.entry.groupindex
    if not is_stated or not any(stamps):
        return
    lines = zip(steps, speeds, text.unix_times(stamps), strict=True)
    pairs = [*_between_stamps(lines)]
    by_lines, by_stamps = (sum(times) for times in zip(*pairs, strict=True)) if pairs else (0, 0)
    if by_stamps < _LEAST_STAMPED or by_lines <= _MOST_TOO_SLOW * by_stamps:
        return
    problem = "the rates count only some of the steps, as on TPUs"
    hint = "train with a log interval of 1 (--log-interval 1)"
    if form.seconds:
        ratios = [printed / stamped for printed, stamped in pairs]
        usual = median(ratios)
        agreeing = sum(abs(ratio / usual - 1) < _ALIKE for ratio in ratios)
        if usual <= _MOST_TOO_SLOW or len(pairs) < _LEAST_PAIRS or 2 * agreeing < len(pairs):
            return  # single long steps, or lines that were stamped late
        problem, unit = "the times are not those of single steps", _UNITS.get(form.seconds)
        # Stamps of whole seconds make single ratios coarse.
        mean = by_lines / by_stamps
        number = mean if abs(mean / usual - 1) < _ALIKE else usual
        hint = (
            f"if each is of {number:.0f} steps: --step-time-unit {unit}/{number:.0f}"
            if unit
            else f"the unit of --step-time-unit is {number:.1f} times too long"
        )
    raise LineError(
        block.line(next(with_rate(form, block.data)).start("rate")),
        problem,
        expected=f"steps that take {by_lines:.0f} s, as printed, by the time stamps, too",
        found=f"{by_stamps:.0f} s",
        hint=hint,
    )


def _between_stamps(
    lines: Iterable[tuple[int, float | None, float | None]],
) -> Iterator[tuple[float, float]]:
    """The seconds of the steps between two different time stamps, as printed and by the stamps:
    several lines may have the same one. A line has a step, its steps per second, and a stamp."""
    began = printed = 0.0
    for (before, _, begin), (step, speed, end) in pairwise(lines):
        if not (begin and end and speed and step > before and end >= begin):
            began = printed = 0.0
            continue
        began = began or begin
        printed += (step - before) / speed
        if end > began:
            yield printed, end - began
            began, printed = end, 0.0


def _check_bytes(form: Format, block: Block) -> None:
    """Raise LineError if a line with a rate has a byte that is not UTF-8."""
    for match in with_rate(form, block.data):
        # A progress bar goes back to the beginning of its line.
        start = max(block.data.rfind(mark, 0, match.start()) for mark in (b"\n", b"\r")) + 1
        end = block.data.find(b"\n", match.start("rate"))
        if REPLACED in block.data[start : end if end >= 0 else None]:
            line, problem = block.line(match.start("rate")), "the line is not valid UTF-8"
            hint = "`iconv -c -f utf-8 -t utf-8` drops such bytes, if only words have them"
            raise LineError(line, problem, expected="text", found="a byte that is none", hint=hint)


@functools.lru_cache(maxsize=16)  # the logs of a tree have the same steps
def _integers(printed: bytes) -> tuple[int, ...]:
    return tuple(map(int, printed.split()))


def _writers(form: Format, block: Block) -> Iterable[str | None]:
    """The rank that wrote each line with an entry; endless if all are of one."""
    if len(set(block.ranks)) > 1:
        return block.writers(match.start() for match in form.entry.finditer(block.data))
    return repeat(block.ranks[0] if block.ranks else None)


def _losses(
    writers: Iterable[str | None],
    steps: Sequence[bytes],
    rates: Sequence[bytes],
    losses: Sequence[bytes],
    last: Losses,
) -> Iterator[bytes]:
    """The loss of each rate: that of its rank's last line with a loss, if it is of that step."""
    for writer, step, rate, loss in zip(writers, steps, rates, losses, strict=False):
        if not rate:
            last |= {writer: (step, loss)} if loss else {}
            continue
        of_step, latest = last.get(writer, (b"", b""))
        yield loss or (latest if of_step == step else b"")


def with_rate(form: Format, data: bytes) -> Iterator[Matched]:
    """The matches with a rate, in the order of the log."""
    return (match for match in form.entry.finditer(data) if match["rate"])


def counted_blocks(
    form: Format,
    pieces: Iterable[bytes],
    rank: str | None = None,
    markers: Sequence[bytes] | None = None,
) -> Iterator[tuple[Block, Block]]:
    """The blocks of a log, each also without the lines of ranks whose steps do not count: by
    default, of all but the first that prints a rate. `markers`: others than those of the format."""
    for block in blocks(pieces, form.markers if markers is None else markers):
        if rank is None and block.ranks:
            rates = (match.start("rate") for match in with_rate(form, block.data))
            rank = next((rank for rank in block.writers(rates) if rank is not None), None)
        yield block, block.of_rank(rank)


def _inverted(rates: Sequence[float], group: Mapping[str, Sequence[bytes]]) -> list[float]:
    """The rates, of which some are printed as durations."""
    printed = zip(group["rate"], group["inverse"], strict=True)
    units = [unit for rate, unit in printed if rate]
    return [1 / n if unit else n for n, unit in zip(rates, units, strict=True)]


def _rates(form: Format, block: Block, printed: Sequence[bytes]) -> list[float]:
    joined = b"\n".join(printed) + b"\n"
    # A wrapped line can have the digits of two whole rates.
    if joined.count(b"\n") == len(printed) and form.whole_rates.fullmatch(joined):
        rates = list(map(float, joined.replace(b",", b"").split() if b"," in joined else printed))
        if not rates or (min(rates) > 0 and max(rates) < text.FASTEST):
            return text.per_second(rates, form)
    rates, before_last = [], printed[:-1]
    for index, rate in enumerate(printed):
        try:
            rates.append(text.rate(rate, form, before_last))
        except LineError as error:
            match = next(islice(with_rate(form, block.data), index, None))
            raise error.at(block.line(match.start("rate"))) from None
    return rates
