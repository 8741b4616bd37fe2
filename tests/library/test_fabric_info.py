"""What fabric_info makes of recorded /sys trees, and of stand-ins for ip and ofed_info;
ORIGIN.yml says that they are composed."""

import json
from pathlib import Path
from typing import Any

import pytest
from ansible.module_utils import fabric_facts
from hypothesis import given
from hypothesis import strategies as st
from standins import call, fixture, program, tree

ADDRESS = (
    "4: ib0    inet 10.11.0.2/24 brd 10.11.0.255 scope global ib0\\       valid_lft forever\n"
    "4: ib0    inet6 fe80::ee0d:9a03:3d:677a/64 scope link \\       valid_lft forever\n"
)


def recorded(root: Path, name: str) -> Path:
    return tree(root, json.loads(fixture(f"fabric/{name}.json")))


def facts(tmp_path: Path, root: Path, *path: Path, **options: Any) -> dict[str, Any]:
    return call("fabric_info", tmp_path, path, root=str(root), **options)


def test_a_card_of_the_published_tests(tmp_path: Path) -> None:
    bins = program(tmp_path / "bin", "ip", f"echo '{ADDRESS}'")
    program(bins, "ofed_info", "echo MLNX_OFED_LINUX-5.0-2.1.8.0:")
    found = facts(tmp_path, recorded(tmp_path / "root", "connectx4"), bins)
    assert found == {
        "devices": [
            {
                "name": "mlx5_0",
                "firmware": "12.23.1020",
                "pcie": {"width": None, "max_width": None, "speed": None, "max_speed": None},
                "ports": [
                    {
                        "port": 1,
                        "state": "ACTIVE",
                        "physical_state": "LinkUp",
                        "fault": None,
                        "in_use": True,
                        "rate_gbps": 100,
                        "full_rate_gbps": None,
                        "speed": "EDR",
                        "link_layer": "InfiniBand",
                        "gids": ["IB/RoCE v1"],
                        "gid_table": {
                            "0": ["fe80:0000:0000:0000:ec0d:9a03:003d:677a", "IB/RoCE v1"]
                        },
                        "pkeys": [],
                        "counters": None,
                        "interface": "ib0",
                    }
                ],
            }
        ],
        "interfaces": {"ib0": {"state": "up", "mtu": 65520, "addresses": ["10.11.0.2/24"]}},
        "modules": {"nv_peer_mem": "1.0-9", "ib_ipoib": None, "mlx5_core": "5.0-2.1.8"},
        "missing_rails": [],
        "acs": [],
        "iommu": [],
        "gpu_direct": ["nv_peer_mem"],
        "dma_buf": [
            "an RDMA core with DMA-BUF (Linux 5.12 or newer, or a current MLNX_OFED), loaded",
            "a running driver",
        ],
        "peer_memory_client": None,
        "ofed": "5.0-2.1.8.0",
        "memlock_kib": 64,
        "memlock_unlimited": False,
        "slurmd_memlock_kib": None,
    }


def test_ports_on_ethernet_one_of_them_down(tmp_path: Path) -> None:
    found = facts(tmp_path, recorded(tmp_path / "root", "connectx7_roce"))
    up, down = (device["ports"][0] for device in found["devices"])
    assert (up["state"], up["rate_gbps"], up["link_layer"]) == ("ACTIVE", 400, "Ethernet")
    assert up["gids"] == ["IB/RoCE v1", "RoCE v2"]
    assert (down["state"], down["physical_state"], down["gids"]) == ("DOWN", "Disabled", [])
    assert (up["fault"], down["fault"]) == (None, "check the cable and the switch")
    assert found["interfaces"]["eth2"]["addresses"] is None  # there is no ip to ask
    assert found["modules"] == {"mlx5_ib": None, "nvidia_peermem": None}
    assert found["gpu_direct"] == ["nvidia-peermem"]
    assert (found["ofed"], found["memlock_unlimited"]) == (None, None)


