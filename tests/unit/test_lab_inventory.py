"""inventory/lab: the nodes of the lab that is up, or of the one that could be."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
SCRIPT = PROJECT / "inventory/lab/hosts.py"


def listing(directory: Path) -> dict[str, Any]:
    done = subprocess.run(
        [str(SCRIPT), "--list"], check=True, capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], "DLPERF_LAB_DIR": str(directory)},
    )  # fmt: skip
    return json.loads(done.stdout)


def started(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])


def write_state(directory: Path, **state: object) -> None:
    (directory / "lab.json").write_text(json.dumps(state))


def test_a_lab_that_is_down_has_four_nodes(tmp_path: Path) -> None:
    found = listing(tmp_path)
    assert found["nodes"]["hosts"] == ["node1", "node2", "node3", "node4"]
    assert found["_meta"]["hostvars"]["node4"] == {"ansible_host": "10.11.0.5"}
    assert found["nodes"]["vars"]["dlperf_lab_is_up"] is False


def test_a_lab_that_is_up_has_the_nodes_that_it_has(tmp_path: Path) -> None:
    pid = os.getpid()  # a process that is alive
    frameworks = ["mxnet", "paddle"]
    write_state(tmp_path, nodes=64, pid=pid, started=started(pid), frameworks=frameworks)
    found = listing(tmp_path)
    assert found["nodes"]["vars"]["dlperf_frameworks"] == frameworks
    assert len(found["nodes"]["hosts"]) == 64
    assert found["_meta"]["hostvars"]["node64"] == {"ansible_host": "10.11.0.65"}
    assert found["nodes"]["vars"]["dlperf_lab_is_up"] is True
    assert found["nodes"]["vars"]["dlperf_lab_dir"] == str(tmp_path)
    assert found["nodes"]["vars"]["ansible_control_path_dir"] == str(tmp_path / "cm")


def test_a_process_number_that_another_process_has_now_is_no_lab(tmp_path: Path) -> None:
    pid = os.getpid()
    write_state(tmp_path, nodes=2, pid=pid, started=started(pid) + 1)
    found = listing(tmp_path)
    assert found["nodes"]["vars"]["dlperf_lab_is_up"] is False
    assert len(found["nodes"]["hosts"]) == 2


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nodes": null, "pid": 1, "started": 1}'])
def test_a_damaged_state_is_a_lab_that_is_down(tmp_path: Path, text: str) -> None:
    (tmp_path / "lab.json").write_text(text)
    found = listing(tmp_path)
    assert found["nodes"]["vars"]["dlperf_lab_is_up"] is False
    assert len(found["nodes"]["hosts"]) == 4


def test_the_local_inventory_is_this_machine_by_its_own_name() -> None:
    script = str(PROJECT / "inventory/local/hosts.py")
    done = subprocess.run([script, "--list"], check=True, capture_output=True, text=True)
    assert json.loads(done.stdout)["nodes"]["hosts"] == [os.uname().nodename]


def test_images_that_were_made_on_the_nodes_are_known_by_digest_while_the_lab_is_up(
    tmp_path: Path,
) -> None:
    images = {"localhost/dlperf-mxnet": "sha256:" + "0" * 64}
    (tmp_path / "container_images.json").write_text(json.dumps(images))
    assert listing(tmp_path)["nodes"]["vars"]["dlperf_container_images"] == {}
    write_state(tmp_path, nodes=1, pid=os.getpid(), started=started(os.getpid()))
    assert listing(tmp_path)["nodes"]["vars"]["dlperf_container_images"] == images
