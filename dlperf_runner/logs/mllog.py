"""MLPerf Training's result logs (mllog): a run until a quality is reached, so no format of steps.

    :::MLLOG {"namespace": "", "time_ms": 1759987984532, "event_type": "INTERVAL_START",
      "key": "run_start", "value": null, "metadata": {"file": "...", "lineno": 83}}
    :::MLLOG {... "key": "block_stop", "value": null, "metadata": {..., "samples_count": 12288}}
    :::MLLOG {... "key": "tracked_stats", "value": {"train_step_time": 0.7098, ...}, "metadata":
      {..., "step": 31.0}}
    :::MLLOG {... "key": "run_stop", ..., "metadata": {..., "status": "success"}}

Each is one line, often behind a rank (`0: `). A block is the training between two evaluations. Of
other lines, only those with a step time are read, which costs little.

In v6.0, these have no step, the mean of a block no `reduced_train_loss`. The time to train needs
neither blocks nor evaluations, which older rounds print in part: the first block without its start,
the last without its stop, or starts alone. Neither does it need train_samples, which is another
in each iteration of minigo, and a list in Graphcore's logs of v1.1.

Alibaba's logs of v0.7 have time_s instead of time_ms, and the keys in another order; Google's name
the benchmark behind run_stop. The lines of v0.6 have the time in s and the key before the JSON,
which Intel wrote partly with single quotes. They state no samples. Those of v0.5 are not read.

    :::MLL 1560881700.827 run_start: {"value": null, "metadata": {"lineno": 190, "file": "..."}}

Source: mlcommons/logging 7bbf792, mlperf_logging/mllog/mllog.py and result_summarizer; logs of
mlcommons/training_results_v5.1 441d65f, of v0.6, v1.0 to v2.0 and v3.1 to v6.0, and of
mlcommons/hpc_results_v0.7 to v3.0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from .reader import Block, blocks
from .records import Expression, Format, LineError

MARKER = b":::MLL"
_HINT_OF_RUNS = (
    "give each run a file, and remove this one and what has no run_start:"
    " csplit LOG /submission_benchmark/ '{*}'"
)
# Events of which every process may print one of its own are not among them.
_SETTINGS = ("submission_benchmark", "global_batch_size", "max_sequence_length", "train_samples")
_BATCH_OF_MINIGO = "train_batch_size"
_INTERVALS = ("run_start", "run_stop", "block_start", "block_stop", "epoch_start", "epoch_stop")
_KEYS = (*_SETTINGS, *_INTERVALS, _BATCH_OF_MINIGO, "eval_accuracy")
_EVENT = re.compile(
    rb':::MLL(?:OG (?=\{(?>[^\r\n]{0,480}?"key": "(?:%(keys)s)"))|'
    rb" (\d{1,12}+\.\d{1,9}+) (%(keys)s): )(\{[^\r\n]*+)" % {b"keys": "|".join(_KEYS).encode()}
)
_STEP_TIME = re.compile(
    rb'"tracked_stats", "value": \{"train_step_time": ([^\s,}]{1,64}+)'
    rb'(?:, "reduced_train_loss": |(?>[^\r\n]{0,2000}?"step": \d{1,18}+(?:\.0)?[,}]))'
)
_DECODER = json.JSONDecoder(parse_float=str)
# mllog prints a value without further spaces; some submitters' have one before the metadata.
_LOST_DIGIT = re.compile(rb'":\s\s(?!\s{0,64}\{)|\d\s{1,64}+[,}]')
_SECONDS = re.compile(r"\d{1,12}+(?:\.\d{1,9}+)?", re.ASCII)
_DECIMAL = re.compile(r"\d{13}\.\d{1,9}+", re.ASCII)
_WHOLE = re.compile(r"\d{1,18}+(?:\.0)?", re.ASCII)


@dataclass
class Interval:
    """A block or an epoch: its times in ms, what its two lines say as samples_count, and the
    epoch_num of its stop."""

    start_ms: int
    stop_ms: int
    first_count: int | None = None
    last_count: int | None = None
    has_step: bool = False
    epoch_num: float | None = None


@dataclass
class MlperfLog:
    """The content of a result log. `epochs_trained` and `samples_trained` are where the run
    stopped, `epochs_evaluated` is the epoch_num of the last evaluation. `train_samples` has the
    first two different numbers that are stated. `gap`: the first line at
    which the blocks or the epochs are not whole, with the reason; then the log has none of
    these."""

    benchmark: str | None = None
    global_batch_size: int | None = None
    train_batch_size: int | None = None  # the batch of minigo, which states no global_batch_size
    sequence_length: int | None = None
    train_samples: list[int] = field(default_factory=list)
    run_start_ms: int | None = None
    run_stop_ms: int | None = None
    status: str | None = None
    epochs_trained: float | None = None
    samples_trained: int | None = None
    epochs_evaluated: float | None = None
    evaluations: list[float] = field(default_factory=list)
    blocks: list[Interval] = field(default_factory=list)
    epochs: list[Interval] = field(default_factory=list)
    step_seconds: list[float] = field(default_factory=list)
    gap: str | None = None


@dataclass(frozen=True)
class _Event:
    line: int
    key: str
    time_ms: int
    value: Any
    metadata: Mapping[str, Any]

    def wrong(self, problem: str, expected: str, shown: object) -> LineError:
        return LineError(self.line, f"{self.key}: {problem}", expected=expected, found=str(shown))

    def whole(self, what: str, value: object) -> int:
        """A number that may be printed as 12288 or 12288.0."""
        if not _WHOLE.fullmatch(str(value)):
            raise self.wrong(f"{what} is not a whole number", "a number like 12288", value)
        return int(str(value).partition(".")[0])


def read(pieces: Iterable[bytes]) -> MlperfLog:
    """The content of a result log, which comes in pieces of any length. Raises LineError."""
    log = MlperfLog()
    opened: dict[str, _Event] = {}
    for block in blocks(pieces, [MARKER]):
        for event in _events(block):
            if event.key == "run_start":
                _check_first(log, event)
            elif event.key == "run_stop":
                _check_last(log, event)
            # What follows is no part of the run, but some submitters named the benchmark there.
            if log.run_stop_ms is None or (event.key == _SETTINGS[0] and log.benchmark is None):
                _take(log, event, opened)
        log.step_seconds += _step_times(block)
    if log.gap:
        log.blocks, log.epochs = [], []
    return log


def _check_first(log: MlperfLog, event: _Event) -> None:
    """Raise LineError if a run begins behind another one, or behind a part of it."""
    ends = [interval.stop_ms for interval in (*log.blocks, *log.epochs)]
    last = log.run_stop_ms if log.run_stop_ms is not None else max(ends, default=None)
    if last is not None and event.time_ms >= last:
        raise LineError(
            event.line,
            "another run begins in the same log",
            expected="one run_start, as MLPerf's rules require",
            found=f"a second one, {(event.time_ms - last) / 1000:.0f} s behind the first run",
            hint=_HINT_OF_RUNS,
        )


def _check_last(log: MlperfLog, event: _Event) -> None:
    """Raise LineError if a run ends that had ended before the first one of the log began."""
    start = log.run_start_ms
    if log.run_stop_ms is not None and start is not None and event.time_ms <= start:
        raise LineError(
            event.line,
            "another run ends in the same log",
            expected="one run, as MLPerf's rules require",
            found=f"one that ended {(start - event.time_ms) / 1000:.0f} s before the first run",
            hint=_HINT_OF_RUNS,
        )


def _events(block: Block) -> Iterator[_Event]:
    for match in _EVENT.finditer(block.data):
        line = block.line(match.start())
        try:
            # Other output may follow on the same line.
            document, _ = _DECODER.raw_decode(_json(match))
            if match[1]:  # of v0.6
                document |= {"time_s": match[1].decode(), "key": match[2].decode()}
            time, key = _time_ms(document), document["key"]
            metadata = document.get("metadata") or {}
            lost = _LOST_DIGIT.search(match[3])
            if type(time) is not int or time < 0 or not isinstance(metadata, dict) or lost:
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError):
            problem = "the line is not one that mllog prints"
            shown = match[3][:60].decode()
            raise LineError(line, problem, expected="JSON with time_ms", found=shown) from None
        if key in _KEYS:
            yield _Event(line, key, time, document.get("value"), metadata)


def _json(match: re.Match[bytes]) -> str:
    text = match[3].decode()
    return text.replace("'", '"') if match[1] else text


def _time_ms(document: Mapping[str, Any]) -> object:
    """The time of an event in ms, which Alibaba's logs of v0.7 print in s, and Intel's with
    decimals. Raises KeyError if there is none."""
    seconds = str(document.get("time_s"))
    if _SECONDS.fullmatch(seconds):
        return round(float(seconds) * 1000)
    time: object = document["time_ms"]
    return round(float(time)) if isinstance(time, str) and _DECIMAL.fullmatch(time) else time


def _step_times(block: Block) -> list[float]:
    printed = _STEP_TIME.findall(block.data)
    try:
        return list(map(float, printed))
    except ValueError:
        pass
    for match in _STEP_TIME.finditer(block.data):
        try:
            float(match[1])
        except ValueError:
            problem, shown = "the step time is not a number", match[1].decode()
            line = block.line(match.start())
            raise LineError(line, problem, expected="seconds", found=shown) from None
    return []


def _take(log: MlperfLog, event: _Event, opened: dict[str, _Event]) -> None:
    kind, _, end = event.key.rpartition("_")
    if event.key in _SETTINGS or (event.key == _BATCH_OF_MINIGO and log.benchmark == "minigo"):
        _set(log, event)
    elif event.key == "eval_accuracy":
        # Some have several targets: the least is as good as any to follow them.
        values = [event.value]
        for _ in range(2):  # {"accuracy": {"BBOX": 0.13, "SEGM": 0.14}} in v0.6
            values = [each for value in values for each in _parts(value)]
        if not values:
            raise event.wrong("no value", "a number", event.value)
        log.evaluations.append(min(_number(event, value) for value in values))
        if "epoch_num" in event.metadata:
            log.epochs_evaluated = _number(event, event.metadata["epoch_num"])
    elif event.key == "run_start":
        log.run_start_ms = event.time_ms
    elif event.key == "run_stop":
        if "block" in opened:
            _note_gap(log, opened["block"], "block", "has no stop")
        log.run_stop_ms = event.time_ms
        log.status = str(event.metadata.get("status"))
        if "epoch_num" in event.metadata:
            log.epochs_trained = _number(event, event.metadata["epoch_num"])
        if "samples_count" in event.metadata:
            samples = event.metadata["samples_count"]
            log.samples_trained = event.whole("samples_count", samples)
    elif end == "start":
        if kind in opened:
            _note_gap(log, opened[kind], kind, "has no stop")
        opened[kind] = event
    elif kind in opened:
        interval = _interval(opened.pop(kind), event)
        if kind == "block":
            log.blocks.append(interval)
        elif (interval.epoch_num or 0.0).is_integer():
            log.epochs.append(interval)  # a fraction is where the run stopped
    else:
        _note_gap(log, event, kind, "has no start")


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else [value]


def _note_gap(log: MlperfLog, event: _Event, kind: str, problem: str) -> None:
    log.gap = log.gap or f"line {event.line}: the {kind} {problem}"


_FIELDS = {
    "submission_benchmark": "benchmark",
    "max_sequence_length": "sequence_length",
    _BATCH_OF_MINIGO: "train_batch_size",
}


def _set(log: MlperfLog, event: _Event) -> None:
    name = _FIELDS.get(event.key, event.key)
    if name == "train_samples":
        if _WHOLE.fullmatch(str(event.value)):
            samples = event.whole("it", event.value)
            if samples not in log.train_samples and len(log.train_samples) < 2:
                log.train_samples.append(samples)
        return
    value = event.value if name == "benchmark" else event.whole("it", event.value)
    former = getattr(log, name)
    if former is not None and former != value:
        raise event.wrong("contradicts a line before", str(former), value)
    setattr(log, name, value)


def _number(event: _Event, value: object) -> float:
    try:
        return float(str(value))
    except ValueError:
        raise event.wrong("not a number", "a number", value) from None


def _interval(start: _Event, stop: _Event) -> Interval:
    if stop.time_ms < start.time_ms:
        raise stop.wrong(f"is before line {start.line}", f"{start.time_ms} or later", stop.time_ms)
    counts = []
    for event in (start, stop):
        count = event.metadata.get("samples_count")
        counts.append(None if count is None else event.whole("samples_count", count))
    has_step, epoch = "step" in stop.metadata, stop.metadata.get("epoch_num")
    number = None if epoch is None else _number(stop, epoch)
    return Interval(start.time_ms, stop.time_ms, counts[0], counts[1], has_step, number)


def block_samples(log: MlperfLog) -> list[int] | None:
    """The samples of each block; None if the log does not state them. `samples_count` is one of:

    - cumulative: 0 and 1536, then 1536 and 1920;
    - that of the block, at both its ends: 4224 and 4224, then 384 and 384;
    - cumulative at the start, at both ends: 0 and 0, then 21888 and 21888.
    """
    pairs = [(block.first_count, block.last_count) for block in log.blocks]
    counts = [(first, last) for first, last in pairs if first is not None and last is not None]
    if not counts or len(counts) < len(pairs):
        return None
    if all(first != last for first, last in counts):
        samples = [last - first for first, last in counts]
    elif counts[0][0] > 0 or log.blocks[0].has_step:
        samples = [last for _, last in counts]
    elif log.samples_trained is not None:
        starts = [first for first, _ in counts]
        ends = [*starts[1:], log.samples_trained]
        samples = [end - start for start, end in zip(starts, ends, strict=True)]
    else:
        return None
    return samples if min(samples) > 0 else None


# Its lines, so that these logs are recognised among those of training programs.
LINES = Format(
    name="mllog",
    sample=':::MLLOG {"namespace": "", "time_ms": 1759987984532, "event_type": ...',
    marker=MARKER,
    entry=Expression(rb"(?P<step>):::MLL(?:OG| [\d.]{1,24}+ \w{1,64}+:) (?P<rate>\{)"),
    rate=rb"\{",
    statements=(),
)
