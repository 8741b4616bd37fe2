"""`summarize --verify`: whether the recorded results match the logs."""

import json
from pathlib import Path

import pytest
from command_line import output
from gpu_campaigns import campaign
from make_logs import KNOWN, gluoncv, write

from dlperf_runner.commands.summarize import summarize
from dlperf_runner.commands.verify import verify
from dlperf_runner.core.errors import UserError

RATES = (380.0, 381.0, 383.5)
LAST = "runs/mxnet-resnet50v1b-builtin_fp32_b128_1n1g/r3/rn50_b128_fp32_3.log"


def test_verify_says_what_differs(here: Path) -> None:
    place = campaign(Path("results/one"), RATES)
    output("summarize", place)
    before = {path: path.read_bytes() for path in here.rglob("*") if path.is_file()}
    fine = "everything that was compared is as it was recorded\n"
    assert output("summarize", "--verify", place).endswith(fine)
    assert output("summarize", "--verify", here / place).endswith(fine)
    assert {path: path.read_bytes() for path in here.rglob("*") if path.is_file()} == before

    log = place / LAST
    write(log, gluoncv(379.0))
    out = output("summarize", "--verify", place, status=1)
    assert "samples_per_second_median is 381.0, but 380.0 in the logs" in out
    for name in ("measurements.csv", "history.sqlite"):
        lines = [line for line in out.splitlines() if line.startswith(f"{name}: ")]
        assert any("value is" in line and "383.5" in line and "379.0" in line for line in lines)
        # Of the run, once; not of each of its metrics.
        (line,) = (line for line in lines if "log_sha256" in line)
        assert " fp32 b128 1n1g " in line
        assert " r3: log_sha256 is " in line
    document = json.loads(output("summarize", "--verify", "--json", place, status=1))
    assert [*document["notes"], *document["differences"]] == out.splitlines()[:-1]


def test_verify_sees_what_is_edited_added_and_removed(tmp_path: Path) -> None:
    place = campaign(tmp_path / "one", RATES)
    summarize(place, models=KNOWN)
    assert verify(place, models=KNOWN).differences == []
    path = place / "measurements.csv"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:-1], lines[-1].replace("mxnet", "torch")]))
    found = verify(place, models=KNOWN).differences
    assert len(found) == 3
    assert found[0].startswith("measurements.csv: changed since manifest.jsonl:")
    assert found[1].endswith("recorded, but not in the logs")
    assert found[2].endswith("in the logs, but not recorded")
    path.unlink()
    result = verify(place, models=KNOWN)
    assert [line.startswith("measurements.csv: deleted") for line in result.differences] == [True]
    assert "file not found" in str(result.problems)
    (place / "manifest.jsonl").unlink()
    with pytest.raises(UserError, match="file not found"):
        verify(place, models=KNOWN)


def test_verify_wants_the_history_to_have_the_campaign(tmp_path: Path) -> None:
    place = campaign(tmp_path / "one", RATES)
    summarize(place, models=KNOWN)
    (found,) = verify(place, None, tmp_path / "history.sqlite", KNOWN).differences
    assert found.endswith("this campaign is not recorded")


def test_verify_tells_which_logs_it_does_not_believe(here: Path) -> None:
    place = campaign(Path("results/one"), RATES)
    log = place / LAST
    log.write_bytes(b"\xff\xfe binary")
    output("summarize", place, status=2)
    printed, _, told = output("summarize", "--verify", "--json", place, status=2).partition(
        "error: "
    )
    document = json.loads(printed)
    assert document["differences"] == []
    assert document["problems"] == [told.rstrip()]
    assert told.startswith(str(log))


@pytest.mark.parametrize("place", ["absent", "empty", "file"])
def test_verify_of_what_has_no_record(tmp_path: Path, place: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("text")
    for path in (tmp_path / place, tmp_path / place / "below"):
        message = "no recorded results to compare" if path.exists() else "no such file or directory"
        with pytest.raises(UserError, match=message):
            verify(path)
