"""A command that hangs before its log has a rhythm, and commands that only take long until then."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmark_jobs import Clock, call, is_launched, processes_of, until
from run_agent import activity, node_agents, states, telemetry
from standins import program

# Two ranks under a launcher: one waits as NCCL and MPI do, the other is to be stopped.
LAUNCHER = """
import subprocess, sys
rank = [sys.executable, "-c", "import sys\\nwhile True: pass", sys.argv[1]]
ranks = [subprocess.Popen([*rank, name]) for name in ("rank0", "rank1")]
for each in ranks: each.wait()
"""
STEPS = "for step in range(12): time.sleep(0.2); print('step', step, flush=True)\n"
# Its processes live only for a moment, as those of a compiler.
COMPILES = """
import subprocess, sys, time
end = time.time() + 4
while time.time() < end:
    subprocess.run([sys.executable, "-S", "-c", "sum(range(10**6))"])
"""
# It reads as from a slow file server: with hardly any CPU time.
READS = """
import time
end = time.time() + 4
with open("/dev/zero", "rb") as file:
    while time.time() < end:
        file.read(1 << 18)
        time.sleep(0.1)
"""
LIMITS = {"hung_after_s": 2, "first_step_s": 100, "timeout_s": 300}
LIMITS |= {"host": "node1", "sample_gpus": False}


def marked() -> str:
    return f"dlperf-start-{os.getpid()}"


def ranks_here() -> set[int]:
    """The ids of rank1 of this test, not of another that runs at the same time."""
    return set(processes_of("rank1\0")) & set(processes_of(marked()))


def ended(directory: Path, code: str, *arguments: str, **limits: Any) -> dict[str, Any]:
    """The result of a command that ran until its end or was stopped; nothing of it is left."""
    options = {**LIMITS, **limits}
    result = call(directory, sys.executable, "-c", code, marked(), *arguments, **options)
    assert result["finished"]
    assert result["left"] == []
    assert not processes_of(marked())
    return result


def state_of(directory: Path, result: dict[str, Any]) -> str:
    assert "hang-node1.txt" in result["files"]
    return (directory / "hang-node1.txt").read_text()


# ---- what hangs


def test_rank_that_is_stopped_while_the_others_spin(tmp_path: Path) -> None:
    def stop() -> None:
        assert until(ranks_here)
        (rank,) = ranks_here()
        os.kill(rank, signal.SIGSTOP)

    stops = threading.Thread(target=stop)
    stops.start()
    result = ended(tmp_path, LAUNCHER)
    stops.join()
    assert result["reason"] == "hung_at_start"
    assert " on node1 was stopped for " in result["sign"]
    assert result["silent_s"] >= 2
    states = state_of(tmp_path, result).partition("== processes")[0].split("== process ")
    (block,) = (state for state in states if f"{marked()} rank1" in state)
    assert "T (stopped)" in block
    assert result["sign"].startswith(f"process {block.split(':')[0]} (python")
    # The next run starts where that one ended.
    assert ended(tmp_path, "print('well')", launch="t2")["exit_status"] == 0
    assert not (tmp_path / "hang-node1.txt").exists()


def test_all_processes_idle(tmp_path: Path) -> None:
    """After some lines, too few for a rhythm."""
    result = ended(tmp_path, "import time; print('rank 0 waits', flush=True); time.sleep(600)")
    assert result["reason"] == "hung_at_start"
    assert result["sign"] == "and none of its processes did anything"
    assert state_of(tmp_path, result).startswith("== end of the log\nrank 0 waits\n")


def test_process_on_a_node_that_only_mpirun_reaches(tmp_path: Path) -> None:
    """By the node's agent, to which ssh, whose stand-in stays here, gives its address."""
    start = 'while [ "$1" != -- ]; do shift; done\nSSH_CONNECTION="192.0.2.77 1 192.0.2.78 22" '
    path = program(tmp_path / "bin", "ssh", start + 'exec sh -c "$3"')
    strays: list[subprocess.Popen[bytes]] = []

    def begin() -> None:
        assert until(lambda: (tmp_path / "job.json").exists() and is_launched(tmp_path))
        argv = [sys.executable, "-c", "import time; time.sleep(600)", "a-stray"]
        of_run, login = {"SSH_CONNECTION": "192.0.2.77 2 192.0.2.78 22"}, {"SSH_TTY": "/dev/pts/3"}
        for given in (of_run, of_run | login, {"SSH_CONNECTION": "192.0.2.9 2 192.0.2.78 22"}):
            strays.append(subprocess.Popen(argv, env=given))
            os.kill(strays[-1].pid, signal.SIGSTOP)

    begins = threading.Thread(target=begin)
    begins.start()
    env = {"PATH": f"{path}:/usr/bin:/bin"}
    try:
        result = ended(tmp_path, "while True: pass", hosts={"node2": "n2"}, env=env)
        begins.join()
        # Not a login's stopped editor, and nothing that came from elsewhere.
        assert f"process {strays[0].pid} (" in result["sign"]
        assert " on node2 was stopped for " in result["sign"]
        assert [stray.poll() for stray in strays] == [-signal.SIGKILL, None, None]
    finally:
        for stray in strays:
            stray.kill()
            stray.wait()


