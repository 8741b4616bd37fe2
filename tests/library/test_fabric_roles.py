"""What the roles openmpi and infiniband compute, and the modules that only they use."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from doctor_facts import healthy
from executed_modules import call
from standins import PROJECT, program

from dlperf_runner.doctor import fabric, links
from dlperf_runner.provision import infiniband, ssh_mesh, vendor

RELEASES = {"4.0.0": {"url": "https://v.example/o.tar.gz", "sha256": "1" * 64}}
PREFIX, BUILT = "/usr/local/openmpi", "/usr/local/openmpi/bin/mpirun"


@pytest.mark.parametrize(
    ("version", "archive", "sha256", "said"),
    [
        ("4.0.0", "", "", ""),
        ("4.0.0", "/srv/o.tar.gz", "2" * 64, ""),
        ("4.9.9", "/srv/o.tar.gz", "2" * 64, ""),
        ("", "", "", "needs openmpi_version; known versions: 4.0.0"),
        ("4.9.9", "", "2" * 64, "4.9.9 is unknown; known versions: 4.0.0"),
        ("4.9.9", "/srv/o.tar.gz", "", "Set openmpi_sha256"),
        ("4.0.0", "", "abc", "must have 64 hexadecimal digits, found abc"),
    ],
)
def test_a_source_without_a_checksum_cannot_be_built(
    version: str, archive: str, sha256: str, said: str
) -> None:
    refused = vendor.source_refusal(version, RELEASES, archive, sha256, "openmpi", "OpenMPI")
    assert said in refused
    assert bool(refused) == bool(said)


def test_a_source_is_the_operators_or_lies_behind_the_mirror() -> None:
    mirror, place = "http://m.example/vendor/", "/srv/mine.tar.gz"
    behind = {"source": f"{mirror}v.example/o.tar.gz", "file": "o.tar.gz", "sha256": "1" * 64}
    assert vendor.source("4.0.0", RELEASES, "", "", mirror) == behind
    given = {"source": place, "file": "mine.tar.gz", "sha256": "2" * 64}
    assert vendor.source("4.9.9", RELEASES, place, "2" * 64, mirror) == given


def test_the_mpirun_of_a_build_is_its_own() -> None:
    assert ssh_mesh.build_refusal("4.0.0", PREFIX, BUILT) == ""
    refused = ssh_mesh.build_refusal("4.0.0", PREFIX, "/usr/bin/mpirun")
    assert "Remove dlperf_mpirun from the inventory" in refused


def test_a_proof_starts_one_process_a_host_over_tcp_and_the_named_interface() -> None:
    tcp = ["--bind-to", "none", "--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
    pair = ["/usr/bin/mpirun", "-np", "2", *tcp, "--host", "a:1,b:1"]
    bound = ["--mca", "btl_tcp_if_include", "ib0", "--mca", "oob_tcp_if_include", "ib0"]
    assert ssh_mesh.mpi_argv("/usr/bin/mpirun", ["a", "b"], "") == pair
    assert ssh_mesh.mpi_argv("/usr/bin/mpirun", ["a", "b"], "ib0", ["-q"]) == [*pair, *bound, "-q"]
    assert ssh_mesh.mpi_argv("m", ["a", "a"], "")[-1] == "a:2"
    variables = {"LD_LIBRARY_PATH": "/opt/cuda", "XLA_FLAGS": "--x"}
    over_ucx = ssh_mesh.mpi_argv("/usr/bin/mpirun", ["a", "b"], "", transport="ucx")
    ucx = ["--mca", "pml", "ucx", "--mca", "btl", "^openib", "--host", "a:1,b:1"]
    assert over_ucx == [*pair[:5], *ucx]
    exported = ["-x", "LD_LIBRARY_PATH", "-x", "XLA_FLAGS", "-q"]
    assert ssh_mesh.mpi_argv("/usr/bin/mpirun", ["a", "b"], "", ["-q"], variables) == [
        *pair,
        *exported,
    ]
    assert [ssh_mesh.next_of(["a", "b"], host) for host in "ab"] == ["b", "a"]
    assert ssh_mesh.next_of(["a"], "a") == "a"


def test_of_a_failed_step_the_end_is_shown() -> None:
    lines = [f"warning {number}" for number in range(50)] + ["error: no libnuma"]
    result = {"msg": "non-zero return code", "stdout": "x", "stderr": "\n".join(lines)}
    said = vendor.last_words(result)
    assert said.endswith("error: no libnuma")
    assert "warning 38" not in said
    assert vendor.last_words({"msg": "Timed out after 3 s"}) == "Timed out after 3 s"


def basis(prefix: Path, check: bool = False, **more: Any) -> dict[str, Any]:
    given = {"name": "openmpi", "version": "4.0.0", "sha256": "A" * 64, "path": str(prefix), **more}
    return call("build_basis", check, **given)


def test_whatever_a_build_depends_on_is_in_its_key(tmp_path: Path) -> None:
    one = basis(tmp_path / "o")
    assert one["key"].startswith("openmpi-4.0.0_glibc-")
    assert one["key"] == basis(tmp_path / "o", sha256="a" * 64)["key"]
    others = [
        basis(tmp_path / "o", options=["--with-cuda=/usr/local/cuda-10.2"]),
        basis(tmp_path / "o", sha256="b" * 64),
        basis(tmp_path / "p"),
        basis(tmp_path / "o", version="4.0.1"),
        basis(tmp_path / "o", name="python"),
    ]
    assert len({one["key"], *(other["key"] for other in others)}) == 6


def test_what_is_there_and_not_ours_is_foreign(tmp_path: Path) -> None:
    prefix = tmp_path / "openmpi"
    assert not basis(prefix)["is_foreign"]
    prefix.mkdir()
    assert not basis(prefix)["is_foreign"]
    (prefix / "bin").mkdir()
    found = basis(prefix)
    assert found["is_foreign"]
    assert found["installed_key"] is None
    (prefix / ".dlperf-build").write_text(found["key"] + "\n")
    found = basis(prefix, check=True)
    assert (found["is_foreign"], found["changed"]) == (False, False)
    assert found["installed_key"] == found["key"]
    assert basis(prefix, check=True, version="4.0.1")["changed"]


@pytest.mark.parametrize(
    ("method", "peer_memory", "driver", "said"),
    [
        ("mlnx_ofed", "nv_peer_mem", "440.33.01", ""),
        ("inbox", "nvidia-peermem", "580.105.08", ""),
        ("inbox", "nvidia-peermem", "", ""),
        ("inbox", "", "440.33.01", ""),
        ("inbox", "nvidia-peermem", "440.33.01", "infiniband.peer_memory to nv_peer_mem"),
        ("inbox", "nv_peer_mem", "440.33.01", "infiniband.method to mlnx_ofed"),
    ],
)
def test_peer_memory_that_cannot_be_is_refused(
    method: str, peer_memory: str, driver: str, said: str
) -> None:
    refused = infiniband.refusal(method, peer_memory, driver)
    assert said in refused
    assert bool(refused) == bool(said)


def roles_of(path: str) -> list[str]:
    tasks = yaml.safe_load((PROJECT / "roles/gpu_node/tasks" / path).read_text())
    return [task["ansible.builtin.include_role"]["name"] for task in tasks]


def test_what_is_built_against_the_driver_comes_behind_it_and_goes_before_it() -> None:
    order = roles_of("each.yml")
    assert order[:5] == ["nvidia_driver", "rocm", "fabric_manager", "imex", "infiniband"]
    assert roles_of("absent.yml") == order[::-1]


@pytest.mark.parametrize(
    ("programs", "network", "path"),
    [
        (["/bin/networkctl", "/usr/sbin/netplan"], "netplan", "/etc/netplan/60-dlperf-ib0.yaml"),
        (["/sbin/ifup", "/bin/networkctl"], "ifupdown", "/etc/network/interfaces.d/dlperf-ib0"),
        (["/usr/bin/networkctl"], "networkd", "/etc/systemd/network/60-dlperf-ib0.network"),
    ],
)
def test_the_address_is_kept_by_what_keeps_the_nodes_addresses(
    programs: list[str], network: str, path: str
) -> None:
    assert infiniband.network_of(programs) == network
    entries = infiniband.address_files("ib0", "10.11.0.2/24", network)
    (entry,) = [entry for entry in entries if entry["state"] == "file"]
    assert entry["path"] == path
    assert "10.11.0.2/24" in entry["content"]
    assert infiniband.address_commands("ib0", network)[-1][-1] in ("ib0", "apply")


def test_netplan_reads_what_is_written() -> None:
    (entry, *_) = infiniband.address_files("ib0", "10.11.0.2/24", "netplan")
    assert yaml.safe_load(entry["content"])["network"]["ethernets"] == {
        "ib0": {"addresses": ["10.11.0.2/24"], "optional": True}
    }
    assert infiniband.network_of(["/usr/bin/true"]) == ""


def facts(**changed: Any) -> dict[str, Any]:
    """What fabric_info tells of a ConnectX-4 at EDR, with something of its port changed."""
    found = healthy(1)["fabric"]
    found["devices"][0]["ports"][0].update(changed)
    return dict(found)


def problems(found: dict[str, Any], **changed: Any) -> list[str]:
    given = {
        "interface": "ib0",
        "rates_gbps": {"InfiniBand": 100, "Ethernet": 0},
        "ofed": "5.0-2.1.8.0",
        "peer_memory": "nv_peer_mem",
        "address": "10.11.0.2/24",
    }
    told: list[str] = links.problems(found, **(given | changed))
    return told


@pytest.mark.parametrize(
    ("port", "asked", "said"),
    [
        (
            {"state": "INIT", "fault": "opensm"},
            {},
            "link state: mlx5_0 port 1 INIT, LinkUp instead of ACTIVE, LinkUp: opensm",
        ),
        (
            {"rate_gbps": 56},
            {},
            "mlx5_0 port 1 56 Gb/s .*instead of 100 Gb/s: .*{infiniband: {rate_gbps: 56}}",
        ),
        (
            {"rate_gbps": 40, "link_layer": "Ethernet", "full_rate_gbps": 100},
            {"rates_gbps": {"InfiniBand": 400, "Ethernet": 0}},
            "instead of 100 Gb/s: .*roce_rate_gbps",
        ),
        ({}, {"ofed": "5.8-1.0.1.1"}, "5.8-1.0.1.1 was expected, found 5.0-2.1.8.0"),
        ({}, {"address": "10.11.0.9/24"}, "expected to have 10.11.0.9/24, found 10.11.0.2/24"),
    ],
)
def test_what_is_amiss_is_told_with_what_to_do(
    port: dict[str, Any], asked: dict[str, Any], said: str
) -> None:
    (told,) = problems(facts(**port), **asked)
    assert re.search(said, told), told


def test_drivers_that_are_installed_and_not_loaded_need_a_restart() -> None:
    stale = facts() | {"modules": {"mlx5_core": "5.0-0"}}
    (told,) = problems(stale)
    assert "restart needed" in told and "5.0-0" in told and "dlperf_reboot=true" in told
    assert fabric.stale_driver(facts()) == ""
    assert fabric.stale_driver(stale) == "5.0-0"
    assert fabric.stale_driver(facts() | {"modules": {}}) == ""


def test_a_kernel_without_peer_memory_may_have_dma_buf() -> None:
    kernel = {"peer_memory_client": False, "gpu_direct": ["DMA-BUF"], "dma_buf": []}
    assert problems(facts() | kernel, peer_memory="nvidia-peermem") == []
    lacks = kernel | {"gpu_direct": [], "dma_buf": ["Linux 5.12"]}
    (told,) = problems(facts() | lacks, peer_memory="nvidia-peermem")
    assert "no interface for nvidia-peermem" in told and "DMA-BUF needs Linux 5.12" in told
    lacks = lacks | {"peer_memory_client": True}
    (told,) = problems(facts() | lacks, peer_memory="nvidia-peermem")
    assert "nvidia-peermem is not loaded" in told and "DMA-BUF" in told


@pytest.mark.parametrize(
    ("told", "given", "said"),
    [
        ({"addresses": ["10.11.0.2/24"]}, "", ""),
        ({"addresses": []}, "10.11.0.2/24", ""),
        ({"addresses": None}, "", ""),  # there is no ip to ask
        ({"addresses": []}, "", "ib0, which has no address"),
        (None, "", "ib0, which does not exist yet"),
        (None, "10.11.0.2/24", ""),
    ],
)
def test_an_interface_without_address_is_asked_for_one(
    told: dict[str, Any] | None, given: str, said: str
) -> None:
    refused = infiniband.unaddressed({"interfaces": {"ib0": told}}, "ib0", given)
    assert said in refused
    assert bool(refused) == bool(said) == ("dlperf_interface_address" in refused)


def test_a_node_without_cards_is_told_of_unless_they_are_its_hosts() -> None:
    assert problems(facts()) == []
    bare = {**facts(), "devices": [], "gpu_direct": []}
    assert any("rdma ports: none" in told for told in problems(bare))
    assert problems(bare, has_cards=False) == []


@pytest.mark.parametrize(
    ("complaint", "has_client", "said"),
    [
        ("modprobe: ERROR: could not insert 'nv_peer_mem': Invalid argument", True, "rebuild"),
        ("ERROR: could not insert 'nvidia_peermem': Invalid argument", False, "DMA-BUF"),
        ("Unknown symbol in module, or unknown parameter", True, "another OFED"),
        ("modprobe: FATAL: Module nv_peer_mem not found in directory", True, "has no module"),
        ("Operation not permitted", True, "Operation not permitted"),
    ],
)
def test_the_kernels_complaint_is_explained(complaint: str, has_client: bool, said: str) -> None:
    assert said in infiniband.load_failure(complaint, has_client, "nv_peer_mem")


# Where dpkg is this machine's, and nothing is installed.
def run(tmp_path: Path, script: str, check: bool = False) -> dict[str, Any]:
    given: dict[str, Any] = {
        "name": "standin",
        "argv": ["./installer"],
        "chdir": str(program(tmp_path, "installer", script)),
        "expect": "Installation passed successfully",
        "undo": str(tmp_path / "undo"),
        "logs": "/tmp/x.logs",
    }
    return call("package_installer", check, **given)


def test_success_is_what_it_says_not_its_status(tmp_path: Path) -> None:
    assert run(tmp_path, "exit 1", check=True)["changed"]
    assert not (tmp_path / "undo").exists()
    failed = run(tmp_path, "echo Failed to install mlnx-ofed-kernel-dkms")
    assert failed["failed"]
    assert "without printing 'Installation passed successfully'" in failed["msg"]
    assert "Failed to install mlnx-ofed-kernel-dkms" in failed["msg"]
    assert "/tmp/x.logs" in failed["msg"]
    assert json.loads((tmp_path / "undo/standin.json").read_text())["unfinished"]
    done = run(tmp_path, "echo Installation passed successfully")
    assert (done["changed"], done["removed"]) == (True, [])
    record = json.loads((tmp_path / "undo/standin.json").read_text())
    assert not record["unfinished"]
    assert record["installed"] == record["changed"] == record["removed"] == {}
