"""Runs on a device that a sampler looked at, and the verdict on them."""

from pathlib import Path

from make_logs import KNOWN, campaign_run, gluoncv

from dlperf_runner.catalog.validity import catalogued_rules
from dlperf_runner.measure.validity import Verdict, judge
from dlperf_runner.results.discovery import Skipped, find, run_at
from dlperf_runner.results.named_run import Candidates
from dlperf_runner.results.run_log import evidence_of

START = 1795243315
HEADER = (
    "unix_time,device,memory_used_mib,utilization_percent,sm_clock_mhz,max_sm_clock_mhz,"
    "temperature_c,power_w,throttle_reasons,ecc_uncorrected"
)
GOOD = "{time},{device},12565,97,1380,1530,61,287.51,0x0000000000000004,0"


def gpu_run(
    campaign: Path,
    topology: str = "1n1g",
    repeat: int = 1,
    lines: list[str] | None = None,
    env: dict[str, str] | None = None,
    samples: list[str] | None = None,
    files: dict[str, list[str]] | None = None,
) -> Path:
    """A run on the device 0 of node1, which a sampler of now looked at."""
    outcome = {
        "status": "done",
        "hosts": {"node1": {"hostname": "node1", "driver": "440.33.01"}},
        "versions": {"mxnet": "1.9.1"},
        "gpu_memory_mib": {"node1": {"0": 12565}},
    }
    folder = campaign_run(
        campaign,
        topology,
        repeat,
        lines or gluoncv(99.0 + repeat, world=int(topology[0]) * int(topology[2])),
        accelerator="Tesla V100",
        outcome=outcome,
        commands=[{"host": "node1", "argv": ["train"], "env": env or {}}],
    )
    rows = [GOOD] * 20 if samples is None else samples
    written = {
        "telemetry": [HEADER, *(r.format(time=START + n, device=0) for n, r in enumerate(rows))],
        "processes": [
            "unix_time,device,pid,uid,age_s,memory_used_mib,run_uid,run_age_s",
            f"{START + 30},0,4711,1000,25,12565,1000,30",
        ],
        "xid": ["unix_time,bus_id,xid,message"],
        **(files or {}),
    }
    for name, content in written.items():
        (folder / f"{name}-node1.csv").write_text("\n".join(content) + "\n")
    return folder


def verdict(campaign: Path) -> Verdict:
    """Of the only run of a campaign."""
    found = find([campaign])
    (place,) = found.places
    assert found.problems == []
    at = run_at(place, Candidates(KNOWN))
    assert not isinstance(at, Skipped)
    run, _ = at
    return judge(evidence_of(run), [], [], run.rules or catalogued_rules())
