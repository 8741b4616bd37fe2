"""Campaigns on a real Slurm of Debian 12, on two nodes of the lab, when something happens: jobs are
requeued or preempted, nodes are lost, the controller restarts, a login node dies, others use nodes.

The tests use one lab, in any order.
"""

import csv
import json
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from lab_under_test import Lab
from slurm_lab import (
    MINE,
    NODES,
    add_own_workload,
    cut_off,
    dlperf,
    given,
    lab_with,
    options,
    outcome,
    records,
    run,
    shared_folder,
    signal_runner,
    start,
    wait_for,
    wait_for_run,
)

pytestmark = [pytest.mark.lab, pytest.mark.heavy, pytest.mark.slurm]

GIVEN = given(
    "nccl",
    # Jobs of the second partition preempt those of the first, the default one.
    PreemptType="preempt/partition_prio",
    PreemptMode="REQUEUE",
    PartitionName="urgent Nodes=ALL PriorityTier=10 MaxTime=INFINITE State=UP",
    # The lab has no cgroups to limit memory: Slurm itself looks at it, every second.
    JobAcctGatherType="jobacct_gather/linux",
    JobAcctGatherFrequency=1,
    JobAcctGatherParams="OverMemoryKill",
    SelectTypeParameters="CR_CPU_Memory",
    DefMemPerNode=600,
) | {"dlperf_container_engine": "podman"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return shared_folder(tmp_path_factory.mktemp("shared"), "nccl")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, mirror: Path, folder: Path) -> Iterator[Lab]:
    assert mirror.is_dir()
    with lab_with(folder, tmp_path_factory.mktemp("slurm") / "lab") as made:
        made.play("provision.yml", "-e", json.dumps(GIVEN))
        add_own_workload(made, folder)
        yield made


@pytest.fixture(autouse=True)
def idle(cluster: Lab) -> Iterator[None]:
    """Nothing of one test is in the queue of the next one."""
    yield
    cluster.said("node1", "scancel --user=dlperf; pkill -KILL -u dlperf -f '[d]lperf_runner'; true")
    wait_for("an idle cluster", cluster, "squeue -h; sinfo -h -p main -o '%D %t'", "^2 idle$", 120)


PODMAN = "runuser -u dlperf -- env -C / HOME=/home/dlperf podman"


def test_runs_in_containers_of_podman(cluster: Lab, folder: Path) -> None:
    """mpirun starts a container for each process, srun one on each node."""
    image = "localhost/dlperf-nccl"
    digest = cluster.said("node1", f"{PODMAN} images --digests --format '{{{{.Digest}}}}' {image}")
    site = (folder / "site.yml").read_text()
    site += f'dlperf_container_images: {{{image}: "{digest}"}}\n'
    (folder / "podman.yml").write_text(site)
    chosen = (*MINE[:2], "--workload", "mine,nccl-allreduce", "--container", "auto")
    chosen += ("--matrix", "smoke", "--site", "podman.yml", "--campaign", "contained")
    status, text = dlperf(cluster, "run", "--scheduler", "slurm", *chosen)
    assert status == 0, text
    assert f"in podman {image}@{digest[:19]}" in " ".join(text.split())
    found = records(folder / "contained")
    assert [record["outcome"]["status"] for record in found] == ["done"] * 4, text
    assert {record["container"] for record in found} == {f"podman {image}@{digest}"}
    assert all("openmpi" in record["outcome"]["versions"] for record in found)
    for node in NODES:
        assert cluster.said(node, f"{PODMAN} ps --all --quiet; echo none") == "none"
    status, text = dlperf(cluster, *MINE[:2], "summarize", "--verify", "contained")
    assert status == 0, text


def job_of(folder: Path, campaign: str) -> str:
    return str(json.loads((folder / campaign / "jobs/1/job.json").read_text())["id"])


def test_a_requeued_job_repeats_the_run_that_it_cut_off(cluster: Lab, folder: Path) -> None:
    process = start(cluster, *options("requeued", *MINE, "--nodes", "1", "--iterations", "500"),
                    "--repeats", "2")  # fmt: skip
    wait_for_run(cluster, "requeued", 2)
    log = next((folder / "requeued/runs").glob("*/r1/*.log"))
    before = log.read_bytes()
    job = job_of(folder, "requeued")
    cluster.said("node1", f"scontrol update jobid={job} requeue=1 && scontrol requeue {job}")
    wait_for("the queue", cluster, f"squeue -h -j {job} -o %T", "PENDING")
    time.sleep(8)  # the runner asks every 5 s, and Slurm would wait for two minutes
    cluster.said("node1", f"scontrol update jobid={job} starttime=now")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert re.search(rf"job {job}: waiting \(BeginTime\)", output)
    first, second = (record["outcome"] for record in records(folder / "requeued"))
    assert (first["status"], second["status"]) == ("done", "done")
    assert log.read_bytes() == before
    assert "earlier" not in first
    (attempt,) = second["earlier"]
    assert attempt["category"] == "requeued"
    again = next((folder / "requeued/runs").glob("*/r2/*.log")).read_text()
    assert again.count("it 1/500 ") == again.count("it 500/500 ") == 1
    status, text = dlperf(cluster, *MINE[:2], "summarize", "--verify", "requeued")
    assert status == 0, text


