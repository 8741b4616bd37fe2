"""How fast each log format is read: so many lines with a rate, and nothing else.

    PYTHONPATH=. python benchmarks/formats.py [--lines 100000] [--repeats 5]

All formats take turns, so that a busy machine slows all of them down. Shown are the median
processor time, and the median ratio to the mean of the five formats of the published programs in
the same turn: 2 is twice as slow.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from statistics import fmean, median

from dlperf_runner import logs
from dlperf_runner.logs import mllog, nccl_tests
from dlperf_runner.logs.pattern import of_pattern

AVERAGE = b"# Avg bus bandwidth    : 443.007\n"
BEGAN = datetime(2026, 11, 20, 13, 40, tzinfo=UTC)
PUBLISHED = ("gluoncv_horovod", "mxnet_speedometer", "plsc", "oneflow_benchmark", "dllogger")


def stamp(step: int) -> str:
    return (BEGAN + timedelta(seconds=step / 8)).strftime("%Y-%m-%d %H:%M:%S.%f")


LINES: dict[str, Callable[[int], str]] = {
    "gluoncv_horovod": lambda n: f"INFO:root:Epoch[0] Batch[{n}]\tSpeed: 384.19 samples/sec",
    "mxnet_speedometer": lambda n: (
        f"INFO:root:Epoch[0] Batch [{n - 1}-{n}]\tSpeed: 234.21 samples/sec\tacc=0.0"
        "\tlossvalue=41.5"
    ),
    "plsc": lambda n: (
        f"INFO {stamp(n)[:-3].replace('.', ',')} entry.py:1029] Pass:0 batch:{n} lr:0.00039063"
        " loss:40.266624 qps:397.75"
    ),
    "oneflow_benchmark": lambda n: (
        f"train: epoch 0, iter {n}, loss: 6.505637, top_1: 0.000000, top_k: 0.000000,"
        f" samples/s: 384.191 {1597050000 + n}.123456"
    ),
    "dllogger": lambda n: f"DLL {stamp(n)} - (0, {n}) total_ips : 384.2512345678901",
    "dllogger_pytorch": lambda n: (
        f"DLL {stamp(n)} - Epoch: 0 Iteration: {n}  train.loss : 7.03125 "
        " train.compute_ips : 2500.12 img/s train.total_ips : 2480.33 img/s train.lr : 0.05120 "
    ),
    "dllogger_pytorch, JSON": lambda n: (
        f'DLLL {{"timestamp": "{1655221221 + n}.026182", "datetime": "2022-06-14 15:40:21.026182'
        '+00:00", "elapsedtime": "12.5", "type": "LOG", "step": [0, '
        f'{n}], "data": {{"train.loss": 7.03125, "train.compute_ips": 2500.12, "train.total_ips":'
        ' 2480.33, "train.lr": 0.0512}}'
    ),
    "dllogger_bert": lambda n: (
        f"DLL {stamp(n)} - Training Epoch: 0 Training Iteration: {n}  average_loss : 8.63299005"
        "  learning_rate : 0.0018973668338730931  skipped_steps : 0 "
    ),
    "dllogger_bert, JSON": lambda n: (
        f'DLLL {{"timestamp": "{1655221221 + n}.026182", "datetime": "2022-06-14 15:40:21.026182'
        '+00:00", "elapsedtime": "12.5", "type": "LOG", "step": [0, '
        f'{n}], "data": {{"average_loss": 8.63299, "learning_rate": 0.0019, "skipped_steps": 0}}}}'
    ),
    "arcface_torch": lambda n: (
        f"Training: {stamp(n)[:-3].replace('.', ',')}-Speed 2500.12 samples/sec   Loss 41.5000   "
        f"LearningRate 0.020000   Epoch: 0   Global Step: {n}   Fp16 Grad Scale: 65536   "
        "Required: 10 hours"
    ),
    "torchtitan": lambda n: (
        f"[titan] {stamp(n)[:-3].replace('.', ',')} - root - INFO - step: {n:2}  loss:  8.12345"
        "  grad_norm:  1.2345  memory: 40.50GiB(51.20%)  tps: 6,835  tflops: 395.30  mfu: 39.97%"
    ),
    "maxtext": lambda n: (
        f"completed step: {n}, seconds: 5.668, TFLOP/s/device: 134.909, Tokens/s/device: 8671.794,"
        " total_weights: 196608, loss: 10.879"
    ),
    "megatron": lambda n: (
        f" [{stamp(n)}] iteration {n:8d}/  100000 | consumed samples: {16 * n:12d} |"
        " elapsed time per iteration (ms): 123.4 | throughput per GPU (TFLOP/s/GPU): 400.1 |"
        " learning rate: 1.000000E-04 | global batch size:    16 | lm loss: 2.000000E+00 |"
        " loss scale: 1.0 | grad norm: 1.000 | number of skipped iterations:   0 |"
    ),
    "mllog": lambda n: (
        f' 0: :::MLLOG {{"namespace": "", "time_ms": {1759987984532 + n}, "event_type":'
        ' "POINT_IN_TIME", "key": "tracked_stats", "value": {"train_step_time": 0.7098, '
        '"reduced_train_loss": 8.0}, "metadata": {"file": "/workspace/llm/custom_callbacks.py",'
        f' "lineno": 480, "step": {n}.0}}}}'
    ),
    "nccl_tests": lambda n: (
        f"{8 * n:12d}{2 * n:14d}     float     sum      -1   4470.5  240.18  450.34      0"
        "   4471.2  240.14  450.27      0"
    ),
}


# Expressions of a user, each with its line: that of docs/own-workload.md, and one that looks for
# its numbers along a long line.
EXPRESSIONS: dict[str, tuple[str, Callable[[int], str]]] = {
    "an expression": (
        r"step (?P<step>\d+) loss (?P<loss>\S+) (?P<rate>[\d.]+) img/s",
        lambda n: f"step {n} loss 2.3010 812.5 img/s",
    ),
    "an expression, long lines": (
        r"step (?P<step>\d+).* loss (?P<loss>\S+) .*?(?P<rate>[\d.]+) img/s",
        lambda n: (
            f"{stamp(n)} [INFO] train.py:77 step {n} lr 0.001 loss 2.3010 grad_norm 0.2 at"
            " 812.5 img/s, memory 40.5 GiB"
        ),
    ),
}
OWN = {name: of_pattern(name, expression, "") for name, (expression, _) in EXPRESSIONS.items()}


def around(name: str, data: bytes) -> bytes:
    """The log with the other lines that its format needs."""
    count = data.count(b"\n")
    if name == "nccl_tests":
        return data + AVERAGE
    if name != "dllogger_bert":
        return data
    # As many batches as lines, of one sample, and one more.
    began = "DLL 2022-06-14 00:00:00.500000 - PARAMETER "
    options = f"log_freq=1.0, max_steps={count + 1}"
    head = f'{began}Config : ["Namespace({options})"]\n{began}train_start : True\n'
    end = (
        f"DLL {stamp(count)} - Training Epoch: 0 Training Iteration: {count + 1}  final_loss : 8.5"
        f"\nDLL {stamp(count)} -  training_sequences_per_second : 1.0 raw_train_time :"
        f" {count + 1 - 4}.0 s\n"
    )
    return f"{head}{began}batch_size_per_gpu : 1\n".encode() + data + end.encode()


def seconds(case: str, lines: bytes) -> float:
    name = case.partition(",")[0] if case not in OWN else case
    data = around(name, lines)
    pieces = [data[at : at + 2**20] for at in range(0, len(data), 2**20)]
    began = time.process_time()
    if name == "nccl_tests":
        found = len(nccl_tests.read(pieces).rows)
    elif name == "mllog":
        found = len(mllog.read(pieces).step_seconds)
    else:
        found = len(logs.parse(OWN.get(name) or logs.formats()[name], pieces).columns.steps)
    took = time.process_time() - began
    if found != lines.count(b"\n"):
        raise SystemExit(f"{case}: {found} of {lines.count(bytes([10]))} lines were read")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    numbers = range(1, arguments.lines + 1)
    lines = {**LINES, **{name: line for name, (_, line) in EXPRESSIONS.items()}}
    if missing := logs.built_in().keys() - lines:
        raise SystemExit(f"formats without a line: {', '.join(sorted(missing))}")
    data = {name: ("\n".join(map(line, numbers)) + "\n").encode() for name, line in lines.items()}
    turns = [
        {name: seconds(name, content) for name, content in data.items()}
        for _ in range(arguments.repeats)
    ]
    print(f"| format | {arguments.lines:,} lines | lines/s | to the published formats |")
    print("| ------ | ------ | ------ | ------ |")
    for name in lines:
        took = median(turn[name] for turn in turns)
        ratios = (turn[name] / fmean(turn[other] for other in PUBLISHED) for turn in turns)
        rate = arguments.lines / took
        print(f"| {name} | {took:.2f} s | {rate:,.0f} | {median(ratios):.2f} |")


if __name__ == "__main__":
    main()
