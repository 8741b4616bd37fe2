"""The role benchmark_run, executed by Ansible on this machine as three hosts: what comes home."""

import hashlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from role_runs import HOSTS, as_bench_does, command, outcome, run_role
from standins import TWO, prints, program

from dlperf_runner.campaign.manifest import changes, read


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """PATH with stand-ins for nvidia-smi and for the ssh by which other nodes are asked."""
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    ssh = program(tmp_path / "ssh", "ssh", 'while [ "$1" != -- ]; do shift; done\nexec sh -c "$3"')
    return f"{ssh}:{smi}:/usr/bin:/bin"


def run_on_cpu(
    directory: Path, script: str, variables: dict[str, Any] | None = None, **changes: Any
) -> Path:
    """Without telemetry."""
    commands = [command("node1", "/usr/bin:/bin", "sh", "-c", script)]
    variables = {"benchmark_run_sample_s": 0, **(variables or {})}
    changes |= {"accelerator": "cpu", "commands": commands}
    return run_role(directory, "", HOSTS[:1], variables, **changes)


def kept(run: Path) -> list[str]:
    """The files of a run, except those of kernels' logs, which only some users may read."""
    return sorted(path.name for path in run.iterdir() if not path.name.startswith("xid-"))


@pytest.mark.parametrize("launched_on", [HOSTS[:1], HOSTS], ids=["mpirun", "every node"])
def test_gpu_memory_of_every_node_comes_home(
    tmp_path: Path, programs: str, launched_on: list[str]
) -> None:
    run = run_role(tmp_path, programs, launched_on)
    # One device of each node is the run's.
    assert outcome(run)["gpu_memory_mib"] == {host: {"0": 10} for host in HOSTS}
    logs = ["train.log", *(f"train.log.{host}" for host in launched_on[1:])]
    assert kept(run) == sorted(["run.json", *logs, *(f"telemetry-{host}.csv" for host in HOSTS)])


def test_run_on_cpu_asks_for_no_gpu(tmp_path: Path, programs: str) -> None:
    commands = [command("node1", programs, "sleep", "1")]
    run = run_role(tmp_path, programs, HOSTS[:1], accelerator="cpu", commands=commands)
    assert "gpu_memory_mib" not in outcome(run)
    samples = [f"telemetry-{host}.csv" for host in HOSTS]
    assert kept(run) == ["run.json", *samples, "train.log"]
    assert not (tmp_path / "bin" / "calls").exists()


def test_run_on_every_node_takes_one_task_per_node(tmp_path: Path) -> None:
    """All else is done once: on 64 nodes, each further task took the controller seconds."""
    commands = [command(host, "/usr/bin:/bin", "true") for host in HOSTS]
    (tmp_path / "campaign").mkdir()
    (tmp_path / "campaign/campaign.json").write_text("{}")
    run = run_role(tmp_path, "", HOSTS, accelerator="cpu", commands=commands, plays=as_bench_does)
    assert outcome(run)["exit_status"] == 0
    assert not (run.parent / "r2").exists()  # a node of it is not ready
    tasks = (tmp_path / "output").read_text().split("TASK [benchmark_run : ")[1:]
    answers = [(text.split("]")[0], text.count("ed: [node")) for text in tasks]
    assert answers == [
        ("Record the start of the run", 1),
        ("Launch the run and fetch its log", 3),
        ("Record the outcome of the run", 1),
    ]


def test_bench_adds_the_files_of_a_run_to_the_manifest_when_it_ends(tmp_path: Path) -> None:
    campaign = tmp_path / "campaign"
    campaign.mkdir()
    (campaign / "campaign.json").write_text("{}")
    run = run_on_cpu(tmp_path, "echo trained", plays=as_bench_does)
    assert outcome(run)["exit_status"] == 0
    manifest = read(campaign)
    assert manifest
    names = {"campaign.json", "runs/case/r1/run.json", "runs/case/r1/train.log"}
    assert manifest.files.keys() == names
    assert list(changes(campaign, manifest)) == []
    (run / "train.log").write_text("trained faster")
    (told,) = changes(campaign, manifest)
    assert told.startswith("runs/case/r1/train.log: changed since manifest.jsonl:2")


