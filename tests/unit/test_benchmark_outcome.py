"""The outcome that roles/benchmark_run records for a run."""

from typing import Any

import pytest

from dlperf_runner.campaign.outcome import outcome_of as outcome

ENDED = {
    "exit_status": 0, "reason": "", "started": 0.0, "ended": 12.5, "tail": "", "log_sha256": "a",
}  # fmt: skip


def test_a_run_is_done_when_every_launch_succeeded() -> None:
    assert outcome({"node1": ENDED, "node2": ENDED}, ["node1", "node2"], 60) == {
        "status": "done", "exit_status": 0, "message": None, "log_sha256": "a", "elapsed_s": 12.5,
        "started": "1970-01-01T00:00:00+00:00", "ended": "1970-01-01T00:00:12.500000+00:00",
    }  # fmt: skip


def test_what_all_launches_saw_is_put_together() -> None:
    first = {"gpu_memory_mib": {"node1": {"0": 12565}}, "unsampled_from_s": {"node1": 0.0}}
    other = {"gpu_memory_mib": {"node2": {"1": 12839}}, "unsampled_from_s": {"node2": 340.5}}
    other["beside"] = [{"host": "node2", "pid": 1, "uid": 1000, "command": "sh", "cores": 0.5}]
    found = outcome({"node1": ENDED | first, "node2": ENDED | other}, ["node1", "node2"], 60)
    assert (found["status"], found["beside"]) == ("done", other["beside"])
    for name in first:
        assert found[name] == {**first[name], **other[name]}
    # No device of the run was among those that were seen.
    nothing = outcome({"node1": ENDED | {"gpu_memory_mib": {}}}, ["node1"], 60)
    assert "gpu_memory_mib" not in nothing


def test_one_failed_launch_fails_the_run_and_says_how_its_log_ends() -> None:
    failed = ENDED | {"exit_status": 1, "tail": f"Traceback\nImportError: no mxnet\n{'-' * 74}\n"}
    found = outcome({"node1": ENDED, "node2": failed}, ["node1", "node2"], 60)
    assert (found["status"], found["exit_status"]) == ("failed", 1)
    assert found["message"] == ("node2: exit status 1; the log ends with: ImportError: no mxnet")


def test_an_unreachable_host_has_no_exit_status() -> None:
    lost: dict[str, Any] = {"unreachable": True, "msg": "Connection timed out"}
    assert outcome({"node1": lost}, ["node1"], 60) == {
        "status": "failed", "exit_status": None, "message": "node1: Connection timed out",
        "reason": "unreachable", "lost": ["node1"],
    }  # fmt: skip


DIED = {"failed": True, "lost": True, "msg": "the supervisor of the launch has died"}
UNLAUNCHED = {"failed": True, "msg": "not launched because", "reason": "stopped"}
LEFT = ["node2: process 4711: python", "node3: cannot be checked for processes"]


@pytest.mark.parametrize(
    ("launch", "reason", "lost", "message"),
    [
        (DIED, "unreachable", ["node1"], "node1: the supervisor of the launch has died"),
        (ENDED | {"exit_status": -15, "reason": "timeout"}, "timeout", None, "time limit of 60 s"),
        (ENDED | {"exit_status": -15, "reason": "lease"}, "lease", None, "no longer polled"),
        (ENDED | {"exit_status": -15, "reason": "stopped"}, "stopped", None, "with its campaign"),
        (ENDED | {"exit_status": -15, "reason": "lock"}, "lock", None, "no longer holds"),
        (UNLAUNCHED, "stopped", None, "node1: not launched because"),
        (ENDED | {"left": LEFT}, "unreachable", ["node3"], f"left behind: {LEFT[0]}; node3: "),
    ],
)
def test_run_that_was_stopped_or_lost_its_nodes_failed(
    launch: dict[str, Any], reason: str, lost: list[str] | None, message: str
) -> None:
    found = outcome({"node1": launch}, ["node1"], 60)
    assert (found["status"], found["reason"], found.get("lost")) == ("failed", reason, lost)
    assert message in found["message"]


def test_hang_is_the_reason_and_not_the_launches_that_it_ended() -> None:
    hung = ENDED | {"exit_status": -15, "reason": "hung", "silent_s": 301.2}
    hung["sign"] = "before that one every 2.0 s"
    peer = ENDED | {"exit_status": -15, "reason": "peer"}
    found = outcome({"node1": peer, "node2": hung}, ["node1", "node2"], 60)
    assert found["reason"] == "hung"
    of_peer, of_hung, state = found["message"].split("; ")
    assert of_peer.startswith("node1: ") and "another node's part" in of_peer
    assert of_hung.startswith("node2: ") and f" 301 s, {hung['sign']}" in of_hung
    assert "hang-*.txt" in state
