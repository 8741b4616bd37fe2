"""What lab_control.py decides without making anything."""

import getpass
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from modules import load

PROJECT = Path(__file__).parents[2]


@pytest.fixture
def control() -> ModuleType:
    return load("roles/lab/files/lab_control.py")


@pytest.fixture
def machine(control: ModuleType) -> ModuleType:
    return sys.modules[control.check.__module__]


def test_ssh_takes_the_configuration(control: ModuleType, tmp_path: Path) -> None:
    config = tmp_path / "ssh_config"
    config.write_text(control.ssh_config(tmp_path / "100% mine", 12, 1))
    argv = ["ssh", "-F", str(config), "-G", "node12"]
    shown = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "hostname 10.11.0.13" in shown
    assert "user root" in shown
    assert "stricthostkeychecking true" in shown
    assert "proxyusefdpass yes" in shown


def test_programs_that_are_missing_are_named_with_their_packages(
    machine: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(machine, "search_path", lambda: str(tmp_path))
    with pytest.raises(machine.LabError) as refused:
        machine.require_programs({"ip": "iproute2", "newuidmap": "uidmap", "newgidmap": "uidmap"})
    assert str(refused.value) == (
        "missing: ip, newuidmap, newgidmap. Install with: apt-get install iproute2 uidmap"
    )


@pytest.mark.parametrize(
    ("line", "enough"),
    [
        ("me:100000:65536", True),
        ("1000:100000:65536", True),
        ("me:100000:1000", False),
        ("you:100000:65536", False),
        ("# me", False),
    ],
)
def test_subordinate_ids(machine: ModuleType, tmp_path: Path, line: str, enough: bool) -> None:
    path = tmp_path / "subuid"
    path.write_text(f"other:1:65536\n{line}\n")
    assert machine.has_subordinate_ids(path, "me", 1000) is enough


def refused(machine: ModuleType, patch: pytest.MonkeyPatch, **changes: object) -> str:
    """What an ordinary user is told on a machine with these changes."""
    patch.setattr(os, "geteuid", lambda: 1000)
    ready = {"require_programs": lambda *_: None, "has_subordinate_ids": lambda *_: True}
    for name, value in {**ready, **changes}.items():
        patch.setattr(machine, name, value)
    with pytest.raises(machine.LabError) as error:
        machine.check()
    return str(error.value)


def test_a_user_without_subordinate_ids_is_told_how_to_get_them(
    machine: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = refused(machine, monkeypatch, has_subordinate_ids=lambda path, *_: "gid" not in path)
    user = getpass.getuser()
    assert f"/etc/subgid has no 65536 subordinate ids for {user}" in said
    assert f"usermod --add-subgids 100000-165535 {user}" in said


def test_a_refused_trial_says_what_was_refused_and_the_way_out(
    machine: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    trial = "echo 'unshare failed: denied' >&2; exit 1"
    said = refused(machine, monkeypatch, unshare_argv=lambda **_: ["env"], TRIAL=trial)
    assert "this machine does not allow the lab: unshare failed: denied\n" in said
    assert "As root" in said or "-i inventory/local" in said


def up(place: Path, nodes: str = "1") -> list[str]:
    folders = [f"--{name}={place / name}" for name in ("directory", "base", "mirror-dir")]
    return ["up", f"--nodes={nodes}", "--suite=bookworm", *folders]


def test_a_folder_that_cannot_be_written_is_named_with_the_way_out(
    control: ModuleType, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.touch()
    with pytest.raises(SystemExit) as ended:
        control.main(up(file))
    message = str(ended.value)
    assert message.startswith(str(file))
    assert "DLPERF_LAB_DIR" in message
    assert "DLPERF_CACHE" in message


def test_down_removes_the_labs_files_and_no_others(control: ModuleType, tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    (lab / "host_keys").mkdir(parents=True)
    (lab / "lab.json").write_text('{"pid": 999999999, "started": 1, "supervisor": 999999999}')
    (lab / ".dlperf-lab").touch()
    (lab / "notes.txt").write_text("mine")
    assert control.down(lab) is True
    assert [path.name for path in lab.iterdir()] == ["notes.txt"]
    assert control.down(lab) is False


def test_a_directory_that_is_no_labs_is_not_touched(control: ModuleType, tmp_path: Path) -> None:
    """As `-e lab_dir=/` would be, where there is a /root."""
    (tmp_path / "root/mine").mkdir(parents=True)
    assert control.down(tmp_path) is False
    with pytest.raises(control.LabError, match="is not a lab's directory: it contains root"):
        control.up(tmp_path, {"nodes": 1})
    assert [path.name for path in tmp_path.iterdir()] == ["root"]


def test_the_directory_of_a_lab_goes_when_it_is_empty(control: ModuleType, tmp_path: Path) -> None:
    lab = tmp_path / "new" / "lab"
    with control.only_one(lab):
        assert lab.is_dir()
    assert not lab.exists()


@pytest.mark.parametrize("nodes", ["0", "-1", "254", "65536"])
def test_a_number_of_nodes_that_the_network_cannot_hold(
    control: ModuleType, tmp_path: Path, nodes: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        control.main(up(tmp_path, nodes))
    assert ended.value.code == f"lab_nodes is {nodes}; expected 1 to 253"


def test_a_signal_takes_effect_after_the_steps_that_belong_together(control: ModuleType) -> None:
    done = []
    with pytest.raises(KeyboardInterrupt), control.signals_deferred():
        signal.raise_signal(signal.SIGINT)
        done.append("whole")
    assert done == ["whole"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
