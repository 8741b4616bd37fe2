"""One controller at a time: the lock of a campaign, and its files at every moment."""

import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from multiprocessing.connection import Connection
from pathlib import Path

import pytest
from command_line import call
from planned_campaigns import create, end
from refusals import refusal

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.campaign import lock, manifest
from dlperf_runner.campaign.manifest import changes, read
from dlperf_runner.control import controllers, rounds
from dlperf_runner.control.campaigns import plan_of_playbook
from dlperf_runner.control.controllers import stop, time_left
from dlperf_runner.core.errors import Stopped, UserError

FORKED = multiprocessing.get_context("fork")


def control(directory: Path, steps: Connection) -> None:
    """Create or resume a campaign and work on its files until killed; each step is told."""
    steps.send("before the campaign")
    if not (directory / "campaign.json").exists():
        create(directory)
    while True:
        steps.send("before the lock")
        with lock.held(directory):
            for record in campaigns.read_records(directory):
                steps.send("before a record")
                if campaigns.is_failed(record):
                    campaigns.retry(directory, record)
                end(directory, record, status="failed", message="x")
                steps.send("before the manifest")
                manifest.seal_run(directory, record["id"])


def test_controller_killed_at_any_moment_leaves_a_campaign_and_no_lock(tmp_path: Path) -> None:
    planned = [run["id"] for run in create(tmp_path / "planned")]
    # The number of steps that it has told when it is killed; with none, it makes the campaign.
    for number, steps in enumerate((0, 1, 2, 3, 9, 16)):
        directory = tmp_path / f"c{number % 3}"
        told, tells = FORKED.Pipe(duplex=False)
        process = FORKED.Process(target=control, args=(directory, tells))
        process.start()
        for _ in range(1 + steps):
            told.recv()
        process.kill()
        process.join()
        for path in directory.rglob("*.json"):
            if not path.name.startswith("."):
                json.loads(path.read_text())
        if not (directory / "campaign.json").exists():
            shutil.rmtree(directory, ignore_errors=True)
            continue
        assert [run["id"] for run in campaigns.read_plan(directory)["runs"]] == planned
        with lock.held(directory):
            recorded = read(directory)
            assert recorded
            assert not [text for text in recorded.broken if "chain" in text]


@contextmanager
def other_process() -> Iterator[int]:
    """The number of a process that lives until then."""
    with subprocess.Popen(["sleep", "60"]) as process:
        try:
            yield process.pid
        finally:
            process.kill()


def test_second_controller_is_refused_while_the_first_lives(tmp_path: Path) -> None:
    create(tmp_path)
    with other_process() as pid:
        lock.acquire(tmp_path, pid)
        told = refusal(lock.acquire, tmp_path)
        assert "another controller works on this campaign" in told
        assert f"on {socket.gethostname()} since 20" in told and f"process {pid}" in told
        lock.acquire(tmp_path, pid)  # its playbook may ask again
        lock.release(tmp_path)  # only the owner can
        assert lock.owner_alive(tmp_path)
        assert call("run", "--resume", tmp_path, status=2).err.startswith("error: ")
    lock.acquire(tmp_path)
    lock.release(tmp_path)
    assert lock.read_owner(tmp_path) is None


def test_playbook_that_runs_alone_has_the_lock_from_its_plan_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(tmp_path)
    with other_process() as playbook:
        monkeypatch.setenv("DLPERF_PLAYBOOK_PID", str(playbook))
        plan_of_playbook({}, resume=str(tmp_path))
        owner = lock.owner_alive(tmp_path)
        assert owner and owner["process"]["pid"] == playbook
        lock.release(tmp_path, playbook)
        assert lock.read_owner(tmp_path) is None


def test_what_a_killed_controller_did_not_record_is_recorded_by_the_next(tmp_path: Path) -> None:
    for run in create(tmp_path):
        end(tmp_path, run, status="done")
    (tmp_path / "ansible.log").write_text("PLAY\n")
    assert rounds.execute_campaign(tmp_path, rounds.Execution([], "", print)) == []
    recorded = read(tmp_path)
    assert recorded and list(changes(tmp_path, recorded)) == []


