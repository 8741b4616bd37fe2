"""A campaign's state is in its files, and what was cut off can go on."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from command_line import output
from plan_examples import lab_nodes
from planned_campaigns import create, end, set_outcome

from dlperf_runner.campaign import directory as campaign
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.validity import catalogued_rules
from dlperf_runner.core.errors import UserError
from dlperf_runner.plan.choice import parse_choice
from dlperf_runner.plan.make import make_plan

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def test_a_new_campaign(tmp_path: Path) -> None:
    directory = tmp_path / "results" / "one"
    choice = parse_choice({"workload": "mxnet-resnet50v1b", "nodes": "1,2", "repeats": 2})
    runs = make_plan(choice, load_catalog(), lab_nodes())
    document = campaign.create_campaign(directory, choice, lab_nodes(), runs, NOON)
    assert campaign.read_campaign(directory) == {
        "schema": 1,
        "id": "one",
        "created": "2026-11-21T12:00:00+00:00",
        "choice": json.loads(json.dumps(document["choice"])),
        "inventory": json.loads(json.dumps(document["inventory"])),
        "runs": 6,
        "manifest": "manifest.jsonl",
        "validity": catalogued_rules().model_dump(mode="json"),
    }
    assert campaign.read_plan(directory) == json.loads(json.dumps(document))
    records = campaign.read_records(directory)
    assert [record["id"] for record in records] == [run["id"] for run in document["runs"]]
    assert {record["outcome"]["status"] for record in records} == {"planned"}
    path = directory / "runs" / "mxnet-resnet50v1b-builtin_fp32_b2_2n2g" / "r2" / "run.json"
    assert json.loads(path.read_text())["hosts"] == ["node1", "node2"]
    assert not list(directory.rglob(".*")), "no temporary file is left"


def test_what_remains_is_the_plan_minus_what_is_done(tmp_path: Path) -> None:
    runs = create(tmp_path / "c")
    assert len(campaign.remaining_plan(tmp_path / "c")["runs"]) == 6
    end(tmp_path / "c", runs[0], status="done")
    end(tmp_path / "c", runs[1], status="failed")
    end(tmp_path / "c", runs[2], status="running")
    set_outcome(tmp_path / "c", runs[3], status="done")  # its log is lost
    (campaign.run_directory(tmp_path / "c", runs[4]) / "run.json").unlink()
    remaining = campaign.remaining_plan(tmp_path / "c")
    assert [run["id"] for run in remaining["runs"]] == [run["id"] for run in runs[2:]]
    assert remaining["choice"] == campaign.read_plan(tmp_path / "c")["choice"]


def test_a_campaign_is_not_overwritten(tmp_path: Path) -> None:
    create(tmp_path / "c")
    with pytest.raises(UserError, match=r"found campaign\.json, plan\.json, runs") as caught:
        create(tmp_path / "c")
    assert "--resume" in str(caught.value)
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot create a campaign here"):
        create(tmp_path / "file")


def test_a_directory_with_other_things_can_become_one(tmp_path: Path) -> None:
    """The runner keeps Ansible's output there before the plan is made."""
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "ansible.log").write_text("PLAY\n")
    create(tmp_path / "c")
    assert (tmp_path / "c" / "ansible.log").read_text() == "PLAY\n"


def test_names_of_new_campaigns_are_not_taken(tmp_path: Path) -> None:
    first = campaign.new_directory(tmp_path, NOON)
    assert first.name == "20261121T120000Z"
    first.mkdir()
    assert campaign.new_directory(tmp_path, NOON).name == "20261121T120000Z-2"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"runs": [\n', "plan.json:2: invalid JSON: "),
        (b"[]", "plan.json: the file does not contain a JSON object (found list)"),
        (
            b'{"runs": 3}',
            "plan.json: invalid plan file (expected a list `runs` whose entries have id, case,",
        ),
        (b'{"runs": [{"id": 1}]}', "plan.json: invalid plan file"),
        (
            b'{"runs": [{"id": true, "case": "a", "repeat": 1, "log_name": "b"}]}',
            "plan.json: invalid plan file",
        ),
        (b"\xff", "plan.json: the file is not UTF-8 (found an invalid byte at 0)"),
    ],
)
def test_a_damaged_plan_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    create(tmp_path / "c")
    (tmp_path / "c" / "plan.json").write_bytes(content)
    with pytest.raises(UserError) as caught:
        campaign.remaining_plan(tmp_path / "c")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"id": "other/r1"}, "run.json: the record has another `id` than the plan (expected mx"),
        ({"outcome": ["done"]}, "run.json: invalid outcome of a run (expected an object"),
        ({"outcome": {"status": -1}}, "run.json: invalid outcome of a run (expected an object"),
    ],
)
def test_a_damaged_record_is_told(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    run, *_ = create(tmp_path / "c")
    path = campaign.run_directory(tmp_path / "c", run) / "run.json"
    campaign.write_json(path, {**run, "outcome": {"status": "done"}, **changes})
    assert message in output("status", tmp_path / "c", status=2)


def test_what_is_no_campaign_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a campaign directory"):
        campaign.read_plan(tmp_path)
