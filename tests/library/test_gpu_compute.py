"""The proof that GPUs compute, against a compiled stand-in for the driver's library that fails as
NVIDIA's does, and what the role nvidia_driver makes of a node's facts."""

import os
import platform
import re
from pathlib import Path
from typing import Any

import pytest
from cuda_standin import GCC, libcuda, libhip
from executed_modules import call
from standins import program, tree

from dlperf_runner.provision import nvidia_driver

LOADED = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.105.08  Release Build"
OF_LOADED = {
    "proc/driver/nvidia/version": LOADED,
    "proc/modules": "nvidia_uvm 1 0 - Live 0x0\nnvidia 1 1 nvidia_uvm, Live 0x0",
    "usr/lib/x86_64-linux-gnu/libcuda.so.580.105.08": "",
}
VERSION = "580.105.08"
CAUSE = "driver 580.105.08 on kernel 6.1"
KERNEL = platform.release()


@pytest.fixture
def fails(tmp_path: Path) -> Path:
    return tmp_path / "fails"


@pytest.fixture
def library(tmp_path: Path, fails: Path) -> Path:
    if not GCC:
        pytest.skip("there is no gcc to compile the stand-in of libcuda")
    return libcuda(tmp_path, str(fails))


def proof(
    tmp_path: Path, library: Path | str, files: dict[str, str], **more: Any
) -> dict[str, Any]:
    root = tree(tmp_path / "root", files)
    return call("gpu_compute", root=str(root), library=str(library), **more)


def test_every_gpu_computes(tmp_path: Path, library: Path) -> None:
    told = proof(tmp_path, library, OF_LOADED)
    assert told["devices"] == ["Stand-in 0", "Stand-in 1"]
    assert (told["cuda"], told["changed"]) == ("13.0", False)


@pytest.mark.parametrize(
    ("failure", "modules", "kind", "said"),
    [
        ("", "amdgpu 1 0 - Live 0x0", "", ""),
        (
            "hipInit 100",
            "",
            "not_loaded",
            "hipErrorNoDevice (module amdgpu not loaded). To do: the",
        ),
        ("hipInit 100", "amdgpu 1 0 - Live 0x0", "no_devices", "/dev/kfd"),
        ("hiprtcCompileProgram 6", "amdgpu 1 0 - Live 0x0", "jit", "GPU 0: hiprtcCompileProgram"),
        ("wrong 1", "amdgpu 1 0 - Live 0x0", "wrong_result", "number 41 is 1048706 instead of 130"),
        ("hipDeviceSynchronize -1", "amdgpu 1 0 - Live 0x0", "timeout", "look for amdgpu in"),
        ("hipMalloc -2", "amdgpu 1 0 - Live 0x0", "crashed", "ROCm's library crashed"),
    ],
)
def test_every_gpu_of_amd_computes_or_says_why_not(
    tmp_path: Path, fails: Path, failure: str, modules: str, kind: str, said: str
) -> None:
    if not GCC:
        pytest.skip("there is no gcc to compile the stand-in of libamdhip64")
    fails.write_text(failure)
    hip = libhip(tmp_path, str(fails))
    told = proof(tmp_path, hip, {"proc/modules": modules}, timeout=5)
    assert (told.get("devices"), told.get("kind", "")) == (
        None if kind else ["Stand-in 0", "Stand-in 1"],
        kind,
    )
    assert said in told.get("msg", "")


@pytest.mark.parametrize(
    ("function", "code", "kind", "said"),
    [
        ("cuInit", 802, "fabric", "systemctl status nvidia-fabricmanager"),
        ("cuCtxCreate_v2", 802, "fabric", "exactly the driver's version"),
        ("cuInit", 803, "version_mismatch", "reboot the node"),
        ("cuInit", 35, "version_mismatch", "reboot the node"),
        ("cuInit", 804, "compat", "cuda-compat"),
        ("cuInit", 34, "stub_library", "stub"),
        ("cuInit", 100, "no_devices", "lspci"),
        ("cuCtxCreate_v2", 46, "busy", "MIG"),
        ("cuCtxCreate_v2", 2, "memory", "nvidia-smi"),
        ("cuModuleLoadData", 221, "jit", "libnvidia-ptxjitcompiler"),
        ("cuInit", 304, "no_permission", "/dev/nvidia*"),
        ("cuCtxSynchronize", 719, "failed", "Xid"),
    ],
)
def test_each_error_of_the_driver_is_named_with_what_to_do(
    tmp_path: Path, library: Path, fails: Path, function: str, code: int, kind: str, said: str
) -> None:
    fails.write_text(f"{function} {code}")
    told = proof(tmp_path, library, OF_LOADED)
    assert told["failed"]
    assert (told["kind"], told["code"]) == (kind, code)
    assert f"{function} returned {code} CUDA_ERROR_" in told["msg"]
    assert "loaded kernel module 580.105.08, installed libcuda 580.105.08" in told["msg"]
    assert said in told["msg"].partition("To do: ")[2]


