"""Why runs fail: the catalogue of errors, and what a failed run has in its record."""

import json
from pathlib import Path

import pytest
from command_line import call
from planned_campaigns import create, set_outcome

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.campaign.launch import REASONS
from dlperf_runner.campaign.outcome import explain
from dlperf_runner.catalog.entry import validated
from dlperf_runner.catalog.validity import Cause, Errors, cause_of, causes
from dlperf_runner.core.errors import UserError

EXAMPLES = [(cause, each) for cause in causes() for each in cause.patterns]


@pytest.mark.parametrize(("cause", "each"), EXAMPLES, ids=[e.example[:40] for _, e in EXAMPLES])
def test_each_example_is_recognised(cause: Cause, each: object) -> None:
    text = f"[1,0]<stderr>: a line before\n{each.example}\nand one after"  # type: ignore[attr-defined]
    assert cause_of("", "", [text]) == (cause, each.example.strip() if each.pattern else "")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        ("stopped", "stopped"), ("lease", "stopped"), ("lock", "stopped"),
        ("unreachable", "node lost"), ("hung", "hung"),
        ("hung_at_start", "hung before its first steps"), ("timeout", "time limit"),
        ("", "program failed"),
    ],
)  # fmt: skip
def test_each_end_by_the_supervisor_has_a_category(reason: str, category: str) -> None:
    assert cause_of(reason, "", ["iteration 17\n"])[0].category == category


def test_each_reason_of_a_launch_has_a_category() -> None:
    known = {reason for cause in causes() for reason in cause.reasons}
    # A launch that ends because of another one does not say why the run failed.
    assert {*REASONS} - {"", "peer"} <= known


def test_error_in_the_log_says_more_than_the_hang_that_it_caused() -> None:
    log = "CUDA out of memory. Tried to allocate 22.00 MiB."
    assert cause_of("hung", "", [log])[0].category == "out of GPU memory"
    assert cause_of("stopped", "", [log])[0].category == "stopped"


def test_a_driver_that_oneflow_does_not_find_on_a_cpu_is_no_cause() -> None:
    short = "CUDA driver version is insufficient for CUDA runtime version"
    fatal = "F20261125 03:33:16.208496  3841 socket.cpp:108] Check failed: errno == EAGAIN"
    log = f"""W20261125 03:31:01.372789  3798 cuda_device_descriptor_class.cpp:48] {short}
E20261125 03:31:10.752672  3810 factory.cpp:65] Failed to get cuda runtime version: {short}
{fatal}
subprocess.CalledProcessError: Command died
"""
    cause, line = cause_of("", "node1: exit status 1; the log ends with: Killing 3810", [log])
    assert (cause.category, line) == ("program failed", fatal)


@pytest.mark.parametrize(
    ("log", "category"),
    [
        ("dlperf@node2: Permission denied (publickey).", "ssh refused"),
        ("ssh: connect to host node2 port 22: Connection refused", "ssh refused"),
        ("ssh: Could not resolve hostname node2: Name or service not known", "name resolution"),
        ("node2: Failed to connect via ssh: Host key verification failed.", "node lost"),
    ],
)
def test_ssh_of_mpirun_says_more_than_a_node_that_could_not_be_checked(
    log: str, category: str
) -> None:
    assert cause_of("unreachable", "", [f"{log}\nORTE was unable to"])[0].category == category


def test_advice_may_name_only_keys_of_a_run() -> None:
    cause = {"category": "x", "advice": "use {batch}", "reasons": ["hung"]}
    with pytest.raises(UserError, match="unknown key of a run"):
        validated({"name": "errors", "causes": [cause]}, Errors, "errors.yml")


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    create(tmp_path / "c", nodes="1", gpus_per_node="1", repeats=1)
    return tmp_path / "c"


def test_failed_run_names_its_batch_size_in_record_status_and_summary(campaign: Path) -> None:
    (run,) = campaigns.read_plan(campaign)["runs"]
    message = "node1: exit status 1; the log ends with: Aborted"
    path = set_outcome(campaign, run, status="failed", message=message)
    # The error stands in the middle of a long log of another node.
    error = "MXNetError: cudaMalloc retry failed: out of memory \x1b[2J\n"
    path.with_name(f"{run['log_name']}.node2").write_text("x\n" * 1000 + error + "y\n" * (1 << 20))
    explain(campaign, run["id"])
    recorded = json.loads(path.read_text())["outcome"]
    assert recorded["category"] == "out of GPU memory"
    advice = "2 samples per device (fp32) need more memory than the device has: choose a smaller"
    assert recorded["advice"].startswith(advice)
    assert recorded["advice"].endswith(f". In the log: {error.strip()}")
    for command in ("status", "summarize"):
        out = " ".join(call(command, str(campaign), status=None).out.split())
        assert "out of GPU memory" in out
        assert r"\x1b[2J" in out and "\x1b" not in out  # a terminal would obey it
        assert "choose a smaller --batch-size" in out


def test_done_run_has_no_category(campaign: Path) -> None:
    (run,) = campaigns.read_plan(campaign)["runs"]
    path = set_outcome(campaign, run, status="done")
    before = path.read_bytes()
    explain(campaign, run["id"])
    assert path.read_bytes() == before
