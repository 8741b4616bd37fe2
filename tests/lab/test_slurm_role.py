"""The role slurm with accounting, PMIx and memory limits, and the doctor on its login node: node1,
on which this package is installed without Ansible.
"""

import json
import re
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from lab_under_test import PROJECT, Lab, Shared, sharing
from slurm_lab import (
    MINE,
    NODES,
    SITE,
    SlurmNodes,
    dlperf,
    given,
    options,
    outcome,
    provisioned_as,
    run,
    signal_runner,
    start,
    wait_for,
    wait_for_run,
)

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.slurm]

GIVEN = given("nccl") | {"slurm_accounting": True}
AS_USER = "cd /shared && runuser -u dlperf -- env PYTHONPATH=/shared/python"


shared = sharing(partial(provisioned_as, GIVEN, ("nccl",)))


@pytest.fixture
def cluster(shared: Shared[SlurmNodes]) -> Lab:
    return shared.get().lab


@pytest.fixture
def folder(shared: Shared[SlurmNodes]) -> Path:
    return shared.get().folder


def doctor(lab: Lab, *options: str) -> tuple[int, str]:
    """The doctor as the ordinary user on the login node."""
    words = ["/usr/bin/python3", "-m", "dlperf_runner", "doctor", "--scheduler", "slurm", *options]
    done = lab.ssh("node1", f"{AS_USER} {' '.join(words)}")
    return done.returncode, done.stdout + done.stderr


