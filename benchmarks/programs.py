"""The cost of a builtin program beyond a plain loop of its steps, on one core.

    python benchmarks/programs.py [--pairs 10] [--only jax-llama] [--python pytorch=PATH]

Both run as processes of their own, in turn, the plain loop (plain_loops.py) first in every second
pair. Both lines that begin and end the measured steps get the time of their arrival, so that a
program's own lines, losses and clocks count, and the CPU time of the process till then, which the
load of other programs hardly changes. Frameworks are installed from the project's locks,
below .cache; PyTorch, which has no lock, is taken where an interpreter has it.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

PROJECT = Path(__file__).resolve().parents[1]
CACHE = PROJECT / ".cache" / "programs"
DLLOGGER = "Iteration: "


class Seconds(NamedTuple):
    """By the clock, and of the CPU."""

    wall: float
    cpu: float


class Program(NamedTuple):
    """Its module, the text that each line of a step has, the option for the number of steps, and
    options whose steps take some 0.1 s on two cores."""

    module: str
    line: str
    steps: str
    options: str


RESNET = "--no-cuda --precision fp32 --batch-size 8 --image-size 64 --classes 10"
PROGRAMS = {
    "jax-llama": Program(
        "jax_llama",
        "completed step: ",
        "--steps",
        "--no-cuda --dtype float32 --model llama-lab --batch-size 2 --sequence-length 64"
        " --recompute none --lr 0.003",
    ),
    "jax-resnet50v1.5": Program("jax_resnet50", DLLOGGER, "--iterations", RESNET),
    "paddle3-resnet50v1.5": Program("paddle3_resnet50", DLLOGGER, "--iterations", RESNET),
    "tensorflow2-resnet50v1.5": Program(
        "tensorflow2_resnet50", DLLOGGER, "--iterations", RESNET + " --xla false"
    ),
    "pytorch-llama": Program(
        "pytorch_llama",
        " - step: ",
        "--steps",
        "--no-cuda --precision fp32 --model llama-lab --batch-size 2 --sequence-length 64"
        " --recompute none --lr 0.003",
    ),
    "pytorch-resnet50v1.5": Program("pytorch_resnet50", DLLOGGER, "--iterations", RESNET),
    "pytorch-bert-large": Program(
        "pytorch_bert",
        DLLOGGER,
        "--iterations",
        "--no-cuda --precision fp32 --model bert-lab --batch-size 8 --sequence-length 128",
    ),
    "pytorch-arcface": Program(
        "pytorch_arcface",
        "Global Step: ",
        "--iterations",
        "--no-cuda --precision fp32 --network r10 --batch-size 64 --image-size 112 --classes 1000"
        " --sample-rate 0.2 --lr 0.0003",
    ),
}
LOCKED = ("jax", "paddle3", "tensorflow2")


def framework(program: str) -> str:
    return program.partition("-")[0]


def interpreter(name: str) -> Path | None:
    """One that has the framework; None if there is none. Those with a lock are installed first."""
    if name not in LOCKED:
        python = Path("/usr/bin/python3")
        tried = subprocess.run([python, "-c", "import torch"], check=False, capture_output=True)
        return python if tried.returncode == 0 else None
    lock = PROJECT / "requirements" / f"{name}-cpu.txt"
    folder = CACHE / name
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if not installed.exists() or installed.read_text() != lock.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        pip = [python, "-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes"]
        subprocess.run([*pip, "-r", lock], check=True)
        installed.write_text(lock.read_text())
    return python


def now(pid: int) -> Seconds:
    """The time, and the CPU time of a process with all its threads."""
    return Seconds(time.perf_counter(), time.clock_gettime(~pid << 3 | 2))  # clock_getcpuclockid(3)


def arrivals(argv: list[str], text: str) -> list[Seconds]:
    """The times at which the lines with the text arrive."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROJECT / "dlperf_runner" / "workloads"),
        # Both take the step that the first process compiled.
        "JAX_COMPILATION_CACHE_DIR": str(CACHE / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    log = CACHE / "last.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            argv, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout
        times = [now(process.pid) for line in process.stdout if text in line]
    if process.returncode:
        raise SystemExit(f"{' '.join(argv)}: exit status {process.returncode}; see {log}")
    return times


def step_seconds(
    program: Program, python: Path, is_plain: bool, warmup: int, steps: int
) -> Seconds:
    """The mean of the measured steps."""
    options = program.options.split()
    if is_plain:
        loop = [str(PROJECT / "benchmarks" / "plain_loops.py"), program.module]
        began, ended = arrivals(
            [str(python), "-u", *loop, str(warmup), str(steps), *options], "plain"
        )
    else:
        script = PROJECT / "dlperf_runner" / "workloads" / f"{program.module}.py"
        number = [program.steps, str(warmup + steps)]
        times = arrivals([str(python), "-u", str(script), *options, *number], program.line)
        if len(times) != warmup + steps:
            raise SystemExit(f"{program.module}: {len(times)} of {warmup + steps} steps were said")
        began, ended = times[warmup - 1], times[-1]
    return Seconds((ended.wall - began.wall) / steps, (ended.cpu - began.cpu) / steps)


def ratio(pairs: list[tuple[float, float]]) -> str:
    """The median of the second to the first, with its interval."""
    import numpy as np
    from scipy.stats import bootstrap  # not for the GPU kit, which takes only times

    ratios = np.array([builtin / plain for plain, builtin in pairs])
    interval = bootstrap(
        (ratios,), np.median, method="percentile", rng=np.random.default_rng(1)
    ).confidence_interval
    return f"{median(ratios):.3f} ({interval.low:.3f} to {interval.high:.3f})"


def row(name: str, python: Path, pairs: int, warmup: int, steps: int) -> str:
    """A program's row of the table."""
    program = PROGRAMS[name]
    step_seconds(program, python, True, warmup, steps)  # compiles; not counted
    seconds = []
    for pair in range(pairs):
        order = (True, False) if pair % 2 else (False, True)
        measured = {plain: step_seconds(program, python, plain, warmup, steps) for plain in order}
        seconds.append((measured[True], measured[False]))
    wall = [(plain.wall, ours.wall) for plain, ours in seconds]
    cpu = [(plain.cpu, ours.cpu) for plain, ours in seconds]
    plain, ours = (median(each) for each in zip(*wall, strict=True))
    return (
        f"| `{name}` | {1000 * plain:.1f} ms | {1000 * ours:.1f} ms | {ratio(wall)} | {ratio(cpu)}"
        f" | {pairs} | {os.getloadavg()[0]:.0f} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--steps", type=int, default=40, help="measured steps of a process")
    parser.add_argument("--warmup", type=int, default=5, help="steps before them")
    parser.add_argument("--only", choices=PROGRAMS, action="append", help="these programs")
    parser.add_argument(
        "--python", action="append", default=[], metavar="FRAMEWORK=PATH", help="that has it"
    )
    given = parser.parse_args()
    if given.pairs < 2 or given.steps < 1 or given.warmup < 1:
        parser.error("at least 2 pairs, 1 step and 1 step before are needed")
    named = {}
    for text in given.python:
        name, _, path = text.partition("=")
        if name not in map(framework, PROGRAMS) or not Path(path).is_file():
            parser.error(f"--python {text}: a framework and the path of an interpreter expected")
        named[name] = Path(path)
    CACHE.mkdir(parents=True, exist_ok=True)
    # Threads that wait for each other would wait for other programs.
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    print("| program | plain loop | builtin | ratio (95 % interval) | of CPU time | pairs | load |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name in given.only or PROGRAMS:
        python = named.get(framework(name)) or interpreter(framework(name))
        if python is None:
            one = framework(name)
            note = f"none: /usr/bin/python3 has no {one}; --python {one}=PATH names one that has"
            print(f"| `{name}` | {note} | | | | | |")
            continue
        print(row(name, python, given.pairs, given.warmup, given.steps), flush=True)


if __name__ == "__main__":
    main()