def test_a_preempted_job_is_resumed(cluster: Lab, folder: Path) -> None:
    chosen = (*MINE, "--nodes", "2", "--iterations", "500", "--repeats", "2")
    process = start(cluster, *options("preempted", *chosen))
    wait_for_run(cluster, "preempted", 2)
    log = next((folder / "preempted/runs").glob("*/r1/*.log"))
    before = log.read_bytes()
    urgent = "cd /shared && runuser -u dlperf -- sbatch -o /dev/null -p urgent -N2 --exclusive"
    cluster.said("node1", f"{urgent} --wrap 'sleep 2'")
    output, _ = process.communicate(timeout=180)
    assert process.returncode == 1, output
    first, told = (record["outcome"] for record in records(folder / "preempted"))
    assert first["status"] == "done"
    assert (told["status"], told["category"]) == ("failed", "preempted"), told
    status, text = dlperf(cluster, *MINE[:2], "run", "--resume", "preempted")
    assert status == 0, text
    unchanged, told = (record["outcome"] for record in records(folder / "preempted"))
    assert unchanged == first
    assert log.read_bytes() == before
    assert told["status"] == "done"
    assert [attempt["category"] for attempt in told["earlier"]] == ["preempted"]


@pytest.fixture(scope="module")
def hanging(cluster: Lab, folder: Path) -> tuple[str, ...]:
    """A choice of the user's own workload, with limits of seconds."""
    assert cluster.state
    catalog = folder / "hangs"
    shutil.copytree(folder / "catalog", catalog)
    path = catalog / "workloads/mine.yml"
    document = yaml.safe_load(path.read_text())
    for matrix in document["matrices"].values():
        matrix |= {"hung_after_s": 6, "hung_after_lines": 4, "first_step_s": 100}
    path.write_text(yaml.safe_dump(document, sort_keys=False))
    return ("--catalog", f"/shared/{catalog.name}", *MINE[2:], "--nodes", "2")


def check_that_it_hung(cluster: Lab, campaign: Path, category: str, why: str) -> None:
    """A process of node2 was stopped. The state of both is kept, and nothing is left there."""
    hung = outcome(campaign)
    assert (hung["status"], hung["category"]) == ("failed", category), hung
    assert why in hung["message"]
    assert "hang-*.txt" in hung["advice"]
    (place,) = (campaign / "runs").glob("*/r1")
    _, of_node1, of_node2 = re.split(
        r"^==== .*$", (place / "hang-node1.txt").read_text(), flags=re.M
    )
    assert "train.py 100000" in of_node1 and "train.py 100000" in of_node2
    assert ("T (stopped)" in of_node1, "T (stopped)" in of_node2) == (False, True)
    for node in NODES:
        assert cluster.ssh(node, "pgrep -f '[t]rain[.]py'").stdout == ""


def test_a_stopped_process_is_noticed_and_its_state_kept(
    cluster: Lab, folder: Path, hanging: tuple[str, ...]
) -> None:
    """As by SSH (test_faults.py): the first node's program waits for that of the second one."""
    process = start(cluster, *options("hung", *hanging, "--iterations", "100000"))
    wait_for_run(cluster, "hung")
    # A silence is noticed by the rhythm before it.
    wait_for("the rhythm", cluster, "cat /shared/hung/runs/*/r1/*.log | grep -c '^it'",
             r"^(\d{4,}|[3-9]\d\d)$")  # fmt: skip
    cluster.said("node2", "pkill -STOP -f '[t]rain[.]py 100000'")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 1, output
    why = "node1: stopped because it hung: no new line for "
    check_that_it_hung(cluster, folder / "hung", "hung", why)