# ---- what does not


@pytest.mark.parametrize("code", [COMPILES, READS], ids=["compiles", "reads slowly"])
def test_long_start_is_no_hang(tmp_path: Path, code: str) -> None:
    result = ended(tmp_path, code + STEPS)
    assert (result["exit_status"], result["reason"]) == (0, "")


def test_launch_that_prints_no_steps_and_waits_for_another(tmp_path: Path) -> None:
    """torchrun on the second node, while the first one compiles; a stopped rank ends it all the
    same."""
    waits = "import time; time.sleep(4)"
    alone = {"first_step_s": 0, "is_only_launch": False}
    assert ended(tmp_path, waits, **alone)["reason"] == ""
    stops = "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)"
    result = ended(tmp_path, stops, launch="t2", **alone)
    assert result["reason"] == "hung"
    assert " on node1 was stopped for " in result["sign"]


# ---- what is judged


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    for module in (activity, states):
        monkeypatch.setattr(module, "uptime", made)
    monkeypatch.setattr(telemetry.node_sampler, "clock", made)
    return made


def doing(state: str, switches: int, ticks: int = 0, moved: int = 0, pid: int = 70) -> str:
    return f"doing,{pid},99,{state},{switches},{ticks},{moved},python"


def activity_of(*others: str, gpu_idle_s: float = 1e9) -> Any:
    params = {"host": "node1", "hosts": others, "hung_after_s": 100, "marks": []}
    return activity.Activity(params, lambda _: gpu_idle_s)


def nothing() -> tuple[set[int], set[int]]:
    """This node has no process of the run."""
    return set(), set()


def looked(clock: Clock, *looks: tuple[str, ...], gpu_idle_s: float = 1e9) -> dict[str, Any]:
    """The state after looks, 10 s apart, at another node, while this one has no process."""
    seen = activity_of("node2", gpu_idle_s=gpu_idle_s)
    agents = node_agents.Agents()
    for lines in looks:
        seen.poll(nothing, agents)
        seen.receive("node2", [*lines[:1], "listed,1.0,1000"])  # with other answers between
        seen.receive("node2", [*lines[1:], "did"])
        clock.now += 10
    state: dict[str, Any] = seen.state()
    return state


def test_idle_programs_may_poll_a_little(clock: Clock) -> None:
    looks = [(doing("S", 100 * n, 9 * n, 8000 * n),) for n in range(13)]
    assert looked(clock, *looks) == {"idle_s": 120.0, "stuck_s": 0.0, "stuck": ""}
    assert looked(clock, *looks, gpu_idle_s=7.0)["idle_s"] == 7.0


@pytest.mark.parametrize(
    "last",
    [
        (doing("S", 5, ticks=11),),
        (doing("S", 5, moved=1 << 16),),
        (doing("D", 6),),
        (doing("S", 5), doing("S", 1, pid=71)),
        (),
    ],
    ids=["computes", "reads", "waits for the disk", "has started a process", "has ended"],
)
def test_activity_of_one_process_is_activity(clock: Clock, last: tuple[str, ...]) -> None:
    looks = [(doing("S", 5),)] * 12
    assert looked(clock, *looks)["idle_s"] == 110.0
    assert looked(clock, *looks, last)["idle_s"] == 0.0


