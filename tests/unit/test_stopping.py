"""Signals to a campaign: which exit status, what is said, and that the playbook is told."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from child_processes import hear_signals
from make_logs import ROOT
from refusals import refusal

from dlperf_runner.campaign import execute
from dlperf_runner.campaign.directory import is_cut_off
from dlperf_runner.campaign.execute import Playbook
from dlperf_runner.plan.choice import parse_wait

LIMIT_S = 300  # only a defect reaches it
# The command line with a playbook's place taken by a process that does what one does: it says its
# process, and ends in order at an INT or a TERM.
RUNNER = """
import json, os, subprocess, sys, time
from pathlib import Path
from dlperf_runner.campaign import execute
from dlperf_runner import commands as cli

def playbook(name, variables, inventories, state, limit=""):
    campaign = Path(variables["resume"])
    child = subprocess.Popen([sys.executable, "-c", CHILD], stdout=subprocess.PIPE, text=True)
    child.stdout.readline()
    state.pid_file = campaign / "playbook.pid"
    state.pid_file.write_text(str(child.pid))
    print("ready", flush=True)
    (campaign / "ended").write_text(str(child.wait()))
    state.status = "failed"

CHILD = (
    "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(15));"
    "signal.signal(signal.SIGINT, lambda *_: sys.exit(2)); print(flush=True); WORK"
)
execute.run_playbook = playbook
cli.main()
"""


def started(code: str, *words: str | Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code, *words],
        cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        preexec_fn=hear_signals,  # noqa: PLW1509  no thread of the tests
    )  # fmt: skip
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def runner(directory: Path, work: str = "time.sleep(600)") -> subprocess.Popen[str]:
    code = RUNNER.replace("WORK", work)
    return started(code, "run", "-i", "inventory/local", "--nodes", "1", "--campaign", directory)


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signal_is_passed_on_and_told(tmp_path: Path, number: signal.Signals, status: int) -> None:
    directory = tmp_path / "a campaign"
    process = runner(directory)
    process.send_signal(number)
    _, errors = process.communicate(timeout=LIMIT_S)
    assert process.returncode == status, errors
    assert (directory / "ended").read_text() == str(int(number))  # the playbook ended by itself
    again = f"dlperf run --resume '{directory}'"
    assert errors.splitlines()[-1] == f"stopped by {number.name}; resume with: {again}"
    assert not (directory / ".controller.json").exists()


def test_closed_terminal_stops_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "campaign"
    told = tmp_path / "told"
    os.mkfifo(told)
    process = runner(directory, f"open({str(told)!r}).read()")
    process.send_signal(signal.SIGHUP)
    told.open("w").close()
    _, errors = process.communicate(timeout=LIMIT_S)
    assert (directory / "ended").read_text() == "0", errors
    assert process.returncode == 2  # the stand-in has run nothing
    assert "no run could be started" in errors


def test_second_interrupt_stops_the_current_run() -> None:
    state = Playbook(log=Path("x"))
    told = []
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGINT, signal.SIGINT):
        state.on_signal(number)
        told.append((state.signal, state.cancelled.is_set()))
    first, now = (signal.SIGINT, False), (signal.SIGTERM, False)
    assert told == [first, first, now, (signal.SIGTERM, True)]


def test_full_disk_does_not_end_the_reading_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would end with a traceback; the playbook itself says what it cannot write."""
    monkeypatch.setattr(execute, "open_append", lambda *_: open("/dev/full", "wb"))  # noqa: PTH123, SIM115
    state = Playbook(log=Path("ansible.log"))
    result = {"msg": "cannot write run.json: No space left on device"}
    data = {"host": "node1", "task": "Record the outcome", "res": result}
    data |= {"task_action": "benchmark_record", "ignore_errors": True}  # so that nodes are released
    event = {"event": "runner_on_failed", "stdout": "x" * 9999, "event_data": data}
    assert not state.on_event(event)
    assert state.problems == [f"node1: Record the outcome: {result['msg']}"]


