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


def test_the_key_of_packages_is_that_of_the_mirror_that_the_lab_serves(tmp_path: Path) -> None:
    mirror = str(tmp_path / "other")
    write_state(tmp_path, nodes=2, pid=1, started=987654321, mirror_dir=mirror)
    key = listing(tmp_path)["nodes"]["vars"]["node_base_mirror_key"]
    assert key == f"{mirror}/apt/dlperf-mirror.asc"


@pytest.mark.parametrize(
    ("state", "nodes"),
    [
        *((None, 4), ("", 4), ("{", 4), ("[]", 4), ("{}", 4)),
        ('{"nodes": null, "pid": 1, "started": 1}', 4),
        # Another process has its number now: the system's first one did not start then.
        ('{"nodes": 2, "pid": 1, "started": 987654321}', 2),
    ],
)
def test_without_its_process_a_lab_is_down(tmp_path: Path, state: str | None, nodes: int) -> None:
    if state is not None:
        (tmp_path / "lab.json").write_text(state)
    found = listing(tmp_path)
    assert found["nodes"]["vars"]["dlperf_lab_is_up"] is False
    assert found["nodes"]["hosts"] == [f"node{n}" for n in range(1, nodes + 1)]
    assert found["_meta"]["hostvars"]["node2"] == {"ansible_host": "10.11.0.3"}


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
