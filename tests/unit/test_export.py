"""Results in the formats of other programs, read back with their own libraries."""

import importlib.util
import json
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from captured import captured
from command_line import call
from make_logs import ROOT, gluoncv, write
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics
from prometheus_client.parser import text_string_to_metric_families as prometheus
from report_examples import mxnet_campaign

from dlperf_runner.core.files import write_json
from dlperf_runner.core.frame import records
from dlperf_runner.export.record import exported_cases
from dlperf_runner.results.load import load_results
from dlperf_runner.stats.summary import summarize

# The medians of the published runs of MXNet ResNet50-v1b, by devices.
MEDIANS = {1: 384.19, 2: 749.04, 4: 1494.58, 8: 2556.03, 16: 4855.34, 32: 9579.74}


def campaign(directory: Path, created: str, **more: object) -> Path:
    """The published runs; one failed, so the exit status is 1."""
    mxnet_campaign(directory)
    record = json.loads((directory / "campaign.json").read_text())
    write_json(directory / "campaign.json", {**record, "created": created, **more})
    return directory


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("old") / "results" / "old"
    tags = {"tags": ["driver", "trial"], "notes": "before the update"}
    return campaign(directory, "2026-01-02T03:04:05+00:00", id="old", **tags)


@pytest.fixture(scope="module")
def new(old: Path) -> Path:
    """The same a month later; the case with 32 devices is twice as fast."""
    directory = campaign(old.parent / "new", "2026-02-02T03:04:05+00:00", id="new")
    for log in directory.glob("runs/*_4n8g/*/*.log"):
        write(log, gluoncv(2 * 9579.74))
    return directory


def exported(form: str, *sources: Path, status: int = 1) -> dict[str, list[Any]]:
    """The samples of an export by name, as its own library reads them."""
    read = {"prometheus": prometheus, "openmetrics": openmetrics}[form]
    text = call("export", form, *sources, status=status).out
    return {family.name: family.samples for family in read(text)}


def test_prometheus_reads_the_text_file(old: Path) -> None:
    found = exported("prometheus", old)
    rates = found["dlperf_throughput_samples_per_second"]
    assert {int(s.labels["world_size"]): round(s.value, 2) for s in rates} == MEDIANS
    assert {s.labels["workload"] for s in rates} == {"mxnet-resnet50v1b"}
    assert {s.labels["accelerator"] for s in rates} == {"V100-SXM2-16GB"}
    assert all(s.timestamp is None for several in found.values() for s in several)
    (speedup,) = [s for s in found["dlperf_speedup_ratio"] if s.labels["world_size"] == "32"]
    assert speedup.value == pytest.approx(9579.74 / 384.19, rel=1e-4)
    # 12570 MiB is the largest peak of the campaign's devices.
    assert {s.value for s in found["dlperf_gpu_memory_peak_bytes"]} == {12570 * 2**20}
    runs = {s.labels["state"]: s.value for s in found["dlperf_campaign_runs"]}
    assert runs == {"counted": 30, "not counted": 1, "missing": 0, "damaged": 0}
    (made,) = found["dlperf_campaign_created_timestamp_seconds"]
    assert made.labels == {"campaign": "old", "tags": "driver,trial"}


def test_a_series_in_the_text_file_has_its_newest_value(old: Path, new: Path) -> None:
    for order in ((old, new), (new, old)):
        found = exported("prometheus", *order)
        rates = found["dlperf_throughput_samples_per_second"]
        by_size = {int(s.labels["world_size"]): s.value for s in rates}
        assert len(rates) == len(by_size)
        assert by_size[32] == pytest.approx(2 * 9579.74, rel=1e-3)


def test_machines_with_equal_labels_are_told_apart(tmp_path: Path) -> None:
    """Nothing says on which machines these logs were made, so that the labels of both are equal."""
    boxes = [tmp_path / name for name in ("v100box", "h100box")]
    for box, rate in zip(boxes, (380.0, 2900.0), strict=True):
        write(box / "1n1g" / "rn50_b128_fp32_1.log", gluoncv(rate))
    for form in ("prometheus", "openmetrics"):
        rates = exported(form, *boxes, status=0)["dlperf_throughput_samples_per_second"]
        assert {s.labels["campaign"]: s.value for s in rates} == {"v100box": 380, "h100box": 2900}
        (alone,) = exported(form, boxes[0], status=0)["dlperf_throughput_samples_per_second"]
        assert "campaign" not in alone.labels
        assert exported(form, boxes[0], boxes[0], status=0) == exported(form, boxes[0], status=0)


