"""The first hours of three strangers: what README and the pages of each way say is typed, literally
and in order, on a fresh Debian 12, and prints what the pages show.

The administrator's nodes and the engineer's Slurm are the lab's, so their inventory, partition and
workload are, too. No node has a GPU.
"""

import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from first_hour import Person, below, commands, fresh_debian
from lab_under_test import PROJECT, Lab, Shared, sharing
from make_logs import gluoncv, write
from slurm_lab import SETTINGS

pytestmark = [
    pytest.mark.lab,
    pytest.mark.heavy,
    pytest.mark.hours,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to make root filesystems"),
]

HOSTS = """\
nodes:
  hosts:
    node1: {ansible_host: 10.11.0.2}
    node2: {ansible_host: 10.11.0.3}
"""
DESCRIBED = {
    "dlperf_devices_per_node": 2,
    "dlperf_accelerator": "cpu",
    "dlperf_stack": "cpu",
    "dlperf_frameworks": ["mxnet"],
    "dlperf_matrix": "smoke",
    "dlperf_interface": "eth0",
    "dlperf_mirror": "http://10.11.0.1:8010",
    "dlperf_mpirun_args": ["--oversubscribe"],
    "node_base_mirror_key": "/srv/dlperf-mirror.asc",
    "dlperf_slurm": True,
    "slurm_settings": SETTINGS,
}
PUBLISHED = "mxnet-resnet50v1b"  # start-cluster names it beside the one that runs on H100
CLUSTER, SLURM, SBATCH = "docs/start-cluster.md", "docs/slurm.md", "docs/sbatch.md"
# Where the wheels and the clone are that a login node sees.
INDEX = "PIP_NO_INDEX=1 PIP_FIND_LINKS=/shared/wheels"


def alike(text: str) -> list[str]:
    """The lines of a text without their numbers, and with one blank for many."""
    return [re.sub(r"[-\s]+", " ", re.sub(r"\d[\d.,]*", "#", line)) for line in text.splitlines()]


def shows(output: str, page: str, *, exactly: bool = True) -> None:
    """The output has each line that the page shows, perhaps behind a question, whose answer is not
    printed; `...` stands for others."""
    form = (lambda text: [line.strip() for line in text.splitlines()]) if exactly else alike
    printed = form(output)
    missing = [
        line
        for line in form(page)
        if line.strip(" .") and not any(one.endswith(line) for one in printed)
    ]
    assert not missing, f"{missing}\nis not in\n{output}"


def of_page(page: str, heading: str, number: int = 0) -> list[str]:
    return commands(below(page, heading)[number])


def test_a_student_with_logs(tmp_path: Path) -> None:
    me = fresh_debian(tmp_path / "debian", {"DIR": "examples/logs"})
    me.types("apt-get -qq update")
    typed = of_page("README.md", "I have logs")
    printed = "".join(me.types(command, answer="y\n") for command in typed)
    shows(printed, below("README.md", "What you get")[0].text)
    (report,) = re.findall(r"^\S+/report\.html$", printed, re.MULTILINE)
    clone = me.root / "root/dlperf_runner"
    assert (clone / report).stat().st_size > 100_000

    page = "docs/start-logs.md"
    first = of_page(page, "I have logs")
    assert [line.split() for line in first[:4]] == [line.split() for line in typed[:4]]
    for command in first[4:]:
        shows(me.types(command), below(page, "What you get")[0].text)
    for command in of_page(page, "What next"):
        me.types(command)
    # A log whose name says nothing, and one of an unknown program.
    shutil.copy(PROJECT / "examples/logs/bz128/2n8g/rn50_b128_fp32_1.log", clone / "slurm-4711.out")
    (state,) = of_page(page, "If the names say too little")
    assert "|        2 |      16 |" in me.types(state)
    line = "[trainer] upd {} | obj 6.800 | 810.{} img/s"
    write(clone / "own/mine_b128_fp32_1n1g_1.log", [line.format(n, n % 7) for n in range(1, 41)])
    me.names = {**me.names, "DIR": "own"}
    assert "|        1 |       1 |" in me.types(of_page(page, "My logs are different")[0])


@dataclass(frozen=True)
class Site:
    """A controller, and the lab's nodes as it provisioned them. `printed`: what that printed."""

    admin: Person
    lab: Lab
    folder: Path
    printed: dict[str, str]


def describe(inventory: Path) -> None:
    """What the page says to edit."""
    (inventory / "hosts.yml").write_text(HOSTS)
    (inventory / "group_vars/nodes.yml").write_text(json.dumps(DESCRIBED))


