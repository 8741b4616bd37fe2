"""How fast `summarize` reads logs, beside `grep -c` and a plain loop over lines, in one run.

    python benchmarks/summarize.py [--megabytes 1000] [--kind sparse|dense] [--repeats 3]

The log is made in a temporary directory, as GluonCV prints it with NCCL_DEBUG=INFO (sparse: 120
steps among noise; dense: nothing but the lines of steps), and removed at the end. Each way runs
in a process of its own; shown are the processor time (user and system, so that a busy machine
matters less), megabytes per second of one core, the ratio to grep, and the peak of memory.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
STEPS = 120
NOISE = "".join(
    f"node{n % 4 + 1}:{20000 + n}:{20400 + n} [{n % 8}] NCCL INFO Channel {n % 12:02d} : "
    f"{n % 8}[1a000] -> {(n + 1) % 8}[1b000] via P2P/IPC\n"
    for n in range(2000)
)

# A plain loop, as anybody would write it first.
LINE_LOOP = """
import re, sys
pattern = re.compile(r"Speed: ([0-9.]+) samples/sec")
rates = []
with open(sys.argv[1]) as log:
    for line in log:
        if "Epoch[0] Batch[" in line:
            rates += [float(rate) for rate in pattern.findall(line)]
"""
# What summarize does with a log, without what surrounds it.
READER = """
import sys
from dlperf_runner import logs
form = logs.formats()["gluoncv_horovod"]
with open(sys.argv[1], "rb", buffering=0) as log:
    for record in form.parse(logs.candidates(form, log)):
        pass
"""


def step(number: int) -> str:
    return (
        f"INFO:root:Epoch[0] Batch[{number}] Loss[6.916]\n"
        f"INFO:root:Epoch[0] Rank[0] Batch[{number}]\taccuracy=0.000000\tlr=0.000000\n"
        f"INFO:root:Epoch[0] Batch[{number}]\tSpeed: 384.19 samples/sec\n"
    )


def sparse(size: int) -> Iterator[str]:
    yield "INFO:root:Namespace(batch_size=128, dtype='float32', log_interval=1)\n"
    for number in range(1, STEPS + 1):
        for _ in range(max(1, round(size / STEPS / len(NOISE)))):
            yield NOISE
        yield step(number)


def dense(size: int) -> Iterator[str]:
    written, number = 0, 0
    while written < size:
        number += 1
        yield (text := step(number))
        written += len(text)


def cpu_and_memory(argv: list[str]) -> tuple[float, float]:
    """Seconds of processor time and peak megabytes of a command."""
    # Not to /dev/null: grep stops at the first match there.
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, cwd=ROOT, stdout=output)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv[:4]} ended with exit status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of summarize.")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--kind", choices=("sparse", "dense"), default="sparse")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="dlperf-benchmark-"))
    try:
        log = directory / "1n1g" / "rn50_b128_fp32_1.log"
        log.parent.mkdir()
        make = sparse if options.kind == "sparse" else dense
        with log.open("w") as file:
            file.writelines(make(options.megabytes * 10**6))
        measure(log, directory, options)
    finally:
        shutil.rmtree(directory)


def measure(log: Path, directory: Path, options: argparse.Namespace) -> None:
    python, size = sys.executable, log.stat().st_size / 1e6
    ways = {
        "grep -c Speed:": ["grep", "-c", "Speed:", str(log)],
        "a loop over lines": [python, "-c", LINE_LOOP, str(log)],
        "reader and parser": [python, "-c", READER, str(log)],
    }
    # A dense log of this size has more steps than any rule: summarize refuses it early.
    if options.kind == "sparse":
        output = str(directory / "out")
        command = [python, "-m", "dlperf_runner", "summarize", str(directory)]
        ways["summarize, whole command"] = [*command, "--output-dir", output]
    print(f"{options.kind} log of {size:.0f} MB, best of {options.repeats}")
    print(f"{'':26}{'CPU s':>8}{'MB/s':>8}{'x grep':>8}{'peak MB':>9}")
    floor = None
    for name, argv in ways.items():
        seconds, memory = min(cpu_and_memory(argv) for _ in range(options.repeats))
        floor = floor or seconds
        print(f"{name:26}{seconds:8.2f}{size / seconds:8.0f}{seconds / floor:8.1f}{memory:9.0f}")


if __name__ == "__main__":
    main()
