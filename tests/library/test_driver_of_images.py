"""Drivers of DGX OS and of cloud images, and kernels that are older than the repositories or built
by another compiler than the system's."""

from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest
import yaml
from standins import PROJECT, call, program, tree

from dlperf_runner.provision.adoption import problems
from dlperf_runner.provision.nvidia_driver import headers_refusal, image_refusal

# As NVIDIA's documentation of DGX OS prints it.
DGX = """DGX_NAME="DGX Server"
DGX_PRETTY_NAME="NVIDIA DGX Server"
DGX_SWBUILD_DATE="2025-04-16-10-09-44"
DGX_SWBUILD_VERSION="7.1.0"
DGX_COMMIT_ID="8b4a8a6"
DGX_PLATFORM="DGX Server for DGX H100"
"""
# Of Ubuntu's images with NVIDIA's driver (gpu-driver-container#35): {0} is the kernel's flavour.
CLOUD = [
    "linux-modules-nvidia-580-server-open-{0}",
    "linux-modules-nvidia-580-server-open-6.8.0-1040-{0}",
    "linux-objects-nvidia-580-server-open-6.8.0-1040-{0}",
    "linux-signatures-nvidia-6.8.0-1040-{0}",
    "nvidia-headless-no-dkms-580-server-open",
    "nvidia-kernel-common-580-server",
    "nvidia-utils-580-server",
    "nvidia-compute-utils-580-server",
    "nvidia-firmware-580-server",
    "nvidia-firmware-580-server-580.95.05",
    "libnvidia-compute-580-server",
    "libnvidia-cfg1-580-server",
    "nvidia-kernel-source-580-server-open",
    "nvidia-fabricmanager-580",
]
UBUNTU = ("ubuntu22.04", "ubuntu24.04")


def info(tmp_path: Path, files: dict[str, str], *bins: Path) -> dict[str, Any]:
    root = tree(tmp_path / "root", files)
    found: dict[str, Any] = call("driver_info", tmp_path, bins, root=str(root), build=True)
    return found


def test_the_driver_of_dgx_os_is_kept_or_the_node_is_refused(tmp_path: Path) -> None:
    node = info(tmp_path, {"etc/dgx-release": DGX})
    assert node["image"] == "DGX OS 7.1.0"
    assert "DGX OS 7.1.0, whose packages need its own driver" in image_refusal(node)
    assert "dlperf_adopt: [driver, container_runtime, infiniband]" in image_refusal(node)
    assert image_refusal(node | {"is_ours": True}) == ""
    updated = info(tmp_path, {"etc/dgx-release": DGX + 'DGX_OTA_VERSION="7.2.1"\n'})
    assert updated["image"] == "DGX OS 7.2.1"
    (tmp_path / "root/etc/dgx-release").unlink()
    assert image_refusal(info(tmp_path, {})) == ""


def test_the_driver_of_the_gpu_operator_is_neither_kept_nor_replaced(tmp_path: Path) -> None:
    """NVIDIA/gpu-operator#178: the module is loaded, and the node's programs have no library."""
    operators = {"run/nvidia/driver/usr/bin/nvidia-smi": ""}
    node = info(tmp_path, operators | {"sys/module/nvidia/version": "580.173.02"})
    assert (node["running"], node["is_operators"]) == ("580.173.02", True)
    assert "driver.enabled=false" in image_refusal(node)
    root = str(tmp_path / "root")
    software = call("software_info", tmp_path, [], root=root)
    assert problems(["driver"], software, "") == [image_refusal(node)]
    assert call("gpu_info", tmp_path, [], root=root)["error"]["kind"] == "operators_driver"
    assert not info(tmp_path, {"usr/bin/nvidia-smi": ""})["is_operators"]


