"""The role benchmark_run, executed by Ansible on this machine as three hosts."""

import getpass
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import yaml
from executed_modules import playbook

from dlperf_runner.core.case import Command, Run

ROOT = Path(__file__).parents[2]
HOSTS = ["node1", "node2", "node3"]


def command(host: str, path: str, *argv: str) -> dict[str, Any]:
    return asdict(Command(host, argv, {"PATH": path}))


def run_role(
    directory: Path,
    path: str,
    launched_on: list[str],
    variables: dict[str, Any] | None = None,
    plays: Callable[[dict[str, Any]], list[dict[str, Any]]] = lambda play: [play],
    within: int = 300,
    start: Callable[[Path], None] | None = None,
    **changes: Any,
) -> Path:
    """Execute the role for a run of three nodes; returns the run's directory on the controller.

    `plays` makes the playbook of a play that includes the role; `start`, if any, executes it.
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
        "first_step_s": 60,
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
            "benchmark_run_most_cores_beside": 1000,  # other tests may compute on this machine
            **(variables or {}),
        },
    }
    (directory / "play.yml").write_text(json.dumps(plays(play)))
    if start:
        start(directory / "play.yml")
        return directory / "campaign" / "runs" / "case" / "r1"
    hosts = ",".join(HOSTS) + ","
    finished = playbook("-i", hosts, directory / "play.yml", within=within)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    (directory / "output").write_text(finished.stdout)
    return directory / "campaign" / "runs" / "case" / "r1"


def outcome(run: Path, status: str = "done") -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "run.json").read_text())["outcome"]
    assert found["status"] == status, found
    return found


def as_bench_does(play: dict[str, Any], repeats: int = 1) -> list[dict[str, Any]]:
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
    again = [run | {"id": f"case/r{n}", "repeat": n} for n in range(3, repeats + 2)]
    plan = {"runs": [not_ready, run, *again], "campaign": variables.pop("benchmark_run_campaign")}
    plan["wait_s"] = 0
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
