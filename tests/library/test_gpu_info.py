"""What gpu_info makes of nvidia-smi's words, by a stand-in that replays them; ORIGIN.yml says
which of them are real."""

import sys
from pathlib import Path
from typing import Any

import nvidia_smi as words
import pytest
from ansible.module_utils import nvidia_kernel
from hypothesis import given
from hypothesis import strategies as st
from standins import amd, call, fixture, index_of, nvidia_smi, program, several, tree

V100, H100 = fixture("gpu/v100_440.xml"), fixture("gpu/h100_580.xml")
V100_TOPOLOGY = fixture("gpu/v100_topo.txt")
PROC = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  440.33.01  Wed Nov 13 00:00:22 UTC 2019"


def facts(tmp_path: Path, *path: Path, **options: Any) -> dict[str, Any]:
    root = options.pop("root", tmp_path / "root")
    root.mkdir(exist_ok=True)
    return call("gpu_info", tmp_path, path, root=str(root), **options)


def test_what_an_h200_printed(tmp_path: Path) -> None:
    smi = nvidia_smi(tmp_path / "bin", fixture("gpu/h200_580.xml"), "", index_of(1))
    found = facts(tmp_path, smi)
    (gpu,) = found["gpus"]
    assert gpu["recovery"] is None
    assert (found["driver"], found["driver_cuda"], gpu["model"]) == (
        *("580.159.04", "13.0", "NVIDIA H200"),
    )
    assert (gpu["bus_id"], gpu["memory_mib"], gpu["power_limit_w"]) == ("0000:00:06.0", 143771, 700)
    assert (gpu["throttle_reasons"], gpu["pcie_generation"]) == (["gpu_idle"], 5)
    assert gpu["remapped_rows"] == {"pending": False, "failure": False}
    # A virtual machine with one GPU is in no NVLink fabric.
    assert gpu["fabric"] is None


def test_a_node_of_the_published_tests(tmp_path: Path) -> None:
    smi = nvidia_smi(tmp_path / "bin", several(V100, 8), V100_TOPOLOGY, index_of(8))
    root = tree(
        tmp_path / "root",
        {
            "proc/driver/nvidia/version": PROC,
            "proc/modules": "nvidia 19898368 30 - Live 0x0 (POE)\nnv_peer_mem 16384 0 - Live 0x0\n",
            "sys/module/nvidia/version": "440.33.01",
            "usr/local/cuda/version.txt": "CUDA Version 10.2.89",
            "usr/include/cudnn.h": "#define CUDNN_MAJOR 7\n#define CUDNN_MINOR 6\n"
            "#define CUDNN_PATCHLEVEL 5\n",
            "usr/lib/x86_64-linux-gnu/libnccl.so.2.7.3": "",
            "var/log/dmesg": "[ 9.1] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  440.33.01",
            **{
                f"sys/bus/pci/devices/0000:{0x1A + n:02x}:00.0/{name}": value
                for n in range(8)
                for name, value in (("vendor", "0x10de"), ("class", "0x030200"))
            },
        },
    )
    found = facts(tmp_path, smi, root=root)
    assert found["error"] is None
    versions = ("driver", "driver_running", "driver_cuda", "cuda", "cudnn", "nccl")
    assert [found[name] for name in versions] == [
        *("440.33.01", "440.33.01", "10.2", "10.2.89", "7.6.5", "2.7.3")
    ]
    assert found["modules"] == {"nvidia": "440.33.01", "nv_peer_mem": None}
    assert found["xid"] == []
    assert len(found["pci"]) == len(found["gpus"]) == 8
    assert [gpu["index"] for gpu in found["gpus"]] == list(range(8))
    assert found["gpus"][0] == {
        "index": 0,
        "uuid": "GPU-00000000-aaaa-bbbb-cccc-000000000000",
        "bus_id": "0000:1a:00.0",
        "model": "Tesla V100-SXM2-16GB",
        "vbios": "88.00.1A.00.03",
        "memory_mib": 16160,
        "pcie_generation": None,
        "persistence": True,
        "recovery": None,
        "mig": None,
        "throttle_reasons": ["gpu_idle"],
        "temperature_c": 34,
        "power_limit_w": 300.0,
        "power_default_limit_w": 300.0,
        "ecc": {
            "enabled": True,
            "pending": True,
            "volatile": {"uncorrected": 0},
            "aggregate": {"uncorrected": 0},
        },
        "retired_pages": {"pending": False},
        "remapped_rows": None,
        "processes": [],
        "fabric": None,
        "clocks_mhz": {
            "application": {"graphics": 1312, "memory": 877},
            "max": {"graphics": 1530, "memory": 877},
        },
        "errors": {},
    }


