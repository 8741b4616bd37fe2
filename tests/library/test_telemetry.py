"""The telemetry that benchmark_job keeps while it runs real processes; nvidia-smi is a stand-in
that prints what a program of that name prints, and ssh one that stays on this machine."""

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_jobs import (
    agents_of,
    call,
    has_ended,
    is_launched,
    sampling,
    telemetry,
    until,
    until_gone,
)
from csv_tables import table
from run_agent import gpu_sampler
from run_agent.node_agents import Agents
from run_agent.node_sampler import COLUMNS
from run_agent.telemetry import Telemetry
from standins import TWO, prints, program

# Trains until so many samples of each file are there, which a busy machine may take long for.
TRAIN = """
import sys, time
least, *paths = sys.argv[1:]
deadline = time.time() + 300
while time.time() < deadline:
    try:
        if all(open(path).read().count("\\n") > int(least) for path in paths):
            break
    except OSError:
        pass
    time.sleep(0.05)
print("trained")
"""


def sampled(
    directory: Path,
    *folders: Path,
    samples: int = 2,
    names: tuple[str, ...] = ("node1",),
    **options: Any,
) -> dict[str, Any]:
    """A command that runs until there are so many samples of each host named, and the samplers'
    programs found in the folders."""
    path = ":".join([*map(str, folders), "/usr/bin", "/bin"])
    environment = {"PATH": path, **options.pop("env", {})}
    defaults = {"sample_s": 1, "sample_hosts": {"node1": ""}, "sample_devices": 2}
    files = [str(directory / f"telemetry-{name}.csv") for name in names]
    argv = (sys.executable, "-c", TRAIN, str(samples), *files)
    result = call(directory, *argv, env=environment, wait_s=600, **(defaults | options))
    assert (result["finished"], result["exit_status"]) == (True, 0)
    assert result["tail"] == "trained\n"
    return result


def kept(result: dict[str, Any]) -> set[str]:
    """The files that came, except those of kernels' logs, which only some users may read."""
    return {name for name in result["files"] if not name.startswith("xid-")}


def test_peak_of_each_device_and_every_sample(tmp_path: Path) -> None:
    smi = prints(
        tmp_path / "bin", TWO.format(3, 4), TWO.format(12565, 12000), TWO.format(12000, 12839)
    )
    result = sampled(tmp_path / "r1", smi, samples=6)
    assert result["gpu_memory_mib"] == {"node1": {"0": 12565, "1": 12839}}
    assert kept(result) == {"train.log", "telemetry-node1.csv"}
    path = tmp_path / "r1" / "telemetry-node1.csv"
    rows = telemetry(path)
    assert [(row["device"], row["memory_used_mib"]) for row in rows[:4]] == [
        ("0", "3"),
        ("1", "4"),
        ("0", "12565"),
        ("1", "12000"),
    ]
    times = [float(row["unix_time"]) for row in rows]
    assert times == sorted(times)
    # One before the command, so that the counters' beginning is known, and one after it. The file
    # has whole milliseconds.
    assert times[0] - 0.001 < result["started"] < result["ended"] < times[-1] + 0.001
    assert len({row["unix_time"] for row in table(path) if not row["device"]}) == len(times) / 2


# As a V100 of a 440 driver and an H100 of a 580 one print the whole query, in the field order of
# module_utils/run_agent/gpu_sampler.py: power-capped (0x4) and slowed down by its own heat (0x48).
FULL = (
    "0, GPU-11111111-aaaa-bbbb-cccc-000000000000, 12565, 97, 1380, 1530, 61, 287.51,"
    " 0x0000000000000004, 0\n"
    "1, GPU-22222222-aaaa-bbbb-cccc-000000000000, 70123, 100, 1095, 1980, 88, [N/A],"
    " 0x0000000000000048, [N/A]\n"
)


def test_clocks_throttling_and_memory_errors(tmp_path: Path) -> None:
    result = sampled(tmp_path / "r1", prints(tmp_path / "bin", FULL))
    assert result["gpu_memory_mib"] == {"node1": {"0": 12565, "1": 70123}}
    first, second = telemetry(tmp_path / "r1" / "telemetry-node1.csv")[:2]
    assert [item for item in list(first.items())[1:] if item[1]] == [
        ("device", "0"),
        ("memory_used_mib", "12565"),
        ("utilization_percent", "97"),
        ("sm_clock_mhz", "1380"),
        ("max_sm_clock_mhz", "1530"),
        ("temperature_c", "61"),
        ("power_w", "287.51"),
        ("throttle_reasons", "0x0000000000000004"),
        ("ecc_uncorrected", "0"),
    ]
    # What a device does not tell is nothing, not 0.
    assert (second["power_w"], second["ecc_uncorrected"]) == ("", "")


