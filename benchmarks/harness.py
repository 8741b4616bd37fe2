"""What the harness adds to a run, beside the floor: a bare mpirun over SSH, and scp of its log.

python benchmarks/harness.py --repeats 5
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from statistics import median

from lab import Lab, lab

MPIRUN = "/usr/bin/mpirun --host node1:1 -np 1 --mca btl_tcp_if_include eth0"
TRAINING = ("-e", "model=resnet50v1b", "-e", "nodes=1", "-e", "gpus_per_node=1")
SHORT = ("-e", "iterations=2", "-e", "warmup=1")


def overheads(made: Lab, repeats: int, directory: Path) -> list[float]:
    """From the record of one run to the record of the next, less what its command took."""
    campaign = directory / "campaign"
    made.play(
        "bench.yml", *TRAINING, *SHORT, "-e", f"repeats={repeats + 1}", "-e", f"campaign={campaign}"
    )
    records = sorted(campaign.glob("runs/*/r*/run.json"), key=lambda path: path.stat().st_mtime)
    ended = [path.stat().st_mtime for path in records]
    took = [json.loads(path.read_text())["outcome"]["elapsed_s"] for path in records]
    return [
        after - before - s for before, after, s in zip(ended, ended[1:], took[1:], strict=False)
    ]


def floor(made: Lab, directory: Path) -> float:
    """ssh and scp, less what mpirun took on the node."""
    config = str(made.directory / "ssh_config")
    script = f"date +%s.%N; sudo -u dlperf {MPIRUN} hostname > /tmp/floor.log 2>&1; date +%s.%N"
    times = directory / "times"
    total = made.seconds("sh", "-c", f"ssh -F {config} node1 '{script}' > {times}")
    total += made.seconds("scp", "-q", "-F", config, "node1:/tmp/floor.log", str(directory))
    began, ended = map(float, times.read_text().split())
    return total - (ended - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    repeats = parser.parse_args().repeats
    with lab(4) as made, tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        made.play("provision.yml")
        floors = [floor(made, directory) for _ in range(repeats)]
        added = overheads(made, repeats, directory)
        floors += [floor(made, directory) for _ in range(repeats)]
    print("| per run | median | min to max |")
    print("| ------- | ------ | ---------- |")
    for title, values in (("harness", added), ("floor: ssh, mpirun, scp", floors)):
        print(f"| {title} | {median(values):.2f} s | {min(values):.2f} to {max(values):.2f} s |")


if __name__ == "__main__":
    main()