def checks(lab: Lab, *options: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Status and what was found, by node and check."""
    status, text = doctor(lab, "--json", *options)
    document = json.loads(text)
    assert status == (document["status"] == "failed")
    return {
        (each["node"], each["check"]): (each["status"], each["found"])
        for each in document["findings"]
    }


def recorded(lab: Lab, node: str, job: str) -> str:
    """Account and state of a job as sacct tells it; the daemons write them soon after its end."""
    ask = "sacct --allusers --noheader --parsable2 --allocations --format=account,state --name="
    for _ in range(30):
        found = lab.said(node, ask + job)
        if found and "RUNNING" not in found:
            break
        time.sleep(1)
    return found


def test_the_password_of_the_database_is_shown_to_nobody(
    shared: Shared[SlurmNodes], cluster: Lab
) -> None:
    password = cluster.said("node1", "sed -n s/^StoragePass=//p /etc/slurm/slurmdbd.conf")
    assert re.fullmatch("[0-9a-f]{64}", password)
    assert password not in shared.get().said


def test_accounting_works_and_a_second_provisioning_changes_nothing(cluster: Lab) -> None:
    assert cluster.said("node1", "stat -c '%a %U' /etc/slurm/slurmdbd.conf") == "600 slurm"
    assert cluster.ssh("node2", "test -e /etc/slurm/slurmdbd.conf").returncode == 1
    cluster.said("node1", "runuser -u dlperf -- srun --chdir=/ --job-name=first -N2 hostname")
    for node in NODES:
        assert recorded(cluster, node, "first") == "dlperf|COMPLETED"
    recap = cluster.play("provision.yml", "-e", json.dumps(GIVEN)).rpartition("PLAY RECAP")[2]
    assert re.findall(r"changed=(\d+)", recap) == ["0", "0"]


def test_pmix_lets_srun_start_mpi(cluster: Lab) -> None:
    program = (PROJECT / "roles/openmpi/files/mpi_sum.py").read_text()
    cluster.said("node1", f"cat > /shared/sum.py <<'EOF'\n{program}EOF")
    run = "runuser -u dlperf -- srun --chdir=/ -N2 -n2 {} python3 /shared/sum.py /usr/bin/mpirun"
    said = cluster.said("node1", run.format("--mpi=pmix"))
    assert sorted(re.findall(r"rank (\d) of 2 on node\d: sum 3", said)) == ["0", "1"]
    without = cluster.ssh("node1", run.format("--mpi=none"))
    assert " of 2 on " not in without.stdout


def test_a_job_that_takes_too_much_memory_is_ended(cluster: Lab) -> None:
    take = "import time; a = bytearray(400 << 20); time.sleep(60)"
    done = cluster.ssh(
        "node1", f"runuser -u dlperf -- srun --chdir=/ --mem=100 --job-name=big python3 -c '{take}'"
    )
    assert done.returncode != 0
    assert "exceeded memory limit" in done.stderr
    assert recorded(cluster, "node1", "big") == "dlperf|FAILED"


def test_accounting_tells_how_a_job_ended_that_slurm_has_forgotten(
    cluster: Lab, folder: Path
) -> None:
    chosen = (*MINE, "--nodes", "1", "--iterations", "400")
    process = start(cluster, *options("forgotten", *chosen))
    wait_for_run(cluster, "forgotten")
    signal_runner(cluster, "KILL")
    cluster.said("node1", "scancel --user=dlperf")
    process.communicate(timeout=60)
    # MinJobAge, and Slurm looks for such jobs every minute.
    wait_for("an empty queue", cluster, "squeue --all --states=all --noheader", "^$", 150)
    status, text = dlperf(cluster, *MINE[:2], "run", "--resume", "forgotten")
    assert status == 0, text
    told = outcome(folder / "forgotten")
    assert told["status"] == "done"
    (attempt,) = told["earlier"]
    assert attempt["category"] == "cancelled"
    assert "CANCELLED" in attempt["message"]


def test_the_doctor_finds_a_good_cluster_good(cluster: Lab, folder: Path) -> None:
    found = checks(cluster)
    # Here no systemd raises the limit of slurmd, which jobs have.
    limited = cluster.said("node1", "ulimit -l").strip() != "unlimited"
    amiss = {check: status for check, (status, _) in found.items() if status != "ok"}
    locked = {(node, "locked memory"): "warning" for node in NODES}
    assert amiss == (locked if limited else {}), found
    assert found["login node", "slurm"][1].startswith("22.05")
    assert "pmix" in found["login node", "mpi plugins"][1]
    assert found["login node", "account"] == ("ok", "dlperf")
    assert found["partition main", "nodes"] == ("ok", "2 of 2 usable (2 idle)")
    assert found["partition main", "gres"] == ("ok", "none on 2 nodes")
    for node in NODES:
        assert found[node, "shared folder"] == found[node, "writes"] == ("ok", "yes")
    assert not list(folder.glob(".dlperf-doctor-*"))
    status, text = doctor(cluster)
    assert status == 0
    assert f" checks: 0 failed, {len(amiss)} warnings, " in text


def test_the_doctor_names_what_is_wrong(cluster: Lab) -> None:
    cluster.said("node1", "scontrol update nodename=node2 state=drain reason='ECC | errors'")
    try:
        found = checks(cluster)
        assert found["node2", "state"][0] == "warning"
        assert found["node2", "state"][1].startswith("drained: ECC | errors (root, 20")
        assert found["partition main", "nodes"] == ("warning", "1 of 2 usable (1 idle, 1 drained)")
        assert found["partition main", "test job"] == ("ok", "on 1 node")
    finally:
        cluster.said("node1", "scontrol update nodename=node2 state=resume")
    found = checks(cluster, "--account", "nobody")
    assert found["login node", "account"] == ("failed", "dlperf")
    # Each node has a /tmp of its own.
    words = "/usr/bin/python3 -m dlperf_runner doctor --scheduler slurm"
    done = cluster.ssh("node1", f"{AS_USER} env -C /tmp {words}")
    assert done.returncode == 1
    assert "failed  shared folder: expected sees /tmp as the login node does" in done.stdout
    of_node1 = done.stdout.partition("\nnode1\n")[2].partition("\n\n")[0]
    assert "  ok " in of_node1 and "failed" not in of_node1
    status, text = doctor(cluster, "--partition", "gpu")
    assert status == 1
    assert "partition: expected one of main, found gpu" in text


def test_a_node_that_fails_a_check_is_drained_and_jobs_run_elsewhere(
    cluster: Lab, folder: Path
) -> None:
    """The prolog has the doctor's checks. Slurm cancels a job that it must not start again, as a
    campaign's; it starts another one again after 2 minutes."""

    def drained() -> str:
        return cluster.said("node1", "sinfo --noheader --list-reasons --format='%n %E'")

    reason = "node1 dlperf: disk /tmp: expected 1 GiB free, found 0.0 GiB free"
    again = "scontrol update nodename=node1 state=resume; echo done"
    cluster.said("node1", "mount -t tmpfs -o size=1m none /tmp && echo done")
    try:
        chosen = ("--nodes", "1", "--workload", "nccl-allreduce", "--repeats", "1")
        status, text = run(cluster, "prolog", *chosen)
        assert (status, drained()) == (1, reason)
        assert "the job was cancelled" in text
        assert "sinfo -R" in text
        status, text = dlperf(cluster, "run", "--resume", "prolog")
        assert status == 0, text
        assert list(outcome(folder / "prolog")["hosts"]) == ["node2"]
        cluster.said("node1", again)
        idle = "sinfo --noheader --nodes=node1 --format=%T"
        wait_for("node1, which jobs get first", cluster, idle, "^idle$")
        submit = "cd /shared && runuser -u dlperf -- sbatch --output=where.log --wrap hostname"
        cluster.said("node1", submit)
        wait_for("the job's end", cluster, "cat /shared/where.log || true", "^node2$", 240)
        assert drained() == reason
    finally:
        cluster.said("node1", "umount /tmp && echo done")
        cluster.said("node1", again)


# What a package of the role recommends stays otherwise.
PURGE = "purge --auto-remove" + "".join(
    f" -o APT::AutoRemove::{what}Important=0" for what in ("Recommends", "Suggests")
)
WITH_MODULES = SITE + "dlperf_prologue: [module use /shared/modules, module load {module}]\n"
# A module of a site: its program says that it is found.
MODULE = """\
#%Module
setenv TOOL_HOME /shared/tool
prepend-path PATH /shared/tool/bin
"""


@pytest.fixture
def modules(cluster: Lab, folder: Path) -> Iterator[None]:
    """Debian's Lmod on both nodes, and a module of the site."""
    place = folder / "modules/tool/1.2"
    place.parent.mkdir(parents=True)
    place.write_text(MODULE)
    apt = "DEBIAN_FRONTEND=noninteractive apt-get -qq -y {} lmod >&2; echo done"
    for node in NODES:
        cluster.said(node, apt.format("install --no-install-recommends"))
    yield
    for node in NODES:
        cluster.said(node, apt.format(PURGE))


@pytest.mark.usefixtures("modules")
def test_the_site_s_modules_are_loaded_and_recorded(cluster: Lab, folder: Path) -> None:
    def with_module(campaign: str, module: str) -> tuple[int, str]:
        (folder / "site.yml").write_text(WITH_MODULES.format(frameworks="nccl", module=module))
        chosen = ("--nodes", "2", "--workload", "nccl-allreduce", "--repeats", "1")
        return run(cluster, campaign, *chosen)

    status, text = with_module("modules-loaded", "tool/1.2")
    assert status == 0, text
    (record,) = (folder / "modules-loaded").glob("runs/*/r1/run.json")
    hosts = json.loads(record.read_text())["outcome"]["hosts"]
    assert {name: host["modules"] for name, host in hosts.items()} == {
        node: ["tool/1.2"] for node in NODES
    }
    status, text = with_module("modules-missing", "tool/3")
    assert status == 1
    log = (folder / "modules-missing/jobs/1/job.log").read_text()
    assert "dlperf_prologue failed: module load tool/3" in log
    assert "ended before 1 run began" in text


def test_decommissioning_leaves_nothing(shared: Shared[SlurmNodes]) -> None:
    nodes = shared.last()
    nodes.check_decommissioning("munged", "slurm", "maria", "mysql")
    for node in NODES:
        assert nodes.lab.ssh(node, "test -e /var/lib/mysql").returncode == 1