def test_done_run_that_is_not_recorded_is_told_until_the_playbook_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorded, *others = create(tmp_path)
    for run in (recorded, *others):
        end(tmp_path, run, status="done")
    manifest.seal_run(tmp_path, recorded["id"])
    monkeypatch.setattr("dlperf_runner.control.controllers.Verdicts.reasons_for", lambda *_: {})
    names = ", ".join(run["id"] for run in others)
    said = call("status", tmp_path, status=1).text
    told = f"not recorded in manifest.jsonl: {names}. Resume the campaign to record them"
    assert said.endswith(told)
    with other_process() as playbook:
        monkeypatch.setenv("DLPERF_PLAYBOOK_PID", str(playbook))
        plan_of_playbook({}, resume=str(tmp_path))
    assert "not recorded" not in call("status", tmp_path).both


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        ({"start": "1"}, False),  # another process has its ID now
        ({"boot_id": "before"}, False),  # its machine was restarted
        ({"host": "another-machine"}, True),  # nobody here can tell
        ({}, True),
    ],
)
def test_death_of_an_owner_is_known(
    tmp_path: Path, change: dict[str, str], *, refused: bool
) -> None:
    create(tmp_path)
    with other_process() as pid:
        lock.acquire(tmp_path, pid)
        owner = json.loads((tmp_path / lock.LOCK).read_text())
        owner["process"] |= change
        (tmp_path / lock.LOCK).write_text(json.dumps(owner))
        expected = pytest.raises(UserError, match="another controller")
        with expected if refused else nullcontext():
            lock.acquire(tmp_path)


def test_playbook_of_a_killed_controller_is_waited_for(tmp_path: Path) -> None:
    create(tmp_path)
    ended = subprocess.Popen(["true"])
    with subprocess.Popen(["sleep", "1"]) as playbook:
        lock.acquire(tmp_path, ended.pid, playbook.pid)
        ended.wait()
        lock.acquire(tmp_path)
        assert playbook.poll() is not None


def test_only_one_of_many_controllers_gets_a_dead_one_s_campaign(tmp_path: Path) -> None:
    create(tmp_path)
    ended = subprocess.Popen(["true"])
    lock.acquire(tmp_path, ended.pid)
    ended.wait()
    all_tried = FORKED.Barrier(6)

    def acquire() -> None:
        try:
            lock.acquire(tmp_path)
            status = 0
        except UserError:
            status = 3
        all_tried.wait()  # the owner lives until then
        os._exit(status)

    several = [FORKED.Process(target=acquire) for _ in range(6)]
    for process in several:
        process.start()
    for process in several:
        process.join()
    assert sorted(process.exitcode or 0 for process in several) == [0, 3, 3, 3, 3, 3]


# ---- what remains


def test_what_a_run_was_before_it_is_retried_is_kept(tmp_path: Path) -> None:
    first, *_ = create(tmp_path)
    end(tmp_path, first, status="failed", message="exit status 1")
    campaigns.retry(tmp_path, campaigns.read_record(tmp_path, first))
    outcome = campaigns.read_record(tmp_path, first)["outcome"]
    assert outcome["status"] == "planned"
    assert [each["message"] for each in outcome["earlier"]] == ["exit status 1"]


LOST = {"status": "failed", "reason": "unreachable", "lost": ["node2"], "message": "no route"}
DONE = {"status": "done", "reason": "", "lost": []}


@pytest.fixture
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "RETRY_AFTER_S", 0.0)


def rounds_of(directory: Path, policy: str, back_after: int = 99) -> list[list[str]]:
    """The runs of each round, in which node2 is lost until it comes back."""
    done: list[list[str]] = []

    def execute() -> list[str]:
        done.append([])
        for run in campaigns.remaining_plan(directory)["runs"]:
            done[-1].append(f"{run['nodes']}n{run['gpus_per_node']}g/r{run['repeat']}")
            is_lost = "node2" in run["hosts"] and len(done) <= back_after
            end(directory, run, **(LOST if is_lost else DONE))
        return []

    said: list[str] = []
    rounds.run_rounds(directory, execute, said.append, rounds.Policy(on_node_loss=policy))
    return [*done, said]


@pytest.mark.usefixtures("_at_once")
def test_lost_node_is_tried_again(tmp_path: Path) -> None:
    create(tmp_path)
    first, second, said = rounds_of(tmp_path, "retry", back_after=1)
    assert len(first) == 6
    assert second == ["2n2g/r1", "2n2g/r2"]
    assert said == ["node2 lost: retry 1 of 2 in 0 s"]
    assert not campaigns.missing_runs(tmp_path)


@pytest.mark.usefixtures("_at_once")
def test_node_may_be_lost_again_and_again_as_long_as_runs_are_done(tmp_path: Path) -> None:
    create(tmp_path, nodes="2", repeats=4)

    def execute() -> list[str]:
        """One run is done, then the node is lost."""
        first, *others = campaigns.remaining_plan(tmp_path)["runs"]
        end(tmp_path, first, **DONE)
        for run in others:
            end(tmp_path, run, **LOST)
        return []

    said: list[str] = []
    rounds.run_rounds(tmp_path, execute, said.append)
    assert said == ["node2 lost: retry 1 of 2 in 0 s"] * 3
    assert not campaigns.missing_runs(tmp_path)


