"""A user's program, and what it takes to describe it as a workload by `init-workload`."""

from command_line import output
from plan_examples import cpu_node

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
    "--rates-are-per": "world",
}
MORE = {
    "--total-steps": "12",
    "--warmup-steps": "2",
    "--batch-size": "4",
    "--topologies": "1n1g,1n2g",
    "--sample": "it 3/12 | 12.50 img/s | loss 7.7500",
}


def said(*arguments: object, status: int = 0) -> str:
    """All that a command printed, with its white space folded."""
    return " ".join(output(*arguments, status=status).split())


def init(*files: str, without: tuple[str, ...] = (), status: int = 0, **changes: str) -> str:
    """What init-workload says to ANSWERS and MORE, some of them changed or left out."""
    if changes.get("unit", "samples") != "samples":  # the sample says img/s
        without = (*without, "--sample")
    changed = {f"--{name.replace('_', '-')}": text for name, text in changes.items()}
    given = {k: v for k, v in {**ANSWERS, **MORE, **changed}.items() if k not in without}
    words = [word for pair in given.items() for word in pair]
    words += [f"--file={file}" for file in files]
    return said("init-workload", *words, status=status)
