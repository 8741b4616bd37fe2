"""Speed of `summarize` at reading logs, beside other programs that read the same logs, in one run.

    python benchmarks/summarize.py [--megabytes 1000] [--repeats 3]
    python benchmarks/summarize.py --logs 3000 --cases 5 [--tagged] [--extractor FILE] [--repeats 5]
    python benchmarks/summarize.py --logs 30 [--megabytes 3]

The logs are made in a temporary directory, as GluonCV prints them with NCCL_DEBUG=INFO, and removed
at the end: so many runs with 120 steps each among NCCL's lines, of up to 500 cases; with --tagged,
mpirun's tag is before each line. --extractor is the published script
MxNet/Classification/RN50v1b/extract_mxnet_logs.py, from a clone of Oneflow-Inc/DLPerf. It tells
topologies apart and nothing else: of up to 5 cases, its medians and those of `summarize` must be
equal; of more, it mixes batch sizes and precisions.

Each way runs in a process of its own, and all ways take turns, so that a busy machine slows all of
them down. Shown are the median processor time (user and system, of all its processes), the median
ratio to the first way in the same turn, the time on the wall, and the peak of memory of all
processes together.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parent.parent
STEPS = 120
NOISE = "".join(
    f"node{n % 4 + 1}:{20000 + n}:{20400 + n} [{n % 8}] NCCL INFO Channel {n % 12:02d} : "
    f"{n % 8}[1a000] -> {(n + 1) % 8}[1b000] via P2P/IPC\n"
    for n in range(2000)
)

PANDAS = "import pandas"


def step(number: int) -> str:
    return (
        f"INFO:root:Epoch[0] Rank[0] Batch[{number}]\taccuracy=0.000000\tlr=0.000000\n"
        f"INFO:root:Epoch[0] Batch[{number}]\tSpeed: 384.19 samples/sec\n"
    )


# As anybody would write it first: one process, line by line, a regular expression.
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


def many(directory: Path, logs: int, size: int, cases: int, tag: str) -> float:
    """So many logs of together so many bytes, of up to 500 cases: five topologies, two precisions
    and 50 batch sizes. Each line begins with the tag. Returns the bytes in MB."""
    distinct = [
        (topology, batch, precision, dtype)
        for batch in range(16, 66)
        for precision, dtype in (("fp32", "float32"), ("fp16", "float16"))
        for topology in ("1n1g", "1n4g", "1n8g", "2n8g", "4n8g")
    ][: min(cases, logs)]
    repeats = logs // len(distinct)
    written = 0
    for topology, batch, precision, dtype in distinct:
        folder = directory / topology
        folder.mkdir(parents=True, exist_ok=True)
        for repeat in range(1, repeats + 1):
            parts = [f"INFO:root:Namespace(batch_size={batch}, dtype='{dtype}', log_interval=1)\n"]
            lines = [step(number) for number in range(1, STEPS + 1)]
            noise = max(0, size // logs - sum(map(len, lines)) - 3 * STEPS * len(tag)) // STEPS
            for number, line in enumerate(lines):
                rate = f"{384 + number % 7 + repeat // 100}.{repeat % 100:02}"
                parts += [_noise(noise), line.replace("384.19", rate)]
            with (folder / f"rn50_b{batch}_{precision}_{repeat}.log").open("w") as log:
                for part in parts:
                    written += log.write("".join(f"{tag}{x}" for x in part.splitlines(True)))
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


def cost(argv: list[str]) -> tuple[float, float, float]:
    """Seconds of processor time, seconds on the wall, and peak megabytes of a command with its
    children."""
    begun = time.monotonic()
    # Not to /dev/null: grep stops at the first match there.
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
    peak = max(peak, usage.ru_maxrss / 1024)  # the largest process, had it ended in between
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begun, peak


def compare(title: str, ways: dict[str, list[str]], size: float, repeats: int) -> None:
    """Run all ways in turn and print what they cost."""
    for argv in ways.values():
        cost(argv)  # files and programs are in memory
    turns = [[cost(argv) for argv in ways.values()] for _ in range(repeats)]
    first = next(iter(ways))
    print(f"{title}, {len(os.sched_getaffinity(0))} cores, median of {repeats}; ratio to {first}")
    print(f"{'':28}{'CPU s':>8}{'ratio':>8}{'MB/CPU s':>10}{'wall s':>8}{'peak MB':>9}")
    for index, name in enumerate(ways):
        cpu, wall, memory = (median(turn[index][n] for turn in turns) for n in range(3))
        ratio = median(turn[index][0] / turn[0][0] for turn in turns)
        print(f"{name:28}{cpu:8.2f}{ratio:8.2f}{size / cpu:10.0f}{wall:8.1f}{memory:9.0f}")


@contextmanager
def temporary_directory() -> Iterator[Path]:
    """A directory for logs and results. As for a user, a module is compiled once and not in each
    run."""
    with tempfile.TemporaryDirectory(prefix="dlperf-benchmark-") as directory:
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = f"{directory}/bytecode"
        yield Path(directory)


def of_many(directory: Path, options: argparse.Namespace) -> None:
    logs = directory / "logs"
    tag = "[1,0]<stdout>:" if options.tagged else ""
    size = many(logs, options.logs, options.megabytes * 10**6, options.cases, tag)
    python, output = sys.executable, str(directory / "out")
    ways: dict[str, list[str]] = {}
    if options.extractor:
        script = [python, str(options.extractor.resolve()), "--log_dir", str(logs)]
        ways["published extractor"] = [*script, "--output_dir", output]
    ways |= {
        "import pandas": [python, "-c", PANDAS],
        "grep -rc Speed:": ["grep", "-rc", "Speed:", str(logs)],
        "count and SHA-256, no more": [python, "-c", FLOOR, str(logs)],
        "a loop over lines, re": [python, "-c", MANY_LOOP, str(logs)],
        "summarize, whole command": [
            *(python, "-m", "dlperf_runner", "summarize", str(logs), "--output-dir", output)
        ],
    }
    number = len(list(logs.rglob("*.log")))
    compare(f"{number} logs of {size:.0f} MB", ways, size, options.repeats)
    if options.extractor and options.cases <= 5:
        same_medians(*map(Path(output).joinpath, ("logs_result.json", "bz16_result.json")))


def same_medians(*results: Path) -> None:
    """Stop if two results in the published form have other medians or speed-ups."""
    first, second = (
        {
            topology: (case["median_speed"], case["speedup"])
            for topology, case in json.loads(path.read_text())["rn50"].items()
        }
        for path in results
    )
    if first != second:
        raise SystemExit(f"{results[0].name} has {first}, {results[1].name} has {second}")
    print(f"the same medians and speed-ups of {len(first)} cases by both")


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure the speed of summarize.")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--logs", type=int, default=1)
    parser.add_argument("--cases", type=int, default=5, help="Of so many logs, at most 500.")
    parser.add_argument("--tagged", action="store_true", help="With mpirun's tag on each line.")
    parser.add_argument("--extractor", type=Path)
    options = parser.parse_args()
    with temporary_directory() as directory:
        of_many(directory, options)


if __name__ == "__main__":
    main()
