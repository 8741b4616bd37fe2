"""The files of a campaign after every order of events."""

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from planned_campaigns import create, end

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.campaign import lock
from dlperf_runner.campaign.manifest import changes, read, seal_run


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