@pytest.mark.parametrize(
    ("interface", "in_use"), [("ib0", [True, False]), ("eth0", [True, True]), (None, [True, True])]
)
def test_the_ports_in_use_are_the_named_interfaces_or_all(
    tmp_path: Path, interface: str | None, in_use: list[bool]
) -> None:
    base = "sys/class/infiniband/mlx4_0"
    files = {f"{base}/ports/{port}/state": "2: INIT" for port in (1, 2)}
    files |= {f"{base}/ports/{port}/phys_state": "5: LinkUp" for port in (1, 2)}
    files |= {f"{base}/device/net/ib{n}/dev_id": f"0x{n}" for n in (0, 1)}
    named = {"interface": interface} if interface else {}
    ports = facts(tmp_path, tree(tmp_path / "root", files), **named)["devices"][0]["ports"]
    assert [port["interface"] for port in ports] == ["ib0", "ib1"]
    assert [port["in_use"] for port in ports] == in_use
    assert {port["fault"] for port in ports} == {"start a subnet manager (opensm, or the switch's)"}


# NCCL_IB_HCA and the ports that NCCL then uses, of mlx5_0, mlx5_1, mlx5_10 with two ports each.
RAILS = [
    ("mlx5_0", ["0:1", "0:2"], []),
    ("mlx5_1", ["1:1", "1:2", "10:1", "10:2"], []),
    ("=mlx5_1", ["1:1", "1:2"], []),
    ("=mlx5_0:1,mlx5_10:2", ["0:1", "10:2"], []),
    ("^mlx5_1", ["0:1", "0:2"], []),
    ("^=mlx5_1,mlx5_0:2", ["0:1", "10:1", "10:2"], []),
    ("mlx5", ["0:1", "0:2", "1:1", "1:2", "10:1", "10:2"], []),
    ("=mlx5_0,mlx5_7,mlx5_1:3", ["0:1", "0:2"], ["mlx5_7", "mlx5_1:3"]),
]


@pytest.mark.parametrize(("rails", "used", "missing"), RAILS)
def test_the_ports_in_use_are_the_rails_that_nccl_would_take(
    tmp_path: Path, rails: str, used: list[str], missing: list[str]
) -> None:
    base = "sys/class/infiniband/mlx5_"
    files = {f"{base}{n}/ports/{p}/state": "1: DOWN" for n in (0, 1, 10) for p in (1, 2)}
    files[f"{base}0/device/net/ib0/dev_id"] = "0x0"
    root = tree(tmp_path / "root", files)
    found = facts(tmp_path, root, interface="ib0", rails=rails)
    in_use = [
        f"{device['name'].removeprefix('mlx5_')}:{port['port']}"
        for device in found["devices"]
        for port in device["ports"]
        if port["in_use"]
    ]
    assert (in_use, found["missing_rails"]) == (used, missing)


# Shortened output of ethtool for a ConnectX-7; the second list is what the card offers.
ETHTOOL = """Settings for eth2:
    Supported ports: [ FIBRE ]
    Supported link modes:   1000baseKX/Full
                            100000baseCR4/Full
                            200000baseCR4/Full
    Supported pause frame use: Symmetric
    Advertised link modes:  400000baseCR4/Full
    Speed: 100000Mb/s
"""


def test_the_full_rate_of_an_ethernet_port_is_its_cards(tmp_path: Path) -> None:
    bins = program(tmp_path / "bin", "ethtool", f"echo '{ETHTOOL}'")
    found = facts(tmp_path, recorded(tmp_path / "root", "connectx7_roce"), bins)
    assert [device["ports"][0]["full_rate_gbps"] for device in found["devices"]] == [200, 200]
    program(bins, "ethtool", "exit 75")
    found = facts(tmp_path, tmp_path / "root", bins)
    assert [device["ports"][0]["full_rate_gbps"] for device in found["devices"]] == [None, None]


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.105.08  Wed Nov 13 00:00:22 UTC 2025"
DMA_BUF = "0000000000000000 T ib_umem_dmabuf_get\t[ib_uverbs]"
CLIENT = "0000000000000000 T ib_register_peer_memory_client\t[ib_core]"
CORE = "ib_core 45 1 - Live 0x0"