@pytest.mark.parametrize(
    ("said", "recovery"),
    [
        ("<gpu_recovery_action>Reboot</gpu_recovery_action>", "Reboot"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "Reset"),
        ("<gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>", None),
    ],
)
def test_what_the_driver_asks_for(said: str, recovery: str | None) -> None:
    xml = several(V100, 1).replace("</gpu>", f"{said}</gpu>")
    assert words.read_xml(xml)["gpus"][0]["recovery"] == recovery


def test_fatal_errors_of_links_and_switches_are_apart() -> None:
    lines = (
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2)\n"
        "NVRM: Xid (PCI:0018:01:00): 145, RLW_CTRL Fatal XC0 i0 Link 02 (0x0409a0c2)\n"
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 12028, Non-fatal, Link 32 egress\n"
        "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 24007, Fatal, Link 31 sourcetrack\n"
    )
    assert [(each["xid"], each["message"][:9]) for each in words.xid_errors(lines)] == [
        *((24007, "Fatal, Li"), (145, "RLW_RXPIP"), (145, "RLW_CTRL "))
    ]


def test_the_published_topology() -> None:
    links = words.topology(V100_TOPOLOGY)["links"]
    assert list(links) == [f"GPU{n}" for n in range(8)] + ["mlx5_0"]
    others = ("NV1", "NV1", "NV2", "NV2", "SYS", "SYS", "SYS")
    of_first = {f"GPU{n}": link for n, link in enumerate(others, start=1)}
    assert links["GPU0"] == {**of_first, "mlx5_0": "NODE"}
    assert links["mlx5_0"]["GPU2"] == "PIX"
    assert all(links[a][b] == links[b][a] for a in links for b in links[a])


def test_a_topology_with_escapes_tabs_and_empty_cells() -> None:
    found = words.topology(fixture("gpu/h100_topo.txt"))
    assert found["links"]["GPU0"] == {"GPU1": "NV18", "NIC0": "PXB", "NIC1": "SYS"}


def test_a_gpu_of_today(tmp_path: Path) -> None:
    xml = H100.replace("reason_sw_power_cap>Not Active", "reason_sw_power_cap>Active").replace(
        "reasons_display_clocks_setting>Not Active", "reasons_display_clocks_setting>Active"
    )
    found = facts(tmp_path, nvidia_smi(tmp_path / "bin", xml, "", index_of(1)))
    (gpu,) = found["gpus"]
    assert (gpu["mig"], gpu["memory_mib"], gpu["power_limit_w"]) == (False, 81559, 700.0)
    assert gpu["throttle_reasons"] == ["display_clocks_setting", "sw_power_cap"]
    assert gpu["clocks_mhz"]["application"] == {"graphics": None, "memory": None}
    assert gpu["ecc"]["aggregate"] == {"uncorrected": 0}
    assert gpu["retired_pages"] == {"pending": None}
    assert gpu["remapped_rows"] == {"pending": False, "failure": False}
    assert gpu["processes"] == [
        {"pid": 41327, "name": "/opt/train/bin/python3", "type": "C", "memory_mib": 70396}
    ]
    assert gpu["errors"] == {}
    assert (found["topology"], found["pci"], found["xid"]) == (None, None, None)


# Azure/azhpc-images#506: no value is N/A, and the fabric is not there.
IMEX = """\
N - Never Connected
C - Connected - Ready for operation

3/25/2025 10:39:43.659
Nodes:
Node #0   * 10.136.206.48 * - READY
Node #1   - 10.136.206.49   - UNAVAILABLE

 Nodes From\\To  0   1
       0        C   N
Domain State: DEGRADED
"""
FABRIC = """<fabric>
<state>Completed</state><status>Insufficient Resources</status><cliqueId>0</cliqueId>
<clusterUuid>00000000-0000-0000-0000-000000000000</clusterUuid>
<health><summary>N/A</summary></health></fabric>"""


