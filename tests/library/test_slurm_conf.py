"""The slurm.conf and gres.conf of the role slurm, from what slurmd 22.05.8 printed."""

import shutil
import subprocess
from pathlib import Path
from threading import Timer

import pytest
import yaml
from executed_modules import call
from standins import program, tree

from dlperf_runner.core.errors import UserError
from dlperf_runner.provision import slurm, ssh_mesh

conf, gres = slurm.conf, slurm.gres
PROJECT = Path(__file__).parents[2]
FOUND = """\
NodeName=node1 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2 ThreadsPerCore=1 RealMemory=24105
UpTime=0-17:19:35
"""
ADDRESSES = {"node1": "10.11.0.2", "node2": "10.11.0.3"}


def test_each_node_has_a_line_with_its_address_and_hardware() -> None:
    hardware = [FOUND, FOUND.replace("node1", "node2")]
    lines = conf(
        hardware, ADDRESSES, {"ClusterName": "c", "ReturnToService": 1}, "main"
    ).splitlines()
    assert lines[-3:] == [
        "NodeName=node1 NodeAddr=10.11.0.2 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2"
        " ThreadsPerCore=1 RealMemory=24105 State=UNKNOWN",
        "NodeName=node2 NodeAddr=10.11.0.3 CPUs=2 Boards=1 SocketsPerBoard=1 CoresPerSocket=2"
        " ThreadsPerCore=1 RealMemory=24105 State=UNKNOWN",
        "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP",
    ]
    assert "ClusterName=c" in lines
    assert [line for line in lines if line.startswith("ReturnToService")] == ["ReturnToService=1"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not installed")
@pytest.mark.parametrize("directive", ["ExecStartPre", "ExecBefore"])
def test_systemd_reads_what_makes_the_device_files(tmp_path: Path, directive: str) -> None:
    folder, entry = yaml.safe_load((PROJECT / "roles/slurm/vars/main.yml").read_text())[
        "__slurm_boot"
    ]
    dropin = tmp_path / Path(entry["path"]).relative_to("/etc/systemd/system")
    assert Path(folder["path"]) == Path(entry["path"]).parent
    dropin.parent.mkdir()
    text = entry["content"].replace("{{ __slurm_marker }}", "# marker")
    dropin.write_text(text.replace("ExecStartPre", directive))
    (unit := tmp_path / "slurmd.service").write_text("[Service]\nExecStart=/bin/true\n")
    argv = ["systemd-analyze", "verify", unit]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert (directive in done.stderr) == (directive == "ExecBefore"), done.stderr


def test_names_with_a_domain_are_the_nodes_host_names() -> None:
    addresses = {"node1.example.org": "10.11.0.2", "n2": "10.11.0.3"}
    names = slurm.names(
        addresses, {"node1.example.org": {}, "n2": {"__slurm_there": {"hostname": "node2"}}}
    )
    assert names == {"node1.example.org": "node1", "n2": "node2"}
    lines = conf([FOUND], dict(zip(names.values(), addresses.values(), strict=True)), {}, "main")
    assert "\nNodeName=node1 NodeAddr=10.11.0.2 " in lines


def test_a_node_whose_host_name_is_another_is_refused() -> None:
    with pytest.raises(UserError, match="names 'node1', which is no node: n1"):
        conf([FOUND], {"n1": "10.11.0.2"}, {}, "main")


def test_an_nvlink_domain_is_a_block() -> None:
    """NVIDIA/nccl#2186: only within a domain do GPUs of different nodes talk by NVLink."""
    hosts = {"a.example": {"dlperf_nvlink_domain": "rack1"}, "b": {"dlperf_nvlink_domain": "rack1"}}
    names = {"a.example": "a", "b": "b", "c": "c"}
    blocks = ssh_mesh.nvlink_domains(names, hosts | {"c": {}})
    assert slurm.topology(blocks) == "BlockName=rack1 Nodes=a,b\n"
    without = {name: host | {"slurm_nvlink_domain": ""} for name, host in hosts.items()}
    assert ssh_mesh.nvlink_domains(names, without | {"c": {}}, "slurm_nvlink_domain") == {}
    assert ssh_mesh.nvlink_domains(names, hosts | {"c": {}}, "slurm_nvlink_domain") == blocks
    refusal = slurm.topology_refusal
    assert refusal("rack1", "trixie", "debian13") == refusal("", "bookworm", "debian12") == ""
    assert "use Debian 13" in refusal("rack1", "bookworm", "debian12")
    assert "use Debian 13" in refusal("rack1", "", "rhel9")
    assert "must be letters" in refusal("rack 1", "trixie", "debian13")


GPUS = ["/dev/nvidia10", "/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia2"]
PLUGIN = "/usr/lib/x86_64-linux-gnu/slurm-wlm/gpu_nvml.so"


def test_gpus_are_counted_and_found_by_nvml_where_slurm_has_its_plugin() -> None:
    hardware = [FOUND, FOUND.replace("node1", "node2")]
    lines = conf(hardware, ADDRESSES, {}, "main", {"node1": GPUS, "node2": [PLUGIN]}).splitlines()
    assert "GresTypes=gpu" in lines
    assert lines[-3].endswith(" RealMemory=24105 Gres=gpu:3 State=UNKNOWN")
    assert "Gres=" not in lines[-2]
    assert "GresTypes=gpu" not in conf(hardware, ADDRESSES, {}, "main", {"node1": []}).splitlines()
    assert gres(GPUS) == (
        "Name=gpu File=/dev/nvidia0\nName=gpu File=/dev/nvidia2\nName=gpu File=/dev/nvidia10\n"
    )
    assert gres([*GPUS, PLUGIN]) == "AutoDetect=nvml\n"
    assert gres([PLUGIN]) == gres([]) == ""


# ---- the modules slurm_info and slurm_drain: whose Slurm a node has, on trees as public reports
# describe them, and what is asked of a stand-in of scontrol

MARK = "# Written by dlperf_runner."


def process(number: int, name: str, *words: str) -> dict[str, str | bytes]:
    folder = f"proc/{number}"
    return {f"{folder}/comm": name, f"{folder}/cmdline": "\0".join(words).encode() + b"\0"}


def executed(root: Path, number: int, path: str) -> None:
    """Let a process of the node execute a program."""
    (root / f"proc/{number}/exe").symlink_to(path)
    (root / f"proc/{number}/root").symlink_to(root)


OURS: dict[str, str | bytes] = {
    "etc/slurm/slurm.conf": MARK,
    "etc/slurm/cgroup.conf": MARK,
    "etc/munge/munge.key": "0" * 128,
    **process(9, "slurmd", "/usr/sbin/slurmd"),
}


CONFIGLESS = {"etc/sysconfig/slurmd": 'SLURMD_OPTIONS="--conf-server ctl:6817"'}
OF_THE_PACKAGE: dict[str, str | bytes] = {
    "etc/munge/munge.key": bytes(range(256)),
    "var/lib/dlperf/undo/packages.json": '{"installed": {"munge:amd64": "0.5.15-2"}}',
}


@pytest.mark.parametrize(
    ("files", "foreign"),
    [
        ({}, []),
        (OURS, []),
        ({"etc/slurm/slurm.conf": "ClusterName=site"}, ["/etc/slurm/slurm.conf"]),
        ({"opt/slurm/etc/slurm.conf": "ClusterName=aws"}, ["/opt/slurm/etc/slurm.conf"]),
        ({"run/slurm/conf/slurm.conf": ""}, ["/run/slurm/conf/slurm.conf"]),
        # dell/omnia and OpenHPC start slurmd with the controller's name only.
        (CONFIGLESS, ["/etc/sysconfig/slurmd (names a configuration elsewhere)"]),
        (
            process(7, "slurmd", "slurmd", "--conf-server=ctl", "-D"),
            ["slurmd --conf-server=ctl (process 7)"],
        ),
        (
            {**OURS, **process(7, "slurmd", "slurmd", "-f", "/opt/s/slurm.conf")},
            ["slurmd -f /opt/s/slurm.conf (process 7)"],
        ),
        ({"etc/munge/munge.key": bytes(range(256)) * 4}, ["/etc/munge/munge.key"]),
        ({"opt/slurm/etc/munge.key": b"\x00\x01"}, ["/opt/slurm/etc/munge.key"]),
        (OF_THE_PACKAGE, []),  # which provisioning installed
    ],
)
def test_what_is_of_somebody_else(
    tmp_path: Path, files: dict[str, str | bytes], foreign: list[str]
) -> None:
    assert call("slurm_info", marker=MARK, root=str(tree(tmp_path, files)))["foreign"] == foreign


def test_what_cannot_be_read_is_of_somebody_else(tmp_path: Path) -> None:
    """A link into a shared file system that is not mounted."""
    (tmp_path / "etc/slurm").mkdir(parents=True)
    (tmp_path / "etc/slurm/slurm.conf").symlink_to("/nowhere/slurm.conf")
    found = call("slurm_info", marker=MARK, root=str(tmp_path))["foreign"]
    assert found == ["/etc/slurm/slurm.conf (unreadable)"]


def test_jobs_are_those_of_slurms_step_daemons(tmp_path: Path) -> None:
    files = process(5, "slurmstepd", "slurmstepd: [1234.extern]")
    files |= process(6, "slurmstepd", "slurmstepd: [1234.batch]")
    files |= process(8, "slurmstepd", "slurmstepd: [99.0]")
    root = str(tree(tmp_path, files))
    assert call("slurm_drain", state="drained", root=root)["jobs"] == ["99", "1234"]


SCONTROL = """
case "$1" in
update) echo "$*" >> {log}
  case "$*" in
  *RESUME*) echo IDLE > {state} ;;
  *) echo IDLE+DRAIN > {state}; echo "$*" | sed 's/.*Reason=//' > {reason} ;;
  esac ;;
show) echo "NodeName=n State=$(cat {state}) CPUs=2 Reason=$(cat {reason}) [root@2026-11-26]" ;;
esac
"""


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The log of a stand-in that keeps a node's state, as scontrol 22.05 prints it."""
    names = {name: str(tmp_path / name) for name in ("log", "state", "reason")}
    for name in names:
        (tmp_path / name).write_text("IDLE" if name == "state" else "")
    bins = program(tmp_path / "bin", "scontrol", SCONTROL.format(**names))
    program(bins, "squeue", "")
    monkeypatch.setenv("PATH", str(bins), prepend=":")
    return tmp_path / "log"


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A node on which slurmd runs."""
    node = tree(tmp_path / "root", process(3, "slurmd", "slurmd", "-D", "-N", "n"))
    executed(node, 3, "/usr/sbin/slurmd-wlm")  # Debian's
    return str(node)


def test_a_node_is_drained_and_given_back(root: str, scontrol: Path) -> None:
    assert "it is not drained" in call("slurm_drain", state="checked", root=root)["msg"]
    assert call("slurm_drain", state="drained", root=root)["changed"]
    assert not call("slurm_drain", state="drained", root=root)["changed"]
    assert not call("slurm_drain", state="checked", root=root)["changed"]
    assert call("slurm_drain", state="resumed", root=root)["changed"]
    assert scontrol.read_text().splitlines() == [
        "update NodeName=n State=DRAIN Reason=dlperf_runner provisions it",
        "update NodeName=n State=RESUME",
    ]


@pytest.mark.parametrize("state", ["DOWN", "DOWN*", "IDLE+DRAIN", "MIXED+FAIL"])
def test_a_node_that_is_out_for_another_reason_stays_out(
    root: str, scontrol: Path, state: str
) -> None:
    """Given back, a node with a fault would get jobs again."""
    (scontrol.parent / "state").write_text(state)
    (scontrol.parent / "reason").write_text("bad fan")
    is_drained = "DRAIN" in state
    assert call("slurm_drain", state="drained", root=root)["changed"] != is_drained
    (scontrol.parent / "state").write_text(f"{state}+DRAIN")  # as slurmctld adds it
    assert not call("slurm_drain", state="checked", root=root)["changed"]
    assert not call("slurm_drain", state="resumed", root=root)["changed"]
    # Without it, one that is down would get jobs when it answers again.
    update = "update NodeName=n State=DRAIN Reason=bad fan\n"
    assert scontrol.read_text() == ("" if is_drained else update)


GIVE_BACK = "then run again, or type: scontrol update nodename=n state=resume"


@pytest.fixture
def rebooted(tmp_path: Path, root: str, scontrol: Path) -> str:
    """A node that was drained and then rebooted: no slurmd runs yet."""
    assert call("slurm_drain", state="drained", root=root)["node"] == "n"
    (tmp_path / "state").write_text("DOWN+DRAIN+NOT_RESPONDING")
    Path(root, "proc/3/comm").rename(tmp_path / "comm")
    scontrol.write_text("")
    return root


def test_a_node_is_given_back_when_slurmd_starts_late(
    tmp_path: Path, rebooted: str, scontrol: Path
) -> None:
    """Before, nothing was asked of a node without slurmd, and it stayed drained."""
    late = Timer(3, (tmp_path / "comm").rename, [Path(rebooted, "proc/3/comm")])
    late.start()
    assert call("slurm_drain", state="resumed", node="n", root=rebooted)["changed"]
    assert late.finished.is_set()
    assert scontrol.read_text() == "update NodeName=n State=RESUME\n"


def test_a_node_whose_slurmd_does_not_start_is_named(rebooted: str, scontrol: Path) -> None:
    """Given back nevertheless, it would be down when slurmd starts (ReturnToService=0)."""
    failed = call("slurm_drain", state="resumed", node="n", timeout=1, root=rebooted)["msg"]
    assert failed.startswith("n: provisioning could not give the node back to Slurm: after 1 s, no")
    assert failed.endswith(GIVE_BACK)
    assert scontrol.read_text() == ""
    # The next run recognises it, also if it does not drain.
    answer = call("slurm_drain", state="checked", root=rebooted)
    assert answer["node"] and not answer["changed"]


@pytest.mark.parametrize("state", ["DOWN*", "IDLE+NOT_RESPONDING", "IDLE+DRAIN"])
def test_a_node_that_does_not_answer_when_it_is_given_back_is_named(
    tmp_path: Path, root: str, scontrol: Path, state: str
) -> None:
    """Slurm drains it again if it has less memory or fewer GPUs than before."""
    assert call("slurm_drain", state="drained", root=root)["changed"]
    text = (tmp_path / "bin/scontrol").read_text().replace("echo IDLE >", f"echo '{state}' >")
    again = text.replace("RESUME*)", f"RESUME*) echo Low RealMemory > {tmp_path}/reason;")
    program(tmp_path / "bin", "scontrol", again)
    failed = call("slurm_drain", state="resumed", timeout=1, root=root)["msg"]
    assert f"Slurm says State={state} Reason=Low RealMemory" in failed
    assert failed.endswith(GIVE_BACK)
    assert scontrol.read_text().count("RESUME") == 1


def test_the_programs_and_the_configuration_are_those_of_the_running_slurmd(tmp_path: Path) -> None:
    """As NVIDIA's Base Command installs it."""
    site = tmp_path / "cm"
    program(site / "bin", "squeue", 'test "$SLURM_CONF" = /cm/etc/slurm.conf && echo "[7.]"')
    daemon = process(3, "slurmd", "slurmd", "-f", "/cm/etc/slurm.conf", "-N", "n")
    node = tree(tmp_path / "root", daemon)
    executed(node, 3, f"{site}/sbin/slurmd")
    root = str(node)
    program(site / "bin", "scontrol", "echo State=IDLE+POWERED_DOWN Reason=")
    assert (
        "(jobs: 7), and it is not drained" in call("slurm_drain", state="checked", root=root)["msg"]
    )
    # What a process of that name in a container, or of a setuid program, names is not executed.
    for link, other in (("root", tmp_path), ("exe", Path("/usr/bin/su"))):
        place = node / "proc/3" / link
        before = place.readlink()
        place.unlink()
        place.symlink_to(other)
        assert call("slurm_drain", state="checked", root=root)["jobs"] == []
        place.unlink()
        place.symlink_to(before)
    assert call("slurm_drain", state="checked", root=root)["failed"]


def test_a_node_with_a_job_is_waited_for(root: str, scontrol: Path) -> None:
    tree(Path(root), process(4, "slurmstepd", "slurmstepd: [8.0]"))
    failed = call("slurm_drain", state="drained", root=root, timeout=0)
    assert "these jobs still run: 8" in failed["msg"]
    assert "it is not drained" not in failed["msg"]
    assert "(jobs: 8)" in call("slurm_drain", state="checked", root=root)["msg"]
    assert "RESUME" not in scontrol.read_text()


@pytest.mark.usefixtures("scontrol")
def test_a_node_of_which_slurm_lists_no_jobs_is_not_taken_to_be_without(
    tmp_path: Path, root: str
) -> None:
    """While slurmctld restarts, squeue fails."""
    program(tmp_path / "bin", "squeue", "exit 1")
    assert "still run: unknown" in call("slurm_drain", state="drained", root=root, timeout=0)["msg"]
    assert "(jobs: unknown, " in call("slurm_drain", state="checked", root=root)["msg"]


def test_a_node_without_slurm_is_left_alone(tmp_path: Path) -> None:
    assert not call("slurm_drain", state="checked", root=str(tmp_path))["changed"]
