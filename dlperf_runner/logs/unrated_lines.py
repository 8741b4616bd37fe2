"""Lines of programs whose logs may have no rate: what the log lacks, and what to do.

    {'loss': 2.2, 'learning_rate': 4e-05, 'epoch': 0.2}
    {'loss': 2.2, ..., 'train_runtime': 24.5, 'train_tokens_per_second': 8345.231}
    {'loss': 2.2, ..., 'train_speed(iter/s)': 0.41, ..., 'global_step/max_steps': '10/94', ...}
    {"current_steps": 10, "total_steps": 500, "loss": 2.2, ..., "remaining_time": "0:02:04"}
    Step Time : 2.47s GPU utilization: 244.3MODEL_TFLOP/s/GPU
    0/99  4.25G  0.04581  ...  640: 100%|██████████| 8/8 00:03
        "train_samples_per_second": 113.4,     (train_results.json, trainer_state.json)
      train_samples_per_second =      113.4     (the table train metrics)
    1epoch:train:683-1364batch: iter_time=5.9e-05, ..., optim_step_time=0.030, ..., train_time=1.790
    2024-05-01 10:01:02.123456: Epoch time: 61.2 s
    INFO 2025-05-01 10:06:00 ot_train.py:239 step:1K smpl:8K ep:12 ... updt_s:0.412 data_s:0.012
    (epoch: 1, iters: 100, time: 0.293, data: 0.110) G_GAN: 0.912 G_L1: 25.1 D_real: 0.5
    tick 0     kimg 0.2      time 1m 02s       sec/tick 12.3    sec/kimg 61.50   maintenance 2.1
    Progress on:train 120it/10.0kit rate:1.2it/s remaining:2:17:13 elapsed:01:40 postfix:loss=7.1
    INFO     colossalai - colossalai - INFO: [1/10]
             Loss:11.071, Step time: 0.912s, TFLOPS:

Source: transformers 4.57.1, trainer_callback.py, trainer_pt_utils.py; hiyouga/LLaMA-Factory
ff6d4d1, callbacks.py; NVIDIA-NeMo/Megatron-Bridge 067f987, train_utils.py; ultralytics/yolov5 v7.0,
utils/general.py; tqdm-loggable 0.4.1, tqdm_logging.py, and stanford-crfm/levanter 9263f81;
espnet/espnet, issue 2183 (2020); MIC-DKFZ/nnUNet v2, nnUNetTrainer.py; NVlabs/stylegan3 and edm,
training_loop.py; huggingface/lerobot, utils/logging_utils.py; hpcaitech/ColossalAI 4f9953b,
colossalai/logging/logger.py; linkedin/Liger-Kernel, pull request 110;
junyanz/pytorch-CycleGAN-and-pix2pix, train.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from .nccl_tests import FAILURE, HINT_OF_FAILURE
from .reader import blocks
from .records import Refusal


class UnratedLine(NamedTuple):
    """The first of these lines in a log, with its number, and why it gives no rate."""

    line: int
    text: str
    refusal: Refusal


_LINES = {
    rb"\{'loss': [^}\r\n]{1,900}?'tokens_per_second_per_gpu': [^}\r\n]{1,200}\}": Refusal(
        "axolotl prints this rate without its step",
        expected="the progress bar between these lines, whose count is the step",
        hint="with the bar, describe both (2>&1 keeps it in the file):\n"
        r"  --regex '\| (?P<step>\d+)/\d+ \[|tokens_per_second_per_gpu.: (?P<rate>[\d.]+)'"
        " --unit tokens --rates-are-per device",
    ),
    rb"\{'loss': [^}\r\n]{1,900}?'tokens/train_per_sec_per_gpu': [^}\r\n]{1,200}\}": Refusal(
        "axolotl prints this rate without its step, and too low if it accumulates batches",
        expected="the progress bar between these lines, whose count is the step",
        hint="without accumulated batches, describe both (2>&1 keeps the bar in the file):\n"
        r"  --regex '\| (?P<step>\d+)/\d+ \[|tokens/train_per_sec_per_gpu.: (?P<rate>[\d.]+)'"
        " --unit tokens --rates-are-per device",
    ),
    rb"\{'loss': [^}\r\n]{1,900}?'step_tokens_per_second': [^}\r\n]{1,200}\}": Refusal(
        "Liger Kernel's callback prints this rate without its step",
        expected="the progress bar between these lines, whose count is the step",
        hint="with the bar, describe both (2>&1 keeps it in the file):\n"
        r"  --regex '\| (?P<step>\d+)/\d+ \[|step_tokens_per_second.: (?P<rate>[\d.]+)'"
        " --unit tokens --rates-are-per world",
    ),
    rb"['\"]train_speed\((?:iter/s|s/it)\)['\"]: [^}\r\n]{1,200}": Refusal(
        "ms-swift prints the mean of all steps so far, and this log has no other rate",
        expected="a line with 'train_samples_per_second', at the end of a run",
        hint="let the run end; --max_steps 200 makes it short. If it ended, give what the program"
        " printed in place of logging.jsonl",
    ),
    rb"\{'loss': [^}\r\n]{1,900}?'train_tokens_per_second': [^}\r\n]{1,32}\}": Refusal(
        "Hugging Face's Trainer prints the tokens/s of all steps so far, and this log has no other"
        " rate",
        expected="a line with 'train_samples_per_second', at the end of a run",
        hint="let the run end; --max_steps 200 makes it short",
        is_certain=True,
    ),
    rb"\{'loss': [^}\r\n]{1,400}?'epoch': [^}\r\n,]{1,32}"
    rb"(?:, 'num_input_tokens_seen': [^}\r\n]{1,32})?\}": Refusal(
        "Hugging Face's Trainer prints one rate, at the end of a run, and this log has none",
        expected="a line with 'train_samples_per_second'",
        hint="let the run end; --max_steps 200 makes it short. LLaMA-Factory's trainer_log.jsonl"
        " has rates if include_num_input_tokens_seen is set",
    ),
    rb'\{"current_steps": [^}\r\n]{1,400}?"remaining_time": "[^"\r\n]{1,40}"\}': Refusal(
        "LLaMA-Factory printed no rate into this file",
        expected='"throughput" and "total_tokens" in each line',
        hint="set include_num_input_tokens_seen: true, or give the program's output, whose last"
        " lines have 'train_samples_per_second'",
    ),
    rb'["\s]train_samples_per_second(?:": | {1,40}= {1,40})[\d.]{1,32}': Refusal(
        "Hugging Face's Trainer wrote this rate without the settings of its run",
        expected="the program's output, with its line {'train_runtime': ...}",
        hint="if the run was not resumed, describe the line and state the settings:\n"
        r"  --regex 'train_samples_per_second\W+(?P<rate>[\d.]+)'"
        " --unit samples --rates-are-per world",
    ),
    rb"\d{1,6}epoch:train:\d{1,12}-\d{1,12}batch: [^\r\n]{1,900}? train_time=[\d.]{1,16}": Refusal(
        "ESPnet's train_time is that of an update, which may have several batches",
        expected="a line with the time of a batch",
        hint="describe it, in one epoch; with --accum_grad 4, the unit is s/4:\n"
        r"  --regex ' 1epoch:train:\d+-(?P<step>\d+)batch.*train_time=(?P<step_time>[\d.e+-]+)'"
        " --step-time-unit s/ACCUM_GRAD",
    ),
    rb"\d\d:\d\d:\d\d\.\d{6}: Epoch time: [\d.]{1,16} s ?(?=[\r\n]|\Z)": Refusal(
        "nnU-Net prints the time of an epoch, of 250 batches and 50 of validation",
        expected="lines with the time or the rate of a step",
        hint="describe it; the rate of training is then too low by the time of the validation:\n"
        r"  --regex ': Epoch (?P<step>\d+)|Epoch time: (?P<step_time>[\d.]+) s'"
        " --step-time-unit s/250",
    ),
    rb" step:\d{1,9}[KM] smpl:\d[^\r\n]{1,200}? updt_s:[\d.]{1,16} data_s:[\d.]{1,16}": Refusal(
        "LeRobot rounds its steps to thousands",
        expected="lines whose steps differ",
        hint="number them: tr '\\r' '\\n' < train.log | grep updt_s: | nl > numbered.log\n"
        "and describe them; the rate leaves out data_s, the time of waiting for data:\n"
        r"  --regex '^ +(?P<step>\d+)\s.* updt_s:(?P<step_time>[\d.]+)' --step-time-unit s",
        is_certain=True,
    ),
    rb"tick \d{1,9} {1,9}kimg [\d.]{1,16} [^\r\n]{1,200}?sec/kimg [\d.]{1,16}": Refusal(
        "StyleGAN and EDM print the time of a tick, which has a number of steps",
        expected="lines with the time or the rate of a step",
        hint="describe it; with 4 kimg a tick and a global batch size of 32, it is of 125 steps:\n"
        r"  --regex 'tick (?P<step>\d+) .*sec/tick (?P<step_time>[\d.]+)'"
        " --step-time-unit s/125",
    ),
    rb"\(epoch: \d{1,6}, iters: \d{1,9}, time: [\d.]{1,16}, data: [\d.]{1,16}\)": Refusal(
        "CycleGAN and pix2pix count images, and print the time of one, of the last batch",
        expected="lines with the time of a batch",
        hint="describe it as that of batches of one image; the time of waiting for data is left"
        " out:\n"
        r"  --regex '\(epoch: (?P<epoch>\d+), iters: (?P<step>\d+), time: (?P<step_time>[\d.]+)'"
        " --step-time-unit s --batch-size 1 --topology 1n1g",
        is_certain=True,
    ),
    rb"iteration {1,16}\d{1,12}/ {1,16}\d{1,12} \|(?![^\r\n]{0,900} elapsed)": Refusal(
        "the lines of Megatron are wrapped",
        expected="iteration 20/ 100 | ... elapsed time per iteration (ms): 123.4 | ... on one line",
        hint="take the program's own output (2>&1 | tee train.log), not that of a terminal",
    ),
    rb"Step Time : [\d.]{1,16}s GPU utilization: [^\r\n]{1,40}": Refusal(
        "the step times of Megatron Bridge have no step and few digits",
        expected="lines with `elapsed time per iteration (ms)`, which the last rank prints",
        hint="give the output of all ranks, or of the last one, too",
    ),
    rb"\d{1,6}/\d{1,6} {1,12}[\d.]{1,8}G [^\r\n%|]{10,200}?: {1,4}100%\|[^|\r\n]{1,99}\| "
    rb"\d{1,9}/\d{1,9} \[?\d[\d:]{3,9}(?=[ \t]{0,8}\r?(?:\n|\Z))": Refusal(
        "the progress bar of YOLOv5 has no rate, and its seconds have too few digits",
        expected="a bar that ends with it/s, as that of YOLOv5 before v7.0",
        hint="set TQDM_BAR_FORMAT in utils/__init__.py to '{l_bar}{bar:10}{r_bar}', or train the"
        " model with Ultralytics: yolo train model=yolov5s.pt",
    ),
    rb"Progress on:[^\r\n]{1,80}? rate:[\d.,]{1,16}(?:it/s|s/it) remaining:[^\r\n]{1,40}": Refusal(
        "the progress lines of Levanter (tqdm-loggable) have a moving average with one decimal",
        expected='lines with "throughput/tokens_per_second"',
        hint="let Levanter's json_logger print them:\n  trainer: {tracker: {type: json_logger}}",
    ),
    rb"Step time: [\d.]{1,16}s, TFLOPS:(?: [\d.]{1,16},)?(?: FWD time:(?: [\d.]{1,16}s,)?)?"
    rb"(?=[ \t]{0,200}\r?\n)": Refusal(
        "the lines of ColossalAI's step times are wrapped",
        expected="[1/10] Loss:11.071, Step time: 0.912s, TFLOPS: 12.345, FWD ... on one line",
        hint="run it with COLUMNS=250 in its environment: rich wraps at 80 columns",
    ),
    rb"Train throughput/samples_per_sec: [\d.]{1,32}": Refusal(
        "Composer printed samples/s, but no tokens/s",
        expected="lines with Train throughput/tokens_per_sec",
        hint="describe the lines:\n  --regex 'Train time/batch: (?P<step>\\d+)|"
        "Train throughput/samples_per_sec: (?P<rate>[\\d.]+)' --unit samples --rates-are-per world",
    ),
    rb"# OSU [^\r\n]{3,80} Test\b[^\r\n]{0,20}": Refusal(
        "the log is of OSU's benchmarks of MPI, which train nothing",
        expected="a log of a training program, or of nccl-tests",
        hint="run all_reduce_perf of nccl-tests, whose logs dlperf bandwidth LOG reads",
        is_certain=True,
    ),
    rb"(?<!train_inner )\| epoch \d{3,6}:? {1,16}\d{1,12} / \d{1,12} loss=[^\r\n]{1,300}?wps="
    rb"[\d.]{1,16}": Refusal(
        "fairseq of before March 2020 prints the mean of an epoch so far",
        expected="lines with `train_inner`, as later versions print them",
        hint="take the rates of whole epochs, if the log has several:\n"
        "  --regex '\\| epoch (?P<step>\\d+) \\| (?:train )?loss .*(?:words/s|wps) +"
        "(?P<rate>[\\d.]+)' --unit tokens --rates-are-per world",
        is_certain=True,
    ),
    rb'"average_bus_bandwidi?th": ?\{': Refusal(
        "the JSON of nccl-tests was reformatted",
        expected="the file as -J wrote it, on one line",
        hint="write it so: jq -c . FILE",
    ),
    rb":::MLPv0\.[^\r\n]{0,100}": Refusal(
        "logs of MLPerf v0.5 are not read",
        expected=":::MLL lines, as rounds since v0.6 have them",
        hint="the time to train is from run_start to run_stop: grep -E 'run_(start|stop)' LOG",
    ),
    FAILURE.pattern: Refusal(
        "the test of nccl-tests failed before it measured a size",
        expected="a table with # Avg bus bandwidth",
        hint=HINT_OF_FAILURE,
    ),
}
_PATTERNS = {re.compile(pattern): refusal for pattern, refusal in _LINES.items()}
_MARKERS = (
    b"'loss': ",
    b'"current_steps": ',
    b"train_samples_per_second",
    b"train_speed(",
    b"epoch:train:",
    b" iteration ",
    b", iters: ",
    b"Epoch time: ",
    b"sec/kimg ",
    b" updt_s:",
    b"Step Time : ",
    b"100%|",
    b"Progress on:",
    b"Step time: ",
    b"Train throughput/",
    b":::ML",
    b"# OSU ",
    b"| epoch ",
    b'"average_bus_bandwid',
    b" failure ",
)


def unrated_line(pieces: Iterable[bytes]) -> UnratedLine | None:
    """The first line of a program that prints rates elsewhere; None if the log has none."""
    for block in blocks(pieces, _MARKERS):
        matches = ((pattern.search(block.data), why) for pattern, why in _PATTERNS.items())
        refused = [(match, why) for match, why in matches if match]
        if refused:
            first, why = min(refused, key=lambda pair: pair[0].start())
            text = first[0].decode("utf-8", "replace")
            return UnratedLine(block.line(first.start()), text, why)
    return None
