"""`make drift` finds what newer versions of programs no longer print. It downloads nothing here."""

import zipfile
from pathlib import Path

import pytest
import yaml
from make_logs import ROOT

from tools import drift

ENTRIES = yaml.safe_load(drift.TABLE.read_text(encoding="utf-8"))
METRICS = """
def log(logger, color, step, tps):
    logger.info(f"{color.red}step: {step:2}  {color.blue}tps: {round(tps):,}  "
                "loss: %.2f" % 2)
"""


def wheel(folder: Path, source: str) -> Path:
    path = folder / "torchtitan-0.3.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("torchtitan/components/metrics.py", source)
    return path


@pytest.mark.parametrize(
    ("before", "after", "lost"),
    [
        ("", "", []),
        ("tps: ", "tokens/s: ", ["tps: "]),
        ('  {color.blue}tps: {round(tps):,}  "', '"  # tps: ', ["tps: "]),
        ("step: {step:2}", "{step:2}", ["step: "]),
    ],
)
def test_lost_texts_are_found(tmp_path: Path, before: str, after: str, lost: list[str]) -> None:
    path = wheel(tmp_path, METRICS.replace(before, after, 1) if before else METRICS)
    assert drift.missing(path, ENTRIES[0]) == lost


def test_a_file_that_moved_is_lost(tmp_path: Path) -> None:
    assert drift.missing(wheel(tmp_path, METRICS), ENTRIES[1]) == ENTRIES[1]["texts"]


@pytest.mark.parametrize(("source", "status"), [(METRICS, 0), ("", 1)])
def test_the_exit_status_says_whether_a_format_drifted(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    source: str,
    status: int,
) -> None:
    table = tmp_path / "drift.yml"
    table.write_text(yaml.safe_dump([ENTRIES[0], {**ENTRIES[0], "package": "none"}]))
    monkeypatch.setattr(drift, "TABLE", table)
    wheels = {"torchtitan": wheel(tmp_path, source)}
    monkeypatch.setattr(drift, "newest", lambda package, _: wheels.get(package))
    assert drift.main() == status
    first, second = capsys.readouterr().out.splitlines()
    place = "torchtitan 0.3.0, torchtitan/components/metrics.py"
    verdict = f"NO LONGER in {place}: 'step: ', 'loss: ', 'tps: '" if status else f"as in {place}"
    assert first == f"torchtitan: {verdict}"
    assert second == "torchtitan: not checked, because the index has no wheel of none"


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: f"{entry['format']}-{entry['file']}")
def test_the_texts_are_those_of_the_format(entry: dict[str, list[str]]) -> None:
    module = ROOT / "dlperf_runner" / "logs" / f"{entry['format']}.py"
    source = module.read_text(encoding="utf-8")
    assert [text for text in entry["texts"] if text.strip() not in source] == []
