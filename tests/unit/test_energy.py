"""The energy of a run: from its telemetry, in the units of its workload, and nothing where a part
of it is unknown. Each expected number is arithmetic that stands beside it."""

import csv
import json
from pathlib import Path

import pytest
from command_line import call
from csv_tables import table
from make_logs import campaign_run, gluoncv
from run_agent.node_sampler import COLUMNS

from dlperf_runner.measure.energy import energy
from dlperf_runner.measure.validity import Sample

START = 1795243315.0


def counted(watts: float, seconds: int, start: float = 0) -> list[Sample]:
    """A device that needs so many watts, and twice as many from 10 s on."""
    at = (start + n for n in range(seconds + 1))
    return [
        {"unix_time": t, "energy_j": 5000 + watts * (t + max(t - start - 10, 0)), "power_w": 1.0}
        for t in at
    ]


def powered(watts: float, seconds: int) -> list[Sample]:
    return [{"unix_time": float(n), "power_w": watts} for n in range(seconds + 1)]


def told(*parts: list[Sample], **options: object) -> dict[str, tuple[float, str, str]]:
    given = {"window": None, "rate": 100.0, "processed": 4000, "unit": "samples"} | options
    found = energy(parts, "gpu", **given)  # type: ignore[arg-type]
    return {m.metric: (m.value, m.unit, m.estimator) for m in found}


WHOLE, COUNTER = "_of_whole_run", counted(150, 30)
STEADY: list[Sample] = [*powered(200, 10), {"unix_time": 20.0, "power_w": 400.0}]
# As by a driver that was loaded again.
SET_BACK = [*COUNTER[:20], {**COUNTER[20], "energy_j": 1.0}, *COUNTER[21:]]


@pytest.mark.parametrize(
    ("parts", "options", "watts", "estimator"),
    [
        # Two devices of 300 W from 10.5 s to 20.5 s.
        ((COUNTER, COUNTER), {"window": (10.5, 20.5)}, 600, "gpu_counter"),
        # 10 s at 150 W and 20 s at 300 W, where the log has no times.
        ((COUNTER,), {}, 250, "gpu_counter" + WHOLE),
        # The samples do not cover the window.
        *(
            ((COUNTER,), {"window": window}, 250, "gpu_counter" + WHOLE)
            for window in ((10.1, 10.9), (-1.0, 20.0), (10.0, 31.0))
        ),
        # Without a counter, 10 s at 200 W and 10 s at 300 W on average.
        ((STEADY,), {}, 250, "gpu_power" + WHOLE),
        ((STEADY, COUNTER), {}, 500, "gpu_power" + WHOLE),
        ((SET_BACK,), {}, 1, "gpu_power" + WHOLE),
    ],
)
def test_power(
    parts: tuple[list[Sample], ...], options: dict[str, object], watts: float, estimator: str
) -> None:
    assert told(*parts, **options)["power_mean"] == (pytest.approx(watts), "W", estimator)


def test_energy_of_a_sample_and_of_a_token() -> None:
    """600 W at 100 samples/s are 6 J; 7500 J of the whole run for 4000 samples, 1.875."""
    window = (10.5, 20.5)
    found = told(COUNTER, COUNTER, window=window)["energy_per_sample"]
    assert found == (pytest.approx(6), "J/sample", "gpu_counter")
    whole = told(COUNTER)["energy_per_sample"]
    assert whole == (1.875, "J/sample", "gpu_counter_of_whole_run")
    tokens = told(COUNTER, unit="tokens", window=window)["energy_per_sample"]
    assert tokens[:2] == (pytest.approx(3), "J/token")
    assert set(told(COUNTER, processed=None)) == {"power_mean"}


@pytest.mark.parametrize(
    "parts",
    [
        *([], [[]], [COUNTER, []], [counted(150, 0)], [powered(0, 10)]),
        [[{"unix_time": 1.0}, {"unix_time": 2.0}]],
        [[{"energy_j": 1.0, "unix_time": 1.0}, {"energy_j": 2.0, "unix_time": 1.0}]],
    ],
)
def test_what_is_unknown_gives_no_number(parts: list[list[Sample]]) -> None:
    assert told(*parts) == {}


# ---- of a campaign