# Flavours whose signed modules are packages: "gcp-6.8" is that of a kernel of a later release.
@pytest.mark.parametrize(
    "flavour", ["aws", "azure", "azure-fde", "gcp", "gcp-6.8", "generic", "oracle"]
)
def test_the_driver_of_a_cloud_image_is_replaced_as_a_whole(tmp_path: Path, flavour: str) -> None:
    """Without consent the role refuses the node, if it knows one of these packages. Ubuntu's server
    driver was replaced in part: apt's transaction was refused after nouveau, headers and source had
    changed (ansible-role-nvidia-driver#24)."""
    names = [name.format(flavour) for name in CLOUD]
    tables = yaml.safe_load((PROJECT / "roles/nvidia_driver/vars/main.yml").read_text())
    systems = [each["systems"] for each in tables["__nvidia_driver_releases"].values()]
    lists = [of[name]["replaces"] for of in systems for name in UBUNTU if name in of]
    assert len(lists) > 2
    kept = [name for name in names for globs in lists if not any(fnmatch(name, g) for g in globs)]
    assert kept == []
    script = f'for name in {" ".join(names)}; do echo "$name\tinstall ok installed"; done'
    bins = program(tmp_path / "bin", "dpkg-query", script)
    found = set(info(tmp_path, {}, bins)["driver_packages"])
    assert found >= {
        name for name in names if name.startswith(("linux-modules", "nvidia-headless"))
    }


@pytest.mark.parametrize(
    ("distribution", "kernel", "remedy"),
    [
        (
            *("Rocky", "5.14.0-427.13.1.el9_4.x86_64"),
            "=vault,https://dl.rockylinux.org/vault/rocky/9.4/AppStream/x86_64/os/ kernel-devel-",
        ),
        (
            *("AlmaLinux", "4.18.0-513.5.1.el8_9.x86_64"),
            "=vault,https://vault.almalinux.org/8.9/BaseOS/x86_64/os/ kernel-devel-",
        ),
        ("Red", "5.14.0-427.13.1.el9_4.x86_64", "enable a repository"),
        ("Red", "6.12.0-custom", "Boot the newest kernel"),
    ],
)
def test_a_kernel_whose_headers_are_in_the_vault_is_refused_before_anything_changes(
    distribution: str, kernel: str, remedy: str
) -> None:
    """GoogleCloudDataproc/initialization-actions#1206: kernel-devel was in the vault alone."""
    node = {"kernel": kernel, "is_container": False, "offers_headers": False}
    refused = headers_refusal(node, distribution)
    assert refused.startswith("No repository of the node has the headers of its running kernel")
    assert remedy in refused
    if remedy.endswith("-"):  # a command to paste, and nothing after it
        assert refused.endswith(remedy + kernel)
    for changed in ({"offers_headers": True}, {"offers_headers": None}, {"is_container": True}):
        assert headers_refusal(node | changed, distribution) == ""


# /proc/version as in NVIDIA/gpu-driver-container#20, and of Debian 12 and Rocky Linux 9.
@pytest.mark.parametrize(
    ("built_by", "cc", "compiler"),
    [
        ("x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0", "echo 11", "gcc-12"),
        ("x86_64-linux-gnu-gcc-12 (Ubuntu 12.3.0-1ubuntu1~22.04) 12.3.0", "exit 1", "gcc-12"),
        ("x86_64-linux-gnu-gcc-11 (Ubuntu 11.4.0-1ubuntu1~22.04) 11.4.0", "echo 11", None),
        ("gcc (Ubuntu 11.3.0-1ubuntu1~22.04.1) 11.3.0", "echo 11.4.0", None),
        ("gcc-12 (Debian 12.2.0-14) 12.2.0", "echo 12", None),
        ("gcc (GCC) 11.4.1 20230605 (Red Hat 11.4.1-2)", "echo 11", None),
    ],
)
def test_a_kernel_by_another_compiler_than_cc_is_recognised(
    tmp_path: Path, built_by: str, cc: str, compiler: str | None
) -> None:
    """NVIDIA/open-gpu-kernel-modules#805: cc does not know options of the kernel's compiler."""
    line = f"Linux version 6.2.0-1019-gcp (buildd@lcy02) ({built_by}, GNU ld (GNU Binutils) 2.38)"
    bins = program(tmp_path / "bin", "cc", cc)
    files = {"proc/version": line, "proc/1/environ": ""}
    assert info(tmp_path, files, bins)["compiler"] == compiler
