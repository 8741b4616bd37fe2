"""Records a node's facts and the versions of its software, as bench.yml does. Runs on each node of
a job, with any Python from 3.7 on.

    python node_facts.py DIRECTORY NAME MPIRUN SOFTWARE

SOFTWARE is a JSON object: for each environment, the command that prints its packages. Writes
DIRECTORY/facts.NAME.json: `host` as in run.json, and `versions` by environment.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
from pathlib import Path


def output(*argv: str) -> str:
    """The output of a program; empty if it is missing, fails or hangs."""
    try:
        done = subprocess.run(
            argv, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def lines_of(path: str) -> list[str]:
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def distribution() -> str:
    """`Debian 12.8`; os-release has only 12."""
    pairs = (line.partition("=") for line in lines_of("/etc/os-release"))
    release = {key: value.strip().strip("\"'") for key, _, value in pairs}
    name = re.sub(r" GNU/Linux$", "", release.get("NAME", ""))
    version = release.get("VERSION_ID", "")
    exact = "".join(lines_of("/etc/debian_version")[:1])
    is_exact = release.get("ID") == "debian" and re.match(r"[0-9]+\.[0-9]+$", exact)
    return f"{name} {exact if is_exact else version}".strip()


def nvlink_domain(name: str) -> str:
    """The NVLink domain of a node: what its driver says of the fabric, or else its block in Slurm's
    topology. Empty if its GPUs reach no other node, and if neither is known."""
    fabric = output("nvidia-smi", "-q", "-x").partition("<fabric>")[2].partition("</fabric>")[0]
    values = dict(re.findall(r"<(\w+)>\s*([^<]*?)\s*</", fabric))
    if values.get("state") == "Completed":
        cluster = values.get("clusterUuid", "")  # zeros on boards of their own, such as HGX
        return f"{cluster}.{values.get('cliqueId', '0')}" if cluster.strip("0-") else ""
    # BlockName=rack1 BlockIndex=0 Nodes=node[1-18] BlockSize=18
    block = re.search(r"^BlockName=(\S+) ", output("scontrol", "show", "topology", name), re.M)
    return block.group(1) if block and not fabric else ""


def host(name: str) -> dict[str, object]:
    processors = [line.partition(":")[2].strip() for line in lines_of("/proc/cpuinfo")
                  if line.startswith("model name")]  # fmt: skip
    memory = [line.split()[1] for line in lines_of("/proc/meminfo") if line.startswith("MemTotal:")]
    driver = output("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split()
    has_driver = bool(driver) and re.match(r"[0-9]+(\.[0-9]+)+$", driver[0])
    names = output("nvidia-smi", "--query-gpu=name", "--format=csv,noheader").splitlines()
    # Lmod and Environment Modules list what is loaded here: gcc/12.2:cuda/12.4
    modules = [each for each in os.environ.get("LOADEDMODULES", "").split(":") if each]
    domain = nvlink_domain(name)
    return {
        **({"modules": modules} if modules else {}),
        **({"nvlink_domain": domain} if domain else {}),
        "hostname": name,
        "distribution": distribution(),
        "kernel": platform.release(),
        "processor": processors[-1] if processors else "",
        "processors": os.cpu_count() or 0,
        "memory_mib": int(memory[0]) // 1024 if memory else 0,
        "python": platform.python_version(),
        "driver": driver[0] if has_driver else None,
        "gpus": [name.strip() for name in names if name.strip()] if has_driver else [],
    }


def versions(software: dict[str, list[str]], mpirun: str) -> dict[str, dict[str, str]]:
    """The packages that each environment sees, by the environment's name."""
    openmpi = re.search(r"[0-9][0-9.]+", output(mpirun, "--version"))
    by_environment = {}
    for environment, argv in software.items():
        packages = json.loads(output(*argv) or "[]")
        of_environment = {each["name"]: each["version"] for each in packages}
        of_environment["openmpi"] = openmpi.group() if openmpi else ""
        by_environment[environment] = of_environment
    return by_environment


def main(directory: str, name: str, mpirun: str, software: str) -> None:
    commands = json.loads(software.replace("@own@", name))
    text = json.dumps({"host": host(name), "versions": versions(commands, mpirun)})
    partial = Path(directory, f".{os.urandom(8).hex()}.tmp")
    with open(partial, "x", encoding="utf-8") as file:  # noqa: PTH123  no link is followed
        file.write(text + "\n")
    partial.replace(Path(directory, f"facts.{name}.json"))


if __name__ == "__main__":
    main(*sys.argv[1:])
