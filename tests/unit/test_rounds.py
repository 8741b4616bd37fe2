"""Adaptive repeats: a plan grows by revisions until every interval is narrow enough."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from command_line import call
from make_logs import gluoncv, write
from planned_campaigns import set_outcome
from refusals import refusal

from dlperf_runner.campaign import directory as campaign
from dlperf_runner.campaign import execute as execution
from dlperf_runner.campaign import manifest
from dlperf_runner.catalog.reader import load_catalog, own_workloads
from dlperf_runner.control import campaigns
from dlperf_runner.control.rounds import case_samples, more_runs, run_rounds
from dlperf_runner.core.errors import Stopped
from dlperf_runner.core.frame import make_frame
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.results.load import load_results
from dlperf_runner.stats.intervals import median_interval
from dlperf_runner.stats.sequential import relative_half_width, wanted_repeats

pytestmark = pytest.mark.usefixtures("lab")
STEADY = "mxnet-resnet50v1b-builtin_fp32_b2_1n1g"
UNSTEADY = "mxnet-resnet50v1b-builtin_fp32_b2_1n2g"
# The speeds of the repeats: the first within 0.1 %, the other within 5 % at first.
SPEEDS: dict[str, Callable[[int], float]] = {
    STEADY: lambda repeat: 100 + repeat / 50,
    UNSTEADY: lambda repeat: 190 + repeat / 50 + (10 if repeat in (2, 3) else 0),
}


def create(directory: Path, **options: object) -> Path:
    texts = {"model": "resnet50v1b", "nodes": 1, "until_ci": "1%", **options}
    campaigns.plan(parse_choice(texts), campaign=str(directory))
    return directory


def carry_out(directory: Path, fails: Sequence[str] = (), stop_after: int = 99) -> list[list[str]]:
    """A stand-in for bench.yml, which leaves logs of the speeds above; it notes what it ran."""
    rounds: list[list[str]] = []

    def execute() -> list[str]:
        rounds.append([])
        for run in campaign.remaining_plan(directory)["runs"]:
            if len(rounds[-1]) == stop_after:
                raise Stopped(15, "resume")
            rounds[-1].append(run["id"].removeprefix("mxnet-resnet50v1b-builtin_fp32_b2_"))
            finish(directory, run, "failed" if run["id"] in fails else "done")
        return ["node1: it broke"] if fails else []

    run_rounds(directory, execute, lambda line: rounds.append([line]))
    return rounds


def finish(directory: Path, run: Mapping[str, Any], status: str) -> None:
    record = set_outcome(directory, run, status=status, exit_status=0, hosts={"node1": {}})
    speed = SPEEDS[run["case"]](run["repeat"])
    world = run["world_size"]
    log = gluoncv(speed, batch=2, world=world, steps=run["total_steps"], warmup=run["warmup_steps"])
    write(record.with_name(run["log_name"]), log)


def runs_of(*topologies: str, repeats: Sequence[int]) -> list[str]:
    return [f"{topology}/r{repeat}" for repeat in repeats for topology in topologies]


def test_rounds_until_every_interval_is_narrow(tmp_path: Path) -> None:
    directory = create(tmp_path / "c", repeats=3)
    before = (directory / "plan.json").read_bytes()
    one_more = "plan.{}.json: 1 more run of 1 case".format
    assert carry_out(directory) == [
        runs_of("1n1g", "1n2g", repeats=(1, 2, 3)),
        ["plan.2.json: 4 more runs of 2 cases"],
        # Fewer than 5 runs have no interval, however close they are.
        runs_of("1n1g", "1n2g", repeats=(4, 5)),
        *(line for n in range(6, 13) for line in ([one_more(n - 3)], [f"1n2g/r{n}"])),
    ]
    # By the order statistics: of 12 runs the third highest bounds the interval, so that the two
    # fast ones are beyond it; of 11 the second.
    values = [SPEEDS[UNSTEADY](repeat) for repeat in range(1, 13)]
    interval = median_interval(values)
    assert (interval.high - interval.low) / 2 / 190 < 0.01
    assert relative_half_width(values[:11]) > 0.01
    # What was planned is never changed; each revision says why it is there.
    assert (directory / "plan.json").read_bytes() == before
    second, third = (json.loads((directory / f"plan.{n}.json").read_text()) for n in (2, 3))
    assert (second["revision"], len(second["runs"])) == (2, 4)
    unknown = {"valid_runs": 3, "relative_half_width": None, "wanted_repeats": 5}
    assert second["reasons"][UNSTEADY] == unknown
    assert list(third["reasons"]) == [UNSTEADY]
    width = third["reasons"][UNSTEADY]["relative_half_width"]
    assert width == pytest.approx((200.06 - 190.02) / 2 / 190.1)
    assert len(campaign.read_plan(directory)["runs"]) == 17
    assert len(campaign.read_records(directory)) == 17
    # A new run is a repeat of the others: it differs in what has its number in it only.
    first, last = (
        json.loads((directory / "runs" / UNSTEADY / f"r{n}" / "run.json").read_text())
        for n in (1, 12)
    )
    differing = {name for name in first if first[name] != last[name]}
    assert differing <= {"id", "repeat", "log_name", "commands"}


def test_an_interrupted_campaign_resumes_with_its_revisions(tmp_path: Path) -> None:
    directory = create(tmp_path / "c", repeats=5, max_repeats=7)
    with pytest.raises(Stopped):
        carry_out(directory, stop_after=3)
    # Nothing is added to what is not done.
    assert campaign.revisions(directory) == []
    left = carry_out(directory)
    assert left[0] == [*runs_of("1n2g", repeats=(2,)), *runs_of("1n1g", "1n2g", repeats=(3, 4, 5))]
    assert left[1:4] == [
        ["plan.2.json: 1 more run of 1 case"],
        ["1n2g/r6"],
        ["plan.3.json: 1 more run of 1 case"],
    ]
    # Cut off within a revision: its run is what is left, and the next revision follows it.
    (directory / "plan.3.json").unlink()
    (campaign.run_directory(directory, {"case": UNSTEADY, "repeat": 6}) / "run.json").unlink()
    (tmp_path / "c" / "runs" / UNSTEADY / "r7" / "run.json").unlink()
    again = carry_out(directory)
    assert again[0] == ["1n2g/r6"]
    assert again[1:3] == [["plan.3.json: 1 more run of 1 case"], ["1n2g/r7"]]


def test_a_failed_run_ends_the_rounds(tmp_path: Path) -> None:
    directory = create(tmp_path / "c", repeats=5)
    assert len(carry_out(directory, fails=[f"{STEADY}/r2"])) == 1
    assert campaign.revisions(directory) == []
    assert [run["id"] for run in campaign.missing_runs(directory)] == [f"{STEADY}/r2"]
    (record,) = [each for each in campaign.read_records(directory) if campaign.is_failed(each)]
    campaign.retry(directory, record)


def test_without_until_ci_nothing_is_added(tmp_path: Path) -> None:
    directory = create(tmp_path / "c", repeats=2, until_ci="")
    assert len(carry_out(directory)) == 1
    assert campaign.revisions(directory) == []


def test_run_adds_rounds_and_resumes_by_what_the_campaign_recorded(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def execute(
        directory: Path, inventories: list[str], wait: str, *_: object, **__: object
    ) -> list[str]:
        assert (inventories, wait) == ([str(here / "inv")], "1m")
        remaining = campaign.remaining_plan(directory)["runs"]
        asked.append(len(remaining))
        for run in remaining:
            finish(directory, run, "failed" if len(asked) == 2 else "done")
        return []

    monkeypatch.setattr(execution, "execute", execute)
    (here / "inv").touch()
    options = ["--model", "resnet50v1b", "--nodes", "1", "--repeats", "5", "--max-repeats", "6"]
    common = ["-i", "inv", "--wait", "1m"]
    argv = ["run", *options, "--until-ci", "1%", "--campaign", "results/one", *common]
    done = call(*argv, status=1)
    assert asked == [10, 1]
    assert "plan.2.json: 1 more run of 1 case" in done.err
    done = call("run", "--resume", "results/one", *common, status=1)
    assert asked == [10, 1]  # a failed run is run again only on request
    done = call("run", "--resume", "results/one", "--retry-failed", *common)
    assert asked == [10, 1, 1]
    assert "after 6 valid runs, wider than --until-ci 1%" in done.err


def test_the_playbook_alone_names_the_command_that_adds_repeats() -> None:
    variables = {"until_ci": "1%", "model": "resnet50v1b", "parameters": {"classes": 10}}
    told = refusal(campaigns.plan_of_playbook, variables, ["inv"], "node1")
    assert "-e until_ci=1%: bench.yml alone" in told
    command = "dlperf run --model=resnet50v1b --order=interleaved --until-ci=1%"
    assert f"`dlperf run` does: {command} --parameter=classes=10" in told
    assert "--inventory=inv --limit=node1" in told


def test_revisions_are_numbered_and_in_the_manifest(tmp_path: Path) -> None:
    directory = create(tmp_path / "c", repeats=1)
    plan = campaign.read_plan(directory)
    runs = more_runs(plan, {UNSTEADY: 3}, load_catalog(), "plan.json")
    assert [run["id"] for run in runs] == [f"{UNSTEADY}/r2", f"{UNSTEADY}/r3"]
    for run in runs:
        campaign.add_revision(directory, [run], {})
    second, third = (directory / f"plan.{number}.json" for number in (2, 3))
    assert campaign.revisions(directory) == [second, third]
    planned_ids = [run["id"] for run in campaign.read_plan(directory)["runs"]]
    assert planned_ids[-2:] == [f"{UNSTEADY}/r2", f"{UNSTEADY}/r3"]
    recorded = manifest.read(directory)
    assert recorded is not None
    assert list(manifest.changes(directory, recorded)) == []
    content = second.read_bytes()
    second.write_bytes(third.read_bytes())
    changed = list(manifest.changes(directory, recorded))
    assert changed == ["plan.2.json: changed since manifest.jsonl:2 recorded it"]
    third.write_bytes(content)
    second.write_bytes(content)
    assert f"planned twice (found {UNSTEADY}/r2" in refusal(campaign.remaining_plan, directory)
    third.write_bytes(content[:-9])
    assert re.search(
        r"plan\.3\.json:\d+: invalid JSON", refusal(campaign.remaining_plan, directory)
    )
    second.unlink()
    missing = "missing (expected plan.2.json, found plan.3.json"
    assert missing in refusal(campaign.read_plan, directory)


def test_runs_of_another_catalogue_are_no_repeats(tmp_path: Path) -> None:
    plan = campaign.read_plan(create(tmp_path / "c", repeats=1))
    plan["runs"][1]["total_steps"] = 13
    told = refusal(more_runs, plan, {UNSTEADY: 2}, load_catalog(), "c/plan.json")
    assert "c/plan.json: the choice, the catalogue or this program has changed" in told
    assert f"expected total_steps 13 of {UNSTEADY}/r1, found 12" in told
    # Cases that get no more runs do not matter.
    assert more_runs(plan, {STEADY: 2}, load_catalog(), "c/plan.json")


@pytest.mark.parametrize(
    ("values", "planned_repeats", "wanted"),
    [
        ([], 5, None),  # none is valid: more would be no better
        ([100.0], 1, 5),
        ([100.0, 100.0, 100.0, 100.0], 4, 5),
        ([100.0, 100.5, 101.0, 101.5, 102.0], 5, None),  # ± 1 / 101
        ([100.0, 100.5, 101.0, 101.5, 103.0], 5, 6),  # ± 1.5 / 101
        ([100.0, 100.5, 101.0, 101.5, 103.0], 7, 8),  # two runs of seven are invalid
        ([100.0, 100.5, 101.0, 101.5, 103.0], 20, None),
        ([100.0], 19, 20),
    ],
)
def test_wanted_repeats(values: list[float], planned_repeats: int, wanted: int | None) -> None:
    assert wanted_repeats(values, planned_repeats, 0.01, 20) == wanted


def test_environments_are_not_pooled(tmp_path: Path) -> None:
    directory = create(tmp_path / "c", repeats=2)
    for run in campaign.read_plan(directory)["runs"]:
        finish(directory, run, "done")
    frame = load_results(directory).frame
    plan = campaign.read_plan(directory)
    assert case_samples(frame, plan, own_workloads())[STEADY] == [100.02, 100.04]
    frame.loc[(frame["gpus_per_node"] == 1) & (frame["repeat"] == 2), "driver"] = "550"
    assert case_samples(frame, plan, own_workloads()) == {
        STEADY: [100.04],
        UNSTEADY: [190.02, 200.04],
    }
    assert case_samples(make_frame([], []), plan, own_workloads()) == {STEADY: [], UNSTEADY: []}
