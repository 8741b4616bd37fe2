"""A command that hangs: how it is noticed, what is kept of it, and what is left on any node."""

import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from benchmark_jobs import SLEEP, Clock, call, is_launched, processes_of, until
from run_agent import activity, lock, node_agents, other_processes, states, supervisor
from standins import program

# Two ranks under a launcher; rank 0 prints a line for each step, if rank 1 takes part in it.
LAUNCHER = """
import subprocess, sys
argv = [sys.executable, "-u", "-c", sys.argv[1], *sys.argv[2:]]
ranks = [subprocess.Popen([*argv, "rank0"], stdin=subprocess.PIPE)]
ranks.append(subprocess.Popen([*argv, "rank1"], stdout=ranks[0].stdin))
ranks[0].wait()
"""
RANK = """
import sys, time
for step in range(600):
    if sys.argv[-1] == "rank1":
        time.sleep(float(sys.argv[1]))
        print("gradients", flush=True)
    else:
        sys.stdin.readline()
        print("step", step, flush=True)
"""


def training(step_s: float, marker: str) -> tuple[str, ...]:
    return (sys.executable, "-c", LAUNCHER, RANK, str(step_s), marker)


def stop_rank(marker: str, log: Path) -> None:
    """SIGSTOP for rank 1, when the log has a rhythm."""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if log.exists() and log.read_text().count("step") > 60:
            break
        time.sleep(0.1)
    (rank,) = [
        pid
        for pid in processes_of(marker)
        if Path(f"/proc/{pid}/cmdline").read_text().endswith("rank1\0")
    ]
    os.kill(rank, signal.SIGSTOP)


def test_another_launch_that_failed_stops_this_one_with_its_state(tmp_path: Path) -> None:
    marker = f"dlperf-peer-{os.getpid()}"
    argv = (sys.executable, "-c", "import time; time.sleep(600)", marker)
    assert not call(tmp_path, *argv, wait_s=0)["finished"]
    assert until(lambda: is_launched(tmp_path))
    ended = call(tmp_path, *argv, order="peer")
    assert (ended["finished"], ended["reason"]) == (True, "peer")
    assert marker in (tmp_path / "hang-node.txt").read_text()
    assert not processes_of(marker)


# ---- when silence is a hang


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (activity, supervisor):
        monkeypatch.setattr(module, "uptime", made)
    return made


def silent_for(clock: Clock, log: Path, lines: list[float], least_s: int = 30) -> float | None:
    """After lines at these intervals, how long a silence is found to be a hang; None: never."""
    log.write_text("")
    silence = activity.Silence(str(log), least_s, 5)
    for gap in lines:
        for _ in range(int(gap / 0.25)):
            clock.now += 0.25
            assert not silence.is_too_long()
        with log.open("a") as file:
            file.write("step\n")
        assert not silence.is_too_long()
    for number in range(40_000):
        clock.now += 0.25
        if silence.is_too_long():
            return number / 4
    return None


@pytest.mark.parametrize(
    ("lines", "silence"),
    [
        ([1.0] * 20, 30),
        ([20.0] * 20, 100),
        # Of many ranks at once: the median gap between lines would be 0.05 s.
        (([20.0] + [0.0] * 7) * 20, 100),
        # Too few for a rhythm: a program that is compiled after its first messages.
        ([2.0] * 4, None),
    ],
)
def test_slow_steps_need_a_longer_silence(
    clock: Clock, tmp_path: Path, lines: list[float], silence: int | None
) -> None:
    found = silent_for(clock, tmp_path / "log", lines)
    assert found == (silence and pytest.approx(silence, abs=1))
    assert silent_for(clock, tmp_path / "log", lines, least_s=0) is None


