"""The role benchmark_run, executed by Ansible on this machine as three hosts: what comes home."""

from __future__ import annotations

import getpass
import hashlib
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import pytest
import yaml
from executed_modules import playbook
from standins import TWO, prints, program

from dlperf_runner.campaign.manifest import changes, read
from dlperf_runner.core.case import Command, Run

ROOT = Path(__file__).parents[2]
HOSTS = ["node1", "node2", "node3"]


@pytest.fixture
def programs(tmp_path: Path) -> str:
    """PATH with stand-ins for nvidia-smi and for the ssh by which other nodes are asked."""
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    ssh = program(tmp_path / "ssh", "ssh", 'while [ "$1" != -- ]; do shift; done\nexec sh -c "$3"')
    return f"{ssh}:{smi}:/usr/bin:/bin"


def command(host: str, path: str, *argv: str) -> dict[str, Any]:
    return asdict(Command(host, argv, {"PATH": path}))


def run_role(
    directory: Path,
    path: str,
    launched_on: list[str],
    variables: dict[str, Any] | None = None,
    plays: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda play: [play],
    **changes: Any,
) -> Path:
    """Execute the role for a run of three nodes; returns the run's directory on the controller.

    `plays` makes the playbook of a play that includes the role.
    """
    nodes = directory / "nodes"
    # Train until every sampler of this node has been at work.
    waited = " ".join(
        f'"{nodes}/{host}/campaign/case/r1/telemetry-{name}.csv"'
        for host in launched_on
        for name in (HOSTS if len(launched_on) == 1 else [host])
    )
    train = f"for n in $(seq 100); do cat {waited} && break; sleep 0.1; done; echo trained"
    document = {
        "id": "case/r1",
        "case": "case",
        "repeat": 1,
        "workload": "w",
        "framework": "f",
        "model": "m",
        "source": "builtin",
        "precision": "fp32",
        "batch_size_per_device": 2,
        "nodes": 3,
        "gpus_per_node": 1,
        "world_size": 3,
        "total_steps": 3,
        "warmup_steps": 1,
        "stack": "s",
        "accelerator": "a GPU",
        "environment": "f",
        "log_format": "x",
        "log_name": "train.log",
        "timeout_s": 60,
        "hung_after_s": 30,
        "hung_after_lines": 20,
        "hosts": HOSTS,
        "parameters": {},
        "commands": [command(host, path, "sh", "-c", train) for host in launched_on],
        **changes,
    }
    # Further keys of the run do not matter here.
    document |= {field.name: "" for field in fields(Run) if field.name not in document}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "tasks": [{"name": "Run", "include_role": {"name": "benchmark_run"}}],
        "vars": {
            "ansible_python_interpreter": sys.executable,
            "benchmark_run_campaign": str(directory / "campaign"),
            "benchmark_run_user": getpass.getuser(),
            "benchmark_run_directory": str(nodes / "{{ inventory_hostname }}"),
            "benchmark_run_run": document,
            **(variables or {}),
        },
    }
    (directory / "play.yml").write_text(json.dumps(plays(play)))
    hosts = ",".join(HOSTS) + ","
    finished = playbook("-i", hosts, directory / "play.yml", PYTHONPATH=str(ROOT))
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (directory / "output").write_text(finished.stdout)
    return directory / "campaign" / "runs" / "case" / "r1"


def outcome(run: Path, status: str = "done") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())["outcome"]
    assert found["status"] == status, found
    return found


def run_on_cpu(directory: Path, script: str, **changes: Any) -> Path:
    commands = [command("node1", "/usr/bin:/bin", "sh", "-c", script)]
    return run_role(directory, "", HOSTS[:1], accelerator="cpu", commands=commands, **changes)


@pytest.mark.parametrize("launched_on", [HOSTS[:1], HOSTS], ids=["mpirun", "every node"])
def test_gpu_memory_of_every_node_comes_home(
    tmp_path: Path, programs: str, launched_on: list[str]
) -> None:
    run = run_role(tmp_path, programs, launched_on)
    # One device of each node is the run's.
    assert outcome(run)["gpu_memory_mib"] == {host: {"0": 10} for host in HOSTS}
    logs = ["train.log", *(f"train.log.{host}" for host in launched_on[1:])]
    assert sorted(path.name for path in run.iterdir()) == sorted(
        ["run.json", *logs, *(f"telemetry-{host}.csv" for host in HOSTS)]
    )


