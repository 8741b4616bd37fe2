"""The sampler of benchmark_job beside real processes; nvidia-smi is a stand-in that prints what a
program of that name prints, and ssh one that stays on this machine."""

from __future__ import annotations

import csv
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmark_jobs import call, processes_of, until_gone
from standins import TWO, prints, program

# Trains until so many samples of each file are there, which a busy machine may take long for.
TRAIN = """
import sys, time
least, *paths = sys.argv[1:]
deadline = time.time() + 20
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
    result = call(directory, *argv, env=environment, wait_s=40, **(defaults | options))
    assert (result["finished"], result["exit_status"]) == (True, 0)
    assert result["tail"] == "trained\n"
    return result


def telemetry(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_peak_of_each_device_and_every_sample(tmp_path: Path) -> None:
    smi = prints(
        tmp_path / "bin", TWO.format(3, 4), TWO.format(12565, 12000), TWO.format(12000, 12839)
    )
    result = sampled(tmp_path / "r1", smi, samples=6)
    assert result["gpu_memory_mib"] == {"node1": {"0": 12565, "1": 12839}}
    assert set(result["files"]) == {"train.log", "telemetry-node1.csv"}
    rows = telemetry(tmp_path / "r1" / "telemetry-node1.csv")
    assert [(row["device"], row["memory_used_mib"]) for row in rows[:4]] == [
        ("0", "3"),
        ("1", "4"),
        ("0", "12565"),
        ("1", "12000"),
    ]
    times = [float(row["unix_time"]) for row in rows]
    assert times == sorted(times)
    assert result["started"] <= times[0] <= times[-1] <= result["ended"]


# As a V100 of a 440 driver and an H100 of a 580 one print the whole query, in the field order of
# module_utils/gpu_memory.py: power-capped (0x4) and slowed down by its own heat (0x48).
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
    assert list(first.items())[1:] == [
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


def test_driver_that_does_not_know_a_field_is_asked_for_the_memory(tmp_path: Path) -> None:
    refusal = 'Field "clocks_throttle_reasons.active" is not a valid field to query.'
    script = (
        f"case \"$*\" in *throttle*) echo '{refusal}'; exit 2;; *compute-apps*) exit;; esac\n"
        "echo '0, GPU-1, 123'"
    )
    result = sampled(tmp_path / "r1", program(tmp_path / "bin", "nvidia-smi", script))
    assert result["gpu_memory_mib"] == {"node1": {"0": 123}}
    assert telemetry(tmp_path / "r1" / "telemetry-node1.csv")[0]["throttle_reasons"] == ""


def test_processes_on_the_devices(tmp_path: Path) -> None:
    """With owner and age where this node sees the process; each is told once."""
    uuid = "GPU-22222222-aaaa-bbbb-cccc-000000000000"
    processes = (
        f"{uuid}, {os.getpid()}, 503\n{uuid}, {os.getpid()}, 504\n"
        f"{uuid}, 4194999, 7\nGPU-of-no-sample, 1, 5\nNo running processes found\n"
    )
    smi = prints(tmp_path / "bin", FULL, processes=processes)
    result = sampled(tmp_path / "r1", smi, samples=2 * 7)  # the sixth look asks again
    path = tmp_path / "r1" / "processes-node1.csv"
    assert path.name in result["files"]
    (found,) = telemetry(path)
    assert (found["device"], found["pid"], found["memory_used_mib"]) == (
        *("1", str(os.getpid())),
        "503",
    )
    assert found["uid"] == found["run_uid"] == str(os.getuid())
    assert int(found["age_s"]) >= int(found["run_age_s"]) >= 0


def test_new_errors_in_the_kernels_log(tmp_path: Path) -> None:
    old = "[   12.000] NVRM: Xid (PCI:0000:3b:00): 31, pid=77, Ch 00000010"
    new = '[   93.207] NVRM: Xid (PCI:0000:af:00): 79, pid=4711, GPU has fallen off the "bus".'
    folder = tmp_path / "bin"
    prints(folder, FULL, kernel=f"[    0.000] Linux version 5.4\n{old}\n")
    program(
        folder,
        "dmesg",
        f"cd \"{folder}\"; cat kernel; [ ! -e again ] || echo '{new}'; touch again",
    )
    result = sampled(tmp_path / "r1", folder, samples=2 * 7)
    path = tmp_path / "r1" / "xid-node1.csv"
    assert path.name in result["files"]
    (found,) = telemetry(path)
    assert list(found.values())[1:] == [
        *("0000:af:00", "79"),
        "pid=4711 GPU has fallen off the bus .",
    ]


def test_kernels_log_without_errors_is_known_to_be_without(tmp_path: Path) -> None:
    sampled(tmp_path / "r1", prints(tmp_path / "bin", FULL, kernel="[ 0.0] Linux\n"), samples=6)
    assert telemetry(tmp_path / "r1" / "xid-node1.csv") == []


def test_kernels_log_that_this_user_may_not_see_gives_no_file(tmp_path: Path) -> None:
    sampled(tmp_path / "r1", prints(tmp_path / "bin", FULL), samples=6)
    assert not (tmp_path / "r1" / "xid-node1.csv").exists()


def test_without_nvidia_smi_there_is_nothing(tmp_path: Path) -> None:
    result = sampled(tmp_path / "r1", names=())
    assert "gpu_memory_mib" not in result
    assert set(result["files"]) == {"train.log"}
    assert sorted(path.name for path in (tmp_path / "r1").iterdir()) == [
        *("job.json", "lease", "train.log")
    ]


def test_no_sampling_unless_it_is_asked_for(tmp_path: Path) -> None:
    smi = prints(tmp_path / "bin", TWO.format(1, 1))
    result = sampled(tmp_path / "r1", smi, names=(), sample_s=0)
    assert "gpu_memory_mib" not in result
    assert not (tmp_path / "bin" / "calls").exists()


@pytest.mark.parametrize(
    ("options", "counted"),
    [
        ({"sample_devices": 1}, {"0": 10}),
        ({"sample_devices": 0}, {"0": 10, "1": 20}),
        ({"env": {"CUDA_VISIBLE_DEVICES": "1"}}, {"1": 20}),
        ({"env": {"CUDA_VISIBLE_DEVICES": " 1 , 0"}, "sample_devices": 1}, {"1": 20}),
        ({"env": {"CUDA_VISIBLE_DEVICES": "GPU-2222"}}, {"1": 20}),
    ],
)
def test_only_the_devices_of_the_run_count(
    tmp_path: Path, options: dict[str, Any], counted: dict[str, int]
) -> None:
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    result = sampled(tmp_path / "r1", smi, **options)
    assert result["gpu_memory_mib"] == {"node1": counted}
    devices = {row["device"] for row in telemetry(tmp_path / "r1" / "telemetry-node1.csv")}
    assert devices == {"0", "1"}  # all that was seen is kept


def test_a_run_on_cpu_beside_gpus_has_no_peak(tmp_path: Path) -> None:
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    result = sampled(tmp_path / "r1", smi, env={"CUDA_VISIBLE_DEVICES": ""})
    assert result["gpu_memory_mib"] == {}


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
def test_output_that_tells_no_memory(tmp_path: Path, output: str) -> None:
    smi = prints(tmp_path / "bin", output)
    # Its own count of calls, of one digit and a newline, is what the command waits for.
    (tmp_path / "r1").mkdir()
    (tmp_path / "r1" / "telemetry-calls.csv").symlink_to(smi / "calls")
    result = sampled(tmp_path / "r1", smi, samples=0, names=("calls",))
    assert "gpu_memory_mib" not in result
    assert not (tmp_path / "r1" / "telemetry-node1.csv").exists()


def test_one_device_without_a_memory_of_its_own(tmp_path: Path) -> None:
    smi = prints(tmp_path / "bin", "0, GPU-1, [N/A]\n1, GPU-2, 77\n")
    assert sampled(tmp_path / "r1", smi, samples=1)["gpu_memory_mib"] == {"node1": {"1": 77}}


def test_nvidia_smi_that_hangs_does_not_hold_the_run_up(tmp_path: Path) -> None:
    marker = f"dlperf-hang-{os.getpid()}"
    script = f"exec {sys.executable} -c 'import time; time.sleep(60)' {marker}"
    result = sampled(tmp_path / "r1", program(tmp_path / "bin", "nvidia-smi", script), names=())
    assert "gpu_memory_mib" not in result
    assert until_gone(marker)


def test_nvidia_smi_that_fails_after_a_while_keeps_what_it_said(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    smi = program(
        folder, "nvidia-smi", f'[ ! -e "{folder}/seen" ] || exit 9; touch "{folder}/seen"'
    )
    with (folder / "nvidia-smi").open("a") as file:
        file.write("echo '0, GPU-1, 123'\n")
    result = sampled(tmp_path / "r1", smi, samples=1)
    assert result["gpu_memory_mib"] == {"node1": {"0": 123}}
    assert len(telemetry(tmp_path / "r1" / "telemetry-node1.csv")) == 1


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
        f'echo "$2: $3" >> "{tmp_path}/asked"\n'
        '[ "$2" = node2 ] || exit 255\n'
        f'PATH="{there}:/usr/bin:/bin"; export PATH; exec sh -c "$3"'
    )
    ssh = program(tmp_path / "ssh", "ssh", script)
    hosts = {"node1": "", "node2": "node2", "node3": "node3"}
    result = sampled(
        tmp_path / "r1", ssh, here, sample_hosts=hosts, names=("node1", "node2"), timeout_s=100
    )
    assert result["gpu_memory_mib"] == {"node1": {"0": 10, "1": 20}, "node2": {"0": 30, "1": 40}}
    assert set(result["files"]) == {"train.log", "telemetry-node1.csv", "telemetry-node2.csv"}
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {line.partition(":")[0] for line in asked} == {"node2", "node3"}
    # It ends there by itself, should this node vanish.
    assert all("timeout 120 sh -c 'n=0; while nvidia-smi " in line for line in asked)
    assert until_gone(str(there))


def test_nothing_is_left_when_the_run_is_ended(tmp_path: Path) -> None:
    marker = f"dlperf-sampled-{os.getpid()}"
    script = f"{sys.executable} -c 'import time; time.sleep(60)' {marker}"
    smi = program(tmp_path / "bin", "nvidia-smi", script)
    result = call(
        tmp_path / "r1",
        *(sys.executable, "-c", "import time; time.sleep(60)"),
        env={"PATH": f"{smi}:/usr/bin:/bin"},
        timeout_s=1,
        wait_s=30,
        sample_s=1,
        sample_hosts={"node1": ""},
    )
    assert result["reason"] == "timeout"
    assert until_gone(marker)
    assert not processes_of(marker)


def test_name_of_a_host_does_not_lead_out_of_the_directory(tmp_path: Path) -> None:
    smi = prints(tmp_path / "bin", TWO.format(10, 20))
    result = sampled(tmp_path / "r1", smi, sample_hosts={"../node 1": ""}, names=(".._node_1",))
    assert set(result["files"]) == {"train.log", "telemetry-.._node_1.csv"}
    assert result["gpu_memory_mib"] == {"../node 1": {"0": 10, "1": 20}}