@pytest.mark.parametrize(
    ("symbols", "driver", "modules", "by", "client", "lacks"),
    [
        (DMA_BUF, OPEN, CORE, ["DMA-BUF"], False, ""),
        (f"{DMA_BUF}\n{CLIENT}", OPEN, f"{CORE}\nnvidia_peermem 1 0 - Live 0x0", *(
            ["DMA-BUF", "nvidia-peermem"], True, "")),
        (DMA_BUF, CLOSED, CORE, [], False, "the open kernel modules of NVIDIA's driver"),
        (CLIENT, OPEN, CORE, [], True, "Linux 5.12 or newer"),
        (DMA_BUF, "", CORE, [], False, "a running driver"),
        ("0000000000000000 T vfs_read", OPEN, "ext4 1 0 - Live 0x0", [], None, "Linux 5.12"),
    ],
)  # fmt: skip
def test_how_the_cards_can_read_gpu_memory(
    tmp_path: Path,
    symbols: str,
    driver: str,
    modules: str,
    by: list[str],
    client: bool | None,
    lacks: str,
) -> None:
    files = {"proc/kallsyms": symbols, "proc/modules": modules}
    files |= {"proc/driver/nvidia/version": driver} if driver else {}
    files |= {"sys/kernel/mm/memory_peers/nv_mem/version": "1"} if "peermem" in modules else {}
    found = facts(tmp_path, tree(tmp_path / "root", files))
    assert (found["gpu_direct"], found["peer_memory_client"]) == (by, client)
    assert lacks in " ".join(found["dma_buf"])
    assert bool(lacks) == bool(found["dma_buf"])


def test_a_module_that_ib_core_does_not_know_reads_no_gpu_memory(tmp_path: Path) -> None:
    """NVIDIA/nccl#1939: lsmod shows nvidia_peermem, and NCCL does without GPUDirect."""
    files = {"proc/modules": f"{CORE}\nnvidia_peermem 1 0 - Live 0x0", "proc/kallsyms": CLIENT}
    found = facts(tmp_path, tree(tmp_path / "root", files))
    assert (found["gpu_direct"], "nvidia_peermem" in found["modules"]) == ([], True)


def bridge(control: int) -> str:
    """The configuration space of a PCI bridge whose first extended capability is ACS."""
    head = b"\0" * 0x100 + (0x0001000D).to_bytes(4, "little")
    return (head + (0).to_bytes(2, "little") + control.to_bytes(2, "little")).decode("ascii")


def test_what_slows_cards_on_bare_metal_is_read(tmp_path: Path) -> None:
    """A card of DOCA, which has no ofed_info (openucx/ucx#11538), in a slot of half its width; a
    function that manages NVSwitches (NVIDIA/gpu-operator#2781) is no rail."""
    card, pci = "sys/class/infiniband/mlx5_0", "sys/bus/pci/devices/0000:20"
    files = {
        f"{card}/device/current_link_width": "8",
        f"{card}/device/max_link_width": "16",
        f"{card}/device/current_link_speed": "16.0 GT/s PCIe",
        f"{card}/device/max_link_speed": "32.0 GT/s PCIe",
        f"{card}/device/iommu_group/type": "DMA-FQ",
        f"{card}/ports/1/state": "4: ACTIVE",
        f"{card}/ports/1/pkeys/0": "0x7fff",
        f"{card}/ports/1/pkeys/1": "0xffff",
        f"{card}/ports/1/counters/link_downed": "7",
        f"{card}/ports/1/counters/symbol_error": "12",
        f"{card}/ports/1/counters/port_rcv_errors": "0",
        "sys/class/infiniband/mlx5_9/device/vendor": "0x15b3",
        "sys/class/infiniband/mlx5_9/device/class": "0x020700",
        "sys/class/infiniband/mlx5_9/device/vpd": "V\x01SMDL=SW_MNG",
        "sys/class/infiniband/mlx5_9/ports/1/state": "4: ACTIVE",
        **{f"{pci}:0{n}.0/class": "0x060400" for n in (1, 2)},
        f"{pci}:01.0/config": bridge(0x1D),
        f"{pci}:02.0/config": bridge(0),
        "proc/modules": "mlx5_core 9 1 - Live 0x0",
        "sys/module/mlx5_core/version": "25.10-1.2.8",
    }
    found = facts(tmp_path, tree(tmp_path / "root", files))
    (device,) = found["devices"]
    assert device["pcie"] == {"width": 8, "max_width": 16, "speed": 16.0, "max_speed": 32.0}
    (port,) = device["ports"]
    assert (port["pkeys"], port["counters"]) == (
        ["0x7fff", "0xffff"],
        {"link_downed": 7, "symbol_error": 12},
    )
    assert (found["acs"], found["iommu"]) == (["0000:20:01.0"], ["DMA-FQ"])
    assert found["ofed"] == "25.10-1.2.8"
    files = {"proc/cpuinfo": "flags\t: fpu hypervisor lahf_lm"}
    found = facts(tmp_path, tree(tmp_path / "root", files))
    assert (found["acs"], found["iommu"]) == (None, None)