OTHER = LOADED.replace("580.105.08", "535.183.01")


@pytest.mark.parametrize(
    ("failure", "changed", "kind", "said"),
    [
        # What cuInit answers without a loaded driver is the same as without a GPU.
        ("cuInit 100", {"proc/driver/nvidia/version": ""}, "not_loaded", ""),
        ("cuInit 999", {"proc/driver/nvidia/version": ""}, "not_loaded", ""),
        ("cuInit 999", {"proc/modules": "nvidia 1 0 - Live 0x0"}, "no_uvm", ""),
        ("cuInit 100", {"proc/driver/nvidia/version": OTHER}, "version_mismatch", ""),
        # No answers of the driver; the second one hangs.
        (
            "wrong 1",
            {},
            "wrong_result",
            "1 of 256 numbers are wrong (Stand-in 0); number 41 is 1048",
        ),
        ("cuInit -1", {}, "timeout", ""),
        ("cuInit -2", {}, "crashed", ""),
    ],
)
def test_what_the_number_does_not_tell_is_read_from_the_node(
    tmp_path: Path, library: Path, fails: Path, failure: str, changed: dict[str, str], kind: str,
    said: str,
) -> None:  # fmt: skip
    fails.write_text(failure)
    limit = 3 if failure == "cuInit -1" else 180
    told = proof(tmp_path, library, OF_LOADED | changed, timeout=limit)
    assert told["kind"] == kind
    assert said in told["msg"]


def test_a_library_that_is_not_there_or_another_is_named(tmp_path: Path) -> None:
    assert proof(tmp_path, "/nowhere/libcuda.so.1", {})["kind"] == "no_library"
    told = proof(tmp_path, "libc.so.6", {})
    assert told["kind"] == "no_library"
    assert "has no function cuInit" in told["msg"]


# ---- the facts


def facts(tmp_path: Path, files: dict[str, str], **more: Any) -> dict[str, Any]:
    (tmp_path / "root").mkdir(exist_ok=True)
    root = tree(tmp_path / "root", files)
    return call("driver_info", root=str(root), build=True, **more)


def test_the_running_kernels_module_and_secure_boot_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bins = tmp_path / "bin"
    program(bins, "modinfo", 'test "$1 $3 $4 $5" = "-k -F version nvidia" && echo 580.105.08')
    program(bins, "dkms", "echo nvidia/580.105.08, 6.1, x86_64: installed; echo zfs/2: added")
    program(
        bins,
        "mokutil",
        'case "$2" in *mok.pub) echo "$2 is already enrolled"; exit 1; esac; echo "$2 is not"',
    )
    monkeypatch.setenv("PATH", f"{bins}:{os.environ['PATH']}")
    keys = [tmp_path / "mok.pub", tmp_path / "other.der", tmp_path / "gone.der"]
    for key in keys[:2]:
        key.touch()
    variable = (
        tmp_path / "root/sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"
    )
    variable.parent.mkdir(parents=True)
    variable.write_bytes(b"\x06\0\0\0\x01")
    headers = {f"lib/modules/{KERNEL}/build/Makefile": ""}
    told = facts(tmp_path, headers, signing_keys=[str(key) for key in keys])
    assert (told["module"], told["dkms"]) == (
        "580.105.08",
        ["nvidia/580.105.08, 6.1, x86_64: installed"],
    )
    assert told["has_headers"]
    assert (told["secure_boot"], told["enrolled_keys"]) == (True, [str(keys[0])])
    variable.write_bytes(b"\x06\0\0\0\0")
    assert not facts(tmp_path, {})["secure_boot"]


# ---- what the role makes of them