@pytest.mark.usefixtures("_at_once")
def test_node_that_stays_lost_is_told_at_the_end(tmp_path: Path) -> None:
    create(tmp_path)
    *done, said = rounds_of(tmp_path, "retry")
    assert [len(each) for each in done] == [6, 2, 2]
    assert len(said) == 2
    assert [run["nodes"] for run in campaigns.missing_runs(tmp_path)] == [2, 2]


def test_plan_shrinks_by_a_revision_that_is_only_added(tmp_path: Path) -> None:
    create(tmp_path)
    before = (tmp_path / "plan.json").read_bytes()
    *done, said = rounds_of(tmp_path, "shrink")
    assert [len(each) for each in done] == [6]
    assert said == ["plan.2.json: 2 runs removed, because node2 is lost"]
    assert (tmp_path / "plan.json").read_bytes() == before
    revision = json.loads((tmp_path / "plan.2.json").read_text())
    assert [name.rpartition("_")[2] for name in revision["removed"]] == ["2n2g/r1", "2n2g/r2"]
    assert not campaigns.missing_runs(tmp_path)
    assert {run["nodes"] for run in campaigns.read_plan(tmp_path)["runs"]} == {1}
    # The records of removed runs stay, and are no difference to the plan.
    assert "2 runs" not in call("summarize", "--verify", tmp_path, "--no-history", status=None).both


def test_policy_ends_the_rounds(tmp_path: Path) -> None:
    create(tmp_path)
    *done, said = rounds_of(tmp_path, "stop")
    assert ([len(each) for each in done], said) == ([6], [])
    told = refusal(rounds.Policy, on_node_loss="pray")
    assert "--on-node-loss: unknown policy 'pray' (expected one of retry" in told
    assert "--stop-after: invalid duration" in refusal(rounds.Policy, stop_after="2 weeks")


def test_time_left_is_that_of_the_runs_of_each_case(tmp_path: Path) -> None:
    planned = create(tmp_path)
    assert time_left(campaigns.read_records(tmp_path), {}) is None
    by_case = dict.fromkeys(run["case"] for run in planned)
    (one, _), (two, also_two), _ = ([r for r in planned if r["case"] == case] for case in by_case)
    for run, seconds in ((one, 10.0), (two, 20.0), (also_two, 20.0)):
        end(tmp_path, run, status="done", elapsed_s=seconds)
    # One more of 10 s, and two of an unknown case: 20 s each, as most runs took.
    assert time_left(campaigns.read_records(tmp_path), {}) == pytest.approx(10 + 2 * 20)


def test_stop_signals_the_controller(tmp_path: Path) -> None:
    create(tmp_path)
    assert stop(tmp_path, now=True) == "no controller works on this campaign"
    for now, number in ((False, signal.SIGINT), (True, signal.SIGTERM)):
        process = subprocess.Popen(["sleep", "60"])
        lock.acquire(tmp_path, process.pid)
        assert f"process {process.pid} stops" in stop(tmp_path, now=now)
        assert process.wait(10) == -number


def start_instead(patch: pytest.MonkeyPatch, scripts: dict[str, str]) -> None:
    """Let shells be the controllers of the campaigns with these names."""

    def detach(directory: Path, _: object) -> subprocess.Popen[bytes]:
        with (directory.parent / f"{directory.name}.log").open("wb") as log:
            argv = ["sh", "-c", scripts[directory.name], str(directory.parent)]
            return subprocess.Popen(argv, stdout=log, cwd=directory.parent)

    patch.setattr(controllers, "detach", detach)
    patch.setattr(controllers, "_end", lambda log: f"{log.parent}.log")


def test_an_error_of_one_of_many_controllers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_instead(monkeypatch, {"a": "exit 0", "b": "exit 2"})
    found = controllers.run_at_once([tmp_path / "a", tmp_path / "b"], [])
    assert found == [f"{tmp_path}/b: {tmp_path}/b.log"]


def test_a_signal_stops_all_controllers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second Ctrl-C stops their runs, too."""
    told = []

    def stop(directory: Path, *, now: bool) -> str:
        told.append((directory.name, now))
        (tmp_path / ("now" if now else "soon")).touch()
        return ""

    until = "until test -e {}; do sleep 0.05; done"
    interrupt = f"{until.format('b.log')}; kill -INT {os.getpid()}; {until.format('soon')};"
    interrupt += f" kill -INT {os.getpid()}; {until.format('now')}"
    start_instead(monkeypatch, {"a": interrupt, "b": until.format("now")})
    monkeypatch.setattr(controllers, "stop", stop)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(Stopped, match="2"):
        controllers.run_at_once([tmp_path / "a", tmp_path / "b"], [])
    assert {("a", False), ("a", True), ("b", True)} <= set(told)
    assert signal.getsignal(signal.SIGINT) == before