def test_a_node_without_any(tmp_path: Path) -> None:
    root = tree(
        tmp_path / "root",
        {"sys/class/net/eth0/mtu": "1500", "proc/self/limits": "Max locked memory  unlimited x"},
    )
    found = facts(tmp_path, root, interface="eth0")
    assert found["devices"] == []
    assert found["interfaces"]["eth0"]["mtu"] == 1500
    assert (found["memlock_kib"], found["memlock_unlimited"]) == (None, True)
    assert facts(tmp_path, root, interface="ib0")["interfaces"] == {"ib0": None}


def test_the_limit_of_slurmd_is_that_of_its_jobs(tmp_path: Path) -> None:
    """A site's own unit without LimitMEMLOCK: systemd's default is 8 MiB."""
    daemon = {"comm": "slurmd\n", "limits": "Max locked memory  8388608  8388608  bytes\n"}
    made = {f"proc/42/{name}": text for name, text in daemon.items()}
    root = tree(tmp_path / "root", {"proc/41/comm": "slurmstepd\n", **made})
    assert facts(tmp_path, root)["slurmd_memlock_kib"] == 8192
    tree(tmp_path / "root", {"proc/42/limits": "Max locked memory  unlimited  unlimited  bytes\n"})
    assert facts(tmp_path, root)["slurmd_memlock_kib"] is None


def test_the_limit_is_that_of_a_login_of_the_user(tmp_path: Path) -> None:
    script = 'case "$*" in "-u dlperf -- sh -c ulimit -l") echo 8192;; *) exit 1;; esac'
    bins = program(tmp_path / "bin", "runuser", script)
    root = tree(tmp_path / "root", {"proc/self/limits": "Max locked memory  unlimited x"})
    assert facts(tmp_path, root, bins, user="dlperf")["memlock_kib"] == 8192
    nobody = facts(tmp_path, root, bins, user="nobody-here")
    assert (nobody["memlock_kib"], nobody["memlock_unlimited"]) == (None, None)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("100 Gb/sec (4X EDR)", (100, "EDR")),
        ("2.5 Gb/sec (1X SDR)", (2.5, "SDR")),
        ("40 Gb/sec (4X)", (40, None)),
        ("800 Gb/sec (4X XDR)", (800, "XDR")),
        ("100 Mb/sec", (None, None)),
        ("fast Gb/sec (4X EDR)", (None, "EDR")),
        ("", (None, None)),
        (None, (None, None)),
    ],
)
def test_rates(text: str | None, expected: tuple[object, ...]) -> None:
    assert fabric_facts.rate(text) == expected


@given(st.text())
def test_no_text_breaks_the_parsers(text: str) -> None:
    rate, _ = fabric_facts.rate(text)
    assert rate is None or float(text.split(" ")[0]) == rate
    fabric_facts.hexadecimal(text)
    fabric_facts.worded(text)
    fabric_facts.addresses(text)
