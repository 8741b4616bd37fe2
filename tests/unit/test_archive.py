"""`archive`: what it compresses is read, verified and resumed as before, and damage to it is
reported."""

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from command_line import call, output
from make_logs import KNOWN, campaign_run, gluoncv, write
from planned_campaigns import set_outcome
from recorded_campaign import LOG, replace

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.commands import archive as commands
from dlperf_runner.results.discovery import Skipped, find, run_at
from dlperf_runner.results.named_run import Candidates
from dlperf_runner.results.run_log import evidence_of

SAME = "everything that was compared is as it was recorded\n"


def test_archive_keeps_every_result(campaign: Path) -> None:
    content = (campaign / LOG).read_bytes()
    before = call("summarize", campaign).out
    assert output("archive", campaign).startswith("8 files compressed: ")
    assert not (campaign / LOG).exists()
    assert gzip.decompress((campaign / f"{LOG}.gz").read_bytes()) == content
    # Nothing is written anew: the manifest and its signature hold.
    assert output("summarize", campaign, "--verify").endswith(SAME)
    assert call("summarize", campaign).out == before
    assert output("summarize", campaign, "--verify").endswith(SAME)
    assert call("status", campaign).out == "4 of 4 runs done\n"
    assert campaigns.remaining_plan(campaign)["runs"] == []
    assert call("archive", campaign, "--json").document == {"files": 0, "before": 0, "now": 0}


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def unpack(path: Path) -> None:
    path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))


CHANGED = f"{LOG}: changed since manifest.jsonl"


@pytest.mark.parametrize(
    ("alter", "why"),
    [
        (flip, CHANGED),
        (lambda path: path.write_bytes(gzip.compress(b"another log\n")), CHANGED),
        (lambda path: path.write_bytes(path.read_bytes()[:-9]), CHANGED),
        (Path.unlink, f"{LOG}: deleted since manifest.jsonl"),
        (unpack, f"{LOG}.gz: added"),
    ],
)
def test_damage_is_reported(campaign: Path, alter: Callable[[Path], object], why: str) -> None:
    output("archive", campaign)
    alter(campaign / f"{LOG}.gz")
    told = call("summarize", campaign, "--verify", status=None)
    assert told.status in (1, 2)
    assert why in told.out


def test_interrupted_archive_is_completed(campaign: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller dies when the compressed file is there, and before the original is gone."""
    dies = mock.Mock(side_effect=KeyboardInterrupt)
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(commands, "remove", dies)
        commands.archive(campaign)
    assert len(list(campaign.glob("runs/*/*/*.gz"))) == 1
    output("archive", campaign)
    assert output("summarize", campaign, "--verify").endswith(SAME)


def test_changed_file_is_not_archived(campaign: Path) -> None:
    replace(LOG, "Speed: 1", "Speed: 2")(campaign)
    told = output("archive", campaign, status=2)
    assert "the file was changed since it was recorded" in told
    assert LOG in told
    assert (campaign / LOG).exists()


def test_only_finished_runs_are_archived(campaign: Path) -> None:
    set_outcome(campaign, campaigns.read_plan(campaign)["runs"][0], status="failed")
    output("archive", campaign)
    assert (campaign / LOG).exists()
    assert len(list(campaign.glob("runs/*/*/*.log.gz"))) == 3


def test_evidence_is_read_from_archives(tmp_path: Path) -> None:
    """Telemetry, Xid errors and the lines of NCCL."""
    line = "node1:7:7 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"
    outcome = {"status": "done", "hosts": {}, "gpu_memory_mib": {"node1": {"0": 5}}}
    changes: dict[str, Any] = {"accelerator": "H100", "outcome": outcome}
    folder = campaign_run(tmp_path, "2n1g", 1, [*gluoncv(9.0, world=2), line], **changes)
    write(folder / "telemetry-node1.csv", ["unix_time,device,power_w", "1.0,0,300"])
    write(folder / "xid-node1.csv", ["unix_time,bus_id,xid,message", "1.0,0000:3b:00,79,lost"])

    def evidence() -> Any:
        (place,) = find([tmp_path]).places
        found = run_at(place, Candidates(KNOWN))
        assert not isinstance(found, Skipped)
        return evidence_of(found[0])

    before = evidence()
    assert before.network and before.xids and before.samples
    for path in [*folder.glob("*.csv"), *folder.glob("*.log")]:
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    assert evidence() == before