@contextmanager
def provisioned(scratch: Path, mirror: Path) -> Iterator[Site]:
    """The page's steps 1 to 3, as the lab's network has no other way out: what is installed comes
    from folders."""
    folder = scratch / "folder"
    folder.mkdir()
    folder.chmod(0o777)
    me = fresh_debian(scratch / "debian", {"pytorch-resnet50v1.5": PUBLISHED})
    printed: dict[str, str] = {}
    with Lab(scratch / "lab").is_up(lab_nodes=2, lab_shared_dir=folder) as lab:
        me.types("apt-get -qq update")
        me.types_all(below(CLUSTER, "1. Install")[0], answer="y\n")
        home = me.root / "root"
        for name in ("id_ed25519", "known_hosts"):
            (home / ".ssh").mkdir(exist_ok=True, mode=0o700)
            shutil.copy(lab.directory / name, home / ".ssh" / name)
        shutil.copy(mirror / "apt/dlperf-mirror.asc", me.root / "srv")
        shutil.copytree(me.root / "srv/wheels", folder / "wheels")
        shutil.copytree(home / "dlperf_runner", folder / "dlperf_runner", ignore=only_sources)
        if (built := PROJECT / ".cache/wheels").is_dir():  # Horovod's, which takes minutes
            shutil.copytree(built, home / ".local/share/dlperf_runner/.cache/wheels")
        me.network = lab.state["pid"]
        for command in of_page(CLUSTER, "2. Describe the nodes"):
            printed[command] = me.types(command, answer="h100\n")
        unedited = me.types("dlperf provision -i inventory/mine", status=2)
        assert "the address is still the example's" in unedited
        describe(home / "dlperf_runner/inventory/mine")
        for command in of_page(CLUSTER, "3. Provision and check"):
            printed[command] = me.types(command, answer="y\n")
        yield Site(me, lab, folder, printed)


def only_sources(_: str, names: list[str]) -> list[str]:
    return [name for name in names if name in (".venv", "build")]


shared = sharing(provisioned)


def login(site: Site, command: str, status: int = 0) -> str:
    """What a command prints that the ordinary user types on the login node, in the shared clone."""
    for word, own in {"gpu": "main", "pytorch-resnet50v1.5": PUBLISHED}.items():
        command = re.sub(rf"(?<![\w-]){re.escape(word)}(?![\w-])", own, command)
    (site.folder / "typed.sh").write_text(f"cd /shared/dlperf_runner; {command}\n")
    argv = site.lab.ssh_argv("node1", f"runuser -u dlperf -- env {INDEX} bash /shared/typed.sh")
    done = site.lab.command(*argv)
    print(command)
    assert done.returncode == status, f"{command}: {done.returncode}\n{done.stdout}"
    return done.stdout


def test_an_engineer_with_slurm(shared: Shared[Site]) -> None:
    site = shared.get()
    site.lab.said("node1", "chown -R dlperf: /shared/dlperf_runner")
    clone = site.folder / "dlperf_runner"
    install, run = of_page(SLURM, "Run on Slurm")
    login(site, install)
    active = ". .venv/bin/activate; "
    doctor = of_page(SLURM, "Check the cluster")[0].partition(" [")[0]
    assert "0 failed" in login(site, active + doctor)
    left_out = ("dlperf_mirror", "dlperf_slurm", "node_base_mirror_key", "slurm_settings")
    described = {key: value for key, value in DESCRIBED.items() if key not in left_out}
    (clone / "site.yml").write_text(json.dumps(described))
    plan = run.replace("dlperf run", "dlperf plan")
    assert "#SBATCH" in login(site, active + plan)
    printed = login(site, active + run)
    assert "| node_num | gpu_num | samples/s |" in printed
    assert not list((clone / "jobs").glob("*"))  # the plan submitted nothing

    # Output of sbatch, of jobs that the user wrote.
    lines = gluoncv(11800.0, dtype="float16", world=16)
    write(clone / "slurm-4711.out", lines)
    write(clone / "trained.txt", lines)
    (clone / "logs").mkdir()
    (clone / "logs").chmod(0o777)
    options = [line for line in of_page(SBATCH, "Many jobs") if line.startswith("#SBATCH")]
    assert options[0] == "#SBATCH --nodes=2 --gpus-per-node=8"  # the lab's Slurm counts no GPUs
    script = ["#!/bin/bash", "#SBATCH --nodes=2", *options[1:], "cat trained.txt"]
    write(clone / "job.sh", script)
    login(site, "for n in 1 2 3; do sbatch --wait job.sh; done")
    table = "|        2 |      16 |  11800.00 |"
    assert table in login(site, active + of_page(SBATCH, "One job", 1)[0])
    suggest, use = of_page(SBATCH, "Many jobs", 1)
    assert "none is written" in login(site, active + suggest)
    assert table in login(site, active + use.partition(" --mapping")[0])
    report, compare = of_page(SBATCH, "A speed-up")
    assert "report.html" in login(site, active + report)
    assert "not comparable because of" in login(site, active + compare)


def test_an_administrator_with_nodes(shared: Shared[Site]) -> None:
    site = shared.last()
    me, printed = site.admin, dict(site.printed)
    for command in of_page(CLUSTER, "4. Run"):
        printed[command] = me.types(command)
    report = re.findall(r"^\S+/report\.html$", printed["dlperf report results/latest"], re.M)
    assert (me.root / "root/dlperf_runner" / report[0]).stat().st_size > 100_000
    # What the page shows of a walk in the lab.
    typed = ""
    for block in below(CLUSTER, "A walk from init to report"):
        first, _, rest = block.text.partition("\n")
        assert first.startswith("$ dlperf ")
        shown = first[2:].replace(PUBLISHED, "pytorch-resnet50v1.5")
        typed = next(one for one in printed if one.split(" #")[0].strip() == shown)
        shows(printed[typed], rest, exactly=False)
    assert typed == "dlperf report results/latest"
    for command in of_page(CLUSTER, "5. Undo"):
        undone = me.types(command)
    assert undone.count("failed=0") == 2
    for node in ("node1", "node2"):
        assert site.lab.ssh(node, "ls /opt/dlperf; command -v sinfo mpirun").stdout == ""