def test_processes_on_the_devices(tmp_path: Path) -> None:
    """With owner and age where this node sees the process; each is told once."""
    uuid = "GPU-22222222-aaaa-bbbb-cccc-000000000000"
    processes = (
        f"{uuid}, {os.getpid()}, 503\n{uuid}, {os.getpid()}, 504\n"
        f"{uuid}, 4194999, 7\nGPU-of-no-sample, 1, 5\nNo running processes found\n"
    )
    smi = prints(tmp_path / "bin", FULL, processes=processes)
    # The first and the last sample ask. The device is not the run's, which would not begin.
    result = sampled(tmp_path / "r1", smi, sample_devices=1)
    path = tmp_path / "r1" / "processes-node1.csv"
    assert path.name in result["files"]
    (found,) = table(path)
    assert (found["device"], found["pid"], found["memory_used_mib"]) == (
        *("1", str(os.getpid())),
        "503",
    )
    assert found["uid"] == found["run_uid"] == str(os.getuid())
    assert int(found["age_s"]) >= int(found["run_age_s"]) >= 0


@pytest.mark.parametrize(
    ("devices", "visible", "counted"),
    [
        (1, None, {"0": 10}),
        (0, None, {"0": 10, "1": 20}),
        (2, "1", {"1": 20}),
        (1, " 1 , 0", {"1": 20}),
        (2, "GPU-2222", {"1": 20}),
        (2, "", {}),  # a run on CPU beside GPUs
    ],
)
def test_only_the_devices_of_the_run_count(
    tmp_path: Path, devices: int, visible: str | None, counted: dict[str, int]
) -> None:
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    options = {"directory": str(tmp_path), "sample_s": 1, "sample_hosts": {"n": ""}, "env": env}
    options |= {"sample_gpus": True, "sample_devices": devices}
    made = Telemetry(options, Agents(), 100)
    made.sampled["n"] = None
    empty = "," * (len(COLUMNS) - 1)
    made.receive("n", [f"sample,5,0,GPU-1111,10{empty}", f"sample,5,1,GPU-2222,20{empty}"])
    assert made.peaks.get("n", {}) == counted
    rows = table(tmp_path / "telemetry-n.csv")
    assert [row["device"] for row in rows] == ["0", "1"]  # all that was seen is kept


@pytest.mark.parametrize(
    "output",
    [
        "",
        "\n\n",
        "No devices were found\n",
        "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n",
        "0, GPU-1, [N/A]\n1, GPU-2, [Not Supported]\n",
        "0, GPU-1\nx, GPU-2, 5\n0, GPU-1, -5\n0, GPU-1, 5, 6\n",
        "\x00\x01\x02\n" + "x" * 200000,
        "index, uuid, memory.used [MiB]\n",
        "é, ü, ²\n",
    ],
)
def test_output_that_tells_no_memory(output: str) -> None:
    assert list(gpu_sampler.Smi(lambda _: output.splitlines()).sample(seldom=False)) == []


def test_driver_that_does_not_know_a_field_is_asked_for_the_memory() -> None:
    """One device of whose two has a memory of its own."""
    told = ["0, GPU-1, [N/A]", "1, GPU-2, 77"]
    smi = gpu_sampler.Smi(lambda argv: None if "throttle" in argv[1] else told)
    ((index, uuid, cells),) = smi.sample(seldom=False)
    assert (index, uuid, cells["memory_used_mib"]) == (1, "GPU-2", "77")
    assert "throttle_reasons" not in cells


def test_nvidia_smi_that_hangs_does_not_hold_the_run_up(tmp_path: Path) -> None:
    marker = f"dlperf-hang-{os.getpid()}"
    script = f"exec {sys.executable} -c 'import time; time.sleep(600)' {marker}"
    result = sampled(tmp_path / "r1", program(tmp_path / "bin", "nvidia-smi", script), names=())
    assert "gpu_memory_mib" not in result
    assert until_gone(marker)


