"""The program that samples a node: from a recorded /proc and /sys, and from a library that answers
as NVML does. There is no GPU in these tests."""

import csv
import json
import os
import struct
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from run_agent.node_sampler import COLUMNS, SHARE
from standins import FIXTURES, MODULE_UTILS, needed, program, tree

CALL = """
from run_agent import gpu_sampler, node_sampler
gpu_sampler.EVERY_S = {}
node_sampler.SHARE = {}
node_sampler.main({}, 60, {}, {!r})
"""


class Sampler:
    """The program. `root` has the tree of its node; `gpus` says whether it looks for devices."""

    def __init__(
        self, root: str = "", gpus: bool = True, seconds: int = 60, python: str | None = None,
        every: int = 60, share: float = SHARE, **environment: str,
    ) -> None:  # fmt: skip
        code = CALL.format(every, share, seconds, "gpu_sampler.gpus" if gpus else None, root)
        paths = {
            "PYTHONPATH": str(MODULE_UTILS),
            "PATH": "/nowhere",
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        self.process = subprocess.Popen(
            [python or sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=paths | environment,
            text=True,
        )

    def until_node(self) -> Iterator[str]:
        """The lines of a sample, of which the node's is the last."""
        assert self.process.stdout
        for line in self.process.stdout:
            yield line.rstrip("\n")
            if line.startswith("sample,") and line.split(",")[2] == "":
                return

    def sample(self) -> list[str]:
        return list(self.until_node())

    def again(self) -> list[str]:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        return self.sample()

    def end(self) -> list[str]:
        """The last sample."""
        said, _ = self.process.communicate(timeout=300)
        assert self.process.returncode == 0
        return said.splitlines()


def cells(line: str) -> dict[str, str]:
    """What a sample tells, without its time."""
    _, _, device, uuid, *values = next(csv.reader([line]))
    found = {"device": device, "uuid": uuid, **dict(zip(COLUMNS, values, strict=True))}
    return {name: text for name, text in found.items() if text}


def told(lines: list[str], kind: str) -> list[str]:
    return [line for line in lines if line.partition(",")[0] == kind]


# 2 packages of CPUs, of which the second is the hotter one, and 2 disks with a partition. The CPUs
# idle for 1000 s, wait for 100 s and work for 20 + 5 + 30 + 2 + 3 s.
NODE = {
    "proc/stat": "cpu  2000 500 3000 100000 10000 200 300 0 0 0\ncpu0 1 1 1 1 1 1 1 0 0 0",
    "proc/loadavg": "1.50 1.00 0.50 2/345 6789",
    "proc/meminfo": "MemTotal: 4096000 kB\nMemFree: 10 kB\nMemAvailable: 1024000 kB\n"
    "SwapTotal: 2048 kB\nSwapFree: 1024 kB",
    "proc/diskstats": "8 0 sda 1 0 2048 0 1 0 4096 0 0 0 0\n8 1 sda1 1 0 2048 0 1 0 4096 0 0 0 0\n"
    "8 16 sdb 1 0 2048 0 1 0 0 0 0 0 0\n7 0 loop0 1 0 99999 0 1 0 99999 0 0 0 0",
    "proc/net/dev": "Inter-|\n face |bytes\n    lo: 9999999 1 0 0 0 0 0 0 9999999 1 0 0 0 0 0 0\n"
    "  eth0: 2097152 1 0 0 0 0 0 0 1048576 1 0 0 0 0 0 0\n"
    "docker0: 7340032 1 0 0 0 0 0 0 7340032 1 0 0 0 0 0 0",
    "proc/uptime": "1000.00 3000.00",
    "sys/block/sda/device/model": "x",
    "sys/block/sdb/device/model": "x",
    "sys/block/loop0/size": "1",
    "sys/class/net/eth0/device/vendor": "x",
    "sys/class/net/docker0/mtu": "1500",
    "sys/class/net/lo/mtu": "65536",
    **{
        f"sys/class/infiniband/mlx5_{n}/ports/1/counters/{name}": str(value)
        for n in range(2)
        for name, value in {
            "port_rcv_data": 262144,
            "port_xmit_data": 524288,
            "port_rcv_errors": n,
            "symbol_error": 0,
            "link_downed": 2,
        }.items()
    },
    **{
        f"sys/devices/system/cpu/cpu{n}/{name}": str(value)
        for n in range(4)
        for name, value in {
            "topology/physical_package_id": n // 2,
            "thermal_throttle/package_throttle_total_time_ms": 500 * (n // 2),
        }.items()
    },
    "sys/class/powercap/intel-rapl:0/name": "package-0",
    "sys/class/powercap/intel-rapl:0/energy_uj": "999000000",
    "sys/class/powercap/intel-rapl:0/max_energy_range_uj": "1000000000",
    "sys/class/powercap/intel-rapl:0:0/name": "dram",
    "sys/class/powercap/intel-rapl:0:0/energy_uj": "1000000",
    "sys/class/powercap/intel-rapl:0:0/max_energy_range_uj": "1000000000",
    "sys/class/powercap/intel-rapl:1/name": "psys",
    "sys/class/powercap/intel-rapl:1/energy_uj": "1",
}
EXPECTED = {
    "memory_used_mib": "3000.000",
    "swap_used_mib": "1.000",
    "cpu_busy_s": "60.000",
    "cpu_throttled_s": "0.500",
    "load_1m": "1.500",
    "disk_read_mib": "2.000",
    "disk_written_mib": "2.000",
    "network_received_mib": "2.000",
    "network_sent_mib": "1.000",
    "ib_received_mib": "2.000",
    "ib_sent_mib": "4.000",
    "ib_errors": "5",
    "energy_j": "0.000",
}


@pytest.mark.parametrize("version", ["", "2.7", "3.6"])
def test_a_node_from_what_the_kernel_tells(tmp_path: Path, version: str) -> None:
    root = tree(tmp_path, NODE)
    sampler = Sampler(str(root), python=needed(version))
    found = cells(sampler.sample()[-1])
    assert float(found.pop("telemetry_cpu_s")) > 0
    assert found == EXPECTED
    # The package's counter wraps at 1000 J: 1 J up to there, and 2 J more; and 0.5 J of its memory.
    tree(root, {"sys/class/powercap/intel-rapl:0/energy_uj": "2000000"})
    tree(root, {"sys/class/powercap/intel-rapl:0:0/energy_uj": "1500000"})
    assert cells(sampler.again()[-1])["energy_j"] == "3.500"
    assert cells(sampler.end()[-1])["energy_j"] == "3.500"


def test_what_a_node_does_not_tell_is_empty(tmp_path: Path) -> None:
    """Energy that only root may read is not told in part."""
    root = tree(tmp_path, {"sys/class/powercap/intel-rapl:0/name": "package-0"})
    assert set(cells(Sampler(str(root)).sample()[-1])) == {"telemetry_cpu_s"}


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A folder with a library that has the functions of NVML, by the signatures of nvml.h."""
    folder = tmp_path_factory.mktemp("nvml")
    source = FIXTURES / "nvml_standin.c"
    argv = ["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", source]
    subprocess.run(argv, check=True)
    return str(folder)


@pytest.mark.parametrize("version", ["", "2.7"])
def test_devices_by_nvml(nvml: str, version: str) -> None:
    """The second device has no NVLink, no ECC and no counter of energy."""
    python = needed(version)
    sampler = Sampler(python=python, LD_LIBRARY_PATH=nvml, STANDIN_PID=str(os.getpid()))
    lines = sampler.sample()
    sampler.end()
    first, second = (cells(line) for line in told(lines, "sample")[:-1])
    both = {
        "memory_used_mib": "70123",
        "utilization_percent": "97",
        "sm_clock_mhz": "1755",
        "max_sm_clock_mhz": "1980",
        "memory_clock_mhz": "2619",
        "temperature_c": "61",
        "power_w": "512.345",
        "throttle_reasons": "0x0000000000000004",
        "pcie_replays": "3",
    }
    only = {"energy_j": "123456.789", "ecc_uncorrected": "1", "ecc_corrected": "2"}
    only["nvlink_replays"] = "10"  # 5 of each link that is up
    assert first == {"device": "0", "uuid": "GPU-standin-0", **both, **only}
    assert second == {"device": "1", "uuid": "GPU-standin-1", **both}
    (process,) = (line.split(",") for line in told(lines, "process"))
    name = Path(f"/proc/{os.getpid()}/comm").read_text().strip()
    assert process[1:4] == ["GPU-standin-0", str(os.getpid()), str(os.getuid())]
    assert (process[5], process[6], process[8]) == ("503", str(os.getuid()), name)
    assert "looked" in lines


def test_driver_that_is_older_than_the_functions(nvml: str) -> None:
    """Version 440 has not the second memory query."""
    sampler = Sampler(STANDIN_OLD="1", LD_LIBRARY_PATH=nvml)
    lines = sampler.sample()
    sampler.end()
    assert cells(told(lines, "sample")[0])["memory_used_mib"] == "70123"


# Of an MI300X, by the names of Documentation/gpu/amdgpu; identities are made up.
MI300X = "sys/class/drm/card1/device"
AMD = {
    f"{MI300X}/vendor": "0x1002",
    f"{MI300X}/unique_id": "0f1e2d3c4b5a6978",
    f"{MI300X}/mem_info_vram_total": "206141652992",
    f"{MI300X}/mem_info_vram_used": "73528246272",
    f"{MI300X}/gpu_busy_percent": "97",
    f"{MI300X}/pp_dpm_sclk": "0: 132Mhz\n1: 1420Mhz *\n2: 2100Mhz",
    f"{MI300X}/ras/umc_err_count": "ue: 0\nce: 3",
    f"{MI300X}/pcie_replay_count": "2",
    f"{MI300X}/hwmon/hwmon4/power1_average": "712000000",
    f"{MI300X}/hwmon/hwmon4/freq1_input": "1420000000",
    f"{MI300X}/hwmon/hwmon4/freq2_input": "1300000000",
    f"{MI300X}/hwmon/hwmon4/temp1_label": "edge",
    f"{MI300X}/hwmon/hwmon4/temp1_input": "41000",
    f"{MI300X}/hwmon/hwmon4/temp2_label": "junction",
    f"{MI300X}/hwmon/hwmon4/temp2_input": "68000",
    # The console's adapter, and a partition, which have none of these.
    "sys/class/drm/card0/device/vendor": "0x1a03",
    "sys/class/drm/card2/dev": "226:2",
    "sys/class/kfd/kfd/topology/nodes/2/gpu_id": "51153",
    "sys/class/kfd/kfd/topology/nodes/2/properties": f"simd_count 9\nunique_id {0xF1E2D3C4B5A6978}",
    "sys/class/kfd/kfd/proc/4711/vram_51153": "73400320000",
    "sys/class/kfd/kfd/proc/4711/pasid": "32770",
    "proc/4711/stat": "4711 (python) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 50000 0 0",
    "proc/uptime": "1000.00 3000.00",
}


def gpu_metrics(joules: float, *counters: int) -> bytes:
    """The beginning of gpu_metrics 1.8: temperatures, power and activity, the memory's bandwidth,
    energy in 1/65536 J, time, cycles, and those in which something slowed the device down."""
    header = struct.pack("<HBB6HQ", 3872, 1, 8, 68, 60, 55, 712, 97, 40, 5300)
    return header + struct.pack("<QQ6I", int(joules * 65536), 0, *counters)


@pytest.mark.parametrize("version", ["", "2.7"])
def test_devices_of_amd_by_what_their_driver_tells(tmp_path: Path, version: str) -> None:
    metrics = tree(tmp_path, AMD) / MI300X / "gpu_metrics"
    metrics.write_bytes(gpu_metrics(4096, 1000, 0, 0, 0, 0, 0))
    sampler = Sampler(str(tmp_path), python=needed(version))
    lines = sampler.sample()
    # 10 % of the time at the power limit; HBM was too hot for less than 5 %.
    metrics.write_bytes(gpu_metrics(4808.5, 2000, 0, 100, 0, 0, 49))
    later = cells(told(sampler.again(), "sample")[-2])
    sampler.end()
    assert (later["energy_j"], later["throttle_reasons"]) == ("4808.500", "0x0000000000000004")
    (device, _node) = (cells(line) for line in told(lines, "sample"))
    assert device == {
        "device": "0",
        "uuid": "GPU-0f1e2d3c4b5a6978",
        "memory_used_mib": "70122",
        "utilization_percent": "97",
        "sm_clock_mhz": "1420",
        "max_sm_clock_mhz": "2100",
        "memory_clock_mhz": "1300",
        "temperature_c": "68",
        "power_w": "712.000",
        "energy_j": "4096.000",
        "ecc_uncorrected": "0",
        "ecc_corrected": "3",
        "pcie_replays": "2",
    }
    (process,) = (line.split(",") for line in told(lines, "process"))
    assert (process[1:3], process[5]) == (["GPU-0f1e2d3c4b5a6978", "4711"], "70000")


def test_library_without_a_driver_leaves_the_question_to_nvidia_smi(
    nvml: str, tmp_path: Path
) -> None:
    full = "0, GPU-1, 123, 97, 1380, 1530, 61, 287.51, 0x0000000000000004, 0"
    smi = program(tmp_path, "nvidia-smi", f'case "$*" in *query-gpu*) echo "{full}";; esac')
    sampler = Sampler(LD_LIBRARY_PATH=nvml, STANDIN_FAILS="1", PATH=f"{smi}:/bin")
    lines = sampler.sample()
    sampler.end()
    found = cells(told(lines, "sample")[0])
    assert (found["uuid"], found["power_w"], found["sm_clock_mhz"]) == ("GPU-1", "287.51", "1380")
    assert "looked" in lines


OLD = "4,100,12000000,-;NVRM: Xid (PCI:0000:3b:00): 31, pid=77, Ch 00000010\n"
NEW = '4,101,93207000,-;NVRM: Xid (PCI:0000:af:00): 79, pid=4711, GPU has fallen off the "bus".\n'


def test_new_errors_in_the_kernels_log(tmp_path: Path) -> None:
    root = tree(tmp_path, {"dev/kmsg": OLD})
    sampler = Sampler(str(root))
    first = sampler.sample()
    assert ("kernel" in first, told(first, "xid")) == (True, [])
    with (tmp_path / "dev/kmsg").open("a") as log:
        log.write("6,102,1,-;eth0: link up\n" + NEW)
    told_now = told(sampler.again(), "xid")
    assert told_now == ["xid,0000:af:00,79,pid=4711 GPU has fallen off the bus ."]
    assert told(sampler.end(), "xid") == []


def test_kernels_log_that_this_user_may_not_see(tmp_path: Path) -> None:
    sampler = Sampler(str(tree(tmp_path, {"proc/uptime": "1.00 1.00"})))
    assert "kernel" not in sampler.sample()
    sampler.end()


@pytest.mark.parametrize("version", ["", "2.7"])
def test_errors_by_nvml_where_the_kernels_log_is_hidden(
    nvml: str, tmp_path: Path, version: str
) -> None:
    python = needed(version)
    root = tree(tmp_path, {"proc/uptime": "1.00 1.00"})
    xid = tmp_path / "xid"
    sampler = Sampler(str(root), python=python, LD_LIBRARY_PATH=nvml, STANDIN_XID=str(xid))
    first = sampler.sample()
    assert ("kernel" in first, told(first, "xid")) == (True, [])
    xid.touch()
    assert told(sampler.again(), "xid") == ["xid,0000:af:00,79,reported by NVML"]
    assert told(sampler.end(), "xid") == []


# ---- its cost


def cost(sampler: Sampler) -> tuple[list[float], float]:
    """CPU seconds of each sample after the first, and the time from the first to the last one."""
    lines = [sampler.again()[-1], *(sampler.sample()[-1] for _ in range(6))]
    sampler.process.kill()
    sampler.process.wait()
    used = [float(cells(line)["telemetry_cpu_s"]) for line in lines]
    first, last = (float(line.split(",")[1]) for line in (lines[0], lines[-1]))
    return [after - before for before, after in pairwise(used)], last - first


def test_samples_that_cost_more_are_rarer(tmp_path: Path) -> None:
    """nvidia-smi needs 50 ms and more of CPU for each. The share is larger, for a short test."""
    burn = "i=0; while [ $i -lt 50000 ]; do i=$((i + 1)); done; echo '0, GPU-1, 123'"
    smi = program(tmp_path, "nvidia-smi", burn)
    steps, seconds = cost(Sampler(seconds=0, share=0.1, PATH=f"{smi}:/bin"))
    assert min(steps) > 0.01
    assert sum(steps) <= 0.1 * seconds + max(steps) + 0.002


# ---- DCGM's health. The answers have the form of dcgmi's source: NVIDIA/DCGM 72fa3fe,
# dcgmi/Health.cpp, Group.cpp and DcgmiOutput.h.

DCGMI = """\
cd {folder}; echo "$*" >> asked
case "$*" in
"group --list --json") cat groups ;;
"group --create dlperf --default")
  echo 'Successfully created group "dlperf" with a group ID of 2' ;;
"health --group 2 --set a") echo 'Health monitor systems set successfully.' ;;
"health --group 2 --check --json") cat health ;;
"group --delete 2") echo 'Successfully removed group 2' ;;
*) echo 'Error: Unable to set health watches. Return: The Group is not found'; exit 255 ;;
esac
"""
SET = ["group --list --json", "health --group 2 --set a", "health --group 2 --check --json"]


def groups(*names: str) -> dict[str, Any]:
    found = {
        str(number): {
            "children": {
                "Entities": {"value": "GPU 0, GPU 1"},
                "Group ID": {"value": str(number)},
                "Group Name": {"value": name},
            }
        }
        for number, name in enumerate(names)
    }
    header = ["GROUPS", f"{len(names)} groups found."]
    return {"body": {"Groups": {"children": found}}, "header": header}


def health(overall: str, **systems: dict[str, Any]) -> dict[str, Any]:
    """The report on GPU 1."""
    body: dict[str, Any] = {"Overall Health": {"value": overall}}
    if systems:
        errors = {f"{name} system": told for name, told in systems.items()}
        one = {"children": {"Errors": {"children": errors}}, "value": overall}
        body["GPU"] = {"children": {"1": one}}
    return {"body": body, "header": ["Health Monitor Report"]}


FAILING = health(
    "Failure",
    Memory={
        "overflow": ["Detected 2 volatile double-bit ECC error(s) in GPU 1."],
        "value": "Failure",
    },
    PCIe={
        "overflow": ["Detected more than 8 PCIe replays per minute for GPU 1", ": 13"],
        "value": "Warning",
    },
)
STYLED = {"indent": 3, "separators": (",", " : ")}  # as Json::Value::toStyledString


def dcgmi(folder: Path, *names: str) -> Path:
    program(folder, "dcgmi", DCGMI.format(folder=folder))
    (folder / "groups").write_text(json.dumps(groups("DCGM_ALL_SUPPORTED_GPUS", *names), **STYLED))
    (folder / "health").write_text(json.dumps(health("Healthy"), **STYLED))
    return folder


@pytest.mark.parametrize("version", ["", "2.7"])
def test_health_watches_of_dcgm(tmp_path: Path, version: str) -> None:
    """They belong to a group of their own, which is gone afterwards; each incident is told once."""
    folder = dcgmi(tmp_path / "bin", "DCGM_ALL_SUPPORTED_NVSWITCHES")
    sampler = Sampler(python=needed(version), seconds=60, every=0, PATH=f"{folder}:/bin")
    sampler.sample()
    assert not (folder / "asked").exists()  # the run need not wait for it
    sampler.again()
    assert told(sampler.again(), "health") == ["health,,,Healthy,"]
    (folder / "health").write_text(json.dumps(FAILING, **STYLED))
    lines = sampler.again() + sampler.again() + sampler.end()
    assert told(lines, "health") == [
        "health,,,Failure,",
        "health,GPU 1,Memory system,Failure,Detected 2 volatile double-bit ECC error(s) in GPU 1.",
        "health,GPU 1,PCIe system,Warning,"
        "Detected more than 8 PCIe replays per minute for GPU 1 : 13",
    ]
    asked = (folder / "asked").read_text().splitlines()
    assert asked[:4] == [SET[0], "group --create dlperf --default", *SET[1:]]
    assert (set(asked[4:-1]), asked[-1]) == ({SET[-1]}, "group --delete 2")


def test_group_that_an_earlier_run_left_is_used(tmp_path: Path) -> None:
    folder = dcgmi(tmp_path / "bin", "DCGM_ALL_SUPPORTED_NVSWITCHES", "dlperf")
    sampler = Sampler(seconds=60, PATH=f"{folder}:/bin")
    sampler.sample()
    sampler.again()
    sampler.end()
    assert (folder / "asked").read_text().splitlines() == [*SET, SET[-1], "group --delete 2"]


@pytest.mark.parametrize(
    "script",
    [
        "echo 'Error: unable to establish a connection to the specified host: localhost'; exit 255",
        "echo '{\"body\": [1]}'",
        "sleep 60",
    ],
)
def test_dcgm_that_does_not_answer_costs_its_reports_only(tmp_path: Path, script: str) -> None:
    folder = program(tmp_path, "dcgmi", script)
    sampler = Sampler(seconds=60, PATH=f"{folder}:/bin")
    sampler.sample()
    sampler.again()
    assert told(sampler.end(), "health") == []
