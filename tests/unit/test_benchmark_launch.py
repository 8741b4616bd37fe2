"""What the controller believes of a node's answer: nothing that it has not checked."""

import base64
import errno
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from modules import load

from dlperf_runner.campaign import launch

plugin = load("roles/benchmark_run/action_plugins/benchmark_launch.py")

JOB = {
    "directory": "/opt/r1", "log": "train.log", "log_limit_mib": 1, "telemetry_limit_mib": 1,
    "sample_hosts": {"node1": "", "../x\n": "node2"}, "host": "node1",
}  # fmt: skip


def packed(data: bytes) -> str:
    return base64.b64encode(zlib.compress(data)).decode()


def described(data: bytes, **changes: Any) -> dict[str, Any]:
    content = {"identity": "1:2", "content": packed(data)}
    return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **content, **changes}


def no_part(**which: Any) -> object:
    raise AssertionError(which)


def fetched(tmp_path: Path, files: object) -> dict[str, Any]:
    found: dict[str, Any] = launch.fetched(files, JOB, tmp_path / "runs/case/r1/rn50.log", no_part)
    return found


@pytest.fixture(autouse=True)
def run(tmp_path: Path) -> Path:
    path = tmp_path / "runs/case/r1"
    path.mkdir(parents=True)
    return path


def test_files_get_the_names_that_the_controller_knows(tmp_path: Path, run: Path) -> None:
    names = ["telemetry-node1.csv", "xid-.._x_.csv"]
    forged = ["../owned", "run.json", "telemetry-node9.csv", "a\nb.csv", "telemetry-../x\n.csv"]
    files = {name: described(b"x") for name in names + forged}
    found = fetched(tmp_path, {"train.log": described(b"log"), **files})
    assert found["log_sha256"] == hashlib.sha256(b"log").hexdigest()
    assert "refused" not in found
    assert sorted(path.name for path in run.iterdir()) == ["rn50.log", *names]
    files_there = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert files_there == ["rn50.log", *names]


@pytest.mark.parametrize(
    "entry",
    [
        None, "x", [], {}, {"refused": ["x"]}, {"size": 3},
        described(b"log", size=-1), described(b"log", size="3"), described(b"log", size=2),
        described(b"log", size=4), described(b"log", size=1 << 60), described(b"log", sha256=None),
        described(b"log", sha256="0" * 64), described(b"log", content="$"),
        described(b"log", content=None), described(b"log", content=packed(b"log")[:4]),
        described(b"log", content=packed(b"\0" * (1 << 24))),  # unpacks to 16 MiB, 1 is allowed
        {"refused": "\x1b[2Jno\nwhy" + "x" * 9999},
    ],
)  # fmt: skip
def test_a_forged_file_leaves_nothing(tmp_path: Path, run: Path, entry: object) -> None:
    found = fetched(tmp_path, {"train.log": entry})
    (why,) = found["refused"]
    # What a node gives as the reason is short and of one line.
    given = " [2Jno why" if "x" * 9999 in str(entry) else ""
    assert why.startswith(f"train.log was not fetched: {given}")
    assert why.isprintable() and len(why) < 700
    assert "log_sha256" not in found
    assert list(run.iterdir()) == []


def test_parts_must_be_as_long_as_asked_for(run: Path) -> None:
    entry = {**described(b"x" * 99)}
    del entry["content"]
    part = mock.Mock(return_value=packed(b"x" * 98))
    found = launch.fetched({"train.log": entry}, JOB, run / "rn50.log", part)
    short = "train.log was not fetched: received 98 bytes instead of the announced 99"
    assert found["refused"] == [short]
    part.assert_called_once_with(path="/opt/r1/train.log", identity="1:2", offset=0, count=99)
    assert list(run.iterdir()) == []


ENDED = {"exit_status": 0, "reason": "", "started": 1.0, "ended": 2.5, "tail": "end"}


def test_what_ended_well_is_taken_as_it_is() -> None:
    memory = {"node1": {"0": 12565}}
    seen = {"gpu_memory_mib": memory, "unsampled_from_s": {"node1": 2.5}}
    answer = {**ENDED, **seen, "destination": "/etc/shadow", "log_sha256": "f"}
    expected = {**ENDED, **seen, "changed": True, "finished": True}
    assert launch.checked(answer, {"node1": ""}) == expected


@pytest.mark.parametrize(
    "forged",
    [
        {"exit_status": None}, {"exit_status": "0"}, {"reason": None}, {"reason": "x" * 99},
        {"started": "yesterday"}, {"started": None}, {"ended": float("nan")}, {"ended": 1e300},
        {"started": -1}, {"gpu_memory_mib": 7}, {"gpu_memory_mib": {"node1": [1]}},
        {"gpu_memory_mib": {"node1": {"0": "9" * 9999}}}, {"gpu_memory_mib": {"node1": {"a": 1}}},
        {"unsampled_from_s": {"node1": "nan"}}, {"unsampled_from_s": 7},
    ],
)  # fmt: skip
def test_forged_values_are_refused(forged: dict[str, Any]) -> None:
    with pytest.raises(launch.DAMAGED):
        launch.checked({**ENDED, **forged}, {"node1": ""})


# ---- the calls of a launch

