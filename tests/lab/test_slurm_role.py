"""The role slurm with accounting, PMIx and memory limits, and the doctor on its login node: node1,
on which this package is installed without Ansible.
"""

import json
import re
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from lab_under_test import PROJECT, Lab, Shared, sharing
from node_state import node_state
from reboot_standin import INSTALLED, LOADED, LOG, PREPARED, REMOVED, SHUTDOWN
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


def test_a_job_locks_as_much_memory_as_slurmd_and_not_as_the_login_node(cluster: Lab) -> None:
    """stackhpc/ansible-slurm-appliance#568: jobs had the limit of the shell that submitted them."""
    config = cluster.said("node1", "scontrol show config")
    assert re.search(r"(?m)^PropagateResourceLimitsExcept = MEMLOCK$", config)
    run = "prlimit --memlock=65536 srun --chdir=/ --nodelist=node2 sh -c 'ulimit -l'"
    of_slurmd = "prlimit --pid $(pgrep -x slurmd) --memlock --noheadings --raw --output=SOFT"
    limit, in_job = cluster.said("node2", of_slurmd), cluster.said("node1", run)
    assert in_job == (str(int(limit) // 1024) if limit.isdigit() else limit) != "64"


# A job of both nodes that ends after they are drained, with what it then sees on the first one.
UNTIL_DRAINED = """\
cd /shared && runuser -u dlperf -- sbatch --parsable --nodes=2 --output=until.log --wrap '
until test $(sinfo --Node --noheader --format=%T | grep -c draining) = 2; do sleep 1; done
sleep 3; tail -n 1 /etc/slurm/slurm.conf'
"""


def test_a_node_with_a_job_is_drained_changed_and_given_back(cluster: Lab, folder: Path) -> None:
    """node2 has no process of the job: before, it was changed under it. The verification of Slurm
    failed because the nodes were still drained."""
    last = "tail -n 1 /etc/slurm/slurm.conf"
    before = {node: cluster.said(node, last) for node in NODES}
    for node in NODES:
        cluster.said(node, "echo '# another line' >> /etc/slurm/slurm.conf; echo done")
    job = cluster.said("node1", UNTIL_DRAINED)
    try:
        state = f"squeue --noheader --jobs={job} --format=%T"
        wait_for("the job's start", cluster, state, "^RUNNING$")
        reboot = {"role": "nvidia_driver", "part": "reboot"}
        for book, variables, refusal in (
            ("provision.yml", GIVEN, f"jobs of Slurm run on the node: {job}. Drain it first"),
            ("tests/lab/plays/role.yml", reboot, f"Slurm uses this node (jobs: {job}), and"),
        ):
            done = cluster.command("ansible-playbook", book, "-e", json.dumps(variables))
            fatal = re.sub(r"\s+", " ", done.stdout).split("fatal: [")[1:]
            messages = {text[:5]: refusal in text.partition("[ERROR]")[0] for text in fatal}
            assert messages == dict.fromkeys(NODES, True), done.stdout
        for node in NODES:
            assert cluster.said(node, last) == "# another line"
        words = (sys.executable, "-m", "dlperf_runner", "provision", "--drain", "--yes")
        done = cluster.command(*words, "-e", json.dumps(GIVEN))
        assert done.returncode == 0, done.stdout
    finally:
        cluster.said("node1", f"scancel {job}; echo done")
    assert (folder / "until.log").read_text() == "# another line\n"
    assert {node: cluster.said(node, last) for node in NODES} == before
    assert cluster.said("node1", "sinfo --Node --noheader --format='%T %E'") == "\n".join(
        ["idle none"] * 2
    )


# When the node goes down, slurmd ends. It starts long after sshd, and reports the reboot (-b).
LATE_S = 40
LATE_SLURMD = f"""
service slurmd stop
{LOADED}
setsid sh -c 'sleep {LATE_S}; slurmd -b' > /dev/null 2>&1 < /dev/null &
"""
UNTIL_NODE2_IS_DRAINED = """\
cd /shared && runuser -u dlperf -- sbatch --parsable --nodelist=node2 --output=ended.log --wrap '
until sinfo --noheader --nodes=node2 --format=%T | grep -q draining; do sleep 1; done
sleep 3; date +%s.%N'
"""


@pytest.fixture
def boots(cluster: Lab) -> Iterator[None]:
    cluster.said("node2", SHUTDOWN + PREPARED)
    cluster.said("node2", f"cat > /srv/boot/at <<'END'{LATE_SLURMD}END")
    yield
    cluster.said("node2", REMOVED)


def drained_and_given_back(book: Path) -> str:
    """A play of a role between those two tasks of provision.yml."""
    tasks = {
        task["name"]: task
        for play in yaml.safe_load((PROJECT / "playbooks/provision.yml").read_text())
        for task in play["tasks"]
    }
    (play,) = yaml.safe_load((PROJECT / "tests/lab/plays/role.yml").read_text())
    play["tasks"].insert(1, tasks["Drain the node in Slurm, and wait until its jobs end"])
    play["tasks"].append(tasks["Give a node back that was drained in Slurm"])
    book.write_text(json.dumps([play]))
    return str(book)


CONF = "/etc/slurm/slurm.conf"


@pytest.fixture(params=[2, 0], ids="ReturnToService={}".format)
def returns(request: pytest.FixtureRequest, cluster: Lab) -> Iterator[int]:
    """With 0, a node that was down or has booted unexpectedly stays down."""

    def become(value: int) -> None:
        for node in NODES:
            cluster.said(node, f"sed -i s/^ReturnToService=.*/ReturnToService={value}/ {CONF}")
        cluster.said("node1", "scontrol reconfigure")
        assert re.search(
            rf"ReturnToService += {value}\b", cluster.said("node1", "scontrol show config")
        )

    become(request.param)
    yield request.param
    become(2)


@pytest.mark.usefixtures("boots", "returns")
def test_a_node_with_a_job_is_drained_rebooted_and_given_back(cluster: Lab, folder: Path) -> None:
    """Its slurmd starts when all else is done: before, the node stayed drained, without a word."""
    book = drained_and_given_back(folder / "reboot.yml")
    job = cluster.said("node1", UNTIL_NODE2_IS_DRAINED)
    try:
        state = f"squeue --noheader --jobs={job} --format=%T"
        wait_for("the job's start", cluster, state, "^RUNNING$")
        variables = INSTALLED | {"dlperf_reboot": True, "dlperf_drain": True}
        words = ("--limit", "node2", "-e", json.dumps(variables))
        cluster.play(book, *words)
    finally:
        cluster.said("node1", f"scancel {job}; echo done")
    down, booted = map(float, cluster.said("node2", f"cat {LOG}").split())
    started = cluster.said("node2", "stat --format=%Y /run/slurmd.pid")
    assert float((folder / "ended.log").read_text()) < down < booted < float(started) - LATE_S / 2
    assert cluster.said("node1", "sinfo --noheader --nodes=node2 --format='%T %E'") == "idle none"
    assert cluster.said("node1", "srun --chdir=/ --nodelist=node2 hostname") == "node2"


@pytest.mark.parametrize("returns", [0], indirect=True)
def test_a_node_that_was_down_before_stays_down_with_a_warning(
    cluster: Lab, folder: Path, returns: int
) -> None:
    """Before, the run ended without a word about it."""
    assert returns == 0
    cluster.said("node2", "service slurmd stop; sleep 1; slurmd -b")
    show = "sinfo --noheader --nodes=node2 --format='%T %E'"
    wait_for("the reboot", cluster, show, "^down Node unexpectedly rebooted$")
    book = drained_and_given_back(folder / "down.yml")
    variables = {"role": [], "dlperf_drain": True}
    output = cluster.play(book, "--limit", "node2", "-e", json.dumps(variables))
    cluster.said("node1", "scontrol update nodename=node2 state=resume")
    wait_for("the node", cluster, show, "^idle none$")
    text = re.sub(r"\s+", " ", output)
    assert "node2: Slurm says State=DOWN+DRAIN Reason=Node unexpectedly rebooted. Prov" in text
    assert "scontrol update nodename=node2 state=resume" in text


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


# Slurm of a site, with a key of its own: the controller is node1, and node2 gets its configuration
# from there.
OTHER = """
echo 'deb [trusted=yes] http://10.11.0.1:8010/apt bookworm main' > /etc/apt/sources.list
apt-get -q update >&2 || exit 1
apt-get -q -y --no-install-recommends install munge slurmctld slurmd slurm-client >&2 || exit 1
for word in of the site; do seq -f "$word %g" 99; done > /etc/munge/munge.key
service munge start
"""
CONTROLLER = """
cat > /etc/slurm/slurm.conf <<'END'
ClusterName=other
SlurmctldHost=node1(10.11.0.2)
SlurmctldParameters=enable_configless
SlurmUser=root
StateSaveLocation=/var/lib/slurm
SlurmdSpoolDir=/var/lib/slurm
ProctrackType=proctrack/linuxproc
NodeName=node2 NodeAddr=10.11.0.3
PartitionName=all Nodes=ALL Default=YES
END
echo CgroupPlugin=cgroup/v1 > /etc/slurm/cgroup.conf
slurmctld
"""


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory, mirror: Path) -> Iterator[Lab]:
    with Lab(tmp_path_factory.mktemp("other") / "lab").running(nodes=2, mirror=mirror) as made:
        for node, start in (("node1", CONTROLLER), ("node2", "slurmd --conf-server 10.11.0.2")):
            made.said(node, OTHER + start)
        wait_for("the site's node", made, "sinfo --noheader --format=%T", "^idle$")
        yield made


def test_another_cluster_is_recognised_and_left_as_it_is(other: Lab) -> None:
    """dell/omnia#3967, openhpc#99: its configuration or key was overwritten."""
    before = [node_state(other, node) for node in NODES]
    alone = ("tests/lab/plays/role.yml", "-e", "role=slurm")
    for words in (("provision.yml", "-e", json.dumps(GIVEN)), alone):
        done = other.command("ansible-playbook", *words)
        text = re.sub(r"\s+", " ", done.stdout)
        for node, folder, daemon in (
            ("node1", "/etc/slurm", "slurmctld"),
            ("node2", "/run/slurm/conf", "slurmd --conf-server"),
        ):
            found = f"{folder}/slurm.conf, {folder}/cgroup.conf, {daemon} (process "
            begin = "changed: false msg: 'the node belongs to a Slurm cluster already: "
            end = r"\d+\), /etc/munge/munge.key\. Leave dlperf_slurm out"
            said = re.escape(f"fatal: [{node}]: FAILED! => {begin}{found}") + end
            assert re.search(said, text), done.stdout
    other.play(*alone, "-e", "part=absent")
    assert [node_state(other, node) for node in NODES] == before
    assert other.said("node1", "srun --chdir=/ hostname") == "node2"


def test_a_node_of_another_cluster_is_drained_and_given_back(other: Lab) -> None:
    """A node is rebooted only while it is drained; node1 is none of Slurm's nodes."""

    def done(state: str) -> int:
        argv = ("ansible", "nodes", "-m", "slurm_drain", "-a", f"state={state}")
        return other.command(*argv).returncode

    states = ("checked", "drained", "checked", "resumed", "checked")
    assert [done(state) for state in states] == [2, 0, 0, 0, 2]
