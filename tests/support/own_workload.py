"""A user's program, and what it takes to describe it as a workload by `init-workload`."""

from __future__ import annotations

from plan_examples import cpu_node
from typer.testing import CliRunner, Result

from dlperf_runner.cli.main import app

# It prints a rate of all devices in each step, without a name for anything.
PROGRAM = """\
import sys, time
steps, batch, devices = (int(word) for word in sys.argv[1:])
for step in range(1, steps + 1):
    began = time.perf_counter()
    sum(n * n for n in range(20000))
    rate = batch * devices / (time.perf_counter() - began)
    print(f"it {step}/{steps} | {rate:.2f} img/s | loss {8 - step / steps:.4f}", flush=True)
"""
REGEX = r"it (?P<step>\d+)/\d+ \| (?P<rate>[\d.]+) img/s \| loss (?P<loss>\S+)"
NODES = cpu_node("mxnet")
ANSWERS = {
    "--name": "mine",
    "--command": "{python} train.py {total_steps} {batch_size_per_device} {world_size}",
    "--framework": "mxnet",
    "--launcher": "direct",
    "--regex": REGEX,
    "--unit": "samples",
}
MORE = {
    "--total-steps": "12",
    "--warmup-steps": "2",
    "--batch-size": "4",
    "--topologies": "1n1g,1n2g",
    "--sample": "it 3/12 | 12.50 img/s | loss 7.7500",
}


def call(*arguments: str, **options: str) -> Result:
    return CliRunner().invoke(app, list(arguments), **options)  # type: ignore[arg-type]


def said(result: Result, status: int = 0) -> str:
    assert result.exit_code == status, result.output + str(result.exception)
    return " ".join(result.output.split())


def init(*files: str, without: tuple[str, ...] = (), **changes: str) -> Result:
    """init-workload with ANSWERS and MORE, some of them changed or left out."""
    changed = {f"--{name.replace('_', '-')}": text for name, text in changes.items()}
    given = {k: v for k, v in {**ANSWERS, **MORE, **changed}.items() if k not in without}
    words = [word for pair in given.items() for word in pair]
    return call("init-workload", *words, *(word for file in files for word in ("--file", file)))