def test_the_nvlink_fabric_of_a_board_is_read(tmp_path: Path) -> None:
    """On HGX B200 what manages the NVSwitches is a ConnectX function, here without its modules
    (NVIDIA/gpu-operator#2781)."""
    smi = nvidia_smi(tmp_path / "bin", H100.replace("</gpu>", f"{FABRIC}</gpu>"), "", index_of(1))
    program(tmp_path / "bin", "nv-fabricmanager", "echo Fabric Manager version is : 580.105.08")
    program(tmp_path / "bin", "systemctl", "echo inactive; exit 3")
    device = "sys/bus/pci/devices/0000:0c:00.0"
    card = {f"{device}/vendor": "0x15b3", f"{device}/class": "0x020700"}
    root = tree(tmp_path / "root", card | {f"{device}/vpd": "V\x01SMDL=SW_MNG"})
    found = facts(tmp_path, smi, root=root)
    assert found["gpus"][0]["errors"] == {}
    assert found["gpus"][0]["fabric"] == {
        "state": "Completed",
        "status": "Insufficient Resources",
        "cluster_uuid": "00000000-0000-0000-0000-000000000000",
        "clique_id": "0",
        "health": None,
    }
    assert found["nvswitches"] == ["0000:0c:00.0"]
    assert found["fabric_manager"] == {"version": "580.105.08", "is_active": False}
    (root / device / "vpd").write_text("V\x01SMDL=CX7")
    assert facts(tmp_path, smi, root=root)["fabric_manager"] is None


def test_nvlink_between_nodes_has_a_service_and_channels(tmp_path: Path) -> None:
    xml = H100.replace("NVIDIA H100 80GB HBM3", "NVIDIA GB200")
    smi = nvidia_smi(tmp_path / "bin", xml, "", index_of(1))
    program(tmp_path / "bin", "systemctl", 'test "$2" = nvidia-imex && echo active')
    # A daemon printed it with one node (NVIDIA/k8s-dra-driver-gpu#264); the second node is made up.
    program(tmp_path / "bin", "nvidia-imex-ctl", f"printf '%s' '{IMEX}'")
    root = tree(tmp_path / "root", {"dev/nvidia-caps-imex-channels/channel0": ""})
    assert facts(tmp_path, smi, root=root)["imex"] == {
        "is_active": True,
        "channels": 1,
        "domain": "DEGRADED",
        "missing": ["10.136.206.49"],
    }
    assert facts(tmp_path, nvidia_smi(tmp_path / "bin", H100, "", index_of(1)))["imex"] is None


def test_a_corrupted_inforom_is_in_the_plain_table_only(tmp_path: Path) -> None:
    """DCGM passes such a GPU, too (NVIDIA/DCGM#2)."""
    table = "| GPU Name |\nWARNING: infoROM is corrupted at gpu 0000:B3:00.0\n"
    smi = nvidia_smi(tmp_path / "bin", H100, "", index_of(1), table=table)
    assert facts(tmp_path, smi)["inforom"] == ["0000:b3:00.0"]


def test_errors_of_amds_links_count(tmp_path: Path) -> None:
    files = {"sys/bus/pci/devices/0000:06:00.0/ras/xgmi_wafl_err_count": "ue: 2\nce: 0"}
    found = facts(tmp_path, root=tree(tmp_path / "root", amd(2) | files))
    assert [gpu["ecc"]["volatile"]["uncorrected"] for gpu in found["gpus"]] == [0, 2]


def test_gpus_of_amd_are_read_from_sysfs(tmp_path: Path) -> None:
    found = facts(tmp_path, root=tree(tmp_path / "root", amd(2)))
    assert (found["error"], found["is_amd"], found["rocm"]) == (None, True, "7.2.4")
    assert [gpu["model"] for gpu in found["gpus"]] == ["AMD Instinct MI300X"] * 2
    assert found["gpus"][1]["uuid"] == "GPU-0f1e2d3c4b5a6971"
    assert found["gpus"][0]["memory_mib"] == 196592
    assert found["gpus"][0]["power_limit_w"] == 750.0
    assert found["gpus"][0]["ecc"]["volatile"] == {"uncorrected": 0}
    assert found["pci"] == ["0000:05:00.0", "0000:06:00.0"]


def test_amds_driver_that_is_not_loaded_is_told(tmp_path: Path) -> None:
    files = {name: text for name, text in amd(2).items() if "mem_info" not in name}
    error = facts(tmp_path, root=tree(tmp_path / "root", files))["error"]
    assert error["message"] == "amdgpu: it describes none of 2 GPUs on the bus"
    files["proc/modules"] = "nothing 1 0 - Live 0x0"
    error = facts(tmp_path, root=tree(tmp_path / "root", files))["error"]
    assert (error["kind"], error["message"]) == ("no_amdgpu", "amdgpu: the module is not loaded")


