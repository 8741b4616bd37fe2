"""The release tables of the GPU roles: complete, of one mind, read by everybody the same way."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dlperf_runner.bundle import needs, release_tables
from dlperf_runner.bundle.release_tables import VendorItem
from dlperf_runner.catalog.reader import load_catalog
from dlperf_runner.catalog.stack import Driver, Stack
from dlperf_runner.core.errors import UserError

PROJECT = Path(__file__).parents[2]
ROLES = ("nvidia_driver", "cuda", "cudnn", "nccl", "rocm", "container_runtime")
CATALOG = load_catalog()
V100, B200 = CATALOG.stack("v100-cuda10.2"), CATALOG.stack("b200-cuda13")
GPU_STACKS = [name for name, stack in CATALOG.stacks.items() if stack.accelerator == "gpu"]
# Of these a stack has some only, by its methods.
FILE_ROLES = {"infiniband": "mlnx_ofed", "openmpi": "source"}
REPOSITORIES = yaml.safe_load((PROJECT / "playbooks/vars/vendor_repositories.yml").read_text())[
    "vendor_repositories"
]


def variables(role: str) -> dict[str, Any]:
    return yaml.safe_load((PROJECT / f"roles/{role}/vars/main.yml").read_text())


def items_of(stack: Stack, suite: str) -> list[VendorItem]:
    return [thing.item for thing in release_tables.wanted(stack, suite)]


def needs_of(stack: Stack, suite: str, *further: str) -> needs.Needs:
    """What a catalogue with this stack alone needs."""
    catalog = dataclasses.replace(CATALOG, stacks={stack.name: stack})
    return needs.of_stack(catalog, stack.name, suite, PROJECT, further=further)


def test_every_repository_has_a_key_with_its_whole_fingerprint() -> None:
    for entry in REPOSITORIES.values():
        fingerprints = entry["key"]["fingerprints"]
        assert fingerprints and all(re.fullmatch("[0-9A-F]{40}", str(f)) for f in fingerprints)
        assert entry["url"].startswith("https://")
        assert entry["key"]["url"].startswith("https://")


@pytest.mark.parametrize("name", GPU_STACKS)
def test_every_version_of_a_stack_can_be_had_on_each_of_its_systems(name: str) -> None:
    stack = CATALOG.stack(name)
    assert stack.suites
    expected = {role for role in ROLES if getattr(stack, role.removeprefix("nvidia_")) is not None}
    for role, of_files in FILE_ROLES.items():
        entry = getattr(stack, role)
        expected |= {role} if entry and entry.method == of_files else set()
    expected |= {"python"} if stack.python else set()
    expected |= {"cuda_libraries"} if stack.cuda_libraries else set()
    # The published cluster's boards have no NVSwitch, and AMD's have none.
    expected |= {"fabric_manager"} if stack.driver and stack != V100 else set()
    for suite in stack.suites:
        assert release_tables.refusals(stack, suite) == {}
        items = items_of(stack, suite)
        # podman is the distribution's, and AMD has no toolkit
        lacking = {"container_runtime"} if stack.rocm and suite == "noble" else set()
        assert {item.wanted_by for item in items} == expected - lacking
        for item in items:
            assert "{" not in item.name + item.source
            assert re.match(r"key [0-9A-F]{40}|sha256 (in [a-z_0-9]+|[0-9a-f]{64})$", item.known_by)


def test_what_the_published_cluster_needs() -> None:
    items = items_of(V100, "bionic")
    assert {item.wanted_by: item.name.split(" ")[0] for item in reversed(items)} == {
        "nvidia_driver": "cuda-drivers=440.33.01-1",
        "cuda": "cuda-toolkit-10-2=10.2.89-1",
        "cudnn": "libcudnn7=7.6.5.32-1+cuda10.2",
        "cuda_libraries": "cuda-cublas-10-0=10.0.130-1",
        "nccl": "nccl-repo-ubuntu1804-2.7.3-ga-cuda10.2_1-1_amd64.deb",
        "container_runtime": "docker-ce=5:20.10.7~3-0~ubuntu-bionic",
        "infiniband": "MLNX_OFED_LINUX-5.0-2.1.8.0-ubuntu18.04-x86_64.tgz",
        "openmpi": "openmpi-4.0.0.tar.gz",
        "python": "Python-3.7.17.tgz",
    }
    (openmpi,) = (item for item in items if item.wanted_by == "openmpi")
    assert openmpi.known_by.startswith("sha256 36f10daa3f1b1d37")
    nccl, source = (item for item in items if item.wanted_by == "nccl")
    assert nccl.known_by == "sha256 in nccl_archive_sha256"
    assert source.name == "v2.7.3-1.tar.gz"
    assert source.known_by.startswith("sha256 dc7b8794373306e3")


def test_boards_with_nvlink_5_need_a_subnet_manager_in_any_version() -> None:
    (name,) = (i.name for i in items_of(B200, "noble") if i.wanted_by == "fabric_manager")
    fabric = ("nvidia-fabricmanager", "libnvidia-nscq", "libnvsdm")
    assert name.split() == [*(f"{part}=580.173.02-1ubuntu1" for part in fabric), "nvlsm=*"]


def test_nodes_with_arm_processors_have_packages_of_their_own() -> None:
    stack = needs.on_processor(B200, "aarch64")
    assert release_tables.refusals(stack, "noble") == {}
    items = {item.wanted_by: item for item in items_of(stack, "noble")}
    assert items["imex"].name == "nvidia-imex=580.173.02-1ubuntu1"
    assert "fabric_manager" not in items
    assert items["nccl"].source.endswith("/cuda/repos/ubuntu2404/sbsa/ /")
    target = needs_of(stack, "noble").target
    assert (target.architecture, target.platforms[0]) == ("arm64", "manylinux_2_39_aarch64")
    with pytest.raises(UserError, match="has no packages for this processor"):
        needs.on_processor(CATALOG.stack("h100-cuda12.9"), "aarch64")


def test_the_run_file_is_a_file() -> None:
    driver = Driver(version="580.105.08", method="runfile")
    stack = Stack(name="x", title="x", accelerator="gpu", driver=driver)
    (item,) = items_of(stack, "bookworm")
    assert item.kind == "file"
    assert item.source.endswith("/580.105.08/NVIDIA-Linux-x86_64-580.105.08.run")
    assert item.known_by == "sha256 in nvidia_driver_sha256"


def test_what_is_built_on_nodes_and_what_the_distribution_has_is_named() -> None:
    packages = dict(release_tables.of_distribution(V100, "bionic"))
    assert packages["infiniband (nv_peer_mem)"] == ["dkms", "gcc", "make"]
    assert "libssl-dev" in packages["python (building node)"]
    assert V100.container_runtime
    runtime = V100.container_runtime.model_copy(update={"version": None})
    driver = Driver(version="440.33.01", method="runfile")
    other = V100.model_copy(update={"driver": driver, "container_runtime": runtime})
    packages = dict(release_tables.of_distribution(other, "bionic"))
    assert packages["nvidia_driver"] == ["gcc", "make"]
    assert packages["container_runtime (docker)"] == ["docker.io"]


def test_the_listing_names_everything_and_what_has_to_give_each_checksum() -> None:
    rows = needs.listing(needs_of(V100, "bionic", "linux-headers-generic"))
    assert all(len(row) == len(needs.LIST_COLUMNS) and row[0] and row[1] for row in rows)
    text = str(rows)
    assert "sha256 in nccl_archive_sha256" in text
    assert "key EB693B3035CD5710E231E123A4B469963BF863CC" in text
    assert "requirements/mxnet-mkl-v100-cuda10.2.txt" in text
    assert {
        ("deb", "linux-headers-generic", "--package"),
        ("file", "Python-3.7.17.tgz", "python"),
        ("requirements", "requirements/uv.txt", "uv"),
        ("requirements", "requirements/horovod-0.19.5.txt", "horovod (mxnet)"),
        ("requirements", "requirements/horovod-build-py37.txt", "horovod (mxnet), its build"),
        ("deb", "g++ make", "horovod (mxnet)"),
    } <= {row[:3] for row in rows}
    without = needs.listing(needs_of(V100.model_copy(update={"python": None}), "bionic"))
    reason = "it takes Python >=3.7,<3.8, and bionic has 3.6"
    assert ("left out", "mxnet", "", reason, "") in without


def test_a_system_that_the_stack_is_not_for_has_no_listing() -> None:
    """It would lack what the roles refuse there, and not say so."""
    with pytest.raises(UserError) as error:
        needs_of(V100, "noble")
    assert (error.value.expected, error.value.found) == ("xenial or bionic", "noble")
    why = "the driver 440.33.01 does not support Ubuntu 24.04 (it is older than that system's ker"
    assert (error.value.hint or "").startswith(why)


TABLES = dict.fromkeys(("cuda", "cudnn", "nccl", "openmpi", "python"), ("releases",)) | {
    "nvidia_driver": ("releases", "runfiles"),
    "container_runtime": ("engines", "toolkits"),
    "infiniband": ("ofeds",),
    "rocm": ("releases", "drivers"),
}


def entries() -> list[tuple[str, str, dict[str, Any]]]:
    return [
        (role, str(version), entry)
        for role, names in TABLES.items()
        for name in names
        for version, entry in variables(role)[f"__{role}_{name}"].items()
    ]


def test_every_table_of_releases_is_among_those() -> None:
    for role in (*ROLES, *FILE_ROLES, "python"):
        tables = {
            name.removeprefix(f"__{role}_")
            for name, value in variables(role).items()
            if isinstance(value, dict) and any(re.match(r"\d+\.\d", str(key)) for key in value)
        }
        assert tables == set(TABLES[role])


@pytest.mark.parametrize(("role", "version", "entry"), entries(), ids=str)
def test_every_version_is_verified(role: str, version: str, entry: dict[str, Any]) -> None:
    """By the key that signs its repository, by its own checksum, or by the operator's."""
    if "repository" in entry:
        assert REPOSITORIES[entry["repository"]]["key"]["fingerprints"]
        systems = entry["systems"]
        parts = [entry, *(systems.values() if isinstance(systems, dict) else [])]
        exact = [text for part in parts for text in part.get("packages", {}).values()]
        assert exact and not any(re.search(r"[*?<>]", text) for text in exact)
        return
    file = entry.get("archive", entry)
    assert file["url"].startswith("https://")
    part = "" if role in ("nvidia_driver", "openmpi", "python") else "_archive"
    defaults = yaml.safe_load((PROJECT / f"roles/{role}/defaults/main.yml").read_text())
    sha256 = file.get("sha256", "")
    assert re.fullmatch("[0-9a-f]{64}", sha256) or defaults[f"{role}{part}_sha256"] == ""