def test_time_to_wait() -> None:
    for text, seconds in {"": 0, "90s": 90, "30m": 1800, " 2h ": 7200, "0s": 0}.items():
        assert parse_wait(text) == seconds
    for text in ("30", "m", "-1m", "1.5h", "3d", "1h30m", "٣m", "9999999s"):
        assert "--wait: invalid duration" in refusal(parse_wait, text)


def test_run_is_cut_off_when_its_controller_is_gone() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    here, there = socket.gethostname(), "another-machine"
    outcome = {"status": "running", "controller": {"host": here, "pid": ended.pid}}
    assert is_cut_off(outcome)
    assert is_cut_off({**outcome, "controller": {"host": here, "pid": 10**30}})  # of a damaged file
    assert not is_cut_off({**outcome, "controller": {"host": here, "pid": os.getpid()}})
    # Nobody here can tell of another machine.
    assert not is_cut_off({**outcome, "controller": {"host": there, "pid": ended.pid}})
    assert not is_cut_off({"status": "running"})
    assert not is_cut_off({**outcome, "status": "done"})


PLUGIN = ROOT / "playbooks/callback_plugins/campaign_stop.py"
# A process that has the plugin as ansible-playbook has it, and the task under way.
PLAYBOOK = f"""
import importlib.util, os, signal, sys, time
from pathlib import Path
from types import SimpleNamespace
spec = importlib.util.spec_from_file_location("campaign_stop", {str(PLUGIN)!r})
plugin = importlib.util.module_from_spec(spec)
spec.loader.exec_module(plugin)
plugin.constants = SimpleNamespace(DEFAULT_LOCAL_TMP=sys.argv[1])
callback = plugin.CallbackModule()
callback.v2_playbook_on_start(SimpleNamespace(_file_name="/x/" + sys.argv[2]))
for state in sys.argv[3:]:
    task = SimpleNamespace(action="node_lock" if state else "debug", args={{"state": state}})
    callback.v2_playbook_on_task_start(task, False)
print("ready", flush=True)
for _ in range(6000):
    stop = Path(os.environ.get("DLPERF_STOP", "/nowhere"))
    if stop.exists() and stop.read_text() == "now":
        sys.exit(5)
    time.sleep(0.1)
"""


@pytest.mark.parametrize(
    ("playbook", "states", "status"),
    [
        ("bench.yml", [], -signal.SIGTERM),
        ("bench.yml", ["held"], 5),
        ("bench.yml", ["held", ""], 5),
        ("bench.yml", ["held", "absent"], 5),
        ("bench.yml", ["held", "absent", "free"], -signal.SIGTERM),
        ("bench.yml", ["held", "absent", ""], -signal.SIGTERM),
        ("provision.yml", ["held"], -signal.SIGTERM),
    ],
)
def test_playbook_ends_in_order_while_it_has_nodes(
    tmp_path: Path, playbook: str, states: list[str], status: int
) -> None:
    process = started(PLAYBOOK, tmp_path, playbook, *states)
    process.terminate()
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == status


def order(directory: Path) -> str:
    """What the playbook's tasks are told, when they are."""
    deadline = time.monotonic() + LIMIT_S
    while not (stop := directory / "stop").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return stop.read_text()


def test_first_interrupt_of_a_playbook_lets_the_run_end(tmp_path: Path) -> None:
    process = started(PLAYBOOK, tmp_path, "bench.yml", "held")
    process.send_signal(signal.SIGHUP)
    process.send_signal(signal.SIGINT)
    assert order(tmp_path) == "finish"
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 5


def test_playbook_is_told_of_the_death_of_its_runner(tmp_path: Path) -> None:
    parent = (
        "import os, subprocess, sys, time\n"
        "os.environ.update(DLPERF_RUNNER_PID=str(os.getpid()), DLPERF_PID_FILE=sys.argv[1])\n"
        "subprocess.Popen([sys.executable, '-c', *sys.argv[2:]]).wait()"
    )
    pid_file = tmp_path / "pid"
    process = started(parent, pid_file, PLAYBOOK, tmp_path, "bench.yml", "held")
    process.kill()
    process.wait()
    assert order(tmp_path) == "now"
    process.communicate(timeout=LIMIT_S)
