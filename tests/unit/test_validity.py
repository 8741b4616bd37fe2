"""Validity rules on what a run's directory holds: what excludes a run, and what does not."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from command_line import output
from judged_runs import GOOD, HEADER, START, gpu_run, verdict
from make_logs import KNOWN, campaign_run, gluoncv
from refusals import refusal

from dlperf_runner.catalog.validity import catalogued_rules
from dlperf_runner.measure.validity import Evidence, Verdict, is_selected, judge
from dlperf_runner.results.load import Results, load_results
from dlperf_runner.stats.summary import summarize

SOCKET = "node1:77:77 [0] NCCL INFO NET/Socket : Using [0]eth0:10.0.0.1<0>"
CARDS = (
    "node1:77:77 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB ; OOB eth0:10.0.0.1<0>"
)
ALL = ["throttling", "clocks", "ECC errors", "Xid errors", "other processes"]


def load(campaign: Path) -> Results:
    return load_results(campaign, KNOWN)


def sample(throttle: str = "0x0", clock: str = "1380", busy: str = "97", ecc: str = "0") -> str:
    return f"{{time}},{{device}},12565,{busy},{clock},1530,61,287.51,{throttle},{ecc}"


@pytest.mark.parametrize(
    ("bad", "count", "why"),
    [
        # 0x48 = hardware slowdown by heat; 2 of 20 samples are more than 5 %, 1 is not.
        (sample("0x0000000000000048"), 2, "throttled in 10 % of its busy samples (hw_slowdown"),
        (sample("0x0000000000000020"), 5, "throttled in 25 % of its busy samples (sw_thermal"),
        (sample("0x0000000000000080"), 20, "throttled in 100 % of its busy samples (hw_power_b"),
        (sample("0x0000000000000040"), 1, None),
        # A power cap (0x4), idle clocks (0x1) and clocks that somebody set (0x2) are as they are.
        (sample("0x0000000000000007"), 20, None),
        # Nothing that happens to an idle device slows the run.
        (sample("0x0000000000000048", busy="0"), 10, None),
        (sample(clock="700"), 20, "ran at 700 of 1530 MHz, below the minimum of 50 %"),
        (sample(clock="135", busy="0"), 15, None),
        (sample(clock="700"), 9, None),  # not the median
        (sample(ecc="2"), 1, "had 2 uncorrected ECC errors"),
    ],
)
def test_what_the_telemetry_excludes(tmp_path: Path, bad: str, count: int, why: str | None) -> None:
    gpu_run(tmp_path, samples=[GOOD] * (20 - count) + [bad] * count)
    found = verdict(tmp_path)
    if why is None:
        assert found == Verdict()
    else:
        assert len(found.reasons) == 1
        assert why in found.reasons[0]
        assert found.reasons[0].startswith("node1 GPU 0 ")


HEADERS = {
    "processes": "unix_time,device,pid,uid,age_s,memory_used_mib,run_uid,run_age_s",
    "xid": "unix_time,bus_id,xid,message",
}


@pytest.mark.parametrize(
    ("name", "row", "why"),
    [
        # Seen 30 s after the beginning.
        ("processes", "30,0,99,1000,41,500,1000,30", " GPU 0: process 99 started before the run"),
        ("processes", "30,0,99,1000,31,500,1000,30", None),  # the run's own, reached sooner
        ("processes", "30,0,99,1001,10,500,1000,30", " GPU 0: process 99 belongs to user 1001"),
        ("processes", "30,1,99,1001,35,500,1000,30", None),  # another device
        ("processes", "30,0,99,0,10,500,1000,30", None),  # a container's
        ("processes", "30,0,99,165536,10,500,1000,30", None),  # a rootless one's
        ("xid", "9,0000:3b:00,79,GPU has fallen off", ": Xid 79 on 0000:3b:00: GPU has fallen off"),
        ("xid", "9,0000:3b:00,31,GPU has fallen off", None),
    ],
)
def test_processes_of_others_and_errors_of_the_kernels_log(
    tmp_path: Path, name: str, row: str, why: str | None
) -> None:
    own = [f"{START + 30},0,4711,1000,25,12565,1000,30"] if name == "processes" else []
    seconds, _, rest = row.partition(",")
    gpu_run(tmp_path, files={name: [HEADERS[name], *own, f"{START + int(seconds)},{rest}"]})
    assert verdict(tmp_path).reasons == (() if why is None else (f"node1{why}",))


HEALTH = [
    "unix_time,entity,system,health,message",
    f"{START},,,Failure,",
    f"{START},GPU 0,PCIe system,Warning,13 replays",
]


@pytest.mark.parametrize(
    ("entity", "health", "counts"),
    [
        ("GPU 0", "Failure", True),
        ("Switch 3", "Failure", True),
        ("GPU 1", "Failure", False),  # not the run's
        ("GPU 0", "Warning", False),
    ],
)
def test_health_by_dcgm(tmp_path: Path, entity: str, health: str, counts: bool) -> None:
    row = f"{START},{entity},Memory system,{health},2 double-bit errors"
    gpu_run(tmp_path, files={"health": [*HEALTH, row]})
    text = f"node1 {entity}: Memory system: 2 double-bit errors (DCGM: {health})"
    found = verdict(tmp_path)
    assert found.reasons == ((text,) if counts else ())
    warned = "node1 GPU 0: PCIe system: 13 replays (DCGM: Warning)"
    is_remark = entity == "GPU 0" and not counts
    assert found.remarks == ((warned, text) if is_remark else (warned,))
    (note,) = [note for note in load(tmp_path).notes if "PCIe" in note]
    assert note == f"mxnet-resnet50v1b builtin fp32 b128 1n1g r1: {warned}"


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"samples": [sample(ecc="7")] * 20},  # errors from before the run
        {"samples": [GOOD, sample("0x48", clock="200").replace("{device}", "1")] * 10},  # another's
        {"topology": "1n2g", "lines": [*gluoncv(100.0, world=2), SOCKET.replace("eth0", "lo")]},
    ],
)
def test_good_run_is_valid_and_all_was_judged(tmp_path: Path, run: dict[str, Any]) -> None:
    gpu_run(tmp_path, **run)
    assert verdict(tmp_path) == Verdict()


# ---- what is done with it


def test_invalid_run_is_kept_and_shown_and_not_counted(tmp_path: Path) -> None:
    gpu_run(tmp_path, repeat=1)
    gpu_run(tmp_path, repeat=2, samples=[sample("0x48")] * 20)
    results = load(tmp_path)
    assert results.problems == []
    assert [run.repeat for run in results.counted] == [1]
    speeds = results.frame[results.frame["metric"] == "samples_per_second"]
    assert speeds["value"].tolist() == [100.0, 101.0]
    assert speeds["valid"].tolist() == [True, False]
    why = (
        "node1 GPU 0 was throttled in 100 % of its busy samples (hw_slowdown, hw_thermal_slowdown)"
    )
    assert speeds["why_invalid"].tolist()[1] == why
    assert any(note.endswith(f"1n1g r2: {why}") for note in results.notes)
    (case,) = summarize(results.frame).to_dict(orient="records")
    assert case["repeats"] == 1


def test_what_was_not_seen_is_not_judged_and_said(tmp_path: Path) -> None:
    folder = gpu_run(tmp_path)
    # As earlier versions recorded it.
    old = f"unix_time,device,memory_used_mib\n{START},0,12565\n"
    (folder / "telemetry-node1.csv").write_text(old)
    assert verdict(tmp_path) == Verdict(not_judged=tuple(ALL[:3]))
    for path in folder.glob("*.csv"):
        path.unlink()
    assert verdict(tmp_path) == Verdict(not_judged=tuple(ALL))
    note = load(tmp_path).notes[-1]
    assert note.startswith("no data to check throttling (1 run), ")
    assert "clocks (1 run), ECC errors (1 run)" in note


@pytest.mark.parametrize(
    "content",
    [
        "",
        "\x00\n\x00",
        "a,b\n1",
        f"{HEADER}\n0,0,x,y,z,0xzz,,,,\n{START},0,\n,,,,,,,,,,,,,\n",
        "é\xff",
    ],
)
def test_damaged_telemetry_is_no_telemetry(tmp_path: Path, content: str) -> None:
    folder = gpu_run(tmp_path)
    for path in folder.glob("*.csv"):
        path.write_bytes(content.encode("latin-1"))
    found = verdict(tmp_path)
    assert found.reasons == ()
    assert {"throttling", "clocks", "ECC errors"} <= set(found.not_judged)


def test_what_a_cpu_or_nccl_does_not_tell_is_not_judged(tmp_path: Path) -> None:
    campaign_run(tmp_path / "cpu", "2n1g", 1, gluoncv(100.0, world=2))
    assert verdict(tmp_path / "cpu") == Verdict()
    gpu_run(tmp_path / "gpu", "2n1g")
    assert verdict(tmp_path / "gpu") == Verdict(not_judged=("NCCL interface",))


def fix(campaign: Path, **changes: Any) -> None:
    rules = catalogued_rules().model_dump(mode="json") | changes
    (campaign / "campaign.json").write_text(json.dumps({"validity": rules}))


def test_rules_are_those_that_the_campaign_fixed_or_the_catalogues(tmp_path: Path) -> None:
    gpu_run(tmp_path, samples=[sample("0x48")] * 20)
    note = "the campaign recorded no validity rules; the rules of the catalogue were applied"
    assert note in load(tmp_path).notes
    fix(tmp_path, most_throttled=1.0)
    assert verdict(tmp_path) == Verdict()
    assert not any("validity rules" in note for note in load(tmp_path).notes)


def test_rules_that_cannot_be_used_are_a_problem(tmp_path: Path) -> None:
    gpu_run(tmp_path)
    rules: dict[str, Any]
    for rules, where in (
        ({"most_throttled": "x"}, "validity: most_throttled"),
        ({"more": 1}, "validity"),
    ):
        fix(tmp_path, **rules)
        (problem,) = load(tmp_path).problems
        assert problem.problem == "invalid validity rules in the campaign"
        assert where in str(problem.where)
    (tmp_path / "campaign.json").write_text('{"schema": 99}')
    told = refusal(load, tmp_path)
    assert "a newer version" in told and "found 99" in told


def beside(host: str, cores: float) -> dict[str, Any]:
    return {"host": host, "pid": 4711, "uid": 1000, "command": "python", "cores": cores}


@pytest.mark.parametrize(
    ("found", "cores"),
    [
        ([beside("node1", 0.93)], "0.93"),
        ([beside("node1", 0.15), beside("node1", 0.1), beside("node2", 0.2)], "0.25"),
        ([beside("node1", 0.2)], ""),
        (None, ""),
        ([{"host": "node1", "cores": 5}, "no process"], ""),
    ],
)
def test_run_beside_another_is_invalid_on_cpu_too(
    tmp_path: Path, found: object, cores: str
) -> None:
    outcome = {"status": "done", "hosts": {}, "versions": {"mxnet": "1.9.1"}, "beside": found}
    campaign_run(tmp_path, "1n1g", 1, gluoncv(100.0, world=1), accelerator="cpu", outcome=outcome)
    why = f"node1: python of user 1000 was also running ({cores} cores)"
    assert verdict(tmp_path).reasons == ((why,) if cores else ())
    assert len(summarize(load(tmp_path).frame)) == (0 if cores else 1)


# ---- losses


def losses(*values: float | None) -> tuple[str, ...]:
    """What the losses of a run come to, of which nothing else is known."""
    return judge(Evidence(), range(1, len(values) + 1), values, catalogued_rules()).reasons


TWOS = [2.0] * 12


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ([0.0], "the loss is 0 at every step"),
        ([6.907] * 3, "the loss is 6.907 at every step"),
        ([1e30] * 20, "the loss is never below 1e+30"),
        ([1e30 * (n + 1) for n in range(5)], "the loss is never below 1e+30"),
        ([-1e30, -2e30], "the loss is never below 1e+30"),
        ([0.0, 0.0, 5.0, 4.0], None),
        ([1e30, 1e30, 5.0, 4.0], None),
        ([7.0, math.nan, 6.0], "the loss is not finite at step 2"),
        ([7.0, 8.0, math.inf], "the loss is not finite at step 3"),
        ([7.0, None, 6.0], None),
        ([7.0, 6.9, None, None, None], "no loss is printed after step 2"),
        ([7.0, *[None] * 10], None),  # one says nothing of how often the program prints it
        ([7.0, 6.9, None, None], None),
        ([None, None, None, 7.0, None, None, None, 6.9, None, None, None], None),
        ([6.9, 6.9], None),  # two may be equal by chance
        ([6.9], None),
        # Medians of the first three and the last three of 15: 2 and 3 are 50 % apart, 3.1 is more.
        ([*TWOS, 3.0, 3.0, 3.0], None),
        ([*TWOS, 3.1, 3.1, 1.0], "the loss rises from 2 to 3.1"),
        ([9.0, 9.0, 9.0, *TWOS], None),
        ([2.0, 2.0, 90.0], None),  # too few to say
        ([*TWOS, 2.0, 2.0, 99.0], None),  # one step is no tendency
    ],
)
def test_losses(values: list[float | None], reason: str | None) -> None:
    assert losses(*values) == ((reason,) if reason else ())


# ---- the network that NCCL used


@pytest.mark.parametrize(
    ("env", "line", "why"),
    [
        ({"NCCL_SOCKET_IFNAME": "eth0"}, SOCKET, None),
        ({}, SOCKET, None),
        ({"NCCL_SOCKET_IFNAME": "eth1"}, SOCKET, "eth0, but the plan selects eth1"),
        ({"NCCL_SOCKET_IFNAME": "^docker"}, SOCKET, None),
        ({}, SOCKET.replace("eth0", "docker0"), "docker0 between nodes"),
        ({"NCCL_IB_DISABLE": "0"}, SOCKET, "sockets over eth0, but the plan selects InfiniBand"),
        ({"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5"}, SOCKET, None),
        ({"NCCL_IB_HCA": "mlx5_0,mlx5_1", "NCCL_SOCKET_IFNAME": "eth0"}, CARDS, None),
        ({"NCCL_IB_HCA": "=mlx5_0:1"}, CARDS, "mlx5_0, mlx5_1, but the plan selects =mlx5_0:1"),
    ],
)
def test_interface_of_nccl(tmp_path: Path, env: dict[str, str], line: str, why: str | None) -> None:
    lines = gluoncv(100.0, world=2)
    gpu_run(tmp_path, "2n1g", lines=[lines[0], line, *lines[1:]], env=env)
    assert verdict(tmp_path).reasons == (() if why is None else (f"NCCL used {why}",))


@pytest.mark.parametrize(
    ("asked", "selected", "others"),
    [
        # As NCCL's documentation of NCCL_SOCKET_IFNAME has them.
        ("eth", "eth0", ""),
        ("=eth", "", "eth0"),
        ("=eth0,eth1", "eth0", ""),
        ("^docker", "eth0", "docker0"),
        ("^=eth0", "eth", "eth0"),
        ("mlx5_1:1", "mlx5_1", "mlx5_0"),
        ("", "eth0", ""),
    ],
)
def test_selection_of_interfaces(asked: str, selected: str, others: str) -> None:
    assert not selected or is_selected(selected, asked)
    assert not others or not is_selected(others, asked)


def test_the_report_names_the_network_that_nccl_used(tmp_path: Path) -> None:
    for repeat in (1, 2):
        lines = [CARDS, *gluoncv(99.0 + repeat, world=4)]
        gpu_run(tmp_path, "2n2g", repeat, lines, env={"NCCL_IB_HCA": "mlx5"})
    (case,) = summarize(load_results(tmp_path, KNOWN).frame).to_dict("records")
    assert (case["nccl_network"], case["nccl_interfaces"]) == ("IB mlx5_0, mlx5_1", 2)
    output("report", tmp_path)
    text = (tmp_path / "report" / "report.md").read_text()
    assert "On 2n2g, NCCL used IB mlx5_0, mlx5_1." in text
    # Runs that used different networks have none in common.
    gpu_run(tmp_path, "2n2g", 3, [SOCKET, *gluoncv(102.0, world=4)])
    (case,) = summarize(load_results(tmp_path, KNOWN).frame).to_dict("records")
    assert case["nccl_network"] is None
