"""How a supervisor asks the other nodes of a run: by ssh, whose stand-in stays on this machine."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from benchmark_jobs import (
    BURN,
    SLEEP,
    agents_of,
    call,
    has_ended,
    lock_in,
    of_another_user,
    until_gone,
)
from run_agent.node_agents import Agents
from run_agent.other_processes import OtherProcesses
from standins import program

# What ssh does, less the network: notes the login, and executes the command. $2 is the address.
LOGIN = 'while [ "$1" != -- ]; do shift; done\necho "$2" >> {0}/logins\n'
OTHERS = {"n2": "n2.site", "n3": "n3.site"}


def ssh_in(directory: Path, then: str = 'exec sh -c "$3"') -> dict[str, str]:
    """The environment of a run with a stand-in for ssh."""
    path = program(directory / "bin", "ssh", LOGIN.format(directory) + then)
    return {"PATH": f"{path}:/usr/bin:/bin"}


def logins(directory: Path) -> list[str]:
    return sorted((directory / "logins").read_text().split())


@pytest.mark.parametrize("lost", ["", "rm lock/lease.*", "mv lock gone"])
def test_another_node_of_the_run_is_asked_before_the_launch(tmp_path: Path, lost: str) -> None:
    """Where the lease is missing, another campaign has the node, or it was restarted."""
    (tmp_path / "ran").touch()
    lock = lock_in(tmp_path / "lock")
    there = f'cd {tmp_path}; {lost or "true"}; exec sh -c "$3"'
    argv = ("/bin/rm", str(tmp_path / "ran"))
    environment = ssh_in(tmp_path, there)
    result = call(tmp_path / "r1", *argv, env=environment, lock=lock, hosts={"n2": "n2.site"})
    assert (result["finished"], result["reason"]) == (True, "lock" if lost else "")
    assert ["restarted" in line for line in result["left"]] == [True] * (lost == "mv lock gone")
    assert (tmp_path / "ran").exists() == bool(lost)
    assert lost or logins(tmp_path) == ["n2.site"]


def campaign(directory: Path, **options: Any) -> dict[str, Any]:
    """The options of the runs of a campaign that samples two other nodes, and holds a third."""
    return {
        "env": ssh_in(directory),
        "lock": lock_in(directory / "lock"),
        "runs": str(directory / "runs"),
        "hosts": OTHERS,
        "idle": {"n4": "n4.site"},
        "sample_s": 1,
        "sample_gpus": False,
        "sample_hosts": {"n1": "", **OTHERS},
        **options,
    }


def run(directory: Path, number: int, *argv: str, **options: Any) -> dict[str, Any]:
    folder = directory / f"runs/campaign/case/r{number}"
    return call(folder, *(argv or ("/bin/sleep", "1")), launch=f"t{number}", **options)


def supervisor(directory: Path, number: int) -> int:
    state = json.loads((directory / f"runs/campaign/case/r{number}/job.json").read_text())
    return int(state["supervisor"])


def test_one_login_per_node_serves_all_runs_of_a_campaign(tmp_path: Path) -> None:
    """It took three for each run: who uses the node before and after it, and its samples."""
    options, before = campaign(tmp_path), time.time()
    for number in (1, 2, 3):
        result = run(tmp_path, number, **options)
        assert (result["exit_status"], result["reason"], result["left"]) == (0, "", [])
        # Whoever sees the run's end finds the supervisor for the next one, however slow that is.
        assert list((tmp_path / "runs").glob(".supervisor.*"))
        assert {f"telemetry-{host}.csv" for host in ("n1", "n2", "n3")} < set(result["files"])
        for host in OTHERS:  # of this run alone
            path = tmp_path / f"runs/campaign/case/r{number}/telemetry-{host}.csv"
            times = [float(line.split(",")[0]) for line in path.read_text().splitlines()[1:]]
            assert len(times) >= 2
            assert before < times[0] < result["ended"] < times[-1] + 1
        before = result["ended"]
    assert logins(tmp_path) == ["n2.site", "n3.site", "n4.site"]
    assert len({supervisor(tmp_path, number) for number in (1, 2, 3)}) == 1
    # Released, as at the campaign's end: nothing is left, neither a process nor a file.
    agents = agents_of(tmp_path)
    assert len(agents) == 4
    (tmp_path / "lock/lease.a").unlink()
    assert has_ended(supervisor(tmp_path, 3))
    assert all(has_ended(pid) for pid in agents)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["campaign"]


def test_a_launch_that_cannot_start_leaves_the_next_one_its_samples(tmp_path: Path) -> None:
    options = campaign(tmp_path)
    assert run(tmp_path, 1, "/no/such/program", **options)["exit_status"] == 127
    result = run(tmp_path, 2, "/bin/sleep", "2", **options)
    assert result["exit_status"] == 0
    for host in ("n1", "n2", "n3"):
        path = tmp_path / f"runs/campaign/case/r2/telemetry-{host}.csv"
        assert float(path.read_text().splitlines()[-1].split(",")[0]) > result["ended"] - 1
    (tmp_path / "lock/lease.a").unlink()
    assert has_ended(supervisor(tmp_path, 2))


def test_lease_of_every_node_is_renewed(tmp_path: Path) -> None:
    """All four have one file here; it is renewed by the module, and for the other nodes."""
    options = campaign(tmp_path)
    assert run(tmp_path, 1, "/bin/true", **options)["reason"] == ""
    lease = tmp_path / "lock/lease.a"
    os.utime(lease, (1, 1))
    began = float(Path("/proc/uptime").read_text().split()[0])
    # The supervisor, not the module, asks the others.
    options["hosts"], options["idle"] = {"n2": "n2.site"}, {"n3": "n3.site", "n4": "n4.site"}
    assert run(tmp_path, 2, "/bin/true", **options)["reason"] == ""
    assert lease.stat().st_mtime >= began - 0.02
    lease.unlink()
    assert has_ended(supervisor(tmp_path, 2))


@pytest.mark.parametrize("ends", ["killed", "stopped"])
def test_campaign_goes_on_without_the_supervisor_that_waited(tmp_path: Path, ends: str) -> None:
    options = campaign(tmp_path)
    assert run(tmp_path, 1, "/bin/true", **options)["exit_status"] == 0
    first = supervisor(tmp_path, 1)
    os.kill(first, signal.SIGKILL if ends == "killed" else signal.SIGSTOP)
    try:
        assert run(tmp_path, 2, "/bin/true", **options)["exit_status"] == 0
        assert supervisor(tmp_path, 2) != first
    finally:
        (tmp_path / "lock/lease.a").unlink()
        if ends == "stopped":
            os.kill(first, signal.SIGCONT)
    assert has_ended(first)
    assert has_ended(supervisor(tmp_path, 2))


def test_node_whose_connection_ended_is_asked_again(tmp_path: Path) -> None:
    options = campaign(tmp_path)
    assert run(tmp_path, 1, "/bin/true", **options)["exit_status"] == 0
    for pid in agents_of(tmp_path):
        os.kill(pid, signal.SIGKILL)
    result = run(tmp_path, 2, **options)
    assert (result["exit_status"], result["reason"]) == (0, "")
    assert "telemetry-n2.csv" in result["files"]
    assert logins(tmp_path) == sorted(["n2.site", "n3.site", "n4.site"] * 2)
    (tmp_path / "lock/lease.a").unlink()
    assert has_ended(supervisor(tmp_path, 2))


def test_run_whose_connection_to_a_node_is_lost_says_until_when_it_was_sampled(
    tmp_path: Path,
) -> None:
    """The run goes on."""
    there = f'[ "$2" != n2.site ] || echo $$ > {tmp_path}/pid; exec sh -c "$3"'
    options = campaign(tmp_path, idle={}) | {"env": ssh_in(tmp_path, there)}
    samples = tmp_path / "runs/campaign/case/r1/telemetry-n2.csv"
    sampled = f"until [ $(cat {samples} | wc -l) -gt 2 ]; do sleep 0.1; done"
    argv = ("/bin/sh", "-c", f"{sampled}; kill -9 $(cat {tmp_path}/pid); sleep 2")
    began = time.monotonic()
    result = run(tmp_path, 1, *argv, **options)
    assert (result["exit_status"], result["reason"]) == (0, "")
    (lost,) = result["unsampled_from_s"].items()
    # Some samples came, and none in the last 2 s.
    assert (lost[0], 0 < lost[1] <= time.monotonic() - began - 1.9) == ("n2", True)
    assert "unsampled_from_s" not in run(tmp_path, 2, "/bin/sleep", "1", **options)
    (tmp_path / "lock/lease.a").unlink()
    assert has_ended(supervisor(tmp_path, 2))


def test_what_a_run_leaves_ends_and_the_connections_stay(tmp_path: Path) -> None:
    marker = f"dlperf-left-{os.getpid()}"
    options = campaign(tmp_path)
    leaves = ("setsid", "-f", *SLEEP, marker)
    assert run(tmp_path, 1, *leaves, **options)["exit_status"] == 0
    assert until_gone(marker)
    assert run(tmp_path, 2, "/bin/false", **options)["left"] == []
    assert run(tmp_path, 3, "/bin/true", **options)["exit_status"] == 0
    assert logins(tmp_path) == ["n2.site", "n3.site", "n4.site"]
    (tmp_path / "lock/lease.a").unlink()
    assert has_ended(supervisor(tmp_path, 3))


@pytest.mark.skipif(os.getuid() != 0, reason="starts a process of another user")
def test_process_of_somebody_else_is_seen_and_the_run_s_own_are_not(tmp_path: Path) -> None:
    options = {"env": ssh_in(tmp_path), "host": "n1", "hosts": {"n2": "n2.site"}}
    own = ("setpriv", "--reuid=4712", "--clear-groups", "setsid", "--fork", "--wait")
    burns = ("/usr/bin/python3", "-c", BURN.replace("600", "3"))
    with of_another_user(BURN) as other:
        result = call(tmp_path / "r1", *own, *burns, **options)
        ran = ("/bin/touch", str(tmp_path / "ran"))
        refused = call(tmp_path / "r2", *ran, host="n1", most_cores_beside=0.02)
    assert (refused["reason"], refused["exit_status"]) == ("busy", 125)
    assert not (tmp_path / "ran").exists()
    # This machine may have more users, whose processes are none of the test's.
    users = (4711, 4712)
    seen = {(process["host"], process["pid"]): process for process in result["beside"]
            if process["uid"] in users}  # fmt: skip
    assert [pid for host, pid in seen if host == "n1"] == [other.pid]
    for host in ("n1", "n2"):
        assert 0.02 < seen[host, other.pid]["cores"] <= 1.05
    assert len(logins(tmp_path)) == 1


@pytest.mark.skipif(os.getuid() != 0, reason="starts a process of another user")
@pytest.mark.parametrize("is_caller", [True, False])
def test_module_that_started_a_run_is_nobody_else(is_caller: bool) -> None:
    """Its start takes as much CPU time as a busy program: before each run, all nodes were asked a
    second time because of it."""
    apart = ["sh", "-c", '"$@" > /dev/null & echo $!', "sh", "/usr/bin/python3", "-c", BURN]
    module = int(subprocess.check_output(apart, user=4711, cwd="/"))
    try:
        params = {"lock": {}, "host": "n1", "hosts": {}, "idle": {}, "cleanup": [], "marks": []}
        others = OtherProcesses(params | ({"caller": module} if is_caller else {}), Agents())
        for _ in range(2):
            others.wait()
        assert (module in {pid for _, pid, _ in others.seen}) != is_caller
    finally:
        os.kill(module, signal.SIGKILL)