SILENT = [
    ("Failed to initialize NVML: Driver/library version mismatch", 18, "version_mismatch"),
    ("it couldn't communicate with the NVIDIA driver. Make sure that the latest", 9, "no_driver"),
    ("Unable to determine the device handle for GPU 0000:B3:00.0: GPU is lost.", 15, "gpu_lost"),
    ("No devices were found", 6, "no_devices"),
    ("No devices were found", 0, "no_devices"),
    ("Failed to initialize NVML: Insufficient Permissions", 4, "no_permission"),
    ("Segmentation fault", 139, "failed"),
    ("", 255, "failed"),
    ("it is a nice day", 0, "unreadable"),
    ("<nvidia_smi_log><gpu id=", 0, "unreadable"),
]


@pytest.mark.parametrize(("said", "status", "kind"), SILENT)
def test_what_keeps_it_from_telling_is_a_fact(
    tmp_path: Path, said: str, status: int, kind: str
) -> None:
    found = facts(tmp_path, nvidia_smi(tmp_path / "bin", said, status=status))
    assert (found["error"]["kind"], found["error"]["exit_status"]) == (kind, status)
    assert said in found["error"]["message"] or not said
    assert (found["gpus"], found["driver"], found["topology"]) == ([], None, None)


def test_no_nvidia_smi(tmp_path: Path) -> None:
    found = facts(tmp_path)
    assert found["error"]["kind"] == "no_nvidia_smi"
    assert found["gpus"] == []


def test_nvidia_smi_that_hangs(tmp_path: Path) -> None:
    script = f"exec {sys.executable} -c 'import time; time.sleep(600)'"
    found = facts(tmp_path, program(tmp_path / "bin", "nvidia-smi", script), timeout=1)
    assert found["error"]["kind"] == "timeout"


def test_a_gpu_that_is_lost_among_others_that_tell(tmp_path: Path) -> None:
    said = (
        several(V100, 1)
        + "Unable to determine the device handle for GPU 0000:B3:00.0: Unknown Error"
    )
    log = "[88.1] NVRM: Xid (PCI:0000:b3:00): 79, pid=77, name=é, GPU has fallen off the bus.\n"
    found = facts(
        tmp_path,
        nvidia_smi(tmp_path / "bin", said, "", index_of(1), status=15),
        root=tree(
            tmp_path / "root",
            {
                "var/log/dmesg": log * 2,
                "sys/bus/pci/devices/0000:b3:00.0/vendor": "0x10de",
                "sys/bus/pci/devices/0000:b3:00.0/class": "0x030200",
                "sys/bus/pci/devices/0000:b4:00.0/vendor": "0x10de",
                "sys/bus/pci/devices/0000:b4:00.0/class": "0x068000",  # an NVSwitch is no GPU
                "sys/bus/pci/devices/0000:b5:00.0/vendor": "0x15b3",
                "sys/bus/pci/devices/0000:b5:00.0/class": "0x020700",
            },
        ),
    )
    assert found["error"]["kind"] == "gpu_lost"
    assert found["pci"] == ["0000:b3:00.0"]
    assert found["xid"] == [
        {
            "bus_id": "0000:b3:00",
            "xid": 79,
            "message": "pid=77, name=é, GPU has fallen off the bus.",
            "count": 2,
        }
    ]


@pytest.mark.parametrize("said", ["N/A", "[N/A]", "[Not Supported]", "Not Available"])
def test_what_a_gpu_does_not_have_is_null(said: str) -> None:
    xml = V100.replace("34 C", said).replace("<total>16160 MiB", f"<total>{said}")
    xml = xml.replace("<current_ecc>Enabled", f"<current_ecc>{said}")
    (gpu,) = words.read_xml(xml)["gpus"]
    assert (gpu["temperature_c"], gpu["memory_mib"], gpu["ecc"]["enabled"]) == (None, None, None)
    assert gpu["errors"] == {}


@pytest.mark.parametrize("said", ["[Unknown Error]", "ERR!", "GPU is lost", "-5 C", "34 F", "zz"])
def test_what_cannot_be_read_is_null_and_told(said: str) -> None:
    (gpu,) = words.read_xml(V100.replace("34 C", said))["gpus"]
    assert gpu["temperature_c"] is None
    assert gpu["errors"] == {"temperature/gpu_temp": said.strip("[]")}


def test_no_processes_and_none_that_can_be_seen() -> None:
    start, end = H100.index("<processes>"), H100.index("</processes>")
    for text, expected in (("", []), ("N/A", None)):
        xml = H100[:start] + "<processes>" + text + H100[end:]
        assert words.read_xml(xml)["gpus"][0]["processes"] == expected