def test_run_on_cpu_asks_for_no_gpu(tmp_path: Path, programs: str) -> None:
    commands = [command("node1", programs, "sleep", "1")]
    run = run_role(tmp_path, programs, HOSTS[:1], accelerator="cpu", commands=commands)
    assert "gpu_memory_mib" not in outcome(run)
    assert sorted(path.name for path in run.iterdir()) == ["run.json", "train.log"]
    assert not (tmp_path / "bin" / "calls").exists()


def as_bench_does(play: dict[str, Any]) -> list[dict[str, Any]]:
    """The plays of bench.yml that run the benchmarks, after what the plays before them find out.
    One more run needs a node that is not ready."""
    bench = yaml.safe_load((ROOT / "playbooks/bench.yml").read_text())
    names = ("Choose the runs", "Run the benchmarks")
    choose, runs = [other for other in bench if other["name"].startswith(names)]
    variables = play["vars"]
    run = variables.pop("benchmark_run_run")
    hosts = [command["host"] for command in run["commands"]]
    run |= {"hosts": hosts, "container": ""}
    not_ready = run | {"id": "case/r2", "hosts": [*hosts, "localhost"]}
    plan = {"runs": [not_ready, run], "campaign": variables.pop("benchmark_run_campaign")}
    known = {"bench_lock": {}, "bench_plan": plan}
    of_node = {"bench_ready": True, "bench_facts": {}}
    of_node |= {"benchmark_source_versions": {run["environment"]: {}}}
    tasks = [
        {"name": "Know", "ansible.builtin.set_fact": known},
        {"name": "Hold", "ansible.builtin.group_by": {"key": "bench_hosts"}},
        {
            "name": "Prepare",
            "ansible.builtin.set_fact": of_node,
            "when": "inventory_hostname != 'localhost'",
        },
    ]
    own = ("gather_facts", "connection")
    all_hosts = ["localhost", *hosts]
    return [
        {**{name: play[name] for name in own}, "hosts": all_hosts, "tasks": tasks},
        choose,
        {**runs, "hosts": hosts, "connection": "local", "vars": variables | runs["vars"]},
    ]


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


def test_command_that_fails_after_a_run_is_told(tmp_path: Path) -> None:
    recorded = {"argv": ["sh", "-c", "echo disk full >&2; exit 3"], "chdir": str(tmp_path)}
    with pytest.raises(AssertionError, match="disk full"):
        run_on_cpu(tmp_path, "echo trained", variables={"benchmark_run_recorded": recorded})
    assert outcome(tmp_path / "campaign/runs/case/r1")["exit_status"] == 0


def test_large_log_comes_in_parts(tmp_path: Path) -> None:
    """40 MiB: three parts of at most 16 MiB."""
    script = "yes 'Speed: 1.0 samples/sec' | head -c 41943040"
    run = run_on_cpu(tmp_path, script)
    log = (run / "train.log").read_bytes()
    assert log == (b"Speed: 1.0 samples/sec\n" * (1 << 21))[: 40 << 20]
    assert outcome(run)["log_sha256"] == hashlib.sha256(log).hexdigest()
    assert sorted(path.name for path in run.iterdir()) == ["run.json", "train.log"]


PLANTED = "the secret that was planted"


@pytest.mark.parametrize(
    ("instead", "why"),
    [
        ("ln -s {secret} train.log", "is a symbolic link"),
        ("ln {secret} train.log", "has 2 hard links"),
        ("mkfifo train.log", "is a FIFO"),
        ("truncate -s 3M train.log", "has 3145728 bytes, more than the limit of 2097152"),
        ("true", "No such file or directory"),
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


def test_log_that_shrinks_while_it_is_fetched_fails_the_run(tmp_path: Path) -> None:
    """Another process of the user empties the log as soon as a part of it has come."""
    part = tmp_path / "campaign/runs/case/r1/train.log.part"
    waits = "until test -s $1; do sleep .01; done; find $2 -name train.log -exec truncate -s0 {} +"
    with subprocess.Popen(["sh", "-c", waits, "sh", part, tmp_path / "nodes"]) as other:
        run = run_on_cpu(tmp_path, "head -c 100000000 /dev/zero")
        other.wait(timeout=60)
    assert "train.log was truncated while reading it" in outcome(run, "failed")["message"]
    assert [path.name for path in run.iterdir()] == ["run.json"]


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
        """sed -i 's/"started": [0-9.]*/"started": 1.0, "finished": true, "exit_status": 0,"""
        """ "ended": 2.0, "reason": [], "telemetry": ["..\\/..\\/x"]/' job.json; sleep 5"""
    )
    found = outcome(run_on_cpu(tmp_path, script), "failed")
    assert "node1: the node's answer is damaged: exit status 0, reason []" in found["message"]
