"""The page of a running campaign: what it says, and to whom."""

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from command_line import call
from make_logs import ROOT
from plan_examples import lab_nodes
from planned_campaigns import create, set_outcome
from recorded_campaign import end

from dlperf_runner.campaign import directory as campaigns
from dlperf_runner.commands import app
from dlperf_runner.commands.status import progress_line
from dlperf_runner.control import rounds
from dlperf_runner.control.controllers import CampaignWatch
from dlperf_runner.core.errors import UserError
from dlperf_runner.live.command import serve_page
from dlperf_runner.plan import inventory

HOSTILE = "<img src=x onerror=alert(1)>"
TELEMETRY = """\
unix_time,device,memory_used_mib,utilization_percent,sm_clock_mhz,temperature_c,power_w
1.0,0,512,90,1500,60,300.5
2.0,0,768,100,1500,64,310.5
1.0,1,500,[N/A],1500,50,
"""


@pytest.fixture
def campaign(tmp_path: Path) -> Path:
    """Two cases of two repeats: the first run is done, the second failed, the third runs."""
    directory = tmp_path / "one"
    done, failed, running, _ = create(directory, nodes="1")
    end(directory, done, 10.0)
    change(directory, done, ended="2026-01-02T03:04:05+00:00", elapsed_s=40.0)
    place = campaigns.run_directory(directory, done)
    (place / "telemetry-node1.csv").write_text(TELEMETRY)
    change(directory, failed, status="failed", message=HOSTILE, elapsed_s=3.0)
    change(directory, running, status="running")
    progress(directory, running, 9.5)
    return directory


def change(directory: Path, run: Mapping[str, Any], **outcome: object) -> None:
    os.utime(set_outcome(directory, run, **outcome), (1000.0, 1000.0))


def progress(directory: Path, run: Mapping[str, Any], rate: float, devices: object = ()) -> None:
    line = f"INFO:root:Epoch[0] Batch[7]\tSpeed: {rate} samples/sec\n"
    place = campaigns.run_directory(directory, run)
    (place / "progress.json").write_text(json.dumps({"tail": line, "devices": devices}))


def polled(watch: CampaignWatch, now: float) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(json.dumps(watch.poll(now)))
    return document


def test_the_state_is_that_of_the_files(campaign: Path) -> None:
    watch = CampaignWatch(campaign)
    state = polled(watch, 1010.0)
    assert (state["campaign"], state["done"], state["ended"], state["total"]) == ("one", 1, 2, 4)
    assert [run["status"] for run in state["runs"]] == ["done", "failed", "running", "planned"]
    done, failed, running, planned = state["runs"]
    assert done["rate"] == pytest.approx(10.0, abs=0.25)
    assert (done["unit"], done["elapsed_s"]) == ("samples/s", 40.0)
    assert failed["message"] == HOSTILE
    assert (running["rate"], running["elapsed_s"]) == (9.5, 10.0)
    assert (planned["rate"], planned["unit"]) == (None, "")
    # Two runs of 40 s, of which 10 s are over.
    assert state["left_s"] == 70.0
    # Means of utilization and power, the largest of the others; what is not a number is none.
    names = ("device", "utilization_percent", "power_w", "temperature_c", "memory_used_mib")
    devices = [[device[name] for name in names] for device in state["telemetry"]["devices"]]
    assert devices == [[0, 95.0, 305.5, 64, 768], [1, None, None, 50, 500]]
    assert (state["telemetry"]["run"], state["telemetry"]["is_running"]) == (done["id"], False)
    for path in [*campaign.glob("runs/*/*/*.csv"), *campaign.glob("runs/*/*/*.log")]:
        Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))  # as `archive` does
        path.unlink()
    again = polled(CampaignWatch(campaign), 1010.0)
    assert (again["telemetry"], again["runs"]) == (state["telemetry"], state["runs"])


SAMPLES = [
    {"node": node, "device": device, "memory_used_mib": 500.0 + device, "temperature_c": 60.0,
     "utilization_percent": 90.0 + device, "power_w": None if node == "n2" else 300.0}
    for node in ("n1", "n2") for device in (0, 1)
]  # fmt: skip


def test_status_shows_rates_telemetry_and_the_time_left(campaign: Path) -> None:
    """While a run goes on, its own telemetry; `--watch` ends at once, as no controller is there."""
    running = campaigns.read_plan(campaign)["runs"][2]
    progress(campaign, running, 9.5, SAMPLES)
    watch = CampaignWatch(campaign)
    state = polled(watch, 1010.0)
    assert state["telemetry"] == {"run": running["id"], "is_running": True, "devices": SAMPLES}
    for rate in (9.5, 10.25, 10.25):
        progress(campaign, running, rate, SAMPLES)
        state = polled(watch, 1020.0)
    line = f"{running['id']}: 9.5 10.25 samples/s; about 1 min left; no controller"
    assert progress_line(state) == line
    out = call("status", campaign, "--watch", status=1).out
    assert f"GPUs of {running['id']}, now:" in out
    rows = [line.replace(" ", "") for line in out.splitlines() if line.startswith("| n")]
    assert rows[1:] == ["|n1|2|90|600|60|501|", "|n2|2|90|-|60|501|"]
    assert (
        out.splitlines()[-1] == f"{running['id']}: 10.25 samples/s; about 1 min left; no controller"
    )