EL8, EL9 = "4.18.0-{}.el8_10.x86_64", "5.14.0-{}.el9.x86_64"
# Those installed beside the running one, by release of RHEL.
KERNELS = {
    "": ("6.8.0-9-generic", "6.8.0-142-generic", "6.1.0-20-cloud-amd64"),
    "8": (EL8.format(553), EL8.format("553.5.1")),
    "9": (
        *(EL9.format("611.5.1"), EL9.format("611.5.1") + "+debug", "0-rescue-0af"),
        "5.15.0-205.149.5.1.el9uek.x86_64",
    ),
}


@pytest.mark.parametrize(
    ("running", "modules", "kernel"),
    [
        (
            "6.8.0-87-generic",
            {"6.8.0-87-generic": "updates/dkms/nvidia.ko.zst"},
            "6.8.0-142-generic",
        ),
        ("6.8.0-87-generic", {}, None),  # no driver, which has its own finding
        (
            "6.8.0-87-generic",
            {
                "6.8.0-87-generic": "updates/dkms/nvidia.ko.zst",
                "6.8.0-142-generic": "kernel/drivers/video/nvidia.ko",
            },
            None,
        ),
        # Another flavour, and an older kernel
        ("6.1.0-18-amd64", {"6.1.0-18-amd64": "updates/dkms/nvidia.ko"}, None),
        ("6.8.0-1031-aws", {"6.8.0-1031-aws": "updates/dkms/nvidia.ko"}, None),
        ("6.8.0-143-generic", {"6.8.0-143-generic": "updates/dkms/nvidia.ko"}, None),
        (EL9.format(503), {EL9.format(503): "extra/nvidia.ko.xz"}, EL9.format("611.5.1")),
        # Of RHEL 8 553.el8_10 is older than 553.5.1.el8_10.
        (EL8.format("553.5.1"), {EL8.format("553.5.1"): "extra/nvidia.ko.xz"}, None),
        (EL8.format(553), {EL8.format(553): "extra/nvidia.ko.xz"}, EL8.format("553.5.1")),
        # +debug and uek are other kernels.
        (EL9.format("611.5.1"), {EL9.format("611.5.1"): "extra/nvidia.ko.xz"}, None),
        (
            EL9.format("570") + "+debug",
            {EL9.format("570") + "+debug": "extra/nvidia.ko.xz"},
            EL9.format("611.5.1") + "+debug",
        ),
    ],
)
def test_an_update_has_brought_a_kernel_without_the_module(
    tmp_path: Path, running: str, modules: dict[str, str], kernel: str | None
) -> None:
    """dkms: autoinstall for kernel ... was skipped since the kernel headers for this kernel do not
    seem to be installed (dkms-project/dkms#521)."""
    installed = (*KERNELS[running.partition(".el")[2][:1]], running)
    files = {f"boot/vmlinuz-{name}": "" for name in installed}
    files |= {f"lib/modules/{name}/modules.dep": f"{path}: x\n" for name, path in modules.items()}
    root = tree(tmp_path / "root", files | {"proc/sys/kernel/osrelease": running})
    assert nvidia_kernel.next_kernel(str(root)) == kernel


def numbers_in(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for item in value.values() for number in numbers_in(item)]
    if isinstance(value, list):
        return [number for item in value for number in numbers_in(item)]
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return [value] if is_number else []


PARTS = st.sampled_from(
    [
        *("GPU0", "GPU1", "NV2", "SYS", " X ", "\t", " "),
        *("\n", "\nGPU0", "CPU Affinity", "0-3", "\x1b[4m"),
    ]
)


@given(st.one_of(st.text(), st.lists(PARTS).map("".join)))
def test_no_text_breaks_the_parsers(text: str) -> None:
    words.read_xml(text)
    words.indices(text)
    words.xid_errors(text)
    words.bus_id(text)
    found = words.topology(text)
    assert found is None or set(found) == {"links"}


@given(st.text(st.characters(exclude_characters="<>&\r", exclude_categories=["Cs", "Cc"])))
def test_no_number_is_made_of_text_that_tells_none(said: str) -> None:
    xml = V100.replace("34 C", said).replace("<total>0<", f"<total>{said}<")
    (gpu,) = words.read_xml(xml)["gpus"] if words.read_xml(xml) else [{}]
    known = set(numbers_in(words.read_xml(V100)))
    made = [number for number in numbers_in(gpu) if number not in known]
    assert all(str(number) in said.lstrip("0") for number in made)