def test_samples_that_are_no_numbers_are_left_out(tmp_path: Path) -> None:
    """A node's agent is replaced by a program that prints what it likes."""
    forged = "sample,1,0,GPU-1," + ",".join(["=1+1"] * len(COLUMNS))
    good = forged.replace("=1+1", "7")
    ssh = program(
        tmp_path / "ssh",
        "ssh",
        "sed -u '/sample,[0-9]*,[0-9]/q' >/dev/null\n"
        f"printf '%s\\n' looked '{forged}' '{good},8' '{good}'\n"
        "sed -u '/^rest$/q' >/dev/null; echo rested; cat",
    )
    hosts = {"node2": "node2"}
    sampled(tmp_path / "r1", ssh, sample_hosts=hosts, names=("node2",), samples=1)
    (row,) = table(tmp_path / "r1" / "telemetry-node2.csv")
    assert set(row.values()) == {"1", "0", "7"}


def test_full_disk_costs_the_samples_only(tmp_path: Path) -> None:
    directory = tmp_path / "r1"
    (directory / "telemetry-node1.csv").mkdir(parents=True)  # cannot be opened for writing
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    sampled(directory, smi, names=())


def test_several_nodes(tmp_path: Path) -> None:
    """mpirun's other nodes are asked by ssh, all at once; the second one is out of reach."""
    here = prints(tmp_path / "bin", TWO.format(10, 20))
    there = prints(tmp_path / "there", TWO.format(30, 40))
    script = (
        'while [ "$1" != -- ]; do shift; done\n'
        f'echo "$2" >> "{tmp_path}/asked"\n'
        '[ "$2" = node2 ] || exit 255\n'
        f'PATH="{there}:/usr/bin:/bin"; export PATH; exec sh -c "$3"'
    )
    ssh = program(tmp_path / "ssh", "ssh", script)
    hosts = {"node1": "", "node2": "node2", "node3": "node3"}
    result = sampled(
        tmp_path / "r1", ssh, here, sample_hosts=hosts, names=("node1", "node2"), timeout_s=100
    )
    assert result["gpu_memory_mib"] == {"node1": {"0": 10, "1": 20}, "node2": {"0": 30, "1": 40}}
    assert kept(result) == {"train.log", "telemetry-node1.csv", "telemetry-node2.csv"}
    assert result["unsampled_from_s"] == {"node3": 0}
    assert set((tmp_path / "asked").read_text().split()) == {"node2", "node3"}
    assert all(has_ended(pid) for pid in agents_of(tmp_path))


def test_nothing_is_left_when_the_supervisor_dies(tmp_path: Path) -> None:
    """Here and on another node, whose ssh ends with it."""
    ssh = program(tmp_path / "ssh", "ssh", 'while [ "$1" != -- ]; do shift; done; exec sh -c "$3"')
    call(
        tmp_path / "r1",
        *(sys.executable, "-c", "import time; time.sleep(600)", f"dlperf-orphan-{os.getpid()}"),
        env={"PATH": f"{ssh}:/usr/bin:/bin"},
        wait_s=0,
        sample_s=1,
        sample_hosts={"node1": "", "node2": "node2"},
    )
    assert until(lambda: is_launched(tmp_path / "r1") and len(agents_of(tmp_path)) >= 2)
    state = json.loads((tmp_path / "r1" / "job.json").read_text())
    os.kill(state["supervisor"], signal.SIGKILL)
    os.killpg(state["pid"], signal.SIGKILL)
    assert all(has_ended(pid) for pid in agents_of(tmp_path))


def test_run_waits_for_a_device_that_somebody_else_uses(tmp_path: Path) -> None:
    uuid = "GPU-11111111-aaaa-bbbb-cccc-000000000000"
    smi = prints(tmp_path / "bin", TWO.format(10, 20), processes=f"{uuid}, {os.getpid()}, 503\n")
    options = sampling(smi)
    refused = call(tmp_path / "r1", "/bin/touch", str(tmp_path / "ran"), **options)
    assert (refused["finished"], refused["reason"], refused["exit_status"]) == (True, "busy", 125)
    (why,) = refused["busy"]
    assert re.fullmatch(rf"node1: \S+ \({os.getpid()}\) of user {os.getuid()} is on GPU 0", why)
    assert not (tmp_path / "ran").exists()
    # The run's device is another one; then it is free.
    other = sampling(smi, CUDA_VISIBLE_DEVICES="1")
    assert call(tmp_path / "r2", "/bin/true", **other)["reason"] == ""
    assert not call(tmp_path / "r3", "/bin/true", **options | {"wait_s": 1})["finished"]
    (tmp_path / "bin" / "processes").write_text("")
    assert call(tmp_path / "r3", "/bin/true", **options)["exit_status"] == 0


