"""The modules slurm_info and slurm_drain: whose Slurm a node has, on trees as public reports
describe them, and what is asked of a stand-in of scontrol."""

from pathlib import Path

import pytest
from executed_modules import call
from standins import program

MARK = "# Written by dlperf_runner."


def tree(root: Path, files: dict[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def process(number: int, name: str, *words: str) -> dict[str, str | bytes]:
    folder = f"proc/{number}"
    return {f"{folder}/comm": name + "\n", f"{folder}/cmdline": "\0".join(words) + "\0"}


OURS: dict[str, str | bytes] = {
    "etc/slurm/slurm.conf": MARK,
    "etc/slurm/cgroup.conf": MARK,
    "etc/munge/munge.key": "0" * 128 + "\n",
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


def test_jobs_are_those_of_slurms_step_daemons(tmp_path: Path) -> None:
    files = process(5, "slurmstepd", "slurmstepd: [1234.extern]")
    files |= process(6, "slurmstepd", "slurmstepd: [1234.batch]")
    files |= process(8, "slurmstepd", "slurmstepd: [99.0]")
    assert call("slurm_info", marker=MARK, root=str(tree(tmp_path, files)))["jobs"] == [
        "99",
        "1234",
    ]


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
    monkeypatch.setenv("PATH", str(bins), prepend=":")
    return tmp_path / "log"


def test_a_node_is_drained_and_given_back(tmp_path: Path, scontrol: Path) -> None:
    root = str(tree(tmp_path / "root", process(3, "slurmd", "slurmd", "-D", "-N", "n")))
    assert "it is not drained" in call("slurm_drain", state="checked", root=root)["msg"]
    assert call("slurm_drain", state="drained", root=root)["changed"]
    assert not call("slurm_drain", state="drained", root=root)["changed"]
    assert not call("slurm_drain", state="checked", root=root)["changed"]
    assert call("slurm_drain", state="resumed", root=root)["changed"]
    assert scontrol.read_text().splitlines() == [
        "update NodeName=n State=DRAIN Reason=dlperf_runner provisions it",
        "update NodeName=n State=RESUME",
    ]


def test_a_node_with_a_job_is_waited_for(tmp_path: Path, scontrol: Path) -> None:
    files = process(3, "slurmd", "slurmd", "-N", "n") | process(
        4, "slurmstepd", "slurmstepd: [8.0]"
    )
    root = str(tree(tmp_path / "root", files))
    failed = call("slurm_drain", state="drained", root=root, timeout=0)
    assert "these jobs still run: 8" in failed["msg"]
    assert "it is not drained" not in failed["msg"]
    assert "(jobs: 8)" in call("slurm_drain", state="checked", root=root)["msg"]
    assert "RESUME" not in scontrol.read_text()


def test_a_node_that_somebody_else_drained_stays_so(tmp_path: Path, scontrol: Path) -> None:
    root = str(tree(tmp_path / "root", process(3, "slurmd", "slurmd", "-N", "n")))
    (tmp_path / "state").write_text("IDLE+DRAIN")
    (tmp_path / "reason").write_text("bad fan")
    assert not call("slurm_drain", state="drained", root=root)["changed"]
    assert not call("slurm_drain", state="resumed", root=root)["changed"]
    assert scontrol.read_text() == ""


def test_a_node_without_slurm_is_left_alone(tmp_path: Path) -> None:
    assert not call("slurm_drain", state="checked", root=str(tmp_path))["changed"]