def test_campaigns_of_one_name_and_second_are_told_apart(tmp_path: Path) -> None:
    created, places = "2026-01-02T03:04:05+00:00", [tmp_path / name / "c" for name in "ab"]
    for place, rate in zip(places, (9579.74, 4000.0), strict=True):
        campaign(place, created, id="c")
        for log in place.glob("runs/*_4n8g/*/*.log"):
            write(log, gluoncv(rate + len(log.name) / 1000))
        for log in place.glob("runs/*/*/*.log"):
            write(log, [*log.read_text().splitlines(), f"INFO:root:of {place.parent.name}"])
        call("summarize", place, "--history", tmp_path / "h.sqlite", status=1)
    for form, sources, names, status in (
        ("prometheus", places, {f"c ({place.parent})" for place in places}, 1),
        ("openmetrics", [tmp_path / "h.sqlite"], {"c", f"c ({places[1].parent})"}, 0),
    ):
        found = exported(form, *sources, status=status)
        rates = found["dlperf_throughput_samples_per_second"]
        assert len(rates) == 12
        for samples in (rates, found["dlperf_campaign_created_timestamp_seconds"]):
            assert {s.labels["campaign"] for s in samples} == names


def test_openmetrics_has_each_campaign_at_its_time(old: Path, new: Path) -> None:
    text = call("export", "openmetrics", new, old, status=1).out
    assert text.endswith("# EOF\n")
    families = list(openmetrics(text))  # refuses samples out of order
    (family,) = [f for f in families if f.name == "dlperf_throughput_samples_per_second"]
    assert family.unit == "samples_per_second"
    times = [s.timestamp for s in family.samples if s.labels["world_size"] == "32"]
    # date -u -d 2026-01-02T03:04:05 +%s
    assert [float(time) for time in times] == [1767323045.0, 1770001445.0]


def test_a_history_exports_what_its_campaigns_export(old: Path, new: Path) -> None:
    for directory in (old, new):
        call("summarize", directory, status=1)
    history = old.parent / "history.sqlite"
    of_history = exported("openmetrics", history, status=0)
    of_campaigns = exported("openmetrics", old, new)
    name = "dlperf_throughput_samples_per_second"
    assert of_history[name] == of_campaigns[name]
    assert "dlperf_campaign_runs" not in of_history
    sqlite3.connect(old.parent / "other.sqlite").close()
    assert "other.sqlite" in call("export", "prometheus", old.parent / "other.sqlite", status=2).err


def test_the_report_has_notes_and_tags(old: Path, tmp_path: Path) -> None:
    call("report", old, "--output-dir", tmp_path, status=1)
    page = (tmp_path / "report.md").read_text()
    assert "- before the update\n" in page and "- tags: driver, trial\n" in page


def test_hostile_labels_survive(tmp_path: Path) -> None:
    name = 'a"b\\c\nd{e}'
    directory = campaign(tmp_path / "c", "2026-01-02T03:04:05+00:00", id=name, tags=[name])
    for form in ("prometheus", "openmetrics"):
        (made,) = exported(form, directory)["dlperf_campaign_created_timestamp_seconds"]
        assert made.labels == {"campaign": name, "tags": name}


def test_numbers_have_the_unit_of_their_case(old: Path) -> None:
    frame = load_results(old).frame
    cases = records(summarize(frame))
    median, step = cases[0]["samples_per_second_median"], cases[0]["step_time_median_s"]
    for unit, rate, factor, energy in (
        ("tokens/s", "tokens_per_second", 1, "energy_per_token_joules"),
        ("GB/s", "bytes_per_second", 1e9, "energy_per_GB_joules"),
    ):
        changed = [{**case, "unit": unit, "energy_per_sample_j": 3.0} for case in cases]
        numbers = exported_cases(changed, frame)[0].numbers
        assert numbers[f"throughput_{rate}"].value == median * factor
        assert numbers[energy].value == 3
        assert numbers["step_time_median_seconds"].value == step


def test_a_file_is_written_whole(old: Path, tmp_path: Path) -> None:
    path = tmp_path / "node" / "dlperf.prom"
    printed = call("export", "prometheus", old, status=1).out
    assert call("export", "prometheus", old, "-o", path, status=1).out == f"{path}\n"
    assert path.read_text() == printed
    assert [*path.parent.iterdir()] == [path]


