"""A campaign's state is in its files, and what was cut off can go on."""

import json
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from command_line import output
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from plan_examples import lab_nodes
from planned_campaigns import create, end, set_outcome
from refusals import refusal

from dlperf_runner.campaign import directory as campaign
from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.campaign import lock
from dlperf_runner.campaign.manifest import changes, read, seal_run
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.validity import catalogued_rules
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_a_new_campaign(tmp_path: Path) -> None:
    directory = tmp_path / "results" / "one"
    choice = parse_choice({"workload": "mxnet-resnet50v1b", "nodes": "1,2", "repeats": 2})
    runs = make_plan(choice, load_catalog(), lab_nodes())
    document = campaign.create_campaign(directory, choice, lab_nodes(), runs, NOON)
    plan = json.loads(json.dumps(document))
    assert campaign.read_campaign(directory) == {
        "schema": 1,
        "id": "one",
        "runs": 6,
        "manifest": "manifest.jsonl",
        "choice": plan["choice"],
        "inventory": plan["inventory"],
        "created": "2026-11-21T12:00:00+00:00",
        "validity": catalogued_rules().model_dump(mode="json"),
    }
    assert campaign.read_plan(directory) == plan
    records = campaign.read_records(directory)
    assert [record["id"] for record in records] == [run["id"] for run in document["runs"]]
    assert {record["outcome"]["status"] for record in records} == {"planned"}
    path = directory / "runs" / "mxnet-resnet50v1b-builtin_fp32_b2_2n2g" / "r2" / "run.json"
    assert json.loads(path.read_text())["hosts"] == ["node1", "node2"]
    assert not list(directory.rglob(".*")), "no temporary file is left"


def test_runs_whose_log_or_record_is_lost_remain(tmp_path: Path) -> None:
    runs = create(tmp_path)
    end(tmp_path, runs[0], status="done")
    set_outcome(tmp_path, runs[1], status="done")  # its log is lost
    (campaign.run_directory(tmp_path, runs[2]) / "run.json").unlink()
    remaining = campaign.remaining_plan(tmp_path)
    assert [run["id"] for run in remaining["runs"]] == [run["id"] for run in runs[1:]]
    assert remaining["choice"] == campaign.read_plan(tmp_path)["choice"]