NODE = {
    "is_container": False,
    "running": None,
    "nouveau": False,
    "kernel": "6.1",
    "module": None,
    "dkms": [],
    "has_headers": True,
    "secure_boot": False,
    "enrolled_keys": [],
    "rebooted_for": None,
    "is_ours": False,
    "driver_packages": [],
}
CLOUD = {"running": VERSION, "driver_packages": ["linux-modules-nvidia-580-server-open-aws"]}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, ""),
        ({"secure_boot": True}, "trusts none of the keys that sign modules (/k.der)"),
        ({"secure_boot": True, "enrolled_keys": None}, "mokutil is not installed"),
        ({"secure_boot": True, "enrolled_keys": ["/k.der"]}, ""),
        ({"secure_boot": True, "running": VERSION}, ""),
        # The distribution signed what runs, and dkms would build what replaces it.
        ({"secure_boot": True, **CLOUD}, "trusts none of the keys that sign modules (/k.der)"),
        ({"secure_boot": True, "is_container": True}, ""),
    ],
)
def test_secure_boot_is_refused_unless_a_key_is_enrolled(
    changed: dict[str, Any], said: str
) -> None:
    refused = nvidia_driver.secure_boot_refusal(NODE | changed, VERSION, ["/k.der"])
    assert said in refused
    assert bool(refused) == bool(said)
    assert ("mokutil --import" in refused) == bool(said)


@pytest.mark.parametrize(
    ("changed", "others"),
    [
        ({}, ""),
        ({"running": "535.1"}, "535.1"),
        (CLOUD, f"{VERSION} (linux-modules-nvidia-580-server-open-aws)"),
        ({"running": VERSION}, VERSION),  # still loaded after decommissioning
        (CLOUD | {"is_ours": True}, VERSION),
        ({"running": VERSION, "driver_packages": ["nvidia-driver-580-open"]}, VERSION),
    ],
)
def test_the_same_version_from_elsewhere_is_another_driver(
    changed: dict[str, Any], others: str
) -> None:
    """Ubuntu's archive has the version of a stack, as signed modules of the kernel."""
    names = ["nvidia-driver-580-open"]
    assert nvidia_driver.others(NODE | changed, VERSION, names) == others


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"module": VERSION}, ""),
        ({"has_headers": False}, "install linux-headers-6.1"),
        ({"dkms": [f"nvidia/{VERSION}: added"]}, f"dkms status says: nvidia/{VERSION}: added"),
        ({"module": "535.183.01"}, "found 535.183.01; look into /var/lib/dkms/nvidia"),
        ({"compiler": "gcc-12"}, "cc is not the kernel's gcc-12: update-alternatives --install"),
    ],
)
def test_a_kernel_without_the_module_is_told_of(changed: dict[str, Any], said: str) -> None:
    told = nvidia_driver.build_failure(NODE | changed, VERSION, {"stderr": "Error! headers"})
    assert said in told
    assert bool(told) == bool(said)
    assert ("dkms said: Error! headers" in told) == bool(said)


@pytest.mark.parametrize(
    ("changed", "modprobe", "said"),
    [
        ({"running": VERSION}, "", ""),
        ({"running": "535.183.01"}, "", "^reboot needed: .* running driver is 535.183.01"),
        ({"nouveau": True}, "", "^reboot needed: .* nouveau holds the GPUs"),
        (
            {},
            "could not insert 'nvidia': Key was rejected by service",
            "To do: Secure Boot refuses",
        ),
        ({}, "could not insert 'nvidia': No such device", "lspci"),
        ({}, "FATAL: Module nvidia not found in directory /lib/modules/6.2", "run again"),
        ({"rebooted_for": CAUSE, "nouveau": True}, "", "another reboot would not help: look for"),
        ({"rebooted_for": CAUSE}, "Key was rejected", "would not help: Secure Boot"),
        ({"rebooted_for": "driver 535.183.01 on kernel 6.1", "running": "1"}, "", "^reboot needed"),
    ],
)
def test_an_installed_driver_that_does_not_run_is_a_failure(
    changed: dict[str, Any], modprobe: str, said: str
) -> None:
    told = nvidia_driver.reboot_needed(NODE | changed, VERSION, CAUSE, {"stderr": modprobe})
    assert re.search(said, told), told
    assert bool(told) == bool(said)