def test_the_summary_of_a_github_step(
    old: Path, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    assert "GITHUB_STEP_SUMMARY" in call("export", "github", old, status=2).err
    path = tmp_path / "summary.md"
    path.write_text("# of another command\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(path))
    call("export", "github", old, new, status=1)
    text = path.read_text()
    heads = [line for line in text.splitlines() if line.startswith("# ")]
    assert heads == ["# of another command", "# old", "# new"]
    assert "| 4        | 32      | 9579.74 " in text
    assert "no route to host" in text
    call("summarize", old, status=1)
    call("export", "github", old.parent / "history.sqlite", "-o", tmp_path / "h.md")
    assert "mxnet-resnet50v1b-builtin_fp32_b128_4n8g" in (tmp_path / "h.md").read_text()
    assert "cannot write" in call("export", "github", old, "-o", tmp_path, status=2).err


def test_a_missing_library_is_named_with_its_extra(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing = {"prometheus_client", "sqlalchemy", "wandb"}
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *of: None if name in missing else find(name, *of)
    )
    for form, extra, module in (
        ("prometheus", "prometheus", "prometheus_client"),
        ("openmetrics", "prometheus", "prometheus_client"),
        ("mlflow", "mlflow", "sqlalchemy"),
        ("wandb", "wandb", "wandb"),
    ):
        error = call("export", form, old, status=2).err
        assert f".[{extra}]" in error and module in error


def test_mlflow_has_a_run_for_each_case(old: Path, new: Path, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="the extra mlflow is not installed")
    assert "6 runs added" in call("export", "mlflow", old, "-o", tmp_path, status=1).out
    # What is there is not added again.
    done = call("export", "mlflow", old, new, "-o", tmp_path, status=1).out
    assert "6 runs added, 6 were there" in done
    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    experiment = client.get_experiment_by_name("dlperf mxnet-resnet50v1b")
    assert experiment.artifact_location.startswith(tmp_path.as_uri())
    runs = client.search_runs([experiment.experiment_id], "tags.`dlperf.campaign` = 'old'")
    metric = "throughput_samples_per_second"
    found = {int(r.data.params["world_size"]): round(r.data.metrics[metric], 2) for r in runs}
    assert found == MEDIANS
    (run,) = [run for run in runs if run.data.params["world_size"] == "32"]
    assert run.data.tags["dlperf.tags"] == "driver,trial"
    assert run.data.tags["mlflow.note.content"] == "before the update"
    assert run.info.start_time == 1767323045000
    steps = client.get_metric_history(run.info.run_id, "throughput_of_run_samples_per_second")
    assert [step.step for step in steps] == [1, 2, 3, 4, 5]


def wandb_records(path: Path) -> Iterator[bytes]:
    """The records of a .wandb file: a LevelDB log in blocks of 32 KiB after a head of 7 bytes."""
    data, place, begun = path.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if (left := 32768 - place % 32768) < 7:
            place += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, place)
        begun += data[place + 7 : place + 7 + size]
        place += 7 + size
        if kind in (1, 4):  # a whole record, or the last part of one
            yield begun
            begun = b""


def test_wandb_has_an_offline_run_for_each_case(old: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="the extra wandb is not installed")
    from wandb.proto.wandb_internal_pb2 import Record

    assert "6 runs written" in call("export", "wandb", old, "-o", tmp_path, status=1).out
    found: dict[int, float] = {}
    for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb"):
        config: dict[str, str] = {}
        summary: dict[str, str] = {}
        for record in map(Record.FromString, wandb_records(path)):
            if record.HasField("run"):
                assert (record.run.project, record.run.run_group) == ("dlperf", "old")
                assert list(record.run.tags) == ["driver", "trial"]
                assert record.run.notes == "before the update"
                config |= {item.key: item.value_json for item in record.run.config.update}
            if record.HasField("summary"):
                summary |= {item.key: item.value_json for item in record.summary.update}
        size = int(json.loads(config["world_size"]))
        found[size] = round(float(summary["throughput_samples_per_second"]), 2)
    assert found == MEDIANS


@pytest.mark.heavy
@pytest.mark.versions
def test_the_extras_bring_what_the_formats_need(tmp_path: Path) -> None:
    """The two tests above, with the real libraries from the index."""
    uv, python = Path(sys.executable).with_name("uv"), tmp_path / "venv" / "bin" / "python"
    subprocess.run([uv, "venv", "--quiet", tmp_path / "venv"], check=True)
    extras = f"{ROOT}[prometheus,mlflow,wandb,cluster]"
    tests = ["pytest", "hypothesis"]  # the latter for the settings of all tests
    install = [uv, "pip", "install", "--quiet", "--python", python, extras, *tests]
    subprocess.run(install, check=True)
    argv = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", __file__]
    done = captured(*argv, "-k", "test_mlflow or test_wandb", cwd=ROOT)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