def test_short_waits_for_a_disk_are_no_long_one(clock: Clock) -> None:
    assert looked(clock, *[(doing("D", n),) for n in range(13)])["stuck_s"] == 0.0
    spins = doing("R", 1, 10**6, pid=71)
    state = looked(clock, *[(doing("D", 5), spins)] * 13)
    assert state["stuck_s"] == 120.0
    waited = "process 70 (python) on node2 waited for a disk, a file server or a device for 120 s"
    assert state["stuck"] == waited
    # It waits for its pages in one thread, and another one fills them.
    assert looked(clock, *[(doing("D", 5, 500 * n),) for n in range(13)])["stuck_s"] == 0.0
    # It was stopped again meanwhile.
    assert looked(clock, *[(doing("T", n // 5),) for n in range(13)])["stuck_s"] == 20.0


def test_process_that_may_work_for_the_run_is_never_what_hangs(clock: Clock) -> None:
    node = activity.NodeActivity("node1")
    for n in range(13):
        node.take([doing("S", 5), doing("T", 5, pid=71)], 20, {71})
        assert (node.idle_s, node.stuck()[0]) == (10.0 * n, 0.0)
        clock.now += 10
    node.take([doing("S", 5), doing("S", 6, 900, pid=71)], 20, {71})
    assert node.idle_s == 0.0


def test_node_that_does_not_answer_is_not_idle(clock: Clock) -> None:
    seen = activity_of("node2")
    for _ in range(20):
        seen.poll(nothing, node_agents.Agents())
        clock.now += 10
    assert seen.state()["idle_s"] == 0.0


def test_suspended_node_does_nothing_for_no_time(clock: Clock) -> None:
    looks = [(doing("T", 5),)] * 3
    node = activity_of().nodes["node1"]
    for lines in looks:
        node.take(list(lines), 20)
        clock.now += 3600
    assert (node.idle_s, node.stuck()[0]) == (40.0, 40.0)


@pytest.fixture
def hang(clock: Clock, tmp_path: Path) -> Iterator[Any]:
    (tmp_path / "log").touch()
    limits = {"hung_after_s": 100, "hung_after_lines": 20, "first_step_s": 900}
    made = activity.Hang(str(tmp_path / "log"), limits)

    def after(seconds: int, **state: object) -> str:
        """The reason after so many seconds of silence."""
        busy = {"idle_s": 0.0, "stuck_s": 0.0, "stuck": ""}
        reason = ""
        for _ in range(seconds):
            clock.now += 1
            reason = reason or made.reason([busy | state, busy | {"idle_s": 500.0}])
        return reason

    made.after = after
    yield made


def test_first_step_is_longer_where_lines_are_far_apart(hang: Any, tmp_path: Path) -> None:
    for _ in range(2):
        assert hang.after(100) == ""
        with (tmp_path / "log").open("a") as file:
            file.write("step 100\n")
    assert hang.after(1900) == ""
    assert hang.after(200) == "hung_at_start"
    assert hang.result["sign"] == "although the first step may take only 900 s (first_step_s)"
    assert hang.result["silent_s"] > 1900


def test_line_of_the_log_is_a_sign_of_life(hang: Any, tmp_path: Path) -> None:
    """Also of a program that has been idle for longer; and one busy node is enough."""
    assert hang.after(99, idle_s=99.0) == ""
    (tmp_path / "log").write_text("reads the data\n")
    assert hang.after(90, idle_s=190.0, stuck_s=190.0) == ""
    assert hang.after(30, idle_s=99.0) == ""
    assert hang.after(2, idle_s=220.0) == "hung_at_start"


def test_rhythm_ends_the_start(hang: Any, tmp_path: Path) -> None:
    for _ in range(7):
        assert hang.after(40) == ""
        with (tmp_path / "log").open("a") as file:
            file.write("step\n")
    assert not hang.is_starting()
    assert hang.after(700, idle_s=700.0, stuck_s=700.0) == ""
    assert hang.after(200) == "hung"
    assert hang.result["sign"] == "before that one every 40.0 s"


def test_gpu_computes_nothing_only_if_that_is_seen(clock: Clock, tmp_path: Path) -> None:
    def sample(load: str) -> list[str]:
        cells = ["5", "0", "GPU-1", "100", load] + [""] * (len(telemetry.node_sampler.COLUMNS) - 2)
        return ["sample," + ",".join(cells)]

    options = {"directory": str(tmp_path), "sample_s": 1, "sample_hosts": {"n": ""}, "env": {}}
    options |= {"sample_gpus": True, "sample_devices": 0}
    made = telemetry.Telemetry(options, node_agents.Agents(), 100)
    made.sampled["n"] = None
    assert made.gpu_idle_s("n") == 0.0
    made.receive("n", sample("0"))
    clock.now += 50
    assert made.gpu_idle_s("n") == 50.0
    for load in ("3", ""):  # a part of a GPU tells none
        clock.now += 50
        made.receive("n", sample(load))
        assert made.gpu_idle_s("n") == 0.0
        clock.now += 10
        made.receive("n", sample("0"))
        assert made.gpu_idle_s("n") == 10.0
    clock.now += 61  # no further sample
    assert made.gpu_idle_s("n") == 0.0
    cpu = telemetry.Telemetry(options | {"sample_gpus": False}, node_agents.Agents(), 100)
    assert cpu.gpu_idle_s("n") > 1e9
