"""How fast `summarize` reads logs, beside `grep -c` and a plain loop over lines, in one run.

    python benchmarks/summarize.py [--megabytes 1000] [--kind sparse|dense] [--repeats 3]
    python benchmarks/summarize.py --logs 10000 [--megabytes 1000] [--steps 120] [--repeats 3]

The logs are made in a temporary directory, as GluonCV prints them with NCCL_DEBUG=INFO, and removed
at the end. One log is sparse (120 steps among noise) or dense (nothing but the lines of steps).
With --logs, there are so many runs of 500 cases with as many lines of steps, 120 as published, or
fewer, as programs print them that report every so many steps. Each way runs in a process of its
own; shown are the processor time (user and system, of all its processes, so that a busy machine
matters less), megabytes per second of processor time, the ratio to grep, the time on the wall,
and the peak of memory, of all processes together.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
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


# As anybody would write it first for many logs: one process, line by line, a regular expression.
MANY_LOOP = """
import re, sys
from pathlib import Path
from statistics import fmean, median
pattern = re.compile(r"Epoch\\[0\\] Batch\\[(\\d+)\\]\\s+Speed: ([0-9.]+) samples/sec")
cases = {}
for path in Path(sys.argv[1]).rglob("*.log"):
    rates = []
    with open(path) as log:
        for line in log:
            if (match := pattern.search(line)) and int(match[1]) > 20:
                rates.append(float(match[2]))
    case = (path.parent, path.stem.rpartition("_")[0])
    cases.setdefault(case, []).append(fmean(rates))
print({case: median(rates) for case, rates in cases.items()})
"""

# Less than which no Python program can do that keeps what it has read by its digest.
FLOOR = """
import hashlib, sys
from pathlib import Path
for path in Path(sys.argv[1]).rglob("*.log"):
    data = path.read_bytes()
    print(data.count(b"Speed:"), hashlib.sha256(data).hexdigest())
"""


def many(directory: Path, logs: int, size: int, steps: int, batches: int = 50) -> float:
    """So many logs of together so many bytes, of cases of so many batch sizes, two precisions and
    five topologies; returns the bytes in MB."""
    repeats, written = max(1, logs // (10 * batches)), 0
    every = STEPS // steps
    for batch in range(16, 16 + batches):
        for precision, dtype in (("fp32", "float32"), ("fp16", "float16")):
            for topology in ("1n1g", "1n4g", "1n8g", "2n8g", "4n8g"):
                folder = directory / f"bz{batch}" / topology
                folder.mkdir(parents=True, exist_ok=True)
                for repeat in range(1, repeats + 1):
                    head = f"Namespace(batch_size={batch}, dtype='{dtype}', log_interval={every})"
                    lines = [step(n) for n in range(every, STEPS + 1, every)]
                    noise = max(0, size // logs - sum(map(len, lines))) // len(lines)
                    parts = [f"INFO:root:{head}\n"]
                    for number, line in enumerate(lines):
                        parts += [
                            _noise(noise),
                            line.replace("384.19", f"{384 + number % 7}.{repeat:02}"),
                        ]
                    text = "".join(parts)
                    (folder / f"rn50_b{batch}_{precision}_{repeat}.log").write_text(text)
                    written += len(text)
    return written / 1e6


def _noise(size: int) -> str:
    text = NOISE * (size // len(NOISE) + 1)
    return text[:size].rpartition("\n")[0] + "\n" if size > 200 else ""


def tree_memory(pid: int) -> float:
    """Megabytes that a process and its children hold now, shared pages counted once for each."""
    total, left = 0.0, [pid]
    while left:
        process = Path(f"/proc/{left.pop()}")
        try:
            left += map(int, (process / f"task/{process.name}/children").read_text().split())
            for line in (process / "smaps_rollup").read_text().splitlines():
                if line.startswith("Pss:"):  # shared pages by their share
                    total += int(line.split()[1]) / 1024
        except (OSError, ValueError):
            continue  # it ended
    return total


def cost_of_many(argv: list[str]) -> tuple[float, float, float]:
    """Seconds of processor time, seconds on the wall, and peak megabytes of a command with its
    children."""
    begun = time.monotonic()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(argv, cwd=ROOT, stdout=output)
        peak = 0.0
        while True:
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            peak = max(peak, tree_memory(process.pid))
            time.sleep(0.1)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{argv[:4]} ended with exit status {process.returncode}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begun, peak


def measure_many(directory: Path, options: argparse.Namespace) -> None:
    logs = directory / "logs"
    size = many(logs, options.logs, options.megabytes * 10**6, options.steps)
    python, output = sys.executable, str(directory / "out")
    command = [python, "-m", "dlperf_runner", "summarize", str(logs), "--output-dir", output]
    ways = {
        "grep -rc Speed:": ["grep", "-rc", "Speed:", str(logs)],
        "count and SHA-256, no more": [python, "-c", FLOOR, str(logs)],
        "a loop over lines, re": [python, "-c", MANY_LOOP, str(logs)],
        "summarize, whole command": command,
    }
    cores = len(os.sched_getaffinity(0))
    print(f"{options.logs} logs of {size:.0f} MB, {options.steps} steps each, {cores} cores")
    print(f"{'':26}{'CPU s':>8}{'MB/CPU s':>10}{'x grep':>8}{'wall s':>8}{'peak MB':>9}")
    floor = None
    for name, argv in ways.items():
        cost_of_many(ways["grep -rc Speed:"])  # the files are in memory
        cpu, wall, memory = min(cost_of_many(argv) for _ in range(options.repeats))
        floor = floor or cpu
        print(f"{name:26}{cpu:8.2f}{size / cpu:10.0f}{cpu / floor:8.1f}{wall:8.1f}{memory:9.0f}")


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
    parser.add_argument("--logs", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS, choices=(120, 60, 12, 6))
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="dlperf-benchmark-"))
    try:
        if options.logs > 1:
            measure_many(directory, options)
            return
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