def test_status_shows_invalid_runs(campaign: Path) -> None:
    first, second, *_ = campaigns.read_plan(campaign)["runs"]
    end(campaign, second, 10.0)
    log = campaigns.run_directory(campaign, first) / first["log_name"]
    log.write_text(log.read_text().replace("world_size=1", "world_size=2"))
    log = campaigns.run_directory(campaign, second) / second["log_name"]
    log.write_text(re.sub(r"Loss\[[^]]*]", "Loss[2.0]", log.read_text()))
    document = call("status", campaign, "--json", status=1).document
    assert (document["done"], document["invalid"]) == (2, 2)
    invalid = {run["id"]: run["message"] for run in document["runs"] if run["status"] == "invalid"}
    assert "world size" in invalid[first["id"]]
    assert invalid[second["id"]] == "the loss is 2 at every step"
    out = call("status", campaign, status=1).out
    assert "the loss is 2 at every step" in out
    assert out.splitlines()[-1] == "2 of 4 runs done, 2 of them invalid"
    assert {run["status"] for run in polled(CampaignWatch(campaign), 1.0)["runs"][:2]} == {
        "invalid"
    }


def test_rates_are_kept_over_time(campaign: Path) -> None:
    watch = CampaignWatch(campaign)
    running = polled(watch, 1000.0)["runs"][2]
    plan = campaigns.read_plan(campaign)["runs"]
    progress(campaign, plan[2], 11.0)
    series = polled(watch, 1002.0)["series"]
    assert series["run"] == running["id"]
    assert series["points"] == [[1000.0, 9.5], [1002.0, 11.0]]
    # Before the next run prints a rate, there is none; a long run loses every second point.
    change(campaign, plan[3], status="running")
    assert polled(watch, 1004.0)["series"] == {"run": plan[3]["id"], "unit": "", "points": []}
    progress(campaign, plan[3], 5.0)
    record = campaigns.read_record(campaign, plan[3])
    for second in range(3000):
        watch._add_rate(record, second)
    assert 1000 <= len(watch.rates[plan[3]["id"]]) <= 2000


def fetch(url: str, method: str = "GET", **headers: str) -> tuple[int, Any, bytes]:
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.netloc, timeout=300)
    connection.request(method, parts.path, headers=headers)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, answer.headers, content


def test_only_who_has_the_address_gets_an_answer(campaign: Path) -> None:
    with serve_page(campaign) as url:
        parts = urlsplit(url)
        assert parts.hostname == "127.0.0.1"
        status, headers, page = fetch(url)
        assert status == 200
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["Referrer-Policy"] == "no-referrer"
        # The page names no other host, and no address but that of its data.
        assert b"http" not in page
        status, headers, state = fetch(f"{url}state.json")
        assert (status, headers["Content-Type"]) == (200, "application/json")
        assert json.loads(state)["total"] == 4
        base = f"http://{parts.netloc}"
        for path in ("/", "/state.json", f"/{'x' * 32}/", f"{parts.path}../campaign.json"):
            assert fetch(f"{base}{path}")[0] == 404, path
        assert fetch(url, Host="attacker.example")[0] == 404
        assert fetch(url, Host=f"localhost:{parts.port}")[0] == 200
        assert fetch(url, "POST")[0] == 501
        # Another address of this machine is not listened on.
        other = [
            info[4][0]
            for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)
            if not str(info[4][0]).startswith("127.")
        ]
        for address in other:
            with pytest.raises(OSError), socket.create_connection((address, parts.port), 2):
                pass
        with (
            pytest.raises(UserError, match="cannot serve the page"),
            serve_page(campaign, parts.port or 0),
        ):
            pass
    with pytest.raises(OSError):
        fetch(url)


def test_run_serves_the_page_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(inventory, "read_inventory", lambda *_, **__: lab_nodes())
    seen: list[int] = []

    def execute(*_: object, **__: object) -> list[str]:
        live, page, address = capsys.readouterr().err.split()
        assert (live, page) == ("live", "page:")
        seen.append(json.loads(fetch(f"{address}state.json")[2])["total"])
        return []

    monkeypatch.setattr(rounds, "execute_campaign", execute)
    choice = ("--workload", "mxnet-resnet50v1b", "--nodes", "1", "--repeats", "2")
    app(["run", "--live", *choice, "--campaign", str(tmp_path / "c")], standalone_mode=False)
    assert seen == [4]


def test_the_command_serves_until_it_is_interrupted(campaign: Path) -> None:
    argv = [sys.executable, "-m", "dlperf_runner", "live", str(campaign)]
    with subprocess.Popen(
        argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        try:
            assert fetch(f"{url}state.json")[0] == 200
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