def test_a_campaign_is_not_overwritten(tmp_path: Path) -> None:
    """Before the plan is made, the runner keeps Ansible's output there."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "ansible.log").write_text("PLAY\n")
    create(tmp_path / "c")
    assert (tmp_path / "c" / "ansible.log").read_text() == "PLAY\n"
    told = refusal(create, tmp_path / "c")
    assert "found campaign.json, plan.json, runs" in told and "--resume" in told
    (tmp_path / "file").write_text("")
    assert "cannot create a campaign here" in refusal(create, tmp_path / "file")


def test_names_of_new_campaigns_are_not_taken(tmp_path: Path) -> None:
    first = campaign.new_directory(tmp_path, NOON)
    assert first.name == "20261121T120000Z"
    first.mkdir()
    assert campaign.new_directory(tmp_path, NOON).name == "20261121T120000Z-2"


NO_PLAN = "plan.json: invalid plan file"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"runs": [\n', "plan.json:2: invalid JSON: "),
        (b"[]", "plan.json: the file does not contain a JSON object (found list)"),
        (b'{"runs": 3}', NO_PLAN + " (expected a list `runs` whose entries have id, case,"),
        (b'{"runs": [{"id": 1}]}', NO_PLAN),
        (b'{"runs": [{"id": true, "case": "a", "repeat": 1, "log_name": "b"}]}', NO_PLAN),
        (b"\xff", "plan.json: the file is not UTF-8 (found an invalid byte at 0)"),
    ],
)
def test_a_damaged_plan_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    create(tmp_path)
    (tmp_path / "plan.json").write_bytes(content)
    assert message in refusal(campaign.remaining_plan, tmp_path)


INVALID = "run.json: invalid outcome of a run (expected an object"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "other/r1"}, "run.json: the record has another `id` than the plan (expected mx"),
        ({"outcome": ["done"]}, INVALID),
        ({"outcome": {"status": -1}}, INVALID),
    ],
)
def test_a_damaged_record_is_told(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    run, *_ = create(tmp_path)
    path = campaign.run_directory(tmp_path, run) / "run.json"
    campaign.write_json(path, {**run, "outcome": {"status": "done"}, **changes})
    assert message in output("status", tmp_path, status=2)


def test_what_is_no_campaign_is_told(tmp_path: Path) -> None:
    assert "not a campaign directory" in refusal(campaign.read_plan, tmp_path)


# ---- the files of a campaign after every order of events


class CampaignFiles(RuleBasedStateMachine):
    """A campaign with controllers that come, work and are killed. A model says what is done."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.directory = Path(self.folder.name) / "c"
        self.runs = create(self.directory, nodes="1", repeats=1)
        self.states = {run["id"]: "planned" for run in self.runs}
        self.removed: set[str] = set()
        self.done_once: set[str] = set()

    def teardown(self) -> None:
        self.folder.cleanup()

    def remaining(self) -> list[dict[str, Any]]:
        return campaigns.remaining_plan(self.directory)["runs"]

    @precondition(lambda self: self.remaining())
    @rule(
        number=st.integers(0, 9),
        state=st.sampled_from(["done", "failed", "stopped", "unreachable", "running"]),
    )
    def executed(self, number: int, state: str) -> None:
        """A remaining run ends, or its controller is killed before it does."""
        runs = self.remaining()
        run = runs[number % len(runs)]
        assert run["id"] not in self.done_once, "a run that is done is run again"
        reason = state if state in campaigns.CUT_OFF else ""
        status = "failed" if reason else state
        end(self.directory, run, status=status, reason=reason, message="m")
        if status != "running":
            seal_run(self.directory, run["id"])
        self.states[run["id"]] = state
        self.done_once |= {run["id"]} if state == "done" else set()

    @rule()
    def failed_runs_are_retried(self) -> None:
        for record in campaigns.read_records(self.directory):
            if campaigns.is_failed(record):
                campaigns.retry(self.directory, record)
                self.states[record["id"]] = "planned"

    @precondition(lambda self: self.remaining() and len(self.removed) < 1)
    @rule()
    def plan_shrinks(self) -> None:
        name = self.remaining()[0]["id"]
        campaigns.add_revision(self.directory, [], {}, removed=[name])
        self.removed.add(name)

    @rule(part=st.floats(0, 1))
    def write_is_cut_off(self, part: float) -> None:
        """The controller is killed while it appends to the manifest, or writes a temporary file."""
        path = self.directory / "manifest.jsonl"
        lines = path.read_bytes().splitlines(keepends=True)
        if lines[-1].endswith(b"\n"):
            with path.open("ab") as file:
                # Without its last brace, so that it is incomplete.
                file.write(lines[-1][: int(part * (len(lines[-1]) - 2))])
        (self.directory / ".plan.9.json.4711").write_text('{"runs": [')

    @rule()
    def controller_is_killed(self) -> None:
        ended = subprocess.Popen(["true"])
        lock.acquire(self.directory, ended.pid)
        ended.wait()
        lock.acquire(self.directory)
        lock.release(self.directory)

    @invariant()
    def files_say_what_happened(self) -> None:
        left = {run["id"] for run in self.remaining()}
        ended = {name for name, state in self.states.items() if state in ("done", "failed")}
        assert left == set(self.states) - ended - self.removed
        missing = {run["id"] for run in campaigns.missing_runs(self.directory)}
        assert missing == set(self.states) - self.done_once - self.removed

    @invariant()
    def nothing_that_was_recorded_is_changed(self) -> None:
        manifest = read(self.directory)
        assert manifest
        found = [text for text in changes(self.directory, manifest) if "incomplete" not in text]
        running = [name for name, state in self.states.items() if state == "running"]
        expected = {f"runs/{name}/run.json" for name in running}
        expected |= {".plan.9.json.4711"}  # by a write that was cut off
        assert {text.partition(":")[0] for text in found} <= expected


CampaignFiles.TestCase.settings = settings(
    max_examples=25, stateful_step_count=12, deadline=None, suppress_health_check=list(HealthCheck)
)
TestCampaignFiles = CampaignFiles.TestCase