def test_campaign_continues_after_a_run_that_cannot_be_recorded(tmp_path: Path) -> None:
    """Else it would not release its nodes."""
    (tmp_path / "campaign").mkdir()
    (tmp_path / "campaign/campaign.json").write_text("{}")
    record = tmp_path / "campaign/runs/case/r1/run.json"
    in_the_way = f"cd {record.parent}; [ ! -f run.json ] || {{ rm run.json; mkdir run.json; }}"
    run = run_on_cpu(tmp_path, in_the_way, plays=partial(as_bench_does, repeats=2))
    told = " ".join((tmp_path / "output").read_text().split())
    assert "cannot record case/r1" in told
    assert (run / "run.json").is_dir()
    assert outcome(run.parent / "r3")["exit_status"] == 0


def test_large_log_comes_in_parts(tmp_path: Path) -> None:
    """17 MiB: two parts of at most 16 MiB."""
    script = "yes 'Speed: 1.0 samples/sec' | head -c 17825792"
    run = run_on_cpu(tmp_path, script)
    log = (run / "train.log").read_bytes()
    assert log == (b"Speed: 1.0 samples/sec\n" * (1 << 20))[: 17 << 20]
    assert outcome(run)["log_sha256"] == hashlib.sha256(log).hexdigest()
    assert sorted(path.name for path in run.iterdir()) == ["run.json", "train.log"]


PLANTED = "the secret that was planted"


# test_benchmark_fetch.py has all that is refused.
@pytest.mark.parametrize(
    ("instead", "why"),
    [
        ("ln -s {secret} train.log", "is a symbolic link"),
        ("truncate -s 3M train.log", "has 3145728 bytes, more than the limit of 2097152"),
    ],
)
def test_log_that_is_refused_fails_the_run(tmp_path: Path, instead: str, why: str) -> None:
    secret = tmp_path / "secret"
    secret.write_text(PLANTED)
    earlier = tmp_path / "campaign/runs/case/r1/train.log"
    earlier.parent.mkdir(parents=True)
    earlier.write_text("of an earlier launch")
    script = "echo trained; rm train.log; " + instead.format(secret=secret)
    run = run_on_cpu(tmp_path, script, variables={"benchmark_run_log_limit_mib": 2})
    found = outcome(run, "failed")
    assert found["exit_status"] == 0
    assert found["message"].startswith("node1: train.log was not fetched: ")
    assert why in found["message"]
    assert "at most 2 MiB is fetched" in found["message"]
    assert "raise benchmark_run_log_limit_mib" in found["message"]
    assert "log_sha256" not in found
    assert [path.name for path in run.iterdir()] == ["run.json"]
    assert PLANTED not in (run / "run.json").read_text()


def test_telemetry_that_is_refused_fails_the_run_and_keeps_its_log(
    tmp_path: Path, programs: str
) -> None:
    secret = tmp_path / "secret"
    secret.write_text(PLANTED)
    sample = "telemetry-node1.csv"
    script = f"until test -s {sample}; do sleep 0.1; done; rm {sample}; ln -s {secret} {sample}"
    commands = [command("node1", programs, "sh", "-c", script)]
    run = run_role(tmp_path, programs, HOSTS[:1], commands=commands)
    message = outcome(run, "failed")["message"]
    assert f"{sample} was not fetched: " in message
    assert "raise benchmark_run_telemetry_limit_mib" in message
    assert {"run.json", "train.log"} <= {path.name for path in run.iterdir()}
    assert not (run / sample).exists()


def test_state_that_is_forged_fails_the_run_and_no_task(tmp_path: Path) -> None:
    """The job has ended, it says, for a reason that there is not; it is recorded."""
    script = (
        """until grep '"pid"' job.json; do sleep 0.1; done; """
        """sed -i 's/"started": [0-9.]*/"started": 1.0, "finished": true, "exit_status": 0,"""
        """ "ended": 2.0, "reason": [], "telemetry": ["..\\/..\\/x"]/' job.json; sleep 5"""
    )
    found = outcome(run_on_cpu(tmp_path, script), "failed")
    assert "node1: the node's answer is damaged: exit status 0, reason []" in found["message"]
