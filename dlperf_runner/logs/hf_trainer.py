"""Hugging Face's Trainer: one rate, of all devices over the whole run, at its end.

    {'train_runtime': 49.0196, 'train_samples_per_second': 261.12, 'train_steps_per_second': 1.02,
      'train_loss': 2.01, 'epoch': 1.0}     (on one line)
    {'train_runtime': '49.02', 'train_samples_per_second': '261.1', ...     since version 5

Programs that are built on it print the same: LLaMA-Factory, Axolotl, TRL. A rate counts all samples
and all of the time: the first steps, evaluations and checkpoints. Before version 4.7 there is no
`train_steps_per_second`, and the number called samples is one of steps. The table `train metrics`
behind it repeats the number.

Before version 5.24, the samples of a resumed run were those of all its parts, and the time was that
of the last one, and those of a run that stopped early were the planned ones.

Such a log is refused, if it shows that: by its words, its last epoch, the samples of its epochs, or
its progress bar, which begins behind the steps of the other parts.

    ***** Running training *****
      Num Epochs = 1
      Instantaneous batch size per device = 32
      Total train batch size (w. parallel, distributed & accumulation) = 256
      Gradient Accumulation steps = 1
      Total optimization steps = 50
    Process rank: 0, world size: 8, device: cuda:0, ..., compute dtype: torch.bfloat16

The last line is LLaMA-Factory's. Unsloth prints the numbers beside its mark instead:

    ==((====))==  Unsloth - 2x faster free finetuning | Num GPUs used = 8
       \\\\   /|    Num examples = 7,473 | Num Epochs = 1 | Total steps = 1,000
    O^O/ \\_/ \\    Batch size per device = 8 | Gradient accumulation steps = 4
    \\        /    Data Parallel GPUs = 8 | Total batch size (8 x 4 x 8) = 256

Source: transformers 4.6.1, 4.57.1 and 5.24.0, trainer.py, trainer_utils.py (speed_metrics) and
trainer_callback.py (ProgressCallback); unslothai/unsloth, issues 224 (2024) and 2765 (2025).
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from typing import ClassVar

from .reader import Block
from .records import Expression, Format, LineError, Refusal, Statement, stated

_COUNT = r"(?P<{}>[\d,]{{1,24}}+)"


def _setting(words: str, field: str) -> Statement:
    return stated(words, re.escape(words) + _COUNT.format(field))


STATEMENTS = (
    _setting("  Instantaneous batch size per device = ", "micro_batch_size"),
    _setting("(w. parallel, distributed & accumulation) = ", "global_batch_size"),
    _setting("  Gradient Accumulation steps = ", "accumulation_steps"),
    _setting("  Total optimization steps = ", "total_steps"),
    stated("Unsloth - ", rf"\| Num GPUs(?: used)? = {_COUNT.format('world_size')}"),
    stated("Batch size per device = ", rf"device = {_COUNT.format('micro_batch_size')} \|"),
    stated(
        "Batch size per device = ",
        rf"\| Gradient [Aa]ccumulation steps = {_COUNT.format('accumulation_steps')}",
    ),
    stated(
        "Total batch size ",
        rf"Total batch size (?:\([\dx ]{{5,40}}\) )?= {_COUNT.format('global_batch_size')}",
    ),
    stated(" | Total steps = ", rf"\| Total steps = {_COUNT.format('total_steps')}"),
    stated(
        "Process rank: ",
        r"Process rank: \d{1,9}+(?:, world size: (?P<world_size>\d{1,9}+))?, device: "
        r"[^\r\n]{1,160}?, compute dtype: torch\.(?P<precision>bfloat16|float16|float32)\b",
    ),
)
_RESUMED = Refusal(
    "the run was resumed, so the rate at its end counts samples that another run trained",
    expected="a run from its first step",
    hint="measure a run that is not resumed, or with transformers 5.24 or newer",
)

# A bar without a description: steps of steps in all, and the time since its beginning.
_BAR = re.compile(
    rb"(?:\A|[\r\n]) {0,8}+\d{1,3}+%\|[^|\r\n]{0,400}+\| {0,8}+(?P<done>\d{1,12}+)"
    rb"/(?P<total>\d{1,12}+) \[(?:(?P<h>\d{1,6}+):)??(?P<min>\d\d):(?P<s>\d\d)<"
    rb"[^,\]\r\n]{1,16}+, {1,16}+[\d.?]{1,16}+(?:it/s|s/it)"
)
_END = re.compile(
    rb"'train_runtime': '?+(?P<runtime>\d{1,12}+\.\d{1,4}+)'?+,"
    rb"[^\r\n}]{0,200}? 'train_steps_per_second': '?+(?P<rate>\d{1,9}+\.\d{1,3}+)"
)
_AHEAD = 0.05  # as a share of the run: steps do not differ so much in what they take
_SIZES = re.compile(
    rb"Num examples = (?P<examples>[\d,]{1,24}+)|Num Epochs = (?P<epochs>[\d,]{1,30}+)"
    rb"|(?:& accumulation\)|Total batch size(?>(?: \([\dx ]{5,40}\))?)) = (?P<batch>[\d,]{1,24}+)"
)
_COUNTED = re.compile(
    rb"'train_runtime': '?+(?P<runtime>\d{1,12}+\.\d{1,4}+)'?+, "
    rb"'train_samples_per_second': '?+(?P<rate>\d{1,9}+\.\d{1,3}+)'?+, 'train_steps_per_second': "
    rb"[^\r\n}]{1,400}? 'epoch': '?+(?P<epoch>\d{1,9}+(?>(?:\.(?P<decimals>\d{1,20}+))?))'?+[},]"
)
_ROUNDED = 0.02  # rates have three decimals


class _WholeRun:
    """The number of steps of the last progress bar that has begun, the first step that it shows
    behind its beginning, the time until then in s, and the numbers of epochs and
    of samples in an epoch and a step."""

    markers: ClassVar[tuple[bytes, ...]] = (
        b"it/s]",
        b"s/it]",
        b"Num examples = ",
        b"Num Epochs = ",
    )

    def __init__(self) -> None:
        self._total = 0
        self._first: tuple[int, int] | None = None
        self._sizes: dict[str, int] = {}

    def __call__(self, block: Block) -> None:
        """Raise LineError if the rate of the whole run counts samples that it did not train."""
        self._check_resumed(block)
        self._check_epochs(block)

    def _check_epochs(self, block: Block) -> None:
        """Raise LineError if a run that stopped early counts more samples than its epochs have."""
        for size in _SIZES.finditer(block.data):
            self._sizes[str(size.lastgroup)] = int(size[str(size.lastgroup)].replace(b",", b""))
        for end in _COUNTED.finditer(block.data):
            counted = float(end["runtime"]) * float(end["rate"])
            if float(end["epoch"]) >= self._sizes.get("epochs", 0):
                continue
            # Older versions print two decimals.
            epochs = float(end["epoch"]) + 0.5 * 10 ** -max(2, len(end["decimals"] or b""))
            trained = epochs * self._sizes.get("examples", math.inf)
            rest = math.ceil(epochs) * self._sizes.get("batch", math.inf)
            if counted * (1 - _ROUNDED) > trained + rest:
                raise LineError(
                    block.line(end.start()),
                    "the rate at the end of the run counts more samples than its epochs have, as of"
                    " a run that stopped early",
                    expected=f"about {float(end['epoch']) * self._sizes['examples']:.0f} samples",
                    found=f"{counted:.0f}",
                    hint="measure a run to its last step (--max_steps 200 makes it short), or with"
                    " transformers 5.24 or newer",
                )

    def _check_resumed(self, block: Block) -> None:
        """Raise LineError if the bar of the training began behind steps of another run: it shows
        a larger share of the steps than of the time."""
        for bar in _BAR.finditer(block.data):
            done, total = int(bar["done"]), int(bar["total"])
            seconds = int(bar["h"] or 0) * 3600 + int(bar["min"]) * 60 + int(bar["s"])
            if done == 0:
                self._total, self._first = total, None
            elif self._first is None and done < total == self._total:
                self._first = done, seconds
        for end in _END.finditer(block.data):
            if self._first is None:
                continue
            (done, seconds), total = self._first, self._total
            runtime, rate = float(end["runtime"]), float(end["rate"])
            is_training = abs(total - rate * runtime) <= 1 + total / 100
            if is_training and done / total * runtime > seconds + 1 + _AHEAD * runtime:
                raise LineError(
                    block.line(end.start()),
                    _RESUMED.problem,
                    expected=_RESUMED.expected,
                    found=f"a progress bar that begins with step {done} of {total}",
                    hint=_RESUMED.hint,
                )


def _line(behind: bytes) -> Expression:
    """The final line, with what stands behind its rate."""
    return Expression(
        rb"'train_runtime': [^\s,]{1,32}+, (?P<step>)"
        rb"'train_samples_per_second': '?+(?P<rate>[^\s,'}]{1,64}+)'?+%s"
        rb"(?:[^\r\n}]{0,400}?'train_loss': '?+(?P<loss>[^\s,'}]{1,64}+))?" % behind
    )


_OF_SAMPLES = Format(
    name="hf_trainer",
    sample="{'train_runtime': 49.0196, 'train_samples_per_second': 261.12, 'train_steps_per_...",
    marker=b"'train_samples_per_second': ",
    entry=_line(rb", 'train_steps_per_second': "),
    rate=rb"\d+(?:\.\d+)?(?:e[+-]\d\d)?",
    statements=(
        *STATEMENTS,
        stated("  Num Epochs = ", r"  Num Epochs = (?P<number_of_epochs>\d{1,6}+)(?![\d,])"),
        stated(
            "'train_samples_per_second': ",
            r"'epoch': '?(?P<number_of_epochs>\d{1,6}+)(?:\.0)?'?[},]",
        ),
        stated(
            " training from ",
            r"  Continuing training from global step [1-9]\d{0,11}+",
            refusal=_RESUMED,
        ),
        stated("Skipping the first batches:", "Skipping the first batches:", refusal=_RESUMED),
    ),
    batch_of_step=True,
    framework="pytorch",
    whole_run=True,
    watch=_WholeRun,
    caveat="before transformers 5.24, the rate of a run that was stopped within an epoch counts all"
    " planned samples, which is too many",
)
_OF_STEPS = replace(
    _OF_SAMPLES,
    sample="{'train_runtime': 49.0196, 'train_samples_per_second': 1.02, 'epoch': 1.0}",
    entry=_line(rb", 'epoch': "),
    rates_are_per="step",
)
FORMAT = replace(_OF_SAMPLES, variants=(_OF_STEPS,))
