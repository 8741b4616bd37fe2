"""Time that the harness adds to a run within a job of Slurm: from the end of one run to the end of
the next, beside that of the same script, started by the job alone, in turn.

python benchmarks/slurm.py --repeats 5 --turns 3
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median

from lab import PROJECT, Lab, lab, spread

GIVEN = {"lab_slurm": True, "dlperf_frameworks": ["nccl"]}
SITE = (
    "dlperf_stack: cpu\ndlperf_accelerator: cpu\ndlperf_devices_per_node: 2\n"
    "dlperf_interface: eth0\ndlperf_matrix: smoke\ndlperf_frameworks: [nccl]\n"
)
USER = "cd /shared && sudo -u dlperf"
DLPERF = f"{USER} env PYTHONPATH=/shared/python /usr/bin/python3 -m dlperf_runner"
WORKLOAD = (
    "--name mine --framework nccl --launcher jax --unit samples --rates-are-per world"
    " --command '{python} train.py {total_steps}' --regex 'it (?P<step>\\d+) (?P<rate>\\S+)'"
    " --topologies 1n1g,2n1g --total-steps 3 --warmup-steps 1 --file train.py"
)
PROGRAM = "import sys\nfor step in range(int(sys.argv[1])):\n    print('it', step + 1, 1.0)\n"
# The run's own script, as often as the campaign has runs.
BARE = """#!/bin/bash
#SBATCH --nodes={nodes} --output=/shared/{name}.log --export=NIL
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
export SLURM_CPU_BIND=none SLURM_OVERLAP=1
unset SLURM_EXPORT_ENV
cd /shared/{directory}
for (( i = 0; i <= {repeats}; i++ )); do
  bash run.sh {names} > bare.log 2>&1 < /dev/null || exit
  date +%s.%N >> /shared/{name}.times
done
"""


def ssh(made: Lab, command: str) -> None:
    made.seconds("ssh", "-F", str(made.directory / "ssh_config"), "node1", command)


def run(made: Lab, shared: Path, name: str, nodes: int, repeats: int) -> list[float]:
    """Seconds between the ends of runs, which follow each other in one job."""
    options = "--scheduler slurm --site site.yml --workload mine --matrix published"
    options += f" --campaign {name} --nodes {nodes} --repeats {repeats + 1}"
    ssh(made, f"{DLPERF} --catalog /shared/catalog run {options}")
    paths = sorted(
        (shared / name).glob("jobs/1/ended.*.json"), key=lambda p: int(p.suffixes[0][1:])
    )
    ended = [datetime.fromisoformat(json.loads(path.read_text())["ended"]) for path in paths]
    return [(after - before).total_seconds() for before, after in pairwise(ended)]


def bare(made: Lab, shared: Path, name: str, nodes: int, repeats: int) -> list[float]:
    directory = next((shared / name).glob("runs/*/r1")).relative_to(shared)
    names = " ".join(f"node{number}" for number in range(1, nodes + 1))
    fields = {"name": f"{name}-bare", "nodes": nodes, "names": names, "repeats": repeats}
    (shared / "bare.sh").write_text(BARE.format(**fields, directory=directory))
    ssh(made, f"{USER} sbatch --wait bare.sh")
    ended = [float(line) for line in (shared / f"{name}-bare.times").read_text().split()]
    return [after - before for before, after in pairwise(ended)]


def turns(made: Lab, shared: Path, options: argparse.Namespace) -> Iterator[str]:
    for nodes in (1, 2):
        harness: list[float] = []
        floors: list[float] = []
        for turn in range(options.turns):
            name = f"n{nodes}t{turn}"
            harness += run(made, shared, name, nodes, options.repeats)
            floors += bare(made, shared, name, nodes, options.repeats)
        added = median(harness) - median(floors)
        yield f"| {nodes} | {spread(harness)} | {spread(floors)} | {added:.2f} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        shared = Path(name)
        shared.chmod(0o777)
        uv = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet"]
        target = ["--python", sys.executable, "--target", str(shared / "python"), str(PROJECT)]
        subprocess.run([*uv, *target], check=True)
        (shared / "site.yml").write_text(SITE)
        (shared / "train.py").write_text(PROGRAM)
        with lab(2, lab_shared_dir=name, lab_frameworks="nccl") as made:
            made.play("provision.yml", "-e", json.dumps(GIVEN))
            ssh(made, f"{DLPERF} --catalog /shared/catalog init-workload {WORKLOAD}")
            print("| nodes | a run | its script alone, by srun | harness |")
            print("| ----- | ----- | ------------------------- | ------- |")
            for line in turns(made, shared, options):
                print(line)


if __name__ == "__main__":
    main()