def test_what_a_suspended_node_sleeps_is_no_silence(clock: Clock, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("")
    silence = activity.Silence(str(log), 5, 2)
    for _ in range(20):
        clock.now += 1.0
        log.write_text(log.read_text() + "step\n")
        assert not silence.is_too_long()
    clock.now += 3600
    assert not silence.is_too_long()


def test_a_clock_that_is_set_ends_no_run(
    clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By an hour, both ways; the limits are those of the node's uptime."""
    lease = supervisor.Lease(str(tmp_path / "lease"), 90)
    lease.renew()
    others = type("Others", (), {"lost": ""})()
    limits = supervisor.Limits({"timeout_s": 600, "lock": {}}, lease.order)
    for step in (3600, -3600):
        now = time.time() + step
        monkeypatch.setattr(supervisor.time, "time", lambda now=now: now)
        clock.now += 60
        assert limits.exceeded(others) == ""
        lease.renew()  # by the next call
        os.utime(lease.path, (now, now))
        assert limits.exceeded(others) == ""
    clock.now += 91
    assert limits.exceeded(others) == "lease"
    lease.renew()
    assert limits.exceeded(others) == ""
    clock.now += 600
    assert limits.exceeded(others) == "timeout"


# ---- other nodes

FROM = "192.0.2.77"  # a node of no network (RFC 5737)


def agents(path: Path) -> node_agents.Agents:
    """The agent of node2, which the stand-in for ssh in this folder starts."""
    made = node_agents.Agents()
    made.want({"node2": "n2"}, {"PATH": f"{path}:/usr/bin:/bin"})
    return made


def test_processes_older_than_the_run_are_not_its_own(tmp_path: Path) -> None:
    """By ssh, whose stand-in runs here what it is given, as sshd would. test_hangs_at_start.py has
    those that are younger."""
    script = f'while [ "$1" != -- ]; do shift; done\nSSH_CONNECTION="{FROM} 40009 192.0.2.78 22" '
    made = agents(program(tmp_path / "bin", "ssh", script + 'exec sh -c "$3"'))
    with subprocess.Popen(SLEEP, env={"SSH_CONNECTION": f"{FROM} 40000 192.0.2.78 22"}) as rank:
        assert states.end_others({"marks": []}, ["node2"], lock.uptime() + 60, made) == []
        assert rank.poll() is None
        rank.kill()
    made.close()


def test_what_a_run_left_on_another_node_is_seen_at_the_last_look() -> None:
    """What its agent says: ID, start, user, parent, ticks and name of each process but its own."""
    params = {"lock": {}, "host": "node1", "hosts": {"node2": "n2"}, "idle": {}, "cleanup": []}
    params |= {"marks": []}
    others = other_processes.OtherProcesses(params, node_agents.Agents())

    def looked(*processes: str) -> list[str]:
        others.ask("node2")
        lines = [f"running,{line}" for line in ("40,5,1000,1,9,vim", *processes)]
        others.receive("node2", [*lines, "listed,10.0,1000"])
        found: list[str] = others.with_own()
        return found

    assert looked() == []
    assert looked("70,92,1001,1,0,python", "80,99,1000,1,0,sshd") == []  # mpirun's login ends late
    assert looked("75,95,1000,1,0,sleep") == ["node2"]


def test_a_node_that_does_not_answer_is_named(tmp_path: Path) -> None:
    made = agents(program(tmp_path / "bin", "ssh", "exit 255"))
    run = {"directory": str(tmp_path), "log": "train.log", "host": "node1", "hosts": {"node2": ""}}
    run |= {"marks": []}
    left = states.end_others(run, ["node2"], 0.0, made)
    assert left == ["node2: cannot be checked for processes of the run"]
    assert states.keep_states(run, [], 0.0, made) == ["node2"]
    assert "==== node2\nno answer\n" in (tmp_path / "hang-node1.txt").read_text()


def test_stopped_rank_is_noticed_kept_and_ended_and_a_node_away_meanwhile_is_lost(
    tmp_path: Path,
) -> None:
    """node2's connection ends, and a new one fails until the state was kept, as in a reboot."""
    there = 'while [ "$1" != -- ]; do shift; done; exec sh -c "$3"'
    away = f"[ ! -e {tmp_path}/away ] || [ -e {tmp_path}/hang-node1.txt ] || exit 255"
    path = program(tmp_path / "bin", "ssh", f"{away}\necho $$ > {tmp_path}/pid\n{there}")
    marker = f"dlperf-stopped-rank-{os.getpid()}"

    def begin() -> None:
        stop_rank(marker, tmp_path / "train.log")
        (tmp_path / "away").touch()
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    stops = threading.Thread(target=begin)
    stops.start()
    limits = {"hung_after_s": 2, "hung_after_lines": 2, "timeout_s": 3600}
    options = {"env": {"PATH": f"{path}:/usr/bin:/bin"}, "host": "node1", "hosts": {"node2": "n2"}}
    result = call(tmp_path, *training(0.1, marker), **options, **limits)
    stops.join()
    assert (result["finished"], result["reason"]) == (True, "hung")
    assert result["silent_s"] >= 2
    seconds = re.fullmatch(r"before that one every (\d\.\d) s", result["sign"])
    assert seconds and float(seconds[1]) > 0.9  # lines within a second are one beat
    assert not processes_of(marker)
    (left,) = result["left"]
    told = "node2: cannot be checked for processes of the run, because it was restarted or did not"
    assert left.startswith(told)  # although it is back
    assert "hang-node1.txt" in result["files"]
    state = (tmp_path / "hang-node1.txt").read_text()
    assert state.startswith("== end of the log\n")
    blocks = [block for block in state.split("== process ") if marker in block]
    assert len([block for block in blocks if "rank1" in block and "T (stopped)" in block]) == 1
    assert "== processes\n" in state