def telemetry(folder: Path, host: str, rows: list[dict[str, object]]) -> None:
    with (folder / f"telemetry-{host}.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["unix_time", "device", *COLUMNS])
        writer.writeheader()
        writer.writerows(rows)


def node_row(second: int, joules: float | None = None, **more: object) -> dict[str, object]:
    return {"unix_time": START + second, "device": "", "energy_j": joules, **more}


def run_on_cpu(campaign: Path, repeat: int, hosts: int = 2) -> Path:
    """A run of 120 steps of 256 samples on two nodes of 80 W, without times in its log."""
    lines = gluoncv(99.0 + repeat, world=2)
    folder = campaign_run(campaign, "2n1g", repeat, lines, hosts=["node1", "node2"])
    for host in ("node1", "node2")[:hosts]:
        telemetry(folder, host, [node_row(n, 80 * n, load_1m=1.5) for n in range(21)])
    return folder


@pytest.mark.parametrize(
    ("seconds", "note"), [(12.4, "no telemetry after 12 s of the run"), (0.0, "no telemetry")]
)
def test_lost_telemetry_is_noted_and_gives_no_energy(
    tmp_path: Path, seconds: float, note: str
) -> None:
    campaign = tmp_path / "results/one"
    path = run_on_cpu(campaign, 1) / "run.json"
    record = json.loads(path.read_text())
    record["outcome"]["unsampled_from_s"] = {"node2": seconds}
    path.write_text(json.dumps(record))
    out = " ".join(call("summarize", campaign).out.split())
    assert f"r1: node2: {note}" in out
    (case,) = table(campaign / "summary.csv")
    assert case["power_mean_w"] == case["energy_per_sample_j"] == ""


def test_energy_of_the_processors_in_summary_table_and_report(tmp_path: Path) -> None:
    """Two nodes of 80 W for 20 s: 3200 J for 120 steps of 256 samples."""
    campaign = tmp_path / "results/one"
    for repeat in (1, 2):
        run_on_cpu(campaign, repeat)
    out = call("summarize", campaign).out
    assert "| J/sample |" in " ".join(out.split())
    (case,) = table(campaign / "summary.csv")
    assert float(case["energy_per_sample_j"]) == pytest.approx(3200 / 120 / 256)
    assert (float(case["power_mean_w"]), case["energy_estimator"]) == (
        *(160, "cpu_counter_of_whole_run"),
    )
    rows = table(campaign / "measurements.csv")
    measured = {(row["metric"], row["unit"], row["estimator"]) for row in rows}
    assert ("energy_per_sample", "J/sample", "cpu_counter_of_whole_run") in measured
    call("report", campaign)
    page = (campaign / "report/report.md").read_text()
    assert "J/sample" in page
    assert "0.104" in page
    assert call("summarize", campaign, "--verify").out.endswith("as it was recorded\n")
    path = next(campaign.glob("runs/*/r1/telemetry-node1.csv"))
    path.write_text(path.read_text().replace("1600", "1700"))
    differing = call("summarize", campaign, "--verify", status=1).out
    assert "telemetry-node1.csv: changed since" in differing
    assert "power_mean" in differing


def test_node_without_telemetry_gives_no_number(tmp_path: Path) -> None:
    run_on_cpu(tmp_path, 1, hosts=1)
    call("summarize", tmp_path, "--no-history")
    assert table(tmp_path / "summary.csv")[0]["energy_per_sample_j"] == ""


def test_gpus_of_a_run_and_not_the_others_of_its_node(tmp_path: Path) -> None:
    hosts = {"node1": {"driver": "580", "gpus": ["NVIDIA H100 80GB HBM3"] * 2}}
    outcome = {"status": "done", "hosts": hosts, "gpu_memory_mib": {"node1": {"0": 5, "1": 5}}}
    lines = gluoncv(100.0, world=2)
    options = {"accelerator": "H100", "outcome": outcome, "hosts": ["node1"]}
    folder = campaign_run(tmp_path, "1n2g", 1, lines, **options)
    telemetry(folder, "node1", [
        row
        for n in range(11)
        for row in (
            *({"unix_time": START + n, "device": d, "energy_j": 7e6 + 500 * n} for d in range(2)),
            {"unix_time": START + n, "device": 2, "energy_j": 9000 * n},
            node_row(n, 100 * n),
        )
    ])  # fmt: skip
    call("summarize", tmp_path, "--no-history")
    (case,) = json.loads((tmp_path / "summary.json").read_text())["cases"]
    assert (case["power_mean_w"], case["energy_estimator"]) == (1000, "gpu_counter_of_whole_run")
    assert case["energy_per_sample_j"] == pytest.approx(10000 / 120 / 256)


@pytest.mark.parametrize(("held_s", "why"), [(0.9, None), (2.0, "throttled by heat for 10 %")])
def test_processor_that_heat_slows_down(tmp_path: Path, held_s: float, why: str | None) -> None:
    folder = run_on_cpu(tmp_path, 1)
    rows = [node_row(n, cpu_throttled_s=7 + held_s * n / 20) for n in range(21)]
    telemetry(folder, "node2", rows)
    done = call("summarize", tmp_path, "--no-history", status=0 if why is None else 1)
    assert (why is None) or f"node2: the CPU was {why} of the run" in done.text
