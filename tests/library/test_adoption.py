"""What a node keeps, what that means for the workloads, and what may be replaced on it."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from provisioning_choices import choice, node
from standins import call, program, tree

from dlperf_runner.provision import adoption, arguments

H100 = arguments.stack_document("h100-cuda12.9")
SMI = "| NVIDIA-SMI 535.161.07    Driver Version: 535.161.07    CUDA Version: {}     |"
DPKG = r"""
for name; do case "$name" in
docker.io) printf 'docker.io\t24.0.7-0ubuntu4\tinstall ok installed\n' ;;
podman) printf 'podman\t4.3.1+ds1-8\tdeinstall ok config-files\n' ;;
rdma-core) printf 'rdma-core\t44.0-2\tinstall ok installed\n' ;;
esac; done
"""


RUNNING = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.07  Thu"


def software(tmp_path: Path, cuda: str = "12.2", **files: str) -> dict[str, Any]:
    """A node with a driver of the administrator, Ubuntu's Docker and an OFED."""
    bins = program(tmp_path / "bin", "nvidia-smi", f"echo '{SMI.format(cuda)}'")
    program(bins, "dpkg-query", DPKG)
    program(bins, "ofed_info", "echo MLNX_OFED_LINUX-5.8-1.0.1.1:")
    program(bins, "nvidia-ctk", "echo NVIDIA Container Toolkit CLI version 1.14.6")
    mpirun = program(tmp_path / "mpi", "mpirun", "echo 'mpirun (Open MPI) 4.1.5rc2'") / "mpirun"
    root = tree(tmp_path / "root", {"proc/driver/nvidia/version": RUNNING} | files)
    return call("software_info", tmp_path, [bins], root=str(root), mpirun=str(mpirun))


def test_what_a_node_has_is_recorded(tmp_path: Path) -> None:
    found = software(tmp_path)
    assert found["driver"] == {"version": "535.161.07", "cuda": "12.2", "is_ours": False}
    docker = {"version": "24.0.7", "package": "docker.io", "is_ours": False}
    assert found["container_runtime"] == {"docker": docker}
    assert found["toolkit"] == "1.14.6"
    assert found["infiniband"] == {"ofed": "5.8-1.0.1.1", "rdma_core": "44.0"}
    assert found["openmpi"] == {"version": "4.1.5rc2"}
    assert found["gpu_processes"] == []
    ours = software(tmp_path, **{"var/lib/dlperf/undo/nvidia_driver.json": "{}"})
    assert ours["driver"]["is_ours"]
    bare = call("software_info", tmp_path, [tmp_path / "none"], root=str(tmp_path / "none"))
    nothing = {"driver": None, "container_runtime": {}, "toolkit": None, "openmpi": None}
    assert {key: bare[key] for key in nothing} == nothing