def test_last_sample_of_each_device_while_the_command_runs(tmp_path: Path) -> None:
    smi = prints(tmp_path / "bin", FULL)
    options = sampling(smi)
    argv = ("/bin/sleep", "600")
    assert until(lambda: call(tmp_path / "r1", *argv, wait_s=0, **options)["devices"])
    result = call(tmp_path / "r1", *argv, wait_s=0, **options)
    assert not result["finished"]
    names = ("host", "device", "utilization_percent", "power_w", "temperature_c", "memory_used_mib")
    assert [[device[name] for name in names] for device in result["devices"]] == [
        ["node1", 0, 97, 287.51, 61, 12565],
        ["node1", 1, 100, None, 88, 70123],
    ]
    stopped = call(tmp_path / "r1", *argv, order="stopped", **options)
    assert (stopped["reason"], stopped["left"]) == ("stopped", [])


def test_what_dcgm_reports_is_kept(tmp_path: Path) -> None:
    """The answers of dcgmi are those of test_node_sampler.py."""
    smi = prints(tmp_path / "bin", TWO.format(3, 4))
    errors = {"Thermal system": {"overflow": ["hot, very"], "value": "Warning"}}
    gpus = {"children": {"0": {"children": {"Errors": {"children": errors}}}}}
    body = json.dumps({"body": {"GPU": gpus, "Overall Health": {"value": "Warning"}}})
    script = f"case $* in *list*|*check*) echo '{body}';; *create*) echo 'group ID of 2';; *set*)"
    program(tmp_path / "bin", "dcgmi", f"{script} echo successfully;; esac")
    result = sampled(tmp_path / "r1", smi, samples=12)
    assert "health-node1.csv" in result["files"]
    rows = [list(row.values())[1:] for row in table(tmp_path / "r1" / "health-node1.csv")]
    assert rows == [["", "", "Warning", ""], ["GPU 0", "Thermal system", "Warning", "hot very"]]


def test_name_of_a_host_does_not_lead_out_of_the_directory(tmp_path: Path) -> None:
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    result = sampled(tmp_path / "r1", smi, sample_hosts={"../node 1": ""}, names=(".._node_1",))
    assert kept(result) == {"train.log", "telemetry-.._node_1.csv"}
    assert result["gpu_memory_mib"] == {"../node 1": {"0": 10, "1": 20}}


# ---- memory that is still in use when a run has ended


def with_memory(folder: Path) -> Path:
    """A stand-in for nvidia-smi; the file `mib` says how much of device 0 is in use, a line for
    each look; the last line stays."""
    folder.mkdir()
    (folder / "mib").write_text("3\n")
    (folder / "processes").touch()
    two = TWO.format("$(head -n 1 mib)", 4).strip()
    script = f'cd {folder}; case "$*" in *compute-apps*) cat processes; exit;; esac\necho "{two}"\n'
    return program(folder, "nvidia-smi", script + "sed -i '$!{1d}' mib")


def test_memory_that_the_run_leaves_on_a_device(tmp_path: Path) -> None:
    """Of its own user's process, or of none that is visible. 100 MiB may come and go."""
    smi = with_memory(tmp_path / "bin")
    uuid = "GPU-11111111-aaaa-bbbb-cccc-000000000000"
    options = sampling(smi)

    def left(run: str, mib: int, processes: str = "") -> Any:
        (smi / "mib").write_text("3\n")
        (smi / "processes").write_text("")
        used = f"echo {mib} > {smi}/mib; echo '{processes}' > {smi}/processes"
        result = call(tmp_path / run, "/bin/sh", "-c", used, **options)
        assert (result["finished"], result["exit_status"]) == (True, 0)
        rows = telemetry(tmp_path / run / "telemetry-node1.csv")
        assert {row["memory_used_mib"] for row in rows} <= {"3", "4", str(mib)}
        return result["left"]

    assert left("r1", 90) == []
    said = "node1: 12565 MiB of GPU 0 are in use, 12562 more than before the run, by"
    assert left("r2", 12565) == [f"{said} no process that is visible there"]
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert left("r3", 12565, f"{uuid}, {os.getpid()}, 503") == [f"{said} {name} ({os.getpid()})"]
    # The device is none of the run's.
    options |= sampling(smi, CUDA_VISIBLE_DEVICES="1")
    assert left("r4", 12565) == []


def test_memory_that_the_driver_frees_a_little_later(tmp_path: Path) -> None:
    smi = with_memory(tmp_path / "bin")
    used = f"printf '12565\\n12565\\n12565\\n3\\n' > {smi}/mib"
    result = call(tmp_path / "r1", "/bin/sh", "-c", used, **sampling(smi))
    assert (result["left"], result["exit_status"]) == ([], 0)