COMMAND = {"host": "node1", "argv": ["train"], "env": {}, "cwd": "", "cleanup": []}
RUN = {
    "id": "case/r1", "log_name": "rn50.log", "accelerator": "cpu", "gpus_per_node": 1,
    "timeout_s": 600, "hung_after_s": 0, "hung_after_lines": 20, "first_step_s": 0,
    "hosts": ["node1", "node2"], "commands": [COMMAND],
}  # fmt: skip
# As ansible-core 2.16 gives numbers in a templated dictionary: as texts.
SETTINGS = {
    "directory": "/opt", "keep": "50", "wait_s": "5", "lease_s": "90", "sample_s": "0",
    "lock_directory": "/run/dlperf", "lock_lease_s": "120", "most_cores_beside": "0.2",
    "idle_wait_s": "0", "log_limit_mib": "1", "telemetry_limit_mib": "1",
}  # fmt: skip
RUNNING = {"finished": False, "tail": "step 1"}
FINISHED = {**ENDED, "finished": True, "files": {"rn50.log": described(b"log")}}


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(plugin, "time", made)
    monkeypatch.setattr(plugin.ActionBase, "run", lambda *_: {})
    return made


def launched(run: Path, clock: Clock, *answers: Any) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The result of a launch whose calls get these answers, 5 s each, and the calls."""
    calls: list[dict[str, Any]] = []
    rest = iter(answers)

    def execute(_: str, module_args: dict[str, Any], **__: Any) -> dict[str, Any]:
        calls.append(dict(module_args))
        clock.now += 5
        answer = next(rest)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    action = plugin.ActionModule.__new__(plugin.ActionModule)
    arguments = {"run": RUN, "campaign": str(run.parents[2]), "lock": {}, "settings": SETTINGS}
    action._task = type("Task", (), {"args": arguments})()
    action._execute_module = execute
    return action.run(task_vars={"inventory_hostname": "node1"}), calls


def test_broken_connection_is_tried_again_while_the_lease_holds(run: Path, clock: Clock) -> None:
    lost = plugin.AnsibleConnectionFailure("no route to host")
    result, calls = launched(run, clock, RUNNING, lost, lost, FINISHED)
    assert result["exit_status"] == 0
    assert [call.get("launched", False) for call in calls] == [False, True, True, True]
    assert len({call["launch"]["launch"] for call in calls}) == 1
    result, calls = launched(run, clock, RUNNING, *[lost] * 30)
    assert (result["unreachable"], result["msg"]) == (True, "no route to host")
    assert 12 <= len(calls) <= 16  # of 5 s and 2 s, until 90 s after the last answer
    result, calls = launched(run, clock, lost)
    assert (result["unreachable"], len(calls)) == (True, 1)


@pytest.mark.parametrize(
    ("told", "kept"),
    [
        ({}, True),
        ({"power_w": None}, True),
        ({"temperature_c": "hot"}, False),
        ({"device": "x"}, False),
        ({"power_w": "nan"}, False),
    ],
)
def test_progress_has_the_last_samples(
    run: Path, clock: Clock, told: dict[str, Any], kept: bool
) -> None:
    device = {"device": 0, "memory_used_mib": 5.0, "temperature_c": 61.0, "power_w": 300.0}
    device |= {"utilization_percent": 97.0, **told}
    seen = []

    class Reading(Clock):
        def monotonic(self) -> float:
            if (run / "progress.json").exists():
                seen.append(json.loads((run / "progress.json").read_text()))
            return super().monotonic()

    plugin.time = Reading()
    launched(run, clock, {**RUNNING, "devices": [{"host": "node1", **device}]}, FINISHED)
    assert seen[0]["tail"] == "step 1"
    assert seen[0]["devices"] == ([{"node": "node1", **device}] if kept else [])
    assert not (run / "progress.json").exists()


def test_launch_whose_peer_failed_is_stopped_after_a_while(run: Path, clock: Clock) -> None:
    launched(run, clock, RUNNING, FINISHED)
    assert not (run / ".failed").exists()
    launched(run, clock, RUNNING, {**FINISHED, "exit_status": 1})
    assert (run / ".failed").exists()
    _, calls = launched(run, clock, *[RUNNING] * 8, FINISHED)
    assert [call["order"] for call in calls] == [""] * 6 + ["peer"] * 3


def test_a_full_disk_ends_no_launch(
    run: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The progress is for the eye."""
    full = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(plugin, "write_whole", mock.Mock(side_effect=full))
    result, calls = launched(run, clock, RUNNING, RUNNING, FINISHED)
    assert (result["exit_status"], len(calls)) == (0, 3)
    assert not (run / "progress.json").exists()


def test_what_a_stop_prevents_or_breaks_is_stopped(
    tmp_path: Path, run: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run with this reason is run again when its campaign is resumed."""
    stop = tmp_path / "stop"
    monkeypatch.setenv("DLPERF_STOP", str(stop))
    failed = {"failed": True, "msg": "the module was killed"}
    assert "reason" not in launched(run, clock, failed)[0]
    stop.write_text("now")
    result, calls = launched(run, clock)
    assert (result["failed"], result["reason"], calls) == (True, "stopped", [])
    stop.write_text("finish")  # the signal also reaches the first call's ssh
    assert "reason" not in launched(run, clock, failed, failed)[0]

    class Signal(Clock):
        def monotonic(self) -> float:
            stop.write_text("now" if self.now >= 5 else "")
            return self.now

    stop.write_text("")
    monkeypatch.setattr(plugin, "time", Signal())
    result, calls = launched(run, plugin.time, failed, failed)
    assert (result["reason"], len(calls)) == ("stopped", 2)