def test_a_run_that_needs_too_much_memory(cluster: Lab, folder: Path) -> None:
    status, text = run(cluster, "memory", *MINE, "--nodes", "1", "--iterations", "17")
    assert status == 1, text
    told = outcome(folder / "memory")
    assert (told["status"], told["category"]) == ("failed", "out of memory"), told
    assert "at batch size 1 " in told["advice"]


def test_a_controller_that_restarts(cluster: Lab, folder: Path) -> None:
    process = start(cluster, *options("restarted", *MINE, "--nodes", "2", "--iterations", "400"))
    wait_for_run(cluster, "restarted")
    cluster.said("node1", "pkill -x slurmctld; sleep 8; service slurmctld start")
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0, output
    assert outcome(folder / "restarted")["status"] == "done"
    assert "earlier" not in outcome(folder / "restarted")


def test_another_login_node_goes_on_after_the_first_one_died(cluster: Lab, folder: Path) -> None:
    process = start(cluster, *options("died", *MINE, "--nodes", "1", "--iterations", "1500"))
    wait_for_run(cluster, "died")
    signal_runner(cluster, "KILL")
    process.communicate(timeout=60)
    # The second login node cannot know whether the first one lives.
    status, text = dlperf(cluster, "run", "--resume", "died", node="node2")
    assert status == 2, text
    assert "remove /shared/died/.controller.json" in text
    told = dlperf(cluster, "status", "died", node="node2")[1]
    assert "running" in told, told
    (folder / "died/.controller.json").unlink()
    status, text = dlperf(cluster, *MINE[:2], "run", "--resume", "died", node="node2")
    assert status == 0, text
    assert "of an earlier start: 1 run" in text
    assert outcome(folder / "died")["status"] == "done"
    assert [path.name for path in (folder / "died/jobs").iterdir()] == ["1"]


def test_within_an_allocation_by_salloc(cluster: Lab, folder: Path) -> None:
    chosen = (*MINE[:2], "--workload", "mine,nccl-allreduce", "--matrix", "smoke")
    status, text = run(cluster, "given", *chosen, within="salloc -N2 --chdir=/shared")
    assert status == 0, text
    allocation = re.search(r"Granted job allocation (\d+)", text)
    assert allocation
    found = records(folder / "given")
    assert {record["workload"] for record in found} == {"mine", "nccl-allreduce"}
    for record in found:
        told = record["outcome"]
        assert (told["status"], told["job"]) == ("done", allocation[1])
        assert len(told["hosts"]) == record["nodes"]
        assert record["workload"] == "mine" or told["mpi"] == "pmix"


def test_a_run_whose_node_was_lost_is_repeated(cluster: Lab, folder: Path) -> None:
    process = start(cluster, *options("repeated", *MINE, "--nodes", "2", "--iterations", "500"))
    wait_for_run(cluster, "repeated")
    cut_off(cluster, "node2", 45)
    output, _ = process.communicate(timeout=400)
    assert process.returncode == 0, output
    assert "retry 1 of 2" in output
    told = outcome(folder / "repeated")
    assert told["status"] == "done"
    assert [attempt["category"] for attempt in told["earlier"]] == ["node_lost"]


def test_telemetry_and_others_on_shared_nodes(cluster: Lab, folder: Path) -> None:
    cluster.said("node2", "id other 2>/dev/null || useradd --uid 2345 other")
    # Each session gets its share of the CPU on a busy machine, too.
    burn = "setsid runuser -u other -- sh -c 'while :; do :; done' > /dev/null 2>&1 < /dev/null &"
    cluster.said("node2", f"for n in 1 2 3 4; do {burn} done")
    chosen = (*MINE, "--nodes", "2", "--iterations", "500")
    try:
        _, text = run(cluster, "beside", *chosen)  # may be excluded: others used too much
        refused, said = run(cluster, "whole", *chosen, "--exclusive")
    finally:
        cluster.said("node2", "pkill -KILL -u other")
    assert refused == 1, said
    told = outcome(folder / "whole")
    assert (told["status"], told["category"]) == ("failed", "node busy"), told
    assert "node2: others use" in told["message"]
    assert "of user 2345" in told["message"]
    (record,) = records(folder / "beside")
    assert record["outcome"]["status"] == "done", text
    assert {(p["host"], p["uid"]) for p in record["outcome"]["beside"]} == {("node2", 2345)}
    place = next((folder / "beside/runs").glob("*/r1"))
    for node in NODES:
        rows = list(csv.DictReader((place / f"telemetry-{node}.csv").open()))
        assert len(rows) >= 5
        assert float(rows[-1]["cpu_busy_s"]) > float(rows[0]["cpu_busy_s"])
    assert time.time() > float(rows[-1]["unix_time"])