def test_processes_that_hold_a_gpu_are_named_but_not_nvidias_services(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for pid, name, device in (
        (41327, "python3", "/dev/nvidia0"),
        (41328, "ollama", "/dev/nvidia-uvm"),
        (7, "nvidia-persiste", "/dev/nvidia0"),
        (10, "vllm", "/dev/kfd"),
        (8, "sshd", "/dev/null"),
        (9, "nv-hostengine", "/dev/nvidiactl"),
    ):
        (root / f"proc/{pid}/fd").mkdir(parents=True)
        (root / f"proc/{pid}/comm").write_text(f"{name}\n")
        (root / f"proc/{pid}/fd/3").symlink_to(device)
    for module in ("software_info", "driver_info"):
        found = call(module, tmp_path, root=str(root))
        assert found["gpu_processes"] == ["vllm (10)", "python3 (41327)", "ollama (41328)"]


@pytest.mark.parametrize(
    ("stack", "native", "kind", "said"),
    [
        ("h100-cuda12.9", "12.2", "notes", "minor version compatibility, but PTX is not compiled"),
        ("h100-cuda12.9", "12.9", "notes", "supports CUDA 12.9, and with it the stack's 12.9.1"),
        ("h100-cuda12.9", "13.0", "notes", "supports CUDA 13.0, and with it the stack's 12.9.1"),
        ("h100-cuda12.9", "11.8", "problems", "the stack's CUDA 12.9.1 does not run on it"),
        ("h100-cuda12.9", None, "notes", "does not say which CUDA"),
        # Before CUDA 11 a newer one needs a newer driver.
        ("v100-cuda10.2", "10.1", "problems", "the stack's CUDA 10.2.89 does not run on it"),
    ],
)
def test_what_an_adopted_driver_means_for_the_workloads(
    stack: str, native: str | None, kind: str, said: str
) -> None:
    own, wanted = {"version": "535.161.07", "cuda": native}, arguments.stack_document(stack)
    (text,) = adoption.meanings(["driver"], {"driver": own}, wanted)[kind]
    assert said in text
    assert text.startswith(f"driver: 535.161.07 (the stack has {wanted['driver']['version']})")


def test_the_record_on_the_node_has_the_versions_of_what_it_keeps(tmp_path: Path) -> None:
    has = software(tmp_path)
    assert has["recorded"] is None
    kept = adoption.record(list(adoption.TITLES), has)
    assert kept == {
        "driver": {"version": "535.161.07", "cuda": "12.2"},
        "container_runtime": {"docker": "24.0.7", "toolkit": "1.14.6"},
        "infiniband": {"ofed": "5.8-1.0.1.1", "rdma_core": "44.0"},
        "openmpi": {"version": "4.1.5rc2"},
        "cuda": {},
        "cudnn": {},
        "nccl": {},
        "rocm": {},
    }
    folder, made = adoption.files(list(adoption.TITLES), has)
    assert (folder["state"], json.loads(made["content"])) == ("directory", kept)
    assert adoption.files([], {"skipped": True}) == [{"path": made["path"], "state": "absent"}]
    later = software(tmp_path / "later", **{"var/lib/dlperf/adopted.json": json.dumps(kept)})
    assert later["recorded"] == kept
    damaged = software(tmp_path / "damaged", **{"var/lib/dlperf/adopted.json": '{"driver'})
    assert damaged["recorded"] is None
    told = adoption.report(["driver", "openmpi"], later, H100)
    assert (told["recorded"], told["kept"].keys()) == (kept, {"driver", "openmpi"})
    assert told["problems"] == []
    assert told["meanings"]["driver"].startswith("driver: 535.161.07 (the stack has 580.173.02)")
    old = later | {"driver": {"version": "470.57.02", "cuda": "11.4", "is_ours": False}}
    assert adoption.report(["driver"], old, H100)["problems"] == ["driver"]
    assert adoption.report(["driver"], {"failed": True, "msg": "x"}, H100)["failed"]


def test_driver_and_rocm_of_a_node_with_amds_gpus_are_kept(tmp_path: Path) -> None:
    version = r'case "$*" in *Version*) version="7.1.1.70101-38~24.04\t";; esac'
    script = rf"""{version}; printf "rocm-core\t${{version}}install ok installed\n" """
    bins = program(tmp_path / "bin", "dpkg-query", script)
    files = {"proc/modules": "amdgpu 14000000 9 - Live 0x0"}
    root = tree(tmp_path / "root", files)
    has = call("software_info", tmp_path, [bins], root=str(root))
    assert (has["driver"]["version"], has["rocm"]) == ("of the kernel", {"version": "7.1.1"})
    tree(root, {"sys/module/amdgpu/version": "6.16.6"})
    has = call("software_info", tmp_path, [bins], root=str(root))
    assert has["driver"] == {"version": "6.16.6", "cuda": None, "is_ours": False}
    stack = arguments.stack_document("mi300-rocm7")
    assert adoption.adopted_stack(stack, ["driver"], has)["rocm"] == {"version": "7.2.4"}
    assert "rocm" not in adoption.adopted_stack(stack, ["driver", "rocm"], has)
    assert adoption.problems(["driver", "rocm"], has, "") == []
    told = adoption.meanings(["driver", "rocm"], has, stack)
    assert told["notes"] == [
        "driver: 6.16.6",
        "rocm: 7.1.1 (the stack has 7.2.4); frameworks may bring one of their own",
    ]


def test_what_is_adopted_must_be_there(tmp_path: Path) -> None:
    parts = ["driver", "container_runtime", "openmpi"]
    has = software(tmp_path)
    assert adoption.problems(parts, has, "/opt/mpi/bin/mpirun") == []
    bare = {"driver": None, "container_runtime": {}, "openmpi": None}
    told = adoption.problems([*parts, "cude"], bare, "/opt/mpi/bin/mpirun", "docker")
    for words in ("unknown cude", "no driver is loaded", "neither docker", "is no mpirun"):
        assert any(words in problem for problem in told), words
    assert "set dlperf_mpirun" in adoption.problems(["openmpi"], has, "")[0]


def test_nothing_of_an_adopted_part_is_installed(tmp_path: Path) -> None:
    own = software(tmp_path)
    parts = ["driver", "container_runtime", "infiniband", "openmpi"]
    assert not {"cuda", "nccl", "tuning"} & adoption.adopted_stack(H100, "all", own).keys()
    kept = adoption.adopted_stack(H100, parts, own)
    chosen = choice(stack="h100-cuda12.9", mpirun="/opt/mpi/bin/mpirun")
    chosen = replace(chosen, stack=kept)
    told = arguments.for_node(chosen, node(), {})
    installed = told["gpu_node_stack"]
    # The role cuda compares its release with the driver that the node keeps.
    assert installed["driver"] == {"version": "535.161.07", "method": "adopted"}
    assert installed["infiniband"]["method"] == "adopted"
    assert installed["infiniband"]["rate_gbps"] == 400
    assert "container_runtime" not in installed
    assert installed["cuda"] == H100["cuda"]
    assert (told["openmpi_method"], told["openmpi_packages"]) == ("adopted", [])
    assert "libnuma1" not in told["node_base_packages"]
    assert "openmpi" not in told["provision_preflights"]
    assert adoption.adopted_stack(H100, []) == H100


@pytest.mark.parametrize(
    ("found", "is_ours", "may_replace", "processes", "said"),
    [
        (None, False, False, ["python3 (1)"], ""),
        ("580.105.08", False, False, ["python3 (1)"], ""),
        ("535.161.07", False, False, [], "dlperf_replace: [driver]"),
        ("535.161.07", False, True, [], ""),
        ("535.161.07", True, False, [], ""),
        ("535.161.07", False, True, ["python3 (1)"], "while processes use the GPUs: python3 (1)"),
        ("535.161.07", True, False, ["python3 (1)"], "while processes use the GPUs: python3 (1)"),
    ],
)
def test_what_somebody_else_installed_is_replaced_with_consent_only_and_never_in_use(
    found: str | None, is_ours: bool, may_replace: bool, processes: list[str], said: str
) -> None:
    given = ("driver", found, "580.105.08", is_ours, may_replace, processes)
    refused = adoption.replacement_refusal(*given)
    assert said in refused
    assert bool(refused) == bool(said)
