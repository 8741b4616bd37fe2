"""NVIDIA's BERT pretraining in PyTorch, unchanged: its steps have a time stamp and no rate.

    DLL 2023-07-28 15:17:59.492369 - PARAMETER Config : ["Namespace(..., log_freq=1.0, ...)"]
    DLL 2023-07-28 15:18:07.193425 - PARAMETER train_start : True
    DLL 2023-07-28 15:18:07.193462 - PARAMETER batch_size_per_gpu : 96
    DLL 2023-07-28 15:18:50.266942 - Training Epoch: 0 Training Iteration: 1  average_loss : 11.18
      learning_rate : 0.0010 skipped_steps : 1
    DLL 2023-07-28 15:25:05.249086 - Training Epoch: 0 Training Iteration: 20  final_loss : 8.56
    DLL 2023-07-28 15:25:07.507816 -  e2e_train_time : 428.1 s training_sequences_per_second :
      5055.5 sequences/s final_loss : 8.56 None raw_train_time : 400.4 s
    DLLL {"timestamp": "1690557530.266942", ..., "type": "LOG", "step": [0, 1], "data":
      {"average_loss": 11.18, "learning_rate": 0.0010, "skipped_steps": 1}}

Each is one line; the last is of the JSON file (`--json-summary`). A rate is in steps per second:
the steps since the line before, by the difference of the two time stamps. Those of the first line
begin with `train_start`. The line with `final_loss` has no rate, because newer versions wait for
the GPU only there.

An iteration counts the steps that changed weights; those that an overflow skipped have
`skipped_steps` or, in versions before 2022, a line with `loss_scale` each. The time to save a
checkpoint counts. With CUDA graphs, lines may be printed long before their step has run, so such
logs are refused.

`training_sequences_per_second` is a rate of the whole run: of all steps, the warm-up included
(versions before 2022), or of all but the first 4 batches, 50 in phase 2. The number of devices
follows from it, from its time and from the batch size.

Source: NVIDIA/DeepLearningExamples 729963d and its versions since 155578a,
PyTorch/LanguageModeling/BERT/run_pretraining.py; NVIDIA/dllogger 0478734, dllogger/logger.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from . import text
from .reader import Block, blocks, holds
from .records import Columns, Format, Header, LineError
from .statements import EXACT

# Behind the time is the end of its text, so that none of its digits can be missing.
_START = (
    rb'DLL(?>(?P<json>L)?) (?>(?:\{"timestamp": ")?)'
    rb"(?P<rate>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?>(?:\.\d{6})?)"
    rb'|\d{9,11}+\.\d{1,6}+)(?(json)", (?>[^\r\n]{0,1000}?"step": )| - )'
)
_STEP = re.compile(
    _START + rb"(?(json)\[\d{1,9}+, |Training Epoch: \d{1,9}+ Training Iteration: )"
    rb"(?P<step>\d{1,12}+)(?>(?:\.0)?)"
    rb'(?(json)\], "data": \{"|  )(?P<kind>average|final)_loss(?: :|":) (?P<loss>[^\s,}]{1,64}+)'
    rb'(?:(?>[^\r\n]{0,1000}?skipped_steps(?: :|":) )(?P<skipped>\d{1,12}+))?'
)
_PARAMETER = re.compile(
    _START + rb'(?(json)"PARAMETER", "data": \{"|PARAMETER )'
    rb"(?P<name>Config|train_start|batch_size_per_gpu|loss_scale)"
    rb'(?: :|":) (?P<value>[^\r\n]*+)'
)
_SUMMARY = re.compile(
    _START + rb"(?(json)\[\]| )"
    rb'(?:(?=(?>[^\r\n]{0,1000}?e2e_train_time(?: :|":) )(?P<whole>%(number)s)[\s,}])|)'
    rb'(?>[^\r\n]{0,1000}?training_sequences_per_second(?: :|":) )(?P<per_second>%(number)s)[\s,}]'
    rb'(?>[^\r\n]{0,1000}?raw_train_time(?: :|":) )(?P<seconds>%(number)s)[\s,}]'
    % {b"number": rb"\d{1,32}+\.\d{1,32}+"}
)
_OPTION = re.compile(r"\b(\w{1,64}+)=('[^']{0,4096}+'|[^,()]{1,4096}+)", re.ASCII)
_COUNT = re.compile(r"([1-9]\d{0,11})(?:\.0)?", re.ASCII)
_EXACT = 1e-9  # the numbers are printed with all digits


@dataclass
class _Run:
    """The state after the blocks before. `every`: the steps between two lines. `skipped`: the steps
    that changed no weight, of which the lines or, in older versions, the overflows tell. `last`:
    the iteration of `final_loss`, and the same with the skipped steps."""

    headers: list[Header] = field(default_factory=list)
    columns: Columns = field(default_factory=Columns)
    options: dict[str, str] = field(default_factory=dict)
    every: int = 0
    batch: int = 0
    began: float = 0
    time: float | None = None  # of train_start, then of the last line
    overflows: int = 0
    skipped: int = 0
    has_skipped: bool = False
    last: tuple[int, int] | None = None
    has_summary: bool = False


def as_run(pieces: Iterable[bytes]) -> tuple[list[Header], Columns]:
    """The steps of a log, with rates in steps per second. Raises LineError unless the log has its
    beginning, its end and all lines of steps between them."""
    run, end = _Run(), 1
    for block in blocks(pieces, [b"DLL"]):
        end = block.last or end
        _take(run, block)
    if not run.has_summary or not run.columns.steps:
        problem = "the log has no whole training"
        expected = "lines with average_loss, final_loss and training_sequences_per_second"
        shown = f"{len(run.columns.steps)} lines with average_loss, and no end"
        raise LineError(end, problem, expected=expected, found=shown)
    return run.headers, run.columns


def _take(run: _Run, block: Block) -> None:
    overflows: list[int] = []
    for match in _matches(_PARAMETER, b"PARAMETER", block):
        if match["name"] == b"loss_scale":
            overflows.append(match.start())
        else:
            _set(run, match, block.line(match.start()))
    _take_steps(run, block, overflows)
    run.overflows += len(overflows)
    for match in _matches(_SUMMARY, b"training_sequences_per_second", block):
        _finish(run, match, block.line(match.start()))


def _matches(pattern: re.Pattern[bytes], marker: bytes, block: Block) -> Iterable[re.Match[bytes]]:
    return pattern.finditer(block.data) if holds(block.data, marker) else ()


def _set(run: _Run, match: re.Match[bytes], line: int) -> None:
    name, value = match["name"].decode(), match["value"].decode("utf-8", "replace")
    if name == "train_start":
        if run.time is not None:
            problem = "the training starts a second time"
            raise LineError(line, problem, expected="one run in a log", found=name)
        run.time = text.unix_times([match["rate"]])[0]
        run.began = run.time or 0
    elif name == "batch_size_per_gpu":
        run.batch = _count(name, value.rstrip(" }\r"), line)
        run.headers.append(Header(line, batch_size_per_device=run.batch))
    else:
        run.options = dict(_OPTION.findall(value))
        run.every = _count("log_freq", run.options.get("log_freq", ""), line)
        if run.options.get("cuda_graphs") == "True":
            problem = "with CUDA graphs, lines are printed long before their steps have run"
            raise LineError(line, problem, expected="cuda_graphs=False", found="cuda_graphs=True")
        run.headers.append(_configured(run, line))


def _configured(run: _Run, line: int) -> Header:
    """The header for the arguments of the program."""
    counts = {
        name: _count(name, run.options[name], line)
        for name in ("train_batch_size", "gradient_accumulation_steps", "max_seq_length")
        if name in run.options
    }
    size = re.search("base|large", run.options.get("config_file", ""))
    renamed = {"accumulation_steps": "gradient_accumulation_steps"}
    renamed["sequence_length"] = "max_seq_length"
    return Header(
        line,
        batch_size_per_device=counts.get("train_batch_size"),
        precision=_precision(run.options),
        log_every=run.every,
        network=f"bert-{size[0]}" if size else None,
        parameters=tuple(
            (field, str(counts[name])) for field, name in renamed.items() if name in counts
        ),
    )


def _precision(options: dict[str, str]) -> str | None:
    values = [options[name] for name in ("fp16", "amp") if name in options]
    return ("amp" if "True" in values else EXACT) if values else None


def _count(name: str, printed: str, line: int) -> int:
    if number := _COUNT.fullmatch(printed):
        return int(number[1])
    problem = f"{name} is not a positive integer"
    raise LineError(line, problem, expected="1 or more", found=repr(printed[:40]))


def _take_steps(run: _Run, block: Block, overflows: list[int]) -> None:
    """Add the lines of steps in a block. Raises LineError unless each follows the one before."""
    starts, steps, losses, stamps, before = [], [], [], [], 0
    wanted = (run.columns.steps or [0])[-1]
    for match in _matches(_STEP, b"_loss", block):
        _, stamp, printed, kind, loss, skipped = match.groups()
        if run.every == 0 or run.time is None or run.last is not None:
            raise _misplaced(run, block, match.start())
        if skipped:
            run.has_skipped, run.skipped = True, int(skipped)
        elif not run.has_skipped:
            while before < len(overflows) and overflows[before] < match.start():
                before += 1
            run.skipped = run.overflows + before
        step = int(printed) + run.skipped
        wanted += run.every
        # Steps that an overflow skipped after the line before are not known at the last one.
        if step > wanted if kind == b"final" else step != wanted:
            problem, hint = "does not follow the line before", "with the steps that were skipped"
            where = block.line(match.start())
            message = f"iteration {step} {problem}; were lines lost, or was the run resumed?"
            raise LineError(where, message, expected=f"{wanted} {hint}", found=str(step))
        if kind == b"final":
            run.last = int(printed), step
            continue
        starts.append(match.start())
        steps.append(step)
        losses.append(b"" if loss == b"0.0" else loss)  # the GPU has told none yet
        stamps.append(stamp)
    if not steps:
        return
    times = text.unix_times(stamps)
    rates = []
    for index, time in enumerate(times):
        if time is None or run.time is None or time <= run.time:
            problem = "the time is not after that of the line before"
            shown = stamps[index].decode()
            line = block.line(starts[index])
            raise LineError(line, problem, expected="a later time", found=shown)
        rates.append(run.every / (time - run.time))
        run.time = time
    run.columns.extend(Columns(steps, rates, text.optional_numbers(losses), times))


def _misplaced(run: _Run, block: Block, at: int) -> LineError:
    if run.last is not None:
        problem, expected = "a step follows the last one", "one run in a log"
    else:
        problem, expected = "the beginning of the log is missing", "lines with Config, train_start"
    return LineError(block.line(at), problem, expected=expected, found="a step")


def _finish(run: _Run, match: re.Match[bytes], line: int) -> None:
    """Take the rate of the whole run. Raises LineError if it contradicts the lines before."""
    if run.last is None or run.has_summary or not run.batch:
        problem = "the summary of the run is not where the program prints it"
        raise LineError(line, problem, expected="one, after final_loss", found="another")
    run.has_summary = True
    planned = run.options.get("steps_this_run", "-1.0")
    planned = run.options.get("max_steps", "") if planned.startswith("-") else planned
    if run.last[0] < _count("max_steps", planned, line):
        problem = "the training ended early"
        raise LineError(line, problem, expected=f"step {planned}", found=str(run.last[0]))
    stamped = (run.time or 0) - run.began
    if match["whole"] and stamped > float(match["whole"]) + 1:
        problem = "the times of the lines are further apart than the run was long; was a clock set?"
        expected = f"at most {float(match['whole']):.1f} s (e2e_train_time)"
        raise LineError(line, problem, expected=expected, found=f"{stamped:.1f} s")
    rate = float(match["per_second"])
    run.headers.append(
        Header(
            line,
            world_size=_devices(run, rate * float(match["seconds"]), line),
            total_steps=run.columns.steps[-1] if run.columns.steps else None,
            whole_run_samples_per_second=rate,
        )
    )


def _devices(run: _Run, samples: float, line: int) -> int | None:
    """The devices that trained on so many samples; None if several numbers are possible, because
    steps that were skipped after the last line are not known."""
    lines, (_, last) = (run.columns.steps or [0])[-1], run.last or (0, 0)
    accumulation = int(run.options.get("gradient_accumulation_steps", "1"))
    uncounted = 0
    if run.has_skipped:  # newer versions
        uncounted = 50 if run.options.get("phase2") == "True" else 4
    devices, whole = 0.0, set()
    for steps in range(max(last, lines + 1), lines + run.every + 1):
        batches = steps * accumulation - uncounted
        devices = samples / (run.batch * batches) if batches > 0 else 0
        if devices > 0.5 and abs(devices - round(devices)) < _EXACT * devices:
            whole.add(round(devices))
    if not whole:
        problem = "the rate of the whole run contradicts its time, batch size and steps"
        shown = f"{devices:.6g} devices"
        raise LineError(line, problem, expected="a whole number of devices", found=shown)
    return whole.pop() if len(whole) == 1 else None


FORMAT = Format(
    name="dllogger_bert",
    sample="DLL 2023-07-28 15:18:50.266942 - Training Epoch: 0 Training Iteration: 1"
    "  average_loss : 11.18 ...",
    marker=b"_loss",
    entry=_STEP,
    rate=rb"(?!)",  # none is printed
    statements=(),
    rates_are_per="step",
    table=as_run,
)
