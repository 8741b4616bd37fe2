"""The copy of a campaign's results in the folder that the nodes share, made on this machine."""

import json
import sys
from pathlib import Path

import pytest
from executed_modules import HAVE_RUNUSER, playbook

pytestmark = pytest.mark.skipif(not HAVE_RUNUSER, reason="the copy belongs to root")
MISSING = "The results were not copied to"


def share(folder: Path) -> str:
    """What the playbook prints that copies the campaign of the folder to the folder's share."""
    role = {"name": "benchmark_run", "tasks_from": "share.yml"}
    play = {
        "hosts": "all",
        "gather_facts": False,
        "connection": "local",
        "tasks": [{"name": "Share", "ansible.builtin.include_role": role}],
        "vars": {
            "ansible_python_interpreter": sys.executable,
            "benchmark_run_campaign": str(folder / "results/20260101T000000Z"),
            "benchmark_run_shared": str(folder / "share/results"),
        },
    }
    (folder / "play.yml").write_text(json.dumps([play]))
    done = playbook("-i", "node1,", folder / "play.yml", TMPDIR=str(folder / "tmp"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list((folder / "tmp").glob("dlperf-results-*"))
    return " ".join(done.stdout.split())


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    made = tmp_path / "results/20260101T000000Z"
    (made / "runs/case/r1").mkdir(parents=True)
    (made / "plan.json").write_text("{}")
    (made / "ansible.log").write_text("still written to")
    log = made / "runs/case/r1/train.log"
    log.write_text("step 1\n")
    log.chmod(0o600)
    (tmp_path / "tmp").mkdir()
    return made


def test_every_user_of_the_cluster_can_read_the_results(tmp_path: Path, campaign: Path) -> None:
    (tmp_path / "share").mkdir()
    assert MISSING not in share(tmp_path)
    copy = tmp_path / "share/results" / campaign.name
    found = sorted(str(path.relative_to(copy)) for path in copy.rglob("*") if path.is_file())
    assert found == ["plan.json", "runs/case/r1/train.log"]
    for path in (copy, *copy.rglob("*")):
        assert path.stat().st_uid == 0
        assert path.stat().st_mode & 0o777 == (0o755 if path.is_dir() else 0o644)
    # A resumed campaign.
    (campaign / "plan.json").write_text('{"runs": []}')
    assert MISSING not in share(tmp_path)
    assert (copy / "plan.json").read_text() == '{"runs": []}'


def test_where_the_folder_is_not_mounted_nothing_is_written_and_the_campaign_goes_on(
    tmp_path: Path, campaign: Path
) -> None:
    output = share(tmp_path)
    assert MISSING in output
    assert f"They are in {campaign} on the controller" in output
    assert not (tmp_path / "share").exists()
